"""A real writer's writes, recorded by strace; the file as it was after each of them. As a script:

python recorded_writes.py FILE STYLE TASKS     write tasks, saying on stderr when each is flushed
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

STYLES: dict[str, dict[str, Any]] = {
    "group earliest": {"kind": "group"},
    "group earliest gzip": {"kind": "group", "gzip": True},
    "group latest": {"kind": "group", "libver": "latest"},
    "group latest gzip": {"kind": "group", "libver": "latest", "gzip": True},
    "names earliest": {"kind": "names"},
    "names latest": {"kind": "names", "libver": "latest"},
    "columns earliest": {"kind": "columns"},
    "columns earliest gzip": {"kind": "columns", "gzip": True},
    "columns latest": {"kind": "columns", "libver": "latest"},
    "columns latest gzip": {"kind": "columns", "libver": "latest", "gzip": True},
    "compound earliest": {"kind": "compound"},
    "compound earliest gzip": {"kind": "compound", "gzip": True},
    "compound latest": {"kind": "compound", "libver": "latest"},
    "compound latest gzip": {"kind": "compound", "libver": "latest", "gzip": True},
    "swmr": {"kind": "swmr", "libver": "latest"},
    "swmr gzip": {"kind": "swmr", "libver": "latest", "gzip": True},
}
PATTERN = "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"
KEY = "farm_id,farm_type,seed"
ROW = [(name, "i8") for name in KEY.split(",")] + [("layout", "f8", (50, 2)), ("aep", "f8")]
Result = tuple[Any, float]


def key_of(task: int) -> dict[str, int]:
    return {"farm_id": task % 3, "farm_type": task // 3 % 2, "seed": task}


def result_of(task: int) -> Result:
    chance = np.random.default_rng(task)
    return chance.uniform(0, 5000, (50, 2)), float(chance.uniform(2e5, 3e5))


def write_tasks(path: Path, style: str, tasks: int) -> None:
    """Write results as other programs do, and flush after each."""
    about = STYLES[style]
    settings = {"compression": "gzip"} if about.get("gzip") else {}
    with h5py.File(path, "w", libver=about.get("libver", "earliest")) as file:
        if about["kind"] in ("columns", "swmr"):
            make_columns(file, settings)
        elif about["kind"] == "compound":
            file.create_dataset("results", (0,), ROW, maxshape=(None,), chunks=(16,), **settings)
        file.flush()
        if about["kind"] == "swmr":
            file.swmr_mode = True
        for task in range(tasks):
            if about["kind"] in ("group", "names"):
                append_group(file, task, settings, has_key=about["kind"] == "group")
            elif about["kind"] == "compound":
                append_compound(file["results"], task)
            else:
                append_row(file, task)
            file.flush()
            sys.stderr.write(f"done {task}\n")
            sys.stderr.flush()


def make_columns(file: Any, settings: Any) -> None:
    for name, inner, chunk in (
        ("farm_id", (), 256),
        ("farm_type", (), 256),
        ("seed", (), 256),
        ("layout", (50, 2), 16),
        ("aep", (), 256),
    ):
        file.create_dataset(
            name,
            (0, *inner),
            "f8" if name in ("layout", "aep") else "i8",
            maxshape=(None, *inner),
            chunks=(chunk, *inner),
            **settings,
        )


def append_group(file: Any, task: int, settings: Any, *, has_key: bool) -> None:
    key, (layout, aep) = key_of(task), result_of(task)
    name = f"farm{key['farm_id']}_t{key['farm_type']}_s{key['seed']}"
    group = file.create_group(name)
    if has_key:
        group.attrs.update(key)
    group.create_dataset("layout", data=layout, **settings)
    group["aep"] = aep


def append_row(file: Any, task: int) -> None:
    layout, aep = result_of(task)
    for name, value in {**key_of(task), "layout": layout, "aep": aep}.items():
        file[name].resize(task + 1, axis=0)
        file[name][task] = value


def append_compound(table: Any, task: int) -> None:
    layout, aep = result_of(task)
    table.resize(task + 1, axis=0)
    table[task] = (*key_of(task).values(), layout, aep)


@dataclass(frozen=True)
class Write:
    """One write to the file, or a change of its size; `completed` is how many tasks are flushed."""

    offset: int
    data: bytes
    size: int | None
    completed: int


def record_writes(
    path: Path, style: str, tasks: int, writer: Sequence[str] = (__file__,)
) -> list[Write]:
    """Run the writer under strace and list what it did to its file."""
    trace = path.with_suffix(".strace")
    words = [sys.executable, *writer, str(path), style, str(tasks)]
    calls = "trace=openat,pwrite64,write,ftruncate,close"
    path.unlink(missing_ok=True)
    subprocess.run(
        ["strace", "-f", "-xx", "-s", str(1 << 24), "-e", calls, "-o", str(trace), *words],
        check=True,
        capture_output=True,
        timeout=3600,
    )
    writes = list(_parsed(trace, path))
    *_, (_, content) = states_of(writes)
    assert content == path.read_bytes(), "a write was overlooked"
    return writes


def _parsed(trace: Path, path: Path) -> Iterator[Write]:
    text = r'"((?:\\x[0-9a-f]{2})*)"'
    opened = re.compile(rf"openat\(\S+ {text}.*\)\s+= (\d+)")  # short lines are padded
    written = re.compile(rf"pwrite64\((\d+), {text}, \d+, (\d+)\)\s+= (\d+)")
    cut = re.compile(r"ftruncate\((\d+), (\d+)\)\s+= 0")
    closed = re.compile(r"close\((\d+)\)\s+= 0")
    said = re.compile(rf"write\(2, {text}")
    files, completed = set(), 0
    with trace.open() as lines:
        for line in lines:
            if (match := opened.search(line)) and _bytes(match[1]) == str(path).encode():
                files.add(match[2])
            elif match := closed.search(line):
                files.discard(match[1])
            elif (match := written.search(line)) and match[1] in files:
                data = _bytes(match[2])
                assert len(data) == int(match[4])
                yield Write(int(match[3]), data, None, completed)
            elif (match := cut.search(line)) and match[1] in files:
                yield Write(0, b"", int(match[2]), completed)
            elif (match := said.search(line)) and _bytes(match[1]).startswith(b"done"):
                completed += 1


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def states_of(writes: list[Write]) -> Iterator[tuple[int, bytes]]:
    """The file after each write, with the number of tasks that had been flushed before it."""
    content = bytearray()
    for write in writes:
        if write.size is not None:
            content = content[: write.size].ljust(write.size, b"\0")
        end = write.offset + len(write.data)
        content = content.ljust(end, b"\0") if end > len(content) else content
        content[write.offset : end] = write.data
        yield write.completed, bytes(content)


if __name__ == "__main__":
    write_tasks(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
