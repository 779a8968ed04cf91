"""Every supported family against transformers, tensor by tensor; and proof that the comparison notices real mistakes."""

from dataclasses import replace

import pytest
import torch
from reference import CASES, HEADS, KV_HEADS, LAYERS, WINDOW, faults, prompt, record, write
from torch import nn

from model import load
from model.attention import Attention
from model.checkpoints import open_folder
from model.masks import Causal, Sliding
from model.norms import RMSNorm
from model.taps import capture

TOLERANCE = 1e-5  # of the largest value: fp32 rounding of three layers, far below the smallest mistake below


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """case -> (folder, transformers' own tensors), made once."""
    made = {}

    def get(case: str):
        if case not in made:
            folder = tmp_path_factory.mktemp(case)
            made[case] = folder, record(write(case, folder), prompt())
        return made[case]

    return get


@pytest.mark.parametrize("case", CASES)
def test_every_tap_matches_transformers(case, written):
    folder, theirs = written(case)
    lm = load(folder, device="cpu", dtype=torch.float32)
    ours = lm.capture(prompt(), taps=list(theirs))
    assert len(theirs) >= 18 * LAYERS
    assert not (wrong := faults(ours, theirs, TOLERANCE)), "\n".join(map(str, wrong))


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


def eps(value):
    def change(config):
        def norm(n):
            return n and replace(n, eps=value)

        def block(b):
            attn = replace(b.attn, q_norm=norm(b.attn.q_norm), k_norm=norm(b.attn.k_norm))
            return replace(b, ln1=norm(b.ln1), ln2=norm(b.ln2), attn=attn)

        return replace(config, blocks=tuple(map(block, config.blocks)), ln_final=norm(config.ln_final))

    return change


def other_layers_slide(config):
    def swap(mask):
        return Causal() if isinstance(mask, Sliding) else Sliding(window=WINDOW)

    return replace(
        config, blocks=tuple(replace(b, attn=replace(b.attn, mask=swap(b.attn.mask))) for b in config.blocks)
    )


def zeroed(leaf):
    return lambda state: {name: value * 0 if name.endswith(leaf) else value for name, value in state.items()}


def ones(leaf):
    return lambda state: {name: value * 0 + 1 if name.endswith(leaf) else value for name, value in state.items()}


def swapped(one, other):
    def change(state):
        trade = {one: other, other: one}
        return {name: state[_traded(name, trade)] for name in state}

    return change


def _traded(name, trade):
    for old, new in trade.items():
        if old in name:
            return name.replace(old, new)
    return name


def tiled_kv_heads(model, monkeypatch):
    """Query head h reads KV head h mod kv_heads instead of h // group."""
    order = torch.arange(HEADS).view(-1, KV_HEADS).T.flatten()
    explicit = Attention.explicit

    def tiled(self, q, k, v, place):
        return explicit(self, q[:, :, order], k, v, place)[:, :, order.argsort()]

    monkeypatch.setattr(Attention, "explicit", tiled)


def norm_after_rotation(model, monkeypatch):
    """QK-norm applied to the rotated vectors."""
    for block in model.blocks:
        attn = block.attn
        norms, rotate = {HEADS: attn.q_norm, KV_HEADS: attn.k_norm}, attn.rope.rotate
        attn.q_norm = attn.k_norm = nn.Identity()
        monkeypatch.setattr(attn.rope, "rotate", lambda x, t, r=rotate, n=norms: n[x.shape[2]](r(x, t)))


def positions_doubled(model, monkeypatch):
    for block in model.blocks:
        forward = block.attn.rope.forward
        monkeypatch.setattr(block.attn.rope, "forward", lambda p, n, f=forward: f(p * 2, n))


def no_qk_norm(model, monkeypatch):
    for block in model.blocks:
        block.attn.q_norm = block.attn.k_norm = nn.Identity()


