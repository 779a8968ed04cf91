"""GPT-J: attention and MLP in parallel on one LayerNorm; the first coordinates of a head rotate, as adjacent pairs.

Attention has no biases; the MLP and the unembedding have.
"""

from model.attention import Attention
from model.block import Parallel
from model.checkpoints.families.common import Family, norm_eps, size, spelled
from model.checkpoints.families.gpt2 import LAYERS, MASK_BUFFERS, PREFIXES, context_of, plain_mlp, width_and_heads
from model.checkpoints.fields import Fields
from model.checkpoints.recipes import table
from model.checkpoints.rope import DEFAULT_BASE
from model.lm import Decoder
from model.norms import LayerNorm
from model.positions import Rope


def gptj(fields: Fields) -> Decoder.Config:
    d_model, n_heads, d_head = width_and_heads(fields)
    fields.only("rotary", (True,), "a gptj block rotates")
    fields.only("scale_attn_weights", (True,), "a gptj block always divides its logits by the root of the head's width")
    rotary = fields.whole("rotary_dim", 1 << 14, None if "rotary_dim" in fields.values else 64, "what gptj defaults to")
    if rotary > d_head or rotary % 2:
        raise fields.fail(f"rotary_dim is {rotary}; expected an even number up to {d_head}, the width of a head")
    norm = LayerNorm.Config(d=d_model, eps=norm_eps(fields, "layer_norm_epsilon", 1e-5))
    block = Parallel.Config(
        ln1=norm,
        attn=Attention.Config(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=d_head,
            rope=Rope.Config(d=rotary, base=DEFAULT_BASE, pairing="interleaved"),
        ),
        mlp=plain_mlp(fields, d_model),
    )
    return Decoder.Config(
        d_vocab=size(fields, "vocab_size"),
        d_model=d_model,
        blocks=(block,) * size(fields, spelled(fields, *LAYERS)),
        ln_final=norm,
        tied=fields.flag("tie_word_embeddings"),
        context=context_of(fields),
        unembed_bias=True,
    )


NAMES = table(
    {
        "embed.weight": "wte.weight",
        "blocks.{i}.ln1.{leaf}": "h.{i}.ln_1.{leaf}",
        "blocks.{i}.attn.q_proj.weight": "h.{i}.attn.q_proj.weight",
        "blocks.{i}.attn.k_proj.weight": "h.{i}.attn.k_proj.weight",
        "blocks.{i}.attn.v_proj.weight": "h.{i}.attn.v_proj.weight",
        "blocks.{i}.attn.o_proj.weight": "h.{i}.attn.out_proj.weight",
        "blocks.{i}.mlp.up_proj.{leaf}": "h.{i}.mlp.fc_in.{leaf}",
        "blocks.{i}.mlp.down_proj.{leaf}": "h.{i}.mlp.fc_out.{leaf}",
        "ln_final.{leaf}": "ln_f.{leaf}",
    }
)

FAMILIES = {"gptj": Family(gptj, NAMES, PREFIXES, MASK_BUFFERS)}
