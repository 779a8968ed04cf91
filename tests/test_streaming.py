"""Weights in bounded memory: the same numbers, no more bytes than were asked for, and nothing kept that should have gone."""

import gc
import threading
import time
from pathlib import Path

import pytest
import torch
from conftest import assert_same, distinct, make_lm, tiny_config
from safetensors.torch import save_file

from model import load
from model.ahead import Ahead
from model.buffers import SMALL, Buffers
from model.checkpoints.saving import save_folder
from model.errors import BlockscopeError
from model.lane import Lane, lane
from model.memory import Bound, bound, free, parse
from model.pages import CHUNK, copy, drop, mapped, wanted
from model.place import KVCache
from model.run import LM
from model.view import Request
from model.weights import WeightStore


def bounded(config=None, device="cpu", kept=1, dtype=torch.float32, source=distinct) -> LM:
    """A model that keeps next to nothing between uses."""
    store = WeightStore(source, torch.device(device), dtype, bound=Bound(kept, 1 << 20))
    return LM(config or tiny_config(), store, name="tiny", source="test", tokenizer=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A bf16 llama of four layers on disk, untied, with distinct weights."""
    path, config = tmp_path_factory.mktemp("streamed") / "m", tiny_config(layers=4)
    names = {name: tuple(p.shape) for name, p in make_lm(config).net.named_parameters()}
    save_folder(path, config, {name: distinct(name, shape).bfloat16() for name, shape in names.items()})
    return path


# ---- the same numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_a_bounded_model_gives_bit_for_bit_what_an_unbounded_one_gives(tied, device, tokens):
    config = tiny_config(layers=4, tied=tied)
    whole, thin = make_lm(config, device), bounded(config, device)
    assert torch.equal(whole.forward(tokens), thin.forward(tokens))
    assert whole.generate(tokens, 5) == thin.generate(tokens, 5)
    requests = [Request(f"blocks.{i}.attn.hook_pattern", "entropy", ("key_pos",)) for i in range(4)]
    for a, b in zip(whole.views(tokens, requests), thin.views(tokens, requests), strict=True):
        assert (a.values == b.values).all()
    assert [i.residual for i in whole.identities(tokens, 2)] == [i.residual for i in thin.identities(tokens, 2)]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_folder_streams_from_its_file(folder, dtype, tokens):
    """The embedding by its rows, the unembedding by stretches, the blocks as a whole; mapped as they are where no dtype changes."""
    whole, thin = load(folder, "cpu", dtype), load(folder, "cpu", dtype, memory=1)
    assert not whole.store.bounded and thin.store.bounded
    assert_same(thin.forward(tokens), whole.forward(tokens), 1e-6, dtype)
    assert not any(thin.store.holds(n, tuple(p.shape)) for n, p in thin.net.named_parameters() if "embed" in n)
    assert mapped(thin.block(1).mlp.up_proj.weight) == (dtype == "bf16")


def test_a_variant_of_a_bounded_model_streams_too(tokens):
    whole, thin = make_lm(), bounded()
    for change in ({"qk_norm": "head"}, {"mlp": "relu"}):
        assert torch.equal(whole.variant(**change).forward(tokens), thin.variant(**change).forward(tokens))
    assert thin.variant(qk_norm="head").store.bounded


def test_the_cache_of_decoding_finds_its_layer_again_although_the_module_is_another_copy(tokens):
    lm, cache = bounded(), KVCache()
    first, second = lm.forward(tokens[:-1], cache), lm.forward(tokens[-1:], cache)
    assert len(cache._kept) == lm.config.n_layers
    assert_same(torch.cat([first, second], 1), lm.forward(tokens), 2e-6)


# ---- no more memory than was asked for -----------------------------------------------------------------------------------


def test_what_is_kept_stays_within_the_bound_and_the_oldest_goes_first(tokens):
    block = sum(p.numel() for p in make_lm().net.blocks[0].parameters()) * 4
    lm = bounded(tiny_config(layers=6), kept=3 * block)
    lm.forward(tokens)
    assert lm.store.nbytes <= 3 * block
    lm.store._kept.clear(), setattr(lm.store, "nbytes", 0)
    for layer in range(6):
        lm.block(layer)
    held = [layer for layer in range(6) if lm.stages.held(layer)]
    assert held == [3, 4, 5] and lm.store.nbytes == 3 * block


def test_a_block_that_is_held_outlives_its_place_in_the_store():
    lm = bounded()
    block, x = lm.block(0), torch.randn(1, 5, 42)
    before = block(x)
    for layer in (1, 2):
        lm.block(layer)
    assert not lm.stages.held(0) and torch.equal(block(x), before)
    assert all(p.is_meta for p in lm.net.parameters())


def test_going_back_costs_one_block(folder, tokens):
    lm, read = load(folder, "cpu", "fp32", memory=1), []
    lm.views(tokens, [Request("blocks.3.hook_resid_post", "stats")])
    source = lm.store.source
    lm.store.source = lambda name, shape: read.append(name) or source(name, shape)
    lm.views(tokens, [Request("blocks.1.hook_resid_mid", "stats")])
    assert {name.split(".")[1] for name in read} == {"1"}


def test_buffers_are_used_again_only_when_nobody_looks_into_them():
    buffers, shape = Buffers(8 * SMALL), (SMALL // 4, 2)
    first = buffers.take(shape, torch.float32)
    at, part = first.data_ptr(), first[7:9]
    part.fill_(3)
    del first
    other = buffers.take(shape, torch.float32)
    assert other.data_ptr() != at and buffers.nbytes == 0
    other.fill_(5)
    assert part.tolist() == [[3, 3], [3, 3]]
    del part
    gc.collect()
    assert buffers.nbytes == 2 * SMALL and buffers.take(shape, torch.float32).data_ptr() == at


def test_buffers_keep_no_more_than_they_may():
    buffers = Buffers(3 * SMALL)
    some = [buffers.take((SMALL, 2), torch.uint8) for _ in range(4)]
    del some
    gc.collect()
    assert buffers.nbytes == 2 * SMALL


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="resident pages are counted by Linux")
def test_pages_that_were_copied_are_handed_back_and_others_never(tmp_path):
    save_file({"x": torch.arange(3 * CHUNK // 4, dtype=torch.float32)}, tmp_path / "x.safetensors")
    from safetensors import safe_open

    x = safe_open(tmp_path / "x.safetensors", framework="pt").get_tensor("x")
    mine = x.clone()
    assert mapped(x) and mapped(x[100:200]) and not mapped(mine) and not mapped(torch.empty(0))
    wanted(x)
    assert torch.equal(copy(x, torch.empty_like(x)), mine)
    assert resident(x) < CHUNK / 4  # only what lies at the edges
    x.sum()
    assert resident(x) > 2 * CHUNK
    drop(x)
    assert resident(x) < CHUNK / 4 and torch.equal(x, mine)
    turned = x.view(-1, 2).T
    assert torch.equal(copy(turned, torch.empty(turned.shape)), mine.view(-1, 2).T)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="resident pages are counted by Linux")
def test_weights_used_where_they_lie_leave_memory_with_the_last_who_holds_them(tmp_path):
    from safetensors import safe_open

    save_file({name: torch.ones(CHUNK // 4, 1, dtype=torch.float32) for name in "ab"}, tmp_path / "x.safetensors")
    file = safe_open(tmp_path / "x.safetensors", framework="pt")
    store = WeightStore(
        lambda name, shape: file.get_tensor(name), torch.device("cpu"), torch.float32, bound=Bound(CHUNK, CHUNK)
    )
    a = store.get("a", (CHUNK // 4, 1))
    a.sum()
    store.get("b", (CHUNK // 4, 1))
    assert mapped(a) and not store.holds("a", (CHUNK // 4, 1)) and resident(a) > CHUNK / 2
    del a
    assert resident(file.get_tensor("a")) < CHUNK / 4


def resident(x: torch.Tensor) -> int:
    """Bytes of the mapping of x that this process holds in memory."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split()[0]
        if "-" in head and not head.endswith(":"):
            low, high = (int(end, 16) for end in head.split("-"))
            inside = low <= x.data_ptr() < high
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the tensor is in no mapping")


# ---- ahead, and stopping -------------------------------------------------------------------------------------------------


def test_the_next_block_is_read_while_this_one_runs(monkeypatch, tokens):
    began, lm = {}, bounded()
    source, step = lm.store.source, LM.step
    lm.store.source = lambda name, shape: (
        began.setdefault(name.rsplit(".", 2)[0][:8], time.perf_counter()) and source(name, shape)
    )

    def slow(self, stage, *rest):
        if stage == 0:
            time.sleep(0.3)
            began["end of 0"] = time.perf_counter()
        return step(self, stage, *rest)

    monkeypatch.setattr(LM, "step", slow)
    lm.views(tokens, [Request("blocks.2.hook_resid_post", "stats")])
    assert began["blocks.1"] < began["end of 0"] < began["blocks.2"]


def test_a_walk_says_which_layer_and_closing_it_stops_the_reading(tokens):
    lm = bounded(tiny_config(layers=6))
    walk = lm.walk(tokens, [Request("blocks.5.hook_resid_post", "stats")])
    said = [next(walk) for _ in range(5)]
    assert [(p.done, p.what) for p in said] == [
        (1, "embedding"), (1, "reading layer 0"), (2, "layer 0"), (2, "reading layer 1"), (3, "layer 1"),
    ]  # fmt: skip
    walk.close()
    read, source = [], lm.store.source
    time.sleep(0.1)  # a block that was under way
    lm.store.source = lambda name, shape: read.append(name) or source(name, shape)
    time.sleep(0.1)
    assert read == [] and threading.active_count() < 10


def test_what_goes_wrong_while_reading_ahead_is_raised_where_somebody_listens(tokens):
    def source(name, shape):
        if name.startswith("blocks.1"):
            raise BlockscopeError("the file is gone")
        return distinct(name, shape)

    with pytest.raises(BlockscopeError, match="the file is gone"):
        bounded(source=source).forward(tokens)


def test_visitors_share_a_bounded_model_and_get_their_own_numbers(tokens):
    lm, texts = bounded(), [tokens[i:] + tokens[:i] for i in range(6)]
    alone = [make_lm().forward(text) for text in texts]
    found = [None] * len(texts)

    def visit(i):
        found[i] = lm.forward(texts[i])

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(len(texts))]
    [t.start() for t in threads], [t.join() for t in threads]
    for ours, theirs in zip(found, alone, strict=True):
        assert torch.equal(ours, theirs)


