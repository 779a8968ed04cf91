"""The shipped pair of code models: the recipe, the committed weights and what their cards claim."""

import csv
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from model import load
from model.growth.arms import Arm
from model.growth.corpus import Corpus
from model.growth.heads import measure
from model.growth.initial import initialised
from model.growth.measure import probe
from model.growth.probing import validation_loss, windows
from model.growth.ship import ARMS, RECIPE, shipped_config, write_record
from model.growth.train import Training
from model.taps import capture

SHIPPED = Path(__file__).parent.parent / "assets" / "checkpoints"
SHORT = replace(RECIPE, steps=6, batch=2, context=32, record_every=3, validation_sequences=4)


@pytest.fixture(scope="module")
def text() -> Corpus:
    noise = torch.randint(256, (6000,), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    return Corpus(noise[:5000], noise[5000:], "none", (1, 1))


def test_arms_start_from_the_same_weights():
    off, on = (initialised(shipped_config(arm), seed=0) for arm in ARMS)
    ours, theirs = dict(off.named_parameters()), dict(on.named_parameters())
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert {n.split(".")[-2] for n in theirs.keys() - ours.keys()} == {"q_norm", "k_norm"}
    assert not torch.equal(ours["embed.weight"], initialised(shipped_config("off"), seed=1).embed.weight)


def test_learning_rate_warms_up_and_falls_to_a_twentieth():
    recipe = replace(RECIPE, steps=100, warmup=10)
    factors = [recipe.lr_factor(step) for step in range(101)]
    assert factors[0] == 0.1 and factors[9] == factors[10] == 1.0 and factors[100] == pytest.approx(0.05)
    assert all(a >= b for a, b in pairwise(factors[10:]))


def test_recorded_quantities_equal_a_direct_computation(text):
    model, tokens = initialised(shipped_config("on"), seed=0), windows(text.validation, torch.tensor([0, 7, 99]), 33)
    _, taps = capture(model, tokens[:, :-1])
    visible = torch.ones(32, 32, dtype=torch.bool).tril()
    direct = [taps[f"blocks.{i}.attn.hook_logits"][..., visible].abs().amax((0, 2)).tolist() for i in range(4)]
    assert probe(model, tokens[:, :-1])["max_logit"] == pytest.approx(torch.tensor(direct).numpy(), rel=1e-5)
    loss = F.cross_entropy(taps["logits"].flatten(0, 1), tokens[:, 1:].flatten()).item()
    assert validation_loss(model, tokens) == pytest.approx(loss, rel=1e-5)


def test_head_figures_on_a_head_that_is_known(text):
    """Without queries every visible key weighs the same: 1/(i+1) on each kind of key that occurs once."""
    model = initialised(shipped_config("off"), seed=0)
    for block in model.blocks:
        block.attn.q_proj.weight.data.zero_()
    tokens = windows(text.validation, torch.tensor([0, 50]), 64)
    uniform = (1 / (torch.arange(10, 64) + 1.0)).mean().item()
    for figures in measure(model, tokens):
        assert [figures.previous, figures.second, figures.itself, figures.first] == pytest.approx([uniform] * 4, rel=1e-4)
        assert figures.induction == pytest.approx(figures.uniform, rel=1e-4)


def test_record_of_the_shipped_pair_is_a_plain_table(tmp_path, text):
    training = Training(Arm("off", shipped_config("off"), SHORT), text)
    points = [event.probe for event in training if event.probe]
    write_record(tmp_path / "record.csv", training.record())
    rows = list(csv.DictReader((tmp_path / "record.csv").open()))
    assert [int(row["step"]) for row in rows] == [0, 3, 6] and rows[0]["train_loss"] == ""
    assert float(rows[2]["max_logit_3"]) == pytest.approx(points[2].values["max_logit"][3].max(), abs=1e-3)
    assert float(rows[2]["validation_loss"]) == pytest.approx(points[2].validation_loss, abs=1e-5)


@pytest.mark.parametrize("arm", ARMS)
def test_the_shipped_model_is_what_its_folder_says(arm):
    folder = SHIPPED / f"code-qknorm-{arm}"
    facts, lm = json.loads((folder / "run.json").read_text()), load(folder, device="cpu")
    rows = list(csv.DictReader((folder / "record.csv").open()))
    assert lm.config == shipped_config(arm) and facts["parameters"] == lm.parameters and facts["arm"] == arm
    assert type(RECIPE)(**facts["recipe"]) == RECIPE, "the recipe of the shipped pair must stay readable"
    assert int(rows[-1]["step"]) == facts["recipe"]["steps"] == RECIPE.steps
    assert sum(f.stat().st_size for f in folder.iterdir()) < 8_000_000
    other = json.loads((SHIPPED / f"code-qknorm-{'on' if arm == 'off' else 'off'}" / "run.json").read_text())
    assert {k for k in facts if facts[k] != other[k]} == {"arm", "parameters"}, "the arms must differ in QK-norm alone"
    text = "def add(a, b):\n    return a + b\n\n\nclass Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n"
    ids = lm.encode(text)
    loss = F.cross_entropy(lm.forward(ids)[0, :-1], torch.tensor(ids[1:])).item()
    assert loss < 1.6, "the stored weights must be the trained ones: an untrained model is at 5.5 nats per byte or more"
    assert lm.decode(ids) == text


def test_the_shipped_pair_shows_what_qk_norm_does():
    """The records, not the prose: without QK-norm the largest logit of the run is several times the one with it."""
    peaks = {}
    for arm in ARMS:
        rows = csv.DictReader((SHIPPED / f"code-qknorm-{arm}" / "record.csv").open())
        peaks[arm] = max(float(v) for row in rows for k, v in row.items() if k.startswith("max_logit"))
    assert peaks["off"] > 2 * peaks["on"]
