"""Plain, obviously right versions of what the library computes, as oracles for the tests."""

import math

import mpmath
import numpy as np

NO_PRIOR = (0, 0), ((0, 0), (0, 0))


def targets(labels, weights=None, kind="platt"):
    """The target of each row."""
    labels = np.asarray(labels)
    if kind == "none":
        return labels.astype(float)
    weights = np.ones(labels.shape) if weights is None else weights
    n_pos, n_neg = weights[labels == 1].sum(), weights[labels == 0].sum()
    return np.where(labels == 1, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))


def six_sums(scores, labels, A, B, weights=None, kind="platt"):
    """Loss, g_A, g_B, h_AA, h_AB, h_BB in float64, as the paper's formulas stand."""
    f = np.asarray(scores, float)
    t = targets(labels, weights, kind)
    w = np.ones(len(t)) if weights is None else weights
    z = A * f + B
    e = np.exp(-np.abs(z))
    p = np.where(z >= 0, e / (1 + e), 1 / (1 + e))
    q = np.where(z >= 0, 1 / (1 + e), e / (1 + e))
    loss = np.where(z >= 0, t * z, (t - 1) * z) + np.log1p(e)
    d1, d2 = t - p, p * q
    return [math.fsum(w * term) for term in (loss, f * d1, d1, f * f * d2, f * d2, d2)]


