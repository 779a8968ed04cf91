"""The parts against values worked out by hand, and against formulas written out a second way."""

import math

import pytest
import torch
from conftest import assert_same

from model.errors import BlockscopeError
from model.masks import Causal, Sliding
from model.mlp import SwiGLU
from model.norms import LayerNorm, RMSNorm
from model.positions import Dynamic, Linear, Llama3, Rope, Yarn


def close(actual, expected, tolerance=5e-4):
    torch.testing.assert_close(torch.as_tensor(actual).float(), torch.tensor(expected), atol=tolerance, rtol=0)


def rope(**kwargs):
    return Rope.Config(**{"pairing": "half", "base": 1e4, **kwargs})


def test_rmsnorm_by_hand():
    close(RMSNorm(4, eps=0)(torch.tensor([2.0, 4, 6, 8])).detach(), [0.365, 0.730, 1.095, 1.461])
    close(RMSNorm(4, eps=0)(torch.tensor([2.0, -1, 3, 0])).detach(), [1.069, -0.535, 1.604, 0.0])


@pytest.mark.parametrize(("eps", "expected"), [(1e-5, 0.30151137), (1e-6, 0.70710677)])
def test_eps_sits_inside_the_root(eps, expected):
    close(RMSNorm(4, eps=eps)(torch.full((4,), 1e-3)).detach(), [expected] * 4, 1e-7)


