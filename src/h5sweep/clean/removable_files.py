"""Find what is safe to remove once an output is made: prove it now, move it, delete only by name.

A file is safe if every result in it was read back from the output, now, and is equal. Whatever
changed since the merge, is being written, or cannot be proven, is kept, with the reason. Damaged
and empty files go to quarantine only if they are named. Moving, putting back and deleting need the
lock of the output: `locked`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..base.process_id import this_process
from ..base.progress_callback import Progress
from ..base.units import command_text, count_text
from ..clean import quarantine
from ..disk import move_files
from ..disk.find_files import RECORDS_NAME, RUN_SUFFIX, PathLike
from ..disk.open_files import identity_of, is_locked
from ..errors import ChangedError, DamagedError, UsageError
from ..runfolder.audit import AuditEntry, AuditInput, Refused, append_removal, read_audit
from ..runfolder.layout import RunFolder
from ..runfolder.lock import holding_output, lock_owner
from ..runfolder.records import RecordFile
from ..state.extend_plan import is_up_to_date, merge_details
from ..state.state import LOCK_SILENT_S
from ..state.tasks_in_output import output_identity
from ..worker_files.findings import State
from ..worker_files.inputs import Input
from ..worker_files.layouts import Style, indexed_table
from ..worker_files.skipped_names import Names, is_named, parse_names
from .prove import Prover, xxh3_or_nothing
from .quarantine import Item, Moved, Quarantine, RemovalReason, read_quarantines
from .report import CleanReport, Kept, Purged
from .restore import Restored, restore_files


@contextmanager
def locked(output: Path, *, tell: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Keep runs, merges and other cleans of `output` away; LockedError if one is going on."""
    with holding_output(RunFolder.of(output), tell=tell):
        yield


def find_removable(output: PathLike, *, progress: Progress = lambda *_: None) -> CleanReport:
    """Read worker files, record files and output, and say what is safe to remove.

    Nothing on disk changes.
    """
    return _Finder(_existing_output(Path(output)), progress).report()


def move_to_quarantine(report: CleanReport, *, also: Sequence[str] = ()) -> Moved:
    """Move what is safe to remove, and what was named, to a quarantine beside the output.

    Killed at any moment, each file is at its place or in the quarantine, whole; what `report` was
    made from is then read again, and the same call goes on.
    """
    chosen = {item.path: item for name in also if (item := _refused_of_name(report, name))}
    items, held = _separate_held([*report.removable, *chosen.values()])
    if not items and not report.is_unfinished:
        return Moved(None, held=tuple(item.path for item in held))
    folder = RunFolder(report.output)
    with _keeping_note(folder):
        append_removal(report.output, "moved to quarantine", [item.as_json() for item in items])
        moved = quarantine.move_items(report.output, items)
    return replace(moved, held=(*(item.path for item in held), *moved.held))


def restore(output: Path, name: str | None = None, *, to: Sequence[Path] = ()) -> list[Restored]:
    """Put the files of one quarantine back where they were, or of all; none over another file.

    Files that were outside the folder of the output go back only if the folder is in `to`.
    """
    folder = RunFolder.of(output)
    found = [_quarantine_of_name(folder.output, name)] if name else read_quarantines(folder.output)
    restored = []
    for one in reversed(found):
        inside = [item.as_json() for item in one.items_inside()]
        append_removal(folder.output, f"put back from {one.name}", inside)
        restored.append(restore_files(one, to))
    return restored


def purge(output: Path, name: str, *, progress: Progress = lambda *_: None) -> Purged:
    """Delete one quarantine for good, when every result in it was read back from the output again.

    DamagedError, and nothing is deleted, if the output is gone or does not have all of it. Files
    that were moved because somebody named them stay, unless they are empty.
    """
    folder = RunFolder.of(output)
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
    freed_bytes = quarantine.delete_items(chosen, proven)
    return Purged(name, len(proven), freed_bytes, tuple(unproven))


def remove_merged(
    output: Path, *, records: bool = False, progress: Progress = lambda *_: None
) -> tuple[Purged, CleanReport]:
    """Delete the worker files that were merged, each after it was read back from the output.

    The same proof as for a quarantine, and the audit trail lists them before the first one goes;
    they are not moved first, because they may lie on another disk. What is not proven stays.
    `records`: also the run folder's record files. Killed at any moment, the rest is there.
    """
    with _same_output(output):
        report = find_removable(output, progress=progress)
    proven = [i for i in report.removable if records or i.reason is not RemovalReason.RECORD_FILE]
    items, _ = _separate_held(proven)
    deleted = []
    if items:
        with _keeping_note(RunFolder(report.output)):
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


