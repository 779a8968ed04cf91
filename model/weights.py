"""Where parameters get their values: random ones from their own names, or a checkpoint, read when first needed.

A module tree is built on the meta device, which allocates nothing; `WeightStore.ready(module)` gives one part of it filled.
Every model that shares a store shares its tensors, so a variant of a model costs only what it adds. A store may be bounded:
then a model of any size runs, a block at a time.
"""

import copy
import hashlib
import math
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from model.buffers import Buffers
from model.halting import check
from model.lane import Lane, lane
from model.memory import Bound
from model.pages import drop, fetch, mapped
from model.placement import Homes
from model.taps import Tap

NO_ALIAS: Mapping[str, str] = MappingProxyType({})
NOTHING: Mapping[str, nn.Parameter] = MappingProxyType({})

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
    """Tensors by parameter name, made by `source` on first use, placed on their device in one dtype, and kept.

    With a `bound` those that were used last are kept, as many as it allows; what went is read again when it is needed. A module
    that is in use keeps its weights for as long as somebody holds it.
    """

    def __init__(
        self, source: Source, device: torch.device, dtype: torch.dtype, parent: "WeightStore | None" = None,
        invented: frozenset[str] = frozenset(), bound: Bound | None = None, homes: Homes | None = None,
        intact: Callable[[], None] = lambda: None,
    ):  # fmt: skip
        self.source, self.device, self.dtype, self.parent, self.invented = source, device, dtype, parent, invented
        self.bound = bound
        self.intact, self.borrows = intact, False  # weights used where they lie in a file, which `intact` says is as it was
        self.homes = parent.homes if parent else homes or Homes((device,))
        self.lanes = parent.lanes if parent else {d: lane(d, Buffers(bound.block if bound else 0)) for d in self.homes.devices}
        self.nbytes = 0  # of the weights kept
        self._kept: OrderedDict[tuple[str, tuple[int, ...]], nn.Parameter] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, name: str, shape: tuple[int, ...], value: Tensor | None = None) -> nn.Parameter:
        """The parameter; `value` is what the source gives for it, where that was asked already."""
        if self.parent is not None and name not in self.invented:
            return self.parent.get(name, shape, value)
        with self._lock:
            if (name, shape) not in self._kept:
                dtype = torch.float32 if name.endswith(IN_FP32) else self.dtype
                self._make_room(dtype.itemsize * math.prod(shape))
                found = self.source(name, shape) if value is None else value
                value = self.lane_of(name).send(found, dtype)
                self.borrows = self.borrows or value.data_ptr() == found.data_ptr()
                self._kept[name, shape] = parameter = nn.Parameter(value, requires_grad=False)
                self.nbytes += value.nbytes
                if self.bound is not None and mapped(value):  # used where it lies: its pages go when nobody has it any more
                    weakref.finalize(parameter, drop, value).atexit = False
            self._kept.move_to_end((name, shape))
            return self._kept[name, shape]

    def fetch(self, name: str, shape: tuple[int, ...]) -> nn.Parameter | None:
        """Ahead of `get`, in another thread: the parameter itself, or None where its pages are now in memory, so that `get`
        has only to use or to convert them, with all cores."""
        if self.parent is not None and name not in self.invented:
            return self.parent.fetch(name, shape)
        if self.holds(name, shape):
            return self.get(name, shape)
        value = self.source(name, shape)
        if self.lane_of(name).device.type == "cpu" and mapped(value):
            return fetch(value)
        return self.get(name, shape, value)

    def lane_of(self, name: str) -> Lane:
        """The way to the device of this parameter."""
        return self.lanes[self.homes.of_parameter(name)]

    def meet(self, weights: Iterable[Tensor]) -> None:
        """What is computed from here on may use these weights."""
        weights = list(weights)
        for device, way in self.lanes.items():
            way.meet([weight for weight in weights if weight.device == device])

    def holds(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether `get` answers without reading."""
        if self.parent is not None and name not in self.invented:
            return self.parent.holds(name, shape)
        return (name, shape) in self._kept

    def stored(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """The parameter as it lies in its file, mapped and not copied; None where it is kept, or in no file."""
        if self.parent is not None and name not in self.invented:
            return self.parent.stored(name, shape)
        with self._lock:
            if (name, shape) in self._kept:
                return None
            value = self.source(name, shape)
        return value if mapped(value) else None

    def _make_room(self, size: int) -> None:
        """Those unused for longest go, so that their memory can take what comes."""
        while self.bound is not None and self._kept and self.nbytes + size > self.bound.kept:
            _, gone = self._kept.popitem(last=False)
            self.nbytes -= gone.nbytes

    def ready(
        self, module: nn.Module, prefix: str, alias: Mapping[str, str] = NO_ALIAS, have: Mapping[str, nn.Parameter] = NOTHING
    ) -> nn.Module:
        """`module`, whose path in the model is `prefix`, with every parameter in place. Without a bound it is filled where it
        stands, for good; with one a copy is filled that shares the taps, and whose weights may leave when it is let go.

        `alias`: parameters that are another one under a second name (a tied unembedding); `have`: those read before, by name.
        """
        self._check_files()
        if self.bounded:
            return self._copy(module, prefix, alias, have)
        with self._lock:
            for path, part in module.named_modules(prefix=prefix):
                for leaf, parameter in part._parameters.items():
                    if parameter is not None and parameter.is_meta:
                        name = f"{path}.{leaf}"
                        part._parameters[leaf] = self.get(alias.get(name, name), tuple(parameter.shape))
        return module

    def _check_files(self) -> None:
        if self.parent is not None:
            self.parent._check_files()
        elif self.borrows:
            self.intact()

    @property
    def bounded(self) -> bool:
        return (self.parent or self).bound is not None

    def _copy(self, module: nn.Module, path: str, alias: Mapping[str, str], have: Mapping[str, nn.Parameter]) -> nn.Module:
        if isinstance(module, Tap):
            return module
        twin = copy.copy(module)
        twin._parameters = dict(module._parameters)
        for leaf, p in module._parameters.items():
            if p is not None:
                check()
                name = f"{path}.{leaf}"
                twin._parameters[leaf] = have[name] if name in have else self.get(alias.get(name, name), tuple(p.shape))
        twin._modules = {name: self._copy(child, f"{path}.{name}", alias, have) for name, child in module._modules.items()}
        return twin

    def derive(self, invented: Collection[str], source: Source = seeded) -> "WeightStore":
        """A store that reads through this one, except that the names `invented` are its own, drawn by `source`."""
        return WeightStore(source, self.device, self.dtype, self, frozenset(invented), self.bound)
