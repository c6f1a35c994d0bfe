"""One run at a time in a run folder, without ever needing to be unlocked by hand.

The lock file names its owner (host, boot, pid, start time) and is held with flock where the file
system has it. A dead owner on this host is seen at once. Of an owner on another host only its
heartbeat can be seen: the file changes every HEARTBEAT_S, and whoever wants the lock watches it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .durable import storage_error
from .errors import LockedError, naming
from .folder import RunFolder
from .processes import ProcessId, this_process

HEARTBEAT_S = 5.0
WATCH_S = 4 * HEARTBEAT_S
ORPHAN_S = 2.0


@contextmanager
def holding(
    path: Path, *, tell: Callable[[str], None] = lambda _: None, is_kept: bool = True
) -> Iterator[None]:
    """Hold the lock file `path`; LockedError if a live run has it, take over from a dead one.

    The file stays, which says who was here last, unless `is_kept` is false.
    """
    descriptor = _open_and_acquire(path, tell)
    try:
        with _beating(descriptor, path):
            yield
    finally:
        with suppress(OSError):
            if not is_kept:
                path.unlink()
        with suppress(OSError):
            # Closing is not enough: a process that was forked meanwhile has the file open too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        with suppress(OSError):
            os.close(descriptor)


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


@contextmanager
def holding_output(
    folder: RunFolder, *, tell: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the lock of a run folder or, where there is none, one beside the output."""
    beside = folder.output.with_name(f".{folder.output.name}.lock")
    has_folder = folder.exists()
    with holding(folder.lock_path if has_folder else beside, tell=tell, is_kept=has_folder):
        yield


def _open_and_acquire(path: Path, tell: Callable[[str], None]) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise storage_error(path, error) from error
        try:
            _acquire(descriptor, path, tell)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # whoever held it has just removed it


def lock_owner(path: Path) -> ProcessId | None:
    """Who holds the lock, or held it last and did not let go; None if nobody."""
    with suppress(FileNotFoundError), naming(path):
        return _owner(path.read_bytes())
    return None


def held_since(path: Path) -> float | None:
    """When the owner of the lock took it; None if nobody holds it."""
    with suppress(FileNotFoundError, ValueError, KeyError):
        return float(json.loads(path.read_bytes())["since"])
    return None


def _acquire(descriptor: int, path: Path, tell: Callable[[str], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if not _is_held_by_orphan(descriptor):
            raise _locked(path, _owner(_read(descriptor))) from error
    except OSError:
        pass  # A file system without locks: the owner's name and heartbeat decide.
    owner = _owner(_read(descriptor))
    if owner is not None and owner != this_process():
        _check_dead(owner, descriptor, path, tell)
        tell(f"the last run ({owner}) ended without finishing; taking over")


def _is_held_by_orphan(descriptor: int) -> bool:
    """Whether the owner is dead and only a process that it forked still has the file open.

    A new owner writes its name at once, so a dead one's name that stays is nobody's.
    """
    deadline = time.monotonic() + ORPHAN_S
    while True:
        owner = _owner(_read(descriptor))
        if owner is None or owner.is_alive() is not False:
            return False
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)  # not synchronisation: there is nothing to wait on


def _check_dead(owner: ProcessId, descriptor: int, path: Path, tell: Callable[[str], None]) -> None:
    alive = owner.is_alive()
    if alive is None:
        tell(f"a run on {owner.host} may still be going on; watching for {WATCH_S:g} s")
        alive = _changes(descriptor)
    if alive:
        raise _locked(path, owner)


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
    if path.name != "lock":  # `holding_output` without a run folder
        output = path.name.removeprefix(".").removesuffix(".lock")
        return LockedError(f"somebody else{who} is merging or cleaning {output}: wait for that")
    output = path.parent.name.removesuffix(".run")
    return LockedError(
        f"another run{who} is working on {output}; "
        f"look at it with: h5sweep status {path.parent.parent / output}"
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
        with suppress(OSError):
            _write(descriptor, b"")


def _read(descriptor: int) -> bytes:
    with naming(descriptor):
        return os.pread(descriptor, 4096, 0)


def _write(descriptor: int, content: bytes) -> None:
    # Padded to one length, so that a reader never sees the end of an older, longer text.
    os.pwrite(descriptor, content.ljust(512), 0)


def _owner(content: bytes) -> ProcessId | None:
    try:
        return ProcessId.from_json(json.loads(content)) if content.strip() else None
    except (ValueError, KeyError, TypeError):
        return None
