"""Gates and their certification against known curves: ``python -m benchmarks.inference.gates``.

Each population has 200 segments, with normal slopes (mean 2.5, standard deviation 0.4), normal
intercepts (standard deviation 0.5) and normal scores. Gates are made for a precision of 95 % from
1,000 rows without labels. A gate's true precision is an integral over scores; a gate violates if
that is below 95 %. The oracle knows the curve.

- ``sigmoids``: by the number of labels of a segment, and by the mean intercept (0: a base rate of
  .5; -3: of .17), for pooled segments. The naive gate is of the segment's own fit, where the mean
  prediction reaches 95 %; the unbounded one is of the pooled fit, at a level of 50 %.
- ``few``: populations of 2 and 5 segments; and segments that are not pooled.
- ``other curves``: a ceiling of .97, and half the slope above .7: there gates fail.
- ``curves``: gates of quadratic, beta and spline curves, where these are right, where the truth is
  a sigmoid, and where it has a ceiling or a corner that a spline only comes near.
- ``weighted``: half of the unlabelled rows are of high scores, drawn ten times as often as the
  others, with and without the weights that say so.
- ``bounded``: what keeps gates from accepting as much as the oracle, by the mean slope: the bound,
  the estimate of the population, or the bound's approximation.
- ``certified``: of all these worlds, gates with fresh labels.
- ``warnings``: how often certification warns that the curves are wrong.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

import platt_jax as pj
from benchmarks.inference.command import options, printed, run_parts

TARGET = 0.95
LABELS = 20, 50, 200, 1_000
BASES = 0.0, -3.0
KINDS = "sigmoid", "ceiling", "bend"
_UNLABELLED = 1_000
_GRID = np.linspace(5, -5, 2_001)  # scores, of which each is the threshold of those before it
_WEIGHT = np.exp(-(_GRID**2) / 2)
_SHARE = np.cumsum(_WEIGHT) / _WEIGHT.sum()
# Oracles and naive gates accept two of 1,000 rows or more: with fewer a threshold means little.
_LEAST = 0.002
# Log-odds by score, before slope and intercept.
_CURVED = {
    "quadratic": lambda f: f + 0.1 * f**2,
    "beta": lambda f: 0.6 * np.log1p(np.exp(f)) - 1.4 * np.log1p(np.exp(-f)),
}


class Population(NamedTuple):
    """Segments of known curves."""

    slope: np.ndarray
    intercept: np.ndarray
    kind: str

    @classmethod
    def drawn(cls, rng, kind="sigmoid", base=0.0, segments=200, slope=2.5):
        return cls(rng.normal(slope, 0.4, segments), rng.normal(base, 0.5, segments), kind)

    def proba(self, scores, k):
        z = self.slope[k] * _CURVED.get(self.kind, lambda f: f)(scores) + self.intercept[k]
        if self.kind == "bend":
            bend = logit(0.7)
            z = np.where(z > bend, bend + (z - bend) / 2, z)
        return expit(z) * (0.97 if self.kind == "ceiling" else 1)

    def rows(self, rng, each: int):
        """Scores, labels and segments."""
        k = np.repeat(np.arange(len(self.slope)), each)
        scores = rng.normal(size=len(k))
        return scores, rng.random(len(k)) < self.proba(scores, k), k

    def precisions(self):
        """(K, grid) of the rows from each score on."""
        k = np.arange(len(self.slope))[:, None]
        return np.cumsum(self.proba(_GRID, k) * _WEIGHT, 1) / np.cumsum(_WEIGHT)

    def at(self, thresholds):
        """Precisions and shares of the rows from thresholds (K,) on; 0 for infinite ones."""
        found = self.precisions()
        each = [np.interp(-t, -_GRID, x) for t, x in zip(thresholds, found, strict=True)]
        accepted = np.isfinite(thresholds)
        share = np.interp(-thresholds, -_GRID, _SHARE)
        return np.where(accepted, each, np.nan), np.where(accepted, share, 0)


def last_reaching(precision):
    """(K,) the lowest scores of the grid that have the target; inf where none has."""
    good = (precision >= TARGET) & (_SHARE >= _LEAST)
    last = good.shape[1] - 1 - good[:, ::-1].argmax(1)
    return np.where(good.any(1), _GRID[last], np.inf)


def naive_thresholds(calibrator):
    """Where the mean prediction of each segment's own fit reaches the target."""
    fit = calibrator.fit
    proba = expit(-(np.asarray(fit.A)[:, None] * _GRID + np.asarray(fit.B)[:, None]))
    found = last_reaching(np.cumsum(proba * _WEIGHT, 1) / np.cumsum(_WEIGHT))
    return np.where(np.asarray(fit.A) < 0, found, np.inf)


def counted(population, thresholds) -> dict[str, float]:
    """How many segments have a threshold, violate, and which share is accepted in all."""
    precision, share = population.at(thresholds)
    return {
        "gated": int(np.isfinite(thresholds).sum()),
        "violating": int((precision < TARGET).sum()),
        "accepted": float(share.sum()),
    }


