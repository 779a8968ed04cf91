"""What a run would take, from the configuration alone, before anything runs."""

import math
from dataclasses import dataclass

import torch

from model.counting import count_block
from model.lm import Decoder
from model.scores import STRETCH_BYTES, TILE_BYTES
from model.taps import capture

KEPT = 512 << 20  # bytes of residuals that are kept, where nobody says otherwise
TILES = 14  # logits of a tile, softmax, entropy, copies without what is masked, and the holes that these leave in the heap
WHOLE = 8  # q, k, v before and after the rotation, keys and values repeated for their group, z
STRETCHES = 6  # gate, activation, up, product and out of the MLP, or what its identities are measured on


@dataclass(frozen=True)
class Cost:
    """`flops` of one forward pass with logits of the last token; `bytes` by which memory grows at its peak, weights apart."""

    tokens: int
    flops: int
    bytes: int

    @property
    def sentence(self) -> str:
        return f"{self.tokens:,} tokens would take about {amount(self.flops, 'FLOP')} and {amount(self.bytes, 'B')} of memory"


def amount(x: float, unit: str) -> str:
    """1234567, "B" -> "1.2 MB"."""
    power = min(int(math.log10(max(x, 1)) // 3), 5)
    return f"{x / 1000**power:.3g} {'kMGTP'[power - 1] if power else ''}{unit}"


def cost(config: Decoder.Config, tokens: int, itemsize: int = 4, kept: int = KEPT, tile: int = TILE_BYTES) -> Cost:
    """Two FLOPs a weight and token, plus q.k and pattern.v over every pair of positions.

    Memory is that of a run that answers Explore's first view, over a model that is open: the residuals entering the layers, at
    most `kept` bytes of them, and the largest block at work. Of that block the tensors with one row a token are whole in the
    attention (WHOLE of them) and stretches in the MLP (STRETCHES), and the logits come in tiles of `tile` bytes (TILES of
    them). The three numbers were fitted to peaks of the resident memory on Linux from 1,000 to 8,000 tokens, which lie
    between 0.6 and 1.6 of what is said; a prompt whose square is no larger than one tile may take more, and less than 200 MB.
    """
    flops = 2 * config.d_vocab * config.d_model
    across = widest = config.d_model
    for block in config.blocks:
        counted = count_block(block)
        flops += 2 * tokens * counted.active + 2 * tokens**2 * counted.work_per_key
        across, widest = max(across, counted.work_per_key // 2), max(widest, block.mlp.active_neurons)
    residuals = min(itemsize * tokens * (config.n_layers + 1) * config.d_model, kept)
    logits = min(4 * tokens**2 * max(block.attn.n_heads for block in config.blocks), tile)
    stretch = min(itemsize * tokens * widest, STRETCH_BYTES)
    memory = residuals + WHOLE * itemsize * tokens * across + STRETCHES * stretch + TILES * logits
    return Cost(tokens, flops, memory)


def tap_sizes(config: Decoder.Config, names: list[str], batch: int, tokens: int) -> dict[str, int]:
    """Elements of each tap named, found by running the same modules on the meta device: no memory, no arithmetic."""
    with torch.device("meta"):
        net = config.build()
        _, shapes = capture(net, torch.empty(batch, tokens, dtype=torch.long), taps=names)
    return {name: t.numel() for name, t in shapes.items()}
