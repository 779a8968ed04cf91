"""What LogitMonitor writes: records, tables, TensorBoard."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
from monitored import Plain, train, trainable
from reference import HEADS

from model.errors import BlockscopeError
from model.growth import Heads, LogitMonitor, monitor
from model.growth.measure import QUANTITIES
from model.growth.record import Record
from model.growth.show import heading


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
