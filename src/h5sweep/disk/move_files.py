"""Move files, to another disk if need be, and never over an existing file."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from ..errors import StorageError, naming
from .durable import private_name, remove, remove_unfinished
from .inside_folder import FolderEntry, OpenFolder

_COMPARED_BYTES = 1 << 20
_RENAME_NOREPLACE = 1  # of renameat2(2)


def move_file(source: Path, target: Path) -> None:
    """Do as `move_entry`."""
    with OpenFolder(source.parent) as one, OpenFolder(target.parent) as other:
        move_entry(FolderEntry(one, source.name), FolderEntry(other, target.name))


def move_entry(source: FolderEntry, target: FolderEntry) -> None:
    """Give the file `source` the name `target`, on another disk if need be, never over a file.

    Killed at any moment, the whole file is under one of the names, or on two disks under both. It
    is durable when the folders of both have been synced. FileExistsError if there is a `target`,
    StorageError if a copy on another disk is not equal, or if `source` changed meanwhile. Whatever
    else is raised, `source` is where it was and there is no `target`.
    """
    try:
        _rename_new(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _move_to_other_disk(source, target)


def _rename_new(source: FolderEntry, target: FolderEntry) -> None:
    """Rename, or raise FileExistsError; in one step where the system can do that."""
    folders = source.folder.descriptor, target.folder.descriptor
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is not None:
        names = os.fsencode(source.name), os.fsencode(target.name)
        if not rename(folders[0], names[0], folders[1], names[1], _RENAME_NOREPLACE):
            return
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number), str(source.path), None, str(target.path))
    # Not every file system has it; then somebody could make `target` between these two steps.
    if target.name in target.folder.names():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target.path))
    with naming(source.path):
        os.rename(source.name, target.name, src_dir_fd=folders[0], dst_dir_fd=folders[1])


def _move_to_other_disk(source: FolderEntry, target: FolderEntry) -> None:
    """Copy, sync, compare, and only then remove the original."""
    if not may_remove(source.path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source.path))
    before = _version(source)
    remove_unfinished(target.folder, target.name)
    temporary = target.beside(private_name(target.name))
    try:
        _copy_new(source, temporary)
        if not are_equal(source, temporary) or _version(source) != before:
            raise StorageError(
                f"{source.path} changed while it was copied, or its copy is not equal"
            )
        _rename_new(temporary, target)
        with naming(target.folder.path):
            os.fsync(target.folder.descriptor)
    except BaseException:
        with suppress(OSError):
            remove(temporary)
        raise
    if _version(source) != before:
        raise StorageError(f"{source.path} changed while it was moved: it stays, and its copy too")
    try:
        remove(source)
    except OSError:
        # If its folder does not let it go there must not be two of it; it may be gone all the same.
        with suppress(OSError):
            if _version(source) == before:
                remove(target)
        raise


def _copy_new(source: FolderEntry, target: FolderEntry) -> None:
    """Copy a file, its times and its rights to a new one, durably."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with naming(target.path):
        descriptor = os.open(target.name, flags, 0o600, dir_fd=target.folder.descriptor)
    with source.open() as one, os.fdopen(descriptor, "wb") as other:
        shutil.copyfileobj(one, other, _COMPARED_BYTES)
        other.flush()
        shutil.copystat(f"/proc/self/fd/{one.fileno()}", f"/proc/self/fd/{other.fileno()}")
        os.fsync(other.fileno())


def may_remove(path: Path) -> bool:
    """Whether we may take a file out of its folder, as far as can be said without trying."""
    folder = path.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    status, user = folder.stat(), os.geteuid()
    if not status.st_mode & stat.S_ISVTX:
        return True
    return user in (0, status.st_uid, path.lstat().st_uid)  # as in /tmp: each only his own


def _version(entry: FolderEntry) -> tuple[int, int, int, int]:
    status = entry.lstat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def are_equal(first: FolderEntry, second: FolderEntry) -> bool:
    """Whether two files have the same bytes."""
    with first.open() as one, second.open() as other:
        while True:
            with naming(first.path):
                piece = one.read(_COMPARED_BYTES)
            with naming(second.path):
                is_equal = piece == other.read(_COMPARED_BYTES)
            if not is_equal:
                return False
            if not piece:
                return True


def refusing_folder(source: Path, target: Path, error: OSError) -> Path | None:
    """Which folder may not be written, if that is why a file could not be moved."""
    if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
        return None
    return source.parent if os.access(target.parent, os.W_OK | os.X_OK) else target.parent
