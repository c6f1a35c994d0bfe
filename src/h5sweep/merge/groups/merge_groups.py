"""Groups of many files → the same groups in one file, with everything in them.

Groups that are alike are moved as bytes (`write`). The HDF5 library copies the others, in a
child process that may die of a bad file. Our own reader, which has looked at every file before,
reads the result back and compares it with its sources.
"""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from ...base.progress_callback import Progress
from ...base.units import count_text
from ...disk.find_files import absolute
from ...errors import ConflictError, DamagedError
from ...hdf5.errors import Damaged
from ...hdf5.file import Hdf5File, open_file
from ...hdf5.source import OpenSource, Source
from ...hdf5.tree import Object, read_whole_tree
from ...hdf5.uniform_groups import AlikeFile, AlikeReader
from ...runfolder.audit import Conflict
from ...worker_files.inputs import Input, OnConflict, Taken, xxh3_of
from ...worker_files.layouts import FileLayout
from ...worker_files.survey import Survey
from ..messages import differing_text
from ..tables.duplicates import RowsLookedAt
from .copier import Copier
from .same_content import (
    TaskGroups,
    refuse_narrow,
    refuse_references,
    task_groups_of,
    unequal_groups,
)
from .write import GroupWriter

if TYPE_CHECKING:
    from ..tables.merge_tables import MergedTables

MOST_NAMED = 3
_SMALL_BYTES = 16 << 20  # of an output that is read at once; else, only what is asked for


