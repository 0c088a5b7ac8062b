"""Curves of several kinds, and the curves of a file, whichever kind they are."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from platt_jax.arrays import Bools, Integers
from platt_jax.results.features import FEATURES
from platt_jax.results.fitted_curves import FittedCurves, array_fields
from platt_jax.results.log_odds_curves import LogOddsCurves
from platt_jax.results.pieces import Pieces, joined
from platt_jax.results.ragged_curves import (
    CornerCurves,
    RaggedCurves,
    StepCurves,
    VennAbersCurves,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class MixedCurves(FittedCurves):
    """A curve for each problem, of one of several kinds.

    Attributes:
        parts: the curves of all problems by each kind.
        part: (K,) the kind of each problem's curve, a place in `parts`.
        place: (K,) the problem's place among the curves of that kind.
    """

    kind: ClassVar[str] = "mixed"

    parts: tuple[FittedCurves, ...]
    part: NDArray[Any]
    place: NDArray[Any]

    @classmethod
    def chosen(cls, parts: tuple[FittedCurves, ...], part: Integers) -> "MixedCurves":
        """The curve of each problem that is at this place in `parts`."""
        problems = np.arange(len(part))
        common = {
            name: np.stack([getattr(x, name) for x in parts])[part, problems]
            for name in ("status", "low", "high")
        }
        return cls(parts=parts, part=np.asarray(part), place=problems, **common)

    def proba(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        return self._by_part("proba", scores, which)

    def log_odds(self, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        """See `FittedCurves`."""
        return self._by_part("log_odds", scores, which)

    def _by_part(self, method: str, scores: NDArray[Any], which: Integers) -> NDArray[Any]:
        values = np.empty(len(scores), np.result_type(scores, self.low))
        for number, part in enumerate(self.parts):
            mask = self.part[which] == number
            if mask.any():
                values[mask] = getattr(part, method)(scores[mask], self.place[which[mask]])
        return values

    @property
    def is_monotone(self) -> Bools:
        """See `FittedCurves`."""
        monotone = np.empty(len(self.part), bool)
        for number, part in enumerate(self.parts):
            mask = self.part == number
            monotone[mask] = part.is_monotone[self.place[mask]]
        return monotone

    def pieces(self) -> Pieces:
        """See `FittedCurves`."""
        all_pieces = []
        for number, part in enumerate(self.parts):
            problems = np.flatnonzero(self.part == number)
            part_pieces = part.only(self.place[problems]).pieces()
            all_pieces.append(replace(part_pieces, curve=problems[part_pieces.curve]))
        return joined(all_pieces)

    def columns(self) -> dict[str, NDArray[Any]]:
        """See `FittedCurves`."""
        names = np.array([x.label for x in self.parts])
        return {"curve": names[self.part]} | super().columns()

    def only(self, which: Any) -> Self:
        """See `FittedCurves`."""
        names = "status", "low", "high", "part", "place"
        arrays: dict[str, Any] = {name: getattr(self, name)[which] for name in names}
        return replace(self, **arrays)

    @property
    def about(self) -> dict[str, Any]:
        """See `FittedCurves`."""
        return {"kind": self.kind, "parts": [x.about for x in self.parts]}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """See `FittedCurves`."""
        arrays = {name: getattr(self, name) for name in array_fields(MixedCurves)}
        for number, part in enumerate(self.parts):
            arrays |= {f"{number}_{name}": x for name, x in part.arrays().items()}
        return arrays


_KINDS: dict[str, type[FittedCurves]] = {
    x.kind: x for x in (LogOddsCurves, CornerCurves, StepCurves, VennAbersCurves, MixedCurves)
}


def from_arrays(about: dict[str, Any], arrays: dict[str, Any]) -> FittedCurves:
    """The curves of a file: what `about` and `arrays` returned."""
    kind = _KINDS[about["kind"]]
    if kind is MixedCurves:
        parts = []
        for number, part in enumerate(about["parts"]):
            part_arrays = {name: arrays.pop(f"{number}_{name}") for name in array_names(part)}
            parts.append(from_arrays(part, part_arrays))
        return MixedCurves(parts=tuple(parts), **arrays)
    if kind is LogOddsCurves:
        options = {name: tuple(x) for name, x in about["options"].items()}
        features = FEATURES[about["features"]](**options)
        return LogOddsCurves(features=features, **arrays)
    return kind(**arrays)


def array_names(about: dict[str, Any]) -> list[str]:
    """The names of the arrays of curves of this kind."""
    names = array_fields(_KINDS[about["kind"]])
    for number, part in enumerate(about.get("parts", [])):
        names += [f"{number}_{name}" for name in array_names(part)]
    return names


def checked_lengths(curves: FittedCurves, number: int) -> None:
    """Refuses curves of a file whose arrays do not fit together."""
    if isinstance(curves, MixedCurves):
        for part in curves.parts:
            checked_lengths(part, len(part))
        arrays = {name: getattr(curves, name) for name in array_fields(MixedCurves)}
        if any(x.shape != (number,) for x in arrays.values()):
            raise ValueError("not the curves of these problems")
        sizes = np.array([len(part) for part in curves.parts])
        if not ((curves.part >= 0) & (curves.part < len(sizes))).all():
            raise ValueError("not the parts of these curves")
        if not ((curves.place >= 0) & (curves.place < sizes[curves.part])).all():
            raise ValueError("not the places of these curves")
        return
    lengths = dict.fromkeys(curves.arrays(), number)
    if isinstance(curves, RaggedCurves):
        total = int(curves.sizes.sum())
        lengths |= dict.fromkeys(curves._per_score, total)
        lengths |= dict.fromkeys(curves._per_gap, total + number)
        if curves.sizes.shape != (number,) or (curves.sizes < 1).any():
            raise ValueError("not the numbers of scores of these problems")
    for name, x in curves.arrays().items():
        if x.shape[:1] != (lengths[name],):
            raise ValueError(f"curve_{name}: not the numbers of these problems")
