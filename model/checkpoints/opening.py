"""Which reader opens a source: by what lies there, never by its name alone."""

from pathlib import Path

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.huggingface import open_folder


def open_checkpoint(source: str | Path) -> Checkpoint:
    """Check a model on disk and open it. Raises BlockscopeError: one sentence, what is wrong and what to do."""
    return open_folder(source)
