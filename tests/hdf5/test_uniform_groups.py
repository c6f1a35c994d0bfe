"""Groups that are alike, read many at a time: nothing else than the plain reader would find."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cases import some_of
from foreign_samples import write_groups
from h5sweep.hdf5 import example_group, gather
from h5sweep.hdf5 import read_uniform as alike_module
from h5sweep.hdf5.checksum import lookup3
from h5sweep.hdf5.errors import Damaged
from h5sweep.hdf5.file import open_file
from h5sweep.hdf5.gather import lookup3_rows
from h5sweep.hdf5.read_uniform import AlikeReader
from h5sweep.hdf5.source import OpenSource, Source
from h5sweep.hdf5.tree import Tree, read_whole_tree
from h5sweep.hdf5.uniform_groups import AlikeFile

LIBVERS = ("earliest", "latest")


def read(content: bytes, reader: AlikeReader | None = None) -> AlikeFile | None:
    return (reader or AlikeReader()).read(open_file(Source(content)))


def plain(content: bytes) -> Tree:
    return read_whole_tree(open_file(Source(content)))


def values_of_plain(tree: Tree) -> dict[str, bytes]:
    """The bytes of every attribute and every dataset, by their paths."""
    found = {}
    for one in tree.objects:
        found |= {f"{one.path}@{name}": a.value for name, a in one.attributes.items()}
        if one.dataset is not None:
            at = one.dataset.compact_at or one.dataset.layout.address or 0
            is_there = at + one.dataset.size_bytes <= tree.file.size
            found[one.path] = tree.file.read(at, one.dataset.size_bytes) if is_there else b"-"
    return found


def values_of_alike(alike: AlikeFile) -> dict[str, bytes]:
    found = values_of_plain(alike.tree)
    for groups in alike.sets:
        for number, path in enumerate(groups.paths):
            chosen = np.array([number])
            for name in groups.example.data:
                found[path + name] = groups.data(name, chosen)
            for owner, name in groups.example.values:
                values = groups.value_rows((owner, name), chosen)
                found[f"{path}{owner}@{name}"] = values.tobytes()
    return found


def write_ragged(path: Path, libver: str) -> Path:
    """Groups with arrays of many lengths."""
    write_groups(path, range(60), libver=libver)
    with h5py.File(path, "a", libver=libver) as file:
        for seed, group in enumerate(file.values()):
            group["power"] = np.arange(1 + seed % 17, dtype="f4")
            group["history"] = np.ones((1 + seed % 3, 2, 1 + seed % 2))
    return path


@pytest.mark.parametrize("libver", LIBVERS)
def test_reads_what_the_plain_reader_reads(libver: str, tmp_path: Path) -> None:
    """Every attribute and every dataset of every group, and all groups but a few in sets."""
    path = write_ragged(tmp_path / "a.h5", libver)
    alike = read(path.read_bytes())
    assert alike is not None and len(alike) == 60 and not alike.tree.faults
    assert values_of_alike(alike) == values_of_plain(plain(path.read_bytes()))


@pytest.mark.parametrize("libver", LIBVERS)
def test_a_large_file_is_read_piece_by_piece(
    libver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives what the same file gives in memory, and is never there as a whole."""
    path = write_ragged(tmp_path / "a.h5", libver)
    in_memory = read(path.read_bytes())
    monkeypatch.setattr(alike_module, "MOST_FILE_BYTES", 0)
    monkeypatch.setattr(alike_module, "LARGE_BYTES", 0)
    monkeypatch.setattr(example_group, "GROUPS_AT_ONCE", 7)
    with OpenSource(path) as source:
        alike = AlikeReader().read(open_file(source))
        assert alike is not None and in_memory is not None
        assert alike.content is None and in_memory.content == path.read_bytes()
        assert values_of_alike(alike) == values_of_alike(in_memory)


