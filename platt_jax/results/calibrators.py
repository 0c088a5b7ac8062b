"""What a fit gives back: parameters, statuses and predictions.

`Sigmoid` and `Fit` are pytrees; their arrays are NumPy's from the host functions and JAX's from
`solve`. Predictions take and return the kind of array they are given.
"""

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from platt_jax import ids, validation
from platt_jax.ids.factorize import ascending, get_indexer, indexer
from platt_jax.model.objective import Array
from platt_jax.results import tables
from platt_jax.results.tables import Table
from platt_jax.status import Status
from platt_jax.threads import ordered_map, row_slices

# Rows of a prediction that are worked on together: few enough to stay in the cache.
_PREDICTED_AT_ONCE = 1 << 15

_LOWEST = np.finfo(np.float32).min


class ComparedByValue:
    """Results are equal if they are of one class and hold equal arrays; NaN equals NaN."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)  # type: ignore[arg-type]  # of a dataclass
        )


def _equal(one, other):
    if isinstance(one, ComparedByValue):
        return one == other
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Sigmoid(ComparedByValue):
    """P(y=1 | f) = 1 / (1 + exp(A f + B)), for one problem or a batch of them.

    Attributes:
        A: (...), minus the slope of the log-odds; negative for a useful score.
        B: (...), minus the log-odds at score 0.

    Example:
        >>> float(Sigmoid(A=-2.0, B=1.0).predict_proba(0.5))
        0.5
    """

    A: Array
    B: Array

    def logit(self, scores):
        """The log-odds -(A f + B) of class 1; scores (..., N) for parameters (...)."""
        xp = jnp if isinstance(scores, jax.Array) or isinstance(self.A, jax.Array) else np
        scores = (
            jnp.asarray(validation.plain(scores))
            if xp is jnp
            else validation.numbers(scores, "scores")
        )
        A, B = xp.asarray(self.A), xp.asarray(self.B)
        if A.ndim and scores.ndim:
            A, B = A[..., None], B[..., None]
        try:
            return -(A * scores + B)
        except (TypeError, ValueError) as error:  # JAX's and NumPy's for shapes that do not match
            raise ValueError(
                f"scores: expected (..., N) for parameters of shapes {np.shape(self.A)} and "
                f"{np.shape(self.B)}, got {scores.shape}"
            ) from error

    def predict_proba(self, scores):
        """P(y=1 | score), in [0, 1]; scores (..., N) for parameters (...)."""
        return expit(self.logit(scores))

    def log_proba(self, scores):
        """Log P(y=1 | score), finite where the probability itself rounds to 0 or 1.

        log P(y=0 | score) is `Sigmoid(-A, -B).log_proba(score)`. Scores (..., N) for parameters
        (...).
        """
        return log_expit(self.logit(scores))

    @property
    def slope(self):
        """-A: the change of the log-odds per unit of score."""
        return -self.A

    @property
    def intercept(self):
        """-B: the log-odds at score 0."""
        return -self.B


class _Inspectable:
    """What every result of a fit can tell of itself."""

    _shared_rows: ClassVar[bool] = False  # whether all problems are of the same rows

    def _inspected(self) -> tuple["Fit", str, np.ndarray]:
        """The fit, what its problems are called, and their names."""
        raise NotImplementedError

    def raise_if_failed(self) -> Self:
        """Returns the result if every fit converged.

        Raises:
            RuntimeError: names the first that did not, and says what to do.
        """
        fit, _, names = self._inspected()
        tables.raise_if_failed(fit, names)
        return self

    def table(self) -> Table:
        """One line per fit: its name, parameters, standard errors, status, flags and counts."""
        return tables.table(*self._inspected())

    def __repr__(self):
        fit, *_ = self._inspected()
        return tables.describe(type(self).__name__, fit, self._shared_rows)

    def _repr_html_(self):
        fit, *_ = self._inspected()
        return tables.describe_html(type(self).__name__, fit, self._shared_rows, self.table)


class _ById(_Inspectable):
    """A result with a fit for each of K ids: a mapping from ids to fits."""

    def _place(self, id_) -> int:
        """Where the id's fit is, -1 if there is none.

        Raises:
            ValueError: it cannot be an id here.
        """
        _, kind, names = self._inspected()
        (found,) = get_indexer(names, ids.read([id_], kind), kind)
        return int(found)

    def __getitem__(self, id_) -> "Fit":
        """The fit of one id.

        Raises:
            KeyError: nothing was fitted for it.
        """
        fit, kind, _ = self._inspected()
        place = self._place(id_)
        if place < 0:
            raise KeyError(f"{kind} {id_!r} was not among those fitted")
        return jax.tree.map(lambda x: x[place], fit)

    def __contains__(self, id_) -> bool:
        try:
            return self._place(id_) >= 0
        except ValueError:
            return False

    def __len__(self) -> int:
        return len(self._inspected()[2])

    def __iter__(self):
        return iter(self._inspected()[2])


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Fit(ComparedByValue, _Inspectable):
    """The fits of a batch of problems; every array leads with the batch shape (...).

    Attributes:
        A: (...), minus the slope of the log-odds, per unit of score.
        B: (...), minus the log-odds at score 0.
        status: (...) int, how each fit ended: a `Status`.
        flags: (...) int, what is noteworthy about each: `Flag`s or-ed together.
        iterations: (...) int, Newton steps taken.
        passes: (...) int, evaluations of the derivatives: one at the start, and one for each step
            tried, so that passes - iterations - 1 were backtracks (less one more where
            monotone=True starts again at A = 0).
        nll: (...), the objective at the answer in nats: the negative log-likelihood of Platt's
            targets, summed over (weighted) rows, plus the prior's penalty if there is one.
        gradient: (..., 2), the objective's gradient by (A, B), 0 up to rounding where converged.
        hessian: (..., 2, 2), its Hessian, the observed information. Both are taken from the last
            pass, from which the answer of a converged fit is one more step of at most
            `Options.tol` standard errors: the gradient is carried along it to first order.
        covariance: (..., 2, 2), the Hessian's inverse, the approximate covariance of (A, B); NaN
            where constant scores leave it undefined.
        n_pos: (...), weighted count of the finite rows with y = 1.
        n_neg: (...), weighted count of the finite rows with y = 0.

    A, B and what is computed at them are NaN where the status is NON_FINITE or EMPTY.
    """

    A: Array
    B: Array
    status: Array
    flags: Array
    iterations: Array
    passes: Array
    nll: Array
    gradient: Array
    hessian: Array
    covariance: Array
    n_pos: Array
    n_neg: Array

    @property
    def converged(self):
        """(...) bool, whether the optimum was found."""
        return self.status == Status.CONVERGED

    @property
    def standard_errors(self):
        """(..., 2), of A and B: square roots of the covariance's diagonal."""
        variances = self.covariance[..., (0, 1), (0, 1)]
        return (jnp if isinstance(variances, jax.Array) else np).sqrt(variances)

    @property
    def sigmoid(self) -> Sigmoid:
        """The fitted sigmoids."""
        return Sigmoid(self.A, self.B)

    def predict_proba(self, scores):
        """P(y=1 | score) by the fitted sigmoids, as `Sigmoid.predict_proba`."""
        return self.sigmoid.predict_proba(scores)

    def _inspected(self):
        return self, "problem", problem_names(np.shape(self.status))


