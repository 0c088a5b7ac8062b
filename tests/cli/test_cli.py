"""The commands from end to end: files in, files out, and what a user is told when it goes wrong."""

import csv
import gzip
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from data import labels_of, rows_of

import platt_jax
from platt_jax.cli import csvio, main, summaries
from platt_jax.cli.inputs import Input

# What the core says of bad problems is under test here too, and the tests make warnings errors.
pytestmark = pytest.mark.filterwarnings("default")


def run(command):
    """The exit status of `platt-jax` followed by these words."""
    return main(command.split())


def write(path, content):
    path.write_bytes(content.encode())


def csv_input(name):
    return Input(name, name)


def flights(rows=400):
    """Scores, labels and segments that look like numbers, and text that needs quotes."""
    ids = ["007", "7", "NA", "true", "", "a, b", 'say "x"', "Zürich", "東京"]
    rng = np.random.default_rng(0)
    scores, labels, segments = rows_of(rng, rng.choice(ids, rows), A=-2)
    return scores, labels.astype(int), segments


def as_csv(path, header, *columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))


def read_back(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "id,f,y\n007,1.5,0\n7,-2e3,1\n",
        "\ufeffid,f,y\r\n007,1.5,0\r\n7,-2e3,1",
        '"id","f","y"\n"007","1.5","0"\n\n7,"-2e3",1\n\n',
        "y,x,f,id\nfalse,é, 1.5,007\nTRUE,,-2000.0,7\n",
        "y,x,f,id\n0.0,NA,1.5,007\n1.0,nan,-2000,7\n",
    ],
    ids=["plain", "bom-crlf", "quoted-blank-lines", "words", "float-labels"],
)
def test_reads_what_spreadsheets_and_scripts_write(reader, in_tmp, content):
    write(in_tmp / "in.csv", content)
    wanted = [("f", csvio.number), ("y", csvio.label), ("id", str)]
    f, y, ids = csvio.read_columns(csv_input("in.csv"), wanted)
    assert f.tolist() == [1.5, -2000.0] and f.dtype == np.float64
    assert y.tolist() == [0, 1]
    assert ids.tolist() == ["007", "7"]


def test_one_column_in_two_roles(reader, in_tmp):
    write(in_tmp / "in.csv", "f\n01\n1\n")
    ids, f = csvio.read_columns(csv_input("in.csv"), [("f", str), ("f", csvio.number)])
    assert f.tolist() == [1.0, 1.0] and ids.tolist() == ["01", "1"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_reads_a_pipe(reader, in_tmp):
    os.mkfifo("pipe")
    writer = threading.Thread(target=write, args=(in_tmp / "pipe", "f\n1\n2\n"))
    writer.start()
    (f,) = csvio.read_columns(csv_input("pipe"), [("f", csvio.number)])
    writer.join()
    assert f.tolist() == [1.0, 2.0]


def test_both_readers_agree_on_values_and_types(in_tmp):
    """Bit for bit, over texts of numbers that are easy to get wrong, and several blocks of file."""
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(1)
    odd = ["-0", "4.9e-324", "1e400", "-inf", " 3 ", "123456789012345678901", ".5", "5."]
    numbers = rng.normal(size=60_000) * 10.0 ** rng.integers(-300, 300, 60_000)
    rows = [f"{x},{i % 2},{i % 977:04d}\n" for i, x in enumerate(odd + numbers.tolist())]
    write(in_tmp / "in.csv", "f,y,id\n" + "".join(rows))
    wanted = [("f", csvio.number), ("y", csvio.label), ("id", str)]
    fast = csvio._read_with_pyarrow(csv_input("in.csv"), wanted)
    assert fast is not None, "pyarrow should take this file"
    for quick, plain in zip(fast, csvio._read_plainly(csv_input("in.csv"), wanted), strict=True):
        assert quick.dtype == plain.dtype and quick.tobytes() == plain.tobytes()


BROKEN = {
    "": "in.csv: is empty, expected a header line and rows",
    "\n\r\n": "in.csv: is empty, expected a header line and rows",
    "f,y\n": "in.csv: has a header line, but no rows to fit",
    "f,label\n1,0\n": "in.csv: has no column 'y', but 'f', 'label'",
    "f;y\n1;0\n": "in.csv: has no column 'f', but 'f;y' (is that one column? a comma separates "
    "fields; try --delimiter ';')",
    "f|y\n1|0\n": "in.csv: has no column 'f', but 'f|y' (is that one column? a comma separates "
    "fields; try --delimiter '|')",
    "score\n1\n": "in.csv: has no column 'f', but 'score' (is that one column? a comma separates "
    "fields; for another see --delimiter)",
    "f, y\n1, 0\n": "in.csv: has no column 'y', but 'f', ' y'\n",
    ",".join(f"c{i}" for i in range(5000))
    + "\n": "in.csv: has no column 'f', but 'c0', 'c1', 'c2', "
    "'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'c9', 'c10', 'c11', 'c12', 'c13', 'c14', 'c15', 'c16', "
    "'c17', 'c18', 'c19' and 4,980 more\n",
    "f,y,f\n1,0,1\n": "in.csv: has 2 columns 'f'",
    "f,y\n1,0\n\n1.2.3,1\n": "in.csv, line 4, column 'f': '1.2.3' is not a number",
    'x,f,y\n"a\nb",1,0\nc,?,1\n': "in.csv, line 4, column 'f': '?' is not a number",
    "f,y\n1_0,0\n": "in.csv, line 2, column 'f': '1_0' is not a number",
    "f,y\nnan(1),0\n": "in.csv, line 2, column 'f': 'nan(1)' is not a number",
    "f,y\n1,0\n2,yes\n": "in.csv, line 3, column 'y': 'yes' is not a label "
    "(0 and 1, -1 and 1, or true and false; for others see --pos-label)",
    "f,y\n1,0\n2,-1\n": "labels: expected",
    "f,y\n1,0\n2\n": "in.csv, line 3: has 1 fields where the header has 2",
    "f,y\n1,0,\n": "in.csv, line 2: has 3 fields where the header has 2",
    'f,y,x\n1,0,a\n2,1,"b\n3,0,c\n': "in.csv, line 3: unexpected end of data",
    "f,y\n1,0\nN.A.,1\n": "in.csv, line 3, column 'f': 'N.A.' is not a number",
}


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_one_line_that_says_where(reader, in_tmp, capsys, content):
    write(in_tmp / "in.csv", content)
    assert run("fit in.csv --score f --label y --out c.npz") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("platt-jax: error: " + BROKEN[content])
    assert err.count("\n") == 1
    assert not (in_tmp / "c.npz").exists()


def test_a_file_in_another_encoding_is_refused(reader, in_tmp, capsys):
    (in_tmp / "in.csv").write_bytes("f,y,Größe\n1,0,1\n".encode("latin-1"))
    assert run("fit in.csv --score f --label y --out c.npz") == 2
    assert "platt-jax: error: in.csv: is not UTF-8 text" in capsys.readouterr().err


KINDS_OF_FILES = {
    "gzip": (gzip.compress(gzip.compress(b"f,y\n1,0\n")), "is compressed twice", "gunzip -k in"),
    "Parquet": (gzip.compress(b"PAR1\x15\x04\x15\x10"), "is a Parquet file, compr", "gunzip -k"),
    "zip": (b"PK\x03\x04\x14\x00", "is a zip archive, or a spreadsheet", "CSV"),
    "UTF-16": ("f,y\n1,0\n".encode("utf-16"), "is UTF-16 text", "iconv -f UTF-16 -t UTF-8 in.csv"),
    "UTF-16 without a mark": (
        "f,y\n".encode("utf-16-le"),
        "is UTF-16 text",
        "iconv -f UTF-16LE -t",
    ),
    "big-endian": ("f,y\n".encode("utf-16-be"), "is UTF-16 text", "iconv -f UTF-16BE -t"),
}


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_a_file_of_another_kind_is_told_by_name(reader, in_tmp, capsys, kind):
    content, what, remedy = KINDS_OF_FILES[kind]
    (in_tmp / "in.csv").write_bytes(content)
    assert run("fit in.csv --score f --label y --out c.npz") == 2
    err = capsys.readouterr().err
    assert err.startswith(f"platt-jax: error: in.csv: {what}") and remedy in err
    assert err.count("\n") == 1


def test_columns_named_like_other_kinds_of_files(reader, in_tmp):
    write(in_tmp / "in.csv", "PK,PAR1\n1,2\n")
    one, two = csvio.read_columns(
        csv_input("in.csv"), [("PK", csvio.number), ("PAR1", csvio.number)]
    )
    assert (one.tolist(), two.tolist()) == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (b"1,0,\xff\n", "is not UTF-8 text"),
        (b"1,0,\xc3", "is not UTF-8 text"),
        (b"1,0," + b"z" * 140_000 + b"\n", "line 30002: field larger than field limit"),
    ],
    ids=["not UTF-8", "cut in a character", "too long"],
)
def test_what_is_wrong_far_down_in_a_column_not_asked_for(reader, in_tmp, capsys, last, message):
    """Found before anything is written, though only the copy would need that column."""
    (in_tmp / "in.csv").write_bytes(b"f,y,x\n" + b"1,0,a\n" * 30_000 + last)
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    assert run("apply in.csv --calibrator c.npz --score f --out out.csv") == 2
    err = capsys.readouterr().err
    assert err.startswith("platt-jax: error: in.csv") and message in err and err.count("\n") == 1
    assert not (in_tmp / "out.csv").exists()


