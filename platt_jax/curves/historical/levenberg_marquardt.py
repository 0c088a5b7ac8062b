"""Platt's own fit of the sigmoid, kept to show the effect of its shortcomings."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Floats, Ints
from platt_jax.curves.base import CurveRows, HostCurve
from platt_jax.curves.historical.sums import require
from platt_jax.groups import Groups
from platt_jax.model.objective import platt_targets
from platt_jax.results.fitted_curves import FittedCurves
from platt_jax.results.historical_curves import SigmoidCurves
from platt_jax.status import Status

_LOG_ZERO = -200.0  # "make sure log(0) returns -200"
_GIVE_UP = 1e6  # stabilizer at which an iteration accepts its trial
_CALM_ITERATIONS = 3  # number of iterations with hardly any change that stops the search


class _Targets(NamedTuple):
    """The rows of some problems with their targets."""

    groups: Groups
    scores: Floats
    weights: Floats
    targets: Floats
    targets_of_loss: Floats

    def some(self, which: Ints) -> "_Targets":
        rows = self.groups.rows_of(which)
        return _Targets(Groups(self.groups.sizes[which]), *(x[rows] for x in self[1:]))


class _Evaluation(NamedTuple):
    """The results of Platt's code at a point of each problem."""

    derivatives: Floats  # (5, K): g_A, g_B, h_AA, h_AB, h_BB
    loss: Floats
    overflows: Ints
    log_zeros: Ints


@dataclass(frozen=True)
class LevenbergMarquardt(HostCurve):
    """The sigmoid by the pseudo code of Platt (1999, appendix), a Levenberg-Marquardt search.

    Each iteration solves (H + lambda I) d = -g. It divides lambda by 10 if the loss falls, else
    multiplies it by 10 until it does, as Lin, Lin & Weng (2007, section 2.1) describe. They show
    that it may fail, and compare it with their own (section 4). The arithmetic is Platt's, in
    float64: p = 1 / (1 + exp(A f + B)), which may overflow; 1 - p, which may cancel; -200 for
    log(0). So this fit is not affine invariant. Two things differ. The printed loss uses the target
    of the last row for all rows (Lin et al., section 3.1); loss="corrected" fixes that,
    loss="platt" keeps it. And lambda does not underflow to 0, where the printed code would never
    end.

    One class: the mean of Platt's targets, the starting point of the search. Constant scores: the
    right probability for that score, though A is not 0. The status is MAX_ITERATIONS where neither
    of Platt's two stopping tests ended the search. The curves of the result have the parameters and
    statistics of the search.

    Attributes:
        loss: "corrected" or "platt".
        tol: threshold for both entries of the gradient, below which the search stops; Lin et al.
            used 1e-5. The other stopping test, three iterations of hardly any change, always
            applies.
        max_iter: maximum number of iterations (>= 1).

    Example:
        >>> from platt_jax import fit
        >>> found = fit([5.0, -4.0, 1.0], [1, 0, 0], curve=LevenbergMarquardt()).curves
        >>> found.A.round(4), found.B.round(4), found.overflows.tolist()
        (array([-0.2026]), array([0.6524]), [0])
    """

    loss: Literal["corrected", "platt"] = "corrected"
    tol: float = 1e-9
    max_iter: int = 100

    def __post_init__(self) -> None:
        require(self, "loss", self.loss in ("corrected", "platt"), '"corrected" or "platt"')
        require(self, "tol", self.tol > 0, "a number > 0")
        counts = isinstance(self.max_iter, int) and self.max_iter >= 1
        require(self, "max_iter", counts, "an integer >= 1")

    def fit_some(self, rows: CurveRows) -> FittedCurves:
        """See `HostCurve`."""
        groups, f, w = rows.groups, rows.scores.astype(np.float64), rows.weights
        counts: Any = [groups.sums(np.where(x, w, 0)) for x in (rows.positive, ~rows.positive)]
        targets, (n_pos, n_neg) = platt_targets(*counts), counts
        t = np.where(
            rows.positive, groups.by_row(targets.positive), groups.by_row(targets.negative)
        )
        t_of_loss = t
        if self.loss == "platt":
            last = groups.starts + groups.sizes - 1
            t_of_loss = np.repeat(t[last[groups.sizes > 0]], groups.sizes[groups.sizes > 0])
        # As in Platt's code, nothing is done about an overflow.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            search = _Search(
                self, _Targets(groups, f, w, t, t_of_loss), np.log((n_neg + 1) / (n_pos + 1))
            )
            search.run()
            z = search.A[groups.owner] * f + search.B[groups.owner]
            nll = groups.sums(w * (np.logaddexp(0, z) - (1 - t) * z))
        status = np.where(search.stopped, rows.status, Status.MAX_ITERATIONS)
        status = np.where(np.isfinite(search.A), status, Status.NON_FINITE)
        status = np.where(rows.status == Status.CONVERGED, status, rows.status).astype(np.int32)
        lost, dtype = (status == Status.NON_FINITE) | (status == Status.EMPTY), rows.scores.dtype
        A, B, nll, low, high = (
            np.where(lost, np.nan, x).astype(dtype)
            for x in (search.A, search.B, nll, groups.minima(f), groups.maxima(f))
        )
        return SigmoidCurves(
            status=status,
            low=low,
            high=high,
            A=A,
            B=B,
            iterations=search.iterations,
            overflows=search.overflows,
            log_zeros=search.log_zeros,
            nll=nll,
        )


