"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values are made from one small cached latent.

c = norm(W_a x)[latent];  [k_nope, v] = W_b c;  k = [k_nope, rot(k_rope)] with one k_rope shared by all heads
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.masks import Causal, Mask
from model.norms import NormConfig
from model.place import Place
from model.positions import Rope
from model.scores import Scores
from model.taps import Absent, Tap


class MLA(Scores):
    """x [batch, pos, d_model] -> [batch, pos, d_model]."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """A head's query and key have `d_nope` plain and `rope.d` rotated coordinates, its value `d_value`.

        `q_latent` None: queries are projected directly. `scale` None: 1 / sqrt(d_nope + rope.d).
        """

        d_model: int
        n_heads: int
        d_nope: int
        d_value: int
        kv_latent: int
        rope: Rope.Config
        kv_norm: NormConfig
        q_latent: int | None = None
        q_norm: NormConfig | None = None
        mask: Mask = field(default=Causal())
        scale: float | None = None
        bias: bool = False

        def __post_init__(self):
            for name in ("d_model", "n_heads", "d_nope", "d_value", "kv_latent"):
                if getattr(self, name) < 1:
                    raise BlockscopeError(f"{name} must be at least 1, got {getattr(self, name)}")
            if (self.q_latent is None) != (self.q_norm is None):
                raise BlockscopeError("q_latent and q_norm come together: give both or neither")

        @property
        def d_head(self) -> int:
            return self.d_nope + self.rope.d

        @property
        def n_kv_heads(self) -> int:
            return self.n_heads

        @property
        def logit_scale(self) -> float:
            return self.d_head**-0.5 if self.scale is None else self.scale

        @property
        def cached_per_token(self) -> int:
            return self.kv_latent + self.rope.d

        @property
        def work_per_key(self) -> int:
            """Multiplications of one query token with one key and its value, all heads, the latent already expanded."""
            return self.n_heads * (self.d_head + self.d_value)

        def build(self) -> "MLA":
            return MLA(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config, c = config, config
        latent, q_dims = "batch pos d_latent", "batch pos head d_head"
        if c.q_latent is None:
            self.q_proj = nn.Linear(c.d_model, c.n_heads * c.d_head, bias=False)
            self.hook_q_latent = Absent("these queries are projected directly, without a latent")
        else:
            self.q_down = nn.Linear(c.d_model, c.q_latent, bias=c.bias)
            self.hook_q_latent = Tap(latent, "signed", "compressed query, before its norm")
            self.q_norm = c.q_norm.build(latent)
            self.q_proj = nn.Linear(c.q_latent, c.n_heads * c.d_head, bias=False)
        self.hook_q = Tap(q_dims, "signed", "queries: d_nope plain coordinates, then those that rotate")
        self.kv_down = nn.Linear(c.d_model, c.kv_latent + c.rope.d, bias=c.bias)
        self.hook_kv_latent = Tap(latent, "signed", "compressed key and value, before its norm")
        self.hook_k_rope = Tap("batch pos d_head", "signed", "the rotary key, one for all heads, before the rotation")
        self.kv_norm = c.kv_norm.build(latent)
        self.rope = c.rope.build()
        self.hook_rot_q = Tap(q_dims, "signed", "queries after the rotation of their last coordinates")
        self.hook_rot_k_rope = Tap("batch pos d_head", "signed", "the rotary key after the rotation")
        self.hook_cache_latent = Tap("batch key_pos d_latent", "signed", "what the cache keeps: normalised latents")
        self.hook_cache_k_rope = Tap("batch key_pos d_head", "signed", "what the cache keeps: rotated rotary keys")
        self.kv_up = nn.Linear(c.kv_latent, c.n_heads * (c.d_nope + c.d_value), bias=False)
        self.hook_keys = Tap("batch key_pos head d_head", "signed", "keys of every head, made from the cache")
        self.hook_values = Tap("batch key_pos head d_head", "signed", "values of every head, made from the cache")
        self.add_scores(scale=c.logit_scale, mask=c.mask, n_heads=c.n_heads)
        self.o_proj = nn.Linear(c.n_heads * c.d_value, c.d_model, bias=c.bias)
        self.hook_module_out = Absent("there is no norm after this attention: hook_attn_out is its output")
        reason = "latent attention projects no keys or values: see hook_kv_latent, hook_keys and hook_values"
        for name in ("hook_k", "hook_v", "hook_rot_k", "hook_cache_k", "hook_cache_v"):
            setattr(self, name, Absent(reason))

    before_rotation = "hook_q"

    def rotated(self, q: Tensor) -> Tensor:
        """The coordinates of q [..., d_head] that rotate."""
        return q[..., self.config.d_nope :]

    def queries(self, x: Tensor) -> Tensor:
        """-> [batch, pos, head, d_head]."""
        if self.config.q_latent is not None:
            x = self.q_norm(self.hook_q_latent(self.q_down(x)))
        return self.hook_q(self.q_proj(x).unflatten(-1, (-1, self.config.d_head)))

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place, c = place or Place.of(x), self.config
        turn = self.rope(place.positions, place.length)
        q_nope, q_rope = self.queries(x).split([c.d_nope, c.rope.d], dim=-1)
        q = self.hook_rot_q(torch.cat([q_nope, self.rope.rotate(q_rope, turn)], dim=-1))

        latent, k_rope = self.kv_down(x).split([c.kv_latent, c.rope.d], dim=-1)
        latent = self.kv_norm(self.hook_kv_latent(latent))
        k_rope = self.rope.rotate(self.hook_k_rope(k_rope)[:, :, None], turn)[:, :, 0]
        latent, k_rope = place.extend(self, latent, self.hook_rot_k_rope(k_rope))
        latent, k_rope = self.hook_cache_latent(latent), self.hook_cache_k_rope(k_rope)

        k_nope, v = self.kv_up(latent).unflatten(-1, (c.n_heads, -1)).split([c.d_nope, c.d_value], dim=-1)
        k = torch.cat([k_nope, k_rope[:, :, None].expand(-1, -1, c.n_heads, -1)], dim=-1)
        z = self.mix(q, self.hook_keys(k), self.hook_values(v), place)
        return self.hook_module_out(self.o_proj(z.flatten(-2)))
