"""Weights by our own parameter names, each read from its file when it is asked for and not before."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import torch
from safetensors import SafetensorError
from torch import Tensor

from model.checkpoints.recipes import Recipe, Shape, Stored
from model.checkpoints.sources import DTYPES, Open, Source
from model.errors import BlockscopeError


@dataclass(frozen=True)
class Parameter:
    """One parameter of the model: its shape, how it is made, and of which tensors, all read as one dtype."""

    recipe: Recipe
    sources: tuple[Source, ...]
    shape: Shape

    @classmethod
    def whole(cls, source: Source) -> "Parameter":
        """A parameter that is a tensor of a file as it stands."""
        return cls(Stored(source.name), (source,), source.shape)


class Tensors:
    """Lazy weights: names, shapes and dtypes are known; `read` maps one parameter from its files, in their dtype.

    Files stay open (mapped, not loaded) once they were read from, until `close`. A tied unembedding has the embedding's own
    source. Quantised tensors are expanded when they are read, one at a time.
    """

    def __init__(self, parameters: Mapping[str, Parameter]):
        self._parameters = MappingProxyType(dict(parameters))
        files = {file for parameter in self._parameters.values() for source in parameter.sources for file in source.files}
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
        """The dtype that `read` gives."""
        return DTYPES[self._parameter(name).sources[0].reads]

    def stored(self, name: str) -> tuple[str, ...]:
        """The names in the files of the tensors that this parameter is made of."""
        return tuple(part.name for source in self._parameter(name).sources for part in source.parts)

    def read(self, name: str) -> Tensor:
        """The whole parameter, on the CPU. Its memory may be the mapped file's: write to a copy, never to it."""
        parameter = self._parameter(name)
        sources = {source.name: source for source in parameter.sources}
        with self._lock:
            return parameter.recipe.read(parameter.shape, lambda tensor: self._get(sources[tensor]))

    def intact(self) -> None:
        """Raises BlockscopeError where a file was cut or written over since it was checked: its mapped pages are others now,
        and those past its new end would end the process. One that was replaced or removed is still there for who mapped it."""
        for file, then in self._stamps.items():
            with suppress(OSError):
                now = _stamp(file)
                if now != then and now[0] == then[0]:
                    raise changed(file)

    def close(self) -> None:
        """Unmap every file. Tensors already read keep what they need of them; reading another opens its file again."""
        with self._lock:
            self._open.clear()

    def _parameter(self, name: str) -> Parameter:
        if name not in self._parameters:
            raise BlockscopeError(f"there is no parameter {name!r} among the {len(self)} of this checkpoint")
        return self._parameters[name]

    def _get(self, source: Source) -> Tensor:
        try:
            return source.read(self._handle)
        except (SafetensorError, OSError) as error:
            raise BlockscopeError(
                f"{source.name} cannot be read from {source.file.name} ({error}); download the file again"
            ) from None

    def _handle(self, file: Path, opener: Open):
        """The open file, which is still the one that was checked: reading past the end of a mapped file ends the process."""
        try:
            stamp = _stamp(file)
        except OSError:
            raise BlockscopeError(f"{file.name} is no longer in its folder; put it back, or open the model again") from None
        if stamp != self._stamps[file]:
            raise changed(file)
        if file not in self._open:
            self._open[file] = opener(file)
        return self._open[file]


def changed(file: Path) -> BlockscopeError:
    return BlockscopeError(f"{file.name} changed on disk after the model was opened; open the model again")


def _stamp(file: Path) -> tuple[tuple[int, int], int, int]:
    """Which file it is, its size, and when it was written last."""
    status = file.stat()
    return (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns
