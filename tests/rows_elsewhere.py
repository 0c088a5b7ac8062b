"""Fits of rows elsewhere, with arguments of the rows and of `fit_segments` side by side."""

import platt_jax as pj
from platt_jax import distributed, sql, streaming

_OF_FIT = "prior", "start", "pooling", "covariates", "mesh", "options", "progress"


def fit_relation(relation, **given):
    """The fit of a relation's rows."""
    of_rows, of_fit = _split(given)
    return pj.fit_segments(sql.rows(relation, **of_rows), **of_fit)


def predict_relation(relation, calibrator, name="probability", **of_rows):
    """The probabilities of a relation's rows."""
    return sql.predict(sql.rows(relation, **of_rows), calibrator, name)


def sum_relation(relation, monitor, **of_rows):
    """The sums of a night's rows in a relation."""
    return sql.monitor_sums(sql.rows(relation, **of_rows), monitor)


def fit_stored(source, cache=None, checkpoint=None, **given):
    """The fit of rows on disk."""
    of_rows, of_fit = _split(given)
    if isinstance(source, streaming.StoredRows):
        rows = streaming.StoredRows(source._directory, checkpoint)
    else:
        shown = {"progress": of_fit.get("progress", False)}
        rows = streaming.rows(source, cache, checkpoint=checkpoint, **shown, **of_rows)
    return pj.fit_segments(rows, **of_fit)


def fit_in_processes(*rows, **given):
    """The fit of the rows of all processes."""
    of_rows, of_fit = _split(given)
    return pj.fit_segments(distributed.rows(*rows, **of_rows), **of_fit)


def _split(given):
    of_fit = {name: given.pop(name) for name in _OF_FIT if name in given}
    return given, of_fit
