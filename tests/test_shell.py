"""plotly.js on its way: the better packing replaces the quick one, and says the same."""

import random

from fastapi.testclient import TestClient

from viz.pages import shell
from viz.store import Store


def test_the_better_packing_is_served_once_it_is_there(monkeypatch):
    words = random.Random(0).choices([b"function", b"return", b"Plotly.", b"var x=1;", b"{}\n"], k=40_000)
    monkeypatch.setattr(shell, "_plotly", lambda: b"".join(words))
    app = shell.parent(Store())
    with TestClient(app) as web:
        quick = web.get("/" + shell.plotly_url(), headers={"accept-encoding": "br"})
        app.state.pack_better()
        better = web.get("/" + shell.plotly_url(), headers={"accept-encoding": "br"})
    assert quick.content == better.content == b"".join(words) and better.headers["content-encoding"] == "br"
    assert int(better.headers["content-length"]) < int(quick.headers["content-length"])
