"""The HDF5 library runs in children that may die, hang, or want too much; each costs one file."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest

from check_samples import write_columns, write_groups
from h5sweep.check.check import check_files
from h5sweep.hdf5 import tree
from h5sweep.library.child_host import MANY, Library, Request
from h5sweep.worker_files.findings import State
from places import SAMPLES


def children() -> set[int]:
    """The processes that this one has started and that ask the library."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"inspect_child" in words:
            found.add(int(path.name))
    return found


@pytest.mark.parametrize(
    ("sent", "code", "words"),
    [(signal.SIGKILL, "D205", "SIGKILL"), (signal.SIGSTOP, "D206", "no answer within")],
    ids=["dies", "hangs"],
)
def test_a_child_that_dies_or_hangs_costs_one_file(
    sent: signal.Signals, code: str, words: str, tmp_path: Path
) -> None:
    """Its file is named, the child is replaced, and all other files are checked."""
    large = tmp_path / "a_large.h5"
    with h5py.File(large, "w") as file:
        values = np.arange(8_000_000)
        file.create_dataset("a", data=values, compression="gzip", chunks=(100_000,))
    for number in range(5):
        write_groups(tmp_path / f"b_{number}.h5", tasks=number + 1)
    done = threading.Event()

    def strike() -> None:
        while not done.is_set():
            for pid in children():
                if str(large) in open_files(pid):
                    os.kill(pid, sent)
                    return

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        report = check_files(tmp_path, depth="deep", processes=1, timeout_s=3.0)
    finally:
        done.set()
        striker.join()
    assert [file.state for file in report.files] == [State.DAMAGED] + [State.SOUND] * 5
    assert report.files[0].findings[0].code == code
    assert words in report.files[0].findings[0].message
    assert not children()


def open_files(pid: int) -> list[str]:
    try:
        return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


FORKING = """
import os, sys, threading
from pathlib import Path
from h5sweep.library import child_process
child_process.may_fork = True
if sys.argv[1] == "with a thread":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
with open(sys.argv[2], "rb"):
    with child_process.Child("h5sweep.library.inspect_child", 1 << 30) as child:
        child.ask({"path": sys.argv[2], "what": "deep"}, 60.0)
        errors = child.wait().said["errors"]
        process = Path("/proc", str(child._pid))
        ours, theirs = (Path("/proc", n, "cmdline").read_bytes() for n in ("self", process.name))
        files = len(list((process / "fd").iterdir()))
print(errors, "fork" if ours == theirs else "new interpreter", files)
"""


@pytest.mark.parametrize(
    ("threads", "way"), [("alone", "fork"), ("with a thread", "new interpreter")]
)
def test_a_process_without_threads_is_forked(threads: str, way: str, tmp_path: Path) -> None:
    """A fork has none of its parent's files; a lock that a thread held would hang it."""
    write_groups(tmp_path / "a.h5")
    words = [sys.executable, "-c", FORKING, threads, str(tmp_path / "a.h5")]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout == f"[] {way} 3\n", done.stderr