class MergedGroups:
    """The groups of all inputs, and from which input each is taken.

    Groups of one path in several inputs are there once if they hold the same. ConflictError, which
    names both places, if they do not, unless `on_conflict` says which to take.
    """

    def __init__(
        self,
        survey: Survey,
        inputs: Sequence[Input],
        *,
        on_conflict: OnConflict = OnConflict.STOP,
        columns: MergedTables | None = None,
    ) -> None:
        """`columns`: what the output will have besides, of these inputs and of others."""
        self.notes: list[str] = []
        self.has_groups = False  # and not only datasets beside columns
        self.looked_at: list[RowsLookedAt] = []  # of groups each is taken once
        self.size_bytes = sum(one.size_bytes for one in inputs)
        self._survey, self._inputs, self._on_conflict = survey, list(inputs), on_conflict
        self._chosen: dict[str, int] = {}  # path → which input
        self._above: dict[str, int] = {}
        # Of groups above others: from which input each attribute is, and in which it differs.
        self._attributes: dict[tuple[str, str], tuple[int, bytes]] = {}
        self._columns = columns
        self._beside = columns.attribute_owners if columns else {}
        self._differing_attributes: dict[tuple[str, str], list[Input]] = {}
        self._left_out: list[dict[str, str]] = [{} for _ in inputs]
        # Of each input: the groups whose attributes it gives.
        self._described: list[dict[str, None]] = [{} for _ in inputs]
        self._duplicates = array("l", [0] * len(inputs))
        self._skipped: dict[int, tuple[str, ...]] = {}
        self._differing: dict[str, list[int]] = {}  # path → the inputs that contradict the chosen
        order = on_conflict.order(inputs)
        is_natural = order == sorted(order)
        for number in order:
            with self._opened(number) as tasks:
                self._take_groups(number, tasks)
                if is_natural:
                    self._merge_above(number, tasks)
        for number in () if is_natural else sorted(order):  # attributes are those of the first
            with self._opened(number) as tasks:
                self._merge_above(number, tasks)
        _require_no_nesting(self._inputs, self._chosen, self._above)
        if self._differing:
            groups = count_text(len(self._differing), "group")
            self.notes.append(f"{groups} had different content: the {on_conflict} is kept")
        for (path, name), others in self._differing_attributes.items():
            owner = self._beside.get((path, name))
            first = owner[0] if owner else self._inputs[self._attributes[path, name][0]]
            self.notes.append(differing_text(name, path, first, others))

    @property
    def conflicts(self) -> list[Conflict]:
        """Groups with different content, and from which input each was taken."""
        here = str(Path.cwd())
        names = [absolute(one.name, here) for one in self._inputs]
        by = self._on_conflict.value
        return [
            Conflict(group, names[self._chosen[group]], [names[other] for other in others], by)
            for group, others in self._differing.items()
        ]

    def _opened(self, number: int) -> AbstractContextManager[TaskGroups]:
        one = self._inputs[number]
        in_columns = self._columns.datasets_of(one) if self._columns else ()
        return opened_groups(self._survey, one, in_columns)

    def _take_groups(self, number: int, tasks: TaskGroups) -> None:
        """Take the groups of one input that none before it has."""
        both: dict[int, list[str]] = {}
        for path in tasks.roots:
            known = self._chosen.setdefault(path, number)
            if known != number:
                both.setdefault(known, []).append(path)
        for known, paths in both.items():
            self._compare(known, number, tasks, paths)
        self.has_groups |= tasks.count_tasks(tasks.roots) > 0
        self._skipped[number] = tuple(tasks.skipped)
        self._left_out[number].update(tasks.marks)

    def _compare(self, known: int, number: int, tasks: TaskGroups, paths: list[str]) -> None:
        """Decide about groups that were taken from another input already."""
        with self._opened(known) as earlier:
            unequal = list(unequal_groups(earlier, tasks, paths))
        self._duplicates[number] += tasks.count_tasks(paths) - tasks.count_tasks(unequal)
        if unequal and self._on_conflict is OnConflict.STOP:
            raise _conflict(self._inputs[known], self._inputs[number], tasks, unequal)
        for path in unequal:
            self._differing.setdefault(path, []).append(number)

    def _merge_above(self, number: int, tasks: TaskGroups) -> None:
        """Take over groups above others with all attributes; of those that differ the first."""
        for path, group in tasks.above().items():
            self._above.setdefault(path, number)
            for name, digest in tasks.attribute_digests(group).items():
                if (path, name) in self._beside:
                    if self._beside[path, name][1] != tasks.attribute_text(group, name):
                        self._leave_out(number, tasks, group, name)
                    continue
                first, known = self._attributes.setdefault((path, name), (number, digest))
                if first == number:
                    self._described[number].setdefault(path)
                elif known != digest:
                    self._leave_out(number, tasks, group, name)

    def _leave_out(self, number: int, tasks: TaskGroups, group: Object, name: str) -> None:
        """Note an attribute that the output has with another value."""
        self._left_out[number][f"{group.path}@{name}"] = tasks.attribute_text(group, name)
        others = self._differing_attributes.setdefault((group.path, name), [])
        others.append(self._inputs[number])

    def write(self, path: Path, progress: Progress = lambda done, total: None) -> list[Taken]:
        """Add the groups to the HDF5 file `path`, which is made if it is not there.

        Nothing is durable yet. Whatever is raised, the file is then to be thrown away.
        """
        writer = None if path.exists() else GroupWriter(path)
        left, taken, done = [], [], 0
        with writer or nullcontext():
            for number, groups in enumerate(_groups_by_input(self._chosen, len(self._inputs))):
                taken.append(self._move(writer, number, groups))
                if groups or self._described[number]:
                    left.append((number, groups))
                done += self._inputs[number].size_bytes
                progress(done, self.size_bytes)
            if writer is not None:
                writer.finish()
        if left:
            self._copy(path, left)
        return taken

    def _move(self, writer: GroupWriter | None, number: int, groups: list[str]) -> Taken:
        """Write what can be moved as bytes; `groups` are the others afterwards."""
        one = self._inputs[number]
        duplicates = self._duplicates[number]
        taken = Taken(one, duplicates=duplicates)
        taken.skipped, taken.left_out = self._skipped[number], self._left_out[number]
        with self._opened(number) as tasks:
            taken.tasks = tasks.count_tasks(groups) + duplicates
            if set(groups) - tasks.roots.keys():
                raise DamagedError(
                    f"{one.path} changed while it was merged: run the same command again"
                )
            if writer is not None:
                groups[:] = tasks.move(writer, groups)
            taken.datasets, taken.attributes = tasks.names()
            taken.xxh3 = (
                xxh3_64_intdigest(tasks.content) if tasks.content is not None else xxh3_of(one)
            )
        return taken

    def _copy(self, path: Path, left: list[tuple[int, list[str]]]) -> None:
        """Let the library copy the groups that are left, and attributes of groups above."""
        with Copier(path) as copier:
            for number, groups in left:
                one = self._inputs[number]
                with self._opened(number) as tasks:
                    pairs = [(tasks.roots[group], group) for group in groups]
                    copier.copy(one, list(self._described[number]), pairs, tasks.skipped)
            copier.close(self._inputs[left[-1][0]].path)

    def verify(self, path: Path, progress: Progress = lambda done, total: None) -> None:
        """Read `path` with our own reader and compare each group with a new reading of its source.

        DamagedError if one does not hold the same, or is not there.
        """
        done = 0
        chosen = _groups_by_input(self._chosen, len(self._inputs))
        with opened_output(path, self._columns.paths if self._columns else ()) as output:
            for number, one in enumerate(self._inputs):
                with self._opened(number) as tasks:
                    try:
                        _verify_groups(output, tasks, chosen[number])
                        self._verify_above(output, tasks, number)
                    except Damaged as error:  # its sources were read before
                        raise _not_read_back(path, error) from error
                done += one.size_bytes
                progress(done, self.size_bytes)

    def _verify_above(self, output: TaskGroups, tasks: TaskGroups, number: int) -> None:
        theirs = output.above()
        for path, group in tasks.above().items():
            if self._above.get(path) == number and path not in theirs:
                raise DamagedError(f"{path} is not in the file that was written")
            found = output.attribute_digests(theirs[path])
            for name, digest in tasks.attribute_digests(group).items():
                is_taken = self._attributes.get((path, name)) == (number, digest)
                if is_taken and found.get(name) != digest:
                    raise DamagedError(
                        f"the attribute {name} of {path}, from {tasks.name}, does not read back as "
                        "it was written: nothing was replaced; leave it out of the file, or the "
                        "file out of the merge"
                    )


