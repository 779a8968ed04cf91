"""Records: what is written is read, and whatever else lies under that name is refused in a sentence."""

import csv
import json
from dataclasses import replace

import growth_records
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from model.errors import BlockscopeError
from model.growth.fixes import FIXES
from model.growth.quantities import QUANTITIES
from model.growth.record import FORMAT, SHIPPED, Record, index, shipped


@pytest.fixture
def written(tmp_path):
    return growth_records.made_up().write(tmp_path / "run.safetensors")


def rewritten(path, meta=None, raw=None, **tensors):
    """The file with some of its arrays (None: without) and its metadata changed."""
    kept = {k: v for k, v in (load_file(path) | tensors).items() if v is not None}
    described = json.dumps(Record.read(path).meta | (meta or {}))
    save_file(kept, path, metadata={"blockscope_growth": str(FORMAT), "meta": described} | (raw or {}))
    return path


def test_a_record_is_read_as_it_was_written(written):
    before, after = growth_records.made_up(), Record.read(written)
    assert after.meta == before.meta and list(after.values) == list(QUANTITIES)
    for name in ("step", "train_loss", "validation_loss", "bound", "snapshot_step", "patterns", "snapshot_tokens"):
        assert np.array_equal(getattr(before, name), getattr(after, name), equal_nan=name != "patterns"), name
    assert all(np.array_equal(before.values[name], after.values[name]) for name in QUANTITIES)
    assert load_file(written)["patterns"].shape[-1] == 12 * 13 // 2, "half of a square that is causal is not stored"
    assert after.worst("max_logit").tolist() == before.values["max_logit"].max(-1).tolist()


def test_infinite_and_missing_numbers_survive(tmp_path):
    record = growth_records.made_up(patterns=False)
    record.values["max_logit"][1, 2] = (np.nan, np.inf, 3, 4)
    back = Record.read(record.write(tmp_path / "a.safetensors"))
    assert np.array_equal(back.values["max_logit"], record.values["max_logit"], equal_nan=True) and back.patterns is None
    assert back.worst("max_logit")[1, 2] == np.inf
    rows = list(csv.DictReader(back.csv().splitlines()))
    assert len(rows) == 7 * 4 * 4 and rows[0]["train_loss"] == rows[0]["bound"] == ""
    row = next(r for r in rows if (r["step"], r["layer"]) == ("20", "2") and r["head"] == "1")
    assert row["max_logit"] == "inf" and float(row["q_norm"]) == pytest.approx(record.values["q_norm"][1, 2, 1], rel=1e-5)


def test_the_index_reads_no_array(tmp_path):
    growth_records.folder_of_records(tmp_path)
    found = index(tmp_path)
    assert len(found) == len(shipped(tmp_path)) == 14 and [m["file"] for m in found] == [p.name for p in shipped(tmp_path)]
    assert {m["group"] for m in found} == {"stress", "sweep", "fixes"}
    assert index(tmp_path / "nowhere") == []


@pytest.mark.parametrize("number", ("0", "2", "1.0", "", "x" * 100_000))
def test_another_format_is_refused_by_its_number(written, number):
    rewritten(written, raw={"blockscope_growth": number})
    with pytest.raises(BlockscopeError, match=r"run\.safetensors is a record of format .*this version reads format 1"):
        Record.read(written)


