"""Live runs in front of visitors: a line before one worker, a stream of what is new, and what remains of a run."""

import base64
import json
import secrets
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from model.errors import BlockscopeError
from model.growth.corpus import Corpus
from model.growth.record import Record
from viz.figures.growth import Level, Line, Panel, panel, shade
from viz.growth_state import GrowthState
from viz.nodes.card import Card, card
from viz.pages.answers import describe
from viz.pages.growth_line import Line as Waiting
from viz.pages.growth_live import LIVE, Live, arms, words
from viz.pages.growth_recorded import LOGS, SHARES, TITLES
from viz.pages.growth_texts import Texts, facts
from viz.shelf import Shelf
from viz.store import Store
from viz.theme import Theme
from viz.worker import BEAT, watched

UP = "../"
OVERLAP = 12  # points sent again with the next message: a browser may skip one of two messages that arrive together
REMEMBERED = 6  # runs that can still be kept, controlled or downloaded


class Stage:
    """Every run, by a name that only the browser which started it knows."""

    def __init__(self, shelf: Shelf, store: Store, files, texts: Texts):
        self.shelf, self.store, self.files, self.texts, self.line = shelf, store, files, texts, Waiting()
        self._runs: OrderedDict[str, Live] = OrderedDict()
        self._lock = threading.Lock()

    def train(self, state: GrowthState, theme: Theme, token: int) -> Iterator[dict]:
        """Answers of one run from its place in the line to its records; closing the generator ends it within a step."""
        live = self._live(state)
        base = {"token": token, "run": live.id}
        ticket = self.line.join()
        try:
            for ahead in self.line.wait(ticket):
                yield base | {"kind": "waiting", "ahead": ahead}
            self._remember(live)
            yield base | {"kind": "preparing"}
            yield from self._stream(live, theme, base)
            yield base | self._ended(live)
        finally:
            self.line.leave(ticket)

    def trained(self, state: GrowthState) -> Generator[dict, None, list[Record]]:
        """The same for a caller without a page, in line like everybody else: progress, then the records are returned."""
        live, ticket = self._live(state), self.line.join()
        try:
            for ahead in self.line.wait(ticket):
                yield {"kind": "waiting", "ahead": ahead}
            with closing(watched(live.work, BEAT)) as steps:
                for step in steps:
                    done = {"step": live.done // 2, "steps": live.total // 2, "seconds_left": live.left_s}
                    yield {"kind": "progress", "what": step.what, **done}
        finally:
            self.line.leave(ticket)
        return live.records()

    def _live(self, state: GrowthState) -> Live:
        if not self.texts.knows(state.text):
            raise BlockscopeError(f"there is no text {state.text[:40]!r} here: choose one of {', '.join(self.texts.names)}.")
        return Live(*arms(state), partial(self.texts.open, state.text))

    def control(self, run: object, what: object, theme: Theme) -> dict:
        live = self._runs.get(run) if isinstance(run, str) else None
        if live is None:
            raise BlockscopeError("This run is no longer kept by the app: train it again.")
        if what == "pause":
            live.paused.set()
        elif what == "go":
            live.paused.clear()
        elif what == "stop":
            live.stopped.set()
            live.paused.clear()
        elif what == "keep":
            return self._keep(live)
        elif what == "theme":  # the empty pictures in other colours; the browser has all points
            return self._begin(live, theme) if live.corpus else {"kind": "control", "run": live.id, "what": what}
        elif what == "points":  # a browser that missed some asks for all
            return {"kind": "points", "run": live.id, "from": 0, "points": list(live.points)}
        else:
            raise BlockscopeError("a run can be paused, resumed, stopped or kept")
        return {"kind": "control", "run": live.id, "what": what}

    def _stream(self, live: Live, theme: Theme, base: dict) -> Iterator[dict]:
        steps, sent, begun = watched(live.work, BEAT), 0, False
        try:
            for step in steps:
                if not begun and live.points:
                    begun = True
                    yield base | self._begin(live, theme)
                said = {"what": step.what, "done": step.done, "total": step.total, "left": live.left_s}
                points = live.points[max(0, sent - OVERLAP) :]
                at = max(0, sent - OVERLAP)
                sent = at + len(points)
                yield base | {"kind": "points", "from": at, "points": points, "paused": live.paused.is_set(), **said}
        finally:
            steps.close()
        if not begun and live.points:  # over within a second
            yield base | self._begin(live, theme)

    def _begin(self, live: Live, theme: Theme) -> dict:
        """Empty pictures whose curves the page fills: all layers of the left arm, then those of the right."""
        layers = [len(arm.config.blocks) for arm in (live.left, live.right)]
        names = [words(arm) for arm in (live.left, live.right)]
        cards = [describe(one, self.store) for one in empty(names, layers, live.left.recipe.steps, live.corpus, theme)]
        shown = [one | {"url": UP + one["url"]} for one in cards]
        told = {"names": names, "text": facts(live.corpus.described()), "quantities": list(LIVE)}
        return {"kind": "begin", "run": live.id, "scheme": theme.name, "cards": shown, "layers": layers, **told}

    def _ended(self, live: Live) -> dict:
        records = live.records()
        keys = [self.files.put(secrets.token_urlsafe(16), record) for record in records]
        last = {"points": live.points[max(0, len(live.points) - 40 * OVERLAP) :]}
        at = max(0, len(live.points) - 40 * OVERLAP)
        return {"kind": "ended", "records": keys, "ended": [record.meta["ended"] for record in records], "from": at, **last}

    def _keep(self, live: Live) -> dict:
        """Files to download, and both models on the shelf for the other pages."""
        if not (records := live.records()):
            raise BlockscopeError("Nothing has been measured yet: let the run take a few steps first.")
        kept = []
        for training, record in zip(live.trainings, records, strict=True):
            name = self.shelf.lend(training.lm())
            kept.append({"arm": words(training.arm), "model": name, "step": int(record.step[-1]), "file": self._file(record)})
        said = (
            f"Kept here as they are at step {kept[0]['step']:,}, under names that only you know, until this app restarts or "
            f"{self.shelf.lends} newer models are kept:"
        )
        return {"kind": "kept", "run": live.id, "points": len(live.points), "said": said, "kept": kept}

    def _file(self, record: Record) -> dict:
        """A record as the page offers it for download: its name and where its bytes are, as base64 in JSON."""
        with tempfile.TemporaryDirectory() as folder:
            body = record.write(Path(folder) / "record.safetensors").read_bytes()
        payload = json.dumps({"data": base64.b64encode(body).decode()}).encode()
        return {"name": f"{record.name}.safetensors", "bytes": len(body), "url": f"{UP}data/{self.store.put(payload)}"}

    def _remember(self, live: Live) -> None:
        with self._lock:
            self._runs[live.id] = live
            while len(self._runs) > REMEMBERED:
                self._runs.popitem(last=False)


def empty(names: list[str], layers: list[int], steps: int, corpus: Corpus, theme: Theme) -> list[Card]:
    """The first-level panels without points, their traces in the order in which the page fills them."""
    none, cards = np.zeros(0), []
    for quantity in LIVE:
        lines = [
            Line(f"{name}, layer {layer}", none, none, side, shade(layer, count))
            for side, (name, count) in enumerate(zip(names, layers, strict=True))
            for layer in range(count)
        ]
        if quantity == "max_logit":
            lines += [
                Line(f"{name}: bound of the worst layer", none, none, i, 0.9, dash="dash", width=1.25)
                for i, name in enumerate(names)
            ]
        drawn = Panel(
            lines, log=quantity in LOGS, span=(-0.02, 1.02) if quantity in SHARES else None, unit=TITLES[quantity], total=steps,
            growing=True,
        )  # fmt: skip
        what = "each line is a layer, faint to strong from the first to the last: its worst head"
        cards.append(card(f"live-{quantity}", TITLES[quantity], what, panel(drawn, theme, revision=f"live:{quantity}")))
    lines = [Line(f"{name}: {what}", none, none, i, s, width=w) for i, name in enumerate(names) for what, s, w in LOSSES]
    levels = [Level(value, word) for n, word in (("2", "bigram"), ("3", "trigram")) if (value := corpus.ngrams.get(n))]
    drawn = Panel(lines, unit="loss", levels=levels, total=steps, growing=True)
    said = "faint: training loss of each batch; strong: validation loss; nats per byte"
    cards.append(card("live-loss", "Loss", said, panel(drawn, theme, revision="live:loss")))
    return [replace(one, role="live") for one in cards]


LOSSES = (("training", 0.4, 1.25), ("validation", 1.0, 2.25))
