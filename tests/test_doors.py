"""Every option at every door: the answer of rows in memory, or a reason why not."""

import warnings
from itertools import product

import doors
import numpy as np
import pytest

pytestmark = pytest.mark.slow  # compiles many programs

CELLS = [cell for cell in product(doors.OPTIONS, doors.DOORS) if cell[1] != "memory"]


def made(door, option, folder):
    """What the door makes of fresh rows; an error is returned."""
    rows, given = doors.OPTIONS[option](doors.rows(), folder)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            calibrator = doors.DOORS[door](rows, folder, **given)
    except ValueError as error:
        return error, []
    return calibrator, [str(x.message) for x in seen if x.category is RuntimeWarning]


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory):
    found = {}

    def of(option):
        if option not in found:
            name = "weights" if option == "checkpoint" else option
            found[option] = made("memory", name, tmp_path_factory.mktemp("memory"))
        return found[option]

    return of


@pytest.mark.parametrize(("option", "door"), CELLS)
def test_a_door_gives_the_answer_of_rows_in_memory(option, door, in_memory, tmp_path):
    if door == "engine":
        pytest.importorskip("duckdb")
    if door == "cluster":
        pytest.importorskip("narwhals")
    if (option, door) in doors.NOT_OFFERED:
        with pytest.raises((TypeError, ValueError), match=r"unexpected keyword|expected one"):
            error, _ = made(door, option, tmp_path)
            raise error
        return
    expected, warned = in_memory(option)
    found, warned_here = made(door, option, tmp_path)
    if isinstance(expected, ValueError):
        assert isinstance(found, ValueError)
        assert str(found).split(":")[0] == str(expected).split(":")[0]
        return
    assert len(warned_here) == len(warned)
    assert found.keys.tolist() == expected.keys.tolist()
    for name in ("status", "flags", "n_pos", "n_neg"):
        np.testing.assert_array_equal(getattr(found.fit, name), getattr(expected.fit, name), name)
    if expected.population is None:
        assert_near(found, expected)
    else:
        assert_populations_near(found.population, expected.population)
        deviations = np.sqrt(expected.population.posterior_covariance[:, (0, 1), (0, 1)])
        for name, deviation in zip("AB", deviations.T, strict=True):
            off = np.abs(getattr(found.fit, name) - getattr(expected.fit, name))
            assert (off <= 0.01 * deviation).all(), name
    if expected.by_level is not None:
        assert_levels_near(found, expected)
    if np.isfinite(found.fallback.A):
        np.testing.assert_allclose(found.fallback.A, expected.fallback.A, rtol=1e-6)


def assert_near(found, expected):
    """A and B to a millionth of a standard error, and the covariance."""
    for name, error in zip("AB", expected.fit.standard_errors.T, strict=True):
        one, other = getattr(found.fit, name), getattr(expected.fit, name)
        near = np.abs(one - other) <= 1e-6 * np.where(np.isfinite(error), error, 0)
        assert (near | (one == other) | (np.isnan(one) & np.isnan(other))).all(), name
    off = np.abs(found.fit.covariance - expected.fit.covariance)
    largest = np.abs(expected.fit.covariance).max((1, 2), keepdims=True)
    assert np.nanmax(off / largest) < 1e-6


def assert_populations_near(found, expected):
    """To a hundredth of standard errors, within which each search ends; so are the segments."""
    assert found.status == expected.status
    off = np.abs(found.mean - expected.mean)
    assert (off <= 0.01 * expected.mean_errors).all()
    off = np.abs(found.covariance - expected.covariance)
    assert (off <= 0.01 * expected.covariance_errors).all()
    variances = expected.posterior_covariance[:, (0, 1), (0, 1)]
    off = np.abs(found.posterior_mean - expected.posterior_mean)
    assert (off <= 0.01 * np.sqrt(variances)).all()
    off = np.abs(found.posterior_covariance - expected.posterior_covariance)
    assert (off.max((1, 2)) <= 0.01 * variances.max(1)).all()


def assert_levels_near(found, expected):
    """The spreads to a hundredth of their errors, and the values' names."""
    for level, other in zip(found.by_level.each, expected.by_level.each, strict=True):
        assert level.keys.tolist() == other.keys.tolist()
        np.testing.assert_allclose(level.rows, other.rows, rtol=1e-12)
        off = np.abs(level.spread - other.spread)
        assert (off <= 0.01 * other.spread_errors).all()


def test_progress_is_told_at_every_door(tmp_path):
    for door in doors.DOORS:
        if ("progress", door) in doors.NOT_OFFERED:
            continue
        doors._heard.clear()
        (tmp_path / door).mkdir()
        made(door, "progress", tmp_path / door)
        last = doors._heard[-1]
        assert last.problems_done == last.problems and last.rows_done == last.rows, door


def test_the_page_of_the_reference_is_that_of_the_table():
    """Where the change is meant: python tests/doors.py --write."""
    assert doors.STORED.read_text(encoding="utf-8") == doors.page()
