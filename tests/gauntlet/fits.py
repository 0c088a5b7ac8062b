"""Promises of fits, predictions, bands, tables and files."""

import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import expit

import platt_jax as pj

from . import chance
from .cell import STOPPED, STRAY, Cell, settled
from .worlds import SURE, Rows

# What the mean of a skewed posterior needs to leave its own 95 % band: a deviation of 3.9.
WIDE = 1.96 * 3.5
# What two of three scores differ by, as a share of their range, where its square is a rounding of
# float32: 64 of its units are as good as 0 in `platt_jax.curves.newton`.
NEAR = (64 * np.finfo(np.float32).eps) ** 0.5


def single_curves(cell: Cell) -> None:
    """Without a population: each segment's rows alone, or all of them together."""
    for pooling in ("none", "complete"):
        made, rows = cell.bench.fitted(pooling), cell.world.fitted
        _listen(cell, pooling)
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        owner = np.searchsorted(made.keys, rows.segments)
        n = np.bincount(owner, weights, len(made.keys))
        n_pos = np.bincount(owner, weights * rows.labels, len(made.keys))
        ended = np.asarray(made.fit.status)
        empty = n == 0
        want = np.where(empty & (pooling == "none"), pj.Status.EMPTY, pj.Status.CONVERGED)
        cell.want(
            (ended == want).all(),
            f"{pooling}: status {pj.Status(ended[ended != want][:1])}"
            if (ended != want).any()
            else "",
        )
        proba = made.predict_proba(rows.scores, rows.segments, offset=rows.offset)
        proba = cell.want_probabilities(np.asarray(proba)[weights > 0], pooling)
        # The condition of the optimum for B: predictions add up to Platt's targets.
        if pooling == "complete":
            n, n_pos, owner = (np.array([x.sum()]) for x in (n, n_pos, 0 * owner))
            owner = np.zeros(len(rows), int)
        targets = n_pos * (n_pos + 1) / (n_pos + 2) + (n - n_pos) / (n - n_pos + 2)
        off = np.bincount(owner[weights > 0], (weights[weights > 0] * proba), len(n)) - targets
        rounding = 1e-3 if rows.scores.dtype == np.float32 else 1e-6
        # A float B is right to half a unit, which moves a prediction by a quarter of it or less.
        unit = np.nan_to_num(np.spacing(np.abs(made.fit.B)))[: len(n)]
        where = np.abs(off) > rounding * (1 + n) + n * unit / 8
        most = np.abs(off).max()
        cell.want(not where.any(), f"{pooling}: {where.sum()} do not add up, by {most:.2g}")
        for night in cell.world.nights[:1]:
            q = made.predict_proba(night.scores, night.segments, offset=night.offset)
            alive = ~np.isin(night.segments, made.keys[empty])
            cell.want_probabilities(np.asarray(q)[alive], f"{pooling}, fresh")


