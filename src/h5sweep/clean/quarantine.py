"""Files that may go are moved aside first: `layouts.h5.quarantine/2026-11-16T02-03-04/`.

    manifest.json          every file: where it was, its size, its checksum, why it may go
    1/worker_7.h5 ...      the files, under their own names; a folder for each that they came from

The manifest is durable before the first file moves. Killed at any moment, each file is at its
place or in the quarantine, and the manifest lists it. Nothing here decides what may go.

A manifest may come from anybody. So its names are names in its own folder, no link in there is
followed, and files go back below the folder of the output or to a folder that somebody named.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..disk import durable, move_files
from ..disk.find_files import QUARANTINE_SUFFIX
from ..disk.inside_folder import (
    FolderEntry,
    LinkError,
    OpenFolder,
    check_name,
    parse_json,
    read_file,
    way_below,
)
from ..errors import DamagedError, StorageError

SCHEMA = "h5sweep.quarantine/1"
MANIFEST = "manifest.json"
_OWN_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?")  # as `_new_folder` gives them


class QuarantineStage(StrEnum):
    """How far a quarantine is."""

    MOVING = "moving"  # files are on their way into it
    WHOLE = "whole"
    PURGING = "purging"  # files are being deleted


class RemovalReason(StrEnum):
    """Why a file may go, and how that is proven once more."""

    WORKER_FILE = "worker file"  # all its results are in the output
    RECORD_FILE = "record file"  # all that it says is in the output
    ASKED_FOR = "asked for"  # it was not merged, and somebody named it


@dataclass(frozen=True)
class Item:
    """One file that may go: as it was when that was proven."""

    path: Path  # where it lies, or lay; absolute
    size_bytes: int
    modified_ns: int = field(repr=False)
    xxh3: str = field(repr=False)
    reason: RemovalReason
    why: str
    way: str = field(default="", repr=False)
    key: str | None = field(default=None, repr=False)
    rows: Mapping[str, Sequence[int]] = field(default_factory=dict, repr=False)
    name: str = field(default="", repr=False)  # in the quarantine

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Item:
        item = cls(
            **{**value, "path": Path(value["path"]), "reason": RemovalReason(value["reason"])}
        )
        number, _, name = item.name.partition("/")
        if not (number.isascii() and number.isdigit()):
            raise ValueError(f"{item.name!r} is not the name of a file in a quarantine")
        check_name(name)
        if not item.path.is_absolute() or ".." in item.path.parts:
            raise ValueError(f"{str(item.path)!r} is not an absolute path")
        return item

    def is_unchanged_at(self, path: Path | FolderEntry) -> bool:
        """Whether there is a file that has the size and the time that this one had."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        is_file = stat.S_ISREG(status.st_mode)
        return is_file and self._version == (status.st_size, status.st_mtime_ns)

    @property
    def _version(self) -> tuple[int, int]:
        return self.size_bytes, self.modified_ns


@dataclass(frozen=True)
class Quarantine:
    """A folder of files that may go."""

    path: Path
    output: Path
    stage: QuarantineStage
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        return self.path.name

    def place_of(self, item: Item) -> Path:
        """Where to read a file that is inside."""
        return self.path / item.name

    @contextmanager
    def entry(self, item: Item) -> Iterator[FolderEntry]:
        """The place of an item, to be moved or removed."""
        number, _, name = item.name.partition("/")
        with _opened(self.output, self.name, number) as folder:
            yield FolderEntry(folder, name)

    def items_inside(self) -> list[Item]:
        """What is in it now; a link is not."""
        return [item for item in self.items if self._is_inside(item)]

    def _is_inside(self, item: Item) -> bool:
        try:
            with self.entry(item) as place:
                return place.is_file()
        except (LinkError, FileNotFoundError, NotADirectoryError):
            return False

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items_inside())

    def save(self) -> Quarantine:
        """Write the manifest, durably."""
        about = {
            "schema": SCHEMA,
            "output": str(self.output.absolute()),
            "stage": self.stage.value,
            "files": [item.as_json() for item in self.items],
        }
        durable.replace_text(self.path / MANIFEST, json.dumps(about, indent=1) + "\n")
        return self


def quarantine_root(output: Path) -> Path:
    """Where the quarantines of `output` lie."""
    return output.with_name(output.name + QUARANTINE_SUFFIX)


@contextmanager
def _opened(output: Path, *names: str) -> Iterator[OpenFolder]:
    """Where quarantines lie, or a folder in there, from which no link leads away."""
    root = quarantine_root(output).name
    with OpenFolder(output.parent) as start, start.below(root, *names) as folder:
        yield folder


def read_quarantines(output: Path) -> list[Quarantine]:
    """Every quarantine of `output`, the oldest first; DamagedError if a manifest is damaged."""
    return [one for name in _folder_names(output) if (one := _read(name, output))]


