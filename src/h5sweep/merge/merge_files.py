"""Worker files of any program → one HDF5 file, verified before it takes its name.

Without a key the shape is kept: groups stay groups and columns stay columns. With one, every task
becomes a record in the run folder of the output, and the output is made as after any run.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..base.progress import Progress
from ..base.units import count_text
from ..disk import durable, move_files
from ..disk.find_files import PathLike, absolute
from ..errors import ChangedError, DamagedError, StorageError, UsageError
from ..runfolder.audit import (
    AuditEntry,
    AuditInput,
    Conflict,
    append_entry,
    audit_path,
)
from ..runfolder.layout import RunFolder, resolved
from ..runfolder.lock import holding_folder, holding_output
from ..worker_files.findings import UNREADABLE, State
from ..worker_files.layouts import Contents, Style, indexed_table
from ..worker_files.read_file import DamagedFileError
from ..worker_files.same_structure import Family
from ..worker_files.survey import Input, Survey, Taken, xxh3_of
from .audit_entry import TakenListing, entry_of_files, list_taken
from .by_key.to_records import record_tasks
from .damage import MetDamage
from .from_records.build import merge_run
from .groups.merge_groups import MergedGroups
from .marker import mark_as_merged
from .merged_before import Addition, plan_addition
from .policy import OnDamaged, Policy, notes_on, separate, will_stop
from .report import FilesReport, RefusedFile
from .tables.duplicates import notes_on_rows
from .tables.merge_tables import MergedTables
from .tables.taken_rows import TakenRows

OURS = (Style.RECORDS, Style.OUTPUT)
_APART = ".salvage-"
AUDIT_BYTES = 512  # about what the audit trail takes for each input
COMPARED_BYTES, MOST_COMPARED = 4 << 20, 2
ATTEMPTS = 2  # a file that changes while it is read is read once more, and then refused


def merge_files(
    paths: PathLike | Iterable[PathLike],
    output: PathLike,
    *,
    key: str | None = None,
    policy: Policy | None = None,
    force: bool = False,
    compress: bool = False,
    progress: Progress = lambda done, total: None,
    tell: Callable[[str], None] = lambda text: None,
) -> FilesReport:
    """Merge every file below `paths` into `output`; the inputs stay as they are.

    Killed at any moment, `output` is as it was or the new one, whole, and the same call again
    finishes the job. Raises before anything is written if a file cannot be read (DamagedError),
    two hold different results for one task (ConflictError), or `output` is somebody else's.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    merge = _FilesMerge(paths, Path(output), policy or Policy(), key, force, compress)
    merge.progress, merge.tell = progress, tell
    changes = 0
    with MetDamage() as merge.damage:
        while True:
            try:
                return merge.run()
            except ChangedError:
                changes += 1
                if changes == ATTEMPTS:
                    raise
            except DamagedFileError as error:
                if not merge.damage.take(error):
                    raise


