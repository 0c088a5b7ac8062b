"""Alarms for many segments: e-values, and what they become if one looks at their maxima."""

import numpy as np

from platt_jax.arrays import Floats
from platt_jax.hypothesis_tests.triage import q_values


def e_q_values(log_e: Floats) -> Floats:
    """(K,) the least false discovery rate at which e-BH reports each segment.

    e-BH is the procedure of Benjamini and Hochberg applied to 1 / e (Wang & Ramdas 2022, "False
    discovery rate control with e-values"). It needs no assumption on the dependence of segments.
    """
    return q_values(np.exp(-np.maximum(log_e, 0)))


def lifted(highest: Floats) -> Floats:
    """(K,) log e-values from the logarithms L of the maxima of e-processes.

    A maximum m is not an e-value; (m - 1 - L) / L^2 is. It is the mean of the adjusters
    k m^(1 - k) over k from 0 to 1 (Shafer, Shen, Vereshchagin & Vovk 2011, "Test martingales, Bayes
    factors and p-values"; Choe & Ramdas 2024, "Combining evidence across filtrations using
    adjusters").
    """
    L = np.maximum(highest, 0)
    near, safe = L < 1e-3, np.maximum(L, 1e-3)
    # L + log(1 - (1 + L) exp(-L)) - 2 log(L), and its series at 0
    whole = safe + np.log(-np.expm1(np.log1p(safe) - safe)) - 2 * np.log(safe)
    return np.where(near, np.log(0.5) + L / 3, whole)
