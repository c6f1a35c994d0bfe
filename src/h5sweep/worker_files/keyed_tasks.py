"""The tasks of a file as our own reader lists it, by their keys: for `check` and `merge --key`."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, compress, repeat

from ..base.key_rule import KeyRow, KeyRule
from ..base.values import Array
from ..errors import UsageError
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.messages import Attribute
from ..hdf5.tree import Dataset, Object, ObjectKind
from .file_view import row_place
from .find_tasks import ROWS, Table, Where, locate_tasks, path_in
from .layouts import FileLayout, natural_order
from .read_values import Values

ROWS_AT_ONCE = 1 << 16
MOST_UNWRITTEN_ROWS = 1_000_000  # a row of them takes time as any other
MOST_KEY_ROWS = 10_000_000  # a shape may claim any number of rows


@dataclass(eq=False, slots=True)
class TreeGroup:
    """A group of a tree, and the datasets with values in it."""

    path: str
    attributes: Mapping[str, Attribute]
    variables: dict[str, Dataset]
    parent: TreeGroup | None
    lost: dict[str, str] = field(default_factory=dict)


class KeyedFile:
    """A file of another program, in which a key tells the tasks."""

    def __init__(self, layout: FileLayout, rule: KeyRule, path: str) -> None:
        self.layout, self.rule, self._path = layout, rule, path
        self.tree = layout.tree
        self.values = Values(layout.tree.file)
        self.by_path = {o.path: o for o in self.tree.objects}

    @cached_property
    def where(self) -> Where[TreeGroup, KeyRow]:
        """Where the tasks are; UsageError if a group has a value that no key may have."""
        groups: dict[str, TreeGroup] = {}
        for one in self.tree.objects:
            if one.kind is ObjectKind.GROUP:
                parent = groups.get(posixpath.dirname(one.path)) if one.path != "/" else None
                groups[one.path] = TreeGroup(one.path, one.attributes, {}, parent)
        for path, holder in self.datasets():
            parent = groups.get(posixpath.dirname(path))
            if parent is not None and holder.dataset is not None:
                parent.variables[posixpath.basename(path)] = holder.dataset
        for path, why in self.links_to_nothing().items():
            if (parent := groups.get(posixpath.dirname(path))) is not None:
                parent.lost[posixpath.basename(path)] = why
        return locate_tasks([*groups.values()], self.rule, self._path, self)

    def datasets(self) -> Iterator[tuple[str, Object]]:
        """Every dataset with values under each of its names; a second name may be a link."""
        for found in self.tree.objects:
            if found.dataset is not None and found.path not in self.layout.axes:
                yield found.path, found
        by_address = {o.address: o for o in self.tree.objects}
        for path, address in self.tree.second_names:
            if by_address[address].dataset is not None:
                yield path, by_address[address]
        for path, target in self.tree.soft_links.items():
            other = self.by_path.get(resolved_link(path, target))
            if other is not None and other.dataset is not None:
                yield path, other

    def links_to_nothing(self) -> dict[str, str]:
        """Names in groups behind which there is no dataset that could be read, and why."""
        by_address = {o.address: o for o in self.tree.objects}
        found = dict.fromkeys(self.tree.external_links, "points to another file")
        for path, address in self.tree.second_names:
            if by_address[address].dataset is None:
                found[path] = f"is a second name of {by_address[address].path}"
        for path, target in self.tree.soft_links.items():
            other = self.by_path.get(resolved_link(path, target))
            if other is None or other.dataset is None:
                found[path] = f"points to {target!r}, which is not a dataset of the file"
        return found

    def objects(self) -> dict[str, KeyRow]:
        """The paths of groups or datasets that are tasks, in natural order; the root is all."""
        found = {} if self.where.file is None else {"/": self.where.file}
        found |= {group.path: key for group, key in self.where.groups.items()}
        found |= {path_in(*place): key for place, key in self.where.datasets.items()}
        return dict(sorted(found.items(), key=lambda it: natural_order(it[0])))

    def table(self) -> Table[TreeGroup]:
        """The only place with tasks in rows; UsageError if there is another with tasks."""
        paths = [*self.objects(), *sorted(table.path for table in self.where.tables)]
        if len(paths) > 1:
            first, second = paths[0], paths[-1]
            common = posixpath.commonpath((first, second))
            names = [posixpath.relpath(second, common).split("/")[0]]
            if second == "/":
                names = [f"/{name}" for name in sorted(self.where.tables[-1].columns)]
            raise UsageError(
                f"{self._path}: the key is in {first} and in {second}: --skip {','.join(names)} "
                "leaves out "
                "the second, which can be merged into another output"
            )
        return self.where.tables[0]

    def key_in_name(self, path: str, group: TreeGroup | None) -> KeyRow | None:
        values = self.rule.pattern.values_of(path) if self.rule.pattern else None
        return None if values is None else self.checked_row(values, path)

    def key_in_content(self, group: TreeGroup) -> KeyRow | None:
        key: dict[str, object] = {}
        for name in self.rule.names:
            attribute, dataset = group.attributes.get(name), group.variables.get(name)
            if attribute is not None:
                read = partial(self.values.of_attribute, attribute)
                value = self._single(attribute.space.count, read)
            elif dataset is not None and is_single(dataset):
                value = self._single(1, partial(self.values.of_dataset, dataset))
            else:
                return None
            if value is None:
                return None
            key[name] = value
        return self.checked_row(key.values(), group.path)

    def checked_row(self, values: Iterable[object], place: str) -> KeyRow:
        """The key of what lies at a place; UsageError, which names it, for what no key may be."""
        try:
            return self.rule.checked_row(values)
        except UsageError as error:
            raise UsageError(f"{self._path}: {place}: {error}") from error

    def _single(self, count: int, read: Callable[[], dict[str, Array]]) -> object | None:
        """A value that is the only one of its dataset or attribute."""
        try:
            values = read().get("") if count == 1 else None
        except (Damaged, Unsupported):
            return None
        return None if values is None or values.size != 1 else values.reshape(-1)[0]

    def rows_of(self, table: Table[TreeGroup]) -> int:
        """How many rows a table has, by its key."""
        keys = (table.columns.get(name) for name in (ROWS, *self.rule.names))
        return min((key.rows or 0 for key in keys if key is not None), default=0)

    def row_keys(self, table: Table[TreeGroup], rows: int) -> Iterator[KeyRow]:
        """The keys of the first rows of a table; Damaged or Unsupported if they can't be read."""
        names = (ROWS,) if ROWS in table.columns else self.rule.names
        for name in names:
            if name not in table.columns:
                raise Unsupported(f"{name} {table.lost[name]}")
        stored = min(table.columns[name].rows_stored for name in names)
        if rows - stored > MOST_UNWRITTEN_ROWS:
            raise Damaged(
                f"{rows - stored:,} of {rows:,} rows were never written: they have no key"
            )
        # Of compounds all fields are read, so some rows at a time.
        step = ROWS_AT_ONCE if ROWS in table.columns else max(rows, 1)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            columns = [v.tolist() for v in self._key_columns(table.columns, first, last)]
            try:
                yield from self.rule.checked_rows(columns)
            except UsageError:  # which does not say in which row
                for number, row in enumerate(zip(*columns, strict=True), start=first):
                    self.checked_row(row, row_place(table.path, number))

    def _key_columns(
        self, columns: Mapping[str, Dataset], first: int, last: int
    ) -> Iterator[Array]:
        names = self.rule.names
        if ROWS in columns:
            fields = self.values.of_rows(columns[ROWS], first, last)
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
            if not self.where:
                count = self.layout.contents(with_keys=False).tasks or 0
                yield from repeat(None, min(count, MOST_KEY_ROWS))
                return
            spoiled = self.layout.spoiled()
            spoiled |= {"/"} if spoiled else set()
            yield from (key for path, key in self.objects().items() if path not in spoiled)
            yield from chain.from_iterable(map(self._whole_row_keys, self.where.tables))
        except (Damaged, Unsupported, UsageError):
            yield None

    def _whole_row_keys(self, table: Table[TreeGroup]) -> Iterator[KeyRow]:
        rows = min(column.rows or 0 for column in table.columns.values())
        if rows > MOST_KEY_ROWS:
            raise Unsupported(f"keys of {rows:,} rows")
        rows -= self.layout.tail_of(table.path)
        is_whole = bytearray(b"\1") * rows
        for bad in self.layout.bad_rows(table.path, rows):
            is_whole[bad.start : bad.stop] = bytes(len(bad))
        return compress(self.row_keys(table, rows), is_whole)


def is_single(dataset: Dataset) -> bool:
    """Whether a dataset has one value, which may be part of the key of its group."""
    return dataset.space.count == 1 and not dataset.may_grow


def resolved_link(path: str, target: str | None) -> str:
    """What a soft link names, as a path from the root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target or "\0"))


def nearest(path: str, groups: Container[str], *, itself: bool = False) -> str | None:
    """The group among `groups` that `path` lies in."""
    if itself and path in groups:
        return path
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        if path in groups:
            return path
    return None
