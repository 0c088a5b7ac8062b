"""The methods of the papers that platt_jax does not have, each for the rows of one problem."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betainc, betaincinv, betaln, expit

# The bound of Lin, Lin & Weng (2007) on the gradient for all algorithms; Platt's own is 1e-9.
_TOL = 1e-5
_LOG_ZERO = -200.0  # "make sure log(0) returns -200"
# Grid of log(alpha + beta) of a Beta distribution.
_LOG_SIZES = np.log(np.geomspace(0.1, 1e4, 26))


class Search(NamedTuple):
    """How Platt's search ended."""

    A: float
    B: float
    iterations: int
    overflows: int  # of exp(A f + B), in any row and trial
    log_zeros: int  # of log(p) and log(1 - p)
    converged: bool  # by one of its two stopping tests


@np.errstate(over="ignore")
def levenberg_marquardt(f: np.ndarray, y: np.ndarray, *, last_target: bool = False) -> Search:
    """The pseudo code of Platt (1999, appendix) for scores and labels of 0 and 1, in float64.

    With `last_target` the loss takes the target of the last row for all rows, as printed; without,
    that is mended (Lin, Lin & Weng 2007, section 3.1).
    """
    n_pos, n_neg = np.sum(y == 1), np.sum(y == 0)
    t = np.where(y == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))
    t_of_loss = t[-1] if last_target else t
    A, B = 0.0, np.log((n_neg + 1) / (n_pos + 1))
    p = np.full(len(f), (n_pos + 1) / (n_pos + n_neg + 2))
    stabilizer, loss = 1e-3, 1e300
    overflows = log_zeros = calm = 0
    for iteration in range(100):
        residual, curvature = t - p, p * (1 - p)
        g_A, g_B = np.sum(f * residual), np.sum(residual)
        if max(abs(g_A), abs(g_B)) < _TOL:
            return Search(A, B, iteration, overflows, log_zeros, True)
        h_AA, h_AB, h_BB = np.sum(f * f * curvature), np.sum(f * curvature), np.sum(curvature)
        before = loss
        while True:
            a, b = h_AA + stabilizer, h_BB + stabilizer
            if (det := a * b - h_AB * h_AB) == 0:
                stabilizer *= 10
                continue
            A_tried, B_tried = A - (b * g_A - h_AB * g_B) / det, B - (a * g_B - h_AB * g_A) / det
            odds = np.exp(A_tried * f + B_tried)
            p = 1 / (1 + odds)
            overflows += np.sum(np.isinf(odds))
            log_zeros += np.sum((p == 0) | (p == 1))
            loss = -np.sum(t_of_loss * _log(p) + (1 - t_of_loss) * _log(1 - p))
            better = loss < before * (1 + 1e-7)
            stabilizer *= 0.1 if better else 10
            if better or stabilizer >= 1e6:
                break
        A, B = A_tried, B_tried
        change, scale = loss - before, (loss + before + 1) / 2
        calm = calm + 1 if -1e-3 * scale < change < 1e-7 * scale else 0
        if calm == 3:
            return Search(A, B, iteration + 1, overflows, log_zeros, True)
    return Search(A, B, 100, overflows, log_zeros, False)


def _log(p: np.ndarray) -> np.ndarray:
    return np.where(p == 0, _LOG_ZERO, np.log(np.where(p == 0, 1, p)))


def softmax(f: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """P(y=1) at some scores: 1 / (1 + exp(-2 f)), without a fit (Rüping 2004, section 3)."""
    return expit(2 * at)


def clip(f: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(1 + f) / 2 clipped to [0, 1], without a fit: Rüping's SVM-01."""
    return np.clip((1 + at) / 2, 0, 1)


def pp_clip(f: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The same clipped to [P(y=1 | f < -1), P(y=1 | f > 1)]: Rüping's SVM-PP.

    Section 3.2 also allows a step at each margin; section 4 describes clipping. Where no row is
    beyond a margin, that end is 0 or 1.
    """
    below, above = f < -1, f > 1
    low = y[below].mean() if below.any() else 0
    high = y[above].mean() if above.any() else 1
    return np.clip((1 + at) / 2, low, high)


def beta(f: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Beta scaling with a curve for each predicted class: Rüping's SVM-Beta. See `_beta_curve`."""
    up = f > 0
    above = _beta_curve(expit(2 * f[up]), y[up], expit(2 * at))
    below = _beta_curve(expit(-2 * f[~up]), 1 - y[~up], expit(-2 * at))
    return np.where(at > 0, above, 1 - below)


def beta_2(f: np.ndarray, y: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Beta scaling with one curve, which does not descend: Beta-2. See `_beta_curve`."""
    return _beta_curve(expit(2 * f), y, expit(2 * at))


def _beta_curve(member: np.ndarray, right: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Q(B(m)) at some memberships m: B a Beta distribution function, Q a Beta quantile function.

    Garczarek (2002, "Classification rules in standardized partition spaces"), as given by Rüping
    (2004, section 3): the parameters make the mean of the curve equal the classifier's performance,
    and minimize the mean squared error. That leaves several readings open; these are taken:

    - The membership is the softmax 1 / (1 + exp(-2 f)).
    - B has the mean and variance of the memberships. Then Q's mean is the mean of the curve, and is
      set to the performance, the share of right predictions. (The R package klaR does the same.)
    - Q's other parameter, alpha + beta, minimizes the mean squared error within [0.1, 10^4].

    Memberships that are all right or all wrong have a flat curve, by Platt's targets.
    """
    mean, performance = member.mean(), right.mean()
    if performance in (0, 1):
        return np.full(len(at), (right.sum() + 1) / (len(right) + 2))
    size = mean * (1 - mean) / member.var() - 1

    def ranks(member):
        return betainc(mean * size, (1 - mean) * size, member)

    def curve(ranks, log_size):
        n = np.exp(log_size)
        return _beta_quantile(performance * n, (1 - performance) * n, ranks)

    def error(log_size):
        return np.mean((curve(ranks_of_rows, log_size) - right) ** 2)

    ranks_of_rows = ranks(member)
    best = np.argmin([error(x) for x in _LOG_SIZES])
    bounds = np.take(_LOG_SIZES, [best - 1, best + 1], mode="clip")
    found = minimize_scalar(error, bounds=bounds, options={"xatol": 1e-6})
    return curve(ranks(at), found.x)


def _beta_quantile(alpha: float, beta: float, ranks: np.ndarray) -> np.ndarray:
    """SciPy's is NaN for some ranks in the lower tail."""
    p = betaincinv(alpha, beta, ranks)
    lost = np.isnan(p)
    # There p < 1e-13: the first term of the distribution function's series in p suffices.
    p[lost] = np.exp((np.log(ranks[lost]) + np.log(alpha) + betaln(alpha, beta)) / alpha)
    return p