MISTAKES = [  # (case, what went wrong, change of config | state | built model)
    ("llama", "rope base of another file", "config", rope(base=10_000.0)),
    ("llama", "adjacent pairs rotated", "config", rope(pairing="interleaved")),
    ("llama", "eps of another family", "config", eps(1e-6)),
    ("llama", "scale of another width", "config", every_block(scale=12**-0.5)),
    ("llama", "query heads tiled over KV heads", "model", tiled_kv_heads),
    ("llama", "gate and up swapped", "state", swapped("gate_proj", "up_proj")),
    ("llama", "the two norms of a block swapped", "state", swapped("ln1", "ln2")),
    ("llama", "final norm without its weight", "state", ones("ln_final.weight")),
    ("llama", "positions doubled", "model", positions_doubled),
    ("llama", "tied although it is not", "state", lambda state: state | {"unembed.weight": state["embed.weight"]}),
    ("llama-biases", "o bias dropped", "state", zeroed("o_proj.bias")),
    ("llama-biases", "k bias dropped", "state", zeroed("k_proj.bias")),
    ("llama-biases", "gate bias dropped", "state", zeroed("gate_proj.bias")),
    ("llama-biases", "eps of another family", "config", eps(1e-5)),
    ("llama-linear", "scaling read as none", "config", rope(scaling=None)),
    ("llama-dynamic", "scaling read as none", "config", rope(scaling=None)),
    ("llama-dynamic", "starts later", "config", scaling(original=16)),
    ("llama-llama3", "scaling read as none", "config", rope(scaling=None)),
    ("llama-llama3", "ramp ends elsewhere", "config", scaling(high=8.0)),
    ("llama-yarn", "scaling read as none", "config", rope(scaling=None)),
    ("llama-yarn", "no factor on cos and sin", "config", scaling(attention_factor=1.0)),
    ("llama-yarn", "ends of the ramp not rounded", "config", scaling(truncate=False)),
    ("llama-yarn-factor", "attention_factor derived, not read", "config", scaling(attention_factor=None)),
    ("mistral", "window one too wide", "config", every_block(mask=Sliding(window=WINDOW + 1))),
    ("mistral", "window one too narrow", "config", every_block(mask=Sliding(window=WINDOW - 1))),
    ("mistral", "no window", "config", every_block(mask=Causal())),
    ("mistral", "eps of another family", "config", eps(1e-6)),
    ("mistral", "gate and up swapped", "state", swapped("gate_proj", "up_proj")),
    ("qwen2", "q bias dropped", "state", zeroed("q_proj.bias")),
    ("qwen2", "k bias dropped", "state", zeroed("k_proj.bias")),
    ("qwen2", "v bias dropped", "state", zeroed("v_proj.bias")),
    ("qwen2", "the other layers slide", "config", other_layers_slide),
    ("qwen2", "every layer slides", "config", every_block(mask=Sliding(window=WINDOW))),
    ("qwen2", "query heads tiled over KV heads", "model", tiled_kv_heads),
    ("qwen3", "QK-norm left out", "model", no_qk_norm),
    ("qwen3", "QK-norm after the rotation", "model", norm_after_rotation),
    ("qwen3", "QK-norm without its gains", "state", lambda s: ones("k_norm.weight")(ones("q_norm.weight")(s))),
    ("qwen3", "gains of q and k swapped", "state", swapped("q_norm", "k_norm")),
    ("qwen3", "eps of another family", "config", eps(1e-5)),
    ("qwen3", "rope base of another file", "config", rope(base=10_000.0)),
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


def test_the_unchanged_model_passes_the_same_way(written):
    folder, theirs = written("qwen3")
    checkpoint = open_folder(folder)
    model = checkpoint.config.build()
    model.load_state_dict({name: checkpoint.tensors.read(name) for name in checkpoint.tensors})
    _, ours = capture(model, torch.tensor([prompt()]), taps=list(theirs))
    assert not faults(ours, theirs, TOLERANCE)
    assert isinstance(model.blocks[0].attn.q_norm, RMSNorm)
