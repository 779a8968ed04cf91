"""Records that a visitor brings to the Growth page."""

import base64

import numpy as np
import pytest
from browser import HOSTILE
from growth_page import sent
from growth_records import HEADS, made_up

from model.errors import BlockscopeError
from viz.pages.growth_opened import from_csv, read_sent


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
