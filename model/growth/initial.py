"""The weights that a run starts from."""

import math

import torch

from model.lm import Decoder
from model.weights import seeded

TABLES = ("embed.weight", "positions.weight")  # rows that are looked up, not multiplied


def initialised(config: Decoder.Config, seed: int, std: float | None = None) -> Decoder:
    """A decoder whose every parameter is drawn from its own name: two arms share all weights that both have.

    `std` None: as model.weights.seeded draws them, matrices with 1/sqrt(fan_in) and tables with 1; the tables of a tied model
    with 1/sqrt(d_model), since the embedding is its unembedding too. Otherwise every matrix and table is the same draw scaled
    to that standard deviation (before its truncation), those that write into the residual stream by 1/sqrt(2 layers) more.
    """
    model = config.build()
    residual_scale = 1 / math.sqrt(2 * config.n_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = seeded(name, tuple(parameter.shape), seed, residual_scale)
            if name in TABLES:
                value *= std if std is not None else config.d_model**-0.5 if config.tied else 1.0
            elif std is not None and value.ndim > 1:
                value *= std * math.sqrt(parameter.shape[-1])
            parameter.copy_(value)
    return model
