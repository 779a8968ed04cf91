"""The Growth page's endpoints for programs: recorded runs, live training, sweeps, surveys and records, as JSON.

What the page would say in a sentence is raised here as gradio's error, which reaches a client as that sentence.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import gradio as gr

from model.errors import BlockscopeError
from viz.growth_state import parse
from viz.pages.answers import plain
from viz.pages.growth_opened import as_json, read_sent, sweep_json
from viz.pages.growth_words import STORIES
from viz.state import DEFAULT_PROMPT

if TYPE_CHECKING:
    from viz.pages.growth import Growth


class Api:
    """The endpoints over a page's own parts: its records, its line of live runs, its jobs and its shelf."""

    def __init__(self, growth: "Growth"):
        self.growth = growth

    def offer(self) -> None:
        """Name every endpoint, within the page's blocks."""
        gr.api(self.recorded, api_name="growth", queue=False)
        gr.api(self.read, api_name="growth_record", queue=False)
        gr.api(self.train, api_name="growth_train", concurrency_id="train", concurrency_limit=12)
        gr.api(self.untrained, api_name="growth_untrained", concurrency_id="torch")
        gr.api(self.survey, api_name="growth_survey", concurrency_id="torch")

    def recorded(self, group: str = "", lr: str = "", fix: str = "", run_seed: str = "") -> dict:
        """Recorded runs as JSON: what there is, the captions, and every probe of the two (or more) runs that are chosen.

        `group` is stress, sweep or fixes; `lr`, `fix` and `run_seed` choose among its runs ("all": every seed). The nearest
        that exists is shown and `notes` says so.
        """
        state, notes = parse({name: value for name, value in locals().items() if name != "self"})
        records = self.growth.records
        choice = _or_raise(records.choose, state)
        entries = [entry for pair in choice.pairs for entry in pair if entry is not None]
        story = STORIES.get(choice.group, lambda records: [])(self.growth.records)
        told = {
            "groups": self.growth.records.groups,
            "lrs": choice.lrs,
            "fixes": choice.fixes,
            "seeds": choice.seeds,
            "story": story,
        }
        runs = [as_json(self.growth.records.read(entry)) for entry in entries]
        return plain(told | {"notes": [*notes, *choice.notes], "runs": runs})

    def train(
        self, size: str = "M2", lr: float = 0.1, steps: int = 100, seed: int = 0, a_fixes: str = "", b_fixes: str = "qk-norm",
        a_arch: str = "", b_arch: str = "", text: str = "",
    ) -> Iterator[dict]:  # fmt: skip
        """Train two arms that differ by choice (names of fixes with commas, tiny- architectures) on a text of this app.

        Yields {"kind": "waiting", "ahead"} and {"kind": "progress", "step", "steps", "seconds_left"} at most ten times a
        second, and at last {"kind": "ended", "runs"} with both records. A job that is cancelled ends within a step.
        """
        asked = {"size": size, "live_lr": lr, "live_steps": steps, "live_seed": seed, "a_fixes": a_fixes, "b_fixes": b_fixes}
        state, notes = parse(asked | {"a_arch": a_arch, "b_arch": b_arch, "text": text})
        try:
            records = yield from self.growth.stage.trained(state)
        except BlockscopeError as error:
            raise gr.Error(str(error), print_exception=False) from None
        yield plain({"kind": "ended", "notes": notes, "runs": [as_json(record) for record in records]})

    def untrained(self, kind: str = "scale") -> dict:
        """Growth without training: kind is scale, depth, context or width; each sweep says in its label what it is."""
        state, notes = parse({"untrained": kind})
        found = _or_raise(self.growth.jobs.sweeps, state.untrained)
        return plain({"notes": notes, "sweeps": [sweep_json(sweep) for sweep in found]})

    def survey(self, model: str = "", prompt: str = DEFAULT_PROMPT) -> dict:
        """One model of this app over a text: every quantity and stage by layer and head, gains and bound."""
        state, notes = parse({"model": model, "prompt": prompt})
        name, wrong = self.growth.shelf.name(state.model)
        survey, line = _or_raise(self.growth.jobs.surveyed, name, state.prompt)
        return plain({"notes": [*notes, *wrong, *([line] if line else [])], **asdict(survey)})

    def read(self, name: str, data: str) -> dict:
        """Read a record: its file name and its bytes as base64; a damaged one or another version is an error that says so."""
        _, record = _or_raise(read_sent, name, data)
        return plain(as_json(record))


def _or_raise(work, *given):
    try:
        return work(*given)
    except BlockscopeError as error:
        raise gr.Error(str(error), print_exception=False) from None
