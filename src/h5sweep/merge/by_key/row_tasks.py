"""Tasks that are rows of columns or of compounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ...base.values import Array, naming_order
from ...hdf5.errors import Damaged, Unsupported
from ...hdf5.tree import Dataset, ObjectKind
from ...worker_files.find_tasks import ROWS, Table
from ...worker_files.keyed_tasks import TreeGroup
from .foreign_file import ForeignFile
from .tasks_of_file import Result
from .unmatched import require_none_beside

BLOCK_BYTES = 8 << 20
MOST_BLOCK_BYTES = 64 << 20  # of which there are some copies at a time


def row_tasks(file: ForeignFile, table: Table[TreeGroup]) -> RowTasks:
    """The rows of a table as tasks."""
    return (CompoundTasks if ROWS in table.columns else RowTasks)(file, table)


class RowTasks:
    """One task per row."""

    def __init__(self, file: ForeignFile, table: Table[TreeGroup]) -> None:
        self._file, self.about, self._group = file, file.about, table.path
        self.rows = file.rows_of(table)
        fitting: dict[str, Dataset] = {
            name: table.columns[name]
            for name in sorted(table.columns, key=naming_order)
            if table.columns[name].rows == self.rows
        }
        self._columns = {name: d for name, d in fitting.items() if name not in file.rule.names}
        self._note_dropped(fitting)
        try:
            self.keys = list(file.row_keys(table, self.rows))
        except (Damaged, Unsupported) as error:
            raise file.failure(self._group, error) from error

    def _note_dropped(self, fitting: dict[str, Dataset]) -> None:
        file, prefix = self._file, self._group.rstrip("/") + "/"
        kept = {prefix + name for name in fitting}
        require_none_beside(file, [path for path, _ in file.datasets() if path not in kept])
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
            schemas, data = self._block(first, last)
            numbers = range(first, last)
            for number in reversed(numbers) if backwards else numbers:
                place = number - first
                yield Result(number, schemas[place], data[place], self._file.finished_at)

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

    def _block(self, first: int, last: int) -> tuple[list[bytes], list[bytes]]:
        """The schemas of some rows, and their data."""
        file = self._file
        found: dict[str, Array] = {}
        for column, dataset in self._columns.items():
            path = f"{self._group.rstrip('/')}/{column}".rstrip("/")
            file.take(found, column, self._read(path, dataset, first, last), path)
        if not found:
            raise file.no_values(self._group)
        return file.encoded_rows(found)

    def _read(self, path: str, dataset: Dataset, first: int, last: int) -> dict[str, Array]:
        try:
            return self._file.values.of_rows(dataset, first, last)
        except (Damaged, Unsupported) as error:
            raise self._file.failure(path, error) from error


class CompoundTasks(RowTasks):
    """A row of a dataset of compounds a task; its fields are what columns are elsewhere."""

    def _note_dropped(self, fitting: dict[str, Dataset]) -> None:
        file = self._file
        require_none_beside(file, [path for path, _ in file.datasets() if path != self._group])
        for found in file.tree.objects:
            is_here = found.path == self._group or found.kind is ObjectKind.GROUP
            if is_here and found.attributes:
                file.leave_out_attributes(found, found.path)
