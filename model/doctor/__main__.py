"""What may be wrong with a model's files: python -m model.doctor SOURCE. Exits 0, 1 with warnings, 2 where it is refused."""

import argparse
import json
import math
import sys
from dataclasses import asdict

from model.cost import amount
from model.doctor import WARNING, Diagnosis, examine
from model.errors import BlockscopeError


def as_json(found: Diagnosis) -> dict:
    """Everything, as plain values."""
    seen = found.inspection
    return {
        "path": str(seen.path), "format": seen.format, "bytes": seen.bytes, "exit_code": found.exit_code,
        "parameters": {"found": seen.parameters_found, "expected": seen.parameters_expected},
        "findings": [asdict(finding) for finding in found.findings],
        "files": [asdict(file) for file in seen.files],
        "fields": [{**asdict(field), "value": str(field.value)} for field in seen.fields],
        "tensors": [asdict(row) for row in seen.tensors],
        "values": {name: {k: plain(v) for k, v in asdict(x).items()} for name, x in found.values.items()},
    }  # fmt: skip


def plain(x: object) -> object:
    """JSON has no NaN and no infinity."""
    return None if isinstance(x, float) and not math.isfinite(x) else x


def as_text(found: Diagnosis) -> str:
    seen = found.inspection
    files = f"{len(seen.files)} file{'s' if len(seen.files) != 1 else ''}, {amount(seen.bytes, 'B')}"
    head = f"{seen.path.name}: {seen.format}, {files}, {len(seen.tensors):,} tensors, {seen.parameters_found:,} parameters"
    lines = [f"{'!' if finding.level == WARNING else '-'} {finding.check}: {finding.sentence}" for finding in found.findings]
    warnings = sum(finding.level == WARNING for finding in found.findings)
    end = f"{warnings} warning{'s' if warnings != 1 else ''}" if warnings else "nothing to warn of"
    return "\n".join([head, *lines, end])


def progress(done: int, total: int, what: str) -> None:
    """One line that is written over, where somebody watches."""
    if sys.stderr.isatty():
        print(
            f"\r\x1b[K{100 * done // max(total, 1)} % {what}",
            end="" if done < total else "\r\x1b[K",
            file=sys.stderr,
            flush=True,
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m model.doctor", description=__doc__)
    parser.add_argument("source", help="a model's folder or weight file, or a hub id")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--quick", action="store_true", help="do not run the first layers")
    asked = parser.parse_args(argv)
    try:
        found = examine(asked.source, progress, run=not asked.quick)
    except BlockscopeError as error:
        print(json.dumps({"exit_code": 2, "refused": str(error)}) if asked.json else f"refused: {error}")
        return 2
    print(json.dumps(as_json(found), indent=1) if asked.json else as_text(found))
    return found.exit_code


if __name__ == "__main__":
    sys.exit(main())
