"""The command line: exit codes, what goes where, JSON, CSV, live views, and its own reference."""

from __future__ import annotations

import csv
import fcntl
import importlib.util
import io
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from h5sweep.cli.full_screen import ENTER, HOME, LEAVE
from h5sweep.runfolder.records import RecordKind, read_records
from h5sweep.runner.recorder import Recorder
from places import DOCS
from running import kinds, record_files, run_folder, until, worker_pids
from terminal import H5SWEEP, Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "--no-merge", "--backoff", "0s")

MIXED = """
@h5sweep.sweep(farm=["a", "b"], seed=range(3))
def f(farm, seed):
    if farm == "b" and seed == 1:
        raise ValueError("two\\nlines, and a comma")
    return {"x": seed}
"""


@pytest.fixture
def mixed(terminal: Terminal, study: Study) -> Terminal:
    """A folder after a run of six tasks of which one failed."""
    study(MIXED)
    terminal.run(*RUN, "-j", 2, check=1)
    return terminal


# Exit codes and words


def test_help_of_every_command_works(terminal: Terminal) -> None:
    """-h and --help print to stdout and exit with 0."""
    commands = re.findall(r"^## h5sweep ?(\w*)$", (DOCS / "cli.md").read_text(), re.M)
    assert "run" in commands
    for command in commands:
        done = terminal.run(*filter(None, [command]), "--help")
        assert done.stdout.startswith("Usage: ")
        assert done.stderr == ""
    assert terminal.run("-h").stdout == terminal.run("--help").stdout


