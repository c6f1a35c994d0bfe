"""The format on disk is what docs/format.md says: a reader written from that page agrees."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from h5sweep.base.plan import Key, key_json, plan_product
from h5sweep.base.process_id import ProcessId, this_process
from h5sweep.base.values import ResultEncoder, decode_result, result_header, schema_from_header
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import (
    RecordFile,
    RecordKind,
    RecordWriter,
    Scan,
    json_bytes,
    record_of,
)
from h5sweep.state.state import read_state
from independent_reader import read_plan, read_results
from places import DOCS, SAMPLES

PAGE = DOCS / "format.md"
PLAN = plan_product({"kind": ["on", "ö", "a\nb"], "x": [0.5, math.inf, -math.inf], "f": [True]})


OTHER_DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "f4", "c16")


def result_of(task: int) -> dict[str, Any]:
    """A result with every dtype, and shapes that vary with the task."""
    return {
        "aep": task / 7,
        "label": "é" * task,
        "layout": np.arange(2.0 * task).reshape(task, 2).T,
        "names": np.array([["a", "", "\N{WIND BLOWING FACE}"]]),
        "is_good": task % 2 == 0,
        "count": -task,
        "when": np.array(["2026-01-01", "NaT"], "M8[25s]"),
        "took": np.timedelta64(task, "ms"),
        "half": np.array([0.1, math.nan], ">f2"),
        "wave": np.array([1 + 2j], "c8"),
        **{f"n_{kind}": np.array([task], kind) for kind in OTHER_DTYPES},
    }


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "layouts.h5")
    folder.create()
    folder.save_plan(PLAN)
    return folder


def write_records(folder: RunFolder) -> tuple[Path, list[int]]:
    """Write a file with records of most kinds; return where each outcome begins, and the end."""
    path = folder.new_record_path("worker")
    writer = RecordWriter(path, about={"role": "worker", "plan": PLAN.id})
    encode = ResultEncoder(PLAN.names).encode
    offsets = []
    for task in range(len(PLAN)):
        key = PLAN.key(task)
        writer.append_started([task])
        offsets.append(path.stat().st_size)
        if task == 4:
            failure = json_bytes({"key": {}, "error": {"type": "E", "message": "m"}})
            writer.append(RecordKind.RAISED, task, failure, finished_at=2.0)
            continue
        schema, data = encode(result_of(task))
        header = result_header(schema, key_json(key).encode())
        writer.append(RecordKind.DONE, task, header, data, finished_at=2.0, duration_s=1.0)
    writer.close()
    return path, [*offsets, path.stat().st_size]


def our_results(path: Path) -> tuple[list[tuple[int, Key, dict[str, Any]]], int]:
    """The same as `read_results`, read by the package."""
    found, results = Scan(), []
    with RecordFile(path) as file:
        for offset, frame in file.scan(found):
            record = record_of(offset, frame)
            if record.kind is RecordKind.DONE:
                header = file.header(offset, frame)
                start = record.data_offset
                data = file.read(start, record.data_bytes)
                values = decode_result(schema_from_header(header), data)
                results.append((record.task, header["key"], values))
    return results, len(found.damages)


def untouched(content: bytes, offsets: list[int]) -> bytes:
    return content


def torn_tail(content: bytes, offsets: list[int]) -> bytes:
    return content[:-30]


def torn_frame(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[-2] + 20]


def damaged_frame(content: bytes, offsets: list[int]) -> bytes:
    return flipped(content, offsets[3] + 9)


def damaged_data(content: bytes, offsets: list[int]) -> bytes:
    return flipped(content, offsets[4] - 150)


def damaged_first_record(content: bytes, offsets: list[int]) -> bytes:
    return flipped(content, 4)


def hole(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[2]] + bytes(300) + content[offsets[2] + 300 :]


def zeros_behind(content: bytes, offsets: list[int]) -> bytes:
    return content + bytes(4096)


def garbage_behind(content: bytes, offsets: list[int]) -> bytes:
    return content + b"\xff" * 4096


def flipped(content: bytes, position: int) -> bytes:
    """Flip all bits of one byte."""
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


DAMAGES = [
    (untouched, [0, 1, 2, 3, 5, 6, 7, 8], 0),
    (torn_tail, [0, 1, 2, 3, 5, 6, 7], 0),
    (torn_frame, [0, 1, 2, 3, 5, 6, 7], 0),
    (damaged_frame, [0, 1, 2, 5, 6, 7, 8], 1),
    (damaged_data, [0, 1, 2, 5, 6, 7, 8], 1),
    (damaged_first_record, [0, 1, 2, 3, 5, 6, 7, 8], 1),
    (hole, [0, 1, 3, 5, 6, 7, 8], 1),
    (zeros_behind, [0, 1, 2, 3, 5, 6, 7, 8], 0),
    (garbage_behind, [0, 1, 2, 3, 5, 6, 7, 8], 1),
]


@pytest.mark.parametrize(("damage", "tasks", "damages"), DAMAGES)
def test_an_independent_reader_agrees(
    folder: RunFolder,
    damage: Callable[[bytes, list[int]], bytes],
    tasks: list[int],
    damages: int,
) -> None:
    """Torn, damaged or whole, the page says enough to read exactly what the package reads."""
    path, offsets = write_records(folder)
    path.write_bytes(damage(path.read_bytes(), offsets))
    theirs, ours = read_results(path), our_results(path)
    assert theirs[1] == ours[1] == damages
    assert [task for task, _, _ in theirs[0]] == [task for task, _, _ in ours[0]] == tasks
    for (task, key, values), (_, our_key, our_values) in zip(theirs[0], ours[0], strict=True):
        assert key == our_key == json.loads(key_json(PLAN.key(task)))
        assert_same_values(values, our_values)
        assert values["aep"] == task / 7
        assert values["label"] == "é" * task
        assert np.array_equal(values["layout"], result_of(task)["layout"])


def assert_same_values(values: dict[str, Any], our_values: dict[str, Any]) -> None:
    assert list(values) == list(our_values) == list(result_of(1))
    for name, value in values.items():
        ours = our_values[name]
        assert (value.dtype, value.shape) == (ours.dtype, ours.shape)
        assert value.tolist() == ours.tolist() or value.tobytes() == ours.tobytes()


def test_an_independent_reader_agrees_on_every_damaged_byte(folder: RunFolder) -> None:
    """Whichever byte of the first records is damaged, both readers read the same tasks."""
    path, offsets = write_records(folder)
    content = path.read_bytes()[: offsets[3]]
    for position in range(offsets[2]):
        path.write_bytes(flipped(content, position))
        theirs, ours = read_results(path), our_results(path)
        assert [r[:2] for r in theirs[0]] == [r[:2] for r in ours[0]], position
        assert theirs[1] == ours[1], position


def test_an_independent_reader_reads_the_plan(folder: RunFolder) -> None:
    """The page says enough to give every task its key, also after the plan has grown."""
    wanted = plan_product({"f": [False, True], "x": [7.25], "kind": ["on", "new"]})
    for plan in (PLAN, PLAN.extended(wanted)[0]):
        folder.save_plan(plan)
        assert read_plan(folder.plan_path) == (plan.id, list(map(plan.key, range(len(plan)))))


def test_an_independent_reader_counts_what_status_counts(folder: RunFolder) -> None:
    """By number or by key, both find the same tasks done."""
    path, offsets = write_records(folder)
    path.write_bytes(damaged_first_record(path.read_bytes(), offsets))
    _, keys = read_plan(folder.plan_path)
    infinities = {"inf": math.inf, "-inf": -math.inf}
    by_key = [
        {**key, "x": infinities.get(key["x"], key["x"])} for _, key, _ in read_results(path)[0]
    ]
    state = read_state(folder, PLAN)
    assert [keys.index(key) for key in by_key] == [t for t in range(len(PLAN)) if state.is_done(t)]


def test_the_reader_shares_no_code_with_the_package() -> None:
    """The independent reader imports nothing of ours."""
    source = (SAMPLES / "independent_reader.py").read_text()
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert not any("h5sweep" in str(name) for name in imported)


def test_the_page_names_every_kind() -> None:
    """A kind that is added is written down."""
    rows = dict(re.findall(r"^\| (\d) \| ([A-Z_]+) \|", PAGE.read_text(), re.MULTILINE))
    assert {int(number): name for number, name in rows.items()} == {k: k.name for k in RecordKind}


def test_the_page_names_every_dtype() -> None:
    """Whatever dtype a result is stored with is in the page's table."""
    page = PAGE.read_text().replace("\\|", "|")
    encoder = ResultEncoder()
    for task in (0, 3):
        for _, dtype, _ in json.loads(encoder.encode(result_of(task))[0]):
            general = re.sub(r"\[.*\]", "[U]", dtype)
            assert f'"{general}"' in page


