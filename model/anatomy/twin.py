"""What a rung of the ladder does to the numbers: tiny models with random weights by name, all on one short text.

Rungs share every weight whose name and shape they share, so a difference is the change's doing and not the dice's.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch

from model.anatomy.ladder import TINY, climb
from model.lm import Decoder
from model.run import LM
from model.view import Request
from model.weights import WeightStore, seeded

TEXT = b"The capital of France is Paris."


@dataclass(frozen=True)
class Twin:
    """The largest visible |attention logit| of all layers, the rms of the stream leaving the last, and the mean entropy
    of its attention in nats."""

    logit: float
    stream: float
    entropy: float


def run(config: Decoder.Config) -> Twin:
    """One pass over TEXT, bytes as tokens."""
    depth = (2 * config.n_layers) ** -0.5
    store = WeightStore(lambda name, shape: seeded(name, shape, 0, depth), torch.device("cpu"), torch.float32)
    lm = LM(config, store, name="twin", source="twin", tokenizer=None)
    last = config.n_layers - 1
    views = lm.views(list(TEXT), [
        Request(f"blocks.{last}.hook_resid_post", "stats"),
        Request(f"blocks.{last}.attn.hook_pattern", "entropy", over=("key_pos",)),
        *(Request(f"blocks.{layer}.attn.hook_logits", "stats") for layer in range(config.n_layers)),
    ])  # fmt: skip
    stream, entropy, *logits = views
    return Twin(max(view.stats.absmax for view in logits), stream.stats.rms, float(entropy.values.mean()))


@lru_cache(maxsize=8)
def twins(width: str = "matched") -> dict[str, Twin]:
    """Rung -> its tiny twin's numbers; some seconds on a CPU, once."""
    return {rung.id: run(config) for rung, config in climb(TINY, width)}
