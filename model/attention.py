"""Grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245) with slots for QK-norm, rotation, soft-cap and sink.

z[h] = softmax(scale * rot(norm(q[h])) . rot(norm(k[h // group])) + mask) v[h // group];   out = W_o concat(z)
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from model.errors import BlockscopeError
from model.masks import Causal, Mask
from model.norms import NormConfig
from model.place import Place
from model.positions import NoRotation, Rope
from model.scores import Scores
from model.taps import Absent, Tap
from model.temperature import ConstantTemperature, Temperature

QK_NORM_AXES = {"head": 1, "projection": 2}  # how many of (head, d_head) one QK-norm vector spans: Qwen3; OLMo 2

Q, K = "batch pos head d_head", "batch pos kv_head d_head"
CACHED = "batch key_pos kv_head d_head"


class Attention(Scores):
    """x [batch, pos, d_model] -> [batch, pos, d_model]. Multi-head (n_kv_heads = n_heads), grouped or multi-query (1)."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        d_model: int
        n_heads: int
        n_kv_heads: int
        d_head: int
        rope: Rope.Config | None  # None: this layer does not rotate
        mask: Mask = field(default=Causal())
        q_norm: NormConfig | None = None
        k_norm: NormConfig | None = None
        qk_norm_over: str = "head"
        scale: float | None = None  # None: 1 / sqrt(d_head)
        softcap: float | None = None
        sink: bool = False
        temperature: Temperature.Config | None = None
        qkv_bias: bool = False
        o_bias: bool = False

        def __post_init__(self):
            for name in ("d_model", "n_heads", "n_kv_heads", "d_head"):
                if getattr(self, name) < 1:
                    raise BlockscopeError(f"{name} must be at least 1, got {getattr(self, name)}")
            if self.n_heads % self.n_kv_heads:
                raise BlockscopeError(f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}")
            if self.rope is not None and self.rope.d > self.d_head:
                raise BlockscopeError(f"rope rotates {self.rope.d} coordinates but d_head is {self.d_head}")
            if self.qk_norm_over not in QK_NORM_AXES:
                known = ", ".join(QK_NORM_AXES)
                raise BlockscopeError(f"qk_norm_over must be one of {known}, got {self.qk_norm_over!r}")
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

        @property
        def cached_per_token(self) -> int:
            """Numbers that a cache keeps for one token of one layer."""
            return 2 * self.n_kv_heads * self.d_head

        @property
        def work_per_key(self) -> int:
            """Multiplications of one query token with one key and its value, all heads."""
            return 2 * self.n_heads * self.d_head

        def build(self) -> "Attention":
            return Attention(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config, c = config, config
        self.q_proj = nn.Linear(c.d_model, c.n_heads * c.d_head, bias=c.qkv_bias)
        self.k_proj = nn.Linear(c.d_model, c.n_kv_heads * c.d_head, bias=c.qkv_bias)
        self.v_proj = nn.Linear(c.d_model, c.n_kv_heads * c.d_head, bias=c.qkv_bias)
        self.hook_q = Tap(Q, "signed", "queries as projected")
        self.hook_k = Tap(K, "signed", "keys as projected")
        self.hook_v = Tap(K, "signed", "values as projected")
        axes = QK_NORM_AXES[c.qk_norm_over]
        self.q_norm = c.q_norm.build(Q, axes) if c.q_norm else nn.Identity()
        self.k_norm = c.k_norm.build(K, axes) if c.k_norm else nn.Identity()
        self.rope = c.rope.build() if c.rope else NoRotation()
        self.hook_rot_q = Tap(Q, "signed", "queries after the rotation") if c.rope else Absent(NoRotation.reason)
        self.hook_rot_k = Tap(K, "signed", "keys after the rotation") if c.rope else Absent(NoRotation.reason)
        self.temperature = c.temperature.build() if c.temperature else ConstantTemperature()
        self.hook_cache_k = Tap(CACHED, "signed", "every key attended to, as multiplied with q: cached, then new")
        self.hook_cache_v = Tap(CACHED, "signed", "every value attended to: cached, then new")
        self.add_scores(scale=c.logit_scale, mask=c.mask, n_heads=c.n_heads, softcap=c.softcap, sink=c.sink)
        self.o_proj = nn.Linear(c.n_heads * c.d_head, c.d_model, bias=c.o_bias)
        self.hook_module_out = Absent("there is no norm after this attention: hook_attn_out is its output")

    def forward(self, x: Tensor, place: Place | None = None) -> Tensor:
        place = place or Place.of(x)
        d_head = self.config.d_head
        q = self.hook_q(self.q_proj(x).unflatten(-1, (-1, d_head)))
        k = self.hook_k(self.k_proj(x).unflatten(-1, (-1, d_head)))
        v = self.hook_v(self.v_proj(x).unflatten(-1, (-1, d_head)))
        q, k = self.positioned(q, k, place)
        keys, values = place.extend(self, k, v)
        z = self.mix(q, self.hook_cache_k(keys), self.hook_cache_v(values), place)
        return self.hook_module_out(self.o_proj(z.flatten(-2)))

    @property
    def before_rotation(self) -> str:
        """The tap that holds what the rotation reads."""
        return "hook_q" if self.config.q_norm is None else "q_norm.hook_out"

    def rotated(self, q: Tensor) -> Tensor:
        """The coordinates of q [..., d_head] that rotate."""
        return q[..., : self.rope.config.d]

    def positioned(self, q: Tensor, k: Tensor, place: Place) -> tuple[Tensor, Tensor]:
        """Normalise, then rotate. q [batch, pos, head, d_head], k [batch, pos, kv_head, d_head]."""
        turn = self.rope(place.positions, place.length)
        q = self.hook_rot_q(self.rope.rotate(self.q_norm(q), turn))
        k = self.hook_rot_k(self.rope.rotate(self.k_norm(k), turn))
        return self.temperature(q, place.positions), k


class RotateThenNorm(Attention):
    """QK-norm after the rotation (Llama 4)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Attention.Config):
        def build(self) -> "RotateThenNorm":
            return RotateThenNorm(self)

    before_rotation = "hook_q"

    def positioned(self, q: Tensor, k: Tensor, place: Place) -> tuple[Tensor, Tensor]:
        turn = self.rope(place.positions, place.length)
        q = self.q_norm(self.hook_rot_q(self.rope.rotate(q, turn)))
        k = self.k_norm(self.hook_rot_k(self.rope.rotate(k, turn)))
        return self.temperature(q, place.positions), k


ATTENTIONS = {"norm-then-rotate": Attention, "rotate-then-norm": RotateThenNorm}
