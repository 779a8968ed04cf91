"""A line of visitors before one worker: who trains now, and how many stand before whom."""

import threading
from collections.abc import Iterator

from model.errors import BlockscopeError

LONGEST = 8  # visitors that may wait


class Line:
    """First come, first served, by `places` at a time."""

    def __init__(self, places: int = 1, longest: int = LONGEST):
        self.places, self.longest = places, longest
        self._standing: list[object] = []
        self._changed = threading.Condition()

    def join(self) -> object:
        """A ticket, to be given back with `leave` whatever happens."""
        with self._changed:
            if len(self._standing) >= self.places + self.longest:
                raise BlockscopeError(f"{self.longest} visitors already wait to train here: try again in some minutes.")
            ticket = object()
            self._standing.append(ticket)
            return ticket

    def leave(self, ticket: object) -> None:
        with self._changed:
            if ticket in self._standing:
                self._standing.remove(ticket)
            self._changed.notify_all()

    def before(self, ticket: object) -> int:
        """How many must end before this ticket's turn; 0: it is its turn."""
        with self._changed:
            return max(0, self._standing.index(ticket) - self.places + 1)

    def wait(self, ticket: object, beat: float = 0.5) -> Iterator[int]:
        """Yields how many stand before, at least once a `beat`, until it is this ticket's turn."""
        while (ahead := self.before(ticket)) > 0:
            yield ahead
            with self._changed:
                self._changed.wait_for(lambda: self.before(ticket) < ahead, beat)  # at once where it moved meanwhile
