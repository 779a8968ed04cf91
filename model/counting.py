"""Counting from a configuration alone: modules are built on the meta device, which allocates nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import nn

from model.block import BlockConfig
from model.lm import Decoder
from model.masks import Mask
from model.moe import MoE
from model.norms import Norm

PARTS = {  # in the order of a model; what each holds
    "embedding": "one row per entry of the vocabulary; a tied unembedding is this same matrix",
    "positions": "learned position vectors",
    "attention": "projections, biases and sinks",
    "mlp": "the MLP that every token passes, shared experts included",
    "experts": "routed experts, all of them",
    "router": "router, its bias and its correction",
    "norms": "gains and biases of every norm, QK-norm and latent norms included",
    "unembedding": "the matrix from stream to logits where it is not tied, and its bias",
}
SLOTS = (  # where they stand in a block, the narrower first; norms are known by their class
    ("mlp.experts", "experts"),
    ("mlp.router", "router"),
    ("mlp.correction", "router"),
    ("mlp", "mlp"),
    ("attn", "attention"),
)


@dataclass(frozen=True)
class BlockCount:
    """One block. `active`: the parameters that one token meets; `cached`: numbers that a cache keeps for one token."""

    by_part: Mapping[str, int]
    active: int
    cached: int
    work_per_key: int
    mask: Mask

    @property
    def parameters(self) -> int:
        return sum(self.by_part.values())


@dataclass(frozen=True)
class Count:
    """`parameters`: every distinct number that is stored; a tied unembedding is counted once.

    `active`: those that one token's pass meets: of the experts only the chosen, of the embedding table only its row
    unless the table is also the unembedding.
    """

    by_part: Mapping[str, int]
    by_block: tuple[BlockCount, ...]
    active: int
    context: int  # positions that the model was made for

    @property
    def parameters(self) -> int:
        return sum(self.by_part.values())

    def weight_bytes(self, itemsize: int = 2) -> int:
        return self.parameters * itemsize

    def kv_bytes_per_token(self, itemsize: int = 2) -> int:
        """What one more token adds to the cache of all layers while no window is full yet."""
        return itemsize * sum(block.cached for block in self.by_block)

    def kv_cache_bytes(self, context: int, itemsize: int = 2) -> int:
        """The cache of a text of `context` tokens; a layer with a window or chunks keeps no more than it can see."""
        return itemsize * sum(block.cached * block.mask.reach(context) for block in self.by_block)

    def flops_per_token(self, context: int = 1) -> int:
        """Of the forward pass of the last of `context` tokens: two a weight it meets, two a product with each key it sees.

        The convention of Kaplan et al. 2020 (arXiv 2001.08361) and PaLM (arXiv 2204.02311, appendix B).
        """
        mixing = sum(block.work_per_key * block.mask.reach(context) for block in self.by_block)
        return 2 * (self.active + mixing)


@lru_cache(maxsize=256)
def count_block(config: BlockConfig) -> BlockCount:
    with torch.device("meta"):
        block = config.build()
    found = Counter()
    for path, module in block.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            found[part_of(f"{path}.{leaf}", module)] += parameter.numel()
    attn, mlp = config.attn, config.mlp
    idle = found["experts"] // mlp.n_experts * (mlp.n_experts - mlp.routing.topk) if isinstance(mlp, MoE.Config) else 0
    return BlockCount(_ordered(found), sum(found.values()) - idle, attn.cached_per_token, attn.work_per_key, attn.mask)


def part_of(path: str, module: nn.Module) -> str:
    """The part of a block's parameter `path`, which `module` holds: mlp.experts.up_proj -> "experts"."""
    return "norms" if isinstance(module, Norm) else next(part for slot, part in SLOTS if f"{path}.".startswith(f"{slot}."))


def _ordered(found: Mapping[str, int]) -> Mapping[str, int]:
    return MappingProxyType({part: found[part] for part in PARTS if found.get(part)})


@lru_cache(maxsize=256)
def _size(config) -> int:
    """Parameters of a part outside the blocks."""
    with torch.device("meta"):
        return sum(p.numel() for p in config.build().parameters())


def count_config(config: Decoder.Config) -> Count:
    """Equal blocks are built once."""
    blocks = tuple(count_block(block) for block in config.blocks)
    table = config.d_vocab * config.d_model
    found = Counter()
    for block in blocks:
        found.update(block.by_part)
    found["embedding"] = table
    found["positions"] = _size(config.positions) if config.positions else 0
    found["norms"] += _size(config.ln_final) if config.ln_final else 0
    found["unembedding"] = config.d_vocab * config.unembed_bias + (0 if config.tied else table)
    idle = sum(block.parameters - block.active for block in blocks)
    if not config.tied:
        idle += table - config.d_model
    if config.positions:
        idle += max(found["positions"] - config.d_model, 0)
    return Count(_ordered(found), blocks, sum(found.values()) - idle, config.context)
