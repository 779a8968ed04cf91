"""Feed-forward parts. Gated: out = W_down (activation(W_gate x) * (W_up x))   (Shazeer 2020, arXiv 2002.05202)."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.taps import Tap


class SwiGLU(nn.Module):
    """x [..., d_model] -> [..., d_model] through d_mlp gated neurons; SiLU(z) = z * sigmoid(z)."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        d_model: int
        d_mlp: int
        bias: bool = False

        def __post_init__(self):
            if min(self.d_model, self.d_mlp) < 1:
                raise BlockscopeError(f"d_model and d_mlp must be at least 1, got {self.d_model} and {self.d_mlp}")

        def build(self) -> "SwiGLU":
            return SwiGLU(self.d_model, self.d_mlp, self.bias)

    def __init__(self, d_model: int, d_mlp: int, bias: bool = False):
        super().__init__()
        self.config = SwiGLU.Config(d_model=d_model, d_mlp=d_mlp, bias=bias)
        self.gate_proj = nn.Linear(d_model, d_mlp, bias=bias)
        self.up_proj = nn.Linear(d_model, d_mlp, bias=bias)
        self.down_proj = nn.Linear(d_mlp, d_model, bias=bias)
        self.hook_pre = Tap("batch pos d_mlp", "signed", "gate before the activation: W_gate x")
        self.hook_act = Tap("batch pos d_mlp", "signed", "SiLU(gate)")
        self.hook_pre_linear = Tap("batch pos d_mlp", "signed", "up: W_up x")
        self.hook_post = Tap("batch pos d_mlp", "signed", "SiLU(gate) * up: what W_down reads")

    def forward(self, x: Tensor) -> Tensor:
        gate = self.hook_pre(self.gate_proj(x))
        act = self.hook_act(F.silu(gate))
        up = self.hook_pre_linear(self.up_proj(x))
        return self.down_proj(self.hook_post(act * up))


MLPS = {"swiglu": SwiGLU}
