"""Mistakes in latent attention (DeepSeek): which coordinates rotate, how, the scale, the latents and their norms."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from model.lm import Decoder
from model.mistakes.mistake import Change, Misread, Mistake, Read, blocks, no_gain
from model.mla import MLA

DEEPSEEK = ("deepseek_v2", "deepseek_v3")


def latent(change: Callable[[MLA.Config], MLA.Config]) -> Change:
    """In every block with latent attention."""
    return blocks(lambda b: replace(b, attn=change(b.attn)) if isinstance(b.attn, MLA.Config) else b)


def _attn(config: Decoder.Config, name: str) -> MLA.Config:
    """The latent attention that a parameter belongs to; KeyError for any other, which the mistake does not fit."""
    attn = config.blocks[int(name.split(".")[1])].attn
    if not isinstance(attn, MLA.Config):
        raise KeyError(name)
    return attn


def _rotary_first(read: Read, name: str, config: Decoder.Config) -> Tensor:
    """Rows of the query matrix, each head's last coordinates before the others."""
    attn = _attn(config, name)
    return read(name).unflatten(0, (attn.n_heads, -1)).roll(attn.rope.d, dims=1).flatten(0, 1)


def _keys_then_values(read: Read, name: str, config: Decoder.Config) -> Tensor:
    """Rows of kv_up cut as if the keys of all heads came before the values of all heads."""
    attn = _attn(config, name)
    keys, values = read(name).split([attn.n_heads * attn.d_nope, attn.n_heads * attn.d_value])
    by_head = [x.unflatten(0, (attn.n_heads, -1)) for x in (keys, values)]
    return torch.cat(by_head, dim=1).flatten(0, 1)


def _eps_of_the_block(config: Decoder.Config) -> Decoder.Config:
    def block(b):
        if not isinstance(b.attn, MLA.Config):
            return b
        norms = {n: replace(norm, eps=b.ln1.eps) for n in ("q_norm", "kv_norm") if (norm := getattr(b.attn, n)) is not None}
        return replace(b, attn=replace(b.attn, **norms))

    return blocks(block)(config)


MISTAKES = (
    Mistake(
        name="latent attention pairs the other layout",
        what="The rotary coordinates are turned as halves where the file keeps neighbours, or the reverse.",
        first_tap="blocks.{i}.attn.hook_rot_q",
        families=DEEPSEEK,
        config=latent(
            lambda a: replace(a, rope=replace(a.rope, pairing="half" if a.rope.pairing == "interleaved" else "interleaved"))
        ),
    ),
    Mistake(
        name="scale without mscale",
        what="The logits are divided by sqrt(nope + rope) alone: YaRN's (0.1 mscale_all_dim ln(factor) + 1)^2 is left out.",
        first_tap="blocks.{i}.attn.hook_logits",
        families=DEEPSEEK,
        config=latent(lambda a: replace(a, scale=None)),
    ),
    Mistake(
        name="divided by the latent's width",
        what="The logits are divided by the root of kv_lora_rank, the width of what is cached.",
        first_tap="blocks.{i}.attn.hook_logits",
        families=DEEPSEEK,
        config=latent(lambda a: replace(a, scale=a.kv_latent**-0.5)),
    ),
    Mistake(
        name="first coordinates rotated",
        what="The rotary part is taken from the start of each query instead of its end.",
        first_tap="blocks.{i}.attn.hook_q",
        families=DEEPSEEK,
        misread=Misread("blocks.*.attn.q_proj.weight", _rotary_first),
    ),
    Mistake(
        name="keys of all heads before the values",
        what="Each head has its key and its value side by side in kv_b_proj; it is cut as all keys, then all values.",
        first_tap="blocks.{i}.attn.hook_keys",
        families=DEEPSEEK,
        misread=Misread("blocks.*.attn.kv_up.weight", _keys_then_values),
    ),
    Mistake(
        name="latent without its gain",
        what="The norm of the cached latent divides, and forgets its learned gain.",
        first_tap="blocks.{i}.attn.kv_norm.hook_out",
        families=DEEPSEEK,
        misread=Misread("blocks.*.attn.kv_norm.weight", no_gain),
    ),
    Mistake(
        name="eps of the block in the latents",
        what="The norms of the latents use rms_norm_eps, where they have 1e-6 whatever it says.",
        first_tap="blocks.{i}.attn.q_norm.hook_scale",
        families=("deepseek_v3",),
        config=_eps_of_the_block,
    ),
)
