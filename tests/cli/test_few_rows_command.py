"""Few rows by segment: what the command line fits by default, and says of all rows."""

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax.cli import main

pytestmark = pytest.mark.filterwarnings("default")

ROWS = "--score f --label y --segment shop"


def run(command):
    return main(command.split())


@pytest.fixture
def shops(tmp_path, monkeypatch):
    """300 shops of 5 rows in rows.csv, some tenth of them positive."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    shop, f = np.repeat(np.arange(300), 5), rng.normal(size=1500)
    y = labels_of(rng, f - 2.5).astype(int)
    lines = (f"{a!r},{b},s{c}\n" for a, b, c in zip(f.tolist(), y, shop, strict=True))
    (tmp_path / "rows.csv").write_text("f,y,shop\n" + "".join(lines))
    return f, y, np.char.add("s", shop.astype(str))


def test_segments_are_partially_pooled_unless_told_otherwise(shops, capsys):
    assert run(f"fit rows.csv {ROWS} --out c.npz") == 0
    assert capsys.readouterr().err == ""
    assert pj.load("c.npz").fit == pj.fit_segments(*shops, pooling="partial").fit
    assert run(f"fit rows.csv {ROWS} --curve isotonic --out c.npz") == 0
    assert pj.load("c.npz").pooling == "none"


def test_platts_targets_of_few_rows_are_told(shops, capsys):
    assert run(f"fit rows.csv {ROWS} --pooling none --out c.npz") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"platt-jax: warning: segments: {shops[1].sum()} positives, but")
    assert line.endswith("see --pooling partial")


def test_all_rows_together(shops, capsys):
    """Also those of segments that are not tested, each of which may be as expected."""
    f, y, shop = shops
    assert run(f"fit rows.csv {ROWS} --pooling none --out c.npz") == 0
    capsys.readouterr()
    total = pj.load("c.npz").predict_proba(f, shop).sum()
    together = f"rows together: {y.sum()} positives, {total:.0f} expected\n"
    assert total > 1.5 * y.sum()
    for against in ("fit", "predictions"):
        judge = f"{ROWS} --calibrator c.npz --against {against}"
        assert run(f"triage rows.csv {judge}") == 0
        assert f"\nall {together}" in capsys.readouterr().out
    assert run(f"monitor m.npz rows.csv {judge}") == 0
    assert f"\nall judged {together}" in capsys.readouterr().out
    monitor = pj.Monitor.load("m.npz", pj.load("c.npz"))
    assert f"all judged {together}" in repr(monitor)


def test_untested_segments_have_their_counts(shops):
    f, y, shop = shops
    with pytest.warns(RuntimeWarning, match="few rows by segment"):
        calibrator = pj.fit_segments(f[:1497], y[:1497], shop[:1497])
    f = f.copy()
    f[0] = np.nan
    with pytest.warns(RuntimeWarning, match="not tested"):
        table = pj.triage(calibrator, f, y, shop)
    place = {x: i for i, x in enumerate(table["segment"].tolist())}
    few, bad = place["s299"], place["s0"]  # fitted on 2 rows; one row is NaN
    mine = shop == "s299"
    assert table["positives"][few] == y[mine].sum()
    expected = calibrator.predict_proba(f[mine], shop[mine]).sum()
    assert table["expected"][few] == pytest.approx(expected, rel=1e-12)
    for name in ("p_value", "q_value", "slope"):
        assert np.isnan(table[name][[few, bad]]).all()
    assert np.isnan(table["expected"][bad]) and np.isnan(table["positives"][bad])