@dataclass
class _FilesMerge:
    """One merge: what is asked for, and what was found out on the way."""

    paths: Sequence[PathLike]
    given_output: Path
    policy: Policy
    key: str | None
    force: bool
    compress: bool
    progress: Progress = field(init=False)
    tell: Callable[[str], None] = field(init=False)
    damage: MetDamage = field(init=False)

    def run(self) -> FilesReport:
        self._begun = time.monotonic()
        self.output = _resolved(self.given_output)
        self.survey = Survey(self.policy.skip)
        self.notes: list[str] = []
        RunFolder(self.output).require_place()
        _require_outside(self.output, self.paths)
        inputs = self.survey.look_at_all(self.paths, leave_out=self._own_files())
        self.notes += _notes_on_links(self.survey.linked_folders, self.paths)
        if not inputs:
            raise UsageError(f"there is nothing to merge in {_names(self.paths)}")
        self.damage.judge(self.survey, inputs, is_last=will_stop(inputs, self.policy))
        good, self.refused = separate(inputs, self.policy)
        self.notes += notes_on(good)
        wants_salvage = bool(self.refused) and self.policy.on_damaged is OnDamaged.SALVAGE
        if not wants_salvage:
            self._require_results(good)
        if self.key is not None or any(one.style in OURS for one in good):
            return self._merge_into_sweep(good)
        if wants_salvage:
            raise UsageError(
                "what is salvaged becomes rows of tasks: say with --key how files tell the task"
            )
        return self._keep_shape(good)

    def _own_files(self) -> list[Path]:
        """What belongs to the output itself, and is not an input to it."""
        folder = RunFolder(self.output)
        own = [] if self._is_named else [self.output]
        return [*own, *folder.record_paths()]

    def _keep_shape(self, good: Sequence[Input]) -> FilesReport:
        with holding_output(RunFolder(self.output), tell=self.tell):
            addition = plan_addition(self.survey, self.output, good, is_named=self._is_named)
            self._require_replaceable(addition.reason)
            self.notes += addition.notes
            good = addition.inputs
            parts = self._parts(good, addition)
            needed = sum(part.size_bytes for part in parts)
            durable.require_space(self.output, needed + len(good) * AUDIT_BYTES)
            steps = _Steps(self.progress, [part.size_bytes for part in parts] * 2)
            with durable.replacing(self.output, is_synced=True) as temporary:
                taken = _united([part.write(temporary, steps.next()) for part in parts])
                mark_as_merged(temporary, audit_path(self.output).name, addition.holds(taken))
                with durable.syncing(temporary):
                    self.damage.require_none_by_library()  # or what it wrote would be blamed
                    for part in parts:
                        part.verify(temporary, steps.next())
                    listing = taken.listing() if isinstance(taken, TakenRows) else list_taken(taken)
                if self.output.exists() and self._is_foreign:
                    self._keep_aside()
            looked_at = [one for part in parts for one in part.looked_at]
            for part in parts:
                self.notes += [note for note in part.notes if note not in self.notes]
            self.notes += notes_on_rows(looked_at)
            conflicts = [one for part in parts for one in part.conflicts]
            report = self._conclude(_way_of(parts), taken, conflicts, listing=listing)
            is_told = len(looked_at) == 1 and looked_at[0].are_unique
            return replace(report, once_by=looked_at[0].names) if is_told else report

    def _parts(
        self, good: Sequence[Input], addition: Addition
    ) -> list[MergedTables | MergedGroups]:
        """What goes into the output: columns, groups, or both."""
        with_rows, with_groups, inside = list(good), list[Input](), _contents_of(good)
        if any(contents.style is not Style.ROWS for contents in inside):
            rows = {one for one in good if one.style is Style.ROWS}
            rows |= {*addition.tables} if rows else set()
            with_rows = [one for one in good if one in rows]
            with_groups = [one for one in good if one not in rows]
        if growing := _tasks_that_grow(with_rows, has_groups=bool(with_groups)):
            with_rows = [one for one in with_rows if one not in growing]
            with_groups = [o for o in good if o in {*with_groups, *growing}]
        if not self._have_common_column(with_rows):
            self.notes.append(
                "files of datasets that have no name in common are no columns of one table: each "
                "became a group with the name of its file"
            )
            with_groups, with_rows = [o for o in good if o in {*with_groups, *with_rows}], []
        parts: list[MergedTables | MergedGroups] = []
        columns = MergedTables(self.survey, with_rows, addition.held_rows) if with_rows else None
        if columns is not None:
            self.notes += [
                f"{one.path} became a group with its name: its datasets are not equally long"
                for one in with_groups
                if one.style is Style.ONE and one.contents and one.contents.tasks
            ]
            parts.append(columns)
            if more := columns.have_more():
                with_groups = [o for o in good if o in {*with_groups, *more}]
        if with_groups:
            conflict = self.policy.on_conflict
            groups = MergedGroups(
                self.survey,
                with_groups,
                on_conflict=conflict,
                columns=columns,
            )
            parts.append(groups)
        return parts

    def _have_common_column(self, inputs: Sequence[Input]) -> bool:
        """Whether datasets of equal length are columns, and not a dataset a task in each file."""
        common: set[str] | None = None
        seen: set[Family | None] = {None}
        for one in inputs:
            if one.family in seen and one.family is not None:
                continue
            seen.add(one.family)
            with self.survey.opened(one) as layout:
                if layout.tables():
                    return True  # what grows row by row is a column, whatever its name
                names = layout.by_group.get("/", {}).keys()
            common = set(names) if common is None else common & names
        return common is None or bool(common)

    def _merge_into_sweep(self, good: Sequence[Input]) -> FilesReport:
        folder = RunFolder(self.output)
        self._require_replaceable(self._reason_to_keep_for_sweep())
        self.damage.require_none_by_library()
        if self._is_named:  # its rows stay anyway
            good = [one for one in good if _resolved(one.path) != self.output]
        # Records and rows; what an earlier try has recorded is not recorded again.
        recorded = sum(path.stat().st_size for path in folder.record_paths())
        durable.require_space(self.output, 2 * sum(one.size_bytes for one in good) - recorded)
        with (
            holding_folder(folder, tell=self.tell),
            self._without_foreign_output(),
            _folder_apart(folder) as apart,
        ):
            salvaged = self._salvage_refused(good, folder, apart)
            if not self._is_named:
                self._require_results([*good, *salvaged])
            found = record_tasks(
                self.survey,
                [*good, *salvaged],
                folder,
                key=self.key,
                on_conflict=self.policy.on_conflict,
                progress=self.progress,
            )
            taken = [_of_original(one, salvaged) for one in found.taken]
            made = {str(path.absolute()) for path in found.records}
            reports = []

            def note_entry(_: Path, run: AuditEntry) -> None:
                """Make one line of what came from the files and from the run folder's records."""
                self.notes += [*found.notes, *run.notes]
                records = [one for one in run.inputs if one.path not in made and one.tasks]
                conflicts = [_with_originals(one, salvaged) for one in found.conflicts]
                reports.append(self._conclude("sweep", taken, conflicts, records=records))

            merged = merge_run(
                folder, compress=self.compress, progress=self.progress, note_entry=note_entry
            )
            return replace(reports[0], tasks_in_output=merged.tasks_merged)

    def _require_results(self, good: Iterable[Input]) -> None:
        if not any(one.contents and one.contents.tasks != 0 for one in good):
            raise DamagedError(
                f"no file in {_names(self.paths)} has a result that can be merged: "
                "`h5sweep check` says what is in each, and what is wrong"
            )

    def _salvage_refused(
        self, good: Sequence[Input], folder: RunFolder, apart: Path
    ) -> dict[Input, Input]:
        """Record files of what is intact in the refused files, and which file each came from.

        They are inputs like others, so that a result which contradicts another is noticed.
        """
        if not self.refused or self.policy.on_damaged is not OnDamaged.SALVAGE:
            return {}
        from ..salvage.salvage import salvage_files  # which few merges need

        by_name = {one.name: one for one in self.refused if one.state is not State.LIVE}
        report = salvage_files(
            [*_to_compare_with(good), *by_name],
            to=apart,
            key=self.key,
            expected=folder.load_plan(),
            skip=self.policy.skip,
        )
        found = {}
        for file in (file for file in report.files if file.path in by_name):
            one, tasks = by_name[file.path], count_text(file.evidence, "task")
            why = one.reasons[0].message
            if file.evidence:
                self.notes.append(f"{file.path}: {len(file.taken):,} of {tasks} salvaged; {why}")
            if file.records is not None:
                self.refused.remove(one)
                found[self.survey.look_at(Path(file.records))] = one
        return found

    def _require_replaceable(self, reason: str | None) -> None:
        """Raise UsageError if there is a reason to leave the output that is there alone."""
        self._is_foreign = reason is not None
        if reason is not None and not self.force:
            raise UsageError(
                f"{self.output} {reason}; nothing was changed: give another -o, or --force, "
                "which keeps the old file under another name"
            )

    def _reason_to_keep_for_sweep(self) -> str | None:
        if not self.output.exists():
            return None
        there = self.survey.look_at(self.output)
        for finding in there.findings:
            if finding.code == UNREADABLE.code:
                raise StorageError(f"{self.output}: {finding.message}; {finding.next}")
        if there.style is Style.OUTPUT:
            return None
        return "is there and has no rows of tasks, which --key makes"

    @property
    def _is_named(self) -> bool:
        """Whether the output is itself one of the inputs, to which the others are added."""
        return self.output in {_resolved(Path(path)) for path in self.paths}

    def _keep_aside(self) -> Path:
        aside = durable.keep_aside(self.output)
        self.notes.append(f"the old {self.output.name} is kept as {aside}")
        return aside

    @contextmanager
    def _without_foreign_output(self) -> Iterator[None]:
        """Have what is not ours under another name; where it was again if the body fails."""
        if not (self._is_foreign and self.output.exists()):
            yield
            return
        aside = self._keep_aside()
        self.output.unlink()
        try:
            yield
        except BaseException:
            if not self.output.exists():
                move_files.move_file(aside, self.output)
            raise

    def _conclude(
        self,
        way: str,
        taken: Iterable[Taken],
        conflicts: Sequence[Conflict],
        *,
        records: Sequence[AuditInput] = (),
        listing: TakenListing | None = None,
    ) -> FilesReport:
        """Write the audit trail's entry; the output is in its place already."""
        listing = listing or list_taken(taken)
        tasks = listing.tasks - listing.duplicates
        report = FilesReport(
            self.given_output,
            way,
            listing.files,
            tuple(map(RefusedFile.of, self.refused)),
            tasks=tasks,
            duplicates=listing.duplicates,
            size_bytes=self.output.stat().st_size,
            notes=tuple(self.notes),
            duration_s=time.monotonic() - self._begun,
            conflicts=tuple(conflicts),
            tasks_in_output=tasks,
            skip=self.policy.skip,
        )
        entry = entry_of_files(
            self.output,
            (),
            self.refused,
            way=way,
            duration_s=report.duration_s,
            key=self.key,
            policy=self.policy.as_json(),
            conflicts=report.conflicts,
            notes=report.notes,
        )
        append_entry(self.output, replace(entry, inputs=records), inputs=listing.json)
        return report


