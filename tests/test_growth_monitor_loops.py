"""LogitMonitor in training loops: it leaves no trace, and counts what was asked."""

import warnings

import numpy as np
import pytest
import torch
from monitored import IDS, train, trainable
from reference import HEADS

from model.errors import BlockscopeError
from model.growth import LogitMonitor
from model.growth.measure import QUANTITIES, measure
from model.masks import Causal


def test_training_is_bit_for_bit_what_it_is_without():
    plain = train(trainable(), 5)
    model = trainable()
    from transformers import AttentionInterface

    before, hooks = AttentionInterface.get_interface, len(model._forward_hooks)
    with LogitMonitor(model, every=2) as seen:
        watched = train(model, 5)
        model.eval()
        with torch.no_grad():
            model(torch.tensor([IDS]))
        model.train()
    assert watched == plain and seen.steps == [0, 2, 4] and seen.step == 5
    assert AttentionInterface.get_interface is before and len(model._forward_hooks) == hooks == len(model._forward_pre_hooks)
    with torch.no_grad():
        model(torch.tensor([IDS]))
    assert seen.steps == [0, 2, 4], "detached"
    assert all(tuple(p.shape) and p.grad is None for p in model.parameters())
    values = seen.values()["max_logit"]
    assert values.shape == (3, 3, HEADS) and not np.array_equal(values[0], values[2])


def test_nothing_is_attached_between_measured_steps():
    from transformers import AttentionInterface

    model, found = trainable(), []
    before = AttentionInterface.get_interface
    model.model.layers[1].register_forward_hook(lambda *_: found.append(AttentionInterface.get_interface is before))
    with LogitMonitor(model, every=3):
        train(model, 4)
    assert found == [False, True, True, False]


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_does_not_count_twice(reentrant):
    model, plain = trainable(), trainable()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    with LogitMonitor(model) as seen, LogitMonitor(plain) as expected:
        train(model, 2), train(plain, 2)
    assert seen.steps == [0, 1] and len(seen.names) == 3
    for name in QUANTITIES:
        np.testing.assert_allclose(seen.values()[name], expected.values()[name], rtol=1e-5, err_msg=name)


def test_autocast_is_measured_in_fp32_from_the_16_bit_q_and_k():
    exact, rounded = trainable(), trainable()
    with LogitMonitor(exact) as a, LogitMonitor(rounded) as b:
        train(exact, 1), train(rounded, 1, autocast=True)
    large, small = a.values()["max_logit"], b.values()["max_logit"]
    np.testing.assert_allclose(small, large, rtol=0.1)
    assert not np.array_equal(small, large)
    q, k = torch.randn(1, 9, 2, 8), torch.randn(1, 9, 2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        inside = measure(q, k, mask=Causal(), scale=1.0)
    assert torch.equal(inside["max_logit"], measure(q, k, mask=Causal(), scale=1.0)["max_logit"])


def test_compiled_models_run_uncompiled_in_measured_passes_alone():
    """Through torch.compile with a backend that compiles nothing: what counts is which passes go through it."""
    model, calls = trainable(), []

    def backend(graph, inputs):
        return lambda *args: (calls.append(1), graph.forward(*args))[1]

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with LogitMonitor(compiled, every=3) as seen:
            counts = []
            for _ in range(4):
                calls.clear()
                compiled(torch.tensor([IDS])).logits.sum().backward()
                counts.append(len(calls))
    assert seen.steps == [0, 3] and counts[0] == counts[3] == 0 and counts[1] == counts[2] > 0
    with LogitMonitor(trainable()) as expected:
        train(expected.model, 1)
    np.testing.assert_allclose(seen.values()["max_logit"][0], expected.values()["max_logit"][0], rtol=1e-5)
    assert seen.names == expected.names
    torch._dynamo.reset()
    model.compile(backend="eager")
    with pytest.raises(BlockscopeError, match=r"use torch.compile\(model\)"):
        LogitMonitor(model)


def test_steps_are_passes_or_those_of_the_optimizer():
    model = trainable()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with LogitMonitor(model, every=2, passes=3) as a, LogitMonitor(model, every=2, optimizer=optimizer) as b:
        for i in range(9):
            model(torch.tensor([IDS[: 12 + i]])).logits.sum().backward()
            if i % 3 == 2:
                optimizer.step()
    assert a.steps == b.steps == [0, 2] and a.step == b.step == 3
    assert np.array_equal(a.values()["max_logit"], b.values()["max_logit"]), "the first pass of a step is measured"
    assert not optimizer._optimizer_step_post_hooks


def test_the_trainer_of_transformers_with_accumulation_and_checkpointing(tmp_path):
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": torch.arange(i, i + 16), "labels": torch.arange(i, i + 16)} for i in range(24)]
    how = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 1,
        "gradient_checkpointing": True,
    }
    arguments = TrainingArguments(str(tmp_path), **how, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True)
    trainer = Trainer(trainable(), arguments, train_dataset=data)
    with LogitMonitor(trainer.model, every=2, passes=2) as seen:
        trainer.train()
    assert seen.steps == [0, 2, 4] and seen.step == trainer.state.global_step == 6 and len(seen.names) == 3
    assert 0 < seen.share < 1


def test_a_failed_pass_leaves_nothing_behind():
    from transformers import AttentionInterface

    model, before = trainable(), AttentionInterface.get_interface

    def fail(*_):
        raise RuntimeError("out of luck")

    handle = model.model.layers[2].register_forward_pre_hook(fail)
    with LogitMonitor(model) as seen:
        with pytest.raises(RuntimeError, match="out of luck"):
            train(model, 1)
        assert AttentionInterface.get_interface is before and seen.steps == []
        handle.remove()
        train(model, 1)
    assert len(seen.steps) == 1 and len(seen.names) == 3
