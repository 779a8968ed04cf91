"""The training text: Python's own standard library as installed here, split by file, as bytes."""

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from model.errors import BlockscopeError

LEFT_OUT = {  # tests, generated tables and installed packages: not the library's own source
    "test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data", "lib2to3", "__pycache__",
}  # fmt: skip


@dataclass(frozen=True)
class Corpus:
    """`train` and `validation` are uint8 [pos]; `sha256` names exactly these bytes."""

    train: Tensor
    validation: Tensor
    sha256: str
    files: tuple[int, int]  # train, validation


def standard_library() -> Corpus:
    """Every .py file of the standard library in path order; one file in twenty, by the hash of its path, validates."""
    root = Path(sysconfig.get_path("stdlib"))
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if LEFT_OUT & set(name.parts) or name.stem in ("turtledemo",) or name.stem.startswith("_sysconfigdata"):
            continue
        held_out = int.from_bytes(hashlib.sha256(name.as_posix().encode()).digest(), "big") % 20 == 0
        parts[held_out].append(path.read_bytes())
    if not all(parts):
        raise BlockscopeError(f"no Python source found below {root.name}: this interpreter ships without its library's source")
    joined = [b"\n".join(files) for files in parts]
    digest = hashlib.sha256(b"\0".join(joined)).hexdigest()
    train, validation = (torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in joined)
    return Corpus(train, validation, digest, (len(parts[0]), len(parts[1])))
