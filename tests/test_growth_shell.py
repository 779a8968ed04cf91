"""The commands: python -m model.growth train, sweep, show, ship-stress; and what they answer to a wrong call."""

import csv
import io
import json
from textwrap import fill

import growth_records
import numpy as np
import pytest

from model import PRESETS, load
from model.checkpoints.saving import config_values
from model.growth.__main__ import FOLDER, main
from model.growth.arms import recorded_differences
from model.growth.captions import bound_caption, stress_caption
from model.growth.measure import probe
from model.growth.record import Record, shipped
from model.growth.ship import ARMS


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"def f{i}(x): return x + {i}\n" for i in range(400)))
    return str(path)


def test_train_leaves_a_record_and_a_folder_for_each_arm(tmp_path, text, capsys):
    main(["train", "--size", "M2", "--qk-norm", "both", "--steps", "6", "--probe-every", "3", "--snapshots", "0", "6", "--lr", "0.05",
          "--batch", "2", "--text", text, "--out", str(tmp_path), "--group", "try", "--also", "more"])  # fmt: skip
    off, on = (Record.read(tmp_path / f"try-{arm}-lr0.05-seed0.safetensors") for arm in ("off", "on"))
    assert off.step.tolist() == [0, 3, 6] and off.snapshot_step.tolist() == [0, 6] and off.meta["also"] == ["more"]
    assert (off.meta["group"], off.meta["arm"], off.meta["label"]) == ("try", "off", "QK-norm off")
    assert (on.meta["arm"], on.meta["label"]) == ("on", "QK-norm on each head, learned gain")
    lm = load(tmp_path / "try-on-lr0.05-seed0", device="cpu")
    assert lm.qk_norm == "head" and lm.parameters == on.meta["parameters"]
    before = (tmp_path / "try-off-lr0.05-seed0.safetensors").stat().st_mtime_ns
    main(["show", str(tmp_path)])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 3 and table[1].startswith("try-off-lr0.05-seed0") and table[1].endswith("finished")
    assert (tmp_path / "try-off-lr0.05-seed0.safetensors").stat().st_mtime_ns == before


def test_sweep_trains_every_combination(tmp_path, text):
    common = ["--size", "M2", "--steps", "2", "--batch", "2", "--text", text, "--out", str(tmp_path), "--snapshots"]
    main(["sweep", "--lr", "0.01", "0.1", "--seed", "0", "3", "--qk-norm", "both", *common])
    names = {f"run-{arm}-lr{lr}-seed{seed}" for arm in ("off", "on") for lr in ("0.01", "0.1") for seed in (0, 3)}
    assert {path.stem for path in shipped(tmp_path)} == names
    main(["sweep", "--lr", "0.1", "--fix", "softcap-50", "no-clip", "--group", "fixes", *common])
    assert {path.stem for path in shipped(tmp_path)} - names == {"fixes-softcap-50-lr0.1-seed0", "fixes-no-clip-lr0.1-seed0"}


def test_two_models_are_two_arms(tmp_path, text):
    main(["train", "--model", "tiny-gpt2", "--model", "tiny-gemma3", "--steps", "2", "--batch", "2", "--context", "16", "--lr", "0.01",
          "--text", text, "--out", str(tmp_path), "--snapshots"])  # fmt: skip
    records = [Record.read(path) for path in shipped(tmp_path)]
    assert {(r.meta["arm"], r.meta["label"]) for r in records} == {(name, name) for name in ("tiny-gpt2", "tiny-gemma3")}
    gemma = next(r for r in records if r.meta["arm"] == "tiny-gemma3")
    assert gemma.meta["architecture"]["blocks.0-5.attn.q_norm"] == "OffsetRMSNorm" and np.isfinite(gemma.bound).all()


def test_qk_norm_off_takes_it_from_a_model_that_has_one(tmp_path, text):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config_values(PRESETS["tiny-qwen3"])))
    main(["train", "--model", str(tmp_path / "mine" / "config.json"), "--qk-norm", "both", "--fix", "no-clip", "--steps", "2", "--batch", "2",
          "--context", "16", "--lr", "0.01", "--text", text, "--out", str(tmp_path), "--snapshots"])  # fmt: skip
    off, on = (Record.read(tmp_path / f"run-mine-{arm}-lr0.01-seed0.safetensors") for arm in ("off", "on"))
    assert np.isnan(off.bound).all() and np.isfinite(on.bound).all()
    assert off.meta["label"] == "mine; QK-norm off; no gradient clipping"
    changed = ["blocks.0-3.attn.q_norm: none | RMSNorm", "blocks.0-3.attn.k_norm: none | RMSNorm"]
    assert recorded_differences(off.meta, on.meta) == changed


@pytest.fixture
def record(tmp_path):
    return growth_records.made_up().write(tmp_path / "made.safetensors")


