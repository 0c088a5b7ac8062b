"""The commands where values are missing, scores are probabilities, and programs are kept."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from data import rows_of
from test_cli import as_csv, csv_input, run, write

import platt_jax as pj
from platt_jax.caller import Caller
from platt_jax.cli import csvio

pytestmark = [
    pytest.mark.slow,  # compiles many programs
    pytest.mark.filterwarnings("default"),
]

WANTED = [("f", csvio.number), ("y", csvio.label), ("w", csvio.number), ("id", str)]
WORDS = [
    "",
    "NA",
    "N/A",
    "#N/A",
    "<NA>",
    "NaN",
    "nan",
    "null",
    "NULL",
    "None",
    "none",
    " na ",
    "Na",
]


def shops(rows=600):
    f, y, s = rows_of(0, np.resize(["a", "b", "c"], rows), A=-2)
    return f, y.astype(int), s


# --- missing values -------------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_texts_that_are_missing_values(reader, in_tmp, word):
    write(in_tmp / "in.csv", f"f,y,w,id\n1,0,2,{word}\n{word},{word},{word},x\n3,1,.5,\n")
    f, y, w, ids = csvio.read_columns(csv_input("in.csv"), WANTED)
    np.testing.assert_equal(f, [1, np.nan, 3])
    np.testing.assert_equal(y, [0, np.nan, 1])
    np.testing.assert_equal(w, [2, np.nan, 0.5])
    assert ids.tolist() == [word, "x", ""]  # an id is what it is


@pytest.mark.parametrize("word", ["-", "?", "N.A.", "nan(1)", "missing", "nil", "\\N"])
def test_other_texts_are_refused_by_their_line(reader, in_tmp, capsys, word):
    for content, column in ((f"f,y\n1,0\n{word},1\n", "f"), (f"f,y\n1,0\n1,{word}\n", "y")):
        write(in_tmp / "in.csv", content)
        assert run("fit in.csv --score f --label y --out c.npz") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"platt-jax: error: in.csv, line 3, column {column!r}: {word!r} is")


def test_pyarrow_reads_missing_values_itself(in_tmp):
    pytest.importorskip("pyarrow")
    rows = "".join(f"{i},{i % 2},1,{i}\n{w},{w},{w},{w}\n" for i in range(99) for w in WORDS[:11])
    write(in_tmp / "in.csv", "f,y,w,id\n" + rows)
    fast = csvio._read_with_pyarrow(csv_input("in.csv"), WANTED)
    assert fast is not None
    for quick, plain in zip(fast, csvio._read_plainly(csv_input("in.csv"), WANTED), strict=True):
        assert quick.dtype == plain.dtype and quick.tobytes() == plain.tobytes()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("column", ["f", "y", "w"])
def test_missing_values_go_the_way_of_non_finite(in_tmp, capsys, suffix, column):
    """Of a file that pandas writes."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    f, y, shop = shops()
    rows = pd.DataFrame({"f": f, "y": y, "w": 1.0, "shop": shop})
    rows[column] = rows[column].astype(object)
    rows.loc[3, column] = None
    if column == "y":
        rows["y"] = rows["y"].astype("Int64" if suffix == "csv" else "boolean")
    else:
        rows[column] = rows[column].astype(float)
    name = f"in.{suffix}"
    rows.to_csv(name, index=False) if suffix == "csv" else rows.to_parquet(name)
    columns = "--score f --label y --weight w --segment shop"
    fit = f"fit {name} {columns} --pooling none --out c.npz --non-finite"
    assert run(f"{fit} omit") == 0
    found = pj.load("c.npz").fit
    there = np.arange(600) != 3
    np.testing.assert_array_equal(found.A, pj.fit_segments(f[there], y[there], shop[there]).fit.A)
    capsys.readouterr()
    assert run(f"{fit} flag") == 3
    err = capsys.readouterr().err
    assert err.startswith("platt-jax: 1 of 3 fits failed, the first in segment 'a': NON_FINITE")
    assert err.endswith("or drop such rows with --non-finite omit.\n") and err.count("\n") == 1
    assert run(f"{fit} raise") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_apply_where_a_score_is_missing(reader, in_tmp, capsys):
    write(in_tmp / "in.csv", "f,id\n1,x\n,y\nNA,z\n")
    pj.save("c.npz", pj.Sigmoid(-1.0, 0.0))
    assert run("apply in.csv --calibrator c.npz --score f --out out.csv") == 0
    assert "of these 2 with probability nan: the score is missing" in capsys.readouterr().out
    lines = (in_tmp / "out.csv").read_text().splitlines()
    assert lines[2:] == [",y,nan", "NA,z,nan"]


