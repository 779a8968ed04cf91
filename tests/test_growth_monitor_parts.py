"""LogitMonitor on plain modules by the names of their parts."""

import numpy as np
import pytest
import torch
from monitored import CLOSE, Plain
from torch import Tensor, nn

from model import PRESETS
from model.errors import BlockscopeError
from model.growth import Heads, LogitMonitor
from model.growth.measure import QUANTITIES, measure, probe
from model.masks import Causal, Chunked, Sliding

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
