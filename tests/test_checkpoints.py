"""Folders on disk: shards, prefixes, ties, damage. Every refusal is one sentence that names what is wrong."""

import json
import os
import pickle
import struct
import threading
import time
import tracemalloc
from dataclasses import replace

import pytest
import torch
from reference import build, config_json, prompt
from safetensors.torch import load_file, save_file

from model import load
from model.checkpoints import open_folder, save_folder
from model.checkpoints.header import read_header
from model.errors import BlockscopeError
from model.tokens import byte_tokenizer_json

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def state():
    """The tensors of a small untied llama under their file names, all random."""
    return {name: tensor.clone() for name, tensor in build(config_json("llama")).state_dict().items()}


@pytest.fixture(scope="module")
def logits(state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return run(write(folder, state))


def write(folder, tensors, case="llama", **changes):
    (folder / "config.json").write_text(json.dumps(config_json(case) | changes))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_shards(folder, state, case="llama", split=9):
    """Two shards and their index; -> weight_map, to be spoilt."""
    (folder / "config.json").write_text(json.dumps(config_json(case)))
    names, placed = list(state), {}
    for number, part in ((1, names[:split]), (2, names[split:])):
        file = f"weights-{number}-of-2.safetensors"
        save_file({name: state[name] for name in part}, folder / file)
        placed |= dict.fromkeys(part, file)
    write_index(folder, placed)
    return placed


def write_index(folder, placed):
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": placed}))


def run(folder):
    return load(folder, device="cpu", dtype=torch.float32).forward(prompt())


def refusal(folder) -> str:
    with pytest.raises(BlockscopeError) as caught:
        open_folder(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 600, sentence
    return sentence


# ---- what opens -----------------------------------------------------------------------------------------------------


def test_a_folder_opens_with_names_shapes_and_dtypes_but_no_weights_read(tmp_path, state):
    write(tmp_path, {name: tensor.bfloat16() for name, tensor in state.items()})
    checkpoint = open_folder(tmp_path)
    tensors = checkpoint.tensors
    assert checkpoint.name == tmp_path.name and checkpoint.path == tmp_path and checkpoint.tokenizer is None
    assert any("no tokenizer.json" in sentence for sentence in checkpoint.report)
    assert tensors.names()[0] == "embed.weight" and len(tensors) == len(state) and "blocks.2.ln1.weight" in tensors
    assert tensors.shape("blocks.1.attn.k_proj.weight") == (30, 42)
    assert tensors.dtype("embed.weight") == torch.bfloat16
    assert tensors._open == {}  # no file was mapped yet
    read = tensors.read("blocks.1.mlp.down_proj.weight")
    assert torch.equal(read, state["model.layers.1.mlp.down_proj.weight"].bfloat16())
    with pytest.raises(BlockscopeError, match=r"blocks\.9"):
        tensors.read("blocks.9.ln1.weight")


def test_reading_is_lazy_and_never_writes_to_the_file(tmp_path, state):
    write(tmp_path, state)
    before = (tmp_path / "model.safetensors").read_bytes()
    tensors = open_folder(tmp_path).tensors
    tensors.read("ln_final.weight").zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_file_that_changed_after_opening_is_not_read(tmp_path, state):
    write(tmp_path, state)
    tensors = open_folder(tmp_path).tensors
    with (tmp_path / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(BlockscopeError, match="changed on disk"):
        tensors.read("ln_final.weight")


def test_threads_may_read_at_once(tmp_path, state):
    write(tmp_path, state)
    tensors, wrong = open_folder(tmp_path).tensors, []

    def check():
        for _ in range(20):
            if not torch.equal(tensors.read("ln_final.weight"), state["model.norm.weight"]):
                wrong.append(1)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_shards_equal_one_file(tmp_path, state, logits):
    write_shards(tmp_path, state)
    assert torch.equal(run(tmp_path), logits)


def test_shards_may_be_links_as_in_a_download_cache(tmp_path, state, logits):
    real, cache = tmp_path / "blobs", tmp_path / "snapshot"
    real.mkdir()
    cache.mkdir()
    write_shards(real, state)
    for file in real.iterdir():
        (cache / file.name).symlink_to(file)
    assert torch.equal(run(cache), logits)


@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("model.", "lm_head.weight"),
        ("", "lm_head.weight"),
        ("language_model.model.", "language_model.lm_head.weight"),
        ("model.language_model.", "lm_head.weight"),
    ],
)
def test_every_prefix_gives_the_same_model(prefix, head, tmp_path, state, logits):
    renamed = {
        head if name == "lm_head.weight" else prefix + name.removeprefix("model."): tensor for name, tensor in state.items()
    }
    write(tmp_path, renamed | {"vision_tower.patch.weight": torch.ones(3)})
    assert torch.equal(run(tmp_path), logits)
    assert any("vision_tower.patch.weight" in sentence for sentence in open_folder(tmp_path).report)


def test_two_prefixes_at_once_are_refused(tmp_path, state):
    write(tmp_path, state | {f"language_model.{name}": tensor.clone() for name, tensor in state.items()})
    sentence = refusal(tmp_path)
    assert "more than one language model" in sentence and "language_model.model." in sentence


def test_rotary_tables_are_ignored_with_a_note(tmp_path, state, logits):
    extra = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(5) for i in range(3)}
    write(tmp_path, state | extra)
    assert torch.equal(run(tmp_path), logits)
    assert any("rotary_emb.inv_freq" in sentence for sentence in open_folder(tmp_path).report)