def test_version_is_printed(terminal: Terminal) -> None:
    """--version names the version."""
    assert re.fullmatch(r"h5sweep, version \d+\.\d+\.\d+\n", terminal.run("--version").stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "No such command"),
        (["run"], "Missing argument"),
        (["run", "study.py", "--workers", "0"], "--workers"),
        (["run", "study.py", "--timeout", "soon"], "write 90s, 20min or 1h30min"),
        (["run", "study.py", "--timeout", "0"], "give more than 0, or leave the option out"),
        (["run", "study.py", "--memory", "0MB"], "give more than 0, or leave the option out"),
        (["run", "study.py", "--memory", "lots"], "write 500MB, 2GB or 4GiB"),
        (["run", "study.py", "--retries", "often"], "died=3,timed-out=1,raised=0"),
        (["run", "study.py", "--retries", "slept=3"], "died=3,timed-out=1,raised=0"),
        (["run", "study.py", "--tasks-per-worker", "0"], "--tasks-per-worker"),
        (["status", "nowhere.h5"], "there is no run folder nowhere.h5.run"),
        (["missing", "nowhere.h5"], "name the output given to a run with -o"),
        (["merge", "nowhere.h5"], "there is no run folder"),
        (["status", "."], "name an output, such as"),
    ],
)
def test_wrong_usage_is_exit_code_2(terminal: Terminal, words: list[str], said: str) -> None:
    """Wrong usage: exit code 2, the reason on stderr, nothing on stdout, nothing made."""
    done = terminal.run(*words, check=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(terminal.folder.iterdir()) == []


def test_no_command_shows_the_help(terminal: Terminal) -> None:
    """`h5sweep` alone shows what it can do."""
    done = terminal.run(check=2)
    assert "Commands:" in done.stdout + done.stderr


def test_output_defaults_to_the_name_of_the_study(terminal: Terminal, study: Study) -> None:
    """Without -o the output of study.py is study.h5, where the command was given."""
    study('@h5sweep.sweep(seed=range(2))\ndef f(seed): return {"x": seed}\n')
    assert "wrote study.h5 (2 tasks, " in terminal.run("run", "study.py").stderr
    assert (terminal.folder / "study.h5").exists()


def test_exit_codes_of_readers(mixed: Terminal) -> None:
    """missing: 1 while anything is; status: 0, and with --exit-code the same as missing."""
    mixed.run("status", "out.h5", check=0)
    mixed.run("status", "out.h5", "--exit-code", check=1)
    mixed.run("missing", "out.h5", check=1)


def test_run_folder_itself_may_be_named(mixed: Terminal) -> None:
    """`status layouts.h5.run`, as the shell completes it, is the same as `status layouts.h5`."""
    assert mixed.run("status", "out.h5.run").stdout == mixed.run("status", "out.h5").stdout


def test_merge_makes_the_output_later(mixed: Terminal) -> None:
    """--no-merge leaves the output to `merge`, and status says so."""
    assert not (mixed.folder / "out.h5").exists()
    assert "wrote out.h5 (5 tasks" in mixed.run("merge", "out.h5").stderr
    assert (mixed.folder / "out.h5").exists()


# JSON and CSV


def test_status_as_json(mixed: Terminal) -> None:
    """status --json is one object with its schema's name and version."""
    assert mixed.json("status", "out.h5") == {
        "schema": "h5sweep.status/1",
        "output": "out.h5",
        "output_exists": False,
        "declared": True,
        "tasks": 6,
        "done": 5,
        "failed": 1,
        "salvaged": 0,
        "run": {"alive": False, "pid": None, "host": None},
        "parts": [],
        "jobs": None,
        "running": [],
        "missing": 1,
        "again": 0,
        "damaged_records": 0,
        "unreadable_files": 0,
        "results_beyond_plan": 0,
        "results_not_merged": 5,
        "results_left_out": 0,
        "results_undeclared": 0,
        "not_stored": "",
        "per_hour": None,
        "left_s": None,
        "median_s": None,
        "causes": [
            {
                "tasks": 1,
                "how": "raised",
                "error": "ValueError",
                "where": "study.py:9 in f",
                "message": "two\nlines, and a comma",
                "example": {"farm": "b", "seed": 1},
            }
        ],
        "groups": [],
        "columns": {
            "farm": [
                {"value": "a", "done": 3, "tasks": 3},
                {"value": "b", "done": 2, "tasks": 3},
            ],
            "seed": [
                {"value": 0, "done": 2, "tasks": 2},
                {"value": 1, "done": 1, "tasks": 2},
                {"value": 2, "done": 2, "tasks": 2},
            ],
        },
    }


def test_missing_as_json(mixed: Terminal) -> None:
    """missing --json is one object with its schema's name and version, keys and reasons."""
    assert mixed.json("missing", "out.h5", check=1) == {
        "schema": "h5sweep.missing/1",
        "output": "out.h5",
        "missing": [
            {
                "task": 4,
                "key": {"farm": "b", "seed": 1},
                "reason": "failed",
                "detail": "raised: ValueError: two\nlines, and a comma",
            }
        ],
    }


def test_missing_as_csv(mixed: Terminal) -> None:
    """missing --csv is a table that any program reads, with the key's columns first."""
    done = mixed.run("missing", "out.h5", "--csv", check=1)
    assert list(csv.reader(io.StringIO(done.stdout))) == [
        ["farm", "seed", "reason", "detail"],
        ["b", "1", "failed", "raised: ValueError: two\nlines, and a comma"],
    ]


def test_missing_is_a_line_a_task(mixed: Terminal) -> None:
    """Messages of several lines do not break the list; data is on stdout, the count on stderr."""
    done = mixed.run("missing", "out.h5", check=1)
    assert done.stdout == "farm=b, seed=1  failed: raised: ValueError: two lines, and a comma\n"
    assert done.stderr == "1 of 6 missing\n"


def test_infinite_keys_are_valid_json(terminal: Terminal, study: Study) -> None:
    """Infinity, which JSON does not have, is a text in --json of every command."""
    study("""
        @h5sweep.sweep(speed=[1.5, float("inf")])
        def f(speed):
            if speed > 2:
                open("in", "w").close()
            while speed > 2 and not os.path.exists("go"):
                time.sleep(0.01)
            raise ValueError
    """)
    run = terminal.start(*RUN, "-j", 2)
    try:
        until(lambda: (terminal.folder / "in").exists())
        until(lambda: len(terminal.json("status", "out.h5")["running"]) == 1)

        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is no JSON")

        status = terminal.run("status", "out.h5", "--json").stdout
        value = json.loads(status, parse_constant=refuse)
        (running,) = value["running"]
        assert (running["task"], running["key"]) == (1, {"speed": "inf"})
    finally:
        (terminal.folder / "go").touch()
        run.communicate(timeout=30)
    listed = terminal.run("missing", "out.h5", "--json", check=1).stdout
    assert len(json.loads(listed, parse_constant=refuse)["missing"]) == 2


# Reasons


def test_every_reason_for_missing_is_told(terminal: Terminal, study: Study) -> None:
    """Failed (how), lost with a damaged record, interrupted, running, never started."""
    study("""
        @h5sweep.sweep(seed=range(8))
        def f(seed):
            if seed == 0:
                raise ValueError("bad")
            if seed == 1:
                os._exit(5)
            if seed == 4:
                open(f"in_{time.monotonic_ns()}", "w").close()
                while not os.path.exists("go"):
                    time.sleep(0.01)
            return {"x": seed}
    """)
    first = terminal.start(*RUN, "-j", 1, "--retries", 0)
    until(lambda: list(terminal.folder.glob("in_*")))
    first.kill()
    first.communicate()
    path = next(p for p in record_files(terminal.folder) if _has(p, 3))
    record = next(r for r in read_records(path)[0] if r.kind == RecordKind.DONE and r.task == 3)
    content = bytearray(path.read_bytes())
    content[record.data_offset] ^= 0xFF
    path.write_bytes(content)
    assert _reasons(terminal) == {
        0: ("failed", "raised: ValueError: bad"),
        1: ("failed", "died: exit: the process ended with exit code 5"),
        3: ("lost with a damaged record", path.name),
        4: ("interrupted", _reasons(terminal)[4][1]),
        5: ("never started", ""),
        6: ("never started", ""),
        7: ("never started", ""),
    }
    second = terminal.start(*RUN, "-j", 1, "--retries", 0)
    try:
        until(lambda: len(list(terminal.folder.glob("in_*"))) == 2)
        assert _reasons(terminal)[4][0] == "running"
        assert "pid" in _reasons(terminal)[4][1]
    finally:
        (terminal.folder / "go").touch()
        second.communicate(timeout=30)
    assert list(_reasons(terminal)) == [0, 1]


def _has(path: Path, task: int) -> bool:
    return any(r.kind == RecordKind.DONE and r.task == task for r in read_records(path)[0])


def _reasons(terminal: Terminal) -> dict[int, tuple[str, str]]:
    listed = terminal.json("missing", "out.h5")["missing"]
    return {entry["task"]: (entry["reason"], entry["detail"]) for entry in listed}


def test_readers_are_right_during_a_run(terminal: Terminal, study: Study) -> None:
    """While a run goes on, status and missing say what is done, running and waiting."""
    study("""
        @h5sweep.sweep(seed=range(6))
        def f(seed):
            if seed >= 3:
                open(f"in_{seed}", "w").close()
                while not os.path.exists("go"):
                    time.sleep(0.01)
            return {"x": seed}
    """)
    run = terminal.start(*RUN, "-j", 2)
    try:
        until(lambda: len(list(terminal.folder.glob("in_*"))) == 2)
        until(lambda: len(kinds(terminal.folder)) == 3)
        status = terminal.json("status", "out.h5")
        assert (status["done"], status["missing"]) == (3, 3)
        assert [entry["key"] for entry in status["running"]] == [{"seed": 3}, {"seed": 4}]
        pids = {entry["pid"] for entry in status["running"]}
        assert pids == set(worker_pids(terminal.folder))
        host = os.uname().nodename
        assert {entry["host"] for entry in status["running"]} == {host}
        assert status["run"] == {"alive": True, "pid": run.pid, "host": host}
        reasons = {task: reason for task, (reason, _) in _reasons(terminal).items()}
        assert reasons == {3: "running", 4: "running", 5: "never started"}
        text = terminal.run("status", "out.h5").stdout
        assert "3 of 6 done (50.0 %)\n  2 running, 1 waiting\n" in text
        assert re.search(r"running  seed=3  \d+ s  pid \d+ on ", text)
        since = [entry["since"] for entry in status["running"]]
        assert time.time() - 60 < min(since) <= max(since) < time.time()
        assert f"\na run is active (pid {run.pid} on {host})\nnext: h5sweep missing" in text
    finally:
        (terminal.folder / "go").touch()
        run.communicate(timeout=30)
    assert terminal.json("status", "out.h5")["running"] == []


def test_expected_tasks_may_come_from_a_study_or_a_csv(mixed: Terminal) -> None:
    """--expect says which tasks there should be: more than the plan has, or fewer."""
    mixed.write("more.csv", "farm,seed\na,0\nc,7\nb,1\n")
    more = mixed.run("missing", "out.h5", "--expect", "more.csv", check=1)
    assert more.stdout.splitlines()[1] == "farm=c, seed=7  never started"
    assert "2 of 3 missing" in more.stderr
    mixed.write("fewer.csv", "farm,seed\na,0\n")
    assert "nothing is missing" in mixed.run("missing", "out.h5", "--expect", "fewer.csv").stderr
    text = (mixed.folder / "study.py").read_text()
    mixed.write("larger.py", text.replace("range(3)", "range(4)"))
    by_study = mixed.json("missing", "out.h5", "--expect", "larger.py", check=1)
    assert [m["key"]["seed"] for m in by_study["missing"]] == [1, 3, 3]
    mixed.write("other.csv", "turbine\n1\n")
    other = mixed.run("missing", "out.h5", "--expect", "other.csv", check=2).stderr
    assert "the plan on disk has the parameters farm (str), seed (int)" in other
    assert "has turbine (int): name a study or CSV of out.h5" in other
    mixed.run("missing", "out.h5", "--expect", "nowhere.csv", check=2)


def test_one_of_several_sweeps_is_expected(mixed: Terminal) -> None:
    """--expect with a study of several sweeps takes --sweep, as its message says."""
    text = (mixed.folder / "study.py").read_text()
    mixed.write("two.py", text + text.partition("import h5sweep")[2].replace("def f", "def g"))
    done = mixed.run("missing", "out.h5", "--expect", "two.py", check=2)
    assert "--sweep f" in done.stderr
    mixed.run("missing", "out.h5", "--expect", "two.py", "--sweep", "f", check=1)


# Nothing declared


def test_empty_folder_is_not_complete(terminal: Terminal) -> None:
    """Where nothing is recorded and nothing declared, nothing is complete or missing."""
    (run_folder(terminal.folder) / "records").mkdir(parents=True)
    done = terminal.run("status", "out.h5", "--exit-code", check=1)
    assert done.stdout.startswith("out.h5: nothing is recorded yet\nnext: ")
    assert (
        "no run has declared the tasks of out.h5"
        in terminal.run("missing", "out.h5", check=2).stderr
    )


def test_recorded_results_alone_do_not_say_what_is_missing(terminal: Terminal) -> None:
    """Without a declaration, before and after a merge, `missing` asks for --expect."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        for seed in (1, 2, 2):
            recorder.write({"seed": seed}, x=seed)
    status = terminal.run("status", "out.h5").stdout
    assert status.startswith("out.h5: 2 done; no run has declared how many there are\n")
    assert "  2 results not merged yet\nnext: h5sweep merge out.h5" in status
    assert terminal.json("status", "out.h5")["tasks"] == 2
    for _ in range(2):
        said = terminal.run("missing", "out.h5", check=2)
        assert "--expect study.py or --expect tasks.csv" in said.stderr
        assert said.stdout == ""
        terminal.run("merge", "out.h5")
    said = terminal.run("status", "out.h5", "--exit-code", check=1).stdout
    assert "complete" not in said and "100" not in said and "1 of 1" not in said
    assert terminal.json("status", "out.h5")["missing"] is None
    terminal.write("TASKS", "seed\n1\n2\n3\n")  # as the last line names it
    advice = said.splitlines()[-1].removeprefix("next: h5sweep ").partition(" (")[0].split()
    assert terminal.run(*advice, check=1).stdout == "seed=3  never started\n"


def test_expected_parameters_must_be_those_of_the_results(terminal: Terminal) -> None:
    """--expect with other parameters than the recorded keys is a mistake that names both."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"farm": "a", "seed": 1}, x=1)
    terminal.write("other.csv", "turbine\n1\n")
    said = terminal.run("missing", "out.h5", "--expect", "other.csv", check=2).stderr
    assert "have the parameters farm, seed, what --expect names has turbine: " in said
    assert "-o" not in said.split()


def test_output_without_its_run_folder_is_named(terminal: Terminal) -> None:
    """If only the output is there, the message says so, and that a run goes on from it."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 1}, x=1)
    terminal.run("merge", "out.h5")
    shutil.rmtree(run_folder(terminal.folder))
    for command in ("status", "missing", "merge"):
        said = terminal.run(command, "out.h5", check=2).stderr
        assert "out.h5 exists but its run folder out.h5.run does not" in said
        assert "h5sweep run STUDY -o out.h5 continues from the output" in said


# What a run says at its end


def test_run_without_anything_to_do_says_that_the_output_is_up_to_date(
    terminal: Terminal, study: Study
) -> None:
    """The same command again says why it writes nothing; one task is `1 task`."""
    study('@h5sweep.sweep(seed=[1])\ndef f(seed): return {"x": seed}\n')
    assert "wrote out.h5 (1 task, " in terminal.run("run", "study.py", "-o", "out.h5").stderr
    again = terminal.run("run", "study.py", "-o", "out.h5").stderr
    assert "1 of 1 done, 0 failed\nout.h5 is up to date\nreport: out.h5.run/report.html\n" in again
    assert "up to date" not in terminal.run(*RUN).stderr


def test_tasks_that_died_show_their_stacks_and_name_their_logs(
    terminal: Terminal, study: Study
) -> None:
    """What a crash left in a log is shown as its traceback, with the log, which says the same."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            print("seed", seed, "begins")
            if seed == 0:
                raise ValueError
            end(signal.SIGSEGV if seed == 1 else signal.SIGABRT)
        def end(number):
            os.kill(os.getpid(), number)
    """)
    said = terminal.run(*RUN, "--retries", 0, check=1).stderr
    for number, name in ((1, "SIGSEGV"), (2, "SIGABRT")):
        found = re.search(
            rf"1 task died: {name} at study\.py:\d+ in end: .*\n  for example seed={number}\n"
            r"  \| Stack when it crashed \(most recent call last\):\n"
            r'  \|   File ".*/study\.py", line \d+, in f\n  \|     end\(signal.*\n'
            r'  \|   File ".*/study\.py", line \d+, in end\n  \|     os\.kill\(.*\n'
            r"  \| log: (/.*/out\.h5\.run/logs/worker_.*\.log)\n",
            said,
        )
        assert found is not None, said
        log = (terminal.folder / found[1]).read_text()
        assert f"seed {number} begins\n" in log
        assert "Fatal Python error" in log


# Streams


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_bug(terminal: Terminal, study: Study, closed: str) -> None:
    """A stream that the shell has closed is as /dev/null: no file of ours takes its place."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            print("printed by a task", flush=True)
            os.write(2, b"and by its library")
            return {"x": seed}
    """)
    for words in (RUN, ("status", "out.h5"), ("missing", "out.h5"), ("merge", "out.h5")):
        command = f"{shlex.join([*H5SWEEP, *words])} {closed}"
        assert subprocess.run(command, shell=True, cwd=terminal.folder).returncode == 0, command
    status = terminal.json("status", "out.h5")
    assert (status["done"], status["damaged_records"], status["unreadable_files"]) == (3, 0, 0)


@pytest.mark.parametrize("words", [["status", "out.h5"], ["missing", "out.h5"], ["--help"]])
def test_full_disk_behind_stdout_is_told(mixed: Terminal, words: list[str]) -> None:
    """If standard output cannot be written, a sentence says so and the exit code is 1."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*H5SWEEP, *words], cwd=mixed.folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith("h5sweep: cannot write to standard output: No space left")
    assert "Traceback" not in done.stderr


TRIED = """
@h5sweep.sweep(seed=range(3))
def f(seed):
    open("in", "w").close()
    while not os.path.exists("go"):
        try:
            time.sleep(0.01)
        except Exception:
            pass
    return {"x": seed}
"""


def begin_trial(terminal: Terminal, study: Study, *words: str) -> subprocess.Popen[str]:
    """A trial of two tasks that is in the first, after one Ctrl-C."""
    study(TRIED)
    trial = terminal.start("run", "study.py", "--try", "2", *words)
    until(lambda: (terminal.folder / "in").exists())
    trial.send_signal(signal.SIGINT)
    return trial


def test_ctrl_c_lets_the_task_of_a_trial_finish(terminal: Terminal, study: Study) -> None:
    """The time it has is said, and no other begins: exit code 130, no traceback."""
    trial = begin_trial(terminal, study)
    assert trial.stderr is not None
    first = trial.stderr.readline()
    assert first == ("waiting up to 20 s for the running task; press Ctrl-C again to stop now\n")
    (terminal.folder / "go").touch()
    _, said = trial.communicate(timeout=30)
    assert trial.returncode == 130
    assert "seed=0: ok, " in said and "seed=2" not in said
    assert said.endswith("h5sweep: stopped; a trial writes nothing\n")
    assert "Traceback" not in said


@pytest.mark.parametrize("how", ["a second time", "too long"])
def test_ctrl_c_ends_a_trial(terminal: Terminal, study: Study, how: str) -> None:
    """A second one ends it at once, and so does the end of the grace."""
    trial = begin_trial(terminal, study, *(["--grace", "1s"] if how == "too long" else []))
    assert trial.stderr is not None and trial.stderr.readline().startswith("waiting up to ")
    if how == "a second time":
        trial.send_signal(signal.SIGINT)
    _, said = trial.communicate(timeout=15)
    assert trial.returncode == 130
    assert said.startswith("seed=0: stopped after ")
    assert said.endswith("h5sweep: stopped; a trial writes nothing\n")


# Lightness and pipes


@pytest.mark.parametrize("command", ["status", "missing"])
def test_readers_import_nothing_heavy(mixed: Terminal, command: str) -> None:
    """status and missing import neither NumPy nor h5py nor rich nor the study."""
    (mixed.folder / "study.py").write_text("raise SystemExit('imported')")
    code = (
        "import sys\n"
        "from h5sweep.cli import main\n"
        f"sys.argv = ['h5sweep', '{command}', 'out.h5']\n"
        "try:\n    main()\n"
        "finally:\n"
        "    heavy = {'numpy', 'h5py', 'rich', 'xarray', 'study', 'multiprocessing'}\n"
        "    print('HEAVY', sorted(heavy & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=mixed.folder, capture_output=True, text=True
    )
    assert done.stdout.endswith("HEAVY []\n"), done.stdout + done.stderr


@pytest.mark.parametrize("words", [["missing"], ["missing", "--csv"], ["status"]])
@pytest.mark.parametrize("tasks", [10, 20_000])
def test_closed_pipe_gives_no_traceback(terminal: Terminal, tasks: int, words: list[str]) -> None:
    """`| head` ends a listing in silence, whether it is short or long."""
    terminal.write("tasks.csv", "seed\n" + "".join(f"{n}\n" for n in range(tasks)))
    (run_folder(terminal.folder) / "records").mkdir(parents=True)
    expect = ["--expect", "tasks.csv"] if words[0] == "missing" else []
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*H5SWEEP, *words, "out.h5", *expect],
        cwd=terminal.folder,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr
    assert done.returncode == (1 if words[0] == "missing" else 0)


