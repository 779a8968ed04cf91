"""The model card of a shipped model, written from its own record: nothing in it that was not measured."""

import csv
import json
from pathlib import Path

from model.growth.heads import HeadFigures

CARD = """---
license: mit
language: code
---

# {name}

A {layers}-layer Llama block of width {d_model} on bytes ({heads} query heads, {kv} key/value heads of {d_head}, SwiGLU of
{d_mlp}), **{qk_norm}**. Its twin is `{twin}`: same seed, same initial values of every weight that both have, same batches
in the same order, same hyperparameters. The pair exists so that Blockscope has something real to show without a download.

## What it is not
Not a useful language model: it has {parameters:,} parameters and has read {read:.1f} MB of text. It writes text that looks
like Python and does not run. Differences between the twins come from one seed each.

## Training
Corpus: the Python {python} standard library's own source ({train_files} files, {train_bytes:,} bytes; {val_files} files,
{val_bytes:,} bytes held out, split by file), sha256 `{sha}`.
AdamW (betas {betas}, weight decay {weight_decay} on matrices), peak learning rate {lr}, {warmup} steps of warm-up, cosine
to 5%, gradient clip {clip}, z-loss {z_loss}; {steps} steps of {batch} sequences of {context} bytes, fp32 on one thread,
torch {torch}. Weights are stored in fp16. The standard library is under the Python Software Foundation licence.

    python -m model.growth ship

## Measured
| | |
|---|---|
| validation loss at the end | {loss:.3f} nats per byte ({bits:.3f} bits) |
| largest visible attention logit at the end, layer 0 to {last} | {largest} |
| its peak during training | {peak:.1f} at step {peak_step} |

`record.csv` holds training loss, validation loss and the largest |logit| of each layer every {every} steps.

Heads, mean attention weight on held-out text (queries past position 10; newline bytes are {newline:.1%} of the text):

| head | previous byte | the one before | itself | first byte | newlines | induction |
|---|---|---|---|---|---|---|
{table}

{reading}
"""


def write_card(folder: Path, facts: dict, config: dict, figures: list[HeadFigures], newline: float) -> None:
    """README.md of `folder` from the run's facts, its config.json and the measured heads."""
    rows = list(csv.DictReader((folder / "record.csv").open()))
    largest = [[float(v) for k, v in row.items() if k.startswith("max_logit")] for row in rows]
    peak = max(range(len(rows)), key=lambda i: max(largest[i]))
    recipe, loss = facts["recipe"], float(rows[-1]["validation_loss"])
    twin = "on" if facts["arm"] == "off" else "off"
    text = CARD.format(
        name=folder.name, twin=folder.name.removesuffix(facts["arm"]) + twin,
        qk_norm="QK-norm per head with learned gains" if facts["arm"] == "on" else "no QK-norm",
        layers=config["num_hidden_layers"], d_model=config["hidden_size"], heads=config["num_attention_heads"],
        kv=config["num_key_value_heads"], d_head=config["head_dim"], d_mlp=config["intermediate_size"],
        parameters=facts["parameters"], read=recipe["steps"] * recipe["batch"] * recipe["context"] / 1e6,
        python=facts["python"], sha=facts["corpus_sha256"], torch=facts["torch"], newline=newline,
        train_files=facts["corpus_files"][0], val_files=facts["corpus_files"][1],
        train_bytes=facts["corpus_bytes"][0], val_bytes=facts["corpus_bytes"][1],
        **{k: recipe[k] for k in ("betas", "weight_decay", "lr", "warmup", "clip", "z_loss", "steps", "batch", "context")},
        every=recipe["record_every"], loss=loss, bits=loss / 0.693147, last=len(largest[-1]) - 1,
        largest=", ".join(f"{z:.1f}" for z in largest[-1]), peak=max(largest[peak]), peak_step=rows[peak]["step"],
        table="\n".join(_row(f) for f in figures), reading=_reading(figures),
    )  # fmt: skip
    (folder / "README.md").write_text(text)


def _row(f: HeadFigures) -> str:
    shares = (f.previous, f.second, f.itself, f.first, f.newline, f.induction)
    return f"| L{f.layer}H{f.head} | " + " | ".join(f"{share:.3f}" for share in shares) + " |"


def _reading(figures: list[HeadFigures]) -> str:
    """One sentence for each kind of head that the numbers support, and one where they do not."""
    best = max(figures, key=lambda f: f.previous)
    copier = max(figures, key=lambda f: f.induction)
    lines = [f"The clearest previous-byte head is L{best.layer}H{best.head} ({best.previous:.2f} of its weight)."]
    chance = f"{copier.induction:.3f} at best, in L{copier.layer}H{copier.head}; no preference would give {copier.uniform:.3f}"
    verdict = "There is an induction head" if copier.induction > 0.3 else "There is no induction head"
    return " ".join([*lines, f"{verdict} ({chance})."])


def read_facts(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())
