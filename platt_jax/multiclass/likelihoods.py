"""The likelihoods of the models: softmax of scaled logits, and cumulative logits."""

from collections.abc import Iterator

import numpy as np

from platt_jax.arrays import Bools, Floats
from platt_jax.multiclass.newton import LossSums
from platt_jax.multiclass.rows import Padded
from platt_jax.results.multiclass import Model

# Logits that are read together, few enough to stay in a cache.
_ENTRIES_AT_ONCE = 1 << 16
_TINY = np.finfo(np.float64).tiny


class SoftmaxLikelihood:
    """P(class c) = softmax(a_c x_c + b_c) for logits x in units that suit the segment.

    "temperature" has one slope a >= 0 for all classes and no biases b. "temperature_bias" has
    biases, and "vector" also a slope for each class, of any sign. Guo, Pleiss, Sun & Weinberger
    (2017, "On calibration of modern neural networks", section 4.2).

    Biases have a normal prior with mean 0 and the precision `penalty` (k,), which also makes their
    sum 0. So have the slopes' deviations from their mean, in units where logits vary by 1.

    Attributes:
        start: (k, P) where the search begins.
        bounded: (P,) whether a parameter is >= 0.
        original: (k, P, P) maps parameters to parameters of the logits as given.
        unbounded: (k,) whether there is no optimum, because no row's label is beaten.
    """

    def __init__(self, rows: Padded, model: Model, penalty: Floats) -> None:
        self._rows, self._has_biases = rows, model != "temperature"
        own_slopes = model == "vector"
        classes, problems, _ = rows.logits.shape
        self._slopes = classes if own_slopes else 1
        to_original = self._set_coordinates(rows, centred=own_slopes)
        # Parameters are coordinates of slopes and biases: of several slopes the mean and the
        # contrasts, which alone have a prior, and of biases contrasts, as the sum is 0.
        slopes, biases = _orthonormal(self._slopes), _orthonormal(classes)[:, 1:]
        free = 1 + own_slopes * (classes - 1)
        number = free + self._has_biases * (classes - 1)
        self._basis = np.zeros((to_original.shape[1], number))
        self._basis[: self._slopes, :free] = slopes
        if self._has_biases:
            self._basis[self._slopes :, free:] = biases
        with np.errstate(invalid="ignore"):
            self.original: Floats = to_original @ self._basis
        self.start = np.zeros((problems, number))
        self.bounded: Bools = np.arange(number) < (0 if own_slopes else 1)
        self._observed = self._observed_sums()
        self._precision = penalty[:, None] * (np.arange(number) > 0)

    def _set_coordinates(self, rows: Padded, centred: bool) -> Floats:
        """Chooses a unit; (k, P, P) from slopes and biases in it to those of the logits."""
        f, absent, w = rows.logits, rows.absent, rows.weights
        present = 1.0 if absent is None else ~absent
        below = f - (f if absent is None else np.where(absent, -np.inf, f)).max(axis=0)
        below *= present
        at_label = np.take_along_axis(below, rows.codes[None], axis=0)[0]
        beaten = ((at_label < 0) & (w > 0)).any(axis=1)
        if centred:  # slopes may be negative: then the smallest logit wins
            beaten &= ((at_label > below.min(axis=0)) & (w > 0)).any(axis=1)
        total = (w * (present * np.ones_like(f)).sum(axis=0)).sum(axis=1)
        share = w / np.where(total > 0, total, 1)[:, None]
        # Only ratios are squared, which cannot overflow.
        widest = np.maximum(-below.min(axis=(0, 2), initial=0), _TINY)
        ratios = below / widest[:, None]
        unit = widest * np.sqrt((share * np.square(ratios, out=ratios).sum(axis=0)).sum(axis=1))
        self.unbounded: Bools = ~beaten & (unit > 0)
        unit = np.where(unit > 0, unit, 1)
        center = (share * f).sum(axis=(0, 2)) if centred else np.zeros_like(unit)
        self._x = (f - center[:, None]) * present if centred else below
        self._x /= unit[:, None]
        return self._to_given(center, unit)

    def _to_given(self, center: Floats, unit: Floats) -> Floats:
        slopes, classes = self._slopes, len(self._x)
        number = slopes + self._has_biases * classes
        matrices = np.zeros((len(unit), number, number))
        with np.errstate(over="ignore"):
            matrices[:, range(slopes), range(slopes)] = 1 / unit[:, None]
        if self._has_biases:
            centring = _centring(classes)
            matrices[:, slopes:, slopes:] = centring
            matrices[:, slopes:, :slopes] -= (center / unit)[:, None, None] * centring[:, :slopes]
        return matrices

    def _observed_sums(self) -> Floats:
        """(k, P), what the gradient of the mean log-likelihood is linear in: sums by label."""
        w, codes = self._rows.weights, self._rows.codes
        if self._slopes == 1:
            at_label = np.take_along_axis(self._x, codes[None], axis=0)[0]
            sums = [(w * at_label).sum(axis=1)]
            if not self._has_biases:
                return np.stack(sums, axis=1)
        else:
            sums = [(w * (codes == c) * x).sum(axis=1) for c, x in enumerate(self._x)]
        return np.stack(sums + [(w * (codes == c)).sum(axis=1) for c in range(len(self._x))], 1)

    def take_platt_targets(self, rows: Floats) -> None:
        """Gives temperatures a best value where labels alone do not, of so many rows (k,).

        The label's target is (n + 1) / (n + 2) then, as Platt's for a class of n rows. The rest is
        shared by the row's other classes.
        """
        absent, w = self._rows.absent, self._rows.weights
        present = len(self._x) - (0 if absent is None else absent.sum(axis=0))
        at_label = np.take_along_axis(self._x, self._rows.codes[None], axis=0)[0]
        other_mean = (self._x.sum(axis=0) - at_label) / np.maximum(present - 1, 1)
        shift = (w * np.where(present > 1, other_mean - at_label, 0)).sum(axis=1) / (rows + 2)
        self._observed[:, 0] += np.where(self.unbounded, shift, 0)

    def sums(self, theta: Floats) -> LossSums:
        """See `Likelihood`."""
        pull, coefficients = theta * self._precision, _each(theta, self._basis.T)
        loss = (theta * pull).sum(axis=1) / 2 - (coefficients * self._observed).sum(axis=1)
        size = np.abs(loss)
        gradient = -self._observed
        hessian = np.zeros((*coefficients.shape, coefficients.shape[1]))
        slopes, biases = slice(self._slopes), slice(self._slopes, None)
        diagonal = np.arange(coefficients.shape[1])
        for part in _parts(self._x.shape):
            w, x = self._rows.weights[:, part], self._x[..., part]
            logs, p = self._probabilities(coefficients, part)
            loss += (w * logs).sum(axis=1)
            px = p * x
            by_slope = px.sum(axis=0, keepdims=True) if self._slopes == 1 else px
            means = np.concatenate([by_slope, p]) if self._has_biases else by_slope
            weighted = means * w
            by_problem = np.moveaxis(means, 0, 1)
            hessian -= np.moveaxis(weighted, 0, 1) @ np.moveaxis(by_problem, 1, 2)
            sums = weighted.sum(axis=2).T
            gradient += sums
            if self._slopes == 1:
                squares = np.einsum("ckn,ckn->kn", px, x)
                hessian[:, 0, 0] += np.einsum("kn,kn->k", w, squares)
            else:
                squares = np.einsum("ckn,ckn->kc", weighted[slopes], x)
                hessian[:, diagonal[slopes], diagonal[slopes]] += squares
            if self._has_biases:
                hessian[:, diagonal[biases], diagonal[biases]] += sums[:, biases]
                if self._slopes == 1:
                    mixed = np.einsum("ckn,kn->kc", px, w)
                    hessian[:, 0, biases] += mixed
                    hessian[:, biases, 0] += mixed
                else:
                    hessian[:, diagonal[slopes], diagonal[biases]] += sums[:, slopes]
                    hessian[:, diagonal[biases], diagonal[slopes]] += sums[:, slopes]
        gradient = _each(gradient, self._basis) + pull
        hessian = self._basis.T @ hessian @ self._basis
        indices = np.arange(theta.shape[1])
        hessian[:, indices, indices] += self._precision
        return LossSums(loss, gradient, hessian, np.maximum(size, np.abs(loss)))

    def losses(self, theta: Floats) -> Floats:
        """(k,) the losses alone, without penalty."""
        theta = _each(theta, self._basis.T)
        loss: Floats = -(theta * self._observed).sum(axis=1)
        for part in _parts(self._x.shape):
            loss += (self._rows.weights[:, part] * self._log_sums(theta, part)[0]).sum(axis=1)
        return loss

    def _probabilities(self, theta: Floats, part: slice) -> tuple[Floats, Floats]:
        logs, e, total = self._log_sums(theta, part)
        e /= total
        return logs, e

    def _log_sums(self, theta: Floats, part: slice) -> tuple[Floats, Floats, Floats]:
        """Logarithms of the sums over classes; the exponentials and their sums, each divided."""
        z = theta.T[: self._slopes, :, None] * self._x[..., part]
        if self._has_biases:
            z += theta.T[self._slopes :, :, None]
        if self._rows.absent is not None:
            z[self._rows.absent[..., part]] = -np.inf
        if not self._has_biases:  # the largest is 0
            total = np.exp(z, out=z).sum(axis=0)
            return np.log(total), z, total
        top = z.max(axis=0)
        z -= top
        total = np.exp(z, out=z).sum(axis=0)
        return np.log(total) + top, z, total


