"""The door: views equal reductions of the captured tensors, what is kept is not run again, variants share weights."""

import threading

import numpy as np
import pytest
import torch
from conftest import assert_same, make_lm, tiny_config

import model.scores
from model import PRESETS, count, load
from model.errors import BlockscopeError, TooLarge
from model.masks import Sliding
from model.place import KVCache
from model.positions import Dynamic, Linear, Llama3, Yarn
from model.view import Request

B = "blocks.1."
SCORES, PATTERN = B + "attn.hook_attn_scores", B + "attn.hook_pattern"


def expected(reducer, x, over, visible):
    """The same reductions in numpy, masked entries taken out by a masked array."""
    x = np.ma.masked_array(x, ~visible if visible is not None else False)
    return {
        "absmax": lambda: np.abs(x).max(over), "max": lambda: x.max(over), "min": lambda: x.min(over),
        "sum": lambda: x.sum(over), "mean": lambda: x.mean(over), "rms": lambda: np.sqrt((x**2).mean(over)),
        "norm": lambda: np.sqrt((x**2).sum(over)), "fraction_negative": lambda: (x < 0).mean(over),
        "fraction_above_99": lambda: (x > 0.99).mean(over),
        "entropy": lambda: -(x * np.ma.log(x)).sum(over),
    }[reducer]().filled(np.nan)  # fmt: skip


@pytest.mark.parametrize("tile_rows", [23, 4])
@pytest.mark.parametrize(
    ("tap", "reducer", "over"),
    [
        (B + "attn.hook_logits", "absmax", ("query_pos", "key_pos")), (B + "attn.hook_logits", "max", ("key_pos",)),
        (SCORES, "min", ("key_pos",)), (SCORES, "mean", ("query_pos",)), (SCORES, "rms", ("head", "query_pos")),
        (PATTERN, "entropy", ("key_pos",)), (PATTERN, "sum", ("key_pos",)), (PATTERN, "fraction_above_99", ("query_pos", "key_pos")),
        (B + "mlp.hook_pre", "fraction_negative", ("pos",)), (B + "hook_resid_pre", "norm", ("d_model",)),
        (B + "attn.hook_q", "norm", ("d_head",)), (B + "attn.hook_q", "absmax", ("pos", "d_head")),
    ],
)  # fmt: skip
def test_reducers_equal_numpy_on_the_full_tensor(monkeypatch, tokens, tap, reducer, over, tile_rows):
    full = make_lm().capture(tokens, [tap])[tap]
    monkeypatch.setattr(model.scores, "TILE_BYTES", 4 * 6 * 23 * tile_rows)
    lm = make_lm()
    (view,) = lm.views(tokens, [Request(tap, reducer, over=over)])
    dims = next(t.dims for t in lm.taps() if t.name == tap)[1:]
    visible = np.broadcast_to(np.tril(np.ones((23, 23), bool)), full.shape[1:]) if "key_pos" in dims else None
    x = full[0].numpy()
    answer = expected(reducer, np.where(visible, x, 0) if visible is not None else x, tuple(map(dims.index, over)), visible)
    np.testing.assert_allclose(view.values, answer, rtol=2e-5, atol=1e-6)
    assert view.dims == tuple(d for d in dims if d not in over) and reducer.split("_")[0][:3] and view.shape == full.shape


@pytest.mark.parametrize("tile_rows", [23, 4])
def test_values_are_the_selected_entries_and_masked_is_empty(monkeypatch, tokens, tile_rows):
    full = make_lm().capture(tokens, [SCORES])[SCORES]
    monkeypatch.setattr(model.scores, "TILE_BYTES", 4 * 6 * 23 * tile_rows)
    lm, hidden = make_lm(), ~np.tril(np.ones((23, 23), bool))
    view, row = lm.views(tokens, [Request(SCORES, select=(("head", 4),)), Request(SCORES, select=(("query_pos", 9),))])
    assert view.dims == ("query_pos", "key_pos") and np.array_equal(view.masked, hidden) and view.how == "nothing pooled"
    np.testing.assert_allclose(view.values[~hidden], full[0, 4].numpy()[~hidden], rtol=1e-5)
    assert np.isnan(view.values[hidden]).all() and view.stats.masked == hidden.sum() and view.stats.neginf == 0
    np.testing.assert_allclose(row.values[:, :10], full[0, :, 9, :10].numpy(), rtol=1e-5)
    assert row.masked[:, 10:].all()