def test_reading_ahead_leaves_alone_what_is_there(lm, tokens):
    lm.forward(tokens)
    with Ahead(lm.stages) as ahead:
        ahead.begin([1])
        assert ahead._reading is None


# ---- the way to the device -----------------------------------------------------------------------------------------------


def test_what_travels_arrives_as_it_was(device):
    buffers = Buffers(1 << 24)
    way = lane(device, buffers)
    assert type(way) is Lane or device.type == "cuda"
    for dtype in (torch.float32, torch.bfloat16):
        for value in (torch.randn(3, 5), torch.randn(700, 900), torch.randn(900, 700).T, torch.zeros(0, 4)):
            value = value.bfloat16()
            moved = way.send(value, dtype)
            way.meet([moved])
            assert moved.device.type == device.type and moved.dtype == dtype and torch.equal(moved.cpu(), value.to(dtype))


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4 * 10**9), ("4 GiB", 4 << 30), ("800m", 800 * 10**6), ("1.5g", 1_500_000_000), (77, 77), ("12", 12)]
)  # fmt: skip
def test_sizes_as_people_write_them(text, size):
    assert parse(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-4GB", "4 XB", "0", 0, True, "nan", "1e9", "9" * 99 + "Q", None])
def test_a_size_that_is_none_is_a_sentence(text):
    with pytest.raises(BlockscopeError, match="memory must be a size such as 4GB"):
        parse(text)


def test_a_model_that_fits_is_not_bounded():
    config = tiny_config()
    need = sum(p.numel() for p in make_lm(config).net.parameters()) * 4
    assert bound(need, config, torch.device("cpu"), torch.float32) is None
    limit = bound(need - 1, config, torch.device("cpu"), torch.float32)
    assert limit == Bound(need - 1, sum(p.numel() for p in make_lm(config).net.blocks[0].parameters()) * 4)
    assert bound(None, config, torch.device("cpu"), torch.float32) is None and free(torch.device("cpu")) > 1 << 20