def test_the_index_decides_and_other_weight_files_are_noted(tmp_path, state, logits):
    write_shards(tmp_path, state)
    save_file({"layers.0.attention.wq.weight": torch.ones(2)}, tmp_path / "consolidated.safetensors")
    save_file({name: tensor * 2 for name, tensor in state.items()}, tmp_path / "model.safetensors")
    assert torch.equal(run(tmp_path), logits)
    note = next(sentence for sentence in open_folder(tmp_path).report if "not part of the model" in sentence)
    assert "consolidated.safetensors" in note and "model.safetensors" in note


def test_tied_models_and_a_head_in_the_file(tmp_path, state):
    embedding = state["model.embed_tokens.weight"]
    for name, head, word in (("a", None, None), ("b", embedding.clone(), "copy"), ("c", embedding + 1, "differs")):
        folder = tmp_path / name
        folder.mkdir()
        body = {key: tensor for key, tensor in state.items() if key != "lm_head.weight"}
        write(folder, body if head is None else body | {"lm_head.weight": head}, tie_word_embeddings=True)
        checkpoint = open_folder(folder)
        assert torch.equal(checkpoint.tensors.read("unembed.weight"), embedding)
        said = [sentence for sentence in checkpoint.report if "lm_head.weight" in sentence]
        assert len(said) == (word is not None) and all(word in sentence for sentence in said)
    assert torch.equal(run(tmp_path / "a"), run(tmp_path / "b"))


def test_nan_weights_open_because_they_are_to_be_seen(tmp_path, state):
    spoilt = dict(state)
    spoilt["model.norm.weight"] = torch.full((42,), torch.nan)
    assert open_folder(write(tmp_path, spoilt)).tensors.read("ln_final.weight").isnan().all()


def test_tokenizer_and_rows_are_compared(tmp_path, state):
    write(tmp_path, state)
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer_json())
    checkpoint = open_folder(tmp_path)
    assert checkpoint.tokenizer.encode("A") == [65]
    assert any("256 tokens but the model 131" in sentence for sentence in checkpoint.report)


# ---- what is missing, surplus or misplaced ---------------------------------------------------------------------------


def test_no_folder_no_config_no_weights(tmp_path, state):
    assert "there is no folder" in refusal(tmp_path / "nowhere")
    assert "there is no folder" in refusal(tmp_path / ("x" * 300))
    assert "no config.json" in refusal(tmp_path)
    assert "there is no folder" in refusal("a\0b")
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama")))
    assert "no weights" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert "pickles" in refusal(tmp_path) and "pytorch_model.bin" in refusal(tmp_path)
    save_file(state, tmp_path / "weights.safetensors")
    assert "weights.safetensors" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "NaN"),
        (b"[1]", "expected an object"),
        (b'"llama"', "expected an object"),
        (b"\xff\xfe\x00", "not JSON text"),
        (b"[" * 200_000, "JSON"),
        (b'{"model_type": "llama", "model_type": "qwen3"}', "twice"),
        (b'{"vocab_size": ' + b"9" * 5000 + b"}", "too long"),
    ],
)
def test_configs_that_are_not_json(text, word, tmp_path):
    (tmp_path / "config.json").write_bytes(text)
    sentence = refusal(tmp_path)
    assert word in sentence and "config.json" in sentence


