"""Mistakes in the block of Llama and its relatives: norms, heads, rotation, masks, gate, biases, QK-norm."""

from dataclasses import replace

from model.attention import Attention, RotateThenNorm
from model.block import OutputNorm, PreNorm
from model.masks import Causal, Sliding
from model.mistakes.mistake import (
    Misread,
    Mistake,
    attention,
    blocks,
    masks,
    no_gain,
    norms,
    read_as,
    ropes,
    traded,
    turned_into,
    zeros,
)
from model.mistakes.parts import OneAhead, PerHead, TiledHeads
from model.mlp import GLU
from model.norms import FullPrecisionRMSNorm

EXPERTS, DEEPSEEK = ("mixtral", "qwen3_moe", "llama4_text"), ("deepseek_v2", "deepseek_v3")
PRE_NORM = ("llama", "mistral", "qwen2", "qwen3", "gemma")
GROUPED = (*PRE_NORM, "olmo2", "gemma2", "gemma3_text")
WINDOWED = ("mistral", "qwen2", "gemma2", "gemma3_text", "gpt_oss")


def _tiled(a: Attention.Config) -> Attention.Config:
    plain = type(a) is Attention.Config and 1 < a.n_kv_heads < a.n_heads
    return turned_into(a, TiledHeads.Config) if plain else a


def _window(change: int):
    return masks(lambda m: Sliding(window=m.window + change) if isinstance(m, Sliding) and m.window + change else m)


def _other_eps(norm):
    return replace(norm, eps=1e-5 if norm.eps == 1e-6 else 1e-6)


def _normed_late(a: Attention.Config) -> Attention.Config:
    per_head = type(a) is Attention.Config and a.q_norm is not None and a.rope is not None and a.qk_norm_over == "head"
    return turned_into(a, RotateThenNorm.Config) if per_head else a


def _per_head(a: Attention.Config) -> Attention.Config:
    if a.qk_norm_over != "projection" or not isinstance(a.q_norm, FullPrecisionRMSNorm.Config):
        return a
    return replace(a, q_norm=turned_into(a.q_norm, PerHead.Config), k_norm=turned_into(a.k_norm, PerHead.Config))


def _norm_first(block):
    if not isinstance(block, OutputNorm.Config):
        return block
    return PreNorm.Config(ln1=block.ln1_post, attn=block.attn, ln2=block.ln2_post, mlp=block.mlp)


def _bias(leaf: str, first_tap: str, families: tuple[str, ...]) -> Mistake:
    return Mistake(
        name=f"{leaf} bias dropped",
        what=f"The bias of {leaf}_proj is not loaded and stays zero.",
        first_tap=first_tap,
        families=families,
        misread=Misread(f"*.attn.{leaf}_proj.bias", zeros),
    )


