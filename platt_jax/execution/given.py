"""What users give for each problem besides its rows: checked, with one leading axis."""

import numpy as np

from platt_jax import validation
from platt_jax.model.prior import GaussianPrior
from platt_jax.solver.solution import Given


def given_to(batch: tuple[int, ...], dtype, prior=None, start=None) -> Given:
    """What the user gave for the problems of a batch; arrays lead with (K,).

    Raises:
        ValueError: prior or start is not as in `fit`.
    """
    if isinstance(prior, GaussianPrior):  # JAX's arrays may lack float64
        prior = GaussianPrior(*(validation.array(leaf, "prior") for leaf in prior))
    prior = validation.prior(prior, batch, dtype)
    if prior is not None:
        mean, precision = (np.asarray(leaf) for leaf in prior)
        prior = GaussianPrior(mean.reshape(-1, 2), precision.reshape(-1, 2, 2))
    start = validation.start(start, batch, dtype)
    if start is not None:
        start = start[0].reshape(-1), start[1].reshape(-1)
    return Given(prior, start)
