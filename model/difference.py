"""How far two tensors of one name are apart: A's is kept for as long as its layer runs, B's is folded against it at the tap."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.taps import Tap, Tile

SAME, CHANGED, ONLY_A, ONLY_B, SHAPE, PLACE = "same", "changed", "only A", "only B", "shape", "place"
KEPT_BYTES = 256 << 20  # of one attention tensor of A; of a larger one every n-th query row is compared


@dataclass(frozen=True)
class Cell:
    """One tensor on both sides. `relative` = |B - A| / |A|, lengths over all unmasked entries; `largest` = max |B - A|.

    "same": equal bit for bit. "only A", "only B": the other side has no tensor of this name. "shape": both have, in different
    shapes, and "place" at different places of the block, so that there is no difference. `rms` and `peak` (largest |x|) of A
    and of B over what is compared, `own`: the largest |x| over all that the side sees itself; NaN where a side has none.
    """

    tap: str
    state: str
    relative: float
    largest: float
    rms: tuple[float, float]
    peak: tuple[float, float]
    how: str = ""
    own: tuple[float, float] = (float("nan"), float("nan"))


@dataclass
class Kept:
    """A's watcher: keeps a tensor, in the tiles it comes in. `every`: only each n-th query row of a large square; `at`: only
    these positions, where the sides cut the text differently."""

    tap: Tap
    every: int = 1
    at: Tensor | None = None
    tiles: dict[int, tuple[Tensor, Tensor | None]] = field(default_factory=dict)  # first row -> (x, visible)
    sizes: dict[int, tuple[float, float, int]] = field(default_factory=dict)  # the same -> `measured`, once asked for
    largest: float = 0.0  # |x| over everything, where only a part is kept

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        start, kept, visible = rows(self.tap, x.detach(), tile, self.every)
        self.tiles[start] = (kept, visible) if self.at is None else self._chosen(kept, visible, start)
        if self.partial:
            self.largest = larger(self.largest, reach(self.tap, x, tile))

    @property
    def partial(self) -> bool:
        return self.every > 1 or self.at is not None

    @property
    def own(self) -> float:
        """The largest |x| of the whole tensor that its side can see."""
        if self.partial:
            return self.largest
        return larger(0.0, *(self.measured(start, seen)[1] for start, (_, seen) in self.tiles.items()))

    def _chosen(self, x: Tensor, visible: Tensor | None, start: int) -> tuple[Tensor, Tensor | None]:
        """The positions of `at`, on every axis of positions; of query rows those that are in this tile."""
        at = self.at.to(x.device)
        for axis in ("pos", "query_pos", "key_pos"):
            if axis in self.tap.dims:
                i = self.tap.dims.index(axis)
                first = start if axis == "query_pos" else 0
                here = at[(at >= first) & (at < first + x.shape[i])] - first
                x = x.index_select(i, here)
                if visible is not None and axis != "pos":
                    visible = visible.index_select(("query_pos", "key_pos").index(axis), here)
        return x, visible

    def joined(self) -> "Kept":
        """The same as one tile."""
        seen = [self.tiles[start][1] for start in sorted(self.tiles)]
        tile = self.whole(), None if None in seen or not seen else torch.cat(seen)
        return Kept(self.tap, self.every, self.at, {0: tile}, largest=self.largest)

    def measured(self, start: int, visible: Tensor | None) -> tuple[float, float, int]:
        """Of one tile, over what both sides see; kept where that is all that A sees."""
        x, seen = self.tiles[start]
        if visible is not seen and not (visible is not None and seen is not None and torch.equal(visible, seen)):
            return measured(x, visible)
        if start not in self.sizes:
            self.sizes[start] = measured(x, seen)
        return self.sizes[start]

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x, _ in self.tiles.values())

    def whole(self) -> Tensor:
        parts = [self.tiles[start][0] for start in sorted(self.tiles)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, self.tap.dims.index("query_pos"))


def rows(tap: Tap, x: Tensor, tile: Tile | None, every: int) -> tuple[int, Tensor, Tensor | None]:
    """-> first row of this tile, x with each `every`-th query row of the whole tensor, which of its entries are visible."""
    if tile is None or "query_pos" not in tap.dims:
        return 0, x, None
    start, visible = tile.rows.start, tile.visible if "key_pos" in tap.dims else None
    if every > 1:
        take = torch.arange(-start % every, x.shape[tap.dims.index("query_pos")], every, device=x.device)
        x = x.index_select(tap.dims.index("query_pos"), take)
        visible = None if visible is None else visible.index_select(0, take)
    # an entry of a pattern that is masked is an exact 0, which counts; a masked logit means nothing
    return start, x, None if tap.kind == "probability" else visible


def reach(tap: Tap, x: Tensor, tile: Tile | None) -> float:
    """The largest |x| of one tile, over every row and what its own mask leaves."""
    return measured(*rows(tap, x.detach(), tile, 1)[1:])[1]


class Fold:
    """B's watcher: sums what differs from A's kept tensor, tile by tile. `kept` None: only B has this tensor; `elsewhere`: A
    has one of this name that is something else."""

    def __init__(self, name: str, tap: Tap, kept: Kept | None, elsewhere: bool = False):
        self.name, self.tap, self.kept, self.elsewhere = name, tap, kept, elsewhere
        self.fits, self.same, self.total, self.entries = kept is not None, True, 0.0, [0, 0]
        self.squares, self.peaks, self.largest, self.own = [0.0, 0.0], [0.0, 0.0], 0.0, 0.0

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        every = self.kept.every if self.kept else 1
        self.add(*rows(self.tap, x.detach(), tile, every), reach(self.tap, x, tile) if every > 1 else None)

    def add(self, start: int, b: Tensor, own: Tensor | None, largest: float | None = None) -> None:
        """A tile of B that begins at query row `start`; `own`: what B sees of it, `largest`: |x| where the tile is a part."""
        found = self.kept.tiles.get(start) if self.kept else None
        if self.elsewhere or found is None or found[0].shape != b.shape or self.kept.tap.dims != self.tap.dims:
            self.fits, sizes = False, measured(b, own)
            self._add(1, *sizes)
            self.own = larger(self.own, sizes[1] if largest is None else largest)
            return
        a, seen = found[0].to(b.device), found[1]
        visible = own & seen if seen is not None and own is not None else own
        self._add(0, *self.kept.measured(start, visible))
        sizes = self.kept.measured(start, visible) if self._equal(a, b, visible) else measured(b, visible)
        self._add(1, *sizes)
        if largest is None:
            largest = sizes[1] if visible is own or torch.equal(visible, own) else measured(b, own)[1]
        self.own = larger(self.own, largest)

    def _add(self, side: int, squares: float, peak: float, entries: int) -> None:
        self.squares[side] += squares
        self.peaks[side] = larger(self.peaks[side], peak)
        self.entries[side] += entries

    def _equal(self, a: Tensor, b: Tensor, visible: Tensor | None) -> bool:
        """Bit for bit where visible, a NaN being equal to a NaN; adds up the difference where there is one."""
        if torch.equal(a, b):
            return True
        squares, peak, _ = measured(b.float() - a.float(), visible)
        if peak == 0.0:
            return True
        if peak != peak and bool(((a == b) | (a.isnan() & b.isnan()) | (False if visible is None else ~visible)).all()):
            return True
        self.same = False
        if self.tap.kind == "index":  # a difference of indices means nothing: count them
            squares, peak = float((a != b).sum()), 1.0
        self.total += squares
        self.largest = larger(self.largest, peak)
        return False

    def cell(self) -> Cell:
        nan = float("nan")
        rms = [(s / n) ** 0.5 if n else nan for s, n in zip(self.squares, self.entries, strict=True)]
        if self.kept is None:
            return Cell(self.name, ONLY_B, nan, nan, (nan, rms[1]), (nan, self.peaks[1]), own=(nan, self.own))
        own = (self.kept.own, self.own)
        sides = {"rms": tuple(rms), "peak": tuple(self.peaks), "own": own}
        if not self.fits:
            a = alone(self.name, self.kept)
            rms, peak = (a.rms[0], rms[1]), (a.peak[0], self.peaks[1])
            why = "another place in the block" if self.elsewhere else "shapes differ"
            return Cell(self.name, PLACE if self.elsewhere else SHAPE, nan, nan, rms, peak, f"{why}: statistics only", own)
        how = f"one query row in {self.kept.every}" if self.kept.every > 1 else ""
        if self.same:
            return Cell(self.name, SAME, 0.0, 0.0, **sides, how=how)
        if self.tap.kind == "index":
            share = self.total / max(self.entries[0], 1)
            return Cell(self.name, CHANGED, share, 1.0, **sides, how="share of indices that differ")
        length = self.squares[0] ** 0.5
        relative = self.total**0.5 / length if length > 0 else nan if self.total != self.total else float("inf")
        return Cell(self.name, CHANGED, relative, self.largest, **sides, how=how)


def alone(name: str, kept: Kept) -> Cell:
    """A tensor that only A has."""
    fold = Fold(name, kept.tap, None)
    for start, (_, visible) in kept.tiles.items():
        fold._add(0, *kept.measured(start, visible))
    nan, n = float("nan"), fold.entries[0]
    rms = (fold.squares[0] / n) ** 0.5 if n else nan
    return Cell(name, ONLY_A, nan, nan, (rms, nan), (fold.peaks[0], nan), own=(kept.own, nan))


def measured(x: Tensor, visible: Tensor | None) -> tuple[float, float, int]:
    """Sum of squares, largest |x| and number of the visible entries, fp32."""
    entries = x.numel() if visible is None else x.numel() // visible.numel() * int(visible.sum())
    if not x.numel():
        return 0.0, 0.0, 0
    x = x.float() if visible is None else torch.where(visible, x.float(), 0.0)
    length, low, high = torch.stack([torch.linalg.vector_norm(x), *x.aminmax()]).tolist()
    return length**2, larger(-low, high), entries


def larger(*values: float) -> float:
    """The largest one; NaN wins."""
    return next((x for x in values if x != x), max(values))
