"""The links of a group, in any of the three ways to store them."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from . import headers
from .btrees import ATTRIBUTES_BY_NAME, GROUP_NODE, LINKS_BY_NAME, read_records, read_tree
from .cursor import decoded
from .errors import Damaged
from .file import Hdf5File
from .headers import Header, Message, read_header
from .heaps import LocalHeap, read_fractal_heap, read_local_heap
from .messages import (
    Attribute,
    Link,
    check_group_info,
    read_attribute,
    read_attribute_info,
    read_link,
    read_link_info,
    read_symbol_table,
    shared_address,
)

# A name, an address, what kind of link it is, and where a soft link's target stands; by the width
# of addresses.
_SYMBOLS = {
    size: struct.Struct(f"<{code}{code}I4xI12x") for size, code in {2: "H", 4: "I", 8: "Q"}.items()
}


def is_group(header: Header) -> bool:
    kinds = {message.type for message in header.messages}
    return bool(kinds & {headers.SYMBOL_TABLE, headers.LINK_INFO, headers.GROUP_INFO})


def read_links(file: Hdf5File, header: Header) -> Iterator[Link]:
    """Every link of a group, as far as nothing is damaged."""
    if (message := header.first(headers.GROUP_INFO)) is not None:
        check_group_info(message.data, file.widths)
    if (message := header.first(headers.SYMBOL_TABLE)) is not None:
        yield from read_symbols(file, *read_symbol_table(message.data, file.widths))
    for message in header.all(headers.LINK):
        yield read_link(message.data, file.widths)
    if (message := header.first(headers.LINK_INFO)) is None:
        return
    dense = read_link_info(message.data, file.widths)
    if dense.heap is None or dense.tree is None:
        return
    heap = read_fractal_heap(file, dense.heap)
    for record in read_records(file, dense.tree, LINKS_BY_NAME):
        try:
            yield read_link(heap.get(record[4 : 4 + heap.id_bytes]), file.widths)
        except Damaged as error:
            file.pass_over(error)


def read_symbols(file: Hdf5File, tree: int, heap_address: int) -> Iterator[Link]:
    """The links of a group of the old kind; they must come in the order of their names."""
    heap = read_local_heap(file, heap_address)
    last = b""
    for entry in read_tree(file, tree, GROUP_NODE, file.widths.length):
        try:
            for name, link in _read_symbol_node(file, heap, entry.child):
                if name <= last:
                    file.note_fault(Damaged(f"link {link.name!r} is out of order, or there twice"))
                last = name
                yield link
        except Damaged as error:
            file.pass_over(error)


def _read_symbol_node(
    file: Hdf5File, heap: LocalHeap, address: int
) -> Iterator[tuple[bytes, Link]]:
    """The links in one node, with their names as they stand there."""
    head = file.cursor(address, 8, b"SNOD")
    version, _, count = head.uint(1), head.uint(1), head.uint(2)
    if version != 1:
        raise Damaged(f"symbol node of version {version} at {address:,}")
    most = 2 * file.superblock.leaf_k
    if count > most:
        raise Damaged(f"{count:,} links in a node for {most:,} at {address:,}")
    entry = _SYMBOLS[file.widths.offset]
    # A node has room for all that it may hold, used or not.
    data = file.read(address, 8 + most * entry.size)
    file.note_structure(address, 8 + most * entry.size)
    nowhere = (1 << 8 * file.widths.offset) - 1
    for offset, child, kind, target in entry.iter_unpack(data[8 : 8 + count * entry.size]):
        if kind > 2:
            raise Damaged(f"a link of kind {kind} at {address:,}")
        try:
            name = heap.name(offset)
        except Damaged as error:
            file.pass_over(error)
            continue
        if kind == 2:
            yield name, Link(decoded(name), None, target=_target(heap, target))
        else:
            yield name, Link(decoded(name), None if child == nowhere else child)


def _target(heap: LocalHeap, offset: int) -> str | None:
    try:
        return decoded(heap.name(offset))
    except Damaged:
        return None  # nobody has to follow it


def read_attributes(file: Hdf5File, header: Header) -> Iterator[Attribute]:
    """Every attribute of an object, as far as nothing is damaged."""

    def resolve(reference: bytes, type_number: int) -> bytes:
        return _message_elsewhere(file, reference, type_number).data

    for message in header.all(headers.ATTRIBUTE):
        if not message.is_shared:
            try:
                yield read_attribute(message.data, file.widths, resolve, address=message.address)
            except Damaged as error:
                file.pass_over(error)
    if (info := header.first(headers.ATTRIBUTE_INFO)) is None:
        return
    dense = read_attribute_info(info.data, file.widths)
    if dense.heap is None or dense.tree is None:
        return
    heap = read_fractal_heap(file, dense.heap)
    for record in read_records(file, dense.tree, ATTRIBUTES_BY_NAME):
        yield read_attribute(heap.get(record[: heap.id_bytes]), file.widths, resolve)


def resolved_message(file: Hdf5File, header: Header, type_number: int) -> Message:
    """The message itself, also where only a reference to it stands in the header."""
    message = header.first(type_number)
    if message is None:
        raise Damaged(f"the header at {header.address:,} lacks a message of type {type_number}")
    return _message_elsewhere(file, message.data, type_number) if message.is_shared else message


def _message_elsewhere(file: Hdf5File, reference: bytes, type_number: int) -> Message:
    other = read_header(file, shared_address(reference, file.widths))
    found = other.first(type_number)
    if found is None or found.is_shared:
        raise Damaged(f"the header at {other.address:,} lacks a message that is shared")
    return found
