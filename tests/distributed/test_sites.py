"""Sites in threads, which meet by files: what each of them says is in its files."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from data import rows_of

import platt_jax as pj
from platt_jax import distributed
from platt_jax.distributed.folder import MeetingByFiles
from platt_jax.distributed.shared_sums import _rounded_down

SITES = ["north", "south", "west"]
SEGMENTS = 12


def made(rng):
    """Scores, labels, segments and sites of rows; segment 3 has few rows, all of one site."""
    segments = rng.integers(0, SEGMENTS, 1_200)
    sites = rng.integers(0, 3, 1_200)
    segments[segments == 3] = 4
    segments[np.flatnonzero(sites == 1)[:6]] = 3
    return *rows_of(rng, segments, A=-1 - rng.random(SEGMENTS)), sites


def fit_site(number, rows, folder, time_limit=60, min_cell=5, **given):
    """The fit at one site, which has the rows of its number."""
    *columns, sites = rows
    mine = (x[sites == number] for x in columns)
    where = distributed.Folder(folder, SITES[number], SITES)
    held = distributed.site_rows(*mine, min_cell=min_cell, folder=where, time_limit=time_limit)
    return pj.fit_segments(held, **given)


def at_all_sites(function):
    with ThreadPoolExecutor(len(SITES)) as pool:
        return list(pool.map(function, range(len(SITES))))


def messages(folder):
    """The arrays of each file by its name."""
    return {path.name: dict(np.load(path)) for path in sorted(folder.iterdir())}


def sent_numbers(folder):
    """All float64 in the files; bytes are taken for such numbers at every place."""
    for arrays in messages(folder).values():
        for name, array in arrays.items():
            if name != "header":
                sent = array.tobytes()
                for first in range(8 if name == "bytes" else 1):
                    whole = (len(sent) - first) // 8
                    yield np.frombuffer(sent, offset=first, count=max(whole, 0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value")
def test_three_sites_get_the_answer_of_memory_and_see_no_row(rng, tmp_path):
    scores, labels, segments, sites = rows = made(rng)
    found = at_all_sites(lambda i: fit_site(i, rows, tmp_path / "sums", pooling="partial"))
    for other in found[1:]:
        assert other.fit.A.tobytes() == found[0].fit.A.tobytes()
    assert found[0].keys.tolist() == [x for x in range(SEGMENTS) if x != 3]

    kept = segments != 3  # too few rows, also for the fit of all rows
    expected = pj.fit_segments(scores[kept], labels[kept], segments[kept], pooling="partial")
    one, other = found[0].population, expected.population
    deviations = np.sqrt(other.posterior_covariance[:, (0, 1), (0, 1)])
    assert (np.abs(one.posterior_mean - other.posterior_mean) < 1e-3 * deviations).all()
    np.testing.assert_allclose(found[0].fallback.A, expected.fallback.A, rtol=1e-9)
    np.testing.assert_array_equal(found[0].fit.n_pos, expected.fit.n_pos)

    numbers = np.abs(np.concatenate(list(sent_numbers(tmp_path / "sums"))))
    assert not np.isin(np.abs(scores), numbers).any()
    twice = tuple(np.concatenate([x, x]) for x in rows)
    at_all_sites(lambda i: fit_site(i, twice, tmp_path / "twice", 60, 10, pooling="partial"))
    sizes, of_twice = (
        {x.shape for arrays in messages(tmp_path / name).values() for x in arrays.values()}
        for name in ("sums", "twice")
    )
    assert max(sizes) == max(of_twice)


@pytest.mark.slow
def test_files_carried_by_hand(rng, tmp_path):
    """Each site has a folder of its own; a call that finds no files of the others ends."""
    rows = made(rng)
    folders = [tmp_path / site for site in SITES]
    found = {}
    for rounds in range(40):
        for i in set(range(3)) - set(found):
            try:
                found[i] = fit_site(i, rows, folders[i], time_limit=0, min_cell=1)
            except TimeoutError as error:
                assert f"round-{rounds:03d}" in str(error)
        for one in folders:
            for other in set(folders) - {one}:
                shutil.copytree(one, other, dirs_exist_ok=True)
        if len(found) == 3:
            break
    expected = pj.fit_segments(*rows[:3])
    for fits in found.values():
        assert fits.keys.tolist() == expected.keys.tolist()
        for name in ("A", "B", "nll", "covariance", "status", "flags"):
            pair = getattr(fits.fit, name), getattr(expected.fit, name)
            np.testing.assert_allclose(*pair, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"round-00\d-north.npz is of another fit, of other rows"):
        fit_site(0, (rows[0] + 1, *rows[1:]), folders[0], time_limit=0, min_cell=1)
    with pytest.raises(ValueError, match=r"round-000-north.npz is of another fit"):
        fit_site(0, rows, folders[0], pooling="partial")