def test_terminal_without_unicode_is_no_bug(mixed: Terminal) -> None:
    """Characters that a terminal's encoding does not have are shown in another way."""
    done = mixed.run("status", "out.h5", PYTHONIOENCODING="ascii")
    assert "5 of 6 done" in done.stdout


def test_no_escape_codes_without_a_terminal(terminal: Terminal, study: Study) -> None:
    """In a log or a pipe there are plain lines: no colours, no carriage returns."""
    study(MIXED)
    done = terminal.run("run", "study.py", "-o", "out.h5", check=1, TERM="xterm-256color")
    for text in (done.stdout, done.stderr):
        assert "\x1b" not in text
        assert "\r" not in text
    assert "\x1b" not in terminal.run("status", "out.h5", TERM="xterm-256color").stdout


# Terminals


class Screen:
    """A command on a pseudo terminal of 80 columns, and everything it wrote there."""

    def __init__(self, folder: Path, *words: str, **env: str) -> None:
        self._deadline = time.monotonic() + 40
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {
            k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [*H5SWEEP, *words],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, words: str) -> None:
        while words not in self.text:
            assert time.monotonic() < self._deadline, f"never shown: {words}\n{self.text}"
            more = self._read()
            assert more, f"never shown: {words}\n{self.text}"
            self.text += more

    def read_more(self) -> bool:
        """Read what is there by now; True, to be part of a condition."""
        while select.select([self._ours], [], [], 0)[0] and (more := self._read()):
            self.text += more
        return True

    def read_to_end(self) -> int:
        while more := self._read():
            self.text += more
        return self.process.wait(30)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # as the kernel does on a controlling terminal

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._ours)

    def _read(self) -> str:
        left_s = max(self._deadline - time.monotonic(), 0)
        assert select.select([self._ours], [], [], left_s)[0], f"too slow:\n{self.text}"
        try:
            return os.read(self._ours, 65536).decode(errors="replace")
        except OSError:  # the other side has closed
            return ""

    def frames(self) -> list[list[str]]:
        """What was to be seen after each drawing of the second screen."""
        frames = self.text.partition(LEAVE)[0].split(HOME)[1:]
        return [_without_escapes(frame).split("\r\n") for frame in frames]

    def left(self) -> list[str]:
        """What was written to the first screen after the second was left for good."""
        return _without_escapes(self.text.rpartition(LEAVE)[2]).split("\r\n")

    def lines(self) -> list[str]:
        """What was written, line by line, without escape codes."""
        return re.split(r"[\r\n]+", _without_escapes(self.text))


