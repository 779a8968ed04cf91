"""The shape of every tensor of a block, for any batch and length, from one run of its modules on the meta device.

The run itself is short: an axis that counts tokens or sequences is known by its name, so its size is put in afterwards.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from model.block import BlockConfig
from model.lm import Decoder
from model.taps import capture, taps_of

TOKENS = ("pos", "query_pos", "key_pos")


@dataclass(frozen=True)
class Shape:
    """A tap: its axes, their sizes, and what it holds. `fused`: never whole in memory in an ordinary run."""

    tap: str
    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    meaning: str
    kind: str

    @property
    def elements(self) -> int:
        product = 1
        for size in self.sizes:
            product *= size
        return product

    @property
    def square(self) -> bool:
        """Grows with the square of the length."""
        return "query_pos" in self.dims and "key_pos" in self.dims


def block_shapes(block: BlockConfig, batch: int, length: int) -> list[Shape]:
    """In the order in which the block defines them."""
    return [_sized(*tap, batch, length) for tap in _measured(block)]


def model_shapes(config: Decoder.Config, batch: int, length: int) -> list[Shape]:
    """What stands outside the blocks: embedding and logits."""
    stream, out = ("batch", "pos", "d_model"), ("batch", "pos", "d_vocab")
    return [
        Shape("tokens", ("batch", "pos"), (batch, length), "token ids", "index"),
        Shape("hook_embed", stream, (batch, length, config.d_model), "token embeddings", "signed"),
        Shape("logits", out, (batch, length, config.d_vocab), "next-token logits", "signed"),
    ]


@lru_cache(maxsize=256)
def _measured(block: BlockConfig) -> tuple[tuple, ...]:
    with torch.device("meta"):
        net = block.build()
        _, found = capture(net, torch.empty(1, 2, block.d_model))
    return tuple((name, tap.dims, tuple(found[name].shape), tap.meaning, tap.kind) for name, tap in taps_of(net).items())


def _sized(name: str, dims: tuple[str, ...], sizes: tuple[int, ...], meaning: str, kind: str, batch: int, length: int) -> Shape:
    told = {"batch": batch} | dict.fromkeys(TOKENS, length)
    return Shape(name, dims, tuple(told.get(dim, size) for dim, size in zip(dims, sizes, strict=True)), meaning, kind)
