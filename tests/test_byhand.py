"""The calculators by hand: known answers, and the torch parts as witnesses."""

import math

import pytest
import torch

from model import byhand
from model.errors import BlockscopeError
from model.masks import Causal
from model.mlp import SwiGLU
from model.norms import LayerNorm, RMSNorm
from model.positions import Rope
from model.scores import Scores

VECTORS = [[2, 4, 6, 8], [2, -1, 3, 0], [1.5], [0, 0, 0], [-1e3, 7, 0.25]]


def last(steps):
    return list(steps[-1].values)


def step(steps, name):
    return next(list(s.values) for s in steps if s.name == name)


def test_the_known_answers():
    assert [round(v, 3) for v in last(byhand.rmsnorm([2, 4, 6, 8]))] == [0.365, 0.730, 1.095, 1.461]
    assert [round(v, 2) for v in last(byhand.rmsnorm([2, -1, 3, 0]))] == [1.07, -0.53, 1.60, 0]
    steps = byhand.swiglu()
    assert step(steps, "x") == [1, 2] and step(steps, "gate") == [2, -1] and step(steps, "up") == [3, 1]
    assert [round(v, 3) for v in last(steps)] == [5.285, -0.269]
    a, b = last(byhand.rotation([1, 0], 1, math.pi / 2))
    assert (round(a, 12), round(b, 12)) == (0, 1)


@pytest.mark.parametrize("x", VECTORS, ids=str)
def test_norms_are_the_torch_parts(x):
    t = torch.tensor(x, dtype=torch.float32)
    gain = [0.5 + i for i in range(len(x))]
    for part, ours in (
        (RMSNorm(len(x)), byhand.rmsnorm(x, gain)),
        (LayerNorm(len(x)), byhand.layernorm(x, gain, [0.1] * len(x))),
    ):
        with torch.no_grad():
            part.weight.copy_(torch.tensor(gain))
            if hasattr(part, "bias"):
                part.bias.fill_(0.1)
            assert last(ours) == pytest.approx(part(t).tolist(), rel=1e-5, abs=1e-6)


def test_swiglu_is_the_torch_part():
    part = SwiGLU(2, 2)
    rows = [[0.3, -1.0], [2.0, 0.5]], [[1.0, 4.0], [-0.5, 2.0]], [[1.0, 2.0], [3.0, -4.0]]
    with torch.no_grad():
        for projection, matrix in zip((part.gate_proj, part.up_proj, part.down_proj), rows, strict=True):
            projection.weight.copy_(torch.tensor(matrix))
        theirs = part(torch.tensor([1.0, -2.0])).tolist()
    assert last(byhand.swiglu([1, -2], *rows)) == pytest.approx(theirs, rel=1e-5)


def test_the_rotation_is_the_torch_part_and_keeps_lengths():
    rope = Rope.Config(d=2, base=10_000.0, pairing="half").build()
    turn = rope(torch.tensor([5]), 6)
    theirs = rope.rotate(torch.tensor([[[[0.6, -1.7]]]]), turn).flatten().tolist()
    ours = last(byhand.rotation([0.6, -1.7], 5, 1.0))
    assert ours == pytest.approx(theirs, rel=1e-6) and math.hypot(*ours) == pytest.approx(math.hypot(0.6, -1.7))


class Two(Scores):
    """Attention of one head with two coordinates, for its logits and its softmax."""

    def __init__(self):
        super().__init__()
        self.add_scores(scale=2**-0.5, mask=Causal(), n_heads=1)


def test_softmax_grows_sharp_and_qk_norm_holds_it():
    steps = byhand.two_scores()
    table = steps[-1]
    columns = dict(zip(table.columns, zip(*table.rows, strict=True), strict=True))
    assert list(columns["p₁"]) == sorted(columns["p₁"]) and columns["p₁"][-1] > 0.9999
    assert list(columns["entropy"]) == sorted(columns["entropy"], reverse=True)
    assert max(columns["p₁ normed"]) - min(columns["p₁ normed"]) < 1e-6  # eps alone moves it
    assert max(map(abs, columns["s₁ normed"] + columns["s₂ normed"])) <= math.sqrt(2)
    two = Two()
    for c, s1, s2, p1, *_, n1, n2, m1, _ in table.rows:
        q, k = c * torch.tensor([2.0, 1.0]).view(1, 1, 1, 2), torch.eye(2).view(1, 2, 1, 2)
        norm = RMSNorm(2, 1e-6)
        for (a, b), (l1, l2), first in (((q, k), (s1, s2), p1), ((norm(q), norm(k)), (n1, n2), m1)):
            logits = two.logits(a, b)
            assert logits.flatten().tolist() == pytest.approx([l1, l2], rel=1e-5, abs=1e-6)
            assert two.softmax(logits)[0].flatten().tolist() == pytest.approx([first, 1 - first], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("x", [[], "2,4", None, [1] * 17, [float("nan")], [float("inf")], [True], [1e9], ["3"], [[1]]], ids=str)
def test_what_is_not_a_vector_is_a_sentence(x):
    for calculator in byhand.CALCULATORS.values():
        with pytest.raises(BlockscopeError):
            calculator(x)


def test_no_vector_overflows():
    for x in ([1e6, -1e6], [1e-300, 0.0]):
        for calculator in byhand.CALCULATORS.values():
            for one in calculator(x):
                assert all(math.isfinite(v) for v in (*one.values, *(v for row in one.rows for v in row)))
    with pytest.raises(BlockscopeError, match="without any length"):
        byhand.rmsnorm([0, 0], eps=0)


def test_what_is_said_of_a_normalised_vector_is_what_it_is():
    def said(steps, name):
        return next(step.formula for step in steps if step.name == name)

    assert said(byhand.rmsnorm([2, 4, 6, 8]), "x / rms") == "its RMS is 1"
    assert said(byhand.rmsnorm([0, 0]), "x / rms") == "its RMS is 0: there is no length to divide by"
    assert said(byhand.rmsnorm([0.003, 0], eps=1e-5), "x / rms").startswith("its RMS is 0.557: ε is not small")
    assert said(byhand.layernorm([3, 3]), "(x − mean) / σ") == "mean 0, RMS 0: there is no length to divide by"
    assert "however long q is" in said(byhand.two_scores(), "RMSNorm(q)")
    assert said(byhand.two_scores([0, 0]), "RMSNorm(q)") == "q has no length"
