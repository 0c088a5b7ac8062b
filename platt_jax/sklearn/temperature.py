"""Temperature scaling of several classes, with one parameter for all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from platt_jax.columns import Column
from platt_jax.results.tables import Table, cell
from platt_jax.status import Status

_TOL = 1e-8  # as Options.tol in float64
_MAX_ITERATIONS = 100
_ENTRIES_AT_ONCE = 1 << 15  # maximum number of logits at a time, to stay in the cache


@dataclass(frozen=True, repr=False)
class TemperatureCalibrator:
    """P(class | f) = softmax(f / T), for logits f of C classes.

    Attributes:
        inverse_temperature: 1 / T >= 0; with 0 every probability is 1 / C.
        standard_error: standard error of the inverse temperature.
        nll: negative log-likelihood in nats, summed over weighted rows.
        status: `Status` of the fit. It is MAX_ITERATIONS, too, if the right class has the largest
            logit in every row. Then there is no best temperature, and this one is so small that
            rounding hides further improvement.
        iterations: number of Newton steps.
        rows: weighted number of rows.
    """

    inverse_temperature: float
    standard_error: float
    nll: float
    status: Status
    iterations: int
    rows: float

    @property
    def temperature(self) -> float:
        """T, which may be infinite."""
        return 1 / self.inverse_temperature if self.inverse_temperature else np.inf

    def predict_proba(self, logits: Column) -> NDArray[np.float64]:
        """Probabilities (N, C) for logits (N, C)."""
        f = np.asarray(logits, np.float64)
        e: NDArray[np.float64] = np.exp(
            self.inverse_temperature * (f - f.max(axis=1, keepdims=True))
        )
        return e / e.sum(axis=1, keepdims=True)

    def table(self) -> Table:
        """One line: temperature, standard error of 1 / T, status and counts."""
        line = dict(
            temperature=self.temperature,
            inverse_temperature=self.inverse_temperature,
            se_inverse_temperature=self.standard_error,
            status=self.status.name,
            rows=self.rows,
            nll=self.nll,
            iterations=self.iterations,
        )
        return Table({name: np.array([value]) for name, value in line.items()})

    def __repr__(self) -> str:
        return (
            f"TemperatureCalibrator(temperature={cell(self.temperature)}, "
            f"status={self.status.name})"
        )


def fit_temperature(
    logits: NDArray[np.float64],
    codes: NDArray[np.intp],
    weights: NDArray[np.float64] | None = None,
) -> TemperatureCalibrator:
    """The temperature by maximum likelihood (Guo, Pleiss, Sun & Weinberger 2017, section 4.2).

    The likelihood is log-concave in b = 1 / T. Newton's method, bracketed by the slopes found so
    far, starts at b = 0, which needs no scale.

    Args:
        logits: (N, C) logits.
        codes: (N,) class numbers of the rows; -1 leaves a row out.
        weights: (N,) counts >= 0, or None.
    """
    w = np.ones(len(codes)) if weights is None else np.asarray(weights, np.float64)
    used = (codes >= 0) & (w > 0)
    f, codes, w = logits[used], codes[used], w[used]
    d = f - f.max(axis=1, keepdims=True, initial=-np.inf)
    if not (np.isfinite(d).all() and np.isfinite(w).all()):
        return _failed(Status.NON_FINITE, w)
    if not len(d):
        return _failed(Status.EMPTY, w)
    own = d[np.arange(len(d)), codes]
    # From here on logits are divided by the widest row's range, and b is multiplied by it.
    unit = max(-d.min(), np.finfo(np.float64).tiny)
    d, own = d / unit, own / unit

    b, low, high = 0.0, 0.0, np.inf
    for step in range(_MAX_ITERATIONS + 1):
        value, slope, curvature = _derivatives(b, d, own, w)
        at_bound = b == 0 and slope >= 0
        converged = at_bound or slope * slope <= _TOL * _TOL * curvature
        if converged or step == _MAX_ITERATIONS:
            break
        low, high = (b, high) if slope < 0 else (low, b)
        after = b - slope / curvature if curvature > 0 else np.inf
        if not low < after < high:
            after = (low + high) / 2 if np.isfinite(high) else 2 * b + 1
        b = after
    converged &= at_bound or bool((own < 0).any())
    return TemperatureCalibrator(
        inverse_temperature=float(b / unit),
        standard_error=float(1 / (np.sqrt(curvature) * unit)) if curvature > 0 else np.nan,
        nll=float(value),
        status=Status.CONVERGED if converged else Status.MAX_ITERATIONS,
        iterations=step,
        rows=float(w.sum()),
    )


def _derivatives(
    b: float, d: NDArray[np.float64], own: NDArray[np.float64], w: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The value, first and second derivative by b of the negative log-likelihood.

    Args:
        b: inverse temperature.
        d: (N, C) logits minus the largest of their row.
        own: (N,) entries of d for the rows' classes.
        w: (N,) weights.
    """
    length = max(1, _ENTRIES_AT_ONCE // d.shape[1])
    space = np.empty((length, d.shape[1]))
    sums = np.zeros(3)
    for start in range(0, len(d), length):
        rows = slice(start, start + length)
        x, w_own = d[rows], w[rows]
        e = np.multiply(x, b, out=space[: len(x)])
        np.exp(e, out=e)
        total = e.sum(axis=1)
        e *= x
        mean = e.sum(axis=1) / total
        variance = np.einsum("nc,nc->n", e, x) / total - mean * mean
        sums += (
            w_own @ (np.log(total) - b * own[rows]),
            w_own @ (mean - own[rows]),
            w_own @ np.maximum(variance, 0),
        )
    return sums


def _failed(status: Status, w: NDArray[np.float64]) -> TemperatureCalibrator:
    nan = float("nan")
    return TemperatureCalibrator(nan, nan, nan, status, 0, float(w.sum()))
