"""Where a tensor lies: one stored in a file, or one made of several (a quantised matrix and its scales, slices of ranks)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from model.checkpoints.recipes import Shape

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Handle(Protocol):
    """An open weight file."""

    def get_tensor(self, name: str) -> Tensor: ...


Open = Callable[[Path], Handle]
GetHandle = Callable[[Path, Open], Handle]

open_safetensors: Open = partial(safe_open, framework="pt", device="cpu")


@dataclass(frozen=True)
class Source:
    """One tensor of a file: the name, format and shape that it is stored with there.

    `reads`: the format that reading gives, where it is another (a quantised block is expanded to F32).
    """

    file: Path
    name: str
    dtype: str
    shape: Shape
    reads: str = ""
    opener: Open = open_safetensors

    def __post_init__(self):
        object.__setattr__(self, "reads", self.reads or self.dtype)

    @property
    def parts(self) -> tuple["Source", ...]:
        """The stored tensors behind this one."""
        return (self,)

    @property
    def files(self) -> set[Path]:
        return {part.file for part in self.parts}

    def read(self, handle: GetHandle) -> Tensor:
        return handle(self.file, self.opener).get_tensor(self.name)


@dataclass(frozen=True)
class Made(Source):
    """A tensor computed from `of`, in this order, by `make`; `name` is what the model's files would call it."""

    of: tuple[Source, ...] = ()
    make: Callable[..., Tensor] = torch.cat

    @property
    def parts(self) -> tuple[Source, ...]:
        return tuple(part for one in self.of for part in one.parts)

    def read(self, handle: GetHandle) -> Tensor:
        return self.make(*(one.read(handle) for one in self.of))
