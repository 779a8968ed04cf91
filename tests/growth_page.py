"""What the tests of the Growth page share: the page over made-up records and a short text, and reading what it sent."""

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from growth_records import small_corpus

from viz.pages import growth_texts
from viz.pages.growth import Growth


@contextmanager
def short_text() -> Iterator[None]:
    """A short text in place of the standard library, which takes seconds to read."""
    patched = pytest.MonkeyPatch()
    patched.setattr(growth_texts, "standard_library", small_corpus)
    growth_texts.standard.cache_clear()
    try:
        yield
    finally:
        patched.undo()
        growth_texts.standard.cache_clear()


def look(growth: Growth, have: dict | None = None, **state) -> dict:
    return growth.look({"token": 5, "scheme": "light", "have": have or {}, "state": state})


def stored(growth: Growth, url: str) -> dict:
    """What the browser fetches from an address."""
    return json.loads(gzip.decompress(growth.store.get(url.rpartition("/")[2])))


def figure(growth: Growth, card: dict) -> dict:
    return stored(growth, card["url"])


def sent(path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
