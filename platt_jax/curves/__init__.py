"""Calibration curves other than the sigmoid, for `curve=` of the fitting functions."""

from typing import Any, Literal, TypeAlias, get_args

from platt_jax.curves.base import Curve
from platt_jax.curves.log_odds import Beta, Quadratic, Spline
from platt_jax.curves.sorting import Bins, Isotonic, VennAbers

__all__ = ["Beta", "Bins", "Curve", "Isotonic", "Quadratic", "Spline", "VennAbers"]

# Curves that are sigmoids, which the core fits, and others.
SigmoidName: TypeAlias = Literal["sigmoid", "shift", "temperature"]
OtherName: TypeAlias = Literal["quadratic", "beta", "spline", "isotonic", "bins", "venn_abers"]
NAMES = (*get_args(SigmoidName), *get_args(OtherName))

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
    names = ", ".join(map(repr, NAMES))
    raise ValueError(
        f"curve: expected one of {names}, or an object of platt_jax.curves, got {curve!r}"
    )
