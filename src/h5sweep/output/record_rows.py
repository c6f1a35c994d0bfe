"""Where the rows of an output come from: the record files of a run, block by block.

What a block needs of each record file is read, and cells are gathered from that by their places
with NumPy. Rows, forms and offsets are kept as arrays, never as objects, so that a million tasks
stay below a few hundred megabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import numpy as np

from ..base.relabels import Relabels
from ..base.values import STR, Array
from ..errors import DamagedError, UnreadableError
from ..runfolder.records import FRAME_BYTES, RecordFile
from ..runfolder.uniform_records import FRAME_DTYPE, KEY_FOLLOWS
from .record_forms import Forms, Label, RowStructure

BLOCK_BYTES = 4 << 20
BLOCK_ROWS = 1 << 16
OLD_OUTPUT = -1  # stands where the number of a record file does


OPEN_FILES = 64  # of which a process may have 1024, and sometimes only 256
_LOCATED_ROWS = 1 << 12
_HEAD_BYTES = 512  # of a record, that are read at first; mostly that is its whole header
_GAP_BYTES = 2048  # between what is wanted, that are read too rather than asking twice
_FORMS_COMPARED = 4


class ChangedRecordError(DamagedError):
    """Data of a record that do not have the checksum that the record states."""

    def __init__(self) -> None:
        super().__init__(
            "a record file changed while it was merged. The old output is unchanged; run the same "
            "command again"
        )


@dataclass
class Rows:
    """The rows of an output in order, and where each comes from.

    `source` is the number of a record file or OLD_OUTPUT, `position` the offset of the data there,
    or the row there. `form` says which dtypes and shapes the data of a record has. `crc32` is
    what a record states of its data, which must be proven before or after they are written.
    """

    tasks: Array
    source: Array
    position: Array
    form: Array
    size_bytes: Array
    finished_at: Array
    duration_s: Array
    crc32: Array

    @classmethod
    def empty(cls, tasks: Array) -> Rows:
        count = len(tasks)
        return cls(
            tasks,
            source=np.full(count, OLD_OUTPUT, np.int32),
            position=np.zeros(count, np.int64),
            form=np.zeros(count, np.int32),
            size_bytes=np.zeros(count, np.int64),
            finished_at=np.zeros(count, np.float64),
            duration_s=np.zeros(count, np.float64),
            crc32=np.zeros(count, np.uint32),
        )

    def __len__(self) -> int:
        return len(self.tasks)

    def blocks(self) -> Iterator[slice]:
        """Cut the rows into stretches of about BLOCK_BYTES, one row at least."""
        ends = np.cumsum(self.size_bytes)
        start = 0
        while start < len(self):
            limit = (ends[start - 1] if start else 0) + BLOCK_BYTES
            stop = int(np.searchsorted(ends, limit, "right"))
            stop = min(max(stop, start + 1), start + BLOCK_ROWS)
            yield slice(start, stop)
            start = stop


@dataclass(frozen=True)
class BlockCells:
    """The cells of one name and dtype in some rows of a block.

    `rows` are positions in the block, `axes` the shapes, one row a cell; `load` reads the elements
    of all cells one after the other, text as bytes objects.
    """

    name: str
    dtype: str
    rows: Array
    axes: Array
    load: Callable[[], Array]

    @property
    def counts(self) -> Array:
        """How many elements each cell has."""
        return elements(self.axes)


@dataclass(frozen=True)
class ColumnCells:
    """All cells of one name and dtype in some rows; `axes` has every shape among them."""

    name: str
    dtype: str
    first_row: int
    rows: int
    axes: Array


class RecordSource:
    """Reads rows from record files that were scanned, so that their records are sound."""

    def __init__(self, paths: list[Path], relabels: Relabels) -> None:
        self.forms = Forms()
        self._paths, self._relabels = paths, relabels
        self._file = lru_cache(OPEN_FILES)(self._open)

    def _open(self, number: int) -> RecordFile:
        return RecordFile(self._paths[number], self._relabels)

    def locate(self, rows: Rows, selected: Array, file: int, offsets: Array) -> None:
        """Fill in `rows[selected]`, whose records have their frames at `offsets` of one file."""
        for start in range(0, len(offsets), _LOCATED_ROWS):
            block = slice(start, start + _LOCATED_ROWS)
            where, frame_offsets = selected[block], offsets[block]
            buffer, places, frames = self._read_heads(self._file(file), frame_offsets)
            header_bytes = frames["header_bytes"].astype(np.int64)
            rows.source[where] = file
            rows.position[where] = frame_offsets + FRAME_BYTES + header_bytes + -header_bytes % 8
            rows.size_bytes[where] = frames["data_bytes"]
            rows.finished_at[where] = frames["finished_at"]
            rows.duration_s[where] = frames["duration_s"]
            rows.crc32[where] = frames["data_crc32"]
            with self._blaming(file):
                heads = buffer, places + FRAME_BYTES, header_bytes
                rows.form[where] = self._forms(*heads, self._file(file).relabels)
                self.forms.require_fit(rows.form[where], rows.size_bytes[where])

    def _read_heads(self, file: RecordFile, offsets: Array) -> tuple[Array, Array, Array]:
        """Frames and headers of records: their bytes, where in these each begins, the frames."""
        sizes = np.minimum(_HEAD_BYTES, file.size_bytes - offsets)
        try:
            buffer, places = _read(file, offsets, sizes)
        except UnreadableError:
            sizes = np.full(len(offsets), FRAME_BYTES)  # and nothing that lies behind a record
            buffer, places = _read(file, offsets, sizes)
        frames = gather(buffer, places, FRAME_BYTES).view(FRAME_DTYPE)
        whole = FRAME_BYTES + frames["header_bytes"].astype(np.int64)
        if (whole > sizes).any():
            buffer, places = _read(file, offsets, whole)
        return buffer, places, frames

    @contextmanager
    def _blaming(self, file: int) -> Iterator[None]:
        """Name the file that has a record with sound checksums and a header that says nothing."""
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedError(
                f"{self._paths[file]} holds a record that h5sweep did not write ({error}): move "
                "the file away"
            ) from error

    def _forms(self, buffer: Array, offsets: Array, sizes: Array, relabels: Relabels) -> Array:
        """The form of each header; those like the first few are compared all at once."""
        forms = np.full(len(offsets), -1, np.int32)
        left = np.arange(len(offsets))
        for _ in range(_FORMS_COMPARED):
            if not len(left):
                break
            head = _head(buffer, offsets[left[0]], sizes[left[0]])
            number = self.forms.number(head, relabels)
            forms[left[0]] = number
            like = _starts_with(buffer, offsets[left], sizes[left], head + KEY_FOLLOWS)
            forms[left[like]] = number
            left = left[forms[left] < 0]
        for index in left.tolist():
            head = _head(buffer, offsets[index], sizes[index])
            forms[index] = self.forms.number(head, relabels)
        return forms

    def have_cells(self, forms: Array, cells: list[tuple[str, str]]) -> Array:
        """Which of these forms consist of exactly these names and dtypes, in this order."""
        alike = [
            [(name, dtype) for name, dtype, _ in structure] == cells
            for structure in self.forms.structures
        ]
        have: Array = np.array(alike, bool)[self.forms.structure_of(forms)]
        return have

    def have_result(self, forms: Array, name: str) -> Array:
        """Which of these forms have a cell of this name."""
        among = [name in {cell for cell, _, _ in it} for it in self.forms.structures]
        have: Array = np.array(among, bool)[self.forms.structure_of(forms)]
        return have

    def labels(self, rows: Rows) -> Iterator[tuple[RowStructure, tuple[Label, ...]]]:
        """What is said of the cells of the located rows; see `Forms.labels`."""
        return self.forms.labels(np.unique(rows.form[rows.source != OLD_OUTPUT]))

    def cells(self, rows: Rows) -> Iterator[ColumnCells]:
        """What the located rows hold, known from their forms alone."""
        recorded = np.flatnonzero(rows.source != OLD_OUTPUT)
        structures = self.forms.structure_of(rows.form[recorded])
        for number, structure in enumerate(self.forms.structures):
            mine = recorded[structures == number]
            axes = self.forms.all_axes(number)
            for (name, dtype, _), shapes in zip(structure, _split(axes, structure), strict=True):
                yield ColumnCells(name, dtype, int(mine[0]), len(mine), shapes)

    def parts(self, rows: Rows, block: slice, *, checked: bool = False) -> Iterator[BlockCells]:
        """The cells in the rows of a block that come from record files.

        `checked` compares the data with the checksums that `rows` has of them: ChangedRecordError
        if they are no longer what was recorded.
        """
        recorded = np.flatnonzero(rows.source[block] != OLD_OUTPUT)
        source, forms = rows.source[block][recorded], rows.form[block][recorded]
        structures = self.forms.structure_of(forms)
        for file in _distinct(source):
            for structure in _distinct(structures[source == file]):
                chosen = np.flatnonzero((source == file) & (structures == structure))
                where = recorded[chosen]
                cells = self.forms.structures[structure]
                offsets, sizes = rows.position[block][where], rows.size_bytes[block][where]
                data, places = _data(self._file(file), cells, offsets, sizes)
                stated = rows.crc32[block][where].tolist()
                if checked and _checksums(data, places, sizes) != stated:
                    raise ChangedRecordError
                axes = self.forms.axes_of(forms[chosen], structure)
                yield from _cells(data, cells, where, axes, places)


def _data(
    file: RecordFile, cells: RowStructure, offsets: Array, sizes: Array
) -> tuple[Array | RecordFile, Array]:
    """The bytes of some records and where each begins; the file itself for a large one.

    Such a record is the only one of its block, and each of its cells is read when it is wanted.
    """
    is_large = sizes[0] > BLOCK_BYTES and all(dtype != STR for _, dtype, _ in cells)
    return (file, offsets) if is_large else _read(file, offsets, sizes)


def _checksums(data: Array | RecordFile, places: Array, sizes: Array) -> list[int]:
    if isinstance(data, RecordFile):
        return [data.checksum(int(places[0]), int(sizes[0]))]
    view, ends = data.data, (places + sizes).tolist()
    return [crc32(view[start:end]) for start, end in zip(places.tolist(), ends, strict=True)]


def _read(file: RecordFile, starts: Array, sizes: Array) -> tuple[Array, Array]:
    """Read so many bytes from each of `starts`; return them, and where among them each begins."""
    try:
        return _read_extents(file, starts, sizes, _GAP_BYTES)
    except UnreadableError:
        return _read_extents(file, starts, sizes, 0)  # perhaps it was what lies in a gap


def _read_extents(
    file: RecordFile, starts: Array, sizes: Array, gap_bytes: int
) -> tuple[Array, Array]:
    order = np.argsort(starts, kind="stable")
    begins = starts[order]
    ends = np.maximum.accumulate(begins + sizes[order])
    is_first = np.append(True, begins[1:] > ends[:-1] + gap_bytes)
    firsts = np.flatnonzero(is_first)
    extent_begins, extent_ends = begins[firsts], ends[np.append(firsts[1:], len(ends)) - 1]
    extent_places = np.cumsum(extent_ends - extent_begins) - (extent_ends - extent_begins)
    buffer = np.empty(int((extent_ends - extent_begins).sum()), np.uint8)
    view = buffer.data
    extents = (extent_begins.tolist(), extent_ends.tolist(), extent_places.tolist())
    for begin, end, place in zip(*extents, strict=True):
        file.read_into(view[place : place + end - begin], begin)
    places = np.empty_like(starts)
    places[order] = begins + (extent_places - extent_begins)[np.cumsum(is_first) - 1]
    return buffer, places


def _cells(
    data: Array | RecordFile, structure: RowStructure, where: Array, axes: Array, places: Array
) -> Iterator[BlockCells]:
    """Walk through the cells of records of one structure, in the order they were written."""
    for (name, dtype, _), shape in zip(structure, _split(axes, structure), strict=True):
        counts = elements(shape)
        if dtype == STR:
            assert isinstance(data, np.ndarray)
            starts, sizes, places = _walk_text(data, places, counts)
            yield BlockCells(name, dtype, where, shape, _TextLoader(data, starts, sizes))
        else:
            yield BlockCells(name, dtype, where, shape, _Loader(data, dtype, places, counts))
            places = places + counts * np.dtype(dtype).itemsize


@dataclass(frozen=True)
class _Loader:
    """Gathers numbers from what was read, or reads those of one large record."""

    data: Array | RecordFile
    dtype: str
    offsets: Array
    counts: Array

    def __call__(self) -> Array:
        dtype = np.dtype(self.dtype)
        if isinstance(self.data, RecordFile):
            values = np.empty(int(self.counts[0]), dtype)
            self.data.read_into(values.view(np.uint8).data, int(self.offsets[0]))
            return values
        if (self.counts == self.counts[0]).all():
            size_bytes = int(self.counts[0]) * dtype.itemsize
            return gather(self.data, self.offsets, size_bytes).view(dtype)
        offsets = spans(self.offsets, self.counts, dtype.itemsize)
        return gather(self.data, offsets, dtype.itemsize).view(dtype)


@dataclass(frozen=True)
class _TextLoader:
    """Gathers texts from what was read, as bytes in UTF-8."""

    buffer: Array
    starts: Array
    sizes: Array

    def __call__(self) -> Array:
        view = self.buffer.data
        texts = np.empty(len(self.starts), object)
        ends = self.starts + self.sizes
        pairs = zip(self.starts.tolist(), ends.tolist(), strict=True)
        texts[:] = [bytes(view[start:end]) for start, end in pairs]
        return texts


def _distinct(numbers: Array) -> list[int]:
    """The different ones of some small numbers."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


