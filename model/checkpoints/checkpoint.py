"""What opening a model on disk gives, whatever its format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from model.checkpoints.fields import Field
from model.checkpoints.sources import Source
from model.checkpoints.tensors import Tensors
from model.lm import Decoder
from model.tokens import Tokenizer


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk, checked and ready to be read. `report`: a sentence for each thing that a person should know.

    `format`: "huggingface", "safetensors", "gguf" or "meta". `files`: those that it is read from. `stored`: every tensor of
    the weight files by its name there, read or not. `settings`: the fields of its config and what became of each.
    """

    name: str
    path: Path
    config: Decoder.Config
    tensors: Tensors
    tokenizer: Tokenizer | None
    report: tuple[str, ...]
    format: str = "huggingface"
    files: tuple[Path, ...] = ()
    stored: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    settings: tuple[Field, ...] = ()
