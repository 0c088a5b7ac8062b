"""Times side by side: turns of A B C, A B C, ... so that a machine's drift affects all alike."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks import clock
from benchmarks.peers import Contender, Run
from benchmarks.workloads import Workload, losses

# A contender that has taken this long, after two turns, sits out the rest.
_BUDGET_S = 20.0


@dataclass(frozen=True)
class Figures:
    """One contender on one workload."""

    contender: str
    kind: str
    seconds: float  # median; of a sample, scaled up to all problems
    seconds_all: list[float]
    stolen_all: list[float]  # what the host took of the processors' time, see `clock`
    ns_per_row: float
    fitted: int  # problems that were fitted and timed
    excess_loss: float  # the largest relative excess over the best loss of any contender
    short: int  # problems whose loss is further from the best than the tolerance
    excused: int  # of those: where Appendix 3 itself says that it failed
    failed: int  # where Appendix 3 says that it failed, at the best loss or not
    passes: float | None  # over the rows, mean of the problems
    appendix3_ratio: float | None = None  # seconds of Appendix 3 of the same kind over these
    limit_ratio: float | None = None  # these seconds over those of the limit of the same kind


def measure(
    at: Workload, contenders: list[Contender], repeats: int, tries: int = clock.TRIES
) -> list[Figures]:
    """Fit with all of them, check that the losses agree, and only then report the times.

    So many tries of each sample, where the host disturbs it.

    Raises:
        RuntimeError: a contender that should reach the optimum has not.
    """
    runs = {c: run for c in contenders if (run := c.prepare(at)) is not None}
    answers = {c: run.answer(run.call()) for c, run in runs.items()}  # warm-up
    agreement = _agreement(at, runs, answers)
    calls = {c: clock.calls_per_sample(run.call) for c, run in runs.items()}
    samples: dict[Contender, list[clock.Sample]] = {c: [] for c in runs}
    spent = dict.fromkeys(runs, 0.0)
    for turn in range(repeats):
        for c, run in runs.items():
            if turn < 2 or spent[c] < _BUDGET_S:
                start = time.perf_counter()
                samples[c].append(clock.sample(run.call, calls[c], tries))
                spent[c] += time.perf_counter() - start
    figures = []
    for c, run in runs.items():
        fitted = at.problems if run.problems is None else len(run.problems)
        seconds, stolen = map(list, zip(*samples[c], strict=True))
        scaled = median(seconds) * at.problems / fitted
        figures.append(
            Figures(
                contender=c.name,
                kind=c.kind,
                seconds=scaled,
                seconds_all=seconds,
                stolen_all=stolen,
                ns_per_row=1e9 * scaled / at.rows,
                fitted=fitted,
                passes=_passes(answers[c]),
                **agreement[c],
            )
        )
    return [_with_ratios(figure, figures) for figure in figures]


def _agreement(at: Workload, runs: dict[Contender, Run], answers: dict) -> dict[Contender, dict]:
    """How far each contender's losses are from the best, all evaluated by one function."""
    tolerance = 1e-6 if at.scores.dtype == np.float64 else 1e-4
    best = np.full(at.problems, np.inf)
    reached = {}
    for c, run in runs.items():
        problems = np.arange(at.problems) if run.problems is None else run.problems
        few = at if run.problems is None else at.only(problems)
        A, B = answers[c]["A"], answers[c]["B"]
        with np.errstate(all="ignore"):
            loss = losses(few, A, B)
        reached[c] = problems, np.where(np.isfinite(loss), loss, np.inf)
        best[problems] = np.minimum(best[problems], reached[c][1])
    out, wrong = {}, []
    for c, (problems, loss) in reached.items():
        excess = loss / best[problems] - 1
        short = ~(excess <= tolerance)
        failed = answers[c].get("status", np.zeros_like(problems)) != 0
        excused = short & failed
        out[c] = {
            "excess_loss": float(np.max(excess)),
            "short": int(short.sum()),
            "excused": int(excused.sum()),
            "failed": int(failed.sum()),
        }
        if c.must_agree and np.any(short & ~excused):
            worst = np.argmax(np.where(excused, 0, excess))
            wrong.append(
                f"{c.name}: {np.sum(short & ~excused)} of {len(problems)} losses too high, worst "
                f"that of problem {problems[worst]}, by {excess[worst]:.1e} relative"
            )
    if wrong:
        raise RuntimeError(f"{at.name}, {at.scores.dtype}: " + "; ".join(wrong))
    return out


def _passes(answer: dict[str, Any]) -> float | None:
    return float(np.mean(answer["passes"])) if "passes" in answer else None


def _with_ratios(figure: Figures, figures: list[Figures]) -> Figures:
    seconds = {f.contender: f.seconds for f in figures}

    def peer(name: str) -> float | None:
        grouping = seconds.get(f"{name}, grouping") if figure.kind == "whole" else None
        return grouping or seconds.get(name)

    appendix3, limit = peer("appendix3"), peer("limit")
    return Figures(
        **{
            **vars(figure),
            "appendix3_ratio": appendix3 and appendix3 / figure.seconds,
            "limit_ratio": limit and figure.seconds / limit,
        }
    )