class _Search:
    """The state of Platt's search for some problems; every array is (K,) or (5, K).

    Attributes:
        A, B: the parameters.
        at: the derivatives there.
        loss: the loss there; infinite before the first step.
        stabilizer: lambda.
        calm: number of consecutive iterations with hardly any change.
        iterations, overflows, log_zeros: see `SigmoidCurves`.
        stopped: bool, by a stopping test.
    """

    def __init__(self, options: LevenbergMarquardt, rows: _Targets, B: Floats) -> None:
        self.options, self.rows = options, rows
        self.A, self.B = np.zeros_like(B), B
        self.at = _evaluate(rows, self.A, B).derivatives
        self.loss, self.stabilizer = np.full_like(B, np.inf), np.full_like(B, 1e-3)
        counts = [np.zeros(len(B), np.int32) for _ in range(4)]
        self.calm, self.iterations, self.overflows, self.log_zeros = counts
        self.stopped = self._tiny(self.at)

    def run(self) -> None:
        """Steps until every problem has stopped, or has made all its iterations."""
        while (some := np.flatnonzero(self._unfinished())).size:
            self._step(some)

    def _unfinished(self) -> Bools:
        return ~self.stopped & (self.iterations < self.options.max_iter)

    def _step(self, some: Ints) -> None:
        """One trial, which either ends the iteration or raises the stabilizer for the next one."""
        g_A, g_B, *hessian = self.at[:, some]
        stabilizer = _make_regular(self.stabilizer[some], *hessian)
        h_AA, h_AB, h_BB = hessian[0] + stabilizer, hessian[1], hessian[2] + stabilizer
        det = h_AA * h_BB - h_AB * h_AB
        A = self.A[some] - (h_BB * g_A - h_AB * g_B) / det
        B = self.B[some] - (h_AA * g_B - h_AB * g_A) / det
        trial, before = _evaluate(self.rows.some(some), A, B), self.loss[some]

        better = trial.loss < before * (1 + 1e-7)
        tiny = np.finfo(float).tiny
        stabilizer = np.where(better, np.maximum(0.1 * stabilizer, tiny), 10 * stabilizer)
        self.stabilizer[some] = stabilizer
        self.overflows[some] += trial.overflows
        self.log_zeros[some] += trial.log_zeros

        change, scale = trial.loss - before, (trial.loss + before + 1) / 2
        hardly = (change > -1e-3 * scale) & (change < 1e-7 * scale)
        ends = better | (stabilizer >= _GIVE_UP)
        moved = some[ends]
        self.A[moved], self.B[moved], self.loss[moved] = A[ends], B[ends], trial.loss[ends]
        self.at[:, moved] = trial.derivatives[:, ends]
        self.iterations[moved] += 1
        self.calm[moved] = np.where(hardly[ends], self.calm[moved] + 1, 0)
        calm = self.calm[moved] == _CALM_ITERATIONS
        self.stopped[moved] = calm | self._tiny(self.at[:, moved])

    def _tiny(self, derivatives: Floats) -> Bools:
        return np.asarray((np.abs(derivatives[:2]) < self.options.tol).all(axis=0))


def _make_regular(stabilizer: Floats, h_AA: Floats, h_AB: Floats, h_BB: Floats) -> Floats:
    """The stabilizer, multiplied by 10 until the determinant is not 0."""
    while (singular := (h_AA + stabilizer) * (h_BB + stabilizer) - h_AB * h_AB == 0).any():
        stabilizer = np.where(singular, 10 * stabilizer, stabilizer)
    return stabilizer


def _evaluate(rows: _Targets, A: Floats, B: Floats) -> _Evaluation:
    groups, f, w, t, t_of_loss = rows
    odds = np.exp(groups.by_row(A) * f + groups.by_row(B))
    p = 1 / (1 + odds)
    slope, curvature = w * (t - p), w * (p * (1 - p))
    loss = -groups.sums(w * (t_of_loss * _log(p) + (1 - t_of_loss) * _log(1 - p)))
    derivatives = f * slope, slope, f * f * curvature, f * curvature, curvature
    overflows, log_zeros = (
        groups.sums(x.astype(np.int32)) for x in (np.isinf(odds), (p == 0) | (p == 1))
    )
    return _Evaluation(groups.sums(np.stack(derivatives)), loss, overflows, log_zeros)


def _log(p: Floats) -> NDArray[np.float64]:
    return np.where(p == 0, _LOG_ZERO, np.log(np.where(p == 0, 1, p)))