def _conflict(
    first: Input, second: Input, tasks: TaskGroups, unequal: Sequence[str]
) -> ConflictError:
    """Two inputs have groups of these paths with different content."""
    name, are_groups = posixpath.basename(unequal[0]), tasks.count_tasks(unequal) > 1
    others = f"{len(unequal) - 1:,} other{' groups' if are_groups else 's'}"
    return ConflictError(
        f"{unequal[0]} is in {first.path} and in {second.path} with different content"
        + (f", and so are {others}" if len(unequal) > 1 else "")
        + "; nothing was merged. Say which to take with --on-conflict first, last or "
        f"newest, or leave it out with --skip {name}; or, if each file is one task, give "
        "the pattern of its name: --key 'w{worker}'"
    )


def _require_no_nesting(
    inputs: Sequence[Input], chosen: Mapping[str, int], above: Mapping[str, int]
) -> None:
    """Refuse a group with data in one file that is a group of groups in another."""
    for path in above.keys() & chosen.keys() - {"/"}:
        raise ConflictError(
            f"{path} holds data in {inputs[chosen[path]].path} and groups of tasks in "
            f"{inputs[above[path]].path}: merge them into different outputs"
        )


def _groups_by_input(chosen: Mapping[str, int], inputs: int) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(inputs)]
    for group, number in chosen.items():
        found[number].append(group)
    return found


def _verify_groups(output: TaskGroups, tasks: TaskGroups, groups: list[str]) -> None:
    missing = [group for group in groups if group not in output.roots]
    wrong = missing or list(unequal_groups(tasks, output, groups))
    if wrong:
        named = ", ".join(wrong[:MOST_NAMED])
        raise DamagedError(
            f"{len(wrong):,} groups of {tasks.name} do not read back as they were written "
            f"({named}): nothing was replaced; run the same command again, perhaps on "
            "another disk"
        )


def is_in_groups(
    survey: Survey, one: Input, output: TaskGroups, in_columns: Collection[str] = ()
) -> bool:
    """Whether all of a file but `in_columns` is in an open output, with equal content in both."""
    with opened_groups(survey, one, in_columns) as tasks:
        if not tasks.roots.keys() <= output.roots.keys():
            return False
        return next(unequal_groups(tasks, output, list(tasks.roots)), None) is None


@contextmanager
def opened_groups(
    survey: Survey, one: Input, in_columns: Collection[str] = ()
) -> Iterator[TaskGroups]:
    """The tasks of an input; ChangedError if it is not what was looked at."""
    with ExitStack() as stack:
        alike = stack.enter_context(survey.opened_alike(one)) if one.is_alike else None
        opened = survey.layout_of(alike.tree) if alike else None
        layout = opened or stack.enter_context(survey.opened(one))
        tasks = task_groups_of(str(one.path), layout, one.path.stem, alike, in_columns)
        refuse_narrow(tasks, layout.tree.file.widths)
        refuse_references(tasks, alike)
        yield tasks


@contextmanager
def opened_output(path: Path, in_columns: Collection[str] = ()) -> Iterator[TaskGroups]:
    """The tasks of the file that was written, of which `in_columns` are columns."""
    try:
        with OpenSource(path) as opened:
            is_small = opened.size <= _SMALL_BYTES
            found = open_file(Source(opened.read(0, opened.size)) if is_small else opened)
            alike = _read_alike_output(found, in_columns)
            layout = FileLayout(alike.tree if alike else read_whole_tree(found))
            yield task_groups_of(str(path), layout, "", alike, in_columns)
    except (Damaged, OSError) as error:
        raise _not_read_back(path, error) from error


def _not_read_back(path: Path, error: Exception) -> DamagedError:
    return DamagedError(f"{path} cannot be read back: {error}")


def _read_alike_output(file: Hdf5File, in_columns: Collection[str]) -> AlikeFile | None:
    """The groups that are alike, if none of them holds columns."""
    try:
        found = AlikeReader().read_over(file.superblock, file.source)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
    tables = {posixpath.dirname(path) for path in in_columns}
    has_tables = found and any(not tables.isdisjoint(groups.paths) for groups in found.sets)
    return None if has_tables else found


__all__ = ["MergedGroups", "is_in_groups"]
