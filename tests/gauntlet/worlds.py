"""Random small worlds: a population of segments whose true curves are known, and its rows.

``world(seed)`` draws a shape (segments, rows, levels), curves, scores and a form (dtype, ids,
weights, offsets), each from values at the edges and in the middle. The rows of a world are those
that are fitted, nights of fresh ones in which nothing has changed, periods in which curves drift,
and rows of several classes.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy.special import expit

SEGMENTS = 1, 2, 3, 6, 15, 50, 200, 700, 2_000
ROWS = 1, 2, 4, 10, 30, 100, 300
RATES = 0.001, 0.005, 0.02, 0.1, 0.3, 0.5, 0.9
SCORES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: np.clip(rng.standard_t(2, n), -40, 40),
    "skewed": lambda rng, n: rng.gamma(0.5, 1.4, n),
    "five values": lambda rng, n: rng.binomial(4, 0.4, n) - 1.6,
    "two values": lambda rng, n: (rng.random(n) < 0.3) - 0.3,
    "in [0, 1]": lambda rng, n: rng.beta(0.7, 0.7, n),
    "clipped": lambda rng, n: np.clip(rng.normal(size=n), -0.7, 0.7),
}
SURE = 50.0  # log-odds up to which predictions of a sure world reach
NIGHTS = 3
POINTS = 400  # scores that stand for their distribution


@dataclass(frozen=True)
class Rows:
    """N rows.

    Attributes:
        scores, labels: (N,), in the world's dtype and 0 or 1.
        segments: (N,) ids.
        columns: (N, 2) ids of the same segments, a group's and a member's.
        offset: (N,) known log-odds, or None.
        weights: (N,), or None.
        days: (N,) ids of days; rows of a segment and day share a shock in a world with clusters.
        log_odds: (N,) true ones, shocks included.
        seen: (N,) whether the row's segment has fitted rows.
    """

    scores: np.ndarray
    labels: np.ndarray
    segments: np.ndarray
    columns: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    days: np.ndarray
    log_odds: np.ndarray
    seen: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def where(self, some: np.ndarray) -> "Rows":
        """Some of the rows."""
        found = {x.name: getattr(self, x.name) for x in fields(self)}
        return Rows(**{name: None if x is None else x[some] for name, x in found.items()})

    def followed_by(self, others: "Rows") -> "Rows":
        """These rows and others, of a world without weights."""
        pairs = {x.name: (getattr(self, x.name), getattr(others, x.name)) for x in fields(self)}
        return Rows(
            **{k: None if a is None else np.concatenate([a, b]) for k, (a, b) in pairs.items()}
        )

    def ids(self, pooling: str) -> np.ndarray:
        return self.columns if pooling in ("nested", "crossed") else self.segments

    def data(self, pooling: str = "none") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scores, labels and ids, as `fit_segments` takes them."""
        return self.scores, self.labels, self.ids(pooling)


