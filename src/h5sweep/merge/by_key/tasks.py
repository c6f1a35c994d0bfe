"""Which tasks another program's file holds: their keys, and their values as results of ours.

A task is a group whose path or attributes say its key, with all that lies below it; or a row of
columns or of compounds; or the whole file. Its datasets become result values under their names,
those of groups below it as `group_dataset`, fields of compounds as `dataset_field`, or as `field`
if a row of them is the task. So do the attributes of its group, unless they are the key or a
dataset has that name.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...base.attributes import attribute_json, names_axes, raw_json
from ...base.key_rule import KeyRow, KeyRule
from ...base.values import VALUE, Array, ResultEncoder, encode_text, free_name, naming_order
from ...errors import UnmergeableError, UnsupportedValueError, UsageError
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.messages import Attribute
from ...hdf5.tree import Dataset, Object, ObjectKind
from ...worker_files.keyed_tasks import KeyedFile, Where, nearest
from ...worker_files.layouts import FileLayout, indexed_table
from ...worker_files.read_file import damaged_file
from ...worker_files.read_values import MOST_VALUE_BYTES
from ...worker_files.skipping import MOST_NAMED, stray_text
from ...worker_files.survey import Input
from .attributes import DatasetAttributes, Described

BLOCK_BYTES = 8 << 20
MOST_BLOCK_BYTES = 64 << 20  # of which there are some copies at a time


class Result(NamedTuple):
    """The values of one task as a record has them; `number` counts the tasks of its file."""

    number: int
    schema: bytes
    data: bytes
    finished_at: float
    duration_s: float = 0.0


class TasksOfFile(Protocol):
    """The tasks of one file; `keys` are known at once, results are read as they are asked for."""

    keys: list[KeyRow]
    about: About

    def place(self, number: int) -> str:
        """Where a task lies in its file, for people."""

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        """The results of all tasks, in order or from the last to the first."""


@dataclass
class About:
    """What the user should know of a file besides its tasks."""

    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    described: DatasetAttributes = field(default_factory=DatasetAttributes)
    datasets: dict[str, None] = field(default_factory=dict)  # names, in order
    attributes: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # attributes no output has, as texts
    content: bytes | None = None  # of the whole file, if that is in memory already

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def find_tasks(
    layout: FileLayout, one: Input, rule: KeyRule, *, skip_unmatched: bool
) -> TasksOfFile:
    """The tasks of a file; UsageError, with what there is instead, if it has none by this key."""
    file = ForeignFile(layout, one, rule)
    if not file.has_results():
        return NoTasks(file)
    where = file.find()
    if where is None:
        raise UsageError(file.no_key_text())
    if where.is_file:
        return _OneTask(file, where.objects["/"])
    if not where.objects:
        return (_CompoundTasks if "" in where.columns else _RowTasks)(file, where)
    file.require_all_matched(where.objects, skip=skip_unmatched)
    tasks = GroupTasks(file, where.objects, skip_unmatched=skip_unmatched)
    if tasks.has_datasets:
        tasks.leave_out_empty()
    return tasks


class ForeignFile(KeyedFile):
    """One file: its objects by path, and where their values are."""

    def __init__(self, layout: FileLayout, one: Input, rule: KeyRule) -> None:
        super().__init__(layout, rule, one.name)
        self.one = one
        self.finished_at = one.modified_ns / 1e9
        self.encoder = ResultEncoder(rule.names)
        self.about = About(skipped=layout.skipped.paths)
        self.about.left_out.update(self.values.texts_of(layout.skipped.marks.values()))
        self.axes = dict.fromkeys(sorted(layout.axes), "an axis, no values")
        self.about.skipped += self.axes
        self.about.left_out.update(self.axes)
        self._names: dict[str, str] = {}
        if self.tree.is_cut:
            raise UnmergeableError(f"{one.path} has too many objects to list them all")

    def datasets(self) -> Iterator[tuple[str, Object]]:
        """Every dataset with values under each of its names; a second name may be a link."""
        for found in self.tree.objects:
            if found.dataset is not None and found.path not in self.axes:
                yield found.path, found
        by_address = {o.address: o for o in self.tree.objects}
        for path, address in self.tree.second_names:
            if by_address[address].dataset is not None:
                yield path, by_address[address]
        for path, target in self.tree.soft_links.items():
            other = self.by_path.get(_resolved(path, target))
            if other is not None and other.dataset is not None:
                yield path, other

    def links_to_nothing(self) -> dict[str, str]:
        """Names in groups behind which there is no dataset that could be read, and why."""
        by_address = {o.address: o for o in self.tree.objects}
        found = dict.fromkeys(self.tree.external_links, "leads to another file")
        for path, address in self.tree.second_names:
            if by_address[address].dataset is None:
                found[path] = f"is a second name of {by_address[address].path}"
        for path, target in self.tree.soft_links.items():
            other = self.by_path.get(_resolved(path, target))
            if other is None or other.dataset is None:
                found[path] = f"leads to {target!r}, which is no dataset of the file"
        return found

    def has_results(self) -> bool:
        """Whether there is anything but what a worker's file has before its first result."""
        return bool([*self.datasets()] or self.links_to_nothing() or self.task_groups())

    def require_all_matched(self, groups: dict[str, KeyRow], *, skip: bool) -> None:
        """Raise UsageError, naming them, if groups with datasets belong to no task."""
        parents = {posixpath.dirname(path) for path, _ in self.datasets()}
        strays = sorted(p for p in parents if p != "/" and nearest(p, groups, itself=True) is None)
        named = ", ".join(strays[:MOST_NAMED]) + (", …" if len(strays) > MOST_NAMED else "")
        if strays and not skip:
            raise UsageError(
                f"{self.one.path}: groups with data and without a key "
                f"({self._rule_text()}): {named}; nothing was merged. Correct --key, or leave out "
                f"what is not a result with --skip {','.join(map(posixpath.basename, strays))}"
            )
        self.about.skipped += strays

    def require_none_beside(self, paths: Sequence[str], *, skip: bool = False) -> None:
        """Raise UsageError, naming them, if datasets belong to no task: they would be lost."""
        beside = [path for path in paths if indexed_table(path) not in self.by_path]
        if beside and not skip:
            words = stray_text(beside, "; nothing was merged")
            raise UsageError(f"{self.one.path}: {words} ({self._rule_text()})")
        self.about.skipped += paths
        indexes = (path for path in paths if path not in beside)
        self.about.left_out.update(dict.fromkeys(indexes, "an index, which PyTables makes again"))

    def no_key_text(self) -> str:
        """What is there instead of the key that was asked for, and how to write it."""
        groups = [o.path for o in self.layout.task_groups()]
        root = self.tree.root
        there = [
            ("groups", [path.strip("/") for path in groups]),
            ("datasets", list(self.layout.by_group.get("/", {}))),
            ("attributes", list(root.attributes) if root else []),
        ]
        parts = [
            f"{what} such as {', '.join(names[:MOST_NAMED])}" for what, names in there if names
        ]
        advice = 'for example --key "farm{farm_id:d}_t{farm_type:d}_s{seed:d}" for groups or '
        advice += "files of such names, or --key farm_id,farm_type,seed for attributes or columns"
        return (
            f"{self.one.path}: no task here has the key that {self._rule_text()} asks for; "
            f"there are {'; '.join(parts) or 'no names at all'}. Write the key as it stands there, "
            + advice
        )

    def _rule_text(self) -> str:
        text = self.rule.pattern.text if self.rule.pattern else ",".join(self.rule.names)
        return f"--key {text!r}" if "{" in text else f"--key {text}"

    def name(self, path: str, taken: Container[str] = ()) -> str:
        """The name of a result value: an identifier that no column of every output has."""
        name = free_name(path, taken, self.rule.names)
        if name != path and self._names.get(path) != name:
            self._names[path] = name
            self.about.note(f"{path} is called {name} in the output")
        return name

    def failure(self, path: str, error: Exception) -> Exception:
        """The same error with file and place in it."""
        if isinstance(error, Damaged):
            return damaged_file(self.one.name, f"{path}: {error}")
        return UnmergeableError(
            f"{self.one.path}: {path}: {error}; leave it out with --skip {posixpath.basename(path)}"
        )

    def no_values(self, path: str) -> Exception:
        return UnmergeableError(
            f"{self.one.path}: {path} has a key and no values: remove it, or leave the file out"
        )

    def result(self, number: int, datasets: dict[str, Object], group: Object) -> dict[str, Array]:
        """The values of one task, by their names in the output."""
        found: dict[str, Array] = {}
        left = MOST_VALUE_BYTES
        for relative, holder in sorted(datasets.items(), key=lambda it: naming_order(it[0])):
            assert holder.dataset is not None
            left -= holder.dataset.size_bytes
            try:
                if left < 0:
                    raise Unsupported(f"a task of more than {MOST_VALUE_BYTES:,} bytes")
                values = self.values.of_dataset(holder.dataset)
            except (Damaged, Unsupported) as error:
                raise self.failure(holder.path, error) from error
            columns = self.take(found, relative, values, holder.path)
            self.describe(columns, relative, holder, number)
        leave_out = partial(self.leave_out_attribute, group.path)
        if group.kind is ObjectKind.GROUP:  # those of a dataset describe its column
            self.take_attributes(found, group, self.values.of_attribute, leave_out)
        return found

    def take(
        self, found: dict[str, Array], relative: str, values: dict[str, Array], path: str
    ) -> list[str]:
        """Add the values of a dataset, those of a compound's members under `relative_member`.

        Returns the columns that these are of.
        """
        if not values:
            self.about.note(f"{relative} holds nothing at {path} and is left out")
        columns = self.columns(relative, values, found)
        for name, part in zip(columns, values.values(), strict=True):
            if name in self.rule.names:
                continue
            self.about.datasets.setdefault(name)
            found[name] = part
        return columns

    def columns(
        self, relative: str, members: Iterable[str], taken: Container[str] = ()
    ) -> list[str]:
        """The columns of a dataset: one for each member of a compound, or one under its name."""
        names = ["_".join(filter(None, (relative, member))) for member in members]
        return [name if name in self.rule.names else self.name(name, taken) for name in names]

    def take_attributes(
        self,
        found: dict[str, Array],
        group: Object,
        read: Callable[[Attribute], dict[str, Array]],
        leave_out: Callable[[Attribute], None],
    ) -> None:
        """Add the attributes of a task's group to its values, as far as these can be results."""
        for name, attribute in group.attributes.items():
            if name in self.rule.names:
                continue
            values, why = None, "it is no number and no text"
            try:
                if self.name(name) in found:
                    why = "it has the name of a dataset"
                else:
                    values = read(attribute).get("")
            except Unsupported as error:
                why = str(error)
            except Damaged as error:
                raise self.failure(f"{group.path}, attribute {name}", error) from error
            if values is None:
                self.about.note(f"the attribute {name} is only in the audit trail: {why}")
                leave_out(attribute)
                continue
            self.about.attributes.setdefault(name)
            found[self.name(name)] = values

    def leave_out_attribute(self, path: str, attribute: Attribute) -> None:
        """Have the value of an attribute in the audit trail."""
        try:
            text = self.values.text_of(attribute)
        except (Damaged, Unsupported):
            text = self.values.portable(attribute.value, attribute.type).hex()
        self.about.left_out[f"{path}@{attribute.name}"] = text

    def describe(self, columns: list[str], dataset: str, holder: Object, task: int) -> None:
        """Note the attributes of a dataset: they are those of its columns if all tasks agree."""
        self.about.described.tasks.update(columns or [dataset])
        for name, attribute in self.attributes_of(dataset, holder):
            value = self.json_of(attribute)
            for column in columns or [dataset]:
                self.about.described.add(Described(column, dataset, name), value, [task])

    def json_of(self, attribute: Attribute) -> Any:
        """The value of an attribute in JSON; its bytes if it is no number and no text."""
        with suppress(Damaged, Unsupported):
            values = self.values.of_attribute(attribute).get("")
            if values is not None:
                return attribute_json(values)
        return raw_json(self.values.portable(attribute.value, attribute.type))

    def attributes_of(self, dataset: str, holder: Object) -> Iterator[tuple[str, Attribute]]:
        """The attributes of a dataset, but those that name its axes."""
        for name, attribute in holder.attributes.items():
            if names_axes(name, holder.attributes):
                self.about.note(f"the axes of {dataset.strip('/')} are not kept")
            else:
                yield name, attribute

    def leave_out_attributes(self, group: Object, where: str) -> None:
        """Have the attributes of what is no task in the audit trail, and say so."""
        for attribute in group.attributes.values():
            self.leave_out_attribute(group.path, attribute)
        if names := [name for name in group.attributes if not name.startswith("h5sweep_")]:
            more = len(names) - MOST_NAMED
            text = ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
            noun, are = ("attribute", "is") if len(names) == 1 else ("attributes", "are")
            self.about.note(f"the {noun} {text} of {where} {are} only in the audit trail")

    def encoded(self, result: dict[str, Array], place: str) -> tuple[bytes, bytes]:
        """Schema and data of a record; the error names the file and the task."""
        try:
            return self.encoder.encode(result)
        except UnsupportedValueError as error:
            raise UnmergeableError(f"{self.one.path}: {place}: {error}") from error


