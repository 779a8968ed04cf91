"""The training text as bytes: Python's own standard library as installed here, or any text file or folder, split by file."""

import hashlib
import os
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoints.fields import shown
from model.errors import BlockscopeError
from model.growth.ngrams import ngram_losses

LEFT_OUT = {  # tests, generated tables and installed packages: not the library's own source
    "test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "pydoc_data", "lib2to3", "__pycache__",
}  # fmt: skip
LARGEST = 256 << 20  # bytes of text
MOST_FILES = 100_000
HELD_OUT = 20  # one file in so many validates
BY_FILE, LAST_TENTH = "by file", "its last tenth"


@dataclass(frozen=True, eq=False)
class Corpus:
    """`train` and `validation` are uint8 [pos]; `sha256` names exactly these bytes."""

    train: Tensor
    validation: Tensor
    sha256: str
    files: tuple[int, int]  # train, validation
    name: str = "text"
    split: str = BY_FILE

    def require(self, context: int) -> None:
        """Both parts must hold at least one sequence and the token after it."""
        for part, text in (("training", self.train), ("validation", self.validation)):
            if len(text) < context + 2:
                raise BlockscopeError(
                    f"the {part} part of {self.name} has {len(text):,} bytes, fewer than one sequence of {context} and "
                    "its next byte: give more text, or a shorter context"
                )

    def described(self) -> dict:
        """What a record says of it."""
        sizes = {"bytes": [len(self.train), len(self.validation)], "files": list(self.files), "split": self.split}
        return {"name": self.name, "sha256": self.sha256, **sizes, "ngrams": self.ngrams}

    @cached_property
    def ngrams(self) -> dict[str, float]:
        """Nats per byte of n-gram models, "1" to "3" (model.growth.ngrams)."""
        return ngram_losses(self.train.numpy(), self.validation.numpy())


def standard_library() -> Corpus:
    """Every .py file of the standard library in path order; one file in twenty, by the hash of its path, validates."""
    root = Path(sysconfig.get_path("stdlib"))
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if LEFT_OUT & set(name.parts) or name.stem in ("turtledemo",) or name.stem.startswith("_sysconfigdata"):
            continue
        parts[_digest(name.as_posix()) % HELD_OUT == 0].append(path.read_bytes())
    if not all(parts):
        raise BlockscopeError(f"no Python source found below {root.name}: this interpreter ships without its library's source")
    return _joined(*parts, "Python's standard library")


def from_path(source: str | Path) -> Corpus:
    """A text file, whose last tenth validates, or a folder of them, of which whole files validate: one in twenty, by the hash
    of its path, and if that is none, the one whose hash is lowest. Files that hold a zero byte are not text and left out."""
    path, name = Path(source).expanduser(), shown(Path(source).name or str(source))[1:-1]  # control characters escaped
    try:
        if path.is_dir():
            return _split(_texts(path), name)
        if not path.is_file():
            raise BlockscopeError(f"there is no text file or folder {shown(str(source), 200)}")
        if path.stat().st_size > LARGEST:
            raise BlockscopeError(
                f"{name} has {path.stat().st_size:,} bytes; at most {LARGEST:,} bytes are read: give a part of it"
            )
        return from_bytes(path.read_bytes(), name)
    except (OSError, ValueError) as error:
        if isinstance(error, BlockscopeError):
            raise
        raise BlockscopeError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def from_bytes(text: bytes, name: str) -> Corpus:
    """One text, whose last tenth validates."""
    if not text:
        raise BlockscopeError(f"{name} is empty: give a file with some text")
    if b"\0" in text:
        raise BlockscopeError(f"{name} holds zero bytes: it is not a text file")
    cut = len(text) - max(1, len(text) // 10)
    return _joined([text[:cut]], [text[cut:]], name, LAST_TENTH)


def _texts(root: Path) -> Iterable[tuple[str, bytes]]:
    """(path below root, content) of every text file, in path order. Links and hidden files are not followed or read."""
    found, total = [], 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        paths = (Path(folder) / file for file in files if not file.startswith("."))
        found += [path for path in paths if path.is_file() and not path.is_symlink()]
        if len(found) > MOST_FILES:
            raise BlockscopeError(f"{root.name} has more than {MOST_FILES:,} files: give a smaller folder")
    for path in sorted(found, key=lambda path: path.relative_to(root).as_posix()):
        total += path.stat().st_size
        if total > LARGEST:
            raise BlockscopeError(f"{root.name} has more than {LARGEST:,} bytes: give a smaller folder")
        text = path.read_bytes()
        if text and b"\0" not in text:
            yield path.relative_to(root).as_posix(), text


def _split(texts: Iterable[tuple[str, bytes]], name: str) -> Corpus:
    texts = sorted(texts)
    if len(texts) < 2:
        raise BlockscopeError(
            f"{name} has {len(texts)} text files; a folder is split by file and needs two: give the file itself"
        )
    held = {path for path, _ in texts if _digest(path) % HELD_OUT == 0}
    if not 0 < len(held) < len(texts):
        held = {min((path for path, _ in texts), key=_digest)}
    return _joined([text for path, text in texts if path not in held], [text for path, text in texts if path in held], name)


def _digest(path: str) -> int:
    return int.from_bytes(hashlib.sha256(os.fsencode(path)).digest(), "big")


def _joined(train: list[bytes], validation: list[bytes], name: str, split: str = BY_FILE) -> Corpus:
    joined = [b"\n".join(train), b"\n".join(validation)]
    digest = hashlib.sha256(b"\0".join(joined)).hexdigest()
    first, second = (torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in joined)
    return Corpus(first, second, digest, (len(train), len(validation)), name, split)
