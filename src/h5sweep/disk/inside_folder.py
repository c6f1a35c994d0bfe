"""Reach files and folders without following links, and read them without harm.

A path that stands in a file, or a name in a folder that somebody else made, may lead anywhere: by
`..`, or by a symbolic link. Here a folder that somebody named is opened once; what is below it is
reached from there, name by name, and no link is followed. Nothing is written here.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..errors import naming

_MOST_BYTES = 1 << 30  # of a file that is read as a whole: a plan of ten million tasks is smaller
_STALE_PAUSES_S = (0.0, 0.0, 0.02, 0.1, 0.4, 1.0)  # GlusterFS keeps what is stale for a second
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


_Found = TypeVar("_Found")


class LinkError(OSError):
    """A symbolic link, where none is followed."""

    def __init__(self, path: Path) -> None:
        why = "it is a symbolic link, and links are not followed here: move it away"
        super().__init__(errno.ELOOP, why, str(path))


class OpenFolder:
    """A folder that is held open: whatever its path leads to later, this is the one."""

    def __init__(self, path: Path, descriptor: int | None = None) -> None:
        """Open `path`, in which links are followed: somebody named it."""
        self.path = path
        if descriptor is None:
            descriptor = os.open(os.path.abspath(path), _FOLDER)  # noqa: PTH100 (as it is said)
        self.descriptor = descriptor

    def __enter__(self) -> OpenFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def below(self, *names: str) -> OpenFolder:
        """Open a folder in this one, in that one, and so on; LinkError if one is a link."""
        here, descriptor = self.path, os.dup(self.descriptor)
        for name in names:
            here = here / check_name(name)
            try:
                with naming(here):
                    following = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError:
                if _is_link(name, descriptor):
                    raise LinkError(here) from None
                raise
            finally:
                os.close(descriptor)
            descriptor = following
        return OpenFolder(here, descriptor)

    def names(self) -> list[str]:
        with naming(self.descriptor):
            return sorted(os.listdir(self.descriptor))  # noqa: PTH208 (Path takes no descriptor)


class FolderEntry(NamedTuple):
    """A name in a folder that is open."""

    folder: OpenFolder
    name: str

    @property
    def path(self) -> Path:
        """How people call it."""
        return self.folder.path / self.name

    def beside(self, name: str) -> FolderEntry:
        return FolderEntry(self.folder, name)

    def lstat(self) -> os.stat_result:
        with naming(self.path):
            return os.stat(self.name, dir_fd=self.folder.descriptor, follow_symlinks=False)

    def is_file(self) -> bool:
        """Whether there is a file of that name, itself and not by a link."""
        try:
            return stat.S_ISREG(self.lstat().st_mode)
        except FileNotFoundError:
            return False

    def open(self) -> BinaryIO:
        """Open the file for reading; LinkError if it is a link."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with naming(self.path):
                return os.fdopen(os.open(self.name, flags, dir_fd=self.folder.descriptor), "rb")
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise LinkError(self.path) from None
            raise


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading; ValueError if it is a link, a pipe, a folder: anything else."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.fdopen(_open_there(path, flags), "rb")
    except IsADirectoryError:
        raise ValueError("it is a folder") from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError("it is a symbolic link, or not a file") from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is not a file")
    return file


def _open_there(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        forget_missing(path.parent)
        return os.open(path, flags)


def forget_missing(folder: Path) -> None:
    """Have names be asked for anew that were not in a folder: NFS remembers that for 30 s.

    Whenever a folder is opened, it asks the server whether there is anything new.
    """
    with suppress(OSError):
        os.close(os.open(folder, _FOLDER))


def read_file(path: Path) -> bytes | None:
    """All that is in a small file, None if it is not there; ValueError if it is something else."""
    try:
        with naming(path):
            return retrying_stale(lambda: _read_whole(path))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _read_whole(path: Path) -> bytes:
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise ValueError("it is far too large")
        return file.read()


def retrying_stale(look: Callable[[], _Found]) -> _Found:
    """Look again if a network file system knew an older file of that name, which is gone."""
    for pause_s in _STALE_PAUSES_S:
        try:
            return look()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        time.sleep(pause_s)  # nothing tells when the file system knows better
    return look()


def parse_json(data: bytes | str) -> Any:
    """What a text says; ValueError if it is no JSON, also if its brackets are thousands deep."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("its brackets are nested too deeply") from None


def check_name(name: str) -> str:
    """The name, if it is one of something in a folder and leads nowhere else; else ValueError."""
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file name")
    return name


def way_below(path: Path, folder: Path) -> Sequence[str] | None:
    """The names that lead from `folder` down to `path`, an absolute one; None if none do."""
    above = Path(os.path.abspath(folder))  # noqa: PTH100 (resolving would follow links)
    return path.relative_to(above).parts if path.is_relative_to(above) else None


def _is_link(name: str, descriptor: int) -> bool:
    try:
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode)
