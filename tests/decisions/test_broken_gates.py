"""A Monitor of the promise of gates, as docs/howto/decide.md has it."""

import numpy as np
import pytest


@pytest.fixture
def watching():
    from benchmarks.inference import broken_gates

    return broken_gates


def after(monitor, right, nights=8, rows=40, segments=5):
    """The monitor after nights in which exactly this share of the rows of a segment is right."""
    k = np.repeat(np.arange(segments), rows)
    labels = np.tile(np.arange(rows) < round(right * rows), segments)
    for _ in range(nights):
        monitor = monitor.update(np.zeros(len(k)), labels, k)
    return monitor.table()


def test_evidence_is_against_fewer_than_promised_alone(watching):
    """A gate at its promise, or above it up to .99987, is none; the margin's lower end is it."""
    for right, least, most in ((0.85, 5, 100), (0.95, -5, 0), (1.0, -5, 0)):
        log_e = after(watching.promise(), right)["log_e_value"]
        assert ((log_e > least) & (log_e <= most)).all(), right
    assert set(after(watching.promise(), 0.85)["change"]) == {"lower"}
    # With the promise as the prediction more right rows are evidence, too.
    assert (after(watching.predicted(0.95, 0.0), 1.0)["log_e_value"] > 5).all()


@pytest.mark.slow
def test_a_broken_gate_is_found_and_no_other(watching):
    found = watching.broken_cell(0.85, 10, 1, worlds=1)
    assert found["found"] >= 18 and found["false alarms"] == 0
