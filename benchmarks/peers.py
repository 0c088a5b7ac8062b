"""The contenders. Each is prepared for a workload, off the clock, and then called, on the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration
from threadpoolctl import threadpool_limits

import platt_jax as pj
from benchmarks import native
from benchmarks.packed import Packed
from benchmarks.workloads import Workload

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Run:
    """A contender prepared for a workload."""

    call: Callable[[], Any]  # what the clock measures
    answer: Callable[[Any], Arrays]  # from what it returned: A, B and counts of those fitted
    problems: np.ndarray | None = None  # which problems it fits; None for all


@dataclass(frozen=True)
class Contender:
    """Who fits, how it is prepared, and what its time stands for.

    A "solve" has its rows grouped and packed. A "whole" call takes what a user has to results; that
    is the same for the C++ where the user's rows are grouped already.
    """

    name: str
    kind: Literal["solve", "whole"]
    prepare: Callable[[Workload], Run | None]  # None: not for this workload
    must_agree: bool = (
        True  # a loss short of the best is an error of this benchmark or of platt_jax
    )


def contenders() -> list[Contender]:
    return [
        Contender("appendix3", "solve", lambda at: _native("appendix3", at)),
        Contender("limit", "solve", lambda at: _native("limit", at)),
        Contender("platt_jax solve", "solve", _platt_jax_solve),
        Contender("appendix3, grouping", "whole", lambda at: _native_grouping("appendix3", at)),
        Contender("limit, grouping", "whole", lambda at: _native_grouping("limit", at)),
        Contender("platt_jax", "whole", _platt_jax_whole),
        Contender("scikit-learn loop", "whole", _scikit_learn, must_agree=False),
        Contender("scipy loop", "whole", _scipy, must_agree=False),
        Contender("optimistix vmapped", "whole", _optimistix, must_agree=False),
    ]


def _as_it_is(returned: Any) -> Arrays:
    return returned


def _native(name: str, at: Workload) -> Run:
    native.library(name)
    return Run(lambda: native.fit(name, at), _as_it_is)


def _native_grouping(name: str, at: Workload) -> Run | None:
    if at.ungrouped is None:
        return None
    scores, labels, segments = at.ungrouped

    def call() -> Arrays:
        if segments.dtype.kind == "i":  # a radix sort of the ids, which are 0 ... K - 1
            order = np.argsort((segments & 0xFFFF).astype(np.uint16), kind="stable")
            if at.problems > 1 << 16:
                order = order[np.argsort((segments >> 16).astype(np.uint16)[order], kind="stable")]
            sizes = np.bincount(segments)
        else:
            _, codes, sizes = np.unique(segments, return_inverse=True, return_counts=True)
            order = np.argsort(codes, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return native.fit(
            name, replace(at, offsets=offsets, scores=scores[order], labels=labels[order])
        )

    return Run(call, _as_it_is)


def _platt_jax_solve(at: Workload) -> Run:
    packed = Packed(at)
    return Run(packed.solve, packed.in_order)


def _platt_jax_whole(at: Workload) -> Run:
    def answer(fit: pj.Fit) -> Arrays:
        return {name: getattr(fit, name) for name in ("A", "B", "iterations", "passes")}

    if at.ungrouped is not None:
        ungrouped = at.ungrouped
        return Run(lambda: pj.fit_segments(*ungrouped), lambda calibrator: answer(calibrator.fit))
    scores, labels = at.dense(at.scores), at.dense(at.labels)
    weights = None if at.weights is None else at.dense(at.weights)
    return Run(lambda: pj.fit(scores, labels, weights=weights), answer)


def _loop(at: Workload, fit: Callable[..., tuple[float, float]], most_rows: int) -> Run:
    """One fit after another, on a sample of the problems."""
    problems = _sample(at, most_problems=min(100, -(-at.problems // 5)), most_rows=most_rows)
    few = at.only(problems)
    each = [
        tuple(None if x is None else x[first:last] for x in (few.scores, few.labels, few.weights))
        for first, last in zip(few.offsets[:-1], few.offsets[1:], strict=True)
    ]

    def call() -> Arrays:
        with threadpool_limits(1):  # threads only get in the way of fits this small
            answers = np.array([fit(*problem) for problem in each])
        return {"A": answers[:, 0], "B": answers[:, 1]}

    return Run(call, _as_it_is, problems)


def _scikit_learn(at: Workload) -> Run:
    def fit(scores, labels, weights) -> tuple[float, float]:
        fitted = _SigmoidCalibration().fit(scores, labels, weights)
        return fitted.a_, fitted.b_

    return _loop(at, fit, most_rows=1_000_000)


def _scipy(at: Workload) -> Run:
    """L-BFGS-B with the gradient, on standardised scores, which is its best case."""

    def fit(scores, labels, weights) -> tuple[float, float]:
        w = np.ones_like(scores) if weights is None else weights
        center, scale = scores.mean(), scores.std() or 1.0
        f, y = (scores - center) / scale, labels > 0
        n_pos, n_neg = w[y].sum(), w[~y].sum()
        t = np.where(y, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))

        def objective(theta) -> tuple[float, np.ndarray]:
            z = theta[0] * f + theta[1]
            slope = w * (t - expit(-z))
            return float(w @ (t * z + np.logaddexp(0, -z))), np.array([slope @ f, slope.sum()])

        start = np.array([0.0, log((n_neg + 1) / (n_pos + 1))])
        options = {"gtol": 1e-6, "ftol": 1e-15}
        A, B = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        return A / scale, B - A * center / scale

    return _loop(at, fit, most_rows=1_000_000)


def _optimistix(at: Workload) -> Run | None:
    """Newton's method on the gradient, on standardised scores, on problems that fit the cache.

    In its best case there is one batch: it runs until its slowest problem has stopped.
    """
    if at.ungrouped is not None:
        return None
    problems = _sample(at, most_problems=1_000, most_rows=1_000_000)
    few = at.only(problems)
    arrays = [few.dense(x) for x in (few.scores, few.labels)]
    arrays.append(np.ones_like(arrays[0]) if few.weights is None else few.dense(few.weights))
    x64 = at.scores.dtype == np.float64
    tol = 1e-8 if x64 else 1e-4
    solver = optimistix.Newton(rtol=tol, atol=tol)

    def fit(scores, labels, w):
        center, scale = scores.mean(), scores.std()
        f, y = (scores - center) / scale, labels > 0
        n_pos, n_neg = jnp.sum(w * y), jnp.sum(w * ~y)
        t = jnp.where(y, (n_pos + 1) / (n_pos + 2), 1 / (n_neg + 2))

        def gradient(theta, _):
            slope = w * (t - jax.nn.sigmoid(-(theta[0] * f + theta[1])))
            return jnp.stack([slope @ f, slope.sum()])

        start = jnp.stack([jnp.zeros_like(n_pos), jnp.log((n_neg + 1) / (n_pos + 1))])
        found = optimistix.root_find(gradient, solver, start, max_steps=50, throw=False)
        A, B = found.value
        return A / scale, B - A * center / scale

    batched = jax.jit(jax.vmap(fit))

    def call() -> Arrays:
        with jax.enable_x64(x64):
            A, B = batched(*arrays)
            return {"A": np.asarray(A), "B": np.asarray(B)}

    return Run(call, _as_it_is, problems)


def _sample(at: Workload, most_problems: int, most_rows: int) -> np.ndarray:
    """As many problems, drawn at random, as keep within both bounds; at least one."""
    order = np.random.default_rng(11).permutation(at.problems)[:most_problems]
    rows = np.cumsum(np.diff(at.offsets)[order])
    return order[: max(1, np.searchsorted(rows, most_rows, side="right"))]
