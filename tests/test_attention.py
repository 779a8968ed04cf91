"""Attention: grouped heads, both kernels against each other and against the formula, caches, QK-norm's bound."""

import math

import pytest
import torch
from conftest import assert_same, distinct, tiny_config

import model.scores
from model.attention import Attention
from model.errors import BlockscopeError
from model.masks import Sliding
from model.norms import RMSNorm
from model.place import KVCache, Place
from model.positions import Rope
from model.taps import Recorder, capture, recording, taps_of

CASES = [("off", None), ("head", None), ("projection", Sliding(window=5))]


def attention(qk_norm="off", mask=None, device="cpu", dtype=torch.float32, **kwargs):
    part = tiny_config(qk_norm, mask, **kwargs).blocks[0].attn.build()
    for name, p in part.named_parameters():
        p.data = distinct(name, tuple(p.shape))
    return part.to(device, dtype)


@pytest.mark.parametrize(("qk_norm", "mask"), CASES)
def test_fused_equals_explicit(device, qk_norm, mask):
    part, x = attention(qk_norm, mask, device), torch.randn(2, 23, 42, device=device)
    with torch.no_grad():
        fused = part(x)
    explicit, _ = capture(part, x, taps=["hook_pattern"])
    watched, _ = capture(part, x, taps=["hook_logits"])
    assert_same(explicit, fused, 1e-5)
    assert torch.equal(watched, fused), "watching the logits alone must not change the computation"


@pytest.mark.parametrize(("qk_norm", "mask"), CASES)
def test_tiles_change_nothing(monkeypatch, qk_norm, mask):
    part, x = attention(qk_norm, mask), torch.randn(2, 23, 42)
    whole = capture(part, x)
    monkeypatch.setattr(model.scores, "TILE_BYTES", 4 * 2 * 6 * 23 * 4)  # four query rows at a time
    tiled = capture(part, x)
    assert_same(tiled[0], whole[0], 1e-6)
    for name, value in whole[1].items():
        finite = value.isfinite()
        assert torch.equal(finite, tiled[1][name].isfinite()), name
        assert_same(tiled[1][name][finite], value[finite], 1e-6, name)


def test_every_stage_is_its_formula():
    part, x = attention("head"), torch.randn(2, 23, 42)
    out, t = capture(part, x)
    keys, values = (v.repeat_interleave(2, dim=2) for v in (t["hook_rot_k"], t["hook_v"]))
    logits = torch.einsum("bqhd,bkhd->bhqk", t["hook_rot_q"], keys) / math.sqrt(10)
    visible = torch.ones(23, 23, dtype=torch.bool).tril()
    assert_same(t["hook_logits"], logits, 1e-6)
    assert bool((t["hook_attn_scores"][..., ~visible] == -torch.inf).all())
    assert_same(t["hook_attn_scores"][..., visible], logits[..., visible], 1e-6)
    pattern = logits.masked_fill(~visible, -torch.inf).softmax(-1)
    assert_same(t["hook_pattern"], pattern, 1e-6)
    assert bool((t["hook_pattern"][..., ~visible] == 0).all()), "the future must weigh exactly nothing"
    z = torch.einsum("bhqk,bkhd->bqhd", pattern, values)
    assert_same(t["hook_z"], z, 1e-6)
    assert_same(out, part.o_proj(z.flatten(-2)), 1e-6)


def test_query_heads_repeat_their_kv_head():
    """heads 4, kv 2, v of kv head 0 all 10, of kv head 1 all 20 -> 10, 10, 20, 20."""
    config = Attention.Config(d_model=8, n_heads=4, n_kv_heads=2, d_head=2, rope=Rope.Config(d=2, base=1e4, pairing="half"))
    part = config.build()
    part.v_proj.weight.data.zero_()
    part.v_proj.weight.data[:2, 0], part.v_proj.weight.data[2:, 0] = 10, 20
    x = torch.randn(1, 3, 8)
    x[..., 0] = 1
    for taps in (["hook_z"], ["hook_z", "hook_pattern"]):
        z = capture(part, x, taps=taps)[1]["hook_z"]
        assert_same(z[0, :, :, 0], torch.tensor([10.0, 10, 20, 20]).expand(3, 4), 1e-6)


