"""Anatomy from a config alone: equations, shapes, the product behind every parameter, budgets, designs, the ladder."""

import json
import math
import time
from dataclasses import replace

import pytest
import torch
from configs import values

from model import PRESETS, count
from model.anatomy import budget, equations, facts, kinds, ladder, parameters, shapes, steps, twin
from model.anatomy.described import LARGEST, pasted, preset
from model.anatomy.designs import designs
from model.anatomy.sublayers import attention_name
from model.anatomy.writing import number
from model.block import WIRINGS, PreNorm
from model.counting import count_block
from model.errors import BlockscopeError
from model.mlp import GLU, gated_width
from model.norms import NORMS, NormConfig, RMSNorm
from model.presets.sources import sources
from model.taps import capture, taps_of

PUBLISHED = [name for name in PRESETS if not name.startswith("tiny-")]


def lines(name: str, layer: int = 0) -> list[str]:
    return [line.text for line in equations.block_equations(PRESETS[name].blocks[layer])]


# ---- equations ------------------------------------------------------------------------------------------------------

BLOCKS = {
    "gpt2": ["h = x + Attn_{MHA}(LayerNorm(x))", "y = h + MLP_{GELU}(LayerNorm(h))"],
    "llama-3.1-8b": ["h = x + Attn_{GQA, RoPE}(RMSNorm(x))", "y = h + SwiGLU(RMSNorm(h))"],
    "qwen3-8b": ["h = x + Attn_{GQA, QK-norm, RoPE}(RMSNorm(x))", "y = h + SwiGLU(RMSNorm(h))"],
    "transformer-2017-base": ["h = LayerNorm(x + Attn_{MHA}(x))", "y = LayerNorm(h + MLP_{ReLU}(h))"],
    "olmo2-7b": ["h = x + RMSNorm(Attn_{MHA, QK-norm, RoPE}(x))", "y = h + RMSNorm(SwiGLU(h))"],
    "gemma2-9b": [
        "h = x + RMSNorm(Attn_{GQA, RoPE, window 4,096, soft-cap}(RMSNorm(x)))",
        "y = h + RMSNorm(GEGLU(RMSNorm(h)))",
    ],
    "palm-8b": ["y = x + Attn_{MQA, RoPE}(LayerNorm(x)) + SwiGLU(LayerNorm(x))"],
    "gpt-oss-20b": ["h = x + Attn_{GQA, RoPE, window 128, sink}(RMSNorm(x))", "y = h + MoE_{4 of 32}(RMSNorm(h))"],
    "deepseek-v3": ["h = x + Attn_{MLA, RoPE}(RMSNorm(x))", "y = h + SwiGLU(RMSNorm(h))"],
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_reads_as_its_equation(name):
    assert lines(name)[: len(BLOCKS[name])] == BLOCKS[name]


def test_the_parts_are_written_with_their_own_numbers():
    assert "s_{ij} = q_{i} · k_{j} / √128" in lines("llama-3.1-8b")
    assert "rot(x) = each pair p turned by i · 500,000^{−2p/128}" in lines("llama-3.1-8b")
    assert "q, k = rot(RMSNorm(q)),  rot(RMSNorm(k))" in lines("qwen3-8b")
    assert "q, k = RMSNorm(rot(q)),  RMSNorm(rot(k))" in lines("llama4-scout")
    assert "SwiGLU(x) = W_{down} (SiLU(W_{gate} x) ⊙ (W_{up} x))" in lines("qwen3-8b")
    assert "RMSNorm(x) = x / √(mean(x²) + 10⁻⁶) ⊙ (1 + w)" in lines("gemma2-9b")
    assert "s_{ij} = 50 · tanh(s_{ij} / 50)" in lines("gemma2-9b")
    assert "p_{ij} = softmax_{j}(s_{ij}),  i − 4,096 < j ≤ i" in lines("gemma2-9b")
    assert any("e^{sink_{h}}" in line for line in lines("gpt-oss-20b"))
    assert any("best 4 of 8 groups" in line for line in lines("deepseek-v3", 60))
    assert "logits = 30 · tanh(E RMSNorm(x_{L}) / 30)" in [e.text for e in equations.model_equations(PRESETS["gemma2-9b"])]


@pytest.mark.parametrize("name", PRESETS)
def test_every_design_has_whole_equations(name):
    for kind in kinds.kinds(PRESETS[name]):
        for line in [*equations.block_equations(kind.block), *equations.model_equations(PRESETS[name])]:
            plain = line.text.replace("_{", "<").replace("^{", "<")
            assert line.left and line.right and "None" not in plain and "Config" not in plain
            assert line.text.count("{") == line.text.count("}") and line.text.count("(") == line.text.count(")")
            assert not any(word in line.text for word in ("{eps}", "{ln", "{attn}", "{mlp}", "{window}", "{factor}", "{kept}"))


def test_every_norm_and_wiring_is_written():
    for part in NORMS.values():
        assert equations.norm_equation(part.Config(d=8, eps=0.25)).right
    block = PRESETS["tiny-llama"].blocks[0]
    for part in WIRINGS.values():
        norms = {name: block.ln1 for name in part.Config.__dataclass_fields__ if name.startswith("ln")}
        assert "Attn" in equations.wiring_equations(part.Config(attn=block.attn, mlp=block.mlp, **norms))[0].right


class HalfRMSNorm(RMSNorm):
    """y = x / sqrt(mean(x^2) + eps) * g / 2."""

    class Config(NormConfig):
        def build(self, dims="batch pos d_model", axes=1):
            return HalfRMSNorm(self.d, self.eps, dims, axes)


def test_a_new_part_writes_itself():
    line = equations.norm_equation(HalfRMSNorm.Config(d=8))
    assert line.text == "HalfRMSNorm(x) = y = x / sqrt(mean(x^2) + eps) * g / 2"
    block = replace(PRESETS["tiny-llama"].blocks[0], ln1=HalfRMSNorm.Config(d=96))
    assert "HalfRMSNorm(x)" in equations.wiring_equations(block)[0].text


def test_numbers_in_equations():
    cases = {1e-5: "10⁻⁵", 2e-6: "2·10⁻⁶", 500_000.0: "500,000", 0.0883883: "0.08839", 2.5: "2.5", 1.0: "1", 0.0: "0"}
    assert {value: number(value) for value in cases} == cases


def test_kinds_and_their_layers():
    found = kinds.kinds(PRESETS["deepseek-v3"])
    assert [(k.where, k.name) for k in found] == [("0–2", "SwiGLU"), ("3–60", "MoE_{8 of 256}")]
    local, whole = kinds.kinds(PRESETS["gemma3-4b"])
    assert whole.layers == tuple(range(5, 34, 6)) and "every 6th" in whole.where and "window 1,024" in local.name
    assert [k.where for k in kinds.kinds(PRESETS["gpt-oss-20b"])] == ["0, 2, … 22: every 2nd", "1, 3, … 23: every 2nd"]
    for name, config in PRESETS.items():
        assert sorted(layer for kind in kinds.kinds(config) for layer in kind.layers) == list(range(config.n_layers)), name
        assert len({kind.name for kind in kinds.kinds(config)}) == len(kinds.kinds(config))
    assert attention_name(PRESETS["gpt-oss-20b"].blocks[1].attn) == "Attn_{GQA, RoPE, sink}"


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in PRESETS if n.startswith("tiny-")])
def test_shapes_are_those_of_a_run(name):
    for kind in kinds.kinds(PRESETS[name]):
        with torch.device("meta"):
            net = kind.block.build()
            _, found = capture(net, torch.empty(3, 17, kind.block.d_model))
        told = {shape.tap: shape for shape in shapes.block_shapes(kind.block, 3, 17)}
        assert told.keys() == taps_of(net).keys()
        assert {tap: shape.sizes for tap, shape in told.items()} == {tap: tuple(x.shape) for tap, x in found.items()}
        assert all(len(shape.dims) == len(shape.sizes) and shape.elements == math.prod(shape.sizes) for shape in told.values())


