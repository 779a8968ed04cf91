"""From token ids to the residual stream: the embedding, its scale, and positions that are added to it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.place import Place
from model.taps import Tap


class ScaledEmbedding(nn.Embedding):
    """Rows times a constant that is rounded to the weights' dtype, as Gemma does with sqrt(d_model)."""

    def __init__(self, rows: Tensor, scale: float):
        super().__init__(*rows.shape, _weight=rows)
        self.scale = scale

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) * torch.tensor(self.scale, dtype=self.weight.dtype, device=self.weight.device)


class LearnedPositions(nn.Module):
    """One learned vector per position (GPT-2). -> [pos, d_model] for the positions of `place`."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        context: int
        d_model: int

        def build(self) -> "LearnedPositions":
            return LearnedPositions(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.randn(config.context, config.d_model))
        self.hook_out = Tap("pos d_model", "signed", "learned position vectors, added to the embeddings")

    def forward(self, x: Tensor, place: Place) -> Tensor:
        if place.length > self.config.context:
            raise BlockscopeError(
                f"{place.length} tokens exceed the {self.config.context} learned positions of this model: shorten the prompt"
            )
        return x + self.hook_out(self.weight[place.positions])


class Sinusoidal(nn.Module):
    """sin and cos of position / 10000^(2i/d) in alternating coordinates (Vaswani et al. 2017, section 3.5)."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        d_model: int

        def __post_init__(self):
            if self.d_model % 2:
                raise BlockscopeError(f"sinusoidal positions need an even d_model, got {self.d_model}")

        def build(self) -> "Sinusoidal":
            return Sinusoidal(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_out = Tap("pos d_model", "signed", "sinusoidal position vectors, added to the embeddings")

    def vectors(self, positions: Tensor) -> Tensor:
        """positions [pos] -> fp32 [pos, d_model]."""
        pair = torch.arange(0, self.config.d_model, 2, device=positions.device)
        angle = positions[:, None].float() * torch.exp(-math.log(10_000.0) * pair / self.config.d_model)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)

    def forward(self, x: Tensor, place: Place) -> Tensor:
        return x + self.hook_out(self.vectors(place.positions).to(x.dtype))


class NoPositions(nn.Module):
    """Nothing is added: attention rotates instead, or the model has no positions at all."""

    def forward(self, x: Tensor, place: Place) -> Tensor:
        return x


POSITIONS = {"learned": LearnedPositions, "sinusoidal": Sinusoidal}
