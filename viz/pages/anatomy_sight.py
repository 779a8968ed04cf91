"""What the Anatomy page looks at: the model that a view names, and the models beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from model.anatomy import kinds
from model.anatomy.described import PASTED, Described, folder, pasted, preset
from model.presets import PRESETS
from viz.anatomy_state import MOST_COMPARED, AnatomyState
from viz.theme import Theme

NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Sight:
    """What a section is built from: the model, the view, the models beside it, the palette."""

    told: Described
    state: AnatomyState
    theme: Theme
    beside: Mapping[str, Described]

    @property
    def config(self):
        return self.told.config

    @property
    def kind(self) -> kinds.Kind:
        found = kinds.kinds(self.config)
        return found[min(self.state.kind, len(found) - 1)]


@lru_cache(maxsize=64)
def described(model: str, source: str, config: str) -> Described:
    """`source`: what the app was started with under this name, "" for a preset."""
    return pasted(config) if config else folder(model, source) if source else preset(model)


def sight(state: AnatomyState, theme: Theme, sources: Mapping[str, str] = NONE) -> tuple[Sight, list[str]]:
    """The model that a view names and those beside it; a sentence for each that is not known.

    An unknown model gives the default one, so that a link always opens; a config that cannot be read is an error.
    """
    notes, beside = [], {}
    if not state.config and state.model not in sources and state.model not in PRESETS:
        notes.append(f"there is no model {ascii(state.model)[:60]} here: showing {AnatomyState.model}")
        state = replace(state, model=AnatomyState.model)
    told = described(state.model, sources.get(state.model, ""), state.config)
    for name in state.compared:
        if name == PASTED and state.config:
            beside[name] = told
        elif name in sources or name in PRESETS:
            beside[name] = described(name, sources.get(name, ""), "")
        else:
            notes.append(f"there is no model {ascii(name)[:60]} to set beside the others: it is left out")
    if surplus := state.named[MOST_COMPARED:]:
        names = ", ".join(ascii(name)[:60] for name in surplus[:4]) + (", …" if len(surplus) > 4 else "")
        notes.append(f"at most {MOST_COMPARED} models stand side by side: left out {names}")
    return Sight(told, state, theme, beside), notes