# --- probabilities for scores ---------------------------------------------------------------------


def test_log_odds_of_probabilities(reader, in_tmp, capsys):
    f, y, shop = shops()
    p = 1 / (1 + np.exp(-f))
    p[:2] = 0, 1
    as_csv(in_tmp / "in.csv", ["p", "y", "shop"], p, y, shop)
    columns = "--score p --label y --segment shop --logit"
    assert run(f"fit in.csv {columns} --pooling none --out c.npz") == 0
    expected = pj.fit_segments(pj.logit(p), y, shop)
    np.testing.assert_array_equal(pj.load("c.npz").fit.A, expected.fit.A)
    assert run("apply in.csv --calibrator c.npz --score p --segment shop --logit --out o.csv") == 0
    (found,) = csvio.read_columns(csv_input("o.csv"), [("probability", csvio.number)])
    np.testing.assert_array_equal(found, expected.predict_proba(pj.logit(p), shop))
    assert run(f"triage in.csv --calibrator c.npz {columns} --out t.csv") == 0
    (slopes,) = csvio.read_columns(csv_input("t.csv"), [("slope", csvio.number)])
    judged = pj.triage(expected, pj.logit(p), y, shop)
    np.testing.assert_array_equal(slopes, judged["slope"])
    assert run(f"update in.csv --calibrator c.npz {columns} --out u.npz") == 0
    updated = pj.update(expected, pj.logit(p), y, shop)
    np.testing.assert_array_equal(pj.load("u.npz").fit.A, updated.fit.A)


def test_log_odds_of_a_parquet_file(in_tmp):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"p": [0.2, 0.5, None]}), "in.parquet")
    pj.save("c.npz", pj.Sigmoid(-1.0, 0.0))
    apply = "apply in.parquet --calibrator c.npz --score p --logit --out"
    assert run(f"{apply} out.parquet") == 0
    found = pq.read_table("out.parquet")["probability"].to_numpy()
    np.testing.assert_allclose(found, [0.2, 0.5, np.nan])


@pytest.mark.parametrize("command", ["fit", "apply", "triage", "update", "report"])
def test_a_score_that_is_no_probability(in_tmp, capsys, command):
    pj.save("c.npz", pj.fit_segments([1.0, 2.0], [0, 1], ["x", "x"]))
    write(in_tmp / "in.csv", "p,y,s\n0.5,0,x\n1.5,1,x\n")
    given = "" if command == "fit" else "--calibrator c.npz"
    given += "" if command == "apply" else " --label y"
    assert run(f"{command} in.csv {given} --segment s --score p --logit --out o") == 2
    said = "--logit: column 'p': probabilities: expected probabilities in [0, 1], got 1.5"
    said += "" if command == "fit" else " (a calibrator keeps the --logit of its fit)"
    assert capsys.readouterr().err == f"platt-jax: error: {said}\n"


def test_probabilities_without_it_get_a_hint(in_tmp, capsys, monkeypatch):
    monkeypatch.setattr(Caller, "_warned_once", set())
    f, y, _ = shops()
    p = 1 / (1 + np.exp(-f))
    p[5] = np.nan
    as_csv(in_tmp / "in.csv", ["p", "y"], p, y)
    fit = "fit in.csv --score p --label y --out c.npz --non-finite omit"
    assert run(fit) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("platt-jax: warning: scores: all lie in [0, 1]. If they are prob")
    assert "--logit" in warning and "platt_jax" not in warning
    assert run(f"{fit} --logit") == 0
    assert capsys.readouterr().err == ""


