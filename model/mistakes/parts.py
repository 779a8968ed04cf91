"""Wrong parts, for mistakes that no configuration of right parts expresses."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.attention import Attention
from model.block import Sandwich
from model.embedding import Sinusoidal
from model.masks import Causal
from model.norms import FullPrecisionRMSNorm, OffsetRMSNorm
from model.place import Place
from model.positions import Rope
from model.softmax import Softmax


class TiledHeads(Attention):
    """Query head h reads KV head h mod n_kv_heads (tiled) instead of h // group (repeated)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Attention.Config):
        def build(self) -> "TiledHeads":
            return TiledHeads(self)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        order = self.order(q, k)
        return super().explicit(q[:, :, order], k, v, place)[:, :, order.argsort()]

    def fused(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        order = self.order(q, k)
        return super().fused(q[:, :, order], k, v, place)[:, :, order.argsort()]

    def order(self, q: Tensor, k: Tensor) -> Tensor:
        """The heads in the order in which repetition gives each the KV head that tiling would."""
        return torch.arange(q.shape[2], device=q.device).view(-1, k.shape[2]).T.flatten()


class CappedSoftmax(Softmax):
    """Caps what it gets, masked entries with the rest: -inf becomes -cap, and the future weighs something."""

    def __init__(self, softcap: nn.Module):
        super().__init__()
        self.softcap = softcap

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        return super().forward(self.softcap(scores))


class CapAfterMask(Attention):
    """The soft-cap between mask and softmax instead of before the mask."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Attention.Config):
        def build(self) -> "CapAfterMask":
            return CapAfterMask(self)

    def __init__(self, config: Config):
        super().__init__(config)
        self.softmax, self.softcap = CappedSoftmax(self.softcap), nn.Identity()


@dataclass(frozen=True)
class OneAhead(Causal):
    """The diagonal one step too far: each token sees the next."""

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return key[None, :] <= query[:, None] + 1


class PlainGain(OffsetRMSNorm):
    """w where the gain is 1 + w."""

    @dataclass(frozen=True, kw_only=True)
    class Config(OffsetRMSNorm.Config):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "PlainGain":
            return PlainGain(self.d, self.eps, dims, axes)

    def forward(self, x: Tensor) -> Tensor:
        return self.hook_out((self.hook_normalized(self.divide(x)) * self.shaped(self.offset.float(), x)).to(x.dtype))


class PerHead(FullPrecisionRMSNorm):
    """The gain of the whole projection, but each head divided by its own root mean square."""

    @dataclass(frozen=True, kw_only=True)
    class Config(FullPrecisionRMSNorm.Config):
        def build(self, dims: str = "batch pos d_model", axes: int = 1) -> "PerHead":
            return PerHead(self.d, self.eps, dims, axes)

    def divide(self, x: Tensor) -> Tensor:
        x = x.float()
        return x / self.hook_scale((x.square().mean(-1, keepdim=True) + self.config.eps).sqrt())


class WholeHeadExponent(Rope):
    """Partial rotation whose frequencies are base ** (-2p / d_head) instead of base ** (-2p / d)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Rope.Config):
        d_head: int

        def unscaled(self, base: float | None = None) -> Tensor:
            return 1.0 / (base or self.base) ** (torch.arange(0, self.d, 2, dtype=torch.float32) / self.d_head)

        def build(self) -> "WholeHeadExponent":
            return WholeHeadExponent(self)


class NormAfterAdd(Sandwich):
    """h = ln1_post(x + attn(ln1(x))): the second norm on the sum instead of on what is added."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Sandwich.Config):
        def build(self) -> "NormAfterAdd":
            return NormAfterAdd(self)

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        x = self.hook_resid_pre(x)
        h = self.hook_resid_mid(self.ln1_post(x + self.hook_attn_out(self.attn(self.ln1(x), place))))
        return self.hook_resid_post(self.ln2_post(h + self.hook_mlp_out(self.mlp(self.ln2(h)))))


class Halves(Sinusoidal):
    """All sines, then all cosines, instead of alternating."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Sinusoidal.Config):
        def build(self) -> "Halves":
            return Halves(self)

    def vectors(self, positions: Tensor) -> Tensor:
        right = super().vectors(positions)
        return torch.cat([right[:, 0::2], right[:, 1::2]], dim=-1)
