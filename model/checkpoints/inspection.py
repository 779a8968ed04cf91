"""What is in a model's files, before anything of it runs: tensors, settings, sizes, and whether the numbers add up."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.fields import Field
from model.checkpoints.opening import open_checkpoint
from model.counting import count_config
from model.lm import Decoder
from model.tokens import Tokenizer


@dataclass(frozen=True)
class File:
    """A file that the model is read from. `name` is its path below the model's folder."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Row:
    """One tensor as it is stored. `ours`: the parameters made of it, none where it is not read; `dtype` as stored (F8_E4M3,
    Q4_K ...)."""

    name: str
    ours: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    file: str


@dataclass(frozen=True)
class Inspection:
    """`parameters_found`: numbers that the files give the model, a tied unembedding once; `parameters_expected`: what its
    config asks for. `fields`: each setting, "used", "unused" or "defaulted", and where its value came from.
    """

    path: Path
    format: str
    files: tuple[File, ...]
    tensors: tuple[Row, ...]
    fields: tuple[Field, ...]
    parameters_found: int
    parameters_expected: int
    config: Decoder.Config
    tokenizer: Tokenizer | None
    notes: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.bytes for file in self.files)

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Inspection":
        tied = {"unembed.weight"} if checkpoint.config.tied else set()
        counted = [name for name in checkpoint.tensors if name not in tied]
        return cls(
            path=checkpoint.path,
            format=checkpoint.format,
            files=tuple(File(_below(file, checkpoint.path), file.stat().st_size) for file in checkpoint.files),
            tensors=_rows(checkpoint, _makers(checkpoint)),
            fields=checkpoint.settings,
            parameters_found=sum(prod(checkpoint.tensors.shape(name)) for name in counted),
            parameters_expected=count_config(checkpoint.config).parameters,
            config=checkpoint.config,
            tokenizer=checkpoint.tokenizer,
            notes=checkpoint.report,
        )


def inspect(source: str | Path) -> Inspection:
    """Open a model (a folder, a file or a hub id) and describe it; raises BlockscopeError where it is refused."""
    return Inspection.of(open_checkpoint(source))


def _makers(checkpoint: Checkpoint) -> Mapping[str, list[str]]:
    """Stored tensor -> the parameters made of it."""
    made: dict[str, list[str]] = {}
    for ours in checkpoint.tensors:
        for name in checkpoint.tensors.stored(ours):
            made.setdefault(name, []).append(ours)
    return made


def _rows(checkpoint: Checkpoint, made: Mapping[str, list[str]]) -> tuple[Row, ...]:
    return tuple(
        Row(part.name, tuple(made.get(part.name, ())), part.shape, part.dtype, _below(part.file, checkpoint.path))
        for source in checkpoint.stored.values()
        for part in source.parts
    )


def _below(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder)) if file != folder and file.is_relative_to(folder) else file.name