@dataclass(frozen=True, repr=False, eq=False)
class SegmentCalibrator(ComparedByValue, _ById):
    """One sigmoid per segment, and one of all rows pooled for segments never seen.

    `calibrator[segment]` is the Fit of one segment, `segment in calibrator` tells whether there is
    one, `len(calibrator)` how many there are.

    Attributes:
        keys: (K,) the segments, ascending; for segments of several columns a structured array, with
            a field per column.
        fit: the fit of each, in the order of keys.
        fallback: the fit of all finite rows pooled.
    """

    keys: np.ndarray
    fit: Fit
    fallback: Sigmoid

    def predict_proba(self, scores, segments) -> np.ndarray:
        """P(y=1) for each row by the sigmoid of its segment.

        Args:
            scores: (N,) floating.
            segments: (N,) ids as in `fit_segments`, or one id for all; those not among keys take
                the fallback.

        Returns:
            (N,) in [0, 1]; NaN for segments whose fit is NON_FINITE.

        Raises:
            ValueError: the two lengths differ, an id is missing, or no key can be equal to one:
                text among numbers, 1.5 among integers.
        """
        scores = validation.numbers(scores, "scores")
        if scores.ndim != 1:
            raise ValueError(f"scores: expected a flat array (N,), got shape {scores.shape}")
        segments = ids.read_like(self.keys, segments, len(scores))
        if (rows := ids.length(segments)) != len(scores):
            raise ValueError(
                "scores and segments: expected two flat arrays of one length, "
                f"got shapes {scores.shape} and ({rows},)"
            )
        find = indexer(self.keys, segments, "segments")
        A = np.append(self.fit.A, self.fallback.A.astype(self.fit.A.dtype))
        B = np.append(self.fit.B, self.fallback.B.astype(self.fit.B.dtype))
        out = np.empty(len(scores), np.result_type(scores, A))

        def predict(piece):
            for start in range(piece.start, piece.stop, _PREDICTED_AT_ONCE):
                rows = slice(start, min(start + _PREDICTED_AT_ONCE, piece.stop))
                which = find(rows)  # -1, the last, is the fallback
                out[rows] = expit(-(A[which] * scores[rows] + B[which]))

        list(ordered_map(predict, row_slices(len(scores))))
        return out

    def _inspected(self):
        return self.fit, "segment", self.keys


