"""Blocks over several devices and processes: the same numbers as in one."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from conftest import assert_same, distinct, make_lm, tiny_config
from safetensors.torch import load_file

from model import load
from model.checkpoints.saving import save_folder
from model.errors import BlockscopeError, TooLarge
from model.memory import settle, stage_bytes
from model.norms import RMSNorm
from model.parallel import check, main
from model.place import Place
from model.placement import Homes, placement
from model.run import LM
from model.weights import WeightStore, seeded

ROOT = Path(__file__).parents[1]


# ---- placement -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "capacities", "homes"),
    [
        ([1] * 4, [10, 10], [0, 0, 1, 1]),
        ([1] * 6, [10, 20], [0, 0, 1, 1, 1, 1]),
        ([5, 1, 1, 1], [10, 10], [0, 1, 1, 1]),
        ([1, 1, 1, 5], [10, 10], [0, 0, 0, 1]),
        ([3, 3], [2, 10], [1, 1]),
        ([4], [4], [0]),
        ([], [4], []),
    ],
)
def test_blocks_are_placed_in_order_by_size(sizes, capacities, homes):
    assert placement(sizes, capacities) == homes


def test_placement_is_the_best_there_is():
    """Against every way to cut small lists."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        sizes = torch.randint(1, 9, (6,), generator=generator).tolist()
        capacities = torch.randint(8, 40, (3,), generator=generator).tolist()
        ways = [way for way in product(range(3), repeat=6) if list(way) == sorted(way)]
        fullest = [
            max(sum(s for s, d in zip(sizes, way, strict=True) if d == k) / capacities[k] for k in range(3)) for way in ways
        ]
        if min(fullest) > 1:
            with pytest.raises(TooLarge, match="do not fit in order"):
                placement(sizes, capacities)
            continue
        found = placement(sizes, capacities)
        share = max(sum(s for s, d in zip(sizes, found, strict=True) if d == k) / capacities[k] for k in range(3))
        assert share == pytest.approx(min(fullest))


CPU, META = torch.device("cpu"), torch.device("meta")  # "meta" refuses to be mixed with another device, as a GPU does


def test_a_stage_is_where_its_weights_are():
    config, homes = tiny_config("head", layers=2), Homes((CPU, META), (0, 0, 1, 1))
    lm = LM(config, WeightStore(seeded, CPU, torch.float32, homes=homes), name="two", source="two", tokenizer=None)
    logits = lm.forward(torch.tensor([[1, 2, 3, 4, 5]]))
    assert logits.device == META and logits.shape == (1, 5, config.d_vocab)
    for name, p in lm.net.named_parameters():
        first = name.startswith(("embed", "blocks.0"))
        assert lm.store.get(name, tuple(p.shape)).device == (CPU if first else META), name
    x = torch.randn(1, 5, config.d_model)
    assert lm.block(1)(*lm.stages.bring(1, x, Place.of(x))).device == META
    assert lm.capture([1, 2, 3], ["blocks.1.hook_resid_pre"])["blocks.1.hook_resid_pre"].device == META


def test_tied_logits_are_made_where_the_embedding_is():
    config, homes = tiny_config(layers=2, tied=True), Homes((CPU, META), (0, 0, 1, 1), tied=True)
    lm = LM(config, WeightStore(seeded, CPU, torch.float32, homes=homes), name="two", source="two", tokenizer=None)
    assert homes.of_stage(2) == homes.of_parameter("ln_final.weight") == homes.of_parameter("embed.weight") == CPU
    with pytest.raises(NotImplementedError, match="out of meta"):  # the stream is brought back, which only this device refuses
        lm.forward([1, 2, 3])


def test_two_devices_are_one_model(tmp_path, tokens):
    """Placed by `load`: both halves on the CPU here, which it treats as two."""
    path = saved(tmp_path, tiny_config())
    whole, placed = (load(path, device=device, dtype="fp32") for device in ("cpu", "cpu,cpu"))
    assert placed.store.homes.stages == (0, 0, 0, 1, 1) and str(placed.store.homes) == "cpu + cpu"
    taps, expected = placed.capture(tokens), whole.capture(tokens)
    assert taps.keys() == expected.keys() and all(torch.equal(taps[name], expected[name]) for name in taps)
    assert placed.identities(tokens, 1) == whole.identities(tokens, 1)
    assert placed.variant(qk_norm="head").store.homes is placed.store.homes


