"""Made-up records of runs for the tests of the Growth page: growth that looks like the real one, in microseconds."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from model.growth.corpus import Corpus
from model.growth.record import Record

STEPS = np.array([0, 20, 40, 60, 100, 140, 200], np.int64)
SNAPSHOTS = STEPS[::2]
LAYERS, HEADS, LENGTH = 4, 4, 12


def made_up(group="stress", arm="off", lr=0.1, seed=0, layers=LAYERS, heads=HEADS, patterns=True, **meta) -> Record:
    """A run whose logits grow with lr where `arm` is "off" and stay small elsewhere; every layer and head differs."""
    rng = np.random.default_rng(seed + 17 * (arm != "off"))
    where = np.arange(1, layers + 1)[:, None] * (1 + 0.1 * np.arange(heads))
    grown = (STEPS / STEPS[-1])[:, None, None] * (13_855 * lr / 0.1 if arm == "off" else 28.4)
    logit = (4 + grown * where / where.max() * rng.uniform(0.9, 1.0, (len(STEPS), layers, heads))).astype(np.float32)
    falling = np.exp(-STEPS / (15 if arm == "off" else 80))[:, None, None] * np.ones((1, layers, heads)) * 0.9
    values = {
        "max_logit": logit, "max_capped": logit, "row_range": logit * 0.8, "entropy": falling.astype(np.float32),
        "one_hot": (1 - falling).astype(np.float32) * 0.9, "q_norm": logit**0.5 * 2, "k_norm": logit**0.5 * 1.9,
        "cosine": np.full_like(logit, 0.9), "overflow": np.zeros_like(logit),
    }  # fmt: skip
    square = np.tril(rng.uniform(size=(len(SNAPSHOTS), layers, heads, LENGTH, LENGTH)))
    square = np.round(255 * square / square.sum(-1, keepdims=True)).astype(np.uint8)
    name = f"{group}-{arm}-lr{lr:g}-seed{seed}"
    facts = {
        "name": name, "arm": arm, "group": group, "label": "QK-norm off" if arm == "off" else f"made up: {arm}",
        "ended": "finished", "seed": seed, "parameters": 217_600, "seconds": 41.0, "torch": "2.13", "python": "3.11",
        "recipe": {"lr": lr, "steps": 200, "batch": 16, "context": LENGTH, "seed": seed},
        "corpus": {"name": "made up", "ngrams": {"1": 3.19, "2": 2.49, "3": 1.88}},
    }  # fmt: skip
    fall = 2.9 - (0.6 if arm == "off" else 0.97) * STEPS / STEPS[-1] + 0.01 * seed
    return Record(
        meta=facts | meta, step=STEPS, train_loss=np.where(STEPS == 0, np.nan, fall + 0.02), validation_loss=fall,
        values=values, bound=np.full((len(STEPS), layers), np.nan if arm == "off" else 46.6, np.float32),
        snapshot_step=SNAPSHOTS if patterns else np.zeros(0, np.int64), patterns=square if patterns else None,
        snapshot_tokens=np.frombuffer(b"def area(w):", np.uint8).astype(np.int64) if patterns else np.zeros(0, np.int64),
    )  # fmt: skip


def folder_of_records(folder):
    """The groups as they ship, made up: a pair at three seeds, a sweep, three fixes."""
    runs = [
        made_up("stress", arm, 0.1, seed, also=["sweep", "fixes"] if seed == 0 else [])
        for arm in ("off", "on")
        for seed in range(3)
    ]
    runs += [made_up("sweep", arm, lr, patterns=False) for arm in ("off", "on") for lr in (0.001, 0.01, 0.3)]
    runs += [made_up("fixes", arm) for arm in ("soft-cap 50", "QK-clip 20")]
    for run in runs:
        run.write(folder / f"{run.name.replace(' ', '_')}.safetensors")
    return folder


def small_corpus() -> Corpus:
    """The files of these tests: a text of the right kind that is read and counted in no time."""
    texts = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("test_growth*.py"))]
    train, validation = (torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in (b"".join(texts[1:]), texts[0]))
    return Corpus(train, validation, hashlib.sha256(b"".join(texts)).hexdigest(), (len(texts) - 1, 1), "these tests")