def _without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture
def screens() -> Iterator[list[Screen]]:
    opened: list[Screen] = []
    yield opened
    for screen in opened:
        screen.process.kill()
        screen.process.wait()
        screen.close()


WATCHED = """
@h5sweep.sweep(name=["long" * 30], seed=range(40))
def f(name, seed):
    if seed == 30:
        open("in", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        open("finished", "w").close()
    if seed == 3:
        raise ValueError("no")
    return {"x": seed}
"""


def test_live_view_fits_the_terminal(
    terminal: Terminal, study: Study, screens: list[Screen]
) -> None:
    """On a terminal of 80 columns the run shows counts and current tasks, no line longer."""
    study(WATCHED)
    screens.append(Screen(terminal.folder, *RUN, "-j", "2"))
    until(lambda: (terminal.folder / "in").exists())
    screens[0].read_until(" of 40 done, 1 failed")
    screens[0].read_until("…")
    (terminal.folder / "go").touch()
    assert screens[0].read_to_end() == 1
    live = [line for line in screens[0].lines() if "━" in line or "name=long" in line]
    live = [line for line in live if "failure" not in line and "example" not in line]
    assert live
    assert max(map(len, live)) <= 80
    assert "39 of 40 done, 1 failed" in screens[0].lines()[-4]