def test_a_missing_shard_is_named_with_what_it_holds(tmp_path, state):
    write_shards(tmp_path, state)
    (tmp_path / "weights-2-of-2.safetensors").unlink()
    sentence = refusal(tmp_path)
    assert "weights-2-of-2.safetensors" in sentence and "1 of its 2 shards" in sentence and f"{len(state)} tensors" in sentence


@pytest.mark.parametrize("placed", [{}, None, [], "x", {"model.norm.weight": 3}, {"model.norm.weight": None}])
def test_an_index_without_a_map(placed, tmp_path, state):
    write_shards(tmp_path, state)
    write_index(tmp_path, placed)
    assert "weight_map" in refusal(tmp_path)


def test_an_index_that_forgets_a_norm(tmp_path, state):
    placed = write_shards(tmp_path, state)
    write_index(tmp_path, {name: file for name, file in placed.items() if name != "model.norm.weight"})
    sentence = refusal(tmp_path)
    assert "model.norm.weight" in sentence and "does not list" in sentence


def test_an_index_that_points_to_the_wrong_shard(tmp_path, state):
    placed = write_shards(tmp_path, state)
    write_index(tmp_path, placed | {"model.norm.weight": "weights-1-of-2.safetensors"})
    sentence = refusal(tmp_path)
    assert "model.norm.weight" in sentence and "weights-2-of-2.safetensors has it" in sentence


def test_an_index_that_names_what_no_shard_has(tmp_path, state):
    placed = write_shards(tmp_path, state)
    write_index(tmp_path, placed | {"model.extra.weight": "weights-1-of-2.safetensors"})
    assert "model.extra.weight" in refusal(tmp_path)


def test_a_tensor_in_two_shards(tmp_path, state):
    placed = write_shards(tmp_path, state)
    second = load_file(tmp_path / "weights-2-of-2.safetensors") | {next(iter(state)): torch.ones(2)}
    save_file(second, tmp_path / "weights-2-of-2.safetensors")
    write_index(tmp_path, placed)
    assert "is in two shards" in refusal(tmp_path) and next(iter(state)) in refusal(tmp_path)


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/passwd", "a/../../x.safetensors", "C:\\x.safetensors", "..\\x.safetensors", "", "a\0b"]
)
def test_a_shard_that_leaves_the_folder(shard, tmp_path, state):
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama")))
    write_index(tmp_path, {"model.norm.weight": shard})
    assert "leaves the folder" in refusal(tmp_path)


def test_missing_surplus_and_misshapen_tensors_are_named(tmp_path, state):
    less = {name: tensor for name, tensor in state.items() if name != "model.layers.1.mlp.up_proj.weight"}
    sentence = refusal(write(tmp_path, less))
    assert "lacks 1" in sentence and "model.layers.1.mlp.up_proj.weight" in sentence

    sentence = refusal(write(tmp_path, state | {"model.layers.3.input_layernorm.weight": torch.ones(42)}))
    assert "model.layers.3.input_layernorm.weight" in sentence and "does not have" in sentence

    sentence = refusal(write(tmp_path, state | {"model.norm.weight": torch.ones(41)}))
    assert "model.norm.weight" in sentence and "[41]" in sentence and "[42]" in sentence

    sentence = refusal(write(tmp_path, {f"extra.{name}": tensor for name, tensor in state.items()}))
    assert "extra.model.embed_tokens.weight" in sentence and "expected names like" in sentence

    headless = {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}
    assert "tie_word_embeddings" in refusal(write(tmp_path, headless))


