"""What may be wrong with a model's files although they open: `examine(source)`; in a shell, python -m model.doctor SOURCE."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model.checkpoints.inspection import Inspection
from model.checkpoints.opening import open_checkpoint
from model.doctor import gains, order, published, settings, siblings, values, vocabulary
from model.doctor.finding import NOTE, WARNING, Check, Finding
from model.doctor.values import Values

__all__ = ["NOTE", "WARNING", "Check", "Diagnosis", "Finding", "examine"]

Report = Callable[[int, int, str], None]  # done, total, what


@dataclass(frozen=True)
class Diagnosis:
    """`values`: what each parameter holds, by our name. `checks`: every question that was put, answered or not."""

    inspection: Inspection
    values: dict[str, Values]
    checks: tuple[Check, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the checks noticed, and which could not be made; warnings first."""
        found = [finding for check in self.checks for finding in check.findings]
        return tuple(sorted(found, key=lambda finding: finding.level != WARNING))

    @property
    def exit_code(self) -> int:
        """0: nothing to warn of; 1: warnings. (2, refused, is an error before there is a diagnosis.)"""
        return int(any(finding.level == WARNING for finding in self.findings))


def examine(source: str | Path, report: Report = lambda done, total, what: None, run: bool = True) -> Diagnosis:
    """Open a model and look at everything in it, one tensor at a time. Raises BlockscopeError where it is refused.

    `run`: also run its first layers, for what only shows when they do.
    """
    checkpoint = open_checkpoint(source)
    try:
        inspection = Inspection.of(checkpoint)
        found = values.measure(checkpoint, report)
        checks = (
            *settings.judge(inspection),
            vocabulary.judge(inspection),
            *values.judge(checkpoint, found),
            *gains.judge(checkpoint, found),
            siblings.judge(checkpoint, found),
            *published.judge(inspection.config),
            order.judge(checkpoint, source, report, run),
        )
    finally:
        checkpoint.tensors.close()
    return Diagnosis(inspection, found, checks)
