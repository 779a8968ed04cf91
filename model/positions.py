"""Rotary position embedding (Su et al. 2021, arXiv 2104.09864) and the published ways to stretch it.

Pair p of a head turns by the angle position * frequency[p]; frequency[p] = base ** (-2p / d). A scaling is a function
from the unscaled frequencies to (frequencies, factor on cos and sin). Angles are fp32 whatever the model's dtype:
bf16 cannot tell position 257 from 256.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.taps import Tap


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Position interpolation (Chen et al. 2023, arXiv 2306.15595): every frequency divided by `factor`."""

    factor: float

    def __call__(self, rope: "Rope.Config", length: int) -> tuple[Tensor, float]:
        return rope.unscaled() / self.factor, 1.0


@dataclass(frozen=True, kw_only=True)
class Dynamic:
    """Dynamic NTK: past `original` positions the base grows with the length of the text, so the table depends on it.

    So cached decoding past `original` differs from the full pass: earlier keys were turned with a shorter text's table.
    base' = base * (factor * length / original - (factor - 1)) ** (d / (d - 2)); Peng et al. 2023, arXiv 2309.00071, app. B.
    """

    factor: float
    original: int

    def __call__(self, rope: "Rope.Config", length: int) -> tuple[Tensor, float]:
        stretch = self.factor * max(length, self.original) / self.original - (self.factor - 1)
        return rope.unscaled(rope.base * stretch ** (rope.d / (rope.d - 2))), 1.0


