"""`fit --logit`: its file says so, and every command follows it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax.cli import main

ROWS = "--score p --label y --segment shop"


def run(command):
    return main(command.split())


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def shops(tmp_path, monkeypatch):
    """Rows with probabilities p and their log-odds f, and c.npz, fitted to them by --logit."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    f, shop = rng.normal(-2, 2, 2000), np.arange(2000) % 20
    y = labels_of(rng, 0.5 * f).astype(int)
    p = 1 / (1 + np.exp(-f))
    lines = (
        f"{a!r},{b!r},{c},s{d}\n"
        for a, b, c, d in zip(p.tolist(), f.tolist(), y, shop, strict=True)
    )
    (tmp_path / "rows.csv").write_text("p,f,y,shop\n" + "".join(lines))
    assert run(f"fit rows.csv {ROWS} --logit --out c.npz") == 0
    return p, y, np.char.add("s", shop.astype(str))


@pytest.fixture
def of_log_odds(shops):
    """d.npz, the same calibrator, whose scores are the column f."""
    pj.save("d.npz", pj.load("c.npz"))
    return ROWS.replace("--score p", "--score f")


@pytest.mark.parametrize("again", ["", "--logit"])
def test_apply_follows_the_file(shops, capsys, again):
    p, _, shop = shops
    apply = f"apply rows.csv --calibrator c.npz --score p --segment shop --out out.csv {again}"
    assert run(apply) == 0
    assert capsys.readouterr().err == ""
    found = [float(row["probability"]) for row in read("out.csv")]
    expected = pj.load("c.npz").predict_proba(pj.logit(p), shop)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("command", ["triage", "monitor"])
def test_tests_of_rows_follow_it(shops, of_log_odds, command, capsys):
    words = {"triage": "triage rows.csv --out {}", "monitor": "monitor {}.npz rows.csv --table {}"}
    for name, rows in (("c", ROWS), ("d", of_log_odds)):
        given = words[command].format(*[f"{name}.csv"] * 2)
        assert run(f"{given} --calibrator {name}.npz {rows}") in (0, 5)
    for mine, other in zip(read("c.csv"), read("d.csv"), strict=True):
        assert mine["segment"] == other["segment"]
        assert float(mine["expected"]) == pytest.approx(float(other["expected"]), rel=1e-9)


def test_later_calibrators_keep_it(shops, of_log_odds, capsys):
    assert run(f"update rows.csv --calibrator c.npz {ROWS} --out u.npz") == 0
    assert run(f"update rows.csv --calibrator d.npz {of_log_odds} --out v.npz") == 0
    np.testing.assert_allclose(pj.load("u.npz").fit.A, pj.load("v.npz").fit.A, rtol=1e-9)
    rates = "--from-rate 0.3 --to-rate 0.1"
    assert run(f"shift --calibrator u.npz {rates} --out s.npz") == 0
    for name in ("u", "s"):
        apply = f"apply rows.csv --calibrator {name}.npz --score p --segment shop --out out.csv"
        assert run(apply) == 0
        found = [float(row["probability"]) for row in read("out.csv")]
        expected = pj.load(f"{name}.npz").predict_proba(pj.logit(shops[0]), shops[2])
        np.testing.assert_array_equal(found, expected)


def test_thresholds_are_probabilities(shops):
    """The probability of a row at its segment's threshold is the one that was asked for."""
    assert run("threshold --calibrator c.npz --probability 0.3 --out t.csv") == 0
    table, calibrator = read("t.csv"), pj.load("c.npz")
    at, keys = [float(row["threshold"]) for row in table], [row["segment"] for row in table]
    np.testing.assert_allclose(calibrator.predict_proba(pj.logit(at), keys), 0.3, rtol=1e-6)
    assert all(
        float(row["lower"]) < x < float(row["upper"]) for row, x in zip(table, at, strict=True)
    )


def test_an_export_says_what_it_takes(shops, capsys):
    assert run("export --calibrator c.npz --to json --out c.json") == 0
    assert "c.npz was fitted with --logit: the export takes log-odds" in capsys.readouterr().err
    assert json.loads(Path("c.json").read_text())["kind"] == "SegmentCalibrator"


def test_what_does_not_fit_is_told(shops, of_log_odds, capsys):
    assert run("apply rows.csv --calibrator c.npz --score f --segment shop --out o.csv") == 2
    assert "a calibrator keeps the --logit of its fit" in capsys.readouterr().err
    assert run(f"fit rows.csv {of_log_odds} --out plain.npz") == 0
    apply = "apply rows.csv --calibrator plain.npz --score p --segment shop --logit --out o.csv"
    assert run(apply) == 0
    assert "warning: --logit, but plain.npz was fitted without it" in capsys.readouterr().err
    assert run(apply.replace("plain", "d")) == 0  # the library's files do not say
    assert capsys.readouterr().err == ""


def test_files_keep_whether_there_was_an_offset(shops, capsys):
    """Without it, apply and others took 0, and said nothing."""
    rows = "--score f --segment shop"
    warned = "was fitted with --offset: without it, an offset of 0 is taken for all rows"
    assert run(f"fit rows.csv {rows} --label y --offset p --out o.npz") == 0
    rates = "--from-rate 0.3 --to-rate 0.1"
    assert run(f"shift --calibrator o.npz {rates} --out s.npz") == 0
    assert warned not in capsys.readouterr().err
    for name in ("o", "s"):
        apply = f"apply rows.csv --calibrator {name}.npz {rows} --out out.csv"
        assert run(f"{apply} --offset p") == 0
        assert capsys.readouterr().err == ""
        assert run(apply) == 0
        assert f"{name}.npz {warned}" in capsys.readouterr().err
    assert run(f"update rows.csv {rows} --label y --calibrator o.npz --out u.npz") == 0
    assert f"o.npz {warned}" in capsys.readouterr().err
    assert run(f"triage rows.csv {rows} --label y --calibrator u.npz") == 0
    assert f"u.npz {warned}" in capsys.readouterr().err
