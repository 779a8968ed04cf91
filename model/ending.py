"""Threads beside the main one, ended before the interpreter is.

A daemon thread that is inside a library when Python goes away is cut off there, in the middle of C++ that forbids it: the
program then dies with "terminate called without an active exception". So such threads are told to stop, and waited for.
"""

import atexit
import threading
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from model.halting import end_all

PATIENCE = 5.0  # seconds for all of them together

_running: WeakKeyDictionary[threading.Thread, Callable[[], None]] = WeakKeyDictionary()


def started(work: Callable[[], None], stop: Callable[[], None]) -> threading.Thread:
    """Run `work` in a thread of its own. `stop` makes it end soon, and is called when the program ends."""
    thread = threading.Thread(target=work, daemon=True)
    _running[thread] = stop
    thread.start()
    return thread


def stop_all() -> list[threading.Thread]:
    """Tell all long work to end; of the threads started here those that have not yet."""
    end_all()
    running = [(thread, stop) for thread, stop in list(_running.items()) if thread.is_alive()]
    for _, stop in running:
        stop()
    return [thread for thread, _ in running]


@atexit.register
def _end() -> None:
    until = time.monotonic() + PATIENCE
    for thread in stop_all():
        thread.join(max(0.0, until - time.monotonic()))
