"""Gemma 1, 2 and 3: norms whose gain is 1 + w, GeGLU with the tanh form of GELU, embeddings times sqrt(d_model).

Gemma 2 puts a norm before and after each sublayer, caps its logits, and alternates local and global layers. Gemma 3 has
QK-norm in place of the cap on attention, five local layers to one global, and a rotation for each of the two kinds.
"""

from dataclasses import dataclass

from model.attention import Attention
from model.block import PreNorm, Sandwich
from model.checkpoints.families.common import (
    Family,
    activation,
    full_attention_only,
    head_dim,
    heads,
    layer_types,
    norm_eps,
    size,
    spelled,
    window,
)
from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import table
from model.checkpoints.rope import read_rope, read_two_ropes
from model.lm import Decoder
from model.masks import Causal, Mask, Sliding
from model.mlp import GLU
from model.norms import OffsetRMSNorm

LOCAL, GLOBAL = "sliding_attention", "full_attention"


@dataclass(frozen=True)
class Sizes:
    """What the three share."""

    layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    eps: float
    context: int

    @classmethod
    def of(cls, fields: Fields, absent_heads: tuple[int, int], context: int) -> "Sizes":
        d_model, (n, kv) = size(fields, "hidden_size"), heads(fields, absent_heads)
        return cls(
            size(fields, "num_hidden_layers"), d_model, n, kv, head_dim(fields, d_model, n, 256), norm_eps(fields),
            size(fields, "max_position_embeddings", context),
        )  # fmt: skip

    def norm(self) -> OffsetRMSNorm.Config:
        return OffsetRMSNorm.Config(d=self.d_model, eps=self.eps)

    def attention(self, fields: Fields, **parts) -> Attention.Config:
        bias = fields.flag("attention_bias")
        return Attention.Config(
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            d_head=self.d_head,
            qkv_bias=bias,
            o_bias=bias,
            **parts,
        )

    def sandwich(self, attn: Attention.Config, mlp: GLU.Config) -> Sandwich.Config:
        norm = self.norm()
        return Sandwich.Config(ln1=norm, attn=attn, ln1_post=norm, ln2=norm, mlp=mlp, ln2_post=norm)

    def decoder(self, fields: Fields, blocks: tuple, vocabulary: int, softcap: float | None = None) -> Decoder.Config:
        fields.only("use_bidirectional_attention", (False,), "only causal attention is known here")
        return Decoder.Config(
            d_vocab=size(fields, "vocab_size", vocabulary),
            d_model=self.d_model,
            blocks=blocks,
            ln_final=self.norm(),
            tied=fields.flag("tie_word_embeddings", True),
            context=self.context,
            embed_scale=self.d_model**0.5,
            softcap=softcap,
        )


def gemma(fields: Fields) -> Decoder.Config:
    sizes = Sizes.of(fields, (16, 16), 8192)
    full_attention_only(fields, sizes.layers, "gemma")
    attn = sizes.attention(fields, rope=read_rope(fields, sizes.d_head, sizes.context))
    block = PreNorm.Config(ln1=sizes.norm(), attn=attn, ln2=sizes.norm(), mlp=_geglu(fields, sizes))
    return sizes.decoder(fields, (block,) * sizes.layers, 256_000)


def gemma2(fields: Fields) -> Decoder.Config:
    """Layers 0, 2, 4, ... are local unless layer_types says otherwise."""
    sizes = Sizes.of(fields, (8, 4), 8192)
    kinds = layer_types(fields, sizes.layers, (LOCAL, GLOBAL)) or [GLOBAL if i % 2 else LOCAL for i in range(sizes.layers)]
    rope, masks, mlp = read_rope(fields, sizes.d_head, sizes.context), _masks(fields), _geglu(fields, sizes)
    scale, cap = _scale(fields), _softcap(fields, "attn_logit_softcapping", 50.0)
    blocks = {
        kind: sizes.sandwich(sizes.attention(fields, rope=rope, mask=mask, scale=scale, softcap=cap), mlp)
        for kind, mask in masks.items()
    }
    final = _softcap(fields, "final_logit_softcapping", 30.0)
    return sizes.decoder(fields, tuple(blocks[kind] for kind in kinds), 256_000, final)


def gemma3(fields: Fields) -> Decoder.Config:
    """Every sixth layer is global unless layer_types or a pattern says otherwise."""
    sizes = Sizes.of(fields, (8, 4), 131_072)
    kinds = _gemma3_kinds(fields, sizes.layers)
    ropes, masks = read_two_ropes(fields, sizes.d_head, sizes.context, full=1e6, sliding=1e4), _masks(fields)
    fields.only("attn_logit_softcapping", (), "gemma3 has QK-norm in its place, and no soft-cap on attention")
    head_norm, scale, mlp = OffsetRMSNorm.Config(d=sizes.d_head, eps=sizes.eps), _scale(fields), _geglu(fields, sizes)
    blocks = {
        kind: sizes.sandwich(
            sizes.attention(fields, rope=ropes[kind], mask=mask, q_norm=head_norm, k_norm=head_norm, scale=scale), mlp
        )
        for kind, mask in masks.items()
    }
    final = _softcap(fields, "final_logit_softcapping", None)
    return sizes.decoder(fields, tuple(blocks[kind] for kind in kinds), 262_208, final)


