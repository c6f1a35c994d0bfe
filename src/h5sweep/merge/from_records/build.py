"""Records of a run folder, and rows of an earlier output → one output.

Reading the headers decides the columns; then the bytes are moved block by block, synced, and read
back from the new file before it takes the old one's place. The caller holds the run folder's
lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ...base.attribute_json import Attributes, united_with_units, with_texts_of_any_length
from ...base.compare import are_identical
from ...base.progress_callback import Progress
from ...code.store import adopt_texts
from ...disk import durable
from ...errors import DamagedError, UnreadableError
from ...output.columns import DataColumn
from ...output.reader import OutputReader, StoredColumn
from ...output.record_rows import ChangedRecordError
from ...output.row_tasks import ranges_of
from ...output.stored_labels import TIME_ATTRIBUTES, StoredLabels
from ...output.verify import RowChecksums, rows_hold
from ...output.writer import LIBRARY_ROWS, OutputWriter
from ...runfolder.audit import AuditEntry, append_entry
from ...runfolder.layout import RunFolder
from ...state.extend_plan import (
    is_declared_only,
    merge_details,
    note_merged,
    read_numbered_state,
)
from .output_plan import MergeReport, OutputPlan
from .rows import THREADS, assemble, assemble_shapes


def merge_run(
    folder: RunFolder,
    *,
    compress: bool = False,
    progress: Progress | None = None,
    note_entry: Callable[[Path, AuditEntry], None] | None = None,
    declared_only: bool | None = None,
) -> MergeReport:
    """Write every finished task into the output, verified and durable.

    `declared_only` leaves out tasks that are not declared; None does what the last merge did. Rows
    of an existing output whose records are gone are kept. Killed at any moment, the old output
    or the new one is there, whole, and the same call again finishes the job. Raises DamagedError,
    and leaves the old output as it is, if the new one does not read back as it was written. The
    audit trail beside the output has a line about it afterwards; `note_entry` writes that.
    """
    only = is_declared_only(folder) if declared_only is None else declared_only
    return twice(partial(_merge, folder, compress, progress, note_entry or append_entry, only))


def twice(merge: Callable[[], MergeReport]) -> MergeReport:
    """Merge, and once more if a record has changed meanwhile, or cannot be read any longer."""
    with suppress(ChangedRecordError, UnreadableError):
        return merge()
    # Which records these are shows when all are read once more; the others are merged.
    return merge()


def _merge(
    folder: RunFolder,
    compress: bool,
    progress: Progress | None,
    note_entry: Callable[[Path, AuditEntry], None],
    declared_only: bool,
) -> MergeReport:
    begun = time.monotonic()
    details = merge_details(folder, declared_only=declared_only)
    state = read_numbered_state(folder)
    old = OutputReader(folder.output, state.relabels) if folder.output.exists() else None
    try:
        if old is not None:
            adopt_texts(folder, old.code_texts())
        merge = Merge(
            folder, state, old, compress=compress, progress=progress, declared_only=declared_only
        )
        merge.require_space()
        with durable.replacing(folder.output, is_synced=True) as temporary:
            merge.write(temporary)
            with durable.syncing(temporary):
                merge.verify(temporary)
            merge.keep_old_aside()
    finally:
        if old is not None:
            old.close()
    # Before the note: without it the next run merges again, and leaves its entry then.
    note_entry(folder.output, merge.audit_entry(time.monotonic() - begun))
    if state.redone:
        # Before the note as well: what is asked for and merged must not be asked for any longer.
        folder.save_redo(folder.load_redo().closed_for(state.plan, state.redone))
    note_merged(folder, state.plan, ranges_of(merge.rows.tasks), **details)
    return merge.report()


class Merge(OutputPlan):
    """One merge: the output as planned, written and then verified."""

    def write(self, path: Path) -> None:
        """Write the whole output to `path`; nothing is durable yet."""
        columns, axes = self.columns, {n: column for n, (column, _) in self._coordinates.items()}
        with OutputWriter(path, columns, self._dimensions, axes, compress=self.compress) as writer:
            writer.write_attributes(self._attributes)
            found = with_texts_of_any_length(self._found)
            dtypes = {"code": self.codes.dtype.str}
            writer.create_columns(self.plan, united_with_units(found, self._units), dtypes)
            writer.allocate()
            with self._dealing_with_blocks(partial(self._write_block, writer), done=0):
                for name, values in self._generated():
                    writer.write(name, 0, values)
            writer.write("row_crc32", 0, self.rows.crc32)
            writer.write_failures(self._failures)
            writer.write_provenance(self._provenance)

    def _write_block(self, writer: OutputWriter, block: slice) -> None:
        """Write the data of some rows, and compute their checksums unless the records have them."""
        is_verbatim = bool(self._is_verbatim[block].all())
        parts = list(self._sources.parts(block, checked=not self._is_provable(block)))
        checksums = None if is_verbatim else RowChecksums(_size(block))
        for column in self.columns:
            stored, counts = assemble(column, parts, _size(block))
            writer.write_column(column, self._first(column, block), stored)
            if column.shape_name:
                shapes = assemble_shapes(column, parts, _size(block))
                writer.write(column.shape_name, block.start, shapes)
            if checksums is not None:
                checksums.add(stored, counts)
        if checksums is not None:
            self.rows.crc32[block] = checksums.values()

    def verify(self, path: Path) -> None:
        """Read `path` again and compare everything in it with where it came from."""
        with OutputReader(path) as reader:
            stored_columns = reader.columns()
            _require(reader.attributes == self._attributes, "what describes the output")
            self._verify_described(StoredLabels(reader).all())
            verify = partial(self._verify_block, reader, stored_columns)
            with self._dealing_with_blocks(verify, done=len(self.rows)):
                for name, values in self._generated():
                    for start in range(0, len(values), LIBRARY_ROWS):
                        stop = start + LIBRARY_ROWS
                        found = reader.slab(name, start, stop)
                        _require(are_identical(found, values[start:stop]), name)
            _require(are_identical(reader.whole("row_crc32"), self.rows.crc32), "row_crc32")
            for name, values in self._failures.items():
                _require(
                    are_identical(reader.whole(f"failures/{name}"), values), f"failures/{name}"
                )
            for name, text in self._provenance.items():
                _require(reader.whole(f"provenance/{name}") == text, f"provenance/{name}")

    def _verify_described(self, found: Attributes) -> None:
        """What is said of parameters and results must be there; units of times are our own."""
        for name in {*self.plan.names, *(column.source_name for column in self.columns)}:
            given, about = self._given.get(name, {}), found.get(name, {})
            is_there = about.items() <= given.items()
            is_there &= given.keys() - about.keys() <= TIME_ATTRIBUTES
            _require(is_there, f"what describes {name}")

    def _verify_block(
        self, reader: OutputReader, stored_columns: Sequence[StoredColumn], block: slice
    ) -> None:
        """Rows as they were recorded must have the checksums that their records state.

        Others are compared with a fresh reading of the sources, and so are those that have not, to
        tell which side is wrong.
        """
        is_provable = self._is_provable(block)
        if is_provable and rows_hold(stored_columns, block.start, self.rows.crc32[block]):
            return
        parts = list(self._sources.parts(block))
        for column, stored in zip(self.columns, stored_columns, strict=True):
            expected, _ = assemble(column, parts, _size(block))
            _require(are_identical(stored.read(block.start, block.stop), expected), column.name)
            if column.shape_name:
                shapes = assemble_shapes(column, parts, _size(block))
                found = reader.slab(column.shape_name, block.start, block.stop)
                _require(are_identical(found, shapes), column.shape_name)
        if is_provable:
            raise ChangedRecordError

    def _is_provable(self, block: slice) -> bool:
        """Whether rows read back can be compared with the checksums that their records state."""
        return self._rows_are_alike and bool(self._is_verbatim[block].all())

    @contextmanager
    def _dealing_with_blocks(
        self, deal_with: Callable[[slice], None], *, done: int
    ) -> Iterator[None]:
        """Deal with all blocks of rows in threads, beside what the body does, and wait for all.

        Threads, because moving bytes lets go of the interpreter's lock.
        """

        def deal(block: slice) -> int:
            deal_with(block)
            return _size(block)

        with ThreadPoolExecutor(THREADS) as executor:
            try:
                blocks = executor.map(deal, self.rows.blocks())
                yield
                for rows in blocks:
                    done += rows
                    if self._progress is not None:
                        self._progress(done, 2 * len(self.rows))
            except BaseException:
                executor.shutdown(cancel_futures=True)
                raise

    def _first(self, column: DataColumn, block: slice) -> int:
        """Where the first row of the block lies along the first axis of the column."""
        starts = self._starts.get(column.name)
        return int(block.start if starts is None else starts[block.start])


def _size(block: slice) -> int:
    return int(block.stop - block.start)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise DamagedError(
            f"{what} does not read back as it was written: the disk or the memory of this machine "
            "may be failing. The old output and the records are unchanged; run the same "
            "command again, perhaps on another disk"
        )
