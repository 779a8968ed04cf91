"""Normalisations. Each divides by a scale that is measured per vector, then applies a learned gain."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.taps import Tap


@dataclass(frozen=True, kw_only=True)
class NormConfig:
    """Width `d` of the vector that is normalised and the `eps` under the square root."""

    d: int
    eps: float = 1e-5

    def __post_init__(self):
        if self.d < 1:
            raise BlockscopeError(f"norm width d must be at least 1, got {self.d}")
        if not 0 <= self.eps < 1:
            raise BlockscopeError(f"norm eps must lie in [0, 1), got {self.eps}")


def _norm_taps(module: nn.Module, dims: str, axes: int, scale: str, normalized: str) -> None:
    outer = dims.split()[:-axes]
    module.hook_scale = Tap(" ".join([*outer, *["1"] * axes]), "positive", scale)
    module.hook_normalized = Tap(dims, "signed", normalized)
    module.hook_out = Tap(dims, "signed", "after the gain: what the next projection reads")


class RMSNorm(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * g   (Zhang and Sennrich 2019, arXiv 1910.07467).

    Statistics in fp32; the quotient is cast to x's dtype before the gain, as Llama does. x, y: [..., d].
    `dims` names the axes of x where the norm stands; the statistics run over its last `axes` axes, whose sizes multiply
    to d: "batch pos d_model" and 1 in the residual stream, "batch pos head d_head" and 1 (each head) or 2 (all) on q and k.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "RMSNorm":
            return RMSNorm(self.d, self.eps, dims, axes)

    def __init__(self, d: int, eps: float = 1e-5, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__()
        self.config = RMSNorm.Config(d=d, eps=eps)
        self.axes = tuple(range(-axes, 0))
        self.weight = nn.Parameter(torch.ones(d))
        _norm_taps(self, dims, axes, "the divisor sqrt(mean(x^2) + eps)", "x / scale, before the gain; its RMS is 1")

    def forward(self, x: Tensor) -> Tensor:
        scale = self.hook_scale((x.float().pow(2).mean(self.axes, keepdim=True) + self.config.eps).sqrt())
        normalized = self.hook_normalized((x.float() / scale).to(x.dtype))
        return self.hook_out(normalized * self.weight.view(x.shape[self.axes[0] :]))


class LayerNorm(nn.Module):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * g + b   (Ba et al. 2016, arXiv 1607.06450).

    Statistics in fp32; x, y, `dims` and `axes` as in RMSNorm.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "LayerNorm":
            return LayerNorm(self.d, self.eps, dims, axes)

    def __init__(self, d: int, eps: float = 1e-5, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__()
        self.config = LayerNorm.Config(d=d, eps=eps)
        self.axes = tuple(range(-axes, 0))
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))
        _norm_taps(self, dims, axes, "the divisor sqrt(var(x) + eps)", "(x - mean) / scale, before gain and bias")

    def forward(self, x: Tensor) -> Tensor:
        shape = x.shape[self.axes[0] :]
        centred = x.float() - x.float().mean(self.axes, keepdim=True)
        scale = self.hook_scale((centred.pow(2).mean(self.axes, keepdim=True) + self.config.eps).sqrt())
        normalized = self.hook_normalized((centred / scale).to(x.dtype))
        return self.hook_out(normalized * self.weight.view(shape) + self.bias.view(shape))


NORMS = {"rmsnorm": RMSNorm, "layernorm": LayerNorm}
