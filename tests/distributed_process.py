"""One of several processes that fit together: distributed_process.py NUMBER COUNT PORT WHAT."""

import os
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np
from data import rows_of
from rows_elsewhere import fit_in_processes

import platt_jax as pj
from platt_jax import GaussianPrior, Options
from platt_jax.distributed import call
from platt_jax.distributed.shared_sums import SummedRows


def rows_of_all():
    """Rows, and which of them are whose: the last process has none, the first some alone."""
    rng = np.random.default_rng(0)
    f, y, s = rows_of(rng, rng.integers(0, 40, 12_000), B=rng.normal(size=40))
    y[s == 3] = True
    f[np.flatnonzero(s == 7)[5]] = np.nan
    w = rng.integers(0, 3, 12_000).astype(float)
    return (f, y, s.astype(str), w), np.where(s < 8, 0, rng.integers(0, 2, 12_000))


def compare(number):
    (f, y, s, w), owner = rows_of_all()
    mine = owner == number
    prior = GaussianPrior(np.array([-1.0, 0]), np.eye(2))
    given = (
        {},
        {"options": Options(non_finite="omit", targets="none"), "prior": prior},
        {"options": Options.libsvm(), "start": (-1.0, 0.0)},
        {"options": Options(non_finite="omit"), "pooling": "partial"},
    )
    for arguments in given:
        found = fit_in_processes(f[mine], y[mine], s[mine], weights=w[mine], **arguments)
        expected = pj.fit_segments(f, y, s, weights=w, **arguments)
        assert (found.keys == expected.keys).all()
        for name in ("status", "flags", "n_pos", "n_neg"):
            assert (getattr(found.fit, name) == getattr(expected.fit, name)).all(), name
        for name in ("A", "B", "nll", "covariance"):
            pair = getattr(found.fit, name), getattr(expected.fit, name)
            # A population is found to a hundredth of its standard errors.
            tol = 1e-5 if "pooling" in arguments else 1e-9
            np.testing.assert_allclose(*pair, rtol=tol, atol=tol)
        np.testing.assert_allclose(found.fallback.A, expected.fallback.A, rtol=1e-9)
    print("bits", found.fit.A.tobytes().hex()[:400])
    single = fit_in_processes(f[mine].astype(np.float32), y[mine], s[mine])
    assert single.fit.A.dtype == np.float32

    for wrong, message in (
        ((np.where(number == 0, 7, y[mine]), s[mine]), "got 7; .*in process 0"),
        ((y[mine], s[mine].astype(int) if number == 0 else s[mine]), "numbers and text"),
    ):
        try:
            fit_in_processes(f[mine], *wrong, weights=w[mine])
        except ValueError as error:
            print("refused", error)
        else:
            raise AssertionError(message)