def other_curves(cell: Cell) -> None:
    """Curves that are no sigmoids: a status for each, probabilities, sums, and files."""
    rows, night = cell.world.fitted, cell.world.nights[0]
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    kinds = ["quadratic", "beta", "spline"]
    if rows.offset is None:
        kinds += ["isotonic", "bins", "venn_abers", "shift", "temperature"]
    for curve in kinds:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            made = pj.fit_segments(
                *rows.data(), weights=rows.weights, offset=rows.offset, curve=curve
            )
        cell.warned += [str(x.message) for x in heard]
        owner = np.searchsorted(made.keys, rows.segments)
        n, n_pos = (np.bincount(owner, weights * x, len(made.keys)) for x in (1, rows.labels))
        status = np.asarray(made._inspected()[0].status)
        want = np.where(n == 0, pj.Status.EMPTY, pj.Status.CONVERGED)
        wrong = status[status != want]
        # A temperature is unbounded where signs are right; float32 has no B of such scores.
        rounding = np.spacing(np.abs(rows.scores).max())
        if curve == "temperature" or (curve == "shift" and rounding > 2e-3):
            wrong = wrong[:0]
        # float32 cannot tell a parabola from a line by these, and says so.
        if curve == "quadratic" and rows.scores.dtype == np.float32:
            told = status == pj.Status.LINE_SEARCH_FAILED
            told &= _nearly_two(rows.scores, owner, weights, len(n))
            wrong = status[(status != want) & ~told]
        cell.want(not len(wrong), f"{curve}: {[pj.Status(int(x)).name for x in wrong[:3]]}")
        proba = made.predict_proba(rows.scores, rows.segments, offset=rows.offset)
        proba = cell.want_probabilities(np.asarray(proba)[weights > 0], curve)
        if curve == "venn_abers":
            lower, upper = made.bounds(rows.scores, rows.segments, offset=rows.offset)
            cell.want_order(lower[weights > 0], proba, upper[weights > 0], "bounds")
        fresh = made.predict_proba(night.scores, night.segments, offset=night.offset)
        alive = ~np.isin(night.segments, made.keys[n == 0])
        cell.want_probabilities(np.asarray(fresh)[alive], f"{curve}, fresh")
        if curve in ("temperature", "venn_abers") or (status != want).any():
            continue
        targets = n_pos
        if curve not in ("isotonic", "bins"):
            targets = n_pos * (n_pos + 1) / (n_pos + 2) + (n - n_pos) / (n - n_pos + 2)
        some = owner[weights > 0]
        off = np.bincount(some, weights[weights > 0] * proba, len(n)) - targets
        rounding = 2e-3 if rows.scores.dtype == np.float32 else 1e-5
        if curve == "shift":  # B is right to half its unit
            rounding = rounding + np.nan_to_num(np.spacing(np.abs(made.fit.B))) / 8
        most = np.abs(off / (1 + n))
        cell.want((most <= rounding).all(), f"{curve}: sums are off by {most.max():.2g} a row")
        with tempfile.TemporaryDirectory() as folder:
            pj.save(Path(folder) / "c", made)
            cell.want(pj.load(Path(folder) / "c") == made, f"{curve}: another one from its file")


def _nearly_two(scores, owner, weights, number):
    """Which segments have three scores of which two are nearer than float32 can tell by squares."""
    near = np.zeros(number, bool)
    for k in range(number):
        own = np.unique(scores[(owner == k) & (weights > 0)]).astype(float)
        if len(own) == 3:
            near[k] = np.diff(own).min() <= NEAR * np.ptp(own)
    return near


def pooled(pooling: str):
    """With a population of segments, or with levels."""

    def check(cell: Cell) -> None:
        world = cell.world
        if not cell.poolings(pooling):
            _refused(cell, pooling)
            return
        made, rows, night = cell.bench.fitted(pooling), world.fitted, world.nights[0]
        _listen(cell, pooling)
        status = made.population.status.name if made.population is not None else "CONVERGED"
        if status not in ("CONVERGED", "BOUNDARY", "NOT_ESTIMATED"):
            heard = any(word in text for text in cell.bench.warned[pooling] for word in STOPPED)
            cell.want(heard, f"population {status}, and no warning")
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        proba = made.predict_proba(rows.scores, rows.ids(pooling), offset=rows.offset)
        proba = cell.want_probabilities(proba)
        adds_up(cell, (weights * proba).sum(), (weights * rows.labels).sum(), weights.sum())
        fresh = made.predict_proba(night.scores, night.ids(pooling), offset=night.offset)
        fresh = cell.want_probabilities(fresh, "fresh rows")
        # The page on guarantees: of sure scores and segments that no normal describes, one curve
        # may know more.
        if world.plain and (world.normal or not world.sure):
            _no_worse(cell, fresh, night, "one curve for all")
        _bands(cell, made, pooling)

    return check


