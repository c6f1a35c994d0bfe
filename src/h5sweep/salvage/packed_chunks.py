"""Which packed stream is which chunk of which column, where an index may be stale.

A column in chunks of gzip or lzf that grows is written again with each row, mostly in another
place, before its index is. Killed in between, the index leads to an old version of the chunk, to
nothing, or to what another column has put there since. But all versions of a chunk begin with the
same rows, so the streams of a file fall into families, and a family is a chunk if it can be no
other. What a chunk was last is whole, wherever it lies: so no family may be left over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..base.key_rule import KeyRule
from ..base.values import Array
from ..hdf5.damage.packed_streams import packing_of
from ..hdf5.errors import Damaged, Unsupported
from ..hdf5.messages import DEFLATE, FLETCHER32, SHUFFLE
from ..hdf5.read_data import LZF, chunk_bytes, fill_bytes
from ..worker_files.file_view import Group
from ..worker_files.find_tasks import ROWS, Table
from .carved_data import Rescued
from .carved_datasets import CarvedVariable
from .chunk_streams import ChunkSlot, ChunkVersions, LzfStreams, find_lzf, first_growing
from .last_flush import LastFlush

LZF_BYTES = range(128, (4 << 20) + 1)  # few are a stream by chance, and more take long to pack
MOST_FREE = 64  # chunks that are looked for at a time
MOST_SOLUTIONS = 2000
MOST_STEPS = 50_000
_AMBIGUOUS = "several streams may be this chunk"


def settle_streams(
    groups: Sequence[Group], tables: Sequence[Table[Group]], rule: KeyRule, *, is_closed: bool
) -> bool:
    """Give the columns of all tables the streams that are their chunks; whether any got one.

    A writer in SWMR mode puts nothing where something is that an index leads to. Chunks that are
    packed otherwise do not tell where they end, nor whose they are: the last are in doubt, unless
    the file was closed.
    """
    settled: list[CarvedVariable] = []
    every = [v for g in groups for v in g.variables.values() if isinstance(v, CarvedVariable)]
    growing = [v for t in tables for v in t.columns.values() if isinstance(v, CarvedVariable)]
    lzf = find_lzf(v for v in growing if _grows_packed(v, is_closed=is_closed))
    for table in tables:
        columns: dict[str, CarvedVariable] = {
            name: variable
            for name, variable in table.columns.items()
            if isinstance(variable, CarvedVariable)
            and not variable.file.superblock.is_being_written_swmr
        }
        packed = {name: v for name, v in columns.items() if _grows_packed(v, is_closed=is_closed)}
        kinds: list[_ChunkedTable] = []
        for kind in {_kind_of(variable) for variable in packed.values()}:
            alike = {name: v for name, v in packed.items() if _kind_of(v) == kind}
            mine = {id(variable) for variable in alike.values()}
            others = [variable for variable in every if id(variable) not in mine]
            kinds.append(_ChunkedTable(columns, alike, rule, others, lzf))
            settled += alike.values()
        safe_rows = _safe_rows([one for one in kinds if one.rows])
        for one in kinds:
            one.settle(safe_rows)
        for variable in () if is_closed else columns.values():
            if variable not in packed.values():
                _doubt_last_chunks(variable)
    return any(variable.rescued for variable in settled)


def _safe_rows(kinds: list[_ChunkedTable]) -> int:
    """How many rows of a table there were before any append that did not come to its end."""
    if not any(one.is_unfinished for one in kinds):
        return max((one.longest for one in kinds), default=0)
    older = [rows for one in kinds for rows in one.older]
    return min(kinds[0].rows - 1, max(older, default=kinds[0].rows))


def _grows_packed(variable: CarvedVariable, *, is_closed: bool) -> bool:
    """Whether its chunks are streams that can be found; of lzf, if that is needed and proves it."""
    dataset = variable.dataset
    if not dataset.type.size or not dataset.layout.chunk:
        return False
    packing = packing_of(dataset.filters)
    has_checksum = any(step.number == FLETCHER32 for step in dataset.filters)
    is_told = has_checksum or chunk_bytes(dataset) in LZF_BYTES
    return packing == DEFLATE or (packing == LZF and not is_closed and is_told)


def _doubt_last_chunks(variable: CarvedVariable) -> None:
    """Doubt what may have been moved when the file was left, if its size varies as it is packed."""
    sides = variable.dataset.layout.chunk
    if sides and any(step.number not in (SHUFFLE, FLETCHER32) for step in variable.dataset.filters):
        rows = (variable.shape or (1,))[0]
        variable.unsure_from = first_growing(rows, sides[0]) * sides[0]


def _kind_of(variable: CarvedVariable) -> tuple[object, ...]:
    """Streams of chunks of another kind cannot be taken for each other."""
    dataset = variable.dataset
    steps = tuple((step.number, step.values) for step in dataset.filters)
    return chunk_bytes(dataset), dataset.layout.chunk[0], steps


class _ChunkedTable(LastFlush):
    """Which stream is which chunk of the columns of one kind."""

    def __init__(
        self,
        columns: Mapping[str, CarvedVariable],
        alike: Mapping[str, CarvedVariable],
        rule: KeyRule,
        others: list[CarvedVariable],
        lzf: LzfStreams,
    ) -> None:
        super().__init__(columns, alike, others, lzf)
        self.rule = rule
        self.safe_rows = 0
        if not self.rows:
            return
        fixed, free = self.slots()
        for slot in free:
            if slot.is_lost:  # what its index leads to may be unpacked all the same
                slot.variable.rescued[slot.start] = Rescued(b"", 0)
        orphans = self.orphans(fixed)
        self.free, twins = self.without_twins(free)
        self.explained = self.explain(orphans, [*fixed, *twins])
        self.has_rivals = bool(rivals := self.rivals())
        self.explained += self.explain(orphans, rivals)
        self.families = self.families_of(orphans, self.free)
        self.there = [slot for slot in self.free if not slot.is_lost]
        is_lost = len(self.there) < len(self.free)
        self.as_claimed = self.claimed(self.there, self.families, is_any_lost=is_lost)
        self.older = self.older_rows(self.free, self.families)
        self.is_unfinished = is_lost or bool(self.older) or self.as_claimed is None

    def settle(self, safe_rows: int) -> None:
        """Take what each chunk is; up to `safe_rows`, fill values are values."""
        self.safe_rows = safe_rows
        if not self.rows:
            return
        if self.as_claimed is not None:
            self.take(self.there, [self.as_claimed])
            self.doubt_short(self.there, self.explained)
        elif len(self.free) <= MOST_FREE or self.packing == LZF:
            # What is left over may as well belong to others whose chunks are of this size.
            is_unknown = self.has_rivals or len(self.free) > MOST_FREE
            solutions = [] if is_unknown else self.solve(self.free, self.families)
            self.take(self.free, self.fullest(solutions, self.families))

    def doubt_short(self, free: list[ChunkSlot], explained: list[ChunkVersions]) -> None:
        """Doubt fill values where a stream that was taken for another chunk may be a newer one."""
        for slot in free:
            assert slot.claim is not None  # it was taken
            own = ChunkVersions(slot.claim.data, self.rows_of_claim(slot))
            newer = (f for f in explained if f.rows > own.rows and self.is_version(own, f.data))
            if self.is_short(slot) and any(newer):
                slot.variable.rescued[slot.start] = Rescued(own.data, slot.room, _AMBIGUOUS)

    def solve(
        self, free: list[ChunkSlot], families: list[ChunkVersions]
    ) -> list[dict[ChunkSlot, ChunkVersions]]:
        """Every way to give each chunk a family of its own, under which all keys can be.

        None if there are too many to look at all: those left out may be the right ones.
        """
        options = self.options(free, families)
        for slot in free:
            if slot.is_claim_right and (own := self.family_of(slot, [])) is not None:
                options[slot].append(own)
        order = sorted(free, key=lambda slot: len(options[slot]))
        found: list[dict[ChunkSlot, ChunkVersions]] = []
        waiting: list[dict[ChunkSlot, ChunkVersions]] = [{}]
        for _ in range(MOST_STEPS):
            if not waiting or len(found) > MOST_SOLUTIONS:
                return found if not waiting else []
            chosen = waiting.pop()
            if len(chosen) < len(order):
                slot = order[len(chosen)]
                used = set(map(id, chosen.values()))
                left = [family for family in options[slot] if id(family) not in used]
                waiting += [{**chosen, slot: family} for family in left]
            elif self.explains(chosen, families) and self.has_possible_keys(chosen):
                found.append(chosen)
        return []

    def explains(
        self, chosen: dict[ChunkSlot, ChunkVersions], families: list[ChunkVersions]
    ) -> bool:
        """Whether no family is left over: what was moved last is whole, and is one of them."""
        used = set(map(id, chosen.values()))
        return all(id(family) in used or self.may_be_next(family) for family in families)

    def fullest(
        self, solutions: list[dict[ChunkSlot, ChunkVersions]], families: list[ChunkVersions]
    ) -> list[dict[ChunkSlot, ChunkVersions]]:
        """Of several ways to place compounds, that with the most rows: each has its key in it."""
        if len(solutions) < 2 or not self.are_rows_sure(families):
            return solutions
        return [max(solutions, key=self.rows_placed)]

    def rows_placed(self, chosen: dict[ChunkSlot, ChunkVersions]) -> tuple[int, int]:
        """How many rows there are then, and how many chunks are what their index leads to."""
        rows = own = 0
        for slot, family in chosen.items():
            rows += min(self.known_rows(slot, family), self.rows - slot.first)
            own += slot.is_claim_right and self.family_of(slot, [family]) is family
        return rows, own

    def are_rows_sure(self, families: list[ChunkVersions]) -> bool:
        """Whether these are compounds, no key has two rows, and no last row lacks a value."""
        known: dict[tuple[object, ...], bytes] = {}
        size = self.row_bytes
        for family in families if ROWS in self.alike else ():
            keys = [_decoded(self.sample, family.data, name) for name in self.rule.names]
            for row in range(family.rows):
                data = family.data[row * size : (row + 1) * size]
                key = tuple(values[row].item() if len(values) else None for values in keys)
                if None in key or known.setdefault(key, data) != data:
                    return False
            fill = fill_bytes(self.sample.dataset, size)
            last = family.data[(family.rows - 1) * size : family.rows * size]
            for name, (at, length) in self.sample.fields.items():
                is_fill = last[at : at + length] == fill[at : at + length]
                if is_fill and name not in self.rule.names:
                    return False
        return bool(known)

    def has_possible_keys(self, chosen: dict[ChunkSlot, ChunkVersions]) -> bool:
        """Whether the rows have keys that are expected, none of them twice."""
        names = self.rule.names
        touched = [slot for slot in chosen if slot.name in (*names, ROWS)]
        if not touched or self.rule.pattern is not None:
            return True
        first = min(slot.first for slot in touched)
        values = {name: self.key_values(name, first, chosen) for name in names}
        seen = set()
        for row in range(self.rows - first):
            key = {name: found.get(row) for name, found in values.items()}
            if None in key.values():
                continue
            checked = self.rule.checked(key)
            row_key = tuple(key.values())
            if checked is None or row_key in seen or not self.rule.is_expected(checked):
                return False
            seen.add(row_key)
        return True

    def key_values(
        self, name: str, first: int, chosen: dict[ChunkSlot, ChunkVersions]
    ) -> dict[int, object]:
        """The values of a key column from `first` on, as far as they are known then."""
        found: dict[int, object] = {}
        mine = [slot for slot in chosen if slot.name in (name, ROWS)]
        for slot in mine:
            values = _decoded(slot.variable, chosen[slot].data, name if slot.name == ROWS else "")
            for row in range(self.known_rows(slot, chosen[slot])):
                if slot.first + row >= first and slot.first + row < self.rows:
                    found[slot.first + row - first] = values[row].item()
        if mine or name not in self.columns:
            return found
        for row in range(first, self.rows):
            try:
                found[row - first] = self.columns[name].read(row)[""].value.item()
            except (Damaged, Unsupported, KeyError, ValueError):
                continue
        return found

    def known_rows(self, slot: ChunkSlot, family: ChunkVersions) -> int:
        """Up to which row the fill value is a value, and not merely what was never written."""
        is_own = slot.claim is not None and self.is_version(
            ChunkVersions(slot.claim.data, self.rows_of_claim(slot)), family.data
        )
        safe = min(max(self.safe_rows - slot.first, 0), slot.room)
        return max(family.rows, safe) if slot.is_claim_right and is_own else family.rows

    def take(self, free: list[ChunkSlot], solutions: list[dict[ChunkSlot, ChunkVersions]]) -> None:
        for slot in free:
            families = {id(solution[slot]): solution[slot] for solution in solutions}
            if len(families) == 1:
                (family,) = families.values()
                self.give(slot, self.as_flushed(slot, family), "")
            elif slot.claim is not None:
                self.give(slot, ChunkVersions(slot.claim.data, slot.room), _AMBIGUOUS)

    def give(self, slot: ChunkSlot, family: ChunkVersions, doubt: str) -> None:
        rows = self.known_rows(slot, family)
        is_in_place = slot.claim is not None and slot.claim.data == family.data
        if slot.is_claim_right and is_in_place and rows == slot.room and not doubt:
            return  # the index leads to it
        slot.variable.rescued[slot.start] = Rescued(family.data, rows, doubt)


def _decoded(variable: CarvedVariable, data: bytes, field: str) -> Array:
    try:
        shape = (len(data) // variable.dataset.type.size,)
        return variable.elements.decode(variable.dataset.type, data, shape)[field]
    except (Damaged, Unsupported, KeyError, ValueError):
        return np.empty(0)