def _split(axes: Array, structure: RowStructure) -> Iterator[Array]:
    """The axes of each cell, of which `axes` has those of all cells side by side."""
    start = 0
    for _, _, ndim in structure:
        yield axes[:, start : start + ndim]
        start += ndim


def gather(buffer: Array, offsets: Array, size_bytes: int) -> Array:
    """Copy `size_bytes` from each offset, one after the other, as an array of raw bytes."""
    if not size_bytes or not len(offsets):
        return np.empty(0, np.uint8)
    windows: Array = np.ndarray(
        (len(buffer) - size_bytes + 1,), f"V{size_bytes}", buffer, strides=(1,)
    )
    return windows[offsets]


def elements(axes: Array) -> Array:
    """The number of elements for each shape; `axes` has one shape a row."""
    if len(axes) and not axes.strides[0]:  # one shape for all
        return np.broadcast_to(axes[0].prod(dtype=np.int64), len(axes))
    counts: Array = axes.prod(axis=1, dtype=np.int64)
    return counts


def spans(starts: Array, counts: Array, step: int = 1) -> Array:
    """`start, start + step, ...`, as many as `counts` says, for each start; one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - counts) * step, counts) + np.arange(total) * step


def _walk_text(buffer: Array, offsets: Array, counts: Array) -> tuple[Array, Array, Array]:
    """Where each text of the cells at `offsets` starts, its size, and where the cells end."""
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    starts, sizes = np.empty(total, np.int64), np.empty(total, np.int64)
    offsets = offsets.copy()
    for number in range(int(counts.max(initial=0))):
        active = counts > number
        lengths = gather(buffer, offsets[active], 4).view("<u4").astype(np.int64)
        places = first[active] + number
        starts[places] = offsets[active] + 4
        sizes[places] = lengths
        offsets[active] += 4 + lengths
    return starts, sizes, offsets


def _head(buffer: Array, offset: int, size: int) -> bytes:
    """The header of a record up to its key; of one that is written in another way, the same."""
    header = buffer[offset : offset + size].tobytes()
    head, key, _ = header.partition(KEY_FOLLOWS)
    if key and head.startswith(_HEAD):
        return head
    said = {name: value for name, value in json.loads(header).items() if name in _IN_HEAD}
    return json.dumps({"data": said.pop("data"), **said}, separators=(",", ":")).encode()[:-1]


_HEAD = b'{"data":'
_IN_HEAD = ("data", "labels")


def _starts_with(buffer: Array, offsets: Array, sizes: Array, head: bytes) -> Array:
    fits = sizes >= len(head)
    fits[fits] = gather(buffer, offsets[fits], len(head)).view(f"S{len(head)}") == head
    return fits
