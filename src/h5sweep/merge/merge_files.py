"""Worker files of any program → one HDF5 file, verified before it takes its name.

Without a key the shape is kept: groups stay groups and columns stay columns. With one, every task
becomes a record in the run folder of the output, and the output is made as after any run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..base.key_rule import KeyRule
from ..base.progress_callback import Progress
from ..disk import durable, move_files
from ..disk.find_files import PathLike
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
from ..worker_files.findings import UNREADABLE
from ..worker_files.inputs import Input, Taken
from ..worker_files.layouts import Style, indexed_table
from ..worker_files.read_file import DamagedFileError
from ..worker_files.survey import Survey
from .audit_entry import entry_of_files
from .damaged_inputs import MetDamage
from .merged_mark import mark_as_merged
from .policy import OnDamaged, Policy, notes_on, separate, will_stop
from .report import FilesReport, RefusedFile, TakenFile
from .salvage_refused import OURS, folder_apart, of_original, salvage_into, with_originals

AUDIT_BYTES = 512  # about what the audit trail takes for each input
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
    asked_for = paths, Path(output), policy or Policy(), key, force, compress
    changes = 0
    with MetDamage() as damage:
        merge = _FilesMerge(*asked_for, progress, tell, damage)
        while True:
            try:
                return merge.run()
            except ChangedError:
                changes += 1
                if changes == ATTEMPTS:
                    raise
            except DamagedFileError as error:
                if not damage.take(error):
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
    progress: Progress
    tell: Callable[[str], None]
    damage: MetDamage

    def run(self) -> FilesReport:
        self._begun = time.monotonic()
        self.output = _resolved(self.given_output)
        self.survey = Survey(self.policy.skip, KeyRule.parse(self.key).names)
        self.notes: list[str] = []
        RunFolder(self.output).require_place()
        _require_outside(self.output, self.paths)
        inputs = self.survey.look_at_all(
            self.paths, leave_out=_own_files(self.output, is_input=self._is_named)
        )
        self.notes += _notes_on_links(self.survey.linked_folders, self.paths)
        if not inputs:
            raise UsageError(f"found no file to merge in {_names(self.paths)}")
        self.damage.judge(self.survey, inputs, is_last=will_stop(inputs, self.policy))
        good, self.refused = separate(inputs, self.policy)
        self.notes += notes_on(good)
        wants_salvage = bool(self.refused) and self.policy.on_damaged is OnDamaged.SALVAGE
        if not wants_salvage:
            _require_results(good, self.paths)
        if self.key is not None or any(one.style in OURS for one in good):
            return self._merge_into_sweep(good)
        if wants_salvage:
            raise UsageError(
                "salvaged results become one row per task: say with --key where each task's key is "
                "found"
            )
        return self._keep_shape(good)

    def _keep_shape(self, good: Sequence[Input]) -> FilesReport:
        from .choose_parts import choose_parts
        from .merged_before import plan_addition
        from .tables.duplicates import notes_on_rows

        with holding_output(RunFolder(self.output), tell=self.tell):
            addition = plan_addition(self.survey, self.output, good, is_named=self._is_named)
            self._require_replaceable(addition.reason)
            self.notes += addition.notes
            good = addition.inputs
            parts, way, notes = choose_parts(self.survey, good, addition, self.policy.on_conflict)
            self.notes += notes
            needed = sum(part.size_bytes for part in parts)
            durable.require_space(self.output, needed + len(good) * AUDIT_BYTES)
            steps = _steps(self.progress, [part.size_bytes for part in parts] * 2)
            with durable.replacing(self.output, is_synced=True) as temporary:
                taken = _merged_by_input([part.write(temporary, next(steps)) for part in parts])
                mark_as_merged(temporary, audit_path(self.output).name, addition.holds(taken))
                # What the library says of inputs comes first, or what was written would be blamed.
                with durable.syncing(temporary), self.damage.blamed_first() as require_none:
                    for part in parts:
                        part.verify(temporary, next(steps))
                    require_none()
                if self.output.exists() and self._is_foreign:
                    self._keep_aside()
            looked_at = [one for part in parts for one in part.looked_at]
            for part in parts:
                self.notes += [note for note in part.notes if note not in self.notes]
            self.notes += notes_on_rows(looked_at)
            conflicts = [one for part in parts for one in part.conflicts]
            report = self._conclude(way, taken, conflicts)
            is_told = len(looked_at) == 1 and looked_at[0].are_unique
            return replace(report, once_by=looked_at[0].names) if is_told else report

    def _merge_into_sweep(self, good: Sequence[Input]) -> FilesReport:
        from .by_key.to_records import record_tasks
        from .from_records.build import merge_run

        folder = RunFolder(self.output)
        self._require_replaceable(_reason_to_keep_for_sweep(self.survey, self.output))
        if self._is_named:  # its rows stay anyway
            good = [one for one in good if _resolved(one.path) != self.output]
        # Records and rows; what an earlier try has recorded is not recorded again.
        recorded = sum(path.stat().st_size for path in folder.record_paths())
        durable.require_space(self.output, 2 * sum(one.size_bytes for one in good) - recorded)
        with (
            holding_folder(folder, tell=self.tell),
            _moved_away(self.output, self._keep_aside if self._is_foreign else None),
            folder_apart(folder) as apart,
        ):
            salvaged = self._salvage_refused(good, folder, apart)
            if not self._is_named:
                _require_results([*good, *salvaged], self.paths)
            with self.damage.blamed_first() as blame:
                found = record_tasks(
                    self.survey,
                    [*good, *salvaged],
                    folder,
                    key=self.key,
                    on_conflict=self.policy.on_conflict,
                    progress=self.progress,
                    before_it_counts=blame,
                )
            taken = [of_original(one, salvaged) for one in found.taken]
            made = {str(path.absolute()) for path in found.records}
            reports = []

            def note_entry(_: Path, run: AuditEntry) -> None:
                """Make one line of what came from the files and from the run folder's records."""
                self.notes += [*found.notes, *run.notes]
                records = [one for one in run.inputs if one.path not in made and one.tasks]
                conflicts = [with_originals(one, salvaged) for one in found.conflicts]
                reports.append(self._conclude("sweep", taken, conflicts, records=records))

            merged = merge_run(
                folder, compress=self.compress, progress=self.progress, note_entry=note_entry
            )
            return replace(reports[0], tasks_in_output=merged.tasks_merged)

    def _salvage_refused(
        self, good: Sequence[Input], folder: RunFolder, apart: Path
    ) -> dict[Input, Input]:
        """Inputs made of what is intact in the refused files, each with the file it came from."""
        if not self.refused or self.policy.on_damaged is not OnDamaged.SALVAGE:
            return {}
        plan, skip = folder.load_plan(), self.policy.skip
        found, notes = salvage_into(
            self.refused, good, apart, key=self.key, expected=plan, skip=skip
        )
        self.notes += notes
        self.refused = [one for one in self.refused if one not in found.values()]
        return {self.survey.look_at(Path(path)): one for path, one in found.items()}

    def _require_replaceable(self, reason: str | None) -> None:
        """Raise UsageError if there is a reason to leave the output that is there alone."""
        self._is_foreign = reason is not None
        if reason is not None and not self.force:
            raise UsageError(
                f"{self.output} {reason}; nothing was changed: choose another output with -o, or "
                "give --force, which keeps the old file under another name"
            )

    @property
    def _is_named(self) -> bool:
        """Whether the output is itself one of the inputs, to which the others are added."""
        return self.output in {_resolved(Path(path)) for path in self.paths}

    def _keep_aside(self) -> Path:
        aside = durable.keep_aside(self.output)
        self.notes.append(f"the old {self.output.name} is kept as {aside}")
        return aside

    def _conclude(
        self,
        way: str,
        taken: Sequence[Taken],
        conflicts: Sequence[Conflict],
        *,
        records: Sequence[AuditInput] = (),
    ) -> FilesReport:
        """Write the audit trail's entry; the output is in its place already."""
        duplicates = sum(one.duplicates for one in taken)
        tasks = sum(one.tasks for one in taken) - duplicates
        report = FilesReport(
            self.given_output,
            way,
            tuple(map(TakenFile.of, taken)),
            tuple(map(RefusedFile.of, self.refused)),
            tasks=tasks,
            duplicates=duplicates,
            size_bytes=self.output.stat().st_size,
            notes=tuple(self.notes),
            duration_s=time.monotonic() - self._begun,
            conflicts=tuple(conflicts),
            tasks_in_output=tasks,
            skip=self.policy.skip,
        )
        entry = entry_of_files(
            self.output,
            taken,
            self.refused,
            records=records,
            way=way,
            duration_s=report.duration_s,
            key=self.key,
            policy=self.policy.as_json(),
            conflicts=report.conflicts,
            notes=report.notes,
        )
        append_entry(self.output, entry)
        return report


