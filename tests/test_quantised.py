"""Weights in eight and four bits: their scales applied as the formats define them, and as transformers applies them."""

import json
import math

import pytest
import torch
from folders import refusal, run
from reference import build, config_json, prompt
from safetensors.torch import save_file
from sparse_cases import build_sparse, sparse_json

from model.checkpoints import inspect, open_folder
from model.checkpoints.quantised import scaled, unpacked

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
BIG = {"hidden_size": 168, "intermediate_size": 300}  # neither a multiple of 128


def blocks(weight, high, wide):
    """[rows / high, columns / wide, high, wide], cut at the edges: an independent walk over blocks, one at a time."""
    for i in range(math.ceil(weight.shape[0] / high)):
        for j in range(math.ceil(weight.shape[1] / wide)):
            yield i, j, (slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide))


def quantise(state, high, wide, leaf="weight_scale_inv", shape=None, dtype=torch.float32):
    """(tensors of the file, what they mean): every projection of a layer in fp8 with a scale for each block."""
    out, meant = {}, {}
    for name, weight in state.items():
        if "_proj.weight" not in name:
            out[name] = meant[name] = weight
            continue
        h, w = high or weight.shape[0], wide or weight.shape[1]
        scale = torch.zeros(math.ceil(weight.shape[0] / h), math.ceil(weight.shape[1] / w))
        packed, value = torch.empty(weight.shape, dtype=torch.float8_e4m3fn), torch.empty_like(weight)
        for i, j, at in blocks(weight, h, w):
            scale[i, j] = (weight[at].abs().max() / 448).to(dtype).float()
            packed[at] = (weight[at] / scale[i, j]).to(torch.float8_e4m3fn)
            value[at] = packed[at].float() * scale[i, j]
        out[name], out[name.replace("weight", leaf)] = packed, scale.to(dtype).reshape(shape(scale) if shape else scale.shape)
        meant[name] = value
    return out, meant


def folder_of(path, tensors, quantization, **changes):
    save_file({n: t.contiguous() for n, t in tensors.items()}, path / "model.safetensors")
    values = config_json("llama") | BIG | {"quantization_config": quantization} | changes
    (path / "config.json").write_text(json.dumps(values))
    return path


def logits_of(model, state):
    model.load_state_dict(state)
    with torch.no_grad():
        return model(torch.tensor([prompt()])).logits