BROKEN = {
    "not a record": (lambda p: save_file({"a": np.zeros(2)}, p), "not the record of a Growth run"),
    "empty": (lambda p: p.write_bytes(b""), "is empty"),
    "text": (lambda p: p.write_text("step,loss\n1,2\n"), r"run\.safetensors"),
    "cut short": (lambda p: p.write_bytes(p.read_bytes()[:-50]), "bytes short"),
    "gone": (lambda p: p.unlink(), "there is no record"),
    "a folder": (lambda p: (p.unlink(), p.mkdir()), "there is no record"),
    "no JSON": (lambda p: rewritten(p, raw={"meta": "{"}), "not"),
    "NaN in JSON": (lambda p: rewritten(p, raw={"meta": '{"name": NaN}'}), "not JSON"),
    "deep JSON": (lambda p: rewritten(p, raw={"meta": "[" * 200_000}), "not JSON"),
    "a list": (lambda p: rewritten(p, raw={"meta": "[]"}), "not an object"),
    "huge description": (lambda p: rewritten(p, raw={"meta": " " * (1 << 20) + "{}"}), "longer than"),
    "no name": (lambda p: rewritten(p, {"name": None}), "name is None"),
    "a long label": (lambda p: rewritten(p, {"label": "x" * 501}), "label is"),
    "a text for recipe": (lambda p: rewritten(p, {"recipe": "fast"}), "recipe is 'fast'; expected dict"),
    "a bool for seed": (lambda p: rewritten(p, {"seed": True}), "seed is True; expected int"),
    "no steps": (lambda p: rewritten(p, step=None), "lacks step"),
    "no logits": (lambda p: rewritten(p, **{"value.max_logit": None}), r"lacks value\.max_logit"),
    "one probe less": (lambda p: rewritten(p, step=np.arange(6)), "along probe"),
    "a layer more": (lambda p: rewritten(p, bound=np.zeros((7, 5), np.float32)), "along layer"),
    "flat values": (lambda p: rewritten(p, **{"value.entropy": np.zeros(7, np.float32)}), "expected the axes probe layer head"),
    "steps that fall": (lambda p: rewritten(p, step=np.arange(7)[::-1].copy()), "steps do not rise"),
    "negative steps": (lambda p: rewritten(p, step=np.arange(-3, 4)), "steps do not rise"),
    "other numbers": (lambda p: rewritten(p, bound=np.zeros((7, 4), np.float16)), "stores 'bound' as F16; expected F32"),
    "text of another length": (lambda p: rewritten(p, snapshot_tokens=np.arange(13)), "do not belong to 13 tokens"),
    "something else": (lambda p: rewritten(p, weights=np.zeros(3, np.float32)), "'weights', which is no part"),
    "no probe at all": (
        lambda p: rewritten(p, **{k: v[:0] for k, v in load_file(p).items() if k.startswith("value.") or k in ("step", "train_loss", "validation_loss", "bound")}),
        "has 0 along probe",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_hostile_and_damaged_files_get_a_sentence(written, case):
    spoil, said = BROKEN[case]
    spoil(written)
    with pytest.raises(BlockscopeError, match=said) as error:
        Record.read(written)
    assert len(str(error.value)) < 400 and "\n" not in str(error.value)


def test_a_record_that_could_not_be_read_back_is_not_written(tmp_path):
    good = growth_records.made_up()
    for bad in (replace(good, step=good.step[::-1]), replace(good, bound=good.bound[:3]), replace(good, meta={"name": "x"})):
        with pytest.raises(BlockscopeError):
            bad.write(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


# ---- what ships ------------------------------------------------------------------------------------------------------


def test_the_shipped_runs_are_those_that_the_page_speaks_of():
    found = index()
    rates = {(m["arm"], m["recipe"]["lr"]) for m in found if "sweep" in (m["group"], *m["also"])}
    assert rates == {(arm, lr) for arm in ("off", "on") for lr in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)}
    stress = {(m["arm"], m["seed"]) for m in found if m["group"] == "stress"}
    assert stress == {(arm, seed) for arm in ("off", "on") for seed in (0, 1, 2)}
    assert {m["arm"] for m in found if m["group"] == "fixes"} == FIXES.keys() - {"qk-norm"}
    assert {m["ended"] for m in found} == {"finished"} and {m["recipe"]["steps"] for m in found} == {350}
    for key in ("code", "torch", "python", "threads"):
        assert len({m[key] for m in found}) == 1, f"one {key} made them all"
    assert len({m["corpus"]["sha256"] for m in found}) == 1


def test_the_shipped_runs_show_what_is_said_of_them():
    runs = {path.stem: Record.read(path) for path in shipped()}
    for seed in (0, 1, 2):
        off, on = (runs[f"stress-{arm}-lr0.1-seed{seed}"] for arm in ("off", "on"))
        at = off.step.tolist().index(120)
        assert off.worst("max_logit")[at].max() > 1000 and on.worst("max_logit")[at].max() < 100
        assert (on.worst("max_logit") <= on.bound * 1.0001).all() and np.isnan(off.bound).all()
        assert off.snapshot_step.tolist() == on.snapshot_step.tolist() == [0, 20, 40, 60, 100, 140, 200, 350]
        assert off.patterns.shape == (8, 4, 4, 64, 64) and not np.triu(off.patterns, 1).any()
    fixed = runs["fixes-qk-norm-fixed-lr0.1-seed0"]
    assert fixed.bound == pytest.approx(4.0) and 3.5 < fixed.values["max_logit"].max() <= 4.0001
    capped = runs["fixes-softcap-50-lr0.1-seed0"]
    assert capped.values["max_logit"].max() > 1000 and capped.values["max_capped"].max() <= 50


def test_shipped_files_are_small():
    growth = sum(f.stat().st_size for f in SHIPPED.iterdir())
    weights = sum(f.stat().st_size for f in (SHIPPED.parent / "checkpoints").rglob("*") if f.is_file())
    assert growth < 6_000_000 and growth + weights < 12_000_000