def test_shapes_of_a_long_text_cost_nothing():
    started = time.perf_counter()
    found = {s.tap: s for s in shapes.block_shapes(PRESETS["llama-3-405b"].blocks[0], 64, 1 << 20)}
    assert time.perf_counter() - started < 5
    assert found["attn.hook_logits"].sizes == (64, 128, 1 << 20, 1 << 20) and found["attn.hook_logits"].square


# ---- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_parameter_is_the_product_it_claims(name):
    config, found = PRESETS[name], parameters.parameters(PRESETS[name])
    assert sum(row.total for row in found) == count(name).parameters
    by_part = {}
    for row in found:
        by_part[row.part] = by_part.get(row.part, 0) + row.total
    assert by_part == dict(count(name).by_part)
    for kind in kinds.kinds(config):
        for row in parameters.block_rows(kind.block):
            if row.part != "norms":
                product, words = parameters.product_of(kind.block, row.name)
                assert product and parameters.multiplied(product, words) == row.each == math.prod(row.shape), row
                assert row.formula.endswith(f"{row.each:,}") and row.formula.startswith(product.split()[0].split("+")[0])
    assert sum(row.times for row in found if row.name == "ln1.weight" or row.name == "ln1.offset") in (0, config.n_layers)


def test_a_tied_matrix_stands_once():
    names = [row.name for row in parameters.parameters(PRESETS["gpt2"])]
    assert "embed.weight" in names and "unembed.weight" not in names and names[0] == "embed.weight"
    assert [row.name for row in parameters.parameters(PRESETS["llama-3.1-8b"])][-1] == "unembed.weight"


