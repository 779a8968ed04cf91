"""Which reader opens a source: by what lies there, never by its name alone."""

import os
from pathlib import Path

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.fields import listed, shown
from model.checkpoints.gguf import open_gguf
from model.checkpoints.huggingface import CONFIG, open_folder
from model.errors import BlockscopeError


def open_checkpoint(source: str | Path) -> Checkpoint:
    """Check a model on disk and open it. Raises BlockscopeError: one sentence, what is wrong and what to do."""
    if os.path.isdir(source):  # False too for what cannot be a path
        path = Path(source)
        ggufs = sorted(file for file in path.glob("*.gguf"))
        if ggufs and not (path / CONFIG).exists():
            return open_gguf(_only(ggufs, path))
        return open_folder(path)
    if os.path.isfile(source) or os.path.lexists(source):
        return open_gguf(source)
    raise BlockscopeError(f"there is no folder or file {shown(str(source), 200)}; expected a model's folder or its weight file")


def _only(files: list[Path], folder: Path) -> Path:
    """The one model among GGUF files; the parts of a split one count as one."""
    firsts = [file for file in files if "-of-" not in file.name or "-00001-of-" in file.name] or files[:1]
    if len(firsts) > 1:
        raise BlockscopeError(
            f"{folder.name} holds {len(firsts)} GGUF models ({listed(f.name for f in firsts)}); name one of them"
        )
    return firsts[0]
