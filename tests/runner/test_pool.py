"""What worker processes may do to a run: limits, crashes, retries, leftovers, signals."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from h5sweep.base.plan import plan_product
from h5sweep.code.payload import write_payload
from h5sweep.errors import StartError, StorageError, UsageError
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import RecordKind
from h5sweep.runner import pool
from h5sweep.runner import workers as workers_module
from h5sweep.runner.events import Note, Tick
from h5sweep.runner.queue import TaskQueue
from h5sweep.runner.settings import PoolSettings, Retries
from h5sweep.runner.worker_handle import LaunchOrder, WorkerHandle
from h5sweep.state.study import StudyReference
from running import (
    count,
    ends_within,
    is_running,
    kinds,
    logs,
    record_files,
    records,
    until,
    worker_pids,
)
from terminal import H5SWEEP, Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "--no-merge", "--backoff", "0s")

MARK = """
def mark(name):
    with open(name, "ab", buffering=0) as file:
        file.write(b".")

def wait_for(*names):
    deadline = time.monotonic() + 30
    while not all(os.path.exists(name) for name in names):
        assert time.monotonic() < deadline, names
        time.sleep(0.01)
"""


@pytest.fixture
def process() -> Iterator[list[subprocess.Popen[str]]]:
    """Commands that a test starts; whatever is left of them is ended with it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        with suppress(ProcessLookupError):
            one.kill()
        one.communicate()


def reasons(terminal: Terminal) -> dict[int, str]:
    """The detail that `missing` gives for each missing task."""
    listed = terminal.json("missing", "out.h5")["missing"]
    return {entry["task"]: entry["detail"] for entry in listed}


# Limits


def test_time_limit_ends_c_code_that_holds_the_interpreter_lock(
    terminal: Terminal, study: Study
) -> None:
    """A task in C code that never lets go of the GIL is ended by its time limit all the same."""
    study("""
        import ctypes
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1:
                ctypes.PyDLL(None).sleep(60)
            return {"x": seed}
    """)
    done = terminal.run(*RUN, "--timeout", "0.5s", "-j", 1, check=1)
    assert "2 of 3 done, 1 failed" in done.stderr
    assert kinds(terminal.folder)[1] == [RecordKind.TIMED_OUT]
    assert re.search(r"timed out: .*the limit is 0\.5 s", reasons(terminal)[1])
    assert re.search(r"time limit at study\.py:\d+ in f: still running", done.stderr)
    assert "  |     ctypes.PyDLL(None).sleep(60)\n" in done.stderr


def test_hung_task_leaves_the_stacks_of_the_users_code(terminal: Terminal, study: Study) -> None:
    """Of each thread in the user's code, also if what it waits in is none; of none of ours."""
    study("""
        import queue, threading
        def drain(waiting):
            waiting.get()
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            if seed == 1:
                thread = threading.Thread(target=drain, args=[queue.Queue()], daemon=True)
                thread.start()
                print("waits", flush=True)
                thread.join()
            return {"x": seed}
    """)
    said = terminal.run(*RUN, "--timeout", "0.5s", "-j", 1, check=1).stderr
    assert re.search(r"1 task timed out: time limit at study\.py:\d+ in f: ", said)
    first, second = said.split("  | Another thread when it was stopped (most recent call last):\n")
    assert "  | Stack when it was stopped (most recent call last):\n" in first
    assert "  |     thread.join()\n" in first
    assert "  |     waiting.get()\n" in second
    assert "h5sweep/" not in said
    (log,) = re.findall(r"  \| log: (.*)\n", second)
    assert "waits\n" in (terminal.folder / log).read_text()


@pytest.mark.parametrize(
    "how",
    [
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
        "signal.signal(signal.SIGRTMAX - 1, signal.SIG_IGN)",
    ],
)
def test_time_limit_holds_for_a_task_that_refuses_signals(
    terminal: Terminal, study: Study, how: str
) -> None:
    """It is ended all the same, soon after its limit, with a stack or without."""
    study(f"""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1:
                {how}
                time.sleep(60)
            return {{"x": seed}}
    """)
    terminal.run(*RUN, "--timeout", "0.5s", "-j", 1, check=1)
    assert kinds(terminal.folder) == {
        0: [RecordKind.DONE],
        1: [RecordKind.TIMED_OUT],
        2: [RecordKind.DONE],
    }


def test_task_that_ends_just_after_its_limit_is_done(terminal: Terminal, study: Study) -> None:
    """What it returned before it was killed is kept, and no other task of its batch is blamed."""
    study("""
        @h5sweep.sweep(seed=range(400))
        def f(seed):
            seen = []
            if seed == 300:
                signal.signal(signal.SIGRTMAX - 1, lambda *_: seen.append(1))
                while not seen:
                    time.sleep(0.01)
            return {"x": seed}
    """)
    terminal.run(*RUN, "--timeout", "0.5s", "-j", 1)


def test_interrupted_system_call_gives_no_wrong_result(terminal: Terminal, study: Study) -> None:
    """A task does not go on from the signal that asks for its stack."""
    study("""
        import ctypes
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            left = ctypes.CDLL(None).sleep(60) if seed == 1 else 0
            return {"x": left}
    """)
    terminal.run(*RUN, "--timeout", "0.5s", "-j", 1, check=1)
    assert kinds(terminal.folder) == {
        0: [RecordKind.DONE],
        1: [RecordKind.TIMED_OUT],
        2: [RecordKind.DONE],
    }


@pytest.mark.parametrize("number", ["SIGUSR1", "SIGUSR2", "SIGALRM", "SIGRTMIN"])
def test_signals_of_a_task_are_its_own(terminal: Terminal, study: Study, number: str) -> None:
    """What a task does with its signals works as it does without h5sweep."""
    study(f"""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            seen = []
            assert signal.getsignal(signal.{number}) is signal.SIG_DFL or seed
            signal.signal(signal.{number}, lambda number, frame: seen.append(number))
            os.kill(os.getpid(), signal.{number})
            return {{"x": len(seen)}}
    """)
    terminal.run(*RUN, "--timeout", "30s", "-j", 1)
    assert kinds(terminal.folder) == {0: [RecordKind.DONE], 1: [RecordKind.DONE]}