def _masks(fields: Fields) -> dict[str, Mask]:
    """Layer type -> its mask; 4096 keys where no window is given."""
    if "sliding_window" not in fields.values:
        fields.default("sliding_window", 4096, "what this model_type defaults to")
    width = window(fields) if "sliding_window" in fields.values else 4096
    return {LOCAL: Causal() if width is None else Sliding(window=width), GLOBAL: Causal()}


def _gemma3_kinds(fields: Fields, layers: int) -> list[str]:
    name = spelled(fields, "sliding_window_pattern", "_sliding_window_pattern")
    explicit = layer_types(fields, layers, (LOCAL, GLOBAL))
    if explicit is not None and fields.raw(name) is None:
        return explicit
    every = fields.whole(name, 1 << 10, 6, "what gemma3 defaults to")
    kinds = [LOCAL if (i + 1) % every else GLOBAL for i in range(layers)]
    if explicit is not None and kinds != explicit:
        fields.note(f"layer_types does not follow {name} {every}: layer_types is used")
    return explicit or kinds


def _geglu(fields: Fields, sizes: Sizes) -> GLU.Config:
    return GLU.Config(d_model=sizes.d_model, d_mlp=size(fields, "intermediate_size"), activation=_gelu(fields))


def _gelu(fields: Fields) -> str:
    """hidden_activation decides. Where it is null, files that say hidden_act "gelu" mean the tanh form all the same."""
    old = fields.raw("hidden_act")
    if old not in (None, "gelu", "gelu_pytorch_tanh"):
        raise fields.fail(f"hidden_act is {shown(old)}; expected null or a GELU: a Gemma's gate is the tanh form of GELU")
    if fields.raw("hidden_activation") is not None:
        return activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    if old == "gelu":
        fields.note("hidden_act is 'gelu' and hidden_activation is not given: the tanh form is used, which Gemma means by it")
    return "gelu_tanh"


def _scale(fields: Fields) -> float:
    """Attention divides by the root of its own field, not of the width of a head (Gemma 2 27B: 144, heads of 128)."""
    value = fields.number("query_pre_attn_scalar", 256, "what this model_type defaults to")
    if not 0 < value <= 1e9:
        raise fields.fail(f"query_pre_attn_scalar is {value:g}; expected a number above 0")
    return value**-0.5


def _softcap(fields: Fields, name: str, absent: float | None) -> float | None:
    """null is no cap; a missing field is the family's own."""
    if name not in fields.values:
        if absent is not None:
            fields.default(name, absent, "what this model_type defaults to")
        return absent
    if fields.raw(name) is None:
        return None
    cap = fields.number(name)
    if not cap > 0:
        raise fields.fail(f"{name} is {cap:g}; expected a number above 0, or null for no soft-cap")
    return cap


ATTENTION_AND_MLP = {
    "embed.weight": "embed_tokens.weight",
    "blocks.{i}.ln1.offset": "layers.{i}.input_layernorm.weight",
    "blocks.{i}.attn.q_proj.{leaf}": "layers.{i}.self_attn.q_proj.{leaf}",
    "blocks.{i}.attn.k_proj.{leaf}": "layers.{i}.self_attn.k_proj.{leaf}",
    "blocks.{i}.attn.v_proj.{leaf}": "layers.{i}.self_attn.v_proj.{leaf}",
    "blocks.{i}.attn.o_proj.{leaf}": "layers.{i}.self_attn.o_proj.{leaf}",
    "blocks.{i}.mlp.gate_proj.weight": "layers.{i}.mlp.gate_proj.weight",
    "blocks.{i}.mlp.up_proj.weight": "layers.{i}.mlp.up_proj.weight",
    "blocks.{i}.mlp.down_proj.weight": "layers.{i}.mlp.down_proj.weight",
    "ln_final.offset": "norm.weight",
}
FIRST = table(ATTENTION_AND_MLP | {"blocks.{i}.ln2.offset": "layers.{i}.post_attention_layernorm.weight"})
SANDWICHED = table(
    ATTENTION_AND_MLP
    | {
        "blocks.{i}.attn.q_norm.offset": "layers.{i}.self_attn.q_norm.weight",
        "blocks.{i}.attn.k_norm.offset": "layers.{i}.self_attn.k_norm.weight",
        "blocks.{i}.ln1_post.offset": "layers.{i}.post_attention_layernorm.weight",  # after attention, unlike Llama's
        "blocks.{i}.ln2.offset": "layers.{i}.pre_feedforward_layernorm.weight",
        "blocks.{i}.ln2_post.offset": "layers.{i}.post_feedforward_layernorm.weight",
    }
)

FAMILIES = {"gemma": Family(gemma, FIRST), "gemma2": Family(gemma2, SANDWICHED), "gemma3_text": Family(gemma3, SANDWICHED)}