MISTAKES = (
    Mistake(
        name="KV heads tiled",
        what="Query heads read KV heads 0, 1, 2, 0, 1, 2, where each KV head belongs to neighbours: 0, 0, 1, 1, 2, 2.",
        first_tap="blocks.{i}.attn.hook_logits",
        families=(*GROUPED, *EXPERTS),
        config=attention(_tiled),
    ),
    Mistake(
        name="norms of a block swapped",
        what="The norm before the MLP stands before attention, and the other way round.",
        first_tap="blocks.{i}.ln1.hook_out",
        families=(*PRE_NORM, *EXPERTS, *DEEPSEEK, "gpt2", "gpt_oss"),
        misread=Misread("blocks.*.ln[12].*", traded("ln1", "ln2")),
    ),
    Mistake(
        name="eps of another family",
        what="The norms add 1e-6 where the model was trained with 1e-5, or the reverse.",
        first_tap="blocks.{i}.*hook_scale",
        families=(*GROUPED, *EXPERTS, "deepseek_v2", "gpt2", "gptj", "gpt_oss"),
        config=norms(_other_eps),
    ),
    Mistake(
        name="rotary base of another file",
        what="The rotation uses the base 20,000 whatever the file says.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=(*GROUPED, *EXPERTS, "gptj", "gpt_oss"),
        config=ropes(lambda rope: replace(rope, base=20_000.0)),
    ),
    Mistake(
        name="pairs of the other layout",
        what="Rotated coordinates are paired as neighbours where the file keeps halves, or the reverse.",
        first_tap="blocks.{i}.attn.hook_rot_q",
        families=(*GROUPED, *EXPERTS, "gptj", "gpt_oss"),
        config=ropes(lambda rope: replace(rope, pairing="half" if rope.pairing == "interleaved" else "interleaved")),
    ),
    Mistake(
        name="scaling of the rotation dropped",
        what="The file's rotary scaling (linear, llama3, YaRN, ...) is read as none.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gemma3_text", "gpt_oss"),
        config=ropes(lambda rope: replace(rope, scaling=None)),
    ),
    Mistake(
        name="the next token visible",
        what="The causal mask is one step off, so that every token sees the one it is to predict.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("llama", "qwen2", "qwen3", "gemma", "olmo2", "gemma2", "gemma3_text", "gpt2", "gptj", "gpt_oss", *EXPERTS),
        config=masks(lambda mask: OneAhead() if type(mask) is Causal else mask),
    ),
    Mistake(
        name="window one too wide",
        what="A query sees itself and W earlier tokens, where W counts the query itself.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=WINDOWED,
        config=_window(+1),
    ),
    Mistake(
        name="window one too narrow",
        what="A query sees W - 2 earlier tokens.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=WINDOWED,
        config=_window(-1),
    ),
    Mistake(
        name="no window",
        what="Sliding layers see everything.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=WINDOWED,
        config=masks(lambda mask: Causal() if isinstance(mask, Sliding) else mask),
    ),
    Mistake(
        name="gate and up swapped",
        what="The activation is applied to the linear branch.",
        first_tap="blocks.{i}.mlp.hook_pre",
        families=(*GROUPED, "palm"),
        misread=Misread("blocks.*.mlp.*_proj.*", traded("gate_proj", "up_proj")),
    ),
    Mistake(
        name="gate without its activation",
        what="The gate multiplies as it is, without SiLU or GELU.",
        first_tap="blocks.{i}.mlp.hook_act",
        families=(*GROUPED, "palm"),
        config=blocks(lambda b: replace(b, mlp=replace(b.mlp, activation="identity")) if isinstance(b.mlp, GLU.Config) else b),
    ),
    Mistake(
        name="final norm without its gain",
        what="The norm before the unembedding divides, and forgets its learned gain.",
        first_tap="ln_final.hook_out",
        families=(*GROUPED, *EXPERTS, *DEEPSEEK, "gpt2", "gptj", "gpt_oss"),
        misread=Misread("ln_final.*", no_gain),
    ),
    _bias("q", "blocks.{i}.attn.hook_q", ("qwen2", "gpt2", "gpt_oss")),
    _bias("k", "blocks.{i}.attn.hook_k", ("qwen2", "gpt_oss")),  # unrotated, it moves whole rows of logits alone
    _bias("v", "blocks.{i}.attn.hook_v", ("qwen2", "gpt2", "gpt_oss")),
    _bias("o", "blocks.{i}.*hook_*_out", ("gpt2", "gpt_oss")),
    Mistake(
        name="QK-norm left out",
        what="Queries and keys are rotated as projected.",
        first_tap="blocks.{i}.attn.hook_rot_q",
        families=("qwen3", "qwen3_moe", "olmo2", "gemma3_text"),
        config=attention(lambda a: replace(a, q_norm=None, k_norm=None)),
    ),
    Mistake(
        name="QK-norm after the rotation",
        what="Queries and keys are rotated first and normalised then: the gains meet other coordinates.",
        first_tap="blocks.{i}.attn.hook_rot_q",
        families=("qwen3", "qwen3_moe", "gemma3_text"),
        config=attention(_normed_late),
    ),
    Mistake(
        name="gains of q and k swapped",
        what="The gain of the query norm is used on the keys, and the other way round.",
        first_tap="blocks.{i}.attn.q_norm.hook_out",
        families=("qwen3", "qwen3_moe", "gemma3_text"),
        misread=Misread("*.attn.[qk]_norm.*", traded("q_norm", "k_norm")),
    ),
    Mistake(
        name="QK-norm per head",
        what="Each head is divided by its own root mean square, where the whole projection has one.",
        first_tap="blocks.{i}.attn.q_norm.hook_scale",
        families=("olmo2",),
        config=attention(_per_head),
    ),
    Mistake(
        name="norm on the input",
        what="The norms of the sublayers' outputs are put before the sublayers, as in Llama.",
        first_tap="blocks.{i}.attn.hook_q",
        families=("olmo2",),
        config=blocks(_norm_first),
        misread=Misread("blocks.*.ln[12].*", read_as(lambda n: n.replace("ln1.", "ln1_post.").replace("ln2.", "ln2_post."))),
    ),
    Mistake(
        name="norms of the outputs swapped",
        what="The norm of the MLP's output stands on attention's, and the other way round.",
        first_tap="blocks.{i}.ln1_post.hook_out",
        families=("olmo2", "gemma2", "gemma3_text"),
        misread=Misread("blocks.*.ln[12]_post.*", traded("ln1", "ln2")),
    ),
)