@pytest.mark.slow
def test_a_million_segments(in_tmp, capsys):
    pytest.importorskip("pyarrow")
    rows = [f"{i % 7},{i % 2},{i:06}\n" for i in range(1_000_000)]
    write(in_tmp / "in.csv", "f,y,id\n" + "".join(rows))
    wanted = [("f", csvio.number), ("y", csvio.label), ("id", str)]
    plain = csvio._read_plainly(csv_input("in.csv"), wanted)
    assert run("fit in.csv --score f --label y --segment id --out c.npz") == 0
    assert "1,000,000 sigmoids from 1,000,000 rows" in capsys.readouterr().out
    assert np.array_equal(platt_jax.load("c.npz").keys, plain[2])


# --- fit and apply -----------------------------------------------------------------------------


def test_fit_and_apply_by_segment(reader, in_tmp, capsys):
    scores, labels, segments = flights()
    as_csv(in_tmp / "fit.csv", ["id", "f", "y"], segments, scores, labels)
    assert run("fit fit.csv --score f --label y --segment id --out c.npz") == 0
    said = capsys.readouterr().out
    assert "9 sigmoids" in said and "9 CONVERGED" in said

    new = np.array(["007", "東京", "never seen", ""])
    as_csv(in_tmp / "new.csv", ["f", "id", "note"], scores[:4], new, np.array([*"ab", "c,\nd", ""]))
    command = "apply new.csv --calibrator c.npz --score f --segment id --out out.csv"
    assert run(command) == 0
    said = capsys.readouterr().out
    assert "4 rows" in said and "of these 1 in segments that were not fitted: predicted by" in said

    rows = read_back(in_tmp / "out.csv")
    assert list(rows[0]) == ["f", "id", "note", "probability"]
    assert [row["id"] for row in rows] == new.tolist()
    assert rows[2]["note"] == "c,\nd"
    pooled = platt_jax.fit_segments(scores, labels, segments, pooling="partial")
    expected = pooled.predict_proba(scores[:4], new)
    assert [float(row["probability"]) for row in rows] == expected.tolist()
    assert len(set(expected)) == 4


def test_fit_and_apply_one_sigmoid_with_weights(reader, in_tmp, capsys):
    scores, labels, _ = flights(60)
    weights = np.arange(60) % 3
    as_csv(in_tmp / "in.csv", ["f", "y", "w"], scores, 2 * labels - 1, weights)
    assert run("fit in.csv --score f --label y --weight w --out c.npz") == 0
    assert "1 sigmoid" in capsys.readouterr().out
    assert run("apply in.csv --calibrator c.npz --score f --out out.csv") == 0
    assert "60 rows" in capsys.readouterr().out

    expected = platt_jax.fit(np.repeat(scores, weights), np.repeat(labels, weights))
    probability = [float(row["probability"]) for row in read_back(in_tmp / "out.csv")]
    np.testing.assert_allclose(probability, expected.sigmoid.predict_proba(scores), rtol=1e-7)


def test_a_bad_segment_is_reported_and_the_others_are_fitted(in_tmp, capsys):
    scores, labels, segments = flights()
    scores[np.flatnonzero(segments == "7")[0]] = np.nan
    as_csv(in_tmp / "in.csv", ["id", "f", "y"], segments, scores, labels)
    assert run("fit in.csv --score f --label y --segment id --out c.npz") == 3
    out, err = capsys.readouterr()
    assert "8 CONVERGED" in out and "1 NON_FINITE" in out
    empty, failure = err.splitlines()
    assert f"an empty id in {np.sum(segments == '')} rows: a segment of their own" in empty
    assert failure.startswith("platt-jax: 1 of 9 fits failed, the first in segment '7': NON_FINITE")

    command = "apply in.csv --calibrator c.npz --score f --segment id --out out.csv"
    assert run(command) == 0
    said = capsys.readouterr().out
    assert f"of these {np.sum(segments == '7')} with probability nan" in said
    assert "not fitted" not in said


def test_labels_that_are_all_equal_are_told(in_tmp, capsys):
    write(in_tmp / "in.csv", "f,y\n1,0\n2,0\n3,0\n")
    assert run("fit in.csv --score f --label y --out c.npz") == 0
    assert capsys.readouterr().err == "platt-jax: all 3 labels are 0\n"


