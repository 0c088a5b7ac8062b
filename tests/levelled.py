"""A calibrator with levels, and rows of segments that it knows in part."""

from functools import cache

import numpy as np
from data import labels_of

import platt_jax as pj

COUNTRIES, CITIES = 6, 5
UNSEEN = 99
NAMES = {
    "integers": (lambda x: x, lambda x: 10 * x),
    "text": (lambda x: f"land '{x}", lambda x: f"Ort {x}"),
    "mixed": (lambda x: f"land {x}", lambda x: x),
}
# Segments that were not fitted: all values known, one of them, none; and the same with NULL.
OTHERS = [
    *((0, 4), (1, 3), (2, UNSEEN), (3, UNSEEN), (UNSEEN, 1), (UNSEEN, 2), (UNSEEN, UNSEEN)),
    *((4, None), (None, 3), (None, UNSEEN), (UNSEEN, None), (None, None)),
]


def named(ids, pair):
    """The ids of a country and a city; None stays."""
    return tuple(None if x is None else name(x) for x, name in zip(pair, NAMES[ids], strict=True))


@cache
def levelled(kind, ids):
    """A calibrator of countries and cities without two of their pairs; one segment failed."""
    rng = np.random.default_rng(0)
    pairs = [divmod(i, CITIES) for i in range(COUNTRIES * CITIES)]
    pairs = [pair for pair in pairs if pair not in OTHERS]
    place = np.arange(40 * len(pairs)) % len(pairs)
    of_countries, of_cities = rng.normal(size=(COUNTRIES, 2)), rng.normal(size=(CITIES, 2))
    effects = [of_countries[country] + 0.5 * of_cities[city] for country, city in pairs]
    slope, intercept = (0.5 * np.array(effects) + [1, -0.5])[place].T
    f = rng.normal(size=len(place))
    y = labels_of(rng, slope * f + intercept)
    f[len(pairs) - 1] = np.nan
    return pj.fit_segments(f, y, [named(ids, pairs[i]) for i in place], pooling=kind)


def rows_of(fitted, ids):
    """Rows (score, country, city), their probabilities, and the log-odds' standard deviations."""
    pairs = [*fitted.keys.tolist(), *(named(ids, pair) for pair in OTHERS)]
    rows = [(f, *pair) for pair in pairs for f in (-1.5, 0.0, 1.0)]
    unseen = named(ids, (UNSEEN, UNSEEN))
    known = [
        tuple(other if x is None else x for x, other in zip(pair, unseen, strict=True))
        for _, *pair in rows
    ]
    scores = np.array([f for f, *_ in rows])
    expected, spread = fitted.predict_proba(scores, known), deviations(fitted, scores, known)
    assert np.isnan(expected).sum() == 3 and np.nanmax(spread) < 2
    apart = fitted.predict_proba([0.0] * 4, [named(ids, pair) for pair in OTHERS[2:6]])
    # Different countries and cities have different curves.
    assert fitted.by_level is None or np.ptp(apart) > 0.05
    return rows, expected, spread


def deviations(fitted, scores, segments):
    """The standard deviations of the log-odds, from the width of bands."""
    lower, upper = fitted.band(scores, segments)
    logits = np.log(upper / (1 - upper)) - np.log(lower / (1 - lower))
    return logits / (2 * 1.96)


def assert_predicted(found, expected, spread, wide, narrow):
    """Within one error where the log-odds' standard deviation is up to 2, another up to 1."""
    found = np.array([np.nan if p is None else p for p in found], float)
    np.testing.assert_allclose(found, expected, rtol=0, atol=wide)
    near = ~(spread > 1)
    np.testing.assert_allclose(found[near], expected[near], rtol=0, atol=narrow)


@cache
def of_three_levels(kind):
    """A calibrator of 4 regions, 3 countries each and 2 cities each, numbered within each."""
    rng = np.random.default_rng(1)
    ids = np.stack(np.unravel_index(np.arange(24), (4, 3, 2)), 1)
    effects = [rng.normal(size=(size, 2)) for size in (4, 12, 24)]
    each = sum(of[np.arange(24) // (24 // len(of))] for of in effects)
    place = np.arange(24 * 30) % 24
    slope, intercept = (0.4 * each + [1, -0.5])[place].T
    f = rng.normal(size=len(place))
    return pj.fit_segments(f, labels_of(rng, slope * f + intercept), ids[place], pooling=kind)


# Segments of which all values are known, some, or none.
OF_THREE = np.array(
    [
        *(
            (0, 0, 0),
            (3, 2, 1),
            (1, 2, UNSEEN),
            (1, 0, UNSEEN),
            (1, UNSEEN, 0),
            (2, UNSEEN, UNSEEN),
        ),
        *((UNSEEN, 1, 1), (UNSEEN, UNSEEN, 0), (UNSEEN, 2, UNSEEN), (UNSEEN, UNSEEN, UNSEEN)),
    ]
)
