"""Operations that undo what a conversion to GGUF did to a tensor."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.checkpoints.recipes import Get, Recipe, Shape, recipe


@dataclass(frozen=True)
class Halves(Recipe):
    """Rows of q or k put back from adjacent pairs, which llama.cpp turns, to the two halves of a head that Hugging Face
    turns: row 2p goes to p, row 2p + 1 to p + width / 2, within each head of `width` rows."""

    width: int

    def before(self, shape: Shape) -> Shape:
        return shape

    def apply(self, tensor: Tensor) -> Tensor:
        heads = tensor.unflatten(0, (-1, self.width // 2, 2))
        return heads.transpose(1, 2).reshape(tensor.shape)


@dataclass(frozen=True)
class Shifted(Recipe):
    """A gain that was stored as 1 + w, in fp32: -> w, Gemma's own parameter."""

    def before(self, shape: Shape) -> Shape:
        return shape

    def apply(self, tensor: Tensor) -> Tensor:
        return tensor.float() - 1


@dataclass(frozen=True)
class KeysAndValues(Recipe):
    """Latent attention's up-projection from its two halves: keys [head, latent, nope], values [head, value, latent] ->
    [head * (nope + value), latent]."""

    of: tuple[Recipe, ...]
    heads: int
    nope: int

    def __post_init__(self):
        object.__setattr__(self, "of", tuple(map(recipe, self.of)))

    def filled(self, prefix: str, slots: Mapping[str, str]) -> "KeysAndValues":
        return replace(self, of=tuple(one.filled(prefix, slots) for one in self.of))

    def wants(self, shape: Shape) -> dict[str, Shape]:
        k, v = self._shapes(shape)
        return self.of[0].wants(k) | self.of[1].wants(v)

    def read(self, shape: Shape, get: Get) -> Tensor:
        keys, values = (one.read(size, get) for one, size in zip(self.of, self._shapes(shape), strict=True))
        return torch.cat([keys.transpose(1, 2), values], dim=1).reshape(shape)

    def _shapes(self, shape: Shape) -> tuple[Shape, Shape]:
        rows, latent = shape
        return (self.heads, latent, self.nope), (self.heads, rows // self.heads - self.nope, latent)