@dataclass(frozen=True)
class World:
    """A population, its fitted rows, and what comes later.

    Attributes:
        seed: makes the world.
        about: its shape, in words.
        slope, intercept: (K,) of the segments' true log-odds, by standard score.
        scale, shift: a score is a standard score times scale, plus shift.
        effects: "segments", "nested" or "crossed": what curves consist of.
        normal: whether effects are normal.
        clustered: the standard deviation of a day's shock, or 0.
        counts: whether a row stands for as many rows as its weight says.
        sure: whether true log-odds reach SURE.
        fitted: the rows to fit.
        nights: rows of the same curves.
        periods: rows of curves that walk, period by period.
        reported: the share of positives that are known in the night of their rows.
        classes: (N, C) scores and (N,) ids of classes; each score is that of one class.
        points: (POINTS,) standard scores, distributed as those of the rows.
    """

    seed: int
    about: str
    slope: np.ndarray
    intercept: np.ndarray
    scale: float
    shift: float
    effects: str
    normal: bool
    clustered: float
    counts: bool
    sure: bool
    fitted: Rows
    nights: tuple[Rows, ...]
    periods: tuple[Rows, ...]
    reported: float
    classes: tuple[np.ndarray, np.ndarray]
    points: np.ndarray

    @cached_property
    def plain(self) -> bool:
        """Whether rows are independent, each of weight 1: then chance is known."""
        return not self.clustered and self.fitted.weights is None

    @cached_property
    def sized(self) -> np.ndarray:
        """(K,) numbers of fitted rows."""
        return np.bincount(self.numbers(self.fitted.segments), minlength=len(self.slope))

    @cached_property
    def one_class(self) -> bool:
        """Whether the fitted rows have one class only, or a single score."""
        own = self._own
        return len(np.unique(own.labels)) < 2 or len(np.unique(own.scores)) < 2

    def levelled(self, kind: str) -> bool:
        """Whether columns of ids have several values and do not determine each other, as levels.

        Else levels are refused.
        """
        pairs = self.fitted.columns.tolist()
        groups, members = (len(set(x)) for x in zip(*pairs, strict=True))
        both = len(set(map(tuple, pairs)))
        same = groups == both and (kind == "nested" or members == both)
        return min(groups, members) > 1 and not same

    @cached_property
    def fewer(self) -> int:
        """Number of the rarer class's fitted rows."""
        return int(np.bincount(self._own.labels, minlength=2).min())

    @property
    def _own(self) -> Rows:
        fitted = self.fitted
        return fitted if fitted.weights is None else fitted.where(fitted.weights > 0)

    @staticmethod
    def numbers(segments: np.ndarray) -> np.ndarray:
        """The numbers of segments, from 0, by their ids."""
        if segments.dtype.kind == "U":
            return np.char.lstrip(segments, "s").astype(int)
        return segments

    def true_curves(self, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A and B of segments, for scores as they are."""
        k = self.numbers(segments)
        slope = self.slope[k] / self.scale
        return -slope, slope * self.shift - self.intercept[k]


def world(seed: int, *, most_segments: int = 2_000, most_rows: int = 6_000) -> World:
    """The world of a seed; a smaller one if it has a limit of fewer segments or rows."""
    rng = np.random.default_rng([54, seed])
    number = min(int(rng.choice(SEGMENTS)), most_segments)
    rows = min(int(rng.choice(ROWS)), max(1, most_rows // number))
    shape = _Shape.draw(rng, number, rows)
    curves = _Curves.draw(rng, shape)
    form = _Form.draw(rng)
    rate = float(rng.choice(RATES))
    return _world(rng, seed, shape, curves, form, rate, rows, most_rows)


def plain_world() -> World:
    """A world in the middle: 50 segments of 100 rows, whose curves differ."""
    rng = np.random.default_rng(54)
    sizes, k = np.full(50, 100), np.arange(50)
    shape = _Shape(sizes, k % 7, k // 7, False, np.zeros(50))
    slope, intercept = 1.2 + 0.3 * rng.normal(size=50), 0.7 * rng.normal(size=50)
    curves = _Curves(slope, intercept, "segments", True, False, (0.3, 0.7))
    form = _Form("normal", 1.0, 0.0, np.float64, False, "none", 0.0, 0.0)
    return _world(rng, -1, shape, curves, form, 0.4, 100, 5_000)


def _world(rng, seed, shape, curves, form, rate, rows, most_rows) -> World:
    """Rows of these curves."""
    number = len(shape.sizes)
    shown = curves.at_rate(rng, rate, form)
    unseen = np.zeros(number, bool)
    if number > 2 and rng.random() < 0.5:
        unseen[rng.choice(number, max(1, number // 10), replace=False)] = True
    fitted = _draw(rng, shape, shown, form, np.where(unseen, 0, shape.sizes), ~unseen, days=6)
    if form.weights == "counts":
        # A segment without weight has no fit: its answer is NaN, as documented.
        fitted.weights[np.unique(fitted.segments, return_index=True)[1]] = 1
    later = np.clip(shape.sizes, 3, 60)
    later = np.maximum(1, later * min(1, most_rows / 2 / later.sum())).astype(int)
    fresh = form.without_weights()
    nights = tuple(_draw(rng, shape, shown, fresh, later, ~unseen, days=1) for _ in range(NIGHTS))
    periods, walking = [], shown
    for _ in range(NIGHTS):
        walking = walking.walked(rng)
        periods.append(_draw(rng, shape, walking, fresh, later, ~unseen, days=1))

    extra = ("one class, " if shape.sure_segments.any() else "") + form.words()
    seen = int(fitted.labels.sum())
    about = (
        f"{number} segments of {rows} rows{' (uneven)' if shape.uneven else ''}, "
        f"{seen} of {len(fitted)} positive, {curves.effects} effects {curves.words()}, "
        f"{form.scores} * {form.scale:g} + {form.shift:g}, {extra}"
        f"{'unseen segments, ' if unseen.any() else ''}"
        f"{f'days {form.clustered:g}' if form.clustered else 'independent'}"
    )
    return World(
        seed,
        about,
        shown.slope,
        shown.intercept,
        form.scale,
        form.shift,
        curves.effects,
        curves.normal and not shape.sure_segments.any(),
        form.clustered,
        form.weights != "any",
        curves.sure,
        fitted,
        nights,
        tuple(periods),
        float(rng.choice([0.3, 0.6, 0.9])),
        _classes(rng, form),
        SCORES[form.scores](rng, POINTS),
    )


@dataclass(frozen=True)
class _Shape:
    """Segments and their sizes."""

    sizes: np.ndarray
    groups: np.ndarray
    members: np.ndarray
    uneven: bool
    sure_segments: np.ndarray  # log-odds that are added, so that some have one class

    @classmethod
    def draw(cls, rng, number, rows):
        kind = rng.choice(["even", "uneven", "giant"], p=[0.55, 0.35, 0.1])
        sizes = np.full(number, rows)
        if kind == "uneven":
            sizes = np.maximum(1, rows * rng.lognormal(-0.5, 1, number)).astype(int)
        elif kind == "giant":
            sizes[rng.integers(number)] = 4 * sizes.sum() if sizes.sum() < 2_000 else sizes.sum()
        across = max(1, round(np.sqrt(number)))
        k = np.arange(number)
        sure = np.zeros(number)
        if rng.random() < 0.12:
            sure = np.where(rng.random(number) < 0.15, rng.choice([-12.0, 12.0], number), 0.0)
        return cls(sizes, k % across, k // across, len(set(sizes)) > 1, sure)


@dataclass(frozen=True)
class _Curves:
    """Slopes and intercepts of the segments, and what they consist of."""

    slope: np.ndarray
    intercept: np.ndarray
    effects: str
    normal: bool
    sure: bool
    spreads: tuple[float, float]

    @classmethod
    def draw(cls, rng, shape):
        number = len(shape.sizes)
        effects = str(rng.choice(["segments", "nested", "crossed"], p=[0.5, 0.25, 0.25]))
        normal, sure = rng.random() < 0.85, rng.random() < 0.12
        spreads = tuple(rng.choice([[0, 0], [0, 0.6], [0.3, 0.5], [0.6, 1.2]]))
        groups, members = shape.groups.max() + 1, shape.members.max() + 1

        def draw(n):
            unit = rng.normal(size=(2, n)) if normal else rng.standard_t(3, (2, n)) / np.sqrt(3)
            return np.array(spreads)[:, None] * unit

        effect = draw(number)
        if effects != "segments":
            own = draw(members)[:, shape.members] if effects == "crossed" else effect
            effect = (draw(groups)[:, shape.groups] + own) / np.sqrt(2)
        slope = (0 if sure else float(rng.choice([0.0, 0.4, 1.2, 3.0]))) + effect[0]
        return cls(slope, effect[1] + shape.sure_segments, effects, normal, sure, spreads)

    def at_rate(self, rng, rate, form):
        """These curves moved to a mean probability, and made sure."""
        x = SCORES[form.scores](rng, POINTS)
        slope = self.slope + (SURE / np.abs(x).max() if self.sure else 0)
        z = slope[:, None] * x + self.intercept[:, None]
        low, high = -200.0, 200.0
        for _ in range(60):
            middle = (low + high) / 2
            below = expit(z + middle).mean() < rate
            low, high = (middle, high) if below else (low, middle)
        return self._with(slope, self.intercept + low)

    def walked(self, rng):
        """The curves of the next period: each intercept takes a step."""
        return self._with(self.slope, self.intercept + 0.5 * rng.normal(size=len(self.slope)))

    def _with(self, slope, intercept):
        return _Curves(slope, intercept, self.effects, self.normal, self.sure, self.spreads)

    def words(self):
        kind = "" if self.normal else " heavy-tailed"
        return f"{self.spreads[0]:g} {self.spreads[1]:g}{kind}{', sure' if self.sure else ''}"


@dataclass(frozen=True)
class _Form:
    """How rows are written down."""

    scores: str
    scale: float
    shift: float
    dtype: type
    text: bool
    weights: str
    offset: float
    clustered: float

    @classmethod
    def draw(cls, rng):
        scores = str(rng.choice(list(SCORES)))
        scale, shift = float(rng.choice([1e-6, 1, 1, 1, 1e5])), 0.0
        if rng.random() < 0.2:
            shift = 100 * scale
        dtype = np.float32 if rng.random() < 0.25 else np.float64
        text = rng.random() < 0.5
        weights = str(rng.choice(["none", "counts", "any"], p=[0.8, 0.12, 0.08]))
        offset = float(rng.choice([0, 0, 0, 0, 1.0]))
        clustered = float(rng.choice([0, 0, 0, 0, 0, 0.6]))
        return cls(scores, scale, shift, dtype, bool(text), weights, offset, clustered)

    def without_weights(self):
        return _Form(**(vars(self) | {"weights": "none"}))

    def words(self):
        found = ["float32"] if self.dtype is np.float32 else []
        found += [f"weights ({self.weights})"] if self.weights != "none" else []
        found += ["offset"] if self.offset else []
        return "".join(f"{x}, " for x in found)


def _draw(rng, shape, curves, form, sizes, seen, days):
    """Rows of these sizes, in a random order."""
    k = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    n = len(k)
    scores = SCORES[form.scores](rng, n) * form.scale + form.shift
    scores = scores.astype(form.dtype)
    # Of the scores as they were rounded.
    x = (scores.astype(float) - form.shift) / form.scale
    offset = form.offset * rng.normal(size=n) if form.offset else None
    day = rng.integers(0, days, n)
    shocks = form.clustered * rng.normal(size=(len(sizes), days))
    z = curves.slope[k] * x + curves.intercept[k] + shocks[k, day]
    if offset is not None:
        z = z + offset
    labels = (rng.random(n) < expit(z)).astype(int)
    weights = None
    if form.weights == "counts":
        weights = rng.integers(0, 4, n).astype(float)
    elif form.weights == "any":
        weights = rng.lognormal(0, 1, n)
    ids = np.char.add("s", k.astype(str)) if form.text else k
    names = [
        np.char.add(*x) for x in (("g", shape.groups.astype(str)), ("m", shape.members.astype(str)))
    ]
    columns = np.stack([x[k] for x in names], 1)
    return Rows(scores, labels, ids, columns, offset, weights, day, z, seen[k])


def _classes(rng, form):
    """Scores of a few classes, and labels that depend on them."""
    classes, n = int(rng.integers(2, 7)), int(rng.choice([5, 40, 300]))
    x = np.stack([SCORES[form.scores](rng, n) for _ in range(classes)], 1)
    chance = rng.gumbel(size=x.shape) + rng.choice([0.0, 2.0]) * x + rng.normal(size=classes)
    return (x * form.scale + form.shift).astype(form.dtype), chance.argmax(1)
