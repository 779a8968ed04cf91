"""Feed-forward parts: gated (Shazeer 2020, arXiv 2002.05202) and plain.

gated: out = W_down (activation(W_gate x) * (W_up x));   plain: out = W_down activation(W_up x)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.taps import Absent, Tap

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,  # exact, with the error function
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # GPT-2's and Gemma's
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
SYMBOLS = {"silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU (tanh)", "relu": "ReLU", "sigmoid": "σ", "identity": "gate"}

NEURONS = "batch pos d_mlp"


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    """`d_mlp` neurons between two projections of width `d_model`; `activation` is a name in ACTIVATIONS."""

    d_model: int
    d_mlp: int
    activation: str = "silu"
    bias: bool = False

    def __post_init__(self):
        if min(self.d_model, self.d_mlp) < 1:
            raise BlockscopeError(f"d_model and d_mlp must be at least 1, got {self.d_model} and {self.d_mlp}")
        if self.activation not in ACTIVATIONS:
            raise BlockscopeError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}")

    @property
    def active_neurons(self) -> int:
        """Neurons that one token meets."""
        return self.d_mlp


class GLU(nn.Module):
    """Gated: x [..., d_model] -> [..., d_model] through d_mlp gated neurons."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLPConfig):
        def build(self) -> "GLU":
            return GLU(self.d_model, self.d_mlp, self.activation, self.bias)

    def __init__(self, d_model: int, d_mlp: int, activation: str = "silu", bias: bool = False):
        super().__init__()
        self.config = GLU.Config(d_model=d_model, d_mlp=d_mlp, activation=activation, bias=bias)
        self.activation, symbol = ACTIVATIONS[activation], SYMBOLS[activation]
        self.gate_proj = nn.Linear(d_model, d_mlp, bias=bias)
        self.up_proj = nn.Linear(d_model, d_mlp, bias=bias)
        self.down_proj = nn.Linear(d_mlp, d_model, bias=bias)
        self.hook_pre = Tap(NEURONS, "signed", "gate before the activation: W_gate x")
        self.hook_act = Tap(NEURONS, "signed", f"activation of the gate alone: {symbol}(gate)")
        self.hook_pre_linear = Tap(NEURONS, "signed", "up: W_up x")
        self.hook_post = Tap(NEURONS, "signed", "activation(gate) * up: what W_down reads")
        self.hook_module_out = Absent("there is no norm after this MLP: hook_mlp_out is its output")

    def forward(self, x: Tensor) -> Tensor:
        gate = self.hook_pre(self.gate_proj(x))
        act = self.hook_act(self.activation(gate))
        up = self.hook_pre_linear(self.up_proj(x))
        return self.hook_module_out(self.down_proj(self.hook_post(act * up)))


class SwiGLU(GLU):
    """GLU with SiLU(z) = z * sigmoid(z): the MLP of Llama."""

    def __init__(self, d_model: int, d_mlp: int, bias: bool = False):
        super().__init__(d_model, d_mlp, "silu", bias)


class MLP(nn.Module):
    """Plain: x [..., d_model] -> [..., d_model] through d_mlp neurons (Vaswani et al. 2017, GPT-2)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLPConfig):
        def build(self) -> "MLP":
            return MLP(self.d_model, self.d_mlp, self.activation, self.bias)

    def __init__(self, d_model: int, d_mlp: int, activation: str = "gelu_tanh", bias: bool = False):
        super().__init__()
        self.config = MLP.Config(d_model=d_model, d_mlp=d_mlp, activation=activation, bias=bias)
        self.activation, symbol = ACTIVATIONS[activation], SYMBOLS[activation]
        self.up_proj = nn.Linear(d_model, d_mlp, bias=bias)
        self.down_proj = nn.Linear(d_mlp, d_model, bias=bias)
        self.hook_pre = Tap(NEURONS, "signed", "neurons before the activation: W_up x")
        self.hook_act = Absent("this MLP has no gate: mlp.hook_post is its activation")
        self.hook_pre_linear = Absent("this MLP has no gate, so there is no linear branch")
        self.hook_post = Tap(NEURONS, "signed", f"{symbol}(W_up x): what W_down reads")
        self.hook_module_out = Absent("there is no norm after this MLP: hook_mlp_out is its output")

    def forward(self, x: Tensor) -> Tensor:
        post = self.hook_post(self.activation(self.hook_pre(self.up_proj(x))))
        return self.hook_module_out(self.down_proj(post))


def gated_width(d_model: int, multiple: int, factor: float | None = None) -> int:
    """Llama's width of a gated MLP: 2/3 of 4 * d_model (three matrices as large as two), times `factor`, rounded up.

    Both products are cut to whole numbers before the rounding (meta-llama/llama, model.py).
    """
    width = int(2 * 4 * d_model / 3)
    width = width if factor is None else int(factor * width)
    return -(-width // multiple) * multiple


MLPS = {  # name -> config of (d_model, d_mlp, bias)
    "swiglu": partial(GLU.Config, activation="silu"),
    "geglu": partial(GLU.Config, activation="gelu"),
    "geglu-tanh": partial(GLU.Config, activation="gelu_tanh"),
    "reglu": partial(GLU.Config, activation="relu"),
    "glu": partial(GLU.Config, activation="sigmoid"),
    "bilinear": partial(GLU.Config, activation="identity"),
    "relu": partial(MLP.Config, activation="relu"),
    "gelu": partial(MLP.Config, activation="gelu"),
    "gelu-tanh": partial(MLP.Config, activation="gelu_tanh"),
    "silu": partial(MLP.Config, activation="silu"),
}
