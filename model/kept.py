"""A bounded, thread-safe memory of results: least recently used goes first, the bound is in bytes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any


class ByteLRU:
    """Key -> value of a stated size. A value larger than the whole bound is not kept at all."""

    def __init__(self, limit: int):
        self.limit, self.nbytes = limit, 0
        self._items: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any | None:
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        with self._lock:
            self._drop(key)
            if nbytes > self.limit:
                return
            self._items[key] = value, nbytes
            self.nbytes += nbytes
            while self.nbytes > self.limit:
                self._drop(next(iter(self._items)))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)

    def _drop(self, key: Hashable) -> None:
        if key in self._items:
            self.nbytes -= self._items.pop(key)[1]
