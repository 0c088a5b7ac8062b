"""Writes oracle.npz: problems of every kind, and their optima to 30 digits.

    python tests/make_oracle.py

The same code writes the same file, by Newton's method in 80 digits (`reference.optimum`). It
holds, for each problem, `rows`, `family`, `targets`,
`weighting` ("" for none), `prior` and `exact`: A, B, h_AA, h_AB, h_BB as decimal strings, for they
reach beyond the exponents of float64, and "" where there is no finite optimum. `scores`, `labels`
and `weights` are those of all problems, end to end.

Where float32 holds the scores apart they are rounded to it, so that both types fit one problem.
"""

from pathlib import Path

import mpmath
import numpy as np
from data import problem
from reference import constant_optimum, has_optimum, optimum, separable

TABLE = Path(__file__).with_name("oracle.npz")
WORKING_DIGITS, DIGITS = 80, 30

# A strong prior, its two parameters correlated, and far from what most of the problems say.
PRIOR = (-1.0, 0.25), ((4.0, 1.0), (1.0, 2.0))

SIZES = 2, 3, 5, 12, 40, 120


def overlapping(rng, rows):
    """Both classes, and no threshold between them if there are rows enough."""
    while True:
        shift, base_rate = rng.uniform(0.5, 3), rng.choice([0.5, 0.1])
        scores, labels = problem(rng, rows, shift=shift, base_rate=base_rate)
        labels[:2] = (0, 1)[:rows]
        if rows <= 2 or not separable(scores, labels):
            return scores, labels


def other_side(rng, rows):
    """Higher scores mean class 0."""
    scores, labels = overlapping(rng, rows)
    return -scores, labels


def apart(rng, rows):
    """A threshold splits the classes."""
    scores, labels = overlapping(rng, rows)
    return np.abs(scores) * (2 * labels - 1), labels


def touching(rng, rows):
    """A threshold splits the classes, up to ties on it."""
    scores, labels = apart(rng, rows)
    scores[:2], labels[:2] = 0, (0, 1)
    return scores, labels


def one_class(rng, rows):
    scores, _ = overlapping(rng, rows)
    return scores, np.full(rows, rng.integers(2), np.int8)


def constant(rng, rows):
    _, labels = overlapping(rng, rows)
    return np.full(rows, rng.normal()), labels


def ties(rng, rows):
    scores, labels = overlapping(rng, rows)
    return np.round(scores), labels