def test_large_groups_are_compared_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their headers hold, it is never in memory for all of them."""
    monkeypatch.setattr(alike_module, "MOST_FILE_BYTES", 0)
    monkeypatch.setattr(example_group, "_AT_ONCE_BYTES", 1 << 20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(300):
            file.create_group(f"s{number}").attrs["x"] = np.full(7000, number, "f8")
    with OpenSource(tmp_path / "a.h5") as source:
        tracemalloc.start()
        try:
            alike = AlikeReader().read(open_file(source))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert alike is not None and len(alike) == 300
    assert peak < source.size / 2


@pytest.mark.parametrize("window", [1, 100, 1 << 20])
@pytest.mark.parametrize("gap", [0, 50, 1 << 20])
def test_pieces_of_a_file_are_those_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, gap: int
) -> None:
    """In any order, over each other, close together and far apart; and none beyond its end."""
    content = np.random.default_rng(1).integers(0, 256, 5000, np.uint8)
    (tmp_path / "a").write_bytes(content.tobytes())
    monkeypatch.setattr(gather, "_WINDOW_BYTES", window)
    monkeypatch.setattr(gather, "_GAP_BYTES", gap)
    with OpenSource(tmp_path / "a") as source:
        for size in (1, 8, 300):
            places = np.random.default_rng(size).integers(0, 5001 - size, 200)
            found = gather.gather(source, places, size)
            assert found.tolist() == [content[at : at + size].tolist() for at in places]
        with pytest.raises(Damaged, match="became shorter"):
            gather.gather(source, np.array([0, 4999]), 2)


@pytest.mark.parametrize("libver", some_of(LIBVERS[::-1], 2))
def test_no_changed_byte_passes(libver: str, tmp_path: Path) -> None:
    """With any byte changed, what is taken is what the plain reader takes, or nothing is."""
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for seed in range(9):
            group = file.create_group(f"s{seed}")
            group.attrs["seed"] = seed
            group["aep"] = np.float32(seed)
            group["layout"] = np.arange(2 + seed % 3, dtype="i2")
    sound = (tmp_path / "a.h5").read_bytes()
    reader = AlikeReader()
    assert read(sound, reader) is not None
    for position in range(3, len(sound), 13):
        content = bytearray(sound)
        content[position] ^= 0xFF
        _compare(bytes(content), reader)


def _compare(content: bytes, reader: AlikeReader) -> None:
    try:
        alike = read(content, reader)
    except Damaged:
        return
    if alike is None:
        return
    tree = plain(content)
    assert {f.path for f in tree.faults} == {f.path for f in alike.tree.faults}
    if not tree.faults:
        assert values_of_alike(alike) == values_of_plain(tree)


def test_groups_of_another_kind_are_left_to_the_plain_reader(tmp_path: Path) -> None:
    """A group with one dataset more, chunks, or a link is among the objects that were listed."""
    path = write_groups(tmp_path / "a.h5", range(20))
    with h5py.File(path, "a") as file:
        file.create_dataset("farm3_t1_s100/x", data=np.arange(9), chunks=(3,))
        file["farm3_t1_s101/link"] = h5py.SoftLink("/farm3_t1_s1/aep")
        file["farm3_t1_s5/more"] = 1.0
    alike = read(path.read_bytes())
    assert alike is not None
    listed = {o.path for o in alike.tree.objects}
    assert {"/farm3_t1_s100", "/farm3_t1_s101"} <= listed
    expected = values_of_plain(plain(path.read_bytes()))
    found = values_of_alike(alike)
    assert found.keys() == expected.keys()


def test_a_dataset_in_two_groups_is_left_to_the_plain_reader(tmp_path: Path) -> None:
    """Groups that share an object are not read as groups that are alike."""
    path = write_groups(tmp_path / "a.h5", range(20))
    with h5py.File(path, "a") as file:
        del file["farm3_t1_s7/aep"]
        file["farm3_t1_s7/aep"] = file["farm3_t1_s8/aep"]
    assert read(path.read_bytes()) is None


def test_a_name_that_is_no_text_any_more_is_out_of_order(tmp_path: Path) -> None:
    """As bytes, which is how names are ordered; as it is shown, it would stand in its old place."""
    path = tmp_path / "a.h5"
    write_groups(path, range(300))
    content = bytearray(path.read_bytes())
    assert read(bytes(content)) is not None
    content[content.index(b"farm3_t1_s0\0")] ^= 0x80
    assert read(bytes(content)) is None
    assert "out of order" in str(plain(bytes(content)).faults)


def test_a_few_datasets_are_left_to_the_plain_reader(tmp_path: Path) -> None:
    """A file without groups is not read twice; one group is compared like thousands."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["aep"], file["layout"] = 1.0, np.ones((5, 2))
    assert read((tmp_path / "a.h5").read_bytes()) is None
    alike = read(write_groups(tmp_path / "b.h5", range(1)).read_bytes())
    assert alike is not None and len(alike) == 1


def test_groups_of_groups_are_not_tasks(tmp_path: Path) -> None:
    """However alike they are: what is alike are the groups with data in them."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for farm in range(10):
            for seed in range(2):
                file[f"farm{farm}/s{seed}/aep"] = 1.0
    alike = read((tmp_path / "a.h5").read_bytes())
    assert alike is not None
    assert {path.count("/") for groups in alike.sets for path in groups.paths} == {2}


@pytest.mark.parametrize("size", [*range(30), 100, 263])
def test_checksums_of_rows(size: int) -> None:
    """Many checksums at once are those of each row."""
    rows: Any = np.random.default_rng(size).integers(0, 256, (5, size), np.uint8)
    assert lookup3_rows(rows).tolist() == [lookup3(row.tobytes()) for row in rows]
