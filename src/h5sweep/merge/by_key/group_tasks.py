"""Which tasks another program's file holds: their keys, and their values as our results.

A task is a group whose path or attributes say its key, with all that lies below it; or a row of
columns or of compounds; or the whole file. Its datasets become result values under their names,
those of groups below it as `group_dataset`, fields of compounds as `dataset_field`, or as `field`
if a row of them is the task. So do the attributes of its group, unless they are the key or a
dataset has that name.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...base.key_rule import KeyRow, KeyRule
from ...base.values import VALUE
from ...errors import UnmergeableError, UsageError
from ...hdf5.tree import Object, ObjectKind
from ...worker_files.inputs import Input
from ...worker_files.keyed_tasks import nearest
from ...worker_files.layouts import FileLayout
from .foreign_file import ForeignFile
from .row_tasks import row_tasks
from .tasks_of_file import Result, TasksOfFile, leave_out_groups
from .unmatched import no_key_text, require_all_matched, require_none_beside


def find_tasks(
    layout: FileLayout, one: Input, rule: KeyRule, *, skip_unmatched: bool
) -> TasksOfFile:
    """The tasks of a file; UsageError, with what there is instead, if it has none by this key."""
    file = ForeignFile(layout, one, rule)
    if not file.has_results():  # its worker was killed before it had one
        return GroupTasks(file, {})
    if not file.where:
        raise UsageError(no_key_text(file))
    if file.where.tables:
        return row_tasks(file, file.table())
    objects = file.objects()
    require_all_matched(file, objects, skip=skip_unmatched)
    leave_out_groups(file.about, [group.path for group in file.where.begun])
    return GroupTasks(file, objects, skip_unmatched=skip_unmatched)


class GroupTasks:
    """A task for each of some groups, of which the root is the whole file.

    Or for each of some datasets, which have no other name for their values than `value`.
    """

    def __init__(
        self, file: ForeignFile, groups: dict[str, KeyRow], *, skip_unmatched: bool = False
    ) -> None:
        self._file, self.about = file, file.about
        self.finished_at = file.finished_at
        self._datasets: dict[str, dict[str, Object]] = {path: {} for path in groups}
        beside = []
        for path, holder in file.datasets():
            group = nearest(path, self._datasets, itself=True)
            if group is None:
                beside.append(path)
            else:
                self._datasets[group][path.removeprefix(group).strip("/") or VALUE] = holder
        require_none_beside(file, beside, skip=skip_unmatched)
        for path, why in file.links_to_nothing().items():
            if nearest(path, self._datasets, itself=True) is not None:
                raise UnmergeableError(f"{file.one.path}: {path} {why}: put the data there")
        self._note_dropped(file)
        self._paths = list(groups)
        self.keys = list(groups.values())
        self.tasks_before = 0  # by which the numbers of their results are larger than their places

    @property
    def has_datasets(self) -> bool:
        return any(self._datasets.values())

    def leave_out_empty(self) -> None:
        """Leave out groups without a dataset: their writer was killed before it had a result."""
        kept = [(p, k) for p, k in zip(self._paths, self.keys, strict=True) if self._datasets[p]]
        empty = [path for path in self._paths if not self._datasets[path]]
        self._paths, self.keys = [path for path, _ in kept], [key for _, key in kept]
        leave_out_groups(self.about, empty)

    def _note_dropped(self, file: ForeignFile) -> None:
        for found in file.tree.objects:
            is_task = found.path in self._datasets
            if found.kind is ObjectKind.GROUP and found.attributes and not is_task:
                task = nearest(found.path, self._datasets)
                file.leave_out_attributes(found, found.path if task is None else "groups in a task")

    def place(self, number: int) -> str:
        return self._paths[number]

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        numbers = range(len(self._paths))
        for number in reversed(numbers) if backwards else numbers:
            path = self._paths[number]
            task = self.tasks_before + number
            found = self._file.result(task, self._datasets[path], self._file.by_path[path])
            if not found:
                raise self._file.no_values(path)
            yield Result(task, *self._file.encoded(found, path), self._file.finished_at)
