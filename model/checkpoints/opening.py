"""Which reader opens a source: by what lies there, never by its name alone."""

import os
from dataclasses import replace
from pathlib import Path

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.downloads import Told
from model.checkpoints.fields import listed, shown
from model.checkpoints.gguf import open_gguf
from model.checkpoints.gguf.header import MAGIC
from model.checkpoints.hub import fetch, is_id
from model.checkpoints.huggingface import CONFIG, open_file, open_folder, read_config
from model.checkpoints.meta import PARAMS, open_meta
from model.errors import BlockscopeError
from model.files import has, ordinary, readable
from model.lm import Decoder


def open_checkpoint(source: str | Path, progress: Told | None = None) -> Checkpoint:
    """Check a model and open it: a folder, a weight file, or, where nothing here has that name, an id of the hub.

    `progress` hears of what is downloaded: see `model.checkpoints.hub.fetch`.
    Raises BlockscopeError: one sentence, what is wrong and what to do.
    """
    if isinstance(source, str) and not os.path.lexists(source) and is_id(source):
        fetched = fetch(source, progress)
        try:
            checkpoint = open_path(fetched.path)
        except BlockscopeError as error:
            raise BlockscopeError(f"{source}: {error}") from None
        return replace(checkpoint, name=source.partition("@")[0].split("/")[-1], report=(fetched.note, *checkpoint.report))
    return open_path(source)


def open_path(source: str | Path) -> Checkpoint:
    """A model on disk."""
    if os.path.isdir(source):  # False too for what cannot be a path
        with readable(Path(source).resolve().name):
            return _open_folder(Path(source))
    if os.path.lexists(source):
        path = Path(source)
        ordinary(path, f"{path.parent.name}/{path.name}")
        if path.suffix == ".json":
            raise BlockscopeError(f"{path.name} describes a model and holds no weights; open the folder that it lies in")
        return open_gguf(path) if path.suffix == ".gguf" or _begins(path, MAGIC) else open_file(path)
    raise BlockscopeError(f"there is no folder or file {shown(str(source), 200)}; expected a model's folder or its weight file")


def config_at(source: str | Path) -> Decoder.Config:
    """The model that a source describes: of a Hugging Face folder, or of a config.json itself, only that file is read."""
    path = Path(source)
    if path.suffix == ".json" and path.is_file():
        return read_config(path)
    return read_config(path / CONFIG) if (path / CONFIG).is_file() else open_checkpoint(source).config


def _open_folder(path: Path) -> Checkpoint:
    """A config.json says Hugging Face, whatever lies beside it; params.json says Meta; else a GGUF file may be alone."""
    if has(path, CONFIG):
        return open_folder(path)
    if has(path, PARAMS):
        return open_meta(path)
    if ggufs := sorted(path.glob("*.gguf")):
        return open_gguf(_only(ggufs, path))
    if (path / "original" / PARAMS).exists():
        raise BlockscopeError(f"{path.name} holds a model in the folder original; open that")
    return open_folder(path)


def _only(files: list[Path], folder: Path) -> Path:
    """The one model among GGUF files; the parts of a split one count as one."""
    firsts = [file for file in files if "-of-" not in file.name or "-00001-of-" in file.name] or files[:1]
    if len(firsts) > 1:
        names = listed(file.name for file in firsts)
        raise BlockscopeError(f"{folder.name} holds {len(firsts)} GGUF models ({names}); name one of them")
    return firsts[0]


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