def _existing_output(output: Path) -> RunFolder:
    folder = RunFolder.of(output)
    if not folder.output.exists():
        raise UsageError(
            f"there is no {folder.output}: without an output nothing is safe to remove"
        )
    return folder


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


@dataclass
class _Finder:
    """Looks at every file that the audit trail names, and at the record files."""

    folder: RunFolder
    progress: Progress
    removable: list[Item] = field(default_factory=list)
    refused: list[Item] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    gone: int = 0

    def report(self) -> CleanReport:
        output = self.folder.output
        trail = read_audit(output)
        if not trail.entries and not self.folder.exists():
            raise UsageError(
                f"{output} has neither an audit trail nor a run folder: it is unknown what it "
                "was made from, so nothing is safe to remove"
            )
        notes = [f"line {n} of its audit trail is {why}" for n, why in trail.unread]
        quarantines = read_quarantines(output)
        named = self._named(trail.entries)
        records = self.folder.record_paths()
        total = len(named) + len(records)
        with Prover(self.folder) as self._prover:
            for number, (path, (entry, one)) in enumerate(named.items()):
                self.progress(number, total)
                self._look_at_named(path, entry, one)
            self._look_at_records(records, len(named), total)
        self.gone -= sum(
            not item.path.exists() and item.path in named
            for one in quarantines
            for item in one.items_inside()
        )
        return CleanReport(
            output,
            tuple(self.removable),
            tuple(self.refused),
            tuple(self.kept),
            max(self.gone, 0),
            tuple(quarantines),
            tuple(notes),
        )

    def _named(
        self, entries: Iterable[AuditEntry]
    ) -> dict[Path, tuple[AuditEntry, AuditInput | Refused]]:
        """Every file in the trail, where it lies now, with the last merge that names it.

        The output itself, to which some merges add, and our own record files are not among them.
        """
        named: dict[Path, tuple[AuditEntry, AuditInput | Refused]] = {}
        ours = (
            f"/{self.folder.path.name}/{self.folder.records_path.name}/"  # wherever that lay then
        )
        for entry in entries:
            files: list[AuditInput | Refused] = [*entry.inputs, *entry.refused]
            for one in files:
                if one.path != entry.output and ours not in one.path:
                    named[self._path_now(entry, Path(one.path))] = entry, one
        return named

    def _path_now(self, entry: AuditEntry, path: Path) -> Path:
        """Where a file lies that may have been moved or copied together with the output.

        The files of an output that was copied belong to the one that it is a copy of.
        """
        then, now = Path(entry.output), self.folder.output.absolute()
        if then.resolve() == now.resolve():
            return path
        place = os.path.relpath(path, then.parent)
        there = Path(os.path.normpath(now.parent / place))
        is_left_behind = not os.path.lexists(there) and not os.path.lexists(then)
        return path if is_left_behind else there

    def _look_at_named(self, path: Path, entry: AuditEntry, one: AuditInput | Refused) -> None:
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            self.gone += 1
            return
        except OSError as error:
            self.kept.append(Kept(path, f"it cannot be read: {error.strerror}"))
            return
        objection = self._outside_objection(path, status)
        if objection:
            self.kept.append(Kept(path, objection))
        elif isinstance(one, Refused):
            self._look_at_refused(path, one, status)
        else:
            self._look_at_merged(path, entry, one, status)

    def _outside_objection(self, path: Path, status: os.stat_result) -> str:
        """Why a file cannot go, seen without reading it."""
        if not stat.S_ISREG(status.st_mode):
            return "it is a symbolic link, or not a file"
        if path.samefile(self.folder.output):
            return "it is the output itself"
        if who := self._prover.written.get(identity_of(status)):
            return f"{who} is writing it"
        return ""

    def _look_at_refused(self, path: Path, one: Refused, status: os.stat_result) -> None:
        """A file that was not merged, as it is now: it may have been mended, or written on."""
        found = self._prover.read_all(path)
        if found.is_readable:
            why = f"it was not merged ({one.why}) and can be read now: merge again"
            self.kept.append(Kept(path, why))
        else:
            self._add_refused(path, "not merged", found, status)

    def _look_at_merged(
        self, path: Path, entry: AuditEntry, one: AuditInput, status: os.stat_result
    ) -> None:
        objection = _kind_objection(path, one, parse_names(entry.policy.get("skip")))
        xxh3 = "" if objection else xxh3_or_nothing(path)
        if not objection and not xxh3:
            objection = "it cannot be read"
        if not objection and one.xxh3 not in (None, xxh3):
            objection = "it has changed since it was merged: its checksum is different"
        if objection:
            self.kept.append(Kept(path, objection))
            return
        found = self._prover.look_at(path)
        why = f"all its results were read back from the output ({entry.way})"
        item = _item(path, status, xxh3, RemovalReason.WORKER_FILE, why)
        item = replace(item, way=entry.way, key=entry.key, rows=dict(one.rows))
        objection = self._prover.worker_objection(item, found)
        if found.is_readable or found.state is State.LIVE:
            self._add(item, objection)
        else:
            was = f"{count_text(one.tasks, 'task')} merged from it by salvage"
            self._add_refused(path, was, found, status)

    def _add_refused(self, path: Path, was: str, found: Input, status: os.stat_result) -> None:
        reasons = [f"{f.code} {f.message}" for f in found.reasons]
        more = f" (and {len(reasons) - 1:,} more)" if len(reasons) > 1 else ""
        why = f"{was}; {found.state.value}: {''.join(reasons[:1])}{more}"
        self.refused.append(
            _item(path, status, xxh3_or_nothing(path), RemovalReason.ASKED_FOR, why)
        )

    def _look_at_records(self, paths: list[Path], done: int, total: int) -> None:
        if not paths:
            return
        objection = _folder_objection(self.folder)
        for number, path in enumerate(paths):
            self.progress(done + number, total)
            self._look_at_record(path.absolute(), objection)

    def _look_at_record(self, path: Path, objection: str) -> None:
        with suppress(FileNotFoundError):
            status = path.lstat()
            objection = self._outside_objection(path, status) or objection
            objection = objection or _writer_objection(self.folder, path)
            if objection:
                self.kept.append(Kept(path, objection))
                return
            why = "everything in it was read back from the output"
            item = _item(path, status, xxh3_or_nothing(path), RemovalReason.RECORD_FILE, why)
            self._add(item, self._prover.record_objection(path))

    def _add(self, item: Item, objection: str) -> None:
        if objection:
            self.kept.append(Kept(item.path, objection))
        else:
            self.removable.append(item)