def one(seed: int, labels: int, kind: str, base: float, segments: int = 200, pooling="partial"):
    """A population, its gates, and what they, the oracle and naive gates do."""
    rng = np.random.default_rng([seed, labels, segments])
    population = Population.drawn(rng, kind, base, segments)
    rows = population.rows(rng, labels)
    calibrator = pj.fit_segments(*rows, pooling=pooling)
    fresh, _, k = population.rows(rng, _UNLABELLED)
    gates = pj.gate(calibrator, fresh, k, precision=TARGET)
    found = {
        "model": counted(population, gates["threshold"]),
        "unbounded": counted(
            population, pj.gate(calibrator, fresh, k, precision=TARGET, level=0.5)["threshold"]
        ),
        "naive": counted(population, naive_thresholds(pj.fit_segments(*rows))),
        "oracle": counted(population, last_reaching(population.precisions())),
    }
    return rng, population, gates, found


def summed(each: list[dict], whose=("model", "naive", "unbounded")) -> dict[str, float]:
    """Shares of violating gates, and of rows accepted in units of the oracle's."""

    def total(who, what):
        return sum(x[who][what] for x in each)

    told = {"gated": total("model", "gated"), "populations": len(each)}
    for who in whose:
        gated = total(who, "gated")
        told[f"{who} violating"] = round(total(who, "violating") / gated, 4) if gated else None
    told["accepted of the oracle's"] = round(
        total("model", "accepted") / total("oracle", "accepted"), 3
    )
    return told


def cell(labels, kind="sigmoid", base=0.0, populations=20, first=0, **given) -> dict[str, float]:
    """A line of a table, of the populations of seeds from the first one on."""
    seeds = range(first, first + populations)
    each = [one(seed, labels, kind, base, **given)[-1] for seed in seeds]
    about = {"curves": kind, "mean intercept": base, "labels": labels, **given}
    return about | summed(each)


def sigmoids():
    return printed(cell(labels, base=base) for base in BASES for labels in LABELS)


def few():
    sizes = printed(
        cell(labels, segments=segments, populations=100)
        for segments in (2, 5)
        for labels in LABELS[1:]
    )
    return sizes + printed(cell(labels, pooling="none") for labels in LABELS)


def other_curves():
    return printed(
        cell(labels, kind, base) for kind in KINDS[1:] for base in BASES for labels in LABELS
    )


def curve_cell(kind, curve, labels, populations=20, first=0) -> dict[str, float]:
    """Gates of unpooled curves of a kind, fitted to segments of another kind."""
    each = []
    for seed in range(first, first + populations):
        rng = np.random.default_rng([seed, labels, 7])
        population = Population.drawn(rng, kind)
        calibrator = pj.fit_segments(*population.rows(rng, labels), curve=curve)
        fresh, _, k = population.rows(rng, _UNLABELLED)
        gates = pj.gate(calibrator, fresh, k, precision=TARGET)
        found = {
            "model": counted(population, gates["threshold"]),
            "oracle": counted(population, last_reaching(population.precisions())),
            "falling": {"gated": int((gates["status"] == "NOT_MONOTONE").sum())},
        }
        each.append(found)
    told = summed(each, ("model",))
    told["not monotone"] = sum(x["falling"]["gated"] for x in each)
    return {"curves": kind, "fitted": curve, "labels": labels} | told


def curves():
    pairs = (
        ("quadratic", "quadratic"),
        ("beta", "beta"),
        ("quadratic", "spline"),
        ("sigmoid", "quadratic"),
        ("sigmoid", "spline"),
        ("bend", "spline"),
        ("ceiling", "spline"),
        ("quadratic", "sigmoid"),
    )
    return printed(curve_cell(*pair, labels) for pair in pairs for labels in LABELS[1:])


def weighted_cell(labels, weigh: bool, populations=20, first=0) -> dict[str, float]:
    """Gates from unlabelled rows of which high scores were drawn ten times as often."""
    each = []
    for seed in range(first, first + populations):
        rng = np.random.default_rng([seed, labels, 8])
        population = Population.drawn(rng)
        calibrator = pj.fit_segments(*population.rows(rng, labels), pooling="partial")
        fresh, _, k = population.rows(rng, 2 * _UNLABELLED)
        often = fresh > 1
        kept = often | (rng.random(len(fresh)) < 0.1)
        weights = np.where(often, 1.0, 10.0)[kept] if weigh else None
        gates = pj.gate(calibrator, fresh[kept], k[kept], precision=TARGET, weights=weights)
        each.append(
            {
                "model": counted(population, gates["threshold"]),
                "oracle": counted(population, last_reaching(population.precisions())),
            }
        )
    return {"labels": labels, "weights": weigh} | summed(each, ("model",))


def weighted():
    return printed(weighted_cell(labels, weigh) for labels in (50, 200) for weigh in (True, False))


