"""The Files panel: what is in a model's files, and what the doctor says of them. Plain values for the browser.

Headers and settings are judged at once; the numbers themselves only when somebody asks, since all of them have to be read. A
model that is refused has files as well: then they are listed, and the refusal is the first finding.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from model.checkpoints.hub import cached, is_id
from model.checkpoints.inspection import Inspection, inspect
from model.checkpoints.listing import Listing, list_files
from model.cost import amount
from model.doctor import examine, published, settings, vocabulary
from model.doctor.finding import WARNING, Check, Finding
from model.errors import BlockscopeError
from model.presets import PRESETS
from viz.natural import natural
from viz.shelf import Shelf
from viz.theme import count
from viz.worker import Step

MOST = 2000  # tensors listed: of a mixture of experts there are tens of thousands
LONGEST = 120  # characters of one value
FORMATS = {"huggingface": "Hugging Face", "gguf": "GGUF", "meta": "Meta's original"}
REFUSED = "refused"  # the level of a finding that keeps a model from being opened


def source_of(shelf: Shelf, name: str) -> str:
    """What a visitor's model is opened from; a sentence where it has no files, or none here yet."""
    source = shelf.source(name)
    if source is None or str(source) in PRESETS:
        raise BlockscopeError(f"{name} has no files: its weights are {'random' if source else 'those of a live training'}")
    if is_id(str(source)):
        if (path := cached(str(source))) is None:
            raise BlockscopeError(f"{name} has not been downloaded here yet: choose it first")
        return str(path)
    return str(source)


def contents(shelf: Shelf, name: str) -> dict:
    """What lies there and what the doctor sees at a glance, from headers and settings alone: no weight is read."""
    source = source_of(shelf, name)
    try:
        seen = inspect(source)
    except BlockscopeError as refusal:
        return {"kind": "files", "name": name, "files": listing(list_files(Path(source).expanduser()), str(refusal))}
    return {"kind": "files", "name": name, "files": described(seen, glance(seen), whole=False)}


def examined(shelf: Shelf, name: str, report: Callable[[Step], None]) -> dict:
    """The same with everything the doctor found; every number is read once."""
    found = examine(source_of(shelf, name), lambda done, total, what: report(Step(done, total, what)))
    return {"kind": "files", "name": name, "files": described(found.inspection, found.checks, whole=True)}


def glance(seen: Inspection) -> list[Check]:
    """The doctor's checks that need no weight."""
    return [*settings.judge(seen), vocabulary.judge(seen), *published.judge(seen.config)]


def described(seen: Inspection, checks: Iterable[Check], whole: bool) -> dict:
    """An inspection as the browser shows it. Paths stay on this machine: files are named below the model's folder.

    `whole`: whether the numbers were read too.
    """
    found, expected = seen.parameters_found, seen.parameters_expected
    same = "as its config asks for" if found == expected else f"but its config asks for {expected:,}"
    about = f"{FORMATS.get(seen.format, seen.format)} · {sizes(seen.files)} · {found:,} parameters, {same}"
    return {
        "summary": about,
        "agrees": found == expected,
        "reads": amount(seen.bytes, "B"),
        "whole": whole,
        "findings": findings(checks),
        "checks": [[check.checked, check.name, check.about] for check in checks],
        **tables(seen),
    }


def listing(seen: Listing, refusal: str) -> dict:
    """The files of a model that is refused, with the refusal."""
    told = [Finding(REFUSED, "", refusal)]
    told += [Finding(WARNING, "files", problem) for problem in seen.problems if problem not in refusal]
    return {
        "summary": f"not opened · {sizes(seen.files)}",
        "agrees": False,
        "reads": "",
        "whole": False,
        "findings": [[finding.level, finding.check, finding.sentence] for finding in told],
        "checks": [],
        **tables(seen),
    }


def findings(checks: Iterable[Check]) -> list[list[str]]:
    """[level, check, sentence] of what the checks noticed, warnings first; what could not be checked stands with the checks."""
    found = [finding for check in checks if check.checked for finding in check.findings]
    return [[f.level, f.check, f.sentence] for f in sorted(found, key=lambda finding: finding.level != WARNING)]


def tables(seen: Inspection | Listing) -> dict:
    rows = sorted(seen.tensors, key=lambda row: natural(row.name))
    read = isinstance(seen, Listing)
    return {
        "files": [[file.name, amount(file.bytes, "B")] for file in sorted(seen.files, key=lambda file: natural(file.name))],
        "fields": [[field.name, short(field.value), field.status, short(field.origin)] for field in seen.fields],
        "tensors": [[row.name, list(row.shape), row.dtype, row.file, read or bool(row.ours)] for row in rows[:MOST]],
        "count": len(rows),
    }


def sizes(files: Iterable) -> str:
    """ "3 files, 1.6 MB"."""
    files = tuple(files)
    return f"{count(len(files), 'file')}, {amount(sum(file.bytes for file in files), 'B')}"


def short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
