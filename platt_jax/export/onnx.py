"""A calibrator as an ONNX model."""

from collections.abc import Mapping
from typing import Any, Literal

from platt_jax import validation
from platt_jax.export.curves import Exportable, curves, reached


def to_onnx(
    calibrator: Exportable,
    *,
    dtype: Literal["float32", "float64"] = "float64",
    threshold: float | None = None,
    opset: int | Mapping[str, int] = 18,
    ir_version: int | None = None,
) -> Any:
    """A calibrator as an ONNX model: scores and segments in, probabilities out.

    The inputs are `score`, (N,) of the given dtype, and, unless it is one sigmoid, `segment`, (N,)
    text or int64; for ids of several columns `segment_0`, `segment_1` and so on. The outputs are
    `logit` and `probability`, float64 (N,). `probability` equals `predict_proba`, within
    rounding; with a population the error is at most 1e-7 where the standard deviation of the log-
    odds is up to 2, and it is NaN for scores whose squares overflow. `logit` is then the mean of
    the log-odds, not the log-odds of `probability`. Segments that were not fitted get the fallback,
    or the population's mean, given what the levels say of their values. `docs/howto/export.md` has
    what `logit` is of other curves than sigmoids.

    Args:
        calibrator: a SegmentCalibrator with any curves, whose ids are columns of text or integers;
            a Sigmoid; or a Fit of one problem.
        dtype: the type of `score`. A model of ONNX has inputs of one type each, and a runtime
            refuses all others: take "float32" behind a classifier of float32. Everything is
            computed in float64 nevertheless.
        threshold: a probability in (0, 1), for a third output: `accepted`, bool (N,), whether the
            score has reached `SegmentCalibrator.threshold`, or is at most that where the curve
            falls. Scores are compared, so that it is exact with a population too. False where there
            is no curve, and for scores that are NaN. None for none.
        opset: version of ONNX's operators, 18 or later; or of each domain, such as {"": 21,
            "ai.onnx.ml": 4}, of which the second is 3 or later. `onnx.compose.merge_models` wants
            that of the classifier.
        ir_version: version of the file format, as the classifier's; None for 9, or for the oldest
            with these operators if that is later.

    Returns:
        An `onnx.ModelProto`, checked by `onnx.checker`. `SerializeToString()` gives its bytes.

    Raises:
        ValueError: an argument is not as above, or a version is later than the installed onnx; the
            calibrator has integer ids of more than 64 bits, or text that UTF-8 cannot hold; or a
            threshold is given beside levels, or without segments.
        ImportError: onnx is missing.

    Example:
        >>> from platt_jax import fit_segments
        >>> model = to_onnx(fit_segments([2.0, -1.0, 1.0, 0.0], [1, 0, 1, 0], ["a", "a", "b", "b"]))
        >>> [x.name for x in model.graph.input]
        ['score', 'segment']
    """
    from platt_jax.export.onnx_graph import DTYPES, model_of, versions

    validation.require_one_of(dtype, tuple(DTYPES), "dtype")
    of_format = versions(opset, ir_version)
    export = curves(calibrator, any_curve=True)
    cuts = None if threshold is None else reached(calibrator, threshold)
    return model_of(export, dtype, cuts, of_format)
