"""Models that the tests of LogitMonitor watch, and a plain loop that trains them."""

import torch
import torch.nn.functional as F
from designs import design_json
from reference import CASES, build, config_json, prompt
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.growth import LogitMonitor

IDS = prompt()


CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def model_of(case: str, **changes):
    values = config_json(case) if case in CASES else design_json(case)
    return build(values | changes)


def train(model, steps: int, autocast: bool = False, backward=True, watch: LogitMonitor | None = None) -> list[float]:
    """Plain SGD on one text; returns the losses."""
    tokens, losses = torch.tensor([IDS]), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(tokens, labels=tokens).loss
        losses.append(float(loss.detach()))
        if watch is not None:
            watch.loss(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


def trainable(case: str = "llama", **changes):
    return model_of(case, **changes).train()


class Turned(nn.Module):
    """A stand-in for whatever is done to q and k after their projection."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.linspace(0.5, 2, x.shape[1])[None, :, None, None]


class Plain(nn.Module):
    """nanoGPT's shape: a fused qkv, or q and k of their own that are turned; grouped heads; optionally checkpointed."""

    def __init__(self, fused: bool, heads: int = 4, kv: int = 4, d_head: int = 6, layers: int = 2, checkpointed: bool = False):
        super().__init__()
        torch.manual_seed(0)
        d = heads * d_head
        self.heads, self.kv, self.d_head, self.fused, self.checkpointed = heads, kv, d_head, fused, checkpointed
        self.embed = nn.Embedding(50, d)
        make = lambda: nn.ModuleDict(  # noqa: E731
            {"c_attn": nn.Linear(d, d + 2 * kv * d_head), "q": nn.Linear(d, d), "k": nn.Linear(d, kv * d_head), "v": nn.Linear(d, kv * d_head),
             "turn_q": Turned(), "turn_k": Turned(), "out": nn.Linear(d, d)}
        )  # fmt: skip
        self.blocks = nn.ModuleList(make() for _ in range(layers))
        self.seen: list[tuple[Tensor, Tensor]] = []

    def attend(self, x: Tensor, block: nn.ModuleDict) -> Tensor:
        if self.fused:
            q, k, v = block["c_attn"](x).split([self.heads * self.d_head, self.kv * self.d_head, self.kv * self.d_head], -1)
            q, k, v = (t.unflatten(-1, (-1, self.d_head)) for t in (q, k, v))
        else:
            q, k = (block[f"turn_{n}"](block[n](x).unflatten(-1, (-1, self.d_head))) for n in "qk")
            v = block["v"](x).unflatten(-1, (-1, self.d_head))
        self.seen.append((q.detach(), k.detach()))
        z = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True, enable_gqa=True)
        return x + block["out"](z.transpose(1, 2).flatten(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(self.attend, x, block, use_reentrant=False) if self.checkpointed else self.attend(x, block)
        return x
