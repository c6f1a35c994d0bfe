"""Messages between a coordinator and a worker: JSON, in packets that begin with a mark.

The sockets keep packets apart. So a task that writes to descriptors that are not its own leaves
packets without the mark, which belong to no message; and who reads a packet that is there is never
kept waiting for the rest of it.

Not `multiprocessing.connection`: importing that is a sixth of what it takes a worker to start.
"""

from __future__ import annotations

import json
import os
import select
import socket
from contextlib import suppress
from typing import Any

_MORE, _LAST = b"\xabh5sweep+", b"\xabh5sweep."
_PART_BYTES = 1 << 15
NOT_YET: Any = object()


class Channel:
    """One end of a connected pair of sockets."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._parts: list[bytes] = []
        self.has_met_others = False  # packets that are no part of a message

    @staticmethod
    def make_pair() -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def fileno(self) -> int:
        return self._descriptor

    def send(self, message: object) -> None:
        """Send a message; if nobody is there any more to receive it, that shows elsewhere."""
        content = memoryview(json.dumps(message, separators=(",", ":")).encode())
        with suppress(ConnectionError):
            for start in range(0, len(content), _PART_BYTES):
                part = content[start : start + _PART_BYTES]
                is_last = start + _PART_BYTES >= len(content)
                os.writev(self._descriptor, [_LAST if is_last else _MORE, part])

    def receive(self) -> Any:
        """The next message, as soon as it is there; None if the other end is closed."""
        while (message := self.receive_packet()) is NOT_YET:
            pass
        return message

    def receive_packet(self) -> Any:
        """The message that ends with the next packet, NOT_YET if none does, None if closed."""
        packet = b""
        with suppress(OSError):
            packet = os.read(self._descriptor, len(_LAST) + _PART_BYTES)
        if not packet:
            return None
        if not packet.startswith((_MORE, _LAST)):
            self.has_met_others = True
            return NOT_YET
        self._parts.append(packet[len(_LAST) :])
        if packet.startswith(_MORE):
            return NOT_YET
        content, self._parts = b"".join(self._parts), []
        return json.loads(content)

    def has_something(self) -> bool:
        """Whether a packet, or the end, can be received now."""
        return is_readable(self._descriptor, 0)

    def close(self) -> None:
        """Let go of this end; the second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_readable(descriptor: int, wait_s: float | None) -> bool:
    """Whether there is something to read, or an end to be noticed, within so many seconds."""
    poll = select.poll()  # select.select would refuse a descriptor beyond 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if wait_s is None else 1000 * wait_s))
