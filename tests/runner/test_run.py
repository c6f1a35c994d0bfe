"""What a run makes of bad input, other sweeps, damage and full disks, and of being run again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from h5sweep.runfolder.records import RecordKind, read_records
from needs import needs_root
from running import count, kinds, record_files, run_folder, tmpfs, until, worker_pids
from terminal import H5SWEEP, SOMEBODY, Terminal, make_read_only, run_as_anybody

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "-j", "2", "--no-merge")

COUNTED = """
import h5sweep
@h5sweep.sweep(seed=range({tasks}))
def f(seed):
    with open("executed", "ab", buffering=0) as file:
        file.write(b".")
    return {{"x": seed}}
"""


def counted(terminal: Terminal, tasks: int) -> None:
    """A study whose every execution leaves a mark."""
    terminal.write("study.py", COUNTED.format(tasks=tasks))


def only_message(done: subprocess.CompletedProcess[str]) -> str:
    """What was said, which must be neither a traceback of ours nor a bug."""
    assert "/src/h5sweep/" not in done.stderr
    assert "bug" not in done.stderr
    assert done.stdout == ""
    return done.stderr


# Bad studies


def test_missing_study_is_named(terminal: Terminal) -> None:
    """A study that is not there: exit code 2, its name, what to give instead."""
    said = only_message(terminal.run("run", "nowhere.py", check=2))
    assert (
        said == "h5sweep: there is no study file nowhere.py: name the Python file with the sweep\n"
    )
    assert list(terminal.folder.iterdir()) == []


def test_syntax_error_is_shown_with_its_line(terminal: Terminal) -> None:
    """A study with a syntax error: exit code 2, file, line, and what to do."""
    terminal.write("study.py", "import h5sweep\ndef f(:\n")
    said = only_message(terminal.run(*RUN, check=2))
    assert "SyntaxError" in said
    assert 'study.py", line 2' in said
    assert "fix that, then test it with: python study.py" in said
    assert not run_folder(terminal.folder).exists()


@pytest.mark.parametrize(
    "error", ["raise ValueError('no data')", "import sys; sys.exit('no data')"]
)
def test_error_at_import_is_shown_with_the_users_frames(terminal: Terminal, error: str) -> None:
    """A study that raises, or exits, when imported: exit code 2 and the user's own frames."""
    terminal.write("study.py", f"def load():\n    {error}\nload()\n")
    said = only_message(terminal.run(*RUN, check=2))
    assert "in load" in said
    assert "no data" in said
    assert "importlib" not in said


def test_study_without_a_sweep_says_how_to_declare_one(terminal: Terminal) -> None:
    """A file without a sweep: exit code 2 and the line that is missing."""
    terminal.write("study.py", "def f(seed): return {}\n")
    assert "put @h5sweep.sweep(" in only_message(terminal.run(*RUN, check=2))


def test_one_of_several_sweeps_is_chosen(terminal: Terminal) -> None:
    """Several sweeps in a file: the message says how to choose, and --sweep chooses."""
    body = '@h5sweep.sweep(seed=range(2))\ndef {name}(seed): return {{"{name}": seed}}\n'
    terminal.write("study.py", "import h5sweep\n" + body.format(name="a") + body.format(name="b"))
    assert "several sweeps (a, b): choose with --sweep a" in only_message(
        terminal.run(*RUN, check=2)
    )
    assert "it has: a, b" in only_message(terminal.run(*RUN, "--sweep", "c", check=2))
    terminal.run("run", "study.py", "-o", "out.h5", "--sweep", "b")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["b"][:].tolist() == [0, 1]


def test_file_that_is_no_python_is_refused(terminal: Terminal) -> None:
    """A study whose name does not end in .py: exit code 2 and the reason."""
    terminal.write("study.txt", "hello")
    assert "ends in .py" in only_message(terminal.run("run", "study.txt", check=2))


