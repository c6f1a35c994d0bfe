"""What is declared, done and missing: one answer, whichever command is asked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from h5sweep import Recorder
from h5sweep.errors import UsageError
from terminal import Terminal

Study = Callable[[str], Path]

SWEEP = """
@h5sweep.sweep(seed=range({tasks}), units={units}, dims={dims})
def f(seed):
    return {{"aep": seed / 2, "layout": np.zeros((3, 2))}}
"""
GIGA = '{"aep": "GW h"}'
MEGA = '{"aep": "MW h"}'


@pytest.fixture
def sweep(terminal: Terminal, study: Study) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a sweep of so many seeds into out.h5."""

    def run(
        tasks: int = 4, units: str = GIGA, dims: str = "{}", check: int = 0
    ) -> subprocess.CompletedProcess[str]:
        study(SWEEP.format(tasks=tasks, units=units, dims=dims))
        return terminal.run("run", "study.py", "-o", "out.h5", "-j", "2", check=check)

    return run


Sweep = Callable[..., subprocess.CompletedProcess[str]]


def edit(path: Path, value: float = 99.0, rows: int = 2) -> None:
    with h5py.File(path, "r+") as file:
        file["aep"][:rows] = value


def units_of(path: Path) -> str:
    with h5py.File(path) as file:
        units = file["aep"].attrs["units"]  # read as text or as bytes, by how it was written
        return units if isinstance(units, str) else units.decode()


def files_in(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, and what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


# Nobody has declared anything


def merge_described_files(terminal: Terminal) -> None:
    with h5py.File(terminal.folder / "worker.h5", "w") as file:
        file["seed"] = [0, 1]
        file["aep"] = [0.5, 1.5]
        file["aep"].attrs["units"] = "GW h"
    terminal.run("merge", "worker.h5", "-o", "out.h5", "--key", "seed")


def merge_recorded(terminal: Terminal) -> None:
    with Recorder(terminal.folder / "out.h5") as recorder:
        for seed in range(2):
            recorder.write({"seed": seed}, aep=seed / 2)
    terminal.run("merge", "out.h5")


@pytest.mark.parametrize("make", [merge_described_files, merge_recorded])
def test_nothing_is_complete_that_nobody_declared(
    terminal: Terminal, study: Study, make: Callable[[Terminal], None]
) -> None:
    """A merge, of files with attributes or of a recorder, says not which tasks there should be."""
    make(terminal)
    said = terminal.run("status", "out.h5", "--exit-code", check=1).stdout
    assert said.startswith("out.h5: 2 done; no run has declared how many there are\n")
    assert "complete" not in said
    told = terminal.json("status", "out.h5")
    assert (told["declared"], told["done"], told["missing"]) == (False, 2, None)
    assert (
        "no run has declared the tasks of out.h5"
        in terminal.run("missing", "out.h5", check=2).stderr
    )
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file.attrs["summary"].decode() == "2 tasks of out over seed"
    study(SWEEP.format(tasks=3, units=GIGA, dims="{}"))
    expected = terminal.run("missing", "out.h5", "--expect", "study.py", check=1)
    assert expected.stdout == "seed=2  never started\n"
    terminal.run("run", "study.py", "-o", "out.h5", "-j", "1")
    assert terminal.run("status", "out.h5", "--exit-code").stdout.endswith("complete\n")
    assert "nothing is missing" in terminal.run("missing", "out.h5").stderr


def test_a_sweep_knows_what_it_declares_now(terminal: Terminal, sweep: Sweep, study: Study) -> None:
    """`missing` and `status` of a sweep count tasks that no run has seen."""
    sweep(4)
    study(SWEEP.format(tasks=6, units=GIGA, dims="{}"))
    code = "from study import f; print(len(f.missing('out.h5')), f.status('out.h5').is_complete)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=terminal.folder, capture_output=True, text=True
    )
    assert done.stdout == "2 False\n", done.stderr


# What is done is counted where it lies


