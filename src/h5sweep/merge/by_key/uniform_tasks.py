"""Tasks in uniform groups, thousands of which are read at once.

They are the same tasks, with the same values, as `tasks` would find one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from ...base.key_rule import KeyRow, KeyRule
from ...base.values import Array, RaggedRows, naming_order
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.messages import Attribute
from ...hdf5.tree import Dataset, Object
from ...hdf5.uniform_groups import AlikeFile, AlikeGroups
from ...worker_files.decode_elements import points_simply
from ...worker_files.inputs import Input
from ...worker_files.keyed_tasks import is_single, nearest
from ...worker_files.layouts import FileLayout
from .column_attributes import Described
from .foreign_file import ForeignFile
from .group_tasks import GroupTasks
from .tasks_of_file import Result, TasksOfFile, leave_out_groups
from .unmatched import require_all_matched

TASKS_AT_ONCE = 4096
BLOCK_BYTES = 32 << 20


def find_alike_tasks(
    layout: FileLayout, alike: AlikeFile, one: Input, rule: KeyRule, *, skip_unmatched: bool
) -> TasksOfFile | None:
    """The tasks of a file of groups that are alike; None if these groups are not the tasks.

    `layout` is of the objects that are in no such group.
    """
    file = ForeignFile(layout, one, rule)
    is_lone = sum(map(len, alike.sets)) == 1 and rule.pattern is None  # it may be a table
    if file.where.tables or is_lone:
        return None
    rest = file.objects() if file.where.groups else {}
    sets = [_SetOfTasks(file, groups) for groups in alike.sets]
    keys: list[KeyRow] = []
    for found in sets:
        if (own := found.keys()) is None:
            return None
        keys += own
    if rest and any(nearest(p, rest) is not None for s in alike.sets for p in s.paths):
        return None
    require_all_matched(file, rest, skip=skip_unmatched)
    leave_out_groups(file.about, [group.path for group in file.where.begun])
    others = GroupTasks(file, rest, skip_unmatched=skip_unmatched)
    if others.has_datasets or any(found.has_datasets for found in sets):
        others.leave_out_empty()
        empty = [path for s in sets if not s.has_datasets for path in s.groups.paths]
        if empty:
            leave_out_groups(file.about, empty)
            sets = [found for found in sets if found.has_datasets]
            keys = [key for found in sets for key in found.keys() or ()]
    file.about.content = alike.content
    return _AlikeTasks(others, sets, keys)


class _SetOfTasks:
    """Groups that are alike, each a task."""

    def __init__(self, file: ForeignFile, groups: AlikeGroups) -> None:
        self._file, self.groups, self.example = file, groups, groups.example

    @property
    def has_datasets(self) -> bool:
        return any(found.dataset is not None for found in self.example.objects)

    def keys(self) -> list[KeyRow] | None:
        """The key of each group; None if they are not where the first one's is."""
        rule, paths = self._file.rule, self.groups.paths
        if rule.pattern is not None:
            keys = (self._file.key_in_name(path, None) for path in paths)
            found = [key for key in keys if key is not None]
            return found if len(found) == len(self.groups) else None
        lists = []
        for name in rule.names:
            values = self._single_values(name)
            if values is None:
                return None
            lists.append(values.tolist())
        rows = zip(*lists, strict=True)
        return [self._file.checked_row(row, at) for row, at in zip(rows, paths, strict=True)]

    def _single_values(self, name: str) -> Array | None:
        """One value of each group, out of its attributes or of its datasets."""
        attribute = self.example.group.attributes.get(name)
        dataset = next((o.dataset for o in self.example.objects if o.path == f"/{name}"), None)
        every = np.arange(len(self.groups))
        try:
            if attribute is not None and attribute.space.count == 1:
                values = self._attribute(attribute, every)
            elif attribute is None and dataset is not None and is_single(dataset):
                values = self._dataset(f"/{name}", dataset, every)
            else:
                return None
        except (Damaged, Unsupported):
            return None
        found = values.get("")
        return found.reshape(-1) if found is not None and found.size == len(every) else None

    def _attribute(self, attribute: Attribute, chosen: Array) -> dict[str, Array]:
        if attribute.space.dims is None:
            return {}
        data = self.groups.value_rows(("", attribute.name), chosen).tobytes()
        shape = (len(chosen), *attribute.space.dims)
        return self._file.values.decoded(data, attribute.type, shape)

    def _dataset(self, path: str, dataset: Dataset, chosen: Array) -> dict[str, Array]:
        shape = (len(chosen), *(dataset.space.dims or ()))
        return self._file.values.decoded(self.groups.data(path, chosen), dataset.type, shape)

    def _arrays(
        self, path: str, dataset: Dataset, chosen: Array
    ) -> Mapping[str, Array | RaggedRows]:
        """The same of a dataset whose lengths may differ."""
        shapes = self.groups.found.shapes.get(path)
        if shapes is None or (shapes[chosen] == shapes[chosen[:1]]).all():
            if shapes is not None:
                space = replace(dataset.space, dims=tuple(shapes[chosen[0]].tolist()))
                dataset = replace(dataset, space=space)
            return self._dataset(path, dataset, chosen)
        data, own = self.groups.data(path, chosen), shapes[chosen]
        values = self._file.values.decoded(data, dataset.type, (int(own.prod(axis=1).sum()),))
        return {name: RaggedRows(elements, own) for name, elements in values.items()}

    def encoded(self, chosen: Array, numbers: Array) -> tuple[list[bytes], list[bytes]]:
        """The schema and the data of some groups, the tasks `numbers`."""
        file, found = self._file, dict[str, Array | RaggedRows]()
        first = self.groups.paths[0]
        for holder in sorted(self.example.objects, key=lambda it: naming_order(it.path[1:])):
            if holder.dataset is not None:
                try:
                    values = self._arrays(holder.path, holder.dataset, chosen)
                except (Damaged, Unsupported) as error:
                    raise file.failure(first + holder.path, error) from error
                columns = file.take(found, holder.path[1:], values, first + holder.path)
                self._describe(columns, holder, chosen, numbers)
        read = partial(self._attribute, chosen=chosen)
        leave_out = partial(self._leave_out, chosen=chosen)
        file.take_attributes(found, self.example.group, read, leave_out)
        if not found:
            raise file.no_values(first)
        return file.encoded_rows(found)

    def _leave_out(self, attribute: Attribute, chosen: Array) -> None:
        values = self.groups.value_rows(("", attribute.name), chosen)
        for number, value in zip(chosen.tolist(), values, strict=True):
            own = attribute._replace(value=value.tobytes())
            self._file.leave_out_attribute(self.groups.paths[number], own)

    def _describe(self, columns: list[str], holder: Object, chosen: Array, numbers: Array) -> None:
        """Note the attributes of a dataset in some groups; most have the same value in all."""
        file, dataset = self._file, holder.path[1:]
        file.about.described.tasks.update(dict.fromkeys(columns or [dataset], len(chosen)))
        for name, attribute in file.attributes_of(dataset, holder):
            raw = self.groups.value_rows((holder.path, name), chosen)
            for places in self._equal_rows(attribute, raw):
                own = attribute._replace(value=raw[places[0]].tobytes())
                value, tasks = file.json_of(own), numbers[places].tolist()
                for column in columns or [dataset]:
                    file.about.described.add(Described(column, dataset, name), value, tasks)

    def _equal_rows(self, attribute: Attribute, raw: Array) -> Iterable[list[int]]:
        """Which rows have the same value: mostly all, and then it is decoded once."""
        if (raw == raw[:1]).all():
            return [list(range(len(raw)))]
        rows: Iterable[object] = (row.tobytes() for row in raw)
        if points_simply(attribute.type) and attribute.space.count == 1:
            with suppress(Damaged):
                rows = list(self._file.values.lists(raw.tobytes(), attribute.type))
        found: dict[object, list[int]] = {}
        for place, row in enumerate(rows):
            found.setdefault(row, []).append(place)
        return found.values()


