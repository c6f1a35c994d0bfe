"""Our own reader of HDF5 lists what h5py lists, and reads what h5py reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cases import some_of
from h5sweep.hdf5.errors import Damaged, Unsupported
from h5sweep.hdf5.file import Hdf5File, open_file
from h5sweep.hdf5.headers import SYMBOL_TABLE, read_header
from h5sweep.hdf5.messages import read_symbol_table
from h5sweep.hdf5.read_data import read_chunk, read_column
from h5sweep.hdf5.source import OpenSource, Source
from h5sweep.hdf5.tree import Tree, read_whole_tree
from hdf5_samples import FILTERS, INDEXES, LIBVERS, write_chunked, write_mixed

READABLE = {"none", "gzip", "gzip and shuffle", "fletcher32", "all three", "lzf"}


def tree_of(path: Path) -> Tree:
    return read_whole_tree(open_file(Source(path.read_bytes())))


@pytest.mark.parametrize("user_block", [0, 512, 4096])
@pytest.mark.parametrize("libver", LIBVERS)
def test_lists_what_h5py_lists(libver: Any, user_block: int, tmp_path: Path) -> None:
    """The same objects, shapes and attributes, and nothing wrong."""
    path = tmp_path / "mixed.h5"
    write_mixed(path, libver, user_block=user_block, groups=30)
    expected: dict[str, tuple[Any, set[str]]] = {}

    def take(name: str, item: Any) -> None:
        expected["/" + name] = (getattr(item, "shape", "none"), set(item.attrs))

    with h5py.File(path) as file:
        file.visititems(take)
    tree = tree_of(path)
    assert [f"{fault.path}: {fault.error}" for fault in tree.faults] == []
    found = {o.path: (_shape(o), set(o.attributes)) for o in tree.objects if o.path != "/"}
    assert found == expected
    assert tree.root is not None and set(tree.root.attributes) == {"title", "numbers"}
    assert tree.links_out == 1


def _shape(found: Any) -> Any:
    return "none" if found.dataset is None else found.dataset.space.dims


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
def test_finds_every_chunk(libver: Any, index: str, filters: str, tmp_path: Path) -> None:
    """Every kind of index gives the chunks that the library finds, and their elements."""
    path = tmp_path / "chunked.h5"
    values = write_chunked(path, libver, index, filters)
    with h5py.File(path) as file:
        data = file["data"]
        chunks: list[Any] = []
        data.id.chunk_iter(chunks.append)
    with OpenSource(path) as source:
        file_ = open_file(source)
        tree = read_whole_tree(file_)
        assert [f"{fault.path}: {fault.error}" for fault in tree.faults] == []
        ((_, dataset),) = tree.datasets
        found = {(c.address, c.size, c.mask) for c in dataset.chunks}
        assert found == {(c.byte_offset, c.size, c.filter_mask) for c in chunks}
        if index != "extensible array, second axis":  # there the library lists wrong places
            assert {c.start for c in dataset.chunks} == {c.chunk_offset for c in chunks}
        if filters in READABLE:
            for chunk in dataset.chunks[:: max(len(dataset.chunks) // 50, 1)]:
                _check_chunk(file_, dataset, chunk, values)


def _check_chunk(file: Hdf5File, dataset: Any, chunk: Any, values: Any) -> None:
    data = np.frombuffer(read_chunk(file, dataset, chunk), "<i4").reshape(dataset.layout.chunk)
    where = tuple(slice(at, at + side) for at, side in zip(chunk.start, data.shape, strict=True))
    expected = values[where]
    assert (data[tuple(slice(0, n) for n in expected.shape)] == expected).all()


@pytest.mark.parametrize("chunks", [None, (4,)])
@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u1", "<f8", ">f4", "S4", "text"])
def test_reads_columns(dtype: str, chunks: Any, tmp_path: Path) -> None:
    """Numbers of either byte order and texts of either kind come out as they went in."""
    values = ["a", "bc", "", "defg", "h", "i"] if dtype in ("S4", "text") else [0, 1, 2, 100, 5, 6]
    stored = values if dtype == "text" else np.array(values, dtype)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("column", data=stored, chunks=chunks)
    file_ = open_file(Source((tmp_path / "c.h5").read_bytes()))
    ((_, dataset),) = read_whole_tree(file_).datasets
    assert list(read_column(file_, dataset)) == values


@pytest.mark.parametrize("libver", some_of(LIBVERS[::-1], 9))
def test_every_flipped_byte_is_damaged_unsupported_or_harmless(libver: Any, tmp_path: Path) -> None:
    """Whatever one byte becomes, reading ends, and only in the two ways it may fail."""
    path = tmp_path / "small.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file["group/layout"] = np.arange(4.0)
        file.create_dataset("rows", data=np.arange(9), chunks=(2,), maxshape=(None,))
        file["group"].attrs["seed"] = 3
    content = path.read_bytes()
    noticed = 0
    for place in range(len(content)):
        changed = content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
        try:
            tree = read_whole_tree(open_file(Source(changed)))
            noticed += bool(tree.faults)
            for _, dataset in tree.datasets:
                list(read_column(tree.file, dataset, range(min(dataset.rows or 0, 3))))
        except (Damaged, Unsupported):
            noticed += 1
    assert noticed > 100


def test_a_tree_that_leads_back_to_itself_ends(tmp_path: Path) -> None:
    """A node that is its own child is damage, not an endless loop."""
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        for number in range(900):
            file.create_group(f"group_{number:03}")
    content = bytearray(path.read_bytes())
    file_ = open_file(Source(bytes(content)))
    message = read_header(file_, file_.superblock.root).first(SYMBOL_TABLE)
    assert message is not None
    root, _ = read_symbol_table(message.data, file_.widths)
    assert content[root : root + 4] == b"TREE"
    content[root + 32 : root + 40] = root.to_bytes(8, "little")
    faults = read_whole_tree(open_file(Source(bytes(content)))).faults
    assert any("leads back to itself" in str(fault.error) for fault in faults)


@pytest.mark.parametrize("claimed", [2**31, 2**40, 2**63 - 1])
def test_a_size_from_the_file_is_not_believed(claimed: int, tmp_path: Path) -> None:
    """A heap that claims to be larger than the file is damage, and no memory is taken for it."""
    path = tmp_path / "f.h5"
    with h5py.File(path, "w") as file:
        file["a"] = 1
    content = bytearray(path.read_bytes())
    heap = content.index(b"HEAP")
    content[heap + 8 : heap + 16] = claimed.to_bytes(8, "little")
    faults = read_whole_tree(open_file(Source(bytes(content)))).faults
    assert faults and faults[0].is_listing and isinstance(faults[0].error, Damaged)


def test_a_file_that_shrinks_while_it_is_read_is_damaged(tmp_path: Path) -> None:
    """Cut short after it was opened: an error to catch, no signal that kills."""
    path = tmp_path / "f.h5"
    write_mixed(path, "earliest")
    with OpenSource(path) as source:
        file = open_file(source)
        source._blocks.clear()
        os.truncate(path, 300)
        assert any(isinstance(f.error, Damaged) for f in read_whole_tree(file).faults)


@pytest.mark.parametrize("layout", ["chunked", "contiguous"])
def test_data_never_lie_where_the_superblock_is(layout: str, tmp_path: Path) -> None:
    """A lost sector makes an address 0; the library reads the file's first bytes as values."""
    path = tmp_path / "x.h5"
    chunks = (4,) if layout == "chunked" else None
    with h5py.File(path, "w", libver="earliest") as file:
        data = file.create_dataset("x", data=np.arange(8) + 1.5, chunks=chunks)
        at = data.id.get_chunk_info(1).byte_offset if chunks else data.id.get_offset()
    content, address = path.read_bytes(), at.to_bytes(8, "little")
    behind = b"" if chunks else (64).to_bytes(8, "little")  # its size
    first = content.index(b"TREE\x01") if chunks else 0
    place = content.index(address + behind, first)
    path.write_bytes(content[:place] + bytes(8) + content[place + 8 :])
    with h5py.File(path) as file:
        assert not (file["x"][()] == np.arange(8) + 1.5).all()  # without a word
    tree = tree_of(path)
    assert [str(fault.error) for fault in tree.faults if "superblock" in str(fault.error)]


def test_a_chunk_is_in_its_index_once_and_of_full_size(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(8) + 1.5, chunks=(4,))
    content = path.read_bytes()
    node = content.index(b"TREE\x01")
    second = node + 24 + 24 + 8  # behind the head, and the first key and address
    assert content[second + 8 : second + 16] == (4).to_bytes(8, "little")
    for change, said in (
        (content[second : second + 8] + bytes(8), "two chunks begin at (0,)"),
        (bytes(8) + content[second + 8 : second + 16], "a chunk of 0 bytes, not 32"),
    ):
        path.write_bytes(content[:second] + change + content[second + 16 :])
        assert said in [str(fault.error) for fault in tree_of(path).faults]
