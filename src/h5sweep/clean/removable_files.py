"""Find what is safe to remove once an output is made, by proving it now. Changes nothing on disk.

A file is safe if every result in it was read back from the output, now, and is equal. Whatever
changed since the merge, is being written, or cannot be proven, is kept, with the reason. Damaged
and empty files go to quarantine only if they are named.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..base.process_id import this_process
from ..base.progress_callback import Progress
from ..base.units import command_text, count_text
from ..disk.find_files import RECORDS_NAME, RUN_SUFFIX, PathLike
from ..disk.open_files import identity_of, is_locked
from ..errors import UsageError
from ..runfolder.audit import AuditEntry, AuditInput, Refused, read_audit
from ..runfolder.layout import RunFolder
from ..runfolder.lock import lock_owner
from ..runfolder.parts import part_beats
from ..runfolder.records import RecordFile
from ..state.state import LOCK_SILENT_S
from ..state.tasks_in_output import output_identity
from ..worker_files.findings import State
from ..worker_files.inputs import Input
from ..worker_files.layouts import Style, indexed_table
from ..worker_files.skipped_names import Names, is_named, parse_names
from .prove import Prover, xxh3_or_nothing
from .quarantine import Item, RemovalReason, read_quarantines
from .report import CleanReport, Kept


def find_removable(output: PathLike, *, progress: Progress = lambda *_: None) -> CleanReport:
    """Read worker files, record files and output, and say what is safe to remove.

    Nothing on disk changes.
    """
    folder = RunFolder.of(output)
    if not folder.output.exists():
        raise UsageError(
            f"there is no {folder.output}: without an output nothing is safe to remove"
        )
    return _Finder(folder, progress).report()


@dataclass
class _Finder:
    """Looks at every file that the audit trail names, and at the record files."""

    folder: RunFolder
    progress: Progress
    removable: list[Item] = field(default_factory=list)
    refused: list[Item] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    gone: set[Path] = field(default_factory=set)

    def report(self) -> CleanReport:
        output = self.folder.output
        trail = read_audit(output)
        if not trail.entries and not self.folder.exists():
            raise UsageError(
                f"{output} has neither an audit trail nor a run folder: it is unknown what it "
                "was made from, so nothing is safe to remove"
            )
        notes = [f"line {n} of its audit trail is {why}" for n, why, _ in trail.unread]
        quarantines = read_quarantines(output)
        named = self._named(trail.entries)
        records = [path.absolute() for path in self.folder.record_paths()]
        of_all_records = _folder_objection(self.folder) if records else ""
        with Prover(self.folder) as self._prover:
            for number, path in enumerate([*named, *records]):
                self.progress(number, len(named) + len(records))
                if path in named:
                    objection = self._look_at_named(path, *named[path])
                else:
                    objection = self._look_at_record(path, of_all_records)
                if objection:
                    self.kept.append(Kept(path, objection))
        inside = {item.path for one in quarantines for item in one.items_inside()}
        return CleanReport(
            output,
            tuple(self.removable),
            tuple(self.refused),
            tuple(self.kept),
            len(self.gone - inside),
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
        ours = f"/{self.folder.path.name}/{self.folder.records_path.name}/"  # wherever that was
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

    # Each of these says why a file is kept; one that is not is noted where it belongs.

    def _look_at_named(self, path: Path, entry: AuditEntry, one: AuditInput | Refused) -> str:
        try:
            status = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            self.gone.add(path)
            return ""
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        if objection := self._outside_objection(path, status):
            return objection
        if isinstance(one, Refused):
            return self._look_at_refused(path, one, status)
        return self._look_at_merged(path, entry, one, status)

    def _outside_objection(self, path: Path, status: os.stat_result) -> str:
        """Why a file cannot go, seen without reading it."""
        if not stat.S_ISREG(status.st_mode):
            return "it is a symbolic link, or not a file"
        if path.samefile(self.folder.output):
            return "it is the output itself"
        if who := self._prover.written.get(identity_of(status)):
            return f"{who} is writing it"
        return ""

    def _look_at_refused(self, path: Path, one: Refused, status: os.stat_result) -> str:
        """A file that was not merged, as it is now: it may have been mended, or written on."""
        found = self._prover.read_all(path)
        if found.is_readable:
            return f"it was not merged ({one.why}) and can be read now: merge again"
        self._add_refused(path, "not merged", found, status)
        return ""

    def _look_at_merged(
        self, path: Path, entry: AuditEntry, one: AuditInput, status: os.stat_result
    ) -> str:
        if objection := _kind_objection(path, one, parse_names(entry.policy.get("skip"))):
            return objection
        xxh3 = xxh3_or_nothing(path)
        if not xxh3:
            return "it cannot be read"
        if one.xxh3 not in (None, xxh3):
            return "it has changed since it was merged: its checksum is different"
        found = self._prover.look_at(path)
        why = f"all its results were read back from the output ({entry.way})"
        item = _item(path, status, xxh3, RemovalReason.WORKER_FILE, why)
        item = replace(item, way=entry.way, key=entry.key, rows=dict(one.rows))
        objection = self._prover.worker_objection(item, found)
        if found.is_readable or found.state is State.LIVE:
            if not objection:
                self.removable.append(item)
            return objection
        was = f"{count_text(one.tasks, 'task')} merged from it by salvage"
        self._add_refused(path, was, found, status)
        return ""

    def _add_refused(self, path: Path, was: str, found: Input, status: os.stat_result) -> None:
        reasons = [f"{f.code} {f.message}" for f in found.reasons]
        more = f" (and {len(reasons) - 1:,} more)" if len(reasons) > 1 else ""
        why = f"{was}; {found.state.value}: {''.join(reasons[:1])}{more}"
        self.refused.append(
            _item(path, status, xxh3_or_nothing(path), RemovalReason.ASKED_FOR, why)
        )

    def _look_at_record(self, path: Path, of_all: str) -> str:
        with suppress(FileNotFoundError):
            status = path.lstat()
            objection = self._outside_objection(path, status) or of_all
            if objection := objection or _writer_objection(self.folder, path):
                return objection
            why = "everything in it was read back from the output"
            item = _item(path, status, xxh3_or_nothing(path), RemovalReason.RECORD_FILE, why)
            objection = self._prover.record_objection(path)
            if not objection:
                self.removable.append(item)
            return objection
        return ""


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
    # Workers end with their run, and a run keeps changing the lock; those of a part end with it,
    # and its file goes then. Recorders have neither.
    is_unseen = about.get("role") == "recorder" or about.get("part") in part_beats(folder)
    if alive is None and (is_unseen or _is_lock_fresh(folder)):
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
