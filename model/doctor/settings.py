"""What the files say of themselves: settings, counts, the tokenizer against the embedding."""

from model.checkpoints.fields import listed
from model.checkpoints.inspection import Inspection
from model.doctor.finding import NOTE, WARNING, Finding

PADDING = 1024  # rows without a token that padding to a round number explains


def judge(seen: Inspection) -> list[Finding]:
    findings = [Finding(NOTE, "report", note) for note in seen.notes]
    if seen.parameters_found != seen.parameters_expected:
        findings.append(Finding(
            WARNING, "count",
            f"the files give the model {seen.parameters_found:,} numbers and its config asks for {seen.parameters_expected:,}",
        ))  # fmt: skip
    defaulted = [field.name for field in seen.fields if field.status == "defaulted"]
    if defaulted:
        findings.append(Finding(NOTE, "defaults", f"not given, so taken as usual: {listed(defaulted, 12)}"))
    kinds = {row.dtype for row in seen.tensors if row.ours and len(row.shape) > 1}
    if len(kinds) > 1:
        findings.append(Finding(NOTE, "dtypes", f"matrices are stored in {len(kinds)} formats: {listed(sorted(kinds))}"))
    return findings + vocabulary(seen)


def vocabulary(seen: Inspection) -> list[Finding]:
    """Tokens against rows of the embedding."""
    rows, tokenizer = seen.config.d_vocab, seen.tokenizer
    if tokenizer is None:
        return [Finding(NOTE, "vocabulary", "there is no tokenizer: prompts are typed as token numbers")]
    size = tokenizer.size
    if size > rows:
        sentence = f"the tokenizer has {size:,} tokens and the embedding {rows:,} rows: {size - rows:,} tokens cannot be run"
        return [Finding(WARNING, "vocabulary", f"{sentence}; tokenizer and weights may belong to different models")]
    if rows - size > PADDING:
        sentence = f"{rows - size:,} of {rows:,} rows of the embedding have no token, more than padding explains"
        return [Finding(WARNING, "vocabulary", f"{sentence}; tokenizer and weights may belong to different models")]
    return []
