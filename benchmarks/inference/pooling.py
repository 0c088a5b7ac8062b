"""Partial pooling against the truth, held-out data, NUTS and GPBoost.

``python -m benchmarks.inference.pooling --data FOLDER`` needs the evaluation data; numpyro and
gpboost are used where they are installed (``pip install numpyro gpboost``).
"""

from __future__ import annotations

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command
from platt_jax import metrics

_POOLINGS = ("none", "complete", "partial")


def main() -> None:
    parser = command.options("pooling")
    parser.add_argument("--data", type=Path, help="the folder of nycflights.npz and the like")
    command.run_parts(parser, "pooling", _PARTS, "data")


def segments(seed, number, rows, mean=(-1.5, 0.5), spread=(0.7, 0.5)):
    """Scores, labels, segments: (A, B) normal, without correlation."""
    rng = np.random.default_rng(seed)
    A, B = (m + s * rng.normal(size=number) for m, s in zip(mean, spread, strict=True))
    which = np.repeat(np.arange(number), rows)
    scores = rng.normal(size=len(which))
    return scores, rng.random(len(which)) < expit(-(A[which] * scores + B[which])), which


def recovery(_):
    """Mean and spread found, on average of 10 populations; the truth is -1.5, 0.5; 0.7, 0.5."""
    found = {}
    for rows in (5, 10, 20, 50, 200):
        each = [
            pj.fit_segments(*segments(seed, 4000, rows), pooling="partial").population
            for seed in range(10)
        ]
        found[f"{rows} rows"] = {
            "mean": _rounded(np.mean([x.mean for x in each], 0)),
            "spread": _rounded(np.mean([np.sqrt(np.diag(x.covariance)) for x in each], 0)),
        }
    return found


def sizes(_):
    """Held-out log loss by the number of rows of a segment in the fit, less the true curve's."""
    rows = np.tile([5, 10, 20, 50, 100, 200, 500], 600)
    scores, labels, which = segments(0, len(rows), 2 * rows)
    fitted = np.arange(len(which)) % 2 == 0
    rng = np.random.default_rng(0)
    A, B = (m + s * rng.normal(size=len(rows)) for m, s in ((-1.5, 0.7), (0.5, 0.5)))
    truth = expit(-(A[which] * scores + B[which]))
    proba = {
        pooling: pj.fit_segments(
            scores[fitted], labels[fitted], which[fitted], pooling=pooling
        ).predict_proba(scores, which)
        for pooling in _POOLINGS
    }
    return {
        f"{size} rows": {
            pooling: _rounded(
                metrics.log_loss(labels[of], p[of]) - metrics.log_loss(labels[of], truth[of])
            )
            for pooling, p in proba.items()
        }
        for size in np.unique(rows)
        for of in [~fitted & (rows[which] == size)]
    }


def flights(data):
    """Held-out log loss of the second half of a year: even days fitted, odd days judged."""
    with np.load(data / "nycflights.npz") as file:
        later = ~file["is_fit"]
        columns = {name: file[name][later] for name in file.files if file[name].ndim == 1 and name}
    even = columns["doy"] % 2 == 0
    first = columns["doy"] < 274  # to the end of September
    found = {}
    for name in ("route", "tailnum", "flight", "carrier", "dest"):
        found[name] = {
            "odd days": _held_out(columns, name, even),
            "next quarter": _held_out(columns, name, first),
        }
    return found


def adult(data):
    """Held-out log loss of Adult by occupation and education: training rows, test rows."""
    with np.load(data / "a9a.npz") as a, np.load(data / "platt1999_scores.npz") as scored:
        columns = {
            "score_hgb": scored["adult_linear"],
            "y": a["y"],
            "seg_both": a["seg_occupation"].astype(int) * 100 + a["seg_education"],
        }
        return _held_out(columns, "both", scored["adult_fold"] >= 0)


def _held_out(columns, name, fitted):
    scores, labels = columns["score_hgb"].astype(np.float64), columns["y"]
    which = columns[f"seg_{name}"]
    found = {}
    for pooling in _POOLINGS:
        calibrator = pj.fit_segments(scores[fitted], labels[fitted], which[fitted], pooling=pooling)
        proba = calibrator.predict_proba(scores[~fitted], which[~fitted])
        found[pooling] = _rounded(metrics.log_loss(labels[~fitted], proba))
    return found


def speed(_):
    """Seconds, the least of three, of a call without pooling and one with."""
    found = {}
    for number, rows in ((10_000, 50), (100_000, 50), (1_000_000, 12)):
        data = segments(0, number, rows)
        order = np.random.default_rng(0).permutation(len(data[0]))
        data = [x[order] for x in data]
        none, partial = (
            min(_seconds(lambda p=p, data=data: pj.fit_segments(*data, pooling=p)) for _ in "123")
            for p in ("none", "partial")
        )
        found[f"{number} segments of {rows} rows"] = {
            "none": _rounded(none),
            "partial": _rounded(partial),
            "ratio": _rounded(partial / none),
        }
    return found


