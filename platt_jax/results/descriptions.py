"""Fits as text, as tables, and in a notebook with small drawings of their curves."""

from html import escape
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Floats
from platt_jax.results import tables
from platt_jax.results.probabilities import (
    UPPER,
    band,
    critical_value,
    expit,
    variance_of_logit,
)
from platt_jax.results.tables import Table, counted
from platt_jax.status import Status

_WIDTH, _HEIGHT = 72, 24  # pixels
_POINTS = 25
_LOGIT = 4.0  # a typical curve is drawn where its log-odds are in this distance of 0


def fit_table(fit: Any, kind: str, names: NDArray[Any]) -> Table:
    """The fits line by line, after one or more columns of names; status and flags as text."""
    fit = jax.device_get(fit)
    flat = {key: np.ravel(getattr(fit, key)) for key in ("A", "B", "status", "flags")}
    errors = np.asarray(fit.standard_errors).reshape(-1, 2)
    counts = {key: np.ravel(getattr(fit, key)) for key in ("n_pos", "n_neg", "nll", "iterations")}
    columns = dict(
        A=flat["A"],
        B=flat["B"],
        se_A=errors[:, 0],
        se_B=errors[:, 1],
        status=tables.texts(flat["status"], lambda code: Status(code).name),
        flags=tables.texts(flat["flags"], tables.flag_names),
        **counts,
    )
    return tables.keyed(kind, names, columns)


def describe(kind: str, curve: str, fit: Any, shared_rows: bool) -> str:
    """Lines of text: what was fitted, how the fits ended, and their flags; of one fit A and B too.

    `kind` is the class name of the result, `curve` the noun for its curves, and `shared_rows`
    whether all problems have the same rows.
    """
    if not isinstance(fit.status, np.ndarray | np.generic | jax.Array) or isinstance(
        fit.status, jax.core.Tracer
    ):
        return f"{kind}: traced, of {fit.status}"
    fit = jax.device_get(fit)
    lines = [*_parameters(fit), *_outcome(fit)]
    return "\n".join([_headline(kind, curve, fit, shared_rows), *("  " + x for x in lines)])


def describe_html(kind: str, curve: str, fit: Any, shared_rows: bool, table: Table) -> str:
    """The three lines, and a table of the first rows: failed fits first, then flagged ones."""
    fit = jax.device_get(fit)
    urgency = np.lexsort([-np.ravel(fit.flags), -np.ravel(fit.status)])
    shown = urgency[: tables.ROWS_SHOWN]
    lines = "<br>".join(escape(line) for line in [*_parameters(fit), *_outcome(fit)])
    A, B, covariance = np.ravel(fit.A), np.ravel(fit.B), np.reshape(fit.covariance, (-1, 2, 2))
    drawings = drawn(A, B, covariance, shown)
    more = {} if drawings is None else {"curve": drawings.drawings}
    notes = [] if drawings is None else [drawings.axes]
    if remaining := len(urgency) - len(shown):
        notes.insert(0, f"and {remaining:,} more; see <code>table()</code>")
    note = f"<div>{'<br>'.join(notes)}</div>" if notes else ""
    return (
        f"<div><b>{escape(_headline(kind, curve, fit, shared_rows))}</b><br>{lines}</div>"
        f"{tables.html_rows(table, shown, more)}{note}"
    )


def _headline(kind: str, curve: str, fit: Any, shared_rows: bool) -> str:
    n = np.size(fit.A)
    row_counts = np.asarray(fit.n_pos, float) + fit.n_neg
    # A class with non-finite scores has fewer rows.
    rows = float(np.max(row_counts, initial=0) if shared_rows else np.sum(row_counts))
    count = counted(rows, "row") if rows.is_integer() else f"{rows:,.6g} (weighted) rows"
    return f"{kind}: {counted(n, curve)} from {count} in all, {fit.A.dtype}"


def _parameters(fit: Any) -> list[str]:
    """A and B of a single fit, with their standard errors where these are known."""
    if np.shape(fit.A) != ():
        return []
    parameters = []
    for name, value, error in zip("AB", (fit.A, fit.B), fit.standard_errors, strict=True):
        plus_minus = f" ± {error:.2g}" if error > 0 else ""
        parameters.append(f"{name} = {value:.4g}{plus_minus}")
    return [", ".join(parameters)]


def _outcome(fit: Any) -> list[str]:
    statuses = ", ".join(f"{n:,} {name}" for name, n in tables.status_counts(fit.status).items())
    flags = ", ".join(f"{n:,} {name}" for name, n in tables.flag_counts(fit.flags).items())
    return [f"status: {statuses or 'none'}", f"flags:  {flags or 'none'}"]


class CurveDrawings(NamedTuple):
    """Drawings of some fits over the same scores."""

    low: float  # the first score
    high: float  # the last score
    drawings: list[str]  # SVG

    @property
    def axes(self) -> str:
        """What the axes of the drawings are."""
        return f"curve: P(y=1) from 0 to 1 for scores from {self.low:.3g} to {self.high:.3g}"


def drawn(
    A: Floats, B: Floats, covariance: Floats, shown: NDArray[np.intp]
) -> CurveDrawings | None:
    """Curves of the fits with the numbers `shown`, among A (K,), B (K,) and covariances (K, 2, 2).

    None where no fit has a slope.
    """
    sloping = np.isfinite(A) & np.isfinite(B) & (A != 0)
    if not sloping.any():
        return None
    slope, intercept = (np.median(x[sloping].astype(float)) for x in (A, B))
    if slope == 0:  # the mean of two
        return None
    low, high = sorted(((-intercept - _LOGIT) / slope, (-intercept + _LOGIT) / slope))
    if not np.isfinite(high - low):
        return None
    scores = np.linspace(low, high, _POINTS)
    A, B, covariance = (x[shown].astype(float) for x in (A, B, covariance))
    entries = (covariance[:, i, j, None] for i, j in UPPER)
    variance = variance_of_logit(scores, *entries)
    logit = -(A[:, None] * scores + B[:, None])
    middle, (lower, upper) = expit(logit), band(logit, variance, critical_value(0.95, False))
    return CurveDrawings(low, high, [_svg(*x) for x in zip(middle, lower, upper, strict=True)])


def _svg(middle: Floats, lower: Floats, upper: Floats) -> str:
    """A curve and, where it is known, its band; nothing for a failed fit."""
    if not np.isfinite(middle).all():
        return ""
    x = np.linspace(1, _WIDTH - 1, _POINTS)
    area = ""
    if np.isfinite(lower).all() and np.isfinite(upper).all():
        lower_path, upper_path = _path(x, lower), _path(x[::-1], upper[::-1])
        area = f'<polygon points="{lower_path} {upper_path}" fill="currentColor" opacity="0.2"/>'
    curve = f'<polyline points="{_path(x, middle)}" fill="none" stroke="currentColor"/>'
    description = f"from {middle[0]:.2g} to {middle[-1]:.2g}"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="{description}">'
        f"<title>{description}</title>{area}{curve}</svg>"
    )


def _path(x: Floats, probability: Floats) -> str:
    y = 1 + (1 - probability) * (_HEIGHT - 2)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
