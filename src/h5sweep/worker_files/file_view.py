"""The view every reader gives of a file: groups with attributes and variables, and their tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

import numpy as np

from ..base.plan import Key
from ..base.values import Array
from ..hdf5.errors import Damaged, Unsupported
from .find_tasks import Shaped

NEVER_WRITTEN = "perhaps none of its values were written"
NO_KEY = "it has no key"
CLAIMS_MORE = "its shape claims much more than the file holds of it"
ROWS_AT_ONCE = 8192
BYTES_AT_ONCE = 1 << 20
# Bytes that nobody foresaw cost one value, and never the others.
Failures = (
    *(Damaged, Unsupported, OSError, RuntimeError, ValueError, TypeError),
    *(ArithmeticError, LookupError),
)


class Proof(IntEnum):
    """What vouches for some bytes; the least comes first."""

    DOUBT = 0  # something speaks against them
    NOTHING = 1
    CHECKSUM = 2


class Gap(IntEnum):
    """Whether zeros may stand for what was lost."""

    NONE = 0
    MAYBE = 1  # they may as well be values
    INSIDE = 2  # they end within the value: so may values, if those of others do
    ODD = 3  # they are where values hardly begin or end
    SURE = 4  # they reach beyond the data


@dataclass(frozen=True, slots=True)
class FoundValue:
    """One value of a task as it was read, and what vouches for it."""

    value: Array
    proof: Proof = Proof.NOTHING
    is_fill: bool = False  # nothing but the fill value
    gap: Gap = Gap.NONE  # part of it lies where only zeros are, as a lost page leaves them
    runs: int = 0  # how many stretches of zeros are inside it
    is_rescued: bool = False  # out of a packed stream that its index does not lead to
    doubt: str = ""
    offset: int | None = None  # where it lies in the file, if in one piece and without a checksum


@dataclass(frozen=True, slots=True)
class FoundValues:
    """A value of some rows, as a `FoundValue` is of one; what differs among rows is an array."""

    values: Array
    fills: Array
    apart: Array  # which rows have to be read one by one, to tell what vouches for them
    proof: Proof = Proof.NOTHING
    is_rescued: bool = False
    doubt: str = ""

    def at(self, number: int) -> FoundValue:
        """The value of one row, if it is not one of those that are apart."""
        value, is_fill = np.asarray(self.values[number]), bool(self.fills[number])
        return FoundValue(value, self.proof, is_fill, is_rescued=self.is_rescued, doubt=self.doubt)


class Variable(Shaped, Protocol):
    """A dataset."""

    @property
    def rows_there(self) -> int:
        """Behind which row nothing of it can be, whatever its shape claims."""

    def read(self, row: int | None) -> dict[str, FoundValue]:
        """All of it, or one step along its first axis; by the members of a compound, else ""."""

    def rows_at_once(self, row: int) -> int:
        """How many rows may be read at once, from this one on."""

    def read_rows(self, rows: range) -> dict[str, FoundValues]:
        """What `read` gives of each of these rows."""

    def place(self, row: int | None) -> tuple[tuple[int, int], ...]:
        """Where it lies: offsets and sizes."""


@dataclass(slots=True, eq=False)
class Group:
    """A group: what it is called, what it says of itself, what it holds."""

    path: str
    attributes: dict[str, FoundValue] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)  # names that lead nowhere, and why
    lost_attributes: dict[str, str] = field(default_factory=dict)
    unread: str = ""  # why it may have more than was read
    is_unsupported: bool = False  # that is not damaged, but not known here
    address: int = -1  # where its header lies, if anybody knows
    is_linked: bool = True
    has_checked_name: bool = False
    parent: Group | None = None
    doubt: str = ""

    @property
    def place(self) -> str:
        """What it is called, or where it lies."""
        return self.path or f"a group without a name at {self.address:,}"

    def let_go(self) -> None:
        """Forget what it holds, once that was read: there may be very many groups."""
        self.attributes.clear()
        self.variables.clear()


@dataclass(slots=True)
class FoundTask:
    """One task of a file: its key, its values, and what of it could not be had."""

    place: str
    key: Key | None = None
    cells: dict[str, FoundValue] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    is_unsupported: bool = False  # what is lost is not damaged, but not known here
    key_proof: Proof = Proof.NOTHING
    is_linked: bool = True
    is_row: bool = False
    is_proven: bool = False  # a checksum of the whole result is right
    key_fills: frozenset[str] = frozenset()  # parts of the key that were perhaps never written
    key_gaps: frozenset[str] = frozenset()  # those that lie where perhaps a page was lost
    key_odd: frozenset[str] = frozenset()  # the same, where zeros are hardly values
    doubt: str = ""
    extents: tuple[tuple[int, int], ...] = ()  # of what is lost
    order: int = -1  # of groups that were written one after the other; -1: nobody knows

    def note_unwritten(self) -> None:
        """Say that a row has fill values alone: it is no task if its key is such a value too."""
        if is_blank(self.key):
            self.lost[""] = NEVER_WRITTEN
        else:
            self.doubt = self.doubt or NEVER_WRITTEN


@dataclass(slots=True)
class FoundRows:
    """Rows of one table that were read at once: what `FoundTask` says of one, of each."""

    table: str
    rows: range
    cells: dict[str, FoundValues]
    keys: list[Key | None]
    unwritten: Array
    key_fills: dict[str, Array]
    key_proof: Proof
    doubt: str
    apart: Array  # those that have to be read one by one

    def place(self, number: int) -> str:
        return row_place(self.table, self.rows[number])

    def singly(self) -> Iterator[FoundTask]:
        """Each row by itself."""
        for number, key in enumerate(self.keys):
            found = FoundTask(self.place(number), key, is_row=True, doubt=self.doubt)
            found.cells = {name: cells.at(number) for name, cells in self.cells.items()}
            if self.unwritten[number]:
                found.note_unwritten()
            found.key_proof = self.key_proof
            marked = (name for name, fills in self.key_fills.items() if fills[number])
            found.key_fills = frozenset(marked)
            yield found

    def part(self, first: int, end: int) -> FoundRows:
        """Some of the rows."""
        some = slice(first, end)
        cells = {
            name: replace(c, values=c.values[some], fills=c.fills[some])
            for name, c in self.cells.items()
        }
        key_fills = {name: fills[some] for name, fills in self.key_fills.items()}
        return FoundRows(
            *(self.table, self.rows[some], cells, self.keys[some], self.unwritten[some]),
            *(key_fills, self.key_proof, self.doubt, self.apart[some]),
        )


def is_blank(key: Key | None) -> bool:
    """Whether a key is what a row has that nobody has written to."""
    return key is None or not any(key.values())


def rows_that_fit(row_bytes: int, row: int, chunk_rows: int | None) -> int:
    """How many rows are read at once, from this one on: those of one chunk, if not too many."""
    most = min(max(BYTES_AT_ONCE // max(row_bytes, 1), 1), ROWS_AT_ONCE)
    return most if chunk_rows is None else min(most, chunk_rows - row % chunk_rows)


def row_place(table: str, row: int) -> str:
    return f"row {row:,} of {table}"
