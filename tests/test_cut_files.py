"""A weight file that is cut, written over, replaced or removed while a model uses its pages: a sentence, never a dead process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import distinct, make_lm, tiny_config
from safetensors import safe_open
from safetensors.torch import save_file

from model import load
from model.checkpoints.saving import save_folder
from model.errors import BlockscopeError
from model.pages import CHUNK, fetch

ROOT = Path(__file__).parents[1]
RUN = """
import os, sys
from model import load
from model.errors import BlockscopeError
folder, memory = sys.argv[1], int(sys.argv[2]) or None
lm = load(folder, device="cpu", dtype="bf16", memory=memory)
lm.forward([1, 2, 3])
os.truncate(os.path.join(folder, "model.safetensors"), 5000)
for run in (lambda: lm.forward([4, 5]), lambda: lm.block(1), lambda: lm.variant(qk_norm="head").forward([1])):
    try:
        run()
    except BlockscopeError as error:
        print(error)
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """A bf16 llama, whose tensors are used where they lie in the file."""
    config = tiny_config()
    shapes = {name: tuple(p.shape) for name, p in make_lm(config).net.named_parameters()}
    save_folder(tmp_path / "m", config, {name: distinct(name, shape).bfloat16() for name, shape in shapes.items()})
    return tmp_path / "m"


@pytest.mark.parametrize("memory", [0, 1])
def test_a_model_whose_file_is_cut_between_two_runs_says_so(memory, folder):
    command = [sys.executable, "-c", RUN, str(folder), str(memory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"ended by signal {-done.returncode}: {done.stderr[-400:]}"
    assert (
        done.stdout.splitlines() == ["model.safetensors changed on disk after the model was opened; open the model again"] * 3
    )


def test_a_file_written_over_in_place_is_not_read_as_if_it_were_the_same(folder):
    lm = load(folder, device="cpu", dtype="bf16")
    lm.forward([1, 2, 3])
    file = folder / "model.safetensors"
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size - 100)
        opened.write(bytes(100))
    with pytest.raises(BlockscopeError, match="changed on disk"):
        lm.forward([1, 2, 3])


@pytest.mark.parametrize("gone", [True, False])
def test_a_file_that_was_replaced_or_removed_is_still_there_for_who_mapped_it(gone, folder):
    lm = load(folder, device="cpu", dtype="bf16")
    before, file = lm.forward([1, 2, 3]), folder / "model.safetensors"
    file.rename(folder / "old")
    if not gone:
        file.write_bytes(b"another")
    assert torch.equal(lm.forward([1, 2, 3]), before)


def test_numbers_that_were_copied_need_no_file(folder):
    lm = load(folder, device="cpu", dtype="fp32")
    before = lm.forward([1, 2, 3])
    (folder / "model.safetensors").write_bytes(b"another")
    assert torch.equal(lm.forward([1, 2, 3]), before)


@pytest.mark.skipif(sys.platform != "linux", reason="pages are fetched on Linux")
def test_reading_ahead_into_a_file_that_was_cut_is_an_error(tmp_path):
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(CHUNK // 2)}, file)
    value = safe_open(file, framework="pt").get_tensor("a")
    with file.open("r+b") as opened:
        opened.truncate(CHUNK)
    try:
        fetch(value)
    except OSError as error:
        assert "cut while it was open" in str(error)
    else:
        pytest.skip("this kernel does not say whether pages are there")
