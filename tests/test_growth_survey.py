"""A survey of a checkpoint against the stored taps, for every design; its progress, and the shipped pair's known sizes."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import distinct, make_lm, tiny_config
from reference import build, config_json

from model import PRESETS, load
from model.errors import BlockscopeError
from model.growth import quantities
from model.growth.__main__ import main
from model.growth.measure import probe
from model.growth.record import Record
from model.growth.survey import STAGES, Survey, survey, surveying
from model.growth.untrained import finish, scale_sweep
from model.memory import Bound
from model.run import LM
from model.weights import WeightStore

SHIPPED = Path(__file__).parent.parent / "assets" / "checkpoints"
TINY = [name for name in PRESETS if name.startswith("tiny-")]


@pytest.mark.parametrize("tile", [1 << 30, 1 << 14])
@pytest.mark.parametrize("name", TINY)
def test_every_stage_equals_the_stored_tensors_of_every_design(name, tile, monkeypatch):
    monkeypatch.setattr(quantities, "TILE_BYTES", tile)
    lm, tokens = load(name), torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(3))
    found, taps = survey(lm, tokens), lm.capture(tokens, ["blocks.*.attn.hook_logits", "blocks.*.attn.hook_attn_scores"])
    for i in range(lm.config.n_layers):
        attn, logits, scores = lm.block(i).attn, *(taps[f"blocks.{i}.attn.{t}"] for t in ("hook_logits", "hook_attn_scores"))
        cap = getattr(attn.config, "softcap", None)
        expected = {
            "raw": logits.abs().amax((0, 2, 3)) / attn.scale,
            "scaled": logits.abs().amax((0, 2, 3)),
            "capped": (cap * (logits / cap).tanh()).abs().amax((0, 2, 3)) if cap else None,
            "masked": scores.masked_fill(scores == -torch.inf, 0).abs().amax((0, 2, 3)),
            "with sink": None,
        }
        if getattr(attn.config, "sink", False):
            expected["with sink"] = torch.maximum(expected["masked"], attn.softmax.weight.abs())
        assert list(found.stages) == [s for s in STAGES if s in found.stages], "in the order of the stage switch"
        for stage, value in expected.items():
            if value is None:
                assert stage not in found.stages or np.isnan(found.stages[stage][i]).all()
            else:
                np.testing.assert_allclose(found.stages[stage][i], value, rtol=2e-5, err_msg=stage)
    assert all(np.array_equal(found.values[q], v, equal_nan=True) for q, v in probe(lm, tokens).items())
    np.testing.assert_allclose(found.stages["masked"], found.values["max_capped"], rtol=1e-6)
    assert found.tokens == (2, 40) and found.name == name and found.dtype == "float32"


def test_a_large_sink_is_the_largest_of_its_stage():
    lm = load("tiny-gpt-oss")
    for i in range(lm.config.n_layers):
        with torch.no_grad():
            lm.block(i).attn.softmax.weight[1] = -77.0
    found = survey(lm, list(range(30)))
    assert (found.stages["with sink"][:, 1] == 77).all() and (found.stages["masked"] < 77).all()
    assert np.array_equal(found.stages["with sink"][:, 0], found.stages["masked"][:, 0])


def test_gains_and_bound_stand_beside_the_logits(tokens):
    lm = make_lm(tiny_config("head"))
    found = survey(lm, tokens)
    for part in "qk":
        largest = [np.abs(lm.parameter(f"blocks.{i}.attn.{part}_norm.weight")).max() for i in range(3)]
        np.testing.assert_allclose(found.gains[part], largest, rtol=1e-6)
    np.testing.assert_allclose(found.bound, found.gains["q"] * found.gains["k"] * 10**0.5, rtol=1e-5)
    assert (found.values["max_logit"].max(1) <= found.bound).all()
    plain = survey(make_lm(), tokens)
    assert np.isnan(plain.bound).all() and all(np.isnan(g).all() for g in plain.gains.values())


def test_it_tells_how_far_it_is_and_stops_when_closed(tokens):
    lm = make_lm()
    walk = surveying(lm, tokens)
    assert [(p.done, p.total, p.what) for _, p in zip(range(2), walk, strict=False)] == [(1, 3, "layer 0"), (2, 3, "layer 1")]
    walk.close()
    assert lm.net.blocks[2].attn.q_proj.weight.is_meta, "a layer that was not reached was not read"
    assert isinstance(survey(lm, tokens), Survey)


def test_weights_may_stream_through_a_bounded_memory(tokens):
    """A block's weights are let go before the next one's are read: the same numbers, sinks and gains included."""
    config = tiny_config("head")
    sunk = replace(config, blocks=tuple(replace(b, attn=replace(b.attn, sink=True)) for b in config.blocks))
    whole = make_lm(sunk)
    store = WeightStore(distinct, torch.device("cpu"), torch.float32, bound=Bound(40_000, 40_000))
    bounded = LM(sunk, store, name="tiny", source="test", tokenizer=None)
    a, b = survey(whole, tokens), survey(bounded, tokens)
    assert store.bounded and np.array_equal(a.bound, b.bound) and np.array_equal(a.gains["q"], b.gains["q"])
    for one, other in ((a.values, b.values), (a.stages, b.stages), (probe(whole, tokens), probe(bounded, tokens))):
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    row, same = (finish(scale_sweep(lm, tokens, [2.0])).rows[0] for lm in (whole, bounded))
    assert row.loss == pytest.approx(same.loss, rel=1e-6) and np.array_equal(row.bound, same.bound)


@pytest.mark.parametrize(("tokens", "said"), [([], "prompt is empty"), ([5, 999], "token id 999"), ([1.5], "whole numbers")])
def test_bad_tokens_are_refused(tokens, said):
    with pytest.raises(BlockscopeError, match=said):
        survey(make_lm(), tokens)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_overflow_is_counted(dtype):
    """tiny-llama with queries so large that q . k passes 65504: infinite in fp16, large and finite in bf16."""
    lm = load("tiny-llama", device="cpu", dtype=dtype)
    with torch.no_grad():
        lm.block(0).attn.q_proj.weight.mul_(2e3)
        lm.block(0).attn.k_proj.weight.mul_(40)
    found = survey(lm, list(range(30)))
    assert found.values["max_logit"][0].max() > 65_504
    assert (found.values["overflow"][0].max() > 0) == (dtype == "fp16")


def test_the_shipped_pair_keeps_its_bound():
    text = (Path(__file__).parent / "test_growth.py").read_text()
    on, off = (load(SHIPPED / f"code-qknorm-{arm}", device="cpu") for arm in ("on", "off"))
    found, other = (survey(lm, lm.encode(text)[:128]) for lm in (on, off))
    assert (found.values["max_logit"].max(1) <= found.bound).all() and found.bound.max() < 30
    assert other.values["max_logit"].max() > 2 * found.values["max_logit"].max()


# ---- from a shell --------------------------------------------------------------------------------------------------------

IDS = " ".join(map(str, range(3, 40)))


@pytest.fixture(scope="module")
def steps(tmp_path_factory) -> Path:
    """A folder as trainers leave it: three steps whose queries grow, out of order, beside something else."""
    folder = tmp_path_factory.mktemp("run")
    for step, size in ((1000, 4), (20, 2), (5, 1)):
        model = build(config_json("qwen3-mixed"))
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.q_norm.weight.mul_(size)
        model.save_pretrained(folder / f"checkpoint-{step}")
    (folder / "logs").mkdir()
    return folder


def said(capsys, *options: str) -> str:
    main(["survey", *options, "--device", "cpu"])
    return capsys.readouterr().out


def test_a_folder_of_steps_becomes_a_growth_curve(steps, tmp_path, capsys):
    rows = list(
        csv.DictReader(
            said(capsys, str(steps), "--prompt", IDS, "--csv", "--record", str(tmp_path / "r.safetensors")).splitlines()
        )
    )
    assert [int(row["step"]) for row in rows[:: 3 * 6]] == [5, 20, 1000] and len(rows) == 3 * 3 * 6
    kept = Record.read(tmp_path / "r.safetensors")
    assert (
        kept.step.tolist() == [5, 20, 1000] and kept.meta["group"] == "survey" and kept.meta["ended"] == "stopped at step 1000"
    )
    first = kept.values["max_logit"][:, 0]
    np.testing.assert_allclose(
        first[1:], first[:1] * [[2], [4]], rtol=1e-5, err_msg="layer 0 reads the same stream in all three"
    )
    np.testing.assert_allclose(kept.bound[2], 4 * kept.bound[0], rtol=1e-6)
    direct = survey(load(steps / "checkpoint-20", device="cpu"), list(range(3, 40)))
    assert np.array_equal(kept.values["entropy"][1], direct.values["entropy"])
    assert float(rows[18]["max_logit"]) == pytest.approx(direct.values["max_logit"][0, 0], rel=1e-6)


def test_tables_of_one_model_and_of_several(steps, capsys):
    one = said(capsys, str(steps / "checkpoint-5"), "--prompt", IDS).splitlines()
    direct = survey(load(steps / "checkpoint-5", device="cpu"), list(range(3, 40)))
    assert one[0] == "checkpoint-5, 1 x 37 tokens, run in float32, measured in fp32" and len(one) == 3 + 1 + 3
    named = dict(zip(one[3].split(), one[5].split(), strict=True))
    assert "capped" not in named and float(named["max_logit"]) == pytest.approx(direct.values["max_logit"][1].max(), rel=1e-3)
    assert float(named["entropy"]) == pytest.approx(direct.values["entropy"][1].min(), rel=1e-3)
    several = said(capsys, "tiny-llama", "tiny-gemma2", "--prompt", "hello there").splitlines()
    assert [line.split()[0] for line in several[-2:]] == ["tiny-llama", "tiny-gemma2"] and "capped" in several[-3]


def test_json_holds_every_head_and_no_nan(capsys):
    found = json.loads(
        said(capsys, "tiny-gpt-oss", "--prompt", "hello there", "--json"), parse_constant=lambda x: pytest.fail(x)
    )
    lm = load("tiny-gpt-oss", device="cpu")
    direct, model = survey(lm, lm.encode("hello there")), found["models"][0]
    np.testing.assert_allclose(model["values"]["with_sink"], direct.stages["with sink"], rtol=1e-6)
    assert model["values"]["bound"][0][0] is None and set(model["values"]) <= {*found["meanings"], "gain_q", "gain_k", "bound"}


def test_a_text_file_is_cut_into_texts(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("x" * 10 + "y" * 10 + "z" * 10)
    for options, shape in ((("--context", "10", "--texts", "5"), "3 x 10"), (("--context", "10"), "1 x 10"), ((), "1 x 30")):
        assert f"{shape} tokens" in said(capsys, "tiny-llama", "--text", str(tmp_path / "a.txt"), *options)


def test_what_cannot_be_surveyed_is_said_in_a_sentence(tmp_path, steps, capsys):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    for options, words in (
        (["no-such-model"], "neither a"),
        (["tiny-llama", "--text", str(tmp_path / "none.txt")], "no text file"),
        (["tiny-llama", "--text", str(tmp_path / "binary")], "not text in UTF-8"),
        (["tiny-llama", "--context", "0"], "--context must be"),
        (["tiny-llama", "--prompt", ""], "prompt is empty"),
        (["tiny-llama", "--record", str(tmp_path / "r.safetensors")], "--record needs one folder"),
        ([str(tmp_path / "empty")], "empty"),
    ):
        with pytest.raises(SystemExit) as caught:
            said(capsys, *options)
        assert words in str(caught.value) + capsys.readouterr().err, options


@pytest.mark.real
def test_smollm2_against_gemma3(real_model):
    """Logits of about the same size: what differs is that nothing bounds SmolLM2's. Peaks as measured here once, to 1%."""
    text = "def add(a, b):\n    return a + b\n\nThe capital of France is Paris, and the capital of Italy is Rome."
    models = [load(real_model(name), device="cpu", dtype="fp32") for name in ("smollm2-135m", "gemma3-270m")]
    smol, gemma = (survey(lm, lm.encode(text)) for lm in models)
    largest = [found.values["max_logit"].max(1) for found in (smol, gemma)]
    assert [x.argmax() for x in largest] == [18, 5] and [x.max() for x in largest] == pytest.approx([32.91, 33.98], rel=0.01)
    assert np.isnan(smol.bound).all() and np.isnan(smol.gains["q"]).all()
    assert (largest[1] < 0.05 * gemma.bound).all() and gemma.bound[:6:5] == pytest.approx([507.6, 2421.6], rel=1e-3)
    assert gemma.gains["q"].shape == (18,) and gemma.gains["q"][:2] == pytest.approx([4.594, 15.375], rel=1e-3)
