"""Find out which files are being written, without touching them.

Nothing is locked here while a writer may come: a reader that holds a lock for an instant makes the
writer's next open fail. What processes have open, and which locks they hold, is in /proc.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

Identity = tuple[int, int]  # device and inode: the file itself, whatever its name
_PROC = Path("/proc")
_REMOTE = (
    "fuse",
    "nfs",
    "cifs",
    "smb",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "orangefs",
)

identity_of: Callable[[os.stat_result], Identity] = attrgetter("st_dev", "st_ino")


def files_being_written() -> dict[Identity, str]:
    """Every regular file that a process of this machine has open for writing, and that process.

    This process counts too: a notebook may be writing what it asks about.
    Of processes of other users only their locks can be seen.
    """
    found: dict[Identity, str] = {}
    some_are_hidden, remote = False, _remote_devices()
    for pid in _processes():
        try:
            found |= dict.fromkeys(_written_by(pid, remote), f"pid {pid}")
        except PermissionError:
            some_are_hidden = True
        except OSError:
            continue  # it has ended
    if some_are_hidden:  # not else: the kernel takes long to list its locks
        found = {identity: f"pid {pid}" for identity, pid in _locks()} | found
    return found


def _processes() -> list[str]:
    try:
        with os.scandir(_PROC) as entries:
            return [entry.name for entry in entries if entry.name.isdigit()]
    except OSError:
        return []


def _written_by(pid: str, remote: Mapping[str, int]) -> Iterator[Identity]:
    """The files that a process has open for writing."""
    with os.scandir(f"{_PROC}/{pid}/fd") as entries:
        for entry in entries:
            try:
                if not _has_path(entry) or not _may_write(entry):
                    continue
                if identity := _remote_identity(pid, entry.name, remote):
                    yield identity
                elif stat.S_ISREG((status := entry.stat()).st_mode):
                    yield identity_of(status)
            except OSError:
                continue  # closed meanwhile


def _remote_devices() -> dict[str, int]:
    """The device of each mount whose server may not answer, by the mount's number."""
    found = {}
    with suppress(OSError):
        for line in (_PROC / "self/mountinfo").read_text(errors="replace").splitlines():
            # 36 35 0:52 / /home rw shared:1 - nfs4 server:/home rw
            words, kind = line.split(), line.partition(" - ")[2]
            if kind.startswith(_REMOTE):
                major, _, minor = words[2].partition(":")
                found[words[0]] = os.makedev(int(major), int(minor))
    return found


def _remote_identity(pid: str, descriptor: str, remote: Mapping[str, int]) -> Identity | None:
    """A file on such a mount, as the kernel knows it: to ask its server might take for ever."""
    if not remote:
        return None
    lines = (_PROC / pid / "fdinfo" / descriptor).read_text().splitlines()
    about = dict(line.partition(":\t")[::2] for line in lines)
    device = remote.get(about.get("mnt_id", "").strip())
    return None if device is None or "ino" not in about else (device, int(about["ino"]))


def _has_path(descriptor: os.DirEntry[str]) -> bool:
    """Whether it is no socket or pipe, as most are: this is what tells them apart soonest."""
    return os.readlink(descriptor.path).startswith("/")  # noqa: PTH115 (Path doubles the time)


def _may_write(descriptor: os.DirEntry[str]) -> bool:
    return bool(descriptor.stat(follow_symlinks=False).st_mode & stat.S_IWUSR)


def _locks() -> Iterator[tuple[Identity, str]]:
    """Files locked for writing, as the kernel lists them."""
    try:
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        # 1: FLOCK  ADVISORY  WRITE 4242 08:01:131 0 EOF
        words = [word for word in line.split() if word != "->"]
        if len(words) >= 6 and words[3] == "WRITE":
            with suppress(ValueError):
                major, minor, inode = words[5].split(":")
                device = os.makedev(int(major, 16), int(minor, 16))
                yield (device, int(inode)), words[4]


def is_locked(path: Path) -> bool:
    """Whether somebody, also on another host, holds a lock that excludes readers.

    Takes a shared lock for an instant: only for files that were found damaged.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        pass  # A file system without locks: nobody can hold one.
    finally:
        os.close(descriptor)
    return False
