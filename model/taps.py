"""Taps: named identity modules, and the recorder that listens to them.

A tap's name is its path in the module tree. With nobody listening a tap is one ContextVar read. Listening goes through
a ContextVar, never through state stored on the (shared) model, so two visitors' runs cannot mix and nothing is left
behind after an exception.
"""

import difflib
import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.dims import parse
from model.errors import UnknownTap
from model.halting import going

KINDS = ("signed", "positive", "probability", "index")


@dataclass(frozen=True)
class Tile:
    """Which rows this call brings, along the queries of an attention tensor or (axis "pos") the tokens of any other, and which
    entries of an attention tensor the mask lets through."""

    rows: slice
    total: int
    visible: Tensor | None  # bool [query_pos, key_pos] of these rows
    axis: str = "query_pos"


Watcher = Callable[[Tensor, Tile | None], None]  # sees the tensor
Editor = Callable[[Tensor, Tile | None], Tensor]  # returns the tensor that the model goes on with


@dataclass(frozen=True)
class TapInfo:
    """What a Tap says of itself, beside its name in a model."""

    name: str
    dims: tuple[str, ...]
    kind: str
    meaning: str


class Tap(nn.Module):
    """Identity with a name. `dims` are axis words, `kind` says how to read the numbers, `meaning` is one sentence."""

    def __init__(self, dims: str, kind: str = "signed", meaning: str = ""):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is not one of {KINDS}")
        self.dims, self.kind, self.meaning = parse(dims), kind, meaning

    def forward(self, x: Tensor, tile: Tile | None = None) -> Tensor:
        recorder = _recorder.get()
        return x if recorder is None else recorder(self, x, tile)

    def extra_repr(self) -> str:
        return " ".join(self.dims)


class Absent(nn.Module):
    """Stands where a design has no such quantity: passes x on, is no tap, and `reason` answers whoever asks for it."""

    def __init__(self, reason: str):
        super().__init__()
        self.reason = reason

    def forward(self, x: Tensor, tile: Tile | None = None) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return self.reason


class Recorder:
    """Lets each tap's editor change the tensor, then shows it to that tap's watchers; remembers which taps fired."""

    def __init__(self, watchers: Mapping[Tap, list[Watcher]], editors: Mapping[Tap, Editor] | None = None):
        self.watchers, self.editors = watchers, editors or {}
        self.fired: set[Tap] = set()
        self.stretch: Tile | None = None  # the tokens that are running, where they run a stretch at a time
        self.pulse: Callable[[float], None] | None = None  # called at every tensor and tile; what it raises ends the run
        self.share = 0.0  # of its queries that the running attention has passed, for the pulse
        self.awaited: frozenset[Tap] | None = None  # once all of these have fired, the rest of the run is for nobody

    def __call__(self, tap: Tap, x: Tensor, tile: Tile | None) -> Tensor:
        tile = tile or self.stretch
        if tile is not None and tile.axis == "query_pos":
            self.share = tile.rows.stop / tile.total
        self.beat()
        if tap in self.editors:
            x = self.editors[tap](x, tile)
        for watch in self.watchers.get(tap, ()):
            watch(x, tile)
        self.fired.add(tap)
        return x

    def beat(self) -> None:
        going()
        if self.pulse is not None:
            self.pulse(self.share)

    def takes_stretches(self, taps: Iterable[Tap]) -> bool:
        """Whether every watcher of these taps can be given some tokens at a time, and nobody changes a tensor."""
        heard = ((tap, watch) for tap in taps for watch in self.watchers.get(tap, ()))
        return not self.editors and all("pos" in tap.dims and hasattr(watch, "stretches") for tap, watch in heard)

    def enough(self) -> None:
        """Raises Enough where all that was awaited has come."""
        if self.awaited is not None and self.awaited <= self.fired:
            raise Enough


class Enough(Exception):
    """Nobody needs what would come next. Raised only where `Recorder.awaited` is set, and caught there."""


_recorder: ContextVar[Recorder | None] = ContextVar("blockscope_recorder", default=None)


@contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Listen to taps that fire inside this block, in this thread or task only."""
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def heard(*taps: Tap) -> bool:
    """Whether anybody watches or edits one of these taps: attention uses the fused kernel when nobody looks."""
    recorder = _recorder.get()
    return recorder is not None and any(tap in recorder.watchers or tap in recorder.editors for tap in taps)


def edited(tap: Tap) -> bool:
    """Whether somebody changes this tap's tensor, so that what follows must read it."""
    recorder = _recorder.get()
    return recorder is not None and tap in recorder.editors


def enough() -> None:
    """Said by attention when it has shown its tiles, before it goes on to what nobody may want."""
    if (recorder := _recorder.get()) is not None:
        recorder.enough()


def breathe() -> None:
    """Said inside long work without taps: whoever runs it may end it here."""
    if (recorder := _recorder.get()) is not None:
        recorder.beat()


