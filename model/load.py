"""Opening a model: its files, wherever they are, or a preset name with random weights."""

import os
from functools import partial
from pathlib import Path

import torch

from model.checkpoints import open_checkpoint
from model.checkpoints.downloads import Told
from model.checkpoints.hub import is_id
from model.errors import BlockscopeError
from model.lm import Decoder
from model.memory import Bound, settle
from model.placement import Homes
from model.presets import PRESETS, meant
from model.run import LM
from model.tokens import Tokenizer, byte_tokenizer_json
from model.weights import WeightStore, seeded

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def pick_devices(device: str | torch.device = "auto") -> tuple[torch.device, ...]:
    """ "auto": every CUDA device, else Apple's GPU, else the CPU; several are named with commas. One that is not there is an
    error."""
    if str(device) != "auto":
        return tuple(_there(name) for name in (device.split(",") if isinstance(device, str) else [device]))
    if torch.cuda.is_available():
        return tuple(torch.device("cuda", i) for i in range(torch.cuda.device_count()))
    return (torch.device("mps" if torch.backends.mps.is_available() else "cpu"),)


def _there(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(1, device=device.strip() if isinstance(device, str) else device).device
    except (RuntimeError, AssertionError) as error:
        raise BlockscopeError(f"device {str(device)[:40]!r} cannot be used here: {str(error).splitlines()[0]}") from None


def pick_dtype(dtype: str | torch.dtype | None, device: torch.device, stored: torch.dtype) -> torch.dtype:
    """None: fp32 on a CPU, elsewhere the dtype that the weights are stored in."""
    if dtype is None:
        return torch.float32 if device.type == "cpu" else stored
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype in DTYPES.values():
        return dtype
    raise BlockscopeError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")


def load(
    source: str | Path, device: str | torch.device = "auto", dtype: str | torch.dtype | None = None, seed: int = 0,
    memory: int | str | None = None, progress: Told | None = None,
) -> LM:  # fmt: skip
    """A model, whose weights are read when a layer is first needed, or a preset with random weights by `seed`.

    A model is a Hugging Face folder, a .safetensors file beside its config.json, a GGUF file, Meta's original folder, or,
    where nothing here has that name, an id of the Hugging Face hub: org/name, org/name@revision, org/name/file.gguf.

    `progress`: called with (file, bytes done, bytes in all) while a model of the hub is downloaded; an error that it raises
    ends the download and is raised here.
    `device`: "auto", one such as "cuda:1" or "cpu", or several, "cuda:0,cuda:1": every block then lives on one of them, by
    size, and the residual stream goes from one to the next. "auto" takes more than the first where that one is too small.
    `memory`: bytes of weights that stay in memory, such as "4GB"; a larger model streams through. None: half of what is free.
    """
    devices, spread = pick_devices(device), str(device) != "auto"
    if str(source) in PRESETS:
        config, dtype = PRESETS[str(source)], pick_dtype(dtype, devices[0], torch.bfloat16)
        return _random(str(source), config, dtype, seed, *settle(memory, config, devices, dtype, spread))
    require(source)
    checkpoint = open_checkpoint(os.path.expanduser(source), progress)
    tensors = checkpoint.tensors
    dtype = pick_dtype(dtype, devices[0], tensors.dtype("embed.weight"))
    homes, limit = settle(memory, checkpoint.config, devices, dtype, spread)
    read, intact = lambda name, shape: tensors.read(name), tensors.intact
    return LM(
        checkpoint.config, WeightStore(read, devices[0], dtype, bound=limit, homes=homes, intact=intact),
        name=checkpoint.name, source=str(source), tokenizer=checkpoint.tokenizer, report=checkpoint.report,
    )  # fmt: skip


def require(source: str | Path) -> None:
    """Refuse a source that names nothing: no preset, nothing on disk, and no id of the hub."""
    here = os.path.lexists(os.path.expanduser(source))  # False for what cannot be a path
    if str(source) not in PRESETS and not here and not (isinstance(source, str) and is_id(source)):
        shown = repr(str(source)[:200])
        if any(mark in str(source) for mark in (os.sep, "~", "\0")):
            raise BlockscopeError(f"{shown} is not here: there is no such folder or file; check the path")
        raise BlockscopeError(f"{shown} is neither a model here nor a preset; {meant(str(source))}")


def _random(
    name: str, config: Decoder.Config, dtype: torch.dtype, seed: int, homes: Homes, limit: Bound | None
) -> LM:  # fmt: skip
    residual_scale = (2 * config.n_layers) ** -0.5
    source = partial(seeded, seed=seed, residual_scale=residual_scale)
    store = WeightStore(source, homes.devices[0], dtype, bound=limit, homes=homes)
    report = [f"random weights, seed {seed}: nothing here was trained", "tokens are bytes: a preset has no tokenizer"]
    return LM(config, store, name=name, source=name, tokenizer=Tokenizer.from_json(byte_tokenizer_json()), report=report)
