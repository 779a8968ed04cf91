"""Which experts a token goes to, and with what weights: router logits -> (weights, indices) [batch, pos, topk]."""

from dataclasses import dataclass

import torch
from torch import Tensor

from model.errors import BlockscopeError

Choice = tuple[Tensor, Tensor]


@dataclass(frozen=True, kw_only=True)
class Routing:
    """`topk` experts a token; `scale` multiplies the weights (DeepSeek's routed scaling factor)."""

    topk: int
    scale: float = 1.0
    correction_bias = False  # whether the router learns a bias that enters the choice but not the weight
    scales_input = False  # whether the weight multiplies what an expert reads instead of what it gives

    def __post_init__(self):
        if self.topk < 1:
            raise BlockscopeError(f"topk must be at least 1, got {self.topk}")

    def check(self, n_experts: int) -> None:
        """Refuse a number of experts that this cannot choose from."""
        if self.topk > n_experts:
            raise BlockscopeError(f"topk {self.topk} exceeds the {n_experts} experts")

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        """logits [batch, pos, expert] fp32, bias [expert] or None -> weights, indices [batch, pos, topk]."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SoftmaxTopK(Routing):
    """Softmax over all experts, then the best: weights sum to less than 1 (Qwen2-MoE, OLMoE, DeepSeek-V2)."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        weights, indices = logits.softmax(-1).topk(self.topk, dim=-1)
        return weights * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class TopKSoftmax(Routing):
    """Softmax over the chosen logits only: weights sum to 1 (Mixtral, arXiv 2401.04088; Qwen3-MoE; gpt-oss)."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        best, indices = logits.topk(self.topk, dim=-1)
        return best.softmax(-1) * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class SigmoidTopK(Routing):
    """Each expert's own sigmoid, multiplied into what the expert reads (Llama 4)."""

    scales_input = True

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        best, indices = logits.topk(self.topk, dim=-1)
        return best.sigmoid() * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class Grouped(Routing):
    """Experts lie in `groups`; only the best `kept` groups of a token compete."""

    groups: int
    kept: int

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.kept <= self.groups:
            raise BlockscopeError(f"kept groups must lie in 1..{self.groups}, got {self.kept}")

    def check(self, n_experts: int) -> None:
        if n_experts % self.groups:
            raise BlockscopeError(f"{n_experts} experts do not divide into {self.groups} groups")
        if self.topk > (within := n_experts // self.groups * self.kept):
            raise BlockscopeError(f"topk {self.topk} exceeds the {within} experts of {self.kept} kept groups")

    def within_groups(self, scores: Tensor, group_scores: Tensor, hidden: float) -> Tensor:
        """scores [.., expert] with every expert outside the best groups at `hidden`; group_scores [.., group]."""
        best = group_scores.topk(self.kept, dim=-1).indices
        open_ = torch.zeros_like(group_scores, dtype=torch.bool).scatter(-1, best, True)
        return scores.masked_fill(~open_.repeat_interleave(scores.shape[-1] // self.groups, dim=-1), hidden)


@dataclass(frozen=True, kw_only=True)
class GroupMaxTopK(Grouped):
    """DeepSeek-V2 (arXiv 2405.04434): softmax, groups ranked by their best expert, weights not renormalised."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        scores = logits.softmax(-1)
        group_scores = scores.unflatten(-1, (self.groups, -1)).amax(-1)
        weights, indices = self.within_groups(scores, group_scores, 0.0).topk(self.topk, dim=-1)
        return weights * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class BiasedGroupTopK(Grouped):
    """DeepSeek-V3 (arXiv 2412.19437): sigmoid scores; the choice adds a learned bias and ranks groups by the sum of their
    two best; the weights are the unbiased scores, renormalised where `normalise`."""

    normalise: bool = True
    correction_bias = True

    def check(self, n_experts: int) -> None:
        super().check(n_experts)
        if n_experts // self.groups < 2:
            raise BlockscopeError(f"groups are ranked by two experts each, but {n_experts} in {self.groups} groups leave one")

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        if not bias.is_meta and not bool(bias.isfinite().all()):
            raise BlockscopeError("the router's correction bias is not finite: no choice of experts would mean anything")
        scores = logits.sigmoid()
        ranked = scores + bias
        group_scores = ranked.unflatten(-1, (self.groups, -1)).topk(2, dim=-1).values.sum(-1)
        indices = self.within_groups(ranked, group_scores, -torch.inf).topk(self.topk, dim=-1).indices
        weights = scores.gather(-1, indices)
        if self.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return weights * self.scale, indices


ROUTINGS = {
    "softmax-topk": SoftmaxTopK,
    "topk-softmax": TopKSoftmax,
    "sigmoid-topk": SigmoidTopK,
    "group-max": GroupMaxTopK,
    "biased-groups": BiasedGroupTopK,
}
