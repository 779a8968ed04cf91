"""Growth without training: what each sweep must give, and by how much, on the shipped pair and on random blocks."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import make_lm, tiny_config

from model import load
from model.errors import BlockscopeError
from model.growth.untrained import Stack, context_sweep, depth_sweep, finish, random_net, scale_sweep, width_sweep
from model.lm import Decoder

SHIPPED = Path(__file__).parent.parent / "assets" / "checkpoints"
TEXT = (Path(__file__).parent / "test_growth.py").read_text()


def pair(arm: str):
    lm = load(SHIPPED / f"code-qknorm-{arm}", device="cpu")
    return lm, torch.tensor(lm.encode(TEXT)[:1024]).view(8, 128)


def scaled(arm: str, factors):
    lm, tokens = pair(arm)
    return finish(scale_sweep(lm, tokens, factors)).rows


def test_without_qk_norm_logits_grow_as_the_square_and_cost_loss():
    rows = scaled("off", (0.25, 1, 2, 8))
    quarter, one, two, eight = rows
    for row in rows:  # a power of two changes no digit, so in layer 0 the square is exact
        assert np.array_equal(row.values["max_logit"][0], row.x**2 * one.values["max_logit"][0])
    assert (two.max_logit[1:] / one.max_logit[1:] == pytest.approx(4, rel=0.5)) and two.max_logit[1] != 4 * one.max_logit[1]
    assert one.loss < two.loss < eight.loss and one.loss < quarter.loss, "every other scale is worse than the trained one"
    assert (np.diff([row.entropy for row in rows], axis=0) < 0).all() and eight.max_logit.max() > 1000
    assert np.isnan(one.bound).all()


def test_with_qk_norm_nothing_moves():
    rows = scaled("on", (0.25, 1, 8))
    for row in rows:
        np.testing.assert_allclose(row.values["max_logit"], rows[1].values["max_logit"], rtol=2e-5)
        assert row.loss == pytest.approx(rows[1].loss, abs=1e-5) and (row.max_logit <= row.bound).all()


def test_the_eps_of_qk_norm_is_where_flat_ends():
    """q / sqrt(mean q^2 + eps) is flat in s only while s^2 mean q^2 is far above eps: at s = 1e-4 it is not."""
    small, one = scaled("on", (1e-4, 1))
    assert small.max_logit.max() < 0.9 * one.max_logit.max()


def test_scaling_what_the_projections_give_is_scaling_their_weights():
    lm = make_lm(tiny_config(), device="cpu")
    tokens = torch.arange(40).view(2, 20)
    before = lm.forward(tokens)
    row = finish(scale_sweep(lm, tokens, [3.0])).rows[0]
    assert torch.equal(lm.forward(tokens), before), "the model itself is as it was"
    with torch.no_grad():
        for i in range(3):
            for name in ("q_proj", "k_proj"):
                getattr(lm.block(i).attn, name).weight.mul_(3)
    direct = finish(scale_sweep(lm, tokens, [1.0])).rows[0]
    np.testing.assert_allclose(row.values["max_logit"], direct.values["max_logit"], rtol=1e-5)
    loss = F.cross_entropy(lm.forward(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).item()
    assert row.loss == pytest.approx(loss, rel=1e-5) and direct.loss == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("name", ["tiny-deepseek-v3", "tiny-llama4", "tiny-gemma2", "tiny-gpt-oss", "tiny-gpt2"])
def test_every_design_can_be_scaled(name):
    one, two = finish(scale_sweep(load(name), list(range(40)), (1, 2))).rows
    normed = np.isfinite(one.bound[0])
    assert two.max_logit[0] == pytest.approx((1 if normed else 4) * one.max_logit[0], rel=1e-4)


def test_sweeps_say_what_they_are_and_how_far_they_are():
    lm, tokens = pair("off")
    walk, seen = scale_sweep(lm, tokens, (1, 2)), []
    while True:
        try:
            seen.append(next(walk))
        except StopIteration as end:
            sweep = end.value
            break
    assert [p.done for p in seen] == list(range(1, 9)) and {p.total for p in seen} == {8} and seen[-1].what == "layer 3"
    assert sweep.label == (
        "code-qknorm-off: W_q and W_k of every layer times s, on trained weights and the same text. "
        "This is an artificial scaling, not training."
    )
    assert "on random weights" in finish(scale_sweep(load("tiny-llama"), [1, 2], [1])).label
    assert sweep.axis == "factor s on W_q and W_k" and [row.x for row in sweep.rows] == [1, 2]


def test_depth_does_not_make_logits_grow_where_there_is_pre_norm():
    sweep = finish(depth_sweep())
    assert "nobody trained them" in sweep.label
    rows = {row.series: row for row in sweep.rows}
    assert len(rows) == 8 and all(len(row.max_logit) == len(row.residual_rms) == 48 for row in rows.values())
    plain, normed = rows["pre-norm, QK-norm off"], rows["pre-norm, QK-norm on"]
    assert plain.max_logit.min() > 2.5 and plain.max_logit.max() < 7 and (normed.max_logit <= 4).all()
    assert plain.residual_rms[0] == pytest.approx(1, abs=0.02) and 4 < plain.residual_rms[-1] < 8, "the stream does grow"
    kept = rows["pre-norm, residual scaled by 1/√(2·layers), QK-norm off"]
    assert kept.residual_rms[-1] < 1.2 and kept.max_logit.max() < 7
    small, raised = (rows[f"pre-norm, init std 0.02, QK-norm {arm}"] for arm in ("off", "on"))
    assert raised.max_logit.min() > 15 * small.max_logit.max(), "at this init QK-norm makes the logits larger"
    bare, held = rows["no norm, QK-norm off"], rows["no norm, QK-norm on"]
    assert (np.diff(np.log(bare.max_logit[1:8])) > 0.5).all() and np.isnan(bare.max_logit[-1]) and bare.max_logit[7] > 1e20
    assert (held.max_logit[:8] <= 4).all() and np.isnan(held.max_logit[-1]), "values and MLP overflow all the same"


def test_longer_texts_have_larger_largest_logits_and_flatter_attention():
    sweep = finish(context_sweep((16, 128, 1024)))
    for arm, least, most in (("QK-norm off", 1.3, 2.5), ("QK-norm on", 1.1, 1.6)):
        short, _, long = (row for row in sweep.rows if row.series == arm)
        assert least < long.max_logit.max() / short.max_logit.max() < most and long.entropy.min() > short.entropy.max()
    assert "flatter, not sharper" in sweep.label


def test_wider_heads_stay_under_their_bound():
    sweep = finish(width_sweep())
    on = [row for row in sweep.rows if row.series == "QK-norm on"]
    assert [row.bound[0] for row in on] == pytest.approx([4, 32**0.5, 8, 128**0.5])
    assert all((row.max_logit <= row.bound).all() for row in on) and on[-1].max_logit.max() < 0.5 * on[-1].bound[0]


def test_arms_of_a_stack_share_their_weights():
    off, on = (random_net(Decoder.Config(**vars(tiny_config(qk))), 3, Stack(std=0.02)) for qk in ("off", "head"))
    ours, theirs = dict(off.named_parameters()), dict(on.named_parameters())
    assert all(torch.equal(p, theirs[name]) for name, p in ours.items()) and len(theirs) == len(ours) + 6
    assert ours["blocks.1.attn.q_proj.weight"].std().item() == pytest.approx(0.02 * 0.88, rel=0.1)  # truncated at two std


def test_bad_values_are_refused():
    lm, tokens = pair("off")
    for make, said in (
        (lambda: scale_sweep(lm, tokens, [0]), "between 0 and"),
        (lambda: scale_sweep(lm, tokens, [float("nan")]), "between 0 and"),
        (lambda: scale_sweep(lm, [5], [1]), "at least two tokens"),
        (lambda: depth_sweep(0), "layers must be a whole number from 1"),
        (lambda: depth_sweep(2.5), "layers must be"),
        (lambda: context_sweep([1]), "a context must be"),
        (lambda: width_sweep([10**9]), "a head width must be"),
    ):
        with pytest.raises(BlockscopeError, match=said):
            finish(make())
