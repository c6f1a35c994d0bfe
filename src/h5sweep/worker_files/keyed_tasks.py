"""Which tasks a file has, and the key of each: what `check` counts and `merge` reads.

A task is a group whose path or content says its key, a row of columns or of compounds, the whole
file, or a dataset whose name says its key. The first of these that the file has is what it has.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import compress, repeat

from ..base.key_rule import KeyRow, KeyRule
from ..base.values import Array
from ..errors import UsageError
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.tree import Dataset, Object, ObjectKind
from .decode_elements import field_places
from .layouts import FileLayout, natural_order
from .read_values import Values

ROWS_AT_ONCE = 1 << 16
MOST_UNWRITTEN_ROWS = 1_000_000  # a row of them takes time as any other
MOST_KEY_ROWS = 10_000_000  # a shape may claim any number of rows


@dataclass(frozen=True)
class Where:
    """Where tasks are: objects with their keys, or the columns that have a key in each row."""

    objects: dict[str, KeyRow] = field(default_factory=dict)  # "/" is the whole file
    table: str = ""
    columns: dict[str, Dataset] = field(default_factory=dict)  # of compounds: these, under ""

    @property
    def is_file(self) -> bool:
        return "/" in self.objects


class KeyedFile:
    """A file of another program, in which a key tells the tasks."""

    def __init__(self, layout: FileLayout, rule: KeyRule, path: str) -> None:
        self.layout, self.rule, self._path = layout, rule, path
        self.tree = layout.tree
        self.values = Values(layout.tree.file)
        self.by_path = {o.path: o for o in self.tree.objects}

    def find(self) -> Where | None:
        """Where the tasks are; None if there are none by this key."""
        if groups := self.task_groups():
            return Where(groups)
        stem = posixpath.splitext(self._path)[0]
        if (key := self.rule.row_of_path(stem)) is not None:
            return Where({"/": key})
        if (table := self._table()) is not None:
            return table
        root = self.tree.root
        if root is not None and (key := self.key_in(root)) is not None:
            return Where({"/": key})
        if (compounds := self._compounds()) is not None:
            return compounds
        named = self._named(ObjectKind.DATASET)
        return Where(named) if named else None

    def task_groups(self) -> dict[str, KeyRow]:
        """The groups with a key, none within another, in natural order."""
        return self._named(ObjectKind.GROUP)

    def _named(self, kind: ObjectKind) -> dict[str, KeyRow]:
        found: dict[str, KeyRow] = {}
        for one in self.tree.objects:
            if one.kind is not kind or one.path == "/" or nearest(one.path, found) is not None:
                continue
            if (key := self._key_of(one)) is not None:
                found[one.path] = key
        return dict(sorted(found.items(), key=lambda it: natural_order(it[0])))

    def _key_of(self, one: Object) -> KeyRow | None:
        """The key in a name, or in what a group holds."""
        by_name = self.rule.row_of_path(one.path)
        if by_name is not None or one.kind is not ObjectKind.GROUP or self._is_table(one.path):
            return by_name
        return self.key_in(one)

    def key_in(self, group: Object) -> KeyRow | None:
        """The key in the attributes of a group, or in single values in it; not for a pattern."""
        if self.rule.pattern is not None:
            return None
        datasets = self.layout.by_group.get(group.path, {})
        key: dict[str, object] = {}
        for name in self.rule.names:
            if name in group.attributes:
                attribute = group.attributes[name]
                value = self._single(
                    attribute.space.count, partial(self.values.of_attribute, attribute)
                )
            elif name in datasets:
                dataset = datasets[name]
                value = self._single(dataset.space.count, partial(self.values.of_dataset, dataset))
            else:
                return None
            if value is None:
                return None
            key[name] = value
        return self.rule.row(key)

    def _single(self, count: int, read: Callable[[], dict[str, Array]]) -> object | None:
        """A value that is the only one of its dataset or attribute."""
        try:
            values = read().get("") if count == 1 else None
        except (Damaged, Unsupported):
            return None
        return None if values is None or values.size != 1 else values.reshape(-1)[0]

    def _is_table(self, group: str) -> bool:
        """Whether the key is in columns here: of several rows, or of one as all others are."""
        datasets = self.layout.by_group.get(group, {})
        if not self.rule.names or not set(self.rule.names) <= datasets.keys():
            return False
        dims = {datasets[name].space.dims for name in self.rule.names}
        if len(dims) != 1 or len(shape := dims.pop() or ()) != 1:
            return False
        return shape != (1,) or all(d.rows == 1 for d in datasets.values())

    def _table(self) -> Where | None:
        """The group whose columns hold the key; UsageError if there are two."""
        found = {g: columns for g, columns in self.layout.by_group.items() if self._is_table(g)}
        return self._only(found)

    def _compounds(self) -> Where | None:
        """The dataset that has the key in its fields; UsageError if there are two."""
        return self._only(
            {
                path: {"": dataset}
                for path, dataset in self.tree.datasets
                if len(dataset.space.dims or ()) == 1 and self.rule.pattern is None
                if set(self.rule.names) <= field_places(dataset.type).keys()
            }
        )

    def _only(self, tables: dict[str, dict[str, Dataset]]) -> Where | None:
        if len(tables) > 1:
            first, second = sorted(tables)[:2]
            name = posixpath.relpath(second, posixpath.commonpath((first, second))).split("/")[0]
            raise UsageError(
                f"{self._path}: the key is in {first} and in {second}: --skip {name} leaves out "
                "the second, which can be merged into another output"
            )
        return next((Where(table=path, columns=found) for path, found in tables.items()), None)

    def rows_of(self, where: Where) -> int:
        """How many rows a table has, by its first key column."""
        return (where.columns.get("") or where.columns[self.rule.names[0]]).rows or 0

    def row_keys(self, where: Where, rows: int) -> Iterator[KeyRow]:
        """The keys of the first rows of a table; Damaged or Unsupported if they can't be read."""
        names = ("",) if "" in where.columns else self.rule.names
        stored = min(where.columns[name].rows_stored for name in names)
        if rows - stored > MOST_UNWRITTEN_ROWS:
            raise Damaged(
                f"{rows - stored:,} of {rows:,} rows were never written: they have no key"
            )
        # Of compounds all fields are read, so some rows at a time.
        step = ROWS_AT_ONCE if "" in where.columns else max(rows, 1)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            columns = self._key_columns(where, first, last)
            yield from self.rule.checked_rows(values.tolist() for values in columns)

    def _key_columns(self, where: Where, first: int, last: int) -> Iterator[Array]:
        names, columns = self.rule.names, where.columns
        if "" in columns:
            fields = self.values.of_rows(columns[""], first, last)
            yield from (fields[name] for name in names)
            return
        for name in names:
            values = self.values.of_rows(columns[name], first, last).get("")
            if values is None:
                raise Unsupported(f"{name}: a key of several members")
            yield values

    def whole_keys(self) -> Iterator[KeyRow | None]:
        """The key of every task that nothing is wrong with; None where it can't be read."""
        try:
            where = self.find()
            if where is None:
                count = self.layout.contents(with_keys=False).tasks or 0
                yield from repeat(None, min(count, MOST_KEY_ROWS))
            elif where.objects:
                tasks = self._with_data(where.objects).keys() - self.layout.spoiled()
                yield from (key for path, key in where.objects.items() if path in tasks)
            elif (rows := self.rows_of(where)) > MOST_KEY_ROWS:
                raise Unsupported(f"keys of {rows:,} rows")
            else:
                yield from self._whole_row_keys(where, rows - self.layout.tail_of(where.table))
        except (Damaged, Unsupported, UsageError):
            yield None

    def _with_data(self, objects: dict[str, KeyRow]) -> dict[str, KeyRow]:
        """Those that hold datasets, if any does: the writer of the others came to no result."""
        links = [path for path, _ in self.tree.second_names]
        paths = (*(path for path, _ in self.tree.datasets), *links, *self.tree.soft_links)
        holders = {nearest(path, objects, itself=True) for path in paths}
        return {path: key for path, key in objects.items() if path in holders} or objects

    def _whole_row_keys(self, where: Where, rows: int) -> Iterator[KeyRow]:
        is_whole = bytearray(b"\1") * rows
        for bad in self.layout.bad_rows(where.table, rows):
            is_whole[bad.start : bad.stop] = bytes(len(bad))
        return compress(self.row_keys(where, rows), is_whole)


def nearest(path: str, groups: Container[str], *, itself: bool = False) -> str | None:
    """The group among `groups` that `path` lies in."""
    if itself and path in groups:
        return path
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        if path in groups:
            return path
    return None
