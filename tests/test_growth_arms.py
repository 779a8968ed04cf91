"""Arms: what differs between two of them, which differences are allowed, and recipes and fixes that cannot be."""

from dataclasses import replace

import pytest

from model import PRESETS
from model.counting import count_config
from model.errors import BlockscopeError
from model.growth.arms import Arm, differences, flat, folded, pair, recorded_differences, unfolded
from model.growth.fixes import FIXES, fixed, part, training
from model.growth.recipe import Recipe
from model.growth.sizes import SIZES, base_arm, recipe

OFF = base_arm("S", lr=0.1)


@pytest.mark.parametrize(
    ("fix", "lines"),
    [
        ("qk-norm", ["blocks.0-3.attn.q_norm: none | RMSNorm", "blocks.0-3.attn.k_norm: none | RMSNorm"]),
        ("qk-norm-fixed", ["blocks.0-3.attn.q_norm: none | UnitRMSNorm", "blocks.0-3.attn.k_norm: none | UnitRMSNorm"]),
        ("softcap-50", ["blocks.0-3.attn.softcap: none | 50"]),
        ("qk-clip-20", ["recipe.qk_clip: none | 20"]),
        ("no-clip", ["recipe.clip: 1 | none"]),
        ("no-z-loss", ["recipe.z_loss: 0.0001 | 0"]),
        ("decay-0.1", ["recipe.weight_decay: 0.0001 | 0.1", "recipe.decay: independent | coupled"]),
        ("warmup-half", ["recipe.warmup: 35 | 175"]),
        ("init-0.02", ["recipe.init: none | 0.02"]),
    ],
)
def test_a_fix_changes_what_it_names_and_nothing_else(fix, lines):
    assert differences(OFF, fixed(OFF, fix)) == lines
    assert pair(OFF, fixed(OFF, fix), [fix]) == (OFF, fixed(OFF, fix)) and fixed(OFF, fix).name == fix


def test_equal_arms_have_no_difference_and_names_do_not_count():
    assert differences(OFF, replace(OFF, name="another")) == [] and pair(OFF, OFF, []) == (OFF, OFF)


def test_one_layer_that_differs_is_named():
    qk = fixed(OFF, "qk-norm").config.blocks[2]
    odd = replace(OFF, config=replace(OFF.config, blocks=(*OFF.config.blocks[:2], qk, OFF.config.blocks[3])))
    assert differences(OFF, odd) == ["blocks.2.attn.q_norm: none | RMSNorm", "blocks.2.attn.k_norm: none | RMSNorm"]


@pytest.mark.parametrize(
    "other",
    [base_arm("S", lr=0.2), base_arm("S", lr=0.1, seed=1), base_arm("S", lr=0.1, steps=100), base_arm("S", lr=0.1, batch=8),
     base_arm("M2", lr=0.1), fixed(OFF, "softcap-50"), fixed(OFF, "no-clip")],
)  # fmt: skip
def test_arms_that_differ_in_more_than_was_chosen_are_refused(other):
    with pytest.raises(BlockscopeError, match=r"differ in more than qk-norm: .+ \| .+ Make them alike"):
        pair(OFF, fixed(other, "qk-norm"), ["qk-norm"])


def test_two_fixes_from_one_base_and_fixes_with_values_of_their_own():
    left, right = fixed(OFF, "softcap-50"), fixed(OFF, "qk-norm-projection", "no-z-loss")
    with pytest.raises(BlockscopeError, match=r"recipe\.z_loss"):
        pair(left, right, ["softcap-50", "qk-norm-projection"])
    pair(left, right, ["softcap-50", "qk-norm-projection", "no-z-loss"])
    cap, clip = part("soft-cap of 30", softcap="30"), training("clip at 2", clip=2.0)
    pair(OFF, clip(cap(OFF)), [cap, clip])
    pair(OFF, clip(OFF), ["recipe.clip"])
    with pytest.raises(BlockscopeError, match="more than soft-cap of 30"):
        pair(OFF, clip(cap(OFF)), [cap])


