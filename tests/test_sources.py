"""What may be named as a model: a folder, one weight file with a config beside it, a wrapper around a language model."""

import json
import os

import pytest
import torch
from folders import llama_state, run, write, write_shards
from gguf_files import write_gguf
from reference import build, config_json
from safetensors.torch import save_file

from model import load
from model.checkpoints import inspect, open_checkpoint
from model.errors import BlockscopeError


@pytest.fixture
def state():
    return dict(llama_state())


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    return run(write(tmp_path_factory.mktemp("whole"), llama_state()))


def refused(source) -> str:
    with pytest.raises(BlockscopeError) as caught:
        open_checkpoint(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_one_file_of_a_training_run_by_the_config_beside_it(tmp_path, state, logits):
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama")))
    save_file({name: tensor * 2 for name, tensor in state.items()}, tmp_path / "step100.safetensors")
    save_file(state, tmp_path / "step200.safetensors")
    checkpoint = open_checkpoint(tmp_path / "step200.safetensors")
    assert checkpoint.format == "safetensors" and checkpoint.name == "step200"
    assert torch.equal(run(tmp_path / "step200.safetensors"), logits)
    assert not torch.equal(run(tmp_path / "step100.safetensors"), logits)
    assert [file.name for file in inspect(tmp_path / "step200.safetensors").files] == ["config.json", "step200.safetensors"]
    (tmp_path / "config.json").unlink()
    assert "no config.json beside it" in refused(tmp_path / "step200.safetensors")


def test_a_shard_alone_is_not_a_model(tmp_path, state):
    write_shards(tmp_path, state)
    assert "one of the 2 parts" in refused(tmp_path / "weights-1-of-2.safetensors")


def test_what_a_file_is_decides_and_not_its_name(tmp_path, state, logits):
    path = write_gguf(tmp_path / "m.gguf", build(config_json("llama")))
    os.rename(path, tmp_path / "weights.bin")
    torch.testing.assert_close(run(tmp_path / "weights.bin"), logits, rtol=1e-5, atol=1e-4)
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert "pickle" in refused(tmp_path / "pytorch_model.bin")
    write(tmp_path, state)
    assert "describes a model" in refused(tmp_path / "config.json")
    (tmp_path / "x.gguf").write_bytes(b"GGML" + bytes(100))
    assert "does not begin with GGUF" in refused(tmp_path / "x.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "is not an ordinary file" in refused(tmp_path / "pipe.gguf")
    os.symlink(tmp_path / "gone", tmp_path / "link")
    assert "is a link that leads nowhere" in refused(tmp_path / "link")
    assert "there is no folder or file" in refused(tmp_path / ("x" * 300)) and "there is no folder or file" in refused("a\0b")


@pytest.mark.parametrize("outer", ["llava", "mistral3", "internvl", "some_new_wrapper"])
def test_a_wrapper_whose_text_config_says_what_it_is(outer, tmp_path, state, logits):
    renamed = {
        "language_model." + name: tensor for name, tensor in state.items()
    } | {"vision_tower.a.weight": torch.ones(2), "multi_modal_projector.b.weight": torch.ones(2)}  # fmt: skip
    save_file(renamed, tmp_path / "model.safetensors")
    values = {"model_type": outer, "text_config": config_json("llama"), "vision_config": {"hidden_size": 4}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert torch.equal(run(tmp_path), logits)
    assert any("only the language model" in note for note in open_checkpoint(tmp_path).report)


def test_a_wrapper_around_something_unknown_is_refused(tmp_path, state):
    write(tmp_path, state, model_type="llava", text_config={"model_type": "mamba"})
    assert "model_type is 'llava'" in refused(tmp_path)


@pytest.mark.parametrize("form", ["F16", "BF16", "F32", "F64"])
def test_every_plain_number_format(form, tmp_path, state):
    dtype = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}[form]
    write(tmp_path, {name: tensor.to(dtype) for name, tensor in state.items()})
    assert open_checkpoint(tmp_path).tensors.read("ln_final.weight").dtype == dtype
    expected = {name: tensor.to(dtype).float() for name, tensor in state.items()}
    assert torch.equal(
        load(tmp_path, device="cpu", dtype="fp32").block(1).ln1.weight, expected["model.layers.1.input_layernorm.weight"]
    )
