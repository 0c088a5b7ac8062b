"""The results that are committed, and every figure that is quoted from them."""

import ast
import json
import math
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from make_oracle import DIGITS

from platt_jax.cli.demo import fitted_on, load_flights

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def machine():
    from benchmarks import machine

    return machine


def read(path):
    return json.loads((RESULTS / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_results_carry_the_commit_that_they_were_measured_at(path):
    about = read(path)["machine"]
    assert len(about["commit"]) == 40 and int(about["commit"], 16)
    assert about["uncommitted_changes"] in (False, None)  # None: not known


def test_uncommitted_changes_of_the_code_are_seen(machine, monkeypatch, tmp_path):
    """Of the code: another command's results are not."""
    for folder in ("platt_jax", "benchmarks/results", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "benchmarks" / "machine.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert machine.commit() == {"commit": None, "uncommitted_changes": None}

    def git(*command):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    for code in (tmp_path / "platt_jax" / "a.py", tmp_path / "benchmarks" / "a.py"):
        code.write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    for other in ("benchmarks/results/a.json", "tests/a.py"):
        (tmp_path / other).write_text("{}")
    found = machine.commit()
    assert len(found["commit"]) == 40
    assert found["uncommitted_changes"] is False
    for code in (tmp_path / "platt_jax" / "a.py", tmp_path / "benchmarks" / "a.py"):
        code.write_text("2")
        assert machine.commit()["uncommitted_changes"] is True
        code.write_text("1")


@pytest.fixture
def papers():
    """The modules that render each paper's report."""
    for module in ("matplotlib", "scipy", "sklearn"):
        pytest.importorskip(module)
    from benchmarks.papers import lin2007, platt_report, report, rueping_report

    return SimpleNamespace(
        lin2007=lin2007, platt1999=platt_report, rueping2004=rueping_report, report=report
    )


@pytest.mark.parametrize("name", ["lin2007", "platt1999", "rueping2004"])
def test_a_report_is_what_its_results_say(papers, name):
    render = getattr(papers, name).render
    expected = papers.report.document(name, read(f"papers/{name}.json"), render)
    assert (RESULTS / "papers" / f"{name}.md").read_text(encoding="utf-8") == expected


def of_lin(module):
    outcomes = module.read(read("papers/lin2007.json")["results"])
    lm, newton, dynamic, default = (
        {key: of[algorithm] for key, of in outcomes.items()}
        for algorithm in (
            "LM, bug fixed",
            "Newton, fixed sigma",
            "Newton, dynamic sigma",
            "platt_jax's defaults",
        )
    )
    cv, train = ("shuttle", "cv"), ("shuttle", "train")

    def above(of, other, share):
        return int(np.sum(of.loss > other.loss * (1 + share)))

    def iterations(of, key):
        return f"{of[key].iterations.mean():.2f}"

    def backtracks(of, key):
        return f"{of[key].backtracks.sum() / of[key].iterations.sum():.2f}"

    never_above = sum(
        len(lm[key].loss)
        for key in (cv, train)
        if not above(newton[key], lm[key], 1e-6) and not above(dynamic[key], lm[key], 1e-6)
    )
    yield f"on every one of the {never_above} problems, with either sigma"
    yield (
        f"LM's is higher on {above(lm[cv], newton[cv], 1e-6)} (held-out scores) and "
        f"{above(lm[train], newton[train], 1e-6)} (training scores) of {len(lm[cv].loss)}, by more "
        f"than 1 % on {above(lm[cv], newton[cv], 0.01)} and {above(lm[train], newton[train], 0.01)}"
    )
    assert all(of.converged.all() for of in lm.values()), "LM does not notice"
    yield (
        f"LM met {lm[cv].overflows.sum()} and {lm[train].overflows.sum()} overflows there, each on "
        f"{same(np.sum(lm[cv].overflows > 0), np.sum(lm[train].overflows > 0))} problems"
    )
    assert min(lm[key].log_zeros.mean() for key in (cv, train)) > 200, "hundreds of logs of 0"
    yield (
        f"It needs more iterations, {iterations(lm, cv)} and {iterations(lm, train)} against "
        f"Newton's {iterations(newton, cv)} and {iterations(newton, train)}."
    )
    sonar = [key for key in outcomes if key[0] == "sonar"]
    assert sum(lm[key].overflows.sum() for key in sonar) == 0, "no overflow on sonar"
    most = max(np.max(lm[key].loss / newton[key].loss - 1) for key in sonar)
    yield f"no overflow, no loss more than {math.ceil(1e4 * most) / 100:.2f} % above the best"
    both = [same(backtracks(newton, key), backtracks(dynamic, key)) for key in (cv, train)]
    yield f"({both[0]} and {both[1]} backtracks per iteration)"
    yield (
        f"platt_jax's own defaults reach the same losses in {iterations(default, sonar[0])} and "
        f"{iterations(default, sonar[1])} iterations on sonar and in {iterations(default, cv)} and "
        f"{iterations(default, train)} on shuttle."
    )


def of_rueping(module):
    results = module.read(read("papers/rueping2004.json")["results"])
    ranks = {key: of.mean(axis=1) for key, of in module.all_ranks(results).items()}
    at = module.METHODS.index

    def rank(measure, kernel, *names):
        return [f"{ranks[measure, kernel][module.RANKED.index(name)]:.2f}" for name in names]

    def his(measure, kernel, *names):
        of = module.printed(measure, kernel)
        return [f"{of[module.RANKED.index(name)]:.2f}" for name in names]

    def worse(row, column):
        return module.worse(results.mcre_of_folds[at(row), 1], results.mcre_of_folds[at(column), 1])

    def of_beta(values):
        return "{:.4f} and {:.4f}".format(*values)

    of_name = dict(zip(results.names, range(len(results.names)), strict=True))
    sets, folds = results.mcre_of_folds.shape[2:]
    yield f"mushroom ({results.rows[of_name['mushroom']]:,} of 8,124, drawn at random)"
    yield f"trained in {folds} folds"
    yield f"fitted to {sets * folds} folds"
    top = ("Platt", "Beta-2", "PP")
    yield (
        "(average ranks {}, {} and {}; his {}, {} and {})".format(
            *rank("MSE", "linear", *top), *his("MSE", "linear", *top)
        )
    )
    yield (
        "by cross-entropy ({}, {} and {}; his {}, {} and {})".format(
            *rank("mCRE", "linear", *top), *his("mCRE", "linear", *top)
        )
    )
    for measure in ("MSE", "mCRE"):
        best = [module.RANKED[m] for m in ranks[measure, "RBF"].argsort()[:2]]
        assert best == ["Platt", "Beta-2"], "with the RBF kernel Platt is best and Beta-2 second"
    for (measure, kernel), of in ranks.items():
        last = {module.RANKED[m] for m in of.argsort()[-3:]}
        bins = "Bin-10" if (measure, kernel) == ("MSE", "linear") else "Bin-50"
        assert last == {"01", "Softmax", bins}, "the worst three; 10 bins behind 50 by MSE, linear"
    others = ("PP", "Bin-10", "Softmax")
    yield (
        "PP, 10 bins and Softmax are significantly worse than Platt on {}, {} and {} of the seven "
        "sets; his counts are 5, 3 and 9 of eleven."
    ).format(*(worse(name, "Platt") for name in others))
    yield (
        "10 bins are ahead of PP ({} against {} by MSE, {} against {} by cross-entropy)".format(
            *rank("MSE", "RBF", "Bin-10", "PP"), *rank("mCRE", "RBF", "Bin-10", "PP")
        )
    )
    yield "({} against {})".format(*his("mCRE", "RBF", "Bin-10", "PP"))
    yield "by far, with an MSE of 0.5966 and 0.6009"
    yield f"as good as the best, {of_beta(results.mse[at('Beta')].mean(axis=1))}."
    yield f"ours would have {of_beta(results.beta_of_predicted.mean(axis=1))}, read"
    yield f"of class 0 {of_beta(results.beta_turned.mean(axis=1))}."
    yield "Here it ranks {} by MSE".format(*rank("MSE", "RBF", "KLR"))
    yield "and {} by cross-entropy, behind Platt and Beta-2".format(*rank("mCRE", "RBF", "KLR"))
    one = of_name["promoters"]
    klr, platt = (results.mse[at(name), 1] for name in ("KLR", "Platt"))
    assert klr.mean() > platt.mean(), "on average KLR falls behind Platt"
    assert np.delete(klr, one).mean() < np.delete(platt, one).mean(), "by promoters alone"
    yield f"({klr[one]:.4f} against {platt[one]:.4f}, {results.rows[one]} rows)"
    yield "KLR is first here ({} and {})".format(
        *rank("MSE", "linear", "KLR"), *rank("mCRE", "linear", "KLR")
    )
    low, bound, high = sorted(module.FLOORS)
    assert bound == module.FLOOR
    yield f"{bound:g} was taken. With {high:g} and with 1e-6"
    assert low == 1e-6
    scalings = list(module.RANKED[1:])  # all but KLR
    first = module.ranks_of(results.mcre[module.FLOORS.index(low), :, 0])[1:].mean(axis=1).argmin()
    yield f"({scalings[first]} first with {low:.0e})".replace("e-0", "e-")
    for i, of_kernels in enumerate(results.mcre):
        for k, best in enumerate((3, 2)):
            mean = module.ranks_of(of_kernels[:, k]).mean(axis=1)
            order = [m for m in np.argsort(mean) if module.RANKED[m] != "KLR"]
            assert {module.RANKED[m] for m in order[:best]} == set(top[:best]), (i, k)
    yield f"on 6 sets with the RBF kernel by his paired tests, on {worse('Beta-2', 'Platt')} here"


def of_platt(module):
    tasks = [module.Measured(**one) for one in read("papers/platt1999.json")["results"]]
    of = {task.name: task for task in tasks}
    reuters, quadratic, web = (
        of[name] for name in ("Reuters linear", "Adult quadratic", "Web quadratic")
    )
    yield (
        f"({reuters.errors['sigmoid']} against {reuters.errors['raw']} errors over "
        f"{reuters.sigmoids} topics, McNemar p = {reuters.mcnemar['raw, sigmoid']:.0e})".replace(
            "e-0", "e-"
        )
    )
    both = [task for task in tasks if "likelihood" in task.errors]
    above = [100 * (module.ratio(task) - 1) for task in both]
    yield f"{min(above):.0f} to {max(above):.0f} % above"
    yield (
        f"({quadratic.errors['sigmoid']} against {quadratic.errors['raw']} errors, "
        f"p = {quadratic.mcnemar['raw, sigmoid']:.2f})"
    )
    yield f"the sigmoid says 1/2 at a score of {quadratic.threshold:.3f}."
    yield (f"({web.log_scores['likelihood']:,.0f} against {web.log_scores['sigmoid']:,.0f})")
    assert len(both) == 4 and all(
        task.preferred == "likelihood" and task.wilcoxon < 0.05 for task in both
    ), "on all four by Wilcoxon's test"
    yield f"errors are over {web.n_test:,} rows."


def same(a, b):
    assert a == b
    return a


# Numbers that are no results: of the papers' own, or parts of names.
_NOT_MEASURED = (
    "Tables 1 and 2",
    "110 settings",
    "110 SVMs",
    "1e-12 is small against the Hessians",
    "(2007)",
    "(2004)",
    "(1999)",
    "`a9a`, `w8a`, ",
    "lin2007",
    "platt1999",
    "rueping2004",
    "Beta-2",
    "SVM-01",
    "10 bins",
    "50 bins",
    "1 against 7",
    "1/2 has 0.25",
    "probabilities of 0;",
    "logs of 0 hundreds of times",
    "stay at 0 and 1",
)


def test_every_figure_of_the_papers_prose_is_that_of_the_results(papers):
    text = prose("benchmarks/PAPERS.md")
    quoted = [
        *of_lin(papers.lin2007),
        *of_rueping(papers.rueping2004),
        *of_platt(papers.platt1999),
    ]
    assert [figure for figure in quoted if figure not in text] == []
    for known in (*quoted, *_NOT_MEASURED):
        text = text.replace(known, " ")
    assert re.findall(r"\S*\d\S*", text) == []


def of_peers():
    """The README's milliseconds per fit."""
    (table,) = (
        of
        for of in latest("cpu-*.json")["results"]
        if (of["workload"], of["dtype"]) == ("10000x1000", "float64")
    )
    seconds = {(of["contender"], of["kind"]): of["seconds"] for of in table["figures"]}
    for words, contender in {
        "take {} ms a fit": ("platt_jax", "whole"),
        "LIBSVM's algorithm in C++ {} ms": ("appendix3", "solve"),
        "scikit-learn's calibration in a loop {} ms": ("scikit-learn loop", "whole"),
    }.items():
        yield words.format(f"{1e3 * seconds[contender] / table['problems']:.2g}")


def of_first_calls():
    """The README's times of first calls."""
    found = json.loads((RESULTS / "fresh.json").read_text())["first_call_seconds"]
    compiled, read = found["compiled"], found["read"]
    yield f"takes about {compiled['fit']:.1f} s."
    yield f"then takes {read['fit']:.2f} s, `fit_segments` {read['fit_segments']:.2f} s"
    partial = 'pooling="partial"'
    yield f"partial pooling {read[partial]:.2f} s in place of {compiled[partial]:.1f} s"


def test_the_figures_of_the_readme_are_measured():
    pages = "README.md", "docs/tour.md", "docs/explanation/guarantees.md"
    text = " ".join(map(prose, pages))
    scaling = latest("scaling-cpu-*.json")
    assert scaling["machine"]["cores"] == 2
    first = [of["first"] for of in scaling["compile_seconds"].values()]
    flights = load_flights()
    with np.load(Path(__file__).with_name("oracle.npz")) as oracle:
        problems = len(oracle["rows"])
    quoted = [
        f"takes about {min(first):.1f} to {max(first):.1f} seconds on two cores",
        f"{len(np.unique(flights.aircraft[fitted_on(flights)])):,} aircraft",
        f"`solver/test_oracle.py`: {problems} problems solved to {DIGITS} digits",
        *of_peers(),
        *of_first_calls(),
    ]
    assert [figure for figure in quoted if figure not in text] == []
    for known in quoted:
        text = text.replace(known, " ")
    # What is measured has a unit. `--weight 2` and the like have none.
    units = r"(?:seconds?|ms|milliseconds|ns|nanoseconds|minutes?|times|%|GB|MB|aircraft)\b"
    numbers = r"(?:\d[\d.,]*|one|two|three|four|five|ten|hundred)"
    assert re.findall(rf"{numbers} {units}", text) == []


def of_monitor():
    """The table of methods in the guide, and its figures of rare positives."""
    names = {
        "Monitor, margin 0": "`Monitor`, `margin=0`",
        "Monitor": "`Monitor`",
        "Monitor, ever": "`Monitor`, `ever=True`",
        "triage every night": "`triage` every night",
        "chi-square every night": (
            "a chi-square test of the sums every night, by Benjamini and Hochberg"
        ),
        "CUSUM for a shift of 1": "CUSUM of the likelihood ratio of a shift by exactly 1",
        "ADWIN of the residuals": "ADWIN (river 0.26) of the residuals",
    }
    found = read("inference/monitor.json")
    in_world = {(x["world"], x["method"]): x for x in found["beside_others"]}
    for method, name in names.items():
        of = in_world["shift 1", method]
        nights = of["median nights until found"]
        yield f"| {name} | {of['found']} | {of['false alarms']} | {nights:g} |"
    rare, chi = (in_world["2 % positive, shift 1", x] for x in list(names)[3:5])
    yield (
        f"finds {rare['found']} and has {rare['false alarms']} false alarms, the chi-square test "
        f"{chi['found']} and {chi['false alarms']}"
    )
    judged = [x for x in found["against_the_fit"] if x["against"] == "fit"]
    assert len(judged) == 16
    assert sum(x["false alarms"] for x in judged) == 0
    late = {x["nights waited"]: x["alarms"] for x in found["late_labels"]}[3]
    assert late["share by segment"] == 0
    yield f"{late['one share for all']} false ones with the mean share of all"
    yield f"{late['share ignored']} without a share"


def of_days():
    """The tables of the guide on rows that come in days."""
    found = read("inference/days.json")["results"]
    for line in found["bands"]:
        yield "| " + " | ".join(str(x) for x in line.values()) + " |"
    for line in found["flagged"]:
        yield "| " + " | ".join(str(x) for x in line.values()) + " |"
    night_sds = (0.0, 0.3, 0.6, 1.0)
    alarms = {(x["positives"], x["sd"], x["night_sd"]): x for x in found["false_alarms"]}
    for positives, sd in ((p, sd) for p in ("36 %", "2 %") for sd in night_sds[1:]):
        number = [str(alarms[positives, sd, x]["alarms"]) for x in night_sds]
        yield f"| {positives} | {sd} | {' | '.join(number)} |"
    alone = [alarms["36 %", 0.6, x]["e-value of 20 or more"] for x in night_sds]
    yield "{}, {}, {} and {} of the 300".format(*alone)
    changed = {(x["positives"], x["sd"], x["shift"], x["night_sd"]): x for x in found["found"]}
    for positives, shift in ((p, x) for p in ("36 %", "2 %") for x in (0.5, 1.0, -1.0)):
        entries = []
        for x in (changed[positives, 0.6, shift, night_sd] for night_sd in night_sds[1:]):
            nights = f" in {x['median nights until found']:g} nights" if x["found"] else ""
            entries.append(f"{x['found']}{nights}, {x['false alarms']} false")
        yield f"| {positives} | {shift} | {' | '.join(entries)} |"
    held = [
        x["95 % interval holds the shift"]
        for (positives, sd, _, night_sd), x in changed.items()
        if positives == "36 %" and night_sd >= sd and x["found"]
    ]
    yield f"{100 * min(held):.0f} to {100 * max(held):.0f} % of the segments found"


def test_the_figures_of_days_are_measured():
    text = " ".join((ROOT / "docs/howto/days.md").read_text(encoding="utf-8").split())
    assert [line for line in of_days() if line not in text] == []


def test_the_figures_of_the_monitor_are_measured():
    text = " ".join((ROOT / "docs/howto/monitor.md").read_text(encoding="utf-8").split())
    assert [line for line in of_monitor() if line not in text] == []


def test_the_tables_of_scaling_are_measured():
    page = (ROOT / "docs/explanation/scaling.md").read_text(encoding="utf-8")
    lines = [*of_disk(), *of_engines(), *of_cost_model(), *of_skewed(), *of_hosts()]
    assert [line for line in lines if line not in page] == []


def test_the_tables_of_drift_are_measured():
    page = (ROOT / "docs/explanation/pooling.md").read_text(encoding="utf-8")
    assert [line for line in of_drift() if line not in page] == []


def test_the_limits_are_measured():
    page = (ROOT / "docs/explanation/pooling.md").read_text(encoding="utf-8")
    short = (ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8")
    found = read("inference/limits.json")["results"]
    for name, cell in found["bands"].items():
        share, number, each = re.fullmatch(r"(.*), (.*) segments of (.*) rows", name).groups()
        covered = (
            f"{cell[x]:.3f} ({cell[x + ', standard error']:.3f})" for x in ("seen", "unseen")
        )
        assert f"| {share} | {number} of {each} | {' | '.join(covered)} |" in page, name
    for name in ("30 %, 200 segments of 5 rows", "1 %, 1000 segments of 3 rows"):
        seen = found["bands"][name]["seen"]
        assert f"{seen:.2f}"[1:] in page and f"{100 * seen:.0f} %" in short
    moved = found["moved"].values()
    best, worst = min(x["nats a row"] for x in moved), max(x["largest"] for x in moved)
    assert f"{-best:.3f}"[1:] in page and f"{-best:.2f}"[1:] in short
    assert f"{worst:.3f}"[1:] in page and f"{worst:.2f}"[1:] in short
    spread = "class 1 spreads 1.5 times as far, {} rows fitted, {} fresh, rate 0.1"
    for rows, pages in (((1_000, 1_000), [page]), ((10_000, 1_000), [page, short])):
        held = found["rates"][spread.format(*rows)]["held"]
        assert f"{held:.2f}"[1:] in page
        assert len(pages) == 1 or f"{100 * held:.0f} %" in short


def test_the_tables_of_curves_are_measured():
    page = (ROOT / "docs/explanation/which_curve.md").read_text(encoding="utf-8")
    assert [line for line in of_curves() if line not in page] == []


def of_curves():
    found = read("papers/curves.json")
    yield f"{found['experiments']:,} experiments, with {found['seeds']} random splits"
    curves = (
        *("temperature", "quadratic", "beta", "spline"),
        *("isotonic", "isotonic, centred", "bins", "Venn-Abers"),
    )
    rules = (
        *("auto", "auto, two ways", "least loss", "stacked"),
        *("auto, Venn-Abers", "stacked, Venn-Abers"),
    )
    for names, metric in ((curves, "log loss"), (curves, "Brier"), (rules, "log loss")):
        yield f"| rows | data sets | {' | '.join(names)} |"
        for rows, cells in found["by rows"].items():
            yield row_of_curves(rows, cells, names, metric)


def test_the_table_of_several_classes_is_measured():
    page = (ROOT / "docs/explanation/which_curve.md").read_text(encoding="utf-8")
    found = read("papers/class_curves.json")
    assert f"{found['experiments']} experiments" in page
    names = "coupling", "temperature", "temperature_bias", "vector"
    for rows, cells in found["by rows"].items():
        assert row_of_curves(rows, cells, names, "log loss") in page


def row_of_curves(rows, cells, names, metric):
    each = []
    for name in names:
        text = f"{1000 * cells[name][metric + ', difference']:+.1f}"
        error = f" ({1000 * cells[name][metric + ', standard error']:.1f})"
        each.append(text + error if cells["sets"] > 1 else text)
    return f"| {int(rows):,} | {cells['sets']} | {' | '.join(each)} |"


def test_what_is_said_of_rules_that_choose_holds():
    """From 300 rows on "auto" loses to no single curve, if it has Venn-Abers predictors."""
    for rows, cells in read("papers/curves.json")["by rows"].items():
        loss = {
            name: 1000 * x["log loss, difference"]
            for name, x in cells.items()
            if isinstance(x, dict) and "log loss, difference" in x
        }
        auto = loss["auto, Venn-Abers"]
        single = [x for name, x in loss.items() if "auto" not in name and "stacked" not in name]
        assert auto <= min(single) + 0.5 or int(rows) <= 100
        assert loss["auto"] <= min(single) + 0.5 or int(rows) <= 300
        assert loss["stacked, Venn-Abers"] > auto + 0.45 or int(rows) < 10_000


def test_the_times_of_curves_are_measured():
    page = (ROOT / "docs/howto/curves.md").read_text(encoding="utf-8")
    cpu = read("curve_speed.json")["processor seconds"]
    times = {name: f"{x / cpu['sigmoid']:.0f} times" for name, x in cpu.items()}
    assert f"quadratics take about {times['quadratic']} as long" in page
    assert f"isotonic curves {times['isotonic']}," in page
    assert f"beta curves and Venn-Abers predictors {times['beta']}\n" in page
    assert times["venn_abers"] == times["beta"]


def test_the_tables_of_gates_are_measured():
    """And the conditions under which gates are published."""
    page = (ROOT / "docs/explanation/numbers.md").read_text(encoding="utf-8")
    assert [line for line in of_gates() if line not in page] == []
    found = read("inference/gates.json")["results"]
    for line in found["sigmoids"]:
        assert line["model violating"] <= (0.15 if line["labels"] == 20 else 0.07)
        assert line["unbounded violating"] > 0.25
        if line["mean intercept"] == 0 and line["labels"] >= 200:
            assert line["naive violating"] > 0.25
            assert line["accepted of the oracle's"] >= {200: 0.6, 1_000: 0.75}[line["labels"]]
    assert max(x["share of certified that violate"] for x in found["certified"]) <= 0.05
    warned, populations = {}, {}
    for line in found["warnings"]:
        wrong = line["curves"] != "sigmoid"
        kind = "wrong" if wrong else "few" if "segments" in line else line.get("pooling", "pooled")
        warned[kind] = warned.get(kind, 0) + line["warned"]
        populations[kind] = populations.get(kind, 0) + line["populations"]
    assert warned["wrong"] >= 0.9 * populations["wrong"]
    assert max(warned[x] / populations[x] for x in ("pooled", "few")) <= 0.1
    said = " ".join(page.split())
    for kind, text in (
        ("wrong", "populations of ceilings and bends"),
        ("pooled", "of sigmoids"),
        ("few", "of sigmoids"),
        ("none", "populations of sigmoids"),
    ):
        assert f"in {warned[kind]} of {populations[kind]} {text}" in said
    short = [ROOT / f"docs/{x}.md" for x in ("explanation/guarantees", "howto/decide")]
    for labels in (200, 1_000):
        fails = [x["model violating"] for x in found["other curves"] if x["labels"] == labels]
        said = f"{100 * min(fails):.0f} % to {100 * max(fails):.0f} %"
        for path in short:
            assert said in " ".join(path.read_text(encoding="utf-8").split()), path


def test_what_is_said_of_gates_is_measured():
    found = read("inference/gates.json")["results"]
    page = " ".join((ROOT / "docs/explanation/numbers.md").read_text(encoding="utf-8").split())
    weighted = {x["weights"]: x for x in found["weighted"] if x["labels"] == 200}
    with_them, without = (100 * weighted[x]["model violating"] for x in (True, False))
    said = f"violate in {with_them:.1f} % of the segments, and without them in {without:.0f} %"
    assert said in page
    right = ("quadratic", "beta", "sigmoid")
    violating = [x["model violating"] or 0 for x in found["curves"] if x["curves"] in right]
    assert f"at most {100 * max(violating):.1f} % violate" in page
    bounded = {x["mean slope"]: x for x in found["bounded"]}
    short = " ".join((ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8").split())
    for who, text in (
        (
            "model",
            "accept {} % of what an oracle accepts that knows the curves if slopes are about 2.5",
        ),
        ("known population", "With the true population known it is {} %"),
        ("unbounded", "without a bound {} %"),
    ):
        assert text.format(f"{100 * bounded[2.5][who + ' accepted']:.0f}") in short
    assert all(
        abs(x["known population accepted"] - x["model accepted"]) < 0.02
        and x["known, sampled accepted"] < x["known population accepted"] + 0.01
        for x in bounded.values()
    )


def test_what_is_said_of_broken_gates_is_measured():
    found = read("inference/broken_gates.json")["results"]
    page = " ".join((ROOT / "docs/howto/decide.md").read_text(encoding="utf-8").split())
    exact = [x for x in found["holding"] if x["monitor"] == "promise" and x["right"] == 0.95]
    alarms, worlds = (sum(x[y] for x in exact) for y in ("alarm on some night", "worlds"))
    assert f"{alarms} of {worlds} worlds had an alarm" in page and alarms <= 0.05 * worlds
    other = found["holding"][-1]
    assert f"{other['alarm on some night']} of {other['worlds']} worlds had alarms" in page
    at = {(x["right"], x["rows a night"], x["since night"]): x for x in found["broken"]}
    one, three, late = at[0.85, 1, 1], at[0.85, 3, 1], at[0.85, 3, 51]
    few, ten = at[0.9, 3, 1], at[0.9, 10, 1]
    for text in (
        f"are right {three['found']} were found with 3 labels",
        f"within {three['median nights until found']:.0f} nights",
        f"and {one['found']} with 1 label",
        f"{few['found']} with 3 labels, and {ten['found']} with 10",
        f"{late['found']} are found in the 50 that are left",
    ):
        assert text in page
    assert max(x["false alarms"] for x in found["broken"]) == 0


def test_what_is_said_of_votes_is_measured():
    found = read("inference/shares.json")["results"]
    page = " ".join((ROOT / "docs/howto/weights.md").read_text(encoding="utf-8").split())

    def said(lines):
        held = [x["held"] for x in lines]
        return f"{100 * min(held):.0f} % to {100 * max(held):.0f} %"

    as_rows = {x: [y for y in found["bands"] if (y["fit"] == "rows") is x] for x in (False, True)}
    assert f"bands of 95 % hold the curve at {said(as_rows[False])} of points" in page
    assert f"taken as five rows each, at {said(as_rows[True])}" in page
    assert f"have {said(found['few'])}, too" in page
    assert all(0.93 <= x["held"] <= 0.98 for x in as_rows[False])


def test_what_is_said_of_clinics_is_measured():
    found = read("inference/clinics.json")["results"]
    page = " ".join((ROOT / "docs/howto/centres.md").read_text(encoding="utf-8").split())

    def said(values):
        values = list(values)
        return f"{100 * min(values):.0f} % to {100 * max(values):.0f} %"

    decided = [x for x in found["net benefit"] if x["threshold"] > x["positive"]]
    for text in (
        f"the expected net benefit {said(x['net benefit held'] for x in found['net benefit'])}",
        f"sets of probabilities {said(x['difference held'] for x in decided)}",
        f"ICI {said(x['ici held'] for x in found['indices'])}",
        f"Emax {said(x['emax held'] for x in found['indices'])}",
        f"new centre {said(x['new centres held'] for x in found['centres'])}",
        f"mean of the centres {said(x['mean held'] for x in found['centres'])}",
    ):
        assert text in page
    with_them, without = (
        [x for x in found["clusters"] if x["clusters"] is y] for y in (True, False)
    )
    for name, text in (
        ("in the large held", "calibration in the large in {}, without `clusters` in {}"),
        ("slope held", "its slope in {}, without in {}"),
    ):
        assert text.format(*(said(x[name] for x in y) for y in (with_them, without))) in page
    assert f"a new hospital is held in {said(x['new centres held'] for x in with_them)}" in page
    for name, text, some in (
        ("design effect", "where it is {:.1f} to {:.1f}", with_them),
        ("mean estimate", "are estimated as {:.2f} to {:.2f}", with_them),
        ("mean estimate", "without as {:.2f} to {:.2f}", without),
    ):
        values = [x[name] for x in some]
        assert text.format(min(values), max(values)) in page


def of_gates():
    found, positive = read("inference/gates.json")["results"], {0.0: "50 %", -3.0: "17 %"}
    accepted = "accepted of the oracle's"
    for x in found["sigmoids"]:
        naive = " | ".join(f"{100 * x[who + ' violating']:.0f}" for who in ("unbounded", "naive"))
        yield (
            f"| {x['labels']:,} | {positive[x['mean intercept']]} | "
            f"{100 * x['model violating']:.1f} | {naive} | "
            f"{100 * x[accepted]:.0f} |"
        )
    ceilings, bends = (
        [x for x in found["other curves"] if x["curves"] == kind] for kind in ("ceiling", "bend")
    )
    for one, other in zip(ceilings, bends, strict=True):
        each = " | ".join(f"{100 * x['model violating']:.0f}" for x in (one, other))
        yield f"| {one['labels']:,} | {positive[one['mean intercept']]} | {each} |"
    for x in found["bounded"]:
        shares = (
            x[f"{who} accepted"]
            for who in ("model", "known population", "known, sampled", "level 0.8", "unbounded")
        )
        oracle = f"{100 * x['accepted by the oracle']:.0f}"
        yield f"| {x['mean slope']:g} | {oracle} | {' | '.join(f'{100 * y:.0f}' for y in shares)} |"
    for x in found["curves"]:
        wrong = "" if x["model violating"] is None else f"{100 * x['model violating']:.1f}"
        yield (
            f"| {x['curves']} | {x['fitted']} | {x['labels']:,} | {x['gated']:,} | {wrong} | "
            f"{100 * x[accepted]:.0f} |"
        )
    for x in found["certified"]:
        yield (
            f"| {x['curves']} | {positive[x['mean intercept']]} | {x['labels']:,} | "
            f"{x['fresh labels']:,} | {x['gated']:,} | {x['model violating']:,} | "
            f"{x['certified']:,} | {x['certified and violating']:,} |"
        )


def test_the_table_of_sizes_is_measured():
    page = " ".join((ROOT / "docs/explanation/pooling.md").read_text(encoding="utf-8").split())
    found = read("inference/sizes.json")["results"]
    for pair, ways in found["remedy"].items():
        partial, nested, by_rows = ways.values()
        three = zip(partial, by_rows, nested, strict=True)
        covered, off, excess = (
            "; ".join(f"{round(x, digits) + 0:.{digits}f}" for x in each)  # no -0
            for each, digits in zip(three, (2, 2, 3), strict=True)
        )
        warned = found["power"].get(f"{pair}, intercept 0", 0)
        shown = ", ".join(f"{x:g}".removeprefix("0") or "0" for x in ast.literal_eval(pair))
        assert f"| {shown} | {warned:.2f} | {covered} | {off} | {excess} |" in page
    rare = [share for name, share in found["power"].items() if ".7" in name and "-4" in name]
    assert f"the shares of worlds warned of are {min(rare):.2f} and more" in page
    level = found["level"]
    worlds = 300 * len(level)
    warned = f"{300 * sum(level.values()):.0f}"
    assert (
        f"Of {worlds:,} worlds whose sizes say nothing" in page and f"{warned} were warned" in page
    )


def test_what_covariates_gain_and_cost_is_measured():
    pooling = (ROOT / "docs/explanation/pooling.md").read_text(encoding="utf-8")
    few_rows = (ROOT / "docs/howto/few_rows.md").read_text(encoding="utf-8")
    found = read("inference/covariates.json")["results"]
    gains = []
    for name, x in found["explained"].items():
        numbers = [*x.values()][:8]
        digits = 3 if numbers[0] > 0.01 else 4
        seen = f"{numbers[0]:.{digits}f}; {numbers[2]:.{digits}f}"
        new = f"{numbers[4]:.3f}; {numbers[6]:.3f}"
        bands = [f"{one:.2f}; {other:.2f}" for one, other in (numbers[1:4:2], numbers[5::2])]
        rows = name.replace(" rows", "")
        assert f"| {rows} | {seen} | {bands[0]} | {new} | {bands[1]} |" in pooling
        gains.append((1 - numbers[2] / numbers[0], 1 - numbers[6] / numbers[4]))
    (five, new), (twenty, also), *_ = gains
    assert f"{100 * five:.0f} % off the excess log loss with 5 rows a segment" in few_rows
    assert f"and {100 * twenty:.0f} % with 20; of new segments {100 * new:.0f} %." in few_rows
    assert f"{new:.2f}" == f"{also:.2f}"
    nothing = found["nothing"]
    of = {name: [*x.values()] for name, x in nothing.items()}
    covered = [x for each in of.values() for x in (each[3], each[7])]
    shares = [each[8] for each in of.values()]
    assert f"bands cover {min(covered):.2f} to {max(covered):.2f} with 2 to 200" in pooling
    assert f"and {min(shares):.2f} to {max(shares):.2f} of the p-values" in " ".join(
        pooling.split()
    )
    cost, many = (of[name][2] / of[name][0] - 1 for name in ("200 segments, 2", "20 segments, 10"))
    assert f"two of them cost {100 * cost:.0f} %" in pooling
    assert f"ten of them cost {100 * many:.0f} %" in pooling


def test_the_table_of_selective_labels_is_measured():
    page = (ROOT / "docs/howto/selective_labels.md").read_text(encoding="utf-8")
    for part in read("inference/selective.json")["results"].values():
        for labels, x in part.items():
            excess, accepted, off, broken, _ = x.values()
            line = f"| {excess:.4f} | {accepted:.4f} | {off:+.4f} | {100 * broken:.1f} % |"
            assert f"| {labels} {line}" in page


def test_what_sampling_by_labels_does_to_pooling_is_measured():
    page = " ".join((ROOT / "docs/howto/base_rate.md").read_text(encoding="utf-8").split())
    found = read("inference/sizes.json")["results"]["sampled"]
    (partial, fewest, _), _, (rows, of_rows, _), (whole, of_whole, _) = (
        x for x in found.values() if isinstance(x, list)
    )
    for sentence in (
        f"predicted {partial:.2f} times the true number of positives, and {fewest:.2f} times in",
        f"fitted without sampling, {whole:.2f} and {of_whole:.2f} (",
        f"it is {rows:.2f} times in all, and {of_rows:.2f} in the half",
    ):
        assert sentence in page
    assert found["warned"] == 1


def test_the_tables_of_spreads_are_measured():
    page = (ROOT / "docs/explanation/pooling.md").read_text(encoding="utf-8")
    assert [line for line in of_spreads() if line not in page] == []


def of_spreads():
    found = read("inference/spreads.json")["results"]

    def cells(shares):
        return ", ".join(f"{x:.2f}" for x in shares)

    def rejected(part):
        places = ("segments", "rows", "positives")
        return {
            tuple(x[p] for p in places): cells(x["rejected at 0.05, of these"]) for x in found[part]
        }

    size = rejected("size") | rejected("size, closely")
    for number in (2, 3, 5, 20, 200):
        yield f"| {number} | {' | '.join(size[number, rows, '50 %'] for rows in (3, 10, 50))} |"
    power = rejected("power")
    for number, rows, positives in power:
        if positives == "50 %":
            rare = power[number, rows, "1 %"]
            yield f"| {number} of {rows} | {power[number, rows, '50 %']} | {rare} |"
    for x in found["coverage"]:
        rare = "" if x["positives"] == "50 %" else ", 1 % positive"
        spreads = ", ".join(map(str, x["spreads"])) if any(x["spreads"]) else "none"
        within = cells(x["hold it"]), cells(x["variances within 1.96 standard errors"])
        yield f"| {x['segments']} of {x['rows']}{rare} | {spreads} | {' | '.join(within)} |"
    for x in found["rare"]:
        low, high = x["interval"]
        yield (
            f"| {x['positives']} | {x['spread of B']:.3f} | {x['by brute force']:.3f} | "
            f"{x['log density it gains']:.4f} | {low:.2f} to {high:.2f} |"
        )


def of_drift():
    found = read("inference/drift.json")["results"]
    kinds = {
        "16 carriers": "carrier",
        "96 destinations": "dest",
        "207 routes": "route",
        "2,696 flight numbers": "flight",
        "3,615 aircraft": "tailnum",
    }
    for name, kind in kinds.items():
        lines = {x["pooling"]: x for x in found["flights"][kind]["third quarter, then the fourth"]}
        none, partial, drift = (
            f"{lines[x]['log loss']:.4f} ± {lines[x]['standard error']:.4f}"
            for x in ("none", "partial", "drift")
        )
        yield f"| {name} | {none} | {lines['complete']['log loss']:.4f} | {partial} | {drift} |"
    for rows in (
        "2000 segments of 10 rows",
        "500 segments of 50 rows",
        "20 segments of 500 rows",
        "20 segments of 50 rows",
        "5 segments of 50 rows",
        "3000 segments of 10 rows, 1 % positive",
    ):
        for share in ("1", "0.5", "0"):
            of = found["worlds"][f"{rows}, {share} lasts"]
            cells = " | ".join(f"{of[x]:.4f}" for x in ("complete", "partial", "drift"))
            yield f"| {rows.replace(' segments', '').replace(' rows', '')} | {share} | {cells} |"
    for name in found["forgetting"]["carrier"]:
        each = (found["forgetting"][kind][name] for kind in kinds.values())
        yield f"| {name.removeprefix('forgetting ')} | {' | '.join(f'{x:.4f}' for x in each)} |"


def test_the_table_of_rooms_is_measured():
    """Where it is not: python -m benchmarks.rooms --page."""
    from benchmarks import rooms

    page = (ROOT / "docs/explanation/scaling.md").read_text(encoding="utf-8")
    assert "\n".join(rooms.table()) + "\n\n" in page


def of_disk():
    (found,) = read("streaming.json")["results"].values()
    ways = ("store arrays", "fit stored rows", "fit rows in memory")
    store, disk, memory = (found[way] for way in ways)
    yield f"disk | {store['seconds']:.1f} | {store['resident GiB']:.1f} GiB |"
    yield f"| fit from there | {disk['seconds']:.1f} | {disk['resident GiB']} GiB |"
    for how, name in (
        ("grouped already", "grouped before"),
        ("grouping included", "with grouping"),
    ):
        seconds, resident = memory[f"seconds, {name}"], memory["resident GiB"]
        yield f"{how} | {seconds:.1f} | {resident:.1f} GiB |"
    yield f"has {found['share of the speed in memory']['grouped before']:.0%}".replace("%", " %")


def of_engines():
    for file, engine, name in (
        ("sql.json", "DuckDB", "DuckDB"),
        ("spark.json", "Spark", "Spark, `local[2]`"),
    ):
        for rows, found in read(file)["results"].items():
            of = found[engine]
            seconds = f"{of['seconds']:.1f}" if of["seconds"] < 100 else f"{of['seconds']:.0f}"
            cells = (
                name,
                rows.split()[0],
                of["passes"],
                seconds,
                f"{of['rows per second of the median pass'] / 1e6:.1f} million",
                f"{of['median pass over floor']:.1f}",
                f"{found['memory']['seconds']:.1f}",
            )
            yield f"| {' | '.join(map(str, cells))} |"


def of_cost_model():
    found = read("cost_model.json")
    for of in found["predicted"]:
        seconds = f"{of['predicted']:.2f} s | {of['measured']:.2f} s"
        ratio = f"{of['measured over predicted']:.2f}"
        yield f"| {of['rows']:,} | {of['segments']:,} | {seconds} | {ratio} |"
    constants = found["constants"]
    yield f"{1e9 * constants['seconds of a row']:.1f} ns for each row"
    yield f"{1e6 * constants['seconds of a segment']:.2f} µs for each segment"


def of_skewed():
    for found in read("skewed.json")["results"]:
        for kind, of in found["seconds"].items():
            largest = found["rows of the largest segment"][kind]
            names = ("whole call", "processors of the whole call", "grouping", "fit", "first call")
            cells = (found["predicted"], *(of[name] for name in names))
            seconds = " | ".join(f"{x:.2f} s" for x in cells)
            yield f"| {found['rows']:,} | {kind} | {largest:,} | {seconds} |"
        alike, skewed = (of["processors of the whole call"] for of in found["seconds"].values())
        yield from (f"{skewed / alike:.2f}", f"{alike / 2:.2f} s")


def of_hosts():
    found = read("hosts.json")
    for scaling in ("strong", "weak"):
        ways = [found[way][scaling] for way in ("processes", "devices")]
        firsts = [way[0]["seconds"] for way in ways]
        for of in zip(*ways, strict=True):
            more = of[0]["count"] if scaling == "weak" else 1
            process, device = (
                f"{x['seconds']:.2f} | {more * first / x['seconds']:.2f}"
                for x, first in zip(of, firsts, strict=True)
            )
            start = f"| {scaling}, {of[0]['count']} | {of[0]['rows of each']:,}"
            share = f"{100 * of[0]['share of the exchanges']:.0f} %"
            without = f"{of[1]['seconds without a mesh']:.2f}"
            yield f"{start} | {process} | {share} | {device} | {without} |"


def latest(pattern):
    return read(max(RESULTS.glob(pattern)).name)


def prose(path):
    """A document's text, without code blocks and line breaks."""
    text = (ROOT / path).read_text(encoding="utf-8")
    text = re.sub(r"```.*?```|^ {4}\S.*?$", " ", text, flags=re.S | re.M)
    return " ".join(text.split())


def test_the_figures_of_field_errors_are_measured():
    page = (ROOT / "docs/howto/field_errors.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    assert [line for line in of_field_errors() if line not in text] == []


def of_field_errors():
    found = read("inference/field_metrics.json")["results"]
    calibrated, off = (found[part] for part in ("calibrated", "miscalibrated"))

    def covered(lines, names, groups=(10, 200)):
        each = [100 * x[name]["covered"] for x in lines for name in names if x["groups"] in groups]
        return f"{min(each):.0f} to {max(each):.0f} %"

    plug_ins = ("calibration error", "relative error")
    for line in calibrated:
        ece, rce = (line[name] for name in plug_ins)
        assert all(abs(of["excess"]) < 3 * of["its standard error"] for of in (ece, rce))
        if line["groups"] == 200:
            cells = (ece["value"], ece["by chance"], rce["value"], rce["by chance"])
            yield f"| {_size(line)} | {' | '.join(f'{x:.3g}' for x in cells)} |"
    for line in off:
        if line["groups"] == 200:
            ece, squared = line["calibration error"], line["squared error"]
            cells = [ece[name] for name in ("true", "value", "excess")]
            cells += [squared[name] for name in ("true", "value", "its standard error")]
            yield f"| {_size(line)} | {' | '.join(f'{x:.2g}' for x in cells)} |"
    yield f"had 0 in them in {covered(calibrated, plug_ins, [200])} of the sets"
    yield f"intervals of the squared error, {covered(calibrated, ['squared error'], [200])}"
    yield f"wider than they need be ({covered(calibrated, plug_ins, [10])})"
    yield f"its mean in them in {covered(off, plug_ins[:1])} of the sets"
    yield f"intervals of the relative error in {covered(off, plug_ins[1:])}"
    yield f"the true square in {covered(off, ['squared error'])}"
    found = read("inference/multicalibration.json")["results"]
    assert max(found["against mcgrad"]["largest difference"].values()) < 1e-11
    line = next(x for x in found["by chance"] if (x["rows"], x["groups"]) == (1000, 41))
    alone = line["rejected at .05 by the smallest p-value of a group"]
    yield f"{100 * alone:.0f} % of calibrated sets of 1,000 rows with 41 groups"
    yield f"by `p_value`, {100 * line['rejected at .05']:.1f} %"
    each = [100 * x["covered"] for x in found["coverage"]]
    yield f"covered the true error in {min(each):.0f} to {max(each):.0f} % of the sets"


def _size(line):
    return f"{line['rate']} | {line['rows of a group']}"