@pytest.mark.parametrize("has_folder", [True, False])
def test_rows_that_were_edited_are_run_again(
    terminal: Terminal, sweep: Sweep, has_folder: bool
) -> None:
    """A row whose checksum does not hold is no result; the old output is kept."""
    sweep()
    terminal.run("clean", "out.h5", "--yes")
    edit(terminal.folder / "out.h5")
    if has_folder:
        assert terminal.json("status", "out.h5")["done"] == 2
        assert terminal.run("missing", "out.h5", check=1).stdout.count("changed in the output") == 2
    else:
        shutil.rmtree(terminal.folder / "out.h5.run")
    said = sweep().stderr
    assert "2 kept, 2 to do" in said and "4 of 4 done" in said
    assert "2 rows of the old output had a wrong checksum" in said
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["aep"][:].tolist() == [0.0, 0.5, 1.0, 1.5]
    with h5py.File(terminal.folder / "out.old-1.h5") as file:
        assert file["aep"][:].tolist() == [99.0, 99.0, 1.0, 1.5]
    assert terminal.run("status", "out.h5", "--exit-code").stdout.endswith("complete\n")


@pytest.mark.parametrize("command", ["run", "merge"])
def test_edited_rows_are_kept_aside_when_records_replace_them(
    terminal: Terminal, sweep: Sweep, command: str
) -> None:
    """Rows that somebody changed are not overwritten without a note and a copy."""
    sweep()
    edit(terminal.folder / "out.h5", rows=1)
    edited = (terminal.folder / "out.h5").read_bytes()
    said = (sweep() if command == "run" else terminal.run("merge", "out.h5")).stderr
    assert "1 row of the old output had a wrong checksum" in said
    assert "first that of seed=0" in said and "kept as out.old-1.h5" in said
    assert (terminal.folder / "out.old-1.h5").read_bytes() == edited
    assert "old output" not in terminal.run("merge", "out.h5").stderr
    assert not (terminal.folder / "out.old-2.h5").exists()


@pytest.mark.parametrize("has_records", [True, False])
def test_a_copy_of_a_sweep_is_as_complete_as_the_sweep(
    terminal: Terminal, sweep: Sweep, has_records: bool
) -> None:
    """`cp -r` and `touch` change times and nothing else."""
    sweep()
    if not has_records:
        terminal.run("clean", "out.h5", "--yes")
    subprocess.run("mkdir copy; cp -r out.h5 out.h5.run copy", shell=True, cwd=terminal.folder)
    (terminal.folder / "out.h5").touch()
    for output in ("out.h5", "copy/out.h5"):
        assert terminal.run("status", output, "--exit-code").stdout.endswith("complete\n")
        assert "nothing is missing" in terminal.run("missing", output).stderr
        said = terminal.run("run", "study.py", "-o", output).stderr
        assert "4 kept, 0 to do" in said and "old output" not in said


def test_a_run_counts_what_its_merge_could_not_take(terminal: Terminal, sweep: Sweep) -> None:
    """Rows that rotted on the disk, at the same size and time, are missing once they were read."""
    sweep()
    terminal.run("clean", "out.h5", "--yes")
    output = terminal.folder / "out.h5"
    before = output.stat()
    edit(output)
    import os

    os.utime(output, ns=(before.st_atime_ns, before.st_mtime_ns))
    said = terminal.run("run", "study.py", "-o", "out.h5", "--compress", check=1).stderr
    assert "2 of 4 done" in said and "2 tasks must be run again" in said
    assert "4 of 4 done" in sweep().stderr


def test_results_that_the_output_lacks_are_not_called_complete(
    terminal: Terminal, sweep: Sweep
) -> None:
    """A newer result, or a row that was edited, has yet to be merged; then all is complete."""
    sweep()
    edit(terminal.folder / "out.h5")
    said = terminal.run("status", "out.h5").stdout
    assert "  2 results not merged yet\n" in said
    assert said.endswith("next: h5sweep merge out.h5 writes the output\n")
    assert terminal.json("status", "out.h5")["results_not_merged"] == 2
    terminal.run("merge", "out.h5")
    assert terminal.run("status", "out.h5").stdout.endswith("complete\n")


