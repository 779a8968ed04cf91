"""The quantities of `measure` for a whole decoder of this project, of any design, through its taps."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from model.growth.bounds import bound
from model.growth.quantities import QUANTITIES, measure
from model.lm import Decoder
from model.place import Place
from model.run import LM
from model.taps import Editor, Recorder, Tap, Tile, Watcher, recording, taps_of

__all__ = ["QUANTITIES", "bound", "measure", "probe"]

Measured = dict[str, Tensor]
Look = Callable[[torch.nn.Module, Tensor, Tensor], None]  # (attention, q, k)
AS_MULTIPLIED = ("hook_q", "q_norm.hook_out", "hook_rot_q")  # in any order: the last to fire is what meets the keys
KEYS = ("hook_cache_k", "hook_keys")  # every key attended to; q is ready by then


class Layer:
    """Watches one attention and, once its keys are there, hands its q and k to `look`."""

    def __init__(self, attention: torch.nn.Module, look: Look):
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


Step = tuple[torch.nn.Module, Tensor, Tensor]  # a block with its weights in place, the stream that entered it, what left it


def through(model: Decoder | LM, tokens: Tensor, look: Look, editors: Mapping[Tap, Editor] | None = None) -> Iterator[Step]:
    """A forward pass over tokens [batch, pos], a block at a time, each attention's q and k handed to `look` on the way.

    Of an LM one block's weights need be in memory at a time. Closing the generator stops the pass.
    """
    place = Place.of(tokens)
    for i in range(-1, model.config.n_layers):
        if i < 0:
            with recording(Recorder({}, editors)), torch.no_grad():
                stream = model.step(i, tokens, place) if isinstance(model, LM) else model.start(tokens, place)
            continue
        block = model.block(i) if isinstance(model, LM) else model.blocks[i]
        entering = stream
        recorder = Recorder(Layer(block.attn, look).watchers(), editors)
        with recording(recorder), torch.no_grad():  # set and reset within one step: a generator may go on in another thread
            stream = model.step(i, stream, place, block) if isinstance(model, LM) else block(stream, place)
        yield block, entering, stream


def probe(model: Decoder | LM, tokens: Tensor | list[int]) -> dict[str, np.ndarray]:
    """tokens [batch, pos] -> each quantity of QUANTITIES, float32 [layer, head]. The model runs as it always does (fused)."""
    found: list[Measured] = []
    ids = model.checked(tokens) if isinstance(model, LM) else tokens
    for _ in through(model, ids, lambda attention, q, k: found.append(measure(q, k, **settings(attention)))):
        pass
    return stacked(found)


def stacked(layers: list[Measured]) -> dict[str, np.ndarray]:
    """One [head] per layer -> float32 [layer, head]; NaN where a layer has fewer heads than another."""
    heads = max(len(found["max_logit"]) for found in layers)
    values = {name: np.full((len(layers), heads), np.nan, np.float32) for name in QUANTITIES}
    for i, found in enumerate(layers):
        for name, value in found.items():
            values[name][i, : len(value)] = value.float().cpu().numpy()
    return values
