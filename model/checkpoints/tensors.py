"""Weights by our own parameter names, each read from its file when it is asked for and not before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.errors import BlockscopeError

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Source:
    """Where one parameter lies: a safetensors file and the tensor's name in it."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]


class Tensors:
    """Lazy weights: names, shapes and dtypes are known; `read` maps one tensor from its file, in the file's dtype.

    Files stay open (mapped, not loaded) once they were read from. A tied unembedding has the embedding's own source.
    """

    def __init__(self, sources: Mapping[str, Source]):
        self._sources = MappingProxyType(dict(sources))
        self._stamps = {source.file: _stamp(source.file) for source in self._sources.values()}
        self._open: dict[Path, object] = {}
        self._lock = Lock()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def names(self) -> list[str]:
        """Our parameter names, in the order of the model's modules."""
        return list(self._sources)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source(name).shape

    def dtype(self, name: str) -> torch.dtype:
        return DTYPES[self._source(name).dtype]

    def read(self, name: str) -> Tensor:
        """The whole tensor, on the CPU. Its memory is the mapped file's: write to a copy, never to it."""
        source = self._source(name)
        try:
            with self._lock:
                return self._handle(source.file).get_tensor(source.name)
        except (SafetensorError, OSError) as error:
            raise BlockscopeError(
                f"{source.name} cannot be read from {source.file.name} ({error}); download the file again"
            ) from None

    def _source(self, name: str) -> Source:
        if name not in self._sources:
            raise BlockscopeError(f"there is no parameter {name!r} among the {len(self)} of this checkpoint")
        return self._sources[name]

    def _handle(self, file: Path):
        if file not in self._open:
            if not file.is_file() or _stamp(file) != self._stamps[file]:
                raise BlockscopeError(f"{file.name} changed on disk after the model was opened; open the model again")
            self._open[file] = safe_open(file, framework="pt", device="cpu")
        return self._open[file]


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
