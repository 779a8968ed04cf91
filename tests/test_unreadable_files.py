"""What cannot be read, and names that would act on a terminal: one printable line, from every door."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from folders import INDEX, llama_state, refusal, write, write_shards
from safetensors.torch import save_file

import app
from model import load
from model.checkpoints import open_checkpoint
from model.doctor.__main__ import main as doctor
from model.errors import BlockscopeError, printable

HOSTILE = "ev\nil\x1b[31m\x1b]0;t\x07\u202e"  # two lines, colours, a window title, and letters from right to left
FILES = ("config.json", "model.safetensors", "tokenizer.json", INDEX)


@pytest.fixture
def state():
    return dict(llama_state())


@pytest.fixture
def barred():
    """A folder that another user may enter, and this process as that user: root may read everything."""
    folder, user = Path(tempfile.mkdtemp()), os.geteuid()
    folder.chmod(0o755)

    def become() -> Path:
        if user == 0:
            os.seteuid(65534)
        return folder

    yield folder, become
    os.seteuid(user)
    (folder / "m").chmod(0o755)
    shutil.rmtree(folder)


# ---- links and permissions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["../blobs/gone", None])
@pytest.mark.parametrize("name", FILES)
def test_a_link_that_leads_nowhere_is_not_taken_for_a_missing_file(name, target, tmp_path, state):
    write_shards(tmp_path, state) if name == INDEX else write(tmp_path, state)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(target or name)  # to itself: a loop
    assert refusal(tmp_path).startswith(f"{tmp_path.name}/{name} is a link that leads nowhere ({target or name}); download")


def test_a_source_that_is_such_a_link(tmp_path):
    (tmp_path / "m").symlink_to("m")
    with pytest.raises(BlockscopeError, match=rf"^{tmp_path.name}/m is a link that leads nowhere \(m\)"):
        load(tmp_path / "m")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("name", [*FILES[:3], ""])
def test_a_file_or_folder_that_this_user_may_not_read(name, barred, state, capsys):
    folder, become = barred
    write(folder / "m", state)
    (folder / "m" / "tokenizer.json").write_text("{}")
    for file in (folder / "m").iterdir():
        file.chmod(0o644)
    (folder / "m" / name).chmod(0)
    source = become() / "m"
    said = f"m{f'/{name}' if name else ''} cannot be read: Permission denied; allow this user to read it"
    assert refusal(source) == said
    assert doctor([str(source)]) == 2 and capsys.readouterr().out == f"refused: {said}\n"
    assert app.shelved([str(source)]).shown_first == "m", "the app starts, and says it when the model is opened"


# ---- what a folder holds instead -----------------------------------------------------------------------------------------


def test_a_folder_without_a_config_is_told_what_it_holds(tmp_path, state):
    assert refusal(tmp_path) == f"{tmp_path.name} is empty; download the model into it, or name another folder"
    write(tmp_path / "step100", state)
    assert refusal(tmp_path).endswith("holds models in folders of their own (step100); name one of them")
    shutil.rmtree(tmp_path / "step100")
    (tmp_path / "model.onnx").write_bytes(b"x")
    assert refusal(tmp_path).startswith(f"{tmp_path.name} has no config.json: model.onnx is an ONNX graph, which")


# ---- names that act ------------------------------------------------------------------------------------------------------


def named(folder: Path, state: dict, part: str) -> Path:
    """A model that is refused for, or that is called by, a hostile name of one of its parts."""
    if part == "folder":
        folder = folder / HOSTILE
    write(folder, state, **({"hidden_size": "x"} if part == "folder" else {"hidden_act": HOSTILE} if part == "value" else {}))
    if part == "tensor":
        save_file(state | {HOSTILE: torch.ones(2)}, folder / "model.safetensors")
    if part == "file":
        (folder / "model.safetensors").rename(folder / f"{HOSTILE}.safetensors")
    return folder


@pytest.mark.parametrize("part", ["folder", "value", "tensor", "file"])
def test_hostile_names_are_shown_escaped(part, tmp_path, state, capsys):
    source = named(tmp_path, state, part)
    with pytest.raises(BlockscopeError) as found:
        open_checkpoint(source)
    sentence = str(found.value)
    assert sentence.isprintable() and r"ev\nil\x1b[31m" in sentence
    assert doctor([str(source)]) == 2
    with pytest.raises(BlockscopeError):
        app._opened(load, str(source))
    told = capsys.readouterr()
    assert all(line.isprintable() for line in (told.out + told.err).splitlines()) and told.err.count("\n") == 1


def test_the_doctor_shows_a_hostile_setting_escaped(tmp_path, state, capsys):
    write(tmp_path / HOSTILE, state)
    config = tmp_path / HOSTILE / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {HOSTILE: 1}))
    assert doctor([str(tmp_path / HOSTILE), "--quick"]) in (0, 1)
    out = capsys.readouterr().out
    assert out.count(r"\x1b[31m") >= 2 and all(line.isprintable() for line in out.splitlines())


def test_what_is_printable_stays():
    assert printable("Grüße, 模型 – é") == "Grüße, 模型 – é" and printable("a\tb\udcff") == r"a\tb\udcff"
