"""GGUF files give the model that they were made of: every architecture, from transformers' tiny models, logit by logit."""

import gguf
import numpy as np
import pytest
import torch
from designs import DESIGNS, design_json
from gguf_files import write_gguf
from reference import LLAMA3, build, config_json, prompt
from sparse_cases import SPARSE, build_sparse, sparse_json

from model import load
from model.checkpoints import inspect, open_checkpoint
from model.errors import BlockscopeError
from model.positions import Llama3, Yarn

# the divisor of Gemma's logits has no key: of these sizes it is the width of a head, as in all published ones but the 27B
WHOLE = {"query_pre_attn_scalar": 10}
MODELS = {
    "llama": {}, "llama-tied": {}, "llama-one-kv-head": {}, "llama-biases": {}, "llama-linear": {}, "llama-yarn": {},
    "mistral-full": {}, "qwen2-tied": {}, "qwen3": {}, "gemma": {}, "gemma2": WHOLE, "gemma3_text": WHOLE, "gpt2": {},
    "gpt2-inner": {"activation_function": "gelu_new"}, "olmo2": {}, "mixtral": {}, "gpt_oss": {},
    "qwen3_moe-normed": {"use_sliding_window": False, "attention_bias": False, "decoder_sparse_step": 1},
    "deepseek_v2": {"attention_bias": False, "mlp_bias": False}, "deepseek_v2-greedy": {"n_group": 1, "topk_group": 1}, "deepseek_v3": {},
}  # fmt: skip


def made(case: str):
    """transformers' model of a case, with what a GGUF file cannot say set to what its architecture means."""
    if case in SPARSE:
        return build_sparse(sparse_json(case) | MODELS[case])
    return build((design_json(case) if case in DESIGNS else config_json(case)) | MODELS[case])


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([prompt()])).logits


def run(path):
    return load(path, device="cpu", dtype=torch.float32).forward(prompt())


@pytest.mark.parametrize("case", MODELS)
def test_every_architecture_gives_the_logits_of_the_model_it_was_made_of(case, tmp_path):
    model = made(case)
    path = write_gguf(tmp_path / "m.gguf", model)
    wanted = logits_of(model)
    torch.testing.assert_close(run(path), wanted, rtol=1e-5, atol=2e-5 * wanted.abs().max().item())


@pytest.mark.parametrize("case", ["llama", "gemma2", "deepseek_v3"])
def test_it_is_the_same_model_as_from_its_folder(case, tmp_path):
    model = made(case)
    model.save_pretrained(tmp_path / "folder")
    folder, file = open_checkpoint(tmp_path / "folder"), open_checkpoint(write_gguf(tmp_path / "m.gguf", model))
    assert file.config == folder.config and file.format == "gguf"
    for name in folder.tensors:
        torch.testing.assert_close(file.tensors.read(name), folder.tensors.read(name), rtol=0, atol=1e-6)


def test_keys_and_values_in_two_tensors(tmp_path):
    model = made("deepseek_v3")
    path = write_gguf(tmp_path / "m.gguf", model, split_kv_b=True)
    assert any(row.name.endswith("attn_k_b.weight") for row in inspect(path).tensors)
    wanted = logits_of(model)
    torch.testing.assert_close(run(path), wanted, rtol=1e-5, atol=2e-5 * wanted.abs().max().item())


def test_without_the_row_order_undone_the_logits_are_others(tmp_path, monkeypatch):
    from model.checkpoints.gguf.recipes import Halves

    model = made("llama")
    path = write_gguf(tmp_path / "m.gguf", model)
    monkeypatch.setattr(Halves, "apply", lambda self, tensor: tensor)
    assert (run(path) - logits_of(model)).abs().max() > 0.1


def test_without_the_one_taken_from_gemmas_gains_the_logits_are_others(tmp_path, monkeypatch):
    from model.checkpoints.gguf.recipes import Shifted

    model = made("gemma3_text")
    path = write_gguf(tmp_path / "m.gguf", model)
    monkeypatch.setattr(Shifted, "apply", lambda self, tensor: tensor)
    assert (run(path) - logits_of(model)).abs().max() > 0.01


FORMATS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "MXFP4")


@pytest.mark.parametrize("form", FORMATS)
def test_quantised_tensors_are_expanded_when_read(form, tmp_path):
    model = build(config_json("llama") | {"hidden_size": 96, "intermediate_size": 160})
    kind = gguf.GGMLQuantizationType[form]
    plain = {"F16": torch.float16, "BF16": torch.bfloat16}
    path = write_gguf(tmp_path / "m.gguf", model, quantise=lambda n, v: kind if v.ndim == 2 and v.shape[-1] % 32 == 0 else None)
    checkpoint = open_checkpoint(path)
    name, weight = "blocks.1.mlp.up_proj.weight", model.state_dict()["model.layers.1.mlp.up_proj.weight"]
    read = checkpoint.tensors.read(name)
    expected = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind))
    assert torch.equal(read.float(), expected) and read.dtype == checkpoint.tensors.dtype(name) == plain.get(
        form, torch.float32
    )
    assert 0 < (read.float() - weight).abs().max() < 0.4 * weight.abs().max()
    rows = {row.name: row for row in inspect(path).tensors}
    assert rows["blk.1.ffn_up.weight"].dtype == form and rows["blk.1.ffn_up.weight"].shape == (160, 96)
    assert rows["blk.1.attn_norm.weight"].dtype == "F32"
    assert any(form in note for note in checkpoint.report) == (form not in plain)


