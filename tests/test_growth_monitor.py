"""LogitMonitor against transformers' own tensors and direct computation; that it leaves no trace; what it writes."""

import csv
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from designs import design_json
from recorder import record as transformers_tensors
from reference import CASES, HEADS, build, config_json, prompt
from sparse_cases import build_sparse, sparse_json
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model import PRESETS, load
from model.errors import BlockscopeError
from model.growth import Heads, LogitMonitor, interface, monitor
from model.growth.measure import QUANTITIES, measure, probe
from model.growth.record import Record
from model.growth.show import heading
from model.masks import Causal, Chunked, Sliding

IDS = prompt()
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def from_their_tensors(taps: dict[str, Tensor], layers: int) -> dict[str, np.ndarray]:
    """The quantities from the logits, scores and pattern that transformers' eager attention computed."""
    found = {name: [] for name in QUANTITIES if name != "overflow"}
    for i in range(layers):
        at = f"blocks.{i}.attn.hook_"
        logits, scores, pattern = taps[f"{at}logits"], taps[f"{at}attn_scores"], taps[f"{at}pattern"]
        visible = scores[0, 0] > -torch.inf
        several, group = visible.sum(1) > 1, logits.shape[1] // taps[f"{at}cache_k"].shape[2]
        k = taps[f"{at}cache_k"].repeat_interleave(group, 2)
        entropy = -torch.special.xlogy(pattern, pattern).sum(-1) / visible.sum(1).log()
        high, low = (
            pick(logits.masked_fill(~visible, fill))
            for pick, fill in ((lambda x: x.amax(-1), -1e9), (lambda x: x.amin(-1), 1e9))
        )
        found["max_logit"].append(logits[..., visible].abs().amax((0, 2)))
        found["max_capped"].append(scores[..., visible].abs().amax((0, 2)))
        found["row_range"].append((high - low).mean((0, 2)))
        found["entropy"].append(entropy[..., several].mean((0, 2)))
        found["one_hot"].append((pattern.amax(-1) > 0.99)[..., several].float().mean((0, 2)))
        found["k_norm"].append(k.norm(dim=-1).amax((0, 1)))
        if f"{at}rot_q" in taps:
            q = taps[f"{at}rot_q"]
            cosine = F.cosine_similarity(q.transpose(1, 2)[:, :, :, None], k.transpose(1, 2)[:, :, None], dim=-1)
            found["q_norm"].append(q.norm(dim=-1).amax((0, 1)))
            found["cosine"].append(cosine[..., visible].abs().amax((0, 2)))
    return {name: torch.stack(values).numpy() for name, values in found.items() if values}


WATCHED = [
    "llama",
    "llama-one-kv-head",
    "llama-biases",
    "qwen3",
    "mistral",
    "qwen2",
    "gemma",
    "gemma2",
    "gemma3_text",
    "olmo2",
    "gpt2",
    "gpt2-flatter",
    "gptj",
]


def model_of(case: str, **changes):
    values = config_json(case) if case in CASES else design_json(case)
    return build(values | changes)


@pytest.mark.parametrize("case", WATCHED)
def test_a_transformers_model_measured_is_its_own_eager_attention(case):
    """Plain, grouped, QK-norm of both kinds, soft-cap, windows; every quantity from the numbers that transformers computed."""
    model = model_of(case)
    with LogitMonitor(model, evaluation=True) as seen:
        taps = transformers_tensors(model, IDS)
    layers = model.config.num_hidden_layers
    ours, theirs = seen.values(), from_their_tensors(taps, layers)
    assert seen.steps == [0] and ours["max_logit"].shape == (1, layers, HEADS) and (ours["overflow"] == 0).all()
    assert len(theirs) >= 6
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name][0], value, **CLOSE, err_msg=name)


