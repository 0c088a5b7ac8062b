"""How to fit: the user's options, checked when they are created.

The command line reads the names of choices here, and needs neither JAX nor NumPy for them.
"""

import functools
import numbers
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# What segments share: nothing, a population, the populations of several levels, or one curve.
Pooling: TypeAlias = Literal["none", "partial", "nested", "crossed", "complete"]
ClassPooling: TypeAlias = Literal["none", "partial", "complete"]

# Curves that are sigmoids, which the core fits, and others.
SigmoidName: TypeAlias = Literal["sigmoid", "shift", "temperature"]
OtherName: TypeAlias = Literal["quadratic", "beta", "spline", "isotonic", "bins", "venn_abers"]
CURVES = (*get_args(SigmoidName), *get_args(OtherName))


@dataclass(frozen=True)
class Options:
    """How to fit. Immutable and hashable: it is a static argument of the compiled program.

    Attributes:
        max_iter: maximum number of Newton iterations (>= 1).
        min_step: minimum step length in a line search, in (0, 1].
        sigma: added to the Hessian's diagonal; "dynamic" is 0 where the Hessian is positive
            definite by Theorem 1 of Lin et al., and 1e-12 elsewhere.
        tol: maximum Newton decrement, the distance to the optimum in standard errors, at which to
            stop. None means 1e-8 in float64 and 1e-4 in float32. With stopping="gradient" it bounds
            the gradient's entries instead, and None means 1e-5.
        start: "gaussian" is the fit of two normal densities with equal variance; "prior" is A = 0
            and B = log((n_neg + 1) / (n_pos + 1)), the paper's start.
        derivatives: "analytic", or "autodiff" for gradient and Hessian by JAX.
        targets: "platt" smooths the labels by the class counts (Platt 1999); "none" uses them as
            they are. With an offset, Platt's targets still come from the counts: they smooth
            towards a probability of 1/2 for the row, not for the curve. If offsets differ by tens
            of log-odds, few rows say where the curve is, and "none" suits better.
        monotone: whether to restrict the slope to its useful sign, A <= 0.
        non_finite: "flag" gives problems with NaN or infinite input status NON_FINITE; "raise"
            raises a ValueError (not in `solve`, which cannot raise, and refuses it); "omit" fits
            without the non-finite rows.
        line_search: "gradient" accepts a step once the derivatives at its end prove the paper's
            sufficient decrease, and needs no loss. "loss" also computes the loss, as in the paper,
            before it rejects a step, which takes one more pass over the rows for every trial.
        stopping: "decrement" or "gradient", see tol.
        standardize: whether to solve for centred and scaled scores, which makes the fit affine
            invariant.
        direction: "newton", or "tensor", which corrects Newton's direction for the change of the
            Hessian along the last step (Schnabel & Frank 1984). It reads no row, and saves passes.
        intercept: whether to fit B. False holds it at 0: P = 1 / (1 + exp(A f)), which is
            temperature scaling of logits f, with 1 / T = -A. Guo et al. (2017) use the labels as
            they are, targets="none".

    Raises:
        ValueError: an argument is not as described.
    """

    max_iter: int = 100
    min_step: float = 1e-10
    sigma: float | Literal["dynamic"] = 1e-12
    tol: float | None = None
    start: Literal["gaussian", "prior"] = "gaussian"
    derivatives: Literal["analytic", "autodiff"] = "analytic"
    targets: Literal["platt", "none"] = "platt"
    monotone: bool = False
    non_finite: Literal["flag", "raise", "omit"] = "flag"
    line_search: Literal["gradient", "loss"] = "gradient"
    stopping: Literal["decrement", "gradient"] = "decrement"
    standardize: bool = True
    direction: Literal["tensor", "newton"] = "tensor"
    intercept: bool = True
    # Whether to fit A; see `ShiftOptions`.
    slope: ClassVar[bool] = True

    def __post_init__(self) -> None:
        expected = f"an integer from 1 to {_MOST_ITERATIONS:,}"
        _check("max_iter", self.max_iter, expected, _is_count(self.max_iter))
        _check("min_step", self.min_step, "in (0, 1]", _is_number(self.min_step, 0, 1))
        _check(
            "sigma",
            self.sigma,
            'a number > 0 or "dynamic"',
            _is_one_of(self.sigma, ("dynamic",)) or _is_number(self.sigma, 0, float("inf")),
        )
        _check(
            "tol",
            self.tol,
            "None or a number > 0",
            self.tol is None or _is_number(self.tol, 0, float("inf")),
        )
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            _check(name, value, f"one of {choices}", _is_one_of(value, choices))
        # JAX accepts no fractions, and NumPy's scalars overflow where Python's do not.
        object.__setattr__(self, "max_iter", int(self.max_iter))
        for name in ("min_step", "sigma", "tol"):
            if isinstance(value := getattr(self, name), numbers.Real):
                object.__setattr__(self, name, float(value))

    @classmethod
    def libsvm(cls) -> "Options":
        """Options for LIBSVM's algorithm, step by step: Appendix 3 of Lin, Lin & Weng (2007)."""
        return cls(
            sigma=1e-12,
            tol=1e-5,
            start="prior",
            line_search="loss",
            stopping="gradient",
            standardize=False,
            direction="newton",
        )

    def with_tol(self, dtype: "DTypeLike") -> "Options":
        """These options with `tol` filled in for scores of this dtype."""
        import jax.numpy as jnp

        if self.tol is not None:
            return self
        if self.stopping == "gradient":
            return _with_tol(self, 1e-5)
        return _with_tol(self, 1e-8 if jnp.finfo(dtype).bits == 64 else 1e-4)