def test_a_record_file_with_a_damaged_beginning_is_one_to_every_command(
    terminal: Terminal, sweep: Sweep
) -> None:
    """Its name tells what it is; whatever follows the damage is counted and merged."""
    sweep(4)
    folder = terminal.folder / "out.h5.run"
    records = max((folder / "records").iterdir(), key=lambda path: path.stat().st_size)
    records.write_bytes(b"?" + records.read_bytes()[1:])
    (terminal.folder / "out.h5").unlink()
    assert terminal.json("status", "out.h5")["done"] == 4
    checked = terminal.json("check", folder, check=3)
    assert checked["totals"]["tasks"] == 4
    assert checked["totals"]["mergeable"] == checked["totals"]["files"]
    assert "4 tasks" in terminal.run("merge", folder, "-o", "other.h5").stderr
    salvaged = terminal.json("salvage", folder, check=3)
    assert salvaged["recovered"] == 4
    said = terminal.run("merge", "out.h5").stderr
    assert "has an unreadable beginning" in said and "wrote out.h5 (4 tasks" in said


# Keys that are not like the others


def test_a_recorder_refuses_keys_of_another_type(terminal: Terminal, sweep: Sweep) -> None:
    """What the plan has no place for is told when it is written."""
    sweep()
    with Recorder(terminal.folder / "out.h5") as recorder:
        for seed in ("x", 1.5, True):
            with pytest.raises(
                UsageError, match=r"seed=.* is a (text|number|truth value), not an integer"
            ):
                recorder.write({"seed": seed}, aep=1.0)
        recorder.write({"seed": 1.0}, aep=7.0)
    terminal.run("merge", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["aep"][:].tolist() == [0.0, 7.0, 1.0, 1.5]


def test_recorders_without_a_plan_know_their_first_key(tmp_path: Path) -> None:
    """Numbers may be whole or not; a text among them is refused."""
    with Recorder(tmp_path / "out.h5") as recorder:
        recorder.write({"speed": 1}, aep=1.0)
        recorder.write({"speed": 1.5}, aep=1.0)
        with pytest.raises(UsageError, match="speed='fast' is a text, not a number"):
            recorder.write({"speed": "fast"}, aep=1.0)


def test_a_result_that_is_left_out_keeps_a_sweep_from_being_complete(
    terminal: Terminal, sweep: Sweep
) -> None:
    """It was recorded before the plan was there; every command says so, and what to do works."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": "one"}, aep=1.0)
    said = sweep(check=0).stderr
    for words, code in (
        (("merge", "out.h5"), 1),
        (("status", "out.h5", "--exit-code"), 1),
        (("missing", "out.h5"), 1),
    ):
        done = terminal.run(*words, check=code)
        said = done.stdout + done.stderr
        assert "1 result left out, first seed=one in out.h5.run/records/recorder_" in said
        assert "seed='one' is a text, not an integer" in said
    told = terminal.json("status", "out.h5")
    assert (told["tasks"], told["done"], told["results_left_out"]) == (5, 4, 1)
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 1}, aep=1.0)
    terminal.run("merge", "out.h5", check=1)
    (wrong,) = re.findall(r"out\.h5\.run/records/recorder_\w+\.records", said)
    (terminal.folder / wrong).rename(terminal.folder / "away")
    assert terminal.run("status", "out.h5", "--exit-code").stdout.endswith("complete\n")


# Labels


@pytest.mark.parametrize("has_folder", [True, False])
def test_results_are_not_given_another_unit(
    terminal: Terminal, sweep: Sweep, has_folder: bool
) -> None:
    """A run that would relabel what is there stops, names both units, and changes nothing."""
    sweep(4)
    if not has_folder:
        shutil.rmtree(terminal.folder / "out.h5.run")
    (terminal.folder / "study.py").unlink()
    before = files_in(terminal.folder)
    said = sweep(6, units=MEGA, check=2).stderr
    assert "units: aep is 'MW h' in the study but 'GW h' in the 4 results of out.h5" in said
    (terminal.folder / "study.py").unlink()
    assert files_in(terminal.folder) == before
    assert "6 of 6 done" in sweep(6, units=GIGA).stderr
    assert units_of(terminal.folder / "out.h5") == "GW h"


def test_a_wrong_label_can_be_corrected(terminal: Terminal, sweep: Sweep) -> None:
    """After the command that the refusal names, the study is accepted."""
    sweep(4)
    said = sweep(6, units=MEGA, check=2).stderr
    command = re.findall(r"label was wrong: h5sweep (.*)", said)[0]
    terminal.run(*shlex.split(command))
    sweep(6, units=MEGA)
    assert units_of(terminal.folder / "out.h5") == "MW h"


def test_files_in_another_unit_are_not_merged_into_a_sweep(
    terminal: Terminal, sweep: Sweep
) -> None:
    """Their values would get the unit of the sweep."""
    sweep(2)
    with h5py.File(terminal.folder / "worker.h5", "w") as file:
        file["seed"] = [2, 3]
        file["aep"] = [1000.0, 1500.0]
        file["aep"].attrs["units"] = "MW h"
    before = files_in(terminal.folder)
    words = ("merge", "worker.h5", "-o", "out.h5", "--key", "seed")
    said = terminal.run(*words, check=2).stderr
    assert "units: aep is 'MW h' in the files but 'GW h' in the sweep" in said
    assert files_in(terminal.folder) == before
    with h5py.File(terminal.folder / "worker.h5", "r+") as file:
        file["aep"].attrs["units"] = "GW h"
    terminal.run(*words)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file["aep"]) == 4
    assert units_of(terminal.folder / "out.h5") == "GW h"


def test_a_unit_stays_when_the_study_says_none(terminal: Terminal, sweep: Sweep) -> None:
    """Leaving units out is no way around: what is there has the unit it was computed in."""
    sweep(4)
    sweep(5, units="{}")
    assert units_of(terminal.folder / "out.h5") == "GW h"
    assert "'GW h'" in sweep(6, units=MEGA, check=2).stderr


@pytest.mark.parametrize("left", ["all", "output", "records"])
def test_results_without_a_unit_are_not_given_one(
    terminal: Terminal, sweep: Sweep, left: str
) -> None:
    """A run stops and names what to do; a unit of a result that is new is no change of others."""
    sweep(4, units="{}")
    if left == "output":
        shutil.rmtree(terminal.folder / "out.h5.run")
    elif left == "records":
        (terminal.folder / "out.h5").unlink()
    said = sweep(6, units=GIGA, check=2).stderr
    assert "units: aep is 'GW h' in the study but no unit in the 4 results of out.h5" in said
    command = re.findall(r"label was wrong: h5sweep (.*)", said)[0]
    terminal.run(*shlex.split(command))
    sweep(6, units=GIGA[:-1] + ', "new": "m"}')
    assert units_of(terminal.folder / "out.h5") == "GW h"


@pytest.mark.parametrize("has_folder", [True, False])
def test_axes_are_not_given_other_names(terminal: Terminal, sweep: Sweep, has_folder: bool) -> None:
    """Two axes that change places would change what every row means."""
    sweep(4, dims='{"layout": ("turbine", "xy")}')
    if not has_folder:
        shutil.rmtree(terminal.folder / "out.h5.run")
    said = sweep(5, dims='{"layout": ("xy", "turbine")}', check=2).stderr
    assert "dims: layout is 'xy, turbine' in the study but 'turbine, xy' in the 4 results" in said


def test_labels_of_no_result_are_told(sweep: Sweep) -> None:
    """A unit or axes of a name that no result has is a slip, and told when it is merged."""
    said = sweep(2, units='{"aepp": "GW h", "seed": "1"}', dims='{"lay": ("xy",)}').stderr
    assert "note: units names aepp, which is not a result; results are aep, layout" in said
    assert "note: dims names lay, which is not a result" in said
    assert "names seed" not in said


# Refusals leave nothing behind


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "study.py", "-o", "out.h5"), 2),
        (("run", "study.py", "-o", "nowhere/deep/out.h5"), 2),
        (("run", "study.py", "-o", "new.h5", "-j", "0"), 2),
        (("merge", "worker.h5", "-o", "new.h5", "--key", "farm"), None),
        (("merge", "worker.h5", "-o", "nowhere/new.h5", "--key", "seed"), 2),
        (("merge", "worker.h5", "twin.h5", "-o", "new.h5", "--key", "seed"), 3),
        (("merge", "worker.h5", "-o", "nowhere/new.h5"), 2),
        (("salvage", "worker.h5", "-o", "nowhere/new.h5", "--key", "seed"), 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_refused_command_leaves_nothing_behind(
    terminal: Terminal, study: Study, words: tuple[str, ...], code: int | None
) -> None:
    """No run folder, no path that was misspelt."""
    study(SWEEP.format(tasks=2, units=GIGA, dims="{}"))
    with h5py.File(terminal.folder / "out.h5", "w") as file:
        file["x"] = [1.0]
    for name, value in (("worker", 0.5), ("twin", 0.75)):
        with h5py.File(terminal.folder / f"{name}.h5", "w") as file:
            file["seed"] = [0, 1]
            file["aep"] = [value, value]
    before = files_in(terminal.folder)
    done = terminal.run(*words, check=code)
    assert done.returncode != 0, done.stderr
    assert files_in(terminal.folder) == before
    for advice in re.findall(r"mkdir -p \S+", done.stderr):
        subprocess.run(shlex.split(advice), cwd=terminal.folder, check=True)
        terminal.run(*words)


def test_no_workers_are_refused_from_python(terminal: Terminal, study: Study) -> None:
    """0 is a number of workers that somebody has given, and not the default."""
    study(SWEEP.format(tasks=2, units=GIGA, dims="{}"))
    code = "from study import f; f.run('out.h5', workers=0)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=terminal.folder, capture_output=True, text=True
    )
    assert "UsageError: workers must be 1 or more, not 0" in done.stderr
    assert not (terminal.folder / "out.h5.run").exists()


# Files that are no output of a run


def keep_groups(terminal: Terminal) -> None:
    for worker in range(2):
        with h5py.File(terminal.folder / f"w{worker}.h5", "w") as file:
            file[f"s{worker}/aep"] = [1.0, 2.0, 3.0]
    terminal.run("merge", "w0.h5", "w1.h5", "-o", "thr.h5")


@pytest.mark.parametrize("command", ["status", "missing", "merge"])
def test_advice_about_a_file_that_no_run_wrote_works(terminal: Terminal, command: str) -> None:
    """Of a merged file of groups the advice leads to an answer."""
    keep_groups(terminal)
    said = terminal.run(command, "thr.h5", check=2).stderr
    assert "h5sweep run" not in said
    merge, missing = re.findall(r"h5sweep ((?:merge|missing) .*?) (?:writes|compares)", said)
    terminal.write("TASKS", "seed\n0\n1\n2\n")
    terminal.run(*merge.replace("KEY", "s{seed:d}").split())
    assert terminal.run(*missing.split(), check=1).stdout == "seed=2  never started\n"


@pytest.mark.parametrize("command", ["status", "missing"])
def test_a_study_is_told_from_its_output(terminal: Terminal, study: Study, command: str) -> None:
    """`status study.py` names the output that `run study.py` writes."""
    study(SWEEP.format(tasks=2, units=GIGA, dims="{}"))
    terminal.run("run", "study.py", "-j", "1")
    said = terminal.run(command, "study.py", check=2).stderr
    assert "h5sweep run" not in said
    output = re.findall(r"name its output, such as (\S+)", said)[0]
    terminal.run(command, output)


def test_an_output_without_its_run_folder_can_be_gone_on_from(
    terminal: Terminal, sweep: Sweep
) -> None:
    """What the message says works."""
    sweep(4)
    shutil.rmtree(terminal.folder / "out.h5.run")
    said = terminal.run("status", "out.h5", check=2).stderr
    advice = re.findall(r"h5sweep (run STUDY -o \S+)", said)[0].replace("STUDY", "study.py")
    assert "4 kept, 0 to do" in terminal.run(*advice.split()).stderr


def tasks_in(path: Path) -> list[int]:
    with h5py.File(path) as file:
        found: list[int] = file["seed"][:].tolist()
        return found


def test_a_value_that_was_removed_is_not_counted(terminal: Terminal, sweep: Sweep) -> None:
    """Its rows stay, and `run` and `status` say that there are such."""
    sweep(10)
    said = sweep(8).stderr
    assert "8 kept, 0 to do" in said
    assert "8 of 8 done, 0 failed; 2 results of tasks that are not declared" in said
    shown = terminal.run("status", "out.h5").stdout
    assert "8 of 8 done (100.0 %); 2 results of tasks that are not declared" in shown
    assert shown.endswith("complete\n")
    found = json.loads(terminal.run("status", "out.h5", "--json").stdout)
    assert (found["tasks"], found["done"], found["results_undeclared"]) == (8, 8, 2)
    assert [value["value"] for value in found["columns"]["seed"]] == list(range(8))
    assert len(tasks_in(terminal.folder / "out.h5")) == 10


def test_rows_that_are_not_declared_do_not_pass_for_missing_ones(
    terminal: Terminal, study: Study
) -> None:
    """As many rows as tasks are declared, but of other tasks: two are missing."""
    failing = """
        @h5sweep.sweep(seed=range({}, {}))
        def f(seed):
            if seed == {}:
                raise ValueError("not this one")
            return {{"aep": seed / 2}}
        """
    study(failing.format(0, 4, -1))
    terminal.run("run", "study.py", "-o", "out.h5", "-j", "1")
    study(failing.format(1, 5, 4))
    done = terminal.run("run", "study.py", "-o", "out.h5", "-j", "1", check=1)
    assert "3 of 4 done, 1 failed; 1 result of tasks that are not declared" in done.stderr


def test_declared_only_leaves_out_what_was_removed(terminal: Terminal, sweep: Sweep) -> None:
    """Until a merge without it, also of runs; a value that is declared again comes back."""
    output = terminal.folder / "out.h5"
    sweep(10)
    sweep(8)
    said = terminal.run("merge", "out.h5", "--declared-only").stderr
    assert "2 results of tasks that are not declared left out" in said
    assert tasks_in(output) == list(range(8))
    assert terminal.run("status", "out.h5").stdout.endswith("complete\n")
    assert "sound" in terminal.run("check", "out.h5").stdout
    assert "out.h5 is up to date" in sweep(8).stderr
    assert not list(terminal.folder.glob("out.old*"))
    sweep(9)
    assert tasks_in(output) == list(range(9))
    terminal.run("merge", "out.h5")
    assert tasks_in(output) == list(range(10))


def test_declared_only_keeps_the_only_copy_aside(terminal: Terminal, sweep: Sweep) -> None:
    """A row whose record is gone is nowhere else than in the old output."""
    sweep(4)
    terminal.run("clean", "out.h5", "--yes")
    sweep(3)
    said = terminal.run("merge", "out.h5", "--declared-only").stderr
    assert "came from the old output; the old output is kept as out.old-1.h5" in said
    assert tasks_in(terminal.folder / "out.h5") == [0, 1, 2]
    assert tasks_in(terminal.folder / "out.old-1.h5") == [0, 1, 2, 3]


def test_declared_only_needs_a_declaration(terminal: Terminal) -> None:
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 1}, aep=0.5)
    said = terminal.run("merge", "out.h5", "--declared-only", check=2).stderr
    assert "no run has declared the tasks of out.h5" in said
    said = terminal.run("merge", "out.h5.run", "-o", "b.h5", "--declared-only", check=2).stderr
    assert "leave out -o" in said
