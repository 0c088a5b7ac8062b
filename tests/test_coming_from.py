"""The pages for users of other packages: run, beside the other package where it is installed."""

import re
import shutil
import subprocess
import warnings

import numpy as np
import pytest
from test_docs import DOCS, EXAMPLE

from platt_jax import metrics

# The page, and the package that some of its examples import.
PAGES = {"scikit_learn": "sklearn", "netcal": "netcal", "mcgrad": "mcgrad", "probably": None}
MOST_LINES = 100
GLM = """
d <- read.csv("rows.csv")
fits <- list(glm(y ~ p, data = d, family = "binomial"))
for (shop in 0:3) fits <- c(fits, list(glm(y ~ p, data = d[d$shop == shop, ], family = "binomial")))
for (fit in fits) cat(sprintf("%.15g", coef(fit)), "\\n")
for (correct in c(FALSE, TRUE))
    cat(sprintf("%.15g", prop.test(30, 100, conf.level = .9, correct = correct)$conf.int), "\\n")
"""


def examples(page):
    return EXAMPLE.findall((DOCS / "coming_from" / f"{page}.md").read_text(encoding="utf-8"))


def run(page, blocks):
    """The names that the blocks leave."""
    names = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def imports(block, package):
    return package is not None and re.search(rf"^(from|import) {package}\b", block, re.M)


def test_every_page_is_short_listed_and_run():
    files = {x.stem: x for x in DOCS.glob("coming_from/*.md")}
    index = files.pop("index").read_text(encoding="utf-8")
    assert files.keys() == PAGES.keys()
    for page, file in files.items():
        assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
        assert f"({page}.md)" in index and f"\n{page}\n" in index


@pytest.mark.slow
@pytest.mark.parametrize("page", ["netcal", "mcgrad", "probably"])
def test_what_is_done_here_runs_without_the_other_package(page):
    blocks = [x for x in examples(page) if not imports(x, PAGES[page])]
    assert blocks
    run(page, blocks)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["scikit_learn", "netcal", "mcgrad"])
def test_the_two_packages_agree_as_the_page_says(page):
    # A folder of the tests has scikit-learn's name.
    pytest.importorskip({"sklearn": "sklearn.base"}.get(PAGES[page], PAGES[page]))
    blocks = examples(page)
    assert any(imports(x, PAGES[page]) and "assert" in x for x in blocks)
    with warnings.catch_warnings():  # those of the other package
        warnings.simplefilter("ignore")
        run(page, blocks)


@pytest.fixture(scope="module")
def probably():
    return run("probably", examples("probably"))


def wilson(positives, total):
    labels = np.arange(total) < positives
    curve = metrics.reliability_curve(labels, np.full(total, 0.3), n_bins=1, level=0.9)
    return curve.lower[0], curve.upper[0]


@pytest.mark.slow
def test_the_numbers_that_R_gave_without_probably_are_those_of_platt_jax(probably):
    """Those of its table; R need not be installed."""
    page = (DOCS / "coming_from" / "probably.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"\| .*?(slope|intercept) \| (-?4[\d.]+|7[\d.]+) \|", page))
    sigmoid = probably["fit"].sigmoid
    np.testing.assert_allclose(float(rows["slope"]), sigmoid.slope, rtol=1e-8)
    np.testing.assert_allclose(float(rows["intercept"]), sigmoid.intercept, rtol=1e-8)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_glm_and_prop_test_that_probably_calls_beside_platt_jax(probably, tmp_path):
    rows = np.column_stack([probably[name] for name in ("p", "y", "shops")])
    header = {"header": "p,y,shop", "comments": "", "delimiter": ",", "fmt": "%.17g"}
    np.savetxt(tmp_path / "rows.csv", rows, **header)
    command = ["Rscript", "-e", GLM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = np.array([line.split() for line in done.stdout.splitlines()], float)
    one, each = probably["fit"], probably["by_shop"].fit
    ours = -np.column_stack([np.append(one.B, each.B), np.append(one.A, each.A)])
    np.testing.assert_allclose(found[:5], ours, rtol=1e-7)
    np.testing.assert_allclose(found[5], wilson(30, 100), rtol=1e-9)
    assert found[6, 0] < found[5, 0] and found[6, 1] > found[5, 1]
