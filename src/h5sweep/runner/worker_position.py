"""Where a worker is in its batch: three numbers in memory shared with the coordinator.

The worker says which task it is in and since when; the coordinator may lower `end` to take back
what the worker has not begun. No message per task: tiny tasks are thousands a second.

The worker publishes its position before it reads `end`, and the coordinator, having lowered
`end`, looks at the position again a little later; so both never think a task is theirs.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NUMBER = struct.Struct("=Q")
_POSITION = struct.Struct("=QQ")
_END_OFFSET = 16
_SIZE = 24
NO_END = 2**63
_SEAL_FUTURE_WRITE = 0x10  # since Linux 5.1; the module fcntl does not know it


class WorkerPosition:
    """Shared memory for one worker; the coordinator creates it, the worker opens it."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)

    @classmethod
    @contextmanager
    def create(cls) -> Iterator[tuple[WorkerPosition, int]]:
        """A new slot, and the descriptor by which a worker opens it, valid for the while."""
        # In memory, not in a temporary folder: that may be full, or not there.
        descriptor = os.memfd_create("h5sweep-slot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, _SIZE)
            slot = cls(descriptor)
            slot.end = NO_END
            yield slot, descriptor
        finally:
            os.close(descriptor)

    @classmethod
    def open(cls, descriptor: int) -> WorkerPosition:
        """The worker's side. From now on the descriptor changes nothing: a task may write to it."""
        slot = cls(descriptor)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _SEAL_FUTURE_WRITE
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
        return slot

    def begin(self, index: int) -> None:
        """Say: now in task `index` of the batch."""
        _POSITION.pack_into(self._memory, 0, index + 1, time.monotonic_ns())

    def rest(self) -> None:
        """Say: in no task."""
        _POSITION.pack_into(self._memory, 0, 0, 0)

    def position(self) -> tuple[int, int] | None:
        """Which task of the batch, and when it began (monotonic, ns); None if in no task."""
        index_plus_one, begun_ns = _POSITION.unpack_from(self._memory, 0)
        return (index_plus_one - 1, begun_ns) if index_plus_one else None

    @property
    def end(self) -> int:
        """The index at which the worker stops."""
        end: int = _NUMBER.unpack_from(self._memory, _END_OFFSET)[0]
        return end

    @end.setter
    def end(self, index: int) -> None:
        _NUMBER.pack_into(self._memory, _END_OFFSET, index)

    def close(self) -> None:
        self._memory.close()
