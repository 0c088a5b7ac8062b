"""Columns and files that were hardly meant: the command line asks, or refuses."""

from pathlib import Path

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax.cli import main

pytestmark = pytest.mark.filterwarnings("default")


def run(command):
    return main(command.split())


@pytest.fixture
def shops(tmp_path, monkeypatch):
    """Rows of 20 shops, each with an order of its own; c.npz is fitted by shop."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    f, shop = rng.normal(size=600), np.arange(600) % 20
    y = labels_of(rng, f).astype(int)
    rows = zip(f.tolist(), y, shop, range(600), strict=True)
    lines = (f"{a!r},{b},s{c},order-{d}\n" for a, b, c, d in rows)
    (tmp_path / "rows.csv").write_text("f,y,shop,order\n" + "".join(lines))
    pj.save("c.npz", pj.fit_segments(f, y, np.char.add("s", shop.astype(str)), pooling="partial"))


def test_a_segment_of_every_row(shops, capsys):
    fit = "fit rows.csv --score f --label y --out o.npz --segment"
    assert run(f"{fit} shop") == 0
    assert capsys.readouterr().err == ""
    assert run(f"{fit} order") == 0
    said = "warning: --segment order: 600 segments of 600 rows: is it the right column?"
    assert said in capsys.readouterr().err


def test_the_label_as_the_score(shops, capsys):
    for command in ("fit rows.csv --out o.npz", "triage rows.csv --calibrator c.npz"):
        assert run(f"{command} --score y --label y --segment shop") == 2
        assert "--score: expected another column than --label" in capsys.readouterr().err
    apply = "apply rows.csv --calibrator c.npz --segment shop --out o.csv --score"
    assert run(f"{apply} f") == 0
    assert "warning" not in capsys.readouterr().err
    assert run(f"{apply} y") == 0
    assert "all scores are 0 or 1: is it the right column?" in capsys.readouterr().err


def test_a_file_that_is_judged_twice(shops, capsys):
    judge = "monitor m.npz rows.csv --calibrator c.npz --score f --label y --segment shop"
    assert run(judge) == 0
    assert "counted twice" not in capsys.readouterr().err
    assert run(judge) == 0
    assert "had the same scores and labels: are they counted twice?" in capsys.readouterr().err
    rows = Path("rows.csv").read_text().splitlines()
    with open("other.csv", "w") as file:
        file.write("\n".join(rows[:-1]) + "\n")
    for again in (judge.replace("rows.csv", "other.csv"), f"{judge} --night 1", judge):
        assert run(again) == 0
    assert "counted twice" in capsys.readouterr().err  # of the last, after night 1
    assert pj.Monitor.load("m.npz", pj.load("c.npz")).night == 5


@pytest.mark.parametrize("field", ["1,5", "-0,25", "1.234,5", "1,5e3"])
def test_decimal_commas(shops, capsys, field):
    with open("in.csv", "w") as file:
        file.write(f"f;y\n1.5;0\n{field};1\n")
    assert run("fit in.csv --delimiter ; --score f --label y --out o.npz") == 2
    said = f"in.csv, line 3, column 'f': '{field}' is not a number: write decimals with a point\n"
    assert said in capsys.readouterr().err


def test_usage_errors_show_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        run("fit a.csv --score f --label y --out o.npz --segmnt shop")
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: platt-jax fit ")
    assert err.endswith("platt-jax fit: error: unrecognized arguments: --segmnt shop\n")


@pytest.mark.parametrize("word", ["", "--calibrator "])
@pytest.mark.parametrize(
    "command",
    [
        "export {}c.npz --to json --out o.json",
        "threshold {}c.npz --probability 0.5",
        "shift {}c.npz --from-rate 0.5 --to-rate 0.1 --out o.npz",
    ],
)
def test_the_calibrator_of_commands_without_rows(shops, command, word, capsys):
    assert run(command.format(word)) == 0
    with pytest.raises(SystemExit):
        run(command.replace("{}c.npz", ""))
    assert "one of the arguments FILE.npz --calibrator is required" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(command.format("c.npz --calibrator "))
    assert "not allowed with argument" in capsys.readouterr().err