@dataclass(frozen=True, repr=False, eq=False)
class OneVsRestCalibrator(ComparedByValue, _ById):
    """One sigmoid per class of a classifier, each of that class against all others.

    `calibrator[class_id]` is the Fit of one class, `class_id in calibrator` tells whether there is
    one, `len(calibrator)` how many there are.

    Attributes:
        classes: (C,) the class ids, in the order of the score columns.
        fit: the fit of each.
    """

    classes: np.ndarray
    fit: Fit

    _shared_rows: ClassVar[bool] = True

    def predict_proba(self, scores, normalize: bool = True) -> np.ndarray:
        """Probabilities of the classes.

        Args:
            scores: (N, C).
            normalize: divide each row by its sum (multiclass). False gives each class's own
                probability (multilabel).

        Returns:
            (N, C) in [0, 1]. A class whose fit is NON_FINITE or EMPTY is NaN; the others are
            normalised without it. A NaN score makes its row NaN.

        Raises:
            ValueError: scores do not have a column per class.
        """
        scores = validation.numbers(scores, "scores")
        if scores.ndim != 2 or scores.shape[1] != len(self.classes):
            raise ValueError(
                f"scores: expected shape (N, {len(self.classes)}), a column per class, "
                f"got {scores.shape}"
            )
        logit = -(self.fit.A * scores + self.fit.B)
        if not normalize:
            return expit(logit)
        # Logarithms keep their order where the probabilities themselves all round to 0.
        fitted = np.isfinite(self.fit.A)
        log_proba = np.where(fitted, log_expit(logit), -np.inf)
        proba = np.exp(log_proba - log_proba.max(axis=1, keepdims=True, initial=_LOWEST))
        return np.where(fitted, proba / proba.sum(axis=1, keepdims=True), np.nan)

    def _place(self, id_):
        keys, place = ascending(self.classes)
        (found,) = get_indexer(keys, ids.read([id_], "class"), "class")
        return -1 if found < 0 else int(np.flatnonzero(place == found)[0])

    def _inspected(self):
        return self.fit, "class", self.classes


def expit(logit):
    """1 / (1 + exp(-logit)), which neither overflows nor rounds small probabilities to 0."""
    xp = jnp if isinstance(logit, jax.Array) else np
    e = xp.exp(-xp.abs(logit))
    return xp.where(logit >= 0, 1, e) / (1 + e)


def log_expit(logit):
    """log(expit(logit)), finite for every finite logit."""
    xp = jnp if isinstance(logit, jax.Array) else np
    return xp.minimum(logit, 0) - xp.log1p(xp.exp(-xp.abs(logit)))


def problem_names(batch: tuple[int, ...]) -> np.ndarray:
    """The indices of a batch of problems: 0, 1, ...; or (0, 0), (0, 1), ... with more axes."""
    if len(batch) <= 1:
        return np.arange(math.prod(batch))
    names = np.empty(math.prod(batch), object)
    names[:] = list(np.ndindex(batch))
    return names