@pytest.mark.parametrize("case", ["mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "llama4_text"])
def test_experts_latent_attention_and_chunks(case, tmp_path):
    """Against this project's own decoder on the same weights, which has parity tests of its own."""
    model = build_sparse(sparse_json(case))
    model.save_pretrained(tmp_path)
    with LogitMonitor(model.eval(), evaluation=True) as seen, torch.no_grad():
        model(torch.tensor([IDS]))
    theirs = probe(load(tmp_path, device="cpu", dtype="fp32"), IDS)
    for name in QUANTITIES:
        np.testing.assert_allclose(seen.values()[name][0], theirs[name], rtol=2e-4, atol=1e-5, err_msg=name)


def test_a_model_with_sinks(tmp_path):
    """gpt-oss, against this project's own decoder on the same weights, which has tests of its own."""
    model = build_sparse(sparse_json("gpt_oss"))
    model.save_pretrained(tmp_path)
    with LogitMonitor(model.eval(), evaluation=True) as seen, torch.no_grad():
        patterns = model(torch.tensor([IDS]), output_attentions=True).attentions
    ours, theirs = seen.values(), probe(load(tmp_path, device="cpu", dtype="fp32"), IDS)
    for name in QUANTITIES:
        np.testing.assert_allclose(ours[name][0], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name)
    share = torch.stack(patterns)[:, 0].sum(-1)
    assert share.min() < 0.9, "the sinks of this model take a share"
    one_hot = (torch.stack(patterns)[:, 0].amax(-1) > 0.99)[..., 1:].float().mean(-1)
    np.testing.assert_allclose(ours["one_hot"][0], one_hot, **CLOSE)


@pytest.mark.parametrize("case", ["llama", "mistral", "qwen3", "gpt2"])
def test_the_implementation_does_not_matter(case):
    """sdpa gets a bool mask or none, eager a float one: the same numbers."""
    model, found = model_of(case), {}
    tokens = torch.tensor([IDS, list(reversed(IDS))])
    padding = torch.ones_like(tokens)
    padding[0, :4] = 0
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        for mask in (None, padding):
            with LogitMonitor(model, evaluation=True) as seen, torch.no_grad():
                model(tokens, attention_mask=mask)
            found[implementation, mask is None] = seen.values()
    for plain in (True, False):
        for name in QUANTITIES:
            a, b = found["eager", plain][name], found["sdpa", plain][name]
            if name not in ("q_norm", "k_norm", "cosine") or plain:  # a padding row that sees nothing differs between the two
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
    assert not np.allclose(found["sdpa", True]["entropy"], found["sdpa", False]["entropy"]), "padding is hidden, so it counts"


def test_flash_attention_masks_are_read_as_it_reads_them():
    """It gets the padding alone and hides later keys itself, aligned at the end; not installable here, so its arguments are."""
    module, at = nn.Module(), torch.arange(7)
    cases = [
        (None, {}, Causal()(at, at)),
        (None, {"sliding_window": 3}, Sliding(window=3)(at, at)),
        (None, {"is_causal": False}, torch.ones(7, 7, dtype=torch.bool)),
    ]
    for mask, known, expected in cases:
        visible, biased = interface.visible_keys(module, 7, mask, "flash_attention_2", known)
        assert torch.equal(visible(at, at), expected) and not biased
    padding = torch.tensor([[0, 0, 1, 1, 1, 1, 1]])
    visible, _ = interface.visible_keys(module, 7, padding, "flash_attention_2", {})
    assert torch.equal(visible(at[3:], at)[0, 0], Causal()(at[3:], at) & padding.bool())
    with pytest.raises(BlockscopeError, match="cannot be read here"):
        interface.visible_keys(module, 7, object(), "flex_attention", {})


def test_something_added_to_the_logits_takes_the_softmax_quantities_away():
    bias = torch.zeros(1, 1, 5, 5).masked_fill(~Causal()(torch.arange(5), torch.arange(5)), -torch.inf)
    assert not interface.visible_keys(nn.Module(), 5, bias, "eager", {})[1]
    bias[0, 0, 3, 1] = 0.5
    assert interface.visible_keys(nn.Module(), 5, bias, "eager", {})[1]
    model = model_of("llama")
    with LogitMonitor(model, evaluation=True) as seen, torch.no_grad():
        full = torch.zeros(1, 1, 23, 23).masked_fill(~Causal()(torch.arange(23), torch.arange(23)), torch.finfo().min)
        full[..., 3, 1] = 0.5
        model(torch.tensor([IDS]), attention_mask=full)
    values = seen.values()
    assert np.isnan(values["entropy"]).all() and np.isnan(values["one_hot"]).all() and np.isfinite(values["max_logit"]).all()
    assert "something is added" in seen.record().meta["notes"][0]


# ---- training loops ----------------------------------------------------------------------------------------------------


def train(model, steps: int, autocast: bool = False, backward=True, watch: LogitMonitor | None = None) -> list[float]:
    """Plain SGD on one text; returns the losses."""
    tokens, losses = torch.tensor([IDS]), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(tokens, labels=tokens).loss
        losses.append(float(loss.detach()))
        if watch is not None:
            watch.loss(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def trainable(case: str = "llama", **changes):
    return model_of(case, **changes).train()


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


# ---- plain modules -----------------------------------------------------------------------------------------------------


class Turned(nn.Module):
    """A stand-in for whatever is done to q and k after their projection."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.linspace(0.5, 2, x.shape[1])[None, :, None, None]


class Plain(nn.Module):
    """nanoGPT's shape: a fused qkv, or q and k of their own that are turned; grouped heads; optionally checkpointed."""

    def __init__(self, fused: bool, heads: int = 4, kv: int = 4, d_head: int = 6, layers: int = 2, checkpointed: bool = False):
        super().__init__()
        torch.manual_seed(0)
        d = heads * d_head
        self.heads, self.kv, self.d_head, self.fused, self.checkpointed = heads, kv, d_head, fused, checkpointed
        self.embed = nn.Embedding(50, d)
        make = lambda: nn.ModuleDict(  # noqa: E731
            {"c_attn": nn.Linear(d, d + 2 * kv * d_head), "q": nn.Linear(d, d), "k": nn.Linear(d, kv * d_head), "v": nn.Linear(d, kv * d_head),
             "turn_q": Turned(), "turn_k": Turned(), "out": nn.Linear(d, d)}
        )  # fmt: skip
        self.blocks = nn.ModuleList(make() for _ in range(layers))
        self.seen: list[tuple[Tensor, Tensor]] = []

    def attend(self, x: Tensor, block: nn.ModuleDict) -> Tensor:
        if self.fused:
            q, k, v = block["c_attn"](x).split([self.heads * self.d_head, self.kv * self.d_head, self.kv * self.d_head], -1)
            q, k, v = (t.unflatten(-1, (-1, self.d_head)) for t in (q, k, v))
        else:
            q, k = (block[f"turn_{n}"](block[n](x).unflatten(-1, (-1, self.d_head))) for n in "qk")
            v = block["v"](x).unflatten(-1, (-1, self.d_head))
        self.seen.append((q.detach(), k.detach()))
        z = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True, enable_gqa=True)
        return x + block["out"](z.transpose(1, 2).flatten(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(self.attend, x, block, use_reentrant=False) if self.checkpointed else self.attend(x, block)
        return x


CHOSEN = {
    "fused": ({"fused": True}, Heads(heads=4, qkv="blocks.*.c_attn"), "c_attn"),
    "fused-grouped": ({"fused": True, "kv": 2}, Heads(heads=4, kv_heads=2, qkv="blocks.*.c_attn"), "c_attn"),
    "own": ({"fused": False, "kv": 2}, Heads(heads=4, kv_heads=2, q="blocks.*.turn_q", k="blocks.*.turn_k"), "turn_q"),
    "checkpointed": ({"fused": True, "checkpointed": True}, Heads(heads=4, qkv="blocks.*.c_attn"), "c_attn"),
    "window": ({"fused": True}, Heads(heads=4, qkv="blocks.*.c_attn", window=3, cap=2.0, scale=0.9), "c_attn"),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_a_plain_module_by_the_names_of_its_parts(case):
    how, heads, leaf = CHOSEN[case]
    model, tokens = Plain(**how), torch.arange(34).view(2, 17)
    with LogitMonitor(model, layers=heads) as seen:
        model(tokens).sum().backward()
    assert seen.names == [f"blocks.{i}.{leaf}" for i in (0, 1)] and seen.steps == [0]
    for i, (q, k) in enumerate(model.seen[:2]):
        scale = heads.scale or 6**-0.5
        expected = measure(q, k, mask=Sliding(window=3) if heads.window else Causal(), scale=scale, cap=heads.cap)
        for name in QUANTITIES:
            np.testing.assert_allclose(seen.values()[name][0, i], expected[name], **CLOSE, err_msg=name)
        logits = scale * torch.einsum("bqhd,bkhd->bhqk", q, k.repeat_interleave(4 // k.shape[2], 2))
        visible = heads.mask(torch.arange(17), torch.arange(17))
        np.testing.assert_allclose(
            seen.values()["max_logit"][0, i], logits.masked_fill(~visible, 0).abs().amax((0, 2, 3)), **CLOSE
        )
    assert all(not part._forward_hooks for part in model.modules())


def test_the_taps_of_this_projects_decoder_are_parts_too():
    net = PRESETS["tiny-qwen3"].build()
    c = net.config.blocks[0].attn
    heads = Heads(heads=c.n_heads, kv_heads=c.n_kv_heads, q="blocks.*.attn.hook_rot_q", k="blocks.*.attn.hook_rot_k")
    with LogitMonitor(net, layers=heads) as seen:
        net(torch.arange(30)[None])
    for name, value in probe(net, torch.arange(30)[None]).items():
        np.testing.assert_allclose(seen.values()[name][0], value, **CLOSE, err_msg=name)


def test_a_loop_that_has_q_and_k_at_hand_shows_them():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.watch = nn.Linear(8, 8), None

        def forward(self, x: Tensor) -> Tensor:
            q = k = self.w(x).unflatten(-1, (2, 4))
            self.watch.see("only", q, k, mask=Chunked(chunk=4), scale=0.5)
            self.watch.see("only", q, k, mask=Causal(), scale=0.5)
            return q

    model, x = Loop(), torch.randn(1, 9, 8)
    with LogitMonitor(model, every=2) as model.watch:
        for _ in range(3):
            q = model(x)
    assert model.watch.steps == [0, 2] and model.watch.names == ["only", "only #2"]
    expected = measure(q, q, mask=Chunked(chunk=4), scale=0.5)
    np.testing.assert_allclose(model.watch.values()["entropy"][1, 0], expected["entropy"], **CLOSE)


def test_mistaken_names_and_numbers_are_said():
    model = Plain(fused=True)
    for make, said in (
        (lambda: Heads(heads=4), "name either q and k"),
        (lambda: Heads(heads=4, q="a", k="b", qkv="c"), "name either q and k"),
        (lambda: Heads(heads=4, kv_heads=3, qkv="a"), "multiple of kv_heads"),
        (lambda: Heads(heads=4, qkv="a", causal=False, window=3), "needs causal=True"),
        (lambda: LogitMonitor(model, layers=Heads(heads=4, qkv="blocks.*.attn")), "names no module of this Plain"),
        (lambda: LogitMonitor(model, layers=Heads(heads=4, q="blocks.*.q", k="blocks.0.k")), "names 2 modules and"),
        (lambda: LogitMonitor(model, every=0), "every must be"),
        (lambda: LogitMonitor(model, every=2.5), "every must be"),
        (lambda: LogitMonitor(model, passes=-1), "passes must be"),
        (lambda: LogitMonitor(model).record(), "nothing was measured"),
    ):
        with pytest.raises(BlockscopeError, match=said):
            make()
    model = Plain(fused=True)
    with (
        LogitMonitor(model, layers=Heads(heads=5, qkv="blocks.*.c_attn")),
        pytest.raises(BlockscopeError, match=r"expected \[batch, pos"),
    ):
        model(torch.arange(9)[None])
    with LogitMonitor(model), pytest.raises(BlockscopeError, match="could be seen"):
        model(torch.arange(9)[None])


# ---- what it writes ----------------------------------------------------------------------------------------------------


def test_the_record_and_the_table_hold_every_layer_and_head(tmp_path):
    model = trainable()
    out = {"record": tmp_path / "a" / "run.safetensors", "csv": tmp_path / "b" / "run.csv"}
    with LogitMonitor(model, every=2, name="my run", **out) as seen:
        losses = train(model, 5, watch=seen)
    kept, values = Record.read(out["record"]), seen.values()
    assert kept.step.tolist() == [0, 2, 4] and set(kept.values) == set(QUANTITIES)
    assert all(np.array_equal(kept.values[name], values[name]) for name in QUANTITIES)
    assert kept.meta["layers"] == [f"model.layers.{i}.self_attn" for i in range(3)] and kept.meta["group"] == "monitor"
    assert kept.name == "my run" and kept.meta["ended"] == "finished" and np.isnan(kept.bound).all()
    assert kept.train_loss.tolist() == losses[::2] and "no validation loss" in heading(kept)
    with pytest.raises(RuntimeError), LogitMonitor(model, record=out["record"]) as seen:
        train(model, 2, watch=seen)
        raise RuntimeError("out of memory")
    assert Record.read(out["record"]).meta["ended"] == "stopped at step 2"
    rows = list(csv.DictReader(out["csv"].open()))
    assert len(rows) == 3 * 3 * HEADS
    assert float(rows[-1]["max_logit"]) == pytest.approx(float(values["max_logit"][2, 2, -1]), rel=1e-5)


def test_a_long_run_is_saved_while_it_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(monitor, "SAVE_EVERY", 0)
    model = trainable()
    with LogitMonitor(model, record=tmp_path / "run.safetensors"):
        train(model, 2)
        assert len(Record.read(tmp_path / "run.safetensors").step) == 2


def test_tensorboard_shows_the_worst_head_of_each_layer(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = trainable()
    with LogitMonitor(model, every=2, tensorboard=tmp_path) as seen:
        train(model, 3)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    values = seen.values()
    assert len(events.Tags()["scalars"]) == 3 * len(QUANTITIES)
    for name, worst in (("max_logit", np.max), ("entropy", np.min), ("overflow", np.sum)):
        scalars = events.Scalars(f"attention/{name}/model.layers.1.self_attn")
        assert [s.step for s in scalars] == [0, 2]
        assert [s.value for s in scalars] == pytest.approx(worst(values[name][:, 1], axis=1).tolist())


def test_without_tensorboard_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(BlockscopeError, match="pip install tensorboard"):
        LogitMonitor(Plain(fused=True), layers=Heads(heads=4, qkv="blocks.*.c_attn"), tensorboard=tmp_path)


def test_three_lines_in_a_trainer_need_no_page():
    """Neither gradio nor plotly is imported with the monitor."""
    import subprocess

    code = "import sys; from model.growth import LogitMonitor; print(sorted({'gradio', 'plotly', 'transformers'} & set(sys.modules)))"
    root = Path(__file__).parent.parent
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
        == "[]"
    )
