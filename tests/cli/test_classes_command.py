"""The commands with columns of scores, one for each class."""

import csv
import json

import numpy as np
import pytest
from test_cli import as_csv, read_back, run, write

import platt_jax as pj

pytestmark = pytest.mark.filterwarnings("default")

CLASSES = ["dog", "cat", "bird"]
ROWS = "--scores dog cat bird --label animal"


def animals(seed, rows=900):
    """Scores (N, 3) of classes and the class of each row."""
    rng = np.random.default_rng(seed)
    scores, place = rng.normal(size=(rows, 3)), rng.integers(0, 3, rows)
    scores[np.arange(rows), place] += 2 if seed == 0 else -0.5
    return scores, np.array(CLASSES)[place]


def written(path, scores, labels, names=("dog", "cat", "bird", "animal"), **more):
    """The rows as a file of the kind that its name tells."""
    columns = dict(zip(names, [*scores.T, labels], strict=True)) | more
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pa.table(columns), path)
    else:
        as_csv(path, list(columns), *columns.values())


def columns_of(path):
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return {k: np.array(v) for k, v in parquet.read_table(path).to_pydict().items()}
    lines = read_back(path)
    return {name: np.array([line[name] for line in lines]) for name in lines[0]}


@pytest.fixture
def fitted(in_tmp, capsys):
    """The calibrator in c.npz, beside rows.csv that it is fitted on and new.csv."""
    written(in_tmp / "rows.csv", *animals(0))
    written(in_tmp / "new.csv", *animals(1))
    assert run(f"fit rows.csv {ROWS} --out c.npz") == 0
    capsys.readouterr()
    return pj.load("c.npz")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_fit_and_apply_are_those_of_the_library(in_tmp, capsys, kind):
    (scores, labels), weights = animals(0), np.arange(900) % 3
    written(in_tmp / f"in.{kind}", scores, labels, weight=weights)
    assert run(f"fit in.{kind} {ROWS} --weight weight --out c.npz --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == 3 and told["positives"] == weights.sum()
    expected = pj.fit_one_vs_rest(scores, labels, classes=CLASSES, weights=weights)
    assert pj.load("c.npz") == expected

    # A file may have the columns in any order; probabilities are in the order of the classes.
    apply = f"apply in.{kind} --calibrator c.npz --scores bird dog cat --out out.{kind}"
    assert run(f"{apply} --name p") == 0
    assert capsys.readouterr().out == f"900 rows written to out.{kind}\n"
    found = columns_of(in_tmp / f"out.{kind}")
    new = ["p_dog", "p_cat", "p_bird"]
    assert list(found) == ["dog", "cat", "bird", "animal", "weight", *new]
    proba = np.stack([found[name].astype(float) for name in new], axis=1)
    np.testing.assert_allclose(proba, expected.predict_proba(scores), rtol=1e-12)
    assert (found["animal"] == labels).all()


@pytest.mark.slow
def test_classes_of_columns_with_other_names(in_tmp, fitted):
    """Of the library's classes too, which may be numbers."""
    scores, labels = animals(0)
    names = ["f0", "f1", "f2", "animal"]
    written(in_tmp / "other.csv", scores, labels, names)
    by = "--scores f1 f0 f2 --classes cat dog bird"
    assert run(f"fit other.csv {by} --label animal --out other.npz") == 0
    other = pj.load("other.npz")
    assert other.classes.tolist() == ["cat", "dog", "bird"]
    assert (other["dog"].A, other["cat"].A) == (fitted["dog"].A, fitted["cat"].A)

    numbers = np.array([CLASSES.index(x) for x in labels])
    pj.save("numbers.npz", pj.fit_one_vs_rest(scores, numbers))
    for kind in ("csv", "parquet"):
        file = f"numbers.{kind}"
        written(in_tmp / file, scores, numbers, names)
        assert run(f"apply {file} --calibrator c.npz {by} --out out.{kind}") == 0
        found = columns_of(in_tmp / f"out.{kind}")["probability_cat"].astype(float)
        np.testing.assert_allclose(found, fitted.predict_proba(scores)[:, 1], rtol=1e-12)
        by_number = "--scores f2 f1 f0 --classes 2 1 0 --label animal"
        assert run(f"triage {file} --calibrator numbers.npz {by_number} --out t.csv") == 0
        table = pj.triage(pj.load("numbers.npz"), scores, numbers)
        found = {line["class"]: float(line["p_value"]) for line in read_back(in_tmp / "t.csv")}
        assert found == dict(zip(map(str, table["class"]), table["p_value"], strict=True))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_rows_of_several_classes(in_tmp, capsys, kind):
    scores, _ = animals(0)
    labels = scores + np.random.default_rng(2).normal(size=scores.shape) > 0
    more = {f"is_{x}": column.astype(int) for x, column in zip(CLASSES, labels.T, strict=True)}
    written(in_tmp / f"in.{kind}", scores, labels[:, 0], **more)
    by = "--scores dog cat bird --labels is_dog is_cat is_bird"
    assert run(f"fit in.{kind} {by} --out c.npz") == 0
    expected = pj.fit_one_vs_rest(scores, labels, classes=CLASSES)
    assert pj.load("c.npz") == expected and expected.multilabel
    capsys.readouterr()
    by = "--scores cat dog bird --labels is_cat is_dog is_bird"
    assert run(f"triage in.{kind} --calibrator c.npz {by} --out t.csv") == 0
    found = [float(line["p_value"]) for line in read_back(in_tmp / "t.csv")]
    assert found == pj.triage(expected, scores, labels)["p_value"].tolist()


@pytest.mark.slow
def test_commands_of_fresh_rows_are_those_of_the_library(in_tmp, fitted, capsys):
    scores, labels = animals(1)
    table = pj.triage(fitted, scores, labels)
    first = f"triage new.csv --calibrator c.npz {ROWS}"
    assert run(first) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 of 3 classes have changed (q at most 0.05): ")
    assert run(f"{first} --json --out t.csv") == 0
    assert json.loads(capsys.readouterr().out)["classes"] == 3
    with open("t.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["class"] for line in lines] == table["class"].tolist()
    assert [float(line["p_value"]) for line in lines] == table["p_value"].tolist()

    monitor = f"monitor state.npz new.csv --calibrator c.npz {ROWS}"
    assert run(monitor) == 5
    expected = pj.Monitor.start(fitted).update(scores, labels)
    assert "for 3 of 3 classes" in capsys.readouterr().out
    assert repr(pj.Monitor.load("state.npz", fitted)) == repr(expected)
    assert run(f"{monitor} --restart dog --json") == 5
    assert json.loads(capsys.readouterr().out)["classes"] == 3

    update = f"update new.csv --calibrator c.npz {ROWS} --night 2 --out updated.npz"
    assert run(update) == 0
    assert pj.load("updated.npz") == pj.update(fitted, scores, labels, night="2")


def test_a_report_has_the_classes(in_tmp, fitted, capsys):
    pytest.importorskip("matplotlib")
    assert run(f"report new.csv --calibrator c.npz {ROWS} --out c.html") == 0
    assert capsys.readouterr().out == "a page of 3 classes and 900 rows: c.html\n"
    assert "bird" in (in_tmp / "c.html").read_text(encoding="utf-8")


def test_pooled_classes_and_probabilities_as_scores(in_tmp, fitted, capsys):
    scores, labels = animals(0)
    proba = 1 / (1 + np.exp(-scores))
    written(in_tmp / "p.csv", proba, labels)
    assert run(f"fit p.csv {ROWS} --logit --pooling complete --out p.npz") == 0
    expected = pj.fit_one_vs_rest(pj.logit(proba), labels, classes=CLASSES, pooling="complete")
    assert pj.load("p.npz") == expected
    proba[1, 2] = 3
    written(in_tmp / "p.csv", proba, labels)
    assert run(f"fit p.csv {ROWS} --logit --out p.npz") == 2
    assert "error: --logit: --scores: probabilities: expected" in capsys.readouterr().err


def test_missing_scores(in_tmp, fitted, capsys):
    scores, labels = animals(1)
    scores[3, 1] = np.nan
    written(in_tmp / "new.csv", scores, labels)
    assert run(f"fit new.csv {ROWS} --out bad.npz") == 3
    err = capsys.readouterr().err
    assert err.startswith("platt-jax: 1 of 3 fits failed, the first in class 'cat': NON_FINITE")
    apply = "apply new.csv --scores dog cat bird --out out.csv --calibrator"
    assert run(f"{apply} c.npz --json") == 0
    assert json.loads(capsys.readouterr().out)["nan"] == 1
    assert run(f"{apply} bad.npz") == 0
    assert (
        "of these 900 with probability nan: the score is missing or not finite, or a class has "
        "no curve" in capsys.readouterr().out
    )


def test_a_header_without_rows(in_tmp, fitted, capsys):
    write(in_tmp / "none.csv", "dog,cat,bird,animal\n")
    assert run("apply none.csv --calibrator c.npz --scores dog cat bird --out out.csv") == 0
    header = "dog,cat,bird,animal,probability_dog,probability_cat,probability_bird\n"
    assert (in_tmp / "out.csv").read_text() == header
    assert run(f"update none.csv --calibrator c.npz {ROWS} --out same.npz") == 0
    assert pj.load("same.npz") == fitted
    assert run(f"triage none.csv --calibrator c.npz {ROWS} --json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["classes"] == 0


FIT = "fit rows.csv --out x.npz"
TRIAGE = "triage rows.csv --calibrator"
REFUSED = {
    f"{FIT} --scores dog cat --label animal": "labels: 'bird' is not among the classes (see "
    "--scores, --classes)",
    f"{FIT} --scores dog cat cow --label animal": "rows.csv: has no column 'cow', but",
    f"{FIT} --scores dog dog --label animal": "classes: expected 2 distinct ids, one per column",
    f"{FIT} --scores dog --label animal": "--scores: expected several columns; for one see --score",
    f"{FIT} --scores dog cat --label animal --classes dog": "--classes: expected one for each of 2",
    f"{FIT} --scores dog cat --labels dog cat bird": "--labels: expected one for each of 2 columns",
    f"{FIT} --score dog --label animal --classes dog": "--classes: expected only with --scores",
    f"{FIT} --score dog --labels cat": "--labels: expected only with --scores",
    f"{FIT} {ROWS} --segment animal": "--segment: expected with --score, got --scores",
    f"{FIT} {ROWS} --offset dog": "--offset: expected with --score, got --scores",
    f"{FIT} {ROWS} --pos-label dog": "--pos-label: expected with --score, got --scores",
    f"{FIT} {ROWS} --distributed": "--distributed: expected with --score, got --scores",
    f"{FIT} {ROWS} --pooling nested": "pooling: expected one of",
    f"{FIT} --score dog --label cat --pooling none": "--pooling: expected only with --segment or",
    f"{TRIAGE} c.npz --score dog --label animal": "c.npz has one curve per class: name the "
    "columns of scores of 'dog', 'cat', 'bird' by --scores",
    f"{TRIAGE} c.npz --scores dog cat --label animal": "--scores: expected columns of the classes "
    "'dog', 'cat', 'bird', got 'dog', 'cat': see --classes",
    f"{TRIAGE} one.npz {ROWS}": "one.npz has no classes: name its one column of scores by --score",
    f"{TRIAGE} one.npz --score dog --label cat": "one.npz has one sigmoid for all rows: triage, "
    "report and update need one that was fitted with --segment or --scores",
    f"{TRIAGE} numbers.npz {ROWS} --classes 0 1 2": "column 'animal': expected classes of "
    "numbers.npz, which are numbers: invalid literal",
    "shift c.npz --from-rate 0.5 --to-rate 0.1 --out x.npz": "c.npz has one curve per class",
    "export c.npz --to python --out x.npz": "--to python: c.npz has one curve per class, which "
    "--to json writes; platt-jax apply computes probabilities of classes",
    "export c.npz --to onnx --out x.npz": "--to onnx: c.npz has one curve per class",
    "export c.npz --to sql --score dog --out x.npz": "--to sql: c.npz has one curve per class",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused(in_tmp, fitted, capsys, command):
    scores, _ = animals(0)
    pj.save("one.npz", pj.Sigmoid(-1.0, 0.0))
    pj.save("numbers.npz", pj.fit_one_vs_rest(scores, np.arange(900) % 3))
    assert run(command) == 2
    err = capsys.readouterr().err
    assert err.startswith("platt-jax: error: " + REFUSED[command]) and err.count("\n") == 1, err
    assert not (in_tmp / "x.npz").exists()


@pytest.mark.parametrize("more", ["--score dog --scores cat bird", ""])
def test_one_kind_of_scores_is_named(in_tmp, capsys, more):
    with pytest.raises(SystemExit) as ended:
        run(f"{FIT} --label animal {more}")
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert ("not allowed with argument" if more else "one of the arguments --score --scores") in err


def test_json_has_the_classes(in_tmp, fitted):
    assert run("export c.npz --to json --out c.json") == 0
    assert pj.export.from_json((in_tmp / "c.json").read_text()) == fitted


@pytest.mark.parametrize("label", ["", None])
def test_a_row_without_a_class_is_refused(in_tmp, capsys, label):
    scores, labels = animals(0, 50)
    file = in_tmp / ("in.csv" if label == "" else "in.parquet")
    written(file, scores, np.array([*labels[:-1], label], object))
    assert run(f"fit {file.name} {ROWS} --out c.npz") == 2
    said = "'' is not among the classes" if label == "" else "expected ids, got None at row 49"
    assert f"error: labels: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["numbers", "categories"])
def test_classes_of_a_parquet_file_are_text(in_tmp, kind):
    pa = pytest.importorskip("pyarrow")
    scores, labels = animals(0)
    numbers = np.array([CLASSES.index(x) for x in labels])
    categories = pa.array(numbers.astype(str)).dictionary_encode()
    written(in_tmp / "in.parquet", scores, categories if kind == "categories" else numbers)
    by = "--scores dog cat bird --classes 0 1 2 --label animal"
    assert run(f"fit in.parquet {by} --out c.npz") == 0
    words = numbers.astype(str)
    assert pj.load("c.npz") == pj.fit_one_vs_rest(scores, words, classes=["0", "1", "2"])
