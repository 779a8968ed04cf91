"""QK-clip, simplified (Kimi K2, Moonshot AI 2025, arXiv 2507.20534): W_q and W_k are scaled back where logits grew too large.

gamma = min(1, tau / largest |logit| of the head in the last batch);  W_q <- sqrt(gamma) W_q;  W_k <- sqrt(gamma) W_k

The logits are those of the batch before the update, one step late. Heads that share a key head are scaled with the smallest
gamma of the group on the key's side, so that a sibling is scaled too.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from model.attention import Attention
from model.errors import BlockscopeError
from model.lm import Decoder
from model.taps import Recorder, Tile


class QKClip:
    """Watches the logits of a training pass (`recorder`), then scales the weights (`apply`)."""

    def __init__(self, model: Decoder, tau: float):
        self.tau, self.attentions = tau, [block.attn for block in model.blocks]
        for i, attn in enumerate(self.attentions):
            if not isinstance(attn, Attention):
                raise BlockscopeError(
                    f"QK-clip scales W_q and W_k, which the latent attention of layer {i} has not: leave it off"
                )
            if attn.config.q_norm is not None or attn.config.k_norm is not None:
                raise BlockscopeError(
                    f"QK-clip scales W_q and W_k, which the QK-norm of layer {i} undoes: choose one of the two"
                )
        self.largest: list[Tensor | None] = [None] * len(self.attentions)
        self.recorder = Recorder({attn.hook_logits: [self._watcher(i)] for i, attn in enumerate(self.attentions)})

    def _watcher(self, layer: int) -> Callable[[Tensor, Tile], None]:
        def watch(logits: Tensor, tile: Tile) -> None:
            found = logits.detach().masked_fill(~tile.visible, 0).abs().amax((0, 2, 3))
            before = self.largest[layer]
            self.largest[layer] = found if before is None else torch.maximum(before, found)

        return watch

    @torch.no_grad()
    def apply(self) -> None:
        for layer, attn in enumerate(self.attentions):
            gamma = (self.tau / self.largest[layer]).clamp(max=1.0)  # [head]
            kv = gamma.unflatten(0, (attn.config.n_kv_heads, -1)).amin(1)
            for linear, factor in ((attn.q_proj, gamma), (attn.k_proj, kv)):
                rows = factor.sqrt().repeat_interleave(attn.config.d_head)
                linear.weight.mul_(rows[:, None])
                if linear.bias is not None:
                    linear.bias.mul_(rows)
            self.largest[layer] = None
