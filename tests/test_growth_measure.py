"""Quantities of attention logits against a direct dense computation, for every mask, head grouping, cap, sink and design."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from conftest import make_lm, tiny_config
from torch import Tensor

from model import PRESETS, load
from model.errors import BlockscopeError
from model.growth import quantities
from model.growth.bounds import head_bounds
from model.growth.measure import QUANTITIES, bound, measure, probe
from model.masks import Causal, Chunked, Sliding
from model.softmax import SinkSoftmax
from model.taps import capture
from model.weights import seeded

MASKS = {"causal": Causal(), "sliding": Sliding(window=5), "chunked": Chunked(chunk=6)}
TINY = [name for name in PRESETS if name.startswith("tiny-")]
EXACT = {"rtol": 1e-5, "atol": 1e-5}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def qk() -> tuple[Tensor, Tensor]:
    """Two texts, 6 heads on 3 KV heads, 23 positions, lengths that differ from head to head."""
    q, k = draw(2, 23, 6, 10), draw(2, 23, 3, 10, seed=1)
    return q * torch.linspace(1, 9, 6)[:, None], k * torch.tensor([1.0, 3.0, 0.5])[:, None]


def rows_of(visible: Tensor, batch: int) -> list[tuple[int, int, Tensor]]:
    return [(b, i, visible[i].nonzero()[:, 0]) for b in range(batch) for i in range(len(visible)) if visible[i].any()]


def direct(q: Tensor, k: Tensor, mask, scale: float, cap=None, sink=None) -> dict[str, Tensor]:
    """The same from whole squares, a row at a time, in double precision: written without any of the code under test."""
    at = torch.arange(q.shape[1])
    visible, (batch, _, heads, _) = mask(at, at), q.shape
    found = {name: [] for name in QUANTITIES}
    for h in range(heads):
        queries, keys = q[:, :, h].double(), k[:, :, h // (heads // k.shape[2])].double()
        raw = scale * queries @ keys.transpose(1, 2)
        capped = raw if cap is None else cap * torch.tanh(raw / cap)
        cosine = torch.nn.functional.normalize(queries, dim=-1) @ torch.nn.functional.normalize(keys, dim=-1).transpose(1, 2)
        ranges, entropies, tops = [], [], []
        for b, i, seen in rows_of(visible, batch):
            ranges.append(raw[b, i, seen].max() - raw[b, i, seen].min())
            if len(seen) > 1:
                joined = capped[b, i, seen] if sink is None else torch.cat([capped[b, i, seen], sink[h : h + 1].double()])
                tops.append(joined.softmax(0)[: len(seen)].max())
                p = joined.softmax(0)[: len(seen)]
                p = p / p.sum()
                entropies.append(-(p * p.clamp_min(1e-300).log()).sum() / np.log(len(seen)))
        found["max_logit"].append(raw.abs()[:, visible].max())
        found["max_capped"].append(capped.abs()[:, visible].max())
        found["row_range"].append(torch.stack(ranges).mean())
        found["entropy"].append(torch.stack(entropies).mean())
        found["one_hot"].append((torch.stack(tops) > 0.99).double().mean())
        found["q_norm"].append(queries.norm(dim=-1).max())
        found["k_norm"].append(keys.norm(dim=-1).max())
        found["cosine"].append(cosine.abs()[:, visible].max())
        found["overflow"].append(torch.tensor(0.0))
    return {name: torch.stack(values) for name, values in found.items()}


def assert_equal(ours: dict, theirs: dict, but=()) -> None:
    assert set(ours) == set(QUANTITIES)
    for name in set(QUANTITIES) - set(but):
        torch.testing.assert_close(
            torch.as_tensor(ours[name]).double(),
            torch.as_tensor(theirs[name]).double(),
            **EXACT,
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.mark.parametrize("tile", [1 << 30, 2000])
@pytest.mark.parametrize("sink", [None, torch.linspace(-3, 6, 6)])
@pytest.mark.parametrize("cap", [None, 12.0])
@pytest.mark.parametrize("mask", MASKS)
def test_equals_a_direct_computation_whole_and_in_tiles(qk, monkeypatch, mask, cap, sink, tile):
    monkeypatch.setattr(quantities, "TILE_BYTES", tile)
    ours = measure(*qk, mask=MASKS[mask], scale=0.37, cap=cap, sink=sink)
    assert_equal(ours, direct(*qk, MASKS[mask], 0.37, cap, sink))
    assert list(ours) == list(QUANTITIES) and all(value.shape == (6,) for value in ours.values())
    assert 0 < ours["one_hot"].max() < 1 and ours["one_hot"].min() < ours["one_hot"].max()


def test_a_mistake_would_be_seen(qk):
    """Each thing that can be got wrong moves at least one quantity by far more than the tolerance."""
    q, k = qk
    right = {"mask": Sliding(window=5), "scale": 0.37, "cap": 12.0, "sink": torch.linspace(-3, 6, 6)}
    truth = direct(q, k, right["mask"], 0.37, 12.0, right["sink"])
    wrong = {
        "mask": {"mask": Causal()}, "window": {"mask": Sliding(window=6)}, "scale": {"scale": 0.38}, "cap": {"cap": None},
        "sink": {"sink": None}, "positions": {"positions": torch.arange(1, 24)},
    }  # fmt: skip
    for name, change in wrong.items():
        with pytest.raises(AssertionError):
            assert_equal(measure(q, k, **right | change), truth)
            pytest.fail(f"{name} went unseen")
    with pytest.raises(AssertionError):
        assert_equal(measure(q, k[:, :, [1, 0, 2]], **right), truth)


def test_memory_grows_with_the_length_not_with_its_square(monkeypatch):
    """No tensor of a run over 4096 positions is as large as a tile allows, let alone 4096 x 4096."""
    monkeypatch.setattr(quantities, "TILE_BYTES", 1 << 20)
    sizes = [visible.numel() for _, _, visible in quantities.tiles(draw(1, 4096, 2, 4), draw(1, 4096, 1, 4), Causal())]
    assert sum(sizes) > 4096 * 4096 / 2 and max(sizes) * 2 * 4 <= 1 << 20
    windowed = [
        visible.shape[-1] for _, _, visible in quantities.tiles(draw(1, 4096, 2, 4), draw(1, 4096, 1, 4), Sliding(window=64))
    ]
    assert max(windowed) < 64 + 4096 // 32, "keys that no query of the tile sees are not multiplied"


def test_masked_keys_are_never_counted(qk):
    q, k = qk
    k = k.clone()
    k[:, -1] = torch.nan  # seen by the last query alone
    ours, without = measure(q, k, mask=Causal(), scale=1.0), measure(q[:, :-1], k[:, :-1], mask=Causal(), scale=1.0)
    assert ours["max_logit"].isnan().all() and (ours["overflow"] == 2).all()
    hidden = measure(q[:, :-1], k, mask=Causal(), scale=1.0, positions=torch.arange(22))
    assert_equal(hidden, without, but=["k_norm"])


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_overflow_in_half_precision_is_reported_as_overflow(qk, size):
    """Counted against the product as it is made in fp16; what is finite in fp32 keeps its size."""
    q, k = (size * x.half() for x in qk)
    made = torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(2, 2))
    expected = (~made.isfinite() & torch.ones(23, 23, dtype=torch.bool).tril()).sum((0, 2, 3))
    ours = measure(q, k, mask=Causal(), scale=1.0)
    assert torch.equal(ours["overflow"], expected) and (expected.sum() > 0) == (size > 1)
    torch.testing.assert_close(ours["max_logit"], direct(q, k, Causal(), 1.0)["max_logit"].float(), rtol=1e-5, atol=0)
    assert measure(q.float(), k.float(), mask=Causal(), scale=1.0)["overflow"].sum() == 0
    assert measure(q.bfloat16(), k.bfloat16(), mask=Causal(), scale=1.0)["overflow"].sum() == 0


def test_an_infinite_key_is_not_hidden(qk):
    q, k = qk
    k = k.clone()
    k[0, 3, 1] = torch.inf
    ours = measure(q, k, mask=Causal(), scale=1.0)
    assert ours["max_logit"].isfinite().tolist() == [True, True, False, False, True, True]
    assert ours["overflow"].tolist() == [0, 0, 20, 20, 0, 0] and ours["one_hot"].isnan().tolist() == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_rows_that_see_nothing_are_left_out(qk):
    q, k = qk
    padded = lambda query, key: Causal()(query, key) & (key >= 4)[None]  # noqa: E731
    ours = measure(q, k, mask=padded, scale=0.3)
    assert_equal(ours, direct(q, k, padded, 0.3))
    batched = lambda query, key: torch.stack([Causal()(query, key), padded(query, key)])[:, None]  # noqa: E731
    both = measure(q, k, mask=batched, scale=0.3)
    first, second = (measure(q[i : i + 1], k[i : i + 1], mask=m, scale=0.3) for i, m in enumerate((Causal(), padded)))
    torch.testing.assert_close(both["max_logit"], torch.maximum(first["max_logit"], second["max_logit"]))
    torch.testing.assert_close(both["entropy"], (first["entropy"] * 22 + second["entropy"] * 18) / 40, **EXACT)


def test_queries_after_a_cache_stand_at_the_end_of_the_keys(qk):
    q, k = qk
    late = measure(q[:, 15:], k, mask=Causal(), scale=0.3)
    assert_equal(late, measure(q[:, 15:], k, mask=Causal(), scale=0.3, positions=torch.arange(15, 23)))


@pytest.mark.parametrize("shapes", [((2, 5, 6, 8), (2, 5, 4, 8)), ((2, 5, 6, 8), (2, 5, 3, 9)), ((5, 6, 8), (5, 3, 8))])
def test_shapes_that_do_not_fit_are_refused(shapes):
    with pytest.raises(BlockscopeError, match="head a multiple of kv_head"):
        measure(*(torch.ones(s) for s in shapes), mask=Causal(), scale=1.0)


def from_taps(net, tokens: Tensor) -> dict[str, list[Tensor]]:
    """The quantities of each layer from the stored logits, capped logits and pattern."""
    _, taps = capture(net, tokens)
    found = {name: [] for name in QUANTITIES if name not in ("q_norm", "k_norm", "cosine")}
    for i, block in enumerate(net.blocks):
        at = torch.arange(tokens.shape[1])
        visible = block.attn.mask(at, at)
        logits, pattern = (taps[f"blocks.{i}.attn.{name}"] for name in ("hook_logits", "hook_pattern"))
        capped = taps.get(f"blocks.{i}.attn.hook_capped", logits)
        several = visible.sum(1) > 1
        share = pattern / pattern.sum(-1, keepdim=True)
        entropy = -torch.special.xlogy(share, share).sum(-1) / visible.sum(1).log()
        found["max_logit"].append(logits[..., visible].abs().amax((0, 2)))
        found["max_capped"].append(capped[..., visible].abs().amax((0, 2)))
        spread = logits.masked_fill(~visible, -torch.inf).amax(-1) - logits.masked_fill(~visible, torch.inf).amin(-1)
        found["row_range"].append(spread.mean((0, 2)))
        found["entropy"].append(entropy[..., several].mean((0, 2)))
        found["one_hot"].append((pattern.amax(-1) > 0.99)[..., several].float().mean((0, 2)))
        found["overflow"].append(torch.zeros(logits.shape[1]))
    return found


@cache
def sharpened(name: str) -> "torch.nn.Module":
    """A preset's random weights with its queries made larger, and sinks and gains that differ from head to head."""
    net = PRESETS[name].build().eval()
    with torch.no_grad():
        for i, (path, p) in enumerate(net.named_parameters()):
            p.copy_(seeded(path, tuple(p.shape)))
            if p.ndim == 1:
                p.add_(0.3 * draw(len(p), seed=i))
            if "q_proj" in path:
                p.mul_(4)
    return net