def _folder_objection(folder: RunFolder) -> str:
    """Why no record file can go, whatever is in it."""
    plan, merged = folder.load_plan(), folder.load_merged()
    is_known = plan is not None and plan.tasks_shared_with(merged.get("plan"))
    if not is_known or merged["output"] != output_identity(folder.output):
        # Without that note `status` would have to read all rows of the output each time.
        return (
            "the run folder has no note of the output as it is now: "
            f"{command_text('merge', folder.output)} rebuilds it"
        )
    return ""


def _writer_objection(folder: RunFolder, path: Path) -> str:
    """Whether the process that writes a record file may still be alive."""
    if is_locked(path):
        return "a process holds it, and may still write to it"
    with RecordFile(path) as file:
        about, owner = file.about(), file.owner()
    if owner is None or about is None:
        return "it does not say who wrote it"
    alive = owner.is_alive()
    if alive is None and about.get("is_locked") and owner.is_on_this_machine:
        alive = False  # in a container of this machine, where it would hold its file
    if alive:
        return f"{owner} may still write to it"
    # Workers end with their run, and a run keeps changing the lock. Recorders have no lock.
    if alive is None and (about.get("role") == "recorder" or _is_lock_fresh(folder)):
        return f"it is unknown here whether {owner} still writes to it: run clean on that host"
    return ""


def _is_lock_fresh(folder: RunFolder) -> bool:
    with suppress(OSError):
        if lock_owner(folder.lock_path) == this_process():
            return False  # we hold it: no run does
        return time.time() - folder.lock_path.lstat().st_mtime < LOCK_SILENT_S
    return False


def _kind_objection(path: Path, one: AuditInput, skip: Names) -> str:
    """Why a file cannot go by what it is, or by what was left out of it."""
    if one.style == Style.OUTPUT:
        return "it is an output itself: remove it by hand if it is not needed"
    if path.parent.name == RECORDS_NAME and path.parent.parent.name.endswith(RUN_SUFFIX):
        other = path.parent.parent.with_name(path.parent.parent.name.removesuffix(RUN_SUFFIX))
        return f"it belongs to another run folder: {command_text('clean', other)}"
    left_out = [
        name
        for name in one.skipped
        if name not in one.left_out and indexed_table(name) not in one.datasets
    ]
    if left_out:
        is_wanted = all(is_named(name, skip) for name in left_out)
        what = "was left out by --skip" if is_wanted else "was not merged"
        return f"{', '.join(left_out[:3])} {what} and exists nowhere else"
    return ""


def _item(path: Path, status: os.stat_result, xxh3: str, reason: RemovalReason, why: str) -> Item:
    return Item(path, status.st_size, status.st_mtime_ns, xxh3, reason, why)
