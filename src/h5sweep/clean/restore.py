"""Put quarantined files back where they were, but only below folders that the user named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..disk import durable, move_files
from ..disk.inside_folder import FolderEntry, LinkError, OpenFolder, way_below
from ..runfolder.audit import append_removal
from .quarantine import Item, Quarantine, remove_quarantine, sync_folders


@dataclass(frozen=True)
class Restored:
    """What was put back, and what stays in the quarantine because another file is there now."""

    put_back: tuple[Path, ...]
    in_the_way: tuple[Path, ...]
    held: tuple[Path, ...] = ()  # because the folder where they were may not be written
    outside: tuple[Path, ...] = ()  # because nobody named the folder where they were

    @property
    def left(self) -> tuple[Path, ...]:
        """All that stays in the quarantine."""
        return (*self.in_the_way, *self.held, *self.outside)


def restore_all(quarantines: Iterable[Quarantine], named: Sequence[Path] = ()) -> Restored:
    """Put every file back where it was, never over one that is different.

    Only below the folder of the output and below those that are `named`: where a file was is what
    the manifest says, and that may be from anybody. Killed at any moment, each file is at one
    place, whole, and the same call again goes on.
    """
    found: dict[str, list[Path]] = {"put_back": [], "in_the_way": [], "held": [], "outside": []}
    for quarantine in quarantines:
        inside = quarantine.items_inside()
        about = [item.as_json() for item in inside]
        append_removal(quarantine.output, f"put back from {quarantine.name}", about)
        for item in inside:
            found[_restore(quarantine, item, named)].append(item.path)
        sync_folders(path.parent for path in found["put_back"])
        sync_folders(quarantine.place_of(item).parent for item in quarantine.items)
        if not quarantine.items_inside():
            remove_quarantine(quarantine)
    return Restored(**{how: tuple(paths) for how, paths in found.items()})


def _restore(quarantine: Quarantine, item: Item, named: Sequence[Path]) -> str:
    """Put one file back if that may be; say how it went."""
    try:
        with ExitStack() as stack:
            target = _way_back(quarantine, item, named, stack)
            if target is None:
                return "outside"
            place = stack.enter_context(quarantine.entry(item))
            return "put_back" if _put_back(place, target) else "in_the_way"
    except LinkError:
        return "outside"
    except PermissionError:
        return "held"


def _way_back(
    quarantine: Quarantine, item: Item, named: Sequence[Path], stack: ExitStack
) -> FolderEntry | None:
    """Where an item was, reached from a folder that somebody named; None if none leads there."""
    for folder in named:
        if names := way_below(item.path, folder):
            durable.make_folder(folder)
            return _entry_below(folder, names, stack)
    names = way_below(item.path, quarantine.output.parent)
    # What is hidden is not for results: settings, keys, programs.
    if not names or any(name.startswith(".") for name in names):
        return None
    return _entry_below(quarantine.output.parent, names, stack)


def _entry_below(folder: Path, names: Sequence[str], stack: ExitStack) -> FolderEntry:
    """The name of a file below a folder; what is missing in between is made."""
    below = stack.enter_context(OpenFolder(folder))
    for name in names[:-1]:
        below = stack.enter_context(durable.make_below(below, name))
    return FolderEntry(below, names[-1])


def _put_back(place: FolderEntry, target: FolderEntry) -> bool:
    """Move one file, unless another is there; PermissionError if that folder may not be written."""
    try:
        move_files.move_entry(place, target)
    except FileExistsError:
        # A kill while it was copied to another disk leaves it at both places.
        if not target.is_file() or not move_files.are_equal(place, target):
            return False
        durable.remove(place)
    except OSError as error:
        folder = move_files.refusing_folder(place.path, target.path, error)
        if folder == target.path.parent:
            raise PermissionError(*error.args) from error
        raise durable.storage_error(place.path if folder else target.path, error) from error
    return True
