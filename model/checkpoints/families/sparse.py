"""What the families with experts share: how many, which layers, fields that only training reads, and layouts on disk."""

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.families.common import size, spelled
from model.checkpoints.families.llama import NAMES
from model.checkpoints.fields import Fields, shown
from model.checkpoints.recipes import Either, Part, Recipe, Stack
from model.lm import Decoder
from model.mlp import MLPConfig
from model.moe import MoE

# losses and noise of training, and how a cluster split the experts
TRAINING = frozenset({"aux_loss_alpha", "ep_size", "router_aux_loss_coef", "router_jitter_noise", "seq_aux"})
ALL_BUT_MLP = {name: recipe for name, recipe in NAMES.items() if ".mlp." not in name}


def experts(fields: Fields, *names: str, absent: int) -> int:
    """How many experts there are; the first of `names` that the file has."""
    fields.asked |= TRAINING
    return size(fields, spelled(fields, *names), absent)


def topk(fields: Fields, n_experts: int, absent: int | None, *names: str) -> int:
    """How many experts a token is fed to."""
    name = spelled(fields, "num_experts_per_tok", *names)
    chosen = size(fields, name, absent)
    if chosen > n_experts:
        raise fields.fail(f"{name} is {chosen} but there are {n_experts} experts")
    return chosen


def layer_list(fields: Fields, name: str, layers: int) -> list[int] | None:
    """A field that lists layers, counted from 0; None where it is absent or null."""
    listed = fields.raw(name)
    if listed is None:
        return None
    whole = isinstance(listed, list) and all(type(i) is int for i in listed)
    if not whole or any(not 0 <= i < layers for i in listed):
        raise fields.fail(f"{name} is {shown(listed)}; expected a list of layers from 0 to {layers - 1}")
    return listed


def with_mlps(dense: Decoder.Config, mlps: list[MLPConfig | MoE.Config]) -> Decoder.Config:
    """The same model with these in place of its MLPs; equal blocks stay one object."""
    made: dict[tuple, object] = {}
    pairs = list(zip(dense.blocks, mlps, strict=True))
    for block, mlp in pairs:
        made.setdefault((block, mlp), replace(block, mlp=mlp))
    return replace(dense, blocks=tuple(made[pair] for pair in pairs))


def matrices(
    each: str, fused: str, gate: str = "gate_proj", up: str = "up_proj", down: str = "down_proj"
) -> Mapping[str, Recipe]:
    """One matrix for each expert, as files have them, or two fused ones with gate above up, as transformers 5 has them."""
    ours, both = "blocks.{i}.mlp.experts", f"{fused}.gate_up_proj"
    return {
        f"{ours}.gate_proj": Either(Stack(f"{each}.{{e}}.{gate}.weight"), Part(both, 0, 2, axis=-2)),
        f"{ours}.up_proj": Either(Stack(f"{each}.{{e}}.{up}.weight"), Part(both, 1, 2, axis=-2)),
        f"{ours}.down_proj": Either(Stack(f"{each}.{{e}}.{down}.weight"), f"{fused}.down_proj"),
    }
