"""How other programs lay out results in HDF5: which groups, rows or files are tasks.

Two shapes are known: one group per task, and columns with one row per task. A file without either
is taken for the file of one task.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from ..base.plan import key_text
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.read_data import is_fill, read_column, read_row, rows_of_fill
from ..hdf5.tree import Dataset, Object, ObjectKind, Tree, data_extents
from .read_file import bad_chunks, can_be_proven
from .skipped_names import Names, is_mere_axis, without_skipped

_INDEX = re.compile(r"(.*/)_i_([^/]+)/.+")
MOST_KEY_COLUMNS = 4
_OUTPUT_FORMAT = "h5sweep.output/1"
TELLING_ATTRIBUTES = ("h5sweep_format", "NAME")  # of which not only the names decide what is what
_DIGITS = re.compile(r"(\d+)")
T = TypeVar("T", bound=Hashable)


class Style(StrEnum):
    """How the tasks of a file are laid out."""

    GROUPS = "groups"
    ROWS = "rows"
    ONE = "one"
    OUTPUT = "output"
    RECORDS = "records"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Contents:
    """What is inside a file."""

    style: Style
    tasks: int | None
    datasets: int = 0
    data_bytes: int = 0
    first_key: str = ""
    last_key: str = ""
    tables: tuple[str, ...] = ()  # groups whose columns grow
    groups: int = 0  # how many tasks there are if these groups are tasks, and no tables
    has_groups: bool = False  # groups with datasets beside these
    has_packed: bool = False  # data behind filters
    has_unproven: bool = False  # among them such as our own reader cannot undo, or only slowly


@dataclass
class FileTable:
    """Columns of one group that grow together."""

    group: str
    columns: dict[str, Dataset] = field(default_factory=dict)

    @property
    def lengths(self) -> set[int]:
        return {dataset.rows or 0 for dataset in self.columns.values()}

    @property
    def rows(self) -> int:
        return min(self.lengths, default=0)

    @property
    def is_even(self) -> bool:
        """Whether columns or fields that may grow have one length: so rows can be compared."""
        may_grow = all(column.may_grow for column in self.columns.values())
        names = {name for column in self.columns.values() for name in column.type.member_names}
        has_several = len(self.columns) > 1 or len(names) > 1
        return may_grow and has_several and len(self.lengths) == 1 and self.rows > 1


class FileLayout:
    """One file's objects, seen as tasks; `tree` is without those that are skipped."""

    def __init__(self, tree: Tree, *, skip: Names = frozenset(), key: Collection[str] = ()) -> None:
        self.tree, self.skipped = without_skipped(tree, skip)
        self._key = frozenset(key)
        self.by_group: dict[str, dict[str, Dataset]] = {}
        self._tails: dict[str, int] = {}
        self._tables: list[FileTable] | None = None
        self._bad: dict[str, list[range]] = {}  # rows of each dataset that cannot be unpacked
        self.axes = {one.path for one in self.tree.objects if is_mere_axis(one)}  # of netCDF
        for path, dataset in self.tree.datasets:
            parent, _, name = path.rpartition("/")
            if path not in self.axes:
                self.by_group.setdefault(parent or "/", {})[name] = dataset
        self.style = self._style()

    @property
    def has_own_rules(self) -> bool:
        """Whether a library wrote it in which columns need not be of equal length."""
        root = self.tree.root
        if root is None:
            return False
        if {"_NCProperties", "PYTABLES_FORMAT_VERSION", "CONVENTIONS"} & root.attributes.keys():
            return True
        scales = ("CLASS", "DIMENSION_LIST", "_Netcdf4Dimid")
        return any(a in o.attributes for o in self.tree.objects if o.dataset for a in scales)

    def has_key(self, table: FileTable) -> bool:
        """Whether the key is among the columns of a table: then its rows are tasks."""
        return bool(self._key) and self._key <= table.columns.keys()

    @property
    def is_output(self) -> bool:
        root = self.tree.root
        attribute = root.attributes.get("h5sweep_format") if root else None
        return attribute is not None and attribute.value.rstrip(b"\0").startswith(
            _OUTPUT_FORMAT.encode()
        )

    @cached_property
    def holders(self) -> set[str]:
        """The groups below the root that hold a dataset, or a link that may lead to one."""
        links = [*(path for path, _ in self.tree.second_names), *self.tree.soft_links]
        return {*self.by_group, *(path.rpartition("/")[0] for path in links)} - {"/", ""}

    def _style(self) -> Style:
        if self.is_output:
            return Style.OUTPUT
        if self.tables():
            return Style.ROWS
        root = self.by_group.get("/", {})
        if not root:
            return Style.GROUPS if self.holders or self._described() else Style.NOTHING
        if self.holders:
            return Style.GROUPS if self._are_tasks(self.holders) else Style.ONE
        return Style.ROWS if _are_fixed_columns(root.values()) else Style.ONE

    def _are_tasks(self, groups: Iterable[str]) -> bool:
        """Whether groups beside datasets are tasks, and not parts of one: then they are alike.

        They hold datasets of the same names, or are numbered.
        """
        names = [frozenset(self.by_group.get(group, ())) for group in groups]
        return len(set(names)) < len(names) or any(_DIGITS.search(group) for group in groups)

    def _described(self) -> list[str]:
        """The innermost groups with attributes: tasks, where no group holds a dataset."""
        groups = [o for o in self.tree.objects if o.kind is ObjectKind.GROUP and o.attributes]
        above = {way for group in groups for way in ("/", *ways_to(group.path)[:-1])}
        return [group.path for group in groups if group.path not in above]

    def tables(self) -> list[FileTable]:
        """Groups with columns that may grow."""
        if self._tables is None:
            found = []
            for group, datasets in self.by_group.items():
                growing = {name: dataset for name, dataset in datasets.items() if dataset.may_grow}
                if growing and _are_columns(group, growing, datasets):
                    found.append(FileTable(group, growing))
            if self.groups_beside(found):  # then one in which all grow is that of a task as well
                found = [table for table in found if table.group == "/"]
            self._tables = found
        return self._tables

    def groups_beside(self, tables: Iterable[FileTable]) -> list[str]:
        """Groups that hold datasets and are neither tables nor in the group of one."""
        inside = {table.group for table in tables}
        return [
            group for group in self.by_group if group != "/" and inside.isdisjoint(ways_to(group))
        ]

    def tail_rows(self, table: FileTable) -> int:
        """How many rows at a table's end were made room for and never written."""
        if table.group not in self._tails:
            may_have = self.may_have_tail(table)
            self._tails[table.group] = _tail_rows(self.tree, table) if may_have else 0
        return self._tails[table.group]

    def may_have_tail(self, table: FileTable) -> bool:
        """Whether there may be such rows, by the structure alone."""
        return table.is_even and not self.has_own_rules

    def tail_of(self, path: str) -> int:
        """The same for the table that is this group, or of which this dataset is."""
        groups = (path, path.rpartition("/")[0] or "/")
        return next((self.tail_rows(table) for table in self.tables() if table.group in groups), 0)

    def find_bad_rows(self) -> None:
        """Unpack all data, so that tasks of which a part cannot be unpacked do not count."""
        for path, dataset in self.tree.datasets:
            chunks = (chunk for chunk, _ in bad_chunks(self.tree, path, dataset, slowly=True))
            starts, side = (c.start[0] for c in chunks), (dataset.layout.chunk or (0,))[0]
            if rows := [range(start, start + side) for start in starts]:
                self._bad[path] = rows

    def bad_rows(self, table: str, rows: int) -> Iterator[range]:
        """Those among the first rows of a table, or of a dataset, in order and each once."""
        inside = (table, *(f"{table.rstrip('/')}/{name}" for name in self.by_group.get(table, ())))
        last = 0
        bad = (some for path in inside for some in self._bad.get(path, ()))
        for some in sorted(bad, key=lambda it: it.start):
            if max(some.start, last) < min(some.stop, rows):
                yield range(max(some.start, last), last := min(some.stop, rows))

    def all_tables(self) -> list[FileTable]:
        return self.tables() or [FileTable("/", self.by_group.get("/", {}))]

    def task_groups(
        self, *, others_have_data: bool = False, with_tables: bool = False
    ) -> list[Object]:
        """The topmost groups that hold datasets, and are no tables unless those are wanted too.

        Where none does, those with attributes; the whole file may have others that do. Without
        those in which something is damaged: their tasks are to be run again.
        """
        groups = self.holders
        if not self.by_group and not groups and not others_have_data:
            groups = {*self._described()}
        inside = set() if with_tables else {table.group for table in self.tables()}
        paths = _topmost(groups, besides=inside) - self.spoiled()
        found = [o for o in self.tree.objects if o.path in paths]
        return sorted(found, key=lambda o: natural_order(o.path))

    def spoiled(self) -> set[str]:
        """Every object that is damaged, or on the way to one."""
        size = self.tree.file.size
        faults = [f.path for f in self.tree.faults if isinstance(f.error, Damaged)]
        beyond = [p for p, d in self.tree.datasets if any(a + n > size for a, n in data_extents(d))]
        return {way for path in (*faults, *beyond, *self._bad) for way in ways_to(path)}

    def contents(self, *, with_keys: bool = True) -> Contents:
        """Count what is there; without keys nothing but the structure is read."""
        datasets = self.tree.datasets
        data_bytes = sum(size for _, d in datasets for _, size in data_extents(d))
        tasks, first, last = self._count(with_keys=with_keys)
        tables = self.tables()
        return Contents(
            self.style,
            tasks,
            len(datasets),
            data_bytes,
            first,
            last,
            tuple(table.group for table in tables),
            len(self.task_groups(with_tables=True)) if tables else 0,
            bool(self.groups_beside(tables)),
            any(dataset.filters for _, dataset in datasets),
            not all(can_be_proven(dataset) for _, dataset in datasets),
        )

    def _count(self, *, with_keys: bool) -> tuple[int | None, str, str]:
        if self.style is Style.OUTPUT:
            task = self.by_group.get("/", {}).get("task")
            return (task.rows if task else None), "", ""
        if self.style is Style.ROWS:
            tables = self.all_tables()
            rows = tables[0].rows - self.tail_rows(tables[0])
            first, last = _end_keys(self.tree, tables[0], rows) if with_keys else ("", "")
            return sum(map(self._whole_rows, tables)) + len(self.task_groups()), first, last
        if self.style is Style.GROUPS:
            groups = self.task_groups()
            ends = [group.path.strip("/") for group in (groups[:1] + groups[-1:])]
            return len(groups), *(ends or ("", ""))
        if self.style is Style.ONE:
            return 1, "", ""
        return (None if any(f.is_listing for f in self.tree.faults) else 0), "", ""

    def _whole_rows(self, table: FileTable) -> int:
        rows = table.rows - self.tail_rows(table)
        return rows - sum(map(len, self.bad_rows(table.group, rows)))


