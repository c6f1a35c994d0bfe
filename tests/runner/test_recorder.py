"""Results from other people's pools: forks, threads, kills, pickles, and what status says."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from faults import failing
from h5sweep import Recorder
from h5sweep.errors import UsageError
from h5sweep.runfolder.records import RecordFile, RecordKind, Scan
from needs import needs_compiler
from running import record_files
from terminal import Terminal

# Python 3.12 warns of what these tests are about: a fork while threads run.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def keys(folder: Path) -> list[dict[str, Any]]:
    """The keys of all results in all record files."""
    found = []
    for path in record_files(folder):
        with RecordFile(path) as file:
            for offset, frame in file.scan(Scan()):
                if frame[3] == RecordKind.DONE:
                    found.append(file.header(offset, frame)["key"])
    return sorted(found, key=lambda key: list(key.values()))


def test_three_lines_are_enough(terminal: Terminal) -> None:
    """Open, write, leave: status, missing and merge then work on what was written."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"farm": 3, "kind": "floating"}, layout=np.ones((2, 2)), aep=1.5)
        recorder.write({"farm": 4, "kind": "onshore"}, layout=np.zeros((2, 2)), aep=2.5)
    assert terminal.json("status", "out.h5")["done"] == 2
    assert "--expect" in terminal.run("missing", "out.h5", check=2).stderr
    terminal.run("merge", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["farm"][:].tolist() == [3, 4]
        assert file["kind"].asstr()[:].tolist() == ["floating", "onshore"]
        assert file["layout"][0].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert (
        "2 done; no run has declared how many there are" in terminal.run("status", "out.h5").stdout
    )


def test_killed_process_loses_nothing_it_wrote(tmp_path: Path) -> None:
    """Whatever `write` returned for is there after SIGKILL."""
    code = (
        "import os, signal, sys, h5sweep\n"
        "recorder = h5sweep.Recorder(sys.argv[1])\n"
        "for seed in range(100):\n    recorder.write({'seed': seed}, x=seed)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "out.h5"])
    assert done.returncode == -signal.SIGKILL
    assert keys(tmp_path) == [{"seed": seed} for seed in range(100)]


def test_forked_process_writes_a_file_of_its_own(tmp_path: Path) -> None:
    """After os.fork, parent and child go on with one recorder object and two files."""
    with Recorder(tmp_path / "out.h5") as recorder:
        recorder.write({"seed": 0}, x=0)
        child = os.fork()
        if child == 0:
            try:
                recorder.write({"seed": 1}, x=1)
                recorder.close()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        recorder.write({"seed": 2}, x=2)
    assert keys(tmp_path) == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    assert len(record_files(tmp_path)) == 2


def test_forked_process_is_not_locked_by_a_thread_of_its_parent(tmp_path: Path) -> None:
    """A fork in the middle of another thread's write gives a recorder that works."""
    with Recorder(tmp_path / "out.h5") as recorder, recorder._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            recorder.write({"seed": 1}, x=1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    assert keys(tmp_path) == [{"seed": 1}]


def test_fork_of_a_closed_recorder_stays_closed(tmp_path: Path) -> None:
    """Closed is closed, also in a process that is forked afterwards."""
    recorder = Recorder(tmp_path / "out.h5")
    recorder.close()
    child = os.fork()
    if child == 0:
        try:
            recorder.write({"seed": 1}, x=1)
        except UsageError:
            os._exit(7)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def write_one(recorder: Recorder, seed: int) -> int:
    recorder.write({"seed": seed}, x=seed)
    return os.getpid()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pool_of_multiprocessing_works(tmp_path: Path, method: str) -> None:
    """A recorder handed to the processes of a pool records in each, whatever the start method."""
    context: Any = multiprocessing.get_context(method)
    with Recorder(tmp_path / "out.h5") as recorder:
        workers = [context.Process(target=write_one, args=(recorder, seed)) for seed in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
    assert keys(tmp_path) == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    assert len(record_files(tmp_path)) == 4


def test_pickled_recorder_is_a_recorder_of_the_other_process(tmp_path: Path) -> None:
    """A pickle holds the output's path and nothing else; what comes out has its own file."""
    with Recorder(tmp_path / "out.h5") as recorder:
        recorder.write({"seed": 0}, x=0)
        with pickle.loads(pickle.dumps(recorder)) as copy:
            copy.write({"seed": 1}, x=1)
    assert keys(tmp_path) == [{"seed": 0}, {"seed": 1}]
    assert len(record_files(tmp_path)) == 2


def test_threads_share_a_recorder(tmp_path: Path) -> None:
    """Eight threads with one recorder write everything, and whole."""
    with Recorder(tmp_path / "out.h5") as recorder:

        def work(thread: int) -> None:
            for seed in range(50):
                recorder.write({"thread": thread, "seed": seed}, x=np.full(100, seed))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(keys(tmp_path)) == 400


def test_unsupported_value_is_refused_and_the_recorder_goes_on(tmp_path: Path) -> None:
    """A value that cannot be stored raises TypeError naming it; the next write works."""
    with Recorder(tmp_path / "out.h5") as recorder:
        with pytest.raises(TypeError, match="layout"):
            recorder.write({"seed": 0}, layout=object())
        with pytest.raises(ValueError, match="seed"):
            recorder.write({"seed": [1]}, x=1)
        with pytest.raises(ValueError, match="needs a key"):
            recorder.write({}, x=1)
        with pytest.raises(TypeError, match="empty"):
            recorder.write({"seed": 0})
        recorder.write({"seed": 2}, seed=1)  # the result has another name then
        recorder.write({"seed": 1}, x=1)
    assert keys(tmp_path) == [{"seed": 1}, {"seed": 2}]


def test_closed_recorder_says_so(tmp_path: Path) -> None:
    """Writing after close is the caller's mistake; closing twice is none."""
    recorder = Recorder(tmp_path / "out.h5")
    recorder.close()
    recorder.close()
    with pytest.raises(UsageError, match="closed: open a new one"):
        recorder.write({"seed": 0}, x=0)


def test_missing_knows_what_is_expected(terminal: Terminal) -> None:
    """With --expect, `missing` lists the tasks that no recorder has written."""
    terminal.write("tasks.csv", "farm,kind\n1,a\n2,b\n3,c\n")
    terminal.write(
        "study.py",
        "import h5sweep\n@h5sweep.sweep(farm=[1, 2], kind=['a', 'b'])\ndef f(farm, kind): ...\n",
    )
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"kind": "b", "farm": 2}, x=1)
    listed = terminal.run("missing", "out.h5", "--expect", "tasks.csv", check=1)
    assert listed.stdout == "farm=1, kind=a  never started\nfarm=3, kind=c  never started\n"
    assert "2 of 3 missing" in listed.stderr
    by_study = terminal.json("missing", "out.h5", "--expect", "study.py", check=1)
    assert [m["key"] for m in by_study["missing"]] == [
        {"farm": 1, "kind": "a"},
        {"farm": 1, "kind": "b"},
        {"farm": 2, "kind": "a"},
    ]


def test_status_counts_results_that_are_in_no_plan(terminal: Terminal) -> None:
    """What recorders wrote is counted as done before any plan knows of it."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        for seed in range(3):
            recorder.write({"seed": seed}, x=seed)
        status = terminal.json("status", "out.h5")
    assert (status["done"], status["results_beyond_plan"]) == (3, 3)
    assert "3 done" in terminal.run("status", "out.h5").stdout


def test_run_goes_on_from_what_recorders_wrote(terminal: Terminal) -> None:
    """A sweep declared later over the same keys runs what no recorder has written."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 1}, x=1)
    terminal.write(
        "study.py", "import h5sweep\n@h5sweep.sweep(seed=range(3))\ndef f(seed): return {'x': 9}\n"
    )
    assert "1 kept, 2 to do" in terminal.run("run", "study.py", "-o", "out.h5").stderr
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [9, 1, 9]


def test_key_is_stored_as_plain_values(tmp_path: Path) -> None:
    """NumPy scalars in keys are stored as the plain values they are equal to."""
    with Recorder(tmp_path / "out.h5") as recorder:
        recorder.write({"seed": np.int32(3), "speed": np.float64(0.5)}, x=1)
    assert json.dumps(keys(tmp_path)) == '[{"seed": 3, "speed": 0.5}]'


def test_a_recorder_makes_no_path(tmp_path: Path) -> None:
    """A folder that is misspelt is told, and not made."""
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere for out\.h5"):
        Recorder(tmp_path / "nowhere" / "out.h5")
    assert not list(tmp_path.iterdir())


def test_many_recorders_open_a_new_output_at_once(tmp_path: Path) -> None:
    """The ranks of an MPI program all find, or make, the same run folder."""
    code = (
        "import sys, h5sweep\n"
        "with h5sweep.Recorder('out.h5') as recorder:\n"
        "    recorder.write({'rank': int(sys.argv[1])}, x=1)\n"
    )
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        ranks = [
            subprocess.Popen([sys.executable, "-c", code, str(rank)], cwd=folder)
            for rank in range(8)
        ]
        assert [rank.wait() for rank in ranks] == [0] * 8


def test_a_key_over_other_parameters_is_refused(tmp_path: Path) -> None:
    """A process that forgets a parameter is told when it writes, not when all is merged."""
    with Recorder(tmp_path / "out.h5") as recorder:
        recorder.write({"farm": 1, "seed": 2}, x=1)
        with pytest.raises(UsageError, match="farm, seed"):
            recorder.write({"farm": 1}, x=1)


AFTER_A_FAILED_SYNC = """
import sys, threading
import h5sweep
recorder = h5sweep.Recorder(sys.argv[1])
(syncing,) = [thread for thread in threading.enumerate() if thread.daemon]
recorder.write({"seed": 0}, x=0)
syncing.join(20)  # it ends with the sync that fails
assert not syncing.is_alive()
for call in (lambda: recorder.write({"seed": 1}, x=1), recorder.close, recorder.close):
    try:
        call()
    except OSError as error:
        print(error.errno, error)
"""


@needs_compiler
def test_a_failed_sync_is_final(tmp_path: Path) -> None:
    """A thread syncs unasked; once it met an error, write and close say so, always."""
    environment = failing(tmp_path, "fdatasync", ".records", nth=1)
    words = [sys.executable, "-c", AFTER_A_FAILED_SYNC, str(tmp_path / "out.h5")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stdout
    assert all(line.startswith("5 cannot write") and "new file" in line for line in lines)


@needs_compiler
def test_an_error_at_the_close_of_the_file_is_said(tmp_path: Path) -> None:
    """What a network file system refuses only when the file is closed does not pass for kept."""
    code = (
        "import sys, h5sweep\n"
        "recorder = h5sweep.Recorder(sys.argv[1])\n"
        "recorder.write({'seed': 0}, x=0)\n"
        "recorder.close()\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "out.h5")]
    environment = failing(tmp_path, "close", ".records")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "StorageError: cannot write" in done.stderr
