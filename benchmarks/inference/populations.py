"""What is said of populations, against simulations: ``python -m benchmarks.inference.populations``.

Segments are drawn from a known population and fitted with pooling="partial". Four questions: do
predictions add up where positives are rare; is the population the most probable, by brute force; do
bands of few segments cover; and does `update` come to what a fit of all rows says?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

import platt_jax as pj
from benchmarks.inference import command

_POINTS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # scores at which bands are looked at


def main() -> None:
    command.run_parts(command.options("populations"), "populations", _PARTS)


class World(NamedTuple):
    """A population: log-odds are a f + b, with a and b of each segment, f standard normal."""

    a: float
    spread_a: float
    b: float
    spread_b: float
    kind: str = "normal"

    def parameters(self, rng: np.random.Generator, number: int) -> np.ndarray:
        """(number, 2), a and b of segments."""
        unit = rng.normal(size=(number, 2))
        if self.kind == "two clusters":
            unit = 0.3 * unit + np.sqrt(1 - 0.3**2) * rng.choice([-1, 1], (number, 1))
        elif self.kind == "heavy tails":
            unit = rng.standard_t(3, (number, 2)) / np.sqrt(3)
        return np.array([self.a, self.b]) + unit * [self.spread_a, self.spread_b]


def rows(rng: np.random.Generator, parameters: np.ndarray, number: int) -> tuple[np.ndarray, ...]:
    """Scores, labels and segments: so many rows of each."""
    which = np.repeat(np.arange(len(parameters)), number)
    scores = rng.normal(size=len(which))
    return scores, rng.random(len(which)) < probability(parameters, scores, which), which


def probability(parameters: np.ndarray, scores: np.ndarray, which: np.ndarray) -> np.ndarray:
    return expit(parameters[which, 0] * scores + parameters[which, 1])


# --- predictions ----------------------------------------------------------------------------------


def predictions() -> dict[str, Any]:
    """Mean probabilities of new rows: the truth, ours, the most probable curves', one curve's."""
    cells = {
        "0.8 %, 3 rows": (World(1, 0.3, -5, 1), 3_000, 3),
        "1 %, 10 rows": (World(1, 0.3, -5, 0.8), 3_000, 10),
        "0.1 %, 100 rows": (World(1, 0.3, -7.5, 0.8), 2_000, 100),
        "1.5 %, 3 rows, spread 1.5": (World(1, 0.4, -5.5, 1.5), 5_000, 3),
        "30 %, 20 rows": (World(1, 0.4, -1, 0.7), 2_000, 20),
    }
    return {name: _predicted(*cell) for name, cell in cells.items()}


def _predicted(world: World, number: int, each: int) -> dict[str, Any]:
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        parameters = world.parameters(rng, number)
        fitted = rows(rng, parameters, each)
        scores, _, which = rows(rng, parameters, 20)
        truth = probability(parameters, scores, which)
        partial = pj.fit_segments(*fitted, pooling="partial")
        by = {
            "predict_proba": partial.predict_proba(scores, which),
            "at_mode": partial.at_mode().predict_proba(scores, which),
            "unseen": partial.predict_proba(scores, which + number),
            "one curve": partial.fallback.predict_proba(scores),
        }
        losses = {name: _excess_log_loss(truth, p) for name, p in by.items()}
        means = {name: p.mean() for name, p in by.items()}
        found.append([truth.mean(), *means.values(), *losses.values()])
    truth, *rest = np.mean(found, axis=0)
    return {
        "true mean": _rounded(truth),
        "means over it": dict(zip(by, _rounded(np.array(rest[: len(by)]) / truth), strict=True)),
        "excess log loss": dict(zip(by, _rounded(rest[len(by) :]), strict=True)),
    }


def _excess_log_loss(truth: np.ndarray, predicted: np.ndarray) -> float:
    p, q = truth, np.clip(predicted, 1e-12, 1 - 1e-12)
    return float(np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))))


# --- the most probable ----------------------------------------------------------------------------


def most_probable(populations: int = 80) -> dict[str, Any]:
    """Statuses of random populations, and by how much brute force finds larger densities."""
    statuses, gaps, odd = Counter(), {}, []
    for seed in range(populations):
        rng = np.random.default_rng(seed)
        number, each = (int(np.exp(rng.uniform(*np.log(x)))) for x in ((2, 5_000), (1, 100)))
        rate = np.exp(rng.uniform(*np.log([0.001, 0.5])))
        world = World(1, rng.choice([0, 0.4, 1]), np.log(rate / (1 - rate)), rng.uniform(0, 1.5))
        data = rows(rng, world.parameters(rng, number), each)
        calibrator = pj.fit_segments(*data, pooling="partial")
        population = calibrator.population
        status = population.status.name
        statuses[status] += 1
        if not population.estimated:
            continue
        numbers = population.mean_errors, population.covariance_errors
        unseen = calibrator.predict_proba(_POINTS, np.full(len(_POINTS), number))
        fine = all(np.isfinite(x).all() for x in numbers) and (unseen >= 0).all()
        if not (fine and calibrator.fit.converged.all()):
            odd.append(seed)
        gap = most_probable_by_brute_force(data, number, calibrator)[1]
        gaps.setdefault(status, []).append(gap)
        if gap > 0.01:
            print(f"seed {seed}: {number} x {each}, rate {rate:.4f}, {status}: {gap:.3f}")
    return {
        "populations": populations,
        "statuses": dict(statuses),
        "with NaN, or fits that failed": odd,
        "log density found by brute force beyond ours": {
            status: {
                "largest": _rounded(max(x)),
                "more than 0.01": int(np.sum(np.array(x) > 0.01)),
            }
            for status, x in gaps.items()
        },
    }


def most_probable_by_brute_force(
    data: tuple[np.ndarray, ...], number: int, calibrator: pj.SegmentCalibrator
) -> tuple[np.ndarray, float]:
    """Standard deviations of A and B, and the log density beyond that of our estimate.

    The search starts there, and from a wide population.
    """
    population, prior = calibrator.population, _Prior.of(data[0], calibrator.fallback)
    factor = np.linalg.cholesky(population.covariance)
    ours = np.array([*population.mean, np.log(factor[0, 0]), factor[1, 0], np.log(factor[1, 1])])
    wide = np.array([*population.mean, np.log(0.7), 0, np.log(0.7)])
    for per_side in (17 if number > 500 else 25, 37):
        found = [_climbed(data, prior, number, start, per_side) for start in (ours, wide)]
        at, _ = max(found, key=lambda x: x[1])
        # Errors of coarse grids, of thousands of segments, may add up to what looks like a gain.
        on_coarse, on_fine = (_gain(data, prior, number, ours, at, x) for x in (per_side, 49))
        if abs(on_coarse - on_fine) < 0.003:
            break
    factor = _factor(at)
    return np.sqrt(np.diag(factor @ factor.T)), max(on_fine, 0.0)


class _Prior(NamedTuple):
    """The prior of docs/explanation/pooling.md: half-normal spreads, a mean near the pooled curve.

    In the coordinates in which the middle half of the scores is as wide as N(0, 1)'s.
    """

    to: np.ndarray  # (2, 2), maps (A, B) to these coordinates
    center: np.ndarray  # (2,), the pooled curve there

    @classmethod
    def of(cls, scores: np.ndarray, pooled: Any) -> _Prior:
        low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
        to = np.array([[(high - low) / 1.349, 0], [middle, 1]])
        return cls(to, to @ [float(pooled.A), float(pooled.B)])

    def log_density(self, x: np.ndarray) -> float:
        """Of (mean, log-Cholesky factor), up to a constant."""
        root = self.to @ _factor(x)
        C, off = root @ root.T, self.to @ x[:2] - self.center
        correlation = C[0, 1] / np.sqrt(C[0, 0] * C[1, 1])
        return -(np.trace(C) + off @ off) / (2 * 1.5**2) + np.log1p(-(correlation**2))


def _gain(
    data: tuple[np.ndarray, ...],
    prior: _Prior,
    number: int,
    before: np.ndarray,
    after: np.ndarray,
    per_side: int,
) -> float:
    """The log density of one place beyond that of another, each on its own grid."""
    losses = [_Loss(data, prior, number, at, per_side)(at)[0] for at in (before, after)]
    return losses[0] - losses[1]


def _climbed(
    data: tuple[np.ndarray, ...], prior: _Prior, number: int, at: np.ndarray, per_side: int
) -> tuple[np.ndarray, float]:
    """The place with the largest log density, and it: BFGS on grids at posteriors.

    Grids hold for populations of half to twice the spread; then others take their place.
    """
    before = -np.inf
    for _ in range(12):
        loss = _Loss(data, prior, number, at, per_side)
        low, high = np.full(5, -np.inf), np.full(5, np.inf)
        for i in (2, 4):
            # Spreads below those that count as none gain next to nothing, and have no end.
            low[i], high[i] = max(at[i] - 0.7, np.log(5e-3)), at[i] + 0.7
        bounds = list(zip(low, high, strict=True))
        best = minimize(loss, np.clip(at, low, high), jac=True, method="L-BFGS-B", bounds=bounds)
        at, reached = best.x, -best.fun
        if reached - before < 1e-4:
            break
        before = reached
    return at, reached


class _Loss:
    """Minus the log density, and its gradient, of (mean, log-Cholesky factor)."""

    def __init__(
        self,
        data: tuple[np.ndarray, ...],
        prior: _Prior,
        number: int,
        at: np.ndarray,
        per_side: int,
    ) -> None:
        self._prior, (scores, labels, which) = prior, data
        order = np.argsort(which, kind="stable")
        self._rows = [x[order].reshape(number, -1) for x in (scores, labels)]
        side = np.linspace(-6, 6, per_side)
        unit = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
        mean, root = np.tile(at[:2], (number, 1)), np.tile(_factor(at), (number, 1, 1))
        for _ in range(5):
            self._nodes = mean[:, None] + unit @ root.swapaxes(1, 2)
            self._losses = self._at_nodes() - np.log(np.abs(np.linalg.det(root)))[:, None]
            p = self._joint(at)[1]
            mean = np.einsum("kj,kja->ka", p, self._nodes)
            off = self._nodes - mean[:, None]
            covariance = np.einsum("kj,kja,kjb->kab", p, off, off)
            # Where a grid is coarse beside the posterior its moments are rough.
            root = np.linalg.cholesky(covariance + 0.01 * root @ root.swapaxes(1, 2))

    def _at_nodes(self) -> np.ndarray:
        return np.stack(
            [
                np.logaddexp(
                    0, np.where(y, 1, -1)[:, None] * (f[:, None] * at[:, 0] + at[:, 1])
                ).sum(0)
                for f, y, at in zip(*self._rows, self._nodes, strict=True)
            ]
        )

    def _joint(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        """The segments' log likelihoods, their nodes' weights, and the nodes as of N(0, I)."""
        number = len(self._nodes)
        u = np.linalg.solve(_factor(x), (self._nodes - x[:2]).reshape(-1, 2).T)
        u = u.reshape(2, number, -1)
        log_joint = -self._losses - (u**2).sum(0) / 2 - x[2] - x[4]
        each = logsumexp(log_joint, axis=1)
        return each, np.exp(log_joint - each[:, None]), u

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        each, p, u = self._joint(x)
        factor = _factor(x)
        back = np.linalg.inv(factor).T
        of_mean = back @ np.einsum("kj,akj->a", p, u)
        of_factor = back @ (np.einsum("kj,akj,bkj->ab", p, u, u) - len(each) * np.eye(2))
        of_logs = of_factor[0, 0] * factor[0, 0], of_factor[1, 0], of_factor[1, 1] * factor[1, 1]
        value, gradient = each.sum(), np.array([*of_mean, *of_logs])
        moves = 1e-6 * np.eye(5)
        slope = [self._prior.log_density(x + e) - self._prior.log_density(x - e) for e in moves]
        value += self._prior.log_density(x)
        return -value, -(gradient + np.array(slope) / 2e-6)


def _factor(x: np.ndarray) -> np.ndarray:
    return np.array([[np.exp(x[2]), 0], [x[3], np.exp(x[4])]])


# --- few segments ---------------------------------------------------------------------------------


def few_segments() -> dict[str, Any]:
    """Shares of 95 % bands that hold the truth at five scores, and unseen segments' predictions."""
    plain, wide = World(1, 0.4, -1, 0.7), World(1, 1, -1, 1.5)
    cells = {f"{number} segments": (plain, number, 50) for number in (2, 3, 5, 20, 100)}
    cells |= {f"{number} segments, wide": (wide, number, 50) for number in (3, 5, 20)}
    cells |= {
        "5 segments, no spread": (plain._replace(spread_a=0, spread_b=0), 5, 50),
        "5 segments, 2 % positive": (plain._replace(b=-4), 5, 100),
        "20 segments, two clusters": (plain._replace(kind="two clusters"), 20, 50),
        "20 segments, heavy tails": (plain._replace(kind="heavy tails"), 20, 50),
    }
    return {
        name: _covered(*cell, worlds=400 if cell[1] < 20 else 150) for name, cell in cells.items()
    }