def test_the_only_fit_fails(in_tmp, capsys):
    write(in_tmp / "in.csv", "f,y\nnan,0\n1,1\n")
    assert run("fit in.csv --score f --label y --out c.npz") == 3
    out, err = capsys.readouterr()
    assert "1 NON_FINITE" in out and "saved to c.npz" in out
    assert err.startswith("platt-jax: 1 of 1 fit failed: NON_FINITE") and err.count("\n") == 1
    assert err.endswith("or drop such rows with --non-finite omit.\n")
    assert np.isnan(platt_jax.load("c.npz").A)


@pytest.mark.parametrize(
    ("command", "statuses"),
    [
        ("", [0, 2, 3, 4, 5]),
        ("fit", [0, 2, 3, 4]),
        ("update", [0, 2, 3]),
        ("apply", [0, 2]),
        ("triage", [0, 2]),
        ("monitor", [0, 2, 5]),
        ("report", [0, 2]),
        ("export", [0, 2]),
        ("demo", [0]),
    ],
)
def test_help_tells_the_exit_statuses_of_its_command(capsys, command, statuses):
    with pytest.raises(SystemExit) as ended:
        run(f"{command} --help")
    assert ended.value.code == 0
    options, told = capsys.readouterr().out.split("exit status:\n")
    found = [int(line.split()[0]) for line in told.splitlines() if line[2] != " "]
    assert found == [*statuses, 130, 141]
    assert (3 in statuses) == ("some fits failed" in told)
    assert "example" in options or command == "demo"


@pytest.mark.parametrize("option", ["score", "label", "weight", "out", "pooling"])
def test_an_option_given_twice_is_refused(in_tmp, capsys, option):
    write(in_tmp / "in.csv", "f,y\n1,0\n2,1\n")
    options = "--score f --label y --segment f --weight y --out c.npz --pooling none"
    with pytest.raises(SystemExit) as ended:
        run(f"fit in.csv {options} --{option} none")
    assert ended.value.code == 2
    assert f"argument --{option}: given twice" in capsys.readouterr().err
    assert not (in_tmp / "c.npz").exists()


@pytest.mark.parametrize("option", ["calibrator", "score", "delimiter", "out"])
def test_an_option_of_apply_given_twice_is_refused(capsys, option):
    with pytest.raises(SystemExit) as ended:
        words = "apply in.csv --calibrator c.npz --score f --delimiter f --out o"
        run(f"{words} --{option}=f")
    assert ended.value.code == 2
    assert f"argument --{option}: given twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("saved", "segment", "message"),
    [
        ("segments", "", "name their column by --segment"),
        ("one", "--segment id", "leave out --segment"),
        ("numbers", "--segment id", "segments of type int64, and a CSV file's segments are text"),
        ("many", "", "of many problems, not one"),
        ("classes", "", "c.npz has one curve per class: name the columns of scores"),
        ("junk", "", "c.npz"),
        ("nothing", "", "c.npz"),
    ],
)
def test_a_calibrator_that_does_not_fit_the_request(in_tmp, capsys, saved, segment, message):
    scores, labels, segments = flights(50)
    as_csv(in_tmp / "in.csv", ["f", "id"], scores, segments)
    if saved == "segments":
        platt_jax.save("c.npz", platt_jax.fit_segments(scores, labels, segments))
    elif saved == "numbers":
        platt_jax.save("c.npz", platt_jax.fit_segments(scores, labels, np.arange(50) % 2))
    elif saved == "one":
        platt_jax.save("c.npz", platt_jax.fit(scores, labels).sigmoid)
    elif saved == "many":
        platt_jax.save("c.npz", platt_jax.fit(np.stack([scores, -scores]), labels))
    elif saved == "classes":
        two = np.stack([scores, -scores], axis=1)
        platt_jax.save("c.npz", platt_jax.fit_one_vs_rest(two, labels))
    elif saved == "junk":
        write(in_tmp / "c.npz", "no calibrator")
    command = f"apply in.csv --calibrator c.npz --score f {segment} --out out.csv"
    assert run(command) == 2
    err = capsys.readouterr().err
    assert err.startswith("platt-jax: error: ") and message in err and err.count("\n") == 1
    assert not (in_tmp / "out.csv").exists()


def test_the_new_column_has_the_name_given(reader, in_tmp, capsys):
    write(in_tmp / "in.csv", "f,probability\n0,1\n")
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    apply = "apply in.csv --calibrator c.npz --score f --out out.csv"
    assert run(apply) == 2
    assert "has a column 'probability' already: see --name" in capsys.readouterr().err
    assert run(f"{apply} --name p") == 0
    assert (in_tmp / "out.csv").read_text() == "f,probability,p\n0,1,0.5\n"
    assert run(f"{apply} --name f") == 2
    assert "has a column 'f' already" in capsys.readouterr().err


def test_apply_to_a_header_without_rows(reader, in_tmp, capsys):
    """As a nightly job gets on a day without any."""
    write(in_tmp / "in.csv", "f,id\n")
    platt_jax.save("c.npz", platt_jax.fit_segments([1.0, 2.0], [0, 1], ["a", "b"]))
    assert run("apply in.csv --calibrator c.npz --score f --segment id --out out.csv") == 0
    assert capsys.readouterr().out.startswith("0 rows written to out.csv\n")
    assert (in_tmp / "out.csv").read_text() == "f,id,probability\n"


def test_apply_keeps_its_input(in_tmp, capsys):
    scores, labels, _ = flights(50)
    platt_jax.save("c.npz", platt_jax.fit(scores, labels))
    as_csv(in_tmp / "in.csv", ["f", "probability"], scores, scores)
    before = (in_tmp / "in.csv").read_bytes()
    apply = "apply in.csv --calibrator c.npz --score f --out "
    assert run(apply + "in.csv") == 2
    assert "would overwrite" in capsys.readouterr().err
    assert run(apply + "out.csv") == 2
    assert "has a column 'probability' already" in capsys.readouterr().err
    assert (in_tmp / "in.csv").read_bytes() == before