# ---- budgets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_shares_add_up(name):
    for context in (1, 1000, 100_000):
        part = budget.shares(PRESETS[name], context)
        assert part.total == count(name).flops_per_token(context) and min(vars(part).values()) >= 0
        assert 0 < part.attention < 1


def test_attention_takes_over_with_length():
    shares = [budget.shares(PRESETS["llama-3.1-8b"], n).attention for n in budget.contexts()]
    assert shares == sorted(shares) and shares[0] < 0.2 and shares[-1] > 0.9
    window = [budget.shares(PRESETS["mistral-7b"], n).attention for n in (4096, 1 << 20)]
    assert window[0] == window[1]


def test_weights_read_and_intensity():
    dense, sparse = PRESETS["llama-3.1-8b"], PRESETS["mixtral-8x7b"]
    assert budget.weights_read(dense, 1) == budget.weights_read(dense, 100) == count(dense).active
    assert budget.weights_read(sparse, 1) == pytest.approx(count(sparse).active)
    experts = sum(b.by_part["experts"] for b in count(sparse).by_block)
    assert budget.weights_read(sparse, 2) == pytest.approx(count(sparse).active + experts * (1 - 0.75**2 - 0.25))
    assert budget.weights_read(sparse, 500) == pytest.approx(count(sparse).active + experts * 0.75)
    assert budget.intensity(dense, 1, 1) == pytest.approx(1, rel=1e-3)  # two FLOPs a weight of two bytes
    assert budget.intensity(dense, 64, 8192) == pytest.approx(64 * budget.intensity(dense, 1, 8192))
    assert budget.intensity(dense, 64, 8192, cached=True) < budget.intensity(dense, 64, 8192)