def last(*taps: Tap) -> bool:
    """Whether nothing but these taps is still awaited."""
    recorder = _recorder.get()
    return recorder is not None and recorder.awaited is not None and recorder.awaited <= recorder.fired | set(taps)


def rows_wanted(*taps: Tap) -> range | None:
    """The query rows that the watchers of these taps look at, from the first to the last; None: all rows."""
    recorder = _recorder.get()
    wanted = [getattr(watch, "rows", None) for tap in taps for watch in recorder.watchers.get(tap, ())]
    if not wanted or None in wanted:
        return None
    return range(min(rows.start for rows in wanted), max(rows.stop for rows in wanted))


def in_stretches(run: Callable[[Tensor], Tensor], x: Tensor, rows: int, inside: Iterable[Tap]) -> Tensor:
    """run(x) for x [batch, pos, ...] whose tokens do not meet inside, `rows` tokens at a time.

    At once where there are no more tokens than that, where a tap `inside` is edited, or where a watcher takes no stretches.
    """
    recorder, total = _recorder.get(), x.shape[1]
    if total <= rows or (recorder is not None and not recorder.takes_stretches(inside)):
        return run(x)
    out = None
    for start in range(0, total, rows):
        at = slice(start, min(start + rows, total))
        if recorder is not None:
            recorder.stretch = Tile(at, total, None, "pos")
        try:
            y = run(x[:, at])
        finally:
            if recorder is not None:
                recorder.stretch = None
        out = y.new_empty(y.shape[0], total, *y.shape[2:]) if out is None else out
        out[:, at] = y
    return out


def taps_of(module: nn.Module) -> dict[str, Tap]:
    """Every tap below `module`, by its path, in the order in which the modules were defined."""
    return {name: child for name, child in module.named_modules() if isinstance(child, Tap)}


def select(module: nn.Module, patterns: Iterable[str]) -> dict[str, Tap]:
    """Taps named by `patterns` (exact names or * ? [] patterns); a pattern that names nothing is an error that says why."""
    taps, chosen = taps_of(module), {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        names = [pattern] if pattern in taps else fnmatch.filter(taps, pattern)
        if not names:
            raise UnknownTap(_why_absent(module, pattern, taps))
        chosen |= {name: taps[name] for name in names}
    return chosen


class Collect:
    """A watcher that keeps the whole tensor, or of its first `most` tokens; tiles are put back together."""

    stretches = True

    def __init__(self, tap: Tap, most: int | None = None):
        self.tap, self.most, self.value = tap, most, None

    def __call__(self, x: Tensor, tile: Tile | None) -> None:
        axis, x = self._axis(tile), x.detach()
        if axis is None:
            self.value = x
            return
        start, total = (0, x.shape[axis]) if tile is None else (tile.rows.start, tile.total)
        total = total if self.most is None else min(total, self.most)
        here = min(x.shape[axis], total - start)
        if here == total == x.shape[axis]:
            self.value = x
        elif here > 0:
            if self.value is None:
                self.value = x.new_empty(*x.shape[:axis], total, *x.shape[axis + 1 :])
            self.value.narrow(axis, start, here).copy_(x.narrow(axis, 0, here))

    def _axis(self, tile: Tile | None) -> int | None:
        """The axis of tokens that tiles or `most` cut, if this tap has it."""
        name = "pos" if tile is None else tile.axis
        return self.tap.dims.index(name) if name in self.tap.dims else None


@torch.no_grad()
def capture(module: nn.Module, *inputs, taps: Iterable[str] = ("*",), **kwargs) -> tuple[Tensor, dict[str, Tensor]]:
    """Run any module (a whole model, a block, one norm) and return its output and the full tensors of the taps named."""
    chosen = select(module, taps)
    collectors = {name: Collect(tap) for name, tap in chosen.items()}
    with recording(Recorder({chosen[name]: [keep] for name, keep in collectors.items()})) as recorder:
        output = module(*inputs, **kwargs)
    require_fired(recorder, chosen)
    return output, {name: keep.value for name, keep in collectors.items()}


def require_fired(recorder: Recorder, chosen: Mapping[str, Tap]) -> None:
    """A tap that was asked for and never fired is an error, never an empty answer."""
    if silent := [name for name, tap in chosen.items() if tap not in recorder.fired]:
        raise UnknownTap(f"tap {silent[0]!r} was asked for but did not fire in this run")


def _why_absent(module: nn.Module, pattern: str, taps: Mapping[str, Tap]) -> str:
    """One sentence: the reason that stands in its place, else the nearest names."""
    for name, child in module.named_modules():
        if isinstance(child, Absent) and fnmatch.fnmatchcase(name, pattern):
            return f"there is no tap {pattern!r}: {child.reason}"
    near = difflib.get_close_matches(pattern, taps, n=3, cutoff=0.5)
    hint = f"; near names: {', '.join(near)}" if near else ""
    return f"there is no tap {pattern!r} in this model{hint}; lm.taps() lists all {len(taps)} of them"
