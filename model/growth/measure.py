"""The quantities of `measure` for a whole decoder of this project, of any design, through its taps."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from model.growth.bounds import bound
from model.growth.quantities import QUANTITIES, measure
from model.lm import Decoder
from model.place import Place
from model.run import LM
from model.taps import Recorder, Tap, Tile, Watcher, recording, taps_of

__all__ = ["QUANTITIES", "bound", "measure", "probe"]

Measured = dict[str, Tensor]
AS_MULTIPLIED = ("hook_q", "q_norm.hook_out", "hook_rot_q")  # in any order: the last to fire is what meets the keys
KEYS = ("hook_cache_k", "hook_keys")  # every key attended to; q is ready by then


class Layer:
    """Watches one attention and, once its keys are there, hands its q and k to `look`."""

    def __init__(self, attention: torch.nn.Module, look: Callable[[torch.nn.Module, Tensor, Tensor], None]):
        self.attention, self.look, self.q = attention, look, None

    def watchers(self) -> dict[Tap, list[Watcher]]:
        taps = taps_of(self.attention)
        watching = dict.fromkeys(AS_MULTIPLIED, self.keep) | dict.fromkeys(KEYS, self.arrived)
        watching["temperature.hook_scale"] = self.sharpen
        return {taps[name]: [watch] for name, watch in watching.items() if name in taps}

    def keep(self, q: Tensor, tile: Tile | None) -> None:
        self.q = q

    def sharpen(self, factor: Tensor, tile: Tile | None) -> None:
        self.q = (self.q * factor[:, None, None]).to(self.q.dtype)

    def arrived(self, k: Tensor, tile: Tile | None) -> None:
        q, self.q = self.q, None
        self.look(self.attention, q.detach(), k.detach())


def settings(attention: torch.nn.Module) -> dict:
    """What `measure` must know of an attention besides q and k."""
    return {
        "mask": attention.mask,
        "scale": attention.scale,
        "cap": getattr(attention.softcap, "cap", None),
        "sink": getattr(attention.softmax, "weight", None),
    }


@torch.no_grad()
def probe(model: Decoder | LM, tokens: Tensor | list[int]) -> dict[str, np.ndarray]:
    """tokens [batch, pos] -> each quantity of QUANTITIES, float32 [layer, head]. The model runs as it always does (fused)."""
    net = model.net if isinstance(model, LM) else model
    found: list[Measured] = []
    layers = [Layer(block.attn, lambda a, q, k: found.append(measure(q, k, **settings(a)))) for block in net.blocks]
    watchers = {tap: watching for layer in layers for tap, watching in layer.watchers().items()}
    if isinstance(model, LM):
        x = ids = model.checked(tokens)
        for stage in range(-1, net.config.n_layers):
            with recording(Recorder(watchers)):
                x = model.step(stage, x, Place.of(ids))
    else:
        with recording(Recorder(watchers)):
            net(tokens)
    return stacked(found)


def stacked(layers: list[Measured]) -> dict[str, np.ndarray]:
    """One [head] per layer -> float32 [layer, head]; NaN where a layer has fewer heads than another."""
    heads = max(len(found["max_logit"]) for found in layers)
    values = {name: np.full((len(layers), heads), np.nan, np.float32) for name in QUANTITIES}
    for i, found in enumerate(layers):
        for name, value in found.items():
            values[name][i, : len(value)] = value.float().cpu().numpy()
    return values
