"""Objects are found by their bytes, whatever of the file's own directories is lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cases import some_of
from h5sweep.hdf5.damage.carve import Carving, carve
from h5sweep.hdf5.source import Source
from h5sweep.salvage.carved_view import view_carved
from h5sweep.salvage.data_gaps import FileMemory
from hdf5_samples import FILTERS, INDEXES, LIBVERS, write_chunked, write_mixed

MOST_BYTES = 1 << 28
SUPERBLOCK_BYTES = {"earliest": 96, "v108": 48, "v110": 48, "v112": 48, "latest": 48}


def carve_path(path: Path) -> Carving:
    return carve(Source(path.read_bytes()))


def arrays_of(carving: Carving) -> dict[str, Any]:
    """Every dataset that can be read, by its path."""
    found = {}
    for group in view_carved(carving, FileMemory(carving, MOST_BYTES)):
        for name, variable in group.variables.items():
            path = f"{group.path.rstrip('/')}/{name}"
            found[path] = variable.read(None)[""].value
    return found


@pytest.mark.parametrize(
    "filters", some_of([f for f in FILTERS if f not in ("lzf", "scale-offset")], 3)
)
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
def test_chunks_of_every_index_and_filter(
    libver: str, index: str, filters: str, tmp_path: Path
) -> None:
    """A dataset is read bit by bit as h5py wrote it, with every index and common filter."""
    values = write_chunked(tmp_path / "a.h5", libver, index, filters)
    assert np.array_equal(arrays_of(carve_path(tmp_path / "a.h5"))["/data"], values)


@pytest.mark.parametrize("libver", LIBVERS)
def test_all_objects_are_found_without_the_superblock(libver: str, tmp_path: Path) -> None:
    """A file whose superblock is zeros shows the same objects as before."""
    path = tmp_path / "mixed.h5"
    write_mixed(path, libver)
    before = {o.path for o in carve_path(path).objects.values()}
    content = path.read_bytes()
    size = SUPERBLOCK_BYTES[libver]
    after = carve(Source(bytes(size) + content[size:]))
    assert {o.path for o in after.objects.values()} == before
    assert "/farm2_t1_s14/layout" in before


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_user_block_is_found_without_the_superblock(libver: str, tmp_path: Path) -> None:
    """Addresses that count from behind a user block are understood without the superblock."""
    path = tmp_path / "mixed.h5"
    write_mixed(path, libver, user_block=1024)
    size = SUPERBLOCK_BYTES[libver]
    content = bytearray(path.read_bytes())
    content[1024 : 1024 + size] = bytes(size)
    assert "/farm2_t1_s14/layout" in {o.path for o in carve(Source(content)).objects.values()}


def write_narrow(path: Path) -> None:
    """A file with addresses of 4 bytes."""
    settings = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    settings.set_sizes(4, 4)
    number = h5py.h5f.create(str(path).encode(), fcpl=settings)
    with h5py.File(number) as file:
        for task in range(3):
            group = file.create_group(f"s{task}")
            group.attrs["seed"] = task
            group["layout"] = np.full((5, 2), float(task))


@pytest.mark.parametrize("lost", [0, 32])
def test_addresses_of_4_bytes(lost: int, tmp_path: Path) -> None:
    """Narrow addresses are read, and recognised when the superblock is gone."""
    write_narrow(tmp_path / "a.h5")
    content = (tmp_path / "a.h5").read_bytes()
    found = arrays_of(carve(Source(bytes(lost) + content[lost:])))
    assert np.array_equal(found["/s2/layout"], np.full((5, 2), 2.0))


def test_names_come_from_heap_blocks_when_their_tree_is_lost(tmp_path: Path) -> None:
    """Links of a large group are found in its heap although the tree over them is damaged."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for task in range(40):
            file[f"value_{task:02}"] = task
    content = bytearray(path.read_bytes())
    for signature in (b"BTHD", b"BTLF", b"BTIN"):
        place = content.find(signature)
        while place >= 0:
            content[place] ^= 0xFF
            place = content.find(signature)
    assert {f"/value_{task:02}" for task in range(40)} <= arrays_of(carve(Source(content))).keys()


def test_an_object_inside_data_is_data(tmp_path: Path) -> None:
    """A file that somebody stored in a dataset is not taken for part of the file around it."""
    inner, outer = tmp_path / "inner.h5", tmp_path / "outer.h5"
    write_mixed(inner, "earliest")
    with h5py.File(outer, "w") as file:
        file["stored"] = np.frombuffer(inner.read_bytes(), np.uint8)
    assert {o.path for o in carve_path(outer).objects.values()} == {"/", "/stored"}


@pytest.mark.parametrize(
    "content",
    [
        os.urandom(8 << 20),
        b"OHDR\x02 is how a header begins, FHDB\0 a block, SNOD\x01\0 a node. " * 20_000,
        np.random.default_rng(1).integers(0, 3, 1 << 20, dtype="<i2").tobytes(),
        np.arange(1 << 18, dtype="<i8").tobytes(),
        bytes(1 << 20),
    ],
    ids=["random", "text", "small numbers", "counting", "zeros"],
)
def test_nothing_is_found_where_nothing_is(content: bytes) -> None:
    """Bytes that are no HDF5 hold no dataset."""
    assert not [o for o in carve(Source(content)).objects.values() if o.object.dataset]


@pytest.mark.slow
def test_nothing_is_found_in_a_gigabyte_of_chance() -> None:
    """A thousand million random bytes hold no object."""
    for _ in range(64):
        assert not carve(Source(os.urandom(16 << 20))).objects


def test_names_that_fit_in_two_ways_are_not_given(tmp_path: Path) -> None:
    """Groups whose directory is lost stay without a name if two heaps have names for them."""
    path = tmp_path / "names.h5"
    with h5py.File(path, "w") as file:
        for number in range(40):
            file[f"task{number:04d}/x"] = np.full(300, float(number))
    content = bytearray(path.read_bytes())
    content[:4096] = bytes(4096)
    named = names_in(bytes(content))
    assert len(named) > 30 and all(name == f"task{int(x):04d}" for name, x in named.items())
    start = content.index(b"task0000") - 8
    heap = bytes(content[start : start + 8 + 40 * 16])
    assert names_in(bytes(content + heap)) == named  # a copy says the same
    other = heap.replace(b"task", b"work")
    assert not names_in(bytes(content + other))


def names_in(content: bytes) -> dict[str, float]:
    """The groups of a file that have a name, with the value in each."""
    found = arrays_of(carve(Source(content)))
    return {path.removesuffix("/x"): float(x[0]) for path, x in found.items() if path != "/x"}
