"""What each head of a trained byte model looks at, measured on held-out text: the figures that a model card may claim."""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.lm import Decoder
from model.taps import capture


@dataclass(frozen=True)
class HeadFigures:
    """Mean attention weight that one head gives to each kind of key, over queries past the first ten positions.

    `induction`: on a random byte sequence written twice, the weight on the byte after the current one's first copy;
    `uniform` is what a head without preference would give there.
    """

    layer: int
    head: int
    previous: float
    second: float
    itself: float
    first: float
    newline: float
    induction: float
    uniform: float


def measure(model: Decoder, tokens: Tensor, seed: int = 0) -> list[HeadFigures]:
    """tokens [batch, pos] of held-out text -> figures of every head."""
    length = tokens.shape[1]
    half = torch.randint(256, (8, length // 2), generator=torch.Generator().manual_seed(seed))
    repeated = torch.cat([half, half], dim=1)
    at, figures = torch.arange(10, length), []
    again = torch.arange(length // 2 + 1, repeated.shape[1])
    for layer in range(model.config.n_layers):
        tap = f"blocks.{layer}.attn.hook_pattern"
        pattern = capture(model, tokens, taps=[tap])[1][tap]
        twice = capture(model, repeated, taps=[tap])[1][tap]
        newline = (tokens == ord("\n"))[:, None, None, :] * pattern
        rows = {
            "previous": pattern[:, :, at, at - 1], "second": pattern[:, :, at, at - 2], "itself": pattern[:, :, at, at],
            "first": pattern[:, :, at, 0], "newline": newline[:, :, at].sum(-1),
            "induction": twice[:, :, again, again - length // 2 + 1],
        }  # fmt: skip
        means = {name: row.mean((0, 2)) for name, row in rows.items()}
        uniform = float((1 / (again + 1)).mean())
        for head in range(pattern.shape[1]):
            values = {name: float(mean[head]) for name, mean in means.items()}
            figures.append(HeadFigures(layer, head, **values, uniform=uniform))
    return figures


def newline_share(tokens: Tensor) -> float:
    """The share of newline bytes in the text: what a head without preference would give them."""
    return float((tokens == ord("\n")).float().mean())
