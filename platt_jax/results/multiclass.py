"""Calibrators of several classes: one softmax or cumulative logit per segment."""

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from platt_jax import ids, validation
from platt_jax.arrays import Bools, Floats, Integers
from platt_jax.caller import Caller
from platt_jax.columns import Column, require_class_order, takes_columns
from platt_jax.ids.indexing import get_indexer
from platt_jax.options import ClassPooling
from platt_jax.results import tables
from platt_jax.results.equality import ComparedByValue
from platt_jax.results.tables import Table, cell
from platt_jax.status import Status

Model: TypeAlias = Literal["temperature", "temperature_bias", "vector", "ordinal"]
_PREDICTED_AT_ONCE = 1 << 16  # logits per step of a prediction, few enough to stay in the cache


def parameters(model: Model, classes: int) -> int:
    """The number of parameters of a segment."""
    numbers = {"temperature": 1, "temperature_bias": 1 + classes, "vector": 2 * classes}
    return numbers.get(model, classes)


@dataclass(frozen=True, eq=False)
class MulticlassFits(ComparedByValue):
    """The fits of K segments, and last the fit of all rows.

    Attributes:
        coefficients: (K + 1, P) parameters; see `MulticlassCalibrator`.
        standard_errors: (K + 1, P) their standard errors; NaN where the rows say nothing of one.
        status: (K + 1,) `Status` of each fit.
        flags: (K + 1,) `Flag` values combined by bitwise or: REVERSED and SEPARABLE.
        iterations: (K + 1,) numbers of Newton steps.
        nll: (K + 1,) negative log-likelihoods in nats, summed over weighted rows, with the penalty.
        rows: (K + 1,) weighted numbers of rows that were fitted.
    """

    coefficients: Floats
    standard_errors: Floats
    status: NDArray[np.int32]
    flags: NDArray[np.int32]
    iterations: NDArray[np.int32]
    nll: Floats
    rows: Floats

    def only(self, which: Any) -> "MulticlassFits":
        """Some of the fits."""
        return MulticlassFits(**{x.name: getattr(self, x.name)[which] for x in fields(self)})

    @staticmethod
    def joined(parts: "list[MulticlassFits]") -> "MulticlassFits":
        """All fits of these parts, one after the other."""
        return MulticlassFits(
            **{
                x.name: np.concatenate([getattr(part, x.name) for part in parts])
                for x in fields(MulticlassFits)
            }
        )


@dataclass(frozen=True, eq=False)
class TemperaturePopulation(ComparedByValue):
    """The likeliest distribution of a random segment's log(1 / T): Normal(mean, sd^2).

    Attributes:
        mean: its mean.
        sd: its standard deviation; 0 where segments differ by no more than chance.
        mean_error: standard error of the mean; NaN without an estimate and with sd = 0.
        log_sd_error: standard error of the logarithm of the standard deviation; NaN as mean_error.
        status: CONVERGED, BOUNDARY (sd = 0), MAX_ITERATIONS or NOT_ESTIMATED.
        nodes: (K + 1, J) inverse temperatures of each segment, and last of an unseen one: the nodes
            of its posterior distribution, averaged over all such distributions.
        node_weights: (K + 1, J) their probabilities.
    """

    mean: Floats
    sd: Floats
    mean_error: Floats
    log_sd_error: Floats
    status: NDArray[np.int32]
    nodes: Floats
    node_weights: Floats

    def only(self, which: Any) -> "TemperaturePopulation":
        """The same population with the nodes of some of the segments."""
        values = {x.name: getattr(self, x.name) for x in fields(self)}
        values |= {name: values[name][which] for name in ("nodes", "node_weights")}
        return TemperaturePopulation(**values)


class _Parts(NamedTuple):
    """Parameters of k fits by their meaning."""

    slopes: Floats  # (k, C), or (k, 1) for one slope of all classes
    biases: Floats | None  # (k, C)
    thresholds: Floats | None  # (k, C - 1)