def optimum(scores, labels, weights=None, kind="platt", prior=None, start=(0, 0), digits=50):
    """(A, B) at the optimum to many digits, and the exact 2 x 2 Hessian there.

    Newton's method with step halving in mpmath, from anywhere. The prior is (mean, precision).
    """
    with mpmath.workdps(digits):
        f = [mpmath.mpf(float(x)) for x in scores]
        w = [mpmath.mpf(1)] * len(f) if weights is None else [mpmath.mpf(float(x)) for x in weights]
        y = [int(label) for label in labels]
        n_pos = sum((wi for wi, yi in zip(w, y, strict=True) if yi), mpmath.mpf(0))
        n_neg = sum((wi for wi, yi in zip(w, y, strict=True) if not yi), mpmath.mpf(0))
        high, low = (
            ((n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2)) if kind == "platt" else (1, mpmath.mpf(0))
        )
        rows = [(fi, high if yi else low, wi) for fi, yi, wi in zip(f, y, w, strict=True)]
        A, B = mpmath.mpf(float(start[0])), mpmath.mpf(float(start[1]))
        for _ in range(200):
            g_A, g_B, h_AA, h_AB, h_BB = _derivatives(rows, A, B, prior)
            det = h_AA * h_BB - h_AB**2
            d_A, d_B = -(h_BB * g_A - h_AB * g_B) / det, -(h_AA * g_B - h_AB * g_A) / det
            decrement = mpmath.sqrt(-(g_A * d_A + g_B * d_B))
            if decrement < mpmath.mpf(10) ** (-digits // 3):
                break
            step = mpmath.mpf(1)
            while decrement > 0.1 and _loss(rows, A + step * d_A, B + step * d_B, prior) > (
                _loss(rows, A, B, prior) + step * (g_A * d_A + g_B * d_B) / 10**4
            ):
                step /= 2
            A, B = A + step * d_A, B + step * d_B
        else:
            raise ArithmeticError("no optimum within 200 steps")
        return A, B, (h_AA, h_AB, h_BB)


def constant_optimum(scores, labels, weights, kind="platt", digits=50):
    """As `optimum`, where all scores are the same: A = 0, B the log-odds of the mean target."""
    with mpmath.workdps(digits):
        f, w = mpmath.mpf(float(scores[0])), [mpmath.mpf(float(x)) for x in weights]
        n_pos = sum((wi for wi, y in zip(w, labels, strict=True) if y), mpmath.mpf(0))
        n_neg = sum((wi for wi, y in zip(w, labels, strict=True) if not y), mpmath.mpf(0))
        ones, zeros = n_pos, n_neg
        if kind == "platt":
            ones = n_pos * (n_pos + 1) / (n_pos + 2) + n_neg / (n_neg + 2)
            zeros = n_pos / (n_pos + 2) + n_neg * (n_neg + 1) / (n_neg + 2)
        h_BB = ones * zeros / (ones + zeros)
        return mpmath.mpf(0), mpmath.log(zeros / ones), (f * f * h_BB, f * h_BB, h_BB)


def has_optimum(scores, labels, weights, kind="platt"):
    """Whether the loss of these rows, all of some weight, has a minimum."""
    both_classes = 0 < labels.sum() < len(labels)
    return kind == "platt" or bool(both_classes and not separable(scores, labels))


def separable(scores, labels):
    """Whether a threshold splits the two classes, ties on it included, of scores that vary."""
    pos, neg = scores[labels == 1], scores[labels == 0]
    if not (len(pos) and len(neg)) or np.ptp(scores) == 0:
        return False
    return bool(pos.min() >= neg.max() or neg.min() >= pos.max())


def error_in_standard_errors(A, B, exact):
    """How far (A, B) is from the exact optimum, in the metric of its Hessian."""
    with mpmath.workdps(50):
        A_exact, B_exact, (h_AA, h_AB, h_BB) = exact
        a, b = mpmath.mpf(float(A)) - A_exact, mpmath.mpf(float(B)) - B_exact
        return float(mpmath.sqrt(abs(a * a * h_AA + 2 * a * b * h_AB + b * b * h_BB)))


def _derivatives(rows, A, B, prior):
    (m_A, m_B), ((p_AA, p_AB), (_, p_BB)) = prior or NO_PRIOR
    off_A, off_B = A - m_A, B - m_B
    sums = [p_AA * off_A + p_AB * off_B, p_AB * off_A + p_BB * off_B, p_AA, p_AB, p_BB]
    for f, t, w in rows:
        e = mpmath.exp(A * f + B)
        p, q = 1 / (1 + e), e / (1 + e)
        d1, d2 = w * (t - p), w * p * q
        for i, term in enumerate((f * d1, d1, f * f * d2, f * d2, d2)):
            sums[i] += term
    return sums


def _loss(rows, A, B, prior):
    (m_A, m_B), ((p_AA, p_AB), (_, p_BB)) = prior or NO_PRIOR
    off_A, off_B = A - m_A, B - m_B
    penalty = (p_AA * off_A**2 + 2 * p_AB * off_A * off_B + p_BB * off_B**2) / 2
    return penalty + sum(
        w * (t * (A * f + B) + mpmath.log(1 + mpmath.exp(-(A * f + B)))) for f, t, w in rows
    )


def appendix_3(scores, labels):
    """Lin, Lin & Weng (2007), Appendix 3, row-vectorised.

    Returns A, B, and the numbers of Newton steps and of halvings.
    """
    f, t = np.asarray(scores, float), targets(labels)
    n_pos, n_neg = np.sum(labels == 1), np.sum(labels == 0)
    A, B, halvings = 0.0, math.log((n_neg + 1) / (n_pos + 1)), 0

    def objective(A, B):
        z = f * A + B
        return np.sum(np.where(z >= 0, t * z, (t - 1) * z) + np.log1p(np.exp(-np.abs(z))))

    value = objective(A, B)
    for iteration in range(100):
        z = f * A + B
        e = np.exp(-np.abs(z))
        p = np.where(z >= 0, e / (1 + e), 1 / (1 + e))
        q = np.where(z >= 0, 1 / (1 + e), e / (1 + e))
        d1, d2 = t - p, p * q
        h11, h22, h21 = 1e-12 + np.sum(f * f * d2), 1e-12 + np.sum(d2), np.sum(f * d2)
        g1, g2 = np.sum(f * d1), np.sum(d1)
        if abs(g1) < 1e-5 and abs(g2) < 1e-5:
            return A, B, iteration, halvings
        det = h11 * h22 - h21 * h21
        dA, dB = -(h22 * g1 - h21 * g2) / det, -(-h21 * g1 + h11 * g2) / det
        slope, step = g1 * dA + g2 * dB, 1.0
        while step >= 1e-10:
            trial = objective(A + step * dA, B + step * dB)
            if trial < value + 1e-4 * step * slope:
                A, B, value = A + step * dA, B + step * dB, trial
                break
            step, halvings = step / 2, halvings + 1
        else:
            raise ArithmeticError("line search fails")
    raise ArithmeticError("maximum iterations")
