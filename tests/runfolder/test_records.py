"""Record files: whatever happens to one record, the others are read, and none is ever wrong."""

from __future__ import annotations

import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from cases import some_of
from h5sweep.base.process_id import this_process
from h5sweep.errors import StorageError
from h5sweep.runfolder.records import (
    FRAME_BYTES,
    MAGIC,
    NO_TASK,
    Record,
    RecordFile,
    RecordKind,
    RecordWriter,
    Scan,
    json_bytes,
    pack_record,
    read_records,
)

HEADER = b'{"data":[["aep","<f8",[]]],"key":{"seed":1}}'


def write_file(path: Path, tasks: int = 5, data: bytes = b"12345678abc") -> list[int]:
    """Write a file of a FILE record and `tasks` results; return where each record begins."""
    writer = RecordWriter(path, about={"plan": "p"})
    offsets = [0]
    for task in range(tasks):
        offsets.append(path.stat().st_size)
        writer.append(
            RecordKind.DONE, task, HEADER, data + b"%d" % task, finished_at=1.5, duration_s=0.5
        )
    writer.close()
    return [*offsets, path.stat().st_size]


def damaged(path: Path, position: int) -> None:
    """Flip all bits of one byte."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def tasks_of(records: list[Record]) -> list[int]:
    return [record.task for record in records if record.kind is not RecordKind.FILE]


def mark_of(path: Path) -> bytes:
    return path.read_bytes()[48:52]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker_1.records"


@pytest.mark.parametrize("kind", list(RecordKind))
def test_every_kind_comes_back(path: Path, kind: RecordKind) -> None:
    """A record of each kind is read back with all that was written."""
    writer = RecordWriter(path)
    writer.append(kind, 7, b'{"a":1}', b"data", finished_at=1.25, duration_s=2.5)
    writer.close()
    records, found = read_records(path)
    record = records[1]
    assert (record.kind, record.task, record.finished_at) == (kind, 7, 1.25)
    assert (record.duration_s, record.data_crc32) == (2.5, crc32(b"data"))
    content = path.read_bytes()
    assert content[record.data_offset : record.data_offset + record.data_bytes] == b"data"
    assert found == Scan([], 0, path.stat().st_size)


@pytest.mark.parametrize("size", range(17))
def test_any_length_of_header_and_data_comes_back(path: Path, size: int) -> None:
    """Padding hides no byte of a header or of data, and adds none."""
    about = {"data": [], "a": "x" * size}
    header = json_bytes(about)
    writer = RecordWriter(path)
    writer.append(RecordKind.DONE, 0, header, b"d" * size, finished_at=0)
    writer.append(RecordKind.DONE, 1, header, b"e" * size, finished_at=0)
    writer.close()
    with RecordFile(path) as file:
        frames = list(file.scan(Scan()))
        assert [file.header(*frame) for frame in frames[1:]] == [about] * 2
    assert path.stat().st_size % 8 == 0
    assert read_records(path)[0][2].data_bytes == size


def test_the_first_record_tells_whose_file_it_is(path: Path) -> None:
    """The file's first record names the process that writes it and what it was told."""
    write_file(path)
    with RecordFile(path) as file:
        assert file.owner() == this_process()
        assert (file.about() or {})["plan"] == "p"


def test_a_started_record_holds_its_tasks(path: Path) -> None:
    """A started record lists its batch, and its frame has the first task of it."""
    writer = RecordWriter(path)
    writer.append_started([4, 2, 9])
    writer.close()
    with RecordFile(path) as file:
        offset, frame = list(file.scan(Scan()))[1]
        assert (frame[2], frame[3]) == (4, RecordKind.STARTED)
        assert file.header(offset, frame) == {"tasks": [4, 2, 9]}


def test_no_two_processes_write_one_file(path: Path) -> None:
    """A record file that exists is never opened for writing again."""
    write_file(path)
    with pytest.raises(StorageError):
        RecordWriter(path)


def test_a_torn_tail_of_any_length_costs_only_its_record(path: Path) -> None:
    """Cut anywhere inside the last record, the file is sound up to there."""
    *_, last, end = write_file(path)
    content = path.read_bytes()
    for size in range(last, end):
        path.write_bytes(content[:size])
        records, found = read_records(path)
        assert tasks_of(records) == [0, 1, 2, 3], size
        assert found == Scan([], size - last, last), size


def test_damage_of_any_byte_costs_only_its_record(path: Path) -> None:
    """Any one byte damaged: the other records are read, the damage is told, nothing is wrong."""
    offsets = write_file(path)
    start, end = offsets[3], offsets[4]
    content = path.read_bytes()
    sound, _ = read_records(path)
    padding = {*range(sound[3].data_offset + sound[3].data_bytes, end)}
    assert len(padding) == -12 % 8
    for position in range(start, end):
        path.write_bytes(content)
        damaged(path, position)
        records, found = read_records(path)
        if position in padding:
            assert records == sound
            continue
        assert records == sound[:3] + sound[4:], position
        (damage,) = found.damages
        assert (damage.offset, damage.size_bytes) == (start, end - start), position
        in_frame = not 4 <= position - start < 8 and position < start + FRAME_BYTES
        assert (damage.what, damage.task) == (("frame", None) if in_frame else ("content", 2))
        assert found.torn_bytes == 0