def test_apply_writes_to_standard_output(in_tmp):
    write(in_tmp / "in.csv", 'f,id\n1,Zürich\n2,"a, b"\n')
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    apply = "apply in.csv --calibrator c.npz --score f --out "
    assert run(apply + "out.csv") == 0
    ended = subprocess.run(
        [sys.executable, "-m", "platt_jax", *apply.split(), "-"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        check=False,
    )
    assert ended.returncode == 0
    assert ended.stdout == (in_tmp / "out.csv").read_bytes()
    assert ended.stderr == b"2 rows written to standard output\n"
    assert not (in_tmp / "-").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "status", "out", "err"),
    [
        (">&-", 2, "", "platt-jax: error: -: standard output is closed\n"),
        ("2>&-", 0, "f,probability\n0,0.5\n", ""),
    ],
)
def test_apply_to_standard_output_where_a_stream_is_closed(in_tmp, closed, status, out, err):
    write(in_tmp / "in.csv", "f\n0\n")
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    apply = "apply in.csv --calibrator c.npz --score f --out -"
    ended = subprocess.run(
        f"{sys.executable} -m platt_jax {apply} {closed}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, out, err)


@pytest.mark.slow
def test_a_name_that_the_terminal_cannot_show(in_tmp):
    write(in_tmp / "in.csv", "f\n0\n")
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    apply = "apply in.csv --calibrator c.npz --score f --out größe.csv"
    ended = subprocess.run(
        [sys.executable, "-m", "platt_jax", *apply.split()],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "1 row written to gr\\xf6\\xdfe.csv\n"


@pytest.mark.slow
def test_apply_does_not_append_to_the_file_it_reads(in_tmp):
    content = "f\n" + "1\n" * 10_000
    write(in_tmp / "in.csv", content)
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    apply = "apply in.csv --calibrator c.npz --score f --out -"
    with (in_tmp / "in.csv").open("a") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "platt_jax", *apply.split()],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith("platt-jax: error: ") and "would overwrite" in ended.stderr
    assert (in_tmp / "in.csv").read_text() == content


REFUSED_BEFORE_ANY_WORK = {
    "fit in.csv --score f --label y --out -": "a calibrator is a binary file: --out needs its name",
    "fit - - --score f --label y --out c.npz": "-: expected standard input once, got it 2 times",
    "fit in.csv --score f --label y --out c.npz --pooling partial": "only with --segment",
    "fit in.csv --score f --label y --out c.npz --time-limit 3": "only with --distributed",
    "report in.csv --calibrator c.npz --score f --label y --segment s --out -": "a page is a file",
    "triage in.csv --calibrator c.npz --score f --label y": "one that was fitted with --segment",
    "export c.npz --to json --table t --out o": "--table: expected only with --to sql",
    "export c.npz --to python --threshold 0.5 --out o": "--threshold: expected only with --to json",
    "export c.npz --to json --threshold 0.5 --out o": "threshold: expected a SegmentCalibrator",
    "export c.npz --to json --dtype float32 --out o": "--dtype: expected only with --to onnx",
    "export c.npz --to sql --score f --view v --out o": "view, rows: expected the names of a view",
    "shift c.npz --from-rate 0.5 --to-rate 1 --out o": "--to-rate: expected numbers between 0 and",
    "shift c.npz --from-rate nan --to-rate 0.1 --out o": "--from-rate: expected numbers between 0",
    "shift c.npz --from-rate 0.5 --to-rate 0.1 --out c.npz": "c.npz: would overwrite the file",
    "threshold c.npz --probability 0.8": "c.npz has one sigmoid for all rows: its threshold is",
    "threshold c.npz --probability 0.8 --out c.npz": "c.npz: would overwrite the file",
    "export c.npz --to sql --out o": "--score: expected the column of scores",
    "export c.npz --to sql --score f --out c.npz": "c.npz: would overwrite the file",
    "fit in.csv --score f --label y --out in.csv": "in.csv: would overwrite the file that is being",
    "fit in.csv --score f --label y --out no/c.npz": "no/c.npz: there is no directory no",
    "fit in.csv --score f --label y --out dir": "dir: is a directory",
    "fit in.csv --score f --label y --out=": "--out: expected the name of a file, got ''",
    "fit in.csv --score f --label y --out /dev/null": "/dev/null: is no regular file",
    "fit in.csv --score f --label y --out x.CSV": "x.CSV: is named like a file of rows, and a cal",
    "fit in.csv --score f --label y --out x.parquet": "named like a file of rows",
    "update in.csv --calibrator c.npz --score f --label y --segment s --out x.tsv.gz": "of rows",
    "report in.csv --calibrator c.npz --score f --label y --segment s --out x.csv": "of rows, and",
    "apply in.csv --calibrator c.npz --score f --out o --name=": "--name: expected the name of the",
    "fit in.csv --score f --label y --pos-label a --distributed --out o": "--pos-label: expected",
    "update in.csv --calibrator c.npz --score f --label y --segment s --out c.npz": "overwrite the",
    "apply in.csv --calibrator c.npz --score f --out=": "--out: expected the name of a file, got",
    "apply in.csv --calibrator c.npz --score f --out ./c.npz": "c.npz: would overwrite the file",
    "apply in.csv --calibrator c.npz --score f --out no/o": "no/o: there is no directory no",
    "apply in.csv --calibrator c.npz --score f --out dir": "dir: is a directory",
}


@pytest.mark.parametrize("command", ["fit", "apply", "triage", "report"])
def test_missing_ids_of_a_parquet_file_are_refused(in_tmp, capsys, command):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    scores, labels, _ = flights(300)
    ids = ["z"] * 100 + ["w"] * 200
    platt_jax.save("c.npz", platt_jax.fit_segments(scores, labels, ids))
    ids[100:150] = [None] * 50
    pq.write_table(pa.table({"f": scores, "y": labels, "s": ids}), "in.parquet")
    given = "" if command == "fit" else "--calibrator c.npz"
    given += "" if command == "apply" else " --label y"
    assert run(f"{command} in.parquet {given} --score f --segment s --out out.npz") == 2
    assert "expected ids, got None at row 100" in capsys.readouterr().err
    assert not (in_tmp / "out.npz").exists()


def test_decimal_labels_of_a_parquet_file_are_labels(in_tmp):
    """Warehouses write columns of NUMBER so."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    scores, labels, ids = flights(300)
    exact = pa.array(np.asarray(labels).astype(int).tolist()).cast(pa.decimal128(38, 0))
    pq.write_table(pa.table({"f": scores, "y": exact, "s": ids}), "in.parquet")
    assert run("fit in.parquet --score f --label y --segment s --pooling none --out c.npz") == 0
    assert platt_jax.load("c.npz").fit.A.tolist() == (
        platt_jax.fit_segments(scores, labels, ids).fit.A.tolist()
    )


def test_files_that_are_not_there_or_empty_are_named_first(in_tmp, capsys):
    scores, labels, segments = flights()
    platt_jax.save("c.npz", platt_jax.fit_segments(scores, labels, segments))
    write(in_tmp / "empty.csv", "f,y,id\n")
    for command in ("fit none.csv --out o.npz", "triage none.csv --calibrator c.npz"):
        assert run(f"{command} --score f --label y --segment id") == 2
        said = "platt-jax: error: none.csv: No such file or directory"
        assert capsys.readouterr().err.strip() == said
    given = "empty.csv --calibrator c.npz --score f --label y --segment id"
    for command, status in (
        (f"triage {given}", 0),
        (f"update {given} --out u.npz", 0),
        (f"monitor state.npz {given} --night 1", 0),
        (f"monitor state.npz {given} --night 2", 0),
        (f"report {given} --out page.html", 2),
    ):
        assert run(command) == status, command
        assert "empty.csv: has a header line, but no rows" in capsys.readouterr().err
    np.testing.assert_array_equal(platt_jax.load("u.npz").fit.A, platt_jax.load("c.npz").fit.A)


@pytest.mark.slow
def test_triage_of_rows_that_depend_on_each_other_names_their_clusters(in_tmp, capsys):
    rng = np.random.default_rng(0)
    days, segments = np.repeat(np.arange(40), 30), np.tile(np.arange(3), 400)
    scores = rng.normal(size=1200)
    shock = 0.8 * rng.normal(size=(40, 3))[days, segments]
    labels = labels_of(rng, 2 * scores + shock).astype(int)
    platt_jax.save("c.npz", platt_jax.fit_segments(scores, labels, segments.astype(str)))
    as_csv(in_tmp / "in.csv", ["id", "f", "y", "day"], segments, scores, labels, days)
    rows = "in.csv --calibrator c.npz --score f --label y --segment id"
    assert run(f"triage {rows} --cluster day --cluster-sd 0.8 --out t.csv") == 0
    calibrator = platt_jax.load("c.npz")
    expected = platt_jax.triage(
        calibrator, scores, labels, segments.astype(str), clusters=days.astype(str), cluster_sd=0.8
    )
    found = np.genfromtxt("t.csv", delimiter=",", names=True)
    np.testing.assert_allclose(found["p_value"], expected["p_value"], rtol=1e-12)
    assert run(f"triage {rows} --cluster-sd 1") == 2
    assert "--cluster-sd: expected only with --cluster" in capsys.readouterr().err


@pytest.mark.parametrize("how, status", [("flag", 3), ("omit", 0), ("raise", 2)])
def test_what_numbers_that_are_not_finite_do(in_tmp, how, status):
    scores, labels, segments = flights()
    scores[7] = np.nan
    as_csv(in_tmp / "in.csv", ["id", "f", "y"], segments, scores, labels)
    for segment in ("", "--segment id"):
        given = f"--score f --label y {segment} --non-finite {how} --out {how}.npz"
        assert run(f"fit in.csv {given}") == status


@pytest.mark.slow
@pytest.mark.parametrize("command", ["apply", "triage", "report", "update"])
def test_a_column_without_a_fitted_segment_is_refused(in_tmp, capsys, command):
    scores, labels, segments = flights()
    platt_jax.save("c.npz", platt_jax.fit_segments(scores, labels, segments))
    rows = np.array([f"row {i}" for i in range(400)])
    as_csv(in_tmp / "in.csv", ["id", "f", "y"], rows, scores, labels)
    label = "" if command == "apply" else "--label y"
    given = f"--calibrator c.npz --score f {label} --segment id --out out"
    assert run(f"{command} in.csv {given}") == 2
    assert capsys.readouterr().err == (
        "platt-jax: error: --segment: none of the 400 rows is in a segment that was fitted, such "
        "as '', '007', '7': is it the right column?\n"
    )
    assert not (in_tmp / "out").exists()


@pytest.mark.parametrize("command", REFUSED_BEFORE_ANY_WORK)
def test_what_is_refused_before_any_work(in_tmp, capsys, monkeypatch, command):
    if "/dev/null" in command and not os.path.exists("/dev/null"):
        pytest.skip("needs /dev/null")

    def read_columns(path, wanted):
        raise AssertionError("work before the refusal")

    monkeypatch.setattr("platt_jax.cli.csvio.read_columns", read_columns)
    write(in_tmp / "in.csv", "f,y\n1,0\n2,1\n")
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    (in_tmp / "dir").mkdir()
    before = {path.name: path.is_file() and path.read_bytes() for path in in_tmp.iterdir()}
    assert run(command) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("platt-jax: error: ") and REFUSED_BEFORE_ANY_WORK[command] in err
    after = {path.name: path.is_file() and path.read_bytes() for path in in_tmp.iterdir()}
    assert after == before


def test_as_a_module():
    def run_module(command):
        words = [sys.executable, "-m", "platt_jax", *command.split()]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    version = run_module("--version")
    assert (version.returncode, version.stdout) == (0, f"platt-jax {platt_jax.__version__}\n")
    missing = run_module("fit no.csv --score f --label y --out c.npz")
    assert missing.returncode == 2
    assert missing.stderr.startswith("platt-jax: error: ") and "no.csv" in missing.stderr
    assert missing.stderr.count("\n") == 1


# --- output that nobody reads, Ctrl-C ----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("words", ["--help", "apply in.csv --calibrator c.npz --score f --out o"])
def test_a_reader_that_has_seen_enough(in_tmp, buffered, words):
    """As in `platt-jax demo | head`: neither the command nor Python, at exit, says a word."""
    write(in_tmp / "in.csv", "f\n1\n")
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        ended = subprocess.run(
            [sys.executable, *([] if buffered else ["-u"]), "-m", "platt_jax", *words.split()],
            stdout=output,
            stderr=subprocess.PIPE,
            env={name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"},
            check=False,
        )
    assert ended.stderr == b""
    # Some versions of argparse take no notice of help that they could not write.
    assert ended.returncode in ((0, 141) if words == "--help" and not buffered else (141,))


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_output_that_cannot_be_written(in_tmp, capsys):
    write(in_tmp / "in.csv", "f\n1\n")
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    apply = "apply in.csv --calibrator c.npz --score f --out o"
    command = [sys.executable, "-m", "platt_jax", *apply.split()]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "platt-jax: error: standard output: No space left on device\n"
    assert run(apply[:-1] + "/dev/full") == 2
    said = "platt-jax: error: /dev/full: No space left on device\n"
    assert capsys.readouterr().err == said


LIMITED = """
import resource
from platt_jax.cli import run
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "apply in.csv --calibrator c.npz --score f --out o.csv",
        "apply in.csv --calibrator c.npz --score f --out o.csv.gz",
        "fit in.csv --score f --label y --out o.npz",
        "export c.npz --to python --out o.py",
    ],
)
def test_a_file_that_cannot_grow_is_named(in_tmp, command):
    """As on a full disk."""
    rng = np.random.default_rng(0)
    as_csv(in_tmp / "in.csv", ["f", "y"], rng.normal(size=99), np.arange(99) % 2)
    platt_jax.save("c.npz", platt_jax.Sigmoid(-1.0, 0.0))
    words = [sys.executable, "-c", LIMITED, *command.split()]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    out = os.path.realpath(command.split()[-1])
    assert ended.stderr == f"platt-jax: error: {out}: File too large\n"
    assert sorted(path.name for path in in_tmp.iterdir()) == ["c.npz", "in.csv"]


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "platt-jax: stopped by Ctrl-C\n"),
        (
            MemoryError("Unable to allocate 9 TiB"),
            2,
            "platt-jax: error: Unable to allocate 9 TiB\n",
        ),
    ],
)
def test_ctrl_c_and_lack_of_memory(in_tmp, capsys, monkeypatch, raised, status, said):
    def read_columns(path, wanted):
        raise raised

    monkeypatch.setattr("platt_jax.cli.csvio.read_columns", read_columns)
    assert run("fit in.csv --score f --label y --out c.npz") == status
    assert capsys.readouterr().err == said