def with_covariates(cell: Cell) -> None:
    """The number of rows, and numbers and categories that say nothing of the segments."""
    rows, night = cell.world.fitted, cell.world.nights[0]
    keys = np.unique(rows.segments)
    rng = np.random.default_rng(len(rows))
    table = {
        "segment": keys,
        "size": rng.normal(size=len(keys)),
        "kind": rng.choice([*"ab"], len(keys)),
    }
    given = {"weights": rows.weights, "offset": rows.offset, "pooling": "partial"}
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    for covariates in ("rows", table):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            made = pj.fit_segments(*rows.data(), **given, covariates=covariates)
        said = [str(x.message) for x in heard]
        cell.warned += [x for x in said if any(w in x.lower() for w in STRAY)]
        what = covariates if covariates == "rows" else "a table"
        status = made.population.status.name
        if status not in ("CONVERGED", "BOUNDARY", "NOT_ESTIMATED"):
            told = any(word in text for text in said for word in STOPPED)
            cell.want(told, f"{what}: population {status}, and no warning")
        proba = made.predict_proba(rows.scores, rows.segments, offset=rows.offset)
        proba = cell.want_probabilities(proba, what)
        seen = (weights * rows.labels).sum()
        adds_up(cell, (weights * proba).sum(), seen, weights.sum(), f"{what}: ")
        fresh = made.predict_proba(night.scores, night.segments, offset=night.offset)
        fresh = cell.want_probabilities(fresh, f"{what}, fresh rows")
        lower, upper = made.band(night.scores, night.segments, offset=night.offset)
        narrow = ~(chance.half_width(lower, upper) > WIDE)
        cell.want_order(lower[narrow], fresh[narrow], upper[narrow], f"{what}: band", 1e-5)
        new = np.setdiff1d(night.segments, keys)
        if made.population.covariates is not None and covariates != "rows" and len(new):
            kinds = np.resize(np.unique(table["kind"]), len(new))
            more = made.with_segments(
                {"segment": new, "size": np.linspace(-9, 9, len(new)), "kind": kinds}
            )
            seen = ~np.isin(night.segments, new)
            again = more.predict_proba(night.scores, night.segments, offset=night.offset)
            again = cell.want_probabilities(again, f"{what}, new segments")
            cell.want_same(again[seen], fresh[seen], "with new segments, others")
        # Covariates that say nothing cost what their few numbers may overfit.
        if cell.world.plain and settled(made) and len(keys) >= 20:
            _no_worse(cell, fresh, night, "no covariates", "partial")
        with tempfile.TemporaryDirectory() as folder:
            pj.save(Path(folder) / "c", made)
            cell.want(pj.load(Path(folder) / "c") == made, f"{what}: another one from its file")


def _refused(cell: Cell, pooling: str) -> None:
    """A ValueError says to leave out a column of one value, or one that another determines."""
    with cell.refusing("segments"):
        cell.bench.fitted(pooling)
        cell.want(False, "a column that says nothing is a level")


def adds_up(cell: Cell, predicted: float, seen: float, total: float, what: str = "") -> None:
    """Positives that are predicted for rows that were fitted: 0.85 to 1.2 of those seen.

    Of the rarer class; by 3 more where few were seen, since Platt's targets add up to 1 too and
    a population's mean is not known better; by 5 where one or two were. By Fisher's identity a
    posterior expects the positives seen and 1 / 1.5^2 for each unit of log-odds between the mean
    and the center of its prior, of which the library counts 3 at most.
    """
    if seen > total / 2:
        predicted, seen = total - predicted, total - seen
    more = 3 * (seen < 10) + 2 * (seen < 3)
    holds = 0.85 * seen - 3 * (seen < 10) <= predicted <= 1.2 * seen + more
    cell.want(holds, f"{what}{predicted:.1f} predicted on the fitted rows, {seen:.0f} seen")


def _listen(cell: Cell, pooling: str) -> None:
    """Warnings of the fit, which another cell may have made."""
    cell.warned += [x for x in cell.bench.warned[pooling] if any(w in x.lower() for w in STRAY)]


