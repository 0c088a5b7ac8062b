"""Calibrated classifiers with scikit-learn's interface.

Not imported by `import platt_jax`; scikit-learn 1.7 or newer is needed.
"""

from platt_jax.extras import install_hint as _install_hint

with _install_hint("platt_jax.sklearn needs scikit-learn", "platt-jax[sklearn]"):
    import sklearn as _sklearn  # noqa: F401 - checks that it is installed

from platt_jax.sklearn.classifier import PlattCalibratedClassifier
from platt_jax.sklearn.coupling import PairwiseCalibrator, couple
from platt_jax.sklearn.segments import SegmentCalibratedClassifier
from platt_jax.sklearn.temperature import TemperatureCalibrator

__all__ = [
    "PairwiseCalibrator",
    "PlattCalibratedClassifier",
    "SegmentCalibratedClassifier",
    "TemperatureCalibrator",
    "couple",
]
