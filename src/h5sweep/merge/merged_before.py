"""What an output that kept its shape already holds, and what a merge into it must read.

A file is known by what it is, wherever it lies now: by its size and checksum, or, if it has grown
since, by what it begins with, which is compared with what the output holds of it, value by value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.units import count_text
from ..disk.find_files import absolute
from ..errors import StorageError, UnmergeableError
from ..runfolder.audit import AuditEntry, AuditInput, read_entries
from ..worker_files import findings
from ..worker_files.inputs import Input, Taken, xxh3_of
from ..worker_files.layouts import Style
from ..worker_files.survey import Survey
from .merged_mark import FileId, digest_of, inputs_of

if TYPE_CHECKING:
    from .tables.schema import HeldRows


@dataclass(frozen=True)
class Addition:
    """What to read so that the output holds what it has and what is given, each once."""

    inputs: list[Input]  # the output itself first, if it is one of them
    reason: str | None = None  # why the output that is there must not be replaced
    notes: list[str] = field(default_factory=list)
    held: list[FileId] = field(default_factory=list)  # the files that the output stands for
    held_rows: HeldRows = field(default_factory=dict)  # of inputs that the output has in part
    tables: tuple[Input, ...] = ()  # the output itself, if it may have rows beside groups

    def holds(self, taken: Iterable[Taken]) -> Iterator[FileId]:
        """The files that the new output holds, now that these were taken."""
        yield from self.held
        own = self.inputs[0] if self.held else None
        for one in taken:
            if one.source is not own:
                yield FileId(one.source.size_bytes, one.xxh3, one.source.file_name)


def plan_addition(
    survey: Survey, output: Path, good: Sequence[Input], *, is_named: bool
) -> Addition:
    """Decide what a merge of `good` into `output` has to read; nothing on disk changes.

    `is_named`: whether the output may be one of them, to which the others are added.
    """
    if not output.exists():
        return Addition(list(good))
    own = next((one for one in good if one.path.resolve() == output), None) if is_named else None
    old = own or survey.look_at(output)
    for finding in old.findings:
        if finding.code == findings.UNREADABLE.code:
            raise StorageError(
                f"{output}: {finding.message}. Fix that, then run the same command again"
            )
    if old.style is Style.OUTPUT:
        return Addition(list(good), "is the output of a sweep, which --key would add to")
    if (made_of := _made_of(survey, old)) is None:
        return Addition(list(good), "exists and was not merged by h5sweep")
    old.name = str(output)  # as the audit trail has it
    given = [one for one in good if one is not own]
    held = held_files(read_entries(output))
    if made_of != digest_of(map(_id_of_held, held)):
        are_groups = _has_only_groups(survey, old)
        return _plan_without_trail(
            made_of, held, old, given, is_named=own is not None, are_groups=are_groups
        )
    found = _HeldFiles(survey, old, held, given)
    if not found.gone:
        return Addition(given)
    if own is None:
        return Addition(given, found.reason())
    left = [one for one in given if one not in found.same]
    ids = [_id_of_held(one) for one in held]
    tables = (own,) if any(file.rows for file in held) else ()
    return Addition([own, *left], None, list(found.notes()), ids, found.held_rows, tables)


def held_files(entries: Iterable[AuditEntry]) -> list[AuditInput]:
    """The files whose results an output holds, by its audit trail.

    A merge that took the output itself has added to it, and left its rows where they were.
    """
    held: list[AuditInput] = []
    for entry in entries:
        others = [one for one in entry.inputs if one.path != entry.output]
        held = [*held, *others] if len(others) < len(entry.inputs) else others
    return held


def _plan_without_trail(
    made_of: str,
    held: Sequence[AuditInput],
    old: Input,
    given: list[Input],
    *,
    is_named: bool,
    are_groups: bool,
) -> Addition:
    """What to do if the last entry is not about the output: a kill came first, or it is lost.

    `are_groups`: whether that is all it has. Each is taken once anyway, and rows are not.
    """
    before, ids = [_id_of_held(one) for one in held], [_id_of_input(one) for one in given]
    if made_of == digest_of(ids):
        return Addition(given)
    if not is_named:
        why = "is not in its audit trail, so its content is unknown"
        return Addition(given, f"{why}: {_how_to_add(old)}" if are_groups else why)
    if made_of == digest_of([*before, *ids]):
        return Addition([old], None, [_already_text(len(given), old)], [*before, *ids])
    note = (
        f"the audit trail does not say what {old.file_name} holds: rows that are also in the other "
        "files are there twice; --key takes each task once"
    )
    notes = [] if are_groups else [note]
    # With the digest among them, no later merge takes for known what is in it.
    held_ids = [*before, FileId(0, 0, made_of)]
    return Addition([old, *given], None, notes, held_ids, tables=(old,))


class _HeldFiles:
    """Which of the files that an output holds are among those that are given now."""

    def __init__(
        self, survey: Survey, old: Input, held: Sequence[AuditInput], given: Sequence[Input]
    ) -> None:
        self._survey, self._old, self._given = survey, old, given
        here = str(Path.cwd())
        self._paths = {one: absolute(one.name, here) for one in given}
        self._by_path = {path: one for one, path in self._paths.items()}
        self._by_name: dict[str, list[Input]] = {}
        for one in given:
            self._by_name.setdefault(one.file_name, []).append(one)
        self.same: set[Input] = set()  # what the output has of these is all that is in them
        self.held_rows: dict[Input, Mapping[str, Sequence[int]]] = {}  # of those that grew
        self._grown: dict[Input, str] = {}  # as what the audit trail knows them
        self._replaced: dict[Input, None] = {}  # another file lay there when it was merged
        self.gone = self._without_grown(list(self._without_same(held)))

    def _without_same(self, held: Sequence[AuditInput]) -> Iterator[AuditInput]:
        """Those that are not among the given, byte by byte."""
        by_place = {(self._paths[one], one.size_bytes, one.modified_ns): one for one in self._given}
        by_size: dict[int, list[Input]] = {}
        by_content: dict[tuple[int, int], list[Input]] = {}
        for one in self._given:
            by_size.setdefault(one.size_bytes, []).append(one)
        for file in held:
            equal = [by_place.get((file.path, file.size_bytes, file.modified_ns))]
            if equal == [None]:
                for one in by_size.pop(file.size_bytes, ()):  # only these are read for it
                    by_content.setdefault((one.size_bytes, xxh3_of(one)), []).append(one)
                size, xxh3, name = _id_of_held(file)
                equal = [
                    one
                    for one in by_content.get((size, xxh3), ())
                    if one.file_name == name or not _is_named_by_file(file)
                ]
            self.same.update(one for one in equal if one is not None)
            if not equal:
                yield file

    def _without_grown(self, left: Sequence[AuditInput]) -> list[AuditInput]:
        """Those of which not all that the output has of them is in the given files."""
        gone = [file for file in left if file.rows and not self._has_grown(file)]
        if left and self._lack_groups():
            gone += [file for file in left if not file.rows]
            return gone or list(left)
        return gone

    def _has_grown(self, file: AuditInput) -> bool:
        """Whether a given file begins with what the output has of another."""
        for one in self._candidates(file):
            if self._grown.get(one, file.path) == file.path and self._begins_with(one, file):
                self._grown[one] = file.path
                if one not in self.same:
                    self.held_rows[one] = file.rows  # those of the latest version that was merged
                return True
            self._replaced.setdefault(one)
        return False

    def _candidates(self, file: AuditInput) -> list[Input]:
        """The given file that lies where it lay, or those of its name: it may have been moved."""
        there = self._by_path.get(file.path)
        return [there] if there else self._by_name.get(file.path.rpartition("/")[2], [])

    def _begins_with(self, one: Input, file: AuditInput) -> bool:
        from .tables.prove_rows import begins_with

        with self._survey.opened(one) as layout:
            columns = {path for path in file.datasets if path.startswith("/")}  # not in groups
            if not columns <= {path for path, _ in layout.tree.datasets}:
                return False
        return begins_with(self._survey, one, self._old.path, file.rows)

    def _lack_groups(self) -> bool:
        """Whether the output has something beside rows that no given file has as it is there."""
        from .groups.open_groups import opened_groups, opened_output
        from .groups.same_content import unequal_groups
        from .tables.schema import MergedSchema

        with_rows = [one for one in self._given if one.style is Style.ROWS]
        columns = MergedSchema(self._survey, with_rows).columns if with_rows else []
        in_columns = {column.path for column in columns}
        with opened_output(self._old.path, in_columns) as output:
            left = set(output.roots)
            for one in self._given:
                with (
                    suppress(UnmergeableError),
                    opened_groups(self._survey, one, in_columns) as tasks,
                ):
                    both = [path for path in tasks.roots if path in left]
                    left.difference_update({*both} - {*unequal_groups(output, tasks, both)})
        return bool(left)

    def reason(self) -> str:
        """Why the output must not be replaced by the given files alone."""
        first, *others = sorted(file.path for file in self.gone)
        more = f" and {count_text(len(others), 'other file')}" if others else ""
        if self._replaced:
            return (
                f"holds rows that are no longer in {first}{more}: name "
                f"{self._old.file_name} as an input too, to keep them beside the new ones"
            )
        return f"holds results of {first}{more} that are not in these files: " + _how_to_add(
            self._old
        )

    def notes(self) -> Iterator[str]:
        """What is worth knowing if the output is one of the inputs."""
        if self.same:
            yield _already_text(len(self.same), self._old)
        if self.held_rows:
            count = len(self.held_rows)
            have, it, its = (
                ("has", "it was", "its") if count == 1 else ("have", "they were", "their")
            )
            files = count_text(count, "file")
            yield f"{files} {have} grown since {it} merged: only {its} new rows are added"
        for one in self._replaced:
            if one not in self._grown and one not in self.same:
                yield (
                    f"{one.path} is neither the file that was merged under that name nor a longer "
                    "version of it: all its rows are added"
                )


def _made_of(survey: Survey, old: Input) -> str | None:
    if not old.is_readable or old.style is Style.RECORDS:
        return None
    with survey.opened(old) as layout:
        return inputs_of(layout.tree)


def _has_only_groups(survey: Survey, old: Input) -> bool:
    with survey.opened(old) as layout:
        return old.style is Style.GROUPS and "/" not in layout.by_group


def _how_to_add(old: Input) -> str:
    return f"name {old.file_name} as an input too, to keep its results"


def _already_text(count: int, old: Input) -> str:
    their = "its" if count == 1 else "their"
    return f"{count_text(count, 'file')} left out: {old.file_name} already has {their} results"


def _is_named_by_file(file: AuditInput) -> bool:
    """Whether what was merged has the name of its file, as the groups of one-task files do."""
    return not file.rows and file.style != Style.GROUPS


def _id_of_held(file: AuditInput) -> FileId:
    name = file.path.rpartition("/")[2]
    return FileId(file.size_bytes, int(file.xxh3 or "0", 16), name)


def _id_of_input(one: Input) -> FileId:
    return FileId(one.size_bytes, xxh3_of(one), one.file_name)