def _covered(world: World, number: int, each: int, worlds: int) -> dict[str, Any]:
    seen, unseen, means = [], [], []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        parameters = world.parameters(rng, number + 20)
        calibrator = pj.fit_segments(*rows(rng, parameters[:number], each), pooling="partial")
        if not calibrator.population.estimated:
            continue
        ids, points = (
            x.ravel() for x in np.meshgrid(np.arange(number + 20), _POINTS, indexing="ij")
        )
        lower, upper = calibrator.band(points, ids)
        truth = probability(parameters, points, ids)
        within = ((lower <= truth) & (truth <= upper)).reshape(-1, len(_POINTS))
        seen.append(within[:number].mean(0))
        unseen.append(within[number:].mean(0))
        new = calibrator.predict_proba(points, ids)[number * len(_POINTS) :]
        means.append([new.mean(), truth[number * len(_POINTS) :].mean()])
    predicted, true = np.mean(means, 0)
    return {
        "seen": _rounded(np.mean(seen, 0)),
        "unseen": _rounded(np.mean(unseen, 0)),
        "unseen, predicted over true mean": _rounded(predicted / true),
    }


# --- updates --------------------------------------------------------------------------------------


def updates() -> dict[str, Any]:
    """How far weeks of `update` are from a fit of all rows, in standard errors."""
    plain = World(1, 0.4, -1, 0.7)
    cells = {f"{each} rows, {weeks} weeks": (plain, each, weeks) for each, weeks in _WEEKS}
    cells["2 % positive, 10 rows, 12 weeks"] = (plain._replace(b=-4), 10, 12)
    return {name: _updated(*cell) for name, cell in cells.items()}


