"""The weights that a run starts from."""

import math

import torch

from model.lm import Decoder
from model.weights import seeded


def initialised(config: Decoder.Config, seed: int, std: float | None = None) -> Decoder:
    """A decoder whose every parameter is drawn from its own name: two arms share all weights that both have.

    `std` None: as model.weights.seeded draws them. Otherwise every matrix and embedding is the same draw scaled to that
    standard deviation (before its truncation), those that write into the residual stream further by 1/sqrt(2 layers).
    """
    model = config.build()
    residual_scale = 1 / math.sqrt(2 * config.n_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = seeded(name, tuple(parameter.shape), seed, residual_scale)
            if std is not None and value.ndim > 1:
                value *= std if name in ("embed.weight", "positions.weight") else std * math.sqrt(parameter.shape[-1])
            parameter.copy_(value)
    return model