def test_wrong_parameters_are_named(terminal: Terminal) -> None:
    """A parameter that the function does not take: exit code 2, both names."""
    terminal.write("study.py", "import h5sweep\n@h5sweep.sweep(sed=[1])\ndef f(seed): ...\n")
    said = only_message(terminal.run(*RUN, check=2))
    assert "f takes no parameter 'sed'; it takes seed" in said


# Bad results


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("None", "the task returned None: return its results"),
        ("{}", "empty dict"),
        ("{'x': object()}", "x is object"),
        ("{1, 2}", "result is set {1, 2}: return numbers"),
    ],
)
def test_result_that_cannot_be_kept_fails_its_task_and_says_why(
    terminal: Terminal, study: Study, returned: str, words: str
) -> None:
    """A task that returns something we cannot store fails, says what to return; others are done."""
    study(f"""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {returned} if seed == 1 else {{"y": 1.0}}
    """)
    done = terminal.run(*RUN, check=1)
    assert "2 of 3 done, 1 failed" in done.stderr
    assert words in done.stderr
    assert "/src/h5sweep/" not in done.stderr


def test_results_of_different_names_and_types_are_all_kept(
    terminal: Terminal, study: Study
) -> None:
    """Tasks that return other names, or other dtypes under one name, lose nothing in the output."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 0:
                return {"x": 1, "only_first": 2.5}
            if seed == 1:
                return {"x": 1.5}
            return {"x": 2, "other": "text"}
    """)
    terminal.run("run", "study.py", "-o", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [1.0, 1.5, 2.0]
        assert file["only_first"][0] == 2.5
        assert file["other"][2] == b"text"


# Folders


def test_run_folder_of_another_function_is_refused(terminal: Terminal) -> None:
    """A run folder of a sweep with another name: exit code 2, -o, and nothing is changed."""
    counted(terminal, 3)
    terminal.run(*RUN)
    before = sorted(p.name for p in run_folder(terminal.folder).rglob("*"))
    terminal.write("study.py", COUNTED.format(tasks=3).replace("def f", "def g"))
    said = only_message(terminal.run(*RUN, check=2))
    assert "belongs to the sweep 'f', not to 'g'" in said
    assert "choose another output with -o" in said
    assert sorted(p.name for p in run_folder(terminal.folder).rglob("*")) == before
    assert count(terminal.folder, "executed") == 3


def test_run_folder_of_other_parameters_is_refused(terminal: Terminal) -> None:
    """A run folder of a sweep over other parameters: exit code 2 and both lists."""
    counted(terminal, 3)
    terminal.run(*RUN)
    text = COUNTED.format(tasks=3).replace("seed", "farm")
    terminal.write("study.py", text)
    said = only_message(terminal.run(*RUN, check=2))
    assert (
        "has the parameters seed (int), this sweep has farm (int): choose another output with -o"
        in said
    )
    assert terminal.json("status", "out.h5")["done"] == 3


def test_output_that_is_a_folder_is_refused(terminal: Terminal) -> None:
    """-o with a folder: exit code 2 and a name to give instead."""
    counted(terminal, 3)
    said = only_message(terminal.run("run", "study.py", "-o", ".", check=2))
    assert "name an output, such as" in said


@pytest.mark.parametrize("name", ["mit Leerzeichen", "Käse-Ø 数据", "quo'te\"s", "-dash"])
def test_odd_paths_work(tmp_path: Path, name: str) -> None:
    """Folders and outputs with spaces, quotes and letters of any language work throughout."""
    terminal = Terminal(tmp_path / name)
    terminal.folder.mkdir()
    counted(terminal, 3)
    output = terminal.folder / f"{name}.h5"
    terminal.run("run", terminal.folder / "study.py", "-o", output, "-j", 2)
    assert "complete" in terminal.run("status", output).stdout
    with h5py.File(output) as file:
        assert file["x"][:].tolist() == [0, 1, 2]


def test_output_in_a_folder_that_is_not_there_is_refused(terminal: Terminal) -> None:
    """A path may be misspelt: the folders of -o are not made."""
    counted(terminal, 3)
    said = terminal.run("run", "study.py", "-o", "a/b/out.h5", check=2).stderr
    assert "there is no folder a/b for out.h5" in said
    assert not (terminal.folder / "a").exists()


@needs_root
@pytest.mark.parametrize("has_results", [False, True])
def test_read_only_folder_is_named(terminal: Terminal, read_only: Path, has_results: bool) -> None:
    """A folder that cannot be written to: exit code 1, its name, the reason, what to do."""
    counted(terminal, 3)
    command = ("run", "study.py", "-o", read_only / "out.h5")
    if has_results:
        terminal.run(*command, "--no-merge")
    make_read_only(read_only)
    said = only_message(terminal.run(*command, check=1))
    assert f"cannot write {read_only}" in said
    assert "Read-only file system" in said
    assert "choose another output" in said
    if has_results:
        assert terminal.json("status", read_only / "out.h5")["done"] == 3


@needs_root
def test_folder_of_another_user_is_named(terminal: Terminal) -> None:
    """Somebody without the right to write is told so, with exit code 1."""
    counted(terminal, 3)
    os.chown(terminal.folder, SOMEBODY, SOMEBODY)
    terminal.folder.chmod(0o755)
    done = run_as_anybody(terminal, *RUN)
    assert done.returncode == 1
    assert "cannot write out.h5.run: Permission denied" in only_message(done)


@needs_root
def test_records_that_may_not_be_read_are_named(terminal: Terminal) -> None:
    """`status` for somebody without the right to read says whose file it is, and is no bug."""
    counted(terminal, 3)
    terminal.run(*RUN)
    record_file = record_files(terminal.folder)[0]
    os.chown(record_file, SOMEBODY, SOMEBODY)
    record_file.chmod(0o600)
    done = run_as_anybody(terminal, "status", "out.h5")
    assert done.returncode == 1
    assert f"cannot read or write out.h5.run/records/{record_file.name}" in only_message(done)


# Full disks


@needs_root
def test_full_disk_stops_the_run_and_loses_nothing(
    terminal: Terminal, study: Study, tmp_path: Path
) -> None:
    """A disk that fills up: the run stops and says so; with space made, it goes on."""
    study("""
        @h5sweep.sweep(seed=range(60))
        def f(seed):
            with open("executed", "ab", buffering=0) as file:
                file.write(b".")
            return {"x": np.full(25_000, seed)}
    """)
    with tmpfs(tmp_path / "small", "size=5M") as small:
        command = ("run", "study.py", "-o", small / "out.h5", "-j", 2, "--no-merge")
        done = terminal.run(*command, check=1)
        said = only_message(done)
        finished = terminal.json("status", small / "out.h5")["done"]
        assert "No space left on device" in said
        assert f"The run has stopped; {finished} finished results are kept" in said
        assert "Make space, then run the same command again" in said
        assert 10 < finished < 60
        subprocess.run(["mount", "-o", "remount,size=60M", small], check=True)
        executed = count(terminal.folder, "executed")
        again = terminal.run(*command)
        assert f"{finished} kept, {60 - finished} to do" in again.stderr
        assert count(terminal.folder, "executed") - executed == 60 - finished


@needs_root
def test_disk_full_before_the_first_task_is_named(terminal: Terminal, tmp_path: Path) -> None:
    """A disk without room for the plan: exit code 1, the reason, what to do."""
    counted(terminal, 2000)
    with tmpfs(tmp_path / "small", "size=64k") as small:
        (small / "filler").write_bytes(bytes(56 << 10))
        done = terminal.run("run", "study.py", "-o", small / "out.h5", check=1)
        said = only_message(done)
        assert "No space left on device" in said
        assert "Make space, then run the same command again" in said


@needs_root
def test_disk_without_room_for_the_output_keeps_everything(
    terminal: Terminal, study: Study, tmp_path: Path
) -> None:
    """Results that fit, with an output that does not: exit code 1, room made, merged."""
    study("""
        @h5sweep.sweep(seed=range(20))
        def f(seed):
            return {"x": np.full(25_000, float(seed))}
    """)
    with tmpfs(tmp_path / "small", "size=6M") as small:
        command = ("run", "study.py", "-o", small / "out.h5", "-j", 2)
        said = only_message(terminal.run(*command, check=1))
        assert "make space and run the same command again" in said
        assert not (small / "out.h5").exists()
        subprocess.run(["mount", "-o", "remount,size=60M", small], check=True)
        assert "20 kept, 0 to do" in terminal.run(*command).stderr
        with h5py.File(small / "out.h5") as file:
            assert file["x"][19, 0] == 19.0


# Damage


def flip_data_of(path: Path, task: int) -> None:
    """Flip all bits of the last data byte of a task's result."""
    found, _ = read_records(path)
    record = next(r for r in found if r.kind == RecordKind.DONE and r.task == task)
    content = bytearray(path.read_bytes())
    content[record.data_offset + record.data_bytes - 1] ^= 0xFF
    path.write_bytes(content)


def file_with(folder: Path, task: int) -> Path:
    return next(
        p
        for p in record_files(folder)
        if any(r.kind == RecordKind.DONE and r.task == task for r in read_records(p)[0])
    )


def test_damaged_record_is_run_again_and_said(terminal: Terminal) -> None:
    """A result that a disk spoilt is named, run again, and after that not spoken of."""
    counted(terminal, 5)
    terminal.run(*RUN)
    damaged = file_with(terminal.folder, 3)
    flip_data_of(damaged, 3)
    again = terminal.run(*RUN)
    assert f"damaged record in {damaged.name} at byte " in again.stderr
    assert "seed=3 is run again" in again.stderr
    assert "4 kept, 1 to do" in again.stderr
    third = terminal.run(*RUN)
    assert third.stderr.startswith("h5sweep: 5 kept, 0 to do\n")
    assert count(terminal.folder, "executed") == 6


def test_a_task_may_have_had_the_record_that_nobody_can_read(terminal: Terminal) -> None:
    """Of a file of nothing but damage, no task is said to be never started without a doubt."""
    counted(terminal, 5)
    terminal.run(*RUN, "--no-merge")
    damaged = file_with(terminal.folder, 3)
    damaged.write_bytes(b"x" * damaged.stat().st_size)
    missing = terminal.run("missing", "out.h5", check=1).stdout
    assert "seed=3  never started: unless its record is among the damaged ones\n" in missing


@pytest.mark.parametrize("merges", ["--merge", "--no-merge"])
def test_what_is_said_at_the_end_is_counted_there(terminal: Terminal, merges: str) -> None:
    """A result that is spoilt during the run does not count as done, and the exit code says so."""
    terminal.write(
        "study.py",
        """
        from pathlib import Path
        import h5sweep

        @h5sweep.sweep(seed=range(40))
        def f(seed):
            if seed == 39:
                (path,) = Path("out.h5.run/records").glob("worker*")
                for spoilt in (3, 20):
                    with path.open("r+b") as file:
                        file.seek(path.read_bytes().index(b"x" * 64 + b"%02d" % spoilt))
                        file.write(b"y")
            return {"x": "x" * 64 + f"{seed:02}"}
        """,
    )
    done = terminal.run("run", "study.py", "-o", "out.h5", "--workers", 1, merges, check=1)
    assert "38 of 40 done, 0 failed" in done.stderr
    assert terminal.json("status", "out.h5")["done"] == 38
    if merges == "--merge":
        with h5py.File(terminal.folder / "out.h5") as file:
            assert len(file["seed"]) == 38
    assert "40 of 40 done" in terminal.run(*RUN).stderr


def test_damaged_record_of_a_plan_that_is_gone_is_no_bug(terminal: Terminal) -> None:
    """Damage in a record whose number means nothing in a new, smaller plan costs nothing else."""
    counted(terminal, 9)
    terminal.run(*RUN)
    flip_data_of(file_with(terminal.folder, 8), 8)
    (run_folder(terminal.folder) / "plan.jsonl").unlink()
    counted(terminal, 4)
    again = terminal.run(*RUN)
    assert "4 kept, 0 to do" in again.stderr


def test_garbage_and_empty_record_files_stop_nothing(terminal: Terminal) -> None:
    """Files in records/ that are no records are passed over; everything else counts."""
    counted(terminal, 5)
    terminal.run(*RUN)
    folder = run_folder(terminal.folder) / "records"
    (folder / "worker_1_garbage.records").write_bytes(os.urandom(5000))
    (folder / "worker_2_empty.records").write_bytes(b"")
    (folder / "worker_3_zeros.records").write_bytes(bytes(5000))
    (folder / "worker_4_short.records").write_bytes(b"\xabh5r")
    (folder / "notes.txt").write_text("not ours")
    again = terminal.run("run", "study.py", "-o", "out.h5")
    assert "5 kept, 0 to do" in again.stderr
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [0, 1, 2, 3, 4]


def test_torn_record_is_run_again(terminal: Terminal) -> None:
    """A record file that ends in the middle of a record costs that record only."""
    counted(terminal, 5)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, "--no-merge")
    (path,) = record_files(terminal.folder)
    os.truncate(path, path.stat().st_size - 3)
    assert "4 kept, 1 to do" in terminal.run(*RUN).stderr


