"""What a visitor may open beside what the app was started with: checkpoints below the operator's folders, and hub ids.

A visitor types a name, never a path: it is looked up among the names of what was found below the folders, so that `..`, an
absolute path or a link cannot lead anywhere else. What a link inside would reach outside is not found.
"""

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from model.checkpoints.hub import is_id
from model.errors import BlockscopeError
from viz.natural import natural

DEEPEST, MOST_FOLDERS, FRESH = 5, 5000, 5.0  # levels, folders that are looked at, seconds that a look lasts
CACHED = re.compile(r"models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]+)")  # huggingface_hub's own folders
PART = re.compile(r"(.+)-(\d{5})-of-\d{5}\.(gguf|safetensors)")


class Library:
    """`roots`: folders whose checkpoints may be opened by name; `hub`: whether a hub id may be typed."""

    def __init__(self, roots: Iterable[str | Path] = (), hub: bool = False):
        self.roots = [Path(root).expanduser() for root in roots]
        for root in self.roots:
            if not root.is_dir():
                raise BlockscopeError(f"--model-dir {str(root)!r} is not a folder here; name the folder that holds the models")
        self.hub = hub
        self._found: dict[str, str] = {}
        self._looked = -FRESH
        self._lock = threading.Lock()

    @property
    def typed(self) -> str:
        """What a visitor may type, as a hint; "" where nothing."""
        return " or ".join(["name"] * bool(self.roots) + ["org/name"] * self.hub)

    def names(self) -> dict[str, str]:
        """Name -> path of every checkpoint below the folders, as they are now."""
        with self._lock:
            if time.monotonic() - self._looked > FRESH:
                self._found = {}
                for root in self.roots:
                    for name, path in checkpoints_below(root):
                        while name in self._found:
                            name += "′"
                        self._found[name] = str(path)
                self._looked = time.monotonic()
            return dict(self._found)

    def find(self, name: str) -> str | None:
        """The source that a typed name stands for; None where it may not be opened, whether or not it exists."""
        if (found := self.names().get(name)) is not None:
            return found
        return name if self.hub and is_id(name) else None


def checkpoints_below(root: Path) -> Iterator[tuple[str, Path]]:
    """(name, path) of each model, in the order of their names. Links are followed only to what lies below `root` too."""
    found = ((_name(path, root), path) for path in _walked(root))
    yield from sorted((pair for pair in found if _is_text(pair[0])), key=lambda pair: natural(pair[0]))


def _walked(root: Path) -> Iterator[Path]:
    real = root.resolve()
    for looked, (folder, folders, files) in enumerate(os.walk(root)):
        here = Path(folder)
        if looked > MOST_FOLDERS or len(here.relative_to(root).parts) >= DEEPEST:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = {name for name in files if (here / name).resolve().is_relative_to(real)}
        if not _outside(files, inside):
            yield from _models(here, inside)
        else:  # a whole GGUF file is read alone, whatever lies beside it
            yield from (here / name for name in sorted(inside) if name.endswith(".gguf") and not PART.fullmatch(name))


def _is_text(name: str) -> bool:
    """Whether a name can stand in a link: one that is not UTF-8 on the disk cannot."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def _outside(files: Iterable[str], inside: set[str]) -> bool:
    """Whether a file that a model would be read from is a link that leaves the folders."""
    return any(name not in inside and name.endswith((".json", ".safetensors", ".pth", ".gguf", ".model")) for name in files)


def _models(folder: Path, files: set[str]) -> Iterator[Path]:
    ggufs = sorted(n for n in files if n.endswith(".gguf") and (not (hit := PART.fullmatch(n)) or hit[2] == "00001"))
    tensors = sorted(name for name in files if name.endswith(".safetensors"))
    if "config.json" in files and files & {"model.safetensors", "model.safetensors.index.json"}:
        yield folder
    elif "config.json" in files:
        yield from (folder / name for name in tensors if not PART.fullmatch(name))
    elif "params.json" in files and any(name.startswith("consolidated") for name in files):
        yield folder
    yield from (folder / name for name in ggufs)


def _name(path: Path, root: Path) -> str:
    """The path below the root; a folder of the hub's cache has its id."""
    below = path.relative_to(root).as_posix()
    if below == ".":
        return root.resolve().name
    return CACHED.sub(lambda hit: f"{hit[1]}/{hit[2]}", below)
