"""Which kind of calibration curve predicts left-out rows best, of all segments and of each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.api import fit_one_vs_rest, fit_segments
from platt_jax.arrays import Floats, Integers
from platt_jax.columns import Column, takes_columns
from platt_jax.curves import Curve, read_curve
from platt_jax.curves.fitting import as_curves, smoothed
from platt_jax.execution.class_rows import ClassRows, class_rows
from platt_jax.execution.segment_rows import row_arrays
from platt_jax.ids.indexing import get_indexer
from platt_jax.options import Options
from platt_jax.population.fitting import inner_fits
from platt_jax.results import tables
from platt_jax.results.mixed_curves import MixedCurves
from platt_jax.results.one_vs_rest import OneVsRestCalibrator
from platt_jax.results.probabilities import LEAST
from platt_jax.results.segment_calibrator import SegmentCalibrator
from platt_jax.results.tables import Table

# How many errors better another kind must be for a segment to have it.
_ERRORS = 2.0
# Isotonic curves say 0 and 1. With few rows none of the rows left out may show it.
CANDIDATES = "sigmoid", "quadratic", "beta", "spline", "venn_abers"


@dataclass(frozen=True)
class CurveChoice:
    """What `choose_curve` found.

    Attributes:
        calibrator: the calibrator of all rows with the chosen curves.
        chosen: the kind of curve that serves all segments or classes together.
        log_loss: what to expect of a choice in log loss a row: each fold is predicted by the kind
            that the other folds choose. The least of the candidates' losses is too low.
        candidates: a line per kind: `curve`, its held-out `log_loss` a row, and `difference` from
            the best with `standard_error`, several segments as clusters.
        segments: a line per segment or class: `curve`, `rows`, and for each kind the `loss_` a row
            held out.
    """

    calibrator: SegmentCalibrator | OneVsRestCalibrator
    chosen: str
    log_loss: float
    candidates: Table
    segments: Table

    def __repr__(self) -> str:
        kinds, counts = np.unique(self.segments["curve"], return_counts=True)
        summary = ", ".join(f"{n:,} {kind}" for kind, n in zip(kinds, counts, strict=True))
        lines = "\n".join(f"  {line}" for line in self.candidates.lines(len(CANDIDATES) * 3))
        loss = f"{self.chosen} for all segments, log loss {self.log_loss:.4g}"
        return f"CurveChoice: {loss}; each: {summary}\n{lines}"


@takes_columns
def choose_curve(
    scores: Column,
    labels: Column | None = None,
    segments: Column | None = None,
    *,
    candidates: Sequence[str | Curve] = CANDIDATES,
    weights: Column | None = None,
    folds: int = 5,
    seed: int = 0,
    options: Options = Options(),
) -> CurveChoice:
    """Choose the kind of calibration curve by the log loss of left-out rows.

    Rows of each segment and label are dealt at random to folds. Each fold is predicted by curves of
    the other folds' rows, all segments in one call per kind and fold.

    For all segments the choice is the first candidate whose mean loss is at most a standard error
    of the difference above the least (Breiman, Friedman, Olshen & Stone 1984, section 3.4.3): list
    simple kinds first. A segment has another kind than all only if that is better by two errors of
    its difference, shrunk towards the mean over segments (an empirical Bayes estimate). So a
    segment with few rows has the choice of all. `docs/howto/curves.md` says what choices gain.

    Args:
        scores: (N,) scores, as in `fit_segments`; or (N, C) or ClassRows, as in `fit_one_vs_rest`,
            whose classes take the place of segments: each class's own log loss against the rest.
        labels: (N,) labels, as in `fit_segments`; with (N, C) scores as in `fit_one_vs_rest`.
        segments: (N,) segment ids, as in `fit_segments`. None for one segment of all rows, which
            has the id 0.
        candidates: two or more kinds of curves, as `curve` of `fit_segments`, the simplest first.
        weights: (N,) weights or None, as in `fit_segments`. Rows of weight 0 choose nothing.
        folds: number of folds, 2 or more.
        seed: seed of the folds.
        options: as in `fit_segments`.

    Returns:
        A CurveChoice. Log losses are in nats, of probabilities clipped as in `metrics.log_loss`:
        an isotonic curve that says 0 or 1 is heavily charged where it is wrong. A kind whose
        predictions of left-out rows are not all known is not chosen.

    Raises:
        ValueError: an argument is not as above; a score, label or weight is not finite; there are
            fewer than two rows of positive weight; no kind predicts all left-out rows.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> shops, scores = np.arange(8000) % 8, rng.normal(size=8000)
        >>> labels = rng.random(8000) < 1 / (1 + np.exp(1 - scores - scores**2))
        >>> choose_curve(scores, labels, shops).chosen
        'quadratic'
    """
    validation.require_integer(folds, "folds", 2)
    kinds = list(candidates)
    if len(kinds) < 2:
        raise ValueError(f"candidates: expected two or more kinds of curves, got {kinds!r}")
    of_classes = isinstance(scores, ClassRows) or np.ndim(scores) == 2
    fitted: Any  # the calibrator of a kind of curve
    if of_classes:
        rows = class_rows(scores, labels, None, weights)
        fitted = partial(fit_one_vs_rest, rows, options=options)
        scores, labels, segments, weights, _ = row_arrays(rows, "offset", segments=segments)
    f = validation.scores(scores)
    validation.require_flat(f, "scores")
    y, w, bad = validation.labelled_rows(f, labels, weights, "scores")
    if bad.any():
        raise ValueError(f"scores, labels, weights: expected finite rows, got {bad.sum():,} others")
    used = np.flatnonzero(w)
    if len(used) < 2:
        raise ValueError(f"scores: expected two or more rows, to hold some out, got {len(used)}")
    if not of_classes:
        segments = np.zeros(len(f), int) if segments is None else segments
        rows_of_all = f, np.where(w > 0, y, 0), segments
        fitted = partial(fit_segments, *rows_of_all, weights=w, options=options)
    calibrators: dict[str, Any] = {}
    warned = False  # a warning of few rows is the same for each kind that has one
    for x in kinds:
        with inner_fits(warned):
            calibrators[_name(x)] = fitted(curve=x)
        warned = warned or _may_warn(x)
    if len(calibrators) < len(kinds):
        raise ValueError(f"candidates: expected different kinds, got {kinds!r}")
    by_segment = [getattr(x, "by_class", x) for x in calibrators.values()]
    keys = by_segment[0].keys
    indices = get_indexer(keys, ids.read_rows(segments, len(f)), "segments")
    present, owner = np.unique(indices[used], return_inverse=True)
    # A row of classes is in all of these; with one segment, its rows are the independent ones.
    shared = of_classes or len(present) == 1
    row = used % (len(f) // len(keys) if of_classes else len(f))
    _, group = np.unique(row if shared else indices[used], return_inverse=True)
    f, y, w = f[used], y[used], w[used]
    part = _folds(owner, y, folds, seed)
    losses = np.stack([_held_out(f, y, owner, w, x, part, options) for x in kinds])
    names, number = np.array(list(calibrators)), np.zeros(len(keys))
    number[present] = np.bincount(owner, w)
    w = np.ldexp(w, -np.frexp(w.max())[1])  # squares of any weights are finite
    losses[~np.isfinite(losses).all(1)] = np.inf
    if np.isinf(losses).all():
        raise ValueError("candidates: expected a kind that predicts the rows left out, got none")
    group_mass: Floats = np.bincount(group, w).astype(float)
    choice, difference, error = first_as_good(loss_sums(group, w, losses), group_mass)
    mass: Floats = np.bincount(owner, w).astype(float)
    loss = np.full((len(keys), len(kinds)), np.nan)
    loss[present] = loss_sums(owner, w, losses) / mass[:, None]
    choices = np.full(len(keys), choice)
    with np.errstate(invalid="ignore"):  # infinite losses
        variances = _variances(losses - losses[choice], owner, w, mass)
        choices[present] = _choices(loss[present], variances, choice)
    calibrator = calibrators[names[choice]]
    if (choices != choice).any():
        mixed = MixedCurves.chosen(tuple(map(as_curves, by_segment)), np.append(choices, choice))
        chosen = by_segment[choice]._replaced(curves=mixed)
        calibrator = replace(calibrator, by_class=chosen) if of_classes else chosen
    columns = {"curve": names[choices], "rows": number}
    columns |= {f"loss_{name}": x for name, x in zip(names, loss.T, strict=True)}
    by_key = tables.keyed("segment", keys, columns)
    return CurveChoice(
        calibrator=calibrator,
        chosen=str(names[choice]),
        log_loss=expected_loss(group, w, losses, part),
        candidates=Table(
            curve=names,
            log_loss=loss_sums(np.zeros_like(owner), w, losses)[0] / w.sum(),
            difference=difference,
            standard_error=error,
        ),
        segments=tables.by_class(by_key) if of_classes else by_key,
    )


def _name(curve: str | Curve) -> str:
    return curve if isinstance(curve, str) else repr(curve)


def _may_warn(curve: str | Curve) -> bool:
    """Whether fits of this kind warn of few rows by segment."""
    if curve in ("temperature", "shift"):
        return False
    return curve == "sigmoid" or smoothed(read_curve(curve))


def loss_sums(owner: Integers, w: Floats, losses: Floats) -> Floats:
    """(K, C) sums of the losses (C, N) of the rows of each owner."""
    return np.stack([np.bincount(owner, w * x) for x in losses], 1)


def _folds(owner: Integers, y: NDArray[Any], folds: int, seed: int) -> Integers:
    """(N,) the fold of each row: rows of a segment and label are dealt in a random order."""
    shuffled = np.random.default_rng(seed).permutation(len(owner))
    group = (2 * owner + (y == 1))[shuffled]
    order = np.argsort(group, kind="stable")
    fold = np.empty(len(owner), np.int64)
    fold[shuffled[order]] = np.arange(len(owner)) % folds
    return fold


def _held_out(
    f: NDArray[Any],
    y: NDArray[Any],
    owner: Integers,
    w: Floats,
    curve: Any,
    part: Integers,
    options: Options,
) -> Floats:
    """(N,) the log loss of each row by curves of the other folds."""
    p = np.empty(len(f))
    for fold in np.unique(part):
        test = part == fold
        rows = f[~test], y[~test], owner[~test]
        with inner_fits():
            calibrator = fit_segments(*rows, weights=w[~test], curve=curve, options=options)
        p[test] = calibrator.predict_proba(f[test], owner[test])
    p = np.clip(p, LEAST, 1 - LEAST)
    return -np.where(y == 1, np.log(p), np.log1p(-p))


def first_as_good(total: Floats, mass: Floats) -> tuple[int, Floats, Floats]:
    """The place of the first candidate that is at most a standard error worse than the best.

    The one-standard-error rule of Breiman, Friedman, Olshen & Stone (1984, section 3.4.3), for
    losses (G, C) of C candidates in G independent groups of rows, whose weights are their mass. A
    candidate with a loss that is infinite or NaN is not chosen, unless all have one: then the first
    is. Also returns (C,) mean differences from the best candidate, and their standard errors.
    """
    total = np.where(np.isnan(total), np.inf, total)
    best = int(total.sum(0).argmin())
    number = max(len(mass), 2)
    with np.errstate(invalid="ignore"):  # infinite losses
        apart = total - total[:, [best]]
        difference = apart.sum(0) / mass.sum()
        # A ratio of sums over groups.
        residuals = apart - difference * mass[:, None]
        error = np.sqrt((residuals**2).sum(0) * number / (number - 1)) / mass.sum()
    return int(np.argmax(difference <= error)), difference, error


def expected_loss(group: Integers, w: Floats, losses: Floats, part: Integers) -> float:
    """The mean loss of rows (N,) by the candidate that is chosen without their fold."""
    total = 0.0
    for fold in np.unique(part):
        test = part == fold
        groups, mass = group[~test], w[~test]
        choice, _, _ = first_as_good(
            loss_sums(groups, mass, losses[:, ~test]), np.bincount(groups, mass).astype(float)
        )
        total += (w[test] * losses[choice, test]).sum()
    return float(total / w.sum())


def _variances(apart: Floats, owner: Integers, w: Floats, mass: Floats) -> Floats:
    """(K, C) variances of the segments' mean differences.

    Rows vary alike in all segments. In simulations the variance of each segment's own few rows,
    which is small where a mean is extreme by chance, cost 3 to 60 times the loss of one choice.
    """
    squares = np.bincount(owner, w * w, len(mass)) / mass**2
    columns = []
    for x in apart:
        residuals = x - (np.bincount(owner, w * x, len(mass)) / mass)[owner]
        freedom = max(len(x) - len(mass), 1)
        columns.append(squares * (w * residuals**2).sum() / w.sum() * len(x) / freedom)
    return np.stack(columns, 1)


def _choices(loss: Floats, variances: Floats, place: int) -> Integers:
    """(K,) the kind of each segment, by shrunk differences from the choice of all."""
    apart = loss - loss[:, [place]]
    bound = np.full_like(apart, np.inf)
    for j in range(apart.shape[1]):
        x, variance = apart[:, j], variances[:, j]
        if j == place or len(x) < 2 or not ((variance > 0) & np.isfinite(x)).all():
            continue
        # Between segments, by moments (DerSimonian & Laird 1986).
        weight = 1 / variance
        mean = np.average(x, weights=weight)
        excess = (weight * (x - mean) ** 2).sum() - (len(x) - 1)
        between = max(excess / (weight.sum() - (weight**2).sum() / weight.sum()), 0.0)
        reliability = between / (between + variance)
        expected = mean + reliability * (x - mean)
        error = np.sqrt(reliability * variance + (1 - reliability) ** 2 / weight.sum())
        bound[:, j] = expected + _ERRORS * error
    bound[:, place] = 0
    return bound.argmin(1)
