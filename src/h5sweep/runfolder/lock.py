"""One run, merge or clean of an output at a time, and never a lock to remove by hand.

The lock file names its owner (host, boot, pid, start time) and is held with flock where the file
system has it: exactly one can. A dead owner on this host is seen at once. Of an owner on another
host only its heartbeat can be seen: the file changes every HEARTBEAT_S, and whoever wants the lock
watches it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from ..base.process_id import ProcessId, this_process
from ..base.units import command_text
from ..disk.durable import open_or_make, storage_error
from ..disk.inside_folder import open_file, parse_json
from ..errors import LockedError, naming
from .layout import RunFolder

HEARTBEAT_S = 5.0
WATCH_S = 4 * HEARTBEAT_S
_MOST_BYTES = 4096


@contextmanager
def holding(path: Path, *, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the lock file `path`; LockedError if a live run has it, take over from a dead one.

    The file is there while somebody holds it, or was killed in doing so.
    """
    descriptor = _open_and_acquire(path, tell)
    try:
        with _beating(descriptor, path):
            yield
    finally:
        if descriptor in _held:  # else this process was forked meanwhile, and holds nothing
            _let_go(descriptor, path)


@contextmanager
def holding_folder(
    folder: RunFolder, *, tell: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Have a run folder there and hold its lock; one that a refused command made goes with it.

    Only who has the lock may remove the folder: another command may be at work in it by now.
    """
    had_folder = folder.exists()
    folder.create()
    with holding(folder.lock_path, tell=tell):
        folder.create()  # if a refused command has just removed it
        try:
            yield
        except BaseException:
            if not had_folder:
                folder.remove_unused()
            raise


def holding_output(
    folder: RunFolder, *, tell: Callable[[str], None] = lambda _: None
) -> AbstractContextManager[None]:
    """Hold the lock of an output, which may have a run folder or not."""
    return holding(folder.lock_path, tell=tell)


def _open_and_acquire(path: Path, tell: Callable[[str], None]) -> int:
    while True:
        try:
            descriptor = open_or_make(path)
        except OSError as error:
            raise storage_error(path, error) from error
        _held.add(descriptor)
        try:
            _acquire(descriptor, path, tell)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            _close(descriptor)
            raise
        _close(descriptor)  # whoever held it has just removed it


def _let_go(descriptor: int, path: Path) -> None:
    """Remove the lock file, unless somebody thought us dead and has taken it over."""
    with suppress(OSError):
        if _owner(_read(descriptor)) in (None, this_process()):
            _write(descriptor, b"")
            path.unlink()
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    _close(descriptor)


def _close(descriptor: int) -> None:
    _held.remove(descriptor)
    with suppress(OSError):  # nothing was written that matters
        os.close(descriptor)


def _close_in_child() -> None:
    """Let go of what only our parent holds: else its lock would be held while we live."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


_held: set[int] = set()
os.register_at_fork(after_in_child=_close_in_child)


def lock_owner(path: Path) -> ProcessId | None:
    """Who holds the lock, or held it last and did not let go; None if nobody."""
    return _owner(_content(path))


def held_since(path: Path) -> float | None:
    """When the owner of the lock took it; None if nobody holds it."""
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        since = float(parse_json(_content(path))["since"])
        return since if 0 <= since <= time.time() else None
    return None


def _content(path: Path) -> bytes:
    with suppress(FileNotFoundError, ValueError), naming(path), open_file(path) as file:
        return file.read(_MOST_BYTES)
    return b""


def _acquire(descriptor: int, path: Path, tell: Callable[[str], None]) -> None:
    """Take the lock. One that is held is believed, whatever can be seen of its owner from here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        has_locks = True
    except BlockingIOError as error:
        raise _locked(path, _owner(_read(descriptor))) from error
    except OSError:
        has_locks = False  # The owner's name and heartbeat decide.
    owner = _owner(_read(descriptor))
    if owner is None or owner == this_process():
        return
    alive = owner.is_alive()
    if alive is None and has_locks and owner.is_on_this_machine:
        alive = False  # It was in another container of this machine, where it would hold the lock.
    if alive is None:
        tell(f"a run on {owner.host} may still be active; watching it for {WATCH_S:g} s")
        alive = _changes(descriptor)
    if alive:
        raise _locked(path, owner)
    tell(f"the last run ({owner}) ended without finishing; taking over")


def _changes(descriptor: int) -> bool:
    """Whether the owner's heartbeat changes the file while we watch."""
    before = _read(descriptor)
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        time.sleep(HEARTBEAT_S / 5)  # not synchronisation: there is nothing to wait on
        if _read(descriptor) != before:
            return True
    return False


def _locked(path: Path, owner: ProcessId | None) -> LockedError:
    who = f" ({owner})" if owner else ""
    output = path.with_name(path.name.removeprefix(".").removesuffix(".lock"))
    if not RunFolder(output).exists():
        return LockedError(
            f"another process{who} is merging or cleaning {output.name}: wait until it has ended"
        )
    return LockedError(
        f"another run{who} is working on {output.name}; "
        f"watch it with: {command_text('status', output)}"
    )


@contextmanager
def _beating(descriptor: int, path: Path) -> Iterator[None]:
    """Write who we are, and again every HEARTBEAT_S, until done; then let go."""
    identity = {**this_process().as_json(), "since": time.time()}
    stop = threading.Event()

    def beat() -> None:
        beats = 0
        while not stop.wait(HEARTBEAT_S):
            beats += 1
            with suppress(OSError):
                _write(descriptor, json.dumps({**identity, "beats": beats}).encode())

    try:
        _write(descriptor, json.dumps({**identity, "beats": 0}).encode())
    except OSError as error:
        raise storage_error(path, error) from error
    thread = threading.Thread(target=beat, name="h5sweep-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _read(descriptor: int) -> bytes:
    with naming(descriptor):
        return os.pread(descriptor, _MOST_BYTES, 0)


def _write(descriptor: int, content: bytes) -> None:
    # Padded to one length, so that a reader never sees the end of an older, longer text.
    os.pwrite(descriptor, content.ljust(512), 0)


def _owner(content: bytes) -> ProcessId | None:
    try:
        return ProcessId.from_json(parse_json(content)) if content.strip() else None
    except (ValueError, KeyError, TypeError):
        return None
