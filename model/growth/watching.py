"""Where the q and k of any module can be seen while it runs: by the names of the parts that give them.

A watch is a context manager: inside it every attention hands its q and k to `look`; outside nothing is attached.
"""

import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.masks import Causal, Mask, Sliding

Look = Callable[..., None]  # look(name, q, k, **what `measure` must know, biased=): q [batch, pos, head, d_head], k alike


@dataclass(frozen=True)
class Everything(Mask):
    """Every key is visible to every query."""

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.ones(len(query), len(key), dtype=torch.bool, device=query.device)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Attention modules of a plain nn.Module, by the names of the parts whose outputs are q and k as they are multiplied.

    `q` and `k`: names in model.named_modules(), with * for what differs from layer to layer ("blocks.*.rope_q"); or `qkv`, one
    part that gives all three, one after another along the last axis. Outputs are [batch, pos, heads * d_head] or, of q and k,
    [batch, pos, heads, d_head]. `kv_heads` None: as many as `heads`. `scale` None: 1/sqrt(d_head).
    """

    heads: int
    q: str | None = None
    k: str | None = None
    qkv: str | None = None
    kv_heads: int | None = None
    scale: float | None = None
    causal: bool = True
    window: int | None = None
    cap: float | None = None

    def __post_init__(self):
        if (self.qkv is None) == (self.q is None or self.k is None) or (self.qkv and (self.q or self.k)):
            raise BlockscopeError("name either q and k, the parts that give queries and keys, or qkv, one part that gives both")
        if self.heads < 1 or self.heads % (self.kv_heads or self.heads):
            raise BlockscopeError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.window is not None and not self.causal:
            raise BlockscopeError("a window looks back from the query: it needs causal=True")

    @property
    def mask(self) -> Mask:
        return Sliding(window=self.window) if self.window is not None else Causal() if self.causal else Everything()

    def parts(self, model: nn.Module) -> list[tuple[str, nn.Module, nn.Module | None]]:
        """(name, module of q or of q, k and v, module of k or None) of each layer, in the order of the model's modules."""
        if self.qkv is not None:
            return [(name, part, None) for name, part in _named(model, self.qkv)]
        q, k = _named(model, self.q), _named(model, self.k)
        if len(q) != len(k):
            raise BlockscopeError(
                f"{self.q!r} names {len(q)} modules and {self.k!r} names {len(k)}: each layer has one of both"
            )
        return [(name, one, other) for (name, one), (_, other) in zip(q, k, strict=True)]


def _named(model: nn.Module, pattern: str) -> list[tuple[str, nn.Module]]:
    found = [(name, part) for name, part in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
    found = [(name, part) for name, part in found if name.count(".") == pattern.count(".")]
    if not found:
        raise BlockscopeError(f"{pattern!r} names no module of this {type(model).__name__}; see model.named_modules()")
    return found


@contextmanager
def modules(model: nn.Module, heads: Heads, look: Look) -> Iterator[None]:
    """Forward hooks on the parts that `heads` names, for as long as this is open."""
    handles, waiting = [], {}

    def ready(name: str, q: Tensor, k: Tensor) -> None:
        scale = q.shape[-1] ** -0.5 if heads.scale is None else heads.scale
        look(name, q, k, mask=heads.mask, scale=scale, cap=heads.cap)

    def joint(name: str, part: nn.Module, inputs: Any, output: Tensor) -> None:
        kv = heads.kv_heads or heads.heads
        d_head = _tensor(name, output).shape[-1] // (heads.heads + 2 * kv)
        if output.ndim != 3 or output.shape[-1] != d_head * (heads.heads + 2 * kv):
            raise BlockscopeError(
                f"{name} gives {list(output.shape)}: expected [batch, pos, ({heads.heads} + 2 * {kv}) * d_head]"
            )
        q, k, _ = output.split([heads.heads * d_head, kv * d_head, kv * d_head], dim=-1)
        ready(name, q.unflatten(-1, (heads.heads, d_head)), k.unflatten(-1, (kv, d_head)))

    def single(which: int, name: str, part: nn.Module, inputs: Any, output: Tensor) -> None:
        count = heads.heads if which == 0 else heads.kv_heads or heads.heads
        waiting.setdefault(name, {})[which] = _split(name, _tensor(name, output), count)
        if len(waiting[name]) == 2:
            both = waiting.pop(name)
            ready(name, both[0], both[1])

    try:
        for name, one, other in heads.parts(model):
            if other is None:
                handles.append(one.register_forward_hook(partial(joint, name)))
            else:
                handles.append(one.register_forward_hook(partial(single, 0, name)))
                handles.append(other.register_forward_hook(partial(single, 1, name)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensor(name: str, output: Any) -> Tensor:
    if not isinstance(output, Tensor):
        raise BlockscopeError(f"{name} gives {type(output).__name__}: name a part whose output is one tensor")
    return output


def _split(name: str, x: Tensor, heads: int) -> Tensor:
    """-> [batch, pos, head, d_head]."""
    if x.ndim == 4 and x.shape[2] == heads:
        return x
    if x.ndim == 3 and x.shape[2] % heads == 0:
        return x.unflatten(-1, (heads, -1))
    raise BlockscopeError(
        f"{name} gives {list(x.shape)}: expected [batch, pos, {heads} * d_head] or [batch, pos, {heads}, d_head]"
    )
