"""GGUF files that are damaged or hostile: one sentence naming the file, within moments, before anything is allocated."""

import os
import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
import torch
from gguf_files import write_gguf
from reference import build, config_json

from model.checkpoints import open_checkpoint
from model.checkpoints.gguf.header import read_header
from model.errors import BlockscopeError

U32, STRING, ARRAY = 4, 8, 9


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def setting(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, shape=(4, 2), form=0, offset=0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, form, offset)


ONE = (tensor("w"),)


def file(settings=(), tensors=ONE, body=bytes(32), version=3, counts=None) -> bytes:
    n_tensors, n_settings = counts or (len(tensors), len(settings))
    head = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_settings) + b"".join(settings) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + body


LLAMA = setting("general.architecture", STRING, text("llama"))
DAMAGED = {
    "empty": (b"", "too short"),
    "a Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "run `git lfs pull`"),
    "another file": (b"GGML" + bytes(100), "does not begin with GGUF"),
    "version 1": (file(version=1), "GGUF version 1"),
    "version 99": (file(version=99), "GGUF version 99"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(50), "big-endian"),
    "2^63 tensors": (file(counts=(1 << 63, 0)), "claims 9,223,372,036,854,775,808 tensors"),
    "2^60 settings": (file(counts=(1, 1 << 60)), "settings, which do not fit"),
    "a key of 2^62 bytes": (file([struct.pack("<Q", 1 << 62)], counts=(1, 1)), "claims a text"),
    "a text of 2^62 bytes": (file([text("a") + struct.pack("<IQ", STRING, 1 << 62)]), "claims a text"),
    "an array of 2^60 bytes": (file([text("a") + struct.pack("<IIQ", ARRAY, 0, 1 << 60)]), "entries in 'a'"),
    "an array of 2^60 texts": (file([text("a") + struct.pack("<IIQ", ARRAY, STRING, 1 << 60)]), "entries in 'a'"),
    "an array of arrays of arrays": (file([text("a") + struct.pack("<II", ARRAY, ARRAY) * 1000]), "array of arrays"),
    "an unknown kind of value": (file([setting("a", 77, bytes(8))]), "unknown kind 77"),
    "a setting twice": (file([LLAMA, LLAMA]), "'general.architecture' twice"),
    "a key that is not text": (file([text(b"\xff\xfe") + struct.pack("<II", U32, 1)]), "not text"),
    "a tensor twice": (file([LLAMA], [tensor("w"), tensor("w", offset=32)], bytes(64)), "names 'w' twice"),
    "no tensors": (file([LLAMA], []), "holds no tensors"),
    "no axes": (file([LLAMA], [tensor("w", ())]), "0 axes"),
    "2^31 axes": (file([LLAMA], [text("w") + struct.pack("<I", 1 << 31)]), "2,147,483,648 axes"),
    "an axis of nothing": (file([LLAMA], [tensor("w", (4, 0))]), "cannot store"),
    "2^252 elements": (file([LLAMA], [tensor("w", (1 << 63,) * 4)]), "cut short"),
    "an unknown format": (file([LLAMA], [tensor("w", form=9999)]), "format 9999"),
    "half a block": (file([LLAMA], [tensor("w", (48, 2), form=2)]), "Q4_0 cannot store"),
    "an offset outside": (file([LLAMA], [tensor("w", offset=1 << 40)]), "leaves a gap"),
    "an overlap": (file([LLAMA], [tensor("v"), tensor("w", offset=0)], bytes(64)), "overlaps"),
    "a gap": (file([LLAMA], [tensor("v"), tensor("w", offset=96)], bytes(128)), "leaves a gap"),
    "cut short": (file([LLAMA], body=bytes(31)), "cut short"),
    "cut in its header": (file([LLAMA])[:40], "is damaged"),
    "an alignment of 0": (file([setting("general.alignment", U32, struct.pack("<I", 0))]), "power of two"),
    "an alignment of 3": (file([setting("general.alignment", U32, struct.pack("<I", 3))]), "power of two"),
    "an alignment of 2^31": (file([setting("general.alignment", U32, struct.pack("<I", 1 << 31))]), "power of two"),
    "no architecture": (file(), "general.architecture is missing"),
    "an architecture that is a number": (file([setting("general.architecture", U32, bytes(4))]), "general.architecture is 0"),
    "no embedding": (file([LLAMA]), "token_embd.weight is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_one_human_sentence(name, tmp_path):
    content, word = DAMAGED[name]
    (tmp_path / "m.gguf").write_bytes(content)
    tracemalloc.start()
    began = time.perf_counter()
    with pytest.raises(BlockscopeError) as caught:
        open_checkpoint(tmp_path / "m.gguf")
    assert time.perf_counter() - began < 5 and tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    sentence = str(caught.value)
    assert word in sentence and f"{tmp_path.name}/m.gguf" in sentence and "\n" not in sentence and "Error" not in sentence


@pytest.fixture(scope="module")
def model():
    return build(config_json("llama"))


HOSTILE = {
    "10^9 layers": (lambda w: w.add_uint32("llama.block_count", 10**9), "num_hidden_layers (llama.block_count) is 1000000000"),
    "1000 layers": (lambda w: w.add_uint32("llama.block_count", 1000), "asks for 1,000 layers"),
    "no heads": (
        lambda w: w.add_uint32("llama.attention.head_count", 0),
        "num_attention_heads (llama.attention.head_count) is 0",
    ),
    "heads that are text": (
        lambda w: w.add_string("llama.attention.head_count", "6"),
        "num_attention_heads (llama.attention.head_count) is '6'",
    ),
    "another number of heads in each layer": (lambda w: w.add_array("llama.attention.head_count", [6, 5, 6]), "is [6, 5, 6]"),
    "10^9 experts": (lambda w: w.add_uint32("llama.expert_count", 10**9), "num_experts (llama.expert_count) is 1000000000"),
    "16384 experts": (
        lambda w: [w.add_uint32("llama.expert_count", 16384), w.add_uint32("llama.expert_used_count", 2)],
        "lacks",
    ),
    "NaN for eps": (
        lambda w: w.add_float32("llama.attention.layer_norm_rms_epsilon", float("nan")),
        "layer_norm_rms_epsilon) is nan",
    ),
    "a base of 0": (lambda w: w.add_float32("llama.rope.freq_base", 0.0), "rope_theta is 0"),
    "width of a half": (lambda w: w.add_float32("llama.embedding_length", 0.5), "hidden_size (llama.embedding_length) is 0.5"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings(name, tmp_path, model, monkeypatch):
    more, word = HOSTILE[name]
    monkeypatch.setattr("gguf.GGUFWriter.add_key_value", _last_wins)
    path = write_gguf(tmp_path / "m.gguf", model, more=more)
    began = time.perf_counter()
    with pytest.raises(BlockscopeError) as caught:
        open_checkpoint(path)
    assert time.perf_counter() - began < 5 and word in str(caught.value), str(caught.value)


def _last_wins(self, key, value, kind, sub_type=None):
    self.kv_data[0][key] = gguf.GGUFValue(value=value, type=kind, sub_type=sub_type)


TOKENIZERS = {
    "none": ({}, "carries no tokenizer"),
    "another kind": ({"model": "bert", "tokens": ["a"]}, "of kind 'bert'"),
    "tokens that are numbers": ({"model": "gpt2", "tokens": [1, 2]}, "carries no tokenizer"),
    "an unknown pattern": ({"model": "gpt2", "tokens": ["a"], "merges": [], "pre": "newest"}, "pattern named 'newest'"),
    "no merges": ({"model": "gpt2", "tokens": ["a"], "pre": "gpt-2"}, "has no merges"),
    "merges of unknown tokens": ({"model": "gpt2", "tokens": ["a"], "pre": "gpt-2", "merges": ["x y"]}, "cannot be rebuilt"),
    "too few scores": ({"model": "llama", "tokens": ["a", "b"], "scores": [0.5]}, "no score for each token"),
    "no scores": ({"model": "llama", "tokens": ["a", "b"]}, "no score for each token"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_without_a_tokenizer_that_can_be_rebuilt_the_model_takes_numbers(name, tmp_path, model):
    given, word = TOKENIZERS[name]

    def more(writer):
        for key, value in given.items():
            full = f"tokenizer.ggml.{key}"
            writer.add_array(full, value) if isinstance(value, list) else writer.add_string(full, value)

    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", model, more=more))
    notes = [note for note in checkpoint.report if word in note]
    assert checkpoint.tokenizer is None and notes and "token numbers" in notes[0]


def test_tokenizers_by_hand(tmp_path, model):
    """A byte-level and a SentencePiece vocabulary small enough to merge by eye, with BOS where the file says so."""

    def byte_level(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("qwen2")
        writer.add_token_list(["<s>", "a", "b", "Ġ", "ab", "Ġab", "1", "<u>"])
        writer.add_token_types([3, 1, 1, 1, 1, 1, 1, 4])
        writer.add_token_merges(["a b", "Ġ ab"])
        writer.add_bos_token_id(0)
        writer.add_add_bos_token(True)

    tokenizer = open_checkpoint(write_gguf(tmp_path / "a.gguf", model, more=byte_level)).tokenizer
    assert tokenizer.encode("ab ab11<u>b") == [0, 4, 5, 6, 6, 7, 2] and tokenizer.decode([4, 5, 0]) == "ab ab<s>"
    assert tokenizer.encode("<s>a") == [0, 1]  # no second BOS

    def unnamed(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "ab"])
        writer.add_token_merges(["a b"])

    checkpoint = open_checkpoint(write_gguf(tmp_path / "c.gguf", model, more=unnamed))
    assert checkpoint.tokenizer.encode("ab") == [2] and any("GPT-2's is used" in note for note in checkpoint.report)

    def sentencepiece(writer):
        writer.add_tokenizer_model("llama")
        tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "ab", "ba", "▁ab"]
        writer.add_token_list(tokens)
        writer.add_token_scores([0.0] * 262 + [-2.0, -1.0, -3.0])
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * 6])
        writer.add_bos_token_id(1)
        writer.add_unk_token_id(0)

    tokenizer = open_checkpoint(write_gguf(tmp_path / "b.gguf", model, more=sentencepiece)).tokenizer
    a, b, ba, space_ab = 260, 261, 263, 264
    assert tokenizer.encode("ab") == [1, space_ab] and tokenizer.encode("aba") == [1, 259, a, ba]  # ba has the better score
    assert tokenizer.encode("é b") == [1, 259, 3 + 0xC3, 3 + 0xA9, 259, b] and tokenizer.decode([space_ab, ba]) == "abba"


def test_gone_changed_or_a_pipe(tmp_path, model):
    path = write_gguf(tmp_path / "m.gguf", model)
    tensors = open_checkpoint(path).tensors
    tensors.read("ln_final.weight")
    os.truncate(path, path.stat().st_size - 64)  # reading on would end the process
    with pytest.raises(BlockscopeError, match="changed on disk"):
        tensors.read("embed.weight")
    with pytest.raises(BlockscopeError, match="cut short"):
        open_checkpoint(path)
    path.unlink()
    with pytest.raises(BlockscopeError, match="no longer in its folder"):
        tensors.read("embed.weight")
    with pytest.raises(BlockscopeError, match="not an ordinary file"):
        read_header(tmp_path)


def test_formats_that_are_not_numbers_of_a_model_are_refused(tmp_path, model):
    path = write_gguf(tmp_path / "m.gguf", model, extra={"blk.0.attn_norm.weight": np.ones(42, np.int32)})
    with pytest.raises(BlockscopeError, match=r"attn_norm\.weight in m\.gguf is stored as I32"):
        open_checkpoint(path)
    path = write_gguf(tmp_path / "n.gguf", model, extra={"blk.0.attn_norm.weight": np.full(42, np.nan, np.float32)})
    assert torch.isnan(open_checkpoint(path).tensors.read("blocks.0.ln1.weight")).all()  # to be seen, not refused
