"""Calibration curves other than the sigmoid, for `curve=` of the fitting functions."""

from typing import Any

from platt_jax.curves.base import Curve
from platt_jax.curves.log_odds import Beta, Quadratic, Spline
from platt_jax.curves.sorting import Bins, Isotonic, VennAbers
from platt_jax.options import CURVES

__all__ = ["Beta", "Bins", "Curve", "Isotonic", "Quadratic", "Spline", "VennAbers"]

_BY_NAME: dict[str, type[Curve]] = {
    x.name: x for x in (Quadratic, Beta, Spline, Isotonic, Bins, VennAbers)
}


def read_curve(curve: Any) -> Curve:
    """The curve of an argument `curve` that is no sigmoid.

    Raises:
        ValueError: it is neither the name of a curve nor an object of this module.
    """
    if isinstance(curve, Curve):
        return curve
    if isinstance(curve, str) and curve in _BY_NAME:
        return _BY_NAME[curve]()
    names = ", ".join(map(repr, CURVES))
    raise ValueError(
        f"curve: expected one of {names}, or an object of platt_jax.curves, got {curve!r}"
    )
