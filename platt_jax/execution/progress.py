"""Progress of a call: reports after every chunk, and the bar that shows them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ProgressReport(NamedTuple):
    """The argument of a function passed as `progress`, which is called after each chunk.

    The counts start again with each stage. The last report of a stage has all problems done.

    Attributes:
        stage: the name of the stage: "fit" or "bootstrap"; with pooling="partial" also "pooled
            fit", "first fit", "population, pass 1" and so on; for rows stored on disk also
            "reading rows" and "grouping rows".
        problems_done: problems finished so far; for a bootstrap these are replicates.
        problems: total number of problems.
        rows_done: rows of the finished problems.
        rows: total number of rows.
        seconds: time since the stage began; for the first chunk it includes compilation.
    """

    stage: str
    problems_done: int
    problems: int
    rows_done: int
    rows: int
    seconds: float

    @property
    def seconds_left(self) -> float:
        """Estimated seconds left in this stage, at the average rate so far."""
        return self.seconds * (self.rows - self.rows_done) / max(1, self.rows_done)


Listener = Callable[[ProgressReport], Any]


class Stage(NamedTuple):
    """A part of a call whose progress is reported."""

    # the user's argument: whether to show a bar, or a function of a ProgressReport
    progress: bool | Listener = False
    name: str = "fit"  # the name of the stage
    last: bool = True  # whether it is the last stage of the call, whose bar remains when done

    @classmethod
    def of(cls, progress: bool | Listener, name: str = "fit", last: bool = True) -> "Stage":
        """A stage with the user's argument, checked."""
        if not (callable(progress) or isinstance(progress, bool | np.bool_ | int | None)):
            raise ValueError(
                "progress: expected True, False or a function that takes a ProgressReport, "
                f"got {progress!r}"
            )
        return cls(progress, name, last)


SILENT = Stage()


@contextmanager
def reporting(sizes: NDArray[Any], stage: Stage) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of problems of each finished chunk.

    `sizes` (K,) are the numbers of rows, in the order in which the problems are done.
    """
    with _listening(sizes, stage) as listener:
        yield (
            ignore_progress if listener is None else _Reports(sizes, stage.name, listener).finished
        )


@contextmanager
def reporting_passes(
    sizes: NDArray[Any], stage: Stage
) -> Iterator[Callable[[NDArray[np.bool_]], None]]:
    """A function to call before each pass with the problems (K,) that still run.

    At the end all problems are reported as done. `sizes` are as in `reporting`.
    """
    with _listening(sizes, stage) as listener:
        if listener is None:
            yield ignore_progress
            return
        reports = _Reports(sizes, stage.name, listener)
        yield reports.running
        reports.running(np.zeros(len(sizes), bool))


def ignore_progress(_: Any) -> None:
    """Ignores a report, where progress is not reported."""


@contextmanager
def _listening(sizes: NDArray[Any], stage: Stage) -> Iterator[Listener | None]:
    """The function that takes the reports, or None."""
    if not stage.progress:
        yield None
    elif callable(stage.progress):
        yield stage.progress
    else:
        with _bar(int(np.sum(sizes)), stage) as bar:
            yield _shown_by(bar)


class _Reports:
    def __init__(self, sizes: NDArray[Any], name: str, listener: Listener) -> None:
        self._sizes, self._name, self._listener = sizes, name, listener
        self._began = time.perf_counter()
        self._problems = self._rows = 0

    def finished(self, number: int) -> None:
        """Reports the next `number` problems as done."""
        rows = self._sizes[self._problems : self._problems + number]
        self._report(self._problems + number, self._rows + int(np.sum(rows)))

    def running(self, which: NDArray[np.bool_]) -> None:
        """Reports all problems except these (K,) as done."""
        self._report(int(np.count_nonzero(~which)), int(np.sum(self._sizes[~which])))

    def _report(self, problems: int, rows: int) -> None:
        self._problems, self._rows = problems, rows
        totals = len(self._sizes), int(np.sum(self._sizes))
        seconds = time.perf_counter() - self._began
        self._listener(ProgressReport(self._name, problems, totals[0], rows, totals[1], seconds))


def _bar(rows: int, stage: Stage) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'platt-jax[progress]'") from None
    name = f"{stage.name}: compiling"
    return tqdm(total=rows, unit=" rows", unit_scale=True, desc=name, leave=stage.last)


def _shown_by(bar: Any) -> Listener:
    def show(report: ProgressReport) -> None:
        bar.set_description_str(report.stage, refresh=False)
        bar.set_postfix_str(f"{report.problems - report.problems_done:,} open", refresh=False)
        bar.update(report.rows_done - bar.n)

    return show
