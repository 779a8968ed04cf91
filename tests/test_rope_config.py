"""The rotary settings of a config and the tables they give; the figures were measured on transformers 5.24."""

import copy

import pytest
import torch
from configs import LLAMA31, attn, config, frequencies, notes, refusal, values
from reference import YARN, build

from model.checkpoints.families import config_of

# ---- rope: two homes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 500_000.0},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
        {"rope_theta": 500_000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 500_000}},
        {"rope_theta": 500_000, "rope_scaling": None, "torch_dtype": "bfloat16"},
        {"rope_theta": 500_000, "rope_scaling": {"rope_type": None}, "dtype": "bfloat16"},
        {"rope_theta": 500_000, "rope_scaling": {"type": "default", "rope_type": "default"}, "rope_parameters": None},
    ],
)
def test_rope_base_is_found_in_either_home(spelling):
    rope, factor = frequencies(config(head_dim=8, **spelling))
    assert rope[1].item() == pytest.approx(0.0376060, abs=1e-7)  # 500000 ** (-2 / 8)
    assert factor == 1


def test_homes_that_disagree_are_both_named():
    sentence = refusal(rope_theta=500_000, rope_parameters={"rope_theta": 10_000})
    assert "rope_theta is 500000" in sentence and "rope_parameters.rope_theta is 10000" in sentence
    sentence = refusal(rope_scaling={"type": "linear", "factor": 4}, rope_parameters={"rope_type": "yarn", "factor": 4})
    assert "rope_scaling.type is 'linear'" in sentence and "rope_parameters.rope_type is 'yarn'" in sentence


def test_a_missing_base_is_the_default_and_reported():
    assert attn(config()).rope.base == 10_000
    assert "rope_theta is not given: 10000 is used" in notes()
    assert "rope_theta" not in notes(rope_theta=10_000)


@pytest.mark.parametrize("block", ["rope_scaling", "rope_parameters"])
def test_unknown_rope_types_are_refused_by_name(block):
    assert "'su'" in refusal(**{block: {"type": "su", "factor": 4}})
    sentence = refusal(**{block: {"rope_type": "proportional"}})
    assert "'proportional'" in sentence and "llama3" in sentence
    assert "rope_type is ['linear']" in refusal(**{block: {"rope_type": ["linear"]}})
    assert "expected null or an object" in refusal(**{block: "linear"})


def test_the_old_and_new_name_of_the_type():
    both = {"type": "linear", "rope_type": "linear", "factor": 4}
    assert attn(config(rope_scaling=both)).rope.scaling.factor == 4
    sentence = refusal(rope_scaling={"type": "linear", "rope_type": "yarn", "factor": 4})
    assert "rope_scaling.type is 'linear'" in sentence and "rope_scaling.rope_type is 'yarn'" in sentence


@pytest.mark.parametrize("factor", [None, 0, 0.5, -4, 1e300, "4", True, float("inf"), float("nan"), 10**400])
def test_a_scaling_factor_must_stretch(factor):
    assert "factor" in refusal(rope_scaling={"type": "linear", "factor": factor})


@pytest.mark.parametrize("base", [0, 1, -10_000, 1e300, "10000", True, [1]])
def test_a_base_must_be_above_one(base):
    assert "rope_theta" in refusal(rope_theta=base)


def test_dynamic_scaling_needs_two_pairs():
    assert "head_dim is 2" in refusal(head_dim=2, rope_scaling={"type": "dynamic", "factor": 2})
    assert "head_dim is 2" not in refusal(head_dim=2, rope_scaling={"type": "su", "factor": 2})
    assert attn(config(head_dim=2, rope_scaling={"type": "linear", "factor": 2})).rope.d == 2


def test_fields_of_another_scaling_are_refused():
    assert "short_factor" in refusal(rope_scaling={"type": "linear", "factor": 2, "short_factor": [1, 2]})
    assert "mrope_section" in refusal(rope_scaling={"type": "default", "mrope_section": [1, 2, 2]})
    assert "factor" in refusal(rope_scaling={"factor": 4})  # a type must be said
    assert "full_attention" in refusal("qwen3", rope_parameters={"full_attention": {"rope_theta": 1e6}})
    assert "partial_rotary_factor" in refusal(partial_rotary_factor=0.5)
    assert config(partial_rotary_factor=1.0) == config()


