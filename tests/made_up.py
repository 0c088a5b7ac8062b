"""Calibrators of every kind without a fit, and whether two are the same to the bit."""

import jax
import numpy as np

from platt_jax import Fit, OneVsRestCalibrator, SegmentCalibrator, Sigmoid


def calibrators():
    """One of each kind, by its name."""
    numbers = np.array([-1.5, 0.25])
    fit = Fit(
        A=numbers,
        B=-numbers,
        status=np.array([0, 1], np.int32),
        flags=np.array([4, 0], np.int32),
        iterations=np.array([4, 100], np.int32),
        passes=np.array([5, 101], np.int32),
        nll=np.abs(numbers),
        gradient=np.zeros((2, 2)),
        hessian=np.tile(np.eye(2), (2, 1, 1)),
        covariance=np.tile(np.eye(2), (2, 1, 1)),
        n_pos=np.array([3.0, 4.0]),
        n_neg=np.array([5.0, 2.0]),
    )
    sigmoid = Sigmoid(np.array(-2.0), np.array(1.0))
    return {
        "Sigmoid": sigmoid,
        "Fit": fit,
        "SegmentCalibrator": SegmentCalibrator(np.array(["a", "é"]), fit, sigmoid),
        "OneVsRestCalibrator": OneVsRestCalibrator.from_fit(np.array([3, 1]), fit),
    }


def leaves(calibrator):
    """The arrays of a calibrator, in order."""
    if isinstance(calibrator, SegmentCalibrator):
        pooled = *leaves(calibrator.fallback), calibrator.fallback_covariance
        return [calibrator.keys, *pooled, *leaves(calibrator.fit)]
    if isinstance(calibrator, OneVsRestCalibrator):
        return [calibrator.classes, *leaves(calibrator.fit)]
    return jax.tree.leaves(calibrator)


def same(one, other):
    """Whether two calibrators are of one class, with the same types, shapes and bits."""
    pairs = [[np.asarray(leaf) for leaf in leaves(x)] for x in (one, other)]
    return type(one) is type(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(*pairs, strict=True)
    )