class _AlikeTasks:
    """Tasks in groups that are alike, and behind them those in other groups."""

    def __init__(self, rest: GroupTasks, sets: list[_SetOfTasks], keys: list[KeyRow]) -> None:
        self._rest, self.about = rest, rest.about
        self._sets = sets
        self._places = [path for found in sets for path in found.groups.paths]
        try:
            self._order = sorted(range(len(keys)), key=keys.__getitem__)
        except TypeError:  # a parameter with numbers and texts
            self._order = list(range(len(keys)))
        self._count = rest.tasks_before = len(keys)
        self.keys = [keys[number] for number in self._order] + rest.keys

    def place(self, number: int) -> str:
        if number >= self._count:
            return self._rest.place(number - self._count)
        return self._places[self._order[number]]

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        if backwards:
            yield from self._rest.results(backwards=True)
        task_bytes = sum(tasks.groups.data_bytes for tasks in self._sets) // max(self._count, 1)
        step = min(max(BLOCK_BYTES // max(task_bytes, 1), 1), TASKS_AT_ONCE)
        blocks = range(0, self._count, step)
        for first in reversed(blocks) if backwards else blocks:
            found = self._block(self._order[first : first + step], first)
            yield from reversed(found) if backwards else found
        if not backwards:
            yield from self._rest.results()

    def _block(self, places: list[int], first: int) -> list[Result]:
        """The results at some places among the groups of all sets, numbered from `first` on."""
        wanted, finished_at = np.array(places, np.int64), self._rest.finished_at
        results: list[Result | None] = [None] * len(places)
        start = 0
        for tasks in self._sets:
            end = start + len(tasks.groups)
            chosen = np.flatnonzero((wanted >= start) & (wanted < end))
            if len(chosen):
                encoded = tasks.encoded(wanted[chosen] - start, first + chosen)
                for place, schema, data in zip(chosen.tolist(), *encoded, strict=True):
                    results[place] = Result(first + place, schema, data, finished_at)
            start = end
        return [result for result in results if result is not None]