def test_rmsnorm_casts_before_the_gain():
    norm = RMSNorm(4, eps=1e-5).bfloat16()
    norm.weight.data = torch.tensor([1, 1.5, 1, 1], dtype=torch.bfloat16)
    out = norm(torch.tensor([1, 1.0078125, 0.5, 2], dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16 and out[1].item() == 1.203125


def test_norms_over_one_or_two_axes():
    x = torch.tensor([[[[3.0, 4.0], [0.0, 0.0]]]])  # two heads of two
    close(RMSNorm(4, eps=0, dims="batch pos head d_head", axes=2)(x).detach().flatten(), [1.2, 1.6, 0, 0], 1e-6)
    per_head = RMSNorm(2, eps=1e-30, dims="batch pos head d_head", axes=1)(x)
    close(per_head.detach().flatten(), [0.848528, 1.131371, 0, 0], 1e-6)


def test_layernorm_equals_torch():
    x, ours, theirs = torch.randn(3, 5, 14), LayerNorm(14, eps=1e-3), torch.nn.LayerNorm(14, eps=1e-3)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        p.data = torch.randn(14)
        q.data = p.data
    assert_same(ours(x), theirs(x), 1e-6)


def test_swiglu_by_hand():
    """x = [1, 2] with gate [2, -1] and up [3, 1]."""
    mlp = SwiGLU(2, 2)
    mlp.gate_proj.weight.data = torch.tensor([[2.0, 0], [-1, 0]])
    mlp.up_proj.weight.data = torch.tensor([[1.0, 1], [-1, 1]])
    mlp.down_proj.weight.data = torch.eye(2)
    close(mlp(torch.tensor([1.0, 2.0])).detach(), [5.285, -0.269])


def test_classic_shape_check():
    with torch.device("meta"):
        assert SwiGLU(4096, 14336)(RMSNorm(4096)(torch.empty(2, 5, 4096))).shape == (2, 5, 4096)


def test_rope_frequency_of_a_base():
    close(rope(d=8, base=5e5).frequencies()[0][1], 0.0376060, 1e-7)


@pytest.mark.parametrize(
    ("d", "factor", "pairs"),
    [(64, 32.0, {15: 1.29054801e-3, 16: 4.29556705e-4, 17: 9.70828623e-5}), (128, 8.0, {32: 5.24846022e-4})],
)
def test_llama3_scaling(d, factor, pairs):
    scaling = Llama3(factor=factor, low=1, high=4, original=8192)
    config = rope(d=d, base=5e5, scaling=scaling)
    scaled, magnitude = config.frequencies()
    for pair, expected in pairs.items():
        assert scaled[pair].item() == pytest.approx(expected, rel=1e-5)
    first, last = min(pairs), max(pairs)
    keep = 15 if d == 64 else 29
    assert torch.equal(scaled[:keep], config.unscaled()[:keep]) and first >= keep and magnitude == 1.0
    assert torch.allclose(scaled[35 if d == 128 else last + 1 :], config.unscaled()[35 if d == 128 else last + 1 :] / factor)


@pytest.mark.parametrize(
    ("truncate", "ratios"), [(False, [1, 0.905551, 0.801443, 0.697335]), (True, [1, 0.903125, 0.806250, 0.709375])]
)
def test_yarn_ramp(truncate, ratios):
    config = rope(d=64, base=150_000.0, scaling=Yarn(factor=32, original=4096, truncate=truncate))
    scaled, magnitude = config.frequencies()
    close((scaled / config.unscaled())[8:12], ratios, 2e-6)
    assert magnitude == pytest.approx(1.346574, abs=1e-6)


def test_yarn_factor_on_cos_and_sin():
    assert Yarn(factor=4, original=16, attention_factor=1.0).magnitude() == 1.0
    assert Yarn(factor=4, original=16).magnitude() == pytest.approx(1.138629, abs=1e-6)
    assert Yarn(factor=40, original=16, mscale=1.0, mscale_all_dim=1.0).magnitude() == 1.0


def test_linear_and_dynamic_scaling():
    plain = rope(d=8).unscaled()
    assert torch.equal(rope(d=8, scaling=Linear(factor=8.0)).frequencies()[0], plain / 8)
    dynamic = rope(d=8, scaling=Dynamic(factor=2.0, original=16))
    assert torch.equal(dynamic.frequencies(16)[0], plain)
    grown = 1e4 * (2 * 24 / 16 - 1) ** (8 / 6)
    assert torch.allclose(dynamic.frequencies(24)[0], 1 / grown ** (torch.arange(0, 8, 2) / 8))


@pytest.mark.parametrize(("pairing", "expected"), [("interleaved", 0.540302), ("half", 0.999950)])
def test_pairing(pairing, expected):
    """q = unit vector 1 at position 1, k the same at position 0, width 4, base 1e4."""
    part = rope(d=4, pairing=pairing).build()
    unit = torch.zeros(1, 2, 1, 4)
    unit[..., 1] = 1
    turned = part.rotate(unit, part(torch.arange(2), 2))[0, :, 0]
    assert (turned[1] @ turned[0]).item() == pytest.approx(expected, abs=1e-6)


def test_rotation_depends_on_distance_alone_and_keeps_length():
    part = rope(d=10, base=1e3).build()
    q, k = torch.randn(2, 1, 1, 1, 14)
    turn = part(torch.tensor([3, 11, 20, 28]), 29)
    q, k = (part.rotate(x.expand(1, 4, 1, 14), turn)[0, :, 0] for x in (q, k))
    assert (q[1] @ k[0]).item() == pytest.approx((q[3] @ k[2]).item(), abs=1e-5)
    assert torch.allclose(q.norm(dim=-1), q[0].norm().expand(4), atol=1e-5)


def test_angles_stay_fp32_in_a_bf16_model():
    cos, _ = rope(d=8).build().to(torch.bfloat16)(torch.tensor([256, 257]), 258)
    assert cos.dtype == torch.float32
    close(cos[:, 0], [-0.039791, 0.819306], 1e-5)


@pytest.mark.parametrize("window", [1, 3, 100])
def test_masks_are_the_written_out_matrices(window):
    at = torch.arange(5)
    causal = [[j <= i for j in range(5)] for i in range(5)]
    sliding = [[j <= i and i - j < window for j in range(5)] for i in range(5)]
    assert Causal()(at, at).tolist() == causal and Sliding(window=window)(at, at).tolist() == sliding
    assert Sliding(window=3)(at, at).sum(1).tolist() == [1, 2, 3, 3, 3]
    assert Causal()(at[3:], at).tolist() == causal[3:]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rope(d=7), "even"),
        (lambda: rope(d=8, pairing="other"), "pairing"),
        (lambda: rope(d=8, base=0.5), "base"),
        (lambda: rope(d=8, scaling=Linear(factor=0.5)), "factor"),
        (lambda: Sliding(window=0), "window"),
        (lambda: RMSNorm.Config(d=0), "width"),
        (lambda: RMSNorm.Config(d=4, eps=-1.0), "eps"),
        (lambda: RMSNorm.Config(d=4, eps=math.nan), "eps"),
        (lambda: SwiGLU.Config(d_model=0, d_mlp=3), "d_model"),
        (lambda: Llama3(factor=2, low=5, high=4, original=8), "low"),
    ],
)
def test_bad_configurations_are_named(make, words):
    with pytest.raises(BlockscopeError, match=words):
        make()
