"""Weight files that are damaged or something else: one human sentence each, before anything is read or allocated."""

import json
import os
import pickle
import struct
import time
import tracemalloc

import pytest
from folders import INDEX, llama_state, refusal, write, write_shards
from reference import config_json
from safetensors.torch import load_file

from model.checkpoints.header import read_header


@pytest.fixture
def state():
    return dict(llama_state())


def container(header, body=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TWICE = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[%b]}}'
ONE = {"w": entry([2], 0, 8)}
DAMAGED = {
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 269060552\n", "Git LFS pointer"),
    "empty": (b"", "is empty"),
    "five bytes": (b"12345", "too short"),
    "header of 2^63 bytes": (struct.pack("<Q", 1 << 63) + b"{}" * 8, "claims a header"),
    "header longer than the file": (container(ONE, length=5000), "cut short"),
    "header is not JSON": (container(b"{nonsense"), "not JSON"),
    "header is a list": (container(b"[1, 2]      "), "not an object"),
    "header is nested too deep": (container(b'{"a":' + b"[" * 100_000), "not JSON"),
    "four bytes short": (container(ONE, b"\0" * 4), "4 bytes short"),
    "four bytes too many": (container(ONE, b"\0" * 12), "4 bytes after"),
    "shape of 2^64 elements": (container({"w": entry([1 << 32, 1 << 32], 0, 8)}, b"\0" * 8), "needs"),
    "shape that does not fit": (container({"w": entry([3], 0, 8)}, b"\0" * 8), "needs 12"),
    "negative shape": (container({"w": entry([-2], 0, 8)}, b"\0" * 8), "expected dtype, shape"),
    "boolean shape": (container({"w": entry([True], 0, 4)}, b"\0" * 4), "expected dtype, shape"),
    "one name twice": (
        container(TWICE % b"4,8", b"\0" * 8),
        "twice",
    ),
    "one name twice, equal": (
        container(TWICE % b"0,4", b"\0" * 4),
        "twice",
    ),
    "overlap": (container({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, b"\0" * 12), "overlaps"),
    "gap": (container({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, b"\0" * 12), "leaves a gap"),
    "metadata only": (container({"__metadata__": {"format": "pt"}}), "no tensors"),
    "unknown number format": (container({"w": entry([2], 0, 8, "F99")}, b"\0" * 8), "F99"),
    "a pickle": (pickle.dumps({"w": 1}, protocol=2), "pickle"),
    "a torch archive": (b"PK\x03\x04" + b"\0" * 40, "pickle"),
    "a GGUF file": (b"GGUF\x03\0\0\0" + b"\0" * 40, "GGUF"),
    "a web page": (b"<!DOCTYPE html><html>not found</html>", "web page"),
    "a JSON error": (b'{"error": "Repository not found"}', "JSON text"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_one_human_sentence(name, tmp_path):
    content, word = DAMAGED[name]
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama")))
    (tmp_path / "model.safetensors").write_bytes(content)
    tracemalloc.start()
    sentence = refusal(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    assert word in sentence and f"{tmp_path.name}/model.safetensors" in sentence and "Error" not in sentence


def test_a_truncated_shard_is_found_at_opening(tmp_path, state):
    write_shards(tmp_path, state)
    shard = tmp_path / "weights-2-of-2.safetensors"
    os.truncate(shard, shard.stat().st_size - 100)
    assert "weights-2-of-2.safetensors is 100 bytes short" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", INDEX])
def test_a_pipe_in_place_of_a_file_does_not_block(name, tmp_path, state):
    write(tmp_path, state)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    start = time.perf_counter()
    assert "ordinary file" in refusal(tmp_path)
    assert time.perf_counter() - start < 5


def test_pickles_are_never_opened(tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "marker"), "w")

    (tmp_path / "config.json").write_text(json.dumps(config_json("llama") | {"auto_map": {"AutoModel": "evil.Evil"}}))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
    for name in ("pytorch_model.bin", "consolidated.00.pth", "model.safetensors"):
        (tmp_path / name).write_bytes(pickle.dumps(Evil(), protocol=4))
        refusal(tmp_path)
    assert not (tmp_path / "marker").exists()


def test_headers_agree_with_the_library(tmp_path, state):
    file = write(tmp_path, state) / "model.safetensors"
    header = read_header(file)
    assert {name: entry.shape for name, entry in header.items()} == {n: tuple(t.shape) for n, t in load_file(file).items()}
