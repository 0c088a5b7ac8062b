"""Every figure, of the same rows; and what some of them are made of."""

from dataclasses import replace

import numpy as np

import platt_jax as pj
from platt_jax import metrics, plots
from platt_jax.metrics.centres import Centres
from platt_jax.results.levels import Level, Levels
from platt_jax.results.tables import Table


def every_figure(rows, calibrator, pooled):
    scores, labels, segments = rows
    p = calibrator.fallback.predict_proba(scores)
    own = calibrator.predict_proba(scores, segments)
    one = pj.fit(scores, labels)
    return {
        "binned": lambda ax=None: plots.reliability_diagram(labels, p, ax=ax),
        "smooth": lambda ax=None: plots.reliability_diagram(
            labels, {"pooled": p, "own": own}, method="smooth", ax=ax
        ),
        "isotonic": lambda ax=None: plots.reliability_diagram(
            labels, {"pooled": p, "own": own}, method="isotonic", ax=ax
        ),
        "sigmoid": lambda ax=None: plots.sigmoid(one, scores, labels, ax=ax),
        "map": lambda ax=None: plots.parameter_map(calibrator, ax=ax),
        "slopes": lambda ax=None: plots.slope_funnel(calibrator, ax=ax),
        "rates": lambda ax=None: plots.rate_funnel(labels, p, segments, ax=ax),
        "shrinkage": lambda ax=None: plots.shrinkage(pooled, ax=ax),
        "moves": lambda ax=None: plots.shrinkage(pooled, calibrator, ax=ax),
        "pooling": lambda ax=None: plots.pooling_losses(JUDGED, ax=ax),
        "decisions": lambda ax=None: plots.decision_curve(
            metrics.decision_curve(labels, own, before=p, threshold=np.arange(1, 19) / 20), ax=ax
        ),
        "accepted": lambda ax=None: plots.risk_coverage(calibrator, *rows, ax=ax),
        "centres": lambda ax=None: plots.centre_curves(p, labels, segments, ax=ax),
        "forest": lambda ax=None: plots.forest(CENTRES, ax=ax),
        "levels": lambda ax=None: plots.levels(replace(pooled, by_level=crossed(6)), ax=ax),
    }


LONG_NAMES = (
    "the_customer's_acquisition_channel_without_a_space",
    "country of the billing address of the customer's first order ever",
    "$x_1$",
)


def crossed(number):
    """Crossed levels of 4, 40, 400, 4,000, ... values, the first with long names."""
    rng = np.random.default_rng(0)
    names = [*LONG_NAMES, *(f"field {i}" for i in range(3, number))][:number]
    values = [4 * 10 ** (i % 4) for i in range(number)]
    each = [
        Level(
            name=name,
            keys=np.arange(V),
            rows=np.full(V, 10.0),
            mean=rng.normal(size=(V, 2)) * [0.1, 0.5],
            covariance=np.zeros((V, 2, 2)),
            spread=np.diag([0.01, 0.25]) * (i + 1),
            spread_errors=np.diag([0.03, 0.05]) / (i + 1),
            unseen=np.eye(2),
            share=1 / number,
        )
        for i, (name, V) in enumerate(zip(names, values, strict=True))
    ]
    return Levels("crossed", tuple(each), np.array([-1.0, 0.0]), np.eye(2))


def nested():
    """Two countries of two cities each, and the average curve: (-1, 0)."""
    fields = [("country", "<U2"), ("city", "<U2")]
    cities = np.array([("DE", "B"), ("DE", "M"), ("FR", "M"), ("FR", "P")], fields)
    means = [[-2.0, 1], [0, 0.5]], [[-2.1, 1], [-2.2, 1], [0.3, 0.5], [0.4, 0.6]]
    each = [
        Level(
            name=name,
            keys=keys,
            rows=np.ones(len(keys)),
            mean=np.array(mean),
            covariance=np.zeros((len(keys), 2, 2)),
            spread=np.eye(2),
            spread_errors=np.eye(2),
            unseen=np.eye(2),
            share=0.5,
        )
        for name, keys, mean in zip(
            ("country", "country > city"), (np.array(["DE", "FR"]), cities), means, strict=True
        )
    ]
    return Levels("nested", tuple(each), np.array([-1.0, 0.0]), np.eye(2))


FIGURES = (
    *("binned", "smooth", "isotonic", "sigmoid", "map", "slopes", "rates", "shrinkage", "moves"),
    *("pooling", "levels", "decisions", "accepted", "centres", "forest"),
)
# As `judge_pooling` has it: partial pooling loses at the second cut, and "none" has no place.
JUDGED = Table(
    cut=np.repeat(["2013-10", "2013-11"], 4),
    pooling=np.tile(["complete", "partial", "none", "drift"], 2),
    rows=np.full(8, 900),
    log_loss=np.full(8, 0.5),
    difference=np.array([0, -0.002, 0.001, -0.003, 0, 0.003, 0.9, 0.0005]),
    standard_error=np.array([0, 0.001, 0.001, 0.001, 0, 0.001, 0.1, np.nan]),
)

# As `summarize_centres` has it: one centre has no positives, and one's interval leaves the axes.
CENTRES = Centres(
    {
        "segment": np.array(["north", "south", "west", "$x$ " + "a long name " * 5]),
        "rows": np.array([100.0, 80, 20, 400]),
        "ratio": np.array([1.2, 0.7, 0.0, 1.0]),
        "se_log_ratio": np.array([0.2, 2.0, np.inf, 0.1]),
    },
    Table(
        parameter=np.array(["ratio"]),
        value=np.array([1.0]),
        lower=np.array([0.7]),
        upper=np.array([1.4]),
        new_lower=np.array([0.5]),
        new_upper=np.array([2.1]),
    ),
)
