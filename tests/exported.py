"""Calibrators to export, of ids of every kind, and what an export has to predict."""

import datetime as dt

import numpy as np
from data import labels_of

import platt_jax as pj
from platt_jax.export import to_sql

HOSTILE = [
    "",
    "o'clock",
    'say "x"',
    "a\\b\\n",
    "-- ; DROP TABLE t",
    "Zürich",
    "東京",
    "null",
    "a\nb",
    "a\0b",
    "a\0",
    "a",
    "a ",
    "A",
]
SCORES = np.array([0.0, -1.5, 2.25, 30, -40, 800, -800, 1e5, 1e-300, 0.1])


def calibrator(keys, dtype=np.float64, failed=False):
    """One segment for each key, of which the last fails on request."""
    rng = np.random.default_rng(0)
    place = np.arange(60 * len(keys)) % len(keys)
    f = rng.normal(size=len(place)).astype(dtype)
    y = labels_of(rng, (1 + place % 3) * f + 2 - place % 5)
    if failed:
        f[len(keys) - 1] = np.nan
    return pj.fit_segments(f, y, keys[place])


def keys_of(kind):
    if kind == "columns":
        return np.array([("a", 1), ("a", 2), ("b'", 1)], [("shop", "U2"), ("year", "i8")])
    return {
        "text": np.array(HOSTILE, object),  # NumPy's own text has no NUL at its end
        "integers": np.array([-3, 0, 7, 2**40]),
        "dates": np.array(["2024-02-29", "2025-01-01"], "M8[D]"),
        "truth": np.array([False, True]),
        "floats": np.array([-0.1, 1e-300, 2.5]),
    }[kind]


KINDS = ["text", "integers", "dates", "truth", "floats", "columns"]
OTHERS = {
    "text": "unseen",
    "integers": 5,
    "dates": dt.date(1999, 1, 1),
    "truth": None,
    "floats": 0.5,
    "columns": ("b'", 2),
}


def rows_of(fitted, kind):
    """Scores beside each segment, and an unseen one if there can be one; and the answers."""
    seen = fitted.keys.tolist()
    segments = [*seen, OTHERS[kind]] if OTHERS[kind] is not None else seen
    rows = [(float(f), segment) for segment in segments for f in SCORES]
    as_ids = np.empty(len(rows), fitted.keys.dtype if kind == "columns" else object)
    as_ids[:] = [segment for _, segment in rows]
    ids = as_ids if kind in ("columns", "text") else np.array([s for _, s in rows])
    if kind == "dates":
        ids = ids.astype("M8[D]")
    return rows, fitted.predict_proba(np.array([f for f, _ in rows]), ids)


def assert_close(found, expected):
    """To 1e-12 on logits, where these can be told from probabilities, and in absolute terms."""
    found = np.array([np.nan if p is None else p for p in found])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def check_sql(run, kind, table):
    fitted = calibrator(keys_of(kind), failed=True)
    rows, expected = rows_of(fitted, kind)
    flat = [(i, f, *(s if isinstance(s, tuple) else (s,))) for i, (f, s) in enumerate(rows)]
    segment = ["shop", "year"] if kind == "columns" else "the shop"
    names = ["i", "f", *([segment] if isinstance(segment, str) else segment)]
    run.table(flat, names)
    made = to_sql(fitted, "f", segment, dialect=run.dialect, table=table)
    assert bool(made.setup) == bool(made.join) == bool(table)
    for statement in made.setup:
        run(statement)
    found = run(f"SELECT i, {made.expression} AS p FROM t {made.join} ORDER BY i")
    assert_close([p for _, p in found], expected)
