"""The stress pair as it ships: two small models after training at a high learning rate, with a card that says what was seen."""

import json
from pathlib import Path
from textwrap import fill

import torch

from model.checkpoints.saving import save_folder
from model.errors import BlockscopeError
from model.growth.captions import bound_caption, end_loss, peak, stress_caption
from model.growth.corpus import Corpus, standard_library
from model.growth.measure import probe
from model.growth.probing import HeldOut, validation_loss
from model.growth.recipe import Recipe
from model.growth.record import Record, shipped
from model.load import load
from model.tokens import byte_tokenizer_json

COMMANDS = (  # what trains every run that the cards and the Growth page speak of
    "sweep --size S --lr 0.1 --seed 0 --qk-norm both --group stress --also sweep fixes",
    "sweep --size S --lr 0.1 --seed 1 2 --qk-norm both --group stress",
    "sweep --size S --lr 0.001 0.003 0.01 0.03 0.3 --qk-norm both --group sweep",
    "sweep --size S --lr 0.1 --group fixes --snapshots 100 350 --fix qk-norm-projection qk-norm-fixed softcap-50 qk-clip-100 "
    "qk-clip-20 no-clip no-z-loss decay-0.1 warmup-half init-0.02",
)
CARD = """---
license: mit
language: code
---

# {name}

{layers} layers of width {d_model} on bytes, **{qk_norm}**, trained at a learning rate of {lr:g} on purpose: this is what
attention looks like {state}. Its twin is `{twin}`: same seed, same initial
values of every weight that both have, same batches in the same order, same recipe.

## What was seen
{caption}

{bound}

Of this pair (seed {seed}): validation loss {loss:.3f} here and {other:.3f} in the twin, nats per byte; a bigram model has
{bigram:.3f}, a trigram model {trigram:.3f} (Witten-Bell, counted on the training text, on the whole held-out text).

## What it is not
Not a useful language model: {parameters:,} parameters that have read {read:.2f} MB of text. Its learning rate was chosen to
show growth, not to train well.

## Stored in fp16
Measured on the same {sequences} held-out sequences of {context} bytes before and after rounding, computed in fp32 both times:

| | fp32 as trained | fp16 as stored |
|---|---|---|
| validation loss, nats per byte | {loss32:.4f} | {loss16:.4f} |
| largest visible logit, layer 0 to {last} | {logits32} | {logits16} |

Computing in fp16 is another matter: its numbers near {most:,.0f} lie {step:g} apart.

## Training
Corpus: {corpus} ({python}; {train_files} files, {train_bytes:,} bytes; {val_files} files, {val_bytes:,} bytes held out,
split by file), sha256 `{sha}`. The standard library is under the Python Software Foundation licence.
AdamW (betas {betas}), warm-up of {warmup} steps, cosine to 5%, independent weight decay {weight_decay} on matrices and
embeddings, gradient clip {clip}, z-loss {z_loss}; {steps} steps of {batch} sequences of {context} bytes, one thread, torch
{torch}.

    python -m model.growth {command} --out runs

The run, layer by layer and head by head, is `assets/growth/{record}`.
"""


def ship_stress(runs: Path, out: Path) -> None:
    """Both arms of seed 0 from `runs`, the --out folder of COMMANDS, as code-stress-qknorm-off and -on below `out`."""
    records = {path.stem: Record.read(path) for path in shipped(runs)}
    stress = [r for r in records.values() if r.meta["group"] == "stress"]
    sweep = [r for r in records.values() if r.meta["group"] == "sweep"]
    fixed = records.get("fixes-qk-norm-fixed-lr0.1-seed0")
    if len(stress) != 6 or len(sweep) != 10 or fixed is None:
        wanted = "; ".join(f"python -m model.growth {command} --out {runs}" for command in COMMANDS)
        raise BlockscopeError(f"{runs.name} lacks runs that the cards speak of; train them first: {wanted}")
    learned = [r for r in stress if r.meta["arm"] == "on"]
    said = {"caption": fill(stress_caption(stress, sweep), 120), "bound": fill(bound_caption(learned, fixed), 120)}
    pair, corpus = {r.meta["arm"]: r for r in stress if r.meta["seed"] == 0}, standard_library()
    for arm, twin in (("off", "on"), ("on", "off")):
        folder = out / f"code-stress-qknorm-{arm}"
        facts = store(runs / pair[arm].name, folder, pair[arm], corpus)
        state = "when its logits have grown" if arm == "off" else "when QK-norm holds its logits"
        twins = {"twin": f"code-stress-qknorm-{twin}", "other": end_loss(pair[twin]), "state": state}
        (folder / "README.md").write_text(CARD.format(**facts, **said, **twins), encoding="utf-8")


def store(run: Path, folder: Path, record: Record, corpus: Corpus) -> dict:
    """Round the weights of a run to fp16, write them, and measure what the rounding changed. Refused if it changed much."""
    recipe, meta = Recipe(**record.meta["recipe"]), record.meta
    held_out, lm = HeldOut(corpus, recipe), load(run, device="cpu", dtype="fp32")
    state = {name: lm.store.get(name, tuple(p.shape)).half() for name, p in lm.net.named_parameters()}
    save_folder(folder, lm.config, state, byte_tokenizer_json())
    before, after = (_measured(source, held_out) for source in (run, folder))
    if abs(before[0] - after[0]) > 0.01:
        raise BlockscopeError(
            f"{folder.name}: rounding to fp16 moves the loss from {before[0]:.4f} to {after[0]:.4f}; keep fp32"
        )
    values = json.loads((folder / "config.json").read_text())
    most = peak(record)
    return {
        "name": folder.name, "layers": values["num_hidden_layers"], "d_model": values["hidden_size"], "lr": recipe.lr,
        "qk_norm": "QK-norm on each head, learned gain" if meta["arm"] == "on" else "no QK-norm", "seed": recipe.seed,
        "loss": end_loss(record), "bigram": corpus.ngrams["2"], "trigram": corpus.ngrams["3"], "parameters": meta["parameters"],
        "read": recipe.steps * recipe.batch * recipe.context / 1e6, "sequences": recipe.validation_sequences,
        "loss32": before[0], "loss16": after[0], "logits32": before[1], "logits16": after[1], "corpus": corpus.name,
        "last": values["num_hidden_layers"] - 1, "python": f"Python {meta['python']}", "sha": corpus.sha256,
        "train_files": corpus.files[0], "val_files": corpus.files[1], "train_bytes": len(corpus.train),
        "val_bytes": len(corpus.validation), "torch": meta["torch"], "record": f"{record.name}.safetensors",
        "command": COMMANDS[0], "most": most, "step": _step(most),
        **{k: getattr(recipe, k) for k in ("betas", "warmup", "weight_decay", "clip", "z_loss", "steps", "batch", "context")},
    }  # fmt: skip


def _measured(folder: Path, held_out: HeldOut) -> tuple[float, str]:
    """Validation loss, and the largest |logit| of each layer as text."""
    lm = load(folder, device="cpu", dtype="fp32")
    lm.forward([0])  # every weight is read now
    logits = probe(lm.net, held_out.probed)["max_logit"].max(1)
    return validation_loss(lm.net, held_out.sequences), ", ".join(f"{z:,.1f}" for z in logits)


def _step(value: float) -> float:
    """The distance of neighbouring fp16 numbers at `value`."""
    return 2.0 ** (torch.frexp(torch.tensor(value)).exponent.item() - 11)