def test_the_numbers_and_their_formulas():
    told = {n.name: n for n in budget.numbers(PRESETS["llama-3.1-8b"], 8192)}
    assert told["parameters"].text == "8,030,261,248" and "embedding 525,336,576" in told["parameters"].formula
    assert (
        told["cache of one more token, 16 bits"].value == 131_072
        and "2 · n_kv_heads 8 · d_head 128" in told["cache of one more token, 16 bits"].formula
    )
    assert told["users whose caches fill 80 GB, 16 bits"].value == int(80e9 // (8192 * 131_072)) == 74
    assert told["users beside the weights in 80 GB, 16 bits"].value == int((80e9 - 16_060_522_496) // (8192 * 131_072))
    large = {n.name: n for n in budget.numbers(PRESETS["deepseek-v3"], 8192)}
    assert (
        large["users beside the weights in 80 GB, 16 bits"].value == 0
        and "17 cards" in large["users beside the weights in 80 GB, 16 bits"].formula
    )
    assert (
        "576" in large["cache of 8,192 tokens, 16 bits"].formula
        and "(window)"
        in {n.name: n for n in budget.numbers(PRESETS["gemma3-4b"], 8192)}["cache of 8,192 tokens, 16 bits"].formula
    )


def test_cache_designs_at_equal_heads():
    found = {
        d.name.partition(",")[0] if d.name != "as built" else d.name: d
        for d in designs(PRESETS["llama-3.1-8b"], 131_072)
        if "window" not in d.name and "local" not in d.name
    }
    assert found["MHA"].per_token == 32 * 2 * 32 * 128 * 2 == 524_288
    assert found["GQA"].per_token == found["as built"].per_token == 131_072 and found["MQA"].per_token == 524_288 // 32
    assert found["MLA"].per_token == 32 * (512 + 64) * 2
    assert [found[name].users for name in ("MHA", "GQA", "MQA", "MLA")] == [1, 4, 37, 16]
    windows = {d.name: d for d in designs(PRESETS["llama-3.1-8b"], 131_072)}
    assert windows["MHA, window 1,024"].cache == 1024 * 524_288
    mixed = windows["MHA, 5 local : 1 global"].cache
    assert mixed == 2 * 2 * 32 * 128 * (5 * 131_072 + 27 * 1024)
    for name in PUBLISHED:
        assert len(designs(PRESETS[name], 4096)) == 8


# ---- side by side ---------------------------------------------------------------------------------------------------


def test_every_preset_has_its_source():
    assert sources().keys() == PRESETS.keys() and all(sources().values())
    assert sources()["qwen3-8b"].startswith("Yang et al. 2025") and sources()["qwen3-8b"].endswith("Qwen/Qwen3-8B")
    assert sources()["palm-540b"] == sources()["palm-8b"] and "gpt2" in sources()["tiny-gpt2"]


def test_models_side_by_side():
    names = ("gpt2", "llama-3.1-8b", "qwen3-8b")
    found = {(line.group, line.name): line for line in facts.side_by_side({n: PRESETS[n] for n in names}, sources(), 8192)}
    assert found["size", "layers"].values == ("12", "32", "36") and found["size", "layers"].differs
    assert found["attention", "key/value heads"].values == ("12", "8", "8")
    assert found["attention", "QK-norm"].values == ("–", "–", "RMSNorm per head")
    assert found["positions", "RoPE base"].values == ("–", "500,000", "1,000,000")
    assert found["norms", "placement"].values == ("before each part",) * 3 and not found["norms", "placement"].differs
    assert found["counts", "parameters"].values == ("124,439,808", "8,030,261,248", "8,190,735,360")
    assert "openai-community/gpt2" in found["size", "layers"].sources[0] and "n_layer" in found["size", "layers"].sources[0]
    assert found["counts", "parameters"].sources[0].startswith("counted from the config")
    assert ("MLP", "experts") not in found
    alone = facts.side_by_side({"a": PRESETS["gpt2"], "b": PRESETS["gpt2"]}, {}, 8)
    assert not any(line.differs for line in alone)


@pytest.mark.parametrize("name", PRESETS)
def test_every_fact_of_every_preset_can_be_read(name):
    for line in facts.side_by_side({name: PRESETS[name]}, sources(), 4096):
        assert line.values[0] and line.sources[0] and "Config" not in line.values[0] and "None" not in line.values[0]


# ---- the ladder -----------------------------------------------------------------------------------------------------


def rungs(size=ladder.COMMON, width="matched"):
    return {rung.id: (rung, config) for rung, config in ladder.climb(size, width)}


def test_the_ladder_arrives_where_the_models_are():
    made = rungs()
    assert count(made["untied"][1]).parameters == count("llama-7b").parameters == 6_738_415_616
    assert count(made["vocab"][1]).parameters == count("llama-3-8b").parameters == 8_030_261_248
    assert made["vocab"][1].blocks[0].mlp == PRESETS["llama-3-8b"].blocks[0].mlp
    assert made["vocab"][1].blocks[0].attn == PRESETS["llama-3-8b"].blocks[0].attn
    assert [rung.model for rung, _ in made.values() if rung.model] == [
        "Transformer 2017", "GPT-2", "Llama", "Llama 3", "Llama 3.1", "Qwen3", "OLMo 2", "Gemma 3", "DeepSeek-V3", "gpt-oss",
    ]  # fmt: skip
    for name, twin_name in {
        "qwen3": "qwen3-8b",
        "olmo2": "olmo2-7b",
        "gemma3": "gemma3-4b",
        "deepseek": "deepseek-v3",
        "gpt-oss": "gpt-oss-20b",
    }.items():
        ours, theirs = made[name][1].blocks[-1], PRESETS[twin_name].blocks[-1]
        assert type(ours) is type(theirs) and type(ours.attn) is type(theirs.attn) and type(ours.mlp) is type(theirs.mlp)
        assert bool(getattr(ours.attn, "q_norm", None)) == bool(getattr(theirs.attn, "q_norm", None))


def test_each_rung_changes_something_and_stands_on_one_before_it():
    for size in (ladder.COMMON, ladder.TINY):
        made = rungs(size)
        seen = []
        for name, (rung, config) in made.items():
            assert rung.below is None or rung.below in seen
            if rung.below and not (size is ladder.TINY and name == "vocab"):  # bytes have no larger vocabulary
                assert config != made[rung.below][1], name
            assert (config.d_model, config.n_layers) == (size.d, size.layers) and config.blocks[0].attn.n_heads == size.heads
            seen.append(name)


def test_gqa_takes_attentions_share_and_a_gate_can_be_matched():
    made = rungs()
    share = lambda name: (b := count_block(made[name][1].blocks[0])).by_part["attention"] / b.parameters  # noqa: E731
    assert round(share("untied"), 2) == 0.33 and round(share("gqa"), 3) == 0.237
    before, after = (count_block(made[n][1].blocks[0]).by_part["mlp"] for n in ("no-bias", "swiglu"))
    assert made["swiglu"][1].blocks[0].mlp.d_mlp == gated_width(4096, 256) == 11_008
    assert abs(after / before - 1) < 0.01
    same = rungs(width="same")["swiglu"][1]
    assert same.blocks[0].mlp.d_mlp == 4 * 4096 and isinstance(same.blocks[0].mlp, GLU.Config)
    assert count_block(same.blocks[0]).by_part["mlp"] / before == 1.5
    assert set(ladder.WIDTHS) == {"matched", "same"}


def test_the_twins_run_and_show_what_each_rung_does():
    found = twin.twins()
    assert found.keys() == {rung.id for rung in ladder.RUNGS}
    assert all(math.isfinite(v) for one in found.values() for v in vars(one).values())
    assert found["2017"].logit > 50 > found["unscaled"].logit  # embeddings times sqrt(d) without a norm before attention
    assert found["no-bias"] == found["rope"] and found["vocab"] == found["base"]  # biases start at 0; bytes stay bytes
    assert found["qwen3"].logit <= 16**0.5 * 1.001  # the bound of unit gains: sqrt(d_head)
    assert found["2017"].stream == pytest.approx(1, abs=1e-3)
    assert twin.run(steps.start(ladder.TINY)) == found["2017"]


# ---- what is pasted -------------------------------------------------------------------------------------------------


def test_a_pasted_config_is_read_as_the_file_would_be():
    text = json.dumps(values("llama"))
    told = pasted(text)
    assert isinstance(told.config.blocks[0], PreNorm.Config) and told.notes is not None
    assert parameters.parameters(told.config)
    assert preset("gpt2").config is PRESETS["gpt2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing was pasted"), ("   ", "nothing was pasted"), ("{", "not valid JSON"), ("[]", "expected an object"), ("null", "expected an object"),
        ('{"a": 1, "a": 2}', "twice"), ('{"model_type": NaN}', "NaN"), ("{}", "model_type is missing"),
        ('{"model_type": "bert"}', "types that can be opened"), ('{"model_type": ["llama"]}', "types that can be opened"),
        ("[" * 60_000, "JSON"), ('{"a":' * 10_000, "JSON"), ("9" * 10_000, "number"), ("x" * (LARGEST + 1), "bytes"),
        ('{"model_type": "<img src=x onerror=alert(1)>"}', "model_type"), ("\ud800", "JSON"),
    ],
    ids=lambda x: repr(x[:20]),
)  # fmt: skip
def test_hostile_configs_are_a_sentence(text, words):
    with pytest.raises(BlockscopeError, match=words) as caught:
        pasted(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "change",
    [{"num_hidden_layers": 10**9}, {"hidden_size": 10**12}, {"vocab_size": -1}, {"head_dim": 0}, {"num_hidden_layers": "3"}],
    ids=str,
)
def test_absurd_sizes_are_refused_by_name(change):
    with pytest.raises(BlockscopeError, match=next(iter(change))):
        pasted(json.dumps(values("llama", **change)))


def test_an_unknown_preset_has_a_hint():
    with pytest.raises(BlockscopeError, match="did you mean gpt2"):
        preset("gtp2")
