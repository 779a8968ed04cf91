"""The tap contract: names, errors that say why, nothing left behind, two runs never mixed."""

import ast
import threading
from pathlib import Path

import pytest
import torch
from conftest import assert_same, make_lm, tiny_config

from model.dims import AXES
from model.errors import UnknownTap
from model.taps import KINDS, Recorder, Tap, capture, recording, select, taps_of

ROOT = Path(__file__).parent.parent

PUBLIC = """hook_embed blocks.1.hook_resid_pre blocks.1.hook_resid_mid blocks.1.hook_resid_post blocks.1.hook_attn_out
blocks.1.hook_mlp_out blocks.1.ln1.hook_scale blocks.1.ln1.hook_normalized blocks.1.ln1.hook_out blocks.1.ln2.hook_scale
blocks.1.attn.hook_q blocks.1.attn.hook_k blocks.1.attn.hook_v blocks.1.attn.q_norm.hook_scale blocks.1.attn.q_norm.hook_out
blocks.1.attn.k_norm.hook_normalized blocks.1.attn.hook_rot_q blocks.1.attn.hook_rot_k blocks.1.attn.hook_logits
blocks.1.attn.hook_attn_scores blocks.1.attn.hook_pattern blocks.1.attn.hook_z blocks.1.mlp.hook_pre
blocks.1.mlp.hook_pre_linear blocks.1.mlp.hook_act blocks.1.mlp.hook_post ln_final.hook_scale ln_final.hook_out logits"""


def test_public_names_exist():
    have = taps_of(tiny_config("head").build())
    assert not [name for name in PUBLIC.split() if name not in have]


@pytest.mark.parametrize("qk_norm", ["off", "head", "projection"])
def test_every_tap_fires_with_the_dims_it_declares(qk_norm, tokens):
    lm = make_lm(tiny_config(qk_norm))
    sizes = {
        "batch": {1}, "pos": {23}, "query_pos": {23}, "key_pos": {23}, "d_model": {42}, "head": {6}, "kv_head": {3},
        "d_head": {10}, "pair": {5}, "d_mlp": {66}, "d_vocab": {131}, "1": {1},
    }  # fmt: skip
    captured = lm.capture(tokens)
    for info in lm.taps():
        shape = captured[info.name].shape
        assert len(shape) == len(info.dims) and all(n in sizes[d] for n, d in zip(shape, info.dims, strict=True)), info
        assert info.kind in KINDS and info.meaning and set(info.dims) <= set(AXES)
        assert not captured[info.name].requires_grad


def test_identities_between_taps(lm, tokens):
    t = lm.capture(tokens)
    for i in range(3):
        b = {name.removeprefix(f"blocks.{i}."): v for name, v in t.items() if name.startswith(f"blocks.{i}.")}
        assert torch.equal(b["hook_resid_mid"], b["hook_resid_pre"] + b["hook_attn_out"])
        assert torch.equal(b["hook_resid_post"], b["hook_resid_mid"] + b["hook_mlp_out"])
        assert torch.equal(b["mlp.hook_post"], b["mlp.hook_act"] * b["mlp.hook_pre_linear"])
        assert_same(b["attn.hook_pattern"].sum(-1), torch.ones(1, 6, 23), 1e-6)
        assert_same(b["ln1.hook_normalized"], b["hook_resid_pre"] / b["ln1.hook_scale"], 1e-6)
        scale = (b["hook_resid_pre"].square().mean(-1, keepdim=True) + 1e-5).sqrt()
        assert_same(b["ln1.hook_scale"], scale, 1e-6)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("blocks.0.attn.hook_capped", "soft-cap"),
        ("blocks.0.attn.hook_qq", "near names: blocks.0.attn.hook_q"),
        ("blocks.9.hook_resid_pre", "no tap"),
        ("nothing.*", "no tap"),
    ],
)
def test_a_tap_that_is_not_there_is_an_error_that_says_why(lm, name, reason):
    with pytest.raises(UnknownTap, match=reason):
        lm.capture([1, 2], [name])


