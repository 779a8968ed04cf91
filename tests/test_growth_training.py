"""Training: paired, deterministic, replayed from its record, resumed after a kill, stopped at once; and the growth itself."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from growth_runs import SMALL, same, small

from model import PRESETS
from model.checkpoints.families import config_of
from model.errors import BlockscopeError
from model.growth.arms import Arm
from model.growth.corpus import Corpus
from model.growth.fixes import FIXES, fixed
from model.growth.initial import initialised
from model.growth.measure import probe
from model.growth.probing import HeldOut
from model.growth.recipe import Recipe
from model.growth.record import Record, index, shipped
from model.growth.sizes import base_arm, recipe
from model.growth.train import Training, adamw, interleave
from model.presets.llama import llama
from model.taps import recording

pytestmark = pytest.mark.usefixtures("one_thread")


def test_one_event_a_step_and_what_it_carries(text):
    training = Training(small(steps=7), text, snapshots=(0, 5))
    events = list(training)
    assert [e.step for e in events] == list(range(8)) and {e.total for e in events} == {7}
    assert [e.step for e in events if e.probe] == [0, 3, 6, 7] and [e.step for e in events if e.snapshot] == [0, 5]
    assert np.isnan(events[0].train_loss) and events[7].train_loss < events[1].train_loss and training.ended == "finished"
    assert events[6].probe.train_loss == pytest.approx(np.mean([e.train_loss for e in events[4:7]]))
    pattern = events[5].snapshot.patterns
    assert (
        pattern.shape == (2, 4, 24, 24) and not np.triu(pattern, 1).any() and abs(pattern.sum(-1).astype(int) - 255).max() <= 12
    )


def test_the_update_is_adamw_with_the_recipe(text):
    """Three steps written out: cross-entropy + z-loss, clipped, AdamW with decay lr(step) / lr * weight_decay, warm-up."""
    arm = replace(small(), recipe=replace(small().recipe, weight_decay=0.3, warmup=2))
    training, model = Training(arm, text), initialised(SMALL, 0)
    draw, r = torch.Generator().manual_seed(0), arm.recipe
    first, second = ({n: torch.zeros_like(p) for n, p in model.named_parameters()} for _ in range(2))
    for step in range(3):
        starts = torch.randint(len(text.train) - 25, (4,), generator=draw)
        tokens = torch.stack([text.train[s : s + 25] for s in starts]).long()
        logits = model(tokens[:, :-1])
        loss = -logits.log_softmax(-1).gather(-1, tokens[:, 1:, None]).mean() + 1e-4 * logits.logsumexp(-1).square().mean()
        grads = dict(zip(first, torch.autograd.grad(loss, list(model.parameters())), strict=True))
        scale = min(1.0, 1.0 / torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt().item())
        factor = (0.5, 1.0, 1.0)[step]
        with torch.no_grad():
            for name, p in model.named_parameters():
                g = grads[name] * scale
                first[name], second[name] = 0.9 * first[name] + 0.1 * g, 0.95 * second[name] + 0.05 * g * g
                step_size = first[name] / (1 - 0.9 ** (step + 1)) / ((second[name] / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8)
                p -= (factor * 0.3 * p if p.ndim > 1 else 0) + r.lr * factor * step_size
    for _ in range(4):
        training.advance()
    for name, p in training.model.named_parameters():
        assert torch.allclose(p, dict(model.named_parameters())[name], atol=2e-4), name


def test_decay_is_coupled_or_independent():
    model = initialised(SMALL, 0)
    assert [g["weight_decay"] for g in adamw(model, small(lr=0.2).recipe).param_groups] == [pytest.approx(5e-4), 0.0]
    coupled = replace(small(lr=0.2).recipe, decay="coupled", weight_decay=0.1)
    assert [g["weight_decay"] for g in adamw(model, coupled).param_groups] == [0.1, 0.0]


def test_a_run_replays_bit_for_bit_from_its_own_record(text, tmp_path):
    """What a stored run says of itself is enough to get its numbers again."""
    arm = fixed(small(), "qk-norm")
    first = Training(arm, text, snapshots=(6,))
    list(first)
    stored = Record.read(first.record().write(tmp_path / "run.safetensors"))
    again = Training(Arm("again", config_of(stored.meta["config"])[0], Recipe(**stored.meta["recipe"])), text, snapshots=(6,))
    list(again)
    assert same(stored, again.record()) and np.array_equal(stored.patterns, again.record().patterns)
    assert all(torch.equal(first.state[name], again.state[name]) for name in first.state)
    other = Training(replace(arm, recipe=replace(arm.recipe, seed=1)), text)
    list(other)
    assert not same(stored, other.record())


def test_a_shipped_run_replays_its_first_twenty_steps(library):
    """On the machine, torch and Python whose numbers they are; elsewhere floating point may differ in the last place."""
    meta = next(m for m in index() if m["name"] == "stress-off-lr0.1-seed0")
    if (library.sha256, torch.__version__) != (meta["corpus"]["sha256"], meta["torch"]):
        pytest.skip("this Python's standard library, or torch, is another than the shipped run's")
    stored = Record.read(next(path for path in shipped() if path.stem == meta["name"]))
    training = Training(Arm("off", config_of(meta["config"])[0], Recipe(**meta["recipe"])), library)
    for event in training:
        if event.step == 20:
            break
    now = training.record()
    assert now.step.tolist() == stored.step[: len(now.step)].tolist() == [0, 10, 20]
    assert now.train_loss[1:] == pytest.approx(stored.train_loss[1:3], rel=1e-4)
    assert now.values["max_logit"] == pytest.approx(stored.values["max_logit"][:3], rel=1e-3)


def test_growth_itself(library):
    """S at learning rate 0.1, step 120: above 1000 without QK-norm, below 100 with it, on the standard library."""
    off = base_arm("S", lr=0.1, record_every=40, validate_every=None)
    pair = [Training(arm, library) for arm in (off, fixed(off, "qk-norm"))]
    for i, event in interleave(pair, ["qk-norm"]):
        if event.step == 120 and i == 1:
            break
    largest = [training.probes[-1].values["max_logit"].max() for training in pair]
    assert pair[0].step == pair[1].step == 120 and largest[0] > 1000 and largest[1] < 100
    bound = pair[1].probes[-1].bound
    assert (pair[1].probes[-1].values["max_logit"].max(1) <= bound * 1.0001).all() and np.isnan(pair[0].probes[-1].bound).all()


def test_interleaved_arms_read_the_same_batches_as_alone(text):
    a, b = small(), fixed(small(), "qk-norm")
    together = [Training(arm, text) for arm in (a, b)]
    order = [(i, event.step) for i, event in interleave(together, ["qk-norm"])]
    assert order[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    for arm, training in zip((a, b), together, strict=True):
        alone = Training(arm, text)
        list(alone)
        assert same(alone.record(), training.record())


def test_unpaired_arms_are_refused(text):
    a = small()
    for b, said in ((replace(a, recipe=replace(a.recipe, seed=1)), "recipe.seed: 0 | 1"), (small(lr=0.1), "recipe.lr")):
        with pytest.raises(BlockscopeError, match=said.replace("|", r"\|")):
            next(interleave([Training(a, text), Training(b, text)], ["qk-norm"]))
    other = Corpus(text.train, text.validation, "another", (1, 1), "another")
    with pytest.raises(BlockscopeError, match="different texts"):
        next(interleave([Training(a, text), Training(fixed(a, "qk-norm"), other)], ["qk-norm"]))


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("tiny-")])
def test_any_architecture_can_be_an_arm(text, preset):
    arm = Arm(preset, PRESETS[preset], recipe(lr=0.003, steps=2, batch=2, context=16, record_every=2, validation_sequences=2))
    training = Training(arm, text, snapshots=(2,))
    events = list(training)
    assert training.ended == "finished" and events[2].train_loss < 8
    lm = training.lm()
    with torch.no_grad():
        assert torch.equal(lm.forward([5, 6, 7]), training.model(torch.tensor([[5, 6, 7]])))


@pytest.mark.parametrize("name", FIXES)
def test_every_fix_changes_the_run(text, name):
    base, arm = Training(small(lr=0.2), text), Training(fixed(small(lr=0.2), name), text)
    for training in (base, arm):
        list(training)
    assert arm.ended == "finished"
    if name == "qk-clip-100":  # no logit of a net this small comes near it: a clip that is never reached changes nothing
        assert base.record().values["max_logit"].max() < 100 and same(base.record(), arm.record())
    else:
        assert not same(base.record(), arm.record())


def test_qk_clip_scales_back_to_its_threshold(text):
    """After an update that would exceed it, the batch that was just read has no logit above tau (one KV head per head)."""
    config = llama(1, 16, 2, 2, 32, 256, 24, d_head=8, eps=1e-6)
    training = Training(Arm("clip", config, replace(small(lr=0.5).recipe, qk_clip=2.0)), text)
    for _ in range(6):
        training.advance()
    clip, before = training.qk_clip, training.state
    with torch.no_grad(), recording(clip.recorder):
        training.model(training.held_out.probed)
    largest = clip.largest[0].clone()
    assert largest.max() > 2.0
    clip.apply()
    after = probe(training.model, training.held_out.probed)["max_logit"][0]
    assert after == pytest.approx(largest.clamp(max=2.0).numpy(), rel=1e-4)
    changed = {name for name, p in training.state.items() if not torch.equal(p, before[name])}
    assert changed == {"blocks.0.attn.q_proj.weight", "blocks.0.attn.k_proj.weight"}


def test_qk_clip_has_no_place_beside_qk_norm_or_latent_attention(text):
    with pytest.raises(BlockscopeError, match="QK-norm of layer 0 undoes"):
        Training(fixed(small(), "qk-norm", "qk-clip-20"), text)
    with pytest.raises(BlockscopeError, match="latent attention"):
        Training(fixed(Arm("mla", PRESETS["tiny-deepseek-v2"], small().recipe), "qk-clip-20"), text)


@pytest.mark.parametrize("lr", (1e9, 1e30))
def test_a_run_that_is_no_longer_finite_ends_and_says_where(text, lr, tmp_path):
    training = Training(small(lr=lr, record_every=10), text)
    events = list(training)
    last = events[-1]
    assert np.isfinite([e.train_loss for e in events[1:-1]]).all() and last.step == len(events) - 2, (
        "one event tells of the end"
    )
    assert training.ended == f"not finite at step {last.step}" and last.step < 12 and np.isnan(last.train_loss)
    assert last.probe.step == last.step and np.isnan(last.probe.values["max_logit"]).any()
    record = Record.read(training.record().write(tmp_path / "nan.safetensors"))
    assert record.meta["ended"] == training.ended and np.isnan(record.worst("max_logit")[-1]).any()


def test_a_run_rests_between_steps_and_says_where_it_was_stopped(library):
    """A page stops it by not asking for the next step: nothing may be busy for a second between two events."""
    training, gaps, began = Training(base_arm("S", lr=0.1), library), [], time.perf_counter()
    for event in training:
        gaps.append(time.perf_counter() - began)
        if event.step == 50:  # with probes and a validation loss among them
            break
        began = time.perf_counter()
    assert max(gaps[1:]) < 1.0 and training.record().meta["ended"] == "stopped at step 50"
    assert training.record().step.tolist() == [0, 10, 20, 30, 40, 50]


def test_too_little_text_is_refused(text):
    short = Corpus(text.train, text.validation[:25], "short", (1, 1), "a short text")
    with pytest.raises(BlockscopeError, match="validation part of a short text has 25 bytes, fewer than one sequence of 24"):
        Training(small(), short)
    assert len(HeldOut(Corpus(text.train, text.validation[:26], "", (1, 1)), small().recipe).sequences) == 64
