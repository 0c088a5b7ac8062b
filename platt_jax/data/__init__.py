"""The data of the demo, which is part of the package; README.md says where it comes from."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Flights:
    """Scored flights, one value per flight in order of time."""

    score: NDArray[np.float32]  # log-odds of a late arrival, from a model trained on other months
    outcome: NDArray[np.int8]  # 1: arrived more than 15 minutes late
    aircraft: NDArray[np.str_]  # tail number
    route: NDArray[np.str_]  # origin and destination, as JFK-LAX
    day: NDArray[np.int16]  # day of the year
    carrier: NDArray[np.str_]  # two characters, as UA


def load_flights() -> Flights:
    """The half-year of flights."""
    columns = ("score", "outcome", "aircraft", "route", "day", "carrier")
    with np.load(Path(__file__).with_name("nycflights.npz")) as data:
        return Flights(*(data[f"{c}_values"][data[f"{c}_codes"]] for c in columns))
