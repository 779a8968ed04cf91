"""Models by hub id, from a stand-in for the hub: only the files needed are fetched; every failure is one sentence."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from folders import llama_state, run, write, write_shards
from gguf_files import write_gguf
from hub_server import serve
from meta_files import llama, write_meta
from reference import build, config_json
from safetensors.torch import save_file

from model.checkpoints.hub import is_id, needed
from model.errors import BlockscopeError
from model.tokens import byte_tokenizer_json

ROOT = Path(__file__).parent.parent
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


def ask(cache: Path, port: int, *sources: str, **environment) -> tuple[list, str]:
    """What a fresh process makes of these sources; (answers, its stderr). huggingface_hub reads its settings when imported."""
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{port}",
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": str(ROOT),
    }
    env = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | settings | environment
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *sources], env=env, capture_output=True, text=True, timeout=120, cwd=cache
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
    assert "100%" in told  # progress in the terminal
    again, _ = ask(tmp_path, 1, "org/sharded", "org/never", HF_HUB_OFFLINE="1")
    assert len(again[0]) == 4, again
    assert "from the cache" in again[0][2] and again[0][3] == said["org/sharded"][3]
    assert "did not answer" in again[1][1] and "org/never is no folder here" in again[1][1]


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
    for sizes, file, word in (({"a.gguf": 1}, "b.gguf", "it has a.gguf"), ({"a.txt": 1}, None, "no model that can be opened")):
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
