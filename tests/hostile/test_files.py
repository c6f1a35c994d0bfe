"""Files that mean harm: they name other files as the place of their data, or claim sizes that they
do not have. No other file is read, and a claim costs neither time nor memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

from cases import some_of
from h5sweep.hdf5.messages import DEFLATE
from h5sweep.hdf5.read_data import fate_of_chunk
from terminal import H5SWEEP, Terminal

KEY = "farm{farm:d}"
PATIENCE_S = 120  # a machine under load; what these files claim would take days
MOST_KB = 1 << 20
COMMANDS = {
    "check": ["check"],
    "check --deep": ["check", "--deep"],
    "merge": ["merge", "-o", "out.h5", "--on-damaged", "skip"],
    "merge --key": ["merge", "-o", "out.h5", "--on-damaged", "skip", "--key", KEY],
    "merge, salvage": ["merge", "-o", "out.h5", "--on-damaged", "salvage", "--key", KEY],
    "salvage": ["salvage", "-o", "out.h5", "--key", KEY],
}
every_command = pytest.mark.parametrize("command", COMMANDS)


def _external_storage(file: h5py.File, victim: Path) -> None:
    file.create_dataset("farm1/aep", (64,), "u1", external=[(str(victim), 0, 64)])


def _virtual(file: h5py.File, victim: Path) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(victim, "secret", (3,))
    file.create_group("farm2").create_virtual_dataset("aep", layout)


def _virtual_without_limit(file: h5py.File, victim: Path) -> None:
    layout = h5py.VirtualLayout((3,), "f8", maxshape=(None,))
    source = h5py.VirtualSource(victim, "secret", (3,), maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    file.create_group("farm3").create_virtual_dataset("aep", layout)


def _external_link(file: h5py.File, victim: Path) -> None:
    file["farm4/aep"] = h5py.ExternalLink(victim, "/secret")
    file["farm5"] = h5py.ExternalLink(victim, "/")


def _soft_link_through(file: h5py.File, victim: Path) -> None:
    file["there"] = h5py.ExternalLink(victim, "/")
    file["farm6/aep"] = h5py.SoftLink("/there/secret")
    file["farm7"] = h5py.SoftLink("/there")


WAYS_OUT = [_external_storage, _virtual, _virtual_without_limit, _external_link, _soft_link_through]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["secret"] = np.full(3, 1234.5)
    with path.open("r+b") as raw:
        raw.write(b"TOP-SECRET" * 6)
    return path


def write_good(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["farm99/aep"] = 1.5


def traced(folder: Path, *words: object) -> tuple[int, str, str]:
    """The exit code of a command, what it printed, and all that it has opened."""
    trace = folder / "trace"
    # A file for each process: in a common one, lines of one call are torn apart by others.
    command = ["strace", "-ff", "-o", trace, "-e", "trace=open,openat", *H5SWEEP, *words]
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    texts = [path.read_text(errors="replace") for path in folder.glob("trace.*")]
    lines = "".join(texts).splitlines()
    opened = "\n".join(line for line in lines if " = -1 " not in line)
    assert str(folder) in opened or "good.h5" in opened
    return done.returncode, done.stdout + done.stderr, opened


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@every_command
def test_no_file_but_those_named_is_opened(command: str, tmp_path: Path, victim: Path) -> None:
    """External storage, virtual data and links are followed by no command, in no process."""
    files = [tmp_path / f"w{number}.h5" for number, _ in enumerate(WAYS_OUT)]
    for path, write in zip(files, WAYS_OUT, strict=True):
        with h5py.File(path, "w") as file:
            write(file, victim)
    write_good(tmp_path / "good.h5")
    code, said, opened = traced(tmp_path, *COMMANDS[command], tmp_path / "good.h5", *files)
    assert code in (0, 1, 3), said
    assert victim.name not in opened
    made = set(files_in(tmp_path)) - {*files, victim, tmp_path / "trace"}
    assert not [path for path in made if b"TOP-SECRET" in path.read_bytes()]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("way_out", some_of(["storage", "link", "group"], 3))
def test_an_output_leads_to_no_other_file(
    way_out: str, tmp_path: Path, victim: Path, terminal: Terminal
) -> None:
    """An output that was tampered with is refused by every command that reads it, or not asked."""
    write_good(tmp_path / "good.h5")
    terminal.run("merge", "good.h5", "-o", "out.h5", "--key", KEY)
    with h5py.File(tmp_path / "out.h5", "a") as file:
        place = "provenance" if way_out == "group" else "aep"
        about = dict(file[place].attrs)
        del file[place]
        if way_out == "storage":
            file.create_dataset("aep", (1,), "f8", external=[(str(victim), 0, 8)])
            file["aep"].attrs.update({n: v for n, v in about.items() if n != "DIMENSION_LIST"})
        else:
            file[place] = h5py.ExternalLink(victim, "/secret")
    for words in (["merge"], ["clean"], ["status"], ["missing"], ["check", "--deep"]):
        code, said, opened = traced(tmp_path, *words, tmp_path / "out.h5")
        assert code != 70, said
        assert victim.name not in opened, words


def _no_chunk(file: h5py.File) -> None:
    file.create_dataset("farm1/aep", (2**58,), "f8", chunks=(1000,))


def _no_data(file: h5py.File) -> None:
    file.create_dataset("farm1/aep", (2**40, 2**18), "f8", fillvalue=1.0)


def _many_claims(file: h5py.File) -> None:
    for number in range(200):
        file.create_dataset(f"farm{number}/aep", (2**24,), "f8")


def _compounds(file: h5py.File) -> None:
    dtype = np.dtype([("a", "V2000000000"), ("b", "f8")])
    file.create_dataset("farm1/aep", (2**30,), dtype, chunks=(1,))


def _long_texts(file: h5py.File) -> None:
    file.create_dataset("farm1/aep", (2,), "S2000000000", chunks=(1,))


def _rows(file: h5py.File) -> None:
    for name in ("farm", "aep"):
        file.create_dataset(name, (100_000_000,), "i1", chunks=(1000,), maxshape=(None,))


def _fixed_rows(file: h5py.File) -> None:
    for name in ("farm", "aep"):
        file.create_dataset(name, (100_000_000,), "i4")


CLAIMS = [_no_chunk, _no_data, _many_claims, _compounds, _long_texts]
ROW_CLAIMS = [_rows, _fixed_rows]


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param(CLAIMS, id="values"),
        pytest.param(ROW_CLAIMS, id="rows", marks=pytest.mark.exhaustive),
    ],
)
@every_command
def test_a_claim_costs_nothing(
    command: str, claims: list[Callable[[h5py.File], None]], tmp_path: Path
) -> None:
    """Files of a few kB that claim to hold GB or more are named, and the others are read."""
    are_rows = claims is ROW_CLAIMS
    names = [f"{claim.__name__.strip('_')}.h5" for claim in claims]
    for name, claim in zip(names, claims, strict=True):
        with h5py.File(tmp_path / name, "w") as file:
            claim(file)
        assert (tmp_path / name).stat().st_size < 500_000
    write_good(tmp_path / "good.h5")
    words = ["farm" if word == KEY and are_rows else word for word in COMMANDS[command]]
    good = [] if are_rows else ["good.h5"]
    code, said, most_kb = measured(tmp_path, *words, *names, *good)
    assert code in ((0, 2, 3) if are_rows else (0, 3)), said
    assert most_kb < MOST_KB, said
    assert sum(path.stat().st_size for path in files_in(tmp_path)) < 2e9
    if words[0] == "merge" and good:
        with h5py.File(tmp_path / "out.h5") as file:
            assert (file["aep"] if "--key" in words else file["farm99/aep"])[()] == 1.5
        assert all(name in said for name in names)


# A process counts what its parent had when it was started; this one has little.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


def measured(folder: Path, *words: str) -> tuple[int, str, int]:
    """The exit code, what was printed, and the most memory that a process of it had at once."""
    most = folder.with_name(f"{folder.name}-kb")
    command = [sys.executable, "-c", MEASURE, str(most), *H5SWEEP, *words]
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # nothing, if all has ended
        said.seek(0)
        return code, said.read(), int(most.read_text())


def test_room_that_was_never_written_is_no_claim(tmp_path: Path, terminal: Terminal) -> None:
    """Datasets without a single chunk, and with a few far apart, are merged as they are."""
    with h5py.File(tmp_path / "w1.h5", "w") as file:
        file.create_dataset("farm1/aep", (4_000_000,), "f8", chunks=(1000,), fillvalue=2.0)
        sparse = file.create_dataset("farm2/aep", (4_000_000,), "f8", chunks=(1000,))
        sparse[3_500_000] = 7.0
    write_good(tmp_path / "w2.h5")
    terminal.run("merge", "w1.h5", "w2.h5", "-o", "groups.h5")
    terminal.run("merge", "w1.h5", "w2.h5", "-o", "rows.h5", "--key", KEY)
    with h5py.File(tmp_path / "groups.h5") as file:
        assert (file["farm1/aep"][-1], file["farm2/aep"][3_500_000]) == (2.0, 7.0)
    checked = json.loads(terminal.run("check", "w1.h5", "--json").stdout)
    assert not checked["files"][0]["findings"]


@pytest.mark.exhaustive
def test_rows_that_were_made_room_for_are_no_claim(tmp_path: Path, terminal: Terminal) -> None:
    """A table of 800 MB of which a worker has written some rows here and there can be merged."""
    with h5py.File(tmp_path / "w1.h5", "w") as file:
        farm = file.create_dataset("farm", (1_000_000,), "i8", chunks=(1000,))
        aep = file.create_dataset("aep", (1_000_000, 100), "f8", chunks=(100, 100))
        for row in (5, 600_000, 999_999):
            farm[row], aep[row] = row, row / 7
    report = terminal.json("salvage", "w1.h5", "-o", "saved.h5", "--key", "farm")
    assert report["files"], report
    checked = json.loads(terminal.run("check", "w1.h5", "--json").stdout)
    assert not checked["files"][0]["findings"]


def test_groups_in_a_circle_are_listed_once(tmp_path: Path, terminal: Terminal) -> None:
    """A group that holds itself is read by both readers, and has its one result."""
    with h5py.File(tmp_path / "w.h5", "w") as file:
        for number in (1, 2):
            group = file.create_group(f"farm{number}")
            group["aep"], group["again"], group["up"] = 1.5, group, file["/"]
    said = terminal.run("salvage", "w.h5", "-o", "saved.h5", "--key", KEY, check=None).stdout
    assert "memory" not in said
    assert "timeout" not in said


def test_a_chunk_is_explained_by_steps() -> None:
    """What became of a gzip chunk that is wrong at its end is told without holding it unpacked."""
    packed = zlib.compress(bytes(2**28), 1)
    wrong = packed[:-1] + bytes([packed[-1] ^ 0xFF])
    tracemalloc.start()
    try:
        assert fate_of_chunk(wrong, [DEFLATE], 0, (len(wrong), 2**28)) == "filter"
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
