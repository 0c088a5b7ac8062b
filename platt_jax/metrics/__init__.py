"""How good are probabilities? Proper scores, calibration measures and tests, for whole batches.

Nearly every function takes labels and probabilities of class 1 of shape (..., N), whose leading
axes are independent problems, and gives arrays of shape (...): numbers for a single problem.
Exceptions: `isotonic_curve` takes one problem, `roc_auc` scores of any kind, `by_segment` flat
arrays with ids. The rules are the same throughout:

- `proba` holds numbers in [0, 1], or any finite logits with `from_logits=True`. float32 gives
  float32 results; all arithmetic is in float64.
- `labels` and `weights` broadcast to it. Labels are bool, {0, 1} or {-1, +1}. Weights count rows:
  weight 2 is the row twice, weight 0 is the row gone, even with a NaN in it. Only tests,
  intervals and `ece_by_chance` depend on the weights' scale.
- A NaN, or an infinite weight or logit, makes its own problem's results NaN; so does having no row
  of positive weight. Nothing warns.
- A ValueError says which argument was not as it should be, what it was, and what was expected.

`by_segment` computes any of them for each segment of flat arrays.
"""

from platt_jax.metrics.binned import (
    ReliabilityCurve,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
)
from platt_jax.metrics.chance import ece_by_chance
from platt_jax.metrics.isotonic import IsotonicCurve, isotonic_curve
from platt_jax.metrics.proper import (
    BrierDecomposition,
    brier_decomposition,
    brier_score,
    log_loss,
)
from platt_jax.metrics.ranking import roc_auc
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

__all__ = [
    "BrierDecomposition",
    "BySegment",
    "ChiSquareTest",
    "CoxCalibration",
    "IsotonicCurve",
    "ReliabilityCurve",
    "ZTest",
    "brier_decomposition",
    "brier_score",
    "by_segment",
    "cox_calibration",
    "ece_by_chance",
    "expected_calibration_error",
    "hosmer_lemeshow",
    "isotonic_curve",
    "log_loss",
    "maximum_calibration_error",
    "reliability_curve",
    "roc_auc",
    "smooth_ece",
    "spiegelhalter",
]
