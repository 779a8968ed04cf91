"""What a live run may read: the standard library, what the operator listed, and texts that visitors bring."""

import base64
import binascii
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path

from model.errors import BlockscopeError
from model.growth.corpus import LAST_TENTH, Corpus, from_bytes, from_path, standard_library
from viz.theme import count

LARGEST = 4 << 20  # bytes of a visitor's text
BROUGHT, READ = 8, 3  # texts of visitors, and listed texts in memory, that are kept
STANDARD = "Python's standard library"


@lru_cache(maxsize=1)
def standard() -> Corpus:
    """The default text, read once for all runs of this app."""
    return standard_library()


class Texts:
    """A visitor chooses by name among what is listed, never by path; a text that a visitor brought has a key that nobody
    can guess, and the one brought longest ago goes."""

    def __init__(self, paths: Iterable[str | Path] = ()):
        self._listed = {STANDARD: standard}
        for path in dict.fromkeys(str(path) for path in paths):
            if not Path(path).expanduser().exists():
                raise BlockscopeError(f"--text {path}: there is no such file or folder")
            name = Path(path).expanduser().resolve().name or "text"
            while name in self._listed:
                name += "′"
            self._listed[name] = partial(from_path, path)
        self._read: OrderedDict[str, Corpus] = OrderedDict()
        self._brought: OrderedDict[str, Corpus] = OrderedDict()
        self._lock, self._reading = threading.Lock(), threading.Lock()

    @property
    def names(self) -> list[str]:
        return list(self._listed)

    def knows(self, name: str) -> bool:
        return not name or name in self._listed or name in self._brought

    def menu(self, name: str) -> list[list[str]]:
        """[value, words] for a visitor whose view names `name`: a text that somebody brought is in no other's menu."""
        with self._lock:
            mine = self._brought.get(name)
        return [["" if one == STANDARD else one, one] for one in self._listed] + ([[name, mine.name]] if mine else [])

    def open(self, name: str) -> Corpus:
        """Read where it is not in memory yet, which takes seconds for a large one."""
        name = name or STANDARD
        with self._lock:
            if name in self._brought:
                return self._brought[name]
        if name not in self._listed:
            raise BlockscopeError("This text is no longer kept by the app: give it again, or choose another.")
        with self._reading:
            if name not in self._read:
                self._read[name] = self._listed[name]()
            self._read.move_to_end(name)
            while len(self._read) > READ:
                self._read.popitem(last=False)
            return self._read[name]

    def bring(self, name: object, data: object) -> tuple[str, Corpus]:
        """A file name and its bytes as base64 -> the key under which runs read it."""
        name = re.sub(r"[^\w.\- ]", "_", Path(name).name)[-80:] if isinstance(name, str) and name else "pasted text"
        if not isinstance(data, str):
            raise BlockscopeError("no text was sent: paste one, or choose a text file.")
        if len(data) > LARGEST * 4 / 3 + 4:
            raise BlockscopeError(
                f"{name} has more than {LARGEST:,} bytes, the most that a visitor may send: give a part of it."
            )
        try:
            corpus = from_bytes(base64.b64decode(data, validate=True), name)
        except (binascii.Error, ValueError) as error:
            if isinstance(error, BlockscopeError):
                raise
            raise BlockscopeError(f"{name} did not arrive whole: send it again.") from None
        key = f"text-{secrets.token_urlsafe(12)}"
        with self._lock:
            self._brought[key] = corpus
            while len(self._brought) > BROUGHT:
                self._brought.popitem(last=False)
        return key, corpus

    def facts(self, name: str) -> str:
        """What is known of a text without reading it now."""
        name = name or STANDARD
        corpus = self._brought.get(name) or self._read.get(name)
        return facts(vars(corpus) | {"bytes": sizes(corpus)}) if corpus else ""


def sizes(corpus: Corpus) -> list[int]:
    return [len(corpus.train), len(corpus.validation)]


def facts(described: Mapping) -> str:
    """Name, size, split and hash of a text, from what a record says of it; nothing where it says nothing."""
    name, found, files = (described.get(key) for key in ("name", "bytes", "files"))
    if not (isinstance(name, str) and _two(found) and _two(files)):
        return ""
    whole = described.get("split") == LAST_TENTH
    sizes = [f"{n:,} bytes" + ("" if whole else f" in {count(k, 'file')}") for n, k in zip(found, files, strict=True)]
    held = f"{sizes[1]} held out{f' ({LAST_TENTH})' if whole else ''}"
    named = f", sha256 {digest[:12]}…" if isinstance(digest := described.get("sha256"), str) else ""
    return f"{name[:80]}, {sizes[0]} to train on, {held}{named}"


def _two(values: object) -> bool:
    return isinstance(values, list | tuple) and len(values) == 2 and all(type(v) is int for v in values)