def _no_worse(cell: Cell, proba, rows: Rows, than: str, pooling: str = "complete") -> None:
    other = cell.bench.fitted(pooling)
    other = other.predict_proba(rows.scores, rows.segments, offset=rows.offset)
    seen = rows.seen
    if not seen.any():
        return
    given = (np.asarray(x)[seen] for x in (proba, other, rows.log_odds, rows.segments))
    found = chance.worse(*given, len(cell.world.fitted))
    cell.want(found is None, f"worse than {than}: {found}")


def _bands(cell: Cell, made, pooling: str) -> None:
    """One row of each segment: its band's order, and whether it holds the truth."""
    world = cell.world
    rows = first_of_each(world.nights[0])
    value = made.predict_proba(rows.scores, rows.ids(pooling), offset=rows.offset)
    band = made.band(rows.scores, rows.ids(pooling), offset=rows.offset)
    lower, upper = (np.asarray(x, float) for x in band)
    cell.want(not (lower > upper).any(), f"bands upside down ({(lower > upper).sum()})")
    narrow = ~(chance.half_width(lower, upper) > WIDE)
    cell.want_order(lower[narrow], np.asarray(value)[narrow], upper[narrow], "band", 1e-5)
    if made.population is None or not made.population.estimated:
        return
    cell.want_probabilities(lower, "a band's end")
    right = world.effects == "segments" if pooling == "partial" else world.effects == pooling
    # All segments share the error of the mean, which few positives leave large: they miss together.
    many = len(world.slope) >= 30 and world.fewer >= 10
    if not (right and world.plain and world.normal and many):
        return
    # 0.95 in the middle. Where positives are rare, rows few or predictions sure, the page on
    # pooling says how much less: 0.77 at the least, an average over worlds. In one world all bands
    # rest on the same spreads: of 1,800 segments of 3 rows with 30 positives in all, 52 to 99 %
    # hold the truth, 78 % on average.
    easy = world.fewer >= 100 and len(world.fitted) >= 10 * len(world.slope) and not world.sure
    truth = expit(rows.log_odds)
    # N rows do not tell 1e-33 from 0.1 / N: there the prior of the mean decides.
    near = max(1e-6, 0.1 / len(world.fitted))
    for name, where in (("seen", rows.seen), ("unseen", ~rows.seen)):
        held = ((lower - near <= truth) & (truth <= upper + near))[where]
        few = chance.too_few(int(held.sum()), len(held), 0.88 if easy else 0.45)
        cell.want(not few, f"bands hold the truth in {held.sum()} of {len(held)} {name} segments")


def _aim(rows: Rows, made):
    """The true curves as Platt's targets smooth them, which bands of unpooled fits are around.

    They are the fits of the true probabilities as soft labels, between the targets of the classes.
    """
    owner = np.searchsorted(made.keys, rows.segments)
    n_pos, n_neg = (np.asarray(x)[owner] for x in (made.fit.n_pos, made.fit.n_neg))
    low, high = 1 / (n_neg + 2), (n_pos + 1) / (n_pos + 2)
    soft = low + (high - low) * expit(rows.log_odds)
    given = {"soft": True, "offset": rows.offset, "options": pj.Options(targets="none")}
    return pj.fit_segments(rows.scores, soft, rows.segments, **given)


def first_of_each(rows: Rows) -> Rows:
    """One row of each segment."""
    return rows.where(np.unique(rows.segments, return_index=True)[1])