def test_children_run_no_code_of_the_current_folder(tmp_path: Path) -> None:
    """A folder of results may hold a json.py; it is not Python's."""
    write_groups(tmp_path / "a.h5")
    (tmp_path / "json.py").write_text("import os; os.mkdir('was_run')")
    words = [sys.executable, "-P", "-c", FORKING, "with a thread", "a.h5"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.stdout == "[] new interpreter 3\n", done.stderr
    assert not (tmp_path / "was_run").exists()


def test_memory_is_limited(tmp_path: Path) -> None:
    """A file for which the library wants more than it may have is named."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = np.zeros(12_000_000)
        file.create_dataset("a", data=values, compression="gzip", chunks=(12_000_000,))
    report = check_files(tmp_path, depth="deep", memory_bytes=20_000_000)
    assert "D207" in {finding.code for finding in report.files[0].findings}
    assert check_files(tmp_path, depth="deep").files[0].state is State.SOUND


def test_a_child_cannot_write(tmp_path: Path) -> None:
    """After it has confined itself, the kernel refuses any byte of any file."""
    program = """
import sys
from h5sweep.library.limit_child import confine
confine(1 << 30, may_write=False)
try:
    with open(sys.argv[1], "r+b", buffering=0) as file:
        file.write(b"x")
except OSError as error:
    print(error.errno)
"""
    path = tmp_path / "a.h5"
    write_groups(path)
    before = path.read_bytes()
    words = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout == "27\n", done.stderr  # EFBIG
    assert path.read_bytes() == before


def test_no_child_is_left(tmp_path: Path) -> None:
    """After a check there are no children, and none is started for what needs none."""
    write_columns(tmp_path / "a.h5")
    check_files(tmp_path)
    assert not children()
    check_files(tmp_path, depth="quick")
    assert not children()


def test_a_hundred_bad_files_use_few_children(tmp_path: Path) -> None:
    """Files that the library refuses in an orderly way do not cost it its process."""
    for number in range(40):
        path = tmp_path / f"{number}.h5"
        write_groups(path, tasks=number + 1)
        content = path.read_bytes()
        path.write_bytes(content.replace(b"SNOD", b"SNOX", 1))
    with Library(1) as library:
        for path in sorted(tmp_path.iterdir()):
            library.ask(Request(path.name, str(path), "structure"))
        pids: set[int] = set()
        answered = 0
        while library.open_requests:
            answered += len(library.answers(wait=True))
            pids |= children()
    assert answered == 40 and len(pids) == 1


def test_many_files_are_shared_by_children(tmp_path: Path) -> None:
    """As many children as were allowed are at work if more files wait than one has soon read."""
    write_groups(tmp_path / "a.h5")
    with Library(2) as library:
        for number in range(MANY + 2):
            library.ask(Request(number, str(tmp_path / "a.h5"), "structure"))
        assert len(children()) == 2
        found: list[int] = []
        while library.open_requests:
            found += [request.tag for request, _ in library.answers(wait=True)]
    assert sorted(found) == list(range(MANY + 2))


def test_many_objects_are_given_more_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy file with more objects than can be listed in the limit does not hang anything."""
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for number in range(3000):
            file.create_group(f"task{number}")
    (report,) = check_files(tmp_path, timeout_s=0.05).files
    assert not report.findings
    monkeypatch.setattr(tree, "MOST_OBJECTS", 100)
    (report,) = check_files(tmp_path).files
    assert report.state is State.SOUND
    assert "only the first 100 objects" in report.findings[0].message


REFUSALS = SAMPLES / "refusals.py"


def run_refused(refused: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of ours where the kernel refuses something."""
    command = [sys.executable, REFUSALS, refused, sys.executable, "-m", "h5sweep", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("refused", ["prctl", "limits", "proc", "prctl,limits,proc"])
def test_a_refused_limit_is_no_verdict_on_a_file(refused: str, tmp_path: Path) -> None:
    """Where a child cannot be confined, sound files are sound and the library is asked."""
    write_groups(tmp_path / "worker_1.h5")
    done = run_refused(refused, "check", tmp_path, "--json")
    (file,) = json.loads(done.stdout)["files"]
    assert (done.returncode, file["state"], file["findings"]) == (0, "sound", [])


def test_less_memory_than_wanted_is_no_verdict_on_a_file(tmp_path: Path) -> None:
    """A limit that is lower than ours stays, and the file is read within it."""
    write_groups(tmp_path / "worker_1.h5")
    most = 8 << 30

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    command = [sys.executable, "-m", "h5sweep", "check", tmp_path, "--memory", "16GB", "--json"]
    done = subprocess.run(command, capture_output=True, check=False, preexec_fn=lower)
    (file,) = json.loads(done.stdout)["files"]
    assert (done.returncode, file["state"], file["findings"]) == (0, "sound", [])


def test_a_library_that_does_not_start_is_one_note(tmp_path: Path) -> None:
    """Without the library our own reader's verdict stands, and damage is still found."""
    for number in range(3):
        write_groups(tmp_path / f"worker_{number}.h5")
    (tmp_path / "worker_3.h5").touch()
    done = run_refused("death", "check", tmp_path, "--json")
    files = json.loads(done.stdout)["files"]
    codes = [[finding["code"] for finding in file["findings"]] for file in files]
    assert codes == [["N611"], ["N611"], ["N611"], ["D101"]]
    done = run_refused("death", "check", tmp_path)
    assert done.returncode == 3
    assert "sound  3 files: library-absent (N611)" in done.stdout
    assert "4 files: 3 sound, 1 empty" in done.stdout
    assert "kills-library" not in done.stdout


def test_salvage_and_merge_blame_no_file_for_a_library_that_does_not_start(tmp_path: Path) -> None:
    """Salvage goes on with our own reader; a merge that needs the library says that it does."""
    write_groups(tmp_path / "worker_1.h5")
    with h5py.File(tmp_path / "worker_1.h5", "a") as file:
        for group in file.values():  # in chunks, which the library copies
            group.create_dataset("history", data=np.arange(9.0), chunks=(3,))
    key = ["--key", "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"]
    done = run_refused("death", "salvage", tmp_path, *key)
    assert "kills" not in done.stdout
    assert "the HDF5 library could not be started" in " ".join(done.stdout.split())
    done = run_refused("death", "merge", tmp_path, "-o", tmp_path.with_suffix(".h5"))
    assert done.returncode == 1
    assert "worker_1.h5" not in done.stderr
    assert "its process did not start (SIGSYS)" in done.stderr.replace("\n", " ")
    done = run_refused("death", "merge", tmp_path, "-o", tmp_path.with_suffix(".h5"), *key)
    assert done.returncode == 0, done.stderr
