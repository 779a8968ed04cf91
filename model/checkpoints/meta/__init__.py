"""Meta's and Mistral's original folders: params.json, consolidated weights, tokenizer.model."""

from model.checkpoints.meta.reader import PARAMS, open_meta

__all__ = ["PARAMS", "open_meta"]
