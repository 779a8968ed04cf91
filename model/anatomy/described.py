"""A model as it was named: a preset, or the text of a config.json, which nobody has looked at yet."""

from dataclasses import dataclass, replace
from pathlib import Path

from model.checkpoints.families import config_of
from model.checkpoints.fields import parse_json
from model.checkpoints.opening import config_at
from model.errors import BlockscopeError
from model.lm import Decoder
from model.presets import PRESETS, meant
from model.presets.sources import sources

LARGEST = 64 << 10  # bytes of a config.json that is typed or pasted; published ones have 1 to 5 kB
PASTED = "pasted config"


@dataclass(frozen=True)
class Described:
    """`origin`: where its values come from, in one phrase; `notes`: a sentence for each thing that a reader should know."""

    name: str
    config: Decoder.Config
    origin: str
    notes: tuple[str, ...] = ()


def preset(name: str) -> Described:
    if name not in PRESETS:
        raise BlockscopeError(f"there is no preset {name[:60]!r}; {meant(name)}")
    return Described(name, PRESETS[name], sources()[name])


def folder(name: str, source: str) -> Described:
    """A model by its source: a preset, or a model on disk, of which the settings and headers alone are read."""
    if source in PRESETS:
        return replace(preset(source), name=name)
    path = Path(source).expanduser()
    where = "its config.json, in" if (path / "config.json").is_file() or path.suffix == ".json" else "its own settings, in"
    return Described(name, config_at(path if path.exists() else source), f"{where} {path.name}")


def pasted(text: str) -> Described:
    """The model that a config.json describes; an error is one sentence, as for a file."""
    size = len(text.encode("utf-8", "replace"))
    if size > LARGEST:
        raise BlockscopeError(f"this config has {size:,} bytes; expected at most {LARGEST:,}: this is some other file")
    if not text.strip():
        raise BlockscopeError("nothing was pasted: paste the text of a config.json")
    values = parse_json(text.encode("utf-8", "replace"), "config.json", "paste the whole file")
    try:
        config, _, notes = config_of(values)
    except RecursionError:
        raise BlockscopeError("config.json is nested too deep; paste the file of a language model") from None
    return Described(PASTED, config, "the pasted config.json", tuple(notes))
