"""Validation: converts the user's arguments to reliable arrays.

Every function raises a ValueError for an argument that it does not accept. The message names the
argument, what it was and what was expected.
"""

from platt_jax.validation.doubts import (
    FEW,
    UnitInterval,
    doubtful_shape,
    in_unit_interval,
    one_hot,
    probabilities_for_scores,
)
from platt_jax.validation.fits import no_mesh, options, pooling, prior, start
from platt_jax.validation.rows import (
    BAD_LABEL,
    LABEL_CODINGS,
    a_problem_per_class,
    labelled_rows,
    labels,
    labels_and_weights,
    of_codes,
    of_negative_weight,
    of_odd_label,
    offset,
    scores,
    weights,
)
from platt_jax.validation.values import (
    IF_LOGITS,
    array,
    as_flat,
    broadcast,
    floating,
    numbers,
    plain,
    require_flat,
    require_fraction,
    require_integer,
    require_not_negative,
    require_one_of,
    require_probabilities,
)

__all__ = [
    "BAD_LABEL",
    "FEW",
    "IF_LOGITS",
    "LABEL_CODINGS",
    "UnitInterval",
    "a_problem_per_class",
    "array",
    "as_flat",
    "broadcast",
    "doubtful_shape",
    "floating",
    "in_unit_interval",
    "labelled_rows",
    "labels",
    "labels_and_weights",
    "no_mesh",
    "numbers",
    "of_codes",
    "of_negative_weight",
    "of_odd_label",
    "offset",
    "one_hot",
    "options",
    "plain",
    "pooling",
    "prior",
    "probabilities_for_scores",
    "require_flat",
    "require_fraction",
    "require_integer",
    "require_not_negative",
    "require_one_of",
    "require_probabilities",
    "scores",
    "start",
    "weights",
]
