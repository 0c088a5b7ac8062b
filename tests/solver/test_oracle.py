"""Fits against optima of 30 digits, computed beforehand: see make_oracle.py."""

import warnings
from functools import reduce
from operator import or_
from typing import NamedTuple

import jax
import mpmath
import numpy as np
import pytest
from make_oracle import PRIOR, TABLE
from reference import error_in_standard_errors, separable

import platt_jax as pj
from platt_jax import Flag, GaussianPrior, Options, Status

BOUND = {np.float64: 1e-6, np.float32: 1e-2}


class Entry(NamedTuple):
    name: str
    scores: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    exact: tuple | None  # A, B, (h_AA, h_AB, h_BB); None where the loss has no minimum

    @property
    def there(self):
        """The scores and labels of rows with a weight."""
        return self.scores[self.weights > 0], self.labels[self.weights > 0]

    @property
    def constant(self):
        return np.ptp(self.there[0]) == 0

    def fits(self, dtype):
        """Whether this type holds the problem exactly."""
        with np.errstate(over="ignore", under="ignore"):
            return all((x.astype(dtype) == x).all() for x in (self.scores, self.weights))


@pytest.fixture(scope="module")
def entries():
    """The table by (targets, weighted, prior), then by number of rows."""
    with np.load(TABLE) as file:
        table = {name: file[name] for name in file.files}
    ends = np.cumsum(table["rows"])[:-1]
    arrays = zip(*(np.split(table[x], ends) for x in ("scores", "labels", "weights")), strict=True)
    result = {}
    for i, problem in enumerate(arrays):
        rows, family, kind, weighting, prior = (
            table[x][i].item() for x in ("rows", "family", "targets", "weighting", "prior")
        )
        with mpmath.workdps(30):
            A, B, *hessian = (mpmath.mpf(x) if x else None for x in table["exact"][i].tolist())
        exact = None if A is None else (A, B, tuple(hessian))
        entry = Entry(f"{i}: {family}, {kind}, {weighting}, {rows} rows", *problem, exact)
        group = result.setdefault((kind, bool(weighting), prior), {})
        group.setdefault(rows, []).append(entry)
    return result


def fit(some, dtype, weighted, **kwargs):
    """One call for problems of one size, with the x64 flag on and off: the bits are the same."""
    scores, weights = (
        np.stack([getattr(entry, x) for entry in some]).astype(dtype) for x in ("scores", "weights")
    )
    labels = np.stack([entry.labels for entry in some])
    fits = []
    for flag in (False, True):
        with jax.enable_x64(flag), warnings.catch_warnings(action="ignore"):  # statuses tell
            fits.append(pj.fit(scores, labels, weights=weights if weighted else None, **kwargs))
    jax.tree.map(np.testing.assert_array_equal, *fits)
    return fits[0]


def wrong_parameters(entry, A, B, bound):
    """What is wrong with them, if anything, in standard errors.

    An answer cannot be better than its rounding: one unit in the last place of A or B.
    """
    error = error_in_standard_errors(A, B, entry.exact)
    ulps = (float(np.spacing(np.abs(x))) for x in (A, B))
    one_ulp = max(
        ulp * float(mpmath.sqrt(h)) for ulp, h in zip(ulps, entry.exact[2][::2], strict=True)
    )
    if entry.constant and A != 0:
        return [f"{entry.name}: A = {A}"]
    return [] if error <= max(bound, one_ulp) else [f"{entry.name}: {error} standard errors off"]


def expected_statuses(entry, dtype):
    """Any failure but not NON_FINITE will do where rounding alone hides the optimum.

    The gradient errs by eps times the weight of the rows; to the slope that is so much more as its
    curvature is less where the intercept is free to follow.
    """
    if entry.exact is None:
        return (Status.MAX_ITERATIONS,)
    scores, _ = entry.there
    weights = entry.weights[entry.weights > 0]
    with mpmath.workdps(50):
        h_AA, h_AB, h_BB = entry.exact[2]
        center = mpmath.fdot(weights, scores) / mpmath.fsum(weights)
        about_center = h_AA - 2 * center * h_AB + center**2 * h_BB
        pivot = h_AA - h_AB**2 / h_BB
        condition = 1 if entry.constant else max(1, float(about_center / pivot))
    if np.finfo(dtype).eps * np.sqrt(weights.sum() * condition) <= BOUND[dtype]:
        return (Status.CONVERGED,)
    return Status.CONVERGED, Status.LINE_SEARCH_FAILED, Status.MAX_ITERATIONS


