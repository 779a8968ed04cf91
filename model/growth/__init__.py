"""How attention logits grow: measured in training runs, in checkpoints, in sweeps, and in other people's training loops."""

from importlib import import_module

OFFERED = {"LogitMonitor": "model.growth.monitor", "Heads": "model.growth.watching"}  # imported when first asked for


def __getattr__(name: str) -> object:
    if name not in OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(OFFERED[name]), name)
