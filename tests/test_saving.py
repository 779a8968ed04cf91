"""Saved folders are ordinary Hugging Face folders; what such a folder cannot say is refused."""

import json
from dataclasses import replace

import pytest
import torch
from folders import llama_state, write
from reference import build, config_json, prompt
from transformers import AutoModelForCausalLM

from model.checkpoints import open_folder, save_folder
from model.errors import BlockscopeError
from model.presets import PRESETS
from model.tokens import byte_tokenizer_json


@pytest.fixture
def state():
    return dict(llama_state())


SAVED = ("llama-tied", "llama-biases", "llama-llama3", "llama-yarn-options", "llama-dynamic", "mistral", "qwen2", "qwen3-mixed")


@pytest.mark.parametrize("case", SAVED)
def test_saved_folders_open_in_transformers(case, tmp_path):
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
    with pytest.raises(BlockscopeError, match="num_experts"):
        save_folder(tmp_path / "out", config, weights, extra={"num_experts": 8})


def test_saving_over_an_open_model_leaves_it_readable(tmp_path, state):
    checkpoint = open_folder(write(tmp_path, state))
    weights = {name: checkpoint.tensors.read(name) for name in checkpoint.tensors}
    save_folder(tmp_path, checkpoint.config, {name: tensor * 2 for name, tensor in weights.items()})
    assert torch.equal(weights["ln_final.weight"], state["model.norm.weight"])
    assert torch.equal(open_folder(tmp_path).tensors.read("ln_final.weight"), state["model.norm.weight"] * 2)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}


def test_others_may_read_a_saved_model_as_the_umask_has_it(tmp_path):
    config = PRESETS["tiny-llama"]
    state = {name: parameter.detach() for name, parameter in config.build().named_parameters()}
    save_folder(tmp_path, config, state)
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
