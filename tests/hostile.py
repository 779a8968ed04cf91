"""What a browser or a link may send where the page expects something else."""

import math

MARKUP = "<img src=x onerror=window.pwned=1>${alert(1)}{{7*7}}`\\"
VALUES = [
    2.5, "2.5", math.nan, math.inf, -math.inf, "NaN", "", "abc", None, True, [], {"a": 1}, "1" * 4000, b"3", "0x10", "٣٤²",
    "<img src=x>", "${1}{{2}}", "../../etc", "-9",
]  # fmt: skip