def test_ctrl_c_on_a_terminal_reaches_the_coordinator_alone(
    terminal: Terminal, study: Study, screens: list[Screen]
) -> None:
    """Ctrl-C typed at the terminal lets running tasks finish: workers do not receive it."""
    study(WATCHED.replace("raise ValueError", "ValueError"))
    screens.append(Screen(terminal.folder, *RUN, "-j", "1"))
    until(lambda: (terminal.folder / "in").exists())
    os.killpg(screens[0].process.pid, signal.SIGINT)
    screens[0].read_until("press Ctrl-C again to stop now")
    (terminal.folder / "go").touch()
    assert screens[0].read_to_end() == 130
    assert (terminal.folder / "finished").exists()
    assert terminal.json("status", "out.h5")["failed"] == 0


def test_closed_terminal_lets_running_tasks_finish(
    terminal: Terminal, study: Study, screens: list[Screen]
) -> None:
    """When the terminal is closed (SIGHUP) running tasks finish within the grace."""
    study(WATCHED)
    screens.append(Screen(terminal.folder, *RUN, "-j", "1"))
    until(lambda: (terminal.folder / "in").exists())
    screens[0].close()
    screens[0].process.send_signal(signal.SIGHUP)
    (terminal.folder / "go").touch()
    assert screens[0].process.wait(15) == 128 + signal.SIGHUP
    assert (terminal.folder / "finished").exists()


