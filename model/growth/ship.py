"""The pair of small code models that ship with Blockscope: one recipe, two arms, with and without QK-norm."""

import csv
import dataclasses
import json
import platform
from pathlib import Path

import torch
from safetensors.torch import save_file
from tqdm import tqdm

from model.attention import Attention
from model.block import PreNorm
from model.growth.corpus import standard_library
from model.growth.train import Point, Recipe, initialised, train
from model.lm import Decoder
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


def train_arm(arm: str, out: Path, recipe: Recipe = RECIPE) -> None:
    """Train one arm on one thread (so that the result depends on the seed alone) and write weights and record to `out`."""
    torch.set_num_threads(1)
    corpus = standard_library()
    model = initialised(shipped_config(arm), recipe.seed)
    points, done = [], 0
    with tqdm(total=recipe.steps, desc=f"QK-norm {arm}", unit="step", mininterval=1.0) as bar:
        for point in train(model, corpus, recipe):
            points.append(point)
            bar.update(point.step - done)
            bar.set_postfix(loss=f"{point.validation_loss:.3f}", max_logit=f"{max(point.max_logit):.1f}")
            done = point.step
    out.mkdir(parents=True, exist_ok=True)
    save_file({name: p.detach().half() for name, p in model.named_parameters()}, out / "weights.safetensors")
    write_record(out / "record.csv", points)
    facts = {
        "arm": arm, "recipe": dataclasses.asdict(recipe), "torch": torch.__version__, "python": platform.python_version(),
        "threads": 1, "corpus_sha256": corpus.sha256, "corpus_bytes": [len(corpus.train), len(corpus.validation)],
        "corpus_files": list(corpus.files), "parameters": sum(p.numel() for p in model.parameters()),
    }  # fmt: skip
    (out / "run.json").write_text(json.dumps(facts, indent=1) + "\n")


def write_record(path: Path, points: list[Point]) -> None:
    """One row a recorded step: step, mean training loss, validation loss (nats per byte), largest |logit| of each layer."""
    layers = len(points[0].max_logit)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "train_loss", "validation_loss", *(f"max_logit_{i}" for i in range(layers))])
        for p in points:
            train_loss = "" if p.train_loss != p.train_loss else f"{p.train_loss:.5f}"
            writer.writerow([p.step, train_loss, f"{p.validation_loss:.5f}", *(f"{z:.4f}" for z in p.max_logit)])