@pytest.mark.parametrize("name", TINY)
def test_probe_equals_the_stored_taps_for_every_design(name):
    net, tokens = sharpened(name), torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(3))
    ours, theirs = probe(net, tokens), from_taps(net, tokens)
    for quantity, layers in theirs.items():
        np.testing.assert_allclose(ours[quantity], torch.stack(layers).numpy(), rtol=2e-5, atol=1e-5, err_msg=quantity)
    assert all(
        ours[q].shape == ours["max_logit"].shape == (net.config.n_layers, net.config.blocks[0].attn.n_heads) for q in QUANTITIES
    )
    assert (ours["max_logit"] <= net.blocks[0].attn.scale * ours["q_norm"] * ours["k_norm"] * (1 + 1e-5)).all()


@pytest.mark.parametrize("over", ["head", "projection"])
def test_probe_sees_qk_norm_of_both_kinds(tokens, over):
    lm = make_lm(tiny_config(over, mask=Sliding(window=7)))
    found, stored = probe(lm, tokens), lm.capture(tokens, ["blocks.*.attn.hook_rot_?"])
    for i in range(3):
        q, k = stored[f"blocks.{i}.attn.hook_rot_q"], stored[f"blocks.{i}.attn.hook_rot_k"]
        truth = direct(q, k, Sliding(window=7), 10**-0.5)
        assert_equal({name: value[i] for name, value in found.items()}, truth)
    assert (found["max_logit"].max(1) <= bound(lm)).all()