@dataclass(frozen=True, kw_only=True)
class Llama3:
    """Llama 3.1: wavelengths over original/low are stretched by `factor`, those under original/high kept, a ramp between."""

    factor: float
    low: float
    high: float
    original: int

    def __post_init__(self):
        if not self.low <= self.high:
            raise BlockscopeError(f"llama3 scaling needs low_freq_factor <= high_freq_factor, got {self.low} and {self.high}")

    def __call__(self, rope: "Rope.Config", length: int) -> tuple[Tensor, float]:
        frequency = rope.unscaled()
        turns = self.original * frequency / (2 * math.pi)  # full turns within the original context
        keep = ((turns - self.low) / max(self.high - self.low, 1e-9)).clamp(0, 1)  # Llama 4 Scout: both 1, a step
        return keep * frequency + (1 - keep) * frequency / self.factor, 1.0


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """YaRN (Peng et al. 2023, arXiv 2309.00071): interpolate slow pairs, keep fast ones, and sharpen the attention.

    `attention_factor` None: derived from `factor` (and mscale / mscale_all_dim, DeepSeek's two exponents, where given).
    `truncate` rounds the two ends of the ramp to whole pairs.
    """

    factor: float
    original: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def __call__(self, rope: "Rope.Config", length: int) -> tuple[Tensor, float]:
        frequency = rope.unscaled()
        low, high = self._pair_with(self.beta_fast, rope), self._pair_with(self.beta_slow, rope)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, rope.d - 1)
        pair = torch.arange(rope.d // 2, dtype=torch.float32)
        slow = ((pair - low) / max(high - low, 1e-3)).clamp(0, 1)
        return slow * frequency / self.factor + (1 - slow) * frequency, self.magnitude()

    def _pair_with(self, turns: float, rope: "Rope.Config") -> float:
        """The (fractional) pair that makes `turns` full turns within the original context."""
        return rope.d * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(rope.base))

    def magnitude(self) -> float:
        """The factor on cos and sin."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._mscale(self.mscale) / self._mscale(self.mscale_all_dim)
        return self._mscale(1.0)

    @property
    def logit_factor(self) -> float:
        """DeepSeek's factor on the attention scale: mscale_all_dim sharpens the logits, not cos and sin."""
        return self._mscale(self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0

    def _mscale(self, weight: float) -> float:
        return 0.1 * weight * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


SCALINGS = {"linear": Linear, "dynamic": Dynamic, "llama3": Llama3, "yarn": Yarn}


def _half(x: Tensor) -> tuple[Tensor, Tensor]:
    """Pair p is (x[p], x[p + d/2])."""
    return x.chunk(2, dim=-1)


def _interleaved(x: Tensor) -> tuple[Tensor, Tensor]:
    """Pair p is (x[2p], x[2p + 1])."""
    return x[..., 0::2], x[..., 1::2]


PAIRINGS = {  # how a head's coordinates are paired, and how the rotated pairs are put back
    "half": (_half, lambda a, b: torch.cat([a, b], dim=-1)),
    "interleaved": (_interleaved, lambda a, b: torch.stack([a, b], dim=-1).flatten(-2)),
}


class NoRotation(nn.Module):
    """The layer does not rotate: positions come from elsewhere (learned, sinusoidal) or not at all."""

    reason = "this attention does not rotate its queries and keys"

    def forward(self, positions: Tensor, length: int) -> None:
        return None

    def rotate(self, x: Tensor, turn: None) -> Tensor:
        return x


class Rope(nn.Module):
    """cos and sin per position and pair; `rotate` applies them to q and k. Holds no parameters and no buffers."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """`d` rotated coordinates of a head, `base` theta, `pairing` "half" (Hugging Face order) or "interleaved" (Meta's)."""

        d: int
        base: float
        pairing: str
        scaling: Linear | Dynamic | Llama3 | Yarn | None = None

        def __post_init__(self):
            if self.d < 2 or self.d % 2:
                raise BlockscopeError(f"the rotary width must be even and at least 2, got {self.d}")
            if not self.base > 1:
                raise BlockscopeError(f"the rotary base must be above 1, got {self.base}")
            if self.pairing not in PAIRINGS:
                raise BlockscopeError(f"rope pairing must be one of {', '.join(PAIRINGS)}, got {self.pairing!r}")
            if isinstance(self.scaling, Dynamic) and self.d == 2:
                raise BlockscopeError("dynamic rope scaling needs a rotary width of at least 4, got 2")
            if self.scaling is not None and not self.scaling.factor >= 1:
                raise BlockscopeError(f"the rope scaling factor must be at least 1, got {self.scaling.factor}")

        def unscaled(self, base: float | None = None) -> Tensor:
            """base ** (-2p / d), fp32 [pair]."""
            return 1.0 / (base or self.base) ** (torch.arange(0, self.d, 2, dtype=torch.float32) / self.d)

        def frequencies(self, length: int = 1) -> tuple[Tensor, float]:
            """Scaled frequencies [pair] in radians per position, and the factor on cos and sin, for a text of `length`."""
            return (self.unscaled(), 1.0) if self.scaling is None else self.scaling(self, length)

        def build(self) -> "Rope":
            return Rope(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.hook_angle = Tap("pos pair", "signed", "angle in radians by which each pair is turned")

    def forward(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """positions [pos] of these tokens in a text of `length` tokens -> cos, sin: fp32 [pos, pair]."""
        with torch.device("cpu"):  # the table is small; MPS has no fp64 and must give the same fp32 numbers
            frequency, magnitude = self.config.frequencies(length)
        angle = self.hook_angle(positions[:, None].float() * frequency.to(positions.device))
        return angle.cos() * magnitude, angle.sin() * magnitude

    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [..., d] -> first and second coordinates of each pair, [..., pair] each."""
        return PAIRINGS[self.config.pairing][0](x)

    def rotate(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """x [batch, pos, head, d_head]: turn the first `d` coordinates pair by pair, pass the rest through."""
        split, join = PAIRINGS[self.config.pairing]
        cos, sin = (t[:, None, :].to(x.dtype) for t in turn)
        a, b = split(x[..., : self.config.d])
        return torch.cat([join(a * cos - b * sin, b * cos + a * sin), x[..., self.config.d :]], dim=-1)


class FullPrecisionRope(Rope):
    """Rope that turns q and k in fp32 whatever their dtype, and casts back (OLMo 2)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Rope.Config):
        def build(self) -> "FullPrecisionRope":
            return FullPrecisionRope(self)

    def rotate(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        return super().rotate(x.float(), turn).to(x.dtype)
