"""How parameters are made from file tensors: which they take, in which shapes, and what comes out."""

import pytest
import torch

from model.checkpoints.families import FAMILIES
from model.checkpoints.names import recipe_of
from model.checkpoints.recipes import Either, Every, Part, Stack, Stored, Turned

FUSED = torch.arange(2 * 3 * 8.0).view(2, 3, 8)  # [expert, d_model, gate and up]


def made(recipe, shape, **tensors):
    """The parameter, once every tensor asked for is known to have the shape asked for."""
    recipe = recipe.chosen(tensors, shape)
    wants = recipe.wants(shape)
    assert wants == {name: tuple(tensors[name].shape) for name in wants}
    out = recipe.read(shape, tensors.__getitem__)
    assert tuple(out.shape) == shape
    return out


def test_as_stored_and_turned():
    x = torch.arange(6.0).view(2, 3)
    assert made(Stored("a"), (2, 3), a=x) is x
    turned = made(Turned("a"), (3, 2), a=x)
    assert torch.equal(turned, x.T) and turned.data_ptr() == x.data_ptr()  # a view: nothing is copied


def test_parts_lie_one_after_another_and_columns_alternate():
    x = torch.arange(2 * 9.0).view(2, 9)  # Conv1D: [in, Q|K|V]
    for n in range(3):
        assert torch.equal(made(Part(Turned("a"), n, 3), (3, 2), a=x), x[:, 3 * n : 3 * n + 3].T)
    assert torch.equal(made(Part("a", 1, 2, axis=-1), (2, 3, 4), a=FUSED), FUSED[..., 4:])
    for n in range(2):
        every = made(Turned(Every("a", n, 2, axis=-1)), (2, 4, 3), a=FUSED)
        assert torch.equal(every, FUSED[..., n::2].transpose(1, 2))


def test_experts_are_stacked_in_order():
    each = {f"x{e}y": torch.full((2, 3), float(e)) for e in range(11)}
    out = made(Stack("x{e}y"), (11, 2, 3), **each)
    assert out[:, 0, 0].tolist() == list(range(11))
    turned = made(Stack(Turned("x{e}y")), (11, 3, 2), **each)
    assert torch.equal(turned, out.transpose(1, 2))


def test_the_layout_that_is_whole_is_taken():
    either = Either(Stack("x{e}"), Part("fused", 0, 2, axis=1))
    each = {"x0": torch.ones(2, 3), "x1": torch.ones(2, 3)}
    assert made(either, (2, 2, 3), **each).mean() == 1
    assert made(either, (2, 2, 3), fused=torch.zeros(2, 4, 3)).mean() == 0
    assert made(either, (2, 2, 3), x1=each["x1"], fused=torch.zeros(2, 4, 3)).mean() == 0
    assert either.chosen(["x1"], (2, 2, 3)).wants((2, 2, 3)) == {"x0": (2, 3), "x1": (2, 3)}  # so that x0 is reported
    assert either.chosen([], (2, 2, 3)) == either.of[0]


def test_names_are_filled_once():
    recipe = Part(Turned("h.{i}.c.{leaf}"), 1, 3).filled("model.", {"i": "7", "leaf": "weight"})
    assert recipe.wants((3, 2)) == {"model.h.7.c.weight": (2, 9)}
    assert Either("{i}a", Stack("{i}{e}")).filled("p.", {"i": "3"}).of == (Stored("p.3a"), Stack("p.3{e}"))


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_names_its_layers(kind):
    family = FAMILIES[kind]
    for name in family.names:
        ours = name.replace("{i}", "12").replace("{leaf}", "weight")
        theirs = recipe_of(ours, family, next(iter(family.prefixes)))
        assert "{" not in str(theirs).replace("{e}", "") and (".12." in str(theirs)) == ("{i}" in name)