@dataclass(frozen=True, repr=False, eq=False)
class MulticlassCalibrator(ComparedByValue):
    """Probabilities of C classes: parameters for each of K segments, and for all rows.

    Every array of a property has the segments as its first axis, in the order of `keys`.

    Attributes:
        keys: (K,) segment ids, ascending.
        classes: (C,) class ids, in the order of the columns of logits.
        model: P(class c), for logits f: "temperature", softmax(f_c / T); "temperature_bias",
            softmax(f_c / T + bias_c); "vector", softmax(slope_c f_c + bias_c); or "ordinal",
            P(class <= c) = expit(threshold_c - slope f) for one score f.
        pooling: "none", "partial" or "complete".
        fits: parameters and statuses of the segments, and last of all rows. Parameters are the
            inverse temperature or slopes, followed by biases, whose sum is 0, or by thresholds.
        farthest: (K + 1,) how far below its row's largest a logit is no option, as -inf is none.
        population: the population of log(1 / T) with pooling="partial", else None.
    """

    keys: NDArray[Any]
    classes: NDArray[Any]
    model: Model
    pooling: ClassPooling
    fits: MulticlassFits
    farthest: Floats
    population: TemperaturePopulation | None = None

    @property
    def status(self) -> NDArray[np.int32]:
        """(K,) `Status` of each segment's fit."""
        return self.fits.status[:-1]

    @property
    def flags(self) -> NDArray[np.int32]:
        """(K,) `Flag` values of each segment's fit, combined by bitwise or.

        REVERSED: the classes with the larger logits are less frequent than without the logits, so
        that the slope or 1 / T is held at 0, or the mean slope of "vector" is negative. SEPARABLE:
        the rows alone have no best temperature or slope.
        """
        return self.fits.flags[:-1]

    @property
    def coefficients(self) -> Floats:
        """(K, P) parameters, in the order of `fits`."""
        return self.fits.coefficients[:-1]

    @property
    def standard_errors(self) -> Floats:
        """(K, P) standard errors of the parameters."""
        return self.fits.standard_errors[:-1]

    @property
    def slopes(self) -> Floats:
        """(K,), 1 / T or the slope of all classes; (K, C) with model="vector"."""
        slopes = self._parts(self.coefficients).slopes
        return slopes if self.model == "vector" else slopes[:, 0]

    @property
    def temperature(self) -> Floats:
        """(K,), T, which may be infinite.

        Raises:
            AttributeError: the model has none.
        """
        if self.model not in ("temperature", "temperature_bias"):
            raise AttributeError(f"model {self.model!r} has no temperature; see slopes")
        with np.errstate(divide="ignore"):
            return 1 / self.slopes

    @property
    def biases(self) -> Floats | None:
        """(K, C) what is added to log-odds of each class; None if the model has none."""
        return self._parts(self.coefficients).biases

    @property
    def thresholds(self) -> Floats | None:
        """(K, C - 1) log-odds at score 0 of the classes up to each; None unless "ordinal"."""
        return self._parts(self.coefficients).thresholds

    def __len__(self) -> int:
        return len(self.keys)

    def __contains__(self, segment: object) -> bool:
        try:
            return bool(self._places([segment], 1)[0] >= 0)
        except ValueError:
            return False

    def __repr__(self) -> str:
        counts = tables.status_counts(self.status)
        statuses = ", ".join(f"{n:,} {name}" for name, n in counts.items())
        lines = [
            f"MulticlassCalibrator: {tables.counted(len(self.keys), 'segment')}, "
            f"{tables.counted(len(self.classes), 'class')}, "
            f"{self.model}, {statuses or 'none'}"
        ]
        if flags := tables.flag_counts(self.flags):
            lines.append("flags: " + ", ".join(f"{n:,} {name}" for name, n in flags.items()))
        if self.population is not None:
            of = self.population
            lines.append(
                f"log(1 / T): mean {cell(of.mean[()])}, standard deviation {cell(of.sd[()])}, "
                f"{Status(int(of.status)).name}"
            )
        return "\n  ".join(lines)

    def table(self) -> Table:
        """One line per segment: parameters, standard errors, status, flags and counts."""
        names = ["slope"] if self.model != "vector" else self._named("slope", self.classes)
        if self.model == "ordinal":
            names += self._named("threshold", self.classes[:-1])
        elif self.model != "temperature":
            names += self._named("bias", self.classes)
        columns: dict[str, NDArray[Any]] = {}
        if self.model in ("temperature", "temperature_bias"):
            columns["temperature"] = self.temperature
        columns |= dict(zip(names, self.coefficients.T, strict=True))
        columns |= {f"se_{name}": x for name, x in zip(names, self.standard_errors.T, strict=True)}
        columns["status"] = tables.texts(self.status, lambda code: Status(code).name)
        columns["flags"] = tables.texts(self.flags, tables.flag_names)
        columns |= {name: getattr(self.fits, name)[:-1] for name in ("rows", "nll", "iterations")}
        return tables.keyed("segment", self.keys, columns)

    @staticmethod
    def _named(name: str, classes: NDArray[Any]) -> list[str]:
        return [f"{name}_{class_id}" for class_id in classes.tolist()]

    def raise_if_failed(self) -> Self:
        """Returns the calibrator if every fit converged.

        Raises:
            RuntimeError: a fit failed. The message names the first ones, and says what to do.
        """
        tables.raise_if_failed(self.status, self.keys)
        return self

    def only(self, where: Column) -> "MulticlassCalibrator":
        """A calibrator with some of the segments. The others become unseen segments.

        Args:
            where: (K,) bool, the segments to keep, in the order of keys.

        Raises:
            ValueError: where is not one bool per segment.
        """
        where = validation.array(where, "where")
        if where.dtype != bool or where.shape != self.keys.shape:
            raise ValueError(
                f"where: expected a bool for each of {self.keys.shape} segments, got "
                f"{where.dtype} of shape {where.shape}"
            )
        mask = np.append(where, True)
        population = self.population and self.population.only(mask)
        return MulticlassCalibrator(
            self.keys[where],
            self.classes,
            self.model,
            self.pooling,
            self.fits.only(mask),
            self.farthest[mask],
            population,
        )

    @takes_columns
    def predict_proba(self, logits: Column, segments: Column | None = None) -> NDArray[Any]:
        """Probabilities of the classes.

        With pooling="partial" they are means over the posterior distribution of the temperature.

        Args:
            logits: (N, C) as in `fit_multiclass`, -inf where a class is no option (but see there
                for model="ordinal", which also takes (N,) scores). A logit farther than `farthest`
                below its row's largest is no option, too.
            segments: (N,) ids, or one id for all. Segments not among keys get the parameters of
                all rows, or with pooling="partial" the mean over the population. None means the
                parameters of all rows.

        Returns:
            (N, C) in the dtype of the logits. A row's probabilities are NaN if a logit is NaN or
            inf, if it has no option, or if its segment's fit is NON_FINITE or EMPTY. At infinite
            scores (N,) of "ordinal" they are limits.

        Raises:
            ValueError: logits have another shape, or an id is missing or has a type that no key can
                equal.

        Example:
            >>> from platt_jax import fit_multiclass
            >>> logits = [[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 2.0], [2.0, 1.0, 0.0]]
            >>> calibrator = fit_multiclass(logits, [0, 1, 2, 1], ["a", "a", "b", "b"])
            >>> calibrator.predict_proba(logits, ["a", "a", "b", "unseen"]).shape
            (4, 3)
        """
        require_class_order(logits, self.classes, "logits")
        f = validation.floating(logits, "logits")
        flat = self.model == "ordinal" and f.ndim == 1
        if not flat and (f.ndim != 2 or f.shape[1] != len(self.classes)):
            raise ValueError(
                f"logits: expected shape (N, {len(self.classes)}), a column per class, "
                f"got {f.shape}"
            )
        warning = validation.probabilities_for_logits(f) if len(f) >= validation.FEW else None
        if warning is not None:
            Caller().warn_once(warning)
        which = np.full(len(f), -1) if segments is None else self._places(segments, len(f))
        proba = np.empty((len(f), len(self.classes)), f.dtype)
        length = max(1, _PREDICTED_AT_ONCE // len(self.classes))
        for first in range(0, len(f), length):
            rows = slice(first, first + length)
            proba[rows] = self._proba(f[rows].astype(np.float64), which[rows])
        return proba

    def _proba(self, f: Floats, which: Integers) -> Floats:
        if self.model == "ordinal":
            scores = f if f.ndim == 1 else expected_class(f)
            return _cumulative(scores, self._parts(self.fits.coefficients[which]))
        f = np.where(no_options(f, self.farthest[which]), -np.inf, f)
        if self.population is None or not np.isfinite(self.population.sd):
            return softmax(f, self._parts(self.fits.coefficients[which]))
        nodes, weights = self.population.nodes[which], self.population.node_weights[which]
        proba = np.zeros_like(f)
        for b, weight in zip(nodes.T, weights.T, strict=True):
            proba += weight[:, None] * softmax(f, _Parts(b[:, None], None, None))
        return proba

    def _parts(self, coefficients: Floats) -> _Parts:
        if self.model == "ordinal":
            return _Parts(coefficients[:, :1], None, coefficients[:, 1:])
        slopes = len(self.classes) if self.model == "vector" else 1
        biases = None if self.model == "temperature" else coefficients[:, slopes:]
        return _Parts(coefficients[:, :slopes], biases, None)

    def _places(self, segments: Column, rows: int) -> Integers:
        return get_indexer(self.keys, ids.read_like(self.keys, segments, rows))


def no_options(f: Floats, farthest: Floats) -> Bools:
    """(N, C) whether logits (N, C) are so far (N,) or farther below their row's largest."""
    with np.errstate(invalid="ignore", over="ignore"):
        excluded: Bools = f.max(axis=1, keepdims=True) - f >= farthest[:, None]
    return excluded


def softmax(f: Floats, parts: _Parts) -> Floats:
    """Probabilities (N, C) of logits (N, C), -inf where a class is no option."""
    absent = f == -np.inf
    with np.errstate(invalid="ignore", over="ignore"):
        top = f.max(axis=1, keepdims=True)
        if parts.slopes.shape[1] == 1:  # without overflow for logits of any size
            f = f - top
        z = parts.slopes * np.where(absent, 0, f)
        if parts.biases is not None:
            z += parts.biases
        z[absent] = -np.inf
        z -= z.max(axis=1, keepdims=True)
        e = np.exp(z)
        e /= e.sum(axis=1, keepdims=True)
    e[~np.isfinite(top[:, 0])] = np.nan
    return e


def temperature_softmax(f: Floats, inverse_temperature: float) -> Floats:
    """Probabilities (N, C) of logits (N, C) that are multiplied by one number."""
    return softmax(f, _Parts(np.array([[inverse_temperature]]), None, None))


def expected_class(f: Floats) -> Floats:
    """(N,) the expected number of the class, 0 ... C-1, by the softmax of logits (N, C)."""
    return temperature_softmax(f.astype(np.float64), 1.0) @ np.arange(f.shape[1], dtype=float)


def _cumulative(scores: Floats, parts: _Parts) -> Floats:
    """Probabilities (N, C) of ordered classes."""
    assert parts.thresholds is not None
    # At an infinite score a slope of 0 still adds nothing.
    change = parts.slopes * np.where(parts.slopes == 0, 0, scores[:, None])
    z = parts.thresholds - change
    e = np.exp(-np.abs(z))
    below, above = (np.where(z * sign >= 0, 1, e) / (1 + e) for sign in (1, -1))
    ones = np.ones((len(scores), 1))
    # Differences of the smaller of two tails, which do not cancel.
    low = np.diff(np.hstack([0 * ones, below, ones]), axis=1)
    above = np.hstack([ones, above, 0 * ones])
    high = above[:, :-1] - above[:, 1:]
    lower_tail = np.hstack([below, ones]) < 0.5
    proba: Floats = np.where(lower_tail, low, high)
    proba[np.isnan(scores)] = np.nan
    return proba
