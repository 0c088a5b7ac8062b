"""How many programs each entry compiles: a few, and none for another number of problems or rows."""

import jax
import numpy as np
import pytest
from data import rows_of
from scipy.special import expit

import platt_jax as pj
from platt_jax import metrics

_PROGRAMS = []  # by name, compiled or read from the folder of compiled ones


def _listen(event, _, **named):
    if event == "/jax/core/compile/backend_compile_duration":
        _PROGRAMS.append(named.get("fun_name"))


jax.monitoring.register_event_duration_secs_listener(_listen)

# Numbers of segments, and of rows on average; all fit the smallest chunk.
_SIZES = (40, 30), (150, 20), (47, 31)
_USUAL, _OMIT = pj.Options(), pj.Options(non_finite="omit")


def made_up(segments, rows, seed=0, bad=False):
    """Scores, labels and segments, of 2 to 256 rows."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(segments), rng.integers(rows // 2, 2 * rows, segments))
    scores, labels, _ = rows_of(rng, ids, A=-1.2, B=0.5 - rng.normal(size=segments))
    scores[:: 50 if bad else len(ids)] = np.nan if bad else 1.0
    return scores, labels, ids


def fitted(data, pooling="none", options=_USUAL):
    return pj.fit_segments(*data, pooling=pooling, options=options)


def nonfinite(data):
    return made_up(len(np.unique(data[2])), 20, bad=True)


def all_metrics(data):
    """Of probabilities, over all rows and by segment."""
    scores, labels, ids = data
    for name in metrics.__all__:
        metric = getattr(metrics, name)
        if name.startswith("field_") or name == "multicalibration_error":
            metric(labels, expit(scores), segments=ids)
        elif name == "summarize_centres":
            metric(expit(scores), labels, ids)
        elif name == "expected":
            metric(expit(scores), segments=ids)
        elif name == "decision_curve":
            metric(labels, expit(scores), before=expit(scores / 2))
        elif name == "expected_cost":
            metric(labels, expit(scores), cost=(1.0, 4.0))
        elif name.startswith(("multiclass_", "classwise_", "top_label")):
            metric(labels.astype(int), np.stack([expit(-scores), expit(scores)], axis=1))
        elif name.islower() and name not in ("by_segment", "roc_auc"):
            metric(labels, expit(scores))
    metrics.roc_auc(labels, scores)
    metrics.by_segment(metrics.log_loss, labels, expit(scores), ids)


def bootstrap(data, **named):
    scores, labels, ids = data
    pj.inference.bootstrap(scores, labels, segments=ids, replicates=10, **named).interval()


def leave_one_out(data):
    scores, labels, ids = data
    pj.inference.leave_one_out(fitted(data), scores, labels, ids)
    pj.inference.leave_one_out(pj.fit(scores, labels), scores, labels)


def judge_pooling(data):
    pj.inference.judge_pooling(*data, np.arange(len(data[0])) % 30, 20)


ENTRIES = {
    "fit": lambda data: pj.fit(*data[:2]),
    "none": fitted,
    "complete": lambda data: fitted(data, "complete"),
    "partial": lambda data: fitted(data, "partial"),
    "non-finite": lambda data: fitted(nonfinite(data), "none", _OMIT),
    "non-finite, partial": lambda data: fitted(nonfinite(data), "partial", _OMIT),
    "predictions": lambda data: fitted(data, "partial").predict_proba(data[0], data[2]),
    "update": lambda data: pj.update(fitted(data), *data),
    "update, partial": lambda data: pj.update(fitted(data, "partial"), *data),
    "triage": lambda data: pj.triage(fitted(data), *data),
    "triage, predictions": lambda data: pj.triage(fitted(data), *data, against="predictions"),
    "triage, partial": lambda data: pj.triage(fitted(data, "partial"), *data),
    "bootstrap": bootstrap,
    "bootstrap, clusters": lambda data: bootstrap(data, clusters=np.arange(len(data[0])) // 2),
    "leave_one_out": leave_one_out,
    "robust_covariance": lambda data: pj.inference.robust_covariance(
        fitted(data), *data[:2], segments=data[2]
    ),
    "estimate_drift": lambda data: pj.inference.estimate_drift(
        fitted(data, "partial"), *made_up(len(np.unique(data[2])), 20, seed=1)
    ),
    "estimate_rates": lambda data: pj.inference.estimate_rates(fitted(data), data[0], data[2]),
    "estimate_means": lambda data: pj.inference.estimate_means(
        fitted(data, "partial"), *data, pool=data[0], pool_segments=data[2]
    ),
    "gate": lambda data: pj.gate(fitted(data, "partial"), data[0], data[2]),
    "judge_pooling": judge_pooling,
    "metrics": all_metrics,
}
# Which other tests do not compile.
_OWN_PROGRAMS = "non-finite", "non-finite, partial", "bootstrap, clusters", "metrics"


@pytest.mark.slow
@pytest.mark.on_cpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "entry", [pytest.param(x, marks=[pytest.mark.slow] * (x in _OWN_PROGRAMS)) for x in ENTRIES]
)
def test_other_sizes_compile_nothing(entry):
    first, *others = (made_up(*size) for size in _SIZES)
    ENTRIES[entry](first)
    compiled = len(_PROGRAMS)
    for data in others:
        ENTRIES[entry](data)
    assert _PROGRAMS[compiled:] == []


@pytest.mark.slow  # not least as all other programs have to be traced again
def test_partial_pooling_compiles_four_programs():
    """The fit of all rows, those of the segments, and their losses on two grids."""
    jax.clear_caches()
    compiled = len(_PROGRAMS)
    fitted(made_up(40, 30), "partial")
    assert 0 < len(_PROGRAMS[compiled:]) <= 4
