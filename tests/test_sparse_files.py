"""Files of models with experts: one matrix each or fused, extra prediction layers, a language model inside a larger one."""

import json

import pytest
import torch
from conftest import assert_same
from folders import refusal
from reference import LAYERS, prompt
from safetensors.torch import load_file, save_file
from sparse_cases import SPARSE, build_sparse, sparse_json, write_sparse

from model import load
from model.checkpoints import open_folder
from model.mlp import SwiGLU
from model.moe import MoE


def written(case, folder, state, **changes):
    """A folder with this config and these tensors."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(sparse_json(case) | changes))
    save_file({name: tensor.clone() for name, tensor in state.items()}, folder / "model.safetensors")
    return folder


def run(folder):
    return load(folder, device="cpu", dtype=torch.float32).forward(prompt())


@pytest.mark.parametrize("case", SPARSE)
def test_saved_and_dumped_files_load_equal(case, tmp_path):
    """save_pretrained writes one matrix for each expert; a dumped state has transformers 5's fused ones."""
    model = write_sparse(case, tmp_path / "saved")
    state = model.state_dict()
    dumped = written(case, tmp_path / "dumped", state)
    names = load_file(tmp_path / "saved" / "model.safetensors")
    assert (set(names) == set(state)) == case.startswith(("gpt_oss", "llama4"))  # which have one layout
    one, other = (load(folder, device="cpu", dtype=torch.float32) for folder in (tmp_path / "saved", dumped))
    for name, p in one.net.named_parameters():
        assert torch.equal(one.store.get(name, tuple(p.shape)), other.store.get(name, tuple(p.shape))), name
    assert_same(one.forward(prompt()), other.forward(prompt()), 1e-6)  # products round by where a matrix lies in its file


@pytest.fixture
def deepseek(tmp_path):
    model = write_sparse("deepseek_v3", tmp_path / "saved")
    return tmp_path / "saved", model, load_file(tmp_path / "saved" / "model.safetensors")


def test_dense_layers_come_first(deepseek):
    blocks = open_folder(deepseek[0]).config.blocks
    assert [type(b.mlp) for b in blocks] == [SwiGLU.Config, MoE.Config, MoE.Config]


def test_more_prediction_layers_are_left_out_with_a_note(deepseek, tmp_path):
    folder, _, state = deepseek
    extra = {name.replace("layers.2.", f"layers.{LAYERS}."): t + 1 for name, t in state.items() if "layers.2." in name}
    extra |= {f"model.layers.{LAYERS}.eh_proj.weight": torch.ones(4, 8), f"model.layers.{LAYERS}.enorm.weight": torch.ones(4)}
    whole = written("deepseek_v3", tmp_path / "whole", state | extra, num_nextn_predict_layers=1)
    assert torch.equal(run(whole), run(folder))
    notes = " ".join(open_folder(whole).report)
    assert "not read" in notes and f"model.layers.{LAYERS}." in notes
    stray = {"model.layers.1.eh_proj.weight": torch.ones(4, 8)}  # in a layer that the model has
    assert "eh_proj" in refusal(written("deepseek_v3", tmp_path / "stray", state | stray))


def test_a_missing_expert_is_named(deepseek, tmp_path):
    _, model, state = deepseek
    lost = "model.layers.1.mlp.experts.7.up_proj.weight"
    without = {name: t for name, t in state.items() if name != lost}
    assert lost in (sentence := refusal(written("deepseek_v3", tmp_path / "a", without))) and "lacks 1 " in sentence
    fewer = {name: t for name, t in state.items() if ".experts.11." not in name}
    assert "lacks 6 " in refusal(written("deepseek_v3", tmp_path / "b", fewer))  # three matrices in each of two layers
    both = state | {"model.layers.1.mlp.experts.gate_up_proj": model.state_dict()["model.layers.1.mlp.experts.gate_up_proj"]}
    assert "does not have: model.layers.1.mlp.experts.gate_up_proj" in refusal(written("deepseek_v3", tmp_path / "c", both))


def test_experts_of_another_model_are_refused(deepseek, tmp_path):
    assert "asks for [8]" in refusal(written("deepseek_v3", tmp_path / "a", deepseek[2], n_routed_experts=8))
    assert "asks for" in refusal(written("deepseek_v3", tmp_path / "b", deepseek[2], moe_intermediate_size=20))


def test_what_gpt_oss_stores():
    """B33: input first, gate and up in alternating columns."""
    state = build_sparse(sparse_json("gpt_oss")).state_dict()
    assert state["model.layers.0.mlp.experts.gate_up_proj"].shape == (7, 42, 2 * 22)
    assert state["model.layers.0.mlp.experts.down_proj"].shape == (7, 22, 42)


def test_gate_and_up_are_the_alternating_columns(tmp_path):
    model = write_sparse("gpt_oss", tmp_path)
    tensors, fused = open_folder(tmp_path).tensors, model.state_dict()["model.layers.1.mlp.experts.gate_up_proj"]
    for name, first in (("gate_proj", 0), ("up_proj", 1)):
        assert torch.equal(tensors.read(f"blocks.1.mlp.experts.{name}"), fused[..., first::2].mT)


def test_llama_4_inside_a_model_that_sees_images(tmp_path):
    model = write_sparse("llama4_text", tmp_path / "text")
    state = {f"language_model.{name}": t for name, t in model.state_dict().items()}
    state |= {"vision_model.layernorm_pre.weight": torch.ones(3), "multi_modal_projector.linear_1.weight": torch.ones(2, 2)}
    folder = tmp_path / "whole"
    folder.mkdir()
    outer = {"model_type": "llama4", "text_config": sparse_json("llama4_text"), "boi_token_index": 5}
    (folder / "config.json").write_text(json.dumps(outer))
    save_file({name: t.clone() for name, t in state.items()}, folder / "model.safetensors")
    assert torch.equal(run(folder), run(tmp_path / "text"))
    assert "vision_model" in " ".join(open_folder(folder).report)


def test_a_mixed_precision_file_keeps_its_correction(tmp_path):
    """DeepSeek stores the correction in fp32 beside bf16 matrices."""
    model = build_sparse(sparse_json("deepseek_v3"))
    state = {name: t if name.endswith("correction_bias") else t.bfloat16() for name, t in model.state_dict().items()}
    folder = written("deepseek_v3", tmp_path / "mixed", state)
    lm = load(folder, device="cpu", dtype="bf16")
    kept = lm.parameter("blocks.1.mlp.correction")
    assert torch.equal(torch.from_numpy(kept), state["model.layers.1.mlp.gate.e_score_correction_bias"])
