"""Known numbers of the designs beside Llama's, each worked out by hand or measured on transformers 5.24."""

import math
from dataclasses import replace

import pytest
import torch
from configs import attn, config
from conftest import assert_same, distinct, make_lm

from model.attention import Attention
from model.embedding import POSITIONS, LearnedPositions, ScaledEmbedding, Sinusoidal
from model.errors import BlockscopeError, UnknownTap
from model.masks import Sliding
from model.norms import NORMS, FullPrecisionRMSNorm, OffsetRMSNorm, RMSNorm, UnitRMSNorm
from model.place import KVCache, Place
from model.positions import FullPrecisionRope, Rope
from model.softmax import SoftCap
from model.taps import capture

BF16 = torch.bfloat16


def lm_of(kind: str, **changes):
    return make_lm(config(kind, **changes))


# ---- norms: the order of cast and gain, the offset, the axes --------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "gain", "expected"),
    [
        (RMSNorm, 1.5, 1.203125),  # Llama, Qwen: cast, then gain
        (FullPrecisionRMSNorm, 1.5, 1.2109375),  # OLMo 2, gpt-oss: gain, then cast
        (OffsetRMSNorm, 0.5, 1.2109375),  # Gemma: likewise, with 1 + w
    ],
)
def test_cast_before_or_after_the_gain(part, gain, expected):
    norm = part(4, eps=1e-5).to(BF16)
    parameter = next(norm.parameters())
    parameter.data[1] = gain
    out = norm(torch.tensor([1, 1.0078125, 0.5, 2], dtype=BF16))
    assert out.dtype == BF16 and out[1].item() == expected


def test_gemma_adds_one_in_full_precision():
    norm = OffsetRMSNorm(4, eps=0.0).to(BF16)
    norm.offset.data.fill_(15.8125)
    with torch.no_grad():
        out = norm(torch.ones(4))  # normalised x = 1
    assert out.tolist() == [16.8125] * 4  # one added in bf16 gives 16.75
    assert 1 + norm.offset[0].item() == 16.8125 and (1 + norm.offset[0]).item() == 16.75


def test_a_fresh_gemma_norm_is_the_identity_gain_and_a_zero_weight_elsewhere_is_silence():
    x = torch.tensor([2.0, -1.0, 3.0, 0.5])
    offset, plain = OffsetRMSNorm(4, eps=0), RMSNorm(4, eps=0)
    plain.weight.data.zero_()
    assert_same(offset(x), UnitRMSNorm(4, eps=0)(x), 1e-7)
    assert not plain(x).any()


