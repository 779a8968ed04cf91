"""What one check of the doctor gives: whether it could be made, what it looked at, and what it noticed."""

from dataclasses import dataclass

NOTE, WARNING = "note", "warning"


@dataclass(frozen=True)
class Finding:
    """`check`: which of the checks it comes from, a word; `sentence`: what was found, what was expected, what to do."""

    level: str
    check: str
    sentence: str


@dataclass(frozen=True)
class Check:
    """One question about the files. `checked`: whether it could be answered; `about`: what was looked at and how much of it,
    or why it could not be answered. A check that could not be made is no approval, so it is reported like the others.
    """

    name: str
    checked: bool
    about: str
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, name: str, about: str, warnings: list[str] | tuple[str, ...] = (), notes: list[str] | tuple[str, ...] = ()):
        """A check that was made, and the sentences that it gave."""
        found = [Finding(WARNING, name, text) for text in warnings] + [Finding(NOTE, name, text) for text in notes]
        return cls(name, True, about, tuple(found))

    @classmethod
    def skipped(cls, name: str, why: str):
        return cls(name, False, why, (Finding(NOTE, name, f"not checked: {why}"),))