def _topmost(groups: set[str], besides: Set[str] = frozenset()) -> set[str]:
    """Those that lie in no other one, nor in one of `besides`."""
    taken = groups | (besides - {"/"})
    return {g for g in groups - besides if taken.isdisjoint(ways_to(g)[:-1])}


def _end_keys(tree: Tree, table: FileTable, rows: int) -> tuple[str, str]:
    """The keys of the first and the last of some rows that all columns have."""
    columns = {n: d for n, d in table.columns.items() if rows and _may_be_key(d)}
    ends = []
    for row in (0, rows - 1):
        key = {}
        for name in list(columns)[:MOST_KEY_COLUMNS]:
            with suppress(Damaged, Unsupported):
                (key[name],) = read_column(tree.file, columns[name], range(row, row + 1))
        ends.append(key_text(key))
    return ends[0], ends[1]


def tasks_that_grow(files: Iterable[tuple[T, Contents]]) -> set[T]:
    """Files whose groups grow and are tasks: a table is in many files, a task mostly in one."""
    found = list(files)
    tables = {one: contents.tables for one, contents in found if contents.tables}
    files_of = Counter(group for groups in tables.values() for group in groups if group != "/")
    once = sum(count == 1 for count in files_of.values())
    has_groups = any(contents.style is Style.GROUPS for _, contents in found)
    if 2 * once <= len(files_of) or (len(files_of) == 1 and not has_groups):
        return set()
    return {one for one, groups in tables.items() if "/" not in groups}