def unpooled_bands(cell: Cell) -> None:
    made, world = cell.bench.fitted("none"), cell.world
    rows = first_of_each(world.nights[0])
    value = made.predict_proba(rows.scores, rows.segments, offset=rows.offset)
    for given in ({}, {"level": 0.5}, {"simultaneous": True}):
        band = made.band(rows.scores, rows.segments, offset=rows.offset, **given)
        cell.want_order(band[0], value, band[1], f"band {given}", 1e-5)
    least = np.minimum(*(np.asarray(x) for x in (made.fit.n_pos, made.fit.n_neg)))
    enough = np.isin(rows.segments, made.keys[least >= 20])
    if world.plain and enough.sum() >= 10:
        lower, upper = made.band(rows.scores, rows.segments, offset=rows.offset)
        truth = _aim(world.fitted, made).predict_proba(
            rows.scores, rows.segments, offset=rows.offset
        )
        held = ((lower <= truth) & (truth <= upper))[enough]
        few = chance.too_few(int(held.sum()), len(held), 0.88)
        cell.want(not few, f"bands hold the truth in {held.sum()} of {len(held)} segments")


def weights_count_rows(cell: Cell) -> None:
    """Weight 2 is the row twice, in every pooling."""
    rows = cell.world.fitted
    rng = np.random.default_rng(cell.world.seed)
    counts = rng.integers(1, 4, len(rows))
    twice = replace(rows.where(np.repeat(np.arange(len(rows)), counts)), weights=None)
    once = replace(rows, weights=counts.astype(float))
    at = first_of_each(cell.world.nights[0])
    for pooling in ("none", "complete", "partial"):
        if pooling == "partial" and not cell.settled:
            continue
        made = [cell.bench.fit(x, pooling) for x in (once, twice)]
        if pooling == "partial" and not all(map(settled, made)):
            continue
        found = [x.predict_proba(at.scores, at.segments, offset=at.offset) for x in made]
        to = 5e-3 if rows.scores.dtype == np.float32 else 1e-6
        cell.want_same(*found, f"{pooling}: weight 2 and the row twice", to)


def row_order(cell: Cell) -> None:
    """Another order of the rows changes rounding only."""
    rows = cell.world.fitted
    order = np.random.default_rng(cell.world.seed).permutation(len(rows))
    at = first_of_each(cell.world.nights[0])
    for pooling in ("none", "partial") if cell.settled else ("none",):
        calibrators = cell.bench.fitted(pooling), cell.bench.fit(rows.where(order), pooling)
        if pooling == "partial" and not settled(calibrators[1]):
            continue
        found = [x.predict_proba(at.scores, at.segments, offset=at.offset) for x in calibrators]
        to = 5e-3 if rows.scores.dtype == np.float32 else 1e-6
        cell.want_same(*found, f"{pooling}: rows in another order", to)


def tables(cell: Cell) -> None:
    """A line for each segment, of numbers that its fit has."""
    for pooling in cell.poolings("none", "complete", "partial", "nested", "crossed"):
        made = cell.bench.fitted(pooling)
        table = made.table()
        cell.want(len(next(iter(table.values()))) == len(made.keys), f"{pooling}: lines")
        cell.want(len(repr(made)) > 20, f"{pooling}: repr")
        errors = np.asarray(made.fit.standard_errors, float)
        cell.want(not (errors < 0).any(), f"{pooling}: negative standard errors")
        if made.population is not None and made.population.estimated:
            shrinkage = np.asarray(made.shrinkage)
            within = (shrinkage >= -1e-6) & (shrinkage <= 1 + 1e-6)
            cell.want(within.all(), f"{pooling}: shrinkage {shrinkage[~within][:1]}")
        if made.levels is not None:
            _levels(cell, made.levels, pooling)


def _levels(cell: Cell, levels, pooling: str) -> None:
    share = np.asarray(levels["share"], float)
    cell.want(((share >= 0) & (share <= 1) | np.isnan(share)).all(), f"{pooling}: share {share}")
    for name in ("slope", "intercept"):
        spread, error = levels[f"{name}_sd"], levels[f"se_{name}_sd"]
        per_score = cell.world.scale if name == "slope" else 1
        # Spreads of curves, not of rounding; where slopes are as large as SURE, so may spreads be.
        most = SURE if cell.world.sure else 10
        if name == "slope" or cell.world.shift == 0:
            off = np.asarray(spread) * per_score >= most
            cell.want(not off.any(), f"{pooling}: {name}_sd {spread}")
        cell.want(not (np.asarray(error) == 0).any(), f"{pooling}: se_{name}_sd is exactly 0")