class CumulativeLikelihood:
    """P(class <= c) = expit(t_c - a x) with a >= 0 and increasing thresholds t_c.

    McCullagh (1980, "Regression models for ordinal data"). The loss is convex (Pratt 1981). Each
    class has `penalty` (k,) more rows at the mean score, so that thresholds are distinct and finite
    where a class has no row.

    Attributes: see `SoftmaxLikelihood`.
    """

    def __init__(self, rows: Padded, classes: int, penalty: Floats) -> None:
        f, w = rows.logits[0], rows.weights
        total = w.sum(axis=1)
        share = w / np.where(total > 0, total, 1)[:, None]
        center = (share * f).sum(axis=1)
        centered = f - center[:, None]
        widest = np.maximum(np.abs(centered * (w > 0)).max(axis=1, initial=0), _TINY)
        unit = widest * np.sqrt((share * (centered / widest[:, None]) ** 2).sum(axis=1))
        unit = np.where(unit > 0, unit, 1)
        added_shape = len(f), classes
        self._x = np.hstack([np.where(w > 0, centered / unit[:, None], 0), np.zeros(added_shape)])
        self._w = np.hstack([w, np.broadcast_to(penalty[:, None], added_shape)])
        self._codes = np.hstack([rows.codes, np.broadcast_to(np.arange(classes), added_shape)])
        self._classes = classes
        # Other rows would need thresholds that grow with the slope, against the penalty.
        x, codes = self._x, self._codes
        off_center = (w > 0) & (x[:, : w.shape[1]] != 0)
        extreme = codes == np.where(x < 0, 0, classes - 1)
        self.unbounded: Bools = (extreme[:, : w.shape[1]] | ~off_center).all(1) & off_center.any(1)
        mass = np.stack([(self._w * (self._codes == c)).sum(axis=1) for c in range(classes)], 1)
        below = mass.cumsum(axis=1)[:, :-1]
        thresholds = np.log(below) - np.log(mass.sum(axis=1, keepdims=True) - below)
        self.start = np.hstack([np.zeros((len(f), 1)), thresholds])
        self.bounded: Bools = np.arange(classes) < 1
        self.original = np.tile(np.eye(classes), (len(f), 1, 1))
        with np.errstate(over="ignore"):
            self.original[:, 0, 0] = 1 / unit
        self.original[:, 1:, 0] = (center / unit)[:, None]

    def sums(self, theta: Floats) -> LossSums:
        """See `Likelihood`."""
        sums = LossSums(
            np.zeros(len(theta)),
            np.zeros_like(theta),
            np.zeros((*theta.shape, theta.shape[1])),
            np.zeros(len(theta)),
        )
        if (np.diff(theta[:, 1:], axis=1) <= 0).any():
            sums.loss[(np.diff(theta[:, 1:], axis=1) <= 0).any(axis=1)] = np.inf
        for part in _parts((self._classes, *self._x.shape)):
            self._add(sums, theta, part)
        sums.size[:] = np.abs(sums.loss)
        return sums

    def _add(self, made: LossSums, theta: Floats, part: slice) -> None:
        """Adds the sums over a part of the rows."""
        x, w, codes = self._x[:, part], self._w[:, part], self._codes[:, part]
        ends = np.full((len(theta), self._classes + 1), np.inf)
        ends[:, 0], ends[:, 1:-1] = -np.inf, theta[:, 1:]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            upper = np.take_along_axis(ends, codes + 1, axis=1) - theta[:, :1] * x
            lower = np.take_along_axis(ends, codes, axis=1) - theta[:, :1] * x
            # P = expit(upper) expit(-lower) (1 - exp(lower - upper)), which does not cancel.
            gap = upper - lower
            ratio = 1 / np.expm1(gap)
            above, under = 1 / (1 + np.exp(upper)), 1 / (1 + np.exp(-lower))
            loss = np.logaddexp(0, -upper) + np.logaddexp(0, lower) - np.log(-np.expm1(-gap))
        loss = np.where(gap > 0, loss, np.inf)
        bend = np.where(np.isfinite(ratio), ratio * (1 + ratio), 0)
        ratio = np.where(np.isfinite(ratio), ratio, 0)
        by_upper, by_lower = -above - ratio, under + ratio
        upper_upper, lower_lower = above * (1 - above) + bend, under * (1 - under) + bend
        made.loss[:] += np.where(w > 0, w * loss, 0).sum(axis=1)
        made.gradient[:, 0] -= (w * x * (by_upper + by_lower)).sum(axis=1)
        made.hessian[:, 0, 0] += (w * x * x * (above * (1 - above) + under * (1 - under))).sum(
            axis=1
        )
        for c in range(self._classes):
            class_weights = w * (codes == c)
            if c < self._classes - 1:  # the threshold above the class
                made.gradient[:, c + 1] += (class_weights * by_upper).sum(axis=1)
                made.hessian[:, c + 1, c + 1] += (class_weights * upper_upper).sum(axis=1)
                mixed = (class_weights * x * (upper_upper - bend)).sum(axis=1)
                made.hessian[:, 0, c + 1] -= mixed
                made.hessian[:, c + 1, 0] -= mixed
            if c > 0:
                made.gradient[:, c] += (class_weights * by_lower).sum(axis=1)
                made.hessian[:, c, c] += (class_weights * lower_lower).sum(axis=1)
                mixed = (class_weights * x * (lower_lower - bend)).sum(axis=1)
                made.hessian[:, 0, c] -= mixed
                made.hessian[:, c, 0] -= mixed
            if 0 < c < self._classes - 1:
                cross = (class_weights * bend).sum(axis=1)
                made.hessian[:, c, c + 1] -= cross
                made.hessian[:, c + 1, c] -= cross


def _orthonormal(number: int) -> Floats:
    """An orthonormal basis of which the first vector is constant."""
    basis = np.triu(np.ones((number, number)))
    basis[:, 0] = 1
    index = np.arange(1, number)
    basis[index, index] = -index
    return basis / np.linalg.norm(basis, axis=0)


def _centring(number: int) -> Floats:
    """The matrix that subtracts the mean."""
    return np.eye(number) - 1 / number


def _each(x: Floats, matrix: Floats) -> Floats:
    """(k, Q) the products of vectors (k, P) and a matrix (P, Q), each the same for any k."""
    product: Floats = (x[:, None] @ matrix)[:, 0]
    return product


def _parts(shape: tuple[int, ...]) -> Iterator[slice]:
    """Slices of the rows of arrays (C, k, N)."""
    classes, problems, rows = shape
    length = max(1, _ENTRIES_AT_ONCE // (classes * problems))
    return (slice(first, first + length) for first in range(0, rows, length))
