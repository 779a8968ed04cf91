"""LogitMonitor against transformers' own tensors and direct computation."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from monitored import CLOSE, IDS, model_of
from recorder import record as transformers_tensors
from reference import HEADS
from sparse_cases import build_sparse, sparse_json
from torch import Tensor, nn

from model import load
from model.errors import BlockscopeError
from model.growth import LogitMonitor, interface
from model.growth.measure import QUANTITIES, probe
from model.masks import Causal, Sliding


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
