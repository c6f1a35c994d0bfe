"""Find the files meant by the paths, folders and globs that a user types."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from ..errors import UsageError

# Names of our own, by which a folder is told from those of other programs.
RUN_SUFFIX, QUARANTINE_SUFFIX, RECORDS_SUFFIX = ".run", ".quarantine", ".records"
PLAN_NAME, RECORDS_NAME, LOGS_NAME = "plan.jsonl", "records", "logs"
HDF5_SUFFIXES = {".h5", ".hdf5", ".hdf", ".he5", ".hd5", ".h5part", ".h5ad", ".nc", ".nc4", ".cdf"}
HDF5_SUFFIXES |= {".mat", ".nxs", ".nwb", ".jld2", ".loom", ".tmp", ".temp", ".part"}

_OnLink = Callable[[str], None]
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR)

PathLike = str | os.PathLike[str]


class FoundFile(NamedTuple):
    """One file; `is_named` if it was typed itself and not found in a folder."""

    path: str
    is_named: bool

    @property
    def claims_hdf5(self) -> bool:
        """Whether it should be HDF5, by its name or because somebody asked for it."""
        return self.is_named or Path(self.path).suffix.lower() in HDF5_SUFFIXES


def find_places(
    paths: Iterable[str | os.PathLike[str]], *, on_link: _OnLink = lambda path: None
) -> Iterable[FoundFile]:
    """Every file that is meant, each once; UsageError for what is not there.

    Links to folders are not followed, because they may lead anywhere: `on_link` is told of them.
    """
    texts = [os.fspath(path) for path in paths]
    if len(texts) == 1 and _is_folder(texts[0]):
        return _walk(texts[0], on_link)  # where each has one name
    return _each_once(texts, on_link)


def _each_once(texts: Sequence[str], on_link: _OnLink) -> Iterator[FoundFile]:
    """Two paths may spell one file in two ways."""
    seen: set[str] = set()
    here = str(Path.cwd())
    for text in texts:
        for place in _expand(text, on_link):
            name = absolute(place.path, here)
            if name not in seen:
                seen.add(name)
                yield place


def absolute(name: str, here: str) -> str:
    """The path without resolving it: links are not followed, but where `..` leads out of one."""
    path = name if name.startswith("/") else f"{here}/{name}"
    if "/../" in path:
        folder, _, last = path.rpartition("/")
        path = f"{os.path.realpath(folder)}/{last}"
    return os.path.normpath(path) if "/." in path or "//" in path else path


def _expand(text: str, on_link: _OnLink) -> Iterator[FoundFile]:
    if _is_folder(text):
        yield from _walk(text, on_link)
    elif _may_be_there(text):
        yield FoundFile(text, is_named=True)
    elif glob.has_magic(text):
        found = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 (Path.glob takes no absolute pattern)
        if not found:
            raise UsageError(f"nothing matches {text}")
        for name in found:
            yield from (
                _walk(name, on_link) if _is_folder(name) else [FoundFile(name, is_named=True)]
            )
    else:
        raise UsageError(f"there is no {text}")


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (Path.is_dir raises where a folder may not be entered)


def _may_be_there(path: str) -> bool:
    """Whether it is there, or in a folder that may not be entered, so that nobody can tell."""
    try:
        Path(path).lstat()
    except PermissionError:
        return not glob.has_magic(path)
    except OSError:
        return False
    return True


def _walk(folder: str, on_link: _OnLink) -> Iterator[FoundFile]:
    """The files below a folder, in order; of a run folder, its plan and its record files."""
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=attrgetter("name"))
    except OSError as error:
        if error.errno not in _NOT_OURS:  # the disk refuses: no mistake of the caller's
            raise
        raise UsageError(f"the folder {folder} cannot be read: {error.strerror}") from error
    is_run = folder.rstrip("/").endswith(RUN_SUFFIX)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            # What is in quarantine was judged already; name it to have it looked at again.
            is_apart = entry.name.endswith(QUARANTINE_SUFFIX)
            if not is_apart and not (is_run and entry.name == LOGS_NAME):
                yield from _walk_below(entry.path, on_link)
        elif is_run and entry.name != PLAN_NAME:
            continue
        elif entry.is_file(follow_symlinks=False) or _is_file(entry):
            yield FoundFile(entry.path, is_named=False)
        elif not is_run and entry.is_symlink() and entry.is_dir():
            on_link(entry.path)


def _walk_below(folder: str, on_link: _OnLink) -> Iterator[FoundFile]:
    """The same for a folder inside one: that it cannot be read is a finding and not the end."""
    try:
        yield from _walk(folder, on_link)
    except (UsageError, OSError):
        yield FoundFile(folder, is_named=False)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, or a link that leads nowhere: whoever opens that says so."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))  # noqa: PTH110 (as above)
    except OSError:
        return True
