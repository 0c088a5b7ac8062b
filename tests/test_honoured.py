"""Every option beside every curve: it does what it says, or is refused by name."""

from itertools import product

import honoured
import numpy as np
import pytest
from data import labels_of

import platt_jax as pj
from platt_jax import Options
from platt_jax.options import HONOURED

AT = np.linspace(-4, 4, 33)


def is_compiled(name, field):
    """Whether a cell has a program of its own, as each setting of the core's search."""
    core = "sigmoid", "shift", "temperature", "solve"
    return name in core and field not in ("monotone", "intercept", "non_finite")


CELLS = [
    pytest.param(name, field, marks=pytest.mark.slow if is_compiled(name, field) else ())
    for name, field in product(HONOURED, honoured.OTHER)
]


def rows(falling=False):
    rng = np.random.default_rng(0)
    f = rng.normal(size=80) + 0.5
    y = labels_of(rng, f - 0.8).astype(int)
    return f, 1 - y if falling else y


def fitted(name, options, f, y):
    """Probabilities at the points and at the rows, and the number of iterations if there is one."""
    if name == "fit_multiclass":
        made = pj.fit_multiclass(np.stack([-f, f], 1), y, classes=[0, 1], options=options)
        p = made.predict_proba(np.stack([-AT, AT], 1))[:, 1]
        return p, None, int(made.fits.iterations[0])
    if name == "solve":
        made = pj.solve(f.astype(np.float32), y, options=options)
    else:
        made = pj.fit(f, y, curve=name, options=options)
    fit = getattr(made, "curves", made)
    where = made.sigmoid if hasattr(made, "sigmoid") else made
    at_rows = where.predict_proba(np.nan_to_num(f))
    iterations = getattr(fit, "iterations", None)
    return (
        np.asarray(where.predict_proba(AT)),
        np.asarray(at_rows),
        None if iterations is None else int(np.max(iterations)),
    )


@pytest.mark.parametrize(("name", "field"), CELLS)
def test_an_option_is_honoured_or_refused_by_name(name, field):
    options = Options(**{field: honoured.OTHER[field]})
    f, y = rows(falling=field == "monotone")
    if not honoured.honours(name, field):
        with pytest.raises(ValueError, match=rf"^Options\({field}="):
            fitted(name, options, f, y)
        return
    if field == "non_finite":
        f[3] = np.nan
        with pytest.raises(ValueError, match="finite"):
            fitted(name, options, f, y)
        return
    p, at_rows, iterations = fitted(name, options, f, y)
    if field == "monotone":
        assert (np.diff(p) >= -1e-12).all()
    elif field == "intercept":
        assert p[len(AT) // 2] == pytest.approx(0.5)
    elif field == "max_iter":
        assert iterations is None or iterations <= 1
    elif field == "targets" and name not in ("temperature", "venn_abers", "fit_multiclass"):
        assert at_rows.mean() == pytest.approx(y.mean(), rel=1e-6)
    elif field != "targets":
        usual, _, _ = fitted(name, Options(), f, y)
        np.testing.assert_allclose(p, usual, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", [x for x in HONOURED if x != "solve"])
def test_rows_that_are_not_finite_are_omitted_where_asked(name):
    f, y = rows()
    g = f.copy()
    g[3] = np.nan
    others = np.arange(len(f)) != 3
    p, *_ = fitted(name, Options(non_finite="omit"), g, y)
    expected, *_ = fitted(name, Options(), f[others], y[others])
    np.testing.assert_allclose(p, expected, rtol=0, atol=1e-9)


def test_a_choice_names_the_candidate_that_does_not_honour_an_option():
    f, y = rows()
    with pytest.raises(
        ValueError, match=r"^Options\(monotone=True\): expected False for quadratic"
    ):
        pj.inference.choose_curve(f, y, np.zeros(len(f)), options=Options(monotone=True))


def test_the_page_of_the_reference_is_this_table():
    assert honoured.STORED.read_text(encoding="utf-8") == honoured.page()
