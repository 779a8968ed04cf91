"""Blocks split over processes (PyTorch's own tensor parallelism), with every tap gathered so that rank 0 sees whole tensors.

    torchrun --nproc-per-node 2 -m model.parallel SOURCE --text "..." --taps "blocks.0.attn.*" --out taps.safetensors

Each process holds its share of the heads and of the neurons: W_q, W_k, W_v, gate and up are split by rows, W_o and W_down by
columns, and the partial sums of these two are added over the processes (Megatron-LM, arXiv 1909.08053).
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from model.attention import Attention
from model.block import BlockConfig
from model.errors import BlockscopeError, UnknownTap
from model.load import load
from model.mlp import GLU, MLP
from model.place import Place
from model.run import LM
from model.taps import Collect, Recorder, Tap, Tile, recording, require_fired, select, taps_of

SPLIT_BY_ROWS = ("attn.q_proj", "attn.k_proj", "attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
SPLIT_BY_COLUMNS = ("attn.o_proj", "mlp.down_proj")
SPLIT_AXES = ("head", "kv_head", "d_mlp")  # of which a process has only its share


def split(block: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The block with its matrices split over the processes of `mesh`, in place. Refuses a block that cannot be split evenly."""
    check(block.config, mesh.size())
    there = {path for path, _ in block.named_modules()}
    plan = {path: ColwiseParallel() for path in SPLIT_BY_ROWS if path in there}
    plan |= {path: RowwiseParallel() for path in SPLIT_BY_COLUMNS if path in there}
    return parallelize_module(block, mesh, plan, src_data_rank=None)  # every process reads its own share


def check(config: BlockConfig, processes: int) -> None:
    """Whether these parts can be split over so many processes."""
    attn, mlp = config.attn, config.mlp
    if not isinstance(attn, Attention.Config) or not isinstance(mlp, GLU.Config | MLP.Config):
        raise BlockscopeError("only ordinary attention and one MLP a block are split over processes; run this model in one")
    if attn.sink or (attn.qk_norm_over == "projection" and (attn.q_norm or attn.k_norm)):
        raise BlockscopeError("a sink, or a QK-norm over the whole projection, spans the heads; run this model in one process")
    for what, count in (("n_kv_heads", attn.n_kv_heads), ("n_heads", attn.n_heads), ("d_mlp", mlp.d_mlp)):
        if count % processes:
            raise BlockscopeError(f"{what} {count} cannot be split evenly over {processes} processes")


class Gathering(Recorder):
    """Puts the processes' shares of a tensor together before anybody sees it. Every process must listen to the same taps."""

    def __init__(self, watchers: Mapping[Tap, list], mesh: DeviceMesh):
        super().__init__(watchers)
        self.mesh = mesh

    def __call__(self, tap: Tap, x: Tensor, tile: Tile | None) -> Tensor:
        if tap in self.watchers:
            axis = next((i for i, name in enumerate(tap.dims) if name in SPLIT_AXES), None)
            y = x.clone() if axis is None else self._together(x, axis)  # a copy waits for a sum that is still under way
            for watch in self.watchers[tap] if self.mesh.get_rank() == 0 else ():
                watch(y, tile)
        self.fired.add(tap)
        return x

    def _together(self, x: Tensor, axis: int) -> Tensor:
        shares = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(self.mesh.size())]
        dist.all_gather(shares, x.contiguous(), group=self.mesh.get_group())
        return torch.cat(shares, axis)


def capture(lm: LM, tokens: Sequence[int] | Tensor, taps: Iterable[str], mesh: DeviceMesh) -> dict[str, Tensor]:
    """Full tensors by tap name on rank 0, {} on the others; the blocks run split over the processes of `mesh`.

    Embedding, final norm and logits run whole in every process.
    """
    ids = lm.checked(tokens)
    chosen = select(lm.net, taps)
    place, x, found = Place.of(ids), ids, {}
    with torch.no_grad():
        for stage in range(-1, max(map(lm.stage_of, chosen)) + 1):
            wanted = [name for name in chosen if lm.stage_of(name) == stage]
            inside = 0 <= stage < lm.config.n_layers
            prefix = f"blocks.{stage}." if inside else ""
            block = _block(lm, stage, mesh) if inside else None
            there = taps_of(block) if inside else lm.tap_modules
            keep = {name: Collect(there[name.removeprefix(prefix)]) for name in wanted}
            recorder = Gathering({collect.tap: [collect] for collect in keep.values()}, mesh)
            with recording(recorder):
                x = block(x, place) if inside else lm.step(stage, x, place)
            require_fired(recorder, {name: collect.tap for name, collect in keep.items()})
            found |= {name: collect.value for name, collect in keep.items()}
    return found if mesh.get_rank() == 0 else {}


def _block(lm: LM, layer: int, mesh: DeviceMesh) -> nn.Module:
    """A block of its own for this run, so that the model that others share keeps its whole matrices."""
    with torch.device("meta"):
        block = lm.config.blocks[layer].build()
    for path, part in block.named_modules():
        for leaf, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[leaf] = lm.store.get(f"blocks.{layer}.{path}.{leaf}", tuple(parameter.shape))
    return split(block.eval(), mesh)


def mesh_of(device: str) -> DeviceMesh:
    """All processes that torchrun started, one after another."""
    if "WORLD_SIZE" not in os.environ:
        raise BlockscopeError("start this with torchrun --nproc-per-node N -m model.parallel ...")
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    return init_device_mesh(device, (dist.get_world_size(),))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="torchrun -m model.parallel", description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--text", default="The quick brown fox", help="the prompt; token numbers for a model without tokenizer")
    parser.add_argument("--taps", action="append", default=[], help="names or * patterns; may be given several times")
    parser.add_argument("--out", default="taps.safetensors")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default=None)
    asked = parser.parse_args(argv)
    try:
        mesh = mesh_of(asked.device)
        lm = load(asked.source, device=asked.device, dtype=asked.dtype)
        found = capture(lm, lm.encode(asked.text), asked.taps or ["logits"], mesh)
    except (BlockscopeError, UnknownTap) as error:
        print(f"model.parallel: {error}", file=sys.stderr)
        return 2
    if found:
        from safetensors.torch import save_file

        save_file({name: x.cpu().contiguous() for name, x in found.items()}, asked.out)
        print(f"{len(found)} tensors of {mesh.size()} processes in {asked.out}")
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