def expected_flags(entry):
    """The flags by their definitions, but for REVERSED: see `wrong_sign`."""
    scores, labels = entry.there
    raised = {
        Flag.ONE_CLASS: len(np.unique(labels)) == 1,
        Flag.CONSTANT_SCORES: entry.constant,
        Flag.SEPARABLE: separable(scores, labels),
        Flag.OUTLIER: not entry.constant and len(scores) >= 20 and largest_share(scores) >= 0.8,
    }
    return reduce(or_, (flag for flag, is_raised in raised.items() if is_raised), Flag(0))


def largest_share(scores):
    """The share of the scores' variance that is one score's."""
    scores = scores / np.abs(scores).max()
    squares = (scores - scores.mean()) ** 2
    return squares.max() / squares.sum()


def wrong_sign(entry, flags):
    """Whether REVERSED does not tell the sign of A, where that is beyond doubt."""
    if entry.exact is None:
        return False
    A, _, (h_AA, h_AB, h_BB) = entry.exact
    with mpmath.workdps(30):
        in_standard_errors = abs(A) * mpmath.sqrt(abs(h_AA - h_AB**2 / h_BB))
    beyond_doubt = in_standard_errors > BOUND[np.float32]
    return beyond_doubt and bool(flags & Flag.REVERSED) != (A > 0)


@pytest.mark.parametrize(
    "derivatives", ["analytic", pytest.param("autodiff", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("targets", ["platt", pytest.param("none", marks=pytest.mark.slow)])
def test_optima(targets, weighted, derivatives, dtype, entries):
    options = Options(targets=targets, derivatives=derivatives)
    wrong = []
    for rows, of_one_size in entries[targets, weighted, False].items():
        some = [entry for entry in of_one_size if entry.fits(dtype)]
        if not some or (derivatives == "autodiff" and rows > 256):  # another program to compile
            continue
        result = fit(some, dtype, weighted, options=options)
        for k, entry in enumerate(some):
            status, flags = Status(result.status[k]), Flag(int(result.flags[k]))
            if status not in expected_statuses(entry, dtype):
                wrong.append(f"{entry.name}: {status!r}")
            # What share of the variance a score has is defined for rows of one weight.
            others = ~(Flag.REVERSED | Flag.OUTLIER if weighted else Flag.REVERSED)
            as_expected = flags & others == expected_flags(entry) & others
            if not as_expected or wrong_sign(entry, flags):
                wrong.append(f"{entry.name}: {flags!r}")
            if status == Status.CONVERGED and entry.exact is not None:
                wrong += wrong_parameters(entry, result.A[k], result.B[k], BOUND[dtype])
    assert not wrong, "\n".join(wrong)


def test_optima_under_a_prior(entries):
    prior = GaussianPrior(*(np.array(part) for part in PRIOR))
    wrong = []
    for some in entries["platt", True, True].values():
        result = fit(some, np.float64, weighted=True, prior=prior)
        assert result.converged.all()
        for k, entry in enumerate(some):
            wrong += wrong_parameters(entry, result.A[k], result.B[k], BOUND[np.float64])
    assert not wrong, "\n".join(wrong)


def test_every_kind_of_problem_is_in_the_table(entries):
    everything = [e for group in entries.values() for some in group.values() for e in some]
    assert len(everything) >= 200 and sum(e.exact is None for e in everything) >= 20
    assert sum(e.fits(np.float32) for e in everything) >= 100
    assert {len(e.scores) for e in everything} >= {1, 2, 1000}
    for flag in Flag.ONE_CLASS, Flag.CONSTANT_SCORES, Flag.SEPARABLE, Flag.OUTLIER:
        assert sum(flag in expected_flags(e) for e in everything) >= 3, flag
    sizes = np.concatenate([np.abs(e.scores[e.scores != 0]) for e in everything])
    weights = np.concatenate([e.weights[e.weights > 0] for e in everything])
    assert sizes.min() < 1e-299 and sizes.max() > 1e299
    assert weights.min() < 1e-11 and weights.max() > 1e11
