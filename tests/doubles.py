"""Everything in fp64, the places included where a model says fp32: a doubtful case of rounding is settled there."""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Doubles(TorchFunctionMode):
    """Inside, `.float()` and every dtype argument of fp32 mean fp64. Weights are to be made doubles outside."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args = tuple(torch.float64 if a is torch.float32 else a for a in args)
        kwargs = {name: torch.float64 if a is torch.float32 else a for name, a in (kwargs or {}).items()}
        return (Tensor.double if function is Tensor.float else function)(*args, **kwargs)