def only(cell: Cell) -> None:
    """Segments that are left out are as unseen ones; the others keep their answers."""
    rows = first_of_each(cell.world.nights[0])
    for pooling in cell.poolings("none", "partial", "nested"):
        made = cell.bench.fitted(pooling)
        keep = np.arange(len(made.keys)) % 2 == 0
        some = made.only(keep)
        before, after = (
            np.asarray(x.predict_proba(rows.scores, rows.ids(pooling), offset=rows.offset))
            for x in (made, some)
        )
        kept = some.seen(rows.ids(pooling))
        cell.want_same(before[kept], after[kept], f"{pooling}: segments that were kept")
        alive = ~np.isnan(before)
        cell.want_probabilities(after[~kept & alive], f"{pooling}: left out")


def published(cell: Cell) -> None:
    """From (A, B) and covariances alone: the same predictions and bands of the segments."""
    made = cell.bench.fitted("none")
    fit = made.fit
    again = pj.SegmentCalibrator.from_table(
        made.keys, fit.A, fit.B, covariance=fit.covariance, n_pos=fit.n_pos, n_neg=fit.n_neg
    )
    rows = first_of_each(cell.world.nights[0])
    some = made.seen(rows.segments)
    at = rows.scores[some], rows.segments[some]
    cell.want_same(made.predict_proba(*at), again.predict_proba(*at), "predictions")
    for mine, other in zip(made.band(*at), again.band(*at), strict=True):
        cell.want_same(mine, other, "bands")


def files(cell: Cell) -> None:
    """The same answers, bit by bit, after `save` and `load`."""
    rows = cell.world.nights[0]
    with tempfile.TemporaryDirectory() as folder:
        for pooling in cell.poolings("none", "complete", "partial", "nested", "crossed"):
            path = Path(folder) / f"{pooling}.npz"
            made = cell.bench.fitted(pooling)
            pj.save(path, made)
            again = pj.load(path)
            for name in ("predict_proba", "band"):
                one, other = (
                    getattr(x, name)(rows.scores, rows.ids(pooling), offset=rows.offset)
                    for x in (made, again)
                )
                cell.want_same(one, other, f"{pooling}: {name} of a file")


def one_vs_rest(cell: Cell) -> None:
    scores, labels = cell.world.classes
    made = pj.fit_one_vs_rest(scores, labels, classes=range(scores.shape[1]))
    each = cell.want_probabilities(made.predict_proba(scores, normalize=False), "each class")
    together = cell.want_probabilities(made.predict_proba(scores), "normalized")
    cell.want(np.allclose(together.sum(1), 1, atol=1e-5), "rows do not add up to 1")
    n_pos = np.bincount(labels, minlength=scores.shape[1])
    targets = n_pos * (n_pos + 1) / (n_pos + 2)
    targets += (len(labels) - n_pos) / (len(labels) - n_pos + 2)
    off = np.abs(each.sum(0) - targets).max()
    cell.want(off < 1e-3 * (1 + len(labels)), f"another number of positives, by {off:.2g}")
    lower, upper = made.band(scores)
    cell.want_order(lower, each, upper, "band", 1e-5)
    cell.want(len(made.table()["status"]) == scores.shape[1], "lines of the table")
    several = np.random.default_rng(cell.world.seed).random(scores.shape) < each
    multilabel = pj.fit_one_vs_rest(scores, several)
    cell.want_probabilities(multilabel.predict_proba(scores, normalize=False), "multilabel")


