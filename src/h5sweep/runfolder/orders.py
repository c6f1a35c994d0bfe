"""What a run has sent to an engine: a file that is there for as long as the run.

    orders/1f9c2e.json       the run that sent it; it has a heartbeat

No engine can stop what it has begun, some begin it twice, and all may lose it. So whoever works on
an order looks whether its file is still there: a run removes it when it ends, and the heartbeat
stops when it dies. What an engine carries is the name of the order.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..disk import durable
from .heartbeat import BeatWatch, beating, read_beat, write_padded
from .layout import RunFolder

LOOK_EVERY_S = 1.0
SEEN_WITHIN_S = 3.0  # a new file may be seen late elsewhere


@dataclass(frozen=True)
class Order:
    """An order of a run, which is known by its name."""

    name: str

    def beat_path(self, folder: RunFolder) -> Path:
        return folder.orders_path / f"{self.name}.json"

    def withdraw(self, folder: RunFolder) -> None:
        """Have all that work on it end."""
        self.beat_path(folder).unlink(missing_ok=True)


@contextmanager
def ordering(folder: RunFolder) -> Iterator[Order]:
    """Have an order in the folder, with a heartbeat, while it runs.

    Nobody else has one: the caller holds the lock.
    """
    durable.make_folder(folder.orders_path)
    order = Order(os.urandom(3).hex())
    path = order.beat_path(folder)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise durable.storage_error(path, error) from error
    try:
        with beating(partial(write_padded, descriptor), path, {"order": order.name}):
            yield order
    finally:
        os.close(descriptor)
        withdraw_orders(folder)


def withdraw_orders(folder: RunFolder) -> None:
    """Remove all orders. The caller holds the lock: they are its own, or of a run that is dead."""
    with suppress(FileNotFoundError):
        for name in os.listdir(folder.orders_path):  # noqa: PTH208  # names suffice
            (folder.orders_path / name).unlink(missing_ok=True)
        with suppress(OSError):  # where a file that is open elsewhere keeps a name
            folder.orders_path.rmdir()


@dataclass
class OrderWatch:
    """Whether the run that sent an order still wants it."""

    folder: RunFolder
    order: Order
    _watch: BeatWatch = field(default_factory=BeatWatch)
    _next_look: float = 0.0
    _is_withdrawn: bool = False

    def is_seen(self) -> bool:
        """Whether the order is there; one that was sent just now may be seen a moment later."""
        deadline = time.monotonic() + SEEN_WITHIN_S
        while not self._is_listed():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)  # another host has made it; there is nothing to wait on
        return True

    def _is_listed(self) -> bool:
        # A listing, because network file systems cache "no such file".
        with suppress(OSError):
            return self.order.beat_path(self.folder).name in os.listdir(self.folder.orders_path)  # noqa: PTH208  # names suffice
        return False

    def is_withdrawn(self) -> bool:
        """Whether to end: the run has ended, or nobody has heard of it for long."""
        now = time.monotonic()
        if now >= self._next_look and not self._is_withdrawn:
            self._next_look = now + LOOK_EVERY_S
            content = _beat_or_nothing(self.order.beat_path(self.folder))
            gone = content == b""
            self._is_withdrawn = gone or self._watch.is_alive("", content or b"") is False
        return self._is_withdrawn


def _beat_or_nothing(path: Path) -> bytes | None:
    """What a heartbeat says, empty if its file is gone, None if the system does not say."""
    try:
        return read_beat(path)
    except OSError as error:
        return b"" if error.errno == errno.ESTALE else None
