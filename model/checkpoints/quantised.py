"""Weights stored in eight or four bits with their scales: put together to plain numbers when they are read.

    8 bits   value = weight * scale; one scale for the tensor, for a row, or for a block of rows and columns
             (fp8: DeepSeek's weight_scale_inv [rows / 128, columns / 128], compressed-tensors, fbgemm, modelopt; int8)
    MXFP4    value = e2m1(nibble) * 2^(scale - 127), a scale for each 32 numbers (OCP Microscaling v1.0; gpt-oss)

Which tensors have scales is seen in the files; the config only names the method, and one that is not known is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from model.checkpoints.fields import Fields, listed, shown
from model.checkpoints.sources import DTYPES, Made, Shape, Source
from model.errors import BlockscopeError

EIGHT_BITS = ("F8_E4M3", "F8_E5M2", "I8")
SCALES = ("weight_scale_inv", "weight_scale")
SCALE_FORMATS = (*DTYPES, "F8_E8M0")
BLOCK = 128  # of every published model whose config does not say
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
PACKED, PER_SCALE = "_blocks", 32
METHODS = ("fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors", "modelopt")
FORMATS = ("float-quantized", "naive-quantized", "int-quantized")  # of compressed-tensors


@dataclass(frozen=True)
class Method:
    """What a config says of its quantisation. `block`: rows and columns that share a scale, where it says so."""

    name: str
    block: tuple[int, int] | None = None


def read_method(fields: Fields) -> Method | None:
    """quantization_config; None where the weights are plain. A method that cannot be undone here is refused by its name."""
    given = fields.raw("quantization_config")
    if given in (None, {}):
        return None
    if not isinstance(given, dict):
        raise fields.fail(
            f"quantization_config is {shown(given)}; expected an object with quant_method, or null for plain weights"
        )
    inner = Fields(given, f"{fields.where}, quantization_config")
    name = inner.raw("quant_method")
    if name is None and {"group_size", "bits"} <= given.keys():
        raise inner.fail(
            "quant_method is missing and group_size and bits are given, as MLX does, whose packed weights are not read here; "
            "run `mlx_lm.convert --dequantize` or open the original model"
        )
    if name not in METHODS:
        raise inner.fail(
            f"the weights are quantised and quant_method is {shown(name)}; those that can be read are {listed(METHODS)}: "
            "save the model in bfloat16 first"
        )
    if name == "compressed-tensors":
        inner.only("format", FORMATS, "the weights of other formats are packed; save the model in bfloat16")
        for part in ("sparsity_config", "transform_config"):
            inner.only(part, ({},), "only plain scales are known here")
    if name == "modelopt":
        inner.only("quant_algo", ("FP8",), "other algorithms pack the weights; save the model in bfloat16")
    return Method(name, _block(inner))


def _block(inner: Fields) -> tuple[int, int] | None:
    block = inner.raw("weight_block_size")
    if block is None:
        return None
    if not isinstance(block, list) or len(block) != 2 or any(type(n) is not int or not 1 <= n <= 1 << 20 for n in block):
        raise inner.fail(f"weight_block_size is {shown(block)}; expected rows and columns, such as [128, 128]")
    return block[0], block[1]


def plain(found: Mapping[str, Source], method: Method | None, where: str) -> tuple[dict[str, Source], list[str]]:
    """(the tensors with every scale applied, notes): a weight and its scale become one tensor under the weight's name."""
    whole, used = dict(found), []
    for name, source in found.items():
        if name.endswith(PACKED) and f"{name.removesuffix(PACKED)}_scales" in found:
            scales = found[f"{name.removesuffix(PACKED)}_scales"]
            made = _mxfp4(name.removesuffix(PACKED), source, scales, where)
        elif source.dtype in EIGHT_BITS and (scale := _scale_of(name, found)) is not None:
            scales = scale
            made = _scaled(source, scale, method, where)
        else:
            continue
        for part in (name, scales.name):
            del whole[part]
        whole[made.name] = made
        used.append(source.dtype if made.make is not unpacked else "MXFP4")
    note = f"{len(used)} tensors are stored as {listed(sorted(set(used)))} with scales, which are applied when a layer is read"
    return whole, [note] if used else []


