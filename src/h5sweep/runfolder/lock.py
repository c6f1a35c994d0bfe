"""One run, merge or clean of an output at a time, and never a lock to remove by hand.

The lock file names its owner (host, boot, pid, start time) and is held with flock where the file
system has it: exactly one can. A dead owner on this host is seen at once, one on another host by
its heartbeat.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path

from ..base.process_id import ProcessId, this_process
from ..base.units import command_text
from ..disk.durable import open_or_make, storage_error
from ..disk.inside_folder import forget_missing, parse_json
from ..errors import LockedError
from .heartbeat import (
    HEARTBEAT_S,
    WATCH_S,
    beating,
    owner_in,
    read_beat,
    since_in,
    write_padded,
)
from .layout import RunFolder
from .parts import refresh_listing, require_no_parts

# What a lock may be held for. No part works beside the first two; the third is a part's own.
RUNNING, ALONE, DECLARING, BESIDE = "run", "alone", "declare", ""
_REMOVED = (errno.ENOENT, errno.ESTALE)
MOST_LOOKS, LOOK_AGAIN_S = 100, 0.02  # at a lock file that was let go of and is there


@contextmanager
def holding(
    path: Path, *, tell: Callable[[str], None] = lambda _: None, work: str = BESIDE
) -> Iterator[None]:
    """Hold the lock file `path`; LockedError if a live run has it, take over from a dead one.

    The file is there while somebody holds it, or was killed in doing so. It says for what `work`.
    """
    descriptor = _open_and_acquire(path, tell)
    try:
        with beating(partial(write_padded, descriptor), path, {"work": work}):
            yield
    finally:
        if descriptor in _held:  # else this process was forked meanwhile, and holds nothing
            _let_go(descriptor, path)


@contextmanager
def holding_folder(
    folder: RunFolder, *, tell: Callable[[str], None] = lambda _: None, work: str = ALONE
) -> Iterator[None]:
    """Have a run folder there and hold its lock; one that a refused command made goes with it.

    LockedError also if parts are at work in it, unless the `work` is that of a part. Only who has
    the lock may remove the folder: another command may be at work in it by now.
    """
    had_folder = folder.exists()
    folder.create()
    with holding(folder.lock_path, tell=tell, work=work):
        folder.create()  # if a refused command has just removed it
        try:
            if work != DECLARING:
                require_no_parts(folder, tell)
            refresh_listing(folder.records_path)  # what others have written just now is read next
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
    looks = 0
    while (descriptor := _try_to_acquire(path, tell, is_last=looks >= MOST_LOOKS)) is None:
        forget_missing(path.parent)
        time.sleep(LOOK_AGAIN_S if looks else 0)  # NFS may know the file by that name for a while
        looks += 1
    return descriptor


def _try_to_acquire(path: Path, tell: Callable[[str], None], *, is_last: bool) -> int | None:
    """The lock file, open and locked; None if whoever held it has just removed it.

    What looks so is believed until the last look.
    """
    try:
        descriptor = open_or_make(path)
    except OSError as error:
        if error.errno in _REMOVED and path.parent.is_dir() and not is_last:
            return None
        raise storage_error(path, error) from error
    _held.add(descriptor)
    try:
        dead = _acquire(descriptor, path, tell)
        if (is_last or not _was_let_go(descriptor)) and _is_still(descriptor, path):
            write_padded(descriptor, b"")  # GlusterFS may say only now that it was removed
            if dead:
                tell(f"the last run ({dead}) ended without finishing; taking over")
            return descriptor
    except OSError as error:
        if error.errno not in _REMOVED:
            _close(descriptor)
            raise storage_error(path, error) from error
    except BaseException:
        _close(descriptor)
        raise
    _close(descriptor)
    return None


def _was_let_go(descriptor: int) -> bool:
    """Whether who held the lock last has let go of it, and so has removed the file, or will.

    This is read from the file: NFS shows names as they were some time ago. If it is not removed for
    long, whoever let go of it was killed just then.
    """
    content = read_beat(descriptor)
    return bool(content) and not content.strip()


def _is_still(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that has that name, as far as is known here."""
    return os.path.samestat(os.fstat(descriptor), path.lstat())


def _let_go(descriptor: int, path: Path) -> None:
    """Remove the lock file, unless somebody thought us dead and has taken it over."""
    with suppress(OSError):
        if owner_in(read_beat(descriptor)) in (None, this_process()):
            write_padded(descriptor, b"")
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
    return owner_in(read_beat(path))


def work_in(content: bytes) -> str:
    """For what work the lock is held, or was by who did not let go of it."""
    with suppress(ValueError, KeyError, TypeError):
        return str(parse_json(content)["work"])
    return ""


def held_since(path: Path) -> float | None:
    """When the owner of the lock took it; None if nobody holds it."""
    return since_in(read_beat(path))


def _acquire(descriptor: int, path: Path, tell: Callable[[str], None]) -> ProcessId | None:
    """Take the lock; return who has died with it, or is just letting it go.

    One that is held is believed, whatever can be seen of its owner from here.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        has_locks = True
    except BlockingIOError as error:
        raise _locked(path, owner_in(read_beat(descriptor))) from error
    except OSError:
        has_locks = False  # The owner's name and heartbeat decide.
    owner = owner_in(read_beat(descriptor))
    if owner is None or owner == this_process():
        return None
    alive = owner.is_alive()
    if alive is None and has_locks and owner.is_on_this_machine:
        alive = False  # It was in another container of this machine, where it would hold the lock.
    if alive is None:
        tell(f"a run on {owner.host} may still be active; watching it for {WATCH_S:g} s")
        alive = _changes(path)
    if alive:
        raise _locked(path, owner)
    return owner


def _changes(path: Path) -> bool:
    """Whether the owner's heartbeat changes the file while we watch.

    It is opened for each look: sshfs shows what it was to whoever keeps it open.
    """
    before = read_beat(path)
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        time.sleep(HEARTBEAT_S / 5)  # not synchronisation: there is nothing to wait on
        if read_beat(path) != before:
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