def test_formats_of_the_k_family_are_expanded_by_blocks_of_256(tmp_path):
    """gguf cannot write these, so the bytes are random and the gguf package's own expansion is the witness."""
    from model.checkpoints.gguf.header import Entry
    from model.checkpoints.gguf.weights import expand

    for form in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "TQ2_0"):
        kind = gguf.GGMLQuantizationType[form]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        raw = np.random.default_rng(0).integers(0, 60, (6, 2 * size), dtype=np.uint8)
        ours = expand(raw.reshape(-1), Entry(form, (2, 3, 2 * block), 0, raw.size))
        assert np.array_equal(ours.numpy().reshape(6, -1), gguf.quants.dequantize(raw, kind), equal_nan=True), form


def test_llama3_scaling_is_recovered_from_its_table(tmp_path):
    scaling = LLAMA3 | {"factor": 32.0, "original_max_position_embeddings": 8192}
    model = build(config_json("llama") | {"rope_scaling": scaling, "rope_theta": 500_000.0, "max_position_embeddings": 131_072})
    rotary = model.model.rotary_emb
    plain = 1.0 / 500_000.0 ** (torch.arange(0, 10, 2).float() / 10)
    table = (plain / rotary.inv_freq).numpy()
    path = write_gguf(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": table})
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.blocks[0].attn.rope.scaling == Llama3(factor=32.0, low=1.0, high=4.0, original=8192)
    torch.testing.assert_close(run(path), logits_of(model), rtol=1e-5, atol=1e-4)
    other = write_gguf(tmp_path / "other.gguf", model, extra={"rope_freqs.weight": np.array([1, 2, 3, 4, 5], np.float32)})
    with pytest.raises(BlockscopeError, match="rope_freqs"):
        open_checkpoint(other)


def test_yarn_of_gpt_oss_is_not_rounded(tmp_path):
    config = open_checkpoint(write_gguf(tmp_path / "m.gguf", made("gpt_oss"))).config
    scaling = config.blocks[0].attn.rope.scaling
    assert isinstance(scaling, Yarn) and not scaling.truncate and scaling.factor == 32


def test_fields_say_which_key_they_came_from(tmp_path):
    seen = inspect(write_gguf(tmp_path / "m.gguf", made("gemma2"), more=lambda writer: writer.add_name("tiny")))
    fields = {field.name: field for field in seen.fields}
    assert len(fields) == len(seen.fields)
    assert fields["hidden_size"].origin.endswith("gemma2.embedding_length") and fields["hidden_size"].status == "used"
    assert "token_embd.weight" in fields["vocab_size"].origin and "27B" in fields["query_pre_attn_scalar"].origin
    assert fields["general.name"].status == "unused" and seen.format == "gguf"
    assert seen.parameters_found == seen.parameters_expected
    assert [file.name for file in seen.files] == ["m.gguf"] and seen.bytes == (tmp_path / "m.gguf").stat().st_size


def test_a_folder_with_one_gguf_file_and_a_split_model(tmp_path):
    model = made("llama")
    path = write_gguf(tmp_path / "m.gguf", model)
    wanted = run(path)
    assert torch.equal(run(tmp_path), wanted)
    write_gguf(tmp_path / "n.gguf", model)
    with pytest.raises(BlockscopeError, match=r"m\.gguf, n\.gguf"):
        open_checkpoint(tmp_path)
    split = tmp_path / "split"
    split.mkdir()
    writer = gguf.GGUFWriter(split / "m.gguf", "llama", split_max_tensors=10)
    reader = gguf.GGUFReader(path)
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            writer.add_key_value(name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(split.iterdir())
    assert len(parts) == 3
    assert all(torch.equal(run(one), wanted) for one in (split, parts[0], parts[2]))
    parts[1].unlink()
    with pytest.raises(BlockscopeError, match="lacks 1 of the 3 parts"):
        open_checkpoint(parts[0])


def test_other_towers_in_ollamas_files_are_left_out(tmp_path):
    def more(writer):
        writer.add_uint32("gemma3.vision.block_count", 27)
        writer.add_uint32("gemma3.mm.tokens_per_image", 256)

    model = made("gemma3_text")
    extra = {"v.blk.0.attn_q.weight": np.ones((2, 2), np.float32), "mm.mm_input_projection.weight": np.ones((2, 2), np.float32)}
    path = write_gguf(tmp_path / "m.gguf", model, more=more, extra=extra)
    wanted = logits_of(model)
    torch.testing.assert_close(run(path), wanted, rtol=1e-5, atol=2e-5 * wanted.abs().max().item())
    assert any("mm.mm_input_projection.weight" in note for note in open_checkpoint(path).report)


def test_fields_that_would_change_the_numbers_are_refused(tmp_path):
    model = made("llama")
    for name, more, word in (
        ("a", lambda w: w.add_float32("llama.attention.clamp_kqv", 8.0), "clamp_kqv"),
        ("b", lambda w: w.add_rope_dimension_count(4), "rotate whole heads"),
        ("c", lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE), "longrope"),
        ("d", lambda w: w.add_causal_attention(False), "causal"),
        ("e", lambda w: w.add_logit_scale(0.3), "logit_scale"),
    ):
        with pytest.raises(BlockscopeError, match=word):
            open_checkpoint(write_gguf(tmp_path / f"{name}.gguf", model, more=more))
    with pytest.raises(BlockscopeError, match="expert_gating_func is 2"):
        open_checkpoint(
            write_gguf(
                tmp_path / "y.gguf", made("gpt_oss"), more=lambda w: w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
            )
        )
    with pytest.raises(BlockscopeError, match=r"general\.architecture is 'mamba'"):
        writer = gguf.GGUFWriter(tmp_path / "z.gguf", "mamba")
        writer.add_tensor("token_embd.weight", np.zeros((2, 2), np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        open_checkpoint(tmp_path / "z.gguf")
