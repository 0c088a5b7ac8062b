"""No cell is broken; every public function has its line; and broken libraries are caught."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import platt_jax as pj

from .cell import Bench, run
from .chance import most_alarms, too_few
from .promises import LINES, NO_LINE
from .trial import broken_cells
from .worlds import plain_world, world

INTERFACE = Path(__file__).parents[1] / "public_api.txt"
# In small worlds these are quick; others compile programs of many shapes. A world has every fifth.
QUICK = [name for name, line in LINES.items() if line.every == 1]


def small_world(seed):
    return world(seed, most_segments=30, most_rows=400)


def shares_programs(seed):
    """Whether a world is one of float64 rows without weights and offsets.

    All such worlds together compile about thirty programs, which take most of the time. A world of
    another kind compiles ten of its own; those of the slow test have them.
    """
    rows = small_world(seed).fitted
    return rows.weights is None and rows.offset is None and rows.scores.dtype == np.float64


@pytest.mark.parametrize("seed", [*filter(shares_programs, range(60))])
def test_a_small_world_breaks_nothing(seed):
    small = small_world(seed)
    _, broken = broken_cells(Bench(small), QUICK[seed % 5 :: 5])
    assert not broken, "\n".join([small.about, *map(str, broken)])


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_twenty_worlds_break_nothing(first):
    """A world has a fiftieth of the lines; by hand, all have all."""
    found = []
    for seed in range(first, first + 20):
        bench = Bench(world(seed))
        _, broken = broken_cells(bench, every=50)
        found += [f"world {seed}: {bench.world.about}\n{cell}" for cell in broken]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed, pooling",
    [
        pytest.param(30128, "crossed", id="LinAlgError of 15 segments"),
        pytest.param(40056, "nested", id="8.2 positives predicted where 1 was seen"),
        pytest.param(50005, "nested", id="of sure scores, 115 predicted where 91 were seen"),
        pytest.param(40173, "nested", id="spreads in turns, then a mean moved by 68"),
    ],
)
def test_a_world_whose_search_failed_has_the_curve_of_all_rows(seed, pooling):
    """Or levels that hold, and each failed search is heard."""
    _, broken = broken_cells(Bench(world(seed)), [f"fit_segments {pooling}"])
    assert not broken, "\n".join(map(str, broken))


# --- the table ------------------------------------------------------------------------------------


def public_functions():
    """Functions and methods as lines name them; those of the package itself without its name."""
    found, module, owner = [], "", ""
    for line in INTERFACE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# platt_jax"):
            module = line.removeprefix("# platt_jax").removeprefix(".").strip()
            module = f"{module}." if module else ""
        elif name := re.match(r"    \.(\w+)\(", line):
            found.append(f"{module}{owner}.{name[1]}")
        elif name := re.match(r"(\w+)\(", line):
            owner = name[1]
            found.append(f"{module}{owner}")
    return found


def test_every_public_function_has_a_line_or_a_reason():
    covered = {name for line in LINES.values() for name in line.covers}
    missing = [
        name
        for name in public_functions()
        if name not in covered and not any(re.fullmatch(x, name) for x in NO_LINE)
    ]
    assert missing == []


def test_no_reason_is_left_over():
    names = public_functions()
    assert [x for x in NO_LINE if not any(re.fullmatch(x, name) for name in names)] == []


# --- it can fail ----------------------------------------------------------------------------------


def moved(calibrator):
    """Every log-odds is 3 too high."""
    fit, fallback = calibrator.fit, calibrator.fallback
    return replace(
        calibrator,
        fit=replace(fit, B=fit.B - 3),
        fallback=pj.Sigmoid(fallback.A, fallback.B - 3),
    )


def not_finite(calibrator):
    fit = calibrator.fit
    return replace(calibrator, fit=replace(fit, B=np.where(fit.B == fit.B[3], np.nan, fit.B)))


def too_narrow(calibrator):
    """Bands of a tenth of their width."""
    fit = calibrator.fit
    return replace(calibrator, fit=replace(fit, covariance=fit.covariance / 100))


def _of_population(change):
    """A fault of populations only."""

    def fault(calibrator):
        population = calibrator.population
        if population is None:
            return calibrator
        return replace(calibrator, population=replace(population, **change(population)))

    return fault


@_of_population
def stopped_early(population):
    return {"status": type(population.status).MAX_ITERATIONS}


@_of_population
def too_sure(population):
    return {"posterior_covariance": population.posterior_covariance / 100}


@_of_population
def scattered(population):
    """Every other curve is 2 too low, the others 2 too high."""
    off = np.where(np.arange(len(population.posterior_mean)) % 2, 2.0, -2.0)
    return {"posterior_mean": population.posterior_mean + off[:, None] * [0, 1]}


FAULTS = [
    ("fit_segments none, complete", moved, "do not add up"),
    ("fit_segments none, complete", not_finite, "NaN"),
    ("band", too_narrow, "bands hold the truth"),
    ("fit_segments partial", stopped_early, "MAX_ITERATIONS, and no warning"),
    ("fit_segments partial", too_sure, "bands hold the truth"),
    ("fit_segments partial", scattered, "worse than one curve for all"),
    ("estimate_rates", moved, "outside intervals"),
    ("estimate_means", moved, "expected the rows of the fit"),
    ("triage fit", moved, "nothing changed"),
    ("Monitor fit", moved, "nothing changed"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault", "what"), FAULTS)
def test_a_fault_is_caught(name, fault, what):
    def fit_segments(*rows, **given):
        return fault(pj.fit_segments(*rows, **given))

    found = run(Bench(plain_world(), fit_segments), name, LINES[name].check)
    assert re.search(what, "; ".join(found))


def test_an_exception_and_a_stray_warning_are_caught():
    def divide(cell):
        np.ones(1) / np.zeros(1)
        raise IndexError("a row")

    found = run(Bench(plain_world()), "divides", divide)
    assert [x.split(":")[0] for x in found] == ["IndexError", "stray warning"]


def test_chance_is_that_of_a_simulation():
    """Of p-values where nothing changed, and of shares."""
    rng = np.random.default_rng(0)
    p = np.sort(rng.random((20_000, 100)), 1)
    below = p <= 0.05 * np.arange(1, 101) / 100
    most = np.where(below.any(1), 100 - below[:, ::-1].argmax(1), 0)
    assert 2 <= most.max() <= most_alarms(100, 0.05) <= 6
    assert not too_few(185, 200, 0.95) and too_few(150, 200, 0.95)
