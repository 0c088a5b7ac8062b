"""`platt-jax fit --covariate`: columns that have one value for all rows of a segment."""

import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax.cli import main


@pytest.fixture(params=["rows.csv", "rows.parquet"])
def shops(request, tmp_path, monkeypatch):
    """60 shops, whose size moves their curves, and the name of their file."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    size = rng.normal(size=60).round(3)
    shop = np.repeat(np.arange(60), np.maximum(3, 20 * np.exp(size)).astype(int))
    f = rng.normal(size=len(shop)).round(4)
    columns = {
        "f": f,
        "y": labels_of(rng, 1.5 * f - size[shop]).astype(int),
        "shop": [f"s{i}" for i in shop],
        "size": size[shop],
        "kind": np.where(size > 0, "own", "franchise")[shop],
    }
    write = csv.write_csv if request.param.endswith("csv") else parquet.write_table
    write(pa.table(columns), request.param)
    return request.param, {name: np.asarray(x) for name, x in columns.items()}


def run(words):
    return main(f"fit {words} --score f --label y --segment shop --out c.npz".split())


def test_they_are_those_of_the_library(shops):
    name, x = shops
    assert run(f"{name} --covariate size --covariate kind") == 0
    keys, first = np.unique(x["shop"], return_index=True)
    table = {"segment": keys, "size": x["size"][first], "kind": x["kind"][first]}
    rows = x["f"], x["y"], x["shop"]
    assert pj.load("c.npz") == pj.fit_segments(*rows, pooling="partial", covariates=table)
    assert run(f"{name} --covariate-rows") == 0
    assert pj.load("c.npz") == pj.fit_segments(*rows, pooling="partial", covariates="rows")


def test_the_warning_names_the_option(shops, capsys, recwarn):
    assert run(shops[0]) == 0
    told = " ".join([capsys.readouterr().err, *(str(x.message) for x in recwarn)])
    assert "--covariate-rows models that" in told


@pytest.mark.parametrize(
    "words, told",
    [
        ("--covariate f", "expected one value for all rows of a segment, got several for 's"),
        ("--covariate size --pooling none", "--covariate: expected only with --segment and"),
        ("--covariate size --curve beta", "--covariate: expected only with --segment and"),
        ("--covariate size --covariate size", "expected another name than 'size'"),
        ("--covariate size --covariate-rows", "not allowed with"),
        ("--covariate nothing", "has no column 'nothing'"),
    ],
)
def test_refused(shops, capsys, words, told):
    try:
        status = run(f"{shops[0]} {words}")
    except SystemExit as error:
        status = error.code
    assert status == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "values, categories",
    [(["1_0", "1_1"], ("1_0", "1_1")), (["01234", "1234"], ("01234", "1234")), (["1e0", "2"], ())],
)
def test_texts_that_python_would_read_as_equal_numbers_are_categories(
    values, categories, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    _write(values)
    assert run("rows.csv --covariate kind") == 0
    (column,) = pj.load("c.npz").population.covariates.columns
    assert column.categories == categories


@pytest.mark.parametrize(
    "values, told",
    [
        (["own", ""], "--covariate: expected a category in each row, got ''"),
        (["1", ""], "column 'kind': expected finite numbers below 1e100, got nan for segment 's1'"),
    ],
)
def test_what_is_missing_is_no_category(values, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _write(values)
    assert run("rows.csv --covariate kind") == 2
    assert told in capsys.readouterr().err


def _write(kinds):
    """rows.csv, with the kinds in turn."""
    rng = np.random.default_rng(0)
    lines = ["f,y,shop,kind"]
    for i in range(600):
        shop = i % 30
        lines.append(f"{rng.normal():.3f},{i // 30 % 2},s{shop},{kinds[shop % 2]}")
    with open("rows.csv", "w") as file:
        file.write("\n".join(lines))