def test_devices_that_are_not_there_or_too_small(monkeypatch, tmp_path):
    tmp_path = saved(tmp_path, tiny_config())
    for device, word in (("cpu,banana", "banana"), ("cuda:9", "cuda:9"), ("cpu,", "''"), ("cpu,cuda:9", "cuda:9")):
        with pytest.raises(BlockscopeError, match=f"device '?{word}"):
            load(tmp_path, device=device)
    with pytest.raises(BlockscopeError, match="memory bounds a model that streams through one device"):
        load(tmp_path, device="cpu,cpu", memory="1GB")
    monkeypatch.setattr("model.memory.free", lambda device: 40_000)
    with pytest.raises(TooLarge, match="do not fit in order on devices with 20,000, 20,000 bytes: name a single device"):
        load(tmp_path, device="cpu,cpu")
    config = tiny_config()
    assert settle(None, config, [CPU, META], torch.float32, spread=False)[1] is not None, "streams where they do not hold it"
    monkeypatch.setattr("model.memory.free", lambda device: 2 * config_bytes(config) - 2)
    homes, limit = settle(None, config, [CPU, META], torch.float32, spread=False)
    assert limit is None and set(homes.stages) == {0, 1}, "more than the first, where that one cannot hold it"
    monkeypatch.setattr("model.memory.free", lambda device: 4 * config_bytes(config))
    assert settle(None, config, [CPU, META], torch.float32, spread=False)[0].stages == ()


def saved(folder: Path, config) -> Path:
    """A folder of this model with distinct weights."""
    shapes = {name: tuple(p.shape) for name, p in make_lm(config).net.named_parameters()}
    save_folder(folder / "m", config, {name: distinct(name, shape) for name, shape in shapes.items()})
    return folder / "m"


def config_bytes(config) -> int:
    return sum(stage_bytes(config, torch.float32))


# ---- tensor parallelism ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split_run(tmp_path_factory):
    """Every tap of a model in two gloo processes, and the folder."""
    path = tmp_path_factory.mktemp("parallel")
    config = tiny_config(qk_norm="head", layers=2)
    block = config.blocks[0]
    norm = RMSNorm.Config(d=10, eps=1e-5)  # as the stream's, or no config.json could say it
    attn = replace(block.attn, n_heads=8, n_kv_heads=4, q_norm=norm, k_norm=norm)
    config = replace(config, blocks=(replace(block, attn=attn),) * 2)
    saved(path, config)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "model.parallel",
        str(path / "m"),
    ]
    more = ["--text", "5 17 99 3 3 42 7", "--taps", "*", "--out", str(path / "taps.safetensors"), "--device", "cpu"]
    run = subprocess.run(
        [*command, *more], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return path, load_file(path / "taps.safetensors"), run.stdout


def test_two_processes_give_what_one_gives(split_run):
    path, found, said = split_run
    alone = load(path / "m", device="cpu").capture([5, 17, 99, 3, 3, 42, 7], ["*"])
    assert set(found) == set(alone) and f"{len(alone)} tensors of 2 processes" in said
    for name, tensor in alone.items():
        assert torch.equal(found[name].isneginf(), tensor.isneginf())  # masked scores
        assert_same(found[name].nan_to_num(neginf=0), tensor.nan_to_num(neginf=0), 2e-6, name)
    assert found["blocks.1.attn.hook_pattern"].shape[1] == 8 and found["blocks.0.attn.hook_k"].shape[2] == 4


def test_what_cannot_be_split_is_a_sentence():
    plain = tiny_config().blocks[0]
    check(plain, 3)
    with pytest.raises(BlockscopeError, match="n_kv_heads 3 cannot be split evenly over 2 processes"):
        check(plain, 2)
    with pytest.raises(BlockscopeError, match="over the whole projection, spans the heads"):
        check(tiny_config(qk_norm="projection").blocks[0], 3)
    for source in ("tiny-mixtral", "tiny-deepseek-v2"):
        with pytest.raises(BlockscopeError, match="run this model in one"):
            check(load(source, device="cpu").config.blocks[-1], 2)


def test_without_torchrun_the_command_says_how_to_start_it(monkeypatch, capsys):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert main(["tiny-llama"]) == 2
    assert capsys.readouterr().err == "model.parallel: start this with torchrun --nproc-per-node N -m model.parallel ...\n"