def tools_of_classes(cell: Cell) -> None:
    """Classes are segments: what holds of these holds of those."""
    scores, labels = cell.world.classes
    number = scores.shape[1]
    cut = np.arange(len(labels)) % 2 == 0
    rows = pj.ClassRows(scores[cut], labels[cut], range(number))
    fresh = scores[~cut], labels[~cut]
    for pooling in ("none", "partial"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of classes without a row
            made = pj.fit_one_vs_rest(rows, pooling=pooling)
            table = pj.triage(made, *fresh)
            updated = pj.update(made, *fresh)
            watched = pj.Monitor.start(made).update(*fresh).table()
        own = cell.want_probabilities(made.predict_proba(scores, normalize=False), pooling)
        segments = made.by_class.predict_proba(scores[:, -1], made.classes[-1])
        cell.want_same(own[:, -1], segments, f"{pooling}: a class as a segment", 1e-6)
        cell.want(len(table["class"]) == number, f"{pooling}: lines of triage")
        cell.want(len(watched["class"]) <= number, f"{pooling}: lines of the monitor")
        flagged = int(np.sum(table["flagged"]))
        cell.want(
            flagged <= chance.most_alarms(number, 0.05), f"{pooling}: {flagged} of {number} flagged"
        )
        p = cell.want_probabilities(updated.predict_proba(scores, normalize=False), "update")
        expected, seen = p.sum(0), np.bincount(labels, minlength=number)
        slack = 5 * np.sqrt((p * (1 - p)).sum(0)) + 0.2 * seen + 5
        off = np.abs(expected - seen) - slack
        cell.want((off <= 0).all(), f"{pooling}: update predicts {expected} of {seen}")
        some = np.arange(number) > 0
        if number > 1:
            kept = made.only(some).predict_proba(scores[:, some], normalize=False)
            cell.want_same(kept, own[:, some], f"{pooling}: only", 0.0)


def shares(cell: Cell) -> None:
    """Labels of 0 and 1 as soft labels, and five trials that agree: the same curves."""
    rows = cell.world.fitted
    given = {"weights": rows.weights, "offset": rows.offset, "options": pj.Options(targets="none")}
    at = first_of_each(cell.world.nights[0])
    for pooling in ("none", "partial"):
        data = rows.scores, rows.segments
        soft, trials = (
            pj.fit_segments(data[0], k * rows.labels, data[1], pooling=pooling, **given, **how)
            for k, how in ((1, {"soft": True}), (5, {"trials": 5}))
        )
        p, q = (
            cell.want_probabilities(x.predict_proba(at.scores, at.segments, offset=at.offset))
            for x in (soft, trials)
        )
        one_class = len(np.unique(rows.labels)) < 2  # whose trials count once
        if not one_class:
            cell.want_same(p, q, f"{pooling}: five trials that agree", 1e-2)


def no_rows(cell: Cell) -> None:
    """0 rows are answered by 0 numbers, and change nothing."""
    nothing = cell.world.nights[0].where(np.zeros(len(cell.world.nights[0]), bool))
    for pooling in ("none", "partial"):
        made = cell.bench.fitted(pooling)
        cell.want(len(made.predict_proba(nothing.scores, nothing.segments)) == 0, "predict_proba")
        cell.want(len(made.band(nothing.scores, nothing.segments)[0]) == 0, "band")
        functions = {
            "triage": lambda made=made: pj.triage(made, *nothing.data()),
            "update": lambda made=made: pj.update(made, *nothing.data()),
            "Monitor.update": lambda made=made: pj.Monitor.start(made).update(*nothing.data()),
            "Monitor.sums": lambda made=made: pj.Monitor.start(made).sums(*nothing.data()),
        }
        if pooling == "none":
            functions["estimate_rates"] = lambda made=made: pj.inference.estimate_rates(
                made, nothing.scores, nothing.segments, from_rate=0.5
            )
        for name, function in functions.items():
            try:
                answer = function()
            except Exception as error:
                cell.want(False, f"{pooling}: {name}: {type(error).__name__}: {str(error)[:60]}")
                continue
            if name == "update":
                at = first_of_each(cell.world.nights[0])
                found = [x.predict_proba(at.scores, at.segments) for x in (made, answer)]
                cell.want_same(*found, f"{pooling}: {name}", 1e-3)
