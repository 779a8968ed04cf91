"""Files of the hub, fetched one after another into huggingface_hub's own cache, with a word on how far they are."""

import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from model.errors import BlockscopeError

Told = Callable[[str, int, int], None]  # (file on its way, bytes done, bytes in all), of everything that this fetch needs
INSTEAD = "name a model's folder or file on this disk"
LOCAL = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}  # faults of this disk, not of the connection


class Stopped(Exception):
    """Whoever listened to the progress raised `error`: the download ends, and no half file is used."""

    def __init__(self, error: BaseException):
        super().__init__(str(error))
        self.error = error


class Download:
    """The files of one repository. The revision that the first file is found at is the one that all the others come from."""

    def __init__(self, repo: str, revision: str | None):
        self.repo, self.revision = repo, revision
        self.told: Told | None = None
        self.done, self.total = 0, 0
        self.stopped: Stopped | None = None

    def get(self, names: Sequence[str], sizes: Mapping[str, int], told: Told | None = None) -> Path:
        """These files, in this order -> the folder that they lie in. A file that is in the cache is not fetched again."""
        from huggingface_hub import hf_hub_download

        place = Path()
        self.told, self.done, self.total = told, 0, sum(sizes[name] for name in names)
        for name in names:
            before = self.done
            self._say(name, 0)
            found = Path(hf_hub_download(self.repo, name, revision=self.revision, tqdm_class=self._bar(name)))
            if self.stopped:  # raised inside a library that went on
                raise self.stopped
            self.done = before + sizes[name]  # what the cache had counts as done
            self._say(name, 0)
            place = found.parents[len(Path(name).parts) - 1]
            self.revision = place.name
        return place

    def _say(self, name: str, more: int) -> None:
        if self.stopped:
            raise self.stopped
        self.done += more
        if self.told is None:
            return
        try:
            self.told(name, min(self.done, self.total), self.total)
        except BaseException as error:
            self.stopped = Stopped(error)
            raise self.stopped from error

    def _bar(self, name: str) -> type:
        """The progress bar that huggingface_hub makes for a file: in the terminal as ever, and told to whoever listens."""
        from huggingface_hub.utils import tqdm

        say = self._say

        class Bar(tqdm):
            def update(self, n: float | None = 1) -> bool | None:
                say(name, int(n or 0))
                return super().update(n)

            def update_transfer(self, n: float) -> None:
                """Bytes on the wire, where they are counted beside those of the file: only the latter are told."""

        return Bar


def explained(repo: str, error: Exception, cache: Path) -> BlockscopeError:
    """What a download that failed, and that nothing in the cache stands in for, means to a person."""
    if is_local(error):
        return BlockscopeError(
            f"{repo} cannot be written to {cache} ({error.strerror}); make room there or set HF_HOME elsewhere"
        )
    return BlockscopeError(f"{repo} is no folder here nor in the cache of earlier downloads, and {_why(error)}, or {INSTEAD}")


def is_local(error: BaseException) -> bool:
    """Whether this disk is at fault, so that no cache can help."""
    return isinstance(error, OSError) and error.errno in LOCAL


def _why(error: Exception) -> str:
    from huggingface_hub import constants, errors

    causes = _causes(error)
    if any(isinstance(one, errors.OfflineModeIsEnabled) for one in causes):
        return "the Hugging Face hub is not asked while HF_HUB_OFFLINE is set; unset it"
    statuses = [one.response.status_code for one in causes if getattr(one, "response", None) is not None]
    hub = f"the Hugging Face hub ({constants.ENDPOINT})"
    if statuses:
        busy = "too many requests: wait a while" if statuses[0] == 429 else "try again later"
        return f"{hub} answered with error {statuses[0]}; {busy}"
    if any("Timeout" in type(one).__name__ for one in causes):
        return f"{hub} did not answer in time; try again"
    if any(isinstance(one, OSError) and "Consistency" in str(one) for one in causes):
        return f"the download from {hub} broke off; try again"
    return f"{hub} cannot be reached; check the connection and try again"


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
