"""B-trees of both versions, read as a flat sequence of their entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .cursor import bytes_for
from .errors import Damaged
from .file import Hdf5File

GROUP_NODE, CHUNK_NODE = 0, 1
LINKS_BY_NAME, ATTRIBUTES_BY_NAME, CHUNKS, FILTERED_CHUNKS = 5, 8, 10, 11
_MOST_DEPTH = 64
_EMPTY_NODE_BYTES = 10  # signature, version, type, checksum


class LeafEntry(NamedTuple):
    """A child of a leaf of a version-1 tree, and the key before it."""

    key: bytes
    child: int


def read_tree(file: Hdf5File, address: int, node_type: int, key_bytes: int) -> Iterator[LeafEntry]:
    """The entries of all leaves of a version-1 tree, in order."""
    yield from _read_node(file, address, node_type, key_bytes, None, set())


def _read_node(
    file: Hdf5File, address: int, node_type: int, key_bytes: int, level: int | None, seen: set[int]
) -> Iterator[LeafEntry]:
    if address in seen:
        raise Damaged(f"a tree that leads back to itself at {address:,}")
    seen.add(address)
    head = file.cursor(address, 8 + 2 * file.widths.offset, b"TREE")
    found, own_level, count = head.uint(1), head.uint(1), head.uint(2)
    if found != node_type or own_level > _MOST_DEPTH:
        raise Damaged(f"a tree of another kind at {address:,}")
    if level is not None and own_level != level:
        raise Damaged(f"a tree node of level {own_level} at {address:,} where {level} should be")
    step = key_bytes + file.widths.offset
    size = count * step + key_bytes
    data = file.read(address + 8 + 2 * file.widths.offset, size)
    file.note_structure(address, 8 + 2 * file.widths.offset + size)
    for start in range(0, count * step, step):
        field = data[start + key_bytes : start + step]
        if field.count(0xFF) == len(field):
            raise Damaged("a tree's child has no address")
        child = int.from_bytes(field, "little")
        if not own_level:
            yield LeafEntry(data[start : start + key_bytes], child)
            continue
        try:
            yield from _read_node(file, child, node_type, key_bytes, own_level - 1, seen)
        except Damaged as error:
            file.pass_over(error)


class _Shape(NamedTuple):
    """How the nodes of a version-2 tree are laid out, by their depth."""

    node_bytes: int
    record_bytes: int
    count_bytes: int
    total_bytes: tuple[int, ...]


def read_records(file: Hdf5File, address: int, tree_type: int) -> Iterator[bytes]:
    """The records of a version-2 tree, in order."""
    widths = file.widths
    size = 16 + widths.offset + 2 + widths.length + 4
    cursor = file.checked_cursor(address, size, "tree", b"BTHD")
    version, found = cursor.uint(1), cursor.uint(1)
    if version or found != tree_type:
        raise Damaged(f"a tree of version {version} and kind {found} at {address:,}")
    node_bytes, record_bytes, depth = cursor.uint(4), cursor.uint(2), cursor.uint(2)
    cursor.skip(2)
    root, count, total = cursor.address(), cursor.uint(2), cursor.length()
    if depth > _MOST_DEPTH or not record_bytes or node_bytes < _EMPTY_NODE_BYTES + record_bytes:
        raise Damaged(f"a tree at {address:,} whose nodes have no room")
    if total * record_bytes > file.size:
        raise Damaged(f"a tree at {address:,} of {total:,} records, more than the file can hold")
    if root is not None:
        shape = _shape_of(file, node_bytes, record_bytes, depth)
        yield from _read_new_node(file, shape, root, count, depth, tree_type, set())


def _shape_of(file: Hdf5File, node_bytes: int, record_bytes: int, depth: int) -> _Shape:
    most = (node_bytes - _EMPTY_NODE_BYTES) // record_bytes
    count_bytes = bytes_for(most)
    total_bytes, total = [0], most
    for level in range(1, depth + 1):
        pointer = file.widths.offset + count_bytes + total_bytes[level - 1]
        most = max((node_bytes - _EMPTY_NODE_BYTES - pointer) // (record_bytes + pointer), 0)
        total = (most + 1) * total + most
        total_bytes.append(bytes_for(total))
    return _Shape(node_bytes, record_bytes, count_bytes, tuple(total_bytes))


def _read_new_node(
    file: Hdf5File,
    shape: _Shape,
    address: int,
    count: int,
    depth: int,
    tree_type: int,
    seen: set[int],
) -> Iterator[bytes]:
    if address in seen:
        raise Damaged(f"a tree that leads back to itself at {address:,}")
    seen.add(address)
    pointer = file.widths.offset + shape.count_bytes
    pointer += shape.total_bytes[depth - 1] if depth > 1 else 0
    size = _EMPTY_NODE_BYTES + count * shape.record_bytes + (count + 1) * pointer * bool(depth)
    if size > shape.node_bytes:
        raise Damaged(f"{count:,} records in a tree node of {shape.node_bytes:,} bytes")
    signature = b"BTIN" if depth else b"BTLF"
    cursor = file.checked_cursor(address, size, "tree node", signature)
    version, found = cursor.uint(1), cursor.uint(1)
    if version or found != tree_type:
        raise Damaged(f"a node of another tree at {address:,}")
    records = [cursor.take(shape.record_bytes) for _ in range(count)]
    if not depth:
        yield from records
        return
    for record in [*records, None]:
        child = cursor.needed_address("a tree's child")
        child_count = cursor.uint(shape.count_bytes)
        cursor.skip(shape.total_bytes[depth - 1] if depth > 1 else 0)
        try:
            yield from _read_new_node(file, shape, child, child_count, depth - 1, tree_type, seen)
        except Damaged as error:
            file.pass_over(error)
        if record is not None:
            yield record
