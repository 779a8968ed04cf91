"""Long prompts: statistics from tiles equal the square, windows are computed alone, memory does not grow with the square."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import assert_same, make_lm, tiny_config

from model import scores, stages
from model.errors import BlockscopeError
from model.identities import CHECKED
from model.masks import Causal, Chunked, Sliding
from model.place import Place
from model.run import LM
from model.statistics import ONE_HOT, attention_statistics
from model.taps import Recorder, recording
from model.view import Request
from viz.nodes import qk
from viz.nodes.card import WHOLE, Scene
from viz.state import UiState
from viz.theme import LIGHT

LONG = 700


@pytest.fixture
def long_text() -> list[int]:
    return torch.randint(131, (LONG,), generator=torch.Generator().manual_seed(3)).tolist()


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of a few rows and stretches of a few tokens, so that a short text is cut as a long one would be."""
    monkeypatch.setattr(scores, "TILE_BYTES", 6 * LONG * 4 * 37)
    monkeypatch.setattr(stages, "STRETCH_BYTES", 4 * 66 * 101)


# ---- statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, Sliding(window=50)])
@pytest.mark.parametrize("sharp", [1.0, 40.0])
def test_statistics_equal_the_square_written_out(mask, sharp, long_text, device):
    """From q and k by hand; `sharp` logits make some queries read one key only."""
    lm = make_lm(tiny_config(mask=mask), device)
    lm.block(1).attn.q_proj.weight.data *= sharp
    found = attention_statistics(lm, long_text, 1, of=-3, top=5)
    taps = lm.capture(long_text, ["blocks.1.attn.hook_rot_q", "blocks.1.attn.hook_rot_k"])
    q, k = (t[0].double().cpu() for t in taps.values())
    at = torch.arange(LONG)
    distance = at[:, None] - at
    hidden = (distance < 0) | (distance >= (50 if mask else LONG))
    seen = (~hidden).sum(-1)[1:]
    for head in range(6):
        logits = (q[:, head] @ k[:, head // 2].T / 10**0.5).masked_fill(hidden, 0)
        weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
        entropy = torch.special.entr(weights).sum(-1)[1:]
        query, key = divmod(int(logits.abs().argmax()), LONG)
        best = weights[LONG - 3].topk(5)
        assert (found.query[head], found.key[head]) == (query, key)
        explicit = {
            "largest": logits[query, key], "entropy": entropy.mean(), "spread": (entropy / seen.log()).mean(),
            "first": weights[1:, 0].mean(), "one_hot": (weights.amax(-1)[1:] > ONE_HOT).double().mean(),
            "top_weights": best.values,
        }  # fmt: skip
        for name, theirs in explicit.items():
            np.testing.assert_allclose(getattr(found, name)[head], theirs.numpy(), rtol=2e-5, atol=1e-6, err_msg=name)
        assert set(found.top_keys[head]) == set(best.indices.tolist()) or best.values[-1] < 1e-6
    assert (found.one_hot.max() > 0.2) == (sharp > 1) and found.of == LONG - 3 and found.sink.tolist() == [0] * 6


def test_statistics_of_a_sink_and_a_soft_cap(tokens):
    from model import load

    for source in ("tiny-gpt-oss", "tiny-gemma2"):
        lm = load(source, device="cpu")
        found, caps = attention_statistics(lm, tokens, 0), lm.capture(tokens, ["blocks.0.attn.*"])
        pattern = caps["blocks.0.attn.hook_pattern"][0]
        np.testing.assert_allclose(found.first, pattern[:, 1:, 0].mean(-1).numpy(), rtol=1e-5)
        sink = caps.get("blocks.0.attn.hook_sink")
        expected = 0 if sink is None else sink[0, :, 1:].mean(-1).numpy()
        np.testing.assert_allclose(found.sink, np.broadcast_to(expected, found.sink.shape), rtol=1e-5)


def test_one_token_has_no_means_and_a_nan_is_the_largest():
    lm = make_lm()
    found = attention_statistics(lm, [5], 0)
    assert np.isnan(found.entropy).all() and found.top_keys.tolist() == [[0]] * 6 and np.isfinite(found.largest).all()
    lm.block(0).attn.q_proj.weight.data[:10] = torch.nan
    found = attention_statistics(make_lm_again(lm), [5, 6, 7], 0)
    assert np.isnan(found.largest).tolist() == [True, False, False, False, False, False]


def make_lm_again(lm: LM) -> LM:
    """The same weights without what is remembered of earlier runs."""
    return LM(lm.config, lm.store, name="again", source="test", tokenizer=None)


@pytest.mark.parametrize("asked", [{"layer": 9}, {"layer": -1}, {"layer": 0, "of": 99}, {"layer": 0, "top": 0}])
def test_statistics_of_what_is_not_there_are_a_sentence(lm, tokens, asked):
    with pytest.raises(BlockscopeError, match=r"there is no layer|must be a query"):
        attention_statistics(lm, tokens, **asked)


# ---- windows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tap", ["hook_logits", "hook_attn_scores", "hook_pattern"])
@pytest.mark.parametrize("kind", ["tiny", "tiny-gemma2"])
def test_a_window_is_the_same_part_of_the_square(tap, kind, long_text):
    from model import load

    lm = make_lm() if kind == "tiny" else load(kind, device="cpu")
    name = f"blocks.1.attn.{tap}"
    within = (("query_pos", 333, 401), ("key_pos", 300, 390))
    (window,) = lm.views(long_text, [Request(name, select=(("head", 1),), budget=1 << 20, within=within)])
    whole = lm.capture(long_text, [name])[name][0, 1, 333:401, 300:390].float().numpy()
    np.testing.assert_allclose(
        np.where(window.masked, 0, window.values), np.where(window.masked, 0, whole), rtol=1e-5, atol=1e-6
    )
    assert window.values.shape == (68, 90) and window.masked[0, 34] and not window.masked[0, 33]
    assert [(c[0], c[-1]) for c in window.coords] == [(333, 400), (300, 389)]
    assert window.how == "nothing pooled, query_pos 333 to 400, key_pos 300 to 389" and window.shape[-2:] == (LONG, LONG)


def test_a_window_may_be_pooled_and_reduced(long_text):
    lm, within = make_lm(), (("query_pos", 100, 356), ("key_pos", 0, 256))
    name, head = "blocks.0.attn.hook_pattern", (("head", 2),)
    pooled, sums, most = lm.views(long_text, [
        Request(name, select=head, budget=1024, within=within),
        Request(name, "sum", ("key_pos",), head, within=within[:1]),
        Request(name, "max", ("query_pos",), head, within=within),
    ])  # fmt: skip
    square = lm.capture(long_text, [name])[name][0, 2, 100:356].numpy()
    step = pooled.coords[0][1] - pooled.coords[0][0]
    assert pooled.coords[0][0] == 100 and pooled.values.size <= 1024 and "of each block of" in pooled.how
    np.testing.assert_allclose(np.nanmax(pooled.values[0]), square[:step, :256].max(), rtol=1e-6)
    np.testing.assert_allclose(sums.values, np.ones(256), rtol=1e-5)
    np.testing.assert_allclose(most.values, square[:, :256].max(0), rtol=1e-5)


def test_of_a_window_only_its_queries_are_computed_and_nothing_after_them(monkeypatch, long_text):
    lm, rows, parts = make_lm(), [], []
    lm.residual(long_text, 1)
    attention = type(lm.net.blocks[0].attn)
    logits, mlp = attention.logits, type(lm.net.blocks[0].mlp).forward
    monkeypatch.setattr(attention, "logits", lambda self, q, k: rows.append(q.shape[1]) or logits(self, q, k))
    monkeypatch.setattr(type(lm.net.blocks[0].mlp), "forward", lambda self, x: parts.append("mlp") or mlp(self, x))
    lm.views(long_text, [Request("blocks.1.attn.hook_pattern", within=(("query_pos", 650, 690),))])
    assert sum(rows) == 40 and parts == []
    lm.views(long_text, [Request("blocks.1.hook_resid_post", "stats")])
    assert parts  # what was cut short is not taken for a run


@pytest.mark.parametrize("window", [(5, 5), (9, 3), (-1, 4), (0, 99), (23, 30)])
def test_a_window_outside_is_a_sentence(lm, tokens, window):
    with pytest.raises(BlockscopeError, match=r"must hold an entry|is outside"):
        lm.views(tokens, [Request("blocks.0.attn.hook_pattern", within=(("query_pos", *window),))])
    with pytest.raises(BlockscopeError, match="cannot reduce or select 'd_mlp'"):
        lm.views(tokens, [Request("blocks.0.attn.hook_pattern", within=(("d_mlp", 0, 1),))])


# ---- a stretch of tokens at a time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tiny", "tiny-mixtral", "tiny-gpt2", "tiny-palm", "tiny-2017"])
def test_stretches_of_tokens_give_the_same_views(monkeypatch, kind, long_text):
    from model import load

    def answers():
        lm = make_lm() if kind == "tiny" else load(kind, device="cpu")
        ids = long_text[: min(LONG, lm.config.context)] if lm.config.positions else long_text
        taps = [t.name for t in lm.taps() if t.name.startswith(("blocks.1.mlp.", "logits")) and "pos" in t.dims]
        asked = [Request(name, reducer) for name in taps for reducer in ("values", "stats")]
        asked += [
            Request("logits", "max", ("d_vocab",)),
            Request("logits", "mean", ("pos",)),
            Request("logits", select=(("pos", 150),)),
        ]
        return [*lm.views(ids, asked), lm.capture(ids, ["logits"])["logits"].numpy()]

    cut = answers()
    monkeypatch.setattr(stages, "STRETCH_BYTES", 1 << 30)
    whole = answers()
    np.testing.assert_allclose(cut.pop(), whole.pop(), rtol=1e-4, atol=1e-5)
    for a, b in zip(cut, whole, strict=True):
        np.testing.assert_allclose(a.values, b.values, rtol=1e-4, atol=1e-5, err_msg=a.tap)
        assert a.shape == b.shape and a.how == b.how and a.stats.count == b.stats.count
        np.testing.assert_allclose(a.stats.rms, b.stats.rms, rtol=1e-4)


def test_an_edit_or_a_watcher_that_takes_no_stretches_gets_the_whole_tensor(long_text):
    lm, shapes = make_lm(), []
    tap, x = lm.tap_modules["blocks.0.mlp.hook_post"], lm.residual(long_text, 0)
    with recording(Recorder({tap: [lambda y, tile: shapes.append((tuple(y.shape), tile))]})):
        lm.step(0, x, Place.of(x))
    with recording(Recorder({}, {tap: lambda y, tile: shapes.append((tuple(y.shape), tile)) or y})):
        lm.step(0, x, Place.of(x))
    assert shapes == [((1, LONG, 66), None)] * 2


def test_identities_of_a_long_text_are_measured_on_its_first_tokens(lm):
    text = torch.randint(131, (CHECKED + 77,), generator=torch.Generator().manual_seed(3)).tolist()
    found = lm.identities(text, 1)
    assert all(i.holds for i in found) and all(f"the first {CHECKED:,} of {len(text):,} tokens" in i.note for i in found)
    short = lm.identities(text[:CHECKED], 1)
    assert [i.name for i in short] == [i.name for i in found] and not any("first" in i.note for i in short)


# ---- residuals -------------------------------------------------------------------------------------------------------------


def test_residuals_that_do_not_all_fit_are_kept_every_so_many_layers(tokens):
    config = tiny_config(layers=8)
    one = len(tokens) * 42 * 4
    lm = make_lm(config, memory=2 * 4 * one)
    last = Request("blocks.7.hook_resid_post", "stats")
    lm.views(tokens, [last])
    kept = [stage for stage in range(9) if (lm._key(lm.checked(tokens)), stage) in lm.remembered.residuals]
    assert kept == [3, 6, 8] or kept == [0, 3, 6, 8]
    ran, step = [], lm.step
    lm.step = lambda stage, *rest: ran.append(stage) or step(stage, *rest)
    lm.views(tokens, [Request("blocks.5.hook_resid_post", "stats")])
    assert ran == [3, 4, 5]
    assert_same(lm.residual(tokens, 5), make_lm(config).residual(tokens, 5), 1e-6)
    none = make_lm(config, memory=2)
    assert_same(none.residual(tokens, 5), lm.residual(tokens, 5), 1e-6)
    assert none.next_tokens(tokens, 1) == lm.next_tokens(tokens, 1)


@pytest.mark.parametrize("mask", [Causal(), Sliding(window=7), Chunked(chunk=9)])
def test_keys_seen_are_counted_without_the_square(mask):
    lm, at = make_lm(tiny_config(mask=mask)), np.arange(50)
    scene = Scene.of(lm, list(range(50)), UiState(), LIGHT)
    assert (qk.count_seen(scene, at) == qk.seen(scene, at, at).sum(1)).all()
    assert qk.projected(scene)["q"].budget == WHOLE
    longer = Scene.of(lm, [0] * 200_000, UiState(), LIGHT)
    assert qk.projected(longer)["k"].budget == 2_000_000


def test_a_pulse_can_stop_a_run_between_two_tiles(long_text):
    lm, beats = make_lm(), []

    class Stop(Exception):
        pass

    def pulse(share):
        beats.append(share)
        if len(beats) == 30:
            raise Stop

    with pytest.raises(Stop):
        list(lm.walk(long_text, [Request("blocks.0.attn.hook_pattern", "stats")], pulse=pulse))
    assert len(beats) == 30 and LONG / 37 > 15
    (view,) = lm.views(long_text, [Request("blocks.0.attn.hook_pattern", "stats")])
    assert view.stats.count == 6 * LONG**2  # nothing of the stopped run is left


def test_a_pulse_says_how_far_the_attention_is_and_a_long_one_goes_head_by_head(monkeypatch, long_text):
    lm, beats = make_lm(), []
    list(lm.walk(long_text, [Request("blocks.1.attn.hook_pattern", "stats")], pulse=beats.append))
    assert beats[0] == 0 and max(beats) == 1 and len(set(beats)) > 15 and beats.count(0.0) > 3  # 0 again in the second layer
    whole, taken = lm.capture(long_text, ["blocks.2.hook_resid_post"])["blocks.2.hook_resid_post"], []
    monkeypatch.setattr(scores, "LONG", 10)
    attend = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        scores.F, "scaled_dot_product_attention", lambda q, *rest, **how: taken.append(q.shape[1]) or attend(q, *rest, **how)
    )
    cut = lm.capture(long_text, ["blocks.2.hook_resid_post"])["blocks.2.hook_resid_post"]
    assert taken[-18:] == [1] * 6 * 3  # the first are those of the sizes, without numbers
    assert_same(cut, whole, 1e-6)


# ---- what is said beforehand -----------------------------------------------------------------------------------------------

SMOLLM2 = os.path.join(os.environ.get("BLOCKSCOPE_REAL_MODELS", ""), "smollm2-135m")
REAL = [pytest.mark.real, pytest.mark.skipif(not os.path.isdir(SMOLLM2), reason="BLOCKSCOPE_REAL_MODELS holds no smollm2-135m")]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells the peak from a point on")
@pytest.mark.parametrize(
    ("source", "tokens", "layers"),
    [
        ("tiny-llama", 1000, 0),
        ("smollm2-135m", 4000, 1),  # longer ones: benchmarks/long.py
        pytest.param(SMOLLM2, 1000, 0, marks=REAL),
    ],
)
def test_the_memory_that_is_announced_is_what_a_run_takes(source, tokens, layers):
    child = [sys.executable, str(Path(__file__).with_name("peak_memory.py")), source, str(tokens), str(layers)]
    done = subprocess.run(child, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert 0.6 < found["said"] / found["grew"] < 1.6, {name: f"{size / 1e6:.0f} MB" for name, size in found.items()}
