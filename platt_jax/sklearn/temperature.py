"""Temperature scaling of several classes, with one parameter for all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from platt_jax.caller import Caller
from platt_jax.columns import Column
from platt_jax.multiclass.fitting import fit_rows
from platt_jax.multiclass.rows import read_multiclass
from platt_jax.options import Options
from platt_jax.results.multiclass import temperature_softmax
from platt_jax.results.tables import Table, cell
from platt_jax.status import Status


@dataclass(frozen=True, repr=False)
class TemperatureCalibrator:
    """P(class | f) = softmax(f / T), for logits f of C classes.

    Attributes:
        inverse_temperature: 1 / T >= 0; with 0 every probability is 1 / C.
        standard_error: standard error of the inverse temperature.
        nll: negative log-likelihood in nats, summed over weighted rows.
        status: `Status` of the fit. If the right class has the largest logit in every row, no
            temperature is best, and this one is that of Platt's targets, see `fit_multiclass`.
        iterations: number of Newton steps.
        rows: weighted number of rows.
    """

    inverse_temperature: float
    standard_error: float
    nll: float
    status: Status
    iterations: int
    rows: float

    @property
    def temperature(self) -> float:
        """T, which may be infinite."""
        return 1 / self.inverse_temperature if self.inverse_temperature else np.inf

    def predict_proba(self, logits: Column) -> NDArray[np.float64]:
        """Probabilities (N, C) for logits (N, C)."""
        return temperature_softmax(np.asarray(logits, np.float64), self.inverse_temperature)

    def table(self) -> Table:
        """One line: temperature, standard error of 1 / T, status and counts."""
        line = dict(
            temperature=self.temperature,
            inverse_temperature=self.inverse_temperature,
            se_inverse_temperature=self.standard_error,
            status=self.status.name,
            rows=self.rows,
            nll=self.nll,
            iterations=self.iterations,
        )
        return Table({name: np.array([value]) for name, value in line.items()})

    def __repr__(self) -> str:
        return (
            f"TemperatureCalibrator(temperature={cell(self.temperature)}, "
            f"status={self.status.name})"
        )


def fit_temperature(
    logits: NDArray[np.float64],
    codes: NDArray[np.intp],
    weights: NDArray[np.float64] | None = None,
    options: Options = Options(),
) -> TemperatureCalibrator:
    """The temperature by maximum likelihood (Guo, Pleiss, Sun & Weinberger 2017, section 4.2).

    It is the temperature of one segment by `fit_multiclass`. A row of class -1 is left out.
    """
    row_weights = np.ones(len(codes)) if weights is None else np.asarray(weights, np.float64)
    f = np.asarray(logits, np.float64)
    rows = read_multiclass(f, codes, row_weights, "temperature", f.shape[1], np.zeros(len(f), int))
    fits = fit_rows(rows, rows.all, "temperature", 1.0, options)
    if fits.status[0] == Status.NON_FINITE:
        Caller().warn(
            "temperature: scores that are not finite, or rows whose class is farther below the "
            'largest score than 1,000 times the usual: probabilities are NaN. method="sigmoid" '
            "fits each class by its own scores"
        )
    return TemperatureCalibrator(
        inverse_temperature=float(fits.coefficients[0, 0]),
        standard_error=float(fits.standard_errors[0, 0]),
        nll=float(fits.nll[0]),
        status=Status(int(fits.status[0])),
        iterations=int(fits.iterations[0]),
        rows=float(fits.rows[0]),
    )