def test_time_limit_is_for_a_task_and_not_for_a_batch(terminal: Terminal, study: Study) -> None:
    """Tasks in one batch that together take longer than the time limit all end as done."""
    study("""
        @h5sweep.sweep(seed=range(400))
        def f(seed):
            if 300 <= seed < 306:
                time.sleep(0.3)
            return {"x": seed}
    """)
    terminal.run(*RUN, "--timeout", "0.7s", "-j", 1)
    started = sum(kind == RecordKind.STARTED for kind, _ in records(terminal.folder))
    assert started < 40  # or else the tasks that sleep were not in one batch


def test_memory_limit_ends_the_task_as_over_memory(terminal: Terminal, study: Study) -> None:
    """A task that takes more memory than it may is over memory; its neighbours are done."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1:
                hog = np.ones(60_000_000)
                time.sleep(60)
            return {"x": seed}
    """)
    terminal.run(*RUN, "--memory", "300MB", "-j", 1, check=1)
    assert kinds(terminal.folder) == {
        0: [RecordKind.DONE],
        1: [RecordKind.OVER_MEMORY],
        2: [RecordKind.DONE],
    }
    assert "the limit is 300 MB" in reasons(terminal)[1]


def test_memory_error_is_over_memory(terminal: Terminal, study: Study) -> None:
    """A task that raises MemoryError is over memory, not merely raised."""
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": np.ones(2**50 if seed else 1)}
    """)
    terminal.run(*RUN, "-j", 1, check=1)
    assert kinds(terminal.folder) == {0: [RecordKind.DONE], 1: [RecordKind.OVER_MEMORY]}


MEMORY_CGROUP = Path("/sys/fs/cgroup/memory")


@pytest.mark.skipif(
    os.geteuid() != 0 or not (MEMORY_CGROUP / "cgroup.procs").exists(),
    reason="needs root and a version 1 memory cgroup",
)
def test_kill_for_want_of_memory_is_named_as_such(terminal: Terminal, study: Study) -> None:
    """A worker that the kernel's OOM killer ends is said to be that, and the run goes on."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1:
                np.ones(100_000_000)
            return {"x": seed}
    """)
    group = MEMORY_CGROUP / f"h5sweep_test_{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text("400M")
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        done = subprocess.run(
            [*inside, *H5SWEEP, *RUN, "-j", "1", "--retries", "0"],
            cwd=terminal.folder,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 1, done.stderr
        assert kinds(terminal.folder) == {
            0: [RecordKind.DONE],
            1: [RecordKind.DIED],
            2: [RecordKind.DONE],
        }
        assert "out of memory" in reasons(terminal)[1]
    finally:
        group.rmdir()


# Deaths

DEATHS = {
    "segmentation fault": ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV: segmentation fault"),
    "abort": ("os.abort()", "SIGABRT: it aborted itself"),
    "exit": ("os._exit(3)", "exit code 3"),
    "exit 0": ("os._exit(0)", "exit code 0"),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL: by kill -9"),
    "real-time signal": ("os.kill(os.getpid(), 40)", "signal 40"),
}


def test_each_way_to_die_is_named_and_blamed_on_its_task(terminal: Terminal, study: Study) -> None:
    """Whatever ends a worker, exactly the task it was in is blamed, with the signal or code."""
    deaths = [code for code, _ in DEATHS.values()]
    body = "".join(f"    if seed == {2 * n + 1}: {code}\n" for n, code in enumerate(deaths))
    study(
        f"@h5sweep.sweep(seed=range({2 * len(deaths) + 1}))\n"
        f"def f(seed):\n{body}    return {{'x': seed}}\n"
    )
    terminal.run(*RUN, "-j", 2, "--retries", 0, check=1)
    found = reasons(terminal)
    assert "Exception ignored" not in logs(terminal.folder)
    assert sorted(found) == [2 * n + 1 for n in range(len(deaths))]
    for n, (_, words) in enumerate(DEATHS.values()):
        assert words in found[2 * n + 1]


def test_kill_from_outside_is_named(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """A worker that somebody kills with SIGKILL costs its current task, which is named."""
    study(
        MARK
        + """
@h5sweep.sweep(seed=range(3))
def f(seed):
    if seed == 1:
        mark(f"in_{os.getpid()}")
        time.sleep(60)
    return {"x": seed}
"""
    )
    process.append(terminal.start(*RUN, "-j", 1, "--retries", 0))
    (inside,) = until(lambda: list(terminal.folder.glob("in_*")))
    os.kill(int(inside.name[3:]), signal.SIGKILL)
    assert process[0].wait(30) == 1
    assert kinds(terminal.folder) == {
        0: [RecordKind.DONE],
        1: [RecordKind.DIED],
        2: [RecordKind.DONE],
    }
    assert "SIGKILL: by kill -9" in reasons(terminal)[1]


def test_one_killer_among_two_thousand_is_singled_out(terminal: Terminal, study: Study) -> None:
    """Of 2,000 tasks in batches, the one that kills its process fails and all others are done."""
    study(
        MARK
        + """
@h5sweep.sweep(seed=range(2000))
def f(seed):
    if seed == 1234:
        mark("killer")
        os.kill(os.getpid(), signal.SIGSEGV)
    if seed == 1235:
        mark("neighbour")
    return {"x": seed}
"""
    )
    done = terminal.run(*RUN, "-j", 2, check=1)
    assert "1,999 of 2,000 done, 1 failed" in done.stderr
    assert list(reasons(terminal)) == [1234]
    assert count(terminal.folder, "killer") == 3
    assert count(terminal.folder, "neighbour") == 1


def test_several_killers_in_one_batch_cost_only_themselves(
    terminal: Terminal, study: Study
) -> None:
    """Killers next to each other, first and last included, are each named and nothing else."""
    study("""
        @h5sweep.sweep(seed=range(400))
        def f(seed):
            if seed in (0, 200, 201, 399):
                os._exit(9)
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 2, "--retries", 0, check=1)
    assert list(reasons(terminal)) == [0, 200, 201, 399]


