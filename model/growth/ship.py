"""The pair of small code models that ship with Blockscope: one recipe, two arms, with and without QK-norm."""

import csv
import json
import platform
import subprocess
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from model.attention import Attention
from model.block import PreNorm
from model.growth.arms import Arm
from model.growth.card import read_facts, write_card
from model.growth.corpus import standard_library
from model.growth.heads import measure, newline_share
from model.growth.probing import windows
from model.growth.recipe import Recipe
from model.growth.record import Record
from model.growth.train import Training
from model.lm import Decoder
from model.load import load
from model.mlp import SwiGLU
from model.norms import RMSNorm
from model.positions import Rope

RECIPE = Recipe(steps=3600, batch=8, context=256, lr=5e-3, warmup=100, weight_decay=0.1)
ARMS = ("off", "on")


def shipped_config(arm: str) -> Decoder.Config:
    """A four-layer Llama block of width 128 on bytes; the "on" arm has a per-head QK-norm with learned gains."""
    qk_norm = RMSNorm.Config(d=32, eps=1e-6) if arm == "on" else None
    attn = Attention.Config(
        d_model=128, n_heads=4, n_kv_heads=2, d_head=32, q_norm=qk_norm, k_norm=qk_norm,
        rope=Rope.Config(d=32, base=10_000.0, pairing="half"),
    )  # fmt: skip
    norm = RMSNorm.Config(d=128, eps=1e-6)
    block = PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=SwiGLU.Config(d_model=128, d_mlp=344))
    return Decoder.Config(d_vocab=256, d_model=128, blocks=(block,) * 4, ln_final=norm, tied=False, context=256)


def train_arm(arm: str, folder: Path, recipe: Recipe = RECIPE) -> None:
    """Train one arm and write it to `folder`: a Hugging Face folder with its record, facts and model card.

    One thread, so that the result depends on the seed and not on how many cores there are.
    """
    torch.set_num_threads(1)
    corpus = standard_library()
    training = Training(Arm(arm, shipped_config(arm), recipe), corpus)
    with tqdm(total=recipe.steps, desc=f"QK-norm {arm}", unit="step", mininterval=1.0) as bar:
        for event in training:
            bar.update(event.step - bar.n)
            if event.probe:
                largest = event.probe.values["max_logit"].max()
                bar.set_postfix(loss=f"{event.probe.validation_loss:.3f}", max_logit=f"{largest:.1f}")
    training.save(folder, torch.float16)
    write_record(folder / "record.csv", training.record())
    facts = {
        "arm": arm, "recipe": recipe.values(), "torch": torch.__version__, "python": platform.python_version(),
        "threads": 1, "corpus_sha256": corpus.sha256, "corpus_bytes": [len(corpus.train), len(corpus.validation)],
        "corpus_files": list(corpus.files), "parameters": training.parameters,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
    describe(folder)


def describe(folder: Path) -> None:
    """Measure the heads of the model as stored and write its model card."""
    facts, lm, corpus = read_facts(folder), load(folder, device="cpu", dtype="fp32"), standard_library()
    context = facts["recipe"]["context"]
    starts = torch.linspace(0, len(corpus.validation) - context - 1, 64).long()
    tokens = windows(corpus.validation, starts, context)
    for layer in range(lm.config.n_layers):
        lm.block(layer)
    lm.forward(tokens[:1])  # every weight is read now
    values = json.loads((folder / "config.json").read_text())
    write_card(folder, facts, values, measure(lm.net, tokens), newline_share(tokens))


def ship(out: Path, steps: int = RECIPE.steps) -> None:
    """Train both arms at the same time, one process each."""
    command = [sys.executable, "-m", "model.growth", "ship", "--out", str(out), "--steps", str(steps), "--arm"]
    children = [subprocess.Popen([*command, arm]) for arm in ARMS]
    if failed := [arm for arm, child in zip(ARMS, children, strict=True) if child.wait()]:
        raise SystemExit(f"training the arm {failed[0]!r} failed; its message is above")


def write_record(path: Path, record: Record) -> None:
    """One row a probe: step, mean training loss, validation loss (nats per byte), largest |logit| of each layer."""
    largest = record.worst("max_logit")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "train_loss", "validation_loss", *(f"max_logit_{i}" for i in range(largest.shape[1]))])
        for step, train_loss, loss, row in zip(record.step, record.train_loss, record.validation_loss, largest, strict=True):
            mean = "" if train_loss != train_loss else f"{train_loss:.5f}"
            writer.writerow([step, mean, f"{loss:.5f}", *(f"{z:.4f}" for z in row)])
