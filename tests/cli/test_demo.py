"""The demo: its data are the source's, and what it prints is so."""

import hashlib
import re

import numpy as np
import pytest

from platt_jax import Flag, fit_segments
from platt_jax.cli import demo, main

DIGESTS = {
    "score": "3058a1b29b3ab98c",
    "outcome": "1c8703bb22fc3588",
    "aircraft": "2c893feb730e241f",
    "route": "5a40446c48f47917",
    "day": "1f083cf157040206",
    "carrier": "afe1459e3e691780",
}


def test_the_flights_are_those_of_the_source():
    """Digests of the columns as the source has them, so the scores are exact to the bit."""
    data = demo.load_flights()
    digests = {
        name: hashlib.sha256(column.astype(column.dtype.newbyteorder("<")).tobytes()).hexdigest()
        for name, column in vars(data).items()
    }
    assert {name: digest[:16] for name, digest in digests.items()} == DIGESTS
    assert len(np.unique(data.aircraft)) == 3823
    assert len(np.unique(data.aircraft[data.day % 2 == 0])) == 3695


def test_every_flag_is_counted_and_explained(rng):
    """Each flag that there is, and those of a fit that OUTLIER alone decides, among two kinds."""
    segments = np.repeat(["b", "a"], 40)
    scores, labels = rng.normal(size=80), rng.random(80) < 0.5
    scores[0] = 1e6
    trust = demo._trust(
        [
            demo.Calibration(kind, segments, curves, curves, 0.0, 0.0, scores, scores, scores)
            for kind, curves in (
                ("aircraft", fit_segments(scores, labels, segments)),
                ("route", fit_segments(scores, scores > 0, segments)),
            )
        ]
    )
    words = " ".join(trust.split())
    assert re.search(r"CONVERGED +2 +2\n", trust)
    assert re.search(r"OUTLIER +1 +1\n", trust)
    assert re.search(r"SEPARABLE +0 +2\n", trust)
    assert all(f"{flag.name} " in words and flag.message in words for flag in Flag)


@pytest.mark.slow
def test_demo(capsys):
    """Against figures from an independent solver (NumPy, float64) of the same 3,912 fits."""
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100

    def figures(label):
        line = next(line for line in said.splitlines() if line.strip().startswith(label))
        return [float(x) for x in re.findall(r"\d+\.\d{5}", line)[:2]]

    np.testing.assert_allclose(figures("before"), [0.50631, 0.16503], atol=1.1e-5)
    np.testing.assert_allclose(figures("pooled"), [0.50322, 0.16363], atol=1.1e-5)
    np.testing.assert_allclose(figures("one curve per aircraft"), [0.538, 0.17419], atol=1e-3)
    np.testing.assert_allclose(figures("one curve per route"), [0.50188, 0.16314], atol=1.1e-5)
    assert re.search(r"CONVERGED +3,695 +217\n", said)
    first = said[: said.index("\nFits")]
    words = " ".join(first.split())
    assert (
        "4 of 214 routes are off (q at most 0.05): LGA-ORD by its level: 368 positives, 441"
        in words
    )
    assert "No aircraft is reliably off: of 3,705 tested" in first
    assert re.findall(r"^  route ([A-Z]{3}-[A-Z]{3}) ", said, re.M) == [
        "LGA-ORD", "JFK-LAX", "LGA-ATL", "EWR-CLT", "JFK-MIA",
    ]  # fmt: skip
