"""One pass measured layer by layer, and the rows that such passes make when one thing is varied."""

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from model.errors import BlockscopeError
from model.growth.measure import Layer, bound, measure, settings, stacked
from model.lm import Decoder
from model.place import Place
from model.run import LM, Progress
from model.taps import Editor, Recorder, Tap, recording

LOSS_ROWS = 64  # positions whose next-token logits are held at a time
Result = TypeVar("Result")
Walk = Generator[Progress, None, Result]  # yields how far it is, returns the answer; closing it stops the work


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """One pass. Arrays are float32; a layer whose numbers overflowed holds inf or NaN, as the model does."""

    series: str  # which line of the chart it belongs to
    x: float  # what was varied
    values: dict[str, np.ndarray]  # the quantities of model.growth.measure [layer, head]
    bound: np.ndarray  # the largest logit that QK-norm's gains allow [layer]; NaN without
    residual_rms: np.ndarray  # root mean square of the residual stream entering each layer [layer]
    loss: float  # mean next-token cross-entropy in nats; NaN where it says nothing

    @property
    def max_logit(self) -> np.ndarray:
        """Largest over the heads of each layer [layer]; NaN where one is."""
        return self.values["max_logit"].max(1)

    @property
    def entropy(self) -> np.ndarray:
        """Mean over the heads of each layer [layer]."""
        return self.values["entropy"].mean(1)


@dataclass(frozen=True)
class Sweep:
    """`label` says in a sentence what these rows are, `axis` what `x` counts."""

    label: str
    axis: str
    rows: tuple[Row, ...]


def finish(walk: Walk[Result]) -> Result:
    """Run to the end, for callers who need no progress."""
    while True:
        try:
            next(walk)
        except StopIteration as end:
            return end.value


def passed(
    model: Decoder | LM,
    tokens: Tensor,
    series: str,
    x: float,
    *,
    editors: Mapping[Tap, Editor] | None = None,
    loss: bool = False,
) -> Generator[str, None, Row]:
    """tokens [batch, pos]: yields the name of each layer when it is done, returns the Row."""
    net, last = (model.net if isinstance(model, LM) else model), model.config.n_layers
    step = model.step if isinstance(model, LM) else _step(model)
    place, found, rms = Place.of(tokens), [], []
    layers = [Layer(block.attn, lambda a, q, k: found.append(measure(q, k, **settings(a)))) for block in net.blocks]
    stream = tokens
    for stage in range(-1, last):
        if stage >= 0:
            rms.append(float(stream.float().square().mean().sqrt()))
        watchers = layers[stage].watchers() if stage >= 0 else {}
        with recording(Recorder(watchers, editors)), torch.no_grad():
            stream = step(stage, stream, place)
        yield "embedding" if stage < 0 else f"layer {stage}"
    mean = _loss(lambda part: step(last, part, place), stream, tokens) if loss else math.nan
    context = tokens.shape[1]
    return Row(
        series=series,
        x=x,
        values=stacked(found),
        bound=bound(model, context),
        residual_rms=np.array(rms, np.float32),
        loss=mean,
    )


def swept(label: str, axis: str, passes: Iterable[Callable[[], Generator[str, None, Row]]], layers: int) -> Walk[Sweep]:
    """Run passes one after another, each of at most `layers` layers and its embedding."""
    passes, rows, done = list(passes), [], 0
    total = len(passes) * (layers + 1)
    for i, start in enumerate(passes):
        row = yield from _told(start(), done, total)
        rows.append(row)
        done = (i + 1) * (layers + 1)
    return Sweep(label, axis, tuple(rows))


def _told(walk: Generator[str, None, Row], done: int, total: int) -> Walk[Row]:
    while True:
        try:
            what = next(walk)
        except StopIteration as end:
            return end.value
        done += 1
        yield Progress(done, total, what)


def _step(net: Decoder) -> Callable[[int, Tensor, Place], Tensor]:
    def step(stage: int, x: Tensor, place: Place) -> Tensor:
        if stage == -1:
            return net.start(x, place)
        return net.blocks[stage](x, place) if stage < net.config.n_layers else net.finish(x)

    return step


@torch.no_grad()
def _loss(unembed: Callable[[Tensor], Tensor], stream: Tensor, tokens: Tensor) -> float:
    """Mean over all positions that have a next token, a few of them at a time: the vocabulary may be large."""
    if tokens.shape[1] < 2:
        raise BlockscopeError("the loss of a text needs at least two tokens: type a longer prompt")
    total = 0.0
    for x, following in zip(stream[:, :-1].split(LOSS_ROWS, 1), tokens[:, 1:].split(LOSS_ROWS, 1), strict=True):
        total += float(F.cross_entropy(unembed(x).float().flatten(0, 1), following.flatten(), reduction="sum"))
    return total / tokens[:, 1:].numel()