def test_probe_with_soft_cap_and_sink_together(tokens):
    config = tiny_config()
    attn = replace(config.blocks[0].attn, softcap=1.5, sink=True)
    lm = make_lm(replace(config, blocks=(replace(config.blocks[0], attn=attn),) * 2))
    found, stored = probe(lm, tokens), lm.capture(tokens, ["blocks.*.attn.hook_rot_?"])
    for i in range(2):
        sink = lm.block(i).attn.softmax
        assert isinstance(sink, SinkSoftmax) and sink.weight.abs().min() > 0
        q, k = stored[f"blocks.{i}.attn.hook_rot_q"], stored[f"blocks.{i}.attn.hook_rot_k"]
        assert_equal({name: v[i] for name, v in found.items()}, direct(q, k, Causal(), 10**-0.5, 1.5, sink.weight))


def test_probe_is_the_same_through_an_lm_and_leaves_training_alone():
    lm, net = load("tiny-qwen3"), PRESETS["tiny-qwen3"].build()
    with torch.no_grad():
        for path, p in net.named_parameters():
            p.copy_(lm.store.get(path, tuple(p.shape)))
    tokens = torch.arange(60).view(2, 30)
    a, b = probe(lm, tokens), probe(net, tokens)
    assert all(np.array_equal(a[name], b[name]) for name in QUANTITIES)
    assert all(p.requires_grad and p.grad is None for p in net.parameters()) and net.training