def test_damaged_plan_is_named_and_costs_no_result(terminal: Terminal) -> None:
    """A spoilt plan: exit code 3 and what to do; done so, every result is found by its key."""
    counted(terminal, 5)
    terminal.run(*RUN)
    plan = run_folder(terminal.folder) / "plan.jsonl"
    content = bytearray(plan.read_bytes())
    content[-10] ^= 0xFF
    plan.write_bytes(content)
    for command in (RUN, ("status", "out.h5"), ("missing", "out.h5")):
        said = only_message(terminal.run(*command, check=3))
        assert "plan.jsonl is damaged" in said
        assert "Move the plan away and run the same command again" in said
    plan.unlink()
    assert "5 kept, 0 to do" in terminal.run(*RUN).stderr
    assert count(terminal.folder, "executed") == 5


@pytest.mark.parametrize("content", [b"", b"[]\n", b"null", b"\xff\xfe", b"{}", b"7"])
def test_plan_that_is_something_else_is_damaged(terminal: Terminal, content: bytes) -> None:
    """Whatever lies where the plan should be, the answer is exit code 3 and never a bug."""
    counted(terminal, 3)
    terminal.run(*RUN)
    (run_folder(terminal.folder) / "plan.jsonl").write_bytes(content)
    only_message(terminal.run("status", "out.h5", check=3))


