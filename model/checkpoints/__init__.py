"""Models on disk -> (config, lazy tensors, tokenizer, report), and back."""

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.huggingface import open_folder
from model.checkpoints.inspection import Inspection, inspect
from model.checkpoints.opening import open_checkpoint
from model.checkpoints.saving import save_folder
from model.checkpoints.tensors import Tensors

__all__ = ["Checkpoint", "Inspection", "Tensors", "inspect", "open_checkpoint", "open_folder", "save_folder"]
