"""One calibrator from those of the parts."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from platt_jax.cluster.segments import ascending_order
from platt_jax.results.population import SHAPES
from platt_jax.results.segment_calibrator import SegmentCalibrator


def joined(parts: list[SegmentCalibrator]) -> SegmentCalibrator:
    """The calibrator of the segments of all parts."""
    keys, order = ascending_order([part.keys for part in parts], parts[0].keys)

    def merged(*each: Any) -> Any:
        return np.concatenate([np.asarray(x) for x in each])[order]

    fit = jax.tree.map(merged, *(part.fit for part in parts))
    population = parts[0].population
    if population is not None:
        populations: list[Any] = [part.population for part in parts]
        fields = {
            name: merged(*(getattr(x, name) for x in populations))
            for name, (per_segment, _) in SHAPES.items()
            if per_segment
        }
        population = replace(population, **fields)
    return replace(parts[0], keys=keys, fit=fit, population=population)