def test_dynamic_starts_at_the_models_own_context():
    scaling = attn(config(rope_scaling={"type": "dynamic", "factor": 2}, max_position_embeddings=64)).rope.scaling
    assert scaling.original == 64
    assert "original_max_position_embeddings" in refusal(
        rope_scaling={"type": "dynamic", "factor": 2, "original_max_position_embeddings": 32}, max_position_embeddings=64
    )


# ---- rope: the tables -----------------------------------------------------------------------------------------------


def test_llama3_table_of_a_64_wide_head():
    scaled = {**LLAMA31, "factor": 32.0}
    rope, _ = frequencies(config(head_dim=64, rope_theta=500_000.0, rope_scaling=scaled, hidden_size=96))
    plain, _ = frequencies(config(head_dim=64, rope_theta=500_000.0, hidden_size=96))
    ratio = rope / plain
    assert torch.equal(rope[:15], plain[:15])
    torch.testing.assert_close(ratio[18:], torch.full((14,), 1 / 32), rtol=1e-6, atol=0)
    torch.testing.assert_close(rope[15:18], torch.tensor([1.29054801e-3, 4.29556705e-4, 9.70828623e-5]), rtol=2e-6, atol=0)
    torch.testing.assert_close(ratio[15:18], torch.tensor([0.605573, 0.303742, 0.103448]), rtol=0, atol=1e-6)


def test_llama3_table_of_a_128_wide_head_with_the_old_key():
    scaled = {("type" if key == "rope_type" else key): value for key, value in LLAMA31.items()}
    rope, _ = frequencies(config(head_dim=128, rope_theta=500_000.0, rope_scaling=scaled))
    plain, _ = frequencies(config(head_dim=128, rope_theta=500_000.0))
    assert torch.equal(rope[:29], plain[:29])
    torch.testing.assert_close(rope[35:], plain[35:] / 8, rtol=1e-6, atol=0)
    assert rope[32].item() == pytest.approx(5.24846022e-4, rel=2e-6)


def test_yarn_table_factor_and_rounded_ends():
    yarn = YARN | {"factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
    for truncate, expected in ((False, [1, 0.905551, 0.801443, 0.697335]), (True, [1, 0.903125, 0.80625, 0.709375])):
        model = config(head_dim=64, rope_theta=150_000.0, rope_scaling=yarn | {"truncate": truncate})
        rope, factor = frequencies(model)
        plain, _ = frequencies(config(head_dim=64, rope_theta=150_000.0))
        torch.testing.assert_close((rope / plain)[8:12], torch.tensor(expected), rtol=0, atol=2e-6)
        assert factor == pytest.approx(1.346574, abs=1e-6)


def test_yarn_attention_factor_is_read_not_derived():
    assert frequencies(config(rope_scaling=YARN | {"attention_factor": 1.0}))[1] == 1.0
    assert frequencies(config(rope_scaling=YARN))[1] == pytest.approx(1.138629, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"rope_type": "default", "rope_theta": 1e6},
        {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4},
        {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4},
        {**LLAMA31, "rope_theta": 5e5},
        YARN | {"rope_theta": 1e6},
        YARN | {"rope_theta": 1e4, "beta_fast": 16.0, "beta_slow": 3.0, "truncate": False},
        YARN | {"rope_theta": 1e4, "mscale": 1.0, "mscale_all_dim": 0.5},
        YARN | {"rope_theta": 1e4, "mscale": 0.0, "mscale_all_dim": 0.5, "factor": 1.0},
        YARN | {"rope_theta": 1e4, "original_max_position_embeddings": 32},  # the ramp starts before pair 0
    ],
    ids=lambda s: s["rope_type"],
)
@pytest.mark.parametrize("width", [10, 64])
def test_tables_equal_transformers(settings, width):
    given = values(head_dim=width, max_position_embeddings=16_384, rope_parameters=settings)
    theirs = build({**given, "num_hidden_layers": 1}).model.rotary_emb
    rope, factor = frequencies(config_of(copy.deepcopy(given))[0])
    torch.testing.assert_close(rope, theirs.inv_freq, rtol=1e-6, atol=0)
    assert factor == pytest.approx(theirs.attention_scaling, rel=1e-7)


def test_angles_stay_fp32_in_a_bf16_model():
    block = config(head_dim=8).blocks[0].attn.build().to(torch.bfloat16)
    cos, _ = block.rope(torch.tensor([256, 257]), 258)
    assert cos.dtype == torch.float32
    torch.testing.assert_close(cos[:, 0], torch.tensor([-0.039791, 0.819306]), rtol=0, atol=1e-6)