@pytest.mark.parametrize("name", ["sweep.json"])
def test_other_damaged_files_of_ours_are_named(terminal: Terminal, name: str) -> None:
    """A spoilt sweep.json: exit code 3, its name, and moving it away mends it."""
    counted(terminal, 3)
    terminal.run("run", "study.py", "-o", "out.h5")
    path = run_folder(terminal.folder) / name
    path.write_bytes(b"\xff{")
    said = only_message(terminal.run("run", "study.py", "-o", "out.h5", check=3))
    assert f"{name} is damaged" in said
    assert "move it away" in said
    path.unlink()
    assert "3 kept, 0 to do" in terminal.run("run", "study.py", "-o", "out.h5").stderr


# Again


def test_second_run_executes_nothing(terminal: Terminal) -> None:
    """The same command again says what is kept and runs no task."""
    counted(terminal, 7)
    assert "0 kept, 7 to do" in terminal.run("run", "study.py", "-o", "out.h5").stderr
    again = terminal.run("run", "study.py", "-o", "out.h5")
    assert "7 kept, 0 to do" in again.stderr
    assert count(terminal.folder, "executed") == 7
    assert len(worker_pids(terminal.folder)) <= 2


def test_output_alone_counts_as_done(terminal: Terminal) -> None:
    """With the whole run folder gone, what the output holds is not run again."""
    counted(terminal, 5)
    terminal.run("run", "study.py", "-o", "out.h5")
    shutil.rmtree(run_folder(terminal.folder))
    assert "5 kept, 0 to do" in terminal.run("run", "study.py", "-o", "out.h5").stderr
    assert count(terminal.folder, "executed") == 5