def _contents_of(inputs: Iterable[Input]) -> list[Contents]:
    """What is inside these files; that which many share, once."""
    found = {id(one.contents): one.contents for one in inputs}
    return [contents for contents in found.values() if contents is not None]


@contextmanager
def _folder_apart(folder: RunFolder) -> Iterator[Path]:
    """A folder for what is salvaged; those that a kill left go first. The lock is held."""
    for left in folder.path.glob(f"{_APART}*"):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=folder.path, prefix=_APART) as apart:
        yield Path(apart)


def _tasks_that_grow(inputs: Sequence[Input], *, has_groups: bool) -> set[Input]:
    """Files whose groups grow and are tasks: a table is in many files, a task mostly in one."""
    if not any(contents.tables for contents in _contents_of(inputs)):
        return set()
    tables = {one: one.contents.tables for one in inputs if one.contents and one.contents.tables}
    files_of = Counter(group for groups in tables.values() for group in groups if group != "/")
    once = sum(count == 1 for count in files_of.values())
    if 2 * once <= len(files_of) or (len(files_of) == 1 and not has_groups):
        return set()
    return {one for one, groups in tables.items() if "/" not in groups}


def _united(parts: Sequence[Iterable[Taken]]) -> Iterable[Taken]:
    """What was taken of each input; of one with columns and groups, by both parts."""
    if len(parts) == 1:
        return parts[0]
    found: dict[Input, Taken] = {}
    for taken in (one for part in parts for one in part):
        known = found.setdefault(taken.source, taken)
        if known is not taken:
            known.tasks += taken.tasks
            known.duplicates += taken.duplicates
            known.datasets += taken.datasets
            known.attributes = tuple(dict.fromkeys(known.attributes + taken.attributes))
            known.left_out = {**known.left_out, **taken.left_out}
            indexes = (name for name in known.skipped if indexed_table(name))
            known.skipped = (*taken.skipped, *indexes)
    return list(found.values())


