"""Attention temperature that grows with position, for layers without rotation (Llama 4; arXiv 2501.19399)."""

from dataclasses import dataclass

from torch import Tensor, nn

from model.errors import BlockscopeError
from model.taps import Tap


class Temperature(nn.Module):
    """q * (1 + slope * ln(1 + floor((position + 1) / every))). q [batch, pos, head, d_head], positions [pos]."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        every: int
        slope: float

        def __post_init__(self):
            if self.every < 1:
                raise BlockscopeError(f"the temperature's floor scale must be at least 1, got {self.every}")

        def build(self) -> "Temperature":
            return Temperature(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_scale = Tap("pos", "positive", "factor on the queries of each position")

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        steps = ((positions.float() + 1) / self.config.every).floor()
        factor = self.hook_scale(1 + self.config.slope * steps.log1p())
        return (q * factor[:, None, None]).to(q.dtype)


class ConstantTemperature(nn.Module):
    """The usual case: queries keep their size at every position."""

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        return q
