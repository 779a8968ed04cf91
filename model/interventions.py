"""Interventions: a tensor changed on its way through a run, by the recorder that also listens.

An Edit names a tap, what is done there, to which entry, and by how much. EDITS says which tap each kind of edit acts on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from model.errors import BlockscopeError
from model.taps import Editor, Tap, Tile

EVERY = -1


@dataclass(frozen=True)
class Edit:
    """`index` of the head, neuron, dimension or position that is edited, -1 every one; `factor` 0 switches it off."""

    tap: str
    what: str
    index: int = EVERY
    factor: float = 0.0


Donor = Callable[[], Tensor]  # the other side's tensor at the same tap, whole


@dataclass(frozen=True)
class Kind:
    """`leaf`: the tap of a block that it acts on ("" = any); `axis`: what the index counts; `apply(x, part, factor, donor)`."""

    title: str
    leaf: str
    axis: str
    apply: Callable[[Tensor, Tensor, float, Tensor | None], Tensor]


def _scale(x: Tensor, chosen: Tensor, factor: float, _: Tensor | None) -> Tensor:
    return torch.where(chosen, x * factor, x)


def _freeze(x: Tensor, chosen: Tensor, factor: float, _: Tensor | None) -> Tensor:
    """Every token gets the mean over tokens, times (1 - factor) of what it had on its own."""
    mean = x.float().mean(1, keepdim=True).to(x.dtype)
    return torch.where(chosen, mean + factor * (x - mean), x)


def _patch(x: Tensor, chosen: Tensor, factor: float, donor: Tensor | None) -> Tensor:
    """The other side's tensor; a factor between 0 and 1 leaves that share of this side's own."""
    given = donor.to(x.device, x.dtype)
    return torch.where(chosen, given if factor == 0 else given + factor * (x - given), x)


EDITS: dict[str, Kind] = {
    "head": Kind("scale a head", "attn.hook_z", "head", _scale),
    "kv_head": Kind("scale a KV head's values", "attn.hook_v", "kv_head", _scale),
    "neuron": Kind("scale a neuron", "mlp.hook_post", "d_mlp", _scale),
    "gain1": Kind("scale a gain of ln1", "ln1.hook_normalized", "d_model", _scale),
    "gain2": Kind("scale a gain of ln2", "ln2.hook_normalized", "d_model", _scale),
    "gate": Kind("freeze the gate at its mean over tokens", "mlp.hook_act", "d_mlp", _freeze),
    "patch": Kind("patch in A's tensor", "", "pos", _patch),
}


def edit_at(what: str, layer: int, index: int = EVERY, factor: float = 0.0, leaf: str = "") -> Edit:
    """An edit of one block, at the tap that its kind acts on; a patch names its own `leaf`."""
    if what not in EDITS:
        raise BlockscopeError(f"there is no intervention {what!r}; there are {', '.join(EDITS)}")
    return Edit(f"blocks.{layer}.{EDITS[what].leaf or leaf}", what, index, factor)


def editor(edit: Edit, tap: Tap, donor: Donor | None = None) -> Editor:
    """What a Recorder calls at `tap`. Raises BlockscopeError where the entry does not exist or nothing can be patched in."""
    if edit.what not in EDITS:
        raise BlockscopeError(f"there is no intervention {edit.what!r}; there are {', '.join(EDITS)}")
    kind = EDITS[edit.what]
    if edit.what == "patch" and donor is None:
        raise BlockscopeError(f"{edit.tap}: A is what is patched in, so A itself cannot be patched")
    axes = [axis for axis in (kind.axis, "query_pos", "key_pos") if axis in tap.dims]
    if not axes and edit.index != EVERY:
        raise BlockscopeError(f"{edit.tap} has axes {' '.join(tap.dims)} and no {kind.axis} to choose")

    def act(x: Tensor, tile: Tile | None) -> Tensor:
        given = None
        if edit.what == "patch":
            given = donor()
            if tile is not None:
                given = given.narrow(tap.dims.index("query_pos"), tile.rows.start, tile.rows.stop - tile.rows.start)
            if given.shape != x.shape:
                raise BlockscopeError(f"{edit.tap} is {list(given.shape)} in A and {list(x.shape)} here: it cannot be patched")
        chosen = torch.ones((), dtype=torch.bool, device=x.device)
        if edit.index != EVERY:
            at = tap.dims.index(axes[0])
            start, total = (tile.rows.start, tile.total) if tile is not None and axes[0] == "query_pos" else (0, x.shape[at])
            if not 0 <= edit.index < total:
                raise BlockscopeError(f"{edit.tap}: {axes[0]} {edit.index} is outside 0..{total - 1}")
            wanted = torch.arange(start, start + x.shape[at], device=x.device) == edit.index
            chosen = wanted.reshape([-1 if i == at else 1 for i in range(x.ndim)])
        return kind.apply(x, chosen, edit.factor, given)

    return act


def editors(edits: Mapping[Tap, list[Editor]]) -> dict[Tap, Editor]:
    """Several edits of one tap, one after the other."""

    def chain(acts: list[Editor]) -> Editor:
        def act(x: Tensor, tile: Tile | None) -> Tensor:
            for one in acts:
                x = one(x, tile)
            return x

        return act

    return {tap: chain(acts) for tap, acts in edits.items()}