def test_a_tap_that_never_fires_is_an_error():
    class Lazy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hook_x = Tap("batch pos")

        def forward(self, x):
            return x

    with pytest.raises(UnknownTap, match="did not fire"):
        capture(Lazy(), torch.zeros(1, 2), taps=["hook_x"])


def test_recorder_is_gone_after_an_exception(lm, tokens):
    def fail(x, tile):
        raise RuntimeError("watcher failed")

    tap = taps_of(lm.net)["blocks.1.mlp.hook_act"]
    with pytest.raises(RuntimeError, match="watcher failed"), recording(Recorder({tap: [fail]})):
        lm.forward(tokens)
    assert lm.forward(tokens).isfinite().all()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in lm.net.modules())


def test_two_threads_listen_to_one_model_without_mixing(lm):
    prompts = [list(range(i, i + 9)) for i in range(8)]
    alone = [lm.capture(p, ["blocks.2.hook_resid_post"])["blocks.2.hook_resid_post"] for p in prompts]
    together, barrier = [None] * len(prompts), threading.Barrier(len(prompts))

    def visitor(i):
        barrier.wait()
        for _ in range(5):
            together[i] = lm.capture(prompts[i], ["blocks.2.hook_resid_post"])["blocks.2.hook_resid_post"]

    threads = [threading.Thread(target=visitor, args=(i,)) for i in range(len(prompts))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_switching_capture_on_changes_nothing(lm, tokens):
    plain = lm.forward(tokens)
    assert_same(lm.capture(tokens)["logits"], plain, 1e-6)
    assert torch.equal(lm.capture(tokens, ["logits", "blocks.*.mlp.*", "blocks.*.attn.hook_logits"])["logits"], plain)


def test_a_part_runs_and_is_tapped_alone():
    block = tiny_config("head").blocks[0].build()
    out, taps = capture(block, torch.randn(2, 7, 42))
    assert out.shape == (2, 7, 42) and torch.equal(taps["hook_resid_post"], out)
    assert select(block.mlp, ["hook_a*"]).keys() == {"hook_act"}


LAYERS = {  # file or folder -> the model/ and viz/ modules that it may import; imports run downward only
    "errors": set(), "view": set(), "kept": set(), "dims": set(), "heap": set(), "halting": {"errors"}, "taps": {"dims", "errors", "halting"}, "masks": {"errors"},
    "norms": {"errors", "taps"}, "positions": {"errors", "taps"}, "mlp": {"errors", "taps"}, "place": {"errors"},
    "routing": {"errors"}, "moe": {"errors", "mlp", "routing", "taps"}, "embedding": {"errors", "place", "taps"},
    "mla": {"errors", "masks", "norms", "place", "positions", "scores", "taps"},
    "softmax": {"errors"}, "temperature": {"errors", "taps"}, "scores": {"heap", "masks", "place", "softmax", "taps"},
    "attention": {"errors", "masks", "norms", "place", "positions", "scores", "taps", "temperature"},
    "block": {"attention", "errors", "mla", "mlp", "moe", "norms", "place", "taps"},
    "lm": {"block", "embedding", "errors", "norms", "place", "softmax", "taps"},
}  # fmt: skip


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("part", LAYERS)
def test_parts_import_downward_only(part):
    used = {name.split(".")[1] for name in imports(ROOT / f"model/{part}.py") if name.startswith("model.")}
    assert used <= LAYERS[part]


def test_torch_and_gradio_stay_where_they_belong():
    for path in (ROOT / "model").rglob("*.py"):
        assert not imports(path) & {"gradio", "plotly", "fastapi"} and not any(n.startswith("viz") for n in imports(path)), path
    for path in [*(ROOT / "viz/figures").rglob("*.py"), *(ROOT / "viz/nodes").rglob("*.py")]:
        assert not any(n.split(".")[0] in ("torch", "gradio", "fastapi") for n in imports(path)), path
    for path in (ROOT / "viz/figures").rglob("*.py"):
        assert {n for n in imports(path) if n.startswith("model")} <= {"model.view", "model.errors"}, path
