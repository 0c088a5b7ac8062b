"""Several classes: what must not depend on how rows, classes and masked options are written."""

import warnings
from typing import NamedTuple

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import metrics

N, CLASSES = 150, 4


class Rows(NamedTuple):
    """Logits (N, C), labels (N,), segments (N,), weights (N,), and what is said of the classes.

    `order` says which class before the change is each column, and `origin` which row each row.
    """

    logits: np.ndarray
    labels: np.ndarray
    segments: np.ndarray
    weights: np.ndarray
    classes: object = None
    order: np.ndarray = np.arange(CLASSES)
    origin: np.ndarray = np.arange(N)

    def where(self, chosen):
        names = ("logits", "labels", "segments", "weights", "origin")
        return self._replace(**{name: getattr(self, name)[chosen] for name in names})


def original(hidden=True):
    """Rows of three segments; if some are hidden, a fifth of the options is masked."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2.5, (N, CLASSES)).round(1)
    labels = (logits / 1.7 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    masked = rng.random(logits.shape) < 0.2
    masked[np.arange(N), labels] = False
    logits[masked & hidden] = -np.inf
    weights = rng.integers(1, 4, N).astype(float)
    return Rows(logits, labels, rng.integers(0, 3, N), weights)


def as_it_is(rows):
    return rows


def permuted(rows):
    return rows.where(np.random.default_rng(1).permutation(N))


def renamed_segments(rows):
    return rows._replace(segments=np.array(["c", "a", "b"])[rows.segments])


def reversed_classes(rows):
    order = np.arange(CLASSES)[::-1]
    labels, classes = CLASSES - 1 - rows.labels, range(CLASSES)
    return rows._replace(logits=rows.logits[:, order], labels=labels, classes=classes, order=order)


def named_classes(rows):
    names = np.array(["pear", "fig", "apple", "kiwi"])
    return rows._replace(labels=names[rows.labels], classes=names.tolist())


def from_one(rows):
    return rows._replace(labels=rows.labels + 1, classes=range(1, CLASSES + 1))


def one_hot(rows):
    return rows._replace(labels=np.eye(CLASSES, dtype=int)[rows.labels])


def masked_by(value):
    def change(rows):
        return rows._replace(logits=np.where(np.isneginf(rows.logits), value, rows.logits))

    return change


def scaled(scale):
    def change(rows):
        return rows._replace(logits=rows.logits * scale)

    return change


def moved(rows):
    """A constant is added to all logits of each row."""
    return rows._replace(logits=rows.logits + np.random.default_rng(2).normal(0, 9, (N, 1)))


def repeated(rows):
    times = rows.weights.astype(int)
    rows = rows.where(np.repeat(np.arange(N), times))
    return rows._replace(weights=np.ones(len(rows.labels)))


def with_ballast(rows):
    """Rows of weight 0 besides, some far out."""
    more = rows.where(np.arange(N) % 5 == 0)
    more = more._replace(weights=0 * more.weights, origin=more.origin - N, logits=99 * more.logits)
    names = ("logits", "labels", "segments", "weights", "origin")
    joined = {x: np.concatenate([getattr(rows, x), getattr(more, x)]) for x in names}
    return rows._replace(**joined)


def single(rows):
    return rows._replace(logits=rows.logits.astype(np.float32))


def alone(rows):
    """One segment, in a call of its own."""
    return rows.where(rows.segments == 1)


def beside_nan(rows):
    """A logit of another segment is NaN."""
    logits = rows.logits.copy()
    logits[np.flatnonzero(rows.segments == 2)[0], 0] = np.nan
    return rows._replace(logits=logits)


ROUNDING = 2e-7
RELATIONS = {
    "rows permuted": (permuted, ROUNDING),
    "segments renamed": (renamed_segments, ROUNDING),
    "classes reversed": (reversed_classes, ROUNDING),
    "classes named": (named_classes, ROUNDING),
    "classes from 1": (from_one, ROUNDING),
    "one-hot": (one_hot, ROUNDING),
    **{
        f"masked by {value:g}": (masked_by(value), ROUNDING)
        for value in (-1e5, -1e9, -1e20, float(np.finfo(np.float32).min), -1e300)
    },
    "a constant in each row": (moved, ROUNDING),
    "logits x 1.4": (scaled(1.4), ROUNDING),
    "logits x 1e4": (scaled(1e4), ROUNDING),
    "logits x 1e-4": (scaled(1e-4), ROUNDING),
    "logits x 1e-300": (scaled(1e-300), ROUNDING),
    "weight 2 is the row twice": (repeated, ROUNDING),
    "weight 0 is no row": (with_ballast, ROUNDING),
    "float32": (single, 2e-3),
    "a segment alone": (alone, 0.0),
    "beside a NaN": (beside_nan, 0.0),
}


def fit(model, pooling):
    def answer(rows):
        given = {"classes": rows.classes, "weights": rows.weights}
        made = pj.fit_multiclass(
            rows.logits, rows.labels, rows.segments, model=model, pooling=pooling, **given
        )
        return made.predict_proba(rows.logits, rows.segments)

    return answer


def one_vs_rest(rows):
    """No option of a sigmoid is masked."""
    made = pj.fit_one_vs_rest(rows.logits, rows.labels, classes=rows.classes, weights=rows.weights)
    return made.predict_proba(rows.logits)


def metric(of):
    def answer(rows):
        z = np.where(rows.logits < -1e4, -np.inf, rows.logits)
        proba = np.exp(z - z.max(axis=1, keepdims=True))
        proba /= proba.sum(axis=1, keepdims=True)
        made = of(rows.labels, proba, classes=rows.classes, weights=rows.weights)
        return np.asarray(getattr(made, "value", made))

    return answer


MODELS = "temperature", "temperature_bias", "vector", "ordinal"
FITS = {
    **{f"fit_multiclass {model}": fit(model, "none") for model in MODELS},
    "fit_multiclass temperature partial": fit("temperature", "partial"),
    "fit_one_vs_rest": one_vs_rest,
}
METRICS = {
    name: metric(getattr(metrics, name))
    for name in ("multiclass_log_loss", "multiclass_brier_score", "top_label_ece", "classwise_ece")
}
_UNITS = "probabilities have a unit of their own"
_POOLED = "segments tell of each other"
_NO_SEGMENTS = "there are no segments"
_ONE_UNIT = "the score is the mean grade, by the softmax of the logits"
# Answers that differ, and why.
NOT_EQUAL = {
    ("fit_multiclass vector", "a constant in each row"): "each class has a slope of its own",
    ("fit_one_vs_rest", "a constant in each row"): "each class has a slope of its own",
    **{
        ("fit_multiclass ordinal", x): _ONE_UNIT
        for x in ("logits x 1.4", "logits x 1e4", "logits x 1e-4", "logits x 1e-300")
    },
    **{
        ("fit_multiclass temperature partial", x): _POOLED
        for x in ("a segment alone", "beside a NaN")
    },
    **{("fit_one_vs_rest", x): _NO_SEGMENTS for x in ("a segment alone", "beside a NaN")},
    ("fit_one_vs_rest", "one-hot"): "columns of 0 and 1 are several labels of a row",
}


def told(answer, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the NaN
        return np.asarray(answer(rows))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("subject", FITS)
def test_probabilities_of_classes(subject, relation):
    change, to = RELATIONS[relation]
    rows = original(hidden=subject != "fit_one_vs_rest")
    changed = change(rows)
    expected = told(FITS[subject], rows)
    found = told(FITS[subject], changed)
    kept = (changed.origin >= 0) & (
        (rows.segments[changed.origin] == 1) | (change not in (alone, beside_nan))
    )
    expected = expected[changed.origin[kept]][:, changed.order]
    if (subject, relation) in NOT_EQUAL:
        assert not np.allclose(found[kept], expected, rtol=0, atol=to)
    else:
        np.testing.assert_allclose(found[kept], expected, rtol=0, atol=to)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("subject", METRICS)
def test_metrics_of_classes(subject, relation):
    change, to = RELATIONS[relation]
    if change in (alone, beside_nan) or relation.startswith("logits x"):
        pytest.skip(_UNITS)
    rows = original()
    expected, found = (told(METRICS[subject], x) for x in (rows, change(rows)))
    if found.ndim:  # a value for each class
        expected = expected[change(rows).order]
    np.testing.assert_allclose(found, expected, rtol=0, atol=to)