_WEEKS = (5, 20), (10, 12), (50, 12)


def _updated(world: World, each: int, weeks: int, number: int = 300) -> dict[str, Any]:
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        parameters = world.parameters(rng, number)
        by_week = [rows(rng, parameters, each) for _ in range(weeks)]
        calibrator = pj.fit_segments(*by_week[0], pooling="partial")
        for week in by_week[1:]:
            calibrator = pj.update(calibrator, *week)
        together = [np.concatenate(x) for x in zip(*by_week, strict=True)]
        refit = pj.fit_segments(*together, pooling="partial")
        ours, theirs = calibrator.population, refit.population
        variance, expected = (np.diag(x.covariance) for x in (ours, theirs))
        errors = np.sqrt(np.diagonal(theirs.posterior_covariance, axis1=1, axis2=2))
        found.append(
            [
                np.abs((ours.mean - theirs.mean) / theirs.mean_errors).max(),
                np.abs((variance - expected) / np.diag(theirs.covariance_errors)).max(),
                np.abs((ours.posterior_mean - theirs.posterior_mean) / errors).mean(),
                *(_excess(x, parameters) for x in (calibrator, refit)),
                *(_share_covered(x, parameters) for x in (calibrator, refit)),
            ]
        )
    names = (
        *("mean", "variances", "segments"),
        *("excess log loss", "of the refit", "band covers", "of the refit, covers"),
    )
    return dict(zip(names, _rounded(np.mean(found, axis=0)), strict=True))


def _excess(calibrator: pj.SegmentCalibrator, parameters: np.ndarray) -> float:
    scores, _, which = rows(np.random.default_rng(1), parameters, 50)
    truth = probability(parameters, scores, which)
    return _excess_log_loss(truth, calibrator.predict_proba(scores, which))


def _share_covered(calibrator: pj.SegmentCalibrator, parameters: np.ndarray) -> float:
    ids, points = (x.ravel() for x in np.meshgrid(np.arange(len(parameters)), _POINTS))
    lower, upper = calibrator.band(points, ids)
    truth = probability(parameters, points, ids)
    return float(((lower <= truth) & (truth <= upper)).mean())


def _rounded(x: Any) -> Any:
    rounded = np.round(np.asarray(x, float), 5)
    return rounded.tolist()


_PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "predictions": predictions,
    "most_probable": most_probable,
    "few_segments": few_segments,
    "updates": updates,
}

if __name__ == "__main__":
    main()
