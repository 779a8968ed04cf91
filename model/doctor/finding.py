"""One thing that was noticed."""

from dataclasses import dataclass

NOTE, WARNING = "note", "warning"


@dataclass(frozen=True)
class Finding:
    """`check`: which of the checks it comes from, a word; `sentence`: what was found, what was expected, what to do."""

    level: str
    check: str
    sentence: str
