"""The Files panel: what is in a model's files, and what the doctor says of them. Plain values for the browser."""

from collections.abc import Callable
from dataclasses import asdict

from model.checkpoints.inspection import Inspection, inspect
from model.cost import amount
from model.doctor import examine
from model.errors import BlockscopeError
from model.presets import PRESETS
from viz.shelf import Shelf
from viz.worker import Step

MOST = 2000  # tensors listed: of a mixture of experts there are tens of thousands
LONGEST = 120  # characters of one value


def source_of(shelf: Shelf, name: str) -> str:
    """What a visitor's model is opened from; a sentence where it has no files."""
    source = shelf.source(name)
    if source is None or str(source) in PRESETS:
        raise BlockscopeError(f"{name} has no files: its weights are {'random' if source else 'those of a live training'}")
    return str(source)


def contents(shelf: Shelf, name: str) -> dict:
    """What lies there, from headers and settings alone: no weight is read."""
    return {"kind": "files", "name": name, "files": described(inspect(source_of(shelf, name))), "findings": None}


def examined(shelf: Shelf, name: str, report: Callable[[Step], None]) -> dict:
    """The same with what the doctor found; every number is read once."""
    found = examine(source_of(shelf, name), lambda done, total, what: report(Step(done, total, what)))
    findings = [asdict(finding) for finding in found.findings]
    return {"kind": "files", "name": name, "files": described(found.inspection), "findings": findings}


def described(seen: Inspection) -> dict:
    """An inspection as the browser shows it. Paths stay on this machine: files are named below the model's folder."""
    found, expected = seen.parameters_found, seen.parameters_expected
    same = "as its config asks for" if found == expected else f"but its config asks for {expected:,}"
    files = f"{len(seen.files)} file{'s' if len(seen.files) != 1 else ''}"
    return {
        "summary": f"{seen.format} · {files}, {amount(seen.bytes, 'B')} · {found:,} parameters, {same}",
        "agrees": found == expected,
        "notes": list(seen.notes),
        "files": [[file.name, amount(file.bytes, "B")] for file in seen.files],
        "fields": [[field.name, short(field.value), field.status, short(field.origin)] for field in seen.fields],
        "tensors": [[row.name, list(row.shape), row.dtype, row.file, bool(row.ours)] for row in seen.tensors[:MOST]],
        "count": len(seen.tensors),
    }


def short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
