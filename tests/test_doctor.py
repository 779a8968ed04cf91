"""The doctor on folders that are broken on purpose, one fault each, and on whole ones, where it must be silent."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import distinct, make_lm, tiny_config
from designs import design_json
from gguf_files import write_gguf
from meta_files import llama as meta_llama
from meta_files import write_meta
from reference import build, config_json
from safetensors.torch import load_file, save_file

from model.checkpoints.saving import save_folder
from model.doctor import NOTE, WARNING, examine
from model.doctor.__main__ import main
from model.doctor.published import FAMILIES, judge
from model.doctor.report import as_text
from model.doctor.values import STRETCH, look
from model.lm import Decoder
from model.presets import PRESETS
from model.tokens import byte_tokenizer_json

REAL = os.environ.get("BLOCKSCOPE_REAL_MODELS")
SHIPPED = Path(__file__).parents[1] / "assets" / "checkpoints" / "code-qknorm-off"
Q, K = "self_attn.q_proj.weight", "self_attn.k_proj.weight"


def save(path: Path, config: Decoder.Config | None = None, tokenizer: str | None = None) -> Path:
    config = config or tiny_config()
    shapes = {name: tuple(p.shape) for name, p in make_lm(config).net.named_parameters(remove_duplicate=False)}
    save_folder(path, config, {name: distinct(name, shape) for name, shape in shapes.items()}, tokenizer)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return save(tmp_path_factory.mktemp("doctor") / "whole")


def spoilt(whole: Path, folder: Path, change) -> Path:
    """A copy with its tensors changed by change(tensors)."""
    path = shutil.copytree(whole, folder / "spoilt")
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def warnings(path: Path, run: bool = False) -> dict[str, str]:
    return {f.check: f.sentence for f in examine(path, run=run).findings if f.level == WARNING}


def test_a_whole_model_gives_nothing_to_warn_of(whole):
    found = examine(whole)
    assert found.exit_code == 0 and {f.level for f in found.findings} <= {NOTE}
    assert found.inspection.parameters_found == found.inspection.parameters_expected
    assert set(found.values) == {name for name, _ in make_lm().net.named_parameters()}
    embed = found.values["embed.weight"]
    x = distinct("embed.weight", (131, 42))
    assert (embed.count, embed.nan, embed.inf, embed.zero) == (131 * 42, 0, 0, 0)
    assert (embed.low, embed.high) == (float(x.min()), float(x.max())) and math.isclose(
        embed.rms, float(x.square().mean().sqrt()), rel_tol=1e-6
    )


L1 = "model.layers.1."
FAULTS = {
    "nan": (lambda t: t[L1 + Q].view(-1)[:3].fill_(torch.nan), "finite", "blocks.1.attn.q_proj.weight holds 3 NaN and 0 infinite of 2,520"),
    "inf": (lambda t: t["model.norm.weight"][:2].fill_(-torch.inf), "finite", "ln_final.weight holds 0 NaN and 2 infinite of 42"),
    "zero matrix": (lambda t: t[L1 + "mlp.up_proj.weight"].zero_(), "zero", "all zero: blocks.1.mlp.up_proj.weight"),
    "zero gain": (lambda t: t[L1 + "input_layernorm.weight"].zero_(), "zero", "all zero: blocks.1.ln1.weight"),
    "a layer twice": (lambda t: t[L1 + Q].copy_(t["model.layers.0." + Q]), "twice", "layers 0, 1 hold the same numbers in attn.q_proj.weight"),
    "gains as offsets": (lambda t: t["model.norm.weight"].mul_(0.001), "gains", "ln_final.weight are far from 1: median |gain| 0.00"),
    "huge gains": (lambda t: t[L1 + "post_attention_layernorm.weight"].mul_(5e3), "gains", "blocks.1.ln2.weight are far from 1"),
    "one norm x100": (lambda t: t[L1 + "input_layernorm.weight"].mul_(100), "gain scale", "the gains of blocks.1.ln1.weight have root mean square"),
    "all gains -1": (lambda t: [x.fill_(-1) for n, x in t.items() if "norm" in n], "signs", "100% of the gains of blocks.0.ln1.weight and 6 more are negative, median -1"),
    "gains less 1": (lambda t: [x.sub_(1) for n, x in t.items() if "norm" in n], "convention", "look like offsets from 1, as Gemma stores them; add 1"),
    "matrix x100": (lambda t: t[L1 + "self_attn.o_proj.weight"].mul_(100), "scale", "blocks.1.attn.o_proj.weight has root mean square"),
    "matrix /100": (lambda t: t["model.layers.2.mlp.down_proj.weight"].div_(100), "scale", "blocks.2.mlp.down_proj.weight has root mean square"),
    "all equal": (lambda t: t[L1 + K].fill_(0.2), "zero", "all 1,260 numbers of blocks.1.attn.k_proj.weight are 0.2; it was never written"),
    "a lost rank": (lambda t: t[L1 + "mlp.gate_proj.weight"][33:].zero_(), "zero", "33 of 66 rows of blocks.1.mlp.gate_proj.weight are all zero"),
    "lost columns": (lambda t: t[L1 + "mlp.down_proj.weight"][:, :33].zero_(), "zero", "33 of 66 columns of blocks.1.mlp.down_proj.weight are all zero"),
    "a whole layer": (lambda t: [x.copy_(t[n.replace("layers.2", "layers.1")]) for n, x in t.items() if "layers.2" in n], "twice", "layers 1, 2 hold the same numbers in attn.q_proj.weight, attn.k_proj"),
}  # fmt: skip


ALSO = {
    "zero gain": {"gains"},
    "gains as offsets": set(),
    "huge gains": {"gain scale"},
    "all gains -1": set(),
    "gains less 1": {"gains", "signs"},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_numbers_is_named(whole, tmp_path, fault):
    change, check, words = FAULTS[fault]
    path = spoilt(whole, tmp_path, change)
    found = warnings(path)
    assert words in found.pop(check), found
    assert set(found) <= ALSO.get(fault, set())
    assert examine(path, run=False).exit_code == 1


def test_an_untied_head_that_is_a_copy_is_only_noted(whole, tmp_path):
    path = spoilt(whole, tmp_path, lambda t: t["lm_head.weight"].copy_(t["model.embed_tokens.weight"]))
    found = examine(path, run=False)
    assert found.exit_code == 0 and any("copy of the embedding" in f.sentence for f in found.findings)


def test_a_head_of_its_own_where_the_config_ties_is_warned_of(whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "tied")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    found = warnings(path)
    assert set(found) == {"head"} and "set tie_word_embeddings to false if it was trained apart" in found["head"]


def test_zero_rows_at_the_end_of_a_vocabulary_are_padding(whole, tmp_path):
    path = spoilt(whole, tmp_path, lambda t: t["model.embed_tokens.weight"][100:].zero_())
    found = examine(path, run=False)
    assert found.exit_code == 0 and found.values["embed.weight"].zero_tail == 31
    assert any("the last 31 of 131 rows of embed.weight are all zero: padding" in f.sentence for f in found.findings)


def test_whole_gains_in_a_model_of_offsets(tmp_path):
    model = build(design_json("gemma3_text"))
    for more, words in ((0.0, None), (1.0, "look like whole gains; subtract 1 from every norm")):
        folder = tmp_path / str(more)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(design_json("gemma3_text")))
        state = {n: x + more if x.ndim == 1 else x.clone() for n, x in model.state_dict().items() if n != "lm_head.weight"}
        save_file(state, folder / "model.safetensors")
        found = warnings(folder)
        assert words in found["convention"] if words else found == {}


@pytest.mark.parametrize("form", ["gguf", "meta"])
def test_a_fault_in_another_format_is_named_the_same(tmp_path, form):
    model = build(config_json("llama")) if form == "gguf" else meta_llama()
    for value, expected in ((None, set()), (torch.nan, {"finite"})):
        if value is not None:
            model.state_dict()["model.layers.1.self_attn.o_proj.weight"][0, :2] = value
        path = tmp_path / f"{value}.gguf" if form == "gguf" else tmp_path / str(value)
        found = warnings(write_gguf(path, model) if form == "gguf" else write_meta(path, model))
        assert set(found) == expected
        assert not expected or "blocks.1.attn.o_proj.weight holds 2 NaN" in found["finite"]


def test_exit_codes_of_the_real_process(whole, tmp_path):
    broken = spoilt(whole, tmp_path, FAULTS["nan"][0])
    sources = (whole, broken, tmp_path / "nothing")
    runs = [
        subprocess.run([sys.executable, "-m", "model.doctor", source, "--quick"], cwd=SHIPPED.parents[2], capture_output=True)
        for source in sources
    ]
    assert [run.returncode for run in runs] == [0, 1, 2] and not any(run.stderr for run in runs)


@pytest.mark.parametrize("name", [name for name in PRESETS if not name.startswith("tiny-")])
def test_published_values_agree_with_the_presets(name):
    checks = judge(PRESETS[name])
    assert not [f for check in checks for f in check.findings if f.level == WARNING]
    assert checks[0].checked == (name not in ("transformer-2017-base", "palm-8b", "palm-540b")), checks[0].about
    assert all(family.source and family.like in PRESETS for family in FAMILIES)


def test_what_could_not_be_checked_is_said(whole):
    found = examine(whole, run=False)
    missed = {check.name: check.about for check in found.checks if not check.checked}
    assert set(missed) == {"vocabulary", "eps", "base", "order"} and found.exit_code == 0
    assert "no published values known for a model like this (3 layers of 42, 6 heads on 3, 131 tokens)" in missed["eps"]
    text = as_text(found, 80)
    assert max(map(len, text.splitlines())) <= 80 and "? eps" in text and text.endswith("12 checks made, 4 could not be")


def named_as_published(config: Decoder.Config, **changes) -> Decoder.Config:
    """A tiny model that the doctor must take for a Llama 3: its vocabulary and its parts."""
    block = config.blocks[0]
    norm = replace(block.ln1, eps=changes.get("eps", 1e-5))
    attn = replace(block.attn, rope=replace(block.attn.rope, base=changes.get("base", 5e5)))
    block = replace(block, ln1=norm, ln2=norm, attn=attn)
    return replace(config, d_vocab=128256, blocks=(block,) * 3, ln_final=norm)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"eps": 1e-6}, "eps of norms is 1e-06 here and 1e-05 in every published Llama 3 known here"),
        ({"base": 1e4}, "RoPE base is 10000 here and 500000 in every published Llama 3 known here"),
        ({}, None),
    ],
)
def test_eps_and_base_are_held_against_the_published_family(tmp_path, changes, words):
    found = warnings(save(tmp_path / "m", named_as_published(tiny_config(), **changes)))
    told = found.get("base" if "base" in changes else "eps", "")
    assert words in told and "arXiv" in told and len(found) == 1 if words else found == {}


@pytest.mark.parametrize(("rows", "words"), [(131, "tokenizer.json has 257 tokens and the embedding 131 rows"), (2000, "rows of the embedding have no token in tokenizer.json, more than"), (300, None)])  # fmt: skip
def test_tokens_are_held_against_rows(tmp_path, rows, words):
    path = save(tmp_path / "m", replace(tiny_config(), d_vocab=rows), byte_tokenizer_json())
    found = warnings(path)
    assert (
        words.replace("257", str(examine(path, run=False).inspection.tokenizer.size)) in found["vocabulary"]
        if words
        else found == {}
    )


def test_tokens_added_to_the_tokenizer_alone_are_named(tmp_path):
    told = json.loads(byte_tokenizer_json())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    told["added_tokens"] = [{"id": 256 + i, "content": f"<extra {i}>", **flags} for i in range(2)]
    found = warnings(save(tmp_path / "m", replace(tiny_config(), d_vocab=256), json.dumps(told)))
    assert set(found) == {"vocabulary"} and "2 tokens beyond the last row cannot be run (256 '<extra 0>'" in found["vocabulary"]
    assert "tokens were added to it and not to the weights" in found["vocabulary"]


def out_of_order(path: Path, folder: Path, heads: int, kv_heads: int, which: tuple[str, ...] = (Q, K)) -> Path:
    """The same model with the rows of W_q and W_k in the other order, as a converter that forgets to turn them leaves them."""
    path = shutil.copytree(path, folder / "turned", ignore=shutil.ignore_patterns("*.gguf"))
    tensors = load_file(path / "model.safetensors")
    for name in [name for name in tensors if name.endswith(which)]:
        n, x = heads if name.endswith(Q) else kv_heads, tensors[name]
        tensors[name] = x.view(n, 2, -1, x.shape[-1]).transpose(1, 2).reshape(x.shape).contiguous()
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path


def test_rows_out_of_order_are_suspected_and_trained_ones_are_not(tmp_path):
    config = json.loads((SHIPPED / "config.json").read_text())
    assert warnings(SHIPPED, run=True) == {}
    turned = out_of_order(SHIPPED, tmp_path, config["num_attention_heads"], config["num_key_value_heads"])
    assert "look out of order: read as half-split" in warnings(turned, run=True)["order"]


@pytest.mark.real
@pytest.mark.skipif(not REAL, reason="set BLOCKSCOPE_REAL_MODELS to what tests/real_models.py wrote")
def test_rows_of_a_real_model_out_of_order(tmp_path):
    real = Path(REAL) / "smollm2-135m"
    assert warnings(real, run=True) == {}
    assert "look out of order" in warnings(out_of_order(real, tmp_path / "both", 9, 3), run=True)["order"]
    for which, name in ((Q, "W_q"), (K, "W_k")):
        found = warnings(out_of_order(real, tmp_path / name, 9, 3, (which,)))
        assert f"the rows of {name} look out of order and those of" in found["order"] and len(found) == 1


def test_untrained_weights_say_nothing_about_their_order(whole):
    assert not [f for f in examine(whole).findings if f.check == "order" and f.level == WARNING]


def test_a_long_tensor_is_looked_at_in_stretches(monkeypatch):
    x = torch.randn(1000, 7)
    x[3, 2], x[990, 1], x[500, 0] = torch.nan, torch.inf, 0.0
    whole = look(x)
    monkeypatch.setattr("model.doctor.values.STRETCH", 123)
    cut = look(x)
    assert (cut.count, cut.nan, cut.inf, cut.zero, cut.low, cut.high, cut.digest) == (
        7000,
        1,
        1,
        1,
        whole.low,
        whole.high,
        whole.digest,
    )
    assert math.isclose(cut.rms, whole.rms, rel_tol=1e-6) and STRETCH > 7000
    assert look(torch.full((2,), torch.nan)).nan == 2 and math.isnan(look(torch.full((2,), torch.nan)).rms)


# ---- the command ---------------------------------------------------------------------------------------------------------


def test_exit_codes_and_words(whole, tmp_path, capsys):
    assert main([str(whole), "--quick"]) == 0
    assert capsys.readouterr().out.endswith("nothing to warn of; 12 checks made, 4 could not be\n")
    broken = spoilt(whole, tmp_path, FAULTS["nan"][0])
    assert main([str(broken), "--quick"]) == 1
    out = capsys.readouterr().out
    assert "! finite      blocks.1.attn.q_proj.weight holds 3 NaN" in out and "1 warning; 12 checks made" in out
    (broken / "model.safetensors").write_bytes(b"")
    assert main([str(broken)]) == 2 and capsys.readouterr().out.startswith("refused: spoilt/model.safetensors is empty")
    assert main([str(tmp_path / "nothing")]) == 2


def test_json_is_json_and_holds_everything(whole, tmp_path, capsys):
    broken = spoilt(whole, tmp_path, lambda t: t["model.norm.weight"].fill_(torch.nan))
    assert main([str(broken), "--quick", "--json"]) == 1
    told = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (
        told["exit_code"] == 1
        and told["values"]["ln_final.weight"]["nan"] == 42
        and told["values"]["ln_final.weight"]["rms"] is None
    )
    assert {row["name"] for row in told["tensors"]} >= {"lm_head.weight", L1 + Q} and told["parameters"]["found"] == told[
        "parameters"
    ]["expected"]
    assert any(field["name"] == "rms_norm_eps" and field["status"] == "used" for field in told["fields"])
    assert main([str(tmp_path / "nothing"), "--json"]) == 2 and "refused" in json.loads(capsys.readouterr().out)