def test_failed_tasks_are_run_again_by_the_next_run(terminal: Terminal, study: Study) -> None:
    """A task that failed is missing, so the same command tries it again."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            if seed == 1 and not os.path.exists("mended"):
                raise ValueError("not yet")
            return {"x": seed}
    """)
    terminal.run(*RUN, check=1)
    (terminal.folder / "mended").touch()
    assert "2 kept, 1 to do" in terminal.run(*RUN).stderr


def test_larger_sweep_keeps_numbers_and_results(terminal: Terminal, study: Study) -> None:
    """Values added anywhere are appended: old tasks keep their numbers and are not run again."""
    text = """
        @h5sweep.sweep(farm={farms}, seed=range({seeds}))
        def f(farm, seed):
            open("executed", "ab", buffering=0).write(b".")
            return {{"x": 10 * ord(farm) + seed}}
    """
    study(text.format(farms=["b", "c"], seeds=2))
    terminal.run("run", "study.py", "-o", "out.h5")
    study(text.format(farms=["a", "b", "c"], seeds=3))
    again = terminal.run("run", "study.py", "-o", "out.h5")
    assert "the sweep has grown by 5 tasks" in again.stderr
    assert "4 kept, 5 to do" in again.stderr
    assert count(terminal.folder, "executed") == 9
    with h5py.File(terminal.folder / "out.h5") as file:
        keys = list(zip(file["farm"].asstr()[:], file["seed"][:].tolist(), strict=True))
        assert keys[:4] == [("b", 0), ("b", 1), ("c", 0), ("c", 1)]
        assert file["task"][:].tolist() == list(range(9))
        assert file["x"][:].tolist() == [10 * ord(farm) + seed for farm, seed in keys]


