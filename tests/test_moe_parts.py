"""Routing, experts, sinks, latent attention, chunks and temperature against numbers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from conftest import distinct
from torch import Tensor

from model import PRESETS
from model.errors import BlockscopeError
from model.masks import Chunked
from model.mla import MLA
from model.mlp import SwiGLU
from model.moe import MoE, clamped_swiglu
from model.norms import RMSNorm
from model.place import KVCache, Place
from model.positions import Rope, Yarn
from model.routing import BiasedGroupTopK, GroupMaxTopK, SigmoidTopK, SoftmaxTopK, TopKSoftmax
from model.softmax import SinkSoftmax
from model.taps import capture
from model.temperature import Temperature


def close(got: Tensor, expected, bound: float = 1e-6) -> None:
    assert torch.allclose(got, torch.tensor(expected), atol=bound, rtol=0), got


def filled(module: torch.nn.Module) -> torch.nn.Module:
    """Every parameter a random value of its own."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(distinct(name, tuple(parameter.shape)))
    return module


# ---- sinks (B32) ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sink", "weight", "share"), [(0.0, 1 / 3, 1 / 3), (0.6931472, 1 / 4, 1 / 2), (-torch.inf, 1 / 2, 0.0)]
)
def test_a_sink_joins_the_denominator_alone(sink, weight, share):
    softmax = SinkSoftmax(1)
    softmax.weight.data.fill_(sink)
    weights, taken = softmax(torch.zeros(1, 1, 1, 2))
    close(weights.flatten(), [weight, weight])
    close(taken.flatten(), [share])


def test_a_strong_sink_leaves_little_and_is_shown():
    attn = PRESETS["tiny-gpt-oss"].blocks[1].attn.build()
    attn.softmax.weight.data.fill_(5.0)
    x = 0.2 * torch.randn(1, 9, 96, generator=torch.Generator().manual_seed(0))
    _, taps = capture(attn, x, taps=["hook_pattern", "hook_sink"])
    rows = taps["hook_pattern"].sum(-1)
    assert float(rows.max()) < 0.2 and torch.allclose(rows + taps["hook_sink"], torch.ones_like(rows), atol=1e-6)


# ---- gpt-oss experts (B33) ------------------------------------------------------------------------------------------


def test_clamped_swiglu_by_hand():
    gate, up = torch.tensor([8.0, -8.0, 1.0], dtype=torch.float64), torch.tensor([8.0, -8.0, 0.0], dtype=torch.float64)
    got = clamped_swiglu(gate, up)
    assert got.tolist() == pytest.approx([55.999626, 5.8599e-05, 0.845796], rel=1e-5)  # a clamp below too gives 2.8123e-04


# ---- routing (B56, B57) ---------------------------------------------------------------------------------------------

LOGITS = torch.tensor([[[2.0, 1.0, 0.0, -1.0]]])


@pytest.mark.parametrize(
    ("routing", "weights"),
    [(SoftmaxTopK(topk=2), [0.643914, 0.236883]), (TopKSoftmax(topk=2), [0.731059, 0.268941]),
     (SigmoidTopK(topk=2), [0.880797, 0.731059]), (SoftmaxTopK(topk=2, scale=16.0), [16 * 0.643914, 16 * 0.236883])],
)  # fmt: skip
def test_where_the_softmax_sits(routing, weights):
    got, indices = routing(LOGITS, None)
    close(got.flatten(), weights, 1e-5)
    assert indices.flatten().tolist() == [0, 1]


GROUPED = torch.tensor([[[3.0, -9, 1, 1, 0.5, 0.4, -1, -1]]])


@pytest.mark.parametrize("bias", [0.0, -1.5])
def test_groups_are_ranked_by_their_two_best_and_hidden_ones_never_win(bias):
    routing = BiasedGroupTopK(topk=2, groups=4, kept=2)
    weights, indices = routing(GROUPED, torch.full((8,), bias))
    assert sorted(indices.flatten().tolist()) == [2, 3]
    close(weights.flatten(), [0.5, 0.5])
    sums = GROUPED.sigmoid().unflatten(-1, (4, 2)).sum(-1).flatten()
    close(sums, [0.952698, 1.462117, 1.221147, 0.537883])


def test_the_older_rule_keeps_the_group_of_the_best_expert():
    _, indices = GroupMaxTopK(topk=2, groups=4, kept=2)(GROUPED, None)
    assert sorted(indices.flatten().tolist()) in ([0, 2], [0, 3])  # groups 0 and 1


