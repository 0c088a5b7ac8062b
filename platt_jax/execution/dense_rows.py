"""Rows of problems of equal size, in the arrays that the user gave."""

import math
from functools import partial
from typing import Any

import jax
import numpy as np

from platt_jax import validation
from platt_jax.backend import accelerators
from platt_jax.columns import Column
from platt_jax.execution.device_segments import DeviceGroupedRows, end_to_end
from platt_jax.execution.given import given_columns
from platt_jax.execution.on_device import DeviceRows, only_device
from platt_jax.execution.problems import Context, Problems
from platt_jax.execution.run import fit_problems
from platt_jax.passes import packing
from platt_jax.passes.columns import Columns
from platt_jax.results.fit import Fit
from platt_jax.solver.solution import ProblemInputs


class DenseRows:
    """The rows of the problems of a batch; arguments as in `fit`.

    Attributes:
        scores: (..., N) floating scores.
        labels: (..., N) int8 labels.
        batch: the leading axes of the scores.
        dtype: the dtype of the scores and of the fits, float32 or float64.
        sizes: (K,) numbers of rows of all problems.
        reread: see `GroupedRows`.
        device: see `SegmentRows`.
    """

    reread = False
    device: jax.Device | None = None

    def __init__(
        self,
        scores: Column,
        labels: Column,
        weights: Column | None = None,
        pos_label: Any = None,
        offset: Column | None = None,
    ) -> None:
        scores = validation.scores_to_fit(scores)
        self._columns = given_columns(scores, labels, weights, offset, pos_label)
        self.scores, self.labels, *_ = self._columns
        self.batch = self.scores.shape[:-1]
        self.dtype = self.scores.dtype
        self.sizes = np.broadcast_to(self.scores.shape[-1], math.prod(self.batch))

    @property
    def doubtful_shape(self) -> str | None:
        """A warning about the shape of the arrays, or None."""
        are_one_hot = partial(validation.one_hot, self.labels)
        return validation.doubtful_shape(self.scores.shape, are_one_hot)

    @property
    def doubtful_scores(self) -> str | None:
        """A warning about scores that look like probabilities, or None."""
        return validation.probabilities_for_scores(self.scores)

    def fit(self, given: ProblemInputs, context: Context) -> Fit:
        """The fits of all problems, as NumPy arrays with the batch shape; see `fit_problems`."""
        flat = fit_problems(self.problems, given, context)
        fit: Fit = jax.tree.map(lambda x: x.reshape(self.batch + x.shape[1:]), flat)
        return fit

    @property
    def problems(self) -> Problems:
        """The rows as a set of problems."""
        return Problems(self.sizes, self.take, self.dtype)

    def take(self, problems: slice, part: slice, space: packing.Space) -> Columns:
        """The rows of some problems, or a part of one problem's, with the space's length."""
        index: Any = problems
        if len(self.batch) != 1:
            numbers = np.arange(problems.start, problems.stop)
            index = np.unravel_index(numbers, self.batch or (1,)) if self.batch else ()
        columns = jax.tree.map(lambda x: x[..., part][index].reshape(-1), self._columns)
        return packing.flat(columns, space)


class DeviceDenseRows(DeviceGroupedRows):
    """`DenseRows` whose scores are on an accelerator, end to end; arguments as there."""

    def __init__(
        self, scores: Column, labels: Column, weights: Column | None, offset: Column | None
    ) -> None:
        scores = accelerators.taken(scores)
        self.device = only_device(scores)
        with jax.default_device(self.device):
            rows = DeviceRows(scores, labels, weights, offset=offset)
            self._columns = end_to_end(rows.columns)
        self._batch, self.dtype, self.length = rows.batch, rows.dtype, scores.size
        row_count = scores.shape[-1]
        self.sizes = np.full(math.prod(rows.batch), row_count)
        self.largest_first = np.arange(len(self.sizes))
        self._starts = row_count * self.largest_first

    @property
    def batch(self) -> tuple[int, ...]:
        """See `DeviceGroupedRows`."""
        return self._batch

    @property
    def problems(self) -> Problems:
        """See `DenseRows`."""
        return Problems(self.sizes, self.take, self.dtype)
