"""Mistakes in the older designs: the Transformer of 2017, GPT-2, GPT-J, PaLM."""

from dataclasses import replace

import torch
from torch import Tensor

from model.block import Parallel, PostNorm, PreNorm
from model.embedding import Sinusoidal
from model.lm import Decoder
from model.mistakes.mistake import Misread, Mistake, Read, attention, blocks, read_as, turned_into, zeros
from model.mistakes.parts import Halves, WholeHeadExponent
from model.mlp import MLP


def _qkv_by_head(read: Read, name: str, config: Decoder.Config) -> Tensor:
    """Rows of one of q, k, v out of the fused matrix, cut as if every head kept its q, k and v together."""
    order, (_, block, _, projection, leaf) = ("q_proj", "k_proj", "v_proj"), name.split(".")
    fused = torch.cat([read(f"blocks.{block}.attn.{n}.{leaf}") for n in order])
    by_head = fused.unflatten(0, (config.blocks[int(block)].attn.n_heads, 3, -1))
    return by_head[:, order.index(projection)].flatten(0, 1)


def _norm_last(block):
    return turned_into(block, PostNorm.Config) if type(block) is PreNorm.Config else block


def _norm_first(block):
    return turned_into(block, PreNorm.Config) if type(block) is PostNorm.Config else block


def _in_sequence(block):
    if type(block) is not Parallel.Config:
        return block
    return PreNorm.Config(ln1=block.ln1, attn=block.attn, ln2=block.ln1, mlp=block.mlp)


def _gelu(block):
    other = {"gelu_tanh": "gelu", "gelu": "gelu_tanh"}
    plain = isinstance(block.mlp, MLP.Config) and block.mlp.activation in other
    return replace(block, mlp=replace(block.mlp, activation=other[block.mlp.activation])) if plain else block


def _halves(config):
    alternating = type(config.positions) is Sinusoidal.Config
    return replace(config, positions=turned_into(config.positions, Halves.Config)) if alternating else config


def _wide_exponent(a):
    partial = a.rope is not None and a.rope.d < a.d_head
    return replace(a, rope=turned_into(a.rope, WholeHeadExponent.Config, d_head=a.d_head)) if partial else a


MISTAKES = (
    Mistake(
        name="c_proj not turned",
        what="The square output matrix of attention is stored input first, loads without a word, and is used as it lies.",
        first_tap="blocks.{i}.hook_attn_out",
        families=("gpt2",),
        misread=Misread("blocks.*.attn.o_proj.weight", lambda read, name, config: read(name).T),
    ),
    Mistake(
        name="c_attn cut by heads",
        what="The fused q, k, v matrix is three blocks; it is cut as if each head kept its own three together (GPT-NeoX).",
        first_tap="blocks.{i}.attn.hook_q",
        families=("gpt2",),
        misread=Misread("blocks.*.attn.[qkv]_proj.*", _qkv_by_head),
    ),
    Mistake(
        name="positions one late",
        what="The first token gets the learned position 1 instead of 0.",
        first_tap="positions.hook_out",
        families=("gpt2",),
        misread=Misread("positions.weight", lambda read, name, config: read(name).roll(-1, dims=0)),
    ),
    Mistake(
        name="the other GELU of an MLP",
        what="GELU with the error function where the model was trained with the tanh form, or the reverse.",
        first_tap="blocks.{i}.mlp.hook_post",
        families=("gpt2", "gptj"),
        config=blocks(_gelu),
    ),
    Mistake(
        name="norm after the add",
        what="Each sublayer reads the stream as it is, and the sum is normalised: the order of 2017.",
        first_tap="blocks.{i}.attn.hook_q",
        families=("gpt2", "llama"),
        config=blocks(_norm_last),
    ),
    Mistake(
        name="norm before the sublayer",
        what="Each sublayer reads a normalised stream, and the sum is not: the order of GPT-2.",
        first_tap="blocks.{i}.attn.hook_q",
        families=("transformer-2017",),
        config=blocks(_norm_first),
    ),
    Mistake(
        name="sines, then cosines",
        what="The position vector holds all sines and then all cosines instead of alternating.",
        first_tap="positions.hook_out",
        families=("transformer-2017",),
        config=_halves,
    ),
    Mistake(
        name="embeddings not scaled",
        what="The token embeddings are not multiplied by sqrt(d_model).",
        first_tap="hook_embed",
        families=("transformer-2017", "gemma", "gemma2", "gemma3_text"),
        config=lambda config: replace(config, embed_scale=None),
    ),
    Mistake(
        name="one after the other",
        what="The MLP reads the stream after attention has written to it, where the two are parallel.",
        first_tap="blocks.{i}.mlp.hook_pre",
        families=("gptj", "palm"),
        config=blocks(_in_sequence),
        misread=Misread("blocks.*.ln2.*", read_as(lambda name: name.replace("ln2", "ln1"))),
    ),
    Mistake(
        name="the whole head rotated",
        what="All coordinates of a head turn, where only the first rotary_dim do.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gptj",),
        config=attention(lambda a: a if a.rope is None else replace(a, rope=replace(a.rope, d=a.d_head))),
    ),
    Mistake(
        name="frequencies over the whole head",
        what="Only rotary_dim coordinates turn, but the exponent is divided by the width of the head.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gptj",),
        config=attention(_wide_exponent),
    ),
    Mistake(
        name="bias of the unembedding dropped",
        what="The unembedding has a bias, which is not loaded.",
        first_tap="logits",
        families=("gptj",),
        misread=Misread("unembed.bias", zeros),
    ),
    Mistake(
        name="no scale on the logits",
        what="q . k is not divided by the square root of the head's width.",
        first_tap="blocks.{i}.attn.hook_logits",
        families=("gpt2", "palm", "transformer-2017"),
        config=attention(lambda a: replace(a, scale=1.0)),
    ),
)
