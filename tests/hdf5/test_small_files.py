"""Many small files, read at once: what the plain reader finds in each, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep.hdf5.errors import Damaged
from h5sweep.hdf5.file import open_file
from h5sweep.hdf5.gather import JoinedSource
from h5sweep.hdf5.read_uniform import AlikeReader
from h5sweep.hdf5.source import Source
from h5sweep.hdf5.tree import Tree, read_whole_tree
from h5sweep.hdf5.uniform_groups import AlikeFile

LIBVERS = ("earliest", "latest")


def write_small(path: Path, libver: Any, seeds: range, turbines: int = 3) -> bytes:
    """A few groups of one task each, with a number and a text above them."""
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["run"] = len(seeds) * turbines
        file.attrs["by"] = np.bytes_("slsqp")
        for seed in seeds:
            group = file.create_group(f"s{seed}")
            group.attrs["seed"] = seed
            group["aep"] = np.float32(seed)
            group["layout"] = np.arange(2.0 * turbines).reshape(turbines, 2)
    return path.read_bytes()


def known_by(content: bytes) -> AlikeReader:
    """A reader that has read one file and takes others like it."""
    reader = AlikeReader()
    file = open_file(Source(content))
    alike = reader.read(file)
    assert alike is not None and reader.remember(file, alike)
    return reader


def values(tree: Tree) -> dict[str, bytes]:
    found = {}
    for one in tree.objects:
        found |= {f"{one.path}@{name}": a.value for name, a in one.attributes.items()}
        if one.dataset is not None:
            at = one.dataset.compact_at or one.dataset.layout.address or 0
            found[one.path] = tree.file.read(at, one.dataset.size_bytes)
    return found


def values_of_alike(alike: AlikeFile) -> dict[str, bytes]:
    found = values(alike.tree)
    for groups in alike.sets:
        for number, path in enumerate(groups.paths):
            chosen = np.array([number])
            for name in groups.example.data:
                found[path + name] = groups.data(name, chosen)
            for place in groups.example.values:
                rows = groups.value_rows(place, chosen)
                found[f"{path}{place[0]}@{place[1]}"] = rows.tobytes()
    return found


@pytest.mark.parametrize("libver", LIBVERS)
def test_reads_what_the_plain_reader_reads(libver: str, tmp_path: Path) -> None:
    """Names, values and lengths are those of each file, whatever the first had."""
    contents = [
        write_small(tmp_path / "a.h5", libver, range(seed, seed + 1), 1 + seed % 7)
        for seed in range(8, 120)
    ]
    reader = known_by(contents[0])
    found = reader.read_small(contents).split()
    taken = [n for n, alike in enumerate(found) if alike is not None]
    # In headers of the new kind names of another length make another file.
    assert len(taken) == (112 if libver == "earliest" else 2)
    for number in taken:
        alike = found[number]
        assert alike is not None
        whole = alike.over(Source(contents[number]))
        tree = read_whole_tree(open_file(Source(contents[number])))
        assert values_of_alike(whole) == values(tree)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("libver", LIBVERS)
def test_a_damaged_file_is_left_out_or_as_the_plain_reader_has_it(
    libver: str, count: int, tmp_path: Path
) -> None:
    """Whichever byte is wrong, and whatever lies beside the file in memory."""
    sound = write_small(tmp_path / "a.h5", libver, range(count))
    beside = write_small(tmp_path / "b.h5", libver, range(5, 5 + count))
    reader = known_by(sound)
    for position in range(0, len(sound), 5):
        content = bytearray(sound)
        content[position] ^= 0xFF
        first, alike, last = reader.read_small([beside, bytes(content), beside]).split()
        if alike is None:
            continue
        assert first is not None and last is not None
        tree = read_whole_tree(open_file(Source(bytes(content))))
        assert not tree.faults, position
        assert values_of_alike(alike.over(Source(bytes(content)))) == values(tree), position


def test_a_file_of_another_kind_does_not_keep_the_others_out(tmp_path: Path) -> None:
    """One with a group more, one that is cut, one that is none: each is left out alone."""
    contents = [write_small(tmp_path / "a.h5", "earliest", range(n, n + 1)) for n in range(9)]
    reader = known_by(contents[0])
    contents[2] = write_small(tmp_path / "a.h5", "earliest", range(2))
    contents[4] = contents[4][:-1]
    contents[6] = b"no HDF5"
    found = reader.read_small(contents).split()
    assert [n for n, alike in enumerate(found) if alike is None] == [2, 4, 6]


def test_nothing_is_read_across_the_end_of_a_file() -> None:
    """What would lie in two files is damage, and not the next file's first bytes."""
    source = JoinedSource([b"abcd", b"efgh"])
    assert source.read(4, 4) == b"efgh" and source.read(3, 1) == b"d"
    for offset, size in ((3, 2), (7, 2), (8, 1)):
        with pytest.raises(Damaged):
            source.read(offset, size)


def test_a_tree_that_only_we_can_read_is_no_example(tmp_path: Path) -> None:
    """Groups are moved as they are, and the library goes by keys and siblings of tree nodes."""
    sound = write_small(tmp_path / "a.h5", "earliest", range(1))
    assert AlikeReader().read(open_file(Source(sound))) is not None
    node = sound.rindex(b"TREE")
    for offset in (8, 16, 24, 40):
        content = bytearray(sound)
        content[node + offset] ^= 0x10
        assert AlikeReader().read(open_file(Source(bytes(content)))) is None