def test_smaller_sweep_leaves_results_and_says_so(terminal: Terminal) -> None:
    """Values that are no longer declared keep their results; their missing tasks are not run."""
    counted(terminal, 5)
    terminal.run(*RUN)
    flip_data_of(file_with(terminal.folder, 4), 4)
    counted(terminal, 3)
    again = terminal.run("run", "study.py", "-o", "out.h5")
    assert (
        "2 tasks of earlier runs are no longer declared; results stay, none is run" in again.stderr
    )
    assert "3 kept, 0 to do" in again.stderr
    assert count(terminal.folder, "executed") == 5
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["seed"][:].tolist() == [0, 1, 2, 3]
    status = terminal.json("status", "out.h5")
    assert (status["tasks"], status["done"], status["missing"]) == (3, 3, 0)
    assert "nothing is missing" in terminal.run("missing", "out.h5").stderr
    counted(terminal, 5)
    assert "4 kept, 1 to do" in terminal.run("run", "study.py", "-o", "out.h5").stderr


def test_changed_code_is_said_and_results_stay(terminal: Terminal) -> None:
    """A function that was edited since is said to be; what it finished before is kept."""
    counted(terminal, 3)
    terminal.run(*RUN)
    terminal.write("study.py", COUNTED.format(tasks=4).replace('"x": seed', '"x": seed + 0'))
    again = terminal.run(*RUN)
    assert "study.py has changed; 3 results of before are kept" in again.stderr
    assert "3 kept, 1 to do" in again.stderr


def test_try_runs_here_and_writes_nothing(terminal: Terminal) -> None:
    """--try N runs N tasks in this process, says how long the whole takes, and leaves no file."""
    counted(terminal, 100)
    done = terminal.run("run", "study.py", "-o", "out.h5", "--try", 3)
    assert "seed=0: ok" in done.stderr
    assert "seed=99: ok" in done.stderr
    assert "100 tasks ≈" in done.stderr
    assert count(terminal.folder, "executed") == 3
    assert {p.name for p in terminal.folder.iterdir()} <= {"study.py", "executed", "__pycache__"}


