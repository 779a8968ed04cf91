"""One training run: a decoder on bytes, plain PyTorch, measured as it goes; stopped, kept and continued at any step."""

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from model.checkpoints.saving import config_values, save_folder
from model.counting import count_config
from model.errors import BlockscopeError
from model.growth import checkpoint
from model.growth.arms import Arm, Fix, flat, folded, pair
from model.growth.corpus import Corpus
from model.growth.initial import initialised
from model.growth.probing import HeldOut, Probe, Snapshot, windows
from model.growth.qkclip import QKClip
from model.growth.recipe import Recipe
from model.growth.record import Record
from model.growth.version import code_version
from model.run import LM
from model.taps import recording
from model.tokens import byte_tokenizer, byte_tokenizer_json
from model.weights import WeightStore

LARGEST = 50_000_000  # parameters
FINISHED = "finished"


@dataclass(frozen=True, eq=False)
class Event:
    """`step` updates have been made of `total`. `train_loss`: of the last one's batch, nats per byte; NaN before the first
    and where it was not finite. `probe` and `snapshot`: where one was taken at this step."""

    step: int
    total: int
    train_loss: float
    probe: Probe | None = None
    snapshot: Snapshot | None = None


class Training:
    """Iterate over it: one Event before the first update and one after each. Between two of them it may rest for ever.

    `folder` keeps a checkpoint every `checkpoint_every` steps and at the end; a checkpoint found there is continued, with the
    numbers of a run that was never interrupted. The same seed, machine, thread count and torch give the same numbers.
    """

    def __init__(
        self, arm: Arm, corpus: Corpus, folder: str | Path | None = None, *, snapshots: Sequence[int] = (),
        checkpoint_every: int = 50,
    ):  # fmt: skip
        if (parameters := count_config(arm.config).parameters) > LARGEST:
            raise BlockscopeError(f"{arm.name} has {parameters:,} parameters; training here is for at most {LARGEST:,}")
        corpus.require(arm.recipe.context)
        self.arm, self.corpus, self.recipe, self.parameters = arm, corpus, arm.recipe, parameters
        self.folder, self.checkpoint_every = None if folder is None else Path(folder), checkpoint_every
        self.model = initialised(arm.config, self.recipe.seed, self.recipe.init)
        self.optimizer = adamw(self.model, self.recipe)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self.recipe.lr_factor)
        self.generator = torch.Generator().manual_seed(self.recipe.seed)  # of the batches: arms of one seed read the same
        self.qk_clip = QKClip(self.model, self.recipe.qk_clip) if self.recipe.qk_clip else None
        self.held_out, self.snapshot_steps = HeldOut(corpus, self.recipe), frozenset(snapshots)
        self.step, self.losses, self.seconds, self.ended = 0, [], 0.0, ""
        self.probes: list[Probe] = []
        self.snapshots: list[Snapshot] = []
        if self.folder is not None:
            checkpoint.restore(self, self.folder)

    def __iter__(self) -> Iterator[Event]:
        while not self.ended:
            yield self.advance()

    def advance(self) -> Event:
        """One update, or before the first one the state that the run starts from."""
        began, loss = time.perf_counter(), float("nan")
        if self.probes:
            loss = self._update()
            if not np.isfinite(loss):
                self.ended = f"not finite at step {self.step}"
        event = Event(self.step, self.recipe.steps, loss, self._probe(), self._snapshot())
        if self.step == self.recipe.steps and not self.ended:
            finite = np.isfinite(self.probes[-1].validation_loss)
            self.ended = FINISHED if finite else f"not finite at step {self.step}"
        self.seconds += time.perf_counter() - began
        if self.folder is not None and (self.ended or (self.step and self.step % self.checkpoint_every == 0)):
            checkpoint.keep(self, self.folder)
        return event

    def _update(self) -> float:
        """Forward, backward, step; the loss of the batch. Where that is not finite, nothing is changed."""
        r = self.recipe
        starts = torch.randint(len(self.corpus.train) - r.context - 1, (r.batch,), generator=self.generator)
        tokens = windows(self.corpus.train, starts, r.context + 1)
        with recording(self.qk_clip.recorder) if self.qk_clip else nullcontext():
            logits = self.model(tokens[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
        total = loss + r.z_loss * logits.logsumexp(-1).pow(2).mean() if r.z_loss else loss
        if not total.isfinite():
            return float("nan")
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()
        if r.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), r.clip)
        self.optimizer.step()
        self.schedule.step()
        if self.qk_clip:
            self.qk_clip.apply()
        self.step += 1
        self.losses.append(float(loss.detach()))
        return self.losses[-1]

    def _probe(self) -> Probe | None:
        due = self.recipe.probes(self.step) or self.ended
        if not due or (self.probes and self.probes[-1].step == self.step):
            return None
        mean = sum(self.losses) / len(self.losses) if self.losses else float("nan")
        self.losses.clear()
        self.probes.append(self.held_out.probe(self.model, self.step, mean))
        return self.probes[-1]

    def _snapshot(self) -> Snapshot | None:
        if self.step not in self.snapshot_steps or (self.snapshots and self.snapshots[-1].step >= self.step):
            return None
        self.snapshots.append(self.held_out.snapshot(self.model, self.step))
        return self.snapshots[-1]

    @property
    def state(self) -> dict[str, Tensor]:
        """A copy of every parameter by name."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def save(self, folder: str | Path, dtype: torch.dtype = torch.float32) -> None:
        """The weights as they are now as an ordinary Hugging Face folder; refused where no model_type describes the arm."""
        save_folder(folder, self.arm.config, {n: p.to(dtype) for n, p in self.state.items()}, byte_tokenizer_json())

    def lm(self, name: str = "") -> LM:
        """The model as it is now, for the other pages: its own copy of the weights."""
        state, name = self.state, name or f"{self.arm.name} after {self.step} steps"
        store = WeightStore(lambda parameter, shape: state[parameter], torch.device("cpu"), torch.float32)
        return LM(self.arm.config, store, name=name, source=name, tokenizer=byte_tokenizer())

    def record(self, *, name: str = "", group: str = "live", label: str = "", **more) -> Record:
        """What was measured until now; `more` joins the metadata."""
        meta = {"name": name or self.arm.name, "group": group, "label": label or self.arm.name, **describe(self), **more}
        return stacked(meta, self.probes, self.snapshots, self.held_out.shown)


def adamw(model: torch.nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Weight decay on matrices and embeddings only."""
    decay = recipe.weight_decay / (recipe.lr if recipe.decay == "independent" else 1)  # torch multiplies it by lr
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.lr, betas=recipe.betas, eps=recipe.eps)


