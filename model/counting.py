"""Counting from a configuration alone: modules are built on the meta device, which allocates nothing."""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch

from model.lm import Decoder


@dataclass(frozen=True)
class Count:
    """`parameters`: every distinct number that is stored; a tied unembedding is counted once."""

    parameters: int


@lru_cache(maxsize=256)
def parameters_of(config) -> int:
    """Parameters of any part (or block) from its config."""
    with torch.device("meta"):
        return sum(p.numel() for p in config.build().parameters())


def count_config(config: Decoder.Config) -> Count:
    """Equal blocks are built once and multiplied."""
    blocks = sum(parameters_of(block) * times for block, times in Counter(config.blocks).items())
    embeddings = config.d_vocab * (config.d_model * (1 if config.tied else 2) + config.unembed_bias)
    return Count(embeddings + blocks + sum(map(parameters_of, filter(None, (config.ln_final, config.positions)))))
