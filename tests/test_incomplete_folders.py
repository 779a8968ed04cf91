"""Folders that do not fit together: every refusal is one sentence that names the file, tensor or shard."""

import json

import pytest
import torch
from folders import llama_state, refusal, write, write_index, write_shards
from reference import build, config_json
from safetensors.torch import load_file, save_file


@pytest.fixture
def state():
    return dict(llama_state())


def test_no_folder_no_config_no_weights(tmp_path, state):
    assert "there is no folder" in refusal(tmp_path / "nowhere")
    assert "there is no folder" in refusal(tmp_path / ("x" * 300))
    assert "is empty" in refusal(tmp_path)
    assert "there is no folder" in refusal("a\0b")
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama")))
    assert "no weights" in refusal(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert "pickles" in refusal(tmp_path) and "pytorch_model.bin" in refusal(tmp_path)
    save_file(state, tmp_path / "weights.safetensors")
    assert refusal(tmp_path).endswith("has weights.safetensors but no model.safetensors; name the file itself to open it")
    save_file(state, tmp_path / "later.safetensors")
    assert "name one of them" in refusal(tmp_path)
    save_file(state, tmp_path / "part-1-of-2.safetensors")
    assert "no model.safetensors.index.json that says what they hold; download it too" in refusal(tmp_path)


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
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 769\n", "Git LFS pointer"),
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
