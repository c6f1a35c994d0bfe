"""What the chunks of a table were when its indexes were written: at the last flush.

A stream that was written since has more rows than were flushed. And zlib makes the same of the same
rows: what a chunk was then takes as many bytes as its index says, and may have left its end there.
"""

from __future__ import annotations

import numpy as np

from ..base.values import Array
from ..hdf5.damage.packed_streams import pack_chunk
from ..hdf5.errors import Damaged, Unsupported
from .carved_datasets import CarvedVariable
from .chunk_streams import MOST_APPENDED, ChunkSlot, ChunkVersions, TableStreams

END_BYTES = 8  # of a stream, with its checksum: no other ends with the same


class LastFlush(TableStreams):
    """Which stream can be which chunk, by what the last flush has left."""

    def options(
        self, free: list[ChunkSlot], families: list[ChunkVersions]
    ) -> dict[ChunkSlot, list[ChunkVersions]]:
        """What each chunk may be; not what cannot have been there when its index was written."""
        options = {slot: [f for f in families if self.may_be(slot, f)] for slot in free}
        flushed = self.flushed_rows(free, families)
        is_told = self.packs_alike(families)
        for slot, possible in options.items():
            own = self.family_of(slot, families) if slot.is_claim_right else None
            if own is not None and flushed is not None and self.is_settled(slot, flushed):
                options[slot] = [own]
            elif is_told and slot.has_size:
                rows = self.rows_to_try(slot) if flushed is None else [flushed]
                others = [f for f in possible if f is not own]
                fitting = {id(f) for count in rows for f in self.fitting(slot, others, count)}
                options[slot] = [f for f in possible if f is own or id(f) in fitting]
            elif own is None:
                options[slot] = [f for f in possible if not self.may_be_next(f)]
        return options

    def may_be(self, slot: ChunkSlot, family: ChunkVersions) -> bool:
        is_fill = self.fill_of(slot.variable) * (slot.room - family.rows)
        if family.data[family.rows * self.row_bytes :] != is_fill:
            return False
        return _is_plausible(slot.variable, family.data[: family.rows * self.row_bytes])

    def claimed(
        self, free: list[ChunkSlot], families: list[ChunkVersions], *, is_any_lost: bool
    ) -> dict[ChunkSlot, ChunkVersions] | None:
        """What the indexes say, if none is stale: each leads to a family, and no family is left.

        A chunk that was moved leaves a family: its stream, to which no index leads. If all have as
        many rows as the table, one with fewer is of rows behind them.
        """
        found: dict[ChunkSlot, ChunkVersions] = {}
        left = list(families)
        for slot in free:
            if not slot.is_claim_right:
                return None
            mine = self.family_of(slot, left)
            if mine is None:
                return None
            found[slot] = mine
            left = [family for family in left if family is not mine]
        most = self.rows - max((slot.first for slot in free), default=self.rows)
        is_whole = not is_any_lost and all(map(self.is_whole, free))
        is_behind = is_whole and all(family.rows < most for family in left)
        return found if is_behind or not left else None

    def as_flushed(self, slot: ChunkSlot, family: ChunkVersions) -> ChunkVersions:
        """What its index leads to, if that is right: few rows may begin as those of another do."""
        if slot.claim is None or not slot.is_claim_right:
            return family
        own = ChunkVersions(slot.claim.data, self.rows_of_claim(slot))
        return own if self.is_version(own, family.data) else family

    def older_rows(self, free: list[ChunkSlot], families: list[ChunkVersions]) -> list[int]:
        """Up to which rows chunks go whose indexes lead to what they were before an append."""
        older = []
        for slot in free:
            mine = self.family_of(slot, families) if slot.is_claim_right else None
            rows = self.rows_of_claim(slot)
            if mine is not None and rows < mine.rows:
                older.append(slot.first + rows)
        return older

    def flushed_rows(self, free: list[ChunkSlot], families: list[ChunkVersions]) -> int | None:
        """How many rows the last flush has left, if streams with more of them tell it."""
        last = max((slot.first for slot in free), default=0)
        right = [slot for slot in free if slot.is_claim_right]
        own = [(slot, self.family_of(slot, families)) for slot in right]
        stale = [
            (slot, mine)
            for slot, mine in own
            if mine is not None and 0 < self.rows_of_claim(slot) < mine.rows
        ]
        newest = [slot.first + mine.rows for slot, mine in stale]
        if all(slot.first == last for slot in free if not slot.is_claim_right):
            newest += [last + f.rows for f in families if not any(f is mine for _, mine in own)]
        if max(newest, default=0) > self.rows:
            return self.rows  # not all columns have got their new length
        if stale:
            return min(slot.first + self.rows_of_claim(slot) for slot, _ in stale)
        return self.flushed_by_size(free, families)

    def flushed_by_size(self, free: list[ChunkSlot], families: list[ChunkVersions]) -> int | None:
        """The same, if chunks took as many bytes as their indexes say after one flush only."""
        lost = [slot for slot in free if slot.is_lost]
        if not lost or not self.packs_alike(families):
            return None
        possible = [
            rows
            for rows in self.rows_to_try(lost[-1])
            if all(self.fitting(slot, families, rows) for slot in lost)
        ]
        return possible[0] if len(possible) == 1 else None

    def rows_to_try(self, slot: ChunkSlot) -> range:
        return range(max(slot.first, self.rows - MOST_APPENDED) + 1, self.rows + 1)

    def is_settled(self, slot: ChunkSlot, flushed: int) -> bool:
        """Whether its index leads to what was flushed: what was put there since has more rows."""
        rows = self.rows_of_claim(slot) if slot.is_claim_right else 0
        return rows > 0 and rows == min(flushed - slot.first, slot.room)

    def packs_alike(self, families: list[ChunkVersions]) -> bool:
        """Whether zlib makes of the chunks here what the writer's zlib has made of them."""
        dataset = self.sample.dataset
        return all(len(pack_chunk(one.data, dataset)) == one.size for one in families)

    def fitting(
        self, slot: ChunkSlot, families: list[ChunkVersions], flushed: int
    ) -> list[ChunkVersions]:
        """Which of them took, as flushed, as many bytes as the index says, and left their end."""
        chunk, rows = slot.variable.chunks.get(slot.start), min(flushed - slot.first, slot.room)
        if chunk is None or rows <= 0:
            return []
        fill = self.fill_of(slot.variable) * (slot.room - rows)
        packed = [
            (family, pack_chunk(family.data[: rows * self.row_bytes] + fill, slot.variable.dataset))
            for family in families
        ]
        packed = [(family, data) for family, data in packed if len(data) == chunk.size]
        end, source = slot.variable.start + chunk.address + chunk.size, slot.variable.file.source
        left = source.read(end - END_BYTES, END_BYTES) if END_BYTES < end <= source.size else b""
        ended = [family for family, data in packed if left and data.endswith(left)]
        return ended or [family for family, _ in packed if not self.may_be_next(family)]

    def may_be_next(self, family: ChunkVersions) -> bool:
        """Whether a stream may as well be of the chunk behind the last one."""
        return family.rows <= self.longest - ((self.rows - 1) // self.room + 1) * self.room


def _is_plausible(variable: CarvedVariable, data: bytes) -> bool:
    """Whether these bytes can be values of this type, and not of a neighbour's."""
    try:
        shape = (len(data) // variable.dataset.type.size,)
        cells = variable.elements.decode(variable.dataset.type, data, shape)
    except (Damaged, Unsupported, ValueError):
        return False
    return all(_are_usual(values) for values in cells.values())


def _are_usual(values: Array) -> bool:
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        return bool((np.abs(values.astype(np.float64)) < 2.0**48).all())
    if values.dtype.kind in "fc":
        size = np.abs(values[np.isfinite(values) & (values != 0)]).astype(np.float64)
        return bool(((size > 1e-100) & (size < 1e100)).all())
    return True
