"""What may be wrong with a model's files although they open: `examine(source)`; in a shell, python -m model.doctor SOURCE."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model.checkpoints.inspection import Inspection
from model.checkpoints.opening import open_checkpoint
from model.doctor import order, published, settings, values
from model.doctor.finding import NOTE, WARNING, Finding
from model.doctor.values import Values

__all__ = ["NOTE", "WARNING", "Diagnosis", "Finding", "examine"]

Report = Callable[[int, int, str], None]  # done, total, what


@dataclass(frozen=True)
class Diagnosis:
    """`values`: what each parameter holds, by our name. `findings`: warnings first."""

    inspection: Inspection
    values: dict[str, Values]
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0: nothing to warn of; 1: warnings. (2, refused, is an error before there is a diagnosis.)"""
        return int(any(finding.level == WARNING for finding in self.findings))


def examine(source: str | Path, report: Report = lambda done, total, what: None, run: bool = True) -> Diagnosis:
    """Open a model and look at everything in it, one tensor at a time. Raises BlockscopeError where it is refused.

    `run`: also run its first layers, for what only shows when they do.
    """
    checkpoint = open_checkpoint(source)
    inspection = Inspection.of(checkpoint)
    found = values.measure(checkpoint, report)
    findings = [
        *settings.judge(inspection),
        *published.judge(inspection.config),
        *values.judge(checkpoint, found),
        *(order.judge(source, report) if run else ()),
    ]
    checkpoint.tensors.close()
    return Diagnosis(inspection, found, tuple(sorted(findings, key=lambda finding: finding.level != WARNING)))
