"""The Growth page: how attention logits grow and what holds them: recorded, live, without training, in real checkpoints.

`look` answers outside the queue with the sections that a browser lacks. Training, and measuring models, are generators of
their own: they are queued, report progress, and end within a step when nobody listens any more. No handler raises.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import gradio as gr

from model.growth.record import SHIPPED
from viz.growth_state import GrowthState, parse
from viz.pages.explore import _sentence
from viz.pages.growth_api import Api
from viz.pages.growth_files import Files
from viz.pages.growth_frames import steps_of
from viz.pages.growth_jobs import Jobs
from viz.pages.growth_links import arms_of, measures_of, models_of, runs_of
from viz.pages.growth_opened import read_sent
from viz.pages.growth_records import Records
from viz.pages.growth_sections import View, sections
from viz.pages.growth_stage import Stage
from viz.pages.growth_texts import Texts
from viz.pages.shell import on_load, plotly_url, template
from viz.shelf import Shelf
from viz.store import Store
from viz.theme import THEMES


@dataclass(frozen=True)
class Asked:
    token: int
    scheme: str
    state: GrowthState
    notes: tuple[str, ...]
    sent: Mapping


class Growth:
    """The page's handlers over one shelf, one store and one folder of records."""

    def __init__(self, shelf: Shelf, store: Store, folder: Path = SHIPPED, texts: Iterable[str] = ()):
        self.shelf, self.store, self.records, self.files, self.texts = shelf, store, Records(folder), Files(), Texts(texts)
        self.stage, self.jobs = Stage(shelf, store, self.files, self.texts), Jobs(shelf, store)

    def look(self, sent: object) -> dict:
        """The sections whose keys the browser does not have."""
        asked = self._asked(sent)
        base = {"token": asked.token, "state": asdict(asked.state), "notes": list(asked.notes)}
        try:
            have = asked.sent.get("have")
            view, notes = self._view(asked)
            told = sections(view, have if isinstance(have, dict) else {})
            state = self._settled(view)
            lost = len(asked.sent.get("result") or []) > len(view.result)
            notes += ["the app no longer keeps the run that was shown: train it again"] if lost else []
            return base | {
                "kind": "view",
                "state": asdict(state),
                "query": state.query(),
                "notes": [*asked.notes, *notes],
                "sections": told,
            }
        except Exception as error:
            return base | _sentence(error)

    def train(self, sent: object) -> Iterator[dict]:
        """The place in the line, an empty picture, what is new of both arms ten times a second, and where the records are."""
        asked = self._asked(sent)
        try:
            yield from self.stage.train(asked.state, self._theme(asked), asked.token)
        except Exception as error:
            yield {"token": asked.token, **_sentence(error)}

    def control(self, sent: object) -> dict:
        """Pause, go on, stop or keep a run that this browser started: it knows the run's name."""
        sent = sent if isinstance(sent, Mapping) else {}
        try:
            theme = THEMES["dark" if sent.get("scheme") == "dark" else "light"]
            return {"n": sent.get("n"), **self.stage.control(sent.get("run"), sent.get("what"), theme)}
        except Exception as error:
            return {"n": sent.get("n"), **_sentence(error)}

    def open(self, sent: object) -> dict:
        """A record that a visitor uploaded -> the key under which `look` draws it."""
        sent = sent if isinstance(sent, Mapping) else {}
        try:
            key, record = read_sent(sent.get("name"), sent.get("data"))
            return {"n": sent.get("n"), "kind": "opened", "key": self.files.put(key, record), "name": record.meta["name"]}
        except Exception as error:
            return {"n": sent.get("n"), **_sentence(error)}

    def bring(self, sent: object) -> dict:
        """A text that a visitor pasted or uploaded -> the name under which a run reads it, and what it is."""
        sent = sent if isinstance(sent, Mapping) else {}
        try:
            key, corpus = self.texts.bring(sent.get("name"), sent.get("data"))
            return {"n": sent.get("n"), "kind": "text", "key": key, "name": corpus.name}
        except Exception as error:
            return {"n": sent.get("n"), "to": "text", **_sentence(error)}

    def measure(self, sent: object) -> Iterator[dict]:
        """What needs a model to run but no training: the sweeps, and checkpoints over a text."""
        asked = self._asked(sent)
        try:
            yield from self.jobs.run(asked.sent.get("job"), asked.state, self._theme(asked), asked.token)
        except Exception as error:
            yield {"token": asked.token, "job": asked.sent.get("job"), **_sentence(error)}

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _asked(self, sent: object) -> Asked:
        sent = sent if isinstance(sent, Mapping) else {}
        token = sent.get("token")
        state, notes = parse(sent.get("state", {}))
        return Asked(
            token if isinstance(token, int) else 0,
            "dark" if sent.get("scheme") == "dark" else "light",
            state,
            tuple(notes),
            sent,
        )

    def _theme(self, asked: Asked):
        return THEMES[asked.scheme if asked.state.theme == "auto" else asked.state.theme]

    def _view(self, asked: Asked) -> tuple[View, list[str]]:
        state, notes = asked.state, []
        choice = self.records.choose(state) if self.records.entries else None
        view = View(
            state, self._theme(asked), self.records, self.store, choice, self.files.known(asked.sent.get("opened")),
            self.files.known(asked.sent.get("result")), self.jobs.offered, self.texts,
        )  # fmt: skip
        if choice is not None:
            sight = view.sight()
            state, lost = runs_of(state, [side.record for side in sight.shown()], steps_of(sight))
            notes += [*choice.notes, *lost]
        for settle in (
            lambda s: arms_of(s, self.texts),
            lambda s: models_of(s, self.shelf, self.jobs.step_groups),
            measures_of,
        ):
            state, lost = settle(state)
            notes += lost
        return replace(view, state=state), notes

    def _settled(self, view: View) -> GrowthState:
        """The state with what is really shown, so that controls and links say so; what a reader did not choose stays open."""
        state, c = view.state, view.choice
        if c is None:
            return state
        asked = {"group": c.group, "lr": c.lr, "fix": c.fix, "run_seed": c.seed}
        return replace(state, **{name: value for name, value in asked.items() if getattr(state, name)})


