"""A diagnosis as a person reads it in a terminal, and as plain values for a program."""

import math
import shutil
import textwrap
from dataclasses import asdict

from model.cost import amount
from model.doctor import WARNING, Diagnosis
from model.doctor.finding import Check
from model.errors import printable

NARROW, WIDE = 60, 120  # columns that are used at least and at most


def as_json(found: Diagnosis) -> dict:
    """Everything, as plain values."""
    seen = found.inspection
    return {
        "path": str(seen.path), "format": seen.format, "bytes": seen.bytes, "exit_code": found.exit_code,
        "parameters": {"found": seen.parameters_found, "expected": seen.parameters_expected},
        "checks": [asdict(check) for check in found.checks],
        "findings": [asdict(finding) for finding in found.findings],
        "files": [asdict(file) for file in seen.files],
        "fields": [{**asdict(field), "value": str(field.value)} for field in seen.fields],
        "tensors": [asdict(row) for row in seen.tensors],
        "values": {name: {k: plain(v) for k, v in asdict(x).items()} for name, x in found.values.items()},
    }  # fmt: skip


def plain(x: object) -> object:
    """JSON has no NaN and no infinity."""
    return None if isinstance(x, float) and not math.isfinite(x) else x


def as_text(found: Diagnosis, columns: int | None = None) -> str:
    """Warnings, then notes, then every check with what it looked at: `+` made, `!` made and warned, `?` not made."""
    columns = min(max(columns or shutil.get_terminal_size((WIDE, 0)).columns, NARROW), WIDE)
    name = max(len(check.name) for check in found.checks) + 2
    told = {f"not checked: {check.about}" for check in found.checks if not check.checked}
    findings = [finding for finding in found.findings if finding.sentence not in told]
    rows = [line("!" if f.level == WARNING else "-", f.check, f.sentence, name, columns) for f in findings]
    checks = [line(mark(check), check.name, about(check), name, columns) for check in found.checks]
    return "\n".join([head(found), "", *rows, *([""] if rows else []), "checked:", *checks, "", end(found)])


def head(found: Diagnosis) -> str:
    seen = found.inspection
    files = f"{len(seen.files)} file{'s' if len(seen.files) != 1 else ''}, {amount(seen.bytes, 'B')}"
    counts = f"{len(seen.tensors):,} tensors, {seen.parameters_found:,} parameters"
    return f"{printable(seen.path.name)}: {seen.format}, {files}, {counts}"


def line(sign: str, name: str, text: str, width: int, columns: int) -> str:
    """One entry, wrapped below itself. A word that is longer than the line (a tensor's name) stays whole."""
    first = f"{sign} {name:<{width}}"
    return textwrap.fill(
        printable(text),
        columns,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def mark(check: Check) -> str:
    if not check.checked:
        return "?"
    return "!" if any(finding.level == WARNING for finding in check.findings) else "+"


def about(check: Check) -> str:
    return check.about if check.checked else f"not checked: {check.about}"


def end(found: Diagnosis) -> str:
    warnings = sum(finding.level == WARNING for finding in found.findings)
    made, missed = (sum(check.checked is made for check in found.checks) for made in (True, False))
    verdict = f"{warnings} warning{'s' if warnings != 1 else ''}" if warnings else "nothing to warn of"
    return f"{verdict}; {made} checks made{f', {missed} could not be' if missed else ''}"
