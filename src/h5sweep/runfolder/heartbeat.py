"""A file that says who is at work here, and changes every few seconds while that is so.

A process of this machine is seen to be alive or not. Of one on another only its heartbeat can be
seen: whoever wants to know watches whether the file changes. No clock is compared with another.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.process_id import ProcessId, this_process
from ..disk.durable import storage_error
from ..disk.inside_folder import open_file, parse_json, retrying_stale
from ..errors import StorageError, naming

HEARTBEAT_S = 5.0
WATCH_S = 4 * HEARTBEAT_S
BEAT_BYTES = 512
_MOST_BYTES = 4096


@contextmanager
def beating(write: Callable[[bytes], None], path: Path, about: Mapping[str, Any]) -> Iterator[None]:
    """Write who we are into `path`, and again every HEARTBEAT_S, until done."""
    identity = {**this_process().as_json(), "since": time.time(), **about}
    stop = threading.Event()

    def beat() -> None:
        beats = 0
        while not stop.wait(HEARTBEAT_S):
            beats += 1
            with suppress(OSError):
                write(json.dumps({**identity, "beats": beats}).encode())

    try:
        write(json.dumps({**identity, "beats": 0}).encode())
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(path, error) from error
    thread = threading.Thread(target=beat, name="h5sweep-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def read_beat(file: Path | int) -> bytes:
    """What a heartbeat file says now, by its path or descriptor; nothing if it is gone."""
    if isinstance(file, int):
        with naming(file):
            return os.pread(file, _MOST_BYTES, 0)
    with suppress(FileNotFoundError, ValueError), naming(file):
        return retrying_stale(lambda: _read_start(file))
    return b""


def _read_start(path: Path) -> bytes:
    with open_file(path) as file:
        return file.read(_MOST_BYTES)


def write_padded(descriptor: int, content: bytes) -> None:
    # Padded to one length, so that a reader never sees the end of an older, longer text.
    os.pwrite(descriptor, content.ljust(BEAT_BYTES), 0)
    # NFS keeps what was written to itself, for longer than others watch, until something is closed.
    os.close(os.dup(descriptor))


def owner_in(content: bytes) -> ProcessId | None:
    """The process that a heartbeat file names; None if it names none."""
    try:
        return ProcessId.from_json(parse_json(content)) if content.strip() else None
    except (ValueError, KeyError, TypeError):
        return None


def since_in(content: bytes) -> float | None:
    """When that process began its work."""
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        since = float(parse_json(content)["since"])
        return since if 0 <= since <= time.time() else None
    return None


@dataclass
class BeatWatch:
    """Which processes are alive: those here by their pids, others by their heartbeats."""

    _seen: dict[str, tuple[bytes, float]] = field(default_factory=dict)

    def is_alive(self, name: str, content: bytes) -> bool | None:
        """Whether the writer of the file `name` is, which says this now; None if it takes more
        looks to tell.
        """
        owner = owner_in(content)
        # Machines may have one name: a pid says nothing about another boot than this one.
        if owner is not None and owner.is_on_this_machine:
            alive = owner.is_alive()
            if alive is not None:
                return alive
        now = time.monotonic()
        before, since = self._seen.setdefault(name, (content, now))
        if before != content:
            self._seen[name] = content, now
            return True
        return False if now - since > WATCH_S else None
