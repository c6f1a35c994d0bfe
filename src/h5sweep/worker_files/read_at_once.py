"""Read many small files at once, and know which files were met before."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..disk.open_files import Identity, identity_of
from .read_file import SMALL_BYTES

READ_AT_ONCE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait
SETTLED_NS = 2_000_000_000  # longer than clocks of one machine and its disks differ, or tick


class MetFiles:
    """Which files a survey has met, whatever their names, and which are being written."""

    def __init__(self, written: dict[Identity, str]) -> None:
        self.written = written
        self._before: set[Identity] = set()

    def is_first(self, identity: Identity) -> bool:
        """Whether a file is met for the first time; from now on it is not."""
        is_first = identity not in self._before
        self._before.add(identity)
        return is_first


class SmallFile(NamedTuple):
    """A small file as it was read."""

    content: bytes
    identity: Identity
    modified_ns: int


def read_files(paths: Sequence[str]) -> list[SmallFile | None]:
    """Read small files; None for one that cannot be, is not, or may have changed meanwhile.

    To ask each for its state before it is read and again after would take longer than to read it.
    One that had not been changed for a while when it was read is what was read.
    """
    settled_ns = time.time_ns() - SETTLED_NS
    return [_read(path, settled_ns) for path in paths]


def _read(path: str, settled_ns: int) -> SmallFile | None:
    try:
        descriptor = os.open(path, READ_AT_ONCE)
    except OSError:
        return None
    try:
        content = os.pread(descriptor, SMALL_BYTES + 1, 0)
        status = os.fstat(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    is_whole = stat.S_ISREG(status.st_mode) and len(content) == status.st_size <= SMALL_BYTES
    # The time of change is that which nobody can set back.
    is_settled = max(status.st_mtime_ns, status.st_ctime_ns) < settled_ns
    if not (content and is_whole and is_settled):
        return None
    return SmallFile(content, identity_of(status), status.st_mtime_ns)