def blocks(growth: Growth) -> gr.Blocks:
    """The page as Gradio blocks: one bus for each kind of question, so that none is read for another, and its answers."""

    def hidden(name: str, start: str, **more: object) -> gr.HTML:
        code = on_load("growth", "growth.js", start, name=name, **more)
        bus = {"interactive": True} if start == "startBus" else {}
        return gr.HTML({}, html_template="<i></i>", js_on_load=code, elem_id=f"g-{name}", visible="hidden", **bus)

    on_view = on_load("growth", "growth.js", "startView", plotly=plotly_url("growth"))
    quiet = {"show_progress": "hidden", "api_visibility": "private"}
    with gr.Blocks(title="Blockscope: growth", fill_width=True, analytics_enabled=False) as demo:
        view = gr.HTML(
            {}, html_template=template("growth.html", "growth"), js_on_load=on_view, elem_id="view", apply_default_css=False
        )
        live, said, jobs = (hidden(name, "startHear") for name in ("live", "said", "jobs"))
        look = hidden("look", "startBus", events=["look"])
        train = hidden("train", "startBus", events=["train", "drop"])
        control = hidden("control", "startBus", events=["control", "open", "bring"])
        measure = hidden("measure", "startBus", events=["measure", "halt"])
        look.look(growth.look, look, view, queue=False, trigger_mode="always_last", **quiet)
        training = train.train(
            growth.train, train, live, trigger_mode="multiple", concurrency_id="train", concurrency_limit=12, **quiet
        )
        train.drop(None, None, None, cancels=[training], queue=False, **quiet)
        control.control(growth.control, control, said, queue=False, trigger_mode="multiple", **quiet)
        control.open(growth.open, control, said, queue=False, trigger_mode="multiple", **quiet)
        control.bring(growth.bring, control, said, queue=False, trigger_mode="multiple", **quiet)
        measuring = measure.measure(
            growth.measure, measure, jobs, trigger_mode="multiple", concurrency_id="torch", concurrency_limit=2, **quiet
        )
        measure.halt(None, None, None, cancels=[measuring], queue=False, **quiet)
        Api(growth).offer()
    demo.state_session_capacity = 200  # a session keeps its last answers
    return demo