# --- other kinds of files, several columns, summaries ---------------------------------------------


def by_shop_and_year(rows=2000):
    rng = np.random.default_rng(0)
    scores, labels, shops = rows_of(rng, rng.choice(["a", "b", "東京"], rows), A=-2, B=1)
    return scores, labels.astype(int), shops, rng.integers(2023, 2025, rows)


def written_as(path, *columns):
    """The rows as a file of the kind that its name tells."""
    names = ["f", "y", "shop", "year"]
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
        return
    delimiter = "\t" if ".tsv" in path.name else ","
    lines = [names, *zip(*(x.tolist() for x in columns), strict=True)]
    content = "".join(delimiter.join(map(str, line)) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def read_any(path):
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return {k: np.array(v) for k, v in parquet.read_table(path).to_pydict().items()}
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    header, *lines = [line.split("\t" if ".tsv" in path.name else ",") for line in text.split("\n")]
    return dict(zip(header, map(np.array, zip(*lines[:-1], strict=True)), strict=True))


FILES = ["in.csv", "in.tsv", "in.csv.gz", "in.TSV.gz", "in.parquet"]


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_and_several_segment_columns(in_tmp, capsys, name):
    pytest.importorskip("pyarrow")
    name = name.replace("TSV", "tsv")
    columns = by_shop_and_year()
    written_as(in_tmp / name, *columns)
    by = "--segment shop --segment year"
    assert run(f"fit {name} --score f --label y {by} --out c.npz --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == 6 and told["status"] == {"CONVERGED": 6}
    assert told["positives"] + told["negatives"] == 2000

    out = name.replace("in", "out")
    assert run(f"apply {name} --calibrator c.npz --score f {by} --out {out} --json") == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 2000, "unseen": 0, "nan": 0, "out": out}
    f, y, shop, year = columns
    segments = np.array(list(zip(shop, year, strict=True)), [("shop", "U2"), ("year", "i8")])
    fitted = platt_jax.fit_segments(f, y, segments, pooling="partial")
    expected = fitted.predict_proba(f, segments)
    found = read_any(in_tmp / out)
    assert list(found) == ["f", "y", "shop", "year", "probability"]
    np.testing.assert_allclose(found["probability"].astype(float), expected, rtol=1e-12)
    assert (found["shop"] == shop).all()


def test_several_files_and_standard_input(in_tmp, capsys, monkeypatch):
    columns = by_shop_and_year()
    for i in range(2):
        written_as(in_tmp / f"part-{i}.csv.gz", *(x[i::2] for x in columns))
    written_as(in_tmp / "in.csv", *columns)
    assert run("fit part-0.csv.gz part-1.csv.gz --score f --label y --out both.npz") == 0
    with open("in.csv") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("fit - --score f --label y --out piped.npz") == 0
    both, piped = platt_jax.load("both.npz"), platt_jax.load("piped.npz")
    np.testing.assert_allclose(both.A, piped.A, rtol=1e-10)
    capsys.readouterr()
    with open("in.csv") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run("fit - --score nope --label y --out c.npz") == 2
    assert "error: standard input: has no column 'nope'" in capsys.readouterr().err


def test_what_is_wrong_with_a_file_of_another_kind(in_tmp, capsys):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = by_shop_and_year(50)
    written_as(in_tmp / "in.parquet", *columns)
    written_as(in_tmp / "in.csv", *columns)
    written_as(in_tmp / "cut.csv.gz", *columns)
    cut = (in_tmp / "cut.csv.gz").read_bytes()[:-20]
    (in_tmp / "cut.csv.gz").write_bytes(cut)
    (in_tmp / "no.csv.gz").write_bytes(cut[:2] + cut[20:])
    (in_tmp / "cut.parquet").write_bytes((in_tmp / "in.parquet").read_bytes()[:-20])
    parquet.write_table(pa.table({"f": ["x", "y"], "y": [0, None]}), "odd.parquet")
    for files, score, message in (
        ("in.csv in.parquet", "f", "in.parquet is a Parquet file, and in.csv is not"),
        ("in.parquet", "g", "in.parquet: has no column 'g', but 'f', 'y', 'shop', 'year'"),
        ("cut.csv.gz", "f", "cut.csv.gz: is a damaged gzip file"),
        ("no.csv.gz", "f", "no.csv.gz: is a damaged gzip file"),
        ("cut.parquet", "f", "cut.parquet: is a damaged Parquet file"),
        ("odd.parquet", "f", "odd.parquet, column 'f': expected numbers, got string"),
    ):
        assert run(f"fit {files} --score {score} --label y --out c.npz") == 2
        out, err = capsys.readouterr()
        assert out == "" and err.startswith(f"platt-jax: error: {message}"), err
        assert not (in_tmp / "c.npz").exists()


@pytest.fixture
def fitted(in_tmp, capsys):
    written_as(in_tmp / "in.csv", *by_shop_and_year())
    assert run("fit in.csv --score f --label y --segment shop --pooling none --out c.npz") == 0
    capsys.readouterr()
    return platt_jax.load("c.npz")


def test_triage_tells_the_worst_and_writes_all(in_tmp, fitted, capsys):
    f, y, shop, year = by_shop_and_year()
    y[shop == "b"] = 1 - y[shop == "b"]
    written_as(in_tmp / "new.csv", f, y, shop, year)
    judge = "triage new.csv --calibrator c.npz --score f --label y --segment shop"
    assert run(judge) == 0
    first, together, header, worst, *_ = capsys.readouterr().out.splitlines()
    assert together.startswith(f"all rows together: {y.sum():,} positives, ")
    assert first.startswith("1 of 3 segments has changed (q at most 0.05): b by level and slope: ")
    assert first.isascii() and len(header) <= 100
    names = header.split()
    assert names.index("ratio") < names.index("q_value") < names.index("intercept")
    assert header.split()[:2] == ["segment", "rows"] and worst.split()[0] == "b"
    assert run(f"{judge} --json --out all.csv --fdr 0.01") == 0
    told = json.loads(capsys.readouterr().out)
    expected = {"segments": 3, "not_tested": 0, "flagged": 1, "fdr": 0.01, "against": "fit"}
    assert told == expected | {"margin": 0.0}
    lines = read_back(in_tmp / "all.csv")
    assert lines[0]["segment"] == "b" and lines[0]["flagged"] == "True"
    assert run(f"{judge} --json --out predictions.csv --against predictions") == 0
    assert json.loads(capsys.readouterr().out)["against"] == "predictions"
    assert run(f"{judge} --json --margin 9 --out wide.csv") == 0
    assert json.loads(capsys.readouterr().out)["margin"] == 9
    lines = read_back(in_tmp / "predictions.csv")
    of_predictions = platt_jax.triage(fitted, f, y, shop, against="predictions")
    for line, p in zip(lines, of_predictions["p_value"], strict=True):
        assert float(line["p_value"]) == p


def test_triage_says_how_to_test_what_was_not_fitted(in_tmp, fitted, capsys):
    f, y, shop, year = by_shop_and_year()
    written_as(in_tmp / "new.csv", f, y, np.where(shop == "b", "new", shop), year)
    judge = "triage new.csv --calibrator c.npz --score f --label y --segment shop"
    assert run(judge) == 0
    out, err = capsys.readouterr()
    assert "1 not tested" in out and "1 of 3 segments not tested, the largest 'new'" in err
    assert err.endswith("--against predictions tests what is predicted for them\n")
    assert run(f"{judge} --against predictions") == 0
    assert "not tested" not in capsys.readouterr().out


def test_triage_says_what_it_does_not_test(in_tmp, fitted, capsys):
    f, y, shop, year = by_shop_and_year()
    f[np.flatnonzero(shop == "b")[0]] = np.nan
    written_as(in_tmp / "new.csv", f, y, shop, year)
    judge = "triage new.csv --calibrator c.npz --score f --label y --segment shop --out all.csv"
    assert run(judge) == 0
    out, err = capsys.readouterr()
    about = "not tested (standard error says why)"
    first = out.splitlines()[0]
    assert first.startswith("No segment has reliably changed: of 2 tested")
    assert first.endswith(f". 1 {about}.")
    assert "1 of 3 segments not tested, the largest 'b'" in err
    assert err.endswith("--non-finite omit tests them without these rows\n")
    assert read_back(in_tmp / "all.csv")[-1]["segment"] == "b"
    assert run(f"{judge} --non-finite omit") == 0
    out, err = capsys.readouterr()
    assert out.startswith("No segment has reliably changed: of 3 tested, the smallest") and not err
    assert run(f"{judge} --non-finite raise") == 2
    assert "expected finite values" in capsys.readouterr().err


def test_report_writes_a_page(in_tmp, fitted, capsys):
    pytest.importorskip("matplotlib")
    words = "report in.csv --calibrator c.npz --score f --label y --segment shop --out c.html"
    assert run(words) == 0
    assert capsys.readouterr().out == "a page of 3 segments and 2,000 rows: c.html\n"
    assert "東京" in (in_tmp / "c.html").read_text(encoding="utf-8")


def test_exports_are_those_of_the_library(in_tmp, fitted, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("sqlglot")
    from platt_jax.export import from_json, to_javascript, to_onnx, to_python, to_sql

    options = {"sql": "--score f --segment s"}
    for to in ("json", "python", "javascript", "onnx", "sql"):
        more = options.get(to, "")
        capsys.readouterr()
        assert run(f"export c.npz --to {to} {more} --out c.{to}") == 0
        assert capsys.readouterr().out == f"saved to c.{to}\n"
    assert (from_json((in_tmp / "c.json").read_text()).fit.A == fitted.fit.A).all()
    assert (in_tmp / "c.python").read_text() == to_python(fitted)
    assert (in_tmp / "c.javascript").read_text() == to_javascript(fitted)
    assert (in_tmp / "c.onnx").read_bytes() == to_onnx(fitted).SerializeToString()
    assert (in_tmp / "c.sql").read_text() == to_sql(fitted, "f", "s").expression + "\n"


@pytest.mark.parametrize("named", ["--view v --rows sales", ""])
def test_an_exported_script_runs_every_night(in_tmp, fitted, named):
    duckdb = pytest.importorskip("duckdb")
    words = f"--score f --segment shop --table curves {named}"
    assert run(f"export c.npz --to sql {words} --out night.sql") == 0
    connection = duckdb.connect()
    connection.execute("CREATE TABLE sales AS SELECT 0.5 AS f, 'a' AS shop")
    script = (in_tmp / "night.sql").read_text()
    for _ in range(2):
        connection.execute(script)
    # Without a view the script ends with the query as a comment.
    query = "".join(line.removeprefix("-- ") for line in script.splitlines()[-1:])
    query = "SELECT * FROM v" if named else query.replace(" FROM rows ", " FROM sales ")
    row = connection.execute(query).fetchnumpy()
    np.testing.assert_allclose(row["probability"], fitted.predict_proba([0.5], ["a"]), rtol=1e-12)


def test_other_curves_and_decisions_are_exported(in_tmp, fitted):
    duckdb = pytest.importorskip("duckdb")
    from platt_jax.export import to_python

    assert run("fit in.csv --score f --label y --segment shop --curve bins --out b.npz") == 0
    assert run("export b.npz --to python --out b.py") == 0
    bins = platt_jax.load("b.npz")
    assert (in_tmp / "b.py").read_text() == to_python(bins)
    words = "--score f --segment shop --table curves --threshold 0.5"
    for of in ("c", "b"):
        assert run(f"export {of}.npz --to sql {words} --out {of}.sql") == 0
    script = (in_tmp / "c.sql").read_text()
    connection = duckdb.connect()
    connection.execute("CREATE TABLE sales AS SELECT 0.5 AS f, 'a' AS shop")
    connection.execute(script)
    query = script.splitlines()[-1].removeprefix("-- ").replace(" FROM rows ", " FROM sales ")
    row = connection.execute(query).fetchnumpy()
    assert row["accepted"].tolist() == [fitted.predict_proba([0.5], ["a"])[0] >= 0.5]


def test_decisions_in_json_and_onnx(in_tmp, fitted):
    onnx = pytest.importorskip("onnx")
    from platt_jax.export import to_json

    assert run("export c.npz --to json --threshold 0.6 --out c.json") == 0
    assert (in_tmp / "c.json").read_text() == to_json(fitted, threshold=0.6) + "\n"
    assert run("export c.npz --to onnx --threshold 0.6 --out c.onnx") == 0
    assert [x.name for x in onnx.load("c.onnx").graph.output][2:] == ["accepted"]


def test_onnx_of_float32(in_tmp, fitted):
    onnx = pytest.importorskip("onnx")
    assert run("export c.npz --to onnx --dtype float32 --out c.onnx") == 0
    score, _ = onnx.load("c.onnx").graph.input
    assert score.type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_a_shift_is_that_of_the_library(in_tmp, fitted, capsys):
    rates = "--from-rate 0.5 --to-rate 0.01"
    assert run(f"shift c.npz {rates} --out shifted.npz") == 0
    assert capsys.readouterr().out == "from a rate of 0.5 to 0.01\nsaved to shifted.npz\n"
    assert platt_jax.load("shifted.npz") == fitted.shift_prior(from_rate=0.5, to_rate=0.01)
    assert run(f"shift c.npz {rates} --json --out shifted.npz") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"from_rate": 0.5, "to_rate": 0.01, "out": "shifted.npz"}


def test_thresholds_are_those_of_the_library(in_tmp, fitted, capsys):
    assert run("threshold c.npz --probability 0.6 --out t.csv") == 0
    assert capsys.readouterr().out.endswith("\nsaved to t.csv\n")
    head, *lines = (in_tmp / "t.csv").read_text().splitlines()
    assert head == "shop,threshold,lower,upper,direction,status".replace("shop", "segment")
    expected = fitted.threshold_table(0.6)
    assert [line.split(",")[0] for line in lines] == expected["segment"].tolist()
    found = [float(line.split(",")[1]) for line in lines]
    np.testing.assert_allclose(found, expected["threshold"], rtol=1e-12)
    assert run("threshold c.npz --cost 2 3 --level 0.5 --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told.pop("status").values()) == told.pop("segments") == len(fitted)
    assert told == {"probability": None, "level": 0.5, "cost": [2.0, 3.0], "out": None}
    assert run("threshold c.npz --probability 0.6") == 0
    assert f"{len(fitted)} segments: " in capsys.readouterr().out
    for wrong in ("--probability 2", "--cost 0 1", "--probability 0.5 --level 1"):
        assert run(f"threshold c.npz {wrong}") == 2
        option = wrong.split()[-2 if "level" in wrong else 0]
        assert f"{option}: expected" in capsys.readouterr().err


@pytest.mark.slow
def test_a_carriage_return_in_a_field_stays_there(in_tmp, fitted):
    """Without quotes it would end the record, in the rows that are copied and in a table."""
    rows = [["f", "y", "shop"], *(["0.5", "1", shop] for shop in ("a", "a\rb", 'say "a"', "\r"))]
    with open("new.csv", "w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    assert run("apply new.csv --calibrator c.npz --score f --segment shop --out p.csv") == 0
    judge = "triage new.csv --calibrator c.npz --score f --label y --segment shop --out t.csv"
    assert run(f"{judge} --against predictions") == 0
    for name, column in (("p.csv", 2), ("t.csv", 0)):
        with open(name, newline="") as file:
            found = [row[column] for row in csv.reader(file)][1:]
        assert sorted(found) == sorted(row[2] for row in rows[1:])


def test_pooling_is_that_of_the_library(in_tmp, fitted):
    words = "fit in.csv --score f --label y --segment shop --out p.npz --pooling partial"
    assert run(words) == 0
    assert platt_jax.load("p.npz").population is not None


@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_levels_of_several_columns(in_tmp, fitted, capsys, pooling):
    words = f"--score f --label y --segment shop --segment year --out p.npz --pooling {pooling}"
    assert run(f"fit in.csv {words}") == 0
    found = platt_jax.load("p.npz")
    assert found.pooling == pooling
    out = capsys.readouterr().out
    second = "shop > year" if pooling == "nested" else "year"
    assert "  level shop: 3 values, " in out and f"  level {second}: " in out
    write(in_tmp / "new.csv", "f,shop,year\n0.5,a,1900\n0.5,zz,1900\n")
    words = "--calibrator p.npz --score f --segment shop --segment year --out q.csv"
    assert run(f"apply new.csv {words}") == 0
    told = "of these 2 in segments that were not fitted: predicted by what is known of their levels"
    assert told in capsys.readouterr().out
    _, *lines = (in_tmp / "q.csv").read_text().splitlines()
    expected = found.predict_proba([0.5, 0.5], [("a", "1900"), ("zz", "1900")])
    np.testing.assert_allclose([float(line.split(",")[-1]) for line in lines], expected)
    assert run("fit in.csv --score f --label y --segment shop --out o.npz --pooling nested") == 2
    assert 'several columns with pooling="nested", got one column' in capsys.readouterr().err


@pytest.mark.parametrize("pooling", ["nested", "crossed"])
def test_rows_of_known_levels_are_predicted_and_of_none_refused(in_tmp, capsys, pooling):
    f, y, shop, year = by_shop_and_year()
    ids = np.rec.fromarrays([shop, year.astype(str)], names=["shop", "year"])
    platt_jax.save("p.npz", platt_jax.fit_segments(f, y, ids, pooling=pooling))
    apply = "apply new.csv --calibrator p.npz --score f --segment shop --segment year --out q.csv"
    write(in_tmp / "new.csv", "f,shop,year\n0.5,zz,1900\n0.5,b,1900\n")
    assert run(apply) == 0
    # The year alone says something only where levels are crossed.
    write(in_tmp / "new.csv", f"f,shop,year\n0.5,zz,{year[0]}\n")
    assert run(apply) == {"nested": 2, "crossed": 0}[pooling]
    write(in_tmp / "new.csv", "f,shop,year\n0.5,zz,1900\n0.5,yy,1900\n")
    assert run(apply) == 2
    assert "none of the 2 rows is in a segment that was fitted" in capsys.readouterr().err


def test_rows_of_no_known_segment_in_a_parquet_file(in_tmp, fitted, capsys):
    written_as(in_tmp / "in.parquet", *by_shop_and_year())
    apply = "apply in.parquet --calibrator c.npz --score f --out q.csv --segment"
    assert run(f"{apply} shop") == 0
    (in_tmp / "q.csv").unlink()
    assert run(f"{apply} y") == 2
    assert "--segment" in capsys.readouterr().err or not (in_tmp / "q.csv").exists()
    f, y, shop, year = by_shop_and_year()
    written_as(in_tmp / "in.parquet", f, y, np.char.add(shop, "?"), year)
    assert run(f"{apply} shop") == 2
    assert "none of the 2,000 rows is in a segment" in capsys.readouterr().err
    assert not (in_tmp / "q.csv").exists()


def test_completion_knows_the_commands(capsys):
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as ended:
        run("--print-completion bash")
    assert ended.value.code == 0
    script = capsys.readouterr().out
    assert all(word in script for word in ("fit", "triage", "--calibrator", "--delimiter"))


def test_a_population_that_did_not_converge_is_a_failure(rng):
    rows = rng.normal(size=400), rng.random(400) < 0.5, np.arange(400) % 10
    calibrator = platt_jax.fit_segments(*rows, pooling="partial")
    assert summaries.status(calibrator) == 0
    lost = replace(calibrator.population, status=platt_jax.Status.MAX_ITERATIONS)
    failed = replace(calibrator, population=lost)
    assert summaries.status(failed) == 3
    assert summaries.status(platt_jax.OneVsRestCalibrator(failed.keys, failed)) == 3
