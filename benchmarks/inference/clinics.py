"""Intervals of net benefit, indices and centres: ``python -m benchmarks.inference.clinics``.

Predictions are normal log-odds with a standard deviation of 1, around the base rate.

- ``net benefit``: how often intervals of 95 % of the net benefit, and of the difference between
  predictions before and after calibration, hold the expected one. Before, log-odds are 1.5 times
  too far from their mean.
- ``indices``: how often those of ICI, E50, E90 and Emax hold the index of the true curve, for
  calibrated predictions, for a wrong slope, and for a wave that a spline follows only so far.
- ``centres``: which share of the measures of new centres the prediction intervals of
  `summarize_centres` hold, how often the interval of the mean holds it, the median estimate of the
  standard deviation between centres, and the share of new centres within the tolerance as estimated
  and in truth.
- ``clusters``: 30 centres of 20 to 100 patients with five rows each, whose labels have normal
  variables with a correlation of .5 behind them. With and without `clusters`: the same of the
  measures in the large, and how often intervals of 95 % of the centres hold theirs, in the large
  and slopes. Predictions differ within patients or between them.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

import platt_jax as pj
from benchmarks.inference.command import options, printed, run_parts
from platt_jax import metrics

_POPULATION = 1_000_000
_TOO_FAR = 1.5
CURVES = {
    "calibrated": lambda x: x,
    "slope 0.7": lambda x: 0.7 * x,
    "wave": lambda x: x + 0.4 * np.sin(2.5 * x),
}


def net_benefit_cell(rate, rows, threshold, samples=1_000) -> dict[str, float]:
    rng = np.random.default_rng(1)
    center = logit(rate)

    def benefits(x, p):
        """Of the predictions after and before."""
        odds = threshold / (1 - threshold)
        before = center + _TOO_FAR * (x - center)
        return [np.mean((z >= logit(threshold)) * (p - (1 - p) * odds)) for z in (x, before)]

    population = center + rng.normal(size=_POPULATION)
    after, before = benefits(population, expit(population))
    x = center + rng.normal(size=(samples, rows))
    found = metrics.decision_curve(
        rng.random(x.shape) < expit(x),
        x,
        before=center + _TOO_FAR * (x - center),
        threshold=[threshold],
        from_logits=True,
    )

    def held(lower, truth, upper):
        return round(float(np.mean((lower <= truth) & (truth <= upper))), 3)

    return {
        "positive": rate,
        "rows": rows,
        "threshold": round(threshold, 4),
        "net benefit held": held(found.lower, after, found.upper),
        "difference held": held(found.difference_lower, after - before, found.difference_upper),
    }


def net_benefit():
    return printed(
        net_benefit_cell(rate, rows, threshold)
        for rate in (0.02, 0.2)
        for rows in (100, 500, 2_000)
        for threshold in (rate, 2 * rate)
    )


def indices_cell(rate, rows, kind, samples=100) -> dict[str, float]:
    rng = np.random.default_rng(2)
    x = logit(rate) + rng.normal(size=(samples, rows))
    p = expit(CURVES[kind](x))
    found = metrics.integrated_calibration_index(rng.random(x.shape) < p, x, from_logits=True)
    distance = np.abs(p - expit(x))
    truth = {
        "ici": distance.mean(1),
        "e50": np.median(distance, 1),
        "e90": np.quantile(distance, 0.9, axis=1),
        "emax": distance.max(1),
    }
    told = {"positive": rate, "rows": rows, "curve": kind}
    for name, true in truth.items():
        one = getattr(found, name)
        known = np.isfinite(one.value)
        held = (one.lower <= true) & (true <= one.upper)
        told[f"{name} held"] = round(float(held[known].mean()), 3)
    return told | {"mean ici": round(float(np.nanmean(found.ici.value)), 4)}


def indices():
    return printed(
        indices_cell(rate, rows, kind)
        for rate in (0.05, 0.3)
        for rows in (200, 1_000)
        for kind in CURVES
    )


def centres_cell(number, rate, spread, samples=40, mean=0.2, tolerance=0.2) -> dict[str, float]:
    rng = np.random.default_rng(3)
    held, of_mean, spreads, within = [], [], [], []
    for _ in range(samples):
        segments = np.repeat(np.arange(number), rng.integers(50, 501, number))
        x = logit(rate) + rng.normal(size=len(segments))
        off = mean + spread * rng.normal(size=number)
        y = rng.random(len(x)) < expit(x + off[segments])
        overall = pj.metrics.summarize_centres(
            x, y, segments, from_logits=True, tolerance=tolerance
        ).overall
        i = overall["parameter"].tolist().index("in_the_large")
        line = {name: overall[name][i] for name in overall}
        ends = norm.cdf([line["new_lower"], line["new_upper"]], mean, spread or 1e-12)
        held.append(float(ends[1] - ends[0]))
        of_mean.append(line["lower"] <= mean <= line["upper"])
        spreads.append(line["standard_deviation"])
        within.append(line["within"])
    ends = norm.cdf([-tolerance, tolerance], mean, spread or 1e-12)
    return {
        "centres": number,
        "positive": rate,
        "standard deviation": spread,
        "new centres held": round(float(np.mean(held)), 3),
        "mean held": round(float(np.mean(of_mean)), 3),
        "median estimate": round(float(np.median(spreads)), 3),
        "within, estimated": round(float(np.mean(within)), 3),
        "within": round(float(ends[1] - ends[0]), 3),
    }


def centres():
    return printed(
        centres_cell(number, rate, spread)
        for number in (10, 30)
        for rate in (0.02, 0.2)
        for spread in (0.2, 0.5)
    )


def clusters_cell(rate, within, samples=15, number=30, size=5, mean=0.2, spread=0.3):
    """With and without `clusters`, where so much of the logits' variance is within patients."""
    rng, made = np.random.default_rng(4), {False: [], True: []}
    for _ in range(samples):
        patients = rng.integers(20, 101, number)
        centre = np.repeat(np.arange(number), size * patients)
        patient = np.repeat(np.arange(patients.sum()), size)

        def shared(part, patient=patient):
            own = rng.normal(size=patient.max() + 1)[patient]
            return np.sqrt(part) * own + np.sqrt(1 - part) * rng.normal(size=len(patient))

        x = logit(rate) + shared(1 - within)
        off = mean + spread * rng.normal(size=number)
        y = norm.cdf(shared(0.5)) < expit(x + off[centre])
        for given, told in made.items():
            ids = patient if given else None
            found = pj.metrics.summarize_centres(x, y, centre, from_logits=True, clusters=ids)
            i = found.overall["parameter"].tolist().index("in_the_large")
            line = {name: column[i] for name, column in found.overall.items()}
            ends = norm.cdf([line["new_lower"], line["new_upper"]], mean, spread)
            told.append(
                {
                    "design effect": found.design_effect,
                    "new centres held": ends[1] - ends[0],
                    "mean held": line["lower"] <= mean <= line["upper"],
                    "mean estimate": line["standard_deviation"],
                    "in the large held": np.mean(
                        np.abs(found["in_the_large"] - off) <= 1.96 * found["se_in_the_large"]
                    ),
                    "slope held": np.mean(np.abs(found["slope"] - 1) <= 1.96 * found["se_slope"]),
                }
            )
    about = {"positive": rate, "within patients": within, "standard deviation": spread}
    return [
        about
        | {"clusters": given}
        | {name: round(float(np.mean([x[name] for x in told])), 3) for name in told[0]}
        for given, told in made.items()
    ]


def clusters():
    return printed(
        line
        for rate, within in ((0.2, 0.0), (0.2, 1.0), (0.05, 0.5))
        for line in clusters_cell(rate, within)
    )


if __name__ == "__main__":
    parts = {
        "net benefit": net_benefit,
        "indices": indices,
        "centres": centres,
        "clusters": clusters,
    }
    run_parts(options("clinics"), "clinics", parts)
