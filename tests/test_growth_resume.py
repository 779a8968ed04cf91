"""Checkpoints: a run that was stopped or killed goes on with the numbers of one that never was."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from growth_runs import SMALL, same, small

from model import load
from model.checkpoints.saving import save_folder
from model.errors import BlockscopeError
from model.growth.__main__ import main
from model.growth.fixes import fixed
from model.growth.initial import initialised
from model.growth.record import Record
from model.growth.train import Training

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_resumed_run_gives_the_numbers_of_one_that_was_never_interrupted(text, tmp_path):
    whole = Training(small(steps=20), text, snapshots=(0, 10))
    list(whole)
    for at in (1, 7, 19):  # between probes and at none
        folder = tmp_path / str(at)
        part = Training(small(steps=20), text, folder, snapshots=(0, 10), checkpoint_every=1)
        next(e for e in part if e.step == at)
        rest = Training(small(steps=20), text, folder, snapshots=(0, 10), checkpoint_every=4)
        assert rest.step == at and [e.step for e in rest] == list(range(at + 1, 21))
        assert same(whole.record(), rest.record()) and np.array_equal(whole.record().patterns, rest.record().patterns)
        assert all(torch.equal(whole.state[name], rest.state[name]) for name in whole.state)
        assert list(Training(small(steps=20), text, folder)) == [], "a finished run has nothing left to do"


def test_a_killed_process_loses_no_more_than_the_steps_since_its_checkpoint(tmp_path, library):
    """SIGKILL in the middle of a run from the shell; the same command goes on and ends with the uninterrupted numbers."""
    text, config = tmp_path / "text.txt", tmp_path / "net" / "config.json"
    text.write_bytes(bytes(library.validation[:40_000].tolist()))
    config.parent.mkdir()
    save_folder(config.parent, SMALL, initialised(SMALL, 0).state_dict())
    options = [
        "train",
        "--model",
        str(config),
        "--steps",
        "200",
        "--lr",
        "0.05",
        "--text",
        str(text),
        "--checkpoint-every",
        "20",
    ]
    options += ["--context", "24", "--snapshots", "20"]
    name = "run-net-lr0.05-seed0"
    state = tmp_path / "killed" / name / "training" / "state.safetensors"
    child = subprocess.Popen(
        [sys.executable, "-m", "model.growth", *options, "--out", str(tmp_path / "killed")], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    kept = Record.read(state.with_name("record.safetensors"))
    assert 20 <= kept.step[-1] < 200 and not (tmp_path / "killed" / f"{name}.safetensors").exists()
    main([*options, "--out", str(tmp_path / "killed")])
    main([*options, "--out", str(tmp_path / "whole")])
    killed, whole = (Record.read(tmp_path / folder / f"{name}.safetensors") for folder in ("killed", "whole"))
    assert killed.meta["ended"] == "finished" and killed.step[-1] == 200 and same(killed, whole)
    assert np.array_equal(killed.patterns, whole.patterns)


def test_a_kill_between_the_two_files_of_a_checkpoint_is_no_harm(text, tmp_path):
    """The record is written first: it may know more steps than the state from which the run goes on."""
    whole, part = Training(small(), text), Training(small(), text, tmp_path, checkpoint_every=1)
    list(whole)
    state = tmp_path / "training" / "state.safetensors"
    for event in part:
        if event.step == 4:
            before = state.read_bytes()
        if event.step == 7:
            break
    state.write_bytes(before)
    rest = Training(small(), text, tmp_path)
    assert rest.step == 4 and [p.step for p in rest.probes] == [0, 3] and [e.step for e in rest] == list(range(5, 13))
    assert same(whole.record(), rest.record())


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(text, tmp_path):
    list(Training(small(), text, tmp_path))
    with pytest.raises(BlockscopeError, match=r"another run \(recipe.lr: 0.05 \| 0.1\)"):
        Training(small(lr=0.1), text, tmp_path)
    with pytest.raises(BlockscopeError, match=r"not of this run|another run"):
        Training(fixed(small(), "qk-norm"), text, tmp_path)
    state = tmp_path / "training" / "state.safetensors"
    whole = state.read_bytes()
    for damaged in (b"", whole[:1000], b"{}" * 50, whole[:-8]):
        state.write_bytes(damaged)
        with pytest.raises(BlockscopeError, match=r"state\.safetensors"):
            Training(small(), text, tmp_path)


def test_a_checkpoint_is_an_ordinary_folder(text, tmp_path):
    training = Training(small(), text, tmp_path)
    list(training)
    lm = load(tmp_path, device="cpu")
    with torch.no_grad():
        assert torch.equal(lm.forward([1, 2, 3]), training.model(torch.tensor([[1, 2, 3]])))
    with pytest.raises(BlockscopeError, match="no Hugging Face model_type"):
        Training(fixed(small(), "softcap-50"), text).save(tmp_path / "capped")
