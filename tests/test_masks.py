"""Which keys a query reads: every mask against a matrix written out, through attention, in both kernels and with a cache."""

import pytest
import torch
from conftest import assert_same, distinct

from model.attention import Attention
from model.errors import BlockscopeError
from model.masks import MASKS, Causal, Chunked, Sliding
from model.place import KVCache, Place
from model.positions import Rope
from model.taps import capture

CAUSAL = """
    1 0 0 0 0 0 0
    1 1 0 0 0 0 0
    1 1 1 0 0 0 0
    1 1 1 1 0 0 0
    1 1 1 1 1 0 0
    1 1 1 1 1 1 0
    1 1 1 1 1 1 1"""
SLIDING_3 = """
    1 0 0 0 0 0 0
    1 1 0 0 0 0 0
    1 1 1 0 0 0 0
    0 1 1 1 0 0 0
    0 0 1 1 1 0 0
    0 0 0 1 1 1 0
    0 0 0 0 1 1 1"""
SLIDING_1 = """
    1 0 0 0 0 0 0
    0 1 0 0 0 0 0
    0 0 1 0 0 0 0
    0 0 0 1 0 0 0
    0 0 0 0 1 0 0
    0 0 0 0 0 1 0
    0 0 0 0 0 0 1"""
CHUNKED_3 = """
    1 0 0 0 0 0 0
    1 1 0 0 0 0 0
    1 1 1 0 0 0 0
    0 0 0 1 0 0 0
    0 0 0 1 1 0 0
    0 0 0 1 1 1 0
    0 0 0 0 0 0 1"""
DOCUMENTS = """
    1 0 0 0 0 0 0
    1 1 0 0 0 0 0
    0 0 1 0 0 0 0
    0 0 1 1 0 0 0
    0 0 1 1 1 0 0
    0 0 0 0 0 1 0
    0 0 0 0 0 1 1"""
SLIDING_IN_DOCUMENTS = """
    1 0 0 0 0 0 0
    1 1 0 0 0 0 0
    0 0 1 0 0 0 0
    0 0 1 1 0 0 0
    0 0 0 1 1 0 0
    0 0 0 0 0 1 0
    0 0 0 0 0 1 1"""
PACKED = torch.tensor([0, 0, 1, 1, 1, 2, 2])  # three texts in one sequence

CASES = {
    "causal": (Causal(), None, CAUSAL),
    "sliding-3": (Sliding(window=3), None, SLIDING_3),
    "sliding-1": (Sliding(window=1), None, SLIDING_1),
    "sliding-wider-than-the-text": (Sliding(window=100), None, CAUSAL),
    "chunked-3": (Chunked(chunk=3), None, CHUNKED_3),
    "chunked-wider-than-the-text": (Chunked(chunk=7), None, CAUSAL),
    "documents": (Causal(), PACKED, DOCUMENTS),
    "sliding-in-documents": (Sliding(window=2), PACKED, SLIDING_IN_DOCUMENTS),
}


def matrix(text: str) -> torch.Tensor:
    return torch.tensor([[entry == "1" for entry in row.split()] for row in text.strip().splitlines()])


def attention(mask, **fields) -> Attention:
    config = Attention.Config(
        d_model=14, n_heads=4, n_kv_heads=2, d_head=6, rope=Rope.Config(d=6, base=1e4, pairing="half"), mask=mask, **fields
    )
    part = config.build()
    for name, p in part.named_parameters():
        p.data = distinct(name, tuple(p.shape))
    return part


def stream(length: int = 7) -> torch.Tensor:
    return torch.randn(1, length, 14, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("case", CASES)
def test_a_mask_is_its_written_out_matrix(case):
    mask, documents, text = CASES[case]
    at, visible = torch.arange(7), matrix(text)
    ours = mask(at, at)
    if documents is not None:
        ours = ours & (documents[:, None] == documents[None, :])
    assert ours.dtype == torch.bool and torch.equal(ours, visible)
    assert bool(visible.diagonal().all()), "a token always sees itself, so no row is empty"


@pytest.mark.parametrize("extra", [{}, {"softcap": 1.0}, {"sink": True}], ids=["plain", "soft-cap", "sink"])
@pytest.mark.parametrize("case", CASES)
def test_the_pattern_is_zero_exactly_where_the_matrix_is_false(case, extra):
    mask, documents, text = CASES[case]
    part, x, visible = attention(mask, **extra), stream(), matrix(text)
    _, taps = capture(part, x, Place.of(x, None, documents))
    assert bool((taps["hook_pattern"][..., ~visible] == 0).all()) and bool((taps["hook_pattern"][..., visible] > 0).all())
    assert bool((taps["hook_attn_scores"][..., ~visible] == -torch.inf).all())
    assert bool(taps["hook_attn_scores"][..., visible].isfinite().all())
    assert bool(taps["hook_logits"].isfinite().all()), "logits are before the mask"


@pytest.mark.parametrize("case", CASES)
def test_the_fused_kernel_sees_the_same_keys(case):
    mask, documents, _ = CASES[case]
    part, x = attention(mask), stream()
    explicit, _ = capture(part, x, Place.of(x, None, documents), taps=["hook_pattern"])
    with torch.no_grad():
        assert_same(part(x, Place.of(x, None, documents)), explicit, 1e-6)


@pytest.mark.parametrize("prefix", [1, 3, 4, 6])
@pytest.mark.parametrize("taps", [["hook_z"], ["hook_z", "hook_pattern"]], ids=["fused", "explicit"])
@pytest.mark.parametrize("case", CASES)
def test_after_a_cached_prefix_the_rows_are_the_last_rows(case, taps, prefix):
    """Queries of the new tokens start at an offset; a triangle aligned to the top left would hide the prefix."""
    mask, documents, text = CASES[case]
    part, x, visible, cache = attention(mask), stream(), matrix(text), KVCache()
    whole = capture(part, x, Place.of(x, None, documents))
    first = None if documents is None else documents[:prefix]
    with torch.no_grad():
        part(x[:, :prefix], Place.of(x[:, :prefix], cache, first))
    cache.length = prefix
    out, seen = capture(part, x[:, prefix:], Place.of(x[:, prefix:], cache, documents), taps=taps)
    assert_same(out, whole[0][:, prefix:], 1e-6)
    if "hook_pattern" in seen:
        pattern = seen["hook_pattern"]
        assert pattern.shape[-2:] == (7 - prefix, 7)
        assert torch.equal(pattern[0, 0] > 0, visible[prefix:])


def test_documents_pack_texts_that_do_not_see_each_other():
    """The second text's outputs are those that it has alone, rotations and all: only distances count."""
    part, x = attention(Causal()), stream()
    with torch.no_grad():
        packed = part(x, Place.of(x, None, PACKED))
        for first, last in ((0, 2), (2, 5), (5, 7)):
            assert_same(packed[:, first:last], part(x[:, first:last]), 1e-5)


def test_documents_must_cover_the_text():
    with pytest.raises(BlockscopeError, match="documents"):
        Place.of(stream(), None, torch.zeros(6))


@pytest.mark.parametrize("make", [lambda: Sliding(window=0), lambda: Sliding(window=-1), lambda: Chunked(chunk=0)])
def test_masks_that_would_hide_everything_are_refused(make):
    with pytest.raises(BlockscopeError, match="at least 1"):
        make()


def test_how_many_keys_a_cache_must_keep():
    assert [make.reach(100) for make in (Causal(), Sliding(window=30), Sliding(window=300), Chunked(chunk=30))] == [
        100,
        30,
        100,
        30,
    ]
    assert set(MASKS) == {"causal", "sliding", "chunked"}
