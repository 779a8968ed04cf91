"""Counts of a model from its configuration alone; `python -m model.count` prints them."""

from pathlib import Path

from model.checkpoints.opening import config_at
from model.counting import Count, count_config
from model.errors import BlockscopeError
from model.lm import Decoder
from model.presets import PRESETS, meant


def count(source: str | Path | Decoder.Config) -> Count:
    """Counts from a preset name, a model on disk (or its config.json alone), or a configuration; no weights are read."""
    if isinstance(source, Decoder.Config):
        return count_config(source)
    if str(source) in PRESETS:
        return count_config(PRESETS[str(source)])
    path = Path(source)
    if not path.exists():
        raise BlockscopeError(f"{str(source)!r} is neither a preset nor a config.json; {meant(str(source))}")
    return count_config(config_at(path))
