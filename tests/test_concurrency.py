"""Several threads at once, and what the library must leave alone for the sake of others."""

import itertools
import os
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data import problem
from made_up import calibrators, same
from process_state import global_state

import platt_jax as pj
from platt_jax.backend import threads
from platt_jax.cli import main

THREADS = 6


def jobs(rng):
    """The three fits, and one in another dtype."""
    labels, segments = rng.random(3000) < 0.4, rng.integers(0, 400, 3000)
    scores = rng.normal(size=3000) + labels
    columns = rng.normal(size=(60, 30))
    return [
        lambda: pj.fit(columns.T, labels[:60]),
        lambda: pj.fit(columns.T.astype(np.float32), labels[:60]),
        lambda: pj.fit_segments(scores, labels, segments),
        lambda: pj.fit_one_vs_rest(columns, np.arange(60) % 30),
    ]


def at_once(tasks):
    """The results of the tasks, all begun at one moment, each by a thread of its own."""
    together = threading.Barrier(len(tasks))

    def begin(task):
        together.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(begin, tasks))


def test_fits_at_once_give_the_bits_of_fits_in_turn(rng):
    """The threads go first, so that they compile at once too."""
    tasks = jobs(rng) * 2
    threaded = at_once(tasks)
    for task, result in zip(tasks, threaded, strict=True):
        assert same(task(), result)


def test_two_fits_beside_each_other():
    def dtype_and_thread():
        return jnp.ones(()).dtype, threading.get_ident()

    with jax.enable_x64(True):
        (there, one), (here, other) = threads.run_concurrently(dtype_and_thread, dtype_and_thread)
    assert there == here == np.float64 and one != other == threading.get_ident()
    for both in ((lambda: 1 / 0, lambda: 1), (lambda: 1, lambda: 1 / 0)):
        with pytest.raises(ZeroDivisionError):
            threads.run_concurrently(*both)


def test_an_interrupt_stops_the_fit_beside_it():
    begun = threading.Event()

    def without_end():
        return list(threads.ordered_map(lambda i: begun.set(), itertools.count()))

    def interrupted():
        assert begun.wait(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.run_concurrently(without_end, interrupted)


def test_predictions_at_once(rng):
    fitted = calibrators()["SegmentCalibrator"]
    scores, names = rng.normal(size=50_000), rng.choice(fitted.keys, 50_000)
    expected = fitted.predict_proba(scores, names)
    for result in at_once([lambda: fitted.predict_proba(scores, names)] * THREADS):
        assert result.tobytes() == expected.tobytes()


def test_saves_at_once_to_one_path(tmp_path):
    """Whoever reads meanwhile, or comes last, finds a whole file of one of the writers."""
    path = tmp_path / "file.npz"
    ours = [pj.Sigmoid(np.full(20_000, x), np.full(20_000, x)) for x in range(1, THREADS)]
    pj.save(path, ours[0])

    def write(one):
        for _ in range(10):
            pj.save(path, one)

    def read():
        for _ in range(30):
            found = pj.load(path)
            assert (found.A == found.A[0]).all() and (found.B == found.A[0]).all()

    at_once([read, *(lambda one=one: write(one) for one in ours)])
    assert os.listdir(tmp_path) == ["file.npz"]


# --- global state ------------------------------------------------------------------------------


def every_public_function(path):
    """Each of them, in both dtypes, with good arguments and with bad ones; stops in between."""
    rng = np.random.default_rng(0)
    scores, labels = problem(rng, 40)
    bad = np.where(np.arange(40) == 3, np.nan, scores)
    raising = pj.Options(non_finite="raise")
    yield pj.fit(scores.astype(np.float32), labels, progress=True)
    one = pj.fit(bad, labels)
    yield one
    yield repr(pj.solve(scores, labels))
    by_segment = pj.fit_segments(scores, labels, np.arange(40) % 4)
    two = np.stack([scores, -scores], axis=1)
    by_class = pj.fit_one_vs_rest(two, labels)
    for result in (one, by_segment, by_class):
        yield pj.save(path / "c.npz", result)
        yield repr(pj.load(path / "c.npz")), result._repr_html_(), result.table().to_pandas()
    yield by_segment.predict_proba(scores, np.arange(40) % 5)
    yield by_class.predict_proba(1e4 * two)
    yield one.sigmoid.log_proba(scores), pj.Sigmoid(-1e300, 0.0).predict_proba(1e300 * scores)
    (path / "in.csv").write_text("f,y\n1,0\n2,1\nnan,1\n")
    (path / "broken.npz").write_bytes(b"PK")
    for file, status in (("in.csv", 3), ("no.csv", 2)):
        command = ["fit", str(path / file), "--score", "f", "--label", "y"]
        assert main([*command, "--out", str(path / "out.npz")]) == status
        yield
    for fails in (
        lambda: pj.fit(bad, labels, options=raising),
        lambda: pj.fit(scores, labels + 1),
        lambda: pj.Options(max_iter=0),
        lambda: pj.save(path / "c.npz", object()),
        lambda: pj.load(path / "broken.npz"),
        lambda: one.raise_if_failed(),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            fails()
        yield


@pytest.mark.parametrize(
    "x64",
    [
        pytest.param(nullcontext(), id="as-it-is"),
        pytest.param(jax.enable_x64(True), id="x64", marks=pytest.mark.slow),
    ],
)
def test_no_global_state_is_touched(tmp_path, capsys, x64):
    with x64, warnings.catch_warnings(), np.errstate(over="print"):
        warnings.simplefilter("ignore")
        before = global_state()
        for _ in every_public_function(tmp_path):
            now = global_state()
            assert [name for name in before if now[name] != before[name]] == []


IMPORT = """
from process_state import global_state
before = global_state()
import platt_jax, platt_jax.cli, platt_jax.cli.demo
import platt_jax.inference, platt_jax.metrics, platt_jax.curves
assert global_state() == before
"""


def test_importing_touches_no_global_state():
    command = [sys.executable, "-c", IMPORT]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)})


OUTLIVES_THE_MAIN_THREAD = """
import threading
import numpy as np
import platt_jax as pj

def fit():
    main.join()
    rng = np.random.default_rng(0)
    labels = rng.random((700, 1_000)) < 0.4
    print(pj.fit(rng.normal(size=labels.shape) + labels, labels).status.max())

main = threading.main_thread()
threading.Thread(target=fit).start()
"""


@pytest.mark.slow
def test_a_thread_that_outlives_the_main_one_can_fit():
    """Python then lets no executor begin anything."""
    command = [sys.executable, "-W", "error", "-c", OUTLIVES_THE_MAIN_THREAD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]
    assert not done.stderr
