"""One pass measured layer by layer, and the rows that such passes make when one thing is varied."""

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.growth.bounds import layer_bound
from model.growth.measure import measure, settings, stacked, through
from model.lm import Decoder
from model.place import Place
from model.run import LM
from model.stages import Progress
from model.taps import Editor, Tap

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
    found, bounds, rms, context = [], [], [], tokens.shape[1]

    def look(attention: nn.Module, q: Tensor, k: Tensor) -> None:
        found.append(measure(q, k, **settings(attention)))

    for i, (block, entering, leaving) in enumerate(through(model, tokens, look, editors)):  # noqa: B007 (read after the loop)
        bounds.append(layer_bound(block.attn, context))
        rms.append(float(entering.float().square().mean().sqrt()))
        yield f"layer {i}"
    return Row(
        series=series, x=x, values=stacked(found), bound=np.array(bounds, np.float32), residual_rms=np.array(rms, np.float32),
        loss=_loss(model, leaving, tokens) if loss else math.nan,
    )  # fmt: skip


def swept(label: str, axis: str, passes: Iterable[Callable[[], Generator[str, None, Row]]], layers: int) -> Walk[Sweep]:
    """Run passes one after another, each of `layers` layers."""
    passes, rows, done = list(passes), [], 0
    total = len(passes) * layers
    for i, start in enumerate(passes):
        row = yield from _told(start(), done, total)
        rows.append(row)
        done = (i + 1) * layers
    return Sweep(label, axis, tuple(rows))


def _told(walk: Generator[str, None, Row], done: int, total: int) -> Walk[Row]:
    while True:
        try:
            what = next(walk)
        except StopIteration as end:
            return end.value
        done += 1
        yield Progress(done, total, what)


@torch.no_grad()
def _loss(model: Decoder | LM, stream: Tensor, tokens: Tensor) -> float:
    """Mean over all positions that have a next token, a few of them at a time: the vocabulary may be large."""
    if tokens.shape[1] < 2:
        raise BlockscopeError("the loss of a text needs at least two tokens: type a longer prompt")
    place, total = Place.of(tokens), 0.0
    for x, following in zip(stream[:, :-1].split(LOSS_ROWS, 1), tokens[:, 1:].split(LOSS_ROWS, 1), strict=True):
        logits = model.step(model.config.n_layers, x, place) if isinstance(model, LM) else model.finish(x)
        total += float(F.cross_entropy(logits.float().flatten(0, 1), following.flatten(), reduction="sum"))
    return total / tokens[:, 1:].numel()