def test_two_architectures_are_a_pair_where_only_they_differ():
    same = recipe(lr=0.01, steps=50, batch=4, context=32)
    llama, gpt2 = Arm("llama", PRESETS["tiny-llama"], same), Arm("gpt2", PRESETS["tiny-gpt2"], same)
    assert "blocks.0-3.ln1: RMSNorm | LayerNorm" in differences(llama, gpt2)
    pair(llama, gpt2, ["architecture"])
    with pytest.raises(BlockscopeError, match="more than architecture"):
        pair(llama, replace(gpt2, recipe=replace(same, seed=1)), ["architecture"])
    with pytest.raises(BlockscopeError, match="more than qk-norm"):
        pair(llama, gpt2, ["qk-norm"])


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("tiny-")])
def test_a_description_folds_layers_that_agree_and_unfolds_to_itself(preset):
    full = flat(PRESETS[preset])
    assert unfolded(folded(full)) == full and len(folded(full)) < len(full)


def test_recorded_runs_are_compared_by_what_they_say_of_themselves():
    def meta(arm):
        return {"architecture": folded(flat(arm.config)), "recipe": arm.recipe.values(), "corpus": {"sha256": "a"}}

    on = fixed(OFF, "qk-norm")
    assert recorded_differences(meta(OFF), meta(on)) == differences(OFF, on)
    assert recorded_differences(meta(OFF), meta(OFF) | {"corpus": {"sha256": "b"}}) == ["corpus: a | b"]


def test_a_recipe_is_read_back_from_its_values():
    assert all(Recipe(**arm.recipe.values()) == arm.recipe for arm in (OFF, *(fixed(OFF, fix) for fix in FIXES)))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("lr", 0, "learning rate must be a number above 0, got 0"), ("lr", -0.1, "above 0"), ("lr", float("nan"), "above 0"),
        ("lr", float("inf"), "above 0"), ("lr", "fast", "above 0"), ("lr", True, "above 0"),
        ("steps", 0, "steps must be a whole number from 1"), ("batch", 0, "batch"), ("batch", 1.5, "batch"), ("context", 1, "context"),
        ("seed", -1, "seed"), ("warmup", -1, "warmup"), ("clip", 0, "clip must be a number above 0, or absent"),
        ("qk_clip", -5, "qk_clip"), ("init", float("inf"), "init"), ("z_loss", -1, "z_loss"), ("weight_decay", float("nan"), "weight_decay"),
        ("betas", (0.9, 1.0), "betas"), ("betas", (0.9,), "betas"), ("decay", "none", "decay must be one of coupled, independent"),
        ("validate_every", 15, "multiple of record_every"), ("record_every", 0, "record_every"), ("validation_sequences", 0, "validation_sequences"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_be_is_refused(field, value, said):
    with pytest.raises(BlockscopeError, match=said):
        replace(OFF.recipe, **{field: value})


def test_arms_that_cannot_be_are_refused():
    with pytest.raises(BlockscopeError, match="made for 64 positions: sequences of 65 do not fit"):
        base_arm("S", lr=0.1, context=65)
    with pytest.raises(BlockscopeError, match="100 tokens: training here is on bytes"):
        Arm("few", replace(OFF.config, d_vocab=100), OFF.recipe)
    with pytest.raises(BlockscopeError, match="no fix 'magic'; there are qk-norm"):
        fixed(OFF, "magic")
    with pytest.raises(BlockscopeError, match="latent attention"):
        fixed(Arm("mla", PRESETS["tiny-deepseek-v2"], OFF.recipe), "softcap-50")


def test_sizes_are_as_large_as_they_say():
    said = {name: float(size.title.split(", ")[1].split("M")[0]) for name, size in SIZES.items() if "M par" in size.title}
    assert {name: round(count_config(SIZES[name].config).parameters / 1e6, 2) for name in said} == said and len(said) >= 3
    assert all(size.config.blocks[0].attn.q_norm is None for size in SIZES.values())