def test_sys_exit_is_a_failure_of_its_task(terminal: Terminal, study: Study) -> None:
    """sys.exit() in a task fails that task and ends no worker."""
    study("""
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            if seed == 1:
                sys.exit("given up")
            if seed == 2:
                raise KeyboardInterrupt
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 1, check=1)
    assert kinds(terminal.folder)[1] == kinds(terminal.folder)[2] == [RecordKind.RAISED]
    assert "SystemExit: given up" in reasons(terminal)[1]
    assert len(worker_pids(terminal.folder)) == 1


def test_exception_that_cannot_be_printed_fails_its_task_only(
    terminal: Terminal, study: Study
) -> None:
    """An exception whose own str() raises is recorded as raised, by its type."""
    study("""
        class Odd(Exception):
            def __str__(self):
                raise RuntimeError("no words")
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1:
                raise Odd
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 1, check=1)
    assert kinds(terminal.folder)[1] == [RecordKind.RAISED]
    assert "Odd" in reasons(terminal)[1]


def test_closing_all_descriptors_fails_the_task_and_not_the_run(
    terminal: Terminal, study: Study
) -> None:
    """A task that closes what is not its own is blamed, and the others are done elsewhere."""
    study("""
        @h5sweep.sweep(seed=range(6))
        def f(seed):
            if seed == 2:
                os.closerange(3, 100)
            if seed == 4:
                os.closerange(3, 100)
                time.sleep(60)
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 1, "--retries", 0, check=1)
    assert sorted(reasons(terminal)) == [2, 4]
    assert "closed" in reasons(terminal)[4]


def test_writing_to_all_descriptors_costs_nobody_anything(terminal: Terminal, study: Study) -> None:
    """What a task writes to descriptors that are not its own is no message, and is told once."""
    study("""
        from contextlib import suppress
        @h5sweep.sweep(seed=range(20))
        def f(seed):
            if seed in (5, 15):
                for descriptor in range(3, 64):
                    for text in (b"\\xff\\xff\\xff\\x7f", b"hello, hello, hello"):
                        with suppress(OSError):
                            os.write(descriptor, text)
            return {"x": seed}
    """)
    done = terminal.run(*RUN, "-j", 1, "--retries", 0)
    assert done.stderr.count("written to file descriptors that it did not open") == 1
    assert kinds(terminal.folder) == {seed: [RecordKind.DONE] for seed in range(20)}


def test_hung_task_that_has_written_to_all_descriptors_meets_its_limit(
    terminal: Terminal, study: Study
) -> None:
    """It can neither keep the coordinator waiting nor hide since when it has been running."""
    study("""
        from contextlib import suppress
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1:
                for descriptor in range(3, 64):
                    with suppress(OSError):
                        os.write(descriptor, b"hello, hello, hello, hello")
                time.sleep(60)
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 1, "--timeout", "0.5s", check=1)
    assert kinds(terminal.folder)[1] == [RecordKind.TIMED_OUT]
    assert kinds(terminal.folder)[2] == [RecordKind.DONE]


def test_answer_of_any_size_arrives(terminal: Terminal, study: Study) -> None:
    """Thousands of failures with long messages in one batch are each told."""
    study("""
        @h5sweep.sweep(seed=range(4000))
        def f(seed):
            raise ValueError("x" * 500)
    """)
    done = terminal.run(*RUN, "-j", 1, "--keep-going", check=1)
    assert "0 of 4,000 done, 4,000 failed" in done.stderr


# Retries


def test_fewer_than_no_retries_are_refused(terminal: Terminal, study: Study) -> None:
    """A negative count is a slip of the hand, and is said before anything runs."""
    study("@h5sweep.sweep(seed=[1])\ndef f(seed):\n    return {'x': seed}\n")
    shown = terminal.run(*RUN, "--retries", "died=-1", check=2)
    assert "'died=-1' is not a number of retries" in shown.stderr


def test_retries_are_counted_by_how_a_task_ended(terminal: Terminal, study: Study) -> None:
    """died, timed out and raised have counts of their own."""
    study(
        MARK
        + """
@h5sweep.sweep(how=["died", "slow", "raised", "memory"])
def f(how):
    mark(how)
    if how == "died":
        os._exit(1)
    if how == "slow":
        time.sleep(60)
    if how == "memory":
        raise MemoryError
    raise ValueError
"""
    )
    counts = "died=3,timed-out=1,raised=2,over-memory=0"
    terminal.run(*RUN, "-j", 2, "--timeout", "0.3s", "--retries", counts, check=1)
    attempts = {how: count(terminal.folder, how) for how in ("died", "slow", "raised", "memory")}
    assert attempts == {"died": 4, "slow": 2, "raised": 3, "memory": 1}
    assert [len(k) for _, k in sorted(kinds(terminal.folder).items())] == [4, 2, 3, 1]


def test_task_that_succeeds_when_tried_again_is_done(terminal: Terminal, study: Study) -> None:
    """Failures before a success are forgotten: exit code 0 and nothing missing."""
    study(
        MARK
        + """
@h5sweep.sweep(seed=range(3))
def f(seed):
    mark(f"attempt_{seed}")
    if os.path.getsize(f"attempt_{seed}") < 3:
        os._exit(1)
    return {"x": seed}
"""
    )
    done = terminal.run(*RUN, "-j", 2, "--retries", "died=2")
    assert "3 of 3 done, 0 failed" in done.stderr
    assert terminal.run("missing", "out.h5").stdout == ""


def test_pause_before_a_retry_doubles() -> None:
    """The n-th retry of a task waits 2^(n-1) times the back-off, and never longer than a minute."""
    settings = PoolSettings(workers=1, retries=Retries(died=9), backoff_s=10.0)
    queue = TaskQueue([], settings)
    waits = []
    for _ in range(5):
        assert queue.retry(7, RecordKind.DIED)
        due = queue._later[0][0]
        queue.clear()
        queue.retry(8, RecordKind.DIED)  # another task: its first pause is the unit
        unit = queue._later[0][0]
        queue.clear()
        queue._failures.pop((8, RecordKind.DIED))
        waits.append(round(due - unit))
    assert waits == [0, 10, 30, 50, 50]


