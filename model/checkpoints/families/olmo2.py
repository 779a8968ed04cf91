"""OLMo 2: a norm on the output of each sublayer and none on its input; QK-norm over the whole projection."""

from model.attention import Attention
from model.block import OutputNorm
from model.checkpoints.families.common import Family, activation, full_attention_only, head_dim, heads, norm_eps, size
from model.checkpoints.fields import Fields
from model.checkpoints.recipes import table
from model.checkpoints.rope import read_rope
from model.lm import Decoder
from model.mlp import GLU
from model.norms import FullPrecisionRMSNorm
from model.positions import FullPrecisionRope


def olmo2(fields: Fields) -> Decoder.Config:
    d_model, context = size(fields, "hidden_size"), size(fields, "max_position_embeddings", 2048)
    n_heads, kv_heads = heads(fields)
    d_head = head_dim(fields, d_model, n_heads)
    layers, eps = size(fields, "num_hidden_layers"), norm_eps(fields, default=1e-5)
    full_attention_only(fields, layers, "olmo2")
    fields.only("mlp_bias", (False,), "olmo2 has no MLP biases")
    bias = fields.flag("attention_bias")
    norm = FullPrecisionRMSNorm.Config(d=d_model, eps=eps)
    block = OutputNorm.Config(
        attn=Attention.Config(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=kv_heads,
            d_head=d_head,
            rope=read_rope(fields, d_head, context, FullPrecisionRope.Config),
            q_norm=FullPrecisionRMSNorm.Config(d=n_heads * d_head, eps=eps),
            k_norm=FullPrecisionRMSNorm.Config(d=kv_heads * d_head, eps=eps),
            qk_norm_over="projection",
            qkv_bias=bias,
            o_bias=bias,
        ),
        ln1_post=norm,
        mlp=GLU.Config(
            d_model=d_model, d_mlp=size(fields, "intermediate_size"), activation=activation(fields, "hidden_act", "silu")
        ),
        ln2_post=norm,
    )
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"),
        d_model=d_model,
        blocks=(block,) * layers,
        ln_final=norm,
        tied=fields.flag("tie_word_embeddings"),
        context=context,
    )


NAMES = table(
    {
        "embed.weight": "embed_tokens.weight",
        "blocks.{i}.attn.q_proj.{leaf}": "layers.{i}.self_attn.q_proj.{leaf}",
        "blocks.{i}.attn.k_proj.{leaf}": "layers.{i}.self_attn.k_proj.{leaf}",
        "blocks.{i}.attn.v_proj.{leaf}": "layers.{i}.self_attn.v_proj.{leaf}",
        "blocks.{i}.attn.o_proj.{leaf}": "layers.{i}.self_attn.o_proj.{leaf}",
        "blocks.{i}.attn.q_norm.weight": "layers.{i}.self_attn.q_norm.weight",
        "blocks.{i}.attn.k_norm.weight": "layers.{i}.self_attn.k_norm.weight",
        "blocks.{i}.ln1_post.weight": "layers.{i}.post_attention_layernorm.weight",  # on the output, unlike Llama's
        "blocks.{i}.mlp.gate_proj.weight": "layers.{i}.mlp.gate_proj.weight",
        "blocks.{i}.mlp.up_proj.weight": "layers.{i}.mlp.up_proj.weight",
        "blocks.{i}.mlp.down_proj.weight": "layers.{i}.mlp.down_proj.weight",
        "blocks.{i}.ln2_post.weight": "layers.{i}.post_feedforward_layernorm.weight",
        "ln_final.weight": "norm.weight",
    }
)

FAMILIES = {"olmo2": Family(olmo2, NAMES)}