# --- labels of two other values -------------------------------------------------------------------


def test_labels_by_name_of_text_files(reader, in_tmp, capsys):
    f, y, shop = shops()
    words = np.where(y == 1, "yes", "no").astype("U9")
    words[5], words[6] = "", " yes "
    as_csv(in_tmp / "in.csv", ["f", "y", "shop"], f, words, shop)
    fit = "fit in.csv --score f --label y --out c.npz --non-finite omit --pos-label"
    assert run(f"{fit} yes") == 0
    y[6] = 1
    there = np.arange(600) != 5
    np.testing.assert_allclose(pj.load("c.npz").A, pj.fit(f[there], y[there]).A, rtol=1e-12)
    assert run(f"{fit} no") == 0
    np.testing.assert_allclose(pj.load("c.npz").A, pj.fit(f[there], 1 - y[there]).A, rtol=1e-12)
    words[7] = "maybe"
    as_csv(in_tmp / "in.csv", ["f", "y", "shop"], f, words, shop)
    capsys.readouterr()
    assert run(f"{fit} yes") == 2
    assert capsys.readouterr().err == (
        "platt-jax: error: column 'y': expected --pos-label 'yes' and at most one other value, "
        "got 'maybe', 'no', 'yes'\n"
    )


def test_a_label_that_no_row_has_is_told(reader, in_tmp, capsys):
    write(in_tmp / "in.csv", "f,y\n1,no\n2,no\n3,no\n")
    assert run("fit in.csv --score f --label y --out c.npz --pos-label Yes") == 0
    assert "no row has the label 'Yes' in column 'y'\n" in capsys.readouterr().err
    write(in_tmp / "in.csv", "f,y\n1,\n2,NA\n")
    assert run("fit in.csv --score f --label y --out c.npz --pos-label Yes") == 3


