"""Read many small files at once, and know which files were met before."""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from ..disk.open_files import Identity

READ_AT_ONCE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait
SETTLED_NS = 2_000_000_000  # longer than clocks of one machine and its disks differ, or tick


class MetFiles:
    """Which files a survey has met, whatever their names, and which are being written."""

    def __init__(self, written: dict[Identity, str]) -> None:
        self.written = written
        self._before: dict[int, set[int]] = defaultdict(set)  # inodes, by their devices
        self._written: dict[int, set[int]] = defaultdict(set)
        for device, inode in written:
            self._written[device].add(inode)

    def is_first(self, device: int, inode: int) -> bool:
        """Whether a file is met for the first time; from now on it is not."""
        is_first = inode not in self._before[device]
        self._before[device].add(inode)
        return is_first

    def has_any(self, device: int, inodes: set[int]) -> bool:
        """Whether any of these was met, or is being written."""
        known = self._before[device], self._written[device]
        return not all(map(inodes.isdisjoint, known))

    def add(self, device: int, inodes: set[int]) -> None:
        self._before[device] |= inodes


class _ReadFiles(NamedTuple):
    """Files that were read at once."""

    device: int
    inodes: set[int]
    modified_ns: list[int]
    contents: list[bytes]


def read_files(paths: Sequence[str], size_bytes: int) -> _ReadFiles | None:
    """Read files of one size; None if one cannot be, is of another, or may have changed meanwhile.

    To ask each for its state before it is read and again after would take longer than to read it.
    One that had not been changed for a while when it was read is what was read.
    """
    begun_ns, descriptors = time.time_ns(), list[int]()
    try:
        for path in paths:
            descriptors.append(os.open(path, READ_AT_ONCE))
        contents = list(map(os.pread, descriptors, repeat(size_bytes), repeat(0)))
        found = list(map(os.fstat, descriptors))
    except OSError:
        return None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if any(size != size_bytes or not stat.S_ISREG(mode) for size, mode in set(map(_kind, found))):
        return None
    device, *others = set(map(_device, found))
    read = _ReadFiles(device, set(map(_inode, found)), list(map(_modified_ns, found)), contents)
    is_settled = max(*read.modified_ns, *map(_changed_ns, found)) < begun_ns - SETTLED_NS
    are_whole = set(map(len, contents)) == {size_bytes}
    return read if is_settled and are_whole and not others else None


_kind = attrgetter("st_size", "st_mode")
_device = attrgetter("st_dev")
_inode = attrgetter("st_ino")
_modified_ns = attrgetter("st_mtime_ns")
_changed_ns = attrgetter("st_ctime_ns")  # which nobody can set back