def describe(training: Training) -> dict:
    """The metadata of a record: everything that decided the numbers, and how the run ended."""
    arm, corpus = training.arm, training.corpus
    try:
        config = {"config": config_values(arm.config)}
    except BlockscopeError:
        config = {}  # no model_type says it; `architecture` does
    return {
        "arm": arm.name, **config, "architecture": folded(flat(arm.config)), "recipe": arm.recipe.values(),
        "seed": arm.recipe.seed, "torch": torch.__version__, "python": platform.python_version(),
        "threads": torch.get_num_threads(), "code": code_version(), "parameters": training.parameters,
        "corpus": corpus.described(), "bytes_per_token": 1.0, "seconds": round(training.seconds, 2),
        "ended": training.ended or f"stopped at step {training.step}",
    }  # fmt: skip


def stacked(meta: dict, probes: Sequence[Probe], snapshots: Sequence[Snapshot], shown: Tensor) -> Record:
    """Probes one after another as the arrays of a record."""
    kept = {"patterns": np.stack([s.patterns for s in snapshots]), "snapshot_tokens": shown.numpy()} if snapshots else {}
    return Record(
        meta=meta, step=np.array([p.step for p in probes]), train_loss=np.array([p.train_loss for p in probes]),
        validation_loss=np.array([p.validation_loss for p in probes]), bound=np.stack([p.bound for p in probes]),
        values={name: np.stack([p.values[name] for p in probes]) for name in probes[0].values},
        snapshot_step=np.array([s.step for s in snapshots], np.int64), **kept,
    )  # fmt: skip


def interleave(trainings: Sequence[Training], chosen: Sequence[str | Fix]) -> Iterator[tuple[int, Event]]:
    """(which, Event): the arms step in turn, on the same batches; one that ended early leaves the others going.

    Refused where they read different texts or differ in more than `chosen` (model.growth.arms.pair).
    """
    first = trainings[0]
    for other in trainings[1:]:
        pair(first.arm, other.arm, chosen)
        if other.corpus.sha256 != first.corpus.sha256:
            raise BlockscopeError(f"{first.arm.name} and {other.arm.name} read different texts: give both the same")
    while running := [i for i, training in enumerate(trainings) if not training.ended]:
        for i in running:
            yield i, trainings[i].advance()
