"""What a user's own code looks like to a type checker: `.ci/wheel` checks it, nothing runs it."""

from pathlib import Path
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import platt_jax as pj
from platt_jax import distributed, export, inference, metrics, sql, streaming
from platt_jax.report import to_html
from platt_jax.results.tables import Table


def calibrate(
    f: NDArray[np.float64], y: NDArray[np.int8], s: NDArray[np.str_]
) -> pj.SegmentCalibrator:
    rows = pj.SegmentRows(f, y, s)
    prior = pj.GaussianPrior(np.zeros(2), np.eye(2))
    calibrator = pj.fit_segments(rows, prior=prior, options=pj.Options(tol=1e-6), progress=True)
    assert_type(calibrator, pj.SegmentCalibrator)
    assert_type(calibrator["a"], pj.Fit)
    assert_type(len(calibrator), int)
    assert_type(calibrator.only(calibrator.fit.converged), pj.SegmentCalibrator)
    calibrator.band(f, s, level=0.9)
    return pj.update(calibrator, f, y, s, forgetting=0.9)


def judge(calibrator: pj.SegmentCalibrator, f: list[float], y: list[int], s: list[str]) -> Table:
    table = pj.triage(calibrator, f, y, s)
    assert_type(table, Table)
    to_html(Path("report.html"), calibrator, f, y, s)
    return table


def one(f: NDArray[np.float32], y: NDArray[np.bool_]) -> pj.Sigmoid:
    fitted = pj.fit(f, y)
    assert_type(fitted, pj.Fit)
    pj.save("sigmoid.npz", fitted)
    assert_type(pj.Status.CONVERGED.message, str)
    return fitted.sigmoid


def exported(calibrator: pj.SegmentCalibrator) -> str:
    made = export.to_sql(calibrator, "f", ["shop", "year"], dialect="spark", table="sigmoids")
    assert_type(made, export.SqlExport)
    assert_type(export.to_python(calibrator), str)
    assert_type(export.to_javascript(calibrator), str)
    return made.expression


def elsewhere(path: Path) -> list[pj.SegmentCalibrator]:
    return [
        pj.fit_segments(sql.rows(str(path), score="f", label="y", segment="s")),
        pj.fit_segments(streaming.rows(path, "rows", score="f", label="y", segment="s")),
        pj.fit_segments(distributed.rows([1.0], [0], ["a"], time_limit=3.0, checkpoint=path)),
    ]


def measured(p: NDArray[np.float64], y: NDArray[np.int8]) -> None:
    metrics.log_loss(p, y)
    inference.prior_from(pj.fit(p, y))


def wrong(calibrator: pj.SegmentCalibrator) -> None:
    """Each of these is an error, or the comment that expects one is."""
    pj.fit_segments([1.0], [1], ["a"], pooling="some")  # type: ignore[arg-type]
    pj.fit([1.0], [1], weight=[1.0])  # type: ignore[call-overload]
    pj.Options(targets=3)  # type: ignore[arg-type]
    calibrator.predict([1.0])  # type: ignore[attr-defined]
