"""Proper scores, calibration measures and calibration tests of probabilities, for whole batches.

Most functions take labels and probabilities of class 1 with shape (..., N), whose leading axes are
independent problems, and return arrays of shape (...), or a number for a single problem.
Exceptions: `isotonic_curve` and `smooth_curve` take one problem, `roc_auc` takes scores of any
scale, `by_segment` takes flat arrays with segment ids and computes any metric for each segment. The
field-level errors and `multicalibration_error` take flat arrays and groups of rows. `expected`
takes no labels: it says which scores to expect of labels to come. Metrics of several classes take
class ids (..., N) and probabilities (..., N, C). Common rules:

- `proba` holds numbers in [0, 1], or any finite logits with `from_logits=True`. float32 gives
  float32 results; all arithmetic is in float64.
- `labels` and `weights` broadcast to it. Labels are bool, {0, 1} or {-1, +1}. Weights count rows:
  weight 2 is the row twice; weight 0 removes the row, even with a NaN in it. Only tests,
  intervals, means by chance, `field_squared_error` and `multicalibration_error` depend on the
  scale of the weights. They may be of any size, such as 1e-300 or 1e308, but count as 0 below
  1e-300 of their sum.
- Log-odds of probabilities are by `platt_jax.logit`: clipped, in the same way at 0 and 1.
- A NaN, or an infinite weight or logit, makes the results of its own problem NaN. A problem without
  rows of positive weight is NaN, too. Of all this there are no warnings. `cox_calibration`,
  `smooth_curve` and `integrated_calibration_index` warn where clipped log-odds determine results.
- Results are NumPy's. Of arrays on a GPU `log_loss`, `brier_score`, `roc_auc`, `spiegelhalter` and
  the metrics of bins, but `ece_by_chance` and the decomposition, copy no rows to the host.
- A ValueError names the argument, its value, and what was expected.
"""

from typing import Any

from platt_jax.metrics.centres import summarize_centres
from platt_jax.metrics.curves import IsotonicCurve, SmoothCurve, isotonic_curve, smooth_curve
from platt_jax.metrics.ece import (
    ECEInterval,
    ReliabilityCurve,
    ece_by_chance,
    ece_interval,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
)
from platt_jax.metrics.expected import Expectation, Expected, expected
from platt_jax.metrics.fields import (
    FieldError,
    FieldSquaredError,
    field_calibration_error,
    field_relative_error,
    field_squared_error,
)
from platt_jax.metrics.indices import (
    CalibrationIndices,
    CurveError,
    integrated_calibration_index,
)
from platt_jax.metrics.multicalibration import MulticalibrationError, multicalibration_error
from platt_jax.metrics.multiclass import (
    MeanScore,
    TopLabel,
    classwise_ece,
    multiclass_brier_score,
    multiclass_log_loss,
    top_label,
    top_label_ece,
)
from platt_jax.metrics.net_benefit import (
    Cost,
    DecisionCurve,
    NetBenefit,
    decision_curve,
    expected_cost,
    net_benefit,
)
from platt_jax.metrics.scores import (
    BrierDecomposition,
    brier_decomposition,
    brier_score,
    log_loss,
    roc_auc,
)
from platt_jax.metrics.segments import BySegment, by_segment
from platt_jax.metrics.significance import (
    ChiSquareTest,
    CoxCalibration,
    ZTest,
    cox_calibration,
    hosmer_lemeshow,
    spiegelhalter,
)
from platt_jax.metrics.smooth import smooth_ece
from platt_jax.results.tables import fields_as_lines

__all__ = [
    "BrierDecomposition",
    "BySegment",
    "CalibrationIndices",
    "ChiSquareTest",
    "Cost",
    "CoxCalibration",
    "CurveError",
    "DecisionCurve",
    "ECEInterval",
    "Expectation",
    "Expected",
    "FieldError",
    "FieldSquaredError",
    "IsotonicCurve",
    "MeanScore",
    "MulticalibrationError",
    "NetBenefit",
    "ReliabilityCurve",
    "SmoothCurve",
    "TopLabel",
    "ZTest",
    "brier_decomposition",
    "brier_score",
    "by_segment",
    "classwise_ece",
    "cox_calibration",
    "decision_curve",
    "ece_by_chance",
    "ece_interval",
    "expected",
    "expected_calibration_error",
    "expected_cost",
    "field_calibration_error",
    "field_relative_error",
    "field_squared_error",
    "hosmer_lemeshow",
    "integrated_calibration_index",
    "isotonic_curve",
    "log_loss",
    "maximum_calibration_error",
    "multicalibration_error",
    "multiclass_brier_score",
    "multiclass_log_loss",
    "net_benefit",
    "reliability_curve",
    "roc_auc",
    "smooth_curve",
    "smooth_ece",
    "spiegelhalter",
    "summarize_centres",
    "top_label",
    "top_label_ece",
]

_public: list[Any] = [globals()[name] for name in __all__]
for _kind in _public:
    if hasattr(_kind, "_fields"):  # a named tuple cannot have a base class
        _kind.__repr__ = fields_as_lines
