"""What a report says about a model's files before anything runs: tensors, fields and where each came from, sizes, counts."""

import json

import pytest
import torch
from folders import llama_state, write, write_index, write_shards
from gguf_files import write_gguf
from meta_files import llama, write_meta
from reference import build, config_json

from model.checkpoints import inspect
from model.counting import count_config


@pytest.fixture
def state():
    return dict(llama_state())


def test_tensors_files_and_counts(tmp_path, state):
    write_shards(tmp_path, state | {"vision_tower.x.weight": torch.ones(3, dtype=torch.float16)})
    seen = inspect(tmp_path)
    assert seen.format == "huggingface" and seen.path == tmp_path
    assert [file.name for file in seen.files] == [
        "config.json", "model.safetensors.index.json", "weights-1-of-2.safetensors", "weights-2-of-2.safetensors",
    ]  # fmt: skip
    assert seen.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    rows = {row.name: row for row in seen.tensors}
    assert rows["model.layers.1.self_attn.k_proj.weight"].ours == ("blocks.1.attn.k_proj.weight",)
    assert rows["model.layers.1.self_attn.k_proj.weight"].shape == (30, 42)
    assert rows["vision_tower.x.weight"].ours == () and rows["vision_tower.x.weight"].dtype == "F16"
    assert {row.file for row in seen.tensors} == {"weights-1-of-2.safetensors", "weights-2-of-2.safetensors"}
    assert seen.parameters_found == seen.parameters_expected == count_config(seen.config).parameters
    assert seen.parameters_found == sum(tensor.numel() for tensor in state.values())


def test_shards_in_a_folder_of_their_own(tmp_path, state):
    placed = write_shards(tmp_path, state)
    (tmp_path / "parts").mkdir()
    for name in set(placed.values()):
        (tmp_path / name).rename(tmp_path / "parts" / name)
    write_index(tmp_path, {key: f"parts/{name}" for key, name in placed.items()})
    seen = inspect(tmp_path)
    assert [file.name for file in seen.files][2:] == ["parts/weights-1-of-2.safetensors", "parts/weights-2-of-2.safetensors"]
    assert seen.tensors[0].file == "parts/weights-1-of-2.safetensors" and seen.bytes > 4 * seen.parameters_found


def test_every_field_is_used_unused_or_defaulted(tmp_path, state):
    write(tmp_path, state, rope_scaling=None, use_cache=True)
    values = {k: v for k, v in json.loads((tmp_path / "config.json").read_text()).items() if k != "rms_norm_eps"}
    (tmp_path / "config.json").write_text(json.dumps(values))
    fields = {field.name: field for field in inspect(tmp_path).fields}
    assert set(fields) >= set(values) and len(fields) == len(inspect(tmp_path).fields)
    assert fields["hidden_size"].status == "used" and fields["hidden_size"].value == 42
    assert fields["hidden_size"].origin == f"{tmp_path.name}/config.json"
    assert fields["use_cache"].status == "unused"
    assert (fields["rms_norm_eps"].status, fields["rms_norm_eps"].value) == ("defaulted", 1e-6)
    assert fields["attention_bias"].status == "defaulted" and fields["attention_bias"].value is False


def test_a_tied_unembedding_counts_once(tmp_path, state):
    write(tmp_path, {k: v for k, v in state.items() if k != "lm_head.weight"}, tie_word_embeddings=True)
    seen = inspect(tmp_path)
    assert seen.parameters_found == seen.parameters_expected
    assert next(row for row in seen.tensors if "embed_tokens" in row.name).ours == ("embed.weight", "unembed.weight")


def test_fields_of_a_nested_text_config(tmp_path, state):
    from model.checkpoints.families import understand

    text = {k: v for k, v in config_json("llama").items() if k not in ("model_type", "rms_norm_eps")}
    text |= {"model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh"}
    fields = {f.name: f for f in understand({"model_type": "gemma3", "text_config": text, "image_token_index": 5}).settings}
    assert fields["hidden_size"].status == "used" and "text_config" in fields["hidden_size"].origin
    assert fields["image_token_index"].status == "unused" and fields["rms_norm_eps"].status == "defaulted"


def test_fields_of_params_json_say_where_they_came_from(tmp_path):
    seen = inspect(write_meta(tmp_path / "m", llama(), ranks=2))
    fields = {field.name: field for field in seen.fields}
    assert seen.format == "meta" and seen.parameters_found == seen.parameters_expected == count_config(seen.config).parameters
    assert [file.name for file in seen.files] == ["params.json", "consolidated.00.pth", "consolidated.01.pth"]
    assert (fields["hidden_size"].value, fields["hidden_size"].origin) == (48, "m/params.json, dim")
    assert fields["intermediate_size"].origin == "m/params.json, dim, multiple_of and ffn_dim_multiplier"
    assert fields["max_position_embeddings"].status == "defaulted"


def test_fields_of_a_gguf_file_say_where_they_came_from(tmp_path):
    seen = inspect(write_gguf(tmp_path / "m.gguf", build(config_json("llama"))))
    fields = {field.name: field for field in seen.fields}
    assert seen.format == "gguf" and seen.parameters_found == seen.parameters_expected
    assert fields["hidden_size"].value == 42 and fields["hidden_size"].origin.endswith("m.gguf, llama.embedding_length")
    assert fields["tie_word_embeddings"].value is False and fields["llama.vocab_size"].status == "unused"
