"""A way out of long work: it asks now and then whether anybody still waits for it, and ends where nobody does."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from model.errors import BlockscopeError

_ask: ContextVar[Callable[[], None] | None] = ContextVar("ask", default=None)


class Halted(Exception):
    """Raised inside work whose result nobody waits for."""


_over = threading.Event()


def end_all() -> None:
    """The program ends: so does all long work, at its next step."""
    _over.set()


def going() -> None:
    """Raises where the program ends."""
    if _over.is_set():
        raise BlockscopeError("the program is ending; start it again")


def check() -> None:
    """Said between two steps of long work, each a fraction of a second: whoever started it may end it here by raising."""
    going()
    if (ask := _ask.get()) is not None:
        ask()


@contextmanager
def asking(ask: Callable[[], None]) -> Iterator[None]:
    """Within this context, in this thread, `check` calls `ask`."""
    token = _ask.set(ask)
    try:
        yield
    finally:
        _ask.reset(token)
