"""Exponentials and logarithms from operations that a CPU applies to whole vectors.

XLA's float64 versions take three times as long on a CPU, or run one number at a time.
"""

from collections.abc import Sequence
from math import comb, factorial, log

import jax
import jax.numpy as jnp
from jax import lax

# Degrees of the Pade approximant of exp(r), for |r| of at most ln(2) / 2: the quotient of U + V by
# U - V, where U and V are the even and the odd part of a polynomial.
_POWERS = {"float64": 6, "float32": 3}
# ln 2 in two parts (Cody & Waite 1980). The first has few digits, so its multiples are exact. The
# values come from fdlibm and Cephes.
_LN2 = {
    "float64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
    "float32": (0.693359375, -2.12194440e-4),
}


def exp_quotient(distance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Numerator and denominator of exp(-distance), accurate to a few units in the last place."""
    kind = jnp.finfo(distance.dtype)
    # Beyond this distance the result is lost by rounding in any sum.
    limit = -kind.minexp * log(2)
    near = jnp.where(distance > limit, jnp.asarray(limit, distance.dtype), distance)
    # exp(-distance) = 2^-twos exp(-r)
    twos = jnp.floor(near * (1 / log(2)) + 0.5)
    high, low = _LN2[distance.dtype.name]
    r = near - twos * high - twos * low
    m = _POWERS[distance.dtype.name]
    pade = [comb(m, k) * factorial(2 * m - k) / factorial(2 * m) for k in range(m + 1)]
    U, V = _polynomial(pade[::2], r * r), r * _polynomial(pade[1::2], r * r)
    # The bits of the exponent. A whole number plus 2^52 (2^23) has its bits in the last places.
    stored = (2.0**kind.nmant + kind.maxexp - 1) - twos
    bits = lax.bitcast_convert_type(stored, f"int{kind.bits}") << kind.nmant
    return (U - V) * lax.bitcast_convert_type(bits, distance.dtype), U + V


def log1p_unit(x: jax.Array) -> jax.Array:
    """log(1 + x), where x is from 0 to 1."""
    # The series of 2 artanh(x / (x + 2)), whose argument is at most 1/3.
    s = x / (x + 2)
    terms = 17 if s.dtype == jnp.float64 else 8
    return 2 * s * _polynomial([1 / (2 * i + 1) for i in range(terms)], s * s)


def log1p(x: jax.Array) -> jax.Array:
    """log(1 + x), where x is from 0 to 2^100."""
    kind = jnp.finfo(x.dtype)
    bits = lax.bitcast_convert_type(1 + x, f"int{kind.bits}")
    # 1 + x = 2^twos (1 + fraction)
    twos = (bits >> kind.nmant) - (kind.maxexp - 1)
    fraction = lax.bitcast_convert_type(bits - (twos << kind.nmant), x.dtype) - 1
    return twos.astype(x.dtype) * log(2) + log1p_unit(jnp.where(twos == 0, x, fraction))


def _polynomial(coefficients: Sequence[float], x: jax.Array) -> jax.Array | float:
    value: jax.Array | float
    *lower, value = coefficients
    for c in reversed(lower):
        value = c + x * value
    return value
