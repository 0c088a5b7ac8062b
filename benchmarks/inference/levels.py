"""Nested and crossed levels: ``python -m benchmarks.inference.levels --data FOLDER``.

Simulated countries and cities, and crossed fields, against the truth; flights by carrier, route,
aircraft and week; the employment data of the package nannyml 0.13.1 (``--employment FOLDER``, the
folder nannyml/datasets/data of its wheel); GPBoost and statsmodels where they are installed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import platt_jax as pj
from benchmarks.inference import command
from platt_jax import metrics

_POINTS = np.array([-1.5, 0.0, 1.5])  # scores at which bands are looked at


def main() -> None:
    parser = command.options("levels")
    parser.add_argument("--data", type=Path, help="the folder of nycflights.npz")
    parser.add_argument("--employment", type=Path, help="the folder of employment_MA_*.pq")
    command.run_parts(parser, "levels", _PARTS, "data", "employment")


# --- countries and cities -------------------------------------------------------------------------

_OF_COUNTRIES, _OF_CITIES = np.array([0.3, 0.5]), np.array([0.4, 0.7])


def nested(*_: Any) -> dict[str, Any]:
    """Spreads found, relative to the truth, and shares of 95 % bands that hold the truth."""
    cells = {f"{rows} rows": (rows, -1.0) for rows in (5, 30, 200)}
    cells["100 rows, 1 % positive"] = (100, -5.0)
    return {name: _nested(*cell) for name, cell in cells.items()}


def _nested(rows: int, level: float, worlds: int = 10, countries: int = 50) -> dict[str, Any]:
    spreads, covered = [], []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        # The last 50 countries, and the last 5 cities of the others, are not fitted.
        of_country = rng.normal(size=(countries + 50, 2)) * _OF_COUNTRIES
        of_city = rng.normal(size=(countries + 50, 25, 2)) * _OF_CITIES
        parameters = np.array([1.0, level]) + of_country[:, None] + of_city
        country, city = np.indices(parameters.shape[:2])
        fitted = (country < countries) & (city < 20)
        ids = np.stack([country, country * 100 + city], -1)
        which = np.repeat(ids[fitted], rows, axis=0)
        A, B = np.repeat(parameters[fitted], rows, axis=0).T
        scores = rng.normal(size=len(which))
        labels = rng.random(len(which)) < expit(A * scores + B)
        calibrator = pj.fit_segments(scores, labels, which, pooling="nested")
        spreads.append([calibrator.levels["slope_sd"], calibrator.levels["intercept_sd"]])
        holds = _holds(calibrator, ids.reshape(-1, 2), parameters.reshape(-1, 2))
        known = country < countries
        groups = fitted, known & ~fitted, ~known
        covered.append([holds[group.ravel()].mean() for group in groups])
    truth = np.stack([_OF_COUNTRIES, _OF_CITIES], 1)
    off = np.mean(spreads, 0) / truth - 1
    return {
        "spreads, relative error": {
            "countries": _rounded(off[:, 0]),
            "cities": _rounded(off[:, 1]),
            "of one world, standard deviation": _rounded(np.std(spreads, 0) / truth),
        },
        "bands cover": dict(
            zip(
                ("seen cities", "unseen cities", "unseen countries"),
                _rounded(np.mean(covered, 0)),
                strict=True,
            )
        ),
    }


def _holds(calibrator: Any, ids: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """(n, 3), whether the bands of segments at three scores hold the truth."""
    scores = np.tile(_POINTS, len(ids))
    lower, upper = calibrator.band(scores, np.repeat(ids, len(_POINTS), axis=0))
    A, B = np.repeat(parameters, len(_POINTS), axis=0).T
    truth = expit(A * scores + B)
    return ((lower <= truth) & (truth <= upper)).reshape(len(ids), -1)


# --- crossed fields -------------------------------------------------------------------------------


def crossed(*_: Any) -> dict[str, Any]:
    """Fields of 100 x 100 values, with 1 to 3 rows in each combination."""
    spreads, covered = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        first = rng.normal(size=(110, 2)) * _OF_COUNTRIES
        second = rng.normal(size=(110, 2)) * _OF_CITIES
        parameters = np.array([1.0, -1.0]) + first[:, None] + second
        pairs = np.stack(np.indices((110, 110)), -1)
        fitted = (pairs < 100).all(-1)
        rows = rng.integers(1, 4, fitted.sum())
        which = np.repeat(pairs[fitted], rows, axis=0)
        A, B = np.repeat(parameters[fitted], rows, axis=0).T
        scores = rng.normal(size=len(which))
        labels = rng.random(len(which)) < expit(A * scores + B)
        calibrator = pj.fit_segments(scores, labels, which, pooling="crossed")
        spreads.append([calibrator.levels["slope_sd"], calibrator.levels["intercept_sd"]])
        holds = _holds(calibrator, pairs.reshape(-1, 2), parameters.reshape(-1, 2))
        one_new = ((pairs >= 100).sum(-1) == 1).ravel()
        both_new = (pairs >= 100).all(-1).ravel()
        covered.append([holds[x].mean() for x in (fitted.ravel(), one_new, both_new)])
    truth = np.stack([_OF_COUNTRIES, _OF_CITIES], 1)
    off = np.mean(spreads, 0) / truth - 1
    return {
        "spreads, relative error": {"first": _rounded(off[:, 0]), "second": _rounded(off[:, 1])},
        "bands cover": dict(
            zip(
                ("seen values", "one value unseen", "both unseen"),
                _rounded(np.mean(covered, 0)),
                strict=True,
            )
        ),
    }


# --- flights --------------------------------------------------------------------------------------

_ONE_LEVEL = ("route", "aircraft", "flight")
_FIELDS = (
    ("carrier", "destination"),
    ("carrier", "route", "flight"),
    ("carrier", "route", "flight", "aircraft"),
    ("carrier", "route", "flight", "aircraft", "hour", "week"),
)


def flights(data: Path | None, _: Any) -> dict[str, Any] | None:
    """Log loss on odd days of July to December after a fit on even days, and seconds."""
    if data is None:
        return None
    scores, labels, columns, even = flight_rows(data)
    fit, judged = (scores[even], labels[even]), (scores[~even], labels[~even])
    found: dict[str, Any] = {}
    baseline = None
    for names in [(name,) for name in _ONE_LEVEL] + list(_FIELDS):
        ids = np.stack([columns[name] for name in names], 1)
        ids, pooling = (ids[:, 0], "partial") if len(names) == 1 else (ids, "crossed")
        pj.fit_segments(*fit, ids[even], pooling=pooling)  # compiles
        start = time.perf_counter()
        calibrator = pj.fit_segments(*fit, ids[even], pooling=pooling)
        seconds = time.perf_counter() - start
        losses = _losses(calibrator.predict_proba(judged[0], ids[~even]), judged[1])
        about: dict[str, Any] = {"log loss": _rounded(losses.mean()), "seconds": round(seconds, 2)}
        if baseline is None:
            baseline = losses
        gain = baseline - losses
        about["gain over one level, route"] = _rounded([gain.mean(), _error(gain)])
        if len(names) > 1:
            spreads = zip(
                *(calibrator.levels[x] for x in ("slope_sd", "intercept_sd")), strict=True
            )
            about["spreads"] = dict(zip(names, map(_rounded, spreads), strict=True))
        found[" + ".join(names)] = about
    return found


def flight_rows(data: Path) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Scores, labels and columns of July to December, and which rows are of even days."""
    with np.load(data / "nycflights.npz") as file:
        later = ~file["is_fit"].astype(bool)
        day = file["doy"][later].astype(int)
        names = {"destination": "dest", "aircraft": "tailnum"}
        columns = {
            name: file[f"seg_{names.get(name, name)}"][later].astype(int)
            for name in ("carrier", "destination", "route", "aircraft", "flight")
        }
        columns |= {"hour": file["hour"][later].astype(int), "week": day // 7}
        scores = file["score_hgb"][later].astype(float)
        return scores, file["y"][later], columns, day % 2 == 0


def _losses(proba: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The log loss of each row."""
    return np.asarray(metrics.log_loss(labels[:, None], proba[:, None]))


def _error(x: np.ndarray) -> float:
    return float(np.std(x) / np.sqrt(len(x)))


# --- employment -----------------------------------------------------------------------------------

_PEOPLE = ("AGEP", "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC", "SEX", "RAC1P")


def employment(_: Any, folder: Path | None) -> dict[str, Any] | None:
    """Log loss of crossed fields beside the raw probabilities, one curve, and 1,890 cells.

    Ten random halves of 2015: fitted on one half, judged on the other. Then all of 2015 is fitted,
    and each later year is judged.
    """
    if folder is None:
        return None
    import pandas as pd

    of_2015 = pd.read_parquet(folder / "employment_MA_reference.pq")
    later = pd.read_parquet(folder / "employment_MA_analysis.pq")
    later["employed"] = pd.read_parquet(folder / "employment_MA_analysis_target.pq")["employed"]
    halves = []
    for seed in range(10):
        first = np.random.default_rng(seed).random(len(of_2015)) < 0.5
        halves.append(_employed(of_2015[first], of_2015[~first]))
    years = {str(year): _employed(of_2015, some) for year, some in later.groupby("year")}
    means = {name: _rounded(np.mean([half[name] for half in halves], 0)) for name in halves[0]}
    return {"halves of 2015, mean of ten": means, **years}


def _employed(fit: Any, judged: Any) -> dict[str, Any]:
    def columns(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        p = np.clip(rows["predicted_probability"].to_numpy(float), 1e-6, 1 - 1e-6)
        ids = rows[list(_PEOPLE)].astype(float).astype(int)
        age, school, marital, sex = (ids[name] for name in ("AGEP", "SCHL", "MAR", "SEX"))
        cell = ((age // 10 * 100 + school) * 10 + marital) * 10 + sex
        return np.log(p / (1 - p)), rows["employed"].to_numpy(), np.column_stack([cell, ids])

    scores, labels, ids = columns(judged)
    train = columns(fit)
    cells = pj.fit_segments(*train[:2], train[2][:, 0], pooling="partial")
    start = time.perf_counter()
    crossed = pj.fit_segments(*train, pooling="crossed")
    seconds = time.perf_counter() - start
    raw = _losses(expit(scores), labels)
    losses = {
        "raw": raw,
        "one curve": _losses(crossed.fallback.predict_proba(scores), labels),
        "cells, partial": _losses(cells.predict_proba(scores, ids[:, 0]), labels),
        "crossed": _losses(crossed.predict_proba(scores, ids), labels),
    }
    gain = losses["cells, partial"] - losses["crossed"]
    return {
        **{name: _rounded(x.mean()) for name, x in losses.items()},
        "crossed gains over cells, with error": _rounded([gain.mean(), _error(gain)]),
        "seconds": round(seconds, 1),
    }


# --- peers ----------------------------------------------------------------------------------------


def peers(data: Path | None, _: Any) -> dict[str, Any] | None:
    """Seconds and log loss of GPBoost with the same random intercepts and slopes."""
    try:
        import gpboost as gpb
    except ImportError:
        return None
    found: dict[str, Any] = {"nested, 200 rows a city": _same_spreads(gpb)}
    print(found, flush=True)
    if data is None:
        return found
    scores, labels, columns, even = flight_rows(data)
    for names in _FIELDS[:2]:
        ids = np.stack([columns[name] for name in names], 1)
        start = time.perf_counter()
        ours = pj.fit_segments(scores[even], labels[even], ids[even], pooling="crossed")
        seconds = time.perf_counter() - start
        p = ours.predict_proba(scores[~even], ids[~even])
        start = time.perf_counter()
        design = np.column_stack([np.ones_like(scores), scores])
        model = _gpboost(gpb, scores[even], labels[even], ids[even])
        their_seconds = time.perf_counter() - start
        predicted = model.predict(
            group_data_pred=ids[~even],
            group_rand_coef_data_pred=np.tile(scores[~even][:, None], (1, len(names))),
            X_pred=design[~even],
            predict_response=True,
        )["mu"]
        found[" + ".join(names)] = {
            "log loss": _rounded(_losses(p, labels[~even]).mean()),
            "GPBoost, log loss": _rounded(_losses(predicted, labels[~even]).mean()),
            "seconds, compiled before or not": round(seconds, 2),
            "GPBoost, seconds": round(their_seconds, 1),
        }
        print(found, flush=True)
    return found


def _gpboost(gpb: Any, scores: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> Any:
    """GPBoost's model with independent random intercepts and slopes of each column, fitted."""
    levels = ids.shape[1]
    model = gpb.GPModel(
        group_data=ids,
        group_rand_coef_data=np.tile(scores[:, None], (1, levels)),
        ind_effect_group_rand_coef=list(range(1, levels + 1)),
        likelihood="bernoulli_logit",
    )
    model.fit(y=labels.astype(float), X=np.column_stack([np.ones_like(scores), scores]))
    return model


def _same_spreads(gpb: Any) -> dict[str, Any]:
    """Standard deviations of both levels, ours and GPBoost's, where rows are many."""
    rng = np.random.default_rng(0)
    country = np.repeat(np.arange(20), 10)
    parameters = np.array([1.0, -1.0]) + _OF_CITIES * rng.normal(size=(200, 2))
    parameters += (_OF_COUNTRIES * rng.normal(size=(20, 2)))[country]
    city = np.repeat(np.arange(200), 200)
    scores = rng.normal(size=len(city))
    labels = rng.random(len(city)) < expit(parameters[city, 0] * scores + parameters[city, 1])
    ids = np.stack([country[city], city], 1)
    levels: Any = pj.fit_segments(scores, labels, ids, pooling="nested").levels
    variances = np.asarray(_gpboost(gpb, scores, labels, ids).get_cov_pars()).ravel()
    return {
        "slopes": _rounded(levels["slope_sd"]),
        "intercepts": _rounded(levels["intercept_sd"]),
        "standard errors": _rounded([levels["se_slope_sd"], levels["se_intercept_sd"]]),
        "GPBoost, standard deviations, intercepts then slopes": _rounded(np.sqrt(variances)),
    }


def _rounded(x: Any) -> Any:
    return np.round(np.asarray(x, float), 5).tolist()


_PARTS = {
    "nested": nested,
    "crossed": crossed,
    "flights": flights,
    "employment": employment,
    "peers": peers,
}

if __name__ == "__main__":
    main()