def test_damage_of_any_byte_of_the_first_record_costs_no_result(path: Path) -> None:
    """Without a readable first record the results are all read; the file says nothing of itself."""
    offsets = write_file(path)
    content = path.read_bytes()
    for position in range(offsets[1] - 8):
        path.write_bytes(content)
        damaged(path, position)
        records, found = read_records(path)
        assert tasks_of(records) == [0, 1, 2, 3, 4], position
        assert len(found.damages) == 1, position
        with RecordFile(path) as file:
            assert file.about() is None
            assert file.owner() is None


def overwrite_with_zeros(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + bytes(end - start) + content[end:]


def cut_out(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + content[end:]


def insert_garbage(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + b"\xff" * 100 + content[start:]


def insert_magic(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + content[:8] * 20 + content[start:]


def repeat_half_a_record(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + content[start : (start + end) // 2] + content[start:]


def flip_all_bits(content: bytes, start: int, end: int) -> bytes:
    return content[:start] + bytes(b ^ 0xFF for b in content[start:end]) + content[end:]


DAMAGES = [
    overwrite_with_zeros,
    cut_out,
    flip_all_bits,
    insert_garbage,
    insert_magic,
    repeat_half_a_record,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_inside_a_record_costs_only_that_record(
    path: Path, damage: Callable[[bytes, int, int], bytes]
) -> None:
    """However a stretch inside one record is damaged, every other record is read."""
    offsets = write_file(path)
    path.write_bytes(damage(path.read_bytes(), offsets[3] + 3, offsets[4] - 5))
    records, found = read_records(path)
    assert tasks_of(records) == [0, 1, 3, 4]
    assert found.damages[0].offset == offsets[3]
    assert found.torn_bytes == 0


@pytest.mark.parametrize("damage", [insert_garbage, insert_magic, repeat_half_a_record])
def test_garbage_between_records_costs_no_record(
    path: Path, damage: Callable[[bytes, int, int], bytes]
) -> None:
    """What was put between two records is told, and both are read."""
    offsets = write_file(path)
    path.write_bytes(damage(path.read_bytes(), offsets[3], offsets[4]))
    records, found = read_records(path)
    assert tasks_of(records) == [0, 1, 2, 3, 4]
    assert found.damages[0].offset == offsets[3]


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096, 100_000])
def test_a_tail_of_zeros_is_torn_and_not_damage(path: Path, size: int) -> None:
    """What a power cut leaves behind the last record, zeros, costs nothing."""
    *_, end = write_file(path)
    with path.open("ab") as file:
        file.write(bytes(size))
    records, found = read_records(path)
    assert tasks_of(records) == [0, 1, 2, 3, 4]
    assert found == Scan([], size, end)


GARBAGE = {
    "one byte": b"\xab",
    "magic alone": MAGIC,
    "magic repeated": MAGIC * 1000,
    "text": b"No space left on device\n" * 100,
    "noise": random.Random(1).randbytes(100_000),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(2040),
    "ones": b"\xff" * 4096,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_holds_no_record(path: Path, name: str) -> None:
    """A file of something else gives no record and no exception."""
    path.write_bytes(GARBAGE[name])
    records, found = read_records(path)
    assert records == []
    assert sum(d.size_bytes for d in found.damages) + found.torn_bytes == len(GARBAGE[name])
    with RecordFile(path) as file:
        assert file.about() is None


def test_an_empty_file_is_neither_damaged_nor_torn(path: Path) -> None:
    """A process that died before its first write leaves an empty file, and that is all."""
    path.touch()
    assert read_records(path) == ([], Scan())


def test_a_record_stored_as_data_is_not_taken_for_one(path: Path, tmp_path: Path) -> None:
    """A task may return the bytes of a record file; damage around them does not bring them out."""
    other = tmp_path / "other.records"
    write_file(other, tasks=3)
    offsets = write_file(path, tasks=3, data=other.read_bytes())
    for position in (offsets[2], offsets[2] + 20, offsets[2] + 63):
        damaged(path, position)
        records, found = read_records(path)
        assert [r.task for r in records] == [NO_TASK, 0, 2]
        assert [d.size_bytes for d in found.damages] == [offsets[3] - offsets[2]]
        damaged(path, position)


def test_a_record_stored_as_data_behind_a_damaged_first_record(path: Path, tmp_path: Path) -> None:
    """Not even with the first record gone is data taken for a record."""
    other = tmp_path / "other.records"
    write_file(other, tasks=3)
    write_file(path, tasks=3, data=other.read_bytes())
    damaged(path, 4)
    assert [r.task for r in read_records(path)[0]] == [0, 1, 2]


def test_a_growing_file_is_read_on_from_where_the_last_scan_ended(path: Path) -> None:
    """Scans that each go on at the end of the one before meet every record exactly once."""
    *_, end = write_file(path)
    content = path.read_bytes()
    seen: list[int] = []
    start = 0
    for size in range(0, end + 1, 7):
        path.write_bytes(content[:size])
        found = Scan()
        with RecordFile(path) as file:
            seen += [frame[2] for _, frame in file.scan(found, start=start)]
        assert found.damages == []
        start = found.end
    path.write_bytes(content)
    with RecordFile(path) as file:
        seen += [frame[2] for _, frame in file.scan(Scan(), start=start)]
    assert seen == [NO_TASK, 0, 1, 2, 3, 4]


def craft_frame(path: Path, offset: int, **fields: int) -> None:
    """Overwrite fields of a frame and make its checksum right again."""
    places = {"kind": ("<B", 16), "header_bytes": ("<I", 20), "data_bytes": ("<Q", 24)}
    content = bytearray(path.read_bytes())
    for name, value in fields.items():
        form, place = places[name]
        struct.pack_into(form, content, offset + place, value)
    checksum = crc32(content[offset + 8 : offset + 60])
    struct.pack_into("<I", content, offset + 60, checksum)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "fields",
    [
        {"data_bytes": 2**64 - 1},
        {"data_bytes": 2**63},
        {"header_bytes": 2**32 - 1},
        {"header_bytes": 2**32 - 1, "data_bytes": 2**64 - 1},
        {"data_bytes": 10_000},
        {"data_bytes": 0},
        {"header_bytes": 0},
        {"kind": 8},
        {"kind": 255},
    ],
    ids=str,
)
def test_an_absurd_frame_with_a_right_checksum_costs_only_its_record(
    path: Path, fields: dict[str, int]
) -> None:
    """Lengths and kinds are not believed because a checksum is right."""
    offsets = write_file(path)
    craft_frame(path, offsets[3], **fields)
    records, found = read_records(path)
    assert tasks_of(records) == [0, 1, 3, 4]
    assert found.damages[0].offset == offsets[3]
    assert found.torn_bytes == 0


def test_absurd_lengths_at_the_end_are_a_torn_tail(path: Path) -> None:
    """A last record that says it is longer than the file is a torn one."""
    *_, last, end = write_file(path)
    craft_frame(path, last, data_bytes=2**64 - 1)
    records, found = read_records(path)
    assert tasks_of(records) == [0, 1, 2, 3]
    assert found == Scan([], end - last, last)


def test_records_of_another_file_appended_by_hand_are_damage(path: Path, tmp_path: Path) -> None:
    """Two record files joined with cat: those of the second are told, not mixed in."""
    other = tmp_path / "other.records"
    write_file(other, tasks=2)
    *_, end = write_file(path, tasks=3)
    path.write_bytes(path.read_bytes() + other.read_bytes())
    records, found = read_records(path)
    assert tasks_of(records) == [0, 1, 2]
    assert [(d.offset, d.size_bytes) for d in found.damages] == [(end, other.stat().st_size)]


def test_packing_is_what_the_writer_writes(path: Path) -> None:
    """`pack_record` gives the bytes that a writer appends."""
    start = write_file(path, tasks=1)[1]
    packed = pack_record(mark_of(path), RecordKind.DONE, 0, HEADER, b"12345678abc0", 1.5, 0.5)
    assert path.read_bytes()[start:] == packed


APPENDER = """
import sys
from pathlib import Path
from h5sweep.runfolder.records import RecordKind, RecordWriter
writer = RecordWriter(Path(sys.argv[1]))
for task in range(10**9):
    data = b"%d " % task * (task * 7919 % 20_000)
    writer.append(RecordKind.DONE, task, b"{}", data, finished_at=0)
    sys.stdout.buffer.write(b"%d\\n" % task)
    sys.stdout.buffer.flush()
"""


@pytest.mark.parametrize("acks", some_of(range(1, 600, 30), 7))
def test_a_killed_writer_leaves_every_record_it_had_acknowledged(path: Path, acks: int) -> None:
    """SIGKILL at any moment: what was appended is there and sound, with one torn tail at most."""
    command = [sys.executable, "-c", APPENDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        read = [process.stdout.readline() for _ in range(acks)]
        process.send_signal(signal.SIGKILL)
        read += process.stdout.readlines()
        process.wait()
    # A line cut by the kill is no acknowledgement.
    acknowledged = [int(line) for line in read if line.endswith(b"\n")]
    records, found = read_records(path)
    assert found.damages == []
    content = path.read_bytes()
    tasks = tasks_of(records)
    assert tasks == list(range(len(tasks)))
    assert len(acknowledged) <= len(tasks) <= len(acknowledged) + 1
    for record in records[1:]:
        expected = b"%d " % record.task * (record.task * 7919 % 20_000)
        data = content[record.data_offset : record.data_offset + record.data_bytes]
        assert data == expected
