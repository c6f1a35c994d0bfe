"""Messages between a coordinator and one of its workers: JSON, each behind its size.

Not `multiprocessing.connection`: importing that is a sixth of what it takes a worker to start.
"""

from __future__ import annotations

import json
import os
import select
import struct
from contextlib import suppress
from typing import Any

_SIZE = struct.Struct("=I")


class Channel:
    """One end of a connected pair of sockets."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def send(self, message: object) -> None:
        """Send a message; if nobody is there any more to receive it, that shows elsewhere."""
        content = json.dumps(message).encode()
        data = memoryview(_SIZE.pack(len(content)) + content)
        with suppress(ConnectionError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    def receive(self) -> Any:
        """The next message, as soon as it is there; None if the other end is closed."""
        with suppress(OSError, EOFError):
            (size_bytes,) = _SIZE.unpack(self._read(_SIZE.size))
            return json.loads(self._read(size_bytes))
        return None

    def has_something(self) -> bool:
        """Whether a message, or part of one, or the end, can be received now."""
        return is_readable(self._descriptor, 0)

    def close(self) -> None:
        """Let go of this end; the second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            part = os.read(self._descriptor, size_bytes - len(data))
            if not part:
                raise EOFError
            data += part
        return data


def is_readable(descriptor: int, wait_s: float | None) -> bool:
    """Whether there is something to read, or an end to be noticed, within so many seconds."""
    poll = select.poll()  # select.select would refuse a descriptor beyond 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if wait_s is None else 1000 * wait_s))
