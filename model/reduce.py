"""Reductions at the tap: a Request becomes a watcher that folds tiles as they come and ends as a View.

Each reducer is a monoid: `part` reduces one tile to a few small tensors, `merge` joins two of them, `finish` turns the
sum of all into the answer. So attention can be fed in query tiles and S x S is never held. All in fp32, on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.errors import BlockscopeError
from model.pooling import TILED, Pool
from model.taps import Tap, Tile
from model.view import Request, Stats, View

Parts = tuple[Tensor, ...]


@dataclass(frozen=True)
class Reducer:
    """`fill` replaces masked entries; `part(x, axes, count)` reduces `axes`; count() gives the unmasked entries."""

    fill: float
    part: Callable[[Tensor, tuple[int, ...], Callable[[], Tensor]], Parts]
    merge: Callable[[Tensor, Tensor], Tensor]
    finish: Callable[..., Tensor]
    how: str


def _ratio(total: Tensor, count: Tensor) -> Tensor:
    return total / count


def _entropy(p: Tensor) -> Tensor:
    return p * -p.clamp_min(torch.finfo(p.dtype).tiny).log()  # 0 log 0 = 0


_max, _min, _add, _length = torch.maximum, torch.minimum, torch.add, torch.linalg.vector_norm
REDUCERS = {
    "absmax": Reducer(0.0, lambda x, a, n: (_max(x.amax(a), -x.amin(a)),), _max, lambda m: m, "largest |x|"),
    "max": Reducer(-torch.inf, lambda x, a, n: (x.amax(a),), _max, lambda m: m, "largest"),
    "min": Reducer(torch.inf, lambda x, a, n: (x.amin(a),), _min, lambda m: m, "smallest"),
    "sum": Reducer(0.0, lambda x, a, n: (x.sum(a),), _add, lambda s: s, "sum"),
    "mean": Reducer(0.0, lambda x, a, n: (x.sum(a), n()), _add, _ratio, "mean"),
    "rms": Reducer(0.0, lambda x, a, n: (x.square().sum(a), n()), _add, lambda s, n: (s / n).sqrt(), "root mean square"),
    "norm": Reducer(0.0, lambda x, a, n: (_length(x, 2, a),), torch.hypot, lambda s: s, "length (root of the sum of squares)"),
    "entropy": Reducer(0.0, lambda x, a, n: (_entropy(x).sum(a),), _add, lambda s: s, "entropy in nats"),
    "fraction_negative": Reducer(0.0, lambda x, a, n: ((x < 0).float().sum(a), n()), _add, _ratio, "share below 0"),
    "fraction_above_99": Reducer(0.0, lambda x, a, n: ((x > 0.99).float().sum(a), n()), _add, _ratio, "share above 0.99"),
}


class Reduction:
    """A watcher for one Request; `view()` after the run. `select` fixes axes, `over` names the axes reduced away, `within`
    keeps stretches."""

    stretches = True

    def __init__(self, tap: Tap, request: Request):
        self.tap, self.request = tap, request
        self.fixed = ({"batch": 0} if "batch" in tap.dims else {}) | dict(request.select)
        self.windows = {axis: (start, stop) for axis, start, stop in request.within}
        self.spans = {axis: (i, i + 1) for axis, i in self.fixed.items()} | self.windows
        self.rows = range(*self.spans["query_pos"]) if "query_pos" in self.spans else None
        self.tiled = next((axis for axis in TILED if axis in tap.dims), None)
        self.dims = tuple(d for d in tap.dims if d not in self.fixed and d != "1")
        self.over = self.dims if request.reducer == "stats" else request.over
        self._check()
        self.parts: Parts | list[Tensor] | None = None
        self.stats: Counter | None = Counter() if request.reducer in ("values", "stats") else None
        self.pool: Pool | None = None
        self.shape, self.dtype = (), ""

    def _check(self) -> None:
        tap, request = self.tap, self.request
        if request.reducer not in (*REDUCERS, *SPECIAL):
            raise BlockscopeError(f"unknown reducer {request.reducer!r}; there are {', '.join([*REDUCERS, *SPECIAL])}")
        for axis in (*self.over, *dict(request.select), *self.windows):
            if axis not in tap.dims or (axis in self.fixed and axis in (*self.over, *self.windows)):
                raise BlockscopeError(f"{request.tap} has axes {' '.join(tap.dims)}; cannot reduce or select {axis!r}")
        for axis, (start, stop) in self.windows.items():
            if not 0 <= start < stop:
                raise BlockscopeError(f"{request.tap}: a stretch of {axis} must hold an entry, got {start} to {stop}")
        if request.reducer not in ("values", "stats") and not self.over:
            raise BlockscopeError(f"reducer {request.reducer!r} needs `over`: the axes to reduce away")

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        whole = list(x.shape)
        if tile is not None:
            whole[self.tap.dims.index(tile.axis)] = tile.total
        self.shape, self.dtype = tuple(whole), str(x.dtype).removeprefix("torch.")
        selected = self._selected(x, tile)
        if selected is not None:
            self._fold(*selected)

    def _selected(self, x: Tensor, tile: Tile | None) -> tuple[Tensor, Tensor | None, int] | None:
        """Take the fixed axes out -> (x fp32, visible that broadcasts to x or None, first query row); None: not in tile."""
        start, visible = (tile.rows.start, tile.visible) if tile is not None else (0, None)
        visible = visible if "key_pos" in self.tap.dims else None  # a sink's share has a row and no key
        first = 0
        for axis, (low, high) in self.spans.items():
            at, size = self.tap.dims.index(axis), self.shape[self.tap.dims.index(axis)]
            if not 0 <= low < high <= size:
                named = f"{axis} {low}" if axis in self.fixed else f"{axis} {low} to {high}"
                raise BlockscopeError(f"{self.request.tap}: {named} is outside 0..{size - 1}")
            if tile is not None and axis == tile.axis:
                first, (low, high) = low, (max(low - start, 0), min(high - start, x.shape[at]))
                if low >= high:
                    return None
                start += low
            x = x.narrow(at, low, high - low)
            if visible is not None and axis in ("query_pos", "key_pos"):
                visible = visible.narrow(("query_pos", "key_pos").index(axis), low, high - low)
        if visible is not None:  # [query_pos, key_pos] are the last two axes of an attention tensor
            visible = visible.expand(*[1] * (x.ndim - 2), *x.shape[-2:])
        kept = [axis in self.dims for axis in self.tap.dims]
        if visible is not None:
            visible = visible.reshape([n for n, keep in zip(visible.shape, kept, strict=True) if keep])
        return x.detach().float().reshape([n for n, keep in zip(x.shape, kept, strict=True) if keep]), visible, start - first

    def _fold(self, x: Tensor, visible: Tensor | None, start: int) -> None:
        if self.stats is not None:
            self.stats.update(x, visible)
        if self.request.reducer == "values":
            if self.pool is None:
                whole = dict(zip(self.tap.dims, self.shape, strict=True))
                sizes = [self.windows[a][1] - self.windows[a][0] if a in self.windows else whole[a] for a in self.dims]
                self.pool = Pool(self.dims, sizes, self.tap.kind == "signed", self.request.budget, x.device)
            self.pool.update(x, visible, start)
        elif self.request.reducer in REDUCERS:
            reducer = REDUCERS[self.request.reducer]
            axes = tuple(self.dims.index(a) for a in self.over)
            shown = torch.ones((), device=x.device) if visible is None else visible
            count = lambda: shown.expand(x.shape).sum(axes, dtype=torch.float32)  # noqa: E731 (few reducers ask)
            x = x if visible is None else x.masked_fill(~visible, reducer.fill)
            self._join(reducer, reducer.part(x, axes, count), start)

    def _join(self, reducer: Reducer, parts: Parts, start: int) -> None:
        """Tiles along an axis that is reduced away are merged; along one that stays each is written to its place."""
        stays = [d for d in self.dims if d not in self.over]
        if self.tiled in self.over:
            if self.parts is not None:
                parts = tuple(reducer.merge(a, b) for a, b in zip(self.parts, parts, strict=True))
            self.parts = parts
        elif self.tiled not in stays:
            self.parts = parts
        else:
            axis, whole = stays.index(self.tiled), self.shape[self.tap.dims.index(self.tiled)]
            low, high = self.windows.get(self.tiled, (0, whole))
            if parts[0].shape[axis] == high - low:
                self.parts = parts
                return
            if self.parts is None:
                self.parts = tuple(p.new_empty(*p.shape[:axis], high - low, *p.shape[axis + 1 :]) for p in parts)
            for kept, part in zip(self.parts, parts, strict=True):
                kept.narrow(axis, start, part.shape[axis]).copy_(part)

    def view(self) -> View:
        dims = tuple(d for d in self.dims if d not in self.over)
        masked, how = None, "nothing pooled"
        if self.pool is not None:
            values, masked, coords, how = self.pool.finish()
        elif self.request.reducer == "stats":
            values, coords, how = np.float32(self.stats.stats().rms).reshape(()), (), "root mean square of all entries"
        else:
            reducer = REDUCERS[self.request.reducer]
            values = reducer.finish(*self.parts).cpu().numpy()
            coords = tuple(np.arange(n) for n in values.shape)
            how = f"{reducer.how} over {' x '.join(self.over)}"
        stats = self.stats.stats() if self.stats else Counter.of(torch.from_numpy(np.asarray(values)))
        coords = tuple(c + self.windows[a][0] if a in self.windows else c for a, c in zip(dims, coords, strict=True))
        how = ", ".join([how, *(f"{axis} {low:,} to {high - 1:,}" for axis, (low, high) in self.windows.items())])
        return View(self.request.tap, values, dims, coords, self.tap.kind, self.dtype, self.shape, stats, how, masked)


class Cosine:
    """Cosine of two taps' vectors along `over`; keeps the first to fire until the second does. -> [the other axes]."""

    def __init__(self, tap: Tap, request: Request):
        if request.against is None or len(request.over) != 1 or request.over[0] not in tap.dims:
            raise BlockscopeError(f"cosine of {request.tap} needs `against` another tap and one axis `over`")
        self.tap, self.request, self.first, self.result, self.shape, self.dtype = tap, request, None, None, (), ""

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        if self.first is None:
            self.first = x
            return
        axis, (a, b) = self.tap.dims.index(self.request.over[0]), (self.first.float(), x.float())
        self.result = torch.nn.functional.cosine_similarity(a, b, dim=axis, eps=1e-30)[0]
        self.first, self.shape, self.dtype = None, tuple(x.shape), str(x.dtype).removeprefix("torch.")

    def view(self) -> View:
        values, request = self.result.cpu().numpy(), self.request
        dims = tuple(d for d in self.tap.dims if d not in ("batch", *request.over))
        how = f"cosine with {request.against} over {request.over[0]}"
        coords, stats = tuple(map(np.arange, values.shape)), Counter.of(torch.from_numpy(values))
        return View(request.tap, values, dims, coords, "signed", self.dtype, self.shape, stats, how)


