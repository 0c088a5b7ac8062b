"""Every public function over rows as a call, for `rooms` and `memory`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

import platt_jax as pj
from platt_jax import inference, metrics

ROW_BYTES = 8 + 1 + 8  # a score, a label and an id


class Drawn:
    """Rows of segments whose sigmoids differ, and what calls need beside: made when asked for."""

    def __init__(self, rows: int, segments: int) -> None:
        self.segment_count = segments
        self.rows = self._draw(1, rows)

    def _draw(self, seed: int, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        # The same sigmoids for every seed.
        intercepts = np.random.default_rng(0).normal(0, 0.5, self.segment_count)
        random = np.random.default_rng(seed)
        scores, segments = random.normal(size=rows), random.integers(0, self.segment_count, rows)
        log_odds = scores + intercepts[segments]
        return scores, random.random(rows) < 1 / (1 + np.exp(-log_odds)), segments

    @cached_property
    def fitted(self) -> Any:
        """A calibrator of these rows."""
        return pj.fit_segments(*self.rows)

    @cached_property
    def earlier(self) -> Any:
        """A calibrator of as many other rows."""
        return pj.fit_segments(*self._draw(2, len(self.rows[0])))

    @cached_property
    def earlier_partial(self) -> Any:
        """The same with a population."""
        return pj.fit_segments(*self._draw(2, len(self.rows[0])), pooling="partial")

    @cached_property
    def earlier_venn_abers(self) -> Any:
        """The same with other curves."""
        return pj.fit_segments(*self._draw(2, len(self.rows[0])), curve="venn_abers")

    @cached_property
    def levels(self) -> np.ndarray:
        """(N, 2) the segments within a tenth as many groups."""
        segments = self.rows[2]
        return np.stack([segments % max(2, self.segment_count // 10), segments], 1)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """(N,) predictions for the rows."""
        return self.earlier.predict_proba(self.rows[0], self.rows[2])

    @cached_property
    def gates(self) -> Any:
        """The gates of the earlier fits."""
        return pj.gate(self.earlier, self.rows[0], self.rows[2], precision=0.8)

    @cached_property
    def monitors(self) -> dict[str, Any]:
        """Monitors of the earlier fits."""
        return {x: pj.Monitor.start(self.earlier, against=x) for x in ("fit", "predictions")}

    @cached_property
    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """(N / 10, 10) the scores of ten classes, and (N / 10,) labels."""
        tenth = len(self.rows[0]) // 10
        return self.rows[0][: 10 * tenth].reshape(tenth, 10), self.rows[2][:tenth] % 10

    @cached_property
    def labelled(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first tenth of the rows."""
        return tuple(x[: max(len(x) // 10, 1)] for x in self.rows)  # type: ignore[return-value]


def _fit(**options: Any) -> Callable[[Drawn], Any]:
    return lambda drawn: pj.fit_segments(*drawn.rows, **options)


def _triage(against: Any) -> Callable[[Drawn], Any]:
    return lambda drawn: pj.triage(drawn.earlier, *drawn.rows, against=against)


def _watch(against: str) -> Callable[[Drawn], Any]:
    return lambda drawn: drawn.monitors[against].update(*drawn.rows)


def _by_rows(function: Callable[..., Any], **options: Any) -> Callable[[Drawn], Any]:
    """A function of labels and probabilities; segments do not matter."""
    return lambda drawn: function(drawn.rows[1], drawn.probabilities, **options)


def _by_segment(metric: Callable[..., Any]) -> Callable[[Drawn], Any]:
    return lambda drawn: metrics.by_segment(
        metric, drawn.rows[1], drawn.probabilities, drawn.rows[2]
    )


def _grouped(function: Callable[..., Any]) -> Callable[[Drawn], Any]:
    return lambda drawn: function(drawn.rows[1], drawn.probabilities, segments=drawn.rows[2])


def _means(drawn: Drawn) -> Any:
    scores, labels, segments = drawn.labelled
    return pj.inference.estimate_means(
        drawn.earlier,
        scores,
        labels,
        segments,
        pool=drawn.rows[0],
        pool_segments=drawn.rows[2],
        probability=drawn.earlier.predict_proba(scores, segments),
    )


def _judge(drawn: Drawn) -> Any:
    times = np.arange(len(drawn.rows[0]), dtype=np.float64)
    return pj.inference.judge_pooling(*drawn.rows, times, times[len(times) // 2])


def _dense(drawn: Drawn) -> Any:
    rows = len(drawn.rows[0]) // drawn.segment_count
    some = slice(rows * drawn.segment_count)
    scores, labels = (x[some].reshape(-1, rows) for x in drawn.rows[:2])
    return pj.fit(scores, labels)


# The first is what others are compared with.
CALLS: dict[str, Callable[[Drawn], Any]] = {
    "fit_segments": _fit(),
    "SegmentRows": lambda drawn: pj.SegmentRows(*drawn.rows),
    "fit": _dense,
    "fit_one_vs_rest": lambda drawn: pj.fit_one_vs_rest(*drawn.table),
    "fit_multiclass": lambda drawn: pj.fit_multiclass(*drawn.table),
    **{
        f'fit_segments, curve="{x}"': _fit(curve=x)
        for x in ("quadratic", "beta", "spline", "bins", "isotonic", "venn_abers")
    },
    'fit_segments, pooling="complete"': _fit(pooling="complete"),
    'fit_segments, pooling="partial"': _fit(pooling="partial"),
    'fit_segments, pooling="nested"': lambda drawn: pj.fit_segments(
        *drawn.rows[:2], drawn.levels, pooling="nested"
    ),
    "predict_proba": lambda drawn: drawn.earlier.predict_proba(drawn.rows[0], drawn.rows[2]),
    'predict_proba, pooling="partial"': lambda drawn: drawn.earlier_partial.predict_proba(
        drawn.rows[0], drawn.rows[2]
    ),
    'predict_proba, curve="venn_abers"': lambda drawn: drawn.earlier_venn_abers.predict_proba(
        drawn.rows[0], drawn.rows[2]
    ),
    "band": lambda drawn: drawn.earlier.band(drawn.rows[0], drawn.rows[2]),
    'triage, against="fit"': _triage("fit"),
    'triage, against="predictions"': _triage("predictions"),
    "update": lambda drawn: pj.update(drawn.earlier, *drawn.rows),
    'Monitor.update, against="fit"': _watch("fit"),
    'Monitor.update, against="predictions"': _watch("predictions"),
    "gate": lambda drawn: pj.gate(drawn.earlier, drawn.rows[0], drawn.rows[2], precision=0.8),
    "certify": lambda drawn: pj.certify(drawn.gates, *drawn.rows),
    "leave_one_out": lambda drawn: pj.inference.leave_one_out(drawn.fitted, *drawn.rows),
    "robust_covariance": lambda drawn: inference.robust_covariance(drawn.fitted, *drawn.rows),
    "bootstrap, replicates=10": lambda drawn: pj.inference.bootstrap(
        *drawn.rows[:2], segments=drawn.rows[2], replicates=10
    ),
    "choose_curve": lambda drawn: pj.inference.choose_curve(
        *drawn.rows, candidates=["sigmoid", "isotonic"]
    ),
    "profile_spreads": lambda drawn: pj.inference.profile_spreads(*drawn.rows),
    "estimate_drift": lambda drawn: pj.inference.estimate_drift(drawn.earlier_partial, *drawn.rows),
    "judge_pooling": _judge,
    "estimate_means": _means,
    "estimate_rates": lambda drawn: pj.inference.estimate_rates(
        drawn.earlier, drawn.rows[0], drawn.rows[2]
    ),
    "summarize_centres": lambda drawn: pj.metrics.summarize_centres(
        drawn.probabilities, drawn.rows[1], drawn.rows[2]
    ),
    "by_segment, log_loss": _by_segment(metrics.log_loss),
    "by_segment, reliability_curve": _by_segment(metrics.reliability_curve),
    **{
        x.__name__: _grouped(x)
        for x in (
            metrics.field_calibration_error,
            metrics.field_relative_error,
            metrics.field_squared_error,
            metrics.multicalibration_error,
        )
    },
    "expected": lambda drawn: metrics.expected(drawn.probabilities, segments=drawn.rows[2]),
}

# Where it does not matter in which segments the rows are.
FLAT_CALLS: dict[str, Callable[[Drawn], Any]] = {
    "logit": lambda drawn: pj.logit(drawn.probabilities),
    "decision_curve": lambda drawn: metrics.decision_curve(
        drawn.rows[1], drawn.probabilities, before=1 / (1 + np.exp(-drawn.rows[0]))
    ),
    "expected_cost": _by_rows(metrics.expected_cost, cost=(1, 4)),
    **{
        x.__name__: _by_rows(x)
        for x in (
            metrics.log_loss,
            metrics.brier_score,
            metrics.brier_decomposition,
            metrics.roc_auc,
            metrics.reliability_curve,
            metrics.expected_calibration_error,
            metrics.ece_interval,
            metrics.ece_by_chance,
            metrics.smooth_ece,
            metrics.smooth_curve,
            metrics.isotonic_curve,
            metrics.integrated_calibration_index,
            metrics.cox_calibration,
            metrics.spiegelhalter,
            metrics.hosmer_lemeshow,
            metrics.net_benefit,
        )
    },
}
