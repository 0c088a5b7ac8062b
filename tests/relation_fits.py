"""Fits of relations, with arguments of `sql.rows` and of `fit_segments` side by side."""

import platt_jax as pj
from platt_jax import sql

_OF_FIT = "prior", "start", "pooling", "options", "progress"


def fit_relation(relation, **given):
    """The fit of a relation's rows."""
    of_fit = {name: given.pop(name) for name in _OF_FIT if name in given}
    return pj.fit_segments(sql.rows(relation, **given), **of_fit)
