"""The feed-forward family of Shazeer 2020 (arXiv 2002.05202), each against its formula; activations by their numbers."""

import math

import pytest
import torch
from conftest import assert_same

from model.errors import BlockscopeError
from model.mlp import ACTIVATIONS, GLU, MLP, MLPS
from model.taps import capture


def sigmoid(x):
    return 1 / (1 + (-x).exp())


def gelu(x):
    """x times the standard normal distribution function."""
    return x * 0.5 * (1 + torch.special.erf(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).tanh())


def relu(x):
    return torch.where(x > 0, x, 0.0)


def silu(x):
    return x * sigmoid(x)


GATED = {  # equations 5 and 6 of the paper: (activation(x W) * (x V)) W2
    "glu": sigmoid,
    "bilinear": lambda x: x,
    "reglu": relu,
    "geglu": gelu,
    "geglu-tanh": gelu_tanh,
    "swiglu": silu,
}
PLAIN = {"relu": relu, "gelu": gelu, "gelu-tanh": gelu_tanh, "silu": silu}  # equations 1 to 4: activation(x W1) W2


def parameters_of(config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in config.build().parameters())


def filled(name: str, bias: bool):
    part = MLPS[name](d_model=14, d_mlp=33, bias=bias).build()
    generator = torch.Generator().manual_seed(len(name))
    for p in part.parameters():
        p.data = torch.randn(p.shape, generator=generator)
    return part, torch.randn(2, 5, 14, generator=generator)


def linear(layer, x):
    out = x.double() @ layer.weight.double().T
    return out if layer.bias is None else out + layer.bias.double()


def test_the_table_holds_the_whole_family():
    assert set(MLPS) == {*GATED, *PLAIN}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", GATED)
def test_gated(name, bias):
    part, x = filled(name, bias)
    out, taps = capture(part, x)
    gate, up = linear(part.gate_proj, x), linear(part.up_proj, x)
    act = GATED[name](gate)
    assert isinstance(part, GLU)
    for tap, formula in {"hook_pre": gate, "hook_pre_linear": up, "hook_act": act, "hook_post": act * up}.items():
        assert_same(taps[tap], formula, 1e-6, tap)
    assert torch.equal(taps["hook_post"], taps["hook_act"] * taps["hook_pre_linear"])
    assert_same(out, linear(part.down_proj, act * up), 1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_plain(name, bias):
    part, x = filled(name, bias)
    out, taps = capture(part, x)
    pre = linear(part.up_proj, x)
    assert isinstance(part, MLP) and set(taps) == {"hook_pre", "hook_post"}
    assert_same(taps["hook_pre"], pre, 1e-6)
    assert_same(taps["hook_post"], PLAIN[name](pre), 1e-6)
    assert_same(out, linear(part.down_proj, PLAIN[name](pre)), 1e-6)


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("d", [768, 3072])
def test_a_gate_of_width_eight_thirds_costs_what_a_plain_mlp_of_width_four_costs(name, d):
    """Three matrices of d x 8d/3 hold as much as two of d x 4d."""
    gated, plain = MLPS[name](d_model=d, d_mlp=8 * d // 3), MLPS["relu"](d_model=d, d_mlp=4 * d)
    assert parameters_of(gated) == parameters_of(plain) == 8 * d * d


def test_llama_3_spends_more_than_that():
    """14,336 instead of 8/3 of 4096: 31 % more than a GELU MLP of width 4d."""
    spent = parameters_of(MLPS["swiglu"](d_model=4096, d_mlp=14_336)) / parameters_of(MLPS["gelu"](d_model=4096, d_mlp=16_384))
    assert spent == pytest.approx(1.3125)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("gelu_tanh", 1.0, 0.841192), ("gelu_tanh", 2.6867, 2.677480), ("gelu", 1.0, 0.841345), ("gelu", 2.6867, 2.677006),
        ("silu", 1.0, 0.731059), ("relu", -1.0, 0.0), ("sigmoid", 0.0, 0.5), ("identity", -3.0, -3.0),
    ],
)  # fmt: skip
def test_activations_by_their_numbers(name, x, expected):
    assert ACTIVATIONS[name](torch.tensor(x)).item() == pytest.approx(expected, abs=1e-6)


def test_the_two_gelus_differ_by_less_than_a_loose_tolerance():
    x = torch.linspace(-6, 6, 10_001)
    assert (ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_tanh"](x)).abs().max().item() == pytest.approx(4.7e-4, abs=1e-5)


def test_an_unknown_activation_is_named_with_the_known():
    with pytest.raises(BlockscopeError, match=r"silu.*'mish'"):
        GLU.Config(d_model=3, d_mlp=5, activation="mish")
