"""Every error that h5sweep raises on purpose, with the exit code of the command line.

    SweepError                          base of all; exit code 1
    ├── UsageError (ValueError)         2   the caller's mistake: arguments, study file, parameters
    │   ├── StudyError                  2   the study file cannot be used
    │   ├── WrongFolderError            2   the run folder belongs to another sweep
    │   └── ChangedStudyError           2   what made the results there has changed since
    ├── UnsupportedValueError (TypeError)   1   a task returned something we cannot store
    ├── StorageError (OSError)          1   the disk refused: full, read-only, failing
    ├── StartError                      1   workers are ended from outside before they begin
    ├── SubmitError                     1   a batch system refuses a job, or does not answer
    ├── EngineError                     1   an engine does not answer, or has lost what it was sent
    ├── HopelessError                   1   the first tasks of a run all failed of one cause
    ├── DamagedError                    3   a file is not what it should be
    │   ├── ChangedError                3   a file changed while it was read
    │   ├── UnreadableError             3   the disk does not give what a file holds
    │   ├── ConflictError               3   two files hold different results for one task
    │   └── UnmergeableError            3   a file holds something that cannot be merged
    ├── LockedError                     4   another live run holds the folder
    └── InterruptedRunError             128 + n   stopped by signal n: run the same command again

A message says what is wrong and ends with the next step. Exit code 70 is not here: it is for
what we did not foresee.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class SweepError(Exception):
    """Base of every error that h5sweep raises on purpose."""

    exit_code = 1


class UsageError(SweepError, ValueError):
    """The caller's mistake: nothing was changed."""

    exit_code = 2


class StudyError(UsageError):
    """A study file that does not import, or holds no sweep, or several."""


class WrongFolderError(UsageError):
    """A run folder or output that belongs to another sweep."""


class ChangedStudyError(UsageError):
    """Code, constants, inputs or units are not what they were, and the caller has not chosen."""


class UnsupportedValueError(SweepError, TypeError):
    """A result that cannot be stored; it fails one task, never the run."""


class StorageError(SweepError, OSError):
    """The disk refused something; what was finished before is still there.

    A refusal of the operating system has its number as `errno`. Its message says which file and
    why, and what to do is `next_step`.
    """

    @property
    def next_step(self) -> str:
        """What to do about it; nothing if the message says that."""
        if self.errno is None:
            return ""
        return f"{_REMEDIES.get(self.errno, 'Fix that')}, then run the same command again"


_REMEDIES = {
    errno.ENOSPC: "Make space",
    errno.EDQUOT: "Make space",
    errno.EFBIG: "Allow larger files (ulimit -f)",
    errno.EMFILE: "Allow more open files (ulimit -n)",
    errno.ENOMEM: "Free some memory",
    errno.EROFS: "Make it writable, or choose another output",
    errno.EACCES: "Ask its owner for access, or choose another output",
    errno.EPERM: "Ask its owner for access, or choose another output",
}


class StartError(SweepError):
    """Workers were ended from outside before their first task; what was finished is kept."""


class SubmitError(SweepError):
    """A batch system did not take a job; nothing that was finished is affected."""

    def __init__(self, refusal: str, next_step: str) -> None:
        super().__init__(f"{refusal}. {next_step}")
        self.refusal = refusal


class EngineError(SweepError):
    """Dask, MPI or another engine does not answer any more; what was finished is kept."""


class HopelessError(SweepError):
    """A run was stopped because its first tasks all failed alike; what was finished is kept."""


class DamagedError(SweepError):
    """A file that cannot be what it claims to be."""

    exit_code = 3


class ChangedError(DamagedError):
    """A file that changed while it was read: somebody writes it."""


class UnreadableError(DamagedError):
    """Bytes of a file that the system does not give."""

    def __init__(self, path: object, offset: int, refusal: str) -> None:
        super().__init__(
            f"{path} cannot be read at byte {offset:,}: {refusal}. Its disk may be failing: copy "
            "the files there to another disk, and continue with the copy"
        )
        self.refusal = refusal


class ConflictError(DamagedError):
    """Two places with different results for one task; nothing was chosen."""


class UnmergeableError(DamagedError):
    """A sound file that holds something for which a merged file has no place."""


class LockedError(SweepError):
    """Another live run holds the run folder."""

    exit_code = 4


class InterruptedRunError(SweepError):
    """The run was stopped by a signal; everything finished is kept."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_code = 128 + signal_number


@contextmanager
def naming(file: Path | int) -> Iterator[None]:
    """Let a refusal of the system name the file, given by its path or its descriptor.

    It does not if the file is open, and has only its last name if the folder is.
    """
    try:
        yield
    except OSError as error:
        last = None if isinstance(file, int) else file.name
        if error.errno is not None and error.filename in (None, last):
            with suppress(OSError):
                is_open = isinstance(file, int)
                error.filename = str(Path(f"/proc/self/fd/{file}").readlink() if is_open else file)
        raise


def system_error(error: BaseException) -> OSError | None:
    """What the operating system refused, if that is what an exception is about.

    Of the HDF5 library it is known by its words, because h5py makes a KeyError of it, or whatever
    else fits the call.
    """
    if isinstance(error, SweepError):
        return None
    told = _TOLD_BY_HDF5.search(str(error))
    if told is not None:
        number = int(told["number"])
        return OSError(number, os.strerror(number), told["name"])
    return error if isinstance(error, OSError) and error.errno is not None else None


_TOLD_BY_HDF5 = re.compile(
    r"(name = '(?P<name>[^']*)'.*?)?errno = (?P<number>\d+), error message", re.DOTALL
)