def _scale_of(name: str, found: Mapping[str, Source]) -> Source | None:
    path, _, leaf = name.rpartition(".")
    names = [f"{path}.{scale}" for scale in SCALES] if leaf == "weight" else [f"{name}_scale_inv", f"{name}_scale"]
    return next((found[scale] for scale in names if scale in found), None)


def _scaled(weight: Source, scale: Source, method: Method | None, where: str) -> Made:
    if scale.dtype not in SCALE_FORMATS:
        raise BlockscopeError(
            f"{where}: {scale.name} is stored as {scale.dtype}; expected {listed(SCALE_FORMATS)}: "
            "download the weights again, or save the model in bfloat16"
        )
    block = _spread(weight.shape, scale.shape, method.block if method else None)
    if block is None:
        said = f" in blocks of {list(method.block)}" if method and method.block else ""
        raise BlockscopeError(
            f"{where}: {scale.name} has shape {list(scale.shape)}, which does not fit {weight.name} "
            f"{list(weight.shape)}{said}; download both again, or correct the config's weight_block_size"
        )
    return Made(
        file=weight.file, name=weight.name, dtype=weight.dtype, shape=weight.shape, reads="F32", of=(weight, scale),
        make=partial(scaled, block),
    )  # fmt: skip


def _spread(weight: Shape, scale: Shape, block: tuple[int, int] | None) -> tuple[int, int] | None:
    """Rows and columns that share a scale; None where the shapes do not fit."""
    if not weight:
        return None
    rows, columns = weight[-2:] if len(weight) > 1 else (1, weight[-1])
    if scale in ((), (1,)) and (block is None or (rows <= block[0] and columns <= block[1])):
        return rows, columns
    if len(weight) > 1 and scale in (weight[:-1], (*weight[:-1], 1)) and block is None:
        return 1, columns
    if len(scale) != len(weight) or scale[:-2] != weight[:-2]:
        return None
    for high, wide in [block] if block else [(BLOCK, BLOCK), (1, BLOCK), (1, 32)]:
        if scale[-2:] == (-(-rows // high), -(-columns // wide)):
            return high, wide
    return None


def scaled(block: tuple[int, int], weight: Tensor, scale: Tensor) -> Tensor:
    """weight [..., row, column] times its scale, each for `block` rows and columns; fp32."""
    out, scale = weight.to(torch.float32, copy=True), scale.float()
    if scale.numel() == 1:
        return out.mul_(scale.reshape(()))
    high, wide = block
    scale = scale.reshape(*out.shape[:-2], -(-out.shape[-2] // high), -(-out.shape[-1] // wide))
    for i in range(scale.shape[-2]):  # a band of rows at a time, so that no second matrix of this size is made
        columns = scale[..., i : i + 1, :].repeat_interleave(wide, dim=-1)[..., : out.shape[-1]]
        out[..., i * high : (i + 1) * high, :].mul_(columns)
    return out


def _mxfp4(name: str, blocks: Source, scales: Source, where: str) -> Made:
    if (
        blocks.dtype != "U8"
        or scales.dtype != "U8"
        or len(blocks.shape) != 4
        or blocks.shape != (*scales.shape, PER_SCALE // 2)
    ):
        raise BlockscopeError(
            f"{where}: {blocks.name} {blocks.dtype} {list(blocks.shape)} and {scales.name} {scales.dtype} {list(scales.shape)} "
            "are not MXFP4: expected bytes [expert, row, group, 16] and [expert, row, group]; download the weights again"
        )
    experts, rows, groups, _ = blocks.shape
    return Made(
        file=blocks.file, name=name, dtype="MXFP4", shape=(experts, groups * PER_SCALE, rows), reads="BF16",
        of=(blocks, scales), make=unpacked,
    )  # fmt: skip


def unpacked(blocks: Tensor, scales: Tensor) -> Tensor:
    """MXFP4 [expert, row, group, 16] and its exponents [expert, row, group] -> bf16 [expert, group * 32, row], exactly."""
    out = torch.empty(*blocks.shape[:2], blocks.shape[2] * PER_SCALE, dtype=torch.bfloat16)
    for expert, (packed, exponent) in enumerate(zip(blocks, scales, strict=True)):
        nibbles = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)  # the low four bits come first
        values = torch.ldexp(E2M1[nibbles.int()], exponent.int()[..., None] - 127)
        out[expert] = values.flatten(-2).bfloat16()
    return out.transpose(1, 2)