def test_labels_by_name_of_every_command_and_of_parquet_files(in_tmp, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    f, y, shop = shops()
    expected = pj.fit_segments(f, y, shop)
    kinds = {
        "won": pa.array(np.where(y == 1, "won", "lost")),
        "2": pa.array(y + 1),
        "2.0": pa.array(y + 1.0),
        "false": pa.array(y == 0),
        "w": pa.array(np.where(y == 1, "w", "l")).dictionary_encode(),
    }
    for word, column in kinds.items():
        pq.write_table(pa.table({"f": f, "y": column, "s": shop}), "in.parquet")
        columns = f"--score f --label y --segment s --pos-label {word}"
        assert run(f"fit in.parquet {columns} --pooling none --out c.npz") == 0
        np.testing.assert_array_equal(pj.load("c.npz").fit.A, expected.fit.A)
        assert run(f"update in.parquet --calibrator c.npz {columns} --out u.npz") == 0
        assert run(f"triage in.parquet --calibrator c.npz {columns} --out t.csv") == 0
    missing = pa.array([None, *(y[1:] + 1.0)])
    pq.write_table(pa.table({"f": f, "y": missing, "s": shop}), "in.parquet")
    fit = "fit in.parquet --score f --label y --segment s --pooling none --out c.npz"
    fit += " --non-finite omit --pos-label"
    assert run(f"{fit} 2") == 0
    found = pj.fit_segments(f[1:], y[1:], shop[1:]).fit
    np.testing.assert_allclose(pj.load("c.npz").fit.A, found.A, rtol=1e-12)
    capsys.readouterr()
    assert run(f"{fit} won") == 2
    said = "column 'y': expected --pos-label of its type, double, got 'won'"
    assert said in capsys.readouterr().err


# --- update ---------------------------------------------------------------------------------------


def test_update_is_that_of_the_library(reader, in_tmp, capsys):
    f, y, shop = shops()
    w = np.arange(600) % 4 / 2
    old, new = slice(0, 400), slice(400, None)
    shop[500:] = "d"
    as_csv(in_tmp / "old.csv", ["f", "y", "shop"], f[old], y[old], shop[old])
    as_csv(in_tmp / "new.csv", ["f", "y", "w", "shop"], f[new], y[new], w[new], shop[new])
    columns = "--score f --label y --segment shop"
    assert run(f"fit old.csv {columns} --pooling none --out c.npz") == 0
    capsys.readouterr()
    update = f"update new.csv --calibrator c.npz {columns} --weight w --forgetting .9"
    assert run(f"{update} --out u.npz --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == 4 and told["status"] == {"CONVERGED": 4}
    calibrator = pj.fit_segments(f[old], y[old], shop[old])
    by_row = f[new], y[new], shop[new]
    expected = pj.update(calibrator, *by_row, weights=w[new], forgetting=0.9)
    found = pj.load("u.npz")
    assert found.keys.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(found.fit.A, expected.fit.A)
    assert run(f"{update} --night Monday --out u.npz") == 0
    assert "saved to u.npz" in capsys.readouterr().out
    assert pj.load("u.npz").nights == ("Monday",)
    again = update.replace("c.npz", "u.npz")
    assert run(f"{again} --night Monday --out v.npz") == 2
    assert "night: expected a night that the calibrator does not have" in capsys.readouterr().err


def test_what_update_refuses(in_tmp, capsys):
    write(in_tmp / "in.csv", "f,y,s\n1,0,x\n2,1,x\n")
    pj.save("one.npz", pj.Sigmoid(-1.0, 0.0))
    pj.save("c.npz", pj.fit_segments([1.0, 2.0], [0, 1], ["x", "x"]))
    columns = "--score f --label y --segment s --out u.npz"
    assert run(f"update in.csv --calibrator one.npz {columns}") == 2
    assert "one.npz has one sigmoid for all rows" in capsys.readouterr().err
    assert run(f"update in.csv --calibrator c.npz {columns} --forgetting 2") == 2
    assert "forgetting" in capsys.readouterr().err
    assert not (in_tmp / "u.npz").exists()


# --- programs that are kept, and what is said meanwhile -------------------------------------------


@pytest.mark.parametrize("how", ["option", "variable", "neither"])
def test_programs_are_kept(in_tmp, how):
    f, y, _ = shops(60)
    as_csv(in_tmp / "in.csv", ["f", "y"], f, y)
    fit = "fit in.csv --score f --label y --out c.npz"
    words = [sys.executable, "-m", "platt_jax", *fit.split()]
    others = "JAX_COMPILATION_CACHE_DIR", "PLATT_JAX_CACHE"
    usual = {k: v for k, v in os.environ.items() if k not in others}
    usual["XDG_CACHE_HOME"] = str(in_tmp / "home")
    more = ["--cache", "kept/here"] if how == "option" else []
    variables = {"PLATT_JAX_CACHE": "kept/here"} if how == "variable" else {}
    subprocess.run([*words, *more], env=usual | variables, check=True, capture_output=True)
    folder = in_tmp / ("home/platt_jax" if how == "neither" else "kept/here")
    assert list(folder.glob("*.program"))
    assert (in_tmp / "home").exists() == (how == "neither")


def test_a_folder_of_programs_that_cannot_be_made(in_tmp, capsys):
    write(in_tmp / "in.csv", "f,y\n1,0\n2,1\n")
    assert run("fit in.csv --score f --label y --out c.npz --cache in.csv/folder") == 2
    err = capsys.readouterr().err
    assert err.startswith("platt-jax: error: ") and "in.csv/folder" in err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal")
def test_who_watches_is_told_what_takes_so_long(in_tmp):
    import pty  # which Windows has not

    f, y, shop = shops(60)
    as_csv(in_tmp / "in.csv", ["f", "y", "shop"], f, y, shop)
    pj.save("c.npz", pj.fit_segments(f, y, shop))
    triage = "triage in.csv --calibrator c.npz --score f --label y --segment shop"
    ours, theirs = pty.openpty()
    ended = subprocess.run(
        [sys.executable, "-m", "platt_jax", *triage.split()],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"},
        check=True,
    )
    os.close(theirs)
    said = os.read(ours, 1000).decode().splitlines()
    os.close(ours)
    assert said == ["platt-jax: reading in.csv", "platt-jax: 60 rows read"]
    assert ended.stdout.startswith(b"No segment has reliably changed: of 3 tested")