def gpboost(_):
    """Seconds of GPBoost's random intercept and slope, and of ours, on the same rows."""
    import gpboost as gpb

    data = segments(0, 100_000, 20)
    scores, labels, which = data
    pj.fit_segments(*data, pooling="partial")
    ours = min(_seconds(lambda: pj.fit_segments(*data, pooling="partial")) for _ in "123")
    population = pj.fit_segments(*data, pooling="partial").population

    def run():
        model = gpb.GPModel(
            group_data=which,
            group_rand_coef_data=scores[:, None],
            ind_effect_group_rand_coef=[1],
            likelihood="bernoulli_logit",
        )
        model.fit(y=labels.astype(float), X=np.column_stack([np.ones_like(scores), scores]))
        run.model = model

    theirs = _seconds(run)
    return {
        "ours": _rounded(ours),
        "theirs": _rounded(theirs),
        "ratio": _rounded(theirs / ours),
        "our spread of A, B": _rounded(np.sqrt(np.diag(population.covariance))),
        "their spread of A, B": _rounded(np.sqrt(np.ravel(run.model.get_cov_pars())[[1, 0]])),
    }


def nuts(data):
    """Posterior means and spreads of the 50 routes of most flights, by NUTS and by ours.

    Once with the population as estimated, and once with NUTS integrating over it as well.
    """
    import numpyro
    import numpyro.distributions as dist

    with np.load(data / "nycflights.npz") as file:
        later = ~file["is_fit"]
        which, scores, labels = (file[x][later] for x in ("seg_route", "score_hgb", "y"))
    distinct, counts = np.unique(which, return_counts=True)
    mine = np.isin(which, distinct[np.argsort(-counts, kind="stable")[:50]])
    mine &= np.cumsum(mine) % 4 == 0  # a quarter of their flights
    keys, which = np.unique(which[mine], return_inverse=True)
    scores, labels = scores[mine].astype(np.float64), labels[mine]
    population = pj.fit_segments(scores, labels, which, pooling="partial").population

    factor = np.linalg.cholesky(population.covariance)

    def model(known):
        if known:
            mean, root = jnp.asarray(population.mean), jnp.asarray(factor)
        else:
            mean = numpyro.sample("mean", dist.Normal(0, 10).expand([2]))
            spread = numpyro.sample("spread", dist.HalfNormal(2).expand([2]))
            root = spread[:, None] * numpyro.sample("correlation", dist.LKJCholesky(2, 1.0))
        with numpyro.plate("segments", len(keys)):
            raw = numpyro.sample("raw", dist.Normal(0, 1).expand([2]).to_event(1))
        theta = numpyro.deterministic("theta", mean + raw @ root.T)
        logits = -(theta[which, 0] * scores + theta[which, 1])
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=jnp.asarray(labels))

    ours = np.sqrt(population.posterior_covariance[:, (0, 1), (0, 1)])
    found = {
        "segments": len(keys),
        "rows": len(labels),
        "status": population.status.name,
        "spread, ours": _rounded(np.sqrt(np.diag(population.covariance))),
    }
    for known in (True, False):
        with jax.enable_x64(True):
            kernel = numpyro.infer.NUTS(model, target_accept_prob=0.95)
            settings = {"num_warmup": 500, "num_samples": 2500, "progress_bar": False}
            sampler = numpyro.infer.MCMC(kernel, **settings)
            sampler.run(jax.random.key(0), known)
            samples = {name: np.asarray(x) for name, x in sampler.get_samples().items()}
        theta = samples["theta"]
        sd = theta.std(0)
        off = np.abs(population.posterior_mean - theta.mean(0)) / sd
        name = "population known" if known else "population integrated"
        found[name] = {
            "means off, in posterior sd: median, worst": _rounded([np.median(off), off.max()]),
            "sd ours / NUTS: median, least, most": _rounded(
                [np.median(ours / sd), (ours / sd).min(), (ours / sd).max()]
            ),
        }
        if not known:
            quantiles = np.quantile(samples["spread"], [0.5, 0.05, 0.95], 0)
            found["spread, NUTS: median, 5 % and 95 %"] = _rounded(quantiles)
    return found


def _seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _rounded(values):
    return np.round(np.asarray(values, float), 5).tolist()


_PARTS = {f.__name__: f for f in (recovery, sizes, flights, adult, speed, gpboost, nuts)}

if __name__ == "__main__":
    main()
