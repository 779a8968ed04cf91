"""Long work beside the request that asked for it: progress at no more than ten times a second, and a way to stop it."""

import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from model.ending import started

T = TypeVar("T")
QUIET, BEAT = 1.0, 0.1  # seconds: nothing is said in the first, then at most once per beat


class Stopped(Exception):
    """Raised inside the work when nobody waits for it any more."""


@dataclass(frozen=True)
class Step:
    """How far the work is: `done` of `total` (0: not known) and what it does now. A fraction is of the one that goes on."""

    done: float
    total: int
    what: str


def watched(work: Callable[[Callable[[Step], None]], T], quiet: float = QUIET) -> Generator[Step, None, T]:
    """Run work(report) in a thread; yields the newest Step, returns what it returns and raises what it raises.

    Closing the generator makes the next `report` raise Stopped inside the work, so that it ends there.
    """
    latest, result, ended, stop = [Step(0, 0, "")], [], threading.Event(), threading.Event()

    def report(step: Step) -> None:
        if stop.is_set():
            raise Stopped
        latest[0] = step

    def body() -> None:
        try:
            result.append((work(report), None))
        except BaseException as error:  # handed to the caller's thread, which raises it
            result.append((None, error))
        finally:
            ended.set()

    started(body, stop.set)
    try:
        if not ended.wait(quiet):
            said = None
            while not ended.wait(BEAT):
                step, now = latest[0], time.monotonic()
                if said is None or step is not said[0] or now - said[1] > QUIET:
                    said = (step, now)
                    yield step
        value, error = result[0]
        if error is not None:
            raise error
        return value
    finally:
        stop.set()
