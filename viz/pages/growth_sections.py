"""What `look` answers, section by section: each is built from a few fields of the view and travels only when those changed."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.errors import BlockscopeError
from model.growth.arms import recorded_differences
from model.growth.quantities import QUANTITIES
from model.growth.record import Record
from viz.growth_state import GrowthState
from viz.nodes.card import Card
from viz.pages import growth_live, growth_survey
from viz.pages.answers import describe, plain
from viz.pages.growth_frames import head_map, packed, patterns, steps_of
from viz.pages.growth_recorded import TITLES, Side, Sight, details, has, panels, what_is_drawn
from viz.pages.growth_records import ALL, GROUPS, OFF, ON, Choice, Records
from viz.pages.growth_summary import about, fix_rows, sweep_cards
from viz.pages.growth_texts import Texts, facts
from viz.pages.growth_words import STORIES
from viz.store import Store
from viz.theme import Theme

UP = "../"  # this page lives one level below the app's root
NAMES = {"off": "QK-norm off", "on": "QK-norm on"}


@dataclass(frozen=True)
class View:
    """One request: the state, the theme, and what of the server it may be answered from."""

    state: GrowthState
    theme: Theme
    records: Records
    store: Store
    choice: Choice | None
    opened: tuple[tuple[str, Record], ...] = ()
    result: tuple[tuple[str, Record], ...] = ()
    models: tuple[str, ...] = ()  # what may be surveyed: models, and directories of training steps
    texts: Texts = field(default_factory=Texts)

    def sight(self) -> Sight:
        """The recorded runs that are chosen."""
        sides = []
        for left, right in self.choice.pairs:
            for n, entry in enumerate((left, right)):
                if entry is not None:
                    sides.append(Side(self.records.read(entry), n, NAMES.get(entry.arm, entry.label), entry.seed))
        c = self.choice
        return self._sight(sides, f"{c.group}:{c.lr}:{c.fix}:{c.seed}", "growth")

    def of_files(self, files: Sequence[tuple[str, Record]], place: str) -> Sight:
        """Records of a visitor: at most two, the run without a fix on the left."""
        ordered = sorted(files[-2:], key=lambda pair: pair[1].meta["arm"] != OFF)
        sides = [Side(record, n, record.meta["label"][:80]) for n, (_, record) in enumerate(ordered)]
        return self._sight(sides, f"{place}:{':'.join(key for key, _ in ordered)}", place)

    def _sight(self, sides: list[Side], key: str, place: str) -> Sight:
        state = self.state
        known = any(has(side.record, state.quantity) for side in sides) and state.quantity in TITLES
        quantity = state.quantity if known else "max_logit"
        return Sight(sides, state.at_layer, state.at_head, self.theme, key, quantity, place)

    def cards(self, found: Sequence[Card]) -> list[dict]:
        told = [describe(card, self.store) for card in found]
        return [card | {"url": UP + card["url"]} if "url" in card else card for card in told]

    def file(self, told: dict) -> str:
        return f"{UP}data/{self.store.put(packed(told))}"


def choice(v: View) -> dict:
    """The choosers, the story of the group, and what runs are shown."""
    c = v.choice
    if c is None:
        return {"empty": "No run is recorded in this app: train one below, or open a record of your own."}
    shown = v.sight().sides
    groups = [[group, GROUPS.get(group, group)] for group in v.records.groups]
    told = {
        "groups": groups, "group": c.group, "lrs": c.lrs, "lr": c.lr, "fixes": c.fixes, "fix": c.fix,
        "seeds": [*c.seeds, *([ALL] if len(c.seeds) > 1 else [])], "seed": c.seed,
        "names": [side.name for side in v.sight().shown()], "story": STORIES.get(c.group, lambda records: [])(v.records),
        "about": abouts(shown),
        "layers": int(shown[0].record.values["max_logit"].shape[1]), "several": c.seed == ALL,
        "quantities": [[q, TITLES[q]] for q in QUANTITIES if q in TITLES and any(has(side.record, q) for side in shown)],
        "differs": recorded_differences(shown[0].record.meta, shown[1].record.meta) if len(shown) > 1 else [],
    }  # fmt: skip
    if c.group == "fixes":
        runs = [
            v.records.read(entry) for entry in sorted(v.records.members("fixes"), key=lambda e: (e.arm != OFF, e.arm != ON))
        ]
        told["table"] = fix_rows(runs)
    return told


def curves(v: View) -> dict:
    return {"cards": v.cards(panels(v.sight())), "drawn": what_is_drawn(v.sight())} if v.choice else {"cards": []}


def more_curves(v: View) -> dict:
    return {"cards": v.cards(details(v.sight())) if v.choice and v.state.details else []}


def head_maps(v: View) -> dict:
    return _heads(v, v.sight()) if v.choice else {"cards": []}


def _heads(v: View, sight: Sight) -> dict:
    card, frames = head_map(sight)
    names = [side.name for side in sight.shown()]
    return {"cards": v.cards([card]), "frames": v.file({"steps": steps_of(sight), "names": names, **frames})}


def pattern_pair(v: View) -> dict:
    return _patterns(v, v.sight()) if v.choice else {"cards": []}


def _patterns(v: View, sight: Sight) -> dict:
    cards, frames = patterns(sight)
    return {"cards": v.cards(cards), "frames": v.file({"steps": steps_of(sight), **frames})}


def sweeps(v: View) -> dict:
    if v.choice is None:
        return {"cards": []}
    found = v.records.sweep()
    lrs = [f"{entry.lr:g}" for entry, _ in found[OFF]]
    return {"cards": v.cards(sweep_cards(found, v.choice.lr, v.theme)), "lrs": lrs}


def form(v: View) -> dict:
    return growth_live.form(v.state, v.texts)


def checkpoints(v: View) -> dict:
    """What may be surveyed; no model is opened for it."""
    return {"models": list(v.models), "seen": growth_survey.menu(), "most": growth_survey.MOST}


def opened(v: View) -> dict:
    return _files(v, v.opened, "opened")


def result(v: View) -> dict:
    return _files(v, v.result, "result")


def _files(v: View, files: Sequence[tuple[str, Record]], place: str) -> dict:
    """Everything of at most two records of a visitor."""
    if not files:
        return {"cards": [], "about": []}
    sight = v.of_files(files, place)
    ids = {"heads": _heads(v, sight), "patterns": _patterns(v, sight)} if any_patterns(sight) else {"heads": _heads(v, sight)}
    metas = [side.record.meta for side in sight.sides]
    differs = recorded_differences(*metas) if len(metas) == 2 and all("architecture" in meta for meta in metas) else []
    return {
        "cards": v.cards([*panels(sight), *details(sight)]), "names": [side.name for side in sight.sides], "differs": differs,
        "about": abouts(sight.sides), "drawn": what_is_drawn(sight), **ids,
    }  # fmt: skip


def abouts(sides: Sequence[Side]) -> list[str]:
    """One line on each run, and what they read: once where it is the same."""
    told = [f"{side.name}: {about(side.record)}" for side in sides]
    read = {side.name: facts(side.record.meta.get("corpus") or {}) for side in sides}
    if len(set(read.values())) == 1:
        return [*told, *(f"text: {one}" for one in set(read.values()) if one)]
    return [*told, *(f"text of {name}: {one}" for name, one in read.items() if one)]


def any_patterns(sight: Sight) -> bool:
    return any(side.record.patterns is not None for side in sight.sides)


RUNS = ("group", "lr", "fix", "run_seed")
HEAD = ("at_layer", "at_head")
LIVE = ("size", "live_lr", "live_seed", "live_steps", "a_arch", "a_fixes", "b_arch", "b_fixes", "text")
SECTIONS: dict[str, tuple[tuple[str, ...], bool, Callable[[View], dict]]] = {  # name -> fields, whether it has pictures, how
    "choice": (RUNS, False, choice),
    "panels": ((*RUNS, *HEAD), True, curves),
    "details": ((*RUNS, *HEAD, "details"), True, more_curves),
    "heads": ((*RUNS, *HEAD, "quantity"), True, head_maps),
    "patterns": ((*RUNS, *HEAD), True, pattern_pair),
    "sweep": (("lr",), True, sweeps),
    "form": (LIVE, False, form),
    "checkpoints": ((), False, checkpoints),
    "result": ((*HEAD, "quantity"), True, result),
    "opened": ((*HEAD, "quantity"), True, opened),
}


def key(v: View, name: str) -> str:
    """Equal where a section would be the same: the chosen runs count, not how a link spelt them."""
    fields, drawn, _ = SECTIONS[name]
    c = v.choice
    runs = {"group": c.group, "lr": c.lr, "fix": c.fix, "run_seed": c.seed} if c else {}
    values: list[Any] = [runs.get(field, getattr(v.state, field)) for field in fields]
    values += [v.theme.name] if drawn else []
    values += [[key for key, _ in getattr(v, name)]] if name in ("opened", "result") else []
    values += [v.texts.facts(v.state.text)] if name == "form" else []
    return hashlib.sha256(json.dumps([name, *values]).encode()).hexdigest()[:16]


def sections(v: View, have: dict) -> dict:
    """Those whose keys the browser does not have. One that fails says so in its place."""
    told = {}
    for name, (_, _, build) in SECTIONS.items():
        if have.get(name) != (named := key(v, name)):
            try:
                told[name] = {"key": named, **plain(build(v))}
            except BlockscopeError as error:
                told[name] = {"key": named, "cards": [], "wrong": str(error)}
    return told
