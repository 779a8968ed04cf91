"""Weights by our own parameter names, each read from its file when it is asked for and not before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.checkpoints.recipes import Recipe, Shape, Stored
from model.errors import BlockscopeError

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Source:
    """Where one tensor lies: a safetensors file and the tensor's name in it."""

    file: Path
    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model: its shape, how it is made, and of which tensors, all of one dtype."""

    recipe: Recipe
    sources: tuple[Source, ...]
    shape: Shape

    @classmethod
    def whole(cls, source: Source) -> "Parameter":
        """A parameter that is a tensor of a file as it stands."""
        return cls(Stored(source.name), (source,), source.shape)


class Tensors:
    """Lazy weights: names, shapes and dtypes are known; `read` maps one parameter from its files, in their dtype.

    Files stay open (mapped, not loaded) once they were read from. A tied unembedding has the embedding's own source.
    """

    def __init__(self, parameters: Mapping[str, Parameter]):
        self._parameters = MappingProxyType(dict(parameters))
        files = {source.file for parameter in self._parameters.values() for source in parameter.sources}
        self._stamps = {file: _stamp(file) for file in files}
        self._open: dict[Path, object] = {}
        self._lock = Lock()

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def names(self) -> list[str]:
        """Our parameter names, in the order of the model's modules."""
        return list(self._parameters)

    def shape(self, name: str) -> Shape:
        return self._parameter(name).shape

    def dtype(self, name: str) -> torch.dtype:
        return DTYPES[self._parameter(name).sources[0].dtype]

    def read(self, name: str) -> Tensor:
        """The whole parameter, on the CPU. Its memory may be the mapped file's: write to a copy, never to it."""
        parameter = self._parameter(name)
        sources = {source.name: source for source in parameter.sources}
        with self._lock:
            return parameter.recipe.read(parameter.shape, lambda tensor: self._map(sources[tensor]))

    def _parameter(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise BlockscopeError(f"there is no parameter {name!r} among the {len(self)} of this checkpoint")
        return self._parameters[name]

    def _map(self, source: Source) -> Tensor:
        try:
            return self._handle(source.file).get_tensor(source.name)
        except (SafetensorError, OSError) as error:
            raise BlockscopeError(
                f"{source.name} cannot be read from {source.file.name} ({error}); download the file again"
            ) from None

    def _handle(self, file: Path):
        if file not in self._open:
            if not file.is_file() or _stamp(file) != self._stamps[file]:
                raise BlockscopeError(f"{file.name} changed on disk after the model was opened; open the model again")
            self._open[file] = safe_open(file, framework="pt", device="cpu")
        return self._open[file]


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