CT = {"quant_method": "compressed-tensors", "format": "float-quantized"}
KINDS = {
    "blocks of 128": (FP8, {"high": 128, "wide": 128}),
    "blocks of 64 and 32": (FP8 | {"weight_block_size": [64, 32]}, {"high": 64, "wide": 32}),
    "one scale": (CT, {"high": None, "wide": None, "leaf": "weight_scale", "shape": lambda s: ()}),
    "one scale in a list": ({"quant_method": "modelopt", "quant_algo": "FP8"}, {"high": None, "wide": None, "leaf": "weight_scale", "shape": lambda s: (1,)}),
    "a scale for each row": ({"quant_method": "fbgemm_fp8"}, {"high": 1, "wide": None, "leaf": "weight_scale"}),
    "a scale for each row, bf16": (CT, {"high": 1, "wide": None, "leaf": "weight_scale", "dtype": torch.bfloat16}),
    "a scale for each row, flat": (CT, {"high": 1, "wide": None, "leaf": "weight_scale", "shape": lambda s: (s.numel(),)}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_fp8_weights_with_their_scales(kind, tmp_path):
    quantization, how = KINDS[kind]
    model = build(config_json("llama") | BIG)
    tensors, meant = quantise(model.state_dict(), **how)
    tensors |= {"model.layers.0.self_attn.q_proj.input_scale": torch.ones(1)}
    folder = folder_of(tmp_path, tensors, quantization)
    checkpoint = open_folder(folder)
    name = "model.layers.1.mlp.down_proj.weight"
    assert torch.equal(checkpoint.tensors.read("blocks.1.mlp.down_proj.weight"), meant[name])
    wanted = logits_of(model, meant)
    torch.testing.assert_close(run(folder), wanted, rtol=1e-5, atol=2e-5 * wanted.abs().max().item())
    assert any("21 tensors are stored as F8_E4M3 with scales" in note for note in checkpoint.report)
    rows = {row.name: row for row in inspect(folder).tensors}
    scale = next(row for row in rows if row.startswith(name))
    assert rows[name].dtype == "F8_E4M3" and rows[name].ours == ("blocks.1.mlp.down_proj.weight",) and scale in rows
    assert inspect(folder).parameters_found == inspect(folder).parameters_expected


def test_int8_rows(tmp_path):
    model = build(config_json("llama") | BIG)
    tensors, _ = quantise(model.state_dict(), 1, None, "weight_scale")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = torch.randint(-127, 128, tensors[name].shape, dtype=torch.int8)
    folder = folder_of(tmp_path, tensors, CT | {"format": "int-quantized"})
    expected = tensors[name].float() * tensors[name.replace("weight", "weight_scale")]
    assert torch.equal(open_folder(folder).tensors.read("blocks.0.mlp.up_proj.weight"), expected)


def test_a_scale_is_used_once_for_each_block_and_only_there():
    weight = torch.ones(5, 7)
    scale = torch.arange(1.0, 7).reshape(2, 3)
    out = scaled((3, 3), weight, scale)
    assert out[:, 0].tolist() == [1, 1, 1, 4, 4] and out[4].tolist() == [4, 4, 4, 5, 5, 5, 6] and weight.eq(1).all()


def test_mxfp4_by_hand_and_as_transformers_unpacks_it():
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    packed = torch.randint(0, 256, (3, 10, 2, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(110, 140, (3, 10, 2), generator=generator, dtype=torch.uint8)
    packed[0, 0, 0, 0], scales[0, 0, 0] = 0x7A, 128  # low nibble 10: -1, high 7: 6; times 2
    ours = unpacked(packed, scales)
    assert ours.shape == (3, 64, 10) and ours[0, 0, 0] == -2 and ours[0, 1, 0] == 12
    assert torch.equal(ours, convert_moe_packed_tensors(packed, scales, dtype=torch.bfloat16))


def test_gpt_oss_in_four_bits(tmp_path):
    """The experts of a tiny gpt-oss replaced by MXFP4 tensors; transformers is given what they mean."""
    values = sparse_json("gpt_oss") | {"hidden_size": 64, "intermediate_size": 32}
    model = build_sparse(values)
    generator, tensors, state = torch.Generator().manual_seed(1), {}, dict(model.state_dict())
    for name, tensor in list(state.items()):
        if not name.endswith(("gate_up_proj", "down_proj")):
            tensors[name] = tensor
            continue
        experts, inner, rows = tensor.shape
        packed = torch.randint(0, 256, (experts, rows, inner // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(121, 125, (experts, rows, inner // 32), generator=generator, dtype=torch.uint8)
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = packed, scales
        state[name] = unpacked(packed, scales).float()
    save_file({n: t.contiguous() for n, t in tensors.items()}, tmp_path / "model.safetensors")
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens", "lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps(values | {"quantization_config": quantization}))
    wanted = logits_of(model, state)
    torch.testing.assert_close(run(tmp_path), wanted, rtol=1e-5, atol=1e-4 * wanted.abs().max().item())
    assert any("MXFP4" in note for note in open_folder(tmp_path).report)
    seen = inspect(tmp_path)
    assert seen.parameters_found == seen.parameters_expected
    assert next(row for row in seen.tensors if row.name.endswith("0.mlp.experts.down_proj_blocks")).dtype == "U8"


def test_unknown_and_misshapen_quantisation_is_refused(tmp_path):
    model = build(config_json("llama") | BIG)
    tensors, _ = quantise(model.state_dict(), 128, 128)
    key = "model.layers.1.mlp.up_proj.weight_scale_inv"
    for quantization, word in (
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        (CT | {"format": "pack-quantized"}, "pack-quantized"),
        (CT | {"transform_config": {"a": 1}}, "transform_config"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4"),
        ({"bits": 4}, "quant_method"),
        ("fp8", "an object"),
        (FP8 | {"weight_block_size": [0, 128]}, "weight_block_size"),
    ):
        assert word in refusal(folder_of(tmp_path, tensors, quantization))
    assert "does not fit" in refusal(folder_of(tmp_path, tensors | {key: torch.ones(1, 1)}, FP8))
    assert "stored as I32" in refusal(folder_of(tmp_path, tensors | {key: torch.ones(3, 2, dtype=torch.int32)}, FP8))
    lost = {name: tensor for name, tensor in tensors.items() if name != key}
    assert "no scale for it" in refusal(folder_of(tmp_path, lost, FP8))
    stray = tensors | {"model.layers.1.mlp.up_proj.weight_zero_point": torch.ones(1)}
    assert "weight_zero_point" in refusal(folder_of(tmp_path, stray, FP8))
