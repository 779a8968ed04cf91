"""Counting against published numbers and against transformers, which builds the same models on the meta device."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from configs import values

from model import PRESETS, count, load
from model.attention import Attention
from model.count.__main__ import main
from model.count.tables import TABLES, plain_words
from model.counting import PARTS, count_block
from model.errors import BlockscopeError
from model.masks import Causal
from model.mlp import MLP, gated_width
from model.positions import Rope


def share(part: str, block) -> float:
    return block.by_part[part] / block.parameters


# ---- known answers --------------------------------------------------------------------------------------------------

TOTALS = {
    "gpt2": 124_439_808,
    "llama-3.1-8b": 8_030_261_248,
    "qwen3-8b": 8_190_735_360,
    "gemma3-270m": 268_098_176,
    "gemma2-9b": 9_241_705_984,
    "mixtral-8x7b": 46_702_792_704,
    "llama-7b": 6_738_415_616,
    "llama-3.2-1b": 1_235_814_400,
}


@pytest.mark.parametrize("name", TOTALS)
def test_published_totals(name):
    assert count(name).parameters == TOTALS[name]


@pytest.mark.parametrize(
    ("name", "total", "active", "unit"),
    [
        ("deepseek-v3", 671, 37, 1e9),  # arXiv 2412.19437
        ("deepseek-v2", 236, 21, 1e9),  # arXiv 2405.04434
        ("gpt-oss-20b", 2091, 361, 1e7),  # arXiv 2508.10925, table 1, which leaves the embedding out of the active ones too
        ("gpt-oss-120b", 11683, 513, 1e7),
        ("palm-8b", 863, 863, 1e7),  # arXiv 2204.02311, table 1
        ("palm-540b", 54036, 54036, 1e7),  # 540.35 there, cut off
    ],
)
def test_published_sizes(name, total, active, unit):
    found = count(name)
    assert round(found.parameters / unit) == total and round(found.active / unit) == active


def test_llama_31_8b_part_by_part():
    found = count("llama-3.1-8b")
    block = found.by_block[0]
    assert block.by_part == {"attention": 41_943_040, "mlp": 176_160_768, "norms": 8192}
    assert len(found.by_block) == 32 and len({b.parameters for b in found.by_block}) == 1
    assert found.weight_bytes(2) == 16_060_522_496
    assert sum(found.by_part.values()) == found.parameters and list(found.by_part) == [p for p in PARTS if p in found.by_part]
    attn = PRESETS["llama-3.1-8b"].blocks[0].attn
    full = count_block(replace(PRESETS["llama-3.1-8b"].blocks[0], attn=replace(attn, n_kv_heads=32)))
    saved = 1 - block.by_part["attention"] / full.by_part["attention"]
    assert saved == 0.375 and round(share("attention", block), 3) == 0.192


def test_biases_on_seven_matrices():
    config = PRESETS["llama-3.1-8b"]
    block = config.blocks[0]
    attn, mlp = replace(block.attn, qkv_bias=True, o_bias=True), replace(block.mlp, bias=True)
    biased = replace(config, blocks=(replace(block, attn=attn, mlp=mlp),) * 32)
    assert count(biased).parameters - count(config).parameters == 1_376_256


def test_gpt2_attention_is_a_third_of_its_block():
    assert round(share("attention", count("gpt2").by_block[0]), 2) == 0.33


def test_qwen3_8b_shape():
    config = PRESETS["qwen3-8b"]
    assert config.n_layers == 36 and {b.mlp.d_mlp for b in config.blocks} == {12_288}


def test_swiglu_of_llama_3_against_a_plain_mlp():
    block = PRESETS["llama-3-8b"].blocks[0]
    plain = replace(block, mlp=MLP.Config(d_model=4096, d_mlp=4 * 4096))
    assert count_block(block).by_part["mlp"] / count_block(plain).by_part["mlp"] == 1.3125


@pytest.mark.parametrize(
    ("d", "multiple", "factor", "width"),
    [(4096, 256, None, 11_008), (4096, 1024, 1.3, 14_336), (2048, 256, 1.5, 8192), (8192, 4096, 1.3, 28_672), (16_384, 4096, 1.2, 53_248)],
)  # fmt: skip
def test_llama_width_rule(d, multiple, factor, width):
    assert gated_width(d, multiple, factor) == width


def test_presets_obey_the_width_rule():
    rules = {"llama-7b": (256, None), "llama-3-8b": (1024, 1.3), "llama-3-70b": (4096, 1.3), "llama-3-405b": (4096, 1.2)}
    for name, (multiple, factor) in rules.items():
        config = PRESETS[name]
        assert config.blocks[0].mlp.d_mlp == gated_width(config.d_model, multiple, factor)


# ---- cache and FLOPs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kv_heads", "numbers"), [(32, 8192), (8, 2048), (1, 256)])
def test_numbers_cached_per_token_and_layer(kv_heads, numbers):
    rope = Rope.Config(d=128, base=1e4, pairing="half")
    attn = Attention.Config(d_model=4096, n_heads=32, n_kv_heads=kv_heads, d_head=128, rope=rope)
    assert attn.cached_per_token == numbers


def test_latent_attention_caches_576_numbers():
    found = count("deepseek-v3")
    assert {b.cached for b in found.by_block} == {576} == {512 + 64}
    assert found.kv_bytes_per_token(2) == 61 * 576 * 2


@pytest.mark.parametrize(("name", "percent"), [("gemma3-270m", 17.0), ("gemma3-4b", 15.4)])
def test_gemma_3_stores_a_sixth_of_an_all_global_cache(name, percent):
    config, context = PRESETS[name], 131_072
    everywhere = replace(config, blocks=tuple(replace(b, attn=replace(b.attn, mask=Causal())) for b in config.blocks))
    part = count(config).kv_cache_bytes(context) / count(everywhere).kv_cache_bytes(context)
    assert round(100 * part, 1) == percent  # 270m is 5 : 1 throughout; 4b has 34 layers, so four local ones more


def test_windows_and_chunks_cap_the_cache():
    assert count("mistral-7b").kv_cache_bytes(4096) == count("mistral-7b").kv_cache_bytes(100_000) == 4096 * 131_072
    short, long = count("llama4-scout").kv_cache_bytes(8192, 1), count("llama4-scout").kv_cache_bytes(16_384, 1)
    assert long / short == (36 + 2 * 12) / 48  # a quarter of the layers see everything
    assert count("llama-3.1-8b").kv_cache_bytes(131_072) == 131_072 * count("llama-3.1-8b").kv_bytes_per_token()


def test_flops_of_a_token():
    found, per_key = count("gpt2"), 12 * 2 * 12 * 64
    assert found.flops_per_token(1024) == 2 * (found.active + 1024 * per_key)
    assert found.active == found.parameters - 1023 * 768  # one learned position; the tied table is the unembedding
    llama = count("llama-3-8b")
    assert llama.active == llama.parameters - (128_256 - 1) * 4096  # of the embedding only the token's row
    assert count("mistral-7b").flops_per_token(4096) == count("mistral-7b").flops_per_token(8192)
    mla = count("deepseek-v3").by_block[0]
    assert mla.work_per_key == 128 * (128 + 64 + 128)


def test_experts_that_a_token_does_not_meet():
    block = count("mixtral-8x7b").by_block[0]
    assert block.parameters - block.active == 6 * 3 * 4096 * 14_336
    shared = count("deepseek-v3").by_block[3].by_part
    assert shared == {"attention": 187_105_280, "mlp": 3 * 7168 * 2048, "experts": 256 * 3 * 7168 * 2048, "router": 256 * 7168 + 256, "norms": 16_384}  # fmt: skip


# ---- transformers as the witness ------------------------------------------------------------------------------------

LLAMA3 = {"num_key_value_heads": 8, "vocab_size": 128_256}
QWEN3 = {"num_key_value_heads": 8, "head_dim": 128}
GEMMA3_270M = {
    "vocab_size": 262_144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 4,
    "num_key_value_heads": 1,
}  # fmt: skip
DEEPSEEK_V2 = {
    "hidden_size": 5120, "intermediate_size": 12_288, "num_hidden_layers": 60, "num_attention_heads": 128,
    "first_k_dense_replace": 1, "n_routed_experts": 160, "moe_intermediate_size": 1536, "num_experts_per_tok": 6,
    "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy",
}  # fmt: skip


def sized(d: int, mlp: int, layers: int, heads: int, **more) -> dict:
    return {"hidden_size": d, "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads, **more}


WITNESS = {  # preset -> model_type, what differs from transformers' own defaults; parameters do not depend on masks or rope
    "gpt2": ("gpt2", {}),
    "gptj-6b": ("gptj", {}),
    "llama-7b": ("llama", {}),
    "llama-2-70b": ("llama", sized(8192, 28_672, 80, 64, num_key_value_heads=8)),
    "llama-3-8b": ("llama", sized(4096, 14_336, 32, 32, **LLAMA3)),
    "llama-3-70b": ("llama", sized(8192, 28_672, 80, 64, **LLAMA3)),
    "llama-3-405b": ("llama", sized(16_384, 53_248, 126, 128, **LLAMA3)),
    "llama-3.1-8b": ("llama", sized(4096, 14_336, 32, 32, **LLAMA3)),
    "llama-3.2-1b": ("llama", sized(2048, 8192, 16, 32, **LLAMA3, tie_word_embeddings=True)),
    "llama-3.2-3b": ("llama", sized(3072, 8192, 28, 24, **LLAMA3, tie_word_embeddings=True)),
    "mistral-7b": ("mistral", {}),
    "qwen2-0.5b": ("qwen2", sized(896, 4864, 24, 14, num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen3-0.6b": ("qwen3", sized(1024, 3072, 28, 16, **QWEN3, tie_word_embeddings=True)),
    "qwen3-1.7b": ("qwen3", sized(2048, 6144, 28, 16, **QWEN3, tie_word_embeddings=True)),
    "qwen3-4b": ("qwen3", sized(2560, 9728, 36, 32, **QWEN3, tie_word_embeddings=True)),
    "qwen3-8b": ("qwen3", sized(4096, 12_288, 36, 32, **QWEN3)),
    "qwen3-32b": ("qwen3", sized(5120, 25_600, 64, 64, **QWEN3)),
    "olmo2-7b": ("olmo2", {"vocab_size": 100_352}),
    "gemma2-9b": ("gemma2", sized(3584, 14_336, 42, 16, num_key_value_heads=8)),
    "gemma3-270m": ("gemma3_text", GEMMA3_270M),
    "gemma3-4b": ("gemma3_text", sized(2560, 10_240, 34, 8)),
    "mixtral-8x7b": ("mixtral", {}),
    "qwen3-30b-a3b": ("qwen3_moe", {"num_hidden_layers": 48, "head_dim": 128}),
    "llama4-scout": ("llama4_text", {}),
    "gpt-oss-20b": ("gpt_oss", {"num_hidden_layers": 24, "num_local_experts": 32}),
    "gpt-oss-120b": ("gpt_oss", {}),
    "deepseek-v2": ("deepseek_v2", DEEPSEEK_V2),
    "deepseek-v3": ("deepseek_v3", {}),
}
NO_WITNESS = {"transformer-2017-base", "palm-8b", "palm-540b"}  # transformers has no such model


def test_every_published_preset_has_a_witness_or_a_reason():
    assert {name for name in PRESETS if not name.startswith("tiny-")} == WITNESS.keys() | NO_WITNESS


@pytest.mark.parametrize("name", WITNESS)
def test_transformers_counts_the_same(name):
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, changes = WITNESS[name]
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **changes))
    known = dict(theirs.named_parameters(remove_duplicate=False))
    buffers = sum(t.numel() for name, t in theirs.state_dict().items() if name not in known)  # DeepSeek-V3's correction
    assert count(name).parameters == sum(p.numel() for p in theirs.parameters()) + buffers


# ---- presets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith("tiny-")])
def test_a_tiny_twin_is_small_and_runs(name):
    lm, ids = load(name, device="cpu"), list(range(32))
    assert lm.config.d_vocab == 256 and lm.parameters < 2_000_000
    logits = lm.forward(ids)
    assert logits.shape == (1, 32, 256) and bool(torch.isfinite(logits).all())
    assert count(name).parameters == sum(p.numel() for p in lm.config.build().parameters())


def test_twins_of_every_design():
    assert len([n for n in PRESETS if n.startswith("tiny-")]) >= 17
    for name in ("tiny-mistral", "tiny-gemma2", "tiny-gemma3", "tiny-gpt-oss", "tiny-llama4"):  # a short prompt passes the edge
        assert min(b.attn.mask.reach(512) for b in PRESETS[name].blocks) <= 24


# ---- the door and the command line ----------------------------------------------------------------------------------


def test_counting_a_config_file(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(values("llama")))
    assert count(tmp_path).parameters == count(tmp_path / "config.json").parameters > 0
    with pytest.raises(BlockscopeError, match="did you mean gpt2"):
        count("gpt-2")


def test_the_command_line(capsys):
    assert main(["llama-3.1-8b", "--compare", "gpt2", "--context", "1024"]) == 0
    said = capsys.readouterr().out
    assert "8,030,261,248" in said and "124,439,808" in said and "blocks 0 to 31, each: attention 41,943,040 (19.2%)" in said
    assert main(["gpt2", "--json", "--bits", "32"]) == 0
    said = json.loads(capsys.readouterr().out)["gpt2"]
    assert said["parameters"] == 124_439_808 and said["weight_bytes"] == 4 * 124_439_808 and said["context"] == 1024
    assert main(["gpt2", "--compare", "llama-3.1-8b", "qwen3-8b"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"\* positions: RoPE base +– +500,000 +1,000,000", said) and re.search(
        r"\n  norms: placement +before each", said
    )
    for name in TABLES:
        assert main(["gemma3-270m", "--context", "64", "--show", name]) == 0
        assert name.upper() in capsys.readouterr().out
    assert plain_words("h = Attn_{GQA, RoPE}(x) / 2^{−2p/d} e^{s_{ij}}") == "h = Attn_GQA_RoPE(x) / 2^(−2p/d) e^s_ij"
    assert main(["gpt2", "--show", "parameters", "ladder", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert ["Llama 3", "a vocabulary four times as large", "8,030,261,248"] in [row[:3] for row in tables["ladder"]]
    assert any(
        row[1] == "attn.q_proj.weight" and row[5].startswith("n_heads · d_head · d_model") for row in tables["parameters"]
    )
    assert main(["gtp2"]) == 2 and "did you mean gpt2" in capsys.readouterr().err


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "model.count", "gpt2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr and "124,439,808" in done.stdout
