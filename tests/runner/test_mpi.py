"""The ranks of a real mpirun are parts, and none ends the others."""

from __future__ import annotations

import os
import subprocess

from h5sweep.runfolder.records import RecordKind
from needs import needs_mpi
from running import has_only_failed, kinds
from terminal import H5SWEEP, Terminal

pytestmark = needs_mpi
RANKS = 4
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
STUDY = """
    import os, time
    import h5sweep

    @h5sweep.sweep(seed=range(120))
    def optimise(seed):
        time.sleep(0.02)
        {body}
        return {{"aep": seed * 2.0}}
"""


def run_ranks(terminal: Terminal, body: str) -> subprocess.CompletedProcess[str]:
    """Run the study in all ranks; none may fail."""
    terminal.write("study.py", STUDY.format(body=body))
    words = ["run", "study.py", "-o", "out.h5", "--part", "auto", "-j", "1", "--backoff", "0s"]
    done = subprocess.run(
        ["mpirun", "-n", str(RANKS), "--oversubscribe", *H5SWEEP, *words],
        cwd=terminal.folder,
        env={**os.environ, **AS_ROOT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_tasks_that_crash_and_fail_end_no_rank(terminal: Terminal) -> None:
    """One kills its process, one raises: all ranks go on to the end, and exit with 0."""
    crash = "os.kill(os.getpid(), 9)"
    done = run_ranks(terminal, f"if seed == 3: {crash}\n        if seed == 5: raise ValueError")
    found = kinds(terminal.folder)
    assert has_only_failed(found.pop(3), RecordKind.DIED, attempts=3)
    assert has_only_failed(found.pop(5), RecordKind.RAISED)
    assert set(found) == set(range(120)) - {3, 5}
    assert set(map(tuple, found.values())) == {(RecordKind.DONE,)}
    for number in range(1, RANKS + 1):
        assert f"part {number}/{RANKS}: ended" in done.stderr
    terminal.run("merge", "out.h5")
    assert "2 of 120 missing" in terminal.run("missing", "out.h5", check=1).stderr


def test_a_rank_whose_tasks_all_fail_ends_no_other(terminal: Terminal) -> None:
    """The tasks of the first rank all raise: it stops early, the others run all of theirs.

    These wait for it: if it began late, they would take on some of its tasks, and it had too few
    to know that all of them fail.
    """
    fails = "open(f'failed_{seed}', 'w').close()\n            raise ValueError('no')"
    waits = "while len(glob.glob('failed_*')) < 20: time.sleep(0.01)"
    done = run_ranks(
        terminal, f"if seed % 4 == 0:\n            {fails}\n        import glob\n        {waits}"
    )
    assert "all failed in the same way" in done.stderr
    found = kinds(terminal.folder)
    assert {task for task, ended in found.items() if ended == [RecordKind.DONE]} == {
        seed for seed in range(120) if seed % 4
    }
