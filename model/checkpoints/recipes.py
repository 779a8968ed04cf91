"""How one of our parameters is made from the tensors of a file: as it lies there, turned, cut out, or stacked.

A family's table gives a recipe for every parameter, in names below the prefix of the file. `{i}` stands for the layer,
`{leaf}` for weight or bias, `{e}` for the expert; a plain string is a tensor taken as it is:

    "blocks.{i}.ln1.{leaf}": "layers.{i}.input_layernorm.{leaf}",
    "blocks.{i}.attn.k_proj.weight": Part(Turned("h.{i}.attn.c_attn.weight"), 1, 3),
    "blocks.{i}.mlp.experts.up_proj": Either(Stack("layers.{i}.mlp.experts.{e}.up_proj.weight"),
                                             Part("layers.{i}.mlp.experts.gate_up_proj", 1, 2, axis=-2)),
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Union

from torch import Tensor

from model.halting import check

Shape = tuple[int, ...]
Get = Callable[[str], Tensor]  # file tensor by name, mapped


@dataclass(frozen=True)
class Recipe:
    """Base: an operation on the one tensor that `of` gives."""

    of: Union["Recipe", str]

    def __post_init__(self):
        object.__setattr__(self, "of", recipe(self.of))

    def filled(self, prefix: str, slots: Mapping[str, str]) -> "Recipe":
        """The same with the prefix of a file before every name, and the layer and leaf in it."""
        return replace(self, of=self.of.filled(prefix, slots))

    def chosen(self, found: Collection[str], shape: Shape) -> "Recipe":
        """What is left of the alternatives once it is known which tensors the files hold."""
        return self

    def wants(self, shape: Shape) -> dict[str, Shape]:
        """Every file tensor that a parameter of `shape` takes, and the shape that it must have."""
        return self.of.wants(self.before(shape))

    def read(self, shape: Shape, get: Get) -> Tensor:
        """The parameter; a view of the mapped file where the layout allows it."""
        return self.apply(self.of.read(self.before(shape), get))

    def before(self, shape: Shape) -> Shape:
        """The shape that the operation turns into `shape`."""
        raise NotImplementedError

    def apply(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Stored(Recipe):
    """The file's tensor as it is."""

    of: str

    def __post_init__(self):
        pass

    def filled(self, prefix: str, slots: Mapping[str, str]) -> "Stored":
        name = self.of
        for slot, value in slots.items():
            name = name.replace(f"{{{slot}}}", value)
        return Stored(prefix + name)

    def wants(self, shape: Shape) -> dict[str, Shape]:
        return {self.of: shape}

    def read(self, shape: Shape, get: Get) -> Tensor:
        return get(self.of)


@dataclass(frozen=True)
class Turned(Recipe):
    """The last two axes exchanged: a matrix stored input first (GPT-2's Conv1D, gpt-oss)."""

    def before(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1], shape[-2])

    def apply(self, tensor: Tensor) -> Tensor:
        return tensor.transpose(-1, -2)


@dataclass(frozen=True)
class Part(Recipe):
    """Equal part `index` of `count` that lie one after another along `axis`: Q|K|V, gate|up."""

    index: int
    count: int
    axis: int = 0

    def before(self, shape: Shape) -> Shape:
        return _times(shape, self.axis, self.count)

    def apply(self, tensor: Tensor) -> Tensor:
        return tensor.chunk(self.count, dim=self.axis)[self.index]


@dataclass(frozen=True)
class Every(Recipe):
    """Entries `index`, `index` + `count`, ... along `axis`: gate and up in alternating columns."""

    index: int
    count: int
    axis: int = 0

    def before(self, shape: Shape) -> Shape:
        return _times(shape, self.axis, self.count)

    def apply(self, tensor: Tensor) -> Tensor:
        at = [slice(None)] * tensor.ndim
        at[self.axis] = slice(self.index, None, self.count)
        return tensor[tuple(at)].contiguous()  # a copy: a matrix with gaps would be packed anew at every use


@dataclass(frozen=True)
class Stack(Recipe):
    """One tensor for each expert `{e}`, stacked along a new first axis, as many as the model of the config has."""

    def wants(self, shape: Shape) -> dict[str, Shape]:
        return {name: size for one in self.experts(shape) for name, size in one.wants(shape[1:]).items()}

    def read(self, shape: Shape, get: Get) -> Tensor:
        out = None
        for e, one in enumerate(self.experts(shape)):  # one at a time: no expert is in memory twice
            check()
            read = one.read(shape[1:], get)
            out = read.new_empty(shape) if out is None else out
            out[e] = read
        return out

    def experts(self, shape: Shape) -> list[Recipe]:
        return [self.of.filled("", {"e": str(e)}) for e in range(shape[0])]


@dataclass(frozen=True, init=False)
class Either(Recipe):
    """Layouts of one and the same parameter: the first that the files hold whole; if none, the first they hold a part of."""

    of: tuple[Recipe, ...]

    def __init__(self, *of: Recipe | str):
        object.__setattr__(self, "of", tuple(map(recipe, of)))

    def filled(self, prefix: str, slots: Mapping[str, str]) -> "Either":
        return Either(*(one.filled(prefix, slots) for one in self.of))

    def chosen(self, found: Collection[str], shape: Shape) -> Recipe:
        def fit(one: Recipe) -> tuple[bool, bool]:
            there = [name in found for name in one.wants(shape)]
            return all(there), any(there)

        return max(self.of, key=fit)  # of equals, the first


def recipe(given: Recipe | str) -> Recipe:
    return Stored(given) if isinstance(given, str) else given


def table(entries: Mapping[str, Recipe | str]) -> Mapping[str, Recipe]:
    """Our parameters -> how they are made; read only."""
    return MappingProxyType({name: recipe(given) for name, given in entries.items()})


def _times(shape: Shape, axis: int, count: int) -> Shape:
    axis %= len(shape)
    return (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