def test_try_shows_tracebacks(terminal: Terminal) -> None:
    """A task that fails under --try is shown with its traceback; exit code 1."""
    terminal.write(
        "study.py",
        "import h5sweep\n@h5sweep.sweep(seed=[1, 2])\ndef f(seed): return {'x': 1 / (seed - 1)}\n",
    )
    done = terminal.run("run", "study.py", "--try", 9, check=1)
    assert "seed=1: failed" in done.stderr
    assert "ZeroDivisionError" in only_message(done)
    assert "seed=2: ok" in done.stderr


# One run at a time


def test_second_live_run_is_refused(terminal: Terminal, study: Study) -> None:
    """While a run is going on, another one in its folder ends with exit code 4 and its pid."""
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            open(f"in_{seed}", "w").close()
            while not os.path.exists("go"):
                time.sleep(0.01)
            return {"x": seed}
    """)
    first = terminal.start(*RUN)
    try:
        until(lambda: (terminal.folder / "in_0").exists())
        for command in (RUN, ("merge", "out.h5")):
            said = only_message(terminal.run(*command, check=4))
            assert f"another run (pid {first.pid} on" in said
            assert "h5sweep status out.h5" in said
    finally:
        (terminal.folder / "go").touch()
        first.communicate(timeout=30)
    assert first.returncode == 0
    assert "2 kept, 0 to do" in terminal.run(*RUN).stderr


def test_lock_of_a_killed_run_is_taken_over(terminal: Terminal, study: Study) -> None:
    """A run after one that was killed says so and goes on, with nothing to unlock."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            open(f"in_{seed}", "w").close()
            while seed and not os.path.exists("go"):
                time.sleep(0.01)
            return {"x": seed}
    """)
    first = terminal.start(*RUN)
    until(lambda: (terminal.folder / "in_1").exists() and 0 in kinds(terminal.folder))
    first.kill()
    first.communicate()
    (terminal.folder / "go").touch()
    again = terminal.run(*RUN)
    assert f"the last run (pid {first.pid} on" in again.stderr
    assert "1 kept, 2 to do" in again.stderr


# What a run says when nobody listens


@pytest.mark.parametrize("merge", ["--merge", "--no-merge"])
def test_run_whose_messages_nobody_reads_finishes(terminal: Terminal, merge: str) -> None:
    """A closed pipe on stderr (`2>&1 | head`) neither stops a run nor makes it fail."""
    counted(terminal, 6)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*H5SWEEP, "run", "study.py", "-o", "out.h5", merge],
        cwd=terminal.folder,
        stdout=writer,
        stderr=writer,
        timeout=60,
    )
    os.close(writer)
    assert terminal.json("status", "out.h5")["done"] == 6
    assert done.returncode == 0


def test_failures_are_grouped_with_one_traceback_each(terminal: Terminal, study: Study) -> None:
    """A hundred failures of one cause are one paragraph with an example and its traceback."""
    study("""
        @h5sweep.sweep(seed=range(100))
        def f(seed):
            if seed % 2:
                raise ValueError(f"odd {seed}")
            return {"x": seed}
    """)
    done = terminal.run(*RUN, check=1)
    assert "50 tasks raised: ValueError at study.py:" in done.stderr
    assert "for example seed=1" in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert "next: h5sweep missing out.h5" in done.stderr


def test_provenance_is_kept_with_the_run(terminal: Terminal) -> None:
    """sweep.json names the sweep, and code/1.json holds its source."""
    counted(terminal, 3)
    terminal.run(*RUN)
    about = json.loads((run_folder(terminal.folder) / "sweep.json").read_text())
    assert about["name"] == "f"
    version = json.loads((run_folder(terminal.folder) / "code" / "1.json").read_text())
    assert "def f(seed)" in version["sources"][0]["text"]
    assert about["code_id"] == version["id"]


@pytest.mark.parametrize("name", ["signal.py", "hashlib.py", "queue.py"])
def test_study_named_like_a_module_of_python_works(terminal: Terminal, name: str) -> None:
    """A study called signal.py, beside which its workers run, does not stand in Python's way."""
    terminal.write(name, COUNTED.format(tasks=3))
    command = Path(sys.executable).with_name("h5sweep")
    done = subprocess.run(
        [command, "run", name, "-o", "out.h5"],
        cwd=terminal.folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


# Copies of a run folder that grew apart


def test_copies_that_grew_apart_are_joined_by_key(terminal: Terminal) -> None:
    """Two copies of a run folder, extended differently: joined, every key has its own result."""
    text = """
        import h5sweep

        @h5sweep.sweep(seed={seeds})
        def f(seed):
            return {{"x": float(seed)}}
    """

    def run(seeds: list[int], output: str) -> None:
        terminal.write("study.py", text.format(seeds=seeds))
        terminal.run("run", "study.py", "-o", output, "-j", "1")

    run([0, 1], "out.h5")
    shutil.copytree(terminal.folder / "out.h5.run", terminal.folder / "other.h5.run")
    run([0, 1, 2, 3], "out.h5")
    run([0, 1, 100, 101], "other.h5")
    for path in record_files(terminal.folder, "other.h5"):
        if not (terminal.folder / "out.h5.run" / "records" / path.name).exists():
            shutil.copy(path, terminal.folder / "out.h5.run" / "records")
    run([0, 1, 2, 3, 100, 101], "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert sorted(file["seed"][:].tolist()) == [0, 1, 2, 3, 100, 101]
        assert file["x"][:].tolist() == file["seed"][:].tolist()


def test_output_behind_a_link_stays_behind_it(terminal: Terminal, tmp_path: Path) -> None:
    """An output that is a symbolic link is written where the link leads."""
    counted(terminal, 3)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (terminal.folder / "out.h5").symlink_to(scratch / "real.h5")
    terminal.run("run", "study.py", "-o", "out.h5")
    assert (terminal.folder / "out.h5").is_symlink()
    with h5py.File(scratch / "real.h5") as file:
        assert len(file["task"]) == 3


def test_a_grown_sweep_is_no_changed_code(terminal: Terminal) -> None:
    """Only the function counts as code, not the values above it."""
    counted(terminal, 3)
    terminal.run(*RUN)
    counted(terminal, 4)
    assert "has changed since earlier runs" not in terminal.run(*RUN).stderr


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ('dims={"x": (5, "xy")}', "5 cannot be the name of an axis of x"),
        ('dims={"x": ("a/b", "xy")}', "'a/b' cannot be the name of an axis of x"),
        ('dims={"x": ("xy", "xy")}', "two axes of x have the same name"),
        ('units={"x": 3}', "the unit of x is 3"),
    ],
)
def test_dims_and_units_are_checked_when_declared(
    terminal: Terminal, keywords: str, message: str
) -> None:
    """What could not be written in the morning is refused in the evening."""
    study = "import h5sweep\n@h5sweep.sweep(seed=range(2), {})\ndef f(seed): return {{'x': 1}}\n"
    terminal.write("study.py", study.format(keywords))
    assert message in only_message(terminal.run(*RUN, check=2))


def test_study_that_changes_the_folder_leaves_the_output_where_it_was_named(
    terminal: Terminal,
) -> None:
    """A relative output is taken from where the command was given."""
    (terminal.folder / "sub").mkdir()
    terminal.write(
        "sub/study.py",
        """
        import os
        import h5sweep
        os.chdir(os.path.dirname(__file__))

        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed}
        """,
    )
    terminal.run("run", "sub/study.py", "-o", "out.h5")
    assert (terminal.folder / "out.h5").exists()
    assert not (terminal.folder / "sub" / "out.h5").exists()
