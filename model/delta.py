"""One tensor of every side of a comparison and its difference from A's, selected and pooled by peak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from model.reduce import Reduction
from model.taps import Tap, Tile
from model.view import Request, View


@dataclass(frozen=True)
class Delta:
    """One tensor: a View of each side (None where it has none), and of each later side minus A (None where shapes differ)."""

    tap: str
    sides: tuple[View | None, ...]
    changes: tuple[View | None, ...]


def within(tap: Tap, select: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((axis, index) for axis, index in select if axis in tap.dims)


class Part:
    """Keeps the selected part of A's tensor, tile by tile: axes that are fixed stay, at length one."""

    def __init__(self, tap: Tap, fixed: Mapping[str, int]):
        self.tap, self.fixed, self.tiles = tap, {a: i for a, i in fixed.items() if a != "query_pos"}, {}

    def cut(self, x: Tensor) -> Tensor:
        for axis, index in self.fixed.items():
            x = x.narrow(self.tap.dims.index(axis), index, 1)
        return x

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        self.tiles[tile.rows.start if tile is not None else 0] = (self.cut(x.detach()), tile, x.shape)


class Difference:
    """B's watcher: B - A of the selected part, reduced like any signed tensor."""

    def __init__(self, name: str, tap: Tap, kept: Part, fixed: Mapping[str, int], budget: int):
        self.kept, self.fits = kept, kept.tap.dims == tap.dims
        select = tuple((axis, 0 if axis in kept.fixed else index) for axis, index in fixed.items() if axis != "batch")
        self.reduction = Reduction(Tap(" ".join(tap.dims), "signed", "B - A"), Request(name, select=select, budget=budget))

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        found = self.kept.tiles.get(tile.rows.start if tile is not None else 0)
        if not self.fits or found is None or found[2] != x.shape:
            self.fits = False
            return
        (a, other, _), b = found, self.kept.cut(x.detach())
        if tile is not None and other is not None:
            tile = Tile(tile.rows, tile.total, tile.visible & other.visible)
        self.reduction(b.float() - a.to(b.device).float(), tile)

    def view(self) -> View | None:
        return self.reduction.view() if self.fits else None