@contextmanager
def _moved_away(output: Path, keep_aside: Callable[[], Path] | None) -> Iterator[None]:
    """Have what is not ours under another name; where it was again if the body fails."""
    if keep_aside is None or not output.exists():
        yield
        return
    aside = keep_aside()
    output.unlink()
    try:
        yield
    except BaseException:
        if not output.exists():
            move_files.move_file(aside, output)
        raise


def _merged_by_input(parts: Sequence[list[Taken]]) -> list[Taken]:
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


def _steps(progress: Progress, sizes: Sequence[int]) -> Iterator[Progress]:
    """Progress of several steps, each of which counts its own bytes, as one."""

    def tell(before: int, size: int, done: int, total: int) -> None:
        progress(before + size * done // max(total, 1), sum(sizes))

    return (partial(tell, sum(sizes[:n]), size) for n, size in enumerate(sizes))


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


def _own_files(output: Path, *, is_input: bool) -> list[Path]:
    """What belongs to the output itself, and is not an input to it."""
    return [*([] if is_input else [output]), *RunFolder(output).record_paths()]


def _require_results(good: Iterable[Input], paths: Sequence[PathLike]) -> None:
    if not any(one.contents and one.contents.tasks != 0 for one in good):
        raise DamagedError(
            f"no file in {_names(paths)} has a result that can be merged: "
            "`h5sweep check` says what is in each, and what is wrong"
        )


def _reason_to_keep_for_sweep(survey: Survey, output: Path) -> str | None:
    """Why an output that is there must not become rows of tasks; None if it may."""
    if not output.exists():
        return None
    there = survey.look_at(output)
    for finding in there.findings:
        if finding.code == UNREADABLE.code:
            raise StorageError(f"{output}: {finding.message}; {finding.next}")
    if there.style is Style.OUTPUT:
        return None
    return "exists and does not have one row per task, as --key writes it"


def _notes_on_links(links: Sequence[str], paths: Sequence[PathLike]) -> list[str]:
    """Which folders behind links were not looked at, under another name either."""
    seen = [Path(path).resolve() for path in paths]
    return [
        f"{link} is a link to a folder and was not followed: name it to merge it"
        for link in links
        if not any(Path(link).resolve().is_relative_to(path) for path in seen)
    ]


def _names(paths: Sequence[PathLike]) -> str:
    return ", ".join(str(path) for path in paths)