def _to_compare_with(good: Sequence[Input]) -> list[str]:
    """A few small files that are sound: they show what is in a task of the others."""
    files = [one for one in good if one.style not in OURS and one.size_bytes <= COMPARED_BYTES]
    return [one.name for one in sorted(files, key=lambda one: one.size_bytes)[-MOST_COMPARED:]]


def _of_original(one: Taken, salvaged: Mapping[Input, Input]) -> Taken:
    """What was taken, named after the damaged file that it was salvaged from."""
    original = salvaged.get(one.source)
    return one if original is None else replace(one, source=original, xxh3=xxh3_of(original))


def _with_originals(one: Conflict, salvaged: Mapping[Input, Input]) -> Conflict:
    """A conflict with the damaged files in place of the record files that were made of them."""
    here, places = str(Path.cwd()), [one.taken, *one.left_out]
    for made, original in salvaged.items():
        name = absolute(made.name, here)
        places = [place.replace(name, absolute(original.name, here)) for place in places]
    return one._replace(taken=places[0], left_out=places[1:])


def _way_of(parts: Sequence[MergedTables | MergedGroups]) -> str:
    has_groups = any(isinstance(part, MergedGroups) and part.has_groups for part in parts)
    if isinstance(parts[0], MergedGroups):
        return "groups"
    return "both" if has_groups else "columns"


class _Steps:
    """Progress of several steps, each of which counts its own bytes, as one."""

    def __init__(self, progress: Progress, sizes: Sequence[int]) -> None:
        self._progress, self._sizes = progress, list(sizes)
        self._total, self._before, self._number = sum(sizes), 0, 0

    def next(self) -> Progress:
        before, size = self._before, self._sizes[self._number]
        self._before, self._number = before + size, self._number + 1

        def tell(done: int, total: int) -> None:
            self._progress(before + size * done // max(total, 1), self._total)

        return tell


def _resolved(path: Path) -> Path:
    """Absolute, without links: a rename must not cut a link to another disk."""
    return resolved(path) if path.is_symlink() else path.parent.resolve() / path.name


def _require_outside(output: Path, paths: Sequence[PathLike]) -> None:
    for path in map(Path, paths):
        if path.is_dir() and output.is_relative_to(path.resolve()):
            raise UsageError(
                f"the output {output} would lie in {path}, which is being merged: put it beside"
            )
    if output.is_dir():
        raise UsageError(f"{output} is a folder: name a file, such as {output / 'layouts.h5'}")


def _notes_on_links(links: Sequence[str], paths: Sequence[PathLike]) -> list[str]:
    """Which folders behind links were not looked at, under another name either."""
    seen = [Path(path).resolve() for path in paths]
    return [
        f"{link} is a link to a folder, which was not looked into: name it to have it merged"
        for link in links
        if not any(Path(link).resolve().is_relative_to(path) for path in seen)
    ]


def _names(paths: Sequence[PathLike]) -> str:
    return ", ".join(str(path) for path in paths)
