"""What only some files of Llama's relatives have (rotary scalings, biases, tied heads): each fault with it is noticed.

Mistakes that any model can have are data, in model/mistakes; test_parity_designs.py makes them.
"""

from dataclasses import replace

import pytest
import torch
from recorder import record
from reference import CASES, WINDOW, faults, made_once, prompt, write

from model import load
from model.checkpoints import open_folder
from model.masks import Causal, Sliding
from model.taps import capture

TOLERANCE = 1e-5  # of the largest value: fp32 rounding of three layers, far below the smallest mistake below


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return made_once(tmp_path_factory, lambda case, folder: record(write(case, folder), prompt()))


@pytest.mark.parametrize("case", CASES)
def test_logits_match_without_anybody_listening(case, written):
    folder, theirs = written(case)
    logits = load(folder, device="cpu", dtype=torch.float32).forward(prompt())
    assert not (wrong := faults({"logits": logits}, {"logits": theirs["logits"]}, TOLERANCE)), str(wrong[0])


# ---- mistakes that the comparison must notice -----------------------------------------------------------------------


def every_block(**changes):
    """Replace fields of the attention config of every block."""
    return lambda config: replace(
        config, blocks=tuple(replace(b, attn=replace(b.attn, **_filled(changes, b.attn))) for b in config.blocks)
    )


def _filled(changes, attn):
    return {name: change(attn) if callable(change) and name != "mask" else change for name, change in changes.items()}


def rope(**changes):
    return every_block(rope=lambda attn: replace(attn.rope, **changes))


def scaling(**changes):
    return every_block(rope=lambda attn: replace(attn.rope, scaling=replace(attn.rope.scaling, **changes)))


def other_layers_slide(config):
    def swap(mask):
        return Causal() if isinstance(mask, Sliding) else Sliding(window=WINDOW)

    return replace(config, blocks=tuple(replace(b, attn=replace(b.attn, mask=swap(b.attn.mask))) for b in config.blocks))


def zeroed(leaf):
    return lambda state: {name: value * 0 if name.endswith(leaf) else value for name, value in state.items()}


def positions_doubled(model, monkeypatch):
    for block in model.blocks:
        forward = block.attn.rope.forward
        monkeypatch.setattr(block.attn.rope, "forward", lambda p, n, f=forward: f(p * 2, n))


MISTAKES = [  # (case, what went wrong, change of config | state | built model)
    ("llama", "scale of another width", "config", every_block(scale=12**-0.5)),
    ("llama", "positions doubled", "model", positions_doubled),
    ("llama", "tied although it is not", "state", lambda state: state | {"unembed.weight": state["embed.weight"]}),
    ("llama-biases", "o bias dropped", "state", zeroed("o_proj.bias")),
    ("llama-biases", "k bias dropped", "state", zeroed("k_proj.bias")),
    ("llama-biases", "gate bias dropped", "state", zeroed("gate_proj.bias")),
    ("llama-linear", "scaling read as none", "config", rope(scaling=None)),
    ("llama-dynamic", "scaling read as none", "config", rope(scaling=None)),
    ("llama-dynamic", "starts later", "config", scaling(original=16)),
    ("llama-llama3", "scaling read as none", "config", rope(scaling=None)),
    ("llama-llama3", "ramp ends elsewhere", "config", scaling(high=8.0)),
    ("llama-yarn", "scaling read as none", "config", rope(scaling=None)),
    ("llama-yarn", "no factor on cos and sin", "config", scaling(attention_factor=1.0)),
    ("llama-yarn", "ends of the ramp not rounded", "config", scaling(truncate=False)),
    ("llama-yarn-factor", "attention_factor derived, not read", "config", scaling(attention_factor=None)),
    ("qwen3-mixed", "the other layers slide", "config", other_layers_slide),
    ("qwen3-mixed", "o bias dropped", "state", zeroed("o_proj.bias")),
]


@pytest.mark.parametrize(("case", "what", "kind", "change"), MISTAKES, ids=[f"{m[0]}: {m[1]}" for m in MISTAKES])
def test_the_comparison_notices(case, what, kind, change, written, monkeypatch):
    folder, theirs = written(case)
    checkpoint = open_folder(folder)
    state = {name: checkpoint.tensors.read(name).clone() for name in checkpoint.tensors}
    config = change(checkpoint.config) if kind == "config" else checkpoint.config
    model = replace(config, tied=False).build()  # so that a changed head can be told from the embedding
    model.load_state_dict(change(state) if kind == "state" else state)
    if kind == "model":
        change(model, monkeypatch)
    present = [tap for tap in theirs if "k_norm" not in tap and "q_norm" not in tap]
    _, ours = capture(model, torch.tensor([prompt()]), taps=present)
    wrong = [d.tap for d in faults(ours, {tap: theirs[tap] for tap in present}, TOLERANCE)]
    assert "logits" in wrong, f"{what}: nobody would notice"