def duplicates(rng, rows):
    """A few rows, many times over."""
    scores, labels = overlapping(rng, rows)
    return np.resize(scores[: max(2, rows // 8)], rows), labels


def outlier(rng, rows):
    scores, labels = overlapping(rng, rows)
    scores[-1] = rng.choice([-1e4, 1e4])
    return scores, labels


def probabilities(rng, rows):
    """Scores that are probabilities already."""
    scores, labels = overlapping(rng, rows)
    return 1 / (1 + np.exp(3 - 3 * scores)), labels


def skewed(rng, rows):
    scores, labels = overlapping(rng, rows)
    return np.exp(3 * scores), labels


def rare(rng, rows):
    """One positive row."""
    scores, _ = overlapping(rng, rows)
    return scores, (np.arange(rows) == 0).astype(np.int8)


def moved(scale, shift=0.0):
    def family(rng, rows):
        scores, labels = overlapping(rng, rows)
        return scores * scale + shift, labels

    family.__name__ = f"times {scale:g}, plus {shift:g}"
    return family


def magnitudes(reach):
    """Scores of very different orders of magnitude in one problem."""

    def family(rng, rows):
        scores, labels = overlapping(rng, rows)
        return np.sign(scores) * 10.0 ** rng.uniform(-reach, reach, rows), labels

    family.__name__ = f"magnitudes 1e-{reach} to 1e{reach}"
    return family


FAMILIES = (
    overlapping,
    other_side,
    apart,
    touching,
    one_class,
    constant,
    ties,
    duplicates,
    outlier,
    probabilities,
    skewed,
    rare,
    *(moved(scale) for scale in (1e-300, 1e-30, 1e-8, 1e8, 1e30, 1e300)),
    *(moved(1.0, shift) for shift in (1e3, -1e6, 1e10)),
    magnitudes(30),
    magnitudes(300),
)


def spread(rng, labels):
    return 10.0 ** rng.uniform(-12, 12, len(labels))


def light(rng, labels):
    return np.full(len(labels), 1e-12)


def heavy(rng, labels):
    return np.full(len(labels), 1e12)


def a_millionth(rng, labels):
    """A base rate of 1e-6."""
    positive = labels == 1
    return np.where(positive, 1, 1e6 * max(1, positive.sum()) / max(1, (~positive).sum()))


def some_gone(rng, labels):
    """Rows of weight 0, but for the first three, among rows of about 1."""
    weights = rng.uniform(0.5, 2, len(labels))
    weights[3:] *= rng.random(len(weights[3:])) < 0.6
    return weights


WEIGHTINGS = spread, a_millionth, some_gone, light, heavy


def every_problem():
    """What to fit: (family, rows, kind of targets, weighting or None, with a prior or not)."""
    yield from ((one_class, 1, "platt", weighting, False) for weighting in (None, spread, light))
    yield one_class, 1, "none", None, False
    for i, family in enumerate(FAMILIES):
        for j, (kind, weighted) in enumerate(
            (kind, weighted) for kind in ("platt", "none") for weighted in (False, True)
        ):
            if kind == "none" and family.__name__.startswith("magnitudes"):
                continue  # the optimum may be as far from any start as the magnitudes reach
            for k in range(2):
                weighting = WEIGHTINGS[(i + j // 2 + k) % len(WEIGHTINGS)] if weighted else None
                yield family, SIZES[(i + 2 * j + 3 * k) % len(SIZES)], kind, weighting, False
    for i, family in enumerate((overlapping, other_side, ties, rare, moved(1, 1e6), apart)):
        yield family, 1000, ("platt", "none")[i % 2 and i < 5], WEIGHTINGS[i % 4], False
        yield family, 1000, ("platt", "none")[i in (0, 2)], None, False
    for family in (overlapping, apart, one_class, outlier, moved(1e-3), moved(1, 5), moved(1, 1e6)):
        for rows in (5, 40):
            yield family, rows, "platt", some_gone, True


def make(number, family, rows, weighting):
    """Scores, labels, weights."""
    rng = np.random.default_rng([2007, number])
    scores, labels = family(rng, rows)
    weights = np.ones(rows) if weighting is None else weighting(rng, labels)
    return rounded(scores), labels, weights.astype(np.float32).astype(float)


def rounded(scores):
    """The scores in float32, if that keeps them apart."""
    with np.errstate(over="ignore", under="ignore"):
        single = scores.astype(np.float32)
    normal = np.isfinite(single) & (np.abs(single) >= np.finfo(np.float32).tiny)
    apart = len(np.unique(single)) == len(np.unique(scores))
    return single.astype(float) if apart and (normal | (scores == 0)).all() else scores


def exact_optimum(scores, labels, weights, kind, prior):
    """A, B, h_AA, h_AB, h_BB; None where the loss has no minimum."""
    there = weights > 0
    rows = scores[there], labels[there], weights[there]
    if prior:
        A, B, hessian = optimum(*rows, kind, PRIOR, digits=WORKING_DIGITS)
    elif not has_optimum(*rows, kind):
        return None
    elif np.ptp(rows[0]) == 0:
        A, B, hessian = constant_optimum(*rows, kind, digits=WORKING_DIGITS)
    else:
        A, B, hessian = optimum(*rows, kind, digits=WORKING_DIGITS)
    return A, B, *hessian


def main():
    columns = {name: [] for name in ("rows", "family", "targets", "weighting", "prior", "exact")}
    rows_of_all = {name: [] for name in ("scores", "labels", "weights")}
    for number, (family, rows, kind, weighting, prior) in enumerate(every_problem()):
        arrays = make(number, family, rows, weighting)
        exact = exact_optimum(*arrays, kind, prior)
        digits = [""] * 5 if exact is None else [mpmath.nstr(x, DIGITS) for x in exact]
        name = "" if weighting is None else weighting.__name__
        entry = rows, family.__name__, kind, name, prior, digits
        for column, value in zip(columns.values(), entry, strict=True):
            column.append(value)
        for parts, array in zip(rows_of_all.values(), arrays, strict=True):
            parts.append(array)
        print(number, *entry[:5], *digits[:2])
    flat = {name: np.concatenate(parts) for name, parts in rows_of_all.items()}
    np.savez_compressed(TABLE, **{name: np.array(x) for name, x in columns.items()}, **flat)


if __name__ == "__main__":
    main()
