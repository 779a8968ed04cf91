"""Counts of a model from its configuration alone; `python -m model.count` prints them."""

from pathlib import Path

from model.checkpoints.huggingface import read_config
from model.counting import Count, count_config
from model.errors import BlockscopeError
from model.lm import Decoder
from model.presets import PRESETS, meant


def count(source: str | Path | Decoder.Config) -> Count:
    """Counts from a preset name, the path of a config.json (or its folder), or a configuration; no weights are read."""
    if isinstance(source, Decoder.Config):
        return count_config(source)
    if str(source) in PRESETS:
        return count_config(PRESETS[str(source)])
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.exists():
        raise BlockscopeError(f"{str(source)!r} is neither a preset nor a config.json; {meant(str(source))}")
    return count_config(read_config(path))