@pytest.mark.parametrize("leaf", ["q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias"])
def test_biases_that_a_family_must_or_must_not_have(leaf, tmp_path):
    qwen2 = build(config_json("qwen2")).state_dict()
    name = f"model.layers.0.self_attn.{leaf}"
    if leaf == "o_proj.bias":
        changed = qwen2 | {name: torch.ones(42)}
    else:
        changed = {key: tensor for key, tensor in qwen2.items() if key != name}
    assert name in refusal(write(tmp_path, changed, "qwen2"))
    sentence = refusal(write(tmp_path, qwen2, "llama"))  # a qwen2 file called llama has biases too many
    assert "q_proj.bias" in sentence or "k_proj.bias" in sentence


def test_integer_weights_are_refused(tmp_path, state):
    quantised = state | {"model.layers.0.mlp.up_proj.weight": torch.zeros(66, 42, dtype=torch.int8)}
    assert "stored as I8" in refusal(write(tmp_path, quantised))


# ---- damaged files --------------------------------------------------------------------------------------------------


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


# ---- saving ---------------------------------------------------------------------------------------------------------

SAVED = ("llama-tied", "llama-biases", "llama-llama3", "llama-yarn-options", "llama-dynamic", "mistral", "qwen2", "qwen3-mixed")


@pytest.mark.parametrize("case", SAVED)
def test_saved_folders_open_in_transformers(case, tmp_path):
    from transformers import AutoModelForCausalLM

    theirs = build(config_json(case))
    (tmp_path / "in").mkdir()
    theirs.save_pretrained(tmp_path / "in")
    first = open_folder(tmp_path / "in")
    state = {name: first.tensors.read(name) for name in first.tensors}
    save_folder(tmp_path / "out", first.config, state, byte_tokenizer_json(), {"blockscope_note": "made by a test"})
    again = open_folder(tmp_path / "out")
    assert again.config == first.config and again.tokenizer.size == 256
    assert json.loads((tmp_path / "out/config.json").read_text())["blockscope_note"] == "made by a test"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager").eval()
    ids = torch.tensor([prompt()])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, theirs(ids).logits, rtol=0, atol=0)
    for name in again.tensors:
        assert torch.equal(again.tensors.read(name), state[name])


def test_what_no_hugging_face_model_is_cannot_be_saved(tmp_path, state):
    checkpoint = open_folder(write(tmp_path, state))
    weights = {name: checkpoint.tensors.read(name) for name in checkpoint.tensors}
    config, block = checkpoint.config, checkpoint.config.blocks[0]

    def with_block(other):
        return replace(config, blocks=(other, *config.blocks[1:]))

    scaled = with_block(replace(block, attn=replace(block.attn, scale=0.5)))
    turned = with_block(replace(block, attn=replace(block.attn, rope=replace(block.attn.rope, pairing="interleaved"))))
    for odd in (scaled, turned, replace(config, ln_final=replace(config.ln_final, eps=1e-3))):
        with pytest.raises(BlockscopeError, match="no Hugging Face model_type"):
            save_folder(tmp_path / "out", odd, weights)
    assert not (tmp_path / "out").exists()
    with pytest.raises(BlockscopeError, match=r"lacks 1 parameters: ln_final\.weight"):
        save_folder(tmp_path / "out", config, {k: v for k, v in weights.items() if k != "ln_final.weight"})
    with pytest.raises(BlockscopeError, match="extra"):
        save_folder(tmp_path / "out", config, weights | {"extra": torch.ones(1)})
    with pytest.raises(BlockscopeError, match="shape"):
        save_folder(tmp_path / "out", config, weights | {"ln_final.weight": torch.ones(1)})
    with pytest.raises(BlockscopeError, match="hidden_size"):
        save_folder(tmp_path / "out", config, weights, extra={"hidden_size": 1})


def test_saving_over_an_open_model_leaves_it_readable(tmp_path, state):
    checkpoint = open_folder(write(tmp_path, state))
    weights = {name: checkpoint.tensors.read(name) for name in checkpoint.tensors}
    save_folder(tmp_path, checkpoint.config, {name: tensor * 2 for name, tensor in weights.items()})
    assert torch.equal(weights["ln_final.weight"], state["model.norm.weight"])
    assert torch.equal(open_folder(tmp_path).tensors.read("ln_final.weight"), state["model.norm.weight"] * 2)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