def test_the_bias_steers_the_choice_and_stays_out_of_the_weight():
    bias = torch.tensor([0.0, 0, 0, 2])
    weights, indices = BiasedGroupTopK(topk=1, groups=1, kept=1, normalise=False)(LOGITS, bias)
    assert indices.item() == 3 and weights.item() == pytest.approx(torch.tensor(-1.0).sigmoid().item())
    for value in (torch.nan, torch.inf):
        with pytest.raises(BlockscopeError, match="not finite"):
            BiasedGroupTopK(topk=1, groups=1, kept=1)(LOGITS, torch.tensor([0.0, value, 0, 0]))


@pytest.mark.parametrize(
    ("routing", "words"),
    [
        (TopKSoftmax(topk=9), "topk 9 exceeds the 8"),
        (GroupMaxTopK(topk=2, groups=3, kept=1), "8 experts do not divide into 3 groups"),
        (GroupMaxTopK(topk=5, groups=4, kept=2), "topk 5 exceeds the 4 experts of 2 kept groups"),
        (BiasedGroupTopK(topk=2, groups=8, kept=4), "leave one"),
    ],
)
def test_experts_that_cannot_be_chosen_from(routing, words):
    with pytest.raises(BlockscopeError, match=words):
        MoE.Config(d_model=4, d_mlp=4, n_experts=8, routing=routing)


@pytest.mark.parametrize("routing", [TopKSoftmax(topk=3), SigmoidTopK(topk=2), SoftmaxTopK(topk=1, scale=2.5)])
def test_experts_equal_a_loop_over_tokens(routing):
    shared = SwiGLU.Config(d_model=10, d_mlp=7)
    moe = filled(MoE(MoE.Config(d_model=10, d_mlp=6, n_experts=5, routing=routing, shared=shared)))
    x = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(1))
    out, taps = capture(moe, x, taps=["*"])
    for place in [(b, p) for b in range(2) for p in range(4)]:
        expected = moe.shared(x[place])
        pairs = zip(taps["hook_expert_weights"][place], taps["hook_expert_indices"][place].tolist(), strict=True)
        for rank, (weight, e) in enumerate(pairs):
            read = x[place] * (weight if routing.scales_input else 1)
            post = F.silu(moe.experts.gate_proj[e] @ read) * (moe.experts.up_proj[e] @ read)
            close_to = (moe.experts.down_proj[e] @ post) * (1 if routing.scales_input else weight)
            expected = expected + close_to
            assert torch.allclose(taps["experts.hook_post"][place][rank], post, atol=1e-5)
        assert torch.allclose(out[place], expected, atol=1e-5)


# ---- latent attention (B34, B35, B66) -------------------------------------------------------------------------------


def mla(rotary: int = 4, pairing: str = "interleaved", **changes) -> MLA.Config:
    latent = {"kv_latent": 5, "kv_norm": RMSNorm.Config(d=5, eps=1e-6)}
    rope = Rope.Config(d=rotary, base=1e4, pairing=pairing)
    return MLA.Config(
        **({"d_model": 12, "n_heads": 3, "d_nope": 6, "d_value": 7, "rope": rope, "scale": 1.0} | latent | changes)
    )


@pytest.mark.parametrize(("pairing", "score"), [("interleaved", 0.540302), ("half", 0.999950)])
def test_which_coordinates_pair_up(pairing, score):
    """q is unit vector 1 at position 1, k the same at position 0."""
    rope = Rope.Config(d=4, base=1e4, pairing=pairing).build()
    x = torch.tensor([0.0, 1, 0, 0]).expand(1, 2, 1, 4)
    turned = rope.rotate(x, rope(torch.arange(2), 2))[0, :, 0]
    close(turned[1] @ turned[0], score)


def test_the_rotary_key_is_one_for_all_heads_and_only_the_last_coordinates_turn():
    attn = filled(MLA(mla()))
    _, taps = capture(attn, torch.randn(1, 5, 12, generator=torch.Generator().manual_seed(2)), taps=["*"])
    assert taps["hook_k_rope"].shape == taps["hook_rot_k_rope"].shape == (1, 5, 4)
    assert torch.equal(taps["hook_rot_q"][..., :6], taps["hook_q"][..., :6])
    assert torch.equal(taps["hook_rot_q"][:, 0], taps["hook_q"][:, 0]) and not torch.equal(taps["hook_rot_q"], taps["hook_q"])
    keys = taps["hook_keys"]
    assert all(torch.equal(keys[:, :, h, 6:], taps["hook_rot_k_rope"]) for h in range(3))
    assert taps["hook_values"].shape == (1, 5, 3, 7) and taps["hook_z"].shape == (1, 5, 3, 7)
    with pytest.raises(BlockscopeError, match="rotary width must be even"):
        mla(rotary=7)


