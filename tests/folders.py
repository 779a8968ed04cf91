"""Model folders made for a test: one file or shards, spoilt as a test asks; and the refusal that opening one must give."""

import functools
import json
from pathlib import Path

import pytest
import torch
from reference import build, config_json, prompt
from safetensors.torch import save_file
from torch import Tensor

from model import load
from model.checkpoints import open_folder
from model.errors import BlockscopeError

INDEX = "model.safetensors.index.json"


@functools.cache
def llama_state() -> dict[str, Tensor]:
    """The tensors of a small untied llama under their file names, all random. Read only."""
    return {name: tensor.clone() for name, tensor in build(config_json("llama")).state_dict().items()}


def write(folder: Path, tensors: dict[str, Tensor], case: str = "llama", **changes) -> Path:
    """One model.safetensors and the config of a case, with some fields changed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config_json(case) | changes))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_shards(folder: Path, state: dict[str, Tensor], case: str = "llama", split: int = 9) -> dict[str, str]:
    """Two shards and their index; -> weight_map, to be spoilt."""
    (folder / "config.json").write_text(json.dumps(config_json(case)))
    names, placed = list(state), {}
    for number, part in ((1, names[:split]), (2, names[split:])):
        file = f"weights-{number}-of-2.safetensors"
        save_file({name: state[name] for name in part}, folder / file)
        placed |= dict.fromkeys(part, file)
    write_index(folder, placed)
    return placed


def write_index(folder: Path, placed: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": placed}))


def run(folder: Path) -> Tensor:
    """Logits of the test prompt, through the project's own door."""
    return load(folder, device="cpu", dtype=torch.float32).forward(prompt())


def refusal(folder: Path | str) -> str:
    """The one sentence with which this folder is refused."""
    with pytest.raises(BlockscopeError) as caught:
        open_folder(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 600, sentence
    return sentence
