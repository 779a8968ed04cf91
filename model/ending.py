"""Threads beside the main one, ended before the interpreter is.

A daemon thread that is inside a library when Python goes away is cut off there, in the middle of C++ that forbids it: the
program then dies with "terminate called without an active exception". So such threads are told to stop, and waited for.
"""

import atexit
import threading
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

PATIENCE = 5.0  # seconds for all of them together

_running: WeakKeyDictionary[threading.Thread, Callable[[], None]] = WeakKeyDictionary()


def started(work: Callable[[], None], stop: Callable[[], None]) -> threading.Thread:
    """Run `work` in a thread of its own. `stop` makes it end soon, and is called when the program ends."""
    thread = threading.Thread(target=work, daemon=True)
    _running[thread] = stop
    thread.start()
    return thread


@atexit.register
def _end() -> None:
    threads = [(thread, stop) for thread, stop in list(_running.items()) if thread.is_alive()]
    for _, stop in threads:
        stop()
    until = time.monotonic() + PATIENCE
    for thread, _ in threads:
        thread.join(max(0.0, until - time.monotonic()))
