"""How far a call has come: reports after every chunk, and the bar that shows them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ProgressReport(NamedTuple):
    """What a function passed as `progress` is called with after each chunk of the work.

    The counts begin anew with each stage; its last report has all problems done.

    Attributes:
        stage: what is under way: "fit" or "bootstrap"; with pooling="partial" also "pooled fit",
            "first fit" and "population, pass 1", and so on; of rows that are stored on disk also
            "reading rows" and "grouping rows".
        problems_done: problems finished so far; a bootstrap's are replicates.
        problems: problems in all.
        rows_done: their rows so far.
        rows: their rows in all.
        seconds: since the stage began; the first chunk's include compilation.
    """

    stage: str
    problems_done: int
    problems: int
    rows_done: int
    rows: int
    seconds: float

    @property
    def seconds_left(self) -> float:
        """Estimated for this stage, at the pace of its rows so far."""
        return self.seconds * (self.rows - self.rows_done) / max(1, self.rows_done)


Listener = Callable[[ProgressReport], Any]


class Stage(NamedTuple):
    """A part of a call whose progress is reported.

    Attributes:
        progress: what the user gave: whether to show a bar, or a function of a ProgressReport.
        name: what the part is called.
        last: whether it is the call's last, whose bar stays when it is done.
    """

    progress: bool | Listener = False
    name: str = "fit"
    last: bool = True


SILENT = Stage()


def stage(progress: bool | Listener, name: str = "fit", last: bool = True) -> Stage:
    """A Stage of what the user gave.

    Raises:
        ValueError: progress is neither true, false nor a function.
    """
    if not (callable(progress) or isinstance(progress, bool | np.bool_ | int | None)):
        raise ValueError(
            "progress: expected True, False or a function that takes a ProgressReport, "
            f"got {progress!r}"
        )
    return Stage(progress, name, last)


@contextmanager
def reporting(sizes: NDArray[Any], to: Stage) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of problems that a chunk has finished.

    Args:
        sizes: (K,) numbers of rows, in the order in which the problems are done.
        to: what is under way, and who wants to know.

    Raises:
        ImportError: a bar is wanted, and tqdm is missing.
    """
    if not to.progress:
        yield _ignore
    elif callable(to.progress):
        yield _reports(sizes, to.name, to.progress)
    else:
        with _bar(int(np.sum(sizes)), to) as bar:
            yield _reports(sizes, to.name, _shown_by(bar))


def _ignore(number: int) -> None:
    pass


def _reports(sizes: NDArray[Any], name: str, listener: Listener) -> Callable[[int], None]:
    began = time.perf_counter()
    problems, rows = len(sizes), int(np.sum(sizes))
    problems_done = rows_done = 0

    def advance(number: int) -> None:
        nonlocal problems_done, rows_done
        rows_done += int(np.sum(sizes[problems_done : problems_done + number]))
        problems_done += number
        seconds = time.perf_counter() - began
        listener(ProgressReport(name, problems_done, problems, rows_done, rows, seconds))

    return advance


def _bar(rows: int, to: Stage) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'platt-jax[progress]'") from None
    name = f"{to.name}: compiling"
    return tqdm(total=rows, unit=" rows", unit_scale=True, desc=name, leave=to.last)


def _shown_by(bar: Any) -> Listener:
    def show(report: ProgressReport) -> None:
        bar.set_description_str(report.stage, refresh=False)
        bar.set_postfix_str(f"{report.problems - report.problems_done:,} open", refresh=False)
        bar.update(report.rows_done - bar.n)

    return show
