"""Records that a visitor brings to the Growth page."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from browser import HOSTILE
from growth_page import look, sent
from growth_records import HEADS, made_up

from model.errors import BlockscopeError
from viz.pages.growth_opened import from_csv, read_sent
from viz.pages.growth_recorded import TITLES


def test_a_record_of_somebody_is_opened_and_drawn(growth, tmp_path):
    paths = [made_up(arm=arm, layers=6, heads=2).write(tmp_path / f"{arm}.safetensors") for arm in ("on", "off")]
    keys = [growth.open({"n": i, "name": path.name, "data": sent(path)})["key"] for i, path in enumerate(paths)]
    shown = growth.look({"state": {}, "opened": keys})["sections"]["opened"]
    assert shown["names"][0] == "QK-norm off" and "opened-max_logit" in {card["id"] for card in shown["cards"]}
    csv = made_up(layers=2, heads=HEADS, patterns=False)
    told = growth.open({"name": "../run.csv", "data": base64.b64encode(csv.csv().encode()).decode()})
    read = growth.files.get(told["key"])
    np.testing.assert_allclose(read.values["max_logit"], csv.values["max_logit"], rtol=1e-5)
    assert read.name == "run.csv" and growth.look({"state": {}, "opened": [told["key"]]})["sections"]["opened"]["heads"]


@pytest.mark.parametrize(
    "name, body, words",
    [
        ("a.safetensors", b"\x08\0\0\0\0\0\0\0{}      ", "^a.safetensors holds no tensors"), ("a.safetensors", b"", "^a.safetensors"),
        ("a.bin", b"x", "is not a record"), ("a.csv", b"\xff\xfe", "is not text"), ("a.csv", b"step,loss\n1,2\n", "columns must begin"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,0,0,x\n", "line 2: a value is not a number"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,0\n", "expected 6 values, got 4"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,1e9,0,2\n", "layer must be whole numbers"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n0,1,1,1000,1000,2\n", "are missing"),
        ("a.csv", b"step,train_loss,validation_loss,layer,head,max_logit\n", "no rows"),
    ],
    ids=lambda x: str(x)[:24],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_a_sentence(name, body, words):
    with pytest.raises(BlockscopeError, match=words):
        read_sent(name, base64.b64encode(body).decode())


def test_another_version_and_nonsense_are_sentences(growth, tmp_path):
    from safetensors.numpy import save_file

    save_file({"step": np.zeros(1, np.int64)}, tmp_path / "new.safetensors", metadata={"blockscope_growth": "99"})
    answer = growth.open({"name": "new.safetensors", "data": sent(tmp_path / "new.safetensors"), "n": 4})
    assert answer["n"] == 4 and "format '99'" in answer["sentence"] and "train the run again" in answer["sentence"]
    for data in (None, 3, "%%%", "a" * (24 << 20)):
        assert growth.open({"name": HOSTILE + ".csv", "data": data})["kind"] == "error"
    with pytest.raises(BlockscopeError, match="columns"):
        from_csv(b"", "empty.csv")


@pytest.mark.parametrize("quantity", [q for q in TITLES if q not in ("max_logit", "overflow")])
def test_a_quantity_that_was_not_recorded_is_said_in_its_place(growth, quantity):
    whole, name = made_up(), f"opened-{'capped' if quantity == 'max_capped' else quantity}"
    for lacking in (
        replace(whole, values={n: v for n, v in whole.values.items() if n != quantity}),
        replace(whole, values=whole.values | {quantity: np.full_like(whole.values[quantity], np.nan)}),
    ):
        shown = growth.look({"state": {"quantity": "max_logit"}, "opened": [growth.files.put("lacking", lacking)]})["sections"][
            "opened"
        ]
        card = next(card for card in shown["cards"] if card["id"] == name)
        assert "url" not in card and card["caption"].startswith("not recorded: QK-norm off holds no ")
    both = [growth.files.put("lacking", lacking), growth.files.put("whole", made_up(arm="on"))]
    shown = growth.look({"state": {}, "opened": both})["sections"]["opened"]
    cards = {card["id"]: card for card in shown["cards"]}
    assert quantity == "max_capped" or ("QK-norm off holds none of it" in cards[name]["caption"] and "url" in cards[name])


def test_a_monitored_run_without_losses_says_so(growth):
    none = replace(made_up(), train_loss=np.full(7, np.nan), validation_loss=np.full(7, np.nan))
    shown = growth.look({"state": {}, "opened": [growth.files.put("none", none)]})["sections"]["opened"]
    card = next(card for card in shown["cards"] if card["id"] == "opened-loss")
    assert card["caption"] == "not recorded: QK-norm off holds no loss, so there is nothing to draw here" and "url" not in card


def test_losses_are_per_byte_where_a_token_is_a_byte_and_per_token_elsewhere(growth):
    def caption(record):
        shown = growth.look({"state": {}, "opened": [growth.files.put("unit", record)]})["sections"]["opened"]
        return next(card for card in shown["cards"] if card["id"] == "opened-loss")["caption"]

    here = made_up()
    assert "nats per byte" in caption(here) and "nats per token" not in caption(here)
    elsewhere = replace(here, meta={k: v for k, v in here.meta.items() if k not in ("recipe", "corpus")})
    assert "nats per token" in caption(elsewhere)
    assert "nats per token" in caption(replace(here, meta=here.meta | {"bytes_per_token": 3.7}))
    captions = json.dumps(look(growth, group="sweep")["sections"]["sweep"]["cards"])
    assert "nats per byte" in captions and "per token" not in captions
