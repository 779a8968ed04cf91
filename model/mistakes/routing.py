"""Mistakes in routing: where the softmax sits, what the bias does, which groups compete, which numbers are the weights."""

from collections.abc import Callable
from dataclasses import replace

from model.mistakes import sparse_parts as wrong
from model.mistakes.mistake import Change, Misread, Mistake, blocks, turned_into, zeros
from model.moe import MoE
from model.routing import BiasedGroupTopK, Grouped, GroupMaxTopK, Routing, SigmoidTopK, SoftmaxTopK, TopKSoftmax

SOFTMAX_OVER_CHOSEN, DEEPSEEK = ("mixtral", "gpt_oss"), ("deepseek_v2", "deepseek_v3")
EVERY = (*SOFTMAX_OVER_CHOSEN, "qwen3_moe", *DEEPSEEK, "llama4_text")
WEIGHTS = "blocks.{i}.mlp.hook_expert_weights"


def experts(change: Callable[[MoE.Config], MoE.Config]) -> Change:
    """In every block that has experts."""
    return blocks(lambda b: replace(b, mlp=change(b.mlp)) if isinstance(b.mlp, MoE.Config) else b)


def routing(kind: type[Routing], change: Callable[[Routing], Routing]) -> Change:
    """In every block whose experts are chosen in this way."""
    return experts(lambda moe: replace(moe, routing=change(moe.routing)) if type(moe.routing) is kind else moe)


def _one_fewer(moe: MoE.Config) -> MoE.Config:
    return replace(moe, routing=replace(moe.routing, topk=moe.routing.topk - 1)) if moe.routing.topk > 1 else moe


def _one_group(moe: MoE.Config) -> MoE.Config:
    return replace(moe, routing=replace(moe.routing, groups=1, kept=1)) if isinstance(moe.routing, Grouped) else moe


def _logits_as_weights(moe: MoE.Config) -> MoE.Config:
    grouped = isinstance(moe.routing, Grouped)
    return moe if grouped else replace(moe, routing=wrong.LogitsAsWeights(topk=moe.routing.topk))


MISTAKES = (
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
        first_tap="blocks.{i}.mlp.experts.hook_post",
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
        config=routing(GroupMaxTopK, lambda r: turned_into(r, wrong.SumOfTwo)),
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
        config=routing(GroupMaxTopK, lambda r: turned_into(r, wrong.Renormalised)),
    ),
    Mistake(
        name="routed scaling factor dropped",
        what="The weights are not multiplied by routed_scaling_factor.",
        first_tap=WEIGHTS,
        families=DEEPSEEK,
        config=experts(lambda moe: replace(moe, routing=replace(moe.routing, scale=1.0))),
    ),
)
