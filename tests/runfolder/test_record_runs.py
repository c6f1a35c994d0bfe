"""Taking records many at a time gives what taking them one by one gives."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from h5sweep.base.crc32_combine import of_concatenation
from h5sweep.base.plan import Plan, plan_product
from h5sweep.runfolder import uniform_records as stretches
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import FRAME_BYTES, RecordFile, RecordKind, RecordWriter, Scan
from h5sweep.runfolder.uniform_records import RecordRun, scan_stretches
from h5sweep.state.state import FolderState, read_state

RECORDS = 200


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "out.h5")
    folder.create()
    return folder


def write_records(
    folder: RunFolder, plan: Plan, tasks: list[int], data_bytes: int = 100
) -> list[int]:
    """Record results, a failure and a start among them; return where each record begins."""
    path = folder.new_record_path("worker")
    writer = RecordWriter(path, about={"plan": plan.id})
    offsets = [path.stat().st_size]
    for place, task in enumerate(tasks):
        if place == 120:
            error = b'{"error":{"type":"E","message":"m","where":"","traceback":""},"key":{}}'
            writer.append(RecordKind.RAISED, task, error, finished_at=float(place))
            offsets.append(path.stat().st_size)
            writer.append_started(tasks[place:])
            offsets.append(path.stat().st_size)
        data = np.random.default_rng(task).bytes(data_bytes)
        writer.append(
            RecordKind.DONE, task, b'{"data":[],"key":{}}', data, finished_at=float(place)
        )
        offsets.append(path.stat().st_size)
    writer.close()
    return offsets


def as_values(state: FolderState) -> tuple[object, ...]:
    return (
        state.kinds,
        state.files,
        state.offsets,
        state.finished_at,
        state.damages,
        state.duplicates,
        sorted(state.failures),
        sorted(state.lost),
        sorted(state.running),
    )


def assert_same(folder: RunFolder, plan: Plan) -> FolderState:
    singly = read_state(folder, plan)
    many = read_state(folder, plan, scan=scan_stretches)
    assert as_values(many) == as_values(singly)
    return many


@pytest.mark.parametrize("data_bytes", [0, 1, 7, 8, 100, 1000, 70_000])
def test_the_state_is_the_same(folder: RunFolder, data_bytes: int) -> None:
    """Whatever the size of the records, padded or not, small or too large for a stretch."""
    plan = plan_product({"seed": range(RECORDS + 5)})
    write_records(folder, plan, list(range(RECORDS)), data_bytes)
    assert assert_same(folder, plan).tasks_done == RECORDS


def test_the_state_is_the_same_for_many_files(folder: RunFolder) -> None:
    """However many files there are, and one of them damaged."""
    plan = plan_product({"seed": range(RECORDS * 6)})
    for first in range(0, len(plan), RECORDS):
        write_records(folder, plan, list(range(first, first + RECORDS)))
    path = folder.record_paths()[2]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert assert_same(folder, plan).damages


def test_most_records_are_taken_in_stretches(folder: RunFolder) -> None:
    """A file of 200 results, interrupted once, is two stretches and a few single records."""
    plan = plan_product({"seed": range(RECORDS)})
    write_records(folder, plan, list(range(RECORDS)))
    with RecordFile(folder.record_paths()[0]) as file:
        taken = list(scan_stretches(file, Scan()))
        lengths = [len(item) for item in taken if isinstance(item, RecordRun)]
        assert sum(lengths) > 190 - stretches.LEAST_RECORDS
        del taken


@pytest.mark.exhaustive
def test_damage_anywhere_is_met_as_one_by_one(folder: RunFolder) -> None:
    """A byte damaged at any place of a record, anywhere in a stretch, costs that record alone."""
    plan = plan_product({"seed": range(RECORDS)})
    offsets = write_records(folder, plan, list(range(RECORDS)))
    (path,) = folder.record_paths()
    content = path.read_bytes()
    places = random.Random(1)
    for start, end in pairwise(offsets):
        position = places.randrange(start, end)
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 255]) + content[position + 1 :]
        )
        assert_same(folder, plan)


def test_every_byte_of_a_record_in_a_stretch_is_checked(folder: RunFolder) -> None:
    """No byte of a record but its last padding can change unseen."""
    plan = plan_product({"seed": range(RECORDS)})
    offsets = write_records(folder, plan, list(range(RECORDS)))
    (path,) = folder.record_paths()
    content = path.read_bytes()
    for position in range(offsets[50], offsets[51] - (-100 % 8)):
        path.write_bytes(
            content[:position] + bytes([content[position] ^ 255]) + content[position + 1 :]
        )
        state = read_state(folder, plan, scan=scan_stretches)
        assert state.tasks_done == RECORDS - 1, position - offsets[50]
        assert len(state.damages) == 1


def test_two_damages_that_cancel_in_a_sum_are_seen(folder: RunFolder) -> None:
    """The same bit flipped at the same place of two records does not cancel out."""
    plan = plan_product({"seed": range(RECORDS)})
    offsets = write_records(folder, plan, list(range(RECORDS)))
    (path,) = folder.record_paths()
    content = bytearray(path.read_bytes())
    for record in (10, 30):
        content[offsets[record] + FRAME_BYTES + 80] ^= 1
    path.write_bytes(content)
    state = assert_same(folder, plan)
    assert [damage.task for damage in state.damages] == [10, 30]


def test_torn_at_any_length(folder: RunFolder) -> None:
    """A file cut anywhere in its last records is read up to the cut."""
    plan = plan_product({"seed": range(RECORDS)})
    offsets = write_records(folder, plan, list(range(RECORDS)))
    (path,) = folder.record_paths()
    content = path.read_bytes()
    for size in range(offsets[-4], offsets[-1], 5):
        path.write_bytes(content[:size])
        assert_same(folder, plan)


def test_results_that_are_there_twice(folder: RunFolder) -> None:
    """Tasks repeated within a file and between files: the newest counts, as one by one."""
    plan = plan_product({"seed": range(RECORDS)})
    write_records(folder, plan, [*range(100), *range(100)])
    write_records(folder, plan, list(range(50, RECORDS)))
    state = assert_same(folder, plan)
    assert state.duplicates == 150


def test_numbers_beyond_the_plan_are_left_out(folder: RunFolder) -> None:
    """A plan that is older than the records is not written past its end."""
    plan = plan_product({"seed": range(RECORDS)})
    write_records(folder, plan, list(range(RECORDS)))
    assert_same(folder, Plan(plan_product({"seed": range(90)}).columns, plan.id))


def test_shifts_of_checksums() -> None:
    """The checksum of a concatenation follows from those of its pieces, for any number of them."""
    for count in (1, 2, 3, 5, 31, 32, 100):
        for size in (1, 8, 33):
            pieces = [np.random.default_rng([count, size, n]).bytes(size) for n in range(count)]
            checksums = np.array([crc32(piece) for piece in pieces], np.uint32)
            assert of_concatenation(checksums, size) == crc32(b"".join(pieces))