def leave_out(about: About, groups: list[str]) -> None:
    """Say of groups without a dataset, among others that have some, that they are no results."""
    if groups:
        about.skipped += groups
        about.note(f"groups without data left out: {len(groups):,}, first {groups[0]}")


def _resolved(path: str, target: str | None) -> str:
    """What a soft link names, as a path from the root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target or "\0"))


class NoTasks:
    """What a worker leaves that was killed before its first result."""

    def __init__(self, file: ForeignFile) -> None:
        self.about = file.about
        self.keys: list[KeyRow] = []
        for group in file.tree.objects:
            if group.attributes:
                file.leave_out_attributes(group, group.path)

    def place(self, number: int) -> str:
        return "/"

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        return iter(())


class GroupTasks:
    """A group a task; or a dataset, which has no other name for its values than `value`."""

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
                self._datasets[group][path[len(group) + 1 :] or VALUE] = holder
        file.require_none_beside(beside, skip=skip_unmatched)
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
        leave_out(self.about, empty)

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


class _OneTask:
    """The whole file is one task."""

    def __init__(self, file: ForeignFile, key: KeyRow) -> None:
        self._file, self.about = file, file.about
        self.keys = [key]

    def place(self, number: int) -> str:
        return "/"

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        file = self._file
        datasets = {path[1:]: holder for path, holder in file.datasets()}
        for path, why in file.links_to_nothing().items():
            raise UnmergeableError(f"{file.one.path}: {path} {why}: put the data there")
        assert file.tree.root is not None
        found = file.result(0, datasets, file.tree.root)
        if not found:
            raise UnmergeableError(f"{file.one.path} has a key and no values: leave it out")
        yield Result(0, *file.encoded(found, "/"), file.finished_at)


class _RowTasks:
    """A row a task."""

    def __init__(self, file: ForeignFile, where: Where) -> None:
        self._file, self.about, self._group = file, file.about, where.table
        self.rows = file.rows_of(where)
        fitting = {
            name: where.columns[name]
            for name in sorted(where.columns, key=naming_order)
            if where.columns[name].rows == self.rows
        }
        self._columns = {name: d for name, d in fitting.items() if name not in file.rule.names}
        self._note_dropped(fitting)
        try:
            self.keys = list(file.row_keys(where, self.rows))
        except (Damaged, Unsupported) as error:
            raise file.failure(self._group, error) from error

    def _note_dropped(self, fitting: dict[str, Dataset]) -> None:
        file, prefix = self._file, self._group.rstrip("/") + "/"
        kept = {prefix + name for name in fitting}
        file.require_none_beside([path for path, _ in file.datasets() if path not in kept])
        named: dict[str, list[str]] = {}
        for name, dataset in fitting.items():
            named[prefix + name] = self._columns_of(name, dataset, set(chain(*named.values())))
        for found in file.tree.objects:
            if found.path in kept and found.dataset is not None:
                file.describe(named[found.path], found.path, found, 0)
            elif found.kind is ObjectKind.GROUP and found.attributes:
                file.leave_out_attributes(found, found.path)

    def _columns_of(self, name: str, dataset: Dataset, taken: set[str]) -> list[str]:
        try:
            members = self._file.values.of_rows(dataset, 0, 0)
        except (Damaged, Unsupported):  # which is said when its rows are read
            return []
        return self._file.columns(name, members, taken)

    def place(self, number: int) -> str:
        return f"row {number} of {self._group}"

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        blocks = self._blocks()
        for first, last in reversed(blocks) if backwards else blocks:
            schema, data = self._block(first, last)
            numbers = range(first, last)
            for number in reversed(numbers) if backwards else numbers:
                yield Result(number, schema, data[number - first], self._file.finished_at)

    def _blocks(self) -> list[tuple[int, int]]:
        step = self._block_rows()
        return [(first, min(first + step, self.rows)) for first in range(0, self.rows, step)]

    def _block_rows(self) -> int:
        """Rows of about BLOCK_BYTES, and whole chunks, which are unpacked only once then.

        Of a narrow column beside a wide one a chunk may hold too many rows for that.
        """
        row_bytes = sum(d.size_bytes for d in self._columns.values()) // max(self.rows, 1)
        sides = [d.layout.chunk[0] for d in self._columns.values() if d.layout.chunk]
        rows = max(BLOCK_BYTES // max(row_bytes, 1), 1)
        side = max((side for side in sides if side * row_bytes <= MOST_BLOCK_BYTES), default=1)
        return -(-rows // side) * side

    def _block(self, first: int, last: int) -> tuple[bytes, list[bytes]]:
        """The schema of some rows, and the data of each."""
        file = self._file
        found: dict[str, Array] = {}
        for column, dataset in self._columns.items():
            path = f"{self._group.rstrip('/')}/{column}".rstrip("/")
            file.take(found, column, self._read(path, dataset, first, last), path)
        if not found:
            raise file.no_values(self._group)
        return encode_rows(file.encoder, found, last - first, str(file.one.path))

    def _read(self, path: str, dataset: Dataset, first: int, last: int) -> dict[str, Array]:
        try:
            return self._file.values.of_rows(dataset, first, last)
        except (Damaged, Unsupported) as error:
            raise self._file.failure(path, error) from error


class _CompoundTasks(_RowTasks):
    """A row of a dataset of compounds a task; its fields are what columns are elsewhere."""

    def _note_dropped(self, fitting: dict[str, Dataset]) -> None:
        file = self._file
        file.require_none_beside([path for path, _ in file.datasets() if path != self._group])
        for found in file.tree.objects:
            is_here = found.path == self._group or found.kind is ObjectKind.GROUP
            if is_here and found.attributes:
                file.leave_out_attributes(found, found.path)


def encode_rows(
    encoder: ResultEncoder, columns: dict[str, Array], rows: int, where: str
) -> tuple[bytes, list[bytes]]:
    """The schema that all rows have, and the data of each row."""
    try:
        schema, _ = encoder.encode({name: values[:1][0] for name, values in columns.items()})
        parts = [_row_bytes(name, values, rows) for name, values in columns.items()]
    except UnsupportedValueError as error:
        raise UnmergeableError(f"{where}: {error}") from error
    return schema, join_rows(parts, rows)


def join_rows(parts: Sequence[Array | list[bytes]], rows: int) -> list[bytes]:
    """Data of whole rows out of those of columns: arrays of bytes, or lists of texts."""
    if all(isinstance(part, np.ndarray) for part in parts):
        whole = np.concatenate([np.asarray(part) for part in parts], axis=1)
        size, data = whole.shape[1], whole.tobytes()
        return [data[row * size : (row + 1) * size] for row in range(rows)]
    lists = [
        [row.tobytes() for row in part] if isinstance(part, np.ndarray) else part for part in parts
    ]
    return [b"".join(row) for row in zip(*lists, strict=True)]


def _row_bytes(name: str, values: Array, rows: int) -> Array | list[bytes]:
    if values.dtype.kind == "U":
        lists = values.reshape(rows, math.prod(values.shape[1:])).tolist()
        return [encode_text(texts, name) for texts in lists]
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    if not little.size:
        return np.empty((rows, 0), np.uint8)
    found: Array = little.reshape(rows, -1).view(np.uint8)
    return found
