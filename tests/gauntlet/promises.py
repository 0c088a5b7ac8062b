"""Every function over segments, the check of its promises, and how often it is tried.

A line covers public names as tests/public_api.txt writes them. A public name without a line has a
reason in NO_LINE; test_gauntlet.py compares both with the interface.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import curved, deciding, dependent, fits, inferring, judging, measuring, updating, writing
from .cell import Cell


class Line(NamedTuple):
    """A function's promises.

    Attributes:
        check: tries them on a world.
        covers: the public names that it tries.
        every: it is tried in each of so many worlds; slow functions in fewer.
    """

    check: Callable[[Cell], None]
    covers: tuple[str, ...]
    every: int = 1


_FIT, _PREDICT = "fit_segments", "SegmentCalibrator.predict_proba"
_BAND = "SegmentCalibrator.band"
LINES = {
    "fit_segments none, complete": Line(fits.single_curves, (_FIT, _PREDICT)),
    **{
        f"fit_segments {pooling}": Line(fits.pooled(pooling), (_FIT, _PREDICT, _BAND))
        for pooling in ("partial", "nested", "crossed")
    },
    "fit_segments covariates": Line(
        fits.with_covariates, (_FIT, _PREDICT, _BAND, "SegmentCalibrator.with_segments"), 2
    ),
    "fit_segments curve": Line(fits.other_curves, (_FIT, _PREDICT, "SegmentCalibrator.bounds"), 3),
    "choose_curve": Line(curved.choice, ("inference.choose_curve",), 10),
    "fit_multiclass": Line(
        curved.several_classes,
        (
            "fit_multiclass",
            "MulticlassCalibrator.predict_proba",
            *(f"metrics.multiclass_{x}" for x in ("log_loss", "brier_score")),
            "metrics.top_label_ece",
            "metrics.classwise_ece",
        ),
        5,
    ),
    "trials, soft": Line(fits.shares, (_FIT,), 5),
    "band": Line(fits.unpooled_bands, (_BAND,)),
    "weights": Line(fits.weights_count_rows, (_FIT,), 4),
    "row order": Line(fits.row_order, (_FIT,), 4),
    "table": Line(
        fits.tables,
        ("SegmentCalibrator.table", "SegmentCalibrator.levels", "SegmentCalibrator.shrinkage"),
    ),
    "only": Line(fits.only, ("SegmentCalibrator.only", "SegmentCalibrator.seen")),
    "from_table": Line(fits.published, ("SegmentCalibrator.from_table",), 3),
    "save, load": Line(fits.files, ("save", "load"), 3),
    "fit_one_vs_rest": Line(
        fits.one_vs_rest,
        (
            "fit_one_vs_rest",
            *(f"OneVsRestCalibrator.{x}" for x in ("predict_proba", "band", "table")),
        ),
    ),
    "classes": Line(
        fits.tools_of_classes,
        ("ClassRows", "OneVsRestCalibrator.only", "triage", "update", "Monitor.update"),
        2,
    ),
    "no rows": Line(
        fits.no_rows, ("triage", "update", "Monitor.update", "inference.estimate_rates"), 2
    ),
    **{
        f"triage {against}": Line(judging.triage(against), ("triage",))
        for against in ("fit", "predictions")
    },
    **{
        f"Monitor {against}": Line(
            judging.monitor(against),
            ("Monitor.start", "Monitor.update", "Monitor.alarms", "Monitor.table"),
        )
        for against in ("fit", "predictions")
    },
    "Monitor, parts": Line(
        judging.monitor_parts,
        tuple(f"Monitor.{x}" for x in ("merge", "sums", "add", "save", "load", "restart")),
        2,
    ),
    "Monitor, late labels": Line(judging.late_labels, ("Monitor.update",)),
    **{
        f"update {pooling}": Line(updating.update(pooling), ("update",), every)
        for pooling, every in (("none", 1), ("partial", 1), ("nested", 2), ("crossed", 2))
    },
    "update, five": Line(updating.five_updates, ("update",), 2),
    "estimate_drift": Line(updating.drift, ("inference.estimate_drift", "inference.Drift"), 2),
    "judge_pooling": Line(updating.judge_pooling, ("inference.judge_pooling",), 10),
    "leave_one_out": Line(inferring.leave_one_out, ("inference.leave_one_out",), 5),
    "robust_covariance": Line(inferring.robust_covariance, ("inference.robust_covariance",), 2),
    "bootstrap": Line(
        inferring.bootstrap,
        (
            "inference.bootstrap",
            "inference.Bootstrap.interval",
            "inference.Bootstrap.standard_errors",
        ),
        10,
    ),
    "estimate_rates": Line(inferring.rates, ("inference.estimate_rates",)),
    "estimate_means": Line(
        inferring.means, ("inference.estimate_means", "inference.compare_means"), 3
    ),
    "profile_spreads": Line(inferring.spreads, ("inference.profile_spreads",), 10),
    "prior_from": Line(inferring.prior_from, ("inference.prior_from",)),
    "Sigmoid.shift_prior": Line(inferring.shifted_rates, ("Sigmoid.shift_prior",)),
    "triage, clusters": Line(dependent.triage_of_days, ("triage",), 2),
    "Monitor, night_sd": Line(dependent.monitor_of_nights, ("Monitor.start", "Monitor.update")),
    "update, drift": Line(dependent.update_with_drift, ("update",), 2),
    "shift_prior": Line(
        dependent.another_rate,
        tuple(f"{x}.shift_prior" for x in ("SegmentCalibrator", "OneVsRestCalibrator")),
    ),
    "threshold": Line(
        deciding.thresholds,
        ("SegmentCalibrator.threshold", "SegmentCalibrator.threshold_table"),
        2,
    ),
    "threshold of classes": Line(
        deciding.threshold_of_classes,
        ("OneVsRestCalibrator.threshold", "OneVsRestCalibrator.threshold_table"),
        3,
    ),
    "gate, certify": Line(deciding.gates, ("gate", "certify"), 2),
    "gate by labels, certify groups": Line(deciding.exact_gates, ("gate", "certify"), 2),
    "metrics": Line(
        measuring.numbers,
        (*(f"metrics.{x}" for x in measuring.NUMBERS), "metrics.brier_decomposition"),
    ),
    "metrics, tests": Line(
        measuring.tests_of_chance,
        (
            "metrics.spiegelhalter",
            "metrics.hosmer_lemeshow",
            "metrics.cox_calibration",
            "metrics.ece_interval",
        ),
    ),
    "metrics.by_segment": Line(
        measuring.by_segment, ("metrics.by_segment", "metrics.BySegment.table"), 3
    ),
    "metrics, curves": Line(
        measuring.curves,
        ("metrics.reliability_curve", "metrics.isotonic_curve", "metrics.smooth_curve"),
        2,
    ),
    "metrics, decisions": Line(
        measuring.decisions,
        tuple(
            f"metrics.{x}"
            for x in (
                *("net_benefit", "decision_curve", "expected_cost"),
                "integrated_calibration_index",
            )
        ),
        2,
    ),
    "summarize_centres": Line(measuring.centres, ("metrics.summarize_centres",), 10),
    "metrics, fields": Line(
        measuring.fields,
        (
            "metrics.multicalibration_error",
            *(f"metrics.field_{x}_error" for x in ("calibration", "relative", "squared")),
        ),
        2,
    ),
    "metrics.expected": Line(measuring.expectations, ("metrics.expected",)),
    "to_json": Line(writing.json, ("export.to_json", "export.from_json"), 3),
    "to_python": Line(writing.python, ("export.to_python",), 3),
    "to_sql": Line(writing.in_engine, ("export.to_sql", "sql.predict"), 5),
    "to_onnx": Line(writing.onnx, ("export.to_onnx",), 5),
    "report": Line(writing.page, ("report.to_html",), 10),
}

_FIT_ALONE = "a fit without segments: tests/solver, tests/test_fit.py"
_ROWS = "rows in other places, which tests/doors.py compares with rows in memory"
_DRAWN = "a picture: tests/plots"
_RESULT = "its numbers are those of the function that makes it"
_SETTING = "no function of rows"
# Patterns of public names, and why they have no line.
NO_LINE = {
    r"fit|solve|Fit(\..*)?|GaussianPrior|Sigmoid(\.(?!shift_prior).*)?|logit": _FIT_ALONE,
    r"Options(\..*)?|environment\..*|Monitor|Monitor\.with_calibrator": _SETTING,
    r"SegmentCalibrator(\.(at_mode|predictive|raise_if_failed|unshifted))?": _RESULT,
    r"OneVsRestCalibrator(\.(raise_if_failed|from_fit))?": _RESULT,
    r"inference\.(Bootstrap(\.band)?|CurveChoice)": _RESULT,
    r"MulticlassCalibrator(\.(?!predict_proba).*)?|metrics\.top_label": _RESULT,
    r"metrics\.[A-Z].*": _RESULT,
    r"curves\.[A-Z]\w*": "options of a curve, whose name has a line",
    r"export\.to_javascript": "needs Node: tests/relations and tests/export compare it",
    r"plots\..*": _DRAWN,
    r"sklearn\..*": "classifiers of scikit-learn, whose scores are not given: tests/sklearn",
    r"(Segment|Class)Rows(\..*)?|streaming\..*|cluster\..*|distributed\..*|sql\.rows": _ROWS,
    r"sql\.monitor_sums": "compared with Monitor.sums on many nights: tests/sql",
    r"export\.SqlExport": _RESULT,
}
