"""What feeds what inside a module, by running it on nothing: every tap with the taps that its tensor was made from.

The module runs on an empty batch with parameters that take no memory, while every tensor carries the names of the taps
that it came from. So the answer is the forward's own, whatever the wiring, and a 405B block costs as much as a tiny one.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from model.taps import Recorder, Tap, recording, taps_of

Names = tuple[str, ...]
SHAPE_ONLY = ("_like", "new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")  # these read a shape, not the numbers
POSITIONS = 2  # tokens of the empty batch: two, so that a query has a past


def flow(config: object, whole: Collection[str] = ()) -> dict[str, Names]:
    """`config.build()`, run on x [batch, pos, config.d_model] -> {tap or part: what it reads, by name}, in order of firing.

    `whole`: paths of modules that are to be seen as one thing: they read what enters them, and what leaves them is theirs.
    """
    with torch.device("meta"):
        module = config.build()
    _hollow(module)
    carried = _Carried(module, whole)
    with torch.no_grad(), carried, recording(carried.recorder):
        module(torch.empty(0, POSITIONS, config.d_model))
    return carried.reads


@lru_cache(maxsize=64)
def elsewhere(a: object, b: object) -> frozenset[str]:
    """Norms of one name that two blocks have at different places: `ln1` normalises what enters attention before the sum, and
    the sum itself behind it. Their tensors are not two versions of one quantity."""
    if type(a) is type(b):  # one wiring
        return frozenset()
    one, two = (_normalised(flow(config)) for config in (a, b))
    return frozenset(slot for slot in one.keys() & two.keys() if set(one[slot]) != set(two[slot]))


def _normalised(reads: Mapping[str, Names]) -> dict[str, Names]:
    """Slot of a norm -> what it reads, by the first of its taps."""
    found: dict[str, Names] = {}
    for name, sources in reads.items():
        slot = name.partition(".")[0]
        if slot.startswith("ln"):
            found.setdefault(slot, sources)
    return found


def _hollow(module: nn.Module) -> None:
    """Every parameter becomes one number seen in every place: the right shape, no memory."""
    for part in module.modules():
        for leaf, parameter in part._parameters.items():
            if parameter is not None:
                one = torch.zeros((), dtype=parameter.dtype).expand(parameter.shape)
                part._parameters[leaf] = nn.Parameter(one, requires_grad=False)


class _Carried(TorchFunctionMode):
    """While it is on, the result of every operation carries the names that its tensors carried."""

    def __init__(self, module: nn.Module, whole: Collection[str]):
        super().__init__()
        self.reads: dict[str, Names] = {}
        self.recorder = _Namer(self, taps_of(module))
        self._names: dict[int, tuple[Tensor, Names]] = {}  # by id; the tensor is kept, so that no other takes its id
        self._inside: list[list] = []  # the calls going on: [what entered, the last tap that fired]
        for path, part in module.named_modules():
            if path and not isinstance(part, Tap):
                part.register_forward_pre_hook(self._enter)
                part.register_forward_hook(partial(self._leave, path if path in whole else None))

    def names(self, value: object) -> Names:
        """What the tensors in `value` were made from."""
        found = [self._names[id(t)][1] for t in tree_leaves(value) if isinstance(t, Tensor) and id(t) in self._names]
        return tuple(dict.fromkeys(name for names in found for name in names))

    def mark(self, value: object, names: Names) -> None:
        for tensor in tree_leaves(value):
            if isinstance(tensor, Tensor):
                self._names[id(tensor)] = tensor, names

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if not name.endswith(SHAPE_ONLY) and (names := self.names((args, kwargs))):
            self.mark(args[0] if name == "__setitem__" else result, names)
        return result

    def fired(self, name: str, x: Tensor) -> Tensor:
        """A tap's tensor goes on under the tap's own name. What was filled in place is made from what entered its part."""
        self.reads[name] = self.names(x) or (self._inside[-1][0] if self._inside else ())
        for call in self._inside:
            call[1] = name
        x = x.view(x.shape)
        self.mark(x, (name,))
        return x

    def _enter(self, part: nn.Module, args) -> None:
        self._inside.append([self.names(args), None])

    def _leave(self, path: str | None, part: nn.Module, args, result):
        entered, last = self._inside.pop()
        if path is not None:
            self.reads[path] = entered
            result = result.view(result.shape)  # an Identity hands on its argument, which keeps its own name
            self.mark(result, (path,))
        elif not self.names(result):
            self.mark(result, (last,) if last else entered)
        return result


class _Namer(Recorder):
    """Hears every tap, so that attention takes its explicit path."""

    def __init__(self, carried: _Carried, taps: Mapping[str, Tap]):
        super().__init__({tap: [] for tap in taps.values()})
        self.carried, self.paths = carried, {tap: path for path, tap in taps.items()}

    def __call__(self, tap: Tap, x: Tensor, tile) -> Tensor:
        return self.carried.fired(self.paths[tap], x)
