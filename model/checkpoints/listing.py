"""What lies in a model's files although it cannot be opened: their sizes, the tensors of every header that reads, the settings.

Nothing here is judged: what is wrong is said by the refusal itself, and by whatever else cannot be read.
"""

from dataclasses import dataclass
from pathlib import Path

from model.checkpoints.fields import Field, read_json
from model.checkpoints.gguf.header import MAGIC
from model.checkpoints.gguf.header import read_header as read_gguf
from model.checkpoints.header import read_header
from model.checkpoints.inspection import File, Row
from model.errors import BlockscopeError

MOST_FILES, MOST_TENSORS = 500, 200_000
SETTINGS = ("config.json", "params.json")
LARGEST_SETTINGS = 4 << 20  # bytes


@dataclass(frozen=True)
class Listing:
    """`problems`: a sentence for each file that cannot be read. No tensor is known to be used by the model."""

    files: tuple[File, ...]
    tensors: tuple[Row, ...]
    fields: tuple[Field, ...]
    problems: tuple[str, ...]


def list_files(path: Path) -> Listing:
    """The files of a folder, or one file with the config beside it. Raises BlockscopeError where nothing lies there."""
    files, tensors, fields, problems = [], [], [], []
    for file in _files(path):
        try:
            files.append(File(file.name, file.stat().st_size))
            if file.name in SETTINGS:
                fields += _fields(read_json(file, LARGEST_SETTINGS), file.name)
            elif file.suffix == ".safetensors":
                tensors += [Row(name, (), entry.shape, entry.dtype, file.name) for name, entry in read_header(file).items()]
            elif file.suffix == ".gguf" or _begins_as_gguf(file):
                header = read_gguf(file)
                tensors += [Row(name, (), entry.shape, entry.format, file.name) for name, entry in header.tensors.items()]
                fields += [Field(name, _plain(value), "", file.name) for name, value in header.settings.items()]
        except BlockscopeError as error:
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{file.name} cannot be read: {error.strerror}")
    return Listing(tuple(files), tuple(tensors[:MOST_TENSORS]), tuple(fields), tuple(problems))


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))[:MOST_FILES]
        if path.is_file():
            return [path, *(path.parent / name for name in SETTINGS if (path.parent / name).is_file())]
    except (OSError, ValueError) as error:
        raise BlockscopeError(f"{path.name} cannot be read ({type(error).__name__}); check the folder") from None
    raise BlockscopeError(f"{path.name} is no longer there: choose another model")


def _begins_as_gguf(file: Path) -> bool:
    if file.suffix:
        return False
    with file.open("rb") as opened:
        return opened.read(len(MAGIC)) == MAGIC


def _fields(values: dict, origin: str, above: str = "") -> list[Field]:
    """Every setting by its path; of a nested object the entries."""
    found = []
    for name, value in values.items():
        nested = isinstance(value, dict) and value and not above
        found += _fields(value, origin, f"{name}.") if nested else [Field(above + name, value, "", origin)]
    return found


def _plain(value: object) -> object:
    return f"{len(value):,} entries" if hasattr(value, "__len__") and not isinstance(value, str) else value
