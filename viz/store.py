"""Figures on their way to a browser: compressed payloads, by keys that nobody can guess, in bounded memory.

Component values and sessions hold keys only, so what a visitor leaves behind is bounded here and nowhere else.
"""

import gzip
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict


class Store:
    """The most recently used payloads, at most `limit` compressed bytes of them; safe to use from several threads."""

    def __init__(self, limit: int = 64 << 20):
        self.limit = limit
        self._secret = secrets.token_bytes(32)
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def put(self, payload: bytes) -> str:
        """Keep a payload and return its key. Equal payloads share a key, so a browser that has one does not fetch it again."""
        key = hmac.new(self._secret, payload, hashlib.sha256).hexdigest()[:32]
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return key
        packed = gzip.compress(payload, compresslevel=2, mtime=0)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = packed
                self._size += len(packed)
            while self._size > self.limit and len(self._kept) > 1:
                self._size -= len(self._kept.popitem(last=False)[1])
        return key

    def get(self, key: str) -> bytes | None:
        """The gzip-compressed payload, or None where the key is unknown or has been dropped."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        return self._size
