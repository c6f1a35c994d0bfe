"""Groups of many files → the same groups in one file, with everything in them.

Groups that are alike are moved as bytes (`write`). The HDF5 library copies the others, in a
child process that may die of a bad file. Our own reader, which has looked at every file before,
reads the result back and compares it with its sources.
"""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.progress_callback import Progress
from ...base.units import count_text
from ...disk.find_files import absolute
from ...errors import ConflictError, DamagedError
from ...hdf5.errors import Damaged
from ...runfolder.audit import Conflict
from ...worker_files.inputs import Input, OnConflict, Taken, xxh3_of
from ...worker_files.survey import Survey
from ..tables.duplicates import RowsLookedAt
from .copier import Copier
from .merged_above import MergedAbove
from .open_groups import InputGroups, not_read_back, opened_groups, opened_output
from .same_content import TaskGroups, unequal_groups
from .write import GroupWriter

if TYPE_CHECKING:
    from ..tables.merge_tables import MergedTables

MOST_NAMED = 3


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
        self._files = InputGroups(survey, inputs, columns)
        self._chosen: dict[str, int] = {}  # path → which input
        self._columns = columns
        self._above = MergedAbove(inputs, columns.attribute_owners if columns else {})
        self._duplicates = array("l", [0] * len(inputs))
        self._skipped: dict[int, tuple[str, ...]] = {}
        self._differing: dict[str, list[int]] = {}  # path → the inputs that contradict the chosen
        order = on_conflict.order(inputs)
        if order == sorted(order):
            self._files.each(order, self._take_groups, self._above.take)
        else:  # attributes are those of the first
            self._files.each(order, self._take_groups)
            self._files.each(sorted(order), self._above.take)
        _require_no_nesting(self._inputs, self._chosen, self._above.groups)
        if self._differing:
            groups = count_text(len(self._differing), "group")
            self.notes.append(f"{groups} had different content: the {on_conflict} is kept")
        self.notes += self._above.notes()

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

    def _take_groups(self, numbers: Sequence[int], tasks: TaskGroups) -> None:
        """Take the groups that none of the inputs before has."""
        if len(numbers) > 1 and not self._chosen.keys().isdisjoint(tasks.roots):
            raise ConflictError("groups of one path are compared by themselves")
        for number, part in zip(numbers, tasks.parts(), strict=True):
            both: dict[int, list[str]] = {}
            for path in part.roots:
                known = self._chosen.setdefault(path, number)
                if known != number:
                    both.setdefault(known, []).append(path)
            for known, paths in both.items():
                self._compare(known, number, tasks, paths)
            self._skipped[number] = tuple(tasks.skipped)
            self._above.left_out[number].update(tasks.marks)
        self.has_groups |= tasks.count_tasks(tasks.roots) > 0

    def _compare(self, known: int, number: int, tasks: TaskGroups, paths: list[str]) -> None:
        """Decide about groups that were taken from another input already."""
        with self._files.opened(known) as earlier:
            unequal = list(unequal_groups(earlier, tasks, paths))
        self._duplicates[number] += tasks.count_tasks(paths) - tasks.count_tasks(unequal)
        if unequal and self._on_conflict is OnConflict.STOP:
            raise _conflict(self._inputs[known], self._inputs[number], tasks, unequal)
        for path in unequal:
            self._differing.setdefault(path, []).append(number)

    def write(self, path: Path, progress: Progress = lambda done, total: None) -> list[Taken]:
        """Add the groups to the HDF5 file `path`, which is made if it is not there.

        Nothing is durable yet. Whatever is raised, the file is then to be thrown away.
        """
        writer = None if path.exists() else GroupWriter(path)
        taken: list[Taken] = []
        left = _groups_by_input(self._chosen, len(self._inputs))
        tell = self._telling(progress)

        def move(numbers: Sequence[int], tasks: TaskGroups) -> None:
            taken.extend(self._move(writer, numbers, tasks, left))
            tell(numbers)

        with writer or nullcontext():
            self._files.each(range(len(self._inputs)), move)
            if writer is not None:
                writer.finish()
        self._copy(path, left)
        return taken

    def _telling(self, progress: Progress) -> Callable[[Sequence[int]], None]:
        """What says how far a step has come, when it is done with some inputs."""
        done = 0

        def tell(numbers: Sequence[int]) -> None:
            nonlocal done
            done += sum(self._inputs[number].size_bytes for number in numbers)
            progress(done, self.size_bytes)

        return tell

    def _move(
        self,
        writer: GroupWriter | None,
        numbers: Sequence[int],
        tasks: TaskGroups,
        left: list[list[str]],
    ) -> list[Taken]:
        """Write what can be moved as bytes; the others are `left` afterwards."""
        groups = [group for number in numbers for group in left[number]]
        if not tasks.roots.keys() >= {*groups}:
            raise DamagedError(
                f"{tasks.name} changed while it was merged: run the same command again"
            )
        others = {*(tasks.move(writer, groups) if writer is not None else groups)}
        taken = []
        for number, part in zip(numbers, tasks.parts(), strict=True):
            one = Taken(self._inputs[number], duplicates=self._duplicates[number])
            one.tasks = tasks.count_tasks(left[number]) + one.duplicates
            one.skipped, one.left_out = self._skipped[number], self._above.left_out[number]
            one.datasets, one.attributes = tasks.names(part.sets)
            one.xxh3 = xxh3_of(one.source)
            taken.append(one)
        for number in numbers:
            left[number] = [group for group in left[number] if group in others]
        return taken

    def _copy(self, path: Path, left: list[list[str]]) -> None:
        """Let the library copy the groups that are left, and attributes of groups above."""
        numbers = [
            number for number, groups in enumerate(left) if groups or self._above.described[number]
        ]
        if not numbers:
            return
        with Copier(path) as copier:
            for number in numbers:
                with self._files.opened(number) as tasks:
                    pairs = [(tasks.roots[group], group) for group in left[number]]
                    above = list(self._above.described[number])
                    copier.copy(self._inputs[number], above, pairs, tasks.skipped)
            copier.close(self._inputs[numbers[-1]].path)

    def verify(self, path: Path, progress: Progress = lambda done, total: None) -> None:
        """Read `path` with our own reader and compare each group with a new reading of its source.

        DamagedError if one does not hold the same, or is not there.
        """
        chosen = _groups_by_input(self._chosen, len(self._inputs))
        tell = self._telling(progress)

        def verify(numbers: Sequence[int], tasks: TaskGroups) -> None:
            groups = [group for number in numbers for group in chosen[number]]
            try:
                _verify_groups(output, tasks, groups)
                for number, part in zip(numbers, tasks.parts(), strict=True):
                    self._above.verify(output, part, number)
            except Damaged as error:  # its sources were read before
                raise not_read_back(path, error) from error
            tell(numbers)

        with opened_output(path, self._columns.paths if self._columns else ()) as output:
            self._files.each(range(len(self._inputs)), verify)


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


__all__ = ["MergedGroups", "is_in_groups"]
