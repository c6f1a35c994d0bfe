"""Quarantine, restore or delete what is safe to remove, each under the output's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..base.progress_callback import Progress
from ..base.units import command_text, count_text
from ..disk import move_files
from ..disk.find_files import PathLike
from ..errors import ChangedError, DamagedError, UsageError
from ..runfolder.audit import append_removal
from ..runfolder.layout import RunFolder
from ..runfolder.lock import holding_output
from ..state.extend_plan import is_up_to_date, merge_details
from ..state.tasks_in_output import output_identity
from . import quarantine
from .prove import Prover
from .quarantine import Item, Moved, Quarantine, RemovalReason, read_quarantines
from .removable_files import find_removable
from .report import CleanReport, Purged
from .restore import Restored, restore_all

Tell = Callable[[str], None]


def quarantine_files(
    output: PathLike,
    *,
    also: Iterable[PathLike] = (),
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda text: None,
) -> CleanReport:
    """Move what is safe to remove now that `output` is made, and what `also` names, aside.

    They are in a quarantine beside the output then, which the report names as `moved`. Killed at
    any moment, each file is at its place or in the quarantine, whole, and the same call goes on.
    """
    with holding_output(RunFolder.of(output), tell=tell):
        report = find_removable(output, progress=progress)
        names = [os.fspath(name) for name in also]
        return replace(report, moved=move_to_quarantine(report, also=names))


def move_to_quarantine(report: CleanReport, *, also: Sequence[str] = ()) -> Moved:
    """Move what is safe to remove, and what was named, to a quarantine beside the output.

    Killed at any moment, each file is at its place or in the quarantine, whole; what `report` was
    made from is then read again, and the same call goes on.
    """
    chosen = {item.path: item for name in also if (item := _refused_of_name(report, name))}
    items, held = _separate_held([*report.removable, *chosen.values()])
    if not items and not report.is_unfinished:
        return Moved(None, held=tuple(item.path for item in held))
    with _keeping_note(RunFolder(report.output)):
        append_removal(report.output, "moved to quarantine", [item.as_json() for item in items])
        moved = quarantine.move_items(report.output, items)
    return replace(moved, held=(*(item.path for item in held), *moved.held))


def restore_quarantine(
    output: PathLike,
    name: str | None = None,
    *,
    to: Iterable[PathLike] = (),
    tell: Tell = lambda text: None,
) -> Restored:
    """Put the files of one quarantine back where they were, or of all; none over another file.

    Files that were outside the folder of the output go back only if the folder is in `to`.
    """
    folder = RunFolder.of(output)
    with holding_output(folder, tell=tell):
        found = (
            [_quarantine_of_name(folder.output, name)] if name else read_quarantines(folder.output)
        )
        return restore_all(found[::-1], [Path(one) for one in to])


def purge_quarantine(
    output: PathLike,
    name: str,
    *,
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda text: None,
) -> Purged:
    """Delete one quarantine for good, when every result in it was read back from the output again.

    DamagedError, and nothing is deleted, if the output is gone or does not have all of it. Files
    that were moved because somebody named them stay, unless they are empty.
    """
    folder = RunFolder.of(output)
    with holding_output(folder, tell=tell):
        chosen = _quarantine_of_name(folder.output, name)
        if not folder.output.exists():
            raise DamagedError(
                f"{folder.output} is gone, so the files in quarantine may be the only copy: "
                f"{command_text('clean', folder.output, '--restore', name)}"
            )
        inside = chosen.items_inside()
        unproven = [i for i in inside if i.reason is RemovalReason.ASKED_FOR and i.size_bytes]
        proven = [item for item in inside if item not in unproven]
        _require_proof(folder, chosen, proven, progress)
        append_removal(folder.output, f"purged from {name}", [item.as_json() for item in proven])
        return Purged(name, len(proven), quarantine.delete_items(chosen, proven), tuple(unproven))


def remove_merged(
    output: Path,
    *,
    progress: Progress = lambda done, total: None,
    tell: Tell = lambda text: None,
) -> tuple[Purged, CleanReport]:
    """Delete the worker files that were merged, each after it was read back from the output.

    The same proof as for a quarantine, and the audit trail lists them before the first one goes;
    they are not moved first, because they may lie on another disk. What is not proven stays, and
    so does the run folder. Killed at any moment, the rest is there.
    """
    with holding_output(RunFolder.of(output), tell=tell):
        with _same_output(output):
            report = find_removable(output, progress=progress)
        proven = [i for i in report.removable if i.reason is not RemovalReason.RECORD_FILE]
        items, _ = _separate_held(proven)
        deleted = []
        if items:
            append_removal(report.output, "removed", [item.as_json() for item in items])
            deleted = quarantine.delete_in_place(items)
        left = tuple(i for i in proven if i not in deleted and i.is_unchanged_at(i.path))
        return Purged("", len(deleted), sum(item.size_bytes for item in deleted), left), report


def _separate_held(items: Iterable[Item]) -> tuple[list[Item], list[Item]]:
    """Files that may be taken out of their folders, and those that may not."""
    free: list[Item] = []
    held: list[Item] = []
    for item in items:
        (free if move_files.may_remove(item.path) else held).append(item)
    return free, held


def _quarantine_of_name(output: Path, name: str) -> Quarantine:
    found = {one.name: one for one in read_quarantines(output)}
    if name not in found:
        names = f"there are {', '.join(found)}" if found else "there is none"
        raise UsageError(f"{output} has no quarantine {name!r}: {names}")
    return found[name]


def _refused_of_name(report: CleanReport, name: str) -> Item | None:
    """The file that somebody means by a path or a mere name; None if it was moved already."""
    path = Path(os.path.abspath(name))  # noqa: PTH100 (resolving would follow links)
    named = [i for i in report.refused if i.path == path]
    named = named or [i for i in report.refused if i.path.name == name]
    if len(named) == 1:
        return named[0]
    if named:
        paths = ", ".join(str(item.path) for item in named)
        raise UsageError(f"{name} may be {paths}: give the path")
    inside = [i.path for one in report.quarantines for i in one.items_inside()]
    if path in inside or name in [path.name for path in inside]:
        return None
    others = [kept for kept in report.kept if name in (kept.path.name, str(kept.path))]
    if others:
        raise UsageError(f"{name} stays where it is: {others[0].why}")
    raise UsageError(f"{name} is not among the files that move only by name")


@contextmanager
def _keeping_note(folder: RunFolder) -> Iterator[None]:
    """Let the output count as up to date as before, though record files go."""
    plan = folder.load_plan() if folder.exists() else None
    was_up_to_date = plan is not None and is_up_to_date(folder, plan)
    yield
    if was_up_to_date:
        folder.save_merged({**folder.load_merged(), **merge_details(folder)})


def _require_proof(
    folder: RunFolder, chosen: Quarantine, items: Sequence[Item], progress: Progress
) -> None:
    objections = []
    with _same_output(folder.output), Prover(folder) as prover:
        for number, item in enumerate(items):
            progress(number, len(items))
            objection = prover.objection(item, chosen.place_of(item))
            if objection:
                objections.append(f"{item.name}: {objection}")
    if objections:
        raise DamagedError(
            f"nothing was deleted: {len(objections):,} of {count_text(len(items), 'file')} can no "
            f"longer be proven safe to delete, first {objections[0]}. "
            f"{command_text('clean', folder.output, '--restore', chosen.name)} puts them back"
        )


@contextmanager
def _same_output(output: Path) -> Iterator[None]:
    """Raise ChangedError if somebody has replaced the output meanwhile."""
    before = output_identity(output)
    yield
    if output_identity(output) != before:
        raise ChangedError(f"{output} changed while it was read: run the same command again")
