"""Mistakes inside experts: fused matrices cut wrongly, gates, biases, the shared expert."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from model.lm import Decoder
from model.mistakes import sparse_parts as wrong
from model.mistakes.mistake import Change, Misread, Mistake, Read, traded, turned_into, zeros
from model.mistakes.routing import DEEPSEEK, EVERY, experts

POST = "blocks.{i}.mlp.experts.hook_post"


def _gate(formula: Callable[[Tensor, Tensor], Tensor]) -> Change:
    clamped = "clamped-swiglu"
    return experts(lambda moe: turned_into(moe, wrong.OtherGate.Config, formula=formula) if moe.gate == clamped else moe)


def _fused(read: Read, name: str, alternating: bool) -> Tensor:
    """gate and up in one, along the neurons."""
    gate, up = (read(f"{name.rpartition('.')[0]}.{n}") for n in _pair(name))
    return torch.stack([gate, up], dim=2).flatten(1, 2) if alternating else torch.cat([gate, up], dim=1)


def _pair(name: str) -> tuple[str, str]:
    return ("gate_bias", "up_bias") if name.endswith("bias") else ("gate_proj", "up_proj")


def _as_halves(read: Read, name: str, config: Decoder.Config) -> Tensor:
    return _fused(read, name, alternating=True).chunk(2, dim=1)[_pair(name).index(name.rpartition(".")[2])]


def _as_alternating(read: Read, name: str, config: Decoder.Config) -> Tensor:
    return _fused(read, name, alternating=False)[:, _pair(name).index(name.rpartition(".")[2]) :: 2]


MISTAKES = (
    Mistake(
        name="gate and up of the experts swapped",
        what="The activation is applied to the linear branch of every expert (w3 taken for w1).",
        first_tap=POST,
        families=EVERY,
        misread=Misread("blocks.*.mlp.experts.*", traded("gate_", "up_")),
    ),
    Mistake(
        name="gate and up cut in halves",
        what="Gate and up are alternating columns of one matrix; it is cut in the middle.",
        first_tap=POST,
        families=("gpt_oss",),
        misread=Misread("blocks.*.mlp.experts.[gu]*", _as_halves),
    ),
    Mistake(
        name="gate and up taken in turns",
        what="Gate and up are the two halves of one matrix; its columns are taken in turns.",
        first_tap=POST,
        families=("llama4_text", "mixtral", "qwen3_moe"),
        misread=Misread("blocks.*.mlp.experts.[gu]*", _as_alternating),
    ),
    Mistake(
        name="shared expert left out",
        what="Only the chosen experts run.",
        first_tap="blocks.{i}.hook_mlp_out",
        families=(*DEEPSEEK, "llama4_text"),
        config=experts(lambda moe: replace(moe, shared=None)),
    ),
    Mistake(
        name="gate clamped below too",
        what="The gate is clamped to [-7, 7], where it is clamped from above only.",
        first_tap="blocks.{i}.*mlp*",  # beside other neurons those below -7 are tiny, right or wrong
        families=("gpt_oss",),
        config=_gate(wrong.clamped_below),
    ),
    Mistake(
        name="nothing clamped",
        what="Gate and up are not clamped at 7.",
        first_tap=POST,
        families=("gpt_oss",),
        config=_gate(wrong.unclamped),
    ),
    Mistake(
        name="up without its one",
        what="The gate multiplies up, where it multiplies up + 1.",
        first_tap=POST,
        families=("gpt_oss",),
        config=_gate(wrong.without_one),
    ),
    Mistake(
        name="slope of SiLU",
        what="The gate's sigmoid has slope 1, where it is 1.702.",
        first_tap=POST,
        families=("gpt_oss",),
        config=_gate(wrong.plain_slope),
    ),
    Mistake(
        name="biases of the experts dropped",
        what="The experts' biases are not loaded.",
        first_tap=POST,
        families=("gpt_oss",),
        misread=Misread("blocks.*.mlp.experts.*_bias", zeros),
    ),
)
