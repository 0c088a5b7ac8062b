"""Calibration methods of old papers, for comparison: objects for `curve=` of the fitting functions.

They serve the repetition of experiments. For today's scores take a curve of `platt_jax.curves`::

    LevenbergMarquardt    the sigmoid by Platt's own pseudo code (Platt 1999, appendix)
    Gaussian              Bayes' rule on two normal densities, with one variance or two
    CosineExpansion       a sum of cosines by penalised least squares (after Vapnik 1998)
    Softmax               1 / (1 + exp(-2 f)) (Rüping 2004)
    Clip                  (1 + f) / 2 clipped to [0, 1]: SVM-01 (Rüping 2004)
    PPClip                the same clipped to class shares beyond the margins: SVM-PP
    BetaScaling           Beta quantiles of Beta probabilities (Garczarek 2002): SVM-Beta, Beta-2

>>> from platt_jax import fit
>>> from platt_jax.curves import historical
>>> fit([5.0, -4.0, 1.0, 0.0], [1, 0, 0, 1], curve=historical.Softmax()).predict_proba([0.0])
array([0.5])
"""

from platt_jax.curves.historical.beta_scaling import BetaScaling
from platt_jax.curves.historical.levenberg_marquardt import LevenbergMarquardt
from platt_jax.curves.historical.sums import Clip, CosineExpansion, Gaussian, PPClip, Softmax

__all__ = [
    "BetaScaling",
    "Clip",
    "CosineExpansion",
    "Gaussian",
    "LevenbergMarquardt",
    "PPClip",
    "Softmax",
]
