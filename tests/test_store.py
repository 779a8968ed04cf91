"""Figures by key: bounded, shared when equal, and no key can be guessed or carried over."""

import gzip
import os
import threading

from viz.store import Store


def test_what_is_put_can_be_got():
    store = Store()
    payload = b'{"data":[1,2,3]}' * 100
    assert gzip.decompress(store.get(store.put(payload))) == payload
    assert store.get("0" * 32) is None
    assert store.nbytes < len(payload)


def test_equal_payloads_share_a_key_within_one_app_only():
    one, two = Store(), Store()
    assert one.put(b"x") == one.put(b"x")
    assert one.put(b"x") != two.put(b"x")
    assert len(one) == 1


def test_the_oldest_goes_first_and_the_bound_holds():
    store = Store(limit=10_000)
    keys = [store.put(os.urandom(3000)) for _ in range(3)]
    store.get(keys[0])  # used again: the second is now the oldest
    keys.append(store.put(os.urandom(3000)))
    assert store.nbytes <= 10_000
    assert [store.get(key) is not None for key in keys] == [True, False, True, True]


def test_threads_leave_the_size_right():
    store = Store(limit=200_000)
    payloads = [os.urandom(1000) for _ in range(50)]
    threads = [threading.Thread(target=lambda: [store.put(p) for p in payloads]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) == 50
    assert store.nbytes == sum(len(store.get(store.put(p))) for p in payloads)
