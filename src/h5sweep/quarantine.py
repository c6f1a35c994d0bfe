"""Files that may go are moved aside first: `layouts.h5.quarantine/2026-11-16T02-03-04/`.

    manifest.json          every file: where it was, its size, its checksum, why it may go
    1/worker_7.h5 ...      the files, under their own names; a folder for each that they came from

The manifest is durable before the first file moves. Killed at any moment, each file is at its
place or in the quarantine, and the manifest lists it. Nothing here decides what may go.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from xxhash import xxh3_64

from . import durable
from .errors import DamagedError, StorageError, naming
from .places import QUARANTINE_SUFFIX

SCHEMA = "h5sweep.quarantine/1"
MANIFEST = "manifest.json"
_PIECE_BYTES = 1 << 20


class Stage(StrEnum):
    """How far a quarantine is."""

    MOVING = "moving"  # files are on their way into it
    WHOLE = "whole"
    PURGING = "purging"  # files are being deleted


class Reason(StrEnum):
    """Why a file may go, and how that is proven once more."""

    WORKER_FILE = "worker file"  # all its results are in the output
    RECORD_FILE = "record file"  # all that it says is in the output
    ASKED_FOR = "asked for"  # it was not merged, and somebody named it


@dataclass(frozen=True)
class Item:
    """One file that may go: as it was when that was proven."""

    path: Path  # where it lies, or lay; absolute
    size_bytes: int
    modified_ns: int
    xxh3: str
    reason: Reason
    why: str
    way: str = ""
    key: str | None = None
    rows: Mapping[str, Sequence[int]] = field(default_factory=dict)
    name: str = ""  # in the quarantine

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Item:
        return cls(**{**value, "path": Path(value["path"]), "reason": Reason(value["reason"])})

    def is_unchanged_at(self, path: Path) -> bool:
        """Whether the file at `path` has the size and the time that this one had."""
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        return (status.st_size, status.st_mtime_ns) == (self.size_bytes, self.modified_ns)


@dataclass(frozen=True)
class Quarantine:
    """A folder of files that may go."""

    path: Path
    output: Path
    stage: Stage
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        return self.path.name

    def place_of(self, item: Item) -> Path:
        return self.path / item.name

    def items_inside(self) -> list[Item]:
        """What is in it now."""
        return [item for item in self.items if self.place_of(item).exists()]

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


def read_quarantines(output: Path) -> list[Quarantine]:
    """Every quarantine of `output`, the oldest first; DamagedError if a manifest is damaged."""
    root = quarantine_root(output)
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [_read(path, output) for path in folders if (path / MANIFEST).exists()]


def _read(path: Path, output: Path) -> Quarantine:
    try:
        with naming(path / MANIFEST):
            value = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            raise ValueError(f"its schema is {value['schema']!r}")
        items = tuple(Item.from_json(item) for item in value["files"])
        return Quarantine(path, output, Stage(value["stage"]), items)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedError(
            f"{path / MANIFEST} is damaged ({error}); the files beside it are not touched by this: "
            "move them where they belong by hand"
        ) from error


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
    for item in quarantine.items:
        if quarantine.place_of(item).exists():
            continue
        try:
            if not _move_in(quarantine, item):
                changed.append(item.path)
        except PermissionError:
            held.append(item.path)
    _sync_folders(quarantine.place_of(item).parent for item in quarantine.items)
    _sync_folders(item.path.parent for item in quarantine.items)
    inside = tuple(quarantine.items_inside())
    if not inside:
        _remove_folder(quarantine)
        return Moved(None, tuple(changed), tuple(held))
    whole = replace(quarantine, items=inside, stage=Stage.WHOLE).save()
    return Moved(whole, tuple(changed), tuple(held))


def _begin(output: Path, items: list[Item]) -> Quarantine:
    """A quarantine whose manifest lists what is in it already, and these items."""
    unfinished = [it for it in read_quarantines(output) if it.stage is Stage.MOVING]
    if unfinished:
        known = unfinished[-1].items_inside()
        path = unfinished[-1].path
    else:
        known, path = [], _new_folder(output)
    known = _finish_copies(known, path)
    paths = {item.path for item in known if not item.path.exists()}
    named = _named([item for item in items if item.path not in paths], known)
    quarantine = Quarantine(path, output, Stage.MOVING, (*known, *named)).save()
    for folder in {quarantine.place_of(item).parent for item in named}:
        durable.make_folder(folder)
    return quarantine


def _finish_copies(items: list[Item], path: Path) -> list[Item]:
    """Remove originals of which a kill left an equal copy in the quarantine, on another disk.

    If an original may not be removed its copy goes. Returns what is in the quarantine then.
    """
    inside = []
    for item in items:
        if item.is_unchanged_at(item.path) and durable.are_equal(item.path, path / item.name):
            if not durable.may_remove(item.path):
                (path / item.name).unlink()
                continue
            item.path.unlink()
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
    place = quarantine.place_of(item)
    if not item.is_unchanged_at(item.path):
        return False
    try:
        durable.move_file(item.path, place)
    except FileNotFoundError:
        return False
    except StorageError:
        place.unlink(missing_ok=True)  # a copy on another disk, of a file that is being written
        return False
    except OSError as error:
        if durable.refusing_folder(item.path, place, error) == item.path.parent:
            raise PermissionError(*error.args) from error
        raise durable.storage_error(place, error) from error
    if not item.is_unchanged_at(place):
        with suppress(FileExistsError):  # then it stays here, and a purge refuses it
            durable.move_file(place, item.path)
        return False
    return True


@dataclass(frozen=True)
class Restored:
    """What was put back, and what stays in the quarantine because another file is there now."""

    put_back: tuple[Path, ...]
    in_the_way: tuple[Path, ...]
    held: tuple[Path, ...] = ()  # because the folder where they were may not be written


def restore_files(quarantine: Quarantine) -> Restored:
    """Put every file back where it was, never over one that is different.

    Killed at any moment, each file is at one place, whole, and the same call again goes on.
    """
    put_back: list[Path] = []
    in_the_way: list[Path] = []
    held: list[Path] = []
    for item in quarantine.items_inside():
        try:
            done = _put_back(quarantine.place_of(item), item.path)
            (put_back if done else in_the_way).append(item.path)
        except PermissionError:
            held.append(item.path)
    _sync_folders(path.parent for path in put_back)
    _sync_folders(quarantine.place_of(item).parent for item in quarantine.items)
    if not in_the_way and not held:
        _remove_folder(quarantine)
    return Restored(tuple(put_back), tuple(in_the_way), tuple(held))


def _put_back(place: Path, path: Path) -> bool:
    """Move one file, unless another is there; PermissionError if that folder may not be written."""
    durable.make_folder(path.parent)
    try:
        durable.move_file(place, path)
    except FileExistsError:
        # A kill while it was copied to another disk leaves it at both places.
        if not path.is_file() or path.is_symlink() or not durable.are_equal(place, path):
            return False
        place.unlink()
    except OSError as error:
        folder = durable.refusing_folder(place, path, error)
        if folder == path.parent:
            raise PermissionError(*error.args) from error
        raise durable.storage_error(place if folder else path, error) from error
    return True


def delete_items(quarantine: Quarantine, items: Collection[Item]) -> int:
    """Delete these files of a quarantine, for good; return how many bytes came free.

    Whoever calls has just proven that nothing is lost with them. Killed at any moment, the rest is
    there and the same call again goes on. With its last file the quarantine itself goes.
    """
    replace(quarantine, stage=Stage.PURGING).save()
    freed_bytes = 0
    for item in items:
        place = quarantine.place_of(item)
        freed_bytes += place.stat().st_size
        try:
            place.unlink()
        except OSError as error:
            raise durable.storage_error(place, error) from error
    _sync_folders(quarantine.place_of(item).parent for item in items)
    left = tuple(quarantine.items_inside())
    if left:
        replace(quarantine, items=left, stage=Stage.WHOLE).save()
    else:
        _remove_folder(quarantine)
    return freed_bytes


def delete_in_place(items: Iterable[Item]) -> list[Item]:
    """Delete files where they lie; return those that were deleted.

    Whoever calls has just proven that nothing is lost with them; one that changed since stays, and
    one whose folder may not be written.
    """
    deleted = []
    for item in items:
        if item.is_unchanged_at(item.path):
            with suppress(OSError):
                item.path.unlink()
                deleted.append(item)
    _sync_folders(item.path.parent for item in deleted)
    return deleted


def file_xxh3(path: Path) -> str:
    """The XXH3 of a whole file, as it stands in manifests and in the audit trail."""
    value = xxh3_64()
    with naming(path), path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            value.update(piece)
    return value.hexdigest()


def remove_remains(output: Path) -> None:
    """Remove folders that a kill left before anything was in them, or after all was gone."""
    root = quarantine_root(output)
    for path in list(root.iterdir()) if root.is_dir() else ():
        below = sorted(path.rglob("*"), reverse=True)  # what is in a folder before the folder
        files = [entry for entry in below if not entry.is_dir()]
        if path.is_dir() and all(entry.match(".*.part") for entry in files):
            for entry in below:
                entry.rmdir() if entry.is_dir() else entry.unlink()
            path.rmdir()
    with suppress(OSError):  # something is in it, or it is not there
        root.rmdir()


def _remove_folder(quarantine: Quarantine) -> None:
    (quarantine.path / MANIFEST).unlink()
    remove_remains(quarantine.output)
    _sync_folders([quarantine.path.parent])


def _sync_folders(folders: Iterable[Path]) -> None:
    for folder in dict.fromkeys(folders):
        if folder.is_dir():
            durable.sync_folder(folder)