# Each call of a fit asks, and checks of all fields take as long as a small fit's other checks.
@functools.lru_cache(maxsize=64)
def _with_tol(options: Options, tol: float) -> Options:
    return replace(options, tol=tol)


@dataclass(frozen=True)
class ShiftOptions(Options):
    """The options of curve="shift": A is held at -1, for all scores as log-odds."""

    slope: ClassVar[bool] = False


# The values of options that curves and functions take, where they do not honour every value. Curves
# without a search have no iterations and no error: they honour every max_iter, min_step and tol.
_OWN_SEARCH: dict[str, tuple[Any, ...]] = {
    "sigma": (1e-12,),
    "derivatives": ("analytic",),
    "line_search": ("gradient",),
    "stopping": ("decrement",),
    "standardize": (True,),
    "intercept": (True,),
}
_NO_SEARCH = _OWN_SEARCH | {"start": ("gaussian",)}
_ANY_SHAPE: dict[str, tuple[Any, ...]] = {"monotone": (False,)}
HONOURED: dict[str, dict[str, tuple[Any, ...]]] = {
    "sigmoid": {},
    "shift": {"intercept": (True,)},
    "temperature": {},
    "quadratic": _OWN_SEARCH | _ANY_SHAPE,
    "beta": _OWN_SEARCH,
    "spline": _OWN_SEARCH | _ANY_SHAPE,
    "isotonic": _NO_SEARCH,
    "bins": _NO_SEARCH | _ANY_SHAPE,
    "venn_abers": _NO_SEARCH,
    "fit_multiclass": _NO_SEARCH | _ANY_SHAPE,
    "solve": {"non_finite": ("flag", "omit")},
}


def require_honoured(options: Options, by: str) -> Options:
    """The options, if the curve or function of this name honours them.

    Raises:
        ValueError: an option has a value that it would ignore.
    """
    for name, values in HONOURED.get(by, {}).items():
        if (value := getattr(options, name)) not in values:
            choices = " or ".join(map(repr, values))
            raise ValueError(f"Options({name}={value!r}): expected {choices} for {by}")
    return options


_MOST_ITERATIONS = 2**31 - 1  # they are counted in int32

_CHOICES: dict[str, tuple[str | bool, ...]] = {
    "start": ("gaussian", "prior"),
    "derivatives": ("analytic", "autodiff"),
    "targets": ("platt", "none"),
    "monotone": (False, True),
    "non_finite": ("flag", "raise", "omit"),
    "line_search": ("gradient", "loss"),
    "stopping": ("decrement", "gradient"),
    "standardize": (False, True),
    "direction": ("tensor", "newton"),
    "intercept": (False, True),
}


def _is_count(value: Any) -> bool:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_integer and 1 <= int(value) <= _MOST_ITERATIONS


def _is_one_of(value: object, choices: tuple[str | bool, ...]) -> bool:
    return isinstance(value, Hashable) and value in choices  # arrays compare element by element


def _is_number(value: Any, above: float, at_most: float) -> bool:
    real = isinstance(value, numbers.Real)
    return real and above < value <= at_most


def _check(name: str, value: object, expected: str, ok: bool) -> None:
    if not ok:
        raise ValueError(f"Options({name}={value!r}): expected {expected}")