def _folder_names(output: Path) -> list[str]:
    """The folders that lie where quarantines do, the oldest first."""
    try:
        with _opened(output) as folder:
            entries = [FolderEntry(folder, name) for name in folder.names()]
            return [one.name for one in entries if stat.S_ISDIR(one.lstat().st_mode)]
    except FileNotFoundError:
        return []
    except (LinkError, NotADirectoryError) as error:
        root = quarantine_root(output)
        raise DamagedError(f"{root} is a symbolic link, or not a folder: move it away") from error


def _read(name: str, output: Path) -> Quarantine | None:
    """One quarantine, None if there is no manifest in that folder."""
    path = quarantine_root(output) / name
    try:
        content = read_file(path / MANIFEST)
        if content is None:
            return None
        value = parse_json(content)
        if value["schema"] != SCHEMA:
            raise ValueError(f"its schema is {value['schema']!r}")
        items = [Item.from_json(item) for item in value["files"]]
        if len({item.name for item in items}) < len(items):
            raise ValueError("it names a file twice")
        moved = tuple(_moved_with_output(item, Path(value["output"]), output) for item in items)
        return Quarantine(path, output, QuarantineStage(value["stage"]), moved)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(
            f"{path / MANIFEST} is damaged ({error}); the files beside it are not affected: "
            "move them back by hand"
        ) from error


def _moved_with_output(item: Item, then: Path, output: Path) -> Item:
    """The item, with its path where the folder of the output is now."""
    names = way_below(item.path, then.parent)
    return item if names is None else replace(item, path=output.absolute().parent.joinpath(*names))


@dataclass(frozen=True)
class Moved:
    """What went into a quarantine, None if nothing did; all else is where it was, whole."""

    quarantine: Quarantine | None
    changed: tuple[Path, ...] = ()  # not what was proven
    held: tuple[Path, ...] = ()  # in a folder that may not be written


def move_items(output: Path, items: Iterable[Item]) -> Moved:
    """Move files into a new quarantine, or into one that a kill left unfinished.

    Killed at any moment, each file is at one place, whole, and the same call again goes on.
    """
    quarantine = _begin(output, list(items))
    changed, held = [], []
    inside = {item.name for item in quarantine.items_inside()}
    for item in quarantine.items:
        if item.name in inside:
            continue
        try:
            if not _move_in(quarantine, item):
                changed.append(item.path)
        except PermissionError:
            held.append(item.path)
    sync_folders(quarantine.place_of(item).parent for item in quarantine.items)
    sync_folders(item.path.parent for item in quarantine.items)
    now_inside = tuple(quarantine.items_inside())
    if not now_inside:
        remove_quarantine(quarantine)
        return Moved(None, tuple(changed), tuple(held))
    whole = replace(quarantine, items=now_inside, stage=QuarantineStage.WHOLE).save()
    return Moved(whole, tuple(changed), tuple(held))


def _begin(output: Path, items: list[Item]) -> Quarantine:
    """A quarantine whose manifest lists what is in it already, and these items."""
    unfinished = [it for it in read_quarantines(output) if it.stage is QuarantineStage.MOVING]
    if unfinished:
        known = _finish_copies(unfinished[-1], {item.path for item in items})
        path = unfinished[-1].path
    else:
        known, path = [], _new_folder(output)
    paths = {item.path for item in known if not item.path.exists()}
    named = _named([item for item in items if item.path not in paths], known)
    quarantine = Quarantine(path, output, QuarantineStage.MOVING, (*known, *named)).save()
    for folder in {quarantine.place_of(item).parent for item in named}:
        durable.make_folder(folder)
    return quarantine


def _finish_copies(quarantine: Quarantine, may_go: Collection[Path]) -> list[Item]:
    """Remove originals of which a kill left an equal copy in the quarantine, on another disk.

    Only those that may go by what is known now, not by what a manifest says. If one may not be
    removed its copy goes. Returns what is in the quarantine then.
    """
    inside = []
    for item in quarantine.items_inside():
        if item.path not in may_go or not item.is_unchanged_at(item.path):
            inside.append(item)
            continue
        with OpenFolder(item.path.parent) as folder, quarantine.entry(item) as place:
            original = FolderEntry(folder, item.path.name)
            is_equal = move_files.are_equal(original, place)
            is_kept = is_equal and not move_files.may_remove(item.path)
            if is_equal:
                durable.remove(place if is_kept else original)
        if not is_kept:
            inside.append(item)
    return inside


