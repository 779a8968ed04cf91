"""Where parameters get their values: random ones from their own names, or a checkpoint, read when first needed.

A module tree is built on the meta device, which allocates nothing; `WeightStore.ready(module)` fills one part of it.
Every model that shares a store shares its tensors, so a variant of a model costs only what it adds.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

NO_ALIAS: Mapping[str, str] = MappingProxyType({})

IN_FP32 = ".mlp.correction"  # a choice of experts hangs on differences that 16 bits cannot hold

Source = Callable[[str, tuple[int, ...]], Tensor]  # (parameter name, shape) -> its value on the CPU


def seeded(name: str, shape: tuple[int, ...], seed: int = 0, residual_scale: float = 1.0) -> Tensor:
    """The random initial value of the parameter `name`, fp32, a function of name, shape and seed alone.

    Gains are 1, biases and sinks 0; embeddings are N(0, 1); matrices are a normal of std 1/sqrt(fan_in) truncated at two std,
    times `residual_scale` where they write into the residual stream (GPT-2's 1/sqrt(2 layers)).
    """
    leaf = name.rsplit(".", 1)[-1]
    if len(shape) == 1 or leaf.endswith("bias"):  # an offset norm's gain is 1 + offset
        return torch.ones(shape) if leaf == "weight" and ".softmax." not in name else torch.zeros(shape)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    if name in ("embed.weight", "positions.weight"):
        return torch.randn(shape, generator=generator)
    std = 1 / math.sqrt(shape[-1])
    if name.endswith(("o_proj.weight", "down_proj.weight", "experts.down_proj")):
        std *= residual_scale
    return nn.init.trunc_normal_(torch.empty(shape), std=std, a=-2 * std, b=2 * std, generator=generator)


class WeightStore:
    """Tensors by parameter name, made by `source` on first use, placed on one device in one dtype, and kept."""

    def __init__(
        self, source: Source, device: torch.device, dtype: torch.dtype,
        parent: "WeightStore | None" = None, invented: frozenset[str] = frozenset(),
    ):  # fmt: skip
        self.source, self.device, self.dtype, self.parent, self.invented = source, device, dtype, parent, invented
        self._kept: dict[tuple[str, tuple[int, ...]], nn.Parameter] = {}
        self._lock = threading.RLock()

    def get(self, name: str, shape: tuple[int, ...]) -> nn.Parameter:
        if self.parent is not None and name not in self.invented:
            return self.parent.get(name, shape)
        with self._lock:
            if (name, shape) not in self._kept:
                dtype = torch.float32 if name.endswith(IN_FP32) else self.dtype
                value = self.source(name, shape).to(self.device, dtype)
                self._kept[name, shape] = nn.Parameter(value, requires_grad=False)
            return self._kept[name, shape]

    def ready(self, module: nn.Module, prefix: str, alias: Mapping[str, str] = NO_ALIAS) -> nn.Module:
        """Fill every parameter below `module`, whose path in the model is `prefix`, that still lies on the meta device.

        `alias`: parameters that are another one under a second name (a tied unembedding).
        """
        with self._lock:
            for path, part in module.named_modules(prefix=prefix):
                for leaf, parameter in part._parameters.items():
                    if parameter is not None and parameter.is_meta:
                        name = f"{path}.{leaf}"
                        part._parameters[leaf] = self.get(alias.get(name, name), tuple(parameter.shape))
        return module

    def derive(self, invented: Collection[str], source: Source = seeded) -> "WeightStore":
        """A store that reads through this one, except that the names `invented` are its own, drawn by `source`."""
        return WeightStore(source, self.device, self.dtype, self, frozenset(invented))
