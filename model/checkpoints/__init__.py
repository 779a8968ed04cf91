"""Models on disk -> (config, lazy tensors, tokenizer, report), and back."""

from model.checkpoints.huggingface import Checkpoint, open_folder
from model.checkpoints.saving import save_folder
from model.checkpoints.tensors import Tensors

__all__ = ["Checkpoint", "Tensors", "open_folder", "save_folder"]
