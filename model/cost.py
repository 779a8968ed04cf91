"""What a run would take, from the configuration alone, before anything runs."""

import math
from dataclasses import dataclass

import torch

from model.counting import count_block
from model.lm import Decoder
from model.scores import TILE_BYTES
from model.taps import capture


@dataclass(frozen=True)
class Cost:
    """`flops` of one forward pass with logits of the last token, `bytes` of residuals kept plus the largest work space."""

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


def cost(config: Decoder.Config, tokens: int, itemsize: int = 4) -> Cost:
    """Two FLOPs a weight and token, plus q.k and pattern.v over every pair of positions; one residual kept a layer."""
    flops = 2 * config.d_vocab * config.d_model
    widest = config.d_model
    for block in config.blocks:
        counted = count_block(block)
        flops += 2 * tokens * counted.active + 2 * tokens**2 * counted.work_per_key
        widest = max(widest, block.mlp.active_neurons)
    logits = 4 * tokens**2 * max(block.attn.n_heads for block in config.blocks)
    memory = itemsize * tokens * ((config.n_layers + 1) * config.d_model + 4 * widest) + 3 * min(logits, TILE_BYTES)
    return Cost(tokens, flops, memory)


def tap_sizes(config: Decoder.Config, names: list[str], batch: int, tokens: int) -> dict[str, int]:
    """Elements of each tap named, found by running the same modules on the meta device: no memory, no arithmetic."""
    with torch.device("meta"):
        net = config.build()
        _, shapes = capture(net, torch.empty(batch, tokens, dtype=torch.long), taps=names)
    return {name: t.numel() for name, t in shapes.items()}
