"""What the files say of themselves: counts, settings, formats, and whether embedding and unembedding are one matrix."""

from model.checkpoints.fields import listed
from model.checkpoints.inspection import Inspection
from model.checkpoints.vocabulary import judge_tokens
from model.doctor.finding import Check


def judge(seen: Inspection) -> list[Check]:
    return [_count(seen), _fields(seen), _formats(seen)]


def _count(seen: Inspection) -> Check:
    found, expected = seen.parameters_found, seen.parameters_expected
    if found == expected:
        return Check.of("count", f"{found:,} numbers in the files, as the config asks for")
    sentence = f"the files give the model {found:,} numbers and its config asks for {expected:,}: they belong to two models"
    return Check.of("count", "numbers in the files against the config", [f"{sentence}; fetch both from one place"])


def _fields(seen: Inspection) -> Check:
    counts = {status: sum(field.status == status for field in seen.fields) for status in ("used", "unused", "defaulted")}
    defaulted = [field.name for field in seen.fields if field.status == "defaulted"]
    notes = [note for note in seen.notes if note not in judge_tokens(seen.tokenizer, seen.config) and not _elsewhere(note)]
    if defaulted:
        notes.append(f"not given, so taken as usual: {listed(defaulted, 12)}")
    return Check.of("fields", f"settings: {', '.join(f'{n} {status}' for status, n in counts.items())}", notes=notes)


def _elsewhere(note: str) -> bool:
    """Said by another check, with what to do."""
    return "differs from the embedding, to which the config ties it" in note or "as token numbers" in note


def _formats(seen: Inspection) -> Check:
    kinds: dict[str, int] = {}
    for row in seen.tensors:
        if row.ours and len(row.shape) > 1:
            kinds[row.dtype] = kinds.get(row.dtype, 0) + 1
    shown = listed(f"{dtype} in {n}" for dtype, n in sorted(kinds.items(), key=lambda pair: -pair[1]))
    unread = [row.name for row in seen.tensors if not row.ours]
    notes = [f"in the files and not read: {listed(unread, 4)}"] if unread else []
    return Check.of("formats", f"matrices are stored as {shown}", notes=notes)