def compare_levels(number):
    """Of 20 by 10 segments, each with rows in two processes."""
    rng = np.random.default_rng(1)
    segments = rng.integers(0, 200, 12_000)
    A, B = (rng.normal(size=20)[np.arange(200) // 10] + rng.normal(size=200) for _ in "AB")
    f, y, _ = rows_of(rng, segments, A=-1.5 + 0.5 * A, B=B)
    f[5] = np.nan
    ids, mine = np.stack(np.divmod(segments, 10), 1), rng.integers(0, 2, 12_000) == number
    for pooling in ("nested", "crossed"):
        given = {"pooling": pooling, "options": Options(non_finite="omit")}
        found = fit_in_processes(f[mine], y[mine], ids[mine], **given)
        expected = pj.fit_segments(f, y, ids, **given)
        assert found.keys.tolist() == expected.keys.tolist()
        one, other = found.population, expected.population
        deviations = np.sqrt(other.posterior_covariance[:, (0, 1), (0, 1)])
        # To a hundredth of standard errors, within which each search ends.
        assert (np.abs(one.posterior_mean - other.posterior_mean) <= 0.01 * deviations).all()
        for name in ("slope_sd", "intercept_sd"):
            off = np.abs(found.levels[name] - expected.levels[name])
            assert (off <= 0.01 * expected.levels[f"se_{name}"]).all(), (name, off)
        print("bits", found.predict_proba([0.5], [(99, 3)])[0].hex())


def before_each_pass(act):
    """Call `act` with the number of each pass over the rows of this process, from 1."""
    local, passes = SummedRows._local, []

    def counted(*arguments):
        passes.append(1)
        act(len(passes))
        return local(*arguments)

    SummedRows._local = counted
    return passes


def interrupted(number, what):
    """The last process ends, or sleeps, in the middle of the search."""

    def act(passes):
        if number == 1 and passes == 9:
            if what == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(30)

    before_each_pass(act)
    (f, y, s, _), owner = rows_of_all()
    mine = owner == number
    fit_in_processes(f[mine], y[mine], s[mine], time_limit=10)


def checkpointed(number, what):
    """A fit with a checkpoint, "killed" before pass N in one of the processes; N = 0 never."""
    _, directory, at, killed = what.split(" ")

    def act(passes):
        if passes == int(at) and number == int(killed):
            os.kill(os.getpid(), signal.SIGKILL)

    passes = before_each_pass(act)
    (f, y, s, w), owner = rows_of_all()
    mine = owner == number
    rows = f[mine], y[mine], s[mine]
    found = fit_in_processes(*rows, weights=w[mine], checkpoint=directory, time_limit=60)
    assert number or not os.path.exists(directory)  # the first process removes it
    resumed = len(passes)
    whole = fit_in_processes(*rows, weights=w[mine], time_limit=60)
    print("passes", resumed, len(passes) - resumed)
    for name in ("A", "B", "covariance", "nll", "status"):
        pair = getattr(found.fit, name), getattr(whole.fit, name)
        np.testing.assert_array_equal(*pair)
    np.testing.assert_array_equal(found.fallback.A, whole.fallback.A)


def of_another_call(number, what):
    """The checkpoint of a fit of other rows, or with other options, is refused by all."""
    _, directory = what.split(" ")
    (f, y, s, _), owner = rows_of_all()
    mine = owner == number
    for rows, options in (
        ((-f[mine], y[mine], s[mine]), Options()),
        ((f[mine], y[mine], s[mine]), Options(max_iter=7)),
    ):
        try:
            fit_in_processes(*rows, options=options, checkpoint=directory)
        except ValueError as error:
            print("refused", error)


def calls_that_differ(directory, prior, rows_and):
    """One process, its arguments, and those of the others."""
    other = GaussianPrior(prior.mean, 2 * prior.precision)
    partial = {"pooling": "partial"}
    return (
        (1, {"options": Options(max_iter=2, targets="none")}, {}),
        (0, {"prior": prior}, {}),
        (2, {"prior": other}, {"prior": prior}),
        (1, {"start": (-1.0, 0.0)}, {}),
        (1, partial, {}),
        (1, {**partial, "checkpoint": directory}, partial),
        (0, {"checkpoint": directory}, {}),
        (2, {"pos_label": 0}, {"pos_label": 1}),
        (0, {"weights": rows_and}, {}),
        (1, {"offset": rows_and}, {"offset": None}),
        (2, {"pooling": "partly" * 300}, {}),
        (0, {"options": None}, {}),
        (1, {"progress": "bar"}, {}),
        (1, {"prior": ("a", "b")}, {}),
    )


def differing(number, directory):
    """Calls that differ between processes are refused, and the next call is not disturbed."""
    (f, y, s, w), owner = rows_of_all()
    mine = owner == number
    rows = f[mine], y[mine], s[mine]
    prior = GaussianPrior(np.array([-1.0, 0]), np.eye(2))

    def refused(arguments):
        try:
            fit_in_processes(*rows, time_limit=20, **arguments)
        except ValueError as error:
            print("refused", error)

    for odd, its, others in calls_that_differ(directory, prior, w[mine]):
        refused(its if number == odd else others)
    version, call.__version__ = call.__version__, "0.0.1" if number == 1 else call.__version__
    refused({"options": Options(monotone=number == 0)})
    call.__version__ = version

    # The same values in other types, and what may differ. The last process has no rows.
    f = f.astype(np.float32).astype(float)
    found = fit_in_processes(
        f[mine].astype(float if number == 0 else np.float32),
        *rows[1:],
        weights=None if number == 2 else w[mine],
        prior=jax.tree.map((np.asarray, np.ndarray.tolist, np.float32)[number], prior),
        pooling=np.str_("none") if number else "none",
        checkpoint=Path(directory) if number else directory,
        progress=print if number == 1 else False,
        time_limit=20 + number,
    )
    expected = pj.fit_segments(f, y, s, weights=w, prior=prior)
    assert found.fit.A.dtype == expected.fit.A.dtype == np.float64
    np.testing.assert_allclose(found.fit.A, expected.fit.A, rtol=1e-9, atol=1e-9)


if __name__ == "__main__":
    number, count, port = map(int, sys.argv[1:4])
    jax.distributed.initialize(f"127.0.0.1:{port}", count, number, heartbeat_timeout_seconds=10)
    if sys.argv[4] == "fits":
        compare(number)
    elif sys.argv[4] == "levels":
        compare_levels(number)
    elif sys.argv[4].startswith("checkpoint"):
        checkpointed(number, sys.argv[4])
    elif sys.argv[4].startswith("differing"):
        differing(number, sys.argv[4].split(" ")[1])
    elif sys.argv[4].startswith("another"):
        of_another_call(number, sys.argv[4])
    else:
        interrupted(number, sys.argv[4])