def test_retry_waits_for_its_pause(terminal: Terminal, study: Study) -> None:
    """A task is tried again only after the back-off has passed."""
    study("""
        @h5sweep.sweep(seed=[0])
        def f(seed):
            if not os.path.exists("first"):
                open("first", "w").write(repr(time.monotonic()))
                raise ValueError
            return {"pause": time.monotonic() - float(open("first").read())}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "--retries", "raised=1", "--backoff", "0.7s")
    import h5py

    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["pause"][0] >= 0.7


# Workers


def test_workers_are_replaced_after_so_many_tasks(terminal: Terminal, study: Study) -> None:
    """With --tasks-per-worker 5 no process runs more than five tasks."""
    study("""
        @h5sweep.sweep(seed=range(20))
        def f(seed):
            print("pid", os.getpid())
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 2, "--tasks-per-worker", 5)
    pids = re.findall(r"pid (\d+)", logs(terminal.folder))
    assert len(pids) == 20
    assert max(pids.count(pid) for pid in pids) <= 5
    assert len(set(pids)) >= 4


def test_what_workers_print_at_import_is_kept_off_the_terminal(
    terminal: Terminal, study: Study
) -> None:
    """A study that prints at import prints once on stdout."""
    study('print("hello")\n@h5sweep.sweep(seed=range(9))\ndef f(seed): return {"x": seed}\n')
    done = terminal.run(*RUN, "-j", 2, "--tasks-per-worker", 2)
    assert done.stdout == "hello\n"


def test_long_task_does_not_hold_back_what_is_batched_behind_it(
    terminal: Terminal, study: Study
) -> None:
    """A task that needs what all the others write ends: those behind it run elsewhere."""
    study(
        MARK
        + """
@h5sweep.sweep(seed=range(300))
def f(seed):
    if seed == 150:
        mark("long")
        wait_for(*(f"done_{n}" for n in range(300) if n != seed))
    else:
        mark(f"done_{seed}")
    return {"x": seed}
"""
    )
    terminal.run(*RUN, "-j", 2)
    assert count(terminal.folder, "long") == 1
    assert all(found == [RecordKind.DONE] for found in kinds(terminal.folder).values())


def test_no_work_tasks_share_started_records(terminal: Terminal, study: Study) -> None:
    """20,000 tasks without work are done with far fewer than 20,000 STARTED records."""
    study('@h5sweep.sweep(seed=range(20_000))\ndef f(seed): return {"x": seed}\n')
    terminal.run(*RUN, "-j", 2)
    found = list(records(terminal.folder))
    assert sum(kind == RecordKind.DONE for kind, _ in found) == 20_000
    assert sum(kind == RecordKind.STARTED for kind, _ in found) < 200


def test_study_that_kills_workers_at_import_ends_the_run_with_a_reason(
    terminal: Terminal, study: Study
) -> None:
    """A study that segfaults in workers, but not in the coordinator, ends with a clear error."""
    study("""
        if "H5SWEEP_WORKER" in os.environ:
            os.kill(os.getpid(), signal.SIGSEGV)
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed}
    """)
    done = terminal.run(*RUN, "-j", 2, check=2)
    assert "SIGSEGV" in done.stderr
    assert "out.h5.run/logs" in done.stderr
    assert "Traceback" not in done.stderr


def test_study_that_does_not_import_in_workers_ends_the_run_with_its_traceback(
    terminal: Terminal, study: Study
) -> None:
    """A study that raises in workers only is shown with the user's own frames, once."""
    study("""
        if "H5SWEEP_WORKER" in os.environ:
            raise RuntimeError("no licence here")
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed}
    """)
    done = terminal.run(*RUN, "-j", 2, check=2)
    assert done.stderr.count("RuntimeError: no licence here") == 1


def test_workers_that_are_killed_while_they_start_are_started_again(
    terminal: Terminal, study: Study
) -> None:
    """Three kills from outside in a row, and more, are no mistake in the study."""
    study(
        MARK
        + """
if "H5SWEEP_WORKER" in os.environ:
    mark("starts")
    if os.path.getsize("starts") <= 4:
        os.kill(os.getpid(), signal.SIGKILL)  # nobody can tell who sent it
@h5sweep.sweep(seed=range(3))
def f(seed):
    return {"x": seed}
"""
    )
    done = terminal.run(*RUN, "-j", 1)
    assert "3 times in a row no worker reached its first task" in done.stderr
    assert "SIGKILL: by kill -9, or by the kernel, out of memory); trying" in done.stderr


