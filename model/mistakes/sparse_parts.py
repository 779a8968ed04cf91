"""Wrong experts, routings, sinks and temperatures, for mistakes that no configuration of right parts expresses."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import Attention
from model.moe import MoE
from model.routing import BiasedGroupTopK, Choice, GroupMaxTopK, Routing, SigmoidTopK
from model.softmax import SinkSoftmax
from model.temperature import Temperature


@dataclass(frozen=True, kw_only=True)
class LogitsAsWeights(Routing):
    """The chosen logits themselves are the weights."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        best, indices = logits.topk(self.topk, dim=-1)
        return best * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class OnTheOutput(SigmoidTopK):
    """The weight multiplies what an expert gives, not what it reads."""

    scales_input = False


@dataclass(frozen=True, kw_only=True)
class Renormalised(GroupMaxTopK):
    """The weights of the chosen are made to sum to 1 (times the scale)."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        weights, indices = super().__call__(logits, bias)
        return weights / weights.sum(-1, keepdim=True) * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class SumOfTwo(GroupMaxTopK):
    """Groups ranked by the sum of their two best experts, as in DeepSeek-V3."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        scores = logits.softmax(-1)
        group_scores = scores.unflatten(-1, (self.groups, -1)).topk(2, dim=-1).values.sum(-1)
        weights, indices = self.within_groups(scores, group_scores, 0.0).topk(self.topk, dim=-1)
        return weights * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class BestOfGroup(BiasedGroupTopK):
    """Groups ranked by their best expert, as in DeepSeek-V2."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        scores = logits.sigmoid()
        ranked = scores + bias
        group_scores = ranked.unflatten(-1, (self.groups, -1)).amax(-1)
        indices = self.within_groups(ranked, group_scores, -torch.inf).topk(self.topk, dim=-1).indices
        weights = scores.gather(-1, indices)
        return weights / weights.sum(-1, keepdim=True) * self.scale, indices


@dataclass(frozen=True, kw_only=True)
class BiasInWeight(BiasedGroupTopK):
    """The bias that steers the choice stays in the weights."""

    def __call__(self, logits: Tensor, bias: Tensor | None) -> Choice:
        indices = super().__call__(logits, bias)[1]
        weights = (logits.sigmoid() + bias).gather(-1, indices)
        return weights / weights.sum(-1, keepdim=True) * self.scale, indices


def clamped_below(gate: Tensor, up: Tensor) -> Tensor:
    gate, up = gate.clamp(-7, 7), up.clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def unclamped(gate: Tensor, up: Tensor) -> Tensor:
    return gate * torch.sigmoid(1.702 * gate) * (up + 1)


def without_one(gate: Tensor, up: Tensor) -> Tensor:
    gate, up = gate.clamp(max=7), up.clamp(-7, 7)
    return gate * torch.sigmoid(1.702 * gate) * up


def plain_slope(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate.clamp(max=7)) * (up.clamp(-7, 7) + 1)


class OtherGate(MoE):
    """Experts whose gate is `formula(gate, up)`."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MoE.Config):
        formula: Callable[[Tensor, Tensor], Tensor]

        def build(self) -> "OtherGate":
            return OtherGate(self)

    def __init__(self, config: Config):
        super().__init__(config)
        self.experts.gate = config.formula


class GatedSoftmax(SinkSoftmax):
    """The sink as a gate: an ordinary softmax, each head times sigmoid(-sink)."""

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        gate = torch.sigmoid(-self.weight.float()).view(1, -1, 1, 1)
        weights = scores.softmax(-1, dtype=torch.float32) * gate
        return weights, 1 - weights.sum(-1)


class SinkAsGate(Attention):
    @dataclass(frozen=True, kw_only=True)
    class Config(Attention.Config):
        def build(self) -> "SinkAsGate":
            return SinkAsGate(self)

    def __init__(self, config: Config):
        super().__init__(config)
        self.softmax = GatedSoftmax(config.n_heads)


class OneLate(Temperature):
    """Steps counted from position 0: floor(position / every) where it is floor((position + 1) / every)."""

    @dataclass(frozen=True)
    class Config(Temperature.Config):
        def build(self) -> "OneLate":
            return OneLate(self)

    def forward(self, q: Tensor, positions: Tensor) -> Tensor:
        return super().forward(q, positions - 1)
