"""Models by hub id, from a stand-in for the hub: only the files needed are fetched; every failure is one sentence."""

import json
import os
import pty
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from folders import llama_state, run, write, write_shards
from gguf_files import write_gguf
from hub_server import serve
from meta_files import llama, write_meta
from reference import build, config_json
from safetensors.torch import save_file

from model.checkpoints.downloads import explained
from model.checkpoints.hub import is_id, needed
from model.errors import BlockscopeError
from model.tokens import byte_tokenizer_json

ROOT = Path(__file__).parent.parent
STOPPING = """
import json, sys
from model import load

class Enough(Exception):
    pass

def until(name, done, total):
    if name.endswith(".safetensors"):
        raise Enough(name)

try:
    load("org/sharded", device="cpu", progress=until)
except Enough as stopped:
    print(json.dumps(["stopped", str(stopped)]))
told = []
load("org/sharded", device="cpu", progress=lambda *now: told.append(now))
print(json.dumps(told))
"""
SCRIPT = """
import json, sys
from model import load
from model.errors import BlockscopeError
for source in sys.argv[1:]:
    try:
        lm = load(source, device="cpu")
        print(json.dumps([source, lm.name, lm.report[0], lm.forward([1, 2, 3])[0, -1, :4].tolist()]))
    except BlockscopeError as error:
        print(json.dumps([source, str(error)]))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """(root of the repositories, port, files that were sent)."""
    root = tmp_path_factory.mktemp("hub")
    state = dict(llama_state())
    sharded = root / "org" / "sharded"
    sharded.mkdir(parents=True)
    write_shards(sharded, state)
    (sharded / "tokenizer.json").write_text(byte_tokenizer_json())
    for name in ("pytorch_model.bin", "consolidated.safetensors", "README.md", "model.onnx", "tokenizer.model"):
        (sharded / name).write_bytes(b"not needed")
    (root / "org" / "ggufs").mkdir()
    for name in ("a", "b"):
        write_gguf(root / "org" / "ggufs" / f"{name}.gguf", build(config_json("llama")))
    write_meta(root / "org" / "meta", llama())
    (root / "org" / "pickled").mkdir()
    (root / "org" / "pickled" / "config.json").write_text(json.dumps(config_json("llama")))
    (root / "org" / "pickled" / "pytorch_model.bin").write_bytes(b"x")
    (root / "org" / "spoilt").mkdir()
    write(root / "org" / "spoilt", {n: t for n, t in state.items() if "norm" not in n})
    server = serve(root)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield root, server.server_port
    server.shutdown()
    server.server_close()


def settings(cache: Path, port: int) -> dict[str, str]:
    """The environment of a process for which the stand-in is the hub."""
    ours = {
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(ROOT),
    }
    return {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | ours


def ask(cache: Path, port: int, *sources: str, script: str = SCRIPT, **environment) -> tuple[list, str]:
    """What a fresh process makes of these sources; (answers, its stderr). huggingface_hub reads its settings when imported."""
    env = settings(cache, port) | environment
    done = subprocess.run(
        [sys.executable, "-c", script, *sources], env=env, capture_output=True, text=True, timeout=120, cwd=cache
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")], done.stderr


def test_models_by_their_id(hub, tmp_path):
    root, port = hub
    sources = ["org/sharded", "org/ggufs/b.gguf", "org/meta", "org/sharded@nowhere"]
    sources += ["org/ggufs", "org/pickled", "org/spoilt", "org/missing"]
    answers, told = ask(tmp_path, port, *sources)
    said = dict(zip(sources, answers, strict=True))
    local = {"org/sharded": root / "org/sharded", "org/ggufs/b.gguf": root / "org/ggufs/b.gguf", "org/meta": root / "org/meta"}
    for source, path in local.items():
        assert len(said[source]) == 4, (said[source], told[-500:])
        _, name, note, logits = said[source]
        assert "fetched from the Hugging Face hub" in note and "01234567" in note and name == source.split("/")[-1]
        from model import load

        torch.testing.assert_close(torch.tensor(logits), load(path, device="cpu").forward([1, 2, 3])[0, -1, :4])
    assert "no revision 'nowhere'" in said["org/sharded@nowhere"][1]
    assert "several models (a.gguf, b.gguf); name one" in said["org/ggufs"][1]
    assert "pytorch_model.bin" in said["org/pickled"][1] and "run code" in said["org/pickled"][1]
    assert said["org/spoilt"][1].startswith("org/spoilt: ") and "lacks" in said["org/spoilt"][1]
    assert "org/missing is no folder here" in said["org/missing"][1] and "check the spelling" in said["org/missing"][1]
    cached = {file.name for file in (tmp_path / "hub").rglob("snapshots/*/*")}
    assert cached >= {"config.json", "weights-1-of-2.safetensors", "tokenizer.json", "b.gguf", "params.json"}
    assert not cached & {
        "pytorch_model.bin",
        "consolidated.safetensors",
        "README.md",
        "model.onnx",
        "tokenizer.model",
        "a.gguf",
    }
    again, _ = ask(tmp_path, 1, "org/sharded", "org/never", HF_HUB_OFFLINE="1")
    assert len(again[0]) == 4, again
    assert "from the cache" in again[0][2] and again[0][3] == said["org/sharded"][3]
    assert again[1][1] == (
        "org/never is no folder here nor in the cache of earlier downloads, and the Hugging Face hub is not asked while "
        "HF_HUB_OFFLINE is set; unset it, or name a model's folder or file on this disk"
    )
    unreachable, _ = ask(tmp_path, 1, "org/sharded", "org/never")  # nobody listens on port 1
    assert len(unreachable[0]) == 4 and "from the cache" in unreachable[0][2]
    assert unreachable[1][1] == (
        "org/never is no folder here nor in the cache of earlier downloads, and the Hugging Face hub (http://127.0.0.1:1) cannot "
        "be reached; check the connection and try again, or name a model's folder or file on this disk"
    )


def test_a_terminal_sees_bars(hub, tmp_path):
    screen, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 80))
    done = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "org/meta"], env=settings(tmp_path, hub[1]), stderr=end, stdout=subprocess.DEVNULL
    )
    os.close(end)
    told = b""
    with suppress(OSError):  # how a terminal says that its program has ended
        while more := os.read(screen, 1 << 16):
            told += more
    assert done.wait() == 0 and b"100%" in told and b"consolidated.00.pth" in told
    os.close(screen)


def test_the_progress_of_a_download_and_its_end(hub, tmp_path):
    root, port = hub
    (kind, shard), told = ask(tmp_path, port, script=STOPPING)[0]
    assert kind == "stopped" and shard.endswith("-of-2.safetensors")
    files = {file.name: file.stat().st_size for file in (root / "org/sharded").iterdir()}
    names = list(dict.fromkeys(name for name, _, _ in told))
    assert set(names) == {"config.json", "model.safetensors.index.json", "tokenizer.json"} | {
        f"weights-{i}-of-2.safetensors" for i in (1, 2)
    }
    assert {total for _, _, total in told} == {sum(files[name] for name in names)}
    done = [done for _, done, _ in told]
    assert done == sorted(done) and done[0] == 0 and done[-1] == told[-1][2]
    blobs = list((tmp_path / "hub").rglob("blobs/*"))  # the file that was stopped is not there, not even in part
    assert len(blobs) == len(names) and not [blob for blob in blobs if "incomplete" in blob.name]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "cannot be written to /c (No space left on device); make room there"),
        (OSError("Consistency check failed: file should be of size 2"), "broke off; try again, or name"),
        (TimeoutError("x"), "did not answer in time; try again, or name"),
        (OSError(-2, "Name or service not known"), "cannot be reached; check the connection"),
    ],
)
def test_what_a_failed_download_says(error, said):
    sentence = str(explained("org/name", error, Path("/c")))
    assert said in sentence and sentence.startswith("org/name ") and "[Errno" not in sentence


def test_which_files_are_needed():
    both = dict.fromkeys(
        ["config.json", "model.safetensors", "tokenizer.json", "tokenizer.model", "x.gguf", "pytorch_model.bin"], 1
    )
    assert needed(both, frozenset(), None, "o/n") == {"config.json", "model.safetensors", "tokenizer.json"}
    split = dict.fromkeys([f"q4-0000{i}-of-00002.gguf" for i in (1, 2)] + ["README.md"], 1)
    assert needed(split, frozenset(), None, "o/n") == set(split) - {"README.md"}
    meta = dict.fromkeys(["params.json", "consolidated.00.pth", "consolidated.safetensors", "tokenizer.model"], 1)
    assert needed(meta, frozenset(), None, "o/n") == {"params.json", "consolidated.safetensors", "tokenizer.model"}
    index = dict.fromkeys(["config.json", "model.safetensors.index.json", "a.safetensors"], 1)
    assert "../b" not in needed(index, frozenset({"a.safetensors", "../b"}), None, "o/n")
    for sizes, file, word in (
        ({"a.gguf": 1}, "b.gguf", "name one that it has: a.gguf"),
        ({"a.txt": 1}, None, "no model that can be opened"),
    ):
        with pytest.raises(BlockscopeError, match=word):
            needed(sizes, frozenset(), file, "o/n")


@pytest.mark.parametrize(
    ("source", "right"),
    [
        ("org/name", True), ("org/na.me-7B@main", True), ("org/name/q4.gguf", True), ("name", False), ("/etc/passwd", False),
        ("../x", False), ("./a/b", False), ("a/../b", False), ("a/b/c", False), ("a/b\n", False), ("a b/c", False), ("", False),
        ("tests/folder", True),
    ],
)  # fmt: skip
def test_what_looks_like_an_id(source, right, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_id(source) is right
    (tmp_path / "tests").mkdir()
    assert is_id("tests/folder") is False


def test_the_folder_that_is_there_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "name").mkdir(parents=True)
    write(tmp_path / "org" / "name", dict(llama_state()))
    save_file({"x": torch.ones(1)}, tmp_path / "other.safetensors")
    assert run(Path("org/name")).shape[-1] == 131
