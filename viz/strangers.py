"""Names in a link that mean nothing on any page. A name of another page is none: a view is taken along between the pages."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache

MOST = 5  # names that one sentence tells


@cache
def known() -> frozenset[str]:
    from viz.anatomy_state import AnatomyState
    from viz.compare_state import CompareState
    from viz.growth_state import GrowthState
    from viz.state import UiState

    return frozenset(field.name for state in (UiState, CompareState, GrowthState, AnatomyState) for field in fields(state))


def strangers(raw: Mapping) -> list[str]:
    """One sentence for all names that no page knows; those that begin with an underscore are the server's own."""
    found = [name for name in raw if not (isinstance(name, str) and (name in known() or name.startswith("_")))]
    if not found:
        return []
    shown = ", ".join(_shown(name) for name in found[:MOST]) + (f" and {len(found) - MOST} more" if len(found) > MOST else "")
    return [f"no page knows {'the names' if len(found) > 1 else 'the name'} {shown}: left out"]


def _shown(name: object) -> str:
    text = ascii(name) if isinstance(name, str) else f"a {type(name).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."
