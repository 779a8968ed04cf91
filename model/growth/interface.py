"""Where the q and k of transformers' models can be seen while they run: at the function that every attention looks up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from model.errors import BlockscopeError
from model.growth.watching import Everything, Look
from model.masks import Causal, Sliding


@contextmanager
def transformers(model: nn.Module, look: Look) -> Iterator[None]:
    """Stand between every attention of a transformers model and the function that it calls with q and k, while this is open.

    Each looks its function up in AttentionInterface at every call, with itself as first argument: whatever it would have
    called (its own, sdpa, flash) is called with the same arguments after q and k were looked at.
    """
    from transformers import AttentionInterface

    if not hasattr(AttentionInterface, "get_interface"):
        raise BlockscopeError("this version of transformers is too old to be watched: install transformers 5 or name q and k")
    names = {part: name for name, part in model.named_modules()}
    before, watching = AttentionInterface.get_interface, True

    def get_interface(interface: Any, implementation: str, default: Callable) -> Callable:
        function = before(interface, implementation, default)

        def seen(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, *args, **kwargs):
            if watching and module in names:
                known = _asked(module, query, key, attention_mask, implementation or "eager", kwargs)
                look(names[module], query.transpose(1, 2), key.transpose(1, 2), **known)
            return function(module, query, key, value, attention_mask, *args, **kwargs)

        return seen if watching else function

    AttentionInterface.get_interface = get_interface
    try:
        yield
    finally:
        watching = False  # should another watch still stand on this one, it stays there and does nothing
        if AttentionInterface.get_interface is get_interface:
            AttentionInterface.get_interface = before


def _asked(module: nn.Module, q: Tensor, k: Tensor, mask: Any, implementation: str, known: dict) -> dict:
    """What a transformers attention function is told -> what `measure` must know; q, k [batch, head, pos, d_head]."""
    visible, biased = visible_keys(module, q.shape[2], mask, implementation, known)
    scale, sink = known.get("scaling"), known.get("s_aux", known.get("sinks"))
    return {
        "mask": visible,
        "scale": q.shape[-1] ** -0.5 if scale is None else float(scale),
        "cap": known.get("softcap"),
        "sink": sink.flatten() if isinstance(sink, Tensor) else None,
        "biased": biased or known.get("position_bias") is not None,
        "positions": None if "flash" in implementation else torch.arange(q.shape[2], device=q.device),
    }


def visible_keys(module: nn.Module, rows: int, mask: Any, implementation: str, known: dict) -> tuple[Callable, bool]:
    """What each query row may see, as `measure` asks it, and whether the mask also adds something to visible logits.

    transformers gives a square [batch, 1 or head, query_pos, key_pos] (bool: visible; float: added) or none at all: then a
    causal module hides later keys, except from a single query. Flash attention gets the padding [batch, key_pos] alone.
    """
    if isinstance(mask, Tensor) and mask.ndim == 4:
        if mask.dtype == torch.bool:
            return lambda query, key: mask[:, :, query][..., key], False
        hidden = torch.finfo(mask.dtype).min / 2
        return lambda query, key: (mask > hidden)[:, :, query][..., key], bool((mask.masked_fill(mask <= hidden, 0) != 0).any())
    causal = known.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if "flash" in implementation:
        window = known.get("sliding_window")
        plain = Everything() if not causal else Causal() if window is None else Sliding(window=window)
        if mask is None:
            return plain, False
        if isinstance(mask, Tensor) and mask.ndim == 2:
            return lambda query, key: plain(query, key) & mask.bool()[:, None, None, key], False
    if mask is None:
        return Causal() if causal and rows > 1 and implementation != "eager" else Everything(), False
    raise BlockscopeError(
        f"{type(module).__name__} runs as {implementation} with a mask that cannot be read here ({type(mask).__name__}): "
        'load the model with attn_implementation="sdpa" or "eager"'
    )
