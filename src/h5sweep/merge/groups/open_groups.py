"""Open inputs as task groups: each by itself, or small ones many at once."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DamagedError, SweepError
from ...hdf5.cursor import Widths
from ...hdf5.errors import Damaged
from ...hdf5.file import Hdf5File, open_file
from ...hdf5.read_uniform import LEAST_GROUPS, AlikeReader
from ...hdf5.source import OpenSource, Source
from ...hdf5.tree import read_whole_tree
from ...hdf5.uniform_groups import AlikeFile
from ...worker_files.inputs import Input
from ...worker_files.layouts import FileLayout
from ...worker_files.read_file import SMALL_BYTES
from ...worker_files.same_structure import Family
from ...worker_files.survey import Survey
from .same_content import (
    JoinedTasks,
    TaskGroups,
    is_one_task,
    refuse_narrow,
    refuse_references,
    task_groups_of,
)

if TYPE_CHECKING:
    from ..tables.merge_tables import MergedTables

_UNIT_BYTES = 8 << 20  # of small inputs that are opened together
_MOST_KEPT = 8  # of these in memory at a time
_SMALL_BYTES = 16 << 20  # of an output that is read at once; else, only what is asked for
Step = Callable[[Sequence[int], TaskGroups], None]  # with some inputs, by their numbers


class InputGroups:
    """The task groups of the inputs of a merge, without what goes into `columns`."""

    def __init__(
        self, survey: Survey, inputs: Sequence[Input], columns: MergedTables | None
    ) -> None:
        self._survey, self._inputs, self._columns = survey, inputs, columns
        self._kept: dict[tuple[int, ...], JoinedTasks] = {}  # by their inputs
        self._is_one: dict[Family, bool] = {}  # whether each of its files is one task as a whole

    def opened(self, number: int) -> AbstractContextManager[TaskGroups]:
        """The task groups of one input."""
        one = self._inputs[number]
        return opened_groups(self._survey, one, self._in_columns(one))

    def _in_columns(self, one: Input) -> Collection[str]:
        return self._columns.datasets_of(one) if self._columns else ()

    def each(self, numbers: Sequence[int], *steps: Step) -> None:
        """Take these steps with every input, small ones many at once.

        Whatever is unusual about one of these, each is opened by itself, which also says what.
        """
        for some in self._units(numbers):
            if len(some) > 1 and self._took_together(some, steps):
                continue
            for number in some:
                with self.opened(number) as tasks:
                    for take in steps:
                        take([number], tasks)

    def _units(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Inputs that follow one another and may be opened together."""
        unit, left, kind = list[int](), _UNIT_BYTES, ""
        for number in numbers:
            one = self._inputs[number]
            own = self._kind(one)
            if unit and (own != kind or not own or one.size_bytes > left):
                yield unit
                unit, left = [], _UNIT_BYTES
            unit.append(number)
            left, kind = left - one.size_bytes, own
        if unit:
            yield unit

    def _kind(self, one: Input) -> str:
        """What a small file is that can be opened together with others of its kind."""
        if one.findings or one.size_bytes > SMALL_BYTES or self._in_columns(one):
            return ""
        if one.is_alike:
            return "groups" if one.contents and (one.contents.tasks or 0) < LEAST_GROUPS else ""
        if one.family is None or one.family.contents is None:
            return ""
        if one.family not in self._is_one:
            layout = self._survey.layout_of(one.family.tree)
            block = layout.tree.file.superblock
            is_usual = not block.start and block.extension is None and block.widths == Widths()
            is_one = is_usual and is_one_task(layout) and not layout.skipped.paths
            self._is_one[one.family] = is_one
        return "tasks" if self._is_one[one.family] else ""

    def _took_together(self, numbers: Sequence[int], steps: Sequence[Step]) -> bool:
        """Take steps with small inputs at once; False if one of them is to be opened by itself."""
        try:
            kept = self._kept.pop(tuple(numbers), None)
            if (tasks := kept or self._together(numbers)) is None:
                return False
            for take in steps:
                take(numbers, tasks)
        except (Damaged, SweepError):
            return False
        # What was read to choose groups is written from memory, and then read again.
        if kept is None and len(self._kept) < _MOST_KEPT:
            self._kept[tuple(numbers)] = tasks
        return True

    def _together(self, numbers: Sequence[int]) -> JoinedTasks | None:
        """The task groups of small inputs; None if they cannot be opened together."""
        files = self._survey.read_together([self._inputs[number] for number in numbers])
        if files is None:
            return None
        alike = files.joined()
        tasks = JoinedTasks(files, FileLayout(alike.tree))
        refuse_references(tasks, alike)
        return tasks if tasks.has_each_once else None


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
        raise not_read_back(path, error) from error


def not_read_back(path: Path, error: Exception) -> DamagedError:
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
