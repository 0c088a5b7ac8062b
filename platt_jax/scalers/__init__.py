"""Other calibration methods, for comparison with Platt scaling.

Every scaler is a frozen dataclass of its options. Its ``fit(scores, labels, *, weights=None)``
takes scores (..., N), whose leading axes are independent problems, as in `platt_jax.fit`. It
returns a fitted scaler with ``predict_proba(scores)`` for scores (..., N)::

    PlattScaling          the sigmoid 1 / (1 + exp(A f + B)) by `platt_jax.fit`
    LevenbergMarquardt    the same sigmoid by Platt's own pseudo code (Platt 1999, appendix)
    Gaussian              Bayes' rule on two normal densities, with one variance or two
    CosineExpansion       a sum of cosines by penalised least squares (after Vapnik 1998)
    Softmax               1 / (1 + exp(-2 f)) (Rüping 2004)
    Clip                  (1 + f) / 2 clipped to [0, 1]: SVM-01 (Rüping 2004)
    PPClip                the same clipped to class shares beyond the margins: SVM-PP
    Binning               the share of class 1 in bins of equal width or equal mass
    BetaScaling           Beta quantiles of Beta probabilities (Garczarek 2002): SVM-Beta, Beta-2
    Isotonic              the monotone curve by least squares
    Temperature           1 / (1 + exp(-f / T)) (Guo et al. 2017)
    BetaCalibration       three parameters on log p and log(1 - p) (Kull et al. 2017)

>>> import numpy as np
>>> from platt_jax import scalers
>>> scores, labels = np.array([5.0, -4.0, 1.0, -1.0, 2.0]), [1, 0, 0, 1, 1]
>>> scalers.Isotonic().fit(scores, labels).predict_proba([-9.0, 0.0, 9.0])
array([0. , 0.5, 1. ])

The rules of `platt_jax.fit` apply to all. The dtype follows the scores; labels are bool, {0, 1} or
{-1, +1}; weights count rows. Invalid input is a ValueError. A problem with NaN or infinite scores,
labels or weights gets NaN parameters and probabilities, with one warning, and does not affect the
others; a problem without a row of positive weight gets NaN. Each scaler's docstring describes its
result for one class and for constant scores. "Flat" means one probability for every score, the mean
of Platt's targets, as in `platt_jax.fit`: (n_pos + 1) / (n_pos + 2) if all rows are of class 1.

A sigmoid with a penalty on its slope is Platt scaling with a prior. This prior shrinks the slope to
0, and leaves the intercept free:

>>> from platt_jax import GaussianPrior
>>> prior = GaussianPrior(np.zeros(2), np.diag([2.0, 0.0]))
>>> plain, penalised = (scalers.PlattScaling(p).fit(scores, labels) for p in (None, prior))
>>> bool(abs(penalised.sigmoid.slope) < abs(plain.sigmoid.slope))
True
"""

from platt_jax.scalers.binning import Binning
from platt_jax.scalers.gaussian import Gaussian
from platt_jax.scalers.historical.beta_scaling import BetaScaling
from platt_jax.scalers.historical.cosine import CosineExpansion
from platt_jax.scalers.historical.fixed import Clip, PPClip, Softmax
from platt_jax.scalers.historical.levenberg_marquardt import LevenbergMarquardt
from platt_jax.scalers.isotonic import Isotonic
from platt_jax.scalers.logistic import BetaCalibration, Temperature
from platt_jax.scalers.platt import PlattScaling

__all__ = [
    "BetaCalibration",
    "BetaScaling",
    "Binning",
    "Clip",
    "CosineExpansion",
    "Gaussian",
    "Isotonic",
    "LevenbergMarquardt",
    "PPClip",
    "PlattScaling",
    "Softmax",
    "Temperature",
]