def test_workers_that_are_always_killed_end_the_run_for_now(
    terminal: Terminal, study: Study
) -> None:
    """In the end the run gives up, says that the same command goes on, and exits with 1."""
    study("""
        if os.path.exists("out.h5.run"):  # in a worker
            os.kill(os.getpid(), signal.SIGKILL)
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed}
    """)
    impatient = (
        "import h5sweep.runner.workers as s; s.FIRST_PAUSE_S = 0.001; from h5sweep.cli import main"
    )
    words = [sys.executable, "-c", f"{impatient}; main()", *RUN, "-j", "2"]
    done = subprocess.run(words, cwd=terminal.folder, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "9 times in a row no worker reached its first task" in done.stderr
    assert "0 finished results are kept. Run the same command again" in done.stderr


def test_workers_that_cannot_be_started_end_the_run_for_now(
    terminal: Terminal, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system gives no more descriptors or processes, that is said, and is no bug."""
    monkeypatch.setattr(workers_module, "FIRST_PAUSE_S", 0.001)
    order = launch_order(RunFolder(terminal.folder / "out.h5"), study(WAITING_IMPORT), tasks=3)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pool.Pool(order, PoolSettings(workers=2)) as workers:
        free = os.open("/dev/null", os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
        try:
            with pytest.raises(StartError, match="cannot start a worker: Too many open files"):
                list(workers.run(range(3)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_failed_starts_do_not_end_what_is_running(terminal: Terminal, study: Study) -> None:
    """While a worker is in a task, others that do not get to one are tried again and again."""
    study(
        MARK
        + """
if "H5SWEEP_WORKER" in os.environ:
    try:
        os.mkdir("first")
    except FileExistsError:
        wait_for("in")
        mark("starts")
        if os.path.getsize("starts") <= 4:
            os._exit(3)
@h5sweep.sweep(seed=range(2))
def f(seed):
    mark("in")
    if seed == 0:
        wait_for("out")
    mark("out")
    return {"x": seed}
"""
    )
    terminal.run(*RUN, "-j", 2)
    assert kinds(terminal.folder) == {0: [RecordKind.DONE], 1: [RecordKind.DONE]}


def test_workers_that_die_before_their_first_record_end_the_run_with_a_reason(
    terminal: Terminal, study: Study
) -> None:
    """A worker that imports, and then always dies before a task, is not started for ever."""
    study("""
        if "H5SWEEP_WORKER" in os.environ:
            def pwrite(*_):
                os._exit(7)
            os.pwrite = pwrite
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed}
    """)
    done = terminal.run(*RUN, "-j", 1, check=2)
    assert "3 times in a row no worker reached its first task" in done.stderr
    assert "the process ended with exit code 7" in done.stderr


def test_how_a_worker_ended_is_known_also_where_children_are_ignored(
    terminal: Terminal, study: Study
) -> None:
    """A program that was started with SIGCHLD ignored would take every end for exit code 0."""
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            if seed == 1:
                os.kill(os.getpid(), signal.SIGSEGV)
            return {"x": seed}
    """)
    ignore = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    ignoring = [sys.executable, "-c", f"{ignore}; os.execv(sys.argv[1], sys.argv[1:])"]
    words = [*ignoring, *H5SWEEP, *RUN, "-j", "1", "--retries", "0"]
    done = subprocess.run(words, cwd=terminal.folder, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "SIGSEGV" in reasons(terminal)[1]


WAITING_IMPORT = (
    MARK
    + """
print("waiting for a licence")
wait_for("go")
@h5sweep.sweep(seed=range(3))
def f(seed):
    return {"x": seed}
"""
)


def launch_order(folder: RunFolder, study_path: Path, tasks: int) -> LaunchOrder:
    """A run folder with a plan, and what workers are told, without importing the study here."""
    folder.create()
    folder.save_plan(plan_product({"seed": range(tasks)}))
    reference = asdict(StudyReference("f", str(study_path), None))
    about = {"name": "f", "code": "", "search_path": sys.path, "arguments": sys.argv}
    about |= {"sources": [], "globals": {}}
    function = write_payload({**about, "reference": reference}, b"", [])
    return LaunchOrder(folder, function, 1, dict(os.environ))


def test_study_that_hangs_at_import_is_noted_once(
    terminal: Terminal, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that hangs at import is named once, with its log; later the run goes on."""
    monkeypatch.setattr(workers_module, "SLOW_IMPORT_S", 0.0)
    monkeypatch.chdir(terminal.folder)
    order = launch_order(RunFolder(terminal.folder / "out.h5"), study(WAITING_IMPORT), tasks=3)
    notes, ticks = [], 0
    with pool.Pool(order, PoolSettings(workers=2)) as workers:
        for event in workers.run(range(3)):
            if isinstance(event, Note):
                notes.append(event.text)
            ticks += isinstance(event, Tick)
            if ticks == 5:  # of two workers both have been looked at more than once
                (terminal.folder / "go").touch()
    assert kinds(terminal.folder) == {seed: [RecordKind.DONE] for seed in range(3)}
    (note,) = notes
    said = re.fullmatch(
        r"worker \d+ is still importing the study after \d+ s; what it prints is in (.*)", note
    )
    assert said is not None, note
    (log,) = order.folder.logs_path.glob(Path(said[1]).name)
    assert "waiting for a licence" in log.read_text()


def test_ctrl_c_ends_a_run_that_hangs_at_import(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """With nothing running, one Ctrl-C ends a run that waits for the study's import."""
    study(
        MARK
        + """
if "H5SWEEP_WORKER" in os.environ:
    mark("importing")
    wait_for("never")
@h5sweep.sweep(seed=range(3))
def f(seed):
    return {"x": seed}
"""
    )
    process.append(terminal.start(*RUN, "-j", 2))
    until(lambda: count(terminal.folder, "importing"))
    process[0].send_signal(signal.SIGINT)
    _, said = process[0].communicate(timeout=10)
    assert process[0].returncode == 130
    assert "stopped; 0 finished results are kept" in said


def test_pool_settings_that_cannot_work_are_refused() -> None:
    """No workers and no tasks a worker are the caller's mistakes."""
    for wrong in ({"workers": 0}, {"workers": -1}, {"tasks_per_worker": 0}):
        with pytest.raises(UsageError):
            PoolSettings(**{"workers": 1, **wrong})  # type: ignore[arg-type]


def run_with_open_files(terminal: Terminal, *, soft: int, hard: int, workers: int) -> str:
    """Run study.py under such limits of open files; return its exit code and what it said."""
    limited = ["sh", "-c", f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$@"', "sh"]
    done = subprocess.run(
        [*limited, *H5SWEEP, *RUN, "-j", str(workers)],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return f"{done.returncode}: {done.stderr}"


PRINT_OPEN_FILES = """
    import resource
    @h5sweep.sweep(seed=[0])
    def f(seed):
        print("open files:", resource.getrlimit(resource.RLIMIT_NOFILE))
        return {"x": seed}
"""


def test_limit_of_open_files_is_raised_for_many_workers(terminal: Terminal, study: Study) -> None:
    """Where the soft limit is too low for so many workers it becomes what they need."""
    study(PRINT_OPEN_FILES)
    said = run_with_open_files(terminal, soft=64, hard=1000, workers=100)
    assert said.startswith("0: "), said
    assert "open files: (700, 1000)" in logs(terminal.folder)


def test_limit_of_open_files_that_is_high_enough_is_left_alone(
    terminal: Terminal, study: Study
) -> None:
    """A soft limit that suffices stays as it is."""
    study(PRINT_OPEN_FILES)
    said = run_with_open_files(terminal, soft=900, hard=1000, workers=100)
    assert said.startswith("0: "), said
    assert "open files: (900, 1000)" in logs(terminal.folder)


def test_more_workers_than_open_files_allow_are_refused(terminal: Terminal, study: Study) -> None:
    """Beyond the hard limit a run says what it needs and what to do, and runs nothing."""
    study(PRINT_OPEN_FILES)
    said = run_with_open_files(terminal, soft=64, hard=650, workers=100)
    assert said.startswith("2: "), said
    assert "these workers need 700 open files, but only 650 are allowed: use fewer" in said
    assert "ulimit -n" in said
    assert not record_files(terminal.folder)


# What tasks print and leave behind


def test_what_tasks_print_goes_to_logs_tagged_by_key(terminal: Terminal, study: Study) -> None:
    """print, programs and warnings of a task stand in a log under its key, not on the terminal."""
    study("""
        import warnings
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 0:
                print("from python")
            if seed == 1:
                os.system("echo from a program; echo and its errors >&2")
            if seed == 2:
                warnings.warn("from a warning")
            return {"x": seed}
    """)
    done = terminal.run(*RUN, "-j", 1)
    assert done.stdout == ""
    assert "from" not in done.stderr
    assert "errors" not in done.stderr
    text = logs(terminal.folder)
    assert "--- seed=0\nfrom python\n" in text
    assert "from a program\nand its errors\n--- printed by seed=1: the 30 bytes above\n" in text
    assert re.search(r"--- seed=2\n.*UserWarning: from a warning", text)


def test_empty_logs_are_not_left_behind(terminal: Terminal, study: Study) -> None:
    """Tasks that print nothing leave no log."""
    study('@h5sweep.sweep(seed=range(3))\ndef f(seed): return {"x": seed}\n')
    terminal.run(*RUN, "-j", 2)
    assert logs(terminal.folder) == ""


def test_program_left_behind_ends_with_the_run(terminal: Terminal, study: Study) -> None:
    """A program that a task started and left neither hangs the run nor outlives it."""
    study("""
        import subprocess
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            if seed == 1:
                child = subprocess.Popen(["sleep", "600"])
                open("child", "w").write(str(child.pid))
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 2)
    child = int((terminal.folder / "child").read_text())
    assert ends_within(child, 2)


def test_thread_left_behind_does_not_hang_the_end(terminal: Terminal, study: Study) -> None:
    """A thread that a task left sleeping does not keep the run from ending."""
    study("""
        import threading
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            if seed == 2:
                threading.Thread(target=time.sleep, args=(600,)).start()
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 2)


def test_threads_left_behind_do_not_stall_the_other_workers(
    terminal: Terminal, study: Study
) -> None:
    """Replacing workers that do not end by themselves holds up nobody: limits are still kept."""
    study("""
        import threading
        @h5sweep.sweep(seed=range(7))
        def f(seed):
            if seed == 0:
                time.sleep(60)
            threading.Thread(target=time.sleep, args=(600,)).start()
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 2, "--tasks-per-worker", 1, "--timeout", "2s", check=1)
    detail = reasons(terminal)[0]
    ran_s = float(re.search(r"still running after ([\d.]+) s", detail)[1])
    assert ran_s < 4, detail


# Signals

LONG_TASKS = (
    MARK
    + """
@h5sweep.sweep(seed=range(6))
def f(seed):
    mark(f"in_{seed}")
    wait_for("go")
    mark(f"out_{seed}")
    return {"x": seed}
"""
)


def begin_long_tasks(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]], *words: str
) -> subprocess.Popen[str]:
    """Start the run of LONG_TASKS and wait until two of its tasks are in the middle."""
    study(LONG_TASKS)
    process.append(terminal.start(*RUN, "-j", 2, *words))
    until(lambda: count(terminal.folder, "in_0") and count(terminal.folder, "in_1"))
    return process[0]


def read_line_with(stream: object, words: str) -> str:
    for line in stream:  # type: ignore[attr-defined]
        if words in line:
            return str(line)
    raise AssertionError(f"never said: {words}")


def test_ctrl_c_once_lets_running_tasks_finish(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """After one Ctrl-C what runs is finished and kept, nothing new begins, exit code 130."""
    run = begin_long_tasks(terminal, study, process)
    run.send_signal(signal.SIGINT)
    read_line_with(
        run.stderr, "waiting up to 20 s for 2 running tasks; press Ctrl-C again to stop now"
    )
    (terminal.folder / "go").touch()
    _, said = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "stopped; 2 finished results are kept. Run the same command again" in said
    assert kinds(terminal.folder) == {0: [RecordKind.DONE], 1: [RecordKind.DONE]}
    assert not list(terminal.folder.glob("in_[2-5]"))


def test_ctrl_c_once_stops_what_is_longer_than_the_grace(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """After one Ctrl-C a run ends within its grace; what still ran is interrupted, not failed."""
    run = begin_long_tasks(terminal, study, process, "--grace", "1s")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=20)
    assert run.returncode == 130
    assert "waiting up to 1 s for 2 running tasks; press Ctrl-C again to stop now\n" in said
    assert "stopping 2 running tasks after 1 s\n" in said
    stopped = re.findall(r"stopped after \d+ s at study\.py:\d+ in wait_for: (seed=\d)\n", said)
    assert sorted(stopped) == ["seed=0", "seed=1"]
    assert "stopped; 0 finished results are kept" in said
    why = [m["reason"] for m in terminal.json("missing", "out.h5")["missing"]]
    assert why == ["interrupted"] * 2 + ["never started"] * 4


def test_one_finished_result_is_singular(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """1 running task, 1 finished result."""
    study(LONG_TASKS)
    process.append(terminal.start(*RUN, "-j", 1))
    until(lambda: count(terminal.folder, "in_0"))
    process[0].send_signal(signal.SIGINT)
    read_line_with(process[0].stderr, "waiting up to 20 s for 1 running task")
    (terminal.folder / "go").touch()
    _, said = process[0].communicate(timeout=30)
    assert "stopped; 1 finished result is kept. Run the same command again" in said


def test_ctrl_c_twice_stops_now(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """A second Ctrl-C ends running tasks at once; they are interrupted, not failed."""
    run = begin_long_tasks(terminal, study, process)
    run.send_signal(signal.SIGINT)
    read_line_with(run.stderr, "press Ctrl-C again to stop now")
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=10)
    assert run.returncode == 130
    assert "stopped; 0 finished results are kept" in said
    reasons_given = {m["reason"] for m in terminal.json("missing", "out.h5")["missing"]}
    assert reasons_given == {"interrupted", "never started"}
    assert not any(is_running(pid) for pid in worker_pids(terminal.folder))


def test_stopped_run_counts_what_its_last_batch_had_finished(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """The number of kept results in the last message is the number that status gives."""
    study(
        MARK
        + """
@h5sweep.sweep(seed=range(400))
def f(seed):
    if seed == 300:
        mark("in")
        time.sleep(60)
    return {"x": seed}
"""
    )
    process.append(terminal.start(*RUN, "-j", 1))
    until(lambda: count(terminal.folder, "in"))
    process[0].send_signal(signal.SIGINT)
    read_line_with(process[0].stderr, "Ctrl-C again")
    process[0].send_signal(signal.SIGINT)
    _, said = process[0].communicate(timeout=20)
    done = terminal.json("status", "out.h5")["done"]
    assert f"stopped; {done} finished results are kept" in said


def test_sigterm_lets_tasks_finish_within_the_grace(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """SIGTERM, as batch systems send it: running tasks finish, exit code 143."""
    run = begin_long_tasks(terminal, study, process)
    run.send_signal(signal.SIGTERM)
    read_line_with(run.stderr, "told to stop: waiting up to 20 s for 2 running tasks")
    (terminal.folder / "go").touch()
    run.communicate(timeout=30)
    assert run.returncode == 143
    assert kinds(terminal.folder) == {0: [RecordKind.DONE], 1: [RecordKind.DONE]}


def test_sigterm_ends_tasks_after_the_grace(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """Tasks that are longer than the grace are ended, and the exit code is 143."""
    run = begin_long_tasks(terminal, study, process, "--grace", "0.3s")
    run.send_signal(signal.SIGTERM)
    assert run.wait(10) == 143
    assert kinds(terminal.folder) == {}


def test_signal_to_the_whole_process_group_is_the_same(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """SIGTERM to workers too, as some batch systems send it, interrupts no task."""
    run = begin_long_tasks(terminal, study, process)
    for pid in [*worker_pids(terminal.folder), run.pid]:
        os.kill(pid, signal.SIGTERM)
    read_line_with(run.stderr, "told to stop")
    (terminal.folder / "go").touch()
    assert run.wait(30) == 143
    assert kinds(terminal.folder) == {0: [RecordKind.DONE], 1: [RecordKind.DONE]}


def test_killed_coordinator_takes_its_workers_along_and_loses_nothing(
    terminal: Terminal, study: Study, process: list[subprocess.Popen[str]]
) -> None:
    """Workers of a SIGKILLed run end within 2 s, what they finished stays, the rest is run."""
    study(
        MARK
        + """
@h5sweep.sweep(seed=range(40))
def f(seed):
    mark(f"in_{seed}")
    if seed in (30, 31):
        wait_for("go")
    return {"x": seed}
"""
    )
    process.append(terminal.start(*RUN, "-j", 2))
    until(lambda: count(terminal.folder, "in_30"))
    until(lambda: len(kinds(terminal.folder)) >= 30)
    process[0].kill()
    assert all(ends_within(pid, 2) for pid in worker_pids(terminal.folder))
    finished = set(kinds(terminal.folder))
    (terminal.folder / "go").touch()
    again = terminal.run(*RUN, "-j", 2)
    assert f"{len(finished)} kept, {40 - len(finished)} to do" in again.stderr
    assert all(count(terminal.folder, f"in_{seed}") == 1 for seed in finished)


def test_killed_worker_of_a_batch_system_step_is_not_a_zombie(
    terminal: Terminal, study: Study
) -> None:
    """No process of a run that has ended is left, not even as a zombie of its parent."""
    study('@h5sweep.sweep(seed=range(9))\ndef f(seed): return {"x": seed}\n')
    terminal.write(
        "caller.py",
        """
        import os, pathlib, study
        study.f.run("out.h5", workers=2, merge=False, tasks_per_worker=3)
        me = os.getpid()
        stats = [p.read_text() for p in pathlib.Path("/proc").glob("[0-9]*/stat")]
        print([s for s in stats if int(s.rpartition(")")[2].split()[1]) == me])
        """,
    )
    done = subprocess.run(
        [sys.executable, "caller.py"], cwd=terminal.folder, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr


# Tasks that do what tasks should not do


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "late"])
def test_alarm_that_a_task_forgets_meets_no_other_task(
    terminal: Terminal, study: Study, handler: str
) -> None:
    """It ends with its task: neither is a later one blamed, nor does a worker die of it."""
    study(f"""
        def late(*_):
            raise RuntimeError("late")
        set_at = []
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            if seed == 1:
                signal.signal(signal.SIGALRM, {handler})
                signal.setitimer(signal.ITIMER_REAL, 1.0, 0.001)
                set_at.append(time.monotonic())
            while seed == 2 and time.monotonic() < set_at[0] + 1.2:
                pass
            return {{"x": seed}}
    """)
    terminal.run(*RUN, "-j", 1, "--retries", 0)
    assert len(worker_pids(terminal.folder)) == 1


def test_what_a_task_leaves_behind_ends_a_worker_and_not_the_run(
    terminal: Terminal, study: Study
) -> None:
    """A function of ours that a task has replaced fails in this process, and nowhere else."""
    study("""
        @h5sweep.sweep(seed=range(40))
        def f(seed):
            if seed == 7:
                time.monotonic_ns = None
            return {"x": seed}
    """)
    terminal.run(*RUN, "-j", 1)
    assert kinds(terminal.folder) == {seed: [RecordKind.DONE] for seed in range(40)}
    assert "'NoneType' object is not callable" in logs(terminal.folder)


@pytest.mark.parametrize("what", ["records", "run folder"])
def test_task_that_removes_records_stops_the_run(
    terminal: Terminal, study: Study, what: str
) -> None:
    """Results are kept no longer then, which is said; the same command runs what is lost."""
    study(f"""
        import shutil
        @h5sweep.sweep(seed=range(20))
        def f(seed):
            if seed == 5 and not os.path.exists("removed"):
                os.mkdir("removed")
                shutil.rmtree("out.h5.run/records" if "{what}" == "records" else "out.h5.run")
            return {{"x": seed}}
    """)
    done = terminal.run(*RUN, "-j", 1, check=1)
    assert re.search(r"cannot write .*\.records: it has been removed\. The run has ", done.stderr)
    assert "; 0 finished results are kept. Fix that, then run the same command" in done.stderr
    terminal.run(*RUN, "-j", 1)


def test_run_counts_what_the_output_holds(terminal: Terminal, study: Study) -> None:
    """Results that were lost after their task had ended are missing, not done."""
    study("""
        import glob
        @h5sweep.sweep(seed=range(20))
        def f(seed):
            if seed == 10 and not os.path.exists("cut"):
                os.mkdir("cut")
                for path in glob.glob("out.h5.run/records/worker*"):
                    os.truncate(path, 0)
            return {"x": seed}
    """)
    done = terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, check=1)
    assert "10 of 20 done, 0 failed\n" in done.stderr
    assert "the same command runs the missing tasks" in done.stderr
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)


def test_processes_that_a_task_forks_can_be_ended(terminal: Terminal, study: Study) -> None:
    """They do with signals what they do without h5sweep, and the worker itself still ignores."""
    study("""
        @h5sweep.sweep(number=["SIGTERM", "SIGHUP", "SIGINT"])
        def f(number):
            ours, theirs = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(theirs, b".")
                time.sleep(5)
            os.read(ours, 1)
            os.kill(child, getattr(signal, number))
            _, status = os.waitpid(child, 0)
            assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
            os.kill(os.getpid(), getattr(signal, number))
            return {"x": os.waitstatus_to_exitcode(status)}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    import h5py

    with h5py.File(terminal.folder / "out.h5") as file:
        # KeyboardInterrupt is raised in the task, of which the copy has nothing to say.
        assert file["x"][:].tolist() == [-signal.SIGTERM, -signal.SIGHUP, 1]


def test_task_that_forks_and_returns_twice_is_one_task(terminal: Terminal, study: Study) -> None:
    """The copy of a worker that a task forked ends with the task and writes nothing."""
    study("""
        @h5sweep.sweep(seed=range(40))
        def f(seed):
            if seed % 10 == 3 and os.fork() == 0:
                sys.exit(0)
            return {"x": seed}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "--no-merge", "-j", "2")
    assert kinds(terminal.folder) == {task: [RecordKind.DONE] for task in range(40)}


def test_task_whose_error_cannot_be_worded_fails_alone(terminal: Terminal, study: Study) -> None:
    """A chain of thousands of errors is too deep to be shown, and costs one task."""
    study("""
        @h5sweep.sweep(seed=range(5))
        def f(seed):
            if seed == 2:
                error = None
                for number in range(5000):
                    later = ValueError(number)
                    later.__cause__ = error
                    error = later
                raise error
            return {"x": seed}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "--no-merge", check=1)
    assert kinds(terminal.folder)[2] == [RecordKind.RAISED]
    assert len(kinds(terminal.folder)) == 5


def test_task_that_closes_stdout_costs_no_other(terminal: Terminal, study: Study) -> None:
    """What one task does to sys.stdout is not the next one's trouble."""
    study("""
        @h5sweep.sweep(seed=range(6))
        def f(seed):
            print("hello from", seed)
            sys.stdout.close()
            return {"x": seed}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "--no-merge", "-j", "1")
    assert "hello from 5" in logs(terminal.folder)


def test_study_that_breaks_during_a_run_costs_no_running_task(
    terminal: Terminal, study: Study
) -> None:
    """Workers that are started after an edit run the study as it was: the run is completed."""
    text = """
        @h5sweep.sweep(seed=range(12))
        def f(seed):
            open(f"begun{seed}", "w").close()
            while seed >= 2 and not os.path.exists("mended"):
                time.sleep(0.01)
            return {"x": seed}
    """
    path = study(text)
    words = ("run", "study.py", "-o", "out.h5", "--no-merge", "-j", "2", "--tasks-per-worker", "1")
    process = terminal.start(*words)
    until(lambda: (terminal.folder / "begun3").exists())
    sound = path.read_text()
    path.write_text(sound + "\ndef broken(")
    (terminal.folder / "mended").touch()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "SyntaxError" in terminal.run(*words, check=2).stderr
    path.write_text(sound)
    assert "12 kept, 0 to do" in terminal.run(*words).stderr


def test_results_of_a_first_batch_are_synced(terminal: Terminal, study: Study) -> None:
    """The file of a worker that dies in its first batch is synced all the same."""
    study("""
        @h5sweep.sweep(seed=range(4000))
        def f(seed):
            if seed % 400 == 399:
                os.kill(os.getpid(), 9)
            return {"x": seed}
    """)
    log = terminal.folder / "trace"
    words = ["run", "study.py", "-o", "out.h5", "--no-merge", "-j", "1", "--retries", "0"]
    strace = ["strace", "-f", "-b", "execve", "-y", "-o", str(log), "-e", "trace=fdatasync"]
    subprocess.run([*strace, *H5SWEEP, *words], cwd=terminal.folder, capture_output=True)
    files = [path.name for path in record_files(terminal.folder) if "worker" in path.name]
    assert len(files) > 5
    trace = log.read_text()
    # The last one ended by itself and synced its file on the way out.
    assert len([name for name in files if name not in trace]) <= 1


def test_a_last_sync_that_fails_ends_the_run_with_an_error(
    terminal: Terminal, study: Study
) -> None:
    """What may not be on the disk is not reported as done and durable."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed}
    """)
    words = ["run", "study.py", "-o", "out.h5", "--no-merge", "-j", "1"]
    strace = ["strace", "-f", "-b", "execve", "-o", "/dev/null", "-e", "trace=fdatasync"]
    strace += ["-e", "inject=fdatasync:error=EIO"]
    done = subprocess.run(
        [*strace, *H5SWEEP, *words], cwd=terminal.folder, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "Input/output error" in done.stderr


def test_record_file_that_the_disk_does_not_show_is_not_called_removed(tmp_path: Path) -> None:
    """A network that is cut is not a file that somebody has removed."""
    gone = tmp_path / ("x" * 300)  # too long a name to be looked for: refused, and not missing
    worker = SimpleNamespace(record_path=gone, batch=[1], _taken_back_at=None, tasks_run=0)
    with pytest.raises(StorageError, match="File name too long"):
        WorkerHandle.end_batch(worker, 1)
    worker.record_path = tmp_path / "gone.records"
    with pytest.raises(StorageError, match="it has been removed"):
        WorkerHandle.end_batch(worker, 1)
