"""What a salvage costs: memory for each group, open datasets, rows that are read alone."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from h5sweep.base.key_rule import KeyRule
from h5sweep.salvage import library_child
from h5sweep.salvage.salvage import salvage_files
from h5sweep.worker_files.file_view import FoundRows, FoundTask, Group
from h5sweep.worker_files.read_tasks import locate_in_view, read_tasks

FIXED_BYTES = 9_000_000  # bytes of the file that are kept or scanned, and room to write
MOST_GROUP_BYTES = 4_500


def read(groups: list[Group], rule: KeyRule) -> list[FoundTask | FoundRows]:
    return list(read_tasks(groups, locate_in_view(groups, rule, "a.h5"), rule))


def write_groups(path: Path, tasks: int) -> None:
    """Groups with two datasets and three attributes."""
    chance = np.random.default_rng(tasks)
    with h5py.File(path, "w") as file:
        for task in range(tasks):
            group = file.create_group(f"farm{task % 9}_s{task}")
            group.attrs.update({"farm_id": task % 9, "turbine_type": task % 7, "seed": task})
            group["layout"], group["aep"] = chance.random((50, 2)), chance.random()


@contextmanager
def collecting_as_in_a_new_process() -> Iterator[None]:
    """Let Python look for garbage as often as a command does: seldom, if there is much already."""
    gc.freeze()
    gc.collect()
    try:
        yield
    finally:
        gc.unfreeze()


def test_a_group_takes_little_memory(tmp_path: Path) -> None:
    """What is known of a group with two datasets and three attributes is a few kilobytes."""
    tasks, path = 2500, tmp_path / "a.h5"
    write_groups(path, tasks)
    with collecting_as_in_a_new_process():
        tracemalloc.start()
        report = salvage_files(path, key="farm_id,seed", use_library=False)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert report.recovered == tasks
    assert peak < FIXED_BYTES + tasks * MOST_GROUP_BYTES


def test_the_library_holds_few_datasets_open(tmp_path: Path) -> None:
    """Groups that were listed are not open, and of the datasets only those read last."""
    write_groups(tmp_path / "a.h5", 200)
    with h5py.File(tmp_path / "a.h5") as file:
        listing = library_child._GroupListing(file)
        listing.walk()
        found = read(listing.groups, KeyRule(("farm_id", "seed")))
        assert len(found) == 200 and all(len(one.cells) == 3 for one in found)
        assert h5py.h5f.get_obj_count(file.id) <= library_child.DATASETS_OPEN + 1


def test_a_bad_chunk_costs_its_own_rows_alone(tmp_path: Path) -> None:
    """Rows of chunks that can be read are read at once, also beside one that cannot."""
    path, rows, side = tmp_path / "a.h5", 4096, 64
    with h5py.File(path, "w") as file:
        file["seed"] = np.arange(rows)
        settings = {"chunks": (side,), "compression": "gzip"}
        table = file.create_dataset("aep", data=np.random.default_rng(1).random(rows), **settings)
        chunk = table.id.get_chunk_info(20)
    content = bytearray(path.read_bytes())
    middle = chunk.byte_offset + chunk.size // 2
    content[middle : middle + 64] = bytes(64)
    path.write_bytes(content)
    with h5py.File(path) as file:
        listing = library_child._GroupListing(file)
        listing.walk()
        found = read(listing.groups, KeyRule(("seed",)))
    alone = [one for one in found if not isinstance(one, FoundRows)]
    together = [len(one.rows) for one in found if isinstance(one, FoundRows)]
    assert [one.place for one in alone if not one.lost] == []
    assert len(alone) == side and sum(together) == rows - side
    assert max(together) > 10 * side
