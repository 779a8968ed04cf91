"""consolidated.*.pth: a torch archive read with the restricted unpickler, which makes tensors and nothing else.

torch.load(weights_only=True, mmap=True): no code of the file runs, no tensor is read before it is used
"""

import os
import pickle
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoints.fields import shown
from model.checkpoints.sources import DTYPES, Source
from model.errors import BlockscopeError
from model.files import ordinary

LARGEST_PICKLE = 64 << 20  # bytes of data.pkl, which only names the tensors
NAMED = {dtype: name for name, dtype in DTYPES.items()}
AGAIN = "download the file again"


class Archive:
    """An open file; every tensor is mapped."""

    def __init__(self, file: Path):
        self._tensors = _load(file)

    def get_tensor(self, name: str) -> Tensor:
        return self._tensors[name]


def sources(file: Path) -> dict[str, Source]:
    """Every tensor of the archive by its name there, checked to lie in the file."""
    found = {}
    for name, tensor in _load(file).items():
        form = NAMED.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")
        found[name] = Source(file, name, form, tuple(tensor.shape), form, Archive)
    return found


def _load(file: Path) -> dict[str, Tensor]:
    where = f"{file.parent.name}/{file.name}"
    _check(file, where)
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise BlockscopeError(
            f"{where} holds more than tensors, which only code could rebuild; it is not opened: convert it to safetensors"
        ) from None
    except (
        RuntimeError,
        ValueError,
        OSError,
        EOFError,
        KeyError,
        AttributeError,
        TypeError,
        IndexError,
        AssertionError,
    ) as error:
        raise BlockscopeError(f"{where} is damaged ({str(error).splitlines()[0][:120]}); {AGAIN}") from None
    if not isinstance(loaded, dict) or not loaded:
        raise BlockscopeError(f"{where} holds {shown(type(loaded).__name__)}; expected names and their tensors: {AGAIN}")
    size = os.path.getsize(file)
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise BlockscopeError(f"{where} holds {shown(name)}, which is no tensor; expected names and their tensors: {AGAIN}")
        needed = tensor.numel() * tensor.element_size()
        if tensor.layout != torch.strided or tensor.is_meta or needed > size:
            raise BlockscopeError(f"{where} gives {shown(name)} {needed:,} bytes, more than the file has; {AGAIN}")
    return loaded


def _check(file: Path, where: str) -> None:
    """A zip archive whose list of tensors has a reasonable size, and whose entries are stored as they are."""
    ordinary(file, where)
    with file.open("rb") as opened:
        start = opened.read(4)
    if not start.startswith(b"PK\x03\x04"):
        raise BlockscopeError(
            f"{where} is not a torch archive that can be mapped; save it again with torch.save, or as safetensors"
        )
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, OverflowError):
        raise BlockscopeError(f"{where} is cut short or damaged; {AGAIN}") from None
    if any(one.compress_type != zipfile.ZIP_STORED for one in members):
        raise BlockscopeError(f"{where} is compressed, so that it cannot be mapped; save it again with torch.save")
    if any(one.file_size > LARGEST_PICKLE for one in members if one.filename.endswith(".pkl")):
        raise BlockscopeError(f"{where} lists more than any model has and is not opened; {AGAIN}")
