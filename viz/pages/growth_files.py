"""Records that visitors bring or train, kept by this app while they look at them."""

import threading
from collections import OrderedDict

from model.growth.record import Record

KEPT = 24  # records of visitors


class Files:
    """Records that visitors opened or trained, by keys that nobody can guess; the oldest go."""

    def __init__(self, most: int = KEPT):
        self._kept: OrderedDict[str, Record] = OrderedDict()
        self._most, self._lock = most, threading.Lock()

    def put(self, key: str, record: Record) -> str:
        with self._lock:
            self._kept[key] = record
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return key

    def get(self, key: object) -> Record | None:
        with self._lock:
            return self._kept.get(key) if isinstance(key, str) else None

    def known(self, keys: object) -> tuple[tuple[str, Record], ...]:
        """Those of at most two keys that are kept."""
        keys = keys[-2:] if isinstance(keys, list) else []
        return tuple((key, record) for key in keys if (record := self.get(key)) is not None)
