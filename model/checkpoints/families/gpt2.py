"""GPT-2: pre-norm LayerNorm, learned positions, biases everywhere, a plain MLP, and a head tied to the embedding.

Its files keep each matrix input first (Conv1D) and q, k and v in one: c_attn [d_model, Q|K|V].
"""

from model.attention import Attention
from model.block import PreNorm
from model.checkpoints.families.common import Family, activation, norm_eps, size, spelled
from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import Part, Turned, table
from model.embedding import LearnedPositions
from model.lm import Decoder
from model.mlp import MLP
from model.norms import LayerNorm

# what transformers calls these in other families, and accepts here
WIDTH, CONTEXT = ("n_embd", "hidden_size"), ("n_positions", "max_position_embeddings")
HEADS, LAYERS = ("n_head", "num_attention_heads"), ("n_layer", "num_hidden_layers")


def gpt2(fields: Fields) -> Decoder.Config:
    d_model, n_heads, d_head = width_and_heads(fields)
    layers, context = size(fields, spelled(fields, *LAYERS)), context_of(fields)
    scale = None if fields.flag("scale_attn_weights", True) else 1.0
    deeper_is_flatter = fields.flag("scale_attn_by_inverse_layer_idx")
    if fields.flag("reorder_and_upcast_attn"):
        fields.note("reorder_and_upcast_attn is not read: it changes the rounding of attention in 16 bits, nothing else")
    norm = LayerNorm.Config(d=d_model, eps=norm_eps(fields, "layer_norm_epsilon", 1e-5))
    mlp = plain_mlp(fields, d_model)
    blocks = tuple(
        PreNorm.Config(
            ln1=norm,
            attn=Attention.Config(
                d_model=d_model,
                n_heads=n_heads,
                n_kv_heads=n_heads,
                d_head=d_head,
                rope=None,
                scale=(scale or d_head**-0.5) / (i + 1) if deeper_is_flatter else scale,
                qkv_bias=True,
                o_bias=True,
            ),
            ln2=norm,
            mlp=mlp,
        )
        for i in range(layers)
    )
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"),
        d_model=d_model,
        blocks=blocks,
        ln_final=norm,
        tied=fields.flag("tie_word_embeddings", True),
        context=context,
        positions=LearnedPositions.Config(context=context, d_model=d_model),
    )


def width_and_heads(fields: Fields) -> tuple[int, int, int]:
    """(d_model, heads, width of a head); the heads share the width evenly, there is no field for it."""
    wide, many = spelled(fields, *WIDTH), spelled(fields, *HEADS)
    d_model, n_heads = size(fields, wide), size(fields, many)
    if d_model % n_heads:
        raise fields.fail(f"{wide} {d_model} is not a multiple of {many} {n_heads}")
    return d_model, n_heads, d_model // n_heads


def context_of(fields: Fields) -> int:
    """n_positions; n_ctx is its old twin."""
    name = spelled(fields, *CONTEXT)
    context = size(fields, name)
    if (old := fields.raw("n_ctx")) is not None and old != context:
        raise fields.fail(f"{name} is {context} but n_ctx is {shown(old)}; they mean the same: keep one")
    return context


def plain_mlp(fields: Fields, d_model: int) -> MLP.Config:
    """n_inner null or absent means 4 * d_model."""
    inner = size(fields, "n_inner") if fields.raw("n_inner") is not None else 4 * d_model
    kind = activation(fields, "activation_function", "gelu_new")
    return MLP.Config(d_model=d_model, d_mlp=inner, activation=kind, bias=True)


PREFIXES = {"transformer.": "", "": ""}  # OpenAI's own files have none
MASK_BUFFERS = (r"h\.\d+\.attn\.(bias|masked_bias)",)  # a causal mask, not a bias

NAMES = table(
    {
        "embed.weight": "wte.weight",
        "positions.weight": "wpe.weight",
        "blocks.{i}.ln1.{leaf}": "h.{i}.ln_1.{leaf}",
        "blocks.{i}.attn.q_proj.weight": Part(Turned("h.{i}.attn.c_attn.weight"), 0, 3),
        "blocks.{i}.attn.k_proj.weight": Part(Turned("h.{i}.attn.c_attn.weight"), 1, 3),
        "blocks.{i}.attn.v_proj.weight": Part(Turned("h.{i}.attn.c_attn.weight"), 2, 3),
        "blocks.{i}.attn.q_proj.bias": Part("h.{i}.attn.c_attn.bias", 0, 3),
        "blocks.{i}.attn.k_proj.bias": Part("h.{i}.attn.c_attn.bias", 1, 3),
        "blocks.{i}.attn.v_proj.bias": Part("h.{i}.attn.c_attn.bias", 2, 3),
        "blocks.{i}.attn.o_proj.weight": Turned("h.{i}.attn.c_proj.weight"),
        "blocks.{i}.attn.o_proj.bias": "h.{i}.attn.c_proj.bias",
        "blocks.{i}.ln2.{leaf}": "h.{i}.ln_2.{leaf}",
        "blocks.{i}.mlp.up_proj.weight": Turned("h.{i}.mlp.c_fc.weight"),
        "blocks.{i}.mlp.up_proj.bias": "h.{i}.mlp.c_fc.bias",
        "blocks.{i}.mlp.down_proj.weight": Turned("h.{i}.mlp.c_proj.weight"),
        "blocks.{i}.mlp.down_proj.bias": "h.{i}.mlp.c_proj.bias",
        "ln_final.{leaf}": "ln_f.{leaf}",
    }
)

FAMILIES = {"gpt2": Family(gpt2, NAMES, PREFIXES, MASK_BUFFERS)}
