"""Surveys from a shell: of a checkpoint, of several, or of a folder of training steps, which becomes a growth curve."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from model.checkpoints.fields import shown
from model.errors import BlockscopeError, printable_lines
from model.growth.quantities import QUANTITIES
from model.growth.record import Record
from model.growth.survey import Survey, surveying
from model.growth.survey_tables import FORMS
from model.load import DTYPES, load
from model.run import LM

PROMPT = "def add(a, b):\n    return a + b\n\nThe capital of France is Paris, and the capital of Italy is Rome."
STEP = re.compile(r"(\d+)\D*$")  # the number that the name of a step's folder ends in
LARGEST_TEXT = 64 << 20  # bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a checkpoint, a preset, or a folder of training steps")
    text = parser.add_mutually_exclusive_group()
    text.add_argument("--prompt", help="what is measured on; default: a line of Python and a sentence")
    text.add_argument("--text", type=Path, metavar="FILE", help="a text file instead, cut into texts of --context tokens")
    parser.add_argument("--context", type=int, default=512, metavar="TOKENS", help="of each text at most; default 512")
    parser.add_argument("--texts", type=int, default=1, help="how many texts of FILE, from its beginning; default 1")
    parser.add_argument("--dtype", choices=DTYPES, help="what the model runs in; default: fp32 on a CPU, else as it is stored")
    parser.add_argument("--device", default="auto")
    form = parser.add_mutually_exclusive_group()
    for name, what in (("json", "every layer and head, as JSON"), ("csv", "every layer and head, as CSV")):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, default="table", help=what)
    parser.add_argument("--record", type=Path, metavar="FILE", help="of a folder of steps: also a record that the page opens")


def command(options: argparse.Namespace) -> None:
    """Survey every model and print what was asked for; progress goes to the standard error."""
    for name in ("context", "texts"):
        if getattr(options, name) < 1:
            raise BlockscopeError(f"--{name} must be at least 1, got {getattr(options, name)}")
    text = PROMPT if options.prompt is None else options.prompt
    if options.text is not None:
        text = read(options.text)
    sources = [(source, step) for model in options.models for source, step in expanded(model)]
    if options.record is not None and (len(options.models) > 1 or any(step is None for _, step in sources)):
        raise BlockscopeError("--record needs one folder whose subfolders are training steps, named by their numbers")
    found = []
    for source, step in sources:
        lm = load(source, device=options.device, dtype=options.dtype)
        found.append((step, told(lm, texts(lm, text, options.context, options.texts if options.text else 1))))
    if options.record is not None:
        curve(Path(options.models[0]).name, found).write(options.record)
    print(printable_lines(FORMS[options.form](found)))


def expanded(model: str) -> list[tuple[str, int | None]]:
    """A checkpoint or preset alone, without a step; of a folder of steps each one, in order, with its number."""
    folder = Path(model).expanduser()
    if not folder.is_dir() or any(folder.glob("*.safetensors")) or (folder / "config.json").is_file():
        return [(model, None)]
    steps = [(child, STEP.search(child.name)) for child in folder.iterdir() if (child / "config.json").is_file()]
    numbered = sorted((int(number[1]), str(child)) for child, number in steps if number and len(number[1]) < 16)
    if not numbered:
        return [(model, None)]  # then `load` says what is missing
    if len({step for step, _ in numbered}) < len(numbered):
        raise BlockscopeError(f"two folders in {shown(folder.name)} end in the same number: rename one")
    return [(child, step) for step, child in numbered]


def read(path: Path) -> str:
    if not path.is_file():
        raise BlockscopeError(f"there is no text file {shown(str(path))}")
    if path.stat().st_size > LARGEST_TEXT:
        raise BlockscopeError(f"{shown(path.name)} has {path.stat().st_size:,} bytes; a text has at most {LARGEST_TEXT:,}")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BlockscopeError(f"{shown(path.name)} is not text in UTF-8") from None


def texts(lm: LM, text: str, context: int, most: int) -> Tensor:
    """Token ids [batch, pos]: whole texts of `context` tokens, `most` of them at most; a shorter text as it is."""
    ids = lm.encode(text)
    count = min(most, len(ids) // context)
    return torch.tensor(ids[: count * context]).view(count, context) if count else torch.tensor(ids)[None]


def told(lm: LM, tokens: Tensor) -> Survey:
    walk, told = surveying(lm, tokens), {"unit": "layer", "disable": None, "leave": False}  # None: silent where nobody watches
    with tqdm(total=lm.config.n_layers, desc=lm.name, file=sys.stderr, **told) as bar:
        while True:
            try:
                bar.update(next(walk).done - bar.n)
            except StopIteration as end:
                return end.value


def curve(name: str, found: Sequence[tuple[int, Survey]]) -> Record:
    """Surveys of the steps of one training run as its record: what was measured is the same, the losses are not known."""
    first, nothing = found[0][1], np.full(len(found), np.nan)
    if any(
        s.bound.shape != first.bound.shape or s.values["max_logit"].shape != first.values["max_logit"].shape for _, s in found
    ):
        raise BlockscopeError("the models of this folder differ in layers or heads: they are not steps of one run")
    count, length = first.tokens
    return Record(
        meta={
            "name": name or "steps", "arm": "measured", "group": "survey", "ended": f"stopped at step {found[-1][0]}",
            "label": f"{len(found)} checkpoints, each surveyed on {count} x {length} tokens", "torch": torch.__version__,
        },
        step=np.array([step for step, _ in found], np.int64), train_loss=nothing, validation_loss=nothing,
        values={q: np.stack([s.values[q] for _, s in found]) for q in QUANTITIES},
        bound=np.stack([s.bound for _, s in found]),
    )  # fmt: skip