@pytest.mark.parametrize("tile_rows", [23, 4])
def test_pooling_keeps_every_peak(monkeypatch, tokens, tile_rows):
    full = make_lm().capture(tokens, [SCORES, PATTERN, B + "mlp.hook_pre"])
    monkeypatch.setattr(model.scores, "TILE_BYTES", 4 * 6 * 23 * tile_rows)
    lm = make_lm()
    for tap, sign in ((SCORES, True), (PATTERN, False), (B + "mlp.hook_pre", True)):
        (view,) = lm.views(tokens, [Request(tap, budget=200)])
        x = full[tap][0].float().masked_fill(full[tap][0] == -torch.inf, 0).numpy()
        assert view.values.size <= 200 and "of each block of" in view.how
        for axis, (axis_name, starts) in enumerate(zip(view.dims, view.coords, strict=True)):
            assert starts[0] == 0 and len(starts) == view.values.shape[axis], axis_name
        ends = [[*c[1:], n] for c, n in zip(view.coords, x.shape, strict=True)]
        for index in np.ndindex(view.values.shape):
            block = x[tuple(slice(c[i], e[i]) for c, e, i in zip(view.coords, ends, index, strict=True))]
            peak = block.flat[np.abs(block).argmax()] if sign else block.max()
            if view.masked is None or not view.masked[index]:
                assert view.values[index] == pytest.approx(peak, rel=1e-4, abs=1e-6)


def test_nan_and_infinities_are_counted_apart_from_masked(tokens):
    lm = make_lm()
    lm.block(1).attn.q_proj.weight.data[0] = torch.nan
    lm.block(1).mlp.gate_proj.weight.data[3] = torch.inf
    scores, gate = lm.views(tokens, [Request(SCORES, "stats"), Request(B + "attn.hook_q", "stats")])
    assert scores.stats.nan == 23 * 24 // 2 and scores.stats.masked == 6 * 23 * 22 // 2
    assert np.isfinite([scores.stats.min, scores.stats.max, scores.stats.rms]).all()
    assert gate.stats.nan == 23 and gate.stats.posinf == gate.stats.neginf == 0
    with pytest.raises(BlockscopeError, match="not all finite"):
        lm.next_tokens(tokens)
    assert any(not i.holds and "finite" in i.note for i in lm.identities(tokens, 1))


def test_opening_another_layer_runs_one_block(monkeypatch, lm, tokens):
    ran, step = [], type(lm).step
    monkeypatch.setattr(type(lm), "step", lambda self, stage, *a: ran.append(stage) or step(self, stage, *a))
    lm.views(tokens, [Request("blocks.2.hook_resid_post", "stats")])
    assert ran == [-1, 0, 1, 2]
    lm.views(tokens, [Request("blocks.1.mlp.hook_act", "stats")])
    lm.identities(tokens, 0)
    assert ran == [-1, 0, 1, 2, 1]
    lm.views(tokens, [Request("blocks.1.mlp.hook_act", "stats"), Request("blocks.2.hook_resid_post", "stats")])
    assert ran == [-1, 0, 1, 2, 1], "a request already answered runs nothing"


def test_views_from_kept_residuals_equal_a_fresh_run(tokens):
    request = Request("blocks.2.attn.hook_logits", select=(("head", 3),))
    warm, fresh = make_lm(), make_lm()
    warm.views(tokens, [Request("blocks.0.hook_resid_post", "stats")])
    warm.views(tokens, [Request("logits", "stats")])
    np.testing.assert_array_equal(warm.views(tokens, [request])[0].values, fresh.views(tokens, [request])[0].values)


def test_a_run_can_be_closed_half_way(lm, tokens):
    walk = lm.walk(tokens, [Request("logits", "stats")])
    done = (step.what for step in walk if not step.what.startswith("reading"))  # whether it waits for weights is chance
    assert next(done) == "embedding" and next(done) == "layer 0"
    walk.close()
    assert lm.views(tokens, [Request("logits", "stats")])[0].stats.count == 23 * 131