def _named(items: list[Item], known: list[Item]) -> list[Item]:
    """Give each item a name in the quarantine: its own, below a number for its folder.

    Its own, because in the file of a single task the name may say which task it is.
    """
    taken = {item.name for item in known}
    folders = {item.path.parent: int(item.name.partition("/")[0]) for item in known}
    named = []
    for item in items:
        number = folders.setdefault(item.path.parent, max(folders.values(), default=0) + 1)
        if f"{number}/{item.path.name}" in taken:
            number = folders[item.path.parent] = max(folders.values()) + 1
        named.append(replace(item, name=f"{number}/{item.path.name}"))
        taken.add(named[-1].name)
    return named


def _new_folder(output: Path) -> Path:
    """A folder named by the time (UTC), made durably."""
    root = quarantine_root(output)
    remove_remains(output)
    stem = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    names = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    path = next(root / name for name in names if not (root / name).exists())
    durable.make_folder(path)
    return path


def _move_in(quarantine: Quarantine, item: Item) -> bool:
    """Move one file, unless it is not what was proven; one that changes meanwhile goes back.

    PermissionError if its folder may not be written.
    """
    try:
        with OpenFolder(item.path.parent) as folder, quarantine.entry(item) as place:
            return _move_entry_in(item, FolderEntry(folder, item.path.name), place)
    except FileNotFoundError:
        return False


def _move_entry_in(item: Item, source: FolderEntry, place: FolderEntry) -> bool:
    if not item.is_unchanged_at(source):
        return False
    try:
        move_files.move_entry(source, place)
    except FileNotFoundError:
        return False
    except StorageError:
        with suppress(FileNotFoundError):
            durable.remove(place)  # a copy on another disk, of a file that is being written
        return False
    except OSError as error:
        if move_files.refusing_folder(source.path, place.path, error) == source.path.parent:
            raise PermissionError(*error.args) from error
        raise durable.storage_error(place.path, error) from error
    if not item.is_unchanged_at(place):
        with suppress(FileExistsError):  # then it stays here, and a purge refuses it
            move_files.move_entry(place, source)
        return False
    return True


def delete_items(quarantine: Quarantine, items: Collection[Item]) -> int:
    """Delete these files of a quarantine, for good; return how many bytes came free.

    The caller has just proven that nothing is lost with them. Killed at any moment, the rest is
    there and the same call again goes on. With its last file the quarantine itself goes.
    """
    replace(quarantine, stage=QuarantineStage.PURGING).save()
    freed_bytes = 0
    for item in items:
        try:
            with quarantine.entry(item) as place:
                freed_bytes += place.lstat().st_size
                durable.remove(place)
        except OSError as error:
            raise durable.storage_error(quarantine.place_of(item), error) from error
    sync_folders(quarantine.place_of(item).parent for item in items)
    left = tuple(quarantine.items_inside())
    if left:
        replace(quarantine, items=left, stage=QuarantineStage.WHOLE).save()
    else:
        remove_quarantine(quarantine)
    return freed_bytes


def delete_in_place(items: Iterable[Item]) -> list[Item]:
    """Delete files where they lie; return those that were deleted.

    The caller has just proven that nothing is lost with them; one that changed since stays, and
    one whose folder may not be written.
    """
    deleted = []
    for item in items:
        if item.is_unchanged_at(item.path):
            with suppress(OSError):
                item.path.unlink()
                deleted.append(item)
    sync_folders(item.path.parent for item in deleted)
    return deleted


def remove_remains(output: Path) -> None:
    """Remove folders that a kill left before anything was in them, or after all was gone."""
    for name in filter(_OWN_NAME.fullmatch, _folder_names(output)):
        if not os.path.lexists(quarantine_root(output) / name / MANIFEST):
            _remove_empty(output, name)
    with suppress(OSError):  # something is in it, or it is not there
        quarantine_root(output).rmdir()


def remove_quarantine(quarantine: Quarantine) -> None:
    """Remove a quarantine with nothing left in it, durably."""
    _remove_empty(quarantine.output, quarantine.name, MANIFEST)
    remove_remains(quarantine.output)
    sync_folders([quarantine.path.parent])


def _remove_empty(output: Path, quarantine: str, *files: str) -> None:
    """Remove a quarantine, these files, and what a kill left half written; all else stays."""
    with suppress(OSError), _opened(output, quarantine) as folder:  # such as that it is not empty
        for name in folder.names():
            if name.isdigit():
                with folder.below(name) as below:
                    _remove_files(below)
                durable.remove_folder(FolderEntry(folder, name))
        _remove_files(folder, files)
        (quarantine_root(output) / quarantine).rmdir()


def _remove_files(folder: OpenFolder, files: Collection[str] = ()) -> None:
    for name in folder.names():
        if name in files or durable.is_unfinished(name):
            durable.remove(FolderEntry(folder, name))


def sync_folders(folders: Iterable[Path]) -> None:
    """Make what was moved into or out of folders durable; those that are gone are passed over."""
    for folder in dict.fromkeys(folders):
        if folder.is_dir():
            durable.sync_folder(folder)