def test_the_process_of_a_file_is_found_as_the_page_says(folder: RunFolder) -> None:
    """The first record names the process by what the page says can be looked up."""
    path, _ = write_records(folder)
    with RecordFile(path) as file:
        about = file.about()
    assert about is not None
    assert (about["format"], about["role"], about["plan"]) == (
        "h5sweep.records/1",
        "worker",
        PLAN.id,
    )
    stat = Path("/proc/self/stat").read_text()
    start_ticks = int(stat.rpartition(")")[2].split()[22 - 3])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert about["process"] == {
        "host": os.uname().nodename,
        "boot": boot,
        "pid": os.getpid(),
        "start_ticks": start_ticks,
        "namespace": Path("/proc/self/ns/pid").stat().st_ino,
    }
    assert ProcessId.from_json(about["process"]) == this_process()


def test_the_reader_runs_alone(folder: RunFolder) -> None:
    """The independent reader reads a folder in a process that never imports h5sweep."""
    path, _ = write_records(folder)
    code = (
        "import sys; from pathlib import Path; from independent_reader import *\n"
        "assert len(read_results(Path(sys.argv[1]))[0]) == 8\n"
        "assert not any(name.startswith('h5sweep') for name in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(path)]
    assert subprocess.run(command, cwd=SAMPLES, check=False).returncode == 0