@pytest.mark.parametrize("taps", [["hook_z"], ["hook_z", "hook_pattern"]])
def test_one_new_query_sees_all_cached_keys(taps):
    """q_len 1, k_len 4, v = [0, 1, 2, 3], equal scores -> 1.5; a causal flag aligned to the top left would give 0."""
    part = Attention.Config(
        d_model=2, n_heads=1, n_kv_heads=1, d_head=2, rope=Rope.Config(d=2, base=1e4, pairing="half")
    ).build()
    part.q_proj.weight.data.zero_()
    part.v_proj.weight.data = torch.eye(2)
    x = torch.tensor([[[0.0, 1], [1, 1], [2, 1], [3, 1]]])
    cache = KVCache()
    with torch.no_grad():
        part(x[:, :3], Place.of(x[:, :3], cache))
    cache.length = 3
    z = capture(part, x[:, 3:], Place.of(x[:, 3:], cache), taps=taps)[1]["hook_z"]
    assert z[0, 0, 0, 0].item() == pytest.approx(1.5)


def test_unit_gain_qk_norm_bounds_the_logit():
    """Width 128: |q| and |k| are at most sqrt(128), so the scaled logit is at most sqrt(128) = 11.31."""
    norm = RMSNorm.Config(d=128, eps=1e-6)
    config = Attention.Config(
        d_model=16,
        n_heads=2,
        n_kv_heads=1,
        d_head=128,
        q_norm=norm,
        k_norm=norm,
        rope=Rope.Config(d=128, base=1e4, pairing="half"),
    )
    part = config.build()
    part.k_proj.weight.data.mul_(1000)
    part.q_proj.weight.data = part.k_proj.weight.repeat(2, 1)  # q and k of a token are parallel: the bound is reached
    logits = capture(part, torch.randn(1, 5, 16), taps=["hook_logits"])[1]["hook_logits"]
    assert 11.313 < logits.abs().max().item() < 11.3138


@pytest.mark.parametrize(("qk_norm", "mask"), CASES)
def test_edits_are_obeyed_at_every_stage(qk_norm, mask):
    """Halving logits, scores or pattern must change the output even where only that tap is edited."""
    part, x = attention(qk_norm, mask), torch.randn(1, 23, 42)
    with torch.no_grad():
        plain = part(x)
        for name in ("hook_logits", "hook_attn_scores", "hook_pattern", "hook_rot_k", "hook_v"):
            tap = taps_of(part)[name]
            with recording(Recorder({}, {tap: lambda t, tile: t / 2})):
                assert (part(x) - plain).abs().max() > 1e-3, name
    with torch.no_grad():
        assert torch.equal(part(x), plain), "an edit must leave nothing behind"


def test_cached_keys_are_visible_as_taps():
    part, x, cache = attention(), torch.randn(1, 9, 42), KVCache()
    whole = capture(part, x)[1]
    with torch.no_grad():
        part(x[:, :5], Place.of(x[:, :5], cache))
    cache.length = 5
    rest = capture(part, x[:, 5:], Place.of(x[:, 5:], cache))[1]
    assert_same(rest["hook_cache_k"], whole["hook_rot_k"], 1e-5)
    assert_same(rest["hook_cache_v"], whole["hook_v"], 1e-5)
    assert_same(rest["hook_pattern"], whole["hook_pattern"][:, :, 5:], 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_runs_and_stays_near(device, dtype):
    x = torch.randn(1, 23, 42, device=device)
    full = capture(attention("head", device=device), x)[1]["hook_z"]
    low = capture(attention("head", device=device, dtype=dtype), x.to(dtype))[1]["hook_z"]
    assert low.dtype == dtype
    assert_same(low, full, 0.05)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_kv_heads": 4}, "multiple"),
        ({"n_kv_heads": 0}, "n_kv_heads"),
        ({"d_head": 8}, "d_head"),
        ({"qk_norm_over": "x"}, "qk_norm_over"),
    ],
)
def test_bad_configurations_are_named(change, words):
    from dataclasses import replace

    with pytest.raises(BlockscopeError, match=words):
        replace(tiny_config().blocks[0].attn, **change)
