"""A checkpoint as it is: how large the logits of every layer and head are at each stage of attention, and what made them so."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from model.growth.bounds import largest_gain, layer_bound
from model.growth.measure import settings, stacked, through
from model.growth.quantities import measure, product, tiles
from model.growth.sweeps import Walk, finish
from model.run import LM
from model.stages import Progress

STAGES = {  # the stage switch of Explore, in order -> what is measured of it, per head
    "raw": "largest |q·k|, over every pair of positions, later keys included",
    "scaled": "largest |scale · q·k|, over every pair of positions",
    "capped": "the same after the soft-cap; only in layers that have one",
    "masked": "largest |logit| of the keys that the mask lets through: what softmax reads",
    "with sink": "largest of those and the sink's own logit; only in layers that have a sink",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """One model over one batch of texts. Arrays are float32 [layer, head]; NaN where a layer has no such thing."""

    name: str
    tokens: tuple[int, int]  # texts, tokens of each
    dtype: str  # in which the model ran; everything was measured in fp32
    values: dict[str, np.ndarray]  # the quantities of model.growth.measure, over visible keys
    stages: dict[str, np.ndarray]  # the STAGES that some layer of this model has
    gains: dict[str, np.ndarray]  # "q", "k": largest |gain| of QK-norm, float32 [layer]
    bound: np.ndarray  # the largest logit that those gains allow, float32 [layer]


def surveying(lm: LM, tokens: Sequence[int] | Tensor) -> Walk[Survey]:
    """tokens [pos] or [batch, pos]: yields Progress layer by layer, returns the Survey; closing the generator stops it.

    Nothing is kept but the residual stream, and logits a few query rows at a time.
    """
    ids, layers = lm.checked(tokens), lm.config.n_layers
    values, stages, bounds, gains = [], [], [], {"q": [], "k": []}

    def look(attention: nn.Module, q: Tensor, k: Tensor) -> None:
        known = settings(attention)
        values.append(measure(q, k, **known))
        stages.append(peaks(q, k, **known))

    for i, (block, _, _) in enumerate(through(lm, ids, look)):
        bounds.append(layer_bound(block.attn, ids.shape[1]))
        for part, found in gains.items():
            found.append(largest_gain(block.attn, f"{part}_norm"))
        yield Progress(i + 1, layers, f"layer {i}")
    return Survey(
        name=lm.name, tokens=tuple(ids.shape), dtype=str(lm.dtype).removeprefix("torch."),
        values=stacked(values), stages=_columns(stages), bound=np.array(bounds, np.float32),
        gains={part: np.array(found, np.float32) for part, found in gains.items()},
    )  # fmt: skip


def survey(lm: LM, tokens: Sequence[int] | Tensor) -> Survey:
    """The same in one call."""
    return finish(surveying(lm, tokens))


@torch.no_grad()
def peaks(q: Tensor, k: Tensor, *, mask, scale: float, cap: float | None, sink: Tensor | None) -> dict[str, Tensor]:
    """Largest |entry| of the tensor of each stage [head]; q [batch, pos, head, d_head], k [batch, pos, kv_head, d_head]."""
    found = dict.fromkeys(
        ["raw", "scaled", *(["capped"] if cap is not None else []), "masked"], q.new_zeros((), dtype=torch.float32)
    )
    for rows, _, visible in tiles(q, k, mask, hidden=True):
        logits = product(q[:, rows], k, scale)
        capped = logits if cap is None else cap * (logits / cap).tanh()
        here = {"raw": logits / scale, "scaled": logits, "capped": capped, "masked": capped.masked_fill(~visible, 0)}
        found = {name: torch.maximum(largest, here[name].abs().amax((0, 2, 3))) for name, largest in found.items()}
    return found if sink is None else {**found, "with sink": torch.maximum(found["masked"], sink.float().abs())}


def _columns(layers: list[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    """One {stage: [head]} per layer -> {stage: float32 [layer, head]}."""
    heads = max(len(found["raw"]) for found in layers)
    columns = {name: np.full((len(layers), heads), np.nan, np.float32) for name in STAGES if any(name in f for f in layers)}
    for i, found in enumerate(layers):
        for name, value in found.items():
            columns[name][i, : len(value)] = value.cpu().numpy()
    return columns
