"""Any part swapped on a model: it runs, it changes what it should, everything else is the same memory."""

import pytest
import torch
from conftest import make_lm, tiny_config

from model import PRESETS, load
from model.errors import BlockscopeError
from model.surgery import CHANGES, change, read, read_all, summary
from model.view import Request

CASES = [
    (name, value)
    for name, part in CHANGES.items()
    for value in (*part.choices, *(["7"] if part.free and name != "eps" else []))
    if not part.resizes
]
SAME = {("rope_base", "10000"), ("eps", "1e-05")}  # what the tiny model has, under another spelling of the number

UNSEEN = {  # new biases start at 0, the prompt is shorter than the window, the dtype is fp32 already
    ("biases", "on"), ("window", "64"), ("norm", "rmsnorm-fp32-gain"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), CASES)
def test_every_change_runs_and_shares_all_other_weights(tokens, name, value):
    lm = make_lm(tiny_config(tied=True))
    before = lm.forward(tokens)
    other = lm.variant(**{name: value})
    after = other.forward(tokens)
    assert after.isfinite().all() and torch.equal(lm.forward(tokens), before)
    if read(lm.config, name) == value or (name, value) in SAME:
        assert other is lm or torch.equal(after, before)
        return
    assert read(other.config, name) == value and ((after - before).abs().max() > 0) == ((name, value) not in UNSEEN)
    assert [CHANGES[name].title in phrase for phrase in summary(lm.config, other.config)] == [True]
    ours = {n: (p.data_ptr(), p.shape) for n, p in lm.net.named_parameters(remove_duplicate=False)}
    theirs = {n: (p.data_ptr(), p.shape) for n, p in other.net.named_parameters(remove_duplicate=False)}
    assert {n for n in theirs if theirs[n] != ours.get(n)} == set(other.invented)
    assert all(i.holds for i in other.identities(tokens, 1))
    other.views(tokens, [Request(tap.name, "stats") for tap in other.taps()])


def test_parts_can_be_changed_together_and_one_at_a_time(tokens):
    lm = make_lm()
    both = lm.variant(qk_norm="head", wiring="sandwich")
    step = lm.variant(wiring="sandwich").variant(qk_norm="head", wiring="sandwich")
    assert both.config == step.config and torch.equal(both.forward(tokens), step.forward(tokens))
    assert change(lm.config, {}) == lm.config and lm.variant() is lm


def test_nothing_before_the_changed_part_moves(tokens):
    """QK-norm leaves q, k and the stream entering block 0 bit for bit what they were."""
    lm = make_lm()
    same = ["hook_embed", "blocks.0.ln1.*", "blocks.0.attn.hook_q", "blocks.0.attn.hook_v"]
    a, b = lm.capture(tokens, same), lm.variant(qk_norm="head").capture(tokens, same)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_layers_bound_a_change(tokens):
    lm = make_lm()
    late = lm.variant(qk_norm="head", layers=range(2, 3))
    assert [read(lm.config.__class__(**{**vars(lm.config), "blocks": (b,)}), "qk_norm") for b in late.config.blocks] == [
        "off",
        "off",
        "head",
    ]
    assert late.invented == ("blocks.2.attn.k_norm.weight", "blocks.2.attn.q_norm.weight")
    assert summary(lm.config, late.config) == ["QK-norm off → head"]
    for layers in (range(1, 9), range(-1, 2), range(2, 2)):
        with pytest.raises(BlockscopeError, match="within 0–2"):
            lm.variant(qk_norm="head", layers=layers)


def test_matrices_change_their_shape_in_random_weights_only(tokens):
    with pytest.raises(BlockscopeError, match=r"k_proj.weight is \[30, 42\] in these weights and would have to be \[10, 42\]"):
        make_lm().variant(kv_heads="1")
    lm = load("tiny-llama")
    wide = lm.variant(kv_heads="6", mlp="relu", d_mlp="396")
    assert wide.parameters - lm.parameters == 4 * 2 * (6 - 2) * 16 * 96 and wide.forward(tokens).isfinite().all()
    assert "blocks.0.attn.q_proj.weight" not in wide.invented and "blocks.0.attn.k_proj.weight" in wide.invented
    with pytest.raises(BlockscopeError, match="not a multiple"):
        lm.variant(kv_heads="4")


def test_blocks_without_the_part_stay_as_they_are():
    llama4, deepseek = PRESETS["tiny-llama4"], PRESETS["tiny-deepseek-v3"]
    base = change(llama4, {"rope_base": "10000"})
    assert [b.attn.rope and b.attn.rope.base for b in base.blocks] == [1e4, 1e4, 1e4, None]
    assert read_all(llama4, "rope_base") == ["500000", "off"] and read_all(llama4, "window") == ["chunks of 24", "off"]
    assert read_all(change(llama4, {"window": "off"}), "window") == ["off"]
    dense = change(deepseek, {"mlp": "relu"})
    assert dense.blocks[0] != deepseek.blocks[0] and dense.blocks[1:] == deepseek.blocks[1:]
    with pytest.raises(BlockscopeError, match="mixture of experts"):
        change(deepseek, {"mlp": "relu"}, layers=range(1, 4))
    with pytest.raises(BlockscopeError, match="latent attention has no such slot"):
        change(deepseek, {"qk_norm": "head"})


def test_variants_share_the_memory_of_their_original(tokens):
    lm = make_lm()
    other, again = lm.variant(qk_norm="head"), lm.variant(qk_norm="head")
    request = Request("blocks.1.attn.hook_logits", "stats")
    assert other.remembered is lm.remembered
    (plain,), (normed,) = lm.views(tokens, [request]), other.views(tokens, [request])
    assert plain.stats != normed.stats and lm.views(tokens, [request])[0] is plain  # never one in place of the other
    assert again.views(tokens, [request])[0] is normed
    assert lm.variant(window="8").views(tokens, [request])[0] is not plain