def sampled_thresholds(calibrator, rng, level=0.95, draws=400):
    """The lowest scores from which on `level` of curves drawn from the posteriors hold."""
    found, grid, weight = [], _GRID[::8], _WEIGHT[::8]
    for mean, covariance in zip(
        np.stack([calibrator.fit.A, calibrator.fit.B], 1), calibrator.fit.covariance, strict=True
    ):
        A, B = rng.multivariate_normal(mean, covariance, draws).T[:, :, None]
        precision = np.cumsum(expit(-(A * grid + B)) * weight, 1) / np.cumsum(weight)
        found.append(np.interp(-_GRID, -grid, np.quantile(precision, 1 - level, axis=0)))
    return last_reaching(np.array(found))


def bounded_cell(slope, labels=200, populations=20, first=0) -> dict[str, float]:
    """What gates accept if less is uncertain than is."""
    each = []
    for seed in range(first, first + populations):
        rng = np.random.default_rng([seed, labels, 9])
        population = Population.drawn(rng, slope=slope)
        rows = population.rows(rng, labels)
        fresh, _, k = population.rows(rng, _UNLABELLED)
        pooled = pj.fit_segments(*rows, pooling="partial")
        truth = pj.GaussianPrior(np.array([-slope, 0.0]), np.diag([1 / 0.4**2, 1 / 0.5**2]))
        known = pj.fit_segments(*rows, prior=truth, options=pj.Options(targets="none"))
        thresholds = {
            "model": pj.gate(pooled, fresh, k, precision=TARGET)["threshold"],
            "level 0.8": pj.gate(pooled, fresh, k, precision=TARGET, level=0.8)["threshold"],
            "unbounded": pj.gate(pooled, fresh, k, precision=TARGET, level=0.5)["threshold"],
            "known population": pj.gate(known, fresh, k, precision=TARGET)["threshold"],
            "known, sampled": sampled_thresholds(known, rng),
            "oracle": last_reaching(population.precisions()),
        }
        each.append({who: counted(population, x) for who, x in thresholds.items()})
    told = {"mean slope": slope, "labels": labels, "populations": populations}
    accepted = {who: sum(x[who]["accepted"] for x in each) for who in each[0]}
    told["accepted by the oracle"] = round(accepted["oracle"] / (200 * populations), 4)
    for who in list(accepted)[:-1]:
        violating, gated = (sum(x[who][y] for x in each) for y in ("violating", "gated"))
        told[f"{who} violating"] = round(violating / max(gated, 1), 4)
        told[f"{who} accepted"] = round(accepted[who] / accepted["oracle"], 3)
    return told


def bounded():
    return printed(bounded_cell(slope) for slope in (1.5, 2.0, 2.5, 3.5))


def certified_cell(kind, base, labels, fresh, populations=20, first=0) -> dict[str, float]:
    """Gates of so many labels, certified with so many fresh ones of each segment."""
    counts = {"gated": 0, "certified": 0, "certified and violating": 0, "model violating": 0}
    for seed in range(first, first + populations):
        rng, population, gates, found = one(seed, labels, kind, base)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the curves are wrong, which is known
            proof = pj.certify(gates, *population.rows(rng, fresh))
        precision, _ = population.at(gates["threshold"])
        chosen = proof["flagged"]
        counts["gated"] += found["model"]["gated"]
        counts["model violating"] += found["model"]["violating"]
        counts["certified"] += int(chosen.sum())
        counts["certified and violating"] += int((precision[chosen] < TARGET).sum())
    share = counts["certified and violating"] / max(counts["certified"], 1)
    about = {"curves": kind, "mean intercept": base, "labels": labels, "fresh labels": fresh}
    return about | counts | {"share of certified that violate": round(share, 4)}


def certified():
    return printed(
        certified_cell(kind, base, labels, fresh)
        for kind in KINDS
        for base in BASES
        for labels, fresh in ((200, 1_000), (200, 10_000), (1_000, 10_000))
    )


def warned_cell(kind, base, labels, fresh, populations=20, first=0, **given) -> dict[str, float]:
    """In how many populations certification warns, with so many fresh labels of each segment."""
    told = 0
    for seed in range(first, first + populations):
        rng, population, gates, _ = one(seed, labels, kind, base, **given)
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            pj.certify(gates, *population.rows(rng, fresh))
        told += any("were expected" in str(x.message) for x in heard)
    about = {"curves": kind, "mean intercept": base, "labels": labels, "fresh labels": fresh}
    return about | given | {"populations": populations, "warned": told}


def warned():
    lines = printed(
        warned_cell(kind, base, labels, 1_000)
        for kind in KINDS
        for base in BASES
        for labels in LABELS[1:]
    )
    return lines + printed(
        warned_cell("sigmoid", 0.0, labels, 1_000, **given)
        for given in ({"segments": 5, "populations": 100}, {"pooling": "none"})
        for labels in LABELS[1:]
    )


if __name__ == "__main__":
    run_parts(
        options("gates"),
        "gates",
        {
            "sigmoids": sigmoids,
            "few": few,
            "other curves": other_curves,
            "curves": curves,
            "weighted": weighted,
            "bounded": bounded,
            "certified": certified,
            "warnings": warned,
        },
    )
