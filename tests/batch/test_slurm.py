"""A sweep that is submitted to a real Slurm completes, whatever happens to its jobs.

After each of these every result is right and no task was finished twice.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import pytest

from h5sweep.batch.slurm import end_of_job
from h5sweep.runfolder.records import RecordKind
from private_slurm import PrivateSlurm, has_cgroups, needs_slurm, private_slurm
from running import has_only_failed, kinds, until
from terminal import H5SWEEP, Terminal

pytestmark = needs_slurm
TASKS = 40
STUDY = """
import os, time
import h5sweep

@h5sweep.sweep(seed=range({tasks}))
def optimise(seed):
    {body}
    return {{"aep": seed * 2.0}}
"""
SHORT = ("--parts", 4, "--time", "10min", "--mem", "300MB", "--grace", "2s")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    """One for all tests of this module; each leaves its queue empty."""
    with private_slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateSlurm]:
    yield from _used(cluster, monkeypatch)


def _used(cluster: PrivateSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateSlurm]:
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    yield cluster
    cluster.ask("scancel", "--me", check=False)
    until(lambda: not cluster.jobs(), what="an empty queue")


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    folder = tmp_path / "my sweep 100%"
    folder.mkdir()
    return Terminal(folder)


def write_study(terminal: Terminal, body: str = "time.sleep(0.5)", tasks: int = TASKS) -> None:
    (terminal.folder / "study.py").write_text(STUDY.format(body=body, tasks=tasks))


def submit(terminal: Terminal, *words: object, check: int = 0) -> str:
    """Submit the study; return what was said."""
    done = terminal.run("submit", "study.py", "-o", "out.h5", *SHORT, *words, check=check)
    return done.stderr


def job_in(said: str) -> str:
    match = re.search(r"Slurm job (\d+); job (\d+) merges", said)
    assert match, said
    return match[1]


def results(terminal: Terminal) -> int:
    found = kinds(terminal.folder)
    return sum(RecordKind.DONE in outcomes for outcomes in found.values())


def wait_for_results(terminal: Terminal, at_least: int = 4) -> None:
    until(lambda: results(terminal) >= at_least, within_s=60, what=f"{at_least} results")


def check_complete(terminal: Terminal, tasks: int = TASKS) -> None:
    """Every result is in the output, right, and was computed once."""
    said = terminal.run("status", "out.h5", "--exit-code", check=None)
    assert said.returncode == 0, f"{said.stdout}{said.stderr}{logs_of(terminal, '*.log')}"
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["seed"][:].tolist() == list(range(tasks))
        assert file["aep"][:].tolist() == [seed * 2.0 for seed in range(tasks)]
    assert set(map(tuple, kinds(terminal.folder).values())) == {(RecordKind.DONE,)}


def logs_of(terminal: Terminal, pattern: str) -> str:
    paths = sorted((terminal.folder / "out.h5.run/logs").glob(pattern))
    return "\n".join(path.read_text() for path in paths)


def test_parts_run_and_a_last_job_merges(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """From one command to the output; then there is nothing to submit."""
    write_study(terminal, "time.sleep(0.05)")
    said = submit(terminal)
    assert "0 kept, 40 to do" in said and "submitted 4 parts" in said
    slurm.wait_until_over()
    check_complete(terminal)
    assert "nothing is missing" in logs_of(terminal, "merge_*")
    assert "out.h5 is up to date" in submit(terminal)
    assert terminal.run("status", "out.h5").stdout.splitlines()[-1] == "complete"


def test_jobs_run_the_study_as_it_was_submitted(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """A study that is edited while its jobs wait does not change what they compute."""
    write_study(terminal, "pass")
    job = job_in(submit(terminal, "--sbatch", "--hold"))
    write_study(terminal, "seed = -1")
    slurm.ask("scontrol", "release", job, str(int(job) + 1))
    slurm.wait_until_over()
    write_study(terminal, "pass")
    check_complete(terminal)


def test_status_says_what_is_queued(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """While jobs wait, status counts them, and a second submission is refused."""
    write_study(terminal, "pass")
    job = job_in(submit(terminal, "--sbatch", "--hold"))
    merge = str(int(job) + 1)
    said = terminal.run("status", "out.h5").stdout
    assert f"Slurm job {job}: 4 pending (JobHeldUser); job {merge}: 1 pending (" in said
    assert "start the run again" not in said
    states = {job: {"pending": 4}, merge: {"pending": 1}}
    jobs = terminal.json("status", "out.h5")["jobs"]
    assert jobs["answered"] and jobs["states"] == states
    said = submit(terminal, check=4)
    command = re.search(r"end them with: (scancel [\d ]+),", said)
    assert command, said
    subprocess.run(command[1].split(), check=True)
    until(lambda: not slurm.jobs())
    assert "Slurm" not in terminal.run("status", "out.h5").stdout
    submit(terminal)
    slurm.wait_until_over()
    check_complete(terminal)


def test_refusals_of_slurm_are_told(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """Its own words, and what to do about them; then it can be submitted."""
    write_study(terminal, "pass", tasks=400)
    said = submit(terminal, "--parts", 200, check=1)
    assert "Invalid job array specification" in said
    assert "at most 100 parts: submit with --parts 100" in said
    said = submit(terminal, "--sbatch", "--partition nowhere", check=1)
    assert "invalid partition specified: nowhere" in said
    submit(terminal, "--sbatch", "--partition urgent --comment 'two words'")
    slurm.wait_until_over()
    check_complete(terminal, 400)


# What happens to jobs


def test_cancelled_parts_are_submitted_again(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """scancel of all parts: what is done is merged, the same command runs the rest."""
    write_study(terminal)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    slurm.ask("scancel", job)
    slurm.wait_until_over()
    done = results(terminal)
    assert 4 <= done < TASKS
    assert "stopped; " in logs_of(terminal, "part_*")
    assert f"{TASKS - done} of {TASKS} missing" in logs_of(terminal, "merge_*")
    assert f"{done} kept, {TASKS - done} to do" in submit(terminal)
    slurm.wait_until_over()
    check_complete(terminal)


def test_one_cancelled_part_is_taken_over(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """What a part leaves that was cancelled, the others run."""
    write_study(terminal)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    slurm.ask("scancel", f"{job}_2")
    slurm.wait_until_over()
    check_complete(terminal)
    assert ": took over " in logs_of(terminal, "part_*")


def test_requeued_parts_go_on(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """A part that is put back into the queue does the rest when it starts again."""
    write_study(terminal)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    slurm.ask("scontrol", "requeue", f"{job}_1,{job}_2,{job}_3,{job}_4")
    slurm.wait_until_over()
    check_complete(terminal)
    said = logs_of(terminal, f"part_{job}_*.log")
    assert "DUE TO JOB REQUEUE" in said
    assert said.count(" kept, ") > 4  # which each part says once when it starts


def test_preempted_parts_go_on(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """Jobs of more weight that take all nodes only put the parts off."""
    write_study(terminal)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    urgent = ["sbatch", "-p", "urgent", "-N4", "--exclusive", "-o", "/dev/null"]
    slurm.ask(*urgent, "--wrap", "sleep 1")
    slurm.wait_until_over()
    check_complete(terminal)
    assert "DUE TO PREEMPTION" in logs_of(terminal, f"part_{job}_*.log")


def test_parts_end_in_order_at_the_time_limit(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """A limit that came nearer after the start: SIGTERM, and the next submission runs the rest."""
    write_study(terminal, "time.sleep(1)", tasks=150)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    soon = subprocess.run(
        ["date", "-d", "+2 sec", "+%Y-%m-%dT%H:%M:%S"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for part in range(1, 5):
        slurm.ask("scontrol", "update", f"JobId={job}_{part}", f"EndTime={soon}")
    slurm.wait_until_over()
    assert logs_of(terminal, "part_*").count("DUE TO TIME LIMIT") == 4
    assert "150 missing" in logs_of(terminal, "merge_*")
    write_study(terminal, "pass", tasks=150)
    submit(terminal, "--changed", "keep")
    slurm.wait_until_over()
    check_complete(terminal, 150)


@pytest.mark.exhaustive
def test_no_task_is_begun_that_the_time_limit_would_kill(
    slurm: PrivateSlurm, terminal: Terminal
) -> None:
    """A part knows when its job ends, and ends by itself before that."""
    write_study(terminal, "time.sleep(8)", tasks=100)
    submit(terminal, "--time", "1min")
    slurm.wait_until_over(within_s=120)
    said = logs_of(terminal, "part_*")
    assert "the time is up" in said and "DUE TO TIME LIMIT" not in said and "stopping" not in said
    assert set(map(tuple, kinds(terminal.folder).values())) == {(RecordKind.DONE,)}


def test_each_part_of_an_array_learns_its_own_end(slurm: PrivateSlurm) -> None:
    """Also the last, whose job has the number of the array, while others wait."""
    words = ["--parsable", "--hold", "--array=1-3", "--output=/dev/null", "--time=10"]
    job = slurm.ask("sbatch", *words, "--wrap", "sleep 100")
    slurm.ask("scontrol", "release", f"{job}_3")
    until(lambda: slurm.jobs()[f"{job}_3"] == "RUNNING")
    array = {"SLURM_ARRAY_JOB_ID": job, "SLURM_JOB_ID": job}
    end = end_of_job({**array, "SLURM_ARRAY_TASK_ID": "3"})
    assert end is not None and 500 < end - time.time() <= 600
    assert end_of_job({**array, "SLURM_ARRAY_TASK_ID": "2"}) is None


@pytest.mark.exhaustive
def test_a_time_limit_that_is_extended_is_used(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """A part that is given more time does not end where it would have ended."""
    write_study(terminal, "time.sleep(5)", tasks=16)
    job = job_in(submit(terminal, "--parts", 1, "--time", "1min"))
    wait_for_results(terminal, at_least=1)
    slurm.ask("scontrol", "update", f"JobId={job}", "TimeLimit=10")
    slurm.wait_until_over(within_s=180)
    check_complete(terminal, 16)
    assert "the time is up" not in logs_of(terminal, "part_*")


@pytest.mark.exhaustive
def test_a_job_that_is_too_short_for_any_task_says_so(
    slurm: PrivateSlurm, terminal: Terminal
) -> None:
    """The same command would run these tasks for ever."""
    write_study(terminal, "time.sleep(90)", tasks=1)
    submit(terminal, "--time", "1min")
    slurm.wait_until_over(within_s=150)
    said = logs_of(terminal, "part_*")
    assert said.count("tasks take longer than the job: submit with a longer --time") == 1


def fail_node(slurm: PrivateSlurm, terminal: Terminal, say_so: bool) -> None:
    write_study(terminal)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    node = slurm.node_of(f"{job}_1")
    slurm.kill_node(node)
    if say_so:  # what the controller finds out by itself after a while
        slurm.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=killed")
    try:
        until(lambda: "down" in slurm.ask("sinfo", "-h", "-n", node, "-o", "%t"), within_s=90)
        slurm.wait_until_over(within_s=120)
        check_complete(terminal)
    finally:
        slurm.start_node(node)
        slurm.ask("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        until(lambda: "idle" in slurm.ask("sinfo", "-h", "-n", node, "-o", "%t"))


def test_parts_of_a_failed_node_go_on(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """What ran on a node that is gone is run by other parts, or by the same on another node."""
    fail_node(slurm, terminal, say_so=True)


@pytest.mark.exhaustive
def test_parts_of_a_silent_node_go_on(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """The same if nobody tells the controller."""
    fail_node(slurm, terminal, say_so=False)


@pytest.mark.exhaustive
def test_fewer_parts_may_run_at_once(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """As the page about Slurm says; the others wait for their turn, and find what is left."""
    write_study(terminal, "pass")
    job = job_in(submit(terminal, "--sbatch", "--hold"))
    slurm.ask("scontrol", "update", f"JobId={job}", "ArrayTaskThrottle=1")
    slurm.ask("scontrol", "release", job, str(int(job) + 1))
    until(lambda: "RUNNING" in slurm.jobs().values())
    assert list(slurm.jobs().values()).count("RUNNING") == 1
    slurm.wait_until_over()
    check_complete(terminal)


@pytest.mark.exhaustive
def test_more_parts_may_be_submitted_by_hand(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """The script is an ordinary one: submitted twice, twice as many jobs share the work."""
    gate = terminal.folder / "go"
    write_study(terminal, f"while not os.path.exists({str(gate)!r}): time.sleep(0.02)")
    submit(terminal)
    more = slurm.ask("sbatch", "--parsable", "out.h5.run/submit/1.sh", cwd=terminal.folder)
    assert f"job {more}: " in terminal.run("status", "out.h5").stdout
    assert f" {more}, then submit again" in submit(terminal, check=4)
    gate.touch()
    slurm.wait_until_over()
    terminal.run("merge", "out.h5")
    check_complete(terminal)


def test_ranks_of_srun_are_parts(slurm: PrivateSlurm, terminal: Terminal) -> None:
    """--part auto under srun; a task that kills its process and one that raises end no rank."""
    write_study(
        terminal,
        "if seed == 3: os.kill(os.getpid(), 9)\n    if seed == 5: raise ValueError('no')",
    )
    words = ["run", "study.py", "-o", "out.h5", "--part", "auto", "-j", "1", "--backoff", "0s"]
    done = subprocess.run(
        ["srun", "-n4", "--mem-per-cpu=400", "--kill-on-bad-exit=1", *H5SWEEP, *words],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    found = kinds(terminal.folder)
    assert {task for task, ended in found.items() if ended == [RecordKind.DONE]} == set(
        range(TASKS)
    ) - {3, 5}
    assert has_only_failed(found[3], RecordKind.DIED, attempts=3)
    assert has_only_failed(found[5], RecordKind.RAISED)
    assert {f"part {number}/4: ended" in done.stderr for number in range(1, 5)} == {True}


# Where memory is limited by the kernel


@pytest.fixture
def cgroup_slurm(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PrivateSlurm]:
    folder = tmp_path_factory.mktemp("slurm")
    with private_slurm(folder, with_cgroups=True) as slurm:
        yield from _used(slurm, monkeypatch)


needs_cgroups = pytest.mark.skipif(
    not has_cgroups, reason="not a thing of this kernel: memory limits by cgroups v1"
)


@needs_cgroups
def test_signals_reach_a_part_under_cgroups(cgroup_slurm: PrivateSlurm, terminal: Terminal) -> None:
    """As on most clusters: only the process of the script is sent SIGTERM, and that is the part."""
    write_study(terminal)
    job = job_in(submit(terminal))
    wait_for_results(terminal)
    cgroup_slurm.ask("scontrol", "requeue", f"{job}_1,{job}_2,{job}_3,{job}_4")
    cgroup_slurm.wait_until_over()
    check_complete(terminal)
    assert "stopped; " in logs_of(terminal, f"part_{job}_1.log")


@needs_cgroups
def test_a_task_that_takes_all_memory_fails_alone(
    cgroup_slurm: PrivateSlurm, terminal: Terminal
) -> None:
    """The kernel kills the worker that has most; its task is named, all others are done."""
    write_study(terminal, "if seed == 7: x = bytearray(2**30)")
    submit(terminal, "--backoff", "0s")
    cgroup_slurm.wait_until_over()
    found = kinds(terminal.folder)
    others = {task: ended for task, ended in found.items() if task != 7}
    assert has_only_failed(found[7], RecordKind.DIED, attempts=3)
    assert len(others) == TASKS - 1
    assert set(map(tuple, others.values())) == {(RecordKind.DONE,)}
    assert "seed=7  failed: died: SIGKILL" in logs_of(terminal, "merge_*")
