"""Sites in threads, which meet by files: what each of them says is in its files."""

import json
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
    rows = made(rng)
    found = at_all_sites(lambda i: fit_site(i, rows, tmp_path / "sums", pooling="partial"))
    for other in found[1:]:
        assert other.fit.A.tobytes() == found[0].fit.A.tobytes()
    assert found[0].keys.tolist() == [x for x in range(SEGMENTS) if x != 3]

    scores, labels, segments, _ = rows
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
        {x.size for arrays in messages(tmp_path / name).values() for x in arrays.values()}
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
    with pytest.raises(
        ValueError, match=r"round-00\d-north.npz is of another fit, of another site"
    ):
        fit_site(0, (rows[0] + 1, *rows[1:]), folders[0], time_limit=0, min_cell=1)
    with pytest.raises(ValueError, match=r"round-000-north.npz is of another fit"):
        fit_site(0, rows, folders[0], pooling="partial")


def test_segments_with_few_rows_of_a_class_are_withheld():
    """Rows that do not count: one not finite, and one of weight 0."""
    segments = np.repeat(["both", "few", "none", "one", "too"], [6, 5, 1, 3, 6])
    labels = np.array([0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1])
    scores, weights = np.arange(21.0), np.ones(21)
    rows = distributed.site_rows(scores, labels, segments, min_cell=3)
    assert rows.withheld.tolist() == ["few", "none", "one"]
    assert repr(rows) == (
        "SiteRows: 12 rows of this site, in sums of at least 3 rows of each class; "
        "3 segments withheld"
    )
    assert rows._others.sum() == 9  # together 3 negatives and 6 positives
    weights[11] = 0
    rows = distributed.site_rows(scores, labels, segments, weights=weights, min_cell=3)
    assert len(rows.withheld) == 3 and not rows._others.any()
    scores[0] = np.nan
    rows = distributed.site_rows(scores, labels, segments, min_cell=3)
    assert rows.withheld.tolist() == ["both", "few", "none", "one"] and rows._others.sum() == 15
    pairs = list(zip(segments.tolist(), [7] * 21, strict=True))
    rows = distributed.site_rows(scores, labels, pairs, min_cell=3)
    assert rows.withheld.tolist()[0] == ("both", 7)


def test_no_end_of_scores_is_sent_as_it_is():
    """-1 is where a problem has a bad row; without a negative, its ends are infinite."""
    bad, low_pos, high_pos, low_neg, high_neg, lightest, widest = np.array(
        [
            [0, -1.0, 0],
            [0.3, 0.3, 5.0],
            [2.1, 2.1, 5.0],
            [-3.7, np.inf, np.inf],
            [1.9, -np.inf, -np.inf],
            [0.7, 1.0, np.inf],
            [0.7, 0, 4.0],
        ]
    )
    minima = np.stack([bad, low_pos, -high_pos, low_neg, -high_neg, lightest, -widest])
    found = _rounded_down(minima) * [[1], [1], [-1], [1], [-1], [1], [-1]]
    assert found.tolist() == [
        [0, -1, 0],
        [0, 0.25, 5],
        [2.5, 2.125, 5],
        [-4, np.inf, np.inf],
        [2, -np.inf, -np.inf],
        [0.5, 1, np.inf],
        [1, 0, 4],
    ]


def meetings(folder, time_limit=60):
    return [MeetingByFiles(distributed.Folder(folder, site, SITES), time_limit) for site in SITES]


def test_sites_meet_by_files(tmp_path):
    def talk(i, meeting):
        said = meeting.gather_bytes(b"x" * i)
        numbers = meeting.merged(np.array([i, -i, 0.1 * i]), "sum")
        return said, numbers.tolist(), meeting.merged(np.array([i, -i]), "minimum").tolist()

    for _ in range(2):  # the second call finds all files
        each = meetings(tmp_path / "sums")
        for told in at_all_sites(lambda i, each=each: talk(i, each[i])):
            assert told == ([b"", b"x", b"xx"], [3, -3, 0.1 + 0.2], [0, -2])
    names = [f"round-00{i}-{site}.npz" for i in range(3) for site in SITES]
    assert sorted(x.name for x in (tmp_path / "sums").iterdir()) == names


