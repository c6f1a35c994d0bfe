"""Record files that a disk does not give, wholly or in part, and more of them than may be open."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from faults import failing
from h5sweep.base.plan import key_json
from h5sweep.base.process_id import this_process
from h5sweep.base.values import result_header
from h5sweep.errors import UnreadableError
from h5sweep.runfolder.records import (
    FORMAT,
    NO_TASK,
    RecordFile,
    RecordKind,
    RecordWriter,
    Scan,
    json_bytes,
    pack_record,
)
from needs import needs_compiler
from running import record_files
from terminal import H5SWEEP, Terminal

STUDY = """
import h5sweep, numpy as np

@h5sweep.sweep(seed=range(60))
def f(seed):
    return {"x": np.full(20, float(seed))}
"""


@pytest.fixture
def bad_sector(terminal: Terminal, request: pytest.FixtureRequest) -> tuple[Path, dict[str, str]]:
    """A finished run, of which one record file cannot be read from some byte on."""
    terminal.write("study.py", STUDY)
    words = ("run", "study.py", "-o", "out.h5", "--no-merge", "--workers", 1)
    terminal.run(*words, "--tasks-per-worker", 30)
    bad = max(record_files(terminal.folder), key=lambda path: path.name)
    return bad, failing(terminal.folder, "read", bad.name, start=request.param)


@needs_compiler
@pytest.mark.parametrize("bad_sector", [0, 8192], indirect=True)
def test_a_bad_sector_costs_what_lies_there(
    terminal: Terminal, bad_sector: tuple[Path, dict[str, str]]
) -> None:
    """The file is named with the reason, and all else is counted, merged, and not run again."""
    bad, environment = bad_sector
    reason = f"{bad.name} cannot be read at byte "
    status = terminal.run("status", "out.h5", **environment)
    assert reason in status.stdout and "(Input/output error)" in status.stdout
    missing = terminal.run("missing", "out.h5", check=1, **environment)
    assert reason in missing.stderr
    merged = terminal.run("merge", "out.h5", check=None, **environment)
    assert reason in merged.stderr, merged.stderr
    with h5py.File(terminal.folder / "out.h5") as file:
        rows = file["seed"][:].tolist()
        assert (file["x"][:] == file["seed"][:][:, None]).all()
    assert len(rows) == 60 - len(missing.stdout.splitlines())
    assert 30 + (environment["FAULT_FROM"] != "0") <= len(rows) < 60
    again = terminal.run("run", "study.py", "-o", "out.h5", **environment)
    assert f"{len(rows)} kept, {60 - len(rows)} to do" in again.stderr
    assert "60 of 60 done" in again.stderr
    assert bad.name in terminal.run("clean", "out.h5", **environment).stdout
    for words in (("check", "out.h5.run"), ("salvage", bad)):
        said = terminal.run(*words, check=3, **environment).stdout
        assert bad.name in "".join(said.split())  # lines are broken where they are long


READ_HDF5 = """
import sys
from pathlib import Path
from h5sweep.hdf5.source import OpenSource
with OpenSource(Path(sys.argv[1])) as source:
    assert source.read(4000, 96) == bytes(96)
    try:
        source.read(4000, 200)
    except OSError as error:
        sys.exit(error.errno)
"""


@needs_compiler
def test_a_read_that_ends_at_a_bad_sector_gives_its_error(tmp_path: Path) -> None:
    """Up to a bad sector there is less than was asked for: the file has not become shorter."""
    (tmp_path / "a.h5").write_bytes(bytes(10_000))
    environment = failing(tmp_path, "read", "a.h5", start=4096)
    words = [sys.executable, "-c", READ_HDF5, str(tmp_path / "a.h5")]
    assert subprocess.run(words, env=environment, check=False).returncode == 5


def write_records(path: Path, sizes: list[int]) -> None:
    writer = RecordWriter(path)
    for task, size in enumerate(sizes):
        writer.append(RecordKind.DONE, task, json_bytes({}), bytes([task]) * size, finished_at=0.0)
    writer.close()


def test_a_file_that_becomes_shorter_is_damaged_and_kills_nobody(tmp_path: Path) -> None:
    """Cut between open and read: what is left is read, the rest is named, and reading it raises."""
    path = tmp_path / "a.records"
    write_records(path, [100_000] * 5)
    with RecordFile(path) as file:
        os.truncate(path, 250_000)
        found = Scan()
        assert [frame[2] for _, frame in file.scan(found) if frame[3] == RecordKind.DONE] == [0, 1]
        assert found.damages[0].refusal == "the file is shorter than it was"
        with pytest.raises(UnreadableError, match=r"a\.records cannot be read at byte"):
            file.frame(400_000)


def test_records_larger_than_what_is_kept_in_memory(tmp_path: Path) -> None:
    """Windows end in the middle of frames and records, and a record may be larger than one."""
    path = tmp_path / "a.records"
    sizes = [10, 3_000_000, 0, 2_097_000, *range(50_000, 50_100), 5_000_000, 7]
    write_records(path, sizes)
    found = Scan()
    with RecordFile(path) as file:
        done = [(o, f) for o, f in file.scan(found) if f[3] == RecordKind.DONE]
        assert [frame[5] for _, frame in done] == sizes
    content = bytearray(path.read_bytes())
    content[1_500_000] ^= 0xFF
    path.write_bytes(content)
    with RecordFile(path) as file:
        left = [frame[2] for _, frame in file.scan(found) if frame[3] == RecordKind.DONE]
    assert left == [task for task in range(len(sizes)) if task != 1]
    assert [damage.task for damage in found.damages] == [1]


FILES = int(os.environ.get("H5SWEEP_RECORD_FILES", "600"))
MOST_OPEN = 128 if FILES < 1000 else 256


def record_file(seed: int) -> bytes:
    """A record file with one result, of a process that has ended."""
    process = {**this_process().as_json(), "pid": 2**22 + 1}
    about = {"format": FORMAT, "process": process, "role": "recorder"}
    mark, header = b"mark", result_header(b'[["x","<f8",[3]]]', key_json({"seed": seed}).encode())
    return pack_record(
        mark, RecordKind.FILE, NO_TASK, json_bytes(about), b"", 1e9, 0.0
    ) + pack_record(
        mark, RecordKind.DONE, NO_TASK, header, np.full(3, float(seed)).tobytes(), 1e9 + seed, 0.0
    )


def test_more_record_files_than_may_be_open(terminal: Terminal) -> None:
    """Far more record files than a process may open are counted, merged, and proven to be."""
    records = terminal.folder / "out.h5.run" / "records"
    records.mkdir(parents=True)
    for seed in range(FILES):
        (records / f"recorder_{seed:05}.records").write_bytes(record_file(seed))

    def limited(*words: str, check: int = 0) -> str:
        done = subprocess.run(
            [*H5SWEEP, *words],
            cwd=terminal.folder,
            capture_output=True,
            text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_OPEN, MOST_OPEN)),
        )
        assert done.returncode == check, done.stderr
        return done.stdout + done.stderr

    assert f"{FILES:,} done" in limited("status", "out.h5")
    limited("merge", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["seed"][:].tolist() == list(range(FILES))
        assert (file["x"][:] == file["seed"][:][:, None]).all()
    expected = terminal.write("keys.csv", "seed\n" + "".join(f"{n}\n" for n in range(FILES)))
    assert "nothing is missing" in limited("missing", "out.h5", "--expect", str(expected))
    assert f"{FILES:,}" in limited("clean", "out.h5")
