"""What a run needs to go on as if it had never stopped: weights, optimiser, the batches' random state, what was measured.

A checkpoint is an ordinary Hugging Face folder (where a model_type describes the architecture) with a folder `training` in it:
`record.safetensors`, the run so far, and `state.safetensors`, written last and whole, from which the run continues.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from model.checkpoints.fields import parse_json, shown
from model.checkpoints.header import read_header
from model.errors import BlockscopeError
from model.growth.arms import flat, recorded_differences
from model.growth.probing import Probe, Snapshot
from model.growth.record import Record

if TYPE_CHECKING:
    from model.growth.train import Training

FORMAT = "1"
STATE, RECORD = Path("training") / "state.safetensors", Path("training") / "record.safetensors"


def keep(training: "Training", folder: Path) -> None:
    """Write the checkpoint of this step. A kill at any moment leaves the one before, or this one."""
    (folder / STATE).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(BlockscopeError):  # no model_type describes this arm: its weights are in the state
        training.save(folder)
    training.record().write(folder / RECORD)
    facts = {"step": training.step, "seconds": training.seconds, "ended": training.ended, "losses": training.losses}
    part = (folder / STATE).with_suffix(".part")
    part.write_bytes(save(_tensors(training), metadata={"blockscope_training": FORMAT, "facts": json.dumps(facts)}))
    os.replace(part, folder / STATE)


def restore(training: "Training", folder: Path) -> None:
    """Continue from the checkpoint in `folder`, if there is one; refused where it is of another run, or damaged."""
    path = folder / STATE
    if not path.exists():
        return
    facts, tensors = _read(path, _tensors(training, shapes_only=True))
    record = Record.read(folder / RECORD)
    if differ := recorded_differences(record.meta, _identity(training)):
        raise BlockscopeError(
            f"{folder.name} holds a checkpoint of another run ({'; '.join(differ[:3])}): choose another folder, or remove it"
        )
    _go_on(training, facts, tensors, record)


def _identity(training: "Training") -> dict:
    """The part of a record's metadata that says which run it is."""
    corpus = {"sha256": training.corpus.sha256}
    return {"architecture": flat(training.arm.config), "recipe": training.recipe.values(), "corpus": corpus}


def _tensors(training: "Training", shapes_only: bool = False) -> dict[str, Tensor]:
    """Everything by name; AdamW's state is empty before the first update and then has three tensors a parameter."""
    found = {f"model.{name}": p.detach() for name, p in training.model.named_parameters()}
    found["batches"] = training.generator.get_state()
    if shapes_only:
        one = torch.zeros(())
        parameters = [p for group in training.optimizer.param_groups for p in group["params"]]
        state = {i: {"step": one, "exp_avg": p.detach(), "exp_avg_sq": p.detach()} for i, p in enumerate(parameters)}
    else:
        state = training.optimizer.state_dict()["state"]
    found |= {f"optimizer.{i}.{key}": value for i, values in state.items() for key, value in values.items()}
    return {name: tensor if shapes_only else tensor.contiguous().clone() for name, tensor in found.items()}


def _read(path: Path, expected: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
    """Facts and tensors of a state file, each tensor of the shape that this run's own has."""
    again = "remove the folder to start anew"
    entries = read_header(path)
    for name, entry in entries.items():
        if name not in expected or entry.shape != tuple(expected[name].shape):
            raise BlockscopeError(f"{path.name} holds {shown(name)} of shape {list(entry.shape)}, not of this run: {again}")
    parts = {name.rpartition(".")[0] for name in entries}  # a parameter that never had a gradient has no optimiser state
    if missing := [
        name for name in expected if name not in entries and (name[:9] != "optimizer" or name.rpartition(".")[0] in parts)
    ]:
        raise BlockscopeError(f"{path.name} lacks {missing[0]}: {again}")
    try:
        with safe_open(path, framework="pt") as file:
            meta = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in entries}
    except (SafetensorError, OSError) as error:
        raise BlockscopeError(f"{path.name} cannot be read ({shown(str(error))}): {again}") from None
    if wrong := [name for name, tensor in tensors.items() if tensor.dtype != expected[name].dtype]:
        raise BlockscopeError(f"{path.name} stores {wrong[0]} as {tensors[wrong[0]].dtype}: {again}")
    if meta.get("blockscope_training") != FORMAT:
        raise BlockscopeError(f"{path.name} is not a checkpoint of format {FORMAT}: {again}")
    match facts := parse_json(meta.get("facts", "").encode(), path.name, again):
        case {"step": int(step), "seconds": int() | float(), "ended": str(), "losses": list(losses)} if step > 0 and all(
            isinstance(loss, float) for loss in losses
        ):
            return facts, tensors
    raise BlockscopeError(f"{path.name} is damaged: {again}")


def _go_on(training: "Training", facts: dict, tensors: dict[str, Tensor], record: Record) -> None:
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            parameter.copy_(tensors[f"model.{name}"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, i, key = name.split(".")
            state.setdefault(int(i), {})[key] = tensor
    training.optimizer.load_state_dict({"state": state, "param_groups": training.optimizer.state_dict()["param_groups"]})
    training.step, training.seconds = facts["step"], facts["seconds"]
    training.ended, training.losses = facts["ended"], list(facts["losses"])
    training.schedule = torch.optim.lr_scheduler.LambdaLR(  # which sets the learning rate of this step
        training.optimizer, training.recipe.lr_factor, last_epoch=training.step - 1
    )
    training.generator.set_state(tensors["batches"])
    training.probes, training.snapshots = _until(training.step, record)


def _until(step: int, record: Record) -> tuple[list[Probe], list[Snapshot]]:
    """The measurements up to a step: the record may be one checkpoint ahead of a state that was not written any more."""
    probes = [
        Probe(int(at), float(record.train_loss[i]), float(record.validation_loss[i]),
              {name: value[i] for name, value in record.values.items()}, record.bound[i])
        for i, at in enumerate(record.step) if at <= step
    ]  # fmt: skip
    snapshots = [Snapshot(int(at), record.patterns[i]) for i, at in enumerate(record.snapshot_step) if at <= step]
    return probes, snapshots
