"""Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245) with a slot for QK-norm.

    z[h] = softmax(scale * rot(norm(q[h])) . rot(norm(k[h // group])) + mask) v[h // group];   out = W_o concat(z)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.masks import Causal, Sliding
from model.norms import NormConfig
from model.place import Place
from model.positions import Rope
from model.taps import Tap, Tile, edited, heard

TILE_BYTES = 32 << 20  # fp32 logits held at a time: enough to keep the cores busy, small against the weights

QK_NORM_AXES = {"head": 1, "projection": 2}  # how many of (head, d_head) one QK-norm vector spans: Qwen3; OLMo 2


class Attention(nn.Module):
    """x [batch, pos, d_model] -> [batch, pos, d_model]."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        d_model: int
        n_heads: int
        n_kv_heads: int
        d_head: int
        rope: Rope.Config
        mask: Causal | Sliding = Causal()  # noqa: RUF009 (frozen)
        q_norm: NormConfig | None = None
        k_norm: NormConfig | None = None
        qk_norm_over: str = "head"
        scale: float | None = None  # None: 1 / sqrt(d_head)
        qkv_bias: bool = False
        o_bias: bool = False

        def __post_init__(self):
            for name in ("d_model", "n_heads", "n_kv_heads", "d_head"):
                if getattr(self, name) < 1:
                    raise BlockscopeError(f"{name} must be at least 1, got {getattr(self, name)}")
            if self.n_heads % self.n_kv_heads:
                raise BlockscopeError(f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}")
            if self.rope.d > self.d_head:
                raise BlockscopeError(f"rope rotates {self.rope.d} coordinates but d_head is {self.d_head}")
            if self.qk_norm_over not in QK_NORM_AXES:
                raise BlockscopeError(f"qk_norm_over must be one of {', '.join(QK_NORM_AXES)}, got {self.qk_norm_over!r}")
            for name, heads in (("q_norm", self.n_heads), ("k_norm", self.n_kv_heads)):
                norm, width = getattr(self, name), self.norm_width(heads)
                if norm is not None and norm.d != width:
                    raise BlockscopeError(f"{name} over {self.qk_norm_over} must have width {width}, got {norm.d}")

        def norm_width(self, heads: int) -> int:
            """Entries that one QK-norm vector spans: d_head, or heads * d_head."""
            return self.d_head if self.qk_norm_over == "head" else heads * self.d_head

        @property
        def logit_scale(self) -> float:
            return self.d_head**-0.5 if self.scale is None else self.scale

        def build(self) -> "Attention":
            return Attention(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config, c = config, config
        q_dims, k_dims = "batch pos head d_head", "batch pos kv_head d_head"
        square = "batch head query_pos key_pos"
        self.q_proj = nn.Linear(c.d_model, c.n_heads * c.d_head, bias=c.qkv_bias)
        self.k_proj = nn.Linear(c.d_model, c.n_kv_heads * c.d_head, bias=c.qkv_bias)
        self.v_proj = nn.Linear(c.d_model, c.n_kv_heads * c.d_head, bias=c.qkv_bias)
        self.hook_q = Tap(q_dims, "signed", "queries as projected")
        self.hook_k = Tap(k_dims, "signed", "keys as projected")
        self.hook_v = Tap(k_dims, "signed", "values as projected")
        axes = QK_NORM_AXES[c.qk_norm_over]
        self.q_norm = c.q_norm.build(q_dims, axes) if c.q_norm else nn.Identity()
        self.k_norm = c.k_norm.build(k_dims, axes) if c.k_norm else nn.Identity()
        self.rope = c.rope.build()
        self.hook_rot_q = Tap(q_dims, "signed", "queries after the rotation")
        self.hook_rot_k = Tap(k_dims, "signed", "keys after the rotation")
        self.hook_cache_k = Tap("batch key_pos kv_head d_head", "signed", "every rotated key attended to: cached, then new")
        self.hook_cache_v = Tap("batch key_pos kv_head d_head", "signed", "every value attended to: cached, then new")
        self.hook_logits = Tap(square, "signed", "scale * q . k, before the mask")
        self.hook_attn_scores = Tap(square, "signed", "logits with masked entries at -inf: what softmax reads")
        self.hook_pattern = Tap(square, "probability", "softmax over the visible keys; rows sum to 1")
        self.hook_z = Tap(q_dims, "signed", "pattern-weighted mean of the values, per head")
        self.o_proj = nn.Linear(c.n_heads * c.d_head, c.d_model, bias=c.o_bias)

    absent = {  # noqa: RUF012 (read only)
        "hook_capped": "this attention has no logit soft-cap",
        "hook_sink": "this attention has no sink",
        "hook_module_out": "there is no norm after this attention: hook_attn_out is its output",
    }

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        d_head = self.config.d_head
        q = self.q_norm(self.hook_q(self.q_proj(x).unflatten(-1, (-1, d_head))))
        k = self.k_norm(self.hook_k(self.k_proj(x).unflatten(-1, (-1, d_head))))
        v = self.hook_v(self.v_proj(x).unflatten(-1, (-1, d_head)))
        turn = self.rope(place.positions, place.length)
        q = self.hook_rot_q(self.rope.rotate(q, turn))
        k = self.hook_rot_k(self.rope.rotate(k, turn))
        keys, values = place.extend(self, k, v)
        keys, values = self.hook_cache_k(keys), self.hook_cache_v(values)
        z = self.hook_z(self.mix(q, keys, values, place))
        return self.o_proj(z.flatten(-2))

    def mix(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """Fused where nobody looks at scores or pattern; logits alone can be watched beside the fused kernel."""
        if heard(self.hook_attn_scores, self.hook_pattern) or edited(self.hook_logits):
            return self.explicit(q, k, v, place)
        if heard(self.hook_logits):
            for tile in self.tiles(q, place):
                self.hook_logits(self.logits(q[:, tile.rows], k), tile)
        return self.fused(q, k, v, place)

    def logits(self, q: Tensor, k: Tensor) -> Tensor:
        """scale * q . k; q [batch, query_pos, head, d_head], k [batch, key_pos, kv_head, d_head]

        -> [batch, head, query_pos, key_pos].
        """
        grouped = q.unflatten(2, (k.shape[2], -1))  # query head h reads kv head h // group
        return torch.einsum("bqkgd,btkd->bkgqt", grouped * self.config.logit_scale, k).flatten(1, 2)

    def explicit(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """The formula, in query tiles, every stage tapped. -> z [batch, query_pos, head, d_head]."""
        z = torch.empty_like(q)
        for tile in self.tiles(q, place):
            logits = self.hook_logits(self.logits(q[:, tile.rows], k), tile)
            scores = self.hook_attn_scores(logits.masked_fill(~tile.visible, -torch.inf), tile)
            pattern = self.hook_pattern(scores.softmax(-1, dtype=torch.float32).to(v.dtype), tile)
            grouped = pattern.unflatten(1, (v.shape[2], -1))
            z[:, tile.rows] = torch.einsum("bkgqt,btkd->bqkgd", grouped, v).flatten(2, 3)
        return z

    def fused(self, q: Tensor, k: Tensor, v: Tensor, place: Place) -> Tensor:
        """PyTorch's fused kernel. -> z [batch, query_pos, head, d_head]."""
        attend = partial(F.scaled_dot_product_attention, scale=self.config.logit_scale)
        group, tiles = q.shape[2] // k.shape[2], self.tiles(q, place)
        q, k, v = q.transpose(1, 2), *(t.transpose(1, 2).repeat_interleave(group, 1) for t in (k, v))
        if place.start == 0 and isinstance(self.config.mask, Causal):  # is_causal assumes that queries start at key 0
            return attend(q, k, v, is_causal=True).transpose(1, 2)
        return torch.cat([attend(q[:, :, t.rows], k, v, attn_mask=t.visible) for t in tiles], dim=2).transpose(1, 2)

    def tiles(self, q: Tensor, place: Place) -> Iterator[Tile]:
        """Query rows so few at a time that the logits of a tile stay under TILE_BYTES."""
        batch, total, heads, _ = q.shape
        rows = max(1, TILE_BYTES // (4 * batch * heads * place.length))
        keys = place.key_positions
        for first in range(0, total, rows):
            at = slice(first, min(first + rows, total))
            yield Tile(at, total, self.config.mask(place.positions[at], keys))
