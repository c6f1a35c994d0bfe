"""Recover the names of groups whose old-style directory is lost, from what is left of it.

A symbol node says where objects are, and where in a heap their names stand; which heap that is says
the header of the group above. Without it, a heap is looked for in which a name stands at each of
these places, in the order that nodes must have. Names are taken if no other names would fit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .. import headers
from ..errors import Damaged, Unsupported
from ..file import Hdf5File
from ..headers import read_header
from ..messages import read_symbol_table

LEAST_NAMES = 8  # fewer may stand anywhere
_MOST_NAME_BYTES = 256
_ENTRY = struct.Struct("<QQI4xQQ")  # name, object, what is cached of it, and that: tree and heap
_IS_GROUP = 1
_ALIGNED = 8


@dataclass(frozen=True)
class _NameEntry:
    offset: int  # of the name in its heap
    address: int


def find_lost_names(
    file: Hdf5File, nodes: Iterable[int], starts: Iterable[int], groups: set[int], known: set[int]
) -> dict[int, str]:
    """The names of `groups`, to which nothing leads; of nodes with objects that are `known`, none.

    `starts` are addresses at which a heap of names may begin that no other group has.
    """
    lost = [entries for node in nodes if (entries := _entries_of(file, node, groups, known))]
    every = [entry for entries in lost for entry in entries]
    are_single = len({e.offset for e in every}) == len({e.address for e in every}) == len(every)
    if len(every) < LEAST_NAMES or not are_single:
        return {}
    fitting = [names for start in starts if (names := _names_at(file, start, lost)) is not None]
    # A heap that grows is copied, and may be there twice.
    if not fitting or any(names != fitting[0] for names in fitting):
        return {}
    return {address: name for address, name in fitting[0].items() if address in groups}


def _entries_of(
    file: Hdf5File, node: int, groups: set[int], known: set[int]
) -> tuple[_NameEntry, ...]:
    """What a node lists, if these are groups to which nothing else leads; else nothing."""
    if (file.widths.offset, file.widths.length) != (8, 8):
        return ()
    found = []
    try:
        head = file.cursor(node, 8, b"SNOD")
        version, _, count = head.uint(1), head.uint(1), head.uint(2)
        data = file.read(node + 8, count * _ENTRY.size)
    except Damaged:
        return ()
    for offset, address, kind, tree, heap in _ENTRY.iter_unpack(data):
        is_group = kind == _IS_GROUP and offset % _ALIGNED == 0 and address not in known
        if version != 1 or not is_group:
            return ()
        if address in groups and not _has_directory(file, address, (tree, heap)):
            return ()
        found.append(_NameEntry(offset, address))
    return tuple(found)


def _has_directory(file: Hdf5File, address: int, expected: tuple[int, int]) -> bool:
    """Whether the header of a group says what a node has cached of it: so they are of one time."""
    try:
        message = read_header(file, address).first(headers.SYMBOL_TABLE)
        return message is not None and read_symbol_table(message.data, file.widths) == expected
    except (Damaged, Unsupported):
        return False


def _names_at(
    file: Hdf5File, start: int, nodes: list[tuple[_NameEntry, ...]]
) -> dict[int, str] | None:
    """The names, by the objects, if the heap begins at `start`; None if it cannot."""
    found: dict[int, str] = {}
    for entries in nodes:
        last = b""
        for entry, name in _read_names(file, start, entries):
            if name is None or name <= last:
                return None
            last = name
            found[entry.address] = name.decode()
    return found


def _read_names(
    file: Hdf5File, start: int, entries: tuple[_NameEntry, ...]
) -> Iterator[tuple[_NameEntry, bytes | None]]:
    for entry in entries:
        place = start + entry.offset
        size = min(_MOST_NAME_BYTES, file.size - place)
        yield entry, _name_in(file.read(place - 1, size + 1)) if size > 0 else None


def _name_in(data: bytes) -> bytes | None:
    """The name that begins behind the first of some bytes, which must be the end of another."""
    end = data.find(b"\0", 1)
    name = data[1:end]
    try:
        is_name = end > 1 and name.decode().isprintable()
    except UnicodeDecodeError:
        return None
    return name if is_name and not data[0] else None