def _are_columns(
    group: str, growing: Mapping[str, Dataset], datasets: Mapping[str, Dataset]
) -> bool:
    """Whether datasets that may grow are columns; else they are values of one task.

    Of that are some that grow and others that do not, unless several grow at the root, or rows of
    compounds do, or others are as long: then the others are what a worker says once.
    """
    fixed = {name: d for name, d in datasets.items() if name not in growing}
    if not fixed or group != "/":
        return not fixed
    lengths = {d.rows for d in growing.values()}
    has_fields = any(d.type.member_names for d in growing.values())
    return len(growing) > 1 or has_fields or any(d.rows in lengths for d in fixed.values())


def ways_to(path: str) -> list[str]:
    """The objects on the way to a path, the uppermost first, and the path itself."""
    return [path[: match.start() + 1] for match in re.finditer("/", path[1:])] + [path]


def _are_fixed_columns(datasets: Collection[Dataset]) -> bool:
    """Whether datasets that cannot grow are columns: equal in length, and one may tell the task.

    Without that they are arrays of one task, such as the x and y of its turbines.
    """
    lengths = {dataset.rows for dataset in datasets}
    is_even = len(datasets) > 1 and len(lengths) == 1 and None not in lengths
    return is_even and any(_may_be_key(d) or d.type.member_names for d in datasets)


