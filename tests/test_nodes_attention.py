"""Attention and rotation: the model's own numbers, and the formulas written out in numpy against the model itself."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_lm, tiny_config
from pictures import LLAMA3, YARN, captured, poisoned, scene, shown

from model.masks import Causal, Chunked, Sliding
from viz import nodes
from viz.nodes import facts, qk, rope, square
from viz.state import UiState
from viz.theme import LIGHT, number

# ---- attention --------------------------------------------------------------------------------------------------------


def test_stages_are_the_model_s_own_numbers(lm, tokens):
    logits = captured(lm, tokens, "blocks.1.attn.hook_logits")[4]
    pattern = captured(lm, tokens, "blocks.1.attn.hook_pattern")[4]
    visible = np.tril(np.ones_like(logits, bool))
    for stage, expected in (("scaled", logits), ("raw", logits * 10**0.5), ("masked", logits), ("pattern", pattern)):
        z = shown(lm, tokens, stage=stage)["scores"].figure.data[0].z
        assert np.isnan(z[~visible]).all() and np.allclose(z[visible], expected[visible], atol=1e-5), stage
    assert shown(lm, tokens, node="pattern")["scores"].figure.layout.coloraxis.cmax == 1


def test_large_and_small_pictures_share_one_range(lm, tokens):
    logits = captured(lm, tokens, "blocks.1.attn.hook_logits")
    largest = np.abs(logits[:, np.tril(np.ones(logits.shape[1:], bool))]).max()
    found = shown(lm, tokens)
    for name in ("scores", "heads"):
        assert found[name].figure.layout.coloraxis.cmax == pytest.approx(largest, rel=1e-5)
    assert "head 4 · kv 2" in found["heads"].figure.layout.annotations[4].text


def test_the_first_token_can_be_hidden(lm, tokens):
    logits = captured(lm, tokens, "blocks.1.attn.hook_logits")[4]
    card = shown(lm, tokens, hide_first=1)["scores"]
    z = card.figure.data[0].z
    assert (
        z.shape == (22, 22)
        and z[5, 3] == pytest.approx(logits[6, 4], rel=1e-5)
        and "22 × 22, nothing pooled · key 0 hidden" in card.caption
    )
    assert "not hidden" not in card.caption and "is not hidden" in shown(lm, [7], hide_first=1)["scores"].caption
    assert card.figure.data[0].x[0] == 1 and tuple(card.figure.layout.yaxis.range) == (22.5, 0.5)


def test_hiding_the_first_token_of_a_long_prompt_pools_what_is_left():
    values = -np.arange(300 * 300, dtype=np.float32).reshape(300, 300)
    values[:, 0], values[9, 7] = 1e6, np.nan
    masked = np.triu(np.ones((300, 300), bool), 1)
    view = square.View(
        "t",
        np.where(masked, np.nan, values),
        ("query_pos", "key_pos"),
        (np.arange(300),) * 2,
        "signed",
        "float32",
        (1, 1, 300, 300),
        None,
        "nothing pooled",
        masked,
    )
    part = square.square(view, 1.0, True)
    assert max(part.values.shape) <= square.MOST and np.nanmax(np.abs(part.values)) < 1e6 and part.rows[0] == 1
    block = values[1 + 3 * 10 : 1 + 3 * 11, 1 : 1 + 3]
    assert part.values[10, 0] == block.flat[np.argmax(np.abs(block))]
    assert np.isnan(part.values[2, 2]) and not part.masked[2, 2] and part.masked[0, 5]


@pytest.mark.parametrize("mask", [Causal(), Sliding(window=5), Chunked(chunk=7)])
def test_the_facts_of_a_head(tokens, mask):
    lm = make_lm(tiny_config(mask=mask))
    s = scene(lm, tokens)
    found = facts.Facts.of(s, s.ask(**facts.wanted(s)))
    logits, pattern = (captured(lm, tokens, f"blocks.1.attn.hook_{name}") for name in ("logits", "pattern"))
    at = torch.arange(len(tokens))
    visible = mask(at, at).numpy()
    assert np.array_equal(qk.seen(s, at.numpy(), at.numpy()), visible)
    hidden = np.where(visible, logits, 0)
    assert np.allclose(found.absmax, np.abs(hidden).max((1, 2)), rtol=1e-5)
    assert (found.query, found.key) == np.unravel_index(np.abs(hidden[4]).argmax(), visible.shape)
    q, k = (
        captured(lm, tokens, "blocks.1.attn.hook_rot_q")[found.query, 4],
        captured(lm, tokens, "blocks.1.attn.hook_rot_k")[found.key, 2],
    )
    assert found.cosine == pytest.approx(q @ k / np.linalg.norm(q) / np.linalg.norm(k), rel=1e-4)
    n = visible.sum(1)
    entropy = -np.where(pattern > 0, pattern * np.log(np.where(pattern > 0, pattern, 1)), 0).sum(2)
    assert np.allclose(found.entropy, (entropy[:, n > 1] / np.log(n[n > 1])).mean(1), rtol=1e-4)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("scaling", [None, LLAMA3, YARN])
@pytest.mark.parametrize("over", ["head", "projection"])
def test_the_counterfactual_is_what_the_variant_computes(tokens, over, scaling, pairing):
    """In block 0 the variant reads the same stream, so the numpy formula must give its logits."""
    lm = make_lm(tiny_config(over, scaling=scaling, pairing=pairing, mask=Sliding(window=9)))
    off = lm.variant(qk_norm="off")
    visible = qk.seen(scene(lm, tokens), np.arange(23), np.arange(23))
    for shown_lm, other, built in ((lm, off, lm), (off, lm, lm), (off, off.variant(qk_norm="head"), off)):
        s = nodes.Scene.of(shown_lm, tokens, UiState(layer=0, head=4), LIGHT, built)
        g = None if other.qk_norm == "off" else qk.gains(nodes.Scene.of(other, tokens, s.state, LIGHT), other.qk_norm)
        expected = captured(other, tokens, "blocks.0.attn.hook_logits")[4][visible]
        assert np.allclose(qk.visible_logits(s, s.ask(**qk.projected(s)), g), expected, atol=2e-5)


@pytest.mark.parametrize("over", ["head", "projection"])
def test_the_bound_holds_and_is_not_sqrt_d_head(tokens, over):
    lm = make_lm(tiny_config(over, scaling=YARN))
    s = scene(lm, tokens)
    bound, words = qk.bounds(s, qk.gains(s, over))
    found = facts.Facts.of(s, s.ask(**facts.wanted(s)))
    assert (found.absmax <= bound).all() and np.array_equal(found.bound, bound) and "max|g_q|" in words
    assert (
        "not plain √d_head" in shown(lm, tokens)["overlay"].caption
        and "learned" in shown(lm, tokens, node="qk_norm")["qk-gain"].caption
    )


def test_the_bound_by_hand(lm, tokens):
    """Width 128 and unit gains: 11.31. Over a projection a head can hold the whole length."""
    attn = replace(
        lm.config.blocks[0].attn, d_head=128, n_heads=4, n_kv_heads=2, rope=replace(lm.config.blocks[0].attn.rope, d=128)
    )

    class Shape:
        config = replace(lm.config, blocks=(replace(lm.config.blocks[0], attn=attn),) * 3)
        qk_norm, invented = "off", ()

    s = replace(scene(lm, tokens), lm=Shape(), built=Shape())
    assert qk.bounds(s, qk.ones(s, "head"))[0] == pytest.approx([11.3137] * 4, rel=1e-4)
    assert qk.bounds(s, qk.ones(s, "projection"))[0] == pytest.approx([128 * 8**0.5 / 128**0.5] * 4, rel=1e-6)
    q = np.zeros((4, 128))
    q[1] = 1.0  # all of the projection's length in one head: the norm makes it sqrt(4 * 128) long
    normed = q / np.sqrt(np.mean(q**2))
    assert np.linalg.norm(normed[1]) == pytest.approx((4 * 128) ** 0.5)


def test_trained_gains_are_the_counterfactual_of_a_model_that_has_them(tokens):
    built = make_lm(tiny_config("head"))
    off = built.variant(qk_norm="off")
    card = shown(off, tokens, built=built, qk="off")["overlay"]
    gq, gk = (np.abs(built.parameter(f"blocks.1.attn.{part}_norm.weight")).max() for part in "qk")
    assert card.figure.layout.shapes[1].x0 == pytest.approx(gq * gk * 10**0.5, rel=1e-5) and "unit" not in card.caption
    assert "unit gain" in shown(make_lm(), tokens)["overlay"].caption
    row = shown(off, tokens, built=built, qk="off")["head-table"].table[1]
    assert row == ("bound with QK-norm (learned gains)", number(card.figure.layout.shapes[1].x0))
    assert shown(make_lm(), tokens)["head-table"].table[1][0] == "bound with QK-norm (unit gain, counterfactual)"


def test_gains_that_were_replaced_are_said_to_be(tokens):
    built = make_lm(tiny_config("head"))
    card = shown(built, tokens, built=built, node="qk_norm", qk="projection")["qk-gain"]
    assert "over each head and do not fit, so they were replaced" in card.caption
    plain = shown(make_lm(), tokens, node="qk_norm", qk="head")["qk-gain"]
    assert "the model as opened has no QK-norm" in plain.caption


def test_what_is_not_finite_has_no_peak(tokens):
    bad = poisoned("blocks.1.attn.q_proj.weight", float("nan"))
    assert "no peak: the logits" in shown(bad, tokens, head=0)["head-table"].caption
    found = shown(bad, tokens, head=0, node="rope")
    assert "pattern of this query is not finite" in found["rope-planes"].caption and "no dot" in found["rope-distance"].caption
    assert "peak at query" in shown(bad, tokens, head=4)["head-table"].caption


# ---- rotation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("scaling", [None, LLAMA3, YARN])
@pytest.mark.parametrize("qk_norm", ["off", "head"])
def test_the_model_s_logit_lies_on_the_curve(tokens, qk_norm, scaling, pairing):
    lm = make_lm(tiny_config(qk_norm, scaling=scaling, pairing=pairing))
    card = shown(lm, tokens, node="rope", token=17)["rope-distance"]
    curve, dot = card.figure.data[0], card.figure.data[-1]
    assert len(dot.x) == 1 and dot.y[0] == pytest.approx(float(curve.y[curve.x == dot.x[0]][0]), abs=2e-5)
    key = int(17 - dot.x[0])
    assert (
        dot.y[0] == pytest.approx(captured(lm, tokens, "blocks.1.attn.hook_logits")[4, 17, key], abs=1e-6)
        and f"key {key}" in card.caption
    )


def test_the_partial_rotation_keeps_what_does_not_turn(tokens):
    config = tiny_config()
    attn = replace(config.blocks[0].attn, rope=replace(config.blocks[0].attn.rope, d=6))
    lm = make_lm(replace(config, blocks=(replace(config.blocks[0], attn=attn),) * 3))
    curve, dot = (shown(lm, tokens, node="rope")["rope-distance"].figure.data[i] for i in (0, -1))
    assert dot.y[0] == pytest.approx(float(curve.y[curve.x == dot.x[0]][0]), abs=2e-5)


def test_angles_and_wavelengths(lm, tokens):
    found = shown(lm, tokens, node="rope")
    angle = found["rope-angle"].figure.data[0].z
    frequency = 1e4 ** (-np.arange(0, 10, 2) / 10)
    assert np.allclose(angle, np.mod(np.outer(frequency, np.arange(23)), 2 * np.pi), atol=1e-4)
    assert np.allclose(found["rope-wave"].figure.data[0].y, 2 * np.pi / frequency, rtol=1e-5)
    scaled = shown(make_lm(tiny_config(scaling=LLAMA3)), tokens, node="rope")["rope-wave"]
    plain, stretched = scaled.figure.data
    assert stretched.y[-1] == pytest.approx(8 * plain.y[-1], rel=1e-5) and "Llama3 scaling, factor 8" in scaled.caption


def test_the_key_that_is_read_most():
    class At:
        pos, state = 3, UiState()

    def row(*weights):
        return SimpleNamespace(
            values=np.array([*weights, np.nan], np.float32), masked=np.arange(len(weights) + 1) == len(weights)
        )

    assert rope.strongest_key(At, row(0.5, 0.2, 0.1, 0.2)) == (0, "the other key that it reads most")
    At.state = UiState(hide_first=1)
    assert rope.strongest_key(At, row(0.5, 0.2, 0.1, 0.2)) == (1, "the other key that it reads most, key 0 left out")
    assert "not finite" in rope.strongest_key(At, row(0.5, np.nan, 0.1, 0.2))[1]
    At.pos = 1
    assert rope.strongest_key(At, row(0.1, 0.9)) == (0, "the only other key that it sees")
    At.pos = 0
    assert rope.strongest_key(At, row(1.0)) == (0, "itself, the only key that it sees")
    assert rope.chosen_pairs(np.array([1, 5, 2, 9, 3.0]), 2).tolist() == [1, 3]
