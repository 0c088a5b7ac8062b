"""One function on one world: what it is given, and which promises it breaks."""

import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

import platt_jax as pj
from platt_jax import Flag

from .worlds import Rows, World

# How NumPy, JAX and `update` speak of numbers that went wrong on the way.
STRAY = (
    *("invalid value", "divide by zero", "overflow", "underflow"),
    *("mean of empty slice", "all-nan", "degrees of freedom", "singular", "segment failed"),
    "segments failed",
)
# What a search that stopped early is called.
STOPPED = "converge", "iterations", "population", "stopped"


class Bench:
    """A world's calibrators, each fitted once; how they were fitted may be replaced."""

    def __init__(self, world: World, fit_segments: Callable = pj.fit_segments) -> None:
        self.world, self._fit_segments = world, fit_segments
        self.fitted = cache(self._fitted)
        self.warned: dict[str, list[str]] = {}

    def _fitted(self, pooling: str) -> pj.SegmentCalibrator:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            rows = self.world.fitted
            made = self.fit(rows, pooling)
        self.warned[pooling] = [str(x.message) for x in seen]
        return made

    def fit(self, rows: Rows, pooling: str) -> pj.SegmentCalibrator:
        given = {"weights": rows.weights, "offset": rows.offset}
        return self._fit_segments(*rows.data(pooling), **given, pooling=pooling)

    @cache  # noqa: B019  lives as long as its world
    def true(self) -> pj.SegmentCalibrator:
        """A calibrator of the true curves of the fitted segments."""
        made = self.fitted("none")
        A, B = (x.astype(made.fit.A.dtype) for x in self.world.true_curves(made.keys))
        return replace(made, fit=replace(made.fit, A=A, B=B))


def settled(calibrator: pj.SegmentCalibrator) -> bool:
    """Whether its population was found."""
    return calibrator.population.status.name in ("CONVERGED", "BOUNDARY")


@dataclass
class Cell:
    """Collects the promises that a function breaks on a world."""

    bench: Bench
    name: str
    broken: list[str]
    warned: list[str]

    @property
    def world(self) -> World:
        return self.bench.world

    def poolings(self, *names: str) -> list[str]:
        """Those of them that the world's ids allow."""
        levels = "nested", "crossed"
        return [x for x in names if x not in levels or self.world.levelled(x)]

    @cached_property
    def settled(self) -> bool:
        """Whether there is one best population, and it was found."""
        return settled(self.bench.fitted("partial")) and not self.separable

    @cached_property
    def separable(self) -> bool:
        """Whether a threshold separates the classes of all rows: then no curve is the best one."""
        fit = self.bench.fitted("complete").fit
        return bool((np.asarray(fit.flags) & (Flag.SEPARABLE | Flag.ONE_CLASS)).any())

    def want(self, holds: bool, what: str) -> None:
        if not bool(holds):
            self.broken.append(what)

    def want_probabilities(self, proba, what: str = "a probability") -> np.ndarray:
        """Numbers in [0, 1], none of them NaN."""
        proba = np.asarray(proba, float)
        self.want(np.isfinite(proba).all(), f"{what} is NaN ({(~np.isfinite(proba)).sum()})")
        known = proba[np.isfinite(proba)]
        self.want(((known >= 0) & (known <= 1)).all(), f"{what} is outside [0, 1]")
        return proba

    def want_order(self, lower, value, upper, what: str, slack: float = 1e-6) -> None:
        """lower <= value <= upper, where they are numbers; all are, or none."""
        with np.errstate(invalid="ignore"):
            x, low, high = (np.asarray(x, float) for x in (value, lower, upper))
            up, down = low > x + slack * (1 + np.abs(x)), high < x - slack * (1 + np.abs(x))
        self.want(not up.any(), f"{what}: lower is above ({up.sum()})")
        self.want(not down.any(), f"{what}: upper is below ({down.sum()})")
        self.want((np.isnan(low) == np.isnan(high)).all(), f"{what}: half an interval")

    def want_same(self, mine, other, what: str, to: float = 0.0) -> None:
        mine, other = np.asarray(mine, float), np.asarray(other, float)
        same = np.isnan(mine) == np.isnan(other)
        with np.errstate(invalid="ignore"):
            near = ~(np.abs(mine - other) > to) | (mine == other)
        off = np.nanmax(np.abs(mine - other), initial=0) if not (same & near).all() else 0
        self.want((same & near).all(), f"{what} differs, by {off:.1e}")

    @contextmanager
    def refusing(self, *arguments: str):
        """Here a ValueError that names one of these is an answer."""
        try:
            yield
        except ValueError as error:
            if not str(error).startswith(arguments):
                raise


def run(bench: Bench, name: str, check: Callable[[Cell], None]) -> list[str]:
    """The promises that one function breaks."""
    cell = Cell(bench, name, [], [])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            check(cell)
        except Exception as error:
            cell.broken.append(f"{type(error).__name__}: {str(error)[:150]}")
    cell.warned += [str(x.message) for x in seen if issubclass(x.category, RuntimeWarning)]
    stray = sorted({x for x in cell.warned if any(word in x.lower() for word in STRAY)})
    if stray:
        cell.broken.append(f"stray warning: {stray[0][:120]}")
    return cell.broken
