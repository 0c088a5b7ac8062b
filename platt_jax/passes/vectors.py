"""Rows a vector at a time: what `tiles` is for a GPU, for a CPU.

XLA runs a program on a CPU operation by operation, each over all rows and at a price to start. Here
problems are fitted one after the other (or 128 small ones side by side), by loops over vectors of
rows, and the whole is compiled as one function (see `slices`, `loops`). A problem's rows stay in
the caches from the first look to the loss, and a loop ends where its problem does.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from platt_jax.model import objective
from platt_jax.model.objective import Derivatives, Targets
from platt_jax.model.standardization import Standardization
from platt_jax.model.statistics import Moments, ScoreRanges, moment_terms, range_ends, summary
from platt_jax.options import Options
from platt_jax.passes.elementary import exp_quotient, log1p, log1p_quotient
from platt_jax.passes.xla import noinline

# Rows of a vector. With fewer the loops are too short; of ten times as many XLA would share an
# operation among threads, which it cannot do within a function.
LANES = 128

# Vectors that are added up by themselves, before their sums are: rounding errors stay small.
_TOGETHER = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class VectorRows:
    """The rows of one problem, or of 128 side by side, a lane each. The vector i lies at 128 i."""

    scores: jax.Array  # [C]
    labels: jax.Array  # [C]: above 0 for class 1
    weights: jax.Array | None  # [C]
    start: jax.Array  # [] int32: where the first vector lies
    size: jax.Array  # [] or [128] int32: how many rows each problem has
    frame: Standardization | None = None  # to read the scores in
    # Whether all rows are taken to be finite; if one is not, what is made of them is not either.
    finite: bool = field(default=False, metadata={"static": True})


class Row(NamedTuple):
    """A vector of rows, each field [128]; where a row is not present, all else is anything."""

    scores: jax.Array  # in the frame
    positive: jax.Array
    weights: jax.Array | None  # finite; 0 where not present
    there: jax.Array  # whether it is a row of the problem, and has a weight
    present: jax.Array  # whether it is finite, too, or taken to be


class Reduction(NamedTuple):
    """How the terms of many vectors become one list of numbers."""

    start: float  # what combined with a term is the term
    combine: Callable  # two terms to one
    merge: Callable | None = None  # the terms of two vectors to those of one; None: by `combine`
    close: Callable = list  # what is made of those of some dozen vectors, to be combined


def _merge_odds(found, more):
    """Sums of what is linear in z, and products of 1 + odds: one logarithm serves many rows."""
    (linear, odds), (new, o) = found, more
    return [linear + new, odds + (o + odds * o)]


def _close_odds(found):
    linear, odds = found
    return [linear + log1p(odds)]


_SUM = Reduction(0.0, lambda a, b: a + b)
_LEAST = Reduction(jnp.inf, lambda a, b: jnp.where(a < b, a, b))
_LOSS = Reduction(0.0, _SUM.combine, _merge_odds, _close_odds)


def look(strip: VectorRows, options: Options) -> ScoreRanges:
    """What there is to know before the scores can be summed up."""

    def terms(row):
        bad = row.there & ~row.present & (options.non_finite != "omit")
        ends = range_ends(row.scores, _classes(row))
        lightest = [] if row.weights is None else [jnp.where(row.present, row.weights, jnp.inf)]
        return [jnp.where(bad, -1.0, 0.0).astype(row.scores.dtype), *ends, *lightest]

    number = 5 if strip.weights is None else 6
    return summary(*_fold(strip, terms, number, reduction=_LEAST))


def summable(strip: VectorRows, options: Options) -> VectorRows:
    """The strip after the look: nobody asks again whether rows are finite, unless to omit some."""
    return replace(strip, finite=options.non_finite != "omit")


def moments(strip: VectorRows, center, scale) -> tuple[Moments, Moments]:
    """The moments of the scores with label 1, and of those with label 0."""

    def terms(row):
        return moment_terms(row.scores, row.weights, row.present, _classes(row))

    number = 3 if strip.weights is None else 4
    # Where some rows are not finite, the others are counted.
    strip = replace(standardise(strip, center, scale), finite=False)
    sums = _fold(strip, terms, 2 * number)
    # Without weights the total is the number of rows.
    of_pos, of_neg = ((*of_class, of_class[0])[:4] for of_class in (sums[:number], sums[number:]))
    return Moments(*of_pos), Moments(*of_neg)


def _classes(row):
    """Which rows have label 1, and which label 0."""
    return row.present & row.positive, row.present & ~row.positive


def standardise(strip: VectorRows, center, scale) -> VectorRows:
    """The strip with scores (f - center) * scale, reckoned when they are read."""
    return replace(strip, frame=Standardization(center, scale))


def evaluate(strip: VectorRows, point, targets: Targets, derivatives: str) -> Derivatives:
    """The pass: gradient and Hessian of every problem at its point (A, B)."""

    def terms(row, A, B, *of_classes):
        arguments = _arguments(row, A, B, of_classes)
        if derivatives == "autodiff":
            return objective.autodiff_derivatives(*arguments)
        *unweighted, weight = arguments
        tail = noinline(_tail)(*unweighted)
        slope = noinline(objective.slope)(*arguments, tail)
        curvature = noinline(objective.curvature)(weight, tail)
        return objective.derivatives(row.scores, slope, curvature)

    return Derivatives(*_fold(strip, terms, 5, (*point, *targets)))


def evaluate_wanted(
    strip: VectorRows, wanted, point, targets: Targets, derivatives: str
) -> Derivatives:
    """The same: of a strip some problem is wanted as long as it is asked for."""
    return evaluate(strip, point, targets, derivatives)


def nll(strip: VectorRows, point, targets: Targets):
    """The loss of every problem at its point (A, B), in nats."""

    def weighted(row, A, B, *of_classes):
        return [_loss(*_arguments(row, A, B, of_classes))]

    def parts(row, A, B, *of_classes):
        """What is linear in z, and the odds of which the loss has log(1 + odds) besides."""
        *arguments, _ = _arguments(row, A, B, of_classes)
        distance, target, _ = objective.less_likely(*arguments)
        e, one = exp_quotient(distance)
        return [target * distance, e / one]

    if strip.weights is not None:
        return _fold(strip, weighted, 1, (*point, *targets))[0]
    return _fold(strip, parts, 2, (*point, *targets), _LOSS)[0]


def nll_change(strip: VectorRows, before, after, targets: Targets):
    """The loss at the point after minus that at the point before, row by row."""

    def terms(row, A, B, old_A, old_B, *of_classes):
        new = _loss(*_arguments(row, A, B, of_classes))
        return [new - _loss(*_arguments(row, old_A, old_B, of_classes))]

    return _fold(strip, terms, 1, (*after, *before, *targets))[0]


def _loss(A, B, f, y, targets, present, weight):
    distance, target, _ = objective.less_likely(A, B, f, y, targets, present)
    loss = target * distance + log1p_quotient(*exp_quotient(distance))
    return jnp.where(present, weight * loss, 0)


def _arguments(row, A, B, of_classes):
    """What the functions of `objective` take.

    A row with a weight need not be asked whether it is present: if not, that is 0.
    """
    present, weight = (row.present, 1) if row.weights is None else (True, row.weights)
    return A, B, row.scores, row.positive, Targets(*of_classes), present, weight


def _fold(strip, terms, number, per_problem=(), reduction=_SUM):
    """Terms of the rows, reduced to one number per problem; a list, each as `strip.size`.

    Args:
        strip: the rows.
        terms: given a Row and its numbers per problem, the terms.
        number: how many terms.
        per_problem: arrays as `strip.size`.
        reduction: how they are combined.
    """
    start, combine, merge, close = reduction
    one_problem = strip.size.ndim == 0
    vectors = -(-strip.size // LANES) if one_problem else jnp.max(strip.size)

    def none(shape):
        return [jnp.full(shape, start, strip.scores.dtype)] * number

    def each(a, b):
        return [combine(x, y) for x, y in zip(a, b, strict=True)]

    def add(i, found):
        return (merge or each)(found, terms(_read(strip, i), *per_problem))

    def add_some(j, found):
        last = jnp.minimum((j + 1) * _TOGETHER, vectors)
        some = close(lax.fori_loop(j * _TOGETHER, last, add, none(LANES)))
        return each(found, _across(some, combine) if one_problem else some)

    first = close(none(strip.size.shape))
    return lax.fori_loop(0, -(-vectors // _TOGETHER), add_some, first)


def _across(found, combine):
    """Vectors [128] combined to []."""
    x = jnp.stack(found)
    while x.shape[1] > 8:
        half = x.shape[1] // 2
        x = noinline(lambda x, half=half: combine(x[:, :half], x[:, half:]))(x)
    while x.shape[1] > 1:
        half = x.shape[1] // 2
        x = combine(x[:, :half], x[:, half:])
    return list(x[:, 0])


def _take(column, at) -> Any:
    return None if column is None else lax.dynamic_slice_in_dim(column, at, LANES)


def _read(strip, i) -> Row:
    """The vector i."""
    columns = strip.scores, strip.labels, strip.weights
    f, label, weight = (_take(x, strip.start + i * LANES) for x in columns)
    number = i if strip.size.ndim else i * LANES + jnp.arange(LANES, dtype=jnp.int32)
    there = number < strip.size
    finite = jnp.abs(f) < jnp.inf
    if weight is not None:
        there &= weight != 0
        finite &= weight < jnp.inf
    present = there if strip.finite else there & finite
    if weight is None:
        return Row(_in_frame(f, present, strip.frame), label > 0, None, there, present)
    # Apart, for every loop over the vector would begin by doing this.
    f, weight = noinline(_or_zero)(f, weight, present, strip.frame)
    return Row(f, label > 0, weight, there, weight > 0)


def _or_zero(f, weight, present, frame):
    """Scores in the frame and weights, 0 where not present."""
    return _in_frame(f, present, frame), jnp.where(present, weight, 0)


def _in_frame(f, present, frame):
    if frame is not None:
        f = (f - frame.center) * frame.scale
    return jnp.where(present, f, 0)


def _tail(A, B, f, y, targets, present):
    """The probability of the class that is less likely."""
    distance, _, _ = objective.less_likely(A, B, f, y, targets, present)
    e, one = exp_quotient(distance)
    return jnp.where(present, e / (e + one), 0)