class Counter:
    """Counts and moments of tensors that come in tiles."""

    def __init__(self):
        self.count = self.masked = self.nan = self.posinf = self.neginf = 0
        self.low, self.high, self.total, self.squares = np.inf, -np.inf, 0.0, 0.0

    def update(self, x: Tensor, visible: Tensor | None = None) -> None:
        self.count += x.numel()
        hidden = None if visible is None else ~visible
        if visible is not None:
            self.masked += x.numel() - int(visible.sum()) * (x.numel() // max(1, visible.numel()))
        shown = x if hidden is None else x.masked_fill(hidden, 0)
        if not torch.isfinite(total := shown.sum()):  # finite only if every entry is: the counts are rarely needed
            self.nan += int(shown.isnan().sum())
            self.posinf += int((shown == torch.inf).sum())
            self.neginf += int((shown == -torch.inf).sum())
            x = shown[shown.isfinite() if hidden is None else shown.isfinite() & visible]
            shown, hidden, total = x, None, x.sum()
        if x.numel():
            low, high = float(shown.amin()), float(shown.amax())
            if hidden is not None:  # where the hidden entries' zero is an end, the visible ones' own end is looked up
                low = low if low < 0 else float(x.masked_fill(hidden, torch.inf).amin())
                high = high if high > 0 else float(x.masked_fill(hidden, -torch.inf).amax())
            self.low, self.high = min(self.low, low), max(self.high, high)
            self.total += float(total)
            self.squares += float(torch.linalg.vector_norm(shown)) ** 2

    def stats(self) -> Stats:
        finite = self.count - self.masked - self.nan - self.posinf - self.neginf
        if not finite:
            nothing = float("nan")
            return Stats(self.count, self.masked, self.nan, self.posinf, self.neginf, *[nothing] * 5)
        absmax, mean, rms = max(abs(self.low), abs(self.high)), self.total / finite, (self.squares / finite) ** 0.5
        return Stats(self.count, self.masked, self.nan, self.posinf, self.neginf, self.low, self.high, absmax, mean, rms)

    @classmethod
    def of(cls, x: Tensor) -> Stats:
        counter = cls()
        counter.update(x.float())
        return counter.stats()


SPECIAL = {"values": Reduction, "stats": Reduction, "cosine": Cosine}


def reduction(tap: Tap, request: Request) -> Reduction | Cosine:
    """The watcher that answers `request`."""
    return SPECIAL.get(request.reducer, Reduction)(tap, request)
