"""Weight files that are damaged or something else: one human sentence each, before anything is read or allocated."""

import json
import os
import pickle
import struct
import time
import tracemalloc

import pytest
from folders import INDEX, llama_state, refusal, write, write_index, write_shards
from reference import config_json
from safetensors.torch import load_file

from model.checkpoints import open_checkpoint
from model.checkpoints.header import read_header
from model.errors import BlockscopeError


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
    **{f"a pickle, protocol {n}": (pickle.dumps({"w": 1}, protocol=n), "is a pickle") for n in (2, 3, 4, 5)},
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


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "weights-2-of-2.safetensors is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"PK\x03\x04" + bytes(40), "pickle"),
    ],
)
def test_one_shard_is_something_else(content, word, tmp_path, state):
    write_shards(tmp_path, state)
    (tmp_path / "weights-2-of-2.safetensors").write_bytes(content)
    assert word in refusal(tmp_path)


@pytest.mark.parametrize(
    "shard",
    [
        "../other.safetensors",
        "/etc/hosts.safetensors",
        "C:\\x.safetensors",
        "a/../../b.safetensors",
        "x.bin",
        "",
        "a\0.safetensors",
    ],
)
def test_a_shard_outside_the_folder_is_not_opened(shard, tmp_path, state):
    placed = write_shards(tmp_path, state)
    write_index(tmp_path, placed | {next(iter(placed)): shard})
    assert "names" in refusal(tmp_path)


def test_an_index_of_tensors_that_are_nowhere(tmp_path, state):
    placed = write_shards(tmp_path, state)
    write_index(tmp_path, placed | {"model.layers.9.x.weight": "weights-1-of-2.safetensors"})
    assert "says that model.layers.9.x.weight is in weights-1-of-2.safetensors, but no shard has it" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_hidden_layers": 1024}, "asks for 1,024 layers, but the files hold 30 tensors"),
        ({"hidden_size": 1 << 18, "num_attention_heads": 6}, "asks for"),
        ({"vocab_size": 1 << 24}, "asks for"),
        ({"num_hidden_layers": 10**400}, "more than 40 digits"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 1e308}}, "factor is"),
    ],
)
def test_a_config_of_absurd_sizes_allocates_nothing(changes, word, tmp_path, state):
    write(tmp_path, state, **changes)
    began = time.perf_counter()
    tracemalloc.start()
    assert word in refusal(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 50 << 20 and time.perf_counter() - began < 5
    tracemalloc.stop()


def test_many_experts_in_many_layers_are_refused_at_once(tmp_path, state):
    extra = {f"model.layers.{i}.x": state["model.norm.weight"] for i in range(3, 200)}
    sparse = {"model_type": "mixtral", "num_local_experts": 16_384, "num_experts_per_tok": 2, "num_hidden_layers": 200}
    began = time.perf_counter()
    assert "asks for 3,276,800 experts" in refusal(write(tmp_path, state | {n: t.clone() for n, t in extra.items()}, **sparse))
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": "1.0"}', '{"model": {"type": "BPE"}}', "version https://git-lfs.github.com/x"]
)
def test_a_tokenizer_that_does_not_parse(text, tmp_path, state):
    write(tmp_path, state)
    (tmp_path / "tokenizer.json").write_text(text)
    sentence = refusal(tmp_path)
    assert f"{tmp_path.name}/tokenizer.json" in sentence and ("download it again" in sentence or "git lfs pull" in sentence)


def test_a_folder_that_goes_while_it_is_open(tmp_path, state):
    write_shards(tmp_path, state)
    tensors = open_checkpoint(tmp_path).tensors
    tensors.read("embed.weight")
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    for name in ("embed.weight", "ln_final.weight"):  # from the shard that was mapped, and from the other
        with pytest.raises(BlockscopeError, match="no longer in its folder"):
            tensors.read(name)


def test_a_file_cut_while_it_is_open_is_not_read_past_its_end(tmp_path, state):
    write(tmp_path, state)
    tensors = open_checkpoint(tmp_path).tensors
    tensors.read("embed.weight")
    os.truncate(tmp_path / "model.safetensors", 5000)
    with pytest.raises(BlockscopeError, match="changed on disk"):
        tensors.read("ln_final.weight")


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