def test_show_prints_the_end_of_a_run_layer_by_layer(record, capsys):
    stored = Record.read(record)
    main(["show", str(record)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "stress-off-lr0.1-seed0: QK-norm off (finished)" and "lr 0.1" in lines[1] and "2.3 nats" in lines[2]
    header, *rows = (line.split() for line in lines[4:])
    assert header[:2] == ["layer", "max_logit"] and [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert [float(row[1]) for row in rows] == pytest.approx(stored.values["max_logit"][-1].max(-1), rel=1e-4)
    assert [float(row[header.index("entropy")]) for row in rows] == pytest.approx(
        stored.values["entropy"][-1].min(-1), rel=1e-4
    )


def test_show_as_json_and_csv(record, capsys):
    main(["show", str(record), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["seed"] == 0 and len(told["final"]) == 4 and told["final"][0]["bound"] is None
    main(["show", str(record), "--csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 7 * 4 * 4 and rows[-1]["step"] == "200"
    main(["show", str(record.parent), "--json"])
    assert json.loads(capsys.readouterr().out)[0]["lr"] == 0.1
    main(["show", str(record.parent), "--csv"])
    assert next(csv.DictReader(io.StringIO(capsys.readouterr().out)))["name"] == "stress-off-lr0.1-seed0"


WRONG = {
    "--lr 0": "learning rate must be a number above 0",
    "--lr -1": "learning rate must be a number above 0",
    "--lr nan": "learning rate must be a number above 0",
    "--steps 0": "steps must be a whole number from 1",
    "--context 65": "made for 64 positions",
    "--context 1": "context must be a whole number from 2",
    "--text /nowhere": "no text file or folder",
    "--model gpt9": "neither a preset nor a config.json",
    "--model llama-7b": "training here is for at most",
    "--size S --model tiny-llama": "either --size or --model",
    "--group ../up": "give a word, not '../up'",
    "--model tiny-llama --model tiny-llama": "both be called tiny-llama",
    "--threads 0": "--threads must be at least 1",
    "--fix qk-clip-20 --qk-norm head": "choose one of the two",
}


@pytest.mark.parametrize("options", WRONG)
def test_a_wrong_call_gets_a_sentence_and_exit_code_2(tmp_path, text, capsys, options):
    with pytest.raises(SystemExit) as exit:
        main(["train", "--steps", "2", "--text", text, "--out", str(tmp_path / "out"), *options.split()])
    said = capsys.readouterr().err
    assert (
        exit.value.code == 2
        and said.startswith("python -m model.growth: ")
        and WRONG[options] in said
        and said.count("\n") == 1
    )
    assert not list(tmp_path.rglob("*.safetensors"))


def test_text_that_is_too_short_and_records_that_are_none(tmp_path, capsys):
    (tmp_path / "short.txt").write_text("too short")
    (tmp_path / "none").mkdir()
    calls = {
        "fewer than one sequence": ["train", "--size", "M2", "--text", str(tmp_path / "short.txt"), "--out", str(tmp_path)],
        "holds no records": ["show", str(tmp_path / "none")],
        "there is no record": ["show", str(tmp_path / "gone.safetensors")],
        "lacks runs that the cards speak of": ["ship-stress", str(tmp_path / "none")],
        "cannot be written": ["train", "--size", "M2", "--steps", "2", "--out", "/proc/nowhere"],
    }
    for said, call in calls.items():
        with pytest.raises(SystemExit) as exit:
            main(call)
        assert exit.value.code == 2 and said in capsys.readouterr().err


# ---- the stress pair as it ships -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    return {path.stem: Record.read(path) for path in shipped()}


@pytest.mark.parametrize("arm", ARMS)
def test_the_cards_of_the_stress_pair_say_what_the_records_hold(runs, arm):
    card = (FOLDER / f"code-stress-qknorm-{arm}" / "README.md").read_text(encoding="utf-8")
    stress, sweep = ([r for r in runs.values() if r.meta["group"] == group] for group in ("stress", "sweep"))
    learned = [r for r in stress if r.meta["arm"] == "on"]
    assert fill(stress_caption(stress, sweep), 120) in card
    assert fill(bound_caption(learned, runs["fixes-qk-norm-fixed-lr0.1-seed0"]), 120) in card
    record = runs[f"stress-{arm}-lr0.1-seed0"]
    assert f"validation loss {record.validation_loss[-1]:.3f} here" in card and "Python Software Foundation licence" in card
    assert record.meta["corpus"]["sha256"] in card and f"assets/growth/{record.name}.safetensors" in card


def test_captions_speak_of_made_up_records_in_their_numbers():
    stress = [growth_records.made_up("stress", arm, 0.1, seed) for arm in ("off", "on") for seed in range(2)]
    sweep = [growth_records.made_up("sweep", arm, lr) for arm in ("off", "on") for lr in (0.001, 0.01)]
    told = stress_caption(stress, sweep)
    assert "in 200 steps (2 seeds)" in told and "lower with it in 0 of 2 seeds" not in told and "learning rate 0.1" in told
    assert f"{max(r.values['max_logit'].max() for r in stress[:2]):,.0f}" in told


def test_the_stress_weights_behave_as_their_record_says(runs):
    """The stored fp16 weights, run in fp32, have the logits that the run ended with."""
    for arm in ARMS:
        record, lm = runs[f"stress-{arm}-lr0.1-seed0"], load(FOLDER / f"code-stress-qknorm-{arm}", device="cpu")
        tokens = record.snapshot_tokens.tolist()
        largest = probe(lm, tokens)["max_logit"].max()
        end = record.values["max_logit"][-1].max()
        assert (end * 0.2 < largest <= end * 1.01) and lm.decode(tokens).isprintable() is False
