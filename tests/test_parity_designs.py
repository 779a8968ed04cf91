"""Every design against transformers: logits and every single tap; and proof that each known mistake is noticed, and where."""

import re
from fnmatch import fnmatchcase

import pytest
import torch
from designs import DESIGNS, write_design
from mistaken import built, differing, in_order, shown_in
from recorder import LAYOUTS, record
from reference import CASES, difference, faults, made_once, prompt, write

from model import load
from model.checkpoints import open_folder
from model.checkpoints.names import expected
from model.mistakes import MISTAKES

TOLERANCE = 1e-5  # of the largest value, in fp32
# reorder_and_upcast_attn has an attention function of its own, whose inside is not seen
INSIDE = ("hook_logits", "hook_attn_scores", "hook_pattern", "hook_z", "hook_cache_k", "hook_cache_v")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return made_once(
        tmp_path_factory,
        lambda case, folder: record(write_design(case, folder) if case in DESIGNS else write(case, folder), prompt()),
    )


@pytest.mark.parametrize("case", [*DESIGNS, *CASES])
def test_every_tap_matches_transformers(case, written):
    folder, theirs = written(case)
    lm = load(folder, device="cpu", dtype=torch.float32)
    names = {tap.name for tap in lm.taps()}
    unseen = {name for name in names if name.endswith(INSIDE)} if case == "gpt2-upcast" else set()
    assert set(theirs) == names - unseen, "a tap without a witness"
    ours = lm.capture(prompt(), taps=list(theirs))
    assert not (wrong := faults(ours, theirs, TOLERANCE)), "\n".join(map(str, wrong))


@pytest.mark.parametrize("case", DESIGNS)
def test_logits_match_without_anybody_listening(case, written):
    folder, theirs = written(case)
    logits = load(folder, device="cpu", dtype=torch.float32).forward(prompt())
    apart = difference("logits", logits, theirs["logits"])
    assert apart.worst <= TOLERANCE and apart.cosine > 1 - 1e-9 and apart.relative_norm < TOLERANCE, str(apart)


PAIRS = shown_in(*LAYOUTS)


@pytest.mark.parametrize(("mistake", "family"), PAIRS, ids=[f"{family}: {m.name}" for m, family in PAIRS])
def test_each_mistake_is_noticed_at_the_tap_it_names(mistake, family, written):
    folder, theirs = written(family)
    checkpoint = open_folder(folder)
    assert mistake.fits(checkpoint.config)
    ours = in_order(built(checkpoint.config, lambda name: checkpoint.tensors.read(name).clone(), mistake), prompt())
    wrong = differing(ours, theirs, TOLERANCE)
    assert wrong and wrong[-1] == "logits", f"{mistake.name}: nobody would notice"
    first = re.sub(r"blocks\.\d+\.", "blocks.{i}.", wrong[0])
    assert fnmatchcase(first, mistake.first_tap), f"{mistake.name} shows first at {wrong[0]}, not at {mistake.first_tap}"


@pytest.mark.parametrize("family", LAYOUTS)
def test_the_unchanged_model_passes_the_same_way(family, written):
    folder, theirs = written(family)
    checkpoint = open_folder(folder)
    ours = in_order(built(checkpoint.config, checkpoint.tensors.read), prompt())
    assert set(ours) == set(theirs) and not differing(ours, theirs, TOLERANCE)


@pytest.mark.parametrize("family", LAYOUTS)
def test_mistakes_that_fit_a_model_can_be_made_in_it(family, written):
    """fits() is what a page goes by: whatever it says yes to builds, and finds every parameter in its shape."""
    config = open_folder(written(family)[0]).config
    shapes = expected(config)
    fitting = [mistake for mistake in MISTAKES if mistake.fits(config)]
    assert {m.name for m in MISTAKES if family in m.families} <= {m.name for m in fitting} and len(fitting) >= 3
    for mistake in fitting:
        model = built(config, lambda name: torch.ones(shapes[name]), mistake)
        assert bool(torch.isfinite(model(torch.tensor([prompt(3)]))).all()), mistake.name