def test_status_on_a_terminal_watches_until_all_is_done(
    terminal: Terminal, study: Study, screens: list[Screen]
) -> None:
    """status --watch shows the state again and ends when nothing is missing."""
    study('@h5sweep.sweep(seed=range(3))\ndef f(seed): return {"x": seed}\n')
    terminal.run("run", "study.py", "-o", "out.h5")
    screens.append(Screen(terminal.folder, "status", "out.h5", "--watch"))
    assert screens[0].read_to_end() == 0
    assert "3 of 3 done" in screens[0].text


@pytest.fixture
def watched(terminal: Terminal, study: Study) -> Iterator[subprocess.Popen[str]]:
    """A run with a failure that is in a task of which the key is long, until `go` is there."""
    names = [("long" * 30) + str(number) for number in range(20)]
    study(WATCHED.replace('["long" * 30]', repr(names)).replace("range(40)", "range(35)"))
    run = terminal.start(*RUN, "-j", 1, "--keep-going")
    until(lambda: (terminal.folder / "in").exists())
    yield run
    run.kill()
    run.communicate()


def test_watching_fits_the_terminal(
    terminal: Terminal, watched: subprocess.Popen[str], screens: list[Screen]
) -> None:
    """status --watch fills no more than the terminal has, also after that has become smaller."""
    screens.append(Screen(terminal.folder, "status", "out.h5", "--watch"))
    screens[0].read_until("again in 2 s")
    screens[0].resize(16, 60)
    shown = len(screens[0].text)
    until(lambda: screens[0].read_more() and "again in 2 s" in screens[0].text[shown:])
    watched.kill()
    assert screens[0].read_to_end() == 0
    first, *_, last = screens[0].frames()
    assert 20 < len(first) <= 24
    assert 70 < max(map(len, first)) <= 80
    assert 10 < len(last) <= 16
    assert 50 < max(map(len, last)) <= 60
    for frame in (first, last):
        assert frame[0].startswith("out.h5: 29 of 700 done")
        assert frame[-2].startswith("next: h5sweep missing out.h5")
    assert first[1].count("█") + first[1].count("·") == 78  # and a cell for what runs, or failed
    assert first[2] == "█ 29 done  x 1 failed  ▒ 1 running  · 669 waiting"
    (worker,) = (line for line in first if line.startswith("    pid "))
    assert re.search(r"^    pid \d+ on \S+ +\d+ s +[\d.> ]+ × +[\d.]+ MB  name=long.*…", worker)
    assert any(line.startswith("  1 task raised: ValueError at study.py") for line in first)
    assert any("long" in line and "35 " in line for line in first)


