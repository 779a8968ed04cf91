"""Mixture of experts (Shazeer et al. 2017, arXiv 1701.06538): each token is fed to its topk experts and to shared ones.

out = sum_{e in chosen} weight[e] * expert_e(x) + shared(x)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.mlp import MLPConfig
from model.routing import Routing
from model.taps import Absent, Tap


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def clamped_swiglu(gate: Tensor, up: Tensor, slope: float = 1.702, limit: float = 7.0) -> Tensor:
    """gpt-oss: the gate is clamped from above only, up on both sides, and up is shifted by one."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(slope * gate) * (up + 1)


GATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"swiglu": swiglu, "clamped-swiglu": clamped_swiglu}


def chosen(indices: Tensor) -> list[tuple[int, tuple[Tensor, ...]]]:
    """indices [batch, pos, topk] -> each expert in use, and where: its (batch, pos, rank). None on the meta device."""
    experts = [] if indices.is_meta else indices.unique().tolist()
    return [(e, torch.where(indices == e)) for e in experts]


class Experts(nn.Module):
    """`n` gated MLPs in stacked matrices; each runs once, on the tokens that chose it."""

    def __init__(self, n: int, d_model: int, d_mlp: int, gate: str, bias: bool, scales_input: bool):
        super().__init__()
        self.gate, self.scales_input = GATES[gate], scales_input
        self.gate_proj = nn.Parameter(torch.empty(n, d_mlp, d_model))
        self.up_proj = nn.Parameter(torch.empty(n, d_mlp, d_model))
        self.down_proj = nn.Parameter(torch.empty(n, d_model, d_mlp))
        self.gate_bias = nn.Parameter(torch.zeros(n, d_mlp)) if bias else None
        self.up_bias = nn.Parameter(torch.zeros(n, d_mlp)) if bias else None
        self.down_bias = nn.Parameter(torch.zeros(n, d_model)) if bias else None
        self.hook_post = Tap("batch pos topk d_mlp", "signed", "gated neurons of each chosen expert: what its W_down reads")

    def forward(self, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        """x [batch, pos, d_model]; weights, indices [batch, pos, topk] -> [batch, pos, d_model]."""
        post = x.new_zeros(*indices.shape, self.gate_proj.shape[1])
        for e, (batch, pos, rank) in chosen(indices):
            read = x[batch, pos]
            if self.scales_input:
                read = read * weights[batch, pos, rank, None].to(x.dtype)
            gate = F.linear(read, self.gate_proj[e], None if self.gate_bias is None else self.gate_bias[e])
            up = F.linear(read, self.up_proj[e], None if self.up_bias is None else self.up_bias[e])
            post[batch, pos, rank] = self.gate(gate, up)
        post, out = self.hook_post(post), torch.zeros_like(x)
        for e, (batch, pos, rank) in chosen(indices):
            given = F.linear(post[batch, pos, rank], self.down_proj[e], None if self.down_bias is None else self.down_bias[e])
            if not self.scales_input:
                given = given * weights[batch, pos, rank, None].to(x.dtype)
            out.index_put_((batch, pos), given, accumulate=True)
        return out


class MoE(nn.Module):
    """x [batch, pos, d_model] -> [batch, pos, d_model]."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """`d_mlp` neurons an expert; `shared`: an MLP that every token passes, or None; biases as in gpt-oss."""

        d_model: int
        d_mlp: int
        n_experts: int
        routing: Routing
        shared: MLPConfig | None = None
        gate: str = "swiglu"
        router_bias: bool = False
        expert_bias: bool = False

        def __post_init__(self):
            if min(self.d_model, self.d_mlp, self.n_experts) < 1:
                sizes = f"{self.d_model}, {self.d_mlp} and {self.n_experts}"
                raise BlockscopeError(f"d_model, d_mlp and n_experts must be at least 1, got {sizes}")
            if self.shared is not None and self.shared.d_model != self.d_model:
                raise BlockscopeError(f"the shared expert has width {self.shared.d_model} but d_model is {self.d_model}")
            self.routing.check(self.n_experts)
            if self.gate not in GATES:
                raise BlockscopeError(f"gate must be one of {', '.join(GATES)}, got {self.gate!r}")

        @property
        def active_neurons(self) -> int:
            """Neurons that one token meets, in its chosen experts and the shared one."""
            return self.routing.topk * self.d_mlp + (self.shared.d_mlp if self.shared else 0)

        def build(self) -> "MoE":
            return MoE(self)

    def __init__(self, config: Config):
        super().__init__()
        self.config, c = config, config
        self.router = nn.Linear(c.d_model, c.n_experts, bias=c.router_bias)
        self.hook_router_logits = Tap("batch pos expert", "signed", "router logits, fp32, before any choice")
        self.correction = nn.Parameter(torch.zeros(c.n_experts)) if c.routing.correction_bias else None
        self.hook_expert_weights = Tap("batch pos topk", "positive", "the weights used, after every normalisation and scale")
        self.hook_expert_indices = Tap("batch pos topk", "index", "the experts chosen, best first")
        self.experts = Experts(c.n_experts, c.d_model, c.d_mlp, c.gate, c.expert_bias, c.routing.scales_input)
        self.shared = c.shared.build() if c.shared else None
        for name in ("hook_pre", "hook_act", "hook_pre_linear", "hook_post"):
            setattr(self, name, Absent("an expert's neurons are in mlp.experts.hook_post, a shared expert's in mlp.shared.*"))
        self.hook_module_out = Absent("there is no norm after this MLP: hook_mlp_out is its output")

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.router.bias is None else self.router.bias.float()
        logits = self.hook_router_logits(F.linear(x.float(), self.router.weight.float(), bias))
        weights, indices = self.config.routing(logits, self.correction)
        weights, indices = self.hook_expert_weights(weights), self.hook_expert_indices(indices)
        out = self.experts(x, weights, indices)
        return self.hook_module_out(out if self.shared is None else out + self.shared(x))