def _may_be_key(dataset: Dataset) -> bool:
    is_plain = dataset.type.is_text or dataset.type.type.name in ("INTEGER", "ENUM")
    return is_plain and len(dataset.space.dims or ()) == 1


def indexed_table(path: str) -> str | None:
    """The table whose index a dataset is part of: PyTables keeps one in `_i_NAME` beside it.

    An index says nothing that the table does not say; it can be made again.
    """
    match = _INDEX.fullmatch(path)
    return f"{match[1]}{match[2]}" if match else None


def natural_order(text: str) -> list[Any]:
    """Sorts `s9` before `s10`, however many digits there are."""
    parts: list[Any] = _DIGITS.split(text)
    for place in range(1, len(parts), 2):
        significant = parts[place].lstrip("0")
        parts[place] = (len(significant), significant)
    return parts


def _tail_rows(tree: Tree, table: FileTable) -> int:
    """How many rows at the end are fill values in every column; 0 if the first row is too."""
    try:
        if _is_unwritten(tree, table, 0):
            return 0
        found = table.rows
        for column in table.columns.values():
            found = min(found, rows_of_fill(tree.file, column))
            if not found:
                break
    except (Damaged, Unsupported):
        return 0
    return found


def _is_unwritten(tree: Tree, table: FileTable, row: int) -> bool:
    # The least data first: mostly that is enough to say no, and chunks may have to be unpacked.
    columns = sorted(table.columns.values(), key=lambda d: math.prod(d.layout.chunk) * d.type.size)
    return all(is_fill(d, piece) for d in columns for piece in read_row(tree.file, d, row))