SCALINGS = [
    None, Linear(factor=4.0), Llama3(factor=8.0, low=1, high=4, original=16), Yarn(factor=4.0, original=16), Dynamic(factor=2.0, original=64),
]  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(("qk_norm", "mask"), [("off", None), ("head", Sliding(window=5)), ("projection", None)])
def test_decoding_token_by_token_gives_the_logits_of_the_full_pass(device, tokens, qk_norm, mask, scaling):
    lm, cache = make_lm(tiny_config(qk_norm, mask, scaling=scaling), device), KVCache()
    full = lm.forward(tokens)
    steps = [lm.forward(tokens[:7], cache)] + [lm.forward([t], cache) for t in tokens[7:]]
    assert (torch.cat(steps, dim=1) - full).abs().max().item() <= 1e-4
    assert cache.length == 23 and cache.nbytes == 2 * 3 * 23 * 3 * 10 * 4


def test_generate_is_greedy(lm, tokens):
    new, ids = lm.generate(tokens, 4), list(tokens)
    for token in new:
        assert token == int(lm.forward(ids)[0, -1].argmax())
        ids.append(token)


@pytest.mark.parametrize("tied", [False, True])
def test_changing_qk_norm_leaves_every_other_weight_alone(tokens, tied):
    lm = load("tiny-llama") if not tied else load("tiny-qwen2")
    for choice in ("head", "projection"):
        other = lm.variant(qk_norm=choice)
        logits, changed = lm.forward(tokens), other.forward(tokens)
        assert (logits - changed).abs().max() > 1e-3
        ours = {n: p.data_ptr() for n, p in lm.net.named_parameters(remove_duplicate=False)}
        theirs = {n: p.data_ptr() for n, p in other.net.named_parameters(remove_duplicate=False)}
        assert {n for n in theirs if n not in ours} == set(other.invented) == {n for n in theirs if "_norm" in n}
        assert all(theirs[n] == ours[n] for n in ours), "shared weights must be the same memory"
        assert (
            other.qk_norm == choice
            and other.original is lm
            and torch.equal(other.variant(qk_norm="off").forward(tokens), logits)
        )


def test_a_variant_of_a_variant_comes_back_to_the_trained_gains(tokens):
    lm = make_lm(tiny_config("head"))
    before = lm.forward(tokens)
    off = lm.variant(qk_norm="off")
    off.forward(tokens)
    assert off.variant(qk_norm="head") is lm and not torch.equal(off.variant(qk_norm="projection").forward(tokens), before)
    assert torch.equal(lm.forward(tokens), before) and torch.equal(make_lm(tiny_config("head")).forward(tokens), before)


def test_random_weights_depend_on_their_name_alone():
    a, b, c = load("tiny-llama"), load("tiny-qwen3"), load("tiny-llama", seed=1)
    for name in ("embed.weight", "blocks.2.mlp.up_proj.weight", "blocks.3.attn.o_proj.weight"):
        if a.parameter(name).shape == b.parameter(name).shape:
            assert np.array_equal(a.parameter(name), b.parameter(name)), name
        assert not np.array_equal(a.parameter(name), c.parameter(name)), name


def test_block_runs_alone_on_any_hidden_states(lm):
    x = torch.randn(2, 11, 42)
    with torch.no_grad():
        assert lm.block(1)(x).shape == x.shape
    with pytest.raises(BlockscopeError, match="at least one token"):
        lm.block(1)(torch.randn(2, 0, 42))


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_every_dtype_gives_fp32_views(device, tokens, dtype):
    lm = load("tiny-qwen3", device=str(device), dtype=dtype)
    views = lm.views(tokens, [Request(B + "attn.hook_pattern", "entropy", over=("key_pos",)), Request("logits", "stats")])
    assert all(v.values.dtype == np.float32 and np.isfinite(v.values).all() for v in views)
    assert views[1].dtype == str(lm.dtype).removeprefix("torch.")


