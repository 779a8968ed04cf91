"""How GGUF names the tensors of each architecture, and what its conversion did to them.

The names are those of gguf.MODEL_TENSORS; what is undone (q and k rows, the 1 of Gemma's norms) is what llama.cpp's
convert_hf_to_gguf.py does to the Hugging Face tensors.
"""

from collections.abc import Callable, Mapping

from model.checkpoints.families.common import Family
from model.checkpoints.gguf.recipes import Halves, KeysAndValues, Shifted
from model.checkpoints.recipes import Either, Part, Recipe, table
from model.lm import Decoder

HEAD = "output"
OUTSIDE = {
    "embed.weight": "token_embd.weight",
    "positions.weight": "position_embd.weight",
    "ln_final.{leaf}": "output_norm.{leaf}",
}
NORMS = {"blocks.{i}.ln1.{leaf}": "blk.{i}.attn_norm.{leaf}", "blocks.{i}.ln2.{leaf}": "blk.{i}.ffn_norm.{leaf}"}
ATTENTION = {
    **{f"blocks.{{i}}.attn.{p}_proj.{{leaf}}": f"blk.{{i}}.attn_{p}.{{leaf}}" for p in "qkv"},
    "blocks.{i}.attn.o_proj.{leaf}": "blk.{i}.attn_output.{leaf}",
    "blocks.{i}.attn.q_norm.weight": "blk.{i}.attn_q_norm.weight",
    "blocks.{i}.attn.k_norm.weight": "blk.{i}.attn_k_norm.weight",
    "blocks.{i}.attn.softmax.weight": Either("blk.{i}.attn_sinks.weight", "blk.{i}.attn_sinks"),
}
MLP = {f"blocks.{{i}}.mlp.{p}_proj.{{leaf}}": f"blk.{{i}}.ffn_{p}.{{leaf}}" for p in ("gate", "up", "down")}
EXPERTS = {
    "blocks.{i}.mlp.router.{leaf}": "blk.{i}.ffn_gate_inp.{leaf}",
    "blocks.{i}.mlp.correction": Either("blk.{i}.exp_probs_b.bias", "blk.{i}.exp_probs_b"),
    **{f"blocks.{{i}}.mlp.experts.{p}_proj": f"blk.{{i}}.ffn_{p}_exps.weight" for p in ("gate", "up", "down")},
    **{f"blocks.{{i}}.mlp.experts.{p}_bias": f"blk.{{i}}.ffn_{p}_exps.bias" for p in ("gate", "up", "down")},
    **{f"blocks.{{i}}.mlp.shared.{p}_proj.{{leaf}}": f"blk.{{i}}.ffn_{p}_shexp.{{leaf}}" for p in ("gate", "up", "down")},
}
PLAIN = OUTSIDE | NORMS | ATTENTION | MLP | EXPERTS

Entries = Mapping[str, Recipe | str]


def plain(config: Decoder.Config) -> Entries:
    return PLAIN


def halved(config: Decoder.Config) -> Entries:
    """The llama architecture turns adjacent pairs: rows of q and k were interleaved for it."""
    width = config.blocks[0].attn.d_head
    return PLAIN | {name: Halves(PLAIN[name], width) for name in PLAIN if name.endswith(("q_proj.{leaf}", "k_proj.{leaf}"))}


def gemma(config: Decoder.Config) -> Entries:
    """Four norms in a block from Gemma 2 on, QK-norm in Gemma 3; every gain was stored with its 1."""
    post = {
        "blocks.{i}.ln1_post.offset": "blk.{i}.post_attention_norm.weight",
        "blocks.{i}.ln2_post.offset": "blk.{i}.post_ffw_norm.weight",
    }
    norms = {name.replace("{leaf}", "offset"): tensor.replace("{leaf}", "weight") for name, tensor in NORMS.items()}
    for p in "qk":
        norms[f"blocks.{{i}}.attn.{p}_norm.offset"] = f"blk.{{i}}.attn_{p}_norm.weight"
    norms = norms | post | {"ln_final.offset": "output_norm.weight"}
    return PLAIN | {name: Shifted(tensor) for name, tensor in norms.items()}


def gpt2(config: Decoder.Config) -> Entries:
    """q, k and v in one, output first."""
    fused = {
        f"blocks.{{i}}.attn.{p}_proj.{leaf}": Part(f"blk.{{i}}.attn_qkv.{leaf}", at, 3)
        for at, p in enumerate("qkv")
        for leaf in ("weight", "bias")
    }
    return PLAIN | fused


def olmo2(config: Decoder.Config) -> Entries:
    return PLAIN | {
        "blocks.{i}.ln1_post.weight": "blk.{i}.post_attention_norm.weight",
        "blocks.{i}.ln2_post.weight": "blk.{i}.post_ffw_norm.weight",
    }


def gpt_oss(config: Decoder.Config) -> Entries:
    """Its norm before the experts is named after where it stands; early files called it ffn_norm."""
    return PLAIN | {"blocks.{i}.ln2.weight": Either("blk.{i}.post_attention_norm.weight", "blk.{i}.ffn_norm.weight")}


def deepseek2(config: Decoder.Config) -> Entries:
    """Latent attention; the up-projection of keys and values whole, or, since 2025, as two."""
    attn = config.blocks[0].attn
    halves = KeysAndValues(("blk.{i}.attn_k_b.weight", "blk.{i}.attn_v_b.weight"), attn.n_heads, attn.d_nope)
    return PLAIN | {
        "blocks.{i}.attn.q_down.{leaf}": "blk.{i}.attn_q_a.{leaf}",
        "blocks.{i}.attn.q_norm.weight": "blk.{i}.attn_q_a_norm.weight",
        "blocks.{i}.attn.q_proj.weight": Either("blk.{i}.attn_q_b.weight", "blk.{i}.attn_q.weight"),
        "blocks.{i}.attn.kv_down.{leaf}": "blk.{i}.attn_kv_a_mqa.{leaf}",
        "blocks.{i}.attn.kv_norm.weight": "blk.{i}.attn_kv_a_norm.weight",
        "blocks.{i}.attn.kv_up.weight": Either("blk.{i}.attn_kv_b.weight", halves),
    }


def family(entries: Callable[[Decoder.Config], Entries], config: Decoder.Config, read: Callable) -> Family:
    """The family of a file whose config is known. Tables of frequencies are part of the config, not of the blocks."""
    ignored = (r"rope_freqs\.weight", r"blk\.\d+\.attn_rot_embd\.weight", r"blk\.(?P<beyond>\d+)\..*", r"(v|mm|a)\..*")
    return Family(read, table(entries(config)), {"": ""}, ignored, HEAD)
