"""Read an output, and verify it by itself. `writer` writes it.

One row a task, one dataset a column; `h5sweep_columns` names the data columns in the order in which
each row's checksum takes them in.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.relabels import MARK, Relabels
from ..base.values import STR, Array
from ..disk.h5py_loader import h5py, is_elsewhere
from ..errors import DamagedError, UsageError, WrongFolderError, naming, system_error
from ..hdf5.tree import most_claimed
from .columns import stored_dtype
from .record_rows import BlockCells, spans

FORMAT = "h5sweep.output/1"
BARE_DIMENSION = "This is a netCDF dimension but not a netCDF variable. {:10d}"
RELABEL = f"h5sweep_{MARK}"
AUDIT = "h5sweep_audit"  # names the audit trail; not in a snapshot, which has none
COORDINATES = "h5sweep_coords"  # names the axes that have coordinates
SNAPSHOT = "h5sweep_snapshot"  # names the output that it is a snapshot of
OWN_GROUPS = ("failures", "provenance")
OWN_ATTRIBUTES = (
    "Conventions",
    "title",
    "summary",
    "history",
    "source",
    "creator_name",
    "date_created",
    "date_modified",
    "h5sweep_format",
    "h5sweep_key",
    "h5sweep_plan",
    "h5sweep_columns",
    COORDINATES,
    AUDIT,
    RELABEL,
    SNAPSHOT,
    "tasks_done",
    "tasks_planned",
    "_NCProperties",  # netCDF's own
)
FAILURE = ("outcome", "error", "message", "where", "traceback", "finished_at", "duration_s")
BOOKKEEPING: dict[str, tuple[str, dict[str, str]]] = {
    "code": ("|u1", {"long_name": "version of the code, in provenance/code; 0: not known"}),
    "duration_s": ("<f8", {"units": "s", "long_name": "how long the task took"}),
    "finished_at": (
        "<f8",
        {"units": "seconds since 1970-01-01T00:00:00Z", "calendar": "proleptic_gregorian"},
    ),
    "row_crc32": ("<u4", {"long_name": "CRC-32 of the row's data, columns as in h5sweep_columns"}),
}


@dataclass(frozen=True)
class StoredColumn:
    """A data column as it lies in an output."""

    name: str
    source_name: str
    dtype: str
    dataset: Any
    descriptor: int  # of the file, from which threads read without HDF5's lock
    offset: int | None  # of the elements there; None if they are in chunks, or texts
    starts: Array | None  # where each row starts and, behind the last, ends; None if FIXED
    shapes: Any  # the dataset of shapes, if SHAPED
    gap: Any  # stands where a task has no value; None if every row counts as one

    @property
    def inner(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.dataset.shape[1:]
        return shape

    @property
    def itemsize(self) -> int:
        return stored_dtype(self.dtype).itemsize

    def read(self, first: int, last: int) -> Array:
        """The stored elements of the rows from `first` to before `last`, one after the other."""
        if self.starts is not None:
            first, last = int(self.starts[first]), int(self.starts[last])
        if last == first or not self.dataset.size:
            return np.empty(0, stored_dtype(self.dtype))
        if self.offset is None:
            values: Array = self.dataset[first:last]
            return values.reshape(-1)
        width = math.prod(self.inner)
        return self._read_elements(self.offset, first * width, (last - first) * width)

    def _read_elements(self, offset: int, first: int, count: int) -> Array:
        values: Array = np.empty(count, self.dataset.dtype)
        data, offset = values.view(np.uint8).data, offset + first * values.itemsize
        while data:
            with naming(self.descriptor):
                size_bytes = os.preadv(self.descriptor, [data], offset)
            if not size_bytes:
                raise DamagedError(f"the output ends at {offset:,}, in the middle of a column")
            data, offset = data[size_bytes:], offset + size_bytes
        return values

    def axes(self, first: int, last: int) -> Array:
        """The shapes of these rows; -1 for axes that a row does not have."""
        if self.shapes is not None:
            shapes: Array = self.shapes[first:last]
            return shapes
        inner = np.tile(np.array(self.inner, np.int64), (last - first, 1))
        if self.starts is None:
            return inner
        counts = np.diff(self.starts[first : last + 1])
        return np.column_stack([counts, inner]).astype(np.int64)

    def counts(self, first: int, last: int) -> Array:
        """The number of stored elements of each of these rows."""
        if self.starts is None:
            return np.full(last - first, math.prod(self.inner))
        counts: Array = np.diff(self.starts[first : last + 1]) * math.prod(self.inner)
        return counts


class OutputReader:
    """An output opened for reading; with the relabels of its run folder, by the names of today."""

    def __init__(self, path: Path, relabels: Relabels | None = None) -> None:
        self.path = path
        try:
            self._file = _open(path)
        except OSError as error:
            if (refused := system_error(error)) is not None:
                raise refused from error
            raise self._damaged(f"cannot be opened as HDF5 ({error})") from error
        self._raw = os.open(path, os.O_RDONLY)
        self.attributes = {name: plain_attribute(value) for name, value in self._file.attrs.items()}
        if self.attributes.get("h5sweep_format") != FORMAT:
            self.close()
            raise WrongFolderError(
                f"{path} was not written by h5sweep and will not be replaced: "
                "choose another output with -o"
            )
        known = {MARK: self.attributes.get(RELABEL)}
        self.relabels = relabels.unknown_to(known) if relabels else Relabels()

    def __enter__(self) -> OutputReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        os.close(self._raw)

    def _damaged(self, what: str) -> DamagedError:
        return DamagedError(
            f"{self.path} {what}. Move it away and run the same command again: the records in "
            "the run folder are not affected"
        )

    def object_at(self, path: str) -> Any:
        """A dataset or group; DamagedError if it is in another file, or larger than it can be."""
        found = self._file
        for name in path.strip("/").split("/"):
            link = found.get(name, getlink=True)
            if link is not None and not isinstance(link, h5py.HardLink):
                raise self._damaged(f"has a link in the place of {path}, which is not followed")
            found = found[name]
        if isinstance(found, h5py.Dataset):
            if is_elsewhere(found):
                raise self._damaged(f"has the data of {path} in another file, which is not read")
            if found.nbytes > most_claimed(os.fstat(self._raw).st_size):
                raise self._damaged(f"claims {found.nbytes:,} bytes of {path}, but has fewer")
        return found

    @property
    def plan_id(self) -> str:
        return str(self.attributes["h5sweep_plan"])

    @property
    def tasks(self) -> Array:
        """The task number of every row."""
        return self.whole("task")

    def whole(self, name: str) -> Array:
        """All of a dataset; the bytes of a single text."""
        values: Array = self.object_at(name)[()]
        return values

    def slab(self, name: str, first: int, last: int) -> Array:
        """A stretch of any dataset along its first axis."""
        values: Array = self.object_at(name)[first:last]
        return values

    def keys(self) -> KeyTable:
        """The key columns of all rows."""
        return KeyTable(self._keys_in("", len(self.tasks)))

    def failures(self) -> tuple[KeyTable, KeyTable]:
        """The keys of all tasks that failed and have no row, and how each of them ended."""
        keys = self._keys_in("failures/", len(self.whole("failures/task")))
        return KeyTable(keys), KeyTable({n: self._key_column(f"failures/{n}") for n in FAILURE})

    def _keys_in(self, group: str, rows: int) -> dict[str, Array]:
        columns = self.relabels.key({n: self._key_column(group + n) for n in self.key_names})
        added = {name: value for name, value in columns.items() if np.ndim(value) == 0}
        for name, value in added.items():
            dtype = object if isinstance(value, str) else None
            columns[name] = np.full(rows, value, dtype)
        return columns

    @property
    def key_names(self) -> list[str]:
        """The parameters, as they are called in the file."""
        return str(self.attributes["h5sweep_key"]).split()

    def _key_column(self, name: str) -> Array:
        dataset = self.object_at(name)
        if h5py.check_string_dtype(dataset.dtype):
            strings: Array = dataset.asstr()[...]
            return strings
        values: Array = dataset[...]
        return (
            values.astype(bool) if plain_attribute(dataset.attrs.get("dtype")) == "bool" else values
        )

    def columns(self) -> list[StoredColumn]:
        """The data columns, in the order in which rows are checksummed."""
        columns = self.stored_columns()
        if not self.relabels:
            return columns
        names = list({column.source_name: None for column in columns})
        renamed = dict(zip(names, self.relabels.column_names(names), strict=True))
        return [replace(column, source_name=renamed[column.source_name]) for column in columns]

    def stored_columns(self) -> list[StoredColumn]:
        """The same, by the names that results have in the file."""
        return [self._column(name) for name in self._column_names]

    def _column(self, name: str) -> StoredColumn:
        dataset = self.object_at(name)
        about = {key: plain_attribute(value) for key, value in dataset.attrs.items()}
        count_name, shape_name = about.get("h5sweep_count"), about.get("h5sweep_shape")
        starts = None
        if count_name:
            starts = np.concatenate([[0], np.cumsum(self.whole(count_name), dtype=np.int64)])
        is_text = h5py.check_string_dtype(dataset.dtype)
        return StoredColumn(
            name,
            about.get("h5sweep_name", name),
            about.get("h5sweep_dtype", STR if is_text else dataset.dtype.str),
            dataset,
            self._raw,
            None if is_text else dataset.id.get_offset(),
            starts,
            self.object_at(shape_name) if shape_name else None,
            about.get("_FillValue") if dataset.dtype.kind in "iu" else None,
        )

    @property
    def is_compressed(self) -> bool:
        return any(self.object_at(name).compression for name in self._column_names)

    def codes(self) -> Array:
        """The version of the code that made each row; 0 where that is not known."""
        is_ours = "code" in self._file and "code" not in self._column_names
        return self.whole("code") if is_ours else np.zeros(len(self.tasks), np.uint8)

    def code_texts(self) -> dict[int, str]:
        """What is said of each version of the code, as JSON."""
        if "code" not in (self.object_at("provenance") if "provenance" in self._file else ()):
            return {}
        names = [name for name in self.object_at("provenance/code") if name.isdecimal()]
        return {int(name): bytes(self.whole(f"provenance/code/{name}")).decode() for name in names}

    @property
    def _column_names(self) -> list[str]:
        return str(self.attributes["h5sweep_columns"]).split()

    def strangers(self) -> list[str]:
        """The names of what somebody else has added to the file."""
        columns = [self.object_at(name) for name in self._column_names]
        helpers = {
            plain_attribute(dataset.attrs.get(f"h5sweep_{kind}"))
            for dataset in columns
            for kind in ("count", "shape")
        }
        ours = {"task", *BOOKKEEPING, *OWN_GROUPS, *self.key_names, *helpers}
        ours |= {column.name[1:] for column in columns}
        ours |= {*str(self.attributes.get(COORDINATES, "")).split()}
        others = [name for name in self._file if name not in ours and not self._is_bare(name)]
        return others + [name for name in self.attributes if name not in OWN_ATTRIBUTES]

    def _is_bare(self, name: str) -> bool:
        """Whether it stands for a dimension and holds nothing."""
        if not isinstance(self._file.get(name, getlink=True), h5py.HardLink):
            return False
        about = plain_attribute(self._file[name].attrs.get("NAME", ""))
        return str(about).startswith(BARE_DIMENSION.partition("{")[0])


class KeyTable:
    """The key columns of an output; looks enough like a data frame for `plan_list`."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values = values
        self.columns = list(values)

    def __getitem__(self, name: str) -> Array:
        return self._values[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """The key of each row."""
        lists = [values.tolist() for values in self._values.values()]
        return (dict(zip(self.columns, row, strict=True)) for row in zip(*lists, strict=True))


class OutputSource:
    """Reads rows back from an output, to keep those whose records are gone.

    With `only`, the values of that result alone; NaN and empty texts are none of them.
    """

    def __init__(self, reader: OutputReader, *, only: str = "") -> None:
        columns = [column for column in reader.columns() if only in ("", column.source_name)]
        uses = Counter(column.source_name for column in columns)
        # A name with two columns has its value in one of them: gaps in the other are known.
        self._columns = [
            replace(column, gap=_usual_gap(column))
            if only or uses[column.source_name] > 1
            else column
            for column in columns
        ]

    def parts(self, block_rows: Array, output_rows: Array) -> Iterator[BlockCells]:
        """The cells of `output_rows`, which stand at `block_rows` of a block."""
        for column in self._columns:
            for first, last, chosen in _stretches(output_rows):
                yield from _stored_parts(
                    column, first, last, output_rows[chosen], block_rows[chosen]
                )


def _open(path: Path) -> Any:
    """Open for reading, also what this process reads already, however it is locked there."""
    for locking in (False, None, True):
        try:
            file = h5py.File(path, "r", locking=locking)
        except OSError as error:
            if _OTHER_LOCKING not in str(error):
                raise
            continue
        if file.mode == "r":
            return file
        file.close()
        break
    raise UsageError(f"{path} is open in this process, for writing: close it there first")


_OTHER_LOCKING = "flag values don't match"  # says HDF5 of a file that is open here


def plain_attribute(value: Any) -> Any:
    """The value of an attribute; a text if it is one."""
    return value.decode() if isinstance(value, bytes) else value


def _stretches(rows: Array) -> Iterable[tuple[int, int, Array]]:
    """Cut rows of an output into ranges worth reading whole, each with the rows wanted of it."""
    if not len(rows):
        return
    first, last = int(rows.min()), int(rows.max()) + 1
    if last - first <= 4 * len(rows):
        yield first, last, np.arange(len(rows))
        return
    cuts = np.flatnonzero(np.diff(rows) != 1) + 1
    for chosen in np.split(np.arange(len(rows)), cuts):
        yield int(rows[chosen[0]]), int(rows[chosen[-1]]) + 1, chosen


def _stored_parts(
    column: StoredColumn, first: int, last: int, output_rows: Array, block_rows: Array
) -> Iterator[BlockCells]:
    """The cells of `output_rows`, all between `first` and `last`, that have a value."""
    axes = column.axes(first, last)[output_rows - first]
    is_there = _has_value(column, first, last)[output_rows - first]
    ndims = (axes >= 0).sum(axis=1)
    for ndim in np.unique(ndims[is_there]).tolist():
        chosen = np.flatnonzero(is_there & (ndims == ndim))
        load = _StoredLoader(column, first, last, output_rows[chosen] - first)
        yield BlockCells(
            column.source_name, column.dtype, block_rows[chosen], axes[chosen, :ndim], load
        )


def _usual_gap(column: StoredColumn) -> Any:
    if column.gap is not None:
        return column.gap
    return b"" if column.dtype == STR else np.nan


def _has_value(column: StoredColumn, first: int, last: int) -> Array:
    """Which rows hold a value; where gaps cannot be told from values, all do."""
    if column.shapes is not None:
        # A shape without axes is that of a number, if there is an element, or of a gap.
        has_axes = (column.axes(first, last) >= 0).any(axis=1)
        return np.asarray(has_axes | (column.counts(first, last) > 0))
    if column.gap is None or not column.dataset.size:
        return np.ones(last - first, bool)
    if column.starts is not None:
        return np.diff(column.starts[first : last + 1]) > 0
    stored = column.read(first, last).reshape(last - first, -1)
    is_gap: Array = np.isnan(stored) if column.gap is np.nan else stored == column.gap
    return np.logical_not(is_gap.all(axis=1))


@dataclass(frozen=True)
class _StoredLoader:
    """Reads cells from an output, in the dtype that their values had in the results."""

    column: StoredColumn
    first: int
    last: int
    chosen: Array

    def __call__(self) -> Array:
        stored = self.column.read(self.first, self.last)
        counts = self.column.counts(self.first, self.last)
        starts = np.cumsum(counts) - counts
        values = stored[spans(starts[self.chosen], counts[self.chosen])]
        return values if self.column.dtype == STR else values.view(self.column.dtype)
