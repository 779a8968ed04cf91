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


class Norm(nn.Module):
    """Base: taps and shapes. `dims` names the axes of x where the norm stands; statistics run over the last `axes` of
    them, whose sizes multiply to d: "batch pos d_model" and 1 in the residual stream, "batch pos head d_head" and 1
    (each head) or 2 (all heads together) on q and k."""

    def __init__(self, d: int, eps: float = 1e-5, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__()
        self.config = type(self).Config(d=d, eps=eps)
        self.axes = tuple(range(-axes, 0))
        outer = " ".join([*dims.split()[:-axes], *["1"] * axes])
        self.hook_scale = Tap(outer, "positive", self.scale_meaning)
        self.hook_normalized = Tap(dims, "signed", self.normalized_meaning)
        self.hook_out = Tap(dims, "signed", "after the gain: what the next projection reads")

    scale_meaning = "the divisor sqrt(mean(x^2) + eps)"
    normalized_meaning = "x / scale, before the gain; its RMS is 1"

    def divide(self, x: Tensor) -> Tensor:
        """x / scale in fp32, the scale tapped."""
        x = x.float()
        return x / self.hook_scale((x.square().mean(self.axes, keepdim=True) + self.config.eps).sqrt())

    def shaped(self, weight: Tensor, x: Tensor) -> Tensor:
        """A weight [d] in the shape of the axes that are normalised."""
        return weight.view(x.shape[self.axes[0] :])


class RMSNorm(Norm):
    """y = x / sqrt(mean(x^2) + eps) * g   (Zhang and Sennrich 2019, arXiv 1910.07467). x, y: [..., d].

    Statistics in fp32; the quotient is cast to x's dtype before the gain, as Llama does.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "RMSNorm":
            return RMSNorm(self.d, self.eps, dims, axes)

    def __init__(self, d: int, eps: float = 1e-5, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__(d, eps, dims, axes)
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        normalized = self.hook_normalized(self.divide(x).to(x.dtype))
        return self.hook_out(normalized * self.shaped(self.weight, x))


class FullPrecisionRMSNorm(RMSNorm):
    """RMSNorm whose gain is applied in fp32, cast at the end (OLMo 2, gpt-oss)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "FullPrecisionRMSNorm":
            return FullPrecisionRMSNorm(self.d, self.eps, dims, axes)

    def forward(self, x: Tensor) -> Tensor:
        normalized = self.hook_normalized(self.divide(x))
        return self.hook_out((normalized * self.shaped(self.weight.float(), x)).to(x.dtype))


class OffsetRMSNorm(Norm):
    """y = x / sqrt(mean(x^2) + eps) * (1 + w), in fp32 (Gemma; Gemma Team 2024, arXiv 2403.08295)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "OffsetRMSNorm":
            return OffsetRMSNorm(self.d, self.eps, dims, axes)

    def __init__(self, d: int, eps: float = 1e-6, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__(d, eps, dims, axes)
        self.offset = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        normalized = self.hook_normalized(self.divide(x))
        return self.hook_out((normalized * (1 + self.shaped(self.offset.float(), x))).to(x.dtype))


class UnitRMSNorm(Norm):
    """y = x / sqrt(mean(x^2) + eps): no gain at all (the QK-norm of Llama 4)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "UnitRMSNorm":
            return UnitRMSNorm(self.d, self.eps, dims, axes)

    def forward(self, x: Tensor) -> Tensor:
        return self.hook_out(self.hook_normalized(self.divide(x).to(x.dtype)))


class LayerNorm(Norm):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * g + b   (Ba et al. 2016, arXiv 1607.06450); statistics in fp32."""

    scale_meaning = "the divisor sqrt(var(x) + eps)"
    normalized_meaning = "(x - mean) / scale, before gain and bias"

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "LayerNorm":
            return LayerNorm(self.d, self.eps, dims, axes)

    def __init__(self, d: int, eps: float = 1e-5, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__(d, eps, dims, axes)
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        centred = x.float() - x.float().mean(self.axes, keepdim=True)
        normalized = self.hook_normalized(self.divide(centred).to(x.dtype))
        return self.hook_out(normalized * self.shaped(self.weight, x) + self.shaped(self.bias, x))


class BiaslessLayerNorm(Norm):
    """LayerNorm without a bias (PaLM, arXiv 2204.02311)."""

    scale_meaning, normalized_meaning = LayerNorm.scale_meaning, LayerNorm.normalized_meaning

    @dataclass(frozen=True, kw_only=True)
    class Config(NormConfig):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "BiaslessLayerNorm":
            return BiaslessLayerNorm(self.d, self.eps, dims, axes)

    def __init__(self, d: int, eps: float = 1e-5, dims: str = "batch pos d_model", axes: int = 1):
        super().__init__(d, eps, dims, axes)
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        centred = x.float() - x.float().mean(self.axes, keepdim=True)
        normalized = self.hook_normalized(self.divide(centred).to(x.dtype))
        return self.hook_out(normalized * self.shaped(self.weight, x))


NORMS = {
    "rmsnorm": RMSNorm,
    "rmsnorm-fp32-gain": FullPrecisionRMSNorm,
    "rmsnorm-offset": OffsetRMSNorm,
    "rmsnorm-no-gain": UnitRMSNorm,
    "layernorm": LayerNorm,
    "layernorm-no-bias": BiaslessLayerNorm,
}
