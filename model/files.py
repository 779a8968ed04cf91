"""What stands at a path, told before it is read: a file that may be read, or one sentence on what is there instead."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

from model.errors import BlockscopeError

POINTER = b"version https://git-lfs"


def ordinary(path: Path, where: str) -> int:
    """The size of the file, which can be opened and is no Git LFS pointer; otherwise one sentence that begins with `where`."""
    with readable(where):
        try:
            status = path.stat()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP) and path.is_symlink():
                raise BlockscopeError(
                    f"{where} is a link that leads nowhere ({str(path.readlink())[:120]}); download the file again"
                ) from None
            raise
        if not S_ISREG(status.st_mode):  # a pipe or a device would block here for ever
            raise BlockscopeError(f"{where} is not an ordinary file; put the file itself there")
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise BlockscopeError(f"{where} is a Git LFS pointer, not the file itself; run `git lfs pull` in the folder")
        return status.st_size


def has(folder: Path, name: str) -> bool:
    """Whether the folder lists this name, be it of a link that leads nowhere. Raises OSError where it cannot be listed."""
    return name in os.listdir(folder)


@contextmanager
def readable(where: str) -> Iterator[None]:
    """What the system refuses within becomes one sentence that begins with `where`."""
    try:
        yield
    except OSError as error:
        cure = "allow this user to read it" if isinstance(error, PermissionError) else "check the disk that it is on"
        raise BlockscopeError(f"{where} cannot be read: {error.strerror or error}; {cure}") from None
