"""Mistakes in experts and in what stands beside them: routing, gates, fused matrices, sinks, chunks, temperature."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from model.attention import Attention, RotateThenNorm
from model.lm import Decoder
from model.masks import Chunked, Sliding
from model.mistakes import sparse_parts as wrong
from model.mistakes.mistake import Change, Misread, Mistake, Read, attention, blocks, masks, traded, turned_into, zeros
from model.moe import MoE
from model.positions import Yarn
from model.routing import BiasedGroupTopK, Grouped, Routing, SigmoidTopK, SoftmaxTopK, TopKSoftmax

SOFTMAX_OVER_CHOSEN, DEEPSEEK = ("mixtral", "gpt_oss"), ("deepseek_v2", "deepseek_v3")
EVERY = (*SOFTMAX_OVER_CHOSEN, "qwen3_moe", *DEEPSEEK, "llama4_text")
WEIGHTS = "blocks.{i}.mlp.hook_expert_weights"
POST = "blocks.{i}.mlp.experts.hook_post"


def experts(change: Callable[[MoE.Config], MoE.Config]) -> Change:
    """In every block that has experts."""
    return blocks(lambda b: replace(b, mlp=change(b.mlp)) if isinstance(b.mlp, MoE.Config) else b)


def routing(kind: type[Routing], change: Callable[[Routing], Routing]) -> Change:
    """In every block whose experts are chosen in this way."""
    return experts(lambda moe: replace(moe, routing=change(moe.routing)) if type(moe.routing) is kind else moe)


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


def _one_fewer(moe: MoE.Config) -> MoE.Config:
    return replace(moe, routing=replace(moe.routing, topk=moe.routing.topk - 1)) if moe.routing.topk > 1 else moe


def _one_group(moe: MoE.Config) -> MoE.Config:
    return replace(moe, routing=replace(moe.routing, groups=1, kept=1)) if isinstance(moe.routing, Grouped) else moe


def _logits_as_weights(moe: MoE.Config) -> MoE.Config:
    grouped = isinstance(moe.routing, Grouped)
    return moe if grouped else replace(moe, routing=wrong.LogitsAsWeights(topk=moe.routing.topk))


def _sink_as_gate(a: Attention.Config) -> Attention.Config:
    return turned_into(a, wrong.SinkAsGate.Config) if type(a) is Attention.Config and a.sink else a


def _yarn(**changes) -> Change:
    def change(a: Attention.Config) -> Attention.Config:
        stretched = a.rope is not None and isinstance(a.rope.scaling, Yarn)
        return replace(a, rope=replace(a.rope, scaling=replace(a.rope.scaling, **changes))) if stretched else a

    return attention(change)


def _chunk(change: Callable[[int], object]) -> Change:
    return masks(lambda mask: change(mask.chunk) if isinstance(mask, Chunked) else mask)


def _normed_anyway(config: Decoder.Config) -> Decoder.Config:
    """QK-norm in the layers without rotation too."""
    norm = next((b.attn.q_norm for b in config.blocks if isinstance(b.attn, RotateThenNorm.Config)), None)
    return attention(lambda a: replace(a, q_norm=norm, k_norm=norm) if a.rope is None else a)(config)


def _rotated_anyway(config: Decoder.Config) -> Decoder.Config:
    rope = next((b.attn.rope for b in config.blocks if b.attn.rope is not None), None)
    return attention(lambda a: a if a.rope is not None else replace(a, rope=rope))(config)


def _temperature(change: Callable) -> Change:
    return attention(lambda a: a if a.temperature is None else replace(a, temperature=change(a.temperature)))


ROUTING = (
    Mistake(
        name="softmax over all experts",
        what="The weights are those of a softmax over all experts and sum to less than 1; the chosen ones' should sum to 1.",
        first_tap=WEIGHTS,
        families=SOFTMAX_OVER_CHOSEN,
        config=routing(TopKSoftmax, lambda r: SoftmaxTopK(topk=r.topk, scale=r.scale)),
    ),
    Mistake(
        name="weights of experts renormalised",
        what="The chosen weights are made to sum to 1, where norm_topk_prob is false.",
        first_tap=WEIGHTS,
        families=("qwen3_moe",),
        config=routing(SoftmaxTopK, lambda r: TopKSoftmax(topk=r.topk, scale=r.scale)),
    ),
    Mistake(
        name="logits as weights",
        what="The router's raw logits weigh the experts.",
        first_tap=WEIGHTS,
        families=(*SOFTMAX_OVER_CHOSEN, "qwen3_moe", "llama4_text"),
        config=experts(_logits_as_weights),
    ),
    Mistake(
        name="one expert fewer",
        what="A token is fed to one expert fewer than num_experts_per_tok.",
        first_tap=WEIGHTS,
        families=EVERY,
        config=experts(_one_fewer),
    ),
    Mistake(
        name="softmax where experts have sigmoids",
        what="The chosen logits are weighed against each other, where each has a sigmoid of its own.",
        first_tap=WEIGHTS,
        families=("llama4_text",),
        config=routing(SigmoidTopK, lambda r: TopKSoftmax(topk=r.topk)),
    ),
    Mistake(
        name="weight on the expert's output",
        what="The weight multiplies what an expert gives, where it multiplies what the expert reads.",
        first_tap=POST,
        families=("llama4_text",),
        config=routing(SigmoidTopK, lambda r: turned_into(r, wrong.OnTheOutput)),
    ),
    Mistake(
        name="router bias dropped",
        what="The router's own bias is not loaded.",
        first_tap="blocks.{i}.mlp.hook_router_logits",
        families=("gpt_oss",),
        misread=Misread("blocks.*.mlp.router.bias", zeros),
    ),
    Mistake(
        name="groups ranked by their best expert",
        what="Groups of experts are ranked by their best one (DeepSeek-V2), where the sum of the two best decides.",
        first_tap="blocks.{i}.mlp.hook_expert_*",
        families=("deepseek_v3",),
        config=routing(BiasedGroupTopK, lambda r: turned_into(r, wrong.BestOfGroup)),
    ),
    Mistake(
        name="groups ranked by two experts",
        what="Groups of experts are ranked by the sum of their two best ones (DeepSeek-V3), where the best decides.",
        first_tap="blocks.{i}.mlp.hook_expert_*",
        families=("deepseek_v2",),
        config=routing(wrong.GroupMaxTopK, lambda r: turned_into(r, wrong.SumOfTwo)),
    ),
    Mistake(
        name="no limit to groups",
        what="A token chooses among all experts, where only those of its best groups compete.",
        first_tap="blocks.{i}.mlp.hook_expert_*",
        families=DEEPSEEK,
        config=experts(_one_group),
    ),
    Mistake(
        name="bias in the weight",
        what="The bias that steers the choice of experts stays in their weights.",
        first_tap=WEIGHTS,
        families=("deepseek_v3",),
        config=routing(BiasedGroupTopK, lambda r: turned_into(r, wrong.BiasInWeight)),
    ),
    Mistake(
        name="no bias in the choice",
        what="e_score_correction_bias, a buffer in some ports, is not loaded.",
        first_tap="blocks.{i}.mlp.hook_expert_*",
        families=("deepseek_v3",),
        misread=Misread("blocks.*.mlp.correction", zeros),
    ),
    Mistake(
        name="weights of grouped experts not renormalised",
        what="The chosen sigmoids are used as they are, where norm_topk_prob is true.",
        first_tap=WEIGHTS,
        families=("deepseek_v3",),
        config=routing(BiasedGroupTopK, lambda r: replace(r, normalise=False)),
    ),
    Mistake(
        name="weights of grouped experts renormalised",
        what="The chosen weights are made to sum to 1 before the factor, where they keep the softmax's size.",
        first_tap=WEIGHTS,
        families=("deepseek_v2",),
        config=routing(wrong.GroupMaxTopK, lambda r: turned_into(r, wrong.Renormalised)),
    ),
    Mistake(
        name="routed scaling factor dropped",
        what="The weights are not multiplied by routed_scaling_factor.",
        first_tap=WEIGHTS,
        families=DEEPSEEK,
        config=experts(lambda moe: replace(moe, routing=replace(moe.routing, scale=1.0))),
    ),
)

GATES = (
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

SCORES = (
    Mistake(
        name="no sink",
        what="The rows of the pattern sum to 1: the learned logit beside the scores is left out.",
        first_tap="blocks.{i}.attn.hook_pattern",
        families=("gpt_oss",),
        config=attention(lambda a: replace(a, sink=False)),
    ),
    Mistake(
        name="sink as a gate",
        what="Each head's rows are an ordinary softmax times sigmoid(-sink), where the sink joins the denominator.",
        first_tap="blocks.{i}.attn.hook_pattern",
        families=("gpt_oss",),
        config=attention(_sink_as_gate),
    ),
    Mistake(
        name="ends of YaRN's ramp rounded",
        what="The two ends of the ramp are rounded to whole pairs, where truncate is false.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gpt_oss",),
        config=_yarn(truncate=True),
    ),
    Mistake(
        name="no YaRN factor on cos and sin",
        what="Only the frequencies are stretched; the factor 0.1 ln(factor) + 1 on cos and sin is left out.",
        first_tap="blocks.{i}.attn.hook_rot_q",
        families=("gpt_oss",),
        config=_yarn(attention_factor=1.0),
    ),
    Mistake(
        name="chunk one too long",
        what="Chunks of attention hold one token more than attention_chunk_size.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("llama4_text",),
        config=_chunk(lambda chunk: Chunked(chunk=chunk + 1)),
    ),
    Mistake(
        name="chunks as a window",
        what="A token sees the last attention_chunk_size tokens, where nothing before its chunk's edge is visible.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("llama4_text",),
        config=_chunk(lambda chunk: Sliding(window=chunk)),
    ),
    Mistake(
        name="temperature dropped",
        what="The queries of layers without rotation do not grow with their position.",
        first_tap="blocks.{i}.attn.hook_logits",
        families=("llama4_text",),
        config=_temperature(lambda temperature: None),
    ),
    Mistake(
        name="temperature one position late",
        what="The steps of the temperature are counted from position 0, where they are counted from 1.",
        first_tap="blocks.{i}.attn.temperature.hook_scale",
        families=("llama4_text",),
        config=_temperature(lambda temperature: turned_into(temperature, wrong.OneLate.Config)),
    ),
    Mistake(
        name="QK-norm where nothing rotates",
        what="Layers without rotation normalise their queries and keys too.",
        first_tap="blocks.{i}.attn.hook_cache_k",
        families=("llama4_text",),
        config=_normed_anyway,
    ),
    Mistake(
        name="every layer rotates",
        what="The list no_rope_layers is not read (or read by its name: 1 means that a layer does rotate).",
        first_tap="blocks.{i}.attn.hook_cache_k",
        families=("llama4_text",),
        config=_rotated_anyway,
    ),
)

MISTAKES = (*ROUTING, *GATES, *SCORES)