@pytest.mark.parametrize("length", [1, 2])
def test_one_token_one_layer_one_head(length):
    lm = make_lm(tiny_config(layers=1))
    lm.views(list(range(length)), [Request(t.name, "stats") for t in lm.taps()])
    assert all(i.holds for i in lm.identities(list(range(length)), 0))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda lm: lm.views([], [Request("logits")]), "empty"),
        (lambda lm: lm.forward([131]), "131 is outside"),
        (lambda lm: lm.forward([-1]), "-1 is outside"),
        (lambda lm: lm.forward(torch.zeros(1, 3)), "whole numbers"),
        (lambda lm: lm.encode("two words"), "no tokenizer"),
        (lambda lm: lm.views([1], [Request("logits", "median")]), "median"),
        (lambda lm: lm.views([1], [Request("logits", "max")]), "over"),
        (lambda lm: lm.views([1], [Request("logits", "max", over=("head",))]), "head"),
        (lambda lm: lm.views([1], [Request(SCORES, select=(("head", 6),))]), "outside 0..5"),
        (lambda lm: lm.variant(qk_norm="both"), "both"),
        (lambda lm: lm.variant(nose="big"), "nose"),
        (lambda lm: lm.variant(rope_base="nan"), "number"),
        (lambda lm: lm.variant(window="0"), "number"),
        (lambda lm: lm.next_tokens([1], 0), "k must"),
        (lambda lm: lm.parameter("x"), "no parameter"),
        (lambda lm: load("tiny-lama"), "did you mean tiny-llama"),
        (lambda lm: load("tiny-llama", device="quantum"), "device"),
        (lambda lm: load("tiny-llama", dtype="fp8"), "dtype"),
        (lambda lm: count("nowhere"), "neither"),
    ],
)
def test_bad_input_gets_a_sentence(lm, call, words):
    with pytest.raises(BlockscopeError, match=words) as error:
        call(lm)
    assert "\n" not in str(error.value)


def test_a_capture_too_large_is_refused_before_it_runs(monkeypatch, lm):
    monkeypatch.setattr(type(lm), "step", lambda *a: pytest.fail("it ran"))
    with pytest.raises(TooLarge, match="above the limit"):
        lm.capture(list(range(128)) * 80, ["blocks.*.attn.hook_pattern"])


def test_the_estimate_is_the_size(lm, tokens):
    captured = lm.capture(tokens, ["blocks.*.attn.*"])
    size = sum(t.nbytes for t in captured.values())
    lm.capture(tokens, ["blocks.*.attn.*"], limit=size)
    with pytest.raises(TooLarge):
        lm.capture(tokens, ["blocks.*.attn.*"], limit=size - 1)


def test_counts():
    assert count("llama-3.1-8b").parameters == 8_030_261_248 and count("qwen3-8b").parameters == 8_190_735_360
    for name in [n for n in PRESETS if n.startswith("tiny-")]:
        assert count(name).parameters == sum(p.numel() for p in PRESETS[name].build().parameters())


def test_visitors_share_weights_and_nothing_else():
    lm, prompts, answers = load("tiny-llama"), [[i, i + 1, i + 2] * 4 for i in range(6)], {}
    request = Request("blocks.3.hook_resid_post")
    alone = [load("tiny-llama").views(p, [request])[0].values for p in prompts]
    threads = [
        threading.Thread(target=lambda i=i: answers.update({i: lm.views(prompts[i], [request])[0].values})) for i in range(6)
    ]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(np.array_equal(answers[i], alone[i]) for i in range(6))


def test_memory_is_bounded():
    lm = make_lm(memory=200_000)
    for i in range(40):
        lm.views([i, 5, 9] * 20, [Request("blocks.2.mlp.hook_pre")])
    assert lm.remembered.views.nbytes <= 100_000 and lm.remembered.residuals.nbytes <= 100_000 and len(lm.remembered.views) < 40


def test_values_stay_exact_after_pooled_requests(lm, tokens):
    coarse, fine = lm.views(tokens, [Request(B + "mlp.hook_post", budget=50), Request(B + "mlp.hook_post", budget=10_000)])
    assert_same(torch.from_numpy(fine.values), lm.capture(tokens, [B + "mlp.hook_post"])[B + "mlp.hook_post"][0], 1e-6)
    assert coarse.stats == fine.stats


def test_what_a_stopped_run_has_measured_is_kept(tokens):
    lm = make_lm()
    asked = [Request(f"blocks.{i}.attn.hook_logits", "absmax", ("query_pos", "key_pos")) for i in range(lm.config.n_layers)]
    walk = lm.walk(tokens, asked)
    while next(walk).what != "layer 1":
        pass
    walk.close()
    assert [lm.recall(tokens, request) is not None for request in asked] == [True, True, False]
    ran, step = [], lm.step
    lm.step = lambda stage, *rest: ran.append(stage) or step(stage, *rest)
    lm.views(tokens, asked)
    assert ran == [2]