def test_watching_redraws_in_place_and_leaves_the_terminal_clean(
    terminal: Terminal, watched: subprocess.Popen[str], screens: list[Screen]
) -> None:
    """Nothing is cleared to be drawn again; after Ctrl-C the first screen is there with one state.

    So it is while the command is suspended.
    """
    screens.append(Screen(terminal.folder, "status", "out.h5", "--watch"))
    screens[0].read_until("again in 2 s")
    screens[0].process.send_signal(signal.SIGTSTP)
    screens[0].read_until(LEAVE)
    until(lambda: kinds_of_process(screens[0].process.pid) == "T")
    screens[0].process.send_signal(signal.SIGCONT)
    until(lambda: screens[0].read_more() and screens[0].text.count("again in 2 s") > 1)
    screens[0].process.send_signal(signal.SIGINT)
    assert screens[0].read_to_end() == 130
    text = screens[0].text
    assert text.startswith(ENTER)
    assert (text.count(ENTER), text.count(LEAVE)) == (2, 2)
    assert "\x1b[2J" not in text
    assert screens[0].left()[0].startswith("out.h5: 29 of 700 done")
    assert screens[0].left()[-2].startswith("next: h5sweep missing out.h5")
    assert screens[0].left()[-1] == ""


def kinds_of_process(pid: int) -> str:
    """R if it runs, S if it sleeps, T if it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(("env", "has_colors"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_respected(
    terminal: Terminal,
    watched: subprocess.Popen[str],
    screens: list[Screen],
    env: dict[str, str],
    has_colors: bool,
) -> None:
    """With NO_COLOR no escape sets a colour, neither for who watches nor for who runs."""
    screens.append(Screen(terminal.folder, "status", "out.h5", "--watch", **env))
    screens[0].read_until("again in 2 s")
    assert ("\x1b[32m" in screens[0].text) == has_colors
    watched.kill()
    watched.wait()
    screens.append(Screen(terminal.folder, *RUN, "-j", "1", **env))
    screens[1].read_until("━")
    assert bool(re.search(r"\x1b\[[0-9;]*[34]\d", screens[1].text)) == has_colors


def test_a_dumb_terminal_gets_no_escapes(
    terminal: Terminal, watched: subprocess.Popen[str], screens: list[Screen]
) -> None:
    """Where nothing can be drawn in place, one state follows the other."""
    screens.append(Screen(terminal.folder, "status", "out.h5", "--watch", TERM="dumb"))
    screens[0].read_until("is missing, and why")
    watched.kill()
    assert screens[0].read_to_end() == 0
    assert "\x1b" not in screens[0].text


def test_watching_ends_with_the_run(
    terminal: Terminal, watched: subprocess.Popen[str], screens: list[Screen]
) -> None:
    """status --watch ends when the run is dead, after it has shown what that run left."""
    screens.append(Screen(terminal.folder, "status", "out.h5", "--watch"))
    screens[0].read_until("a run is active (pid ")
    watched.kill()
    assert screens[0].read_to_end() == 0
    assert screens[0].left()[-3] == "no run is active: start the run again"


def test_groups_of_a_key_are_counted(mixed: Terminal) -> None:
    """--by names key columns: each combination of their values has a line, also in --json."""
    lines = mixed.run("status", "out.h5", "--by", "seed,farm").stdout.splitlines()
    place = lines.index("  seed, farm")
    found = [line.split()[:5] for line in lines[place + 1 : place + 7]]
    assert ["1,", "b", "0", "of", "1"] in found
    assert sorted(f[0] + f[1] for f in found) == ["0,a", "0,b", "1,a", "1,b", "2,a", "2,b"]
    groups = mixed.json("status", "out.h5", "--by", "farm")["groups"]
    assert groups == [
        {"key": {"farm": "a"}, "done": 3, "tasks": 3},
        {"key": {"farm": "b"}, "done": 2, "tasks": 3},
    ]
    said = mixed.run("status", "out.h5", "--by", "turbine", check=2).stderr
    assert "there is no parameter 'turbine': choose by farm, seed" in said


# The reference


def test_reference_is_what_help_prints() -> None:
    """docs/cli.md is what `python docs/make_cli.py` would write now."""
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.TARGET.read_text(encoding="utf-8")
    assert written == module.page(), "docs/cli.md is stale: run python docs/make_cli.py"


def test_reference_fits_80_columns() -> None:
    """No help text is wider than 80 columns."""
    blocks = re.findall(r"```text\n(.*?)```", (DOCS / "cli.md").read_text(), re.S)
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 80


def test_python_m_is_the_command(terminal: Terminal) -> None:
    """`h5sweep` and `python -m h5sweep` are the same command."""
    script = Path(sys.executable).with_name("h5sweep")
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.stdout == terminal.run("--version").stdout


def test_a_study_is_never_taken_for_an_output(terminal: Terminal) -> None:
    """Nobody is told to move the study away, and no run folder is made for it."""
    code = (
        "import h5sweep\n\n\n@h5sweep.sweep(seed=range(2))\ndef f(seed):\n    return {'aep': 1.0}\n"
    )
    study = terminal.write("study.py", code)
    said = terminal.run("run", "study.py", "-o", "study.py", check=2).stderr
    assert "study.py is a study: name an output" in said
    assert list(terminal.folder.iterdir()) == [study]


def test_a_folder_without_files_has_nothing_to_salvage(terminal: Terminal) -> None:
    """Salvage says so, as merge does, rather than to run the tasks of no files again."""
    (terminal.folder / "none").mkdir()
    for words in (("salvage", "none"), ("merge", "none", "-o", "out.h5")):
        assert f"found no file to {words[0]} in none" in terminal.run(*words, check=2).stderr