def test_files_of_other_sites_that_are_missing_or_of_another_call(tmp_path):
    north, south, west = meetings(tmp_path, time_limit=0)
    for meeting in (north, south):
        with pytest.raises(TimeoutError, match=r"round-000-west.npz not in .* after 0 seconds"):
            meeting.merged(np.ones(2), "sum")
    with pytest.raises(ValueError, match=r"folder: .*round-000-north.npz is of another fit, of"):
        west.merged(np.ones(3), "sum")  # of other segments
    (tmp_path / "round-000-west.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"folder: .*round-000-west.npz is .* or damaged; use an"):
        south.merged(np.ones(2), "sum")
    (tmp_path / "round-000-west.npz").unlink()
    north, south, west = meetings(tmp_path)
    west.merged(np.ones(2), "sum")
    south.merged(np.ones(2), "sum")
    shutil.copy(tmp_path / "round-000-north.npz", tmp_path / "round-001-north.npz")
    with pytest.raises(TimeoutError):
        meetings(tmp_path / "none", time_limit=0)[2].merged(np.ones(2), "sum")
    shutil.copy(tmp_path / "round-000-south.npz", tmp_path / "round-001-south.npz")
    with pytest.raises(ValueError, match=r"round-001-north.npz is of another fit"):
        west.merged(np.ones(2), "sum")  # a file of an earlier round


def test_a_copy_of_another_sites_file_is_not_its_own(tmp_path):
    north, south, _ = meetings(tmp_path, time_limit=0)
    for meeting in (north, south):
        with pytest.raises(TimeoutError):
            meeting.merged(np.ones(2), "sum")
    shutil.copy(tmp_path / "round-000-south.npz", tmp_path / "round-000-west.npz")
    with pytest.raises(ValueError, match=r"round-000-west.npz is of another fit, of another site"):
        north.merged(np.ones(2), "sum")
    with np.load(tmp_path / "round-000-south.npz") as file:
        assert json.loads(file["header"].item())["site"] == "south"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"site": "east"}, r"site: expected one of \['north', 'south', 'west'\], got 'east'"),
        ({"sites": ["north", "north"]}, "sites: expected a list of different names"),
        ({"sites": ["north", "a/b"]}, "sites: expected a list of different names .* got .*'a/b'"),
        ({"sites": ["north", []]}, r"sites: expected a list of different names .* got .*\[\]"),
        ({"sites": "ns", "site": "n"}, "sites: expected a list of different names .* got 'ns'"),
        ({"sites": None}, "sites: expected a list of different names of letters, .* got None"),
        ({"path": 3}, "path: expected a str or a Path, got int"),
    ],
)
def test_folders_that_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        distributed.Folder(**{"path": "sums", "site": "north", "sites": SITES, **given})


def test_rows_of_sites_that_are_refused():
    rows = [0.3, -1.0], [1, 0], ["a", "b"]
    with pytest.raises(ValueError, match="min_cell: expected an integer >= 1, got 0"):
        distributed.site_rows(*rows, min_cell=0)
    with pytest.raises(ValueError, match=r"folder: expected a distributed.Folder, got 'sums'"):
        distributed.site_rows(*rows, folder="sums")
    with pytest.raises(ValueError, match="time_limit: expected a number >= 0, got -1"):
        distributed.site_rows(*rows, time_limit=-1)
    with pytest.raises(ValueError, match="min_cell: expected a segment with 1 row of each class"):
        pj.fit_segments(distributed.site_rows(*rows, min_cell=1))
    with pytest.raises(ValueError, match="mesh: expected none beside SiteRows"):
        pj.fit_segments(distributed.site_rows(*rows, min_cell=1), mesh=object())