@pytest.mark.parametrize("part", [FullPrecisionRMSNorm, OffsetRMSNorm, RMSNorm])
def test_qk_norm_over_the_projection_or_each_head(part):
    """q = [3, 4 | 0, 0], two heads of two, gain 1, eps 0."""
    q = torch.tensor([[[[3.0, 4.0], [0.0, 0.0]]]])
    over_both = part(4, eps=0, dims="batch pos head d_head", axes=2)(q)
    per_head = part(2, eps=1e-30, dims="batch pos head d_head", axes=1)(q)
    torch.testing.assert_close(over_both.flatten(), torch.tensor([1.2, 1.6, 0, 0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(per_head.flatten(), torch.tensor([0.848528, 1.131371, 0, 0]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("kind", "key"), [("olmo2", "rms_norm_eps"), ("gemma2", "rms_norm_eps"), ("gemma3_text", "rms_norm_eps")]
)
@pytest.mark.parametrize(("eps", "expected"), [(1e-5, 0.30151137), (1e-6, 0.70710677)])
def test_eps_reaches_every_norm_of_a_family(kind, key, eps, expected):
    """x = 1e-3 everywhere, gain 1, through the norm that the family's own key builds."""
    norm = config(kind, **{key: eps}).ln_final
    built = replace(norm, d=4).build()
    torch.testing.assert_close(built(torch.full((1, 1, 4), 1e-3)), torch.full((1, 1, 4), expected), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("eps", "expected"), [(1e-5, 0.30151137), (1e-6, 0.70710677)])
def test_eps_of_a_layer_norm(eps, expected):
    """x = ±1e-3: mean 0, variance 1e-6."""
    norm = replace(config("gpt2", layer_norm_epsilon=eps).ln_final, d=4).build()
    out = norm(torch.tensor([[[1e-3, -1e-3, 1e-3, -1e-3]]]))
    torch.testing.assert_close(out[0, 0, 0].item(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", NORMS)
def test_every_norm_keeps_the_dtype_of_its_input(name):
    for dtype in (BF16, torch.float16, torch.float32):
        assert NORMS[name].Config(d=8).build().to(dtype)(torch.randn(2, 3, 8).to(dtype)).dtype == dtype


# ---- embeddings and positions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "rounded", "exact"), [(3072, 55.5, 55.425626), (1152, 34.0, 33.941125), (640, 25.25, 25.298221)]
)
def test_the_embedding_scale_is_rounded_to_the_dtype_of_the_weights(hidden, rounded, exact):
    ones = ScaledEmbedding(torch.ones(3, 4), math.sqrt(hidden))
    assert ones(torch.tensor([1]))[0, 0].item() == pytest.approx(exact, abs=2e-6)
    assert ones.to(BF16)(torch.tensor([1]))[0, 0].item() == rounded


def test_the_scale_is_said_where_the_embedding_is_shown():
    meaning = next(tap.meaning for tap in lm_of("gemma2").taps() if tap.name == "hook_embed")
    assert "times 6.48074" in meaning


def test_sinusoidal_positions_alternate():
    x = torch.zeros(1, 2, 4)
    out = Sinusoidal.Config(d_model=4).build()(x, Place.of(x))
    torch.testing.assert_close(out[0, 1], torch.tensor([0.841471, 0.540302, 0.0099998, 0.999950]), atol=1e-6, rtol=0)
    assert out[0, 0].tolist() == [0, 1, 0, 1]
    with pytest.raises(BlockscopeError, match="even d_model, got 5"):
        Sinusoidal.Config(d_model=5)


@pytest.mark.parametrize("name", POSITIONS)
def test_added_positions_continue_after_a_cache(name):
    part = {"learned": LearnedPositions.Config(context=9, d_model=6), "sinusoidal": Sinusoidal.Config(d_model=6)}[name].build()
    x = torch.zeros(1, 9, 6)
    whole = part(x, Place.of(x))
    rest = part(x[:, 5:], Place(positions=torch.arange(5, 9), start=5))
    assert torch.equal(rest, whole[:, 5:])


# ---- rotation -------------------------------------------------------------------------------------------------------


def partial(exponent: int = 4):
    return Rope.Config(d=exponent, base=1e4, pairing="interleaved").build()


@pytest.mark.parametrize(("unit", "distance", "expected"), [(2, 1, 0.999950), (0, 1, 0.540302), (5, 7, 1.0)])
def test_gptj_turns_the_first_coordinates_of_a_head(unit, distance, expected):
    """head_dim 8, rotary_dim 4: the frequency of unit vector 2 is 10000^(-2/4), not 10000^(-2/8); unit 5 does not turn."""
    rope = partial()
    x = torch.zeros(1, distance + 1, 1, 8)
    x[..., unit] = 1
    turned = rope.rotate(x, rope(torch.arange(distance + 1), distance + 1))[0, :, 0]
    assert (turned[0] @ turned[distance]).item() == pytest.approx(expected, abs=1e-6)


def test_rotations_in_low_precision_are_those_of_transformers():
    """Bit for bit in bf16: Llama turns in the dtype of q, OLMo 2 in fp32."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama
    from transformers.models.olmo2.modeling_olmo2 import apply_rotary_pos_emb as olmo2

    q = torch.randn(1, 2, 23, 10, generator=torch.Generator().manual_seed(0)).to(BF16)
    results = []
    for part, theirs, keep in ((Rope, llama, lambda t: t.to(BF16)), (FullPrecisionRope, olmo2, lambda t: t)):
        rope = part.Config(d=10, base=1e4, pairing="half").build()
        turn = rope(torch.arange(23), 23)
        cos, sin = (keep(torch.cat([t, t], dim=-1))[None] for t in turn)
        ours, expected = rope.rotate(q.transpose(1, 2), turn), theirs(q, q, cos, sin)[0].transpose(1, 2)
        assert ours.dtype == BF16 and torch.equal(ours, expected)
        results.append(ours)
    assert not torch.equal(*results)


# ---- attention: divisor, soft-cap, window ---------------------------------------------------------------------------


def test_a_soft_cap_by_its_numbers():
    assert SoftCap(50.0)(torch.tensor(100.0)).item() == pytest.approx(48.201379, abs=1e-5)
    x = torch.linspace(-1e4, 1e4, 1001)
    assert SoftCap(30.0)(x).abs().max() <= 30
    for bad in (0, -1.0, math.nan, math.inf):
        with pytest.raises(BlockscopeError, match="soft-cap"):
            SoftCap(bad)


def test_a_cap_before_the_mask_lets_nothing_of_the_future_through():
    """Cap 1.0, where a cap after the mask would give the masked key 0.2689 of the weight."""
    lm = lm_of("gemma2", attn_logit_softcapping=1.0, final_logit_softcapping=2.0)
    ids = list(range(4))
    taps = lm.capture(
        ids, taps=["blocks.*.attn.hook_capped", "blocks.*.attn.hook_pattern", "blocks.*.attn.hook_logits", "logits"]
    )
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    for i in range(4):
        assert bool((taps[f"blocks.{i}.attn.hook_pattern"][..., future] == 0).all())
        assert taps[f"blocks.{i}.attn.hook_capped"].abs().max() <= 1
        assert_same(taps[f"blocks.{i}.attn.hook_capped"], taps[f"blocks.{i}.attn.hook_logits"].tanh(), 1e-6)
    assert taps["logits"].abs().max() <= 2
    scores = torch.tensor([[0.0, -torch.inf]])
    assert scores.softmax(-1)[0, 1] == 0 and SoftCap(1.0)(scores).softmax(-1)[0, 1].item() == pytest.approx(0.2689, abs=1e-4)


def test_a_capped_attention_is_never_fused():
    part = attn(config("gemma2")).build()
    assert not part.fusible and attn(config("gemma3_text")).build().fusible
    x = torch.randn(1, 9, 42)
    for name, p in part.named_parameters():
        p.data = distinct(name, tuple(p.shape))
    with torch.no_grad():
        assert_same(part(x), capture(part, x)[0], 1e-7)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text"])
def test_a_window_counts_the_token_itself(kind):
    lm = lm_of(kind, sliding_window=3)
    pattern = lm.capture(list(range(8)), taps=["blocks.0.attn.hook_pattern"])["blocks.0.attn.hook_pattern"]
    assert (pattern[0, 0] > 0).sum(-1).tolist() == [1, 2, 3, 3, 3, 3, 3, 3]
    assert attn(lm.config).mask == Sliding(window=3)


@pytest.mark.parametrize("window", [None, 0, -1, 100])
@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text"])
def test_a_window_of_nothing_or_of_more_than_the_prompt_hides_nothing(kind, window):
    lm = lm_of(kind, sliding_window=window)
    pattern = lm.capture(list(range(4)), taps=["blocks.0.attn.hook_pattern"])["blocks.0.attn.hook_pattern"]
    assert (pattern[0, 0] > 0).sum(-1).tolist() == [1, 2, 3, 4] and bool(pattern.isfinite().all())


def test_the_divisor_reaches_the_logits():
    """query_pre_attn_scalar 144 with heads of 128: 1/12, not 1/sqrt(128)."""
    part = Attention.Config(d_model=6, n_heads=2, n_kv_heads=1, d_head=128, rope=None, scale=144**-0.5).build()
    _, taps = capture(part, torch.randn(1, 5, 6))
    raw = torch.einsum("bqhd,bkd->bhqk", taps["hook_q"], taps["hook_k"][:, :, 0])
    assert_same(taps["hook_logits"], raw / 12, 1e-6)


# ---- wirings --------------------------------------------------------------------------------------------------------


def test_gptj_has_one_norm_and_no_stream_between_its_sublayers():
    lm = lm_of("gptj")
    names = {tap.name for tap in lm.taps()}
    assert not any("ln2" in name or "resid_mid" in name or "hook_act" in name for name in names)
    with pytest.raises(UnknownTap, match="parallel"):
        lm.capture([1, 2], taps=["blocks.0.hook_resid_mid"])
    taps = lm.capture(list(range(9)), taps=["blocks.1.*"])
    parts = [taps[f"blocks.1.{name}"] for name in ("hook_resid_pre", "hook_attn_out", "hook_mlp_out")]
    assert torch.equal(taps["blocks.1.hook_resid_post"], parts[0] + parts[1] + parts[2])
    assert all(identity.holds for identity in lm.identities(list(range(9)), 1))


@pytest.mark.parametrize("kind", ["gpt2", "gptj", "olmo2", "gemma", "gemma2", "gemma3_text"])
def test_identities_hold_in_every_design(kind):
    lm = lm_of(kind)
    for layer in range(lm.config.n_layers):
        for identity in lm.identities(list(range(23)), layer):
            assert identity.holds, f"{identity.name}: {identity.residual}"


@pytest.mark.parametrize("kind", ["gpt2", "gptj", "olmo2", "gemma", "gemma2", "gemma3_text"])
def test_decoding_with_a_cache_equals_the_full_pass(kind):
    wide = {"final_logit_softcapping": 30.0} if kind == "gemma2" else {}  # its tiny cap would magnify rounding
    lm, ids, cache = lm_of(kind, **wide), list(range(5, 28)), KVCache()
    whole = lm.forward(ids)
    steps = torch.cat([lm.forward(part, cache) for part in (ids[:9], ids[9:10], ids[10:])], dim=1)
    assert_same(steps, whole, 1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "olmo2", "gemma2", "gemma3_text"])
def test_the_last_stream_through_the_models_own_end_is_its_logits(kind):
    """A lens must normalise once, with the final gain, and cap where the model caps."""
    lm, ids = lm_of(kind), list(range(12))
    last = f"blocks.{lm.config.n_layers - 1}.hook_resid_post"
    taps = lm.capture(ids, taps=[last, "ln_final.hook_out", "logits"])
    net = lm.config.build()
    net.load_state_dict({name: torch.from_numpy(lm.parameter(name)) for name, _ in net.named_parameters()}, strict=False)
    if lm.config.tied:
        net.unembed.weight = net.embed.weight
    with torch.no_grad():
        assert_same(net.finish(taps[last]), taps["logits"], 1e-5)
        again = net.unembed(net.ln_final(taps["ln_final.hook_out"]))
    assert (again - taps["logits"]).abs().max() > 1e-3, "normalising twice is another model"


def test_half_precision_that_overflows_is_never_ranked():
    """Gemma's residual stream exceeds 65504: 58820 + 33760 is infinite in fp16."""
    assert (torch.tensor(58820, dtype=torch.float16) + torch.tensor(33760, dtype=torch.float16)).item() == math.inf
    lm = make_lm(config("gemma2"), dtype=torch.float16)
    lm.store.get("blocks.0.ln1_post.offset", (42,)).data.fill_(6e4)
    with pytest.raises(BlockscopeError, match="not all finite"):
        lm.next_tokens(list(range(5)))
