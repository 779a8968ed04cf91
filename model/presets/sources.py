"""Where each preset's values come from: the comment that stands above its line, so that it is written once."""

import io
import re
import tokenize
from functools import cache
from pathlib import Path

TWIN = "the parts of {name} in small sizes of our own; random weights"


@cache
def sources() -> dict[str, str]:
    """Preset -> its source. "as above" continues the last full one; a line without a comment has the one before it."""
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        above, base = "", ""
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.COMMENT and token.line.lstrip().startswith("#"):
                above = token.string.lstrip("# ").strip()
                base = base if above.startswith("as above") else above
            elif token.type == tokenize.STRING and token.start[1] == 4 and re.match(r'    "[\w.-]+": \w+\(', token.line):
                name = token.string.strip('"')
                twin = name.startswith("tiny-")
                found[name] = TWIN.format(name=name.removeprefix("tiny-")) if twin else _joined(above, base)
    return found


def _joined(above: str, base: str) -> str:
    """ "as above, X" -> the paper of the line above, and X."""
    paper = re.split("[;,] (?:config|the text)", base)[0]
    return f"{paper}; {above.removeprefix('as above, ')}" if above.startswith("as above, ") else above
