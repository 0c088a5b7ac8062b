"""The glossary has every argument that functions share, and every column of a table."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import platt_jax as pj
from platt_jax import metrics

ROOT = Path(__file__).parents[1]
# Words that had the same meaning as one that is left.
DROPPED = {"confidence", "pvalue", "n_rows", "slope_se", "intercept_se"}


@pytest.fixture(scope="module")
def words():
    page = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (.*?) \|", page, re.MULTILINE)
    return {word for cell in first_cells for word in re.findall(r"`(\w+)`", cell)}


def arguments():
    """Names of arguments, by the number of functions that have them."""
    found = Counter()
    for line in (ROOT / "tests/public_api.txt").read_text(encoding="utf-8").splitlines():
        if function := re.fullmatch(r"\s*\.?\w+\((.*)\)", line):
            found.update(set(re.findall(r"(?:^|, )\**(\w+)", function[1])))
    return found


def test_shared_arguments_are_in_the_glossary(words):
    shared = {name for name, number in arguments().items() if number > 1} - {"self"}
    assert sorted(shared - words) == []


def test_dropped_words_are_not_used(words):
    assert not DROPPED & (words | set(arguments()))


@pytest.mark.slow
def test_columns_of_tables_are_in_the_glossary(words, rng):
    ids, scores = rng.integers(0, 20, 4_000), rng.normal(size=4_000)
    labels = rng.random(4_000) < 1 / (1 + np.exp(-scores))
    columns = scores[:, None] * [1.0, -1.0, 0.5]
    alone = pj.fit_segments(scores, labels, ids)
    nested = pj.fit_segments(scores, labels, np.stack([ids // 5, ids], 1), pooling="nested")
    proba = alone.predict_proba(scores, ids)
    rows = scores, labels, ids
    tables = {
        "fit": alone.fit.table(),
        "segments": alone.table(),
        "levels": nested.levels,
        "classes": pj.fit_one_vs_rest(columns, rng.integers(0, 3, 4_000)).table(),
        "triage": pj.triage(alone, *rows),
        "Monitor": pj.Monitor.start(alone).update(*rows).table(),
        "threshold_table": alone.threshold_table(0.5),
        "gate": pj.gate(alone, scores, ids),
        "certify": pj.certify(pj.gate(alone, scores, ids), *rows, levels=True),
        "estimate_rates": pj.inference.estimate_rates(alone, scores, ids),
        "estimate_means": pj.inference.estimate_means(
            alone, *rows, pool=scores, pool_segments=ids, width=0.1
        ),
        "compare_means": pj.inference.compare_means(
            alone, *rows, pool=scores, pool_segments=ids, first=[0], second=1
        ),
        "profile_spreads": pj.inference.profile_spreads(*rows),
        "judge_pooling": pj.inference.judge_pooling(*rows, np.arange(4_000), [2_000]),
        "by_segment": metrics.by_segment(metrics.cox_calibration, labels, proba, ids).table(),
        "centres": pj.metrics.summarize_centres(proba, labels, ids),
        "of all centres": pj.metrics.summarize_centres(proba, labels, ids).overall,
        "decision_curve": metrics.decision_curve(labels, proba, before=proba).table(),
        "indices": metrics.by_segment(
            metrics.integrated_calibration_index, labels, proba, ids
        ).table(),
        "of fields": metrics.field_calibration_error(labels, proba, ids).table(),
        "of groups": metrics.multicalibration_error(labels, proba, segments=ids).table(),
    }
    tests = re.compile(r"^(slope|intercept|joint)_test_|^(ici|e50|e90|emax)_(?=value|lower|upper)")
    for name, table in tables.items():
        assert sorted({tests.sub("", column) for column in table} - words) == [], name
