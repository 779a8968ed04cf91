"""Experts, latent attention, sinks and chunks against transformers, tensor by tensor."""

import re
from fnmatch import fnmatchcase

import pytest
import torch
from doubles import Doubles
from mistaken import built, differing, in_order, shown_in
from reference import difference, faults, made_once, prompt
from sparse_cases import SPARSE, build_sparse, sparse_json, write_sparse
from sparse_reference import by_expert, record_sparse

from model import load
from model.checkpoints import open_folder

TOLERANCE = 1e-5  # of the largest value


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return made_once(tmp_path_factory, lambda case, folder: record_sparse(write_sparse(case, folder), prompt()))


@pytest.mark.parametrize("case", SPARSE)
def test_every_tap_matches_transformers(case, written):
    folder, theirs = written(case)
    lm = load(folder, device="cpu", dtype=torch.float32)
    assert set(theirs) == {tap.name for tap in lm.taps()}, "a tap without a witness"
    ours = by_expert(lm.capture(prompt(), taps=list(theirs)))
    assert not (wrong := faults(ours, theirs, TOLERANCE)), "\n".join(map(str, wrong))


@pytest.mark.parametrize("case", SPARSE)
def test_logits_match_without_anybody_listening(case, written):
    folder, theirs = written(case)
    logits = load(folder, device="cpu", dtype=torch.float32).forward(prompt())
    apart = difference("logits", logits, theirs["logits"])
    assert apart.worst <= TOLERANCE and apart.cosine > 1 - 1e-9 and apart.relative_norm < TOLERANCE, str(apart)


@pytest.mark.parametrize("case", SPARSE)
def test_in_fp64_nothing_is_left_to_rounding(case, written):
    folder, _ = written(case)
    checkpoint = open_folder(folder)
    ours, theirs = built(checkpoint.config, checkpoint.tensors.read).double(), build_sparse(sparse_json(case)).double()
    with Doubles():
        theirs.model.rotary_emb = type(theirs.model.rotary_emb)(theirs.config)  # its table too
        theirs = record_sparse(theirs, prompt())
        ours = by_expert(in_order(ours, prompt()))
    assert ours["logits"].dtype == theirs["logits"].dtype == torch.float64
    assert not (wrong := faults(ours, theirs, 1e-12)), "\n".join(map(str, wrong))


# ---- mistakes that the comparison must notice -----------------------------------------------------------------------

TYPES = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "llama4_text", "gpt_oss")
PAIRS = shown_in(*TYPES)


def compared(folder, theirs, mistake=None) -> list[str]:
    """The taps that differ, in the order of the computation."""
    checkpoint = open_folder(folder)
    assert mistake is None or mistake.fits(checkpoint.config)
    ours = in_order(built(checkpoint.config, lambda name: checkpoint.tensors.read(name).clone(), mistake), prompt())
    return differing(by_expert(ours), theirs, TOLERANCE)


@pytest.mark.parametrize(("mistake", "family"), PAIRS, ids=[f"{family}: {m.name}" for m, family in PAIRS])
def test_each_mistake_is_noticed_at_the_tap_it_names(mistake, family, written):
    wrong = compared(*written(family), mistake)
    assert wrong and wrong[-1] == "logits", f"{mistake.name}: nobody would notice"
    first = re.sub(r"blocks\.\d+\.", "blocks.{i}.", wrong[0])
    assert fnmatchcase(first, mistake.first_tap), f"{mistake.name} shows first at {wrong[0]}, not at {mistake.first_tap}"


@pytest.mark.parametrize("family", TYPES)
def test_every_type_has_mistakes_and_none_of_them_unchanged(family, written):
    assert sum(family == shown for _, shown in PAIRS) >= 3
    assert compared(*written(family)) == []