def worst_case(net, layer: int) -> float:
    """|logit| at one position when q and k of a head are driven to the length that their gains allow, in one direction."""
    attn = net.blocks[layer].attn
    unit = torch.zeros(1, 1, attn.config.n_heads * attn.config.d_head)
    unit[..., int(attn.q_norm.weight.abs().argmax())] = 1e6
    q = attn.q_norm(unit.unflatten(-1, (attn.config.n_heads, -1)))
    unit = torch.zeros(1, 1, attn.config.n_kv_heads * attn.config.d_head)
    unit[..., int(attn.k_norm.weight.abs().argmax())] = 1e6
    k = attn.k_norm(unit.unflatten(-1, (attn.config.n_kv_heads, -1)))
    return float(attn.scale * q.norm(dim=-1).max() * k.norm(dim=-1).max())


def test_the_bound_is_the_one_that_the_gains_set():
    """max|g_q| max|g_k| sqrt(d_head) over each head; the length of the whole projection where the norm spans it."""
    lm = make_lm(tiny_config("head"))
    for i in range(3):
        g_q, g_k = (lm.parameter(f"blocks.{i}.attn.{n}_norm.weight") for n in "qk")
        assert bound(lm)[i] == pytest.approx(np.abs(g_q).max() * np.abs(g_k).max() * 10**0.5, rel=1e-6)
        lm.block(i)
        assert bound(lm)[i] == pytest.approx(worst_case(lm.net, i), rel=1e-4), "and it can be reached"
    whole = make_lm(tiny_config("projection"))
    for i in range(3):
        g_q, g_k = (np.abs(whole.parameter(f"blocks.{i}.attn.{n}_norm.weight")).reshape(-1, 10).max(1) for n in "qk")
        expected = g_q * np.repeat(g_k, 2) * 60**0.5 * 30**0.5 * 10**-0.5
        np.testing.assert_allclose(head_bounds(whole.block(i).attn, 64), expected, rtol=1e-5)
        assert bound(whole)[i] == pytest.approx(expected.max(), rel=1e-5) and bound(whole)[i] <= worst_case(whole.net, i) * (
            1 + 1e-5
        )
    assert np.isnan(bound(make_lm())).all(), "nothing bounds plain logits"


@pytest.mark.parametrize("name", TINY)
def test_no_logit_passes_the_bound_of_any_design(name):
    net = sharpened(name)
    limits = bound(net)
    for b, block in zip(limits, net.blocks, strict=True):
        normed = getattr(block.attn.config, "qk_norm_over", None) and getattr(block.attn.config, "q_norm", None)
        assert np.isfinite(b) == bool(normed and block.attn.config.temperature is None)
    largest = probe(net, torch.arange(50)[None])["max_logit"].max(1)
    assert (largest[np.isfinite(limits)] <= limits[np.isfinite(limits)]).all()
