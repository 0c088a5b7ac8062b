"""What a call tells of its progress: a bar, or a function called after each chunk."""

import numpy as np
import pytest
from data import batch, problem

import platt_jax as pj
from platt_jax.passes import shapes


def reports_of(call, *arguments, **options):
    seen = []
    result = call(*arguments, progress=seen.append, **options)
    assert result == call(*arguments, **options)
    return seen


@pytest.mark.on_cpu
def test_a_function_is_told_of_every_chunk(rng):
    size = 3000
    problems = 2 * shapes.CPU.chunk_rows[-1] // size
    scores, labels = (np.resize(x, (problems, size)) for x in problem(rng, size))
    seen = reports_of(pj.fit, scores, labels)
    assert len(seen) >= 2
    assert all(isinstance(x, pj.execution.progress.ProgressReport) for x in seen)
    assert {(x.stage, x.problems, x.rows) for x in seen} == {("fit", problems, problems * size)}
    done = np.array([x.problems_done for x in seen])
    assert (np.diff(done, prepend=0) > 0).all() and done[-1] == problems
    assert [x.rows_done for x in seen] == (done * size).tolist()
    assert (np.diff([x.seconds for x in seen], prepend=0) > 0).all()


def test_rows_are_those_of_the_segments_done(rng):
    scores, labels = problem(rng, 1000)
    segments = np.repeat(np.arange(4), [700, 200, 99, 1])
    seen = reports_of(pj.fit_segments, scores, labels, segments)
    sizes = np.array([700, 200, 99, 1])  # the largest go first
    assert [x.rows_done for x in seen] == [sizes[: x.problems_done].sum() for x in seen]
    assert seen[-1][:5] == ("fit", 4, 4, 1000, 1000)


def test_a_problem_too_large_for_a_chunk_counts(rng, sizes):
    sizes(problem_rows=50)
    seen = reports_of(pj.fit, *problem(rng, 60))
    assert [x[:5] for x in seen] == [("fit", 1, 1, 60, 60)]


@pytest.mark.slow
def test_classes_and_replicates_are_problems(rng):
    scores = rng.normal(size=(60, 3))
    seen = reports_of(pj.fit_one_vs_rest, scores, np.arange(60) % 3)
    assert seen[-1][:5] == ("fit", 3, 3, 180, 180)
    seen = reports_of(pj.inference.bootstrap, *batch(rng, 4, 30), replicates=5)
    assert list(dict.fromkeys(x.stage for x in seen)) == ["fit", "bootstrap"]
    assert seen[-1][:5] == ("bootstrap", 20, 20, 600, 600)


def test_pooling_tells_of_each_pass(rng):
    scores, labels = problem(rng, 2000)
    seen = reports_of(pj.fit_segments, scores, labels, np.arange(2000) % 40, pooling="partial")
    stages = list(dict.fromkeys(x.stage for x in seen))
    passes = [f"population, pass {i}" for i in range(1, len(stages) - 3)]
    assert stages == ["pooled fit", "first fit", *passes, "population, uncertainty", "fit"]
    assert len(passes) >= 2
    for name in stages:
        last = [x for x in seen if x.stage == name][-1]
        assert (last.problems_done, last.rows_done) == (last.problems, last.rows)
        assert last.rows == 2000 and last.problems == (1 if name == "pooled fit" else 40)


def test_a_bar_shows_rows_and_open_problems(rng, capsys):
    pytest.importorskip("tqdm")
    scores, labels = problem(rng, 20)
    pj.fit(np.stack([scores] * 7), labels, progress=True)
    shown = capsys.readouterr().err
    first, *_, last = shown.strip().split("\r")
    assert first.startswith("fit: compiling:   0%") and "0.00/140" in first
    assert last.startswith("fit: 100%") and "140/140" in last
    assert "rows/s" in last and "0 open" in last


def test_the_bar_of_the_last_stage_stays(rng, capsys):
    pytest.importorskip("tqdm")
    scores, labels = problem(rng, 2000)
    pj.fit_segments(scores, labels, np.arange(2000) % 40, pooling="partial", progress=True)
    lines = capsys.readouterr().err.split("\n")
    # Of what a line shows only what follows the last carriage return stays.
    assert [line.split("\r")[-1][:9] for line in lines] == ["fit: 100%", ""]
    assert "population, pass 2" in lines[0]


def test_nothing_is_shown_unasked(rng, capsys, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    for off in (False, np.False_, 0, None):
        pj.fit(*problem(rng, 20), progress=off)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", ["yes", 1.5, [True]])
def test_what_is_no_progress_is_refused(rng, progress):
    scores, labels = problem(rng, 20)
    for call in (pj.fit, pj.inference.bootstrap):
        with pytest.raises(ValueError, match="progress: expected True, False or a function"):
            call(scores, labels, progress=progress)


def test_an_error_of_the_function_ends_the_call(rng):
    class Enough(Exception):
        pass

    def stop(report):
        raise Enough

    with pytest.raises(Enough):
        pj.fit(*problem(rng, 20), progress=stop)