def test_the_divisor_of_latent_attention():
    wide = {"d_nope": 128, "d_value": 128, "kv_latent": 512, "kv_norm": RMSNorm.Config(d=512, eps=1e-6), "scale": None}
    assert mla(rotary=64, **wide).logit_scale == pytest.approx(0.0721688, abs=1e-7)


@pytest.mark.parametrize(("mscale", "factor", "scale"), [(1.0, 1.873854, 0.135234), (0.707, 1.589626, 0.114721)])
def test_yarn_sharpens_the_logits_of_deepseek(mscale, factor, scale):
    yarn = Yarn(factor=40.0, original=4096, mscale=mscale, mscale_all_dim=mscale)
    assert yarn.logit_factor == pytest.approx(factor, abs=1e-6) and yarn.magnitude() == 1.0
    assert 192**-0.5 * yarn.logit_factor == pytest.approx(scale, abs=1e-6)
    assert PRESETS["deepseek-v3"].blocks[0].attn.logit_scale == pytest.approx(0.135234, abs=1e-6)
    assert Yarn(factor=40.0, original=4096).logit_factor == 1.0


def test_an_attention_factor_that_is_given_is_kept():
    assert Yarn(factor=4.0, original=64, attention_factor=1.0).magnitude() == 1.0
    assert Yarn(factor=4.0, original=64).magnitude() == pytest.approx(1.138629, abs=1e-6)


# ---- chunks and temperature -----------------------------------------------------------------------------------------


def test_chunks_are_the_written_out_matrix():
    at = torch.arange(7)
    rows = [[1, 0, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0],
            [0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0, 1]]  # fmt: skip
    assert Chunked(chunk=3)(at, at).int().tolist() == rows
    assert Chunked(chunk=3)(at[5:], at).int().tolist() == rows[5:]  # two new queries after five cached keys


def test_temperature_steps_up_at_every_full_stretch():
    temperature = Temperature(Temperature.Config(every=4, slope=0.1))
    _, taps = capture(temperature, torch.ones(1, 9, 2, 3), torch.arange(9), taps=["hook_scale"])
    steps = [1, 1, 1, 1.0693147, 1.0693147, 1.0693147, 1.0693147, 1.1098612, 1.1098612]
    close(taps["hook_scale"], steps)


# ---- with a cache ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny-deepseek-v2", "tiny-deepseek-v3", "tiny-llama4", "tiny-gpt-oss", "tiny-qwen3-moe"])
@pytest.mark.parametrize("watched", [False, True])
def test_stepwise_equals_the_full_run(name, watched):
    config = PRESETS[name]
    model = filled(config.build()).eval()
    ids = torch.randint(256, (1, 30), generator=torch.Generator().manual_seed(3))
    cache, taps = KVCache(), ["blocks.*.attn.hook_z"] + (["blocks.*.attn.hook_pattern"] if watched else [])
    full, whole = capture(model, ids, taps=taps)
    parts = [capture(model, part, taps=taps, cache=cache) for part in (ids[:, :11], ids[:, 11:12], ids[:, 12:])]
    assert torch.allclose(torch.cat([out for out, _ in parts], dim=1), full, atol=1e-4 * float(full.abs().max()))
    for tap, tensor in whole.items():
        if tap.endswith("hook_z"):
            stepped = torch.cat([seen[tap] for _, seen in parts], dim=1)
            assert torch.allclose(stepped, tensor, atol=1e-5 * float(tensor.abs().max())), tap


def test_a_cache_keeps_the_latent_and_not_the_heads():
    config = PRESETS["tiny-deepseek-v3"]
    cache, model = KVCache(), filled(config.build())
    model(torch.zeros(1, 9, dtype=torch.long), cache=cache)
    assert cache.nbytes == 9 * 4 * sum(block.attn.cached_per_token for block in config.blocks)
    assert Place.of(torch.zeros(1, 1), cache).start == 9


def test_llama_3_scaling_without_a_ramp_is_a_step():
    """Llama 4 Scout: both factors 1, so pairs that turn at least once in 8192 positions are kept, and the others divided."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = PRESETS["llama4-scout"].blocks[0].attn.rope
    settings = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 16.0, "low_freq_factor": 1.0}
    settings |= {"high_freq_factor": 1.0, "original_max_position_embeddings": 8192}
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.for_model("llama4_text", rope_parameters=settings))
    ours, magnitude = rope.frequencies()
    assert magnitude == 1.0 and torch.allclose(ours, theirs, rtol=1e-6, atol=0)
    ratios = (ours / rope.unscaled()).tolist()
    assert {round(r, 6) for r in ratios} == {1.0, 0.0625} and ratios == sorted(ratios, reverse=True)
