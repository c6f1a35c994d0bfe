"""h5sweep submit, where Slurm answers as a test says; tests/batch has a real one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import h5py
import pytest

from fake_slurm import ACCEPTS, REFUSES_MERGE, fake_slurm, listing
from h5sweep.batch import slurm
from h5sweep.batch.job import Job, Resources
from h5sweep.batch.slurm import Slurm
from h5sweep.errors import SubmitError
from running import until
from terminal import H5SWEEP, Terminal

STUDY = """
    import h5sweep

    @h5sweep.sweep(seed=range({tasks}))
    def optimise(seed):
        return {{"aep": seed * {factor}}}
"""
BAD_SQUEUES = ["exec sleep 30", "exit 1", "echo nonsense", "kill -9 $$", "head -c 999 /dev/urandom"]
SUBMIT = ("submit", "study.py", "-o", "out.h5", "--parts", 4)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    folder = tmp_path / "my sweep"
    folder.mkdir()
    made = Terminal(folder)
    write_study(made)
    return made


def write_study(terminal: Terminal, tasks: int = 40, factor: float = 2.0) -> None:
    terminal.write("study.py", STUDY.format(tasks=tasks, factor=factor))


def submit(
    terminal: Terminal, *words: object, sbatch: str = ACCEPTS, squeue: str = "", check: int = 0
) -> subprocess.CompletedProcess[str]:
    path = fake_slurm(terminal.folder / "bin", sbatch, squeue)
    return terminal.run(*SUBMIT, *words, check=check, PATH=path)


def script(terminal: Terminal, name: str = "1.sh") -> str:
    return (terminal.folder / "out.h5.run/submit" / name).read_text()


def what_is_there(terminal: Terminal) -> set[str]:
    return {path.name for path in terminal.folder.iterdir()} - {"bin", "__pycache__"}


# What is submitted


def test_the_script_has_what_was_asked_for(terminal: Terminal) -> None:
    """Resources become options of sbatch, the rest is passed on to run; names are quoted."""
    words = ["--time", "1d2h", "--cpus", 2, "--mem", "16G", "--timeout", "20min", "--retries", "2"]
    words += ["--only", "seed=0..9", "--only", "seed=20", "--keep-going", "--sweep", "optimise"]
    submit(terminal, *words, "--sbatch", "--account 'my wind'")
    lines = script(terminal).splitlines()
    for option in (
        "--array=1-4",
        "--requeue",
        "--open-mode=append",
        "--cpus-per-task=2",
        "--time=1-02:00:00",
        "--mem=16G",
        "--account 'my wind'",
        f"'--chdir={terminal.folder}'",
    ):
        assert f"#SBATCH {option}" in lines
    place = f"'{terminal.folder}"
    assert lines[-1] == (
        f"exec {H5SWEEP[0]} -P -m h5sweep run {place}/study.py' -o {place}/out.h5' "
        '--part "$SLURM_ARRAY_TASK_ID/4" --code 1 --changed keep --workers 2 --sweep optimise '
        "--timeout 20min --retries 2 --only seed=0..9 --only seed=20 --keep-going"
    )


@pytest.mark.parametrize(
    ("size", "option"), [("16g", "16G"), ("1.5G", "1536M"), ("500M", "500M"), ("2GB", "1908M")]
)
def test_memory_is_written_as_people_do(terminal: Terminal, size: str, option: str) -> None:
    """As batch systems have it, or with a unit as elsewhere here."""
    assert f"--mem={option}\n" in terminal.run(*SUBMIT, "--mem", size, "--dry-run").stdout


def test_options_that_begin_like_ours_are_passed_on(terminal: Terminal) -> None:
    """--account, --deadline and --wait-all-nodes are not --array, --dependency and --wait."""
    more = "--account wind -A wind --deadline=now+1day --wait-all-nodes=1 -w n1 -Hs"
    assert f"#SBATCH {more}\n" in terminal.run(*SUBMIT, "--sbatch", more, "--dry-run").stdout


def test_scripts_run(terminal: Terminal) -> None:
    """What lies in the folder is what a shell runs: parts in any order, then the merge."""
    submit(terminal)
    for part in ("3", "1", "2", "4"):
        run_part(terminal, part)
    subprocess.run(["sh", "out.h5.run/submit/1.merge.sh"], cwd=terminal.folder, check=True)
    terminal.run("status", "out.h5", "--exit-code")
    assert "40 kept, 0 to do\nnothing to submit; out.h5 is up to date" in submit(terminal).stderr


def run_part(terminal: Terminal, part: str, **env: str) -> str:
    """Run the script as Slurm does; return its log."""
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": part, **env}
    command = ["sh", "out.h5.run/submit/1.sh"]
    return subprocess.run(
        command, cwd=terminal.folder, env=environment, check=True, stderr=subprocess.PIPE, text=True
    ).stderr


def test_jobs_compute_what_was_submitted(terminal: Terminal) -> None:
    """Even if the study was edited, and run here, while they were waiting."""
    submit(terminal)
    write_study(terminal, factor=3.0)
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "seed=0..9")
    run_part(terminal, "1")
    terminal.run("merge", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        factors = [3.0] * 10 + [2.0] * 30
        assert file["aep"][:].tolist() == [n * factor for n, factor in enumerate(factors)]


def test_a_part_says_in_what_its_code_differs(terminal: Terminal) -> None:
    """In a job with another environment, as --export=NONE gives, it is not the code of then."""
    study = STUDY.replace("{factor}", 'float(os.environ.get("FACTOR", "1"))')
    terminal.write("study.py", "    import os\n" + study.format(tasks=40))
    path = fake_slurm(terminal.folder / "bin")
    terminal.run(*SUBMIT, PATH=path, FACTOR="2")
    assert "--code" not in run_part(terminal, "1", FACTOR="2")
    terminal.run("redo", "out.h5", "seed=0..9")
    said = run_part(terminal, "1")
    assert "not the code that --code names: the environment variable FACTOR" in said


def test_the_merge_job_fails_if_anything_is_missing(terminal: Terminal) -> None:
    """Its exit code is that of missing, after it has merged what is there."""
    submit(terminal)
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "seed=0..9")
    command = ["sh", "out.h5.run/submit/1.merge.sh"]
    done = subprocess.run(command, cwd=terminal.folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "wrote" in done.stderr and "30 of 40 missing" in done.stderr


@pytest.mark.parametrize(("tasks", "cpus", "parts"), [(3, 1, 3), (40, 1, 4), (10, 8, 2)])
def test_no_more_parts_than_there_is_work_for(
    terminal: Terminal, tasks: int, cpus: int, parts: int
) -> None:
    """As many workers as tasks are enough, in as few parts as have them."""
    write_study(terminal, tasks)
    assert f"submitted {parts} parts" in submit(terminal, "--cpus", cpus).stderr
    assert f"#SBATCH --array=1-{parts}\n" in script(terminal)


def test_only_what_is_missing_is_submitted(terminal: Terminal) -> None:
    """The second submission is for the rest."""
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "seed=0..37")
    said = submit(terminal).stderr
    assert "38 kept, 2 to do" in said and "submitted 2 parts" in said
    said = submit(terminal, "--only", "seed=0..9").stderr
    assert "2 other tasks to do, not selected: left alone" in said
    assert "nothing to submit" in said


def test_a_dry_run_writes_nothing(terminal: Terminal) -> None:
    """It prints what would be submitted, and needs no Slurm."""
    done = terminal.run(*SUBMIT, "--dry-run", PATH="")
    assert done.stdout.count("#!/bin/sh") == 2
    assert what_is_there(terminal) == {"study.py"}
    submit(terminal)
    assert script(terminal) in done.stdout and script(terminal, "1.merge.sh") in done.stdout


def test_a_dry_run_that_has_nothing_to_print_says_so(terminal: Terminal) -> None:
    """As where all is done; and an output that cannot be is refused as by the command itself."""
    terminal.run("run", "study.py", "-o", "out.h5")
    done = terminal.run(*SUBMIT, "--dry-run")
    assert done.stdout == "" and "nothing to submit" in done.stderr
    words = [word if word != "out.h5" else "none/out.h5" for word in SUBMIT]
    assert "or make it first" in terminal.run(*words, "--dry-run", check=2).stderr


# What is refused


def test_without_slurm_nothing_is_made(terminal: Terminal) -> None:
    """One sentence, exit code 2."""
    done = terminal.run(*SUBMIT, check=2, PATH="")
    assert done.stderr.startswith("h5sweep: sbatch is not installed here: ")
    assert what_is_there(terminal) == {"study.py"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "0"], "not in the range"),
        (["--engine", "abacus"], "'abacus' is not 'slurm'"),
        (["--time", "soon"], "write 90s, 20min or 1h30min"),
        (["--time", "0"], "give more than 0"),
        (["--mem", "much"], "write 500MB, 2GB or 4GiB"),
        (["--mem", "500"], "'500' has no unit: write 500M or 16G"),
        (["--timeout", "0"], "give more than 0"),
        (["--retries", "often"], "write a number"),
        (["--sbatch", "--array=1-9"], "h5sweep says --array itself"),
        (["--sbatch", "-a1-3"], "h5sweep says --array itself"),
        (["--sbatch", "-Ha 1-3"], "h5sweep says --array itself"),
        (["--sbatch", "--arr=1-3"], "ArrayTaskThrottle=N"),
        (["--sbatch", "--depend=afterany:1"], "says --dependency itself: leave it out\n"),
        (["--sbatch", "--exclusive -dafterany:1"], "says --dependency itself"),
        (["--sbatch", "-W"], "h5sweep does not wait for jobs"),
        (["--sbatch", "--wait"], "leave --wait out"),
        (["--sbatch", "--comment 'x"], "close its quotes"),
        (["--sbatch", "--comment 'x\ny'"], "line break"),
        (["--only", "seed=99"], "seed"),
        (["--code", "3"], "shares its folder, or leave out --code 3"),
        (["--sweep", "improve"], "has no sweep 'improve'"),
    ],
)
def test_wrong_usage_makes_nothing(terminal: Terminal, words: list[str], said: str) -> None:
    """Exit code 2, and no folder is left."""
    assert said in submit(terminal, *words, check=2).stderr
    assert what_is_there(terminal) == {"study.py"}


def test_a_folder_that_a_script_cannot_name_is_refused(tmp_path: Path) -> None:
    """Slurm reads a backslash in its own way: exit code 2, before anything is written."""
    (tmp_path / "my\\sweep").mkdir()
    terminal = Terminal(tmp_path / "my\\sweep")
    write_study(terminal)
    assert "a line break or a backslash" in submit(terminal, check=2).stderr
    assert what_is_there(terminal) == {"study.py"}


def test_a_refusal_is_told_in_its_own_words(terminal: Terminal) -> None:
    """Exit code 1; then the same command submits."""
    said = submit(terminal, sbatch="echo 'sbatch: error: account?' >&2; exit 1", check=1).stderr
    assert "1.sh: sbatch: error: account?. Change the options" in said
    assert submit(terminal).returncode == 0
    assert script(terminal, "2.sh")


def test_no_answer_is_not_told_as_a_refusal(terminal: Terminal) -> None:
    """No other options would help where sbatch is installed and no cluster is there."""
    sbatch = "echo 'sbatch: fatal: no configuration' >&2; exit 1"
    said = submit(terminal, sbatch=sbatch, squeue="exit 1", check=1).stderr
    assert "Slurm does not answer: sbatch: fatal: no configuration. Submit where" in said
    assert "options" not in said


def test_a_merge_that_is_refused_takes_nothing_back(terminal: Terminal) -> None:
    """The parts are submitted: status knows their job."""
    sbatch = f"{REFUSES_MERGE}; {ACCEPTS}"
    said = submit(terminal, sbatch=sbatch, check=1).stderr
    assert "Slurm job 17 runs 4 parts, but no job will merge: " in said
    assert json.loads(script(terminal, "1.json"))["job"] == "17"


def test_jobs_that_are_not_over_are_not_submitted_again(terminal: Terminal) -> None:
    """Exit code 4, with what to do."""
    submit(terminal)
    squeue = listing("17_1 RUNNING", "17_2 PENDING Priority")
    said = submit(terminal, squeue=squeue, check=4).stderr
    assert "(Slurm job 17: 1 pending (Priority), 1 running)" in said
    assert "scancel 17, then submit again" in said


@pytest.mark.parametrize("merge", ["", ".merge"])
def test_jobs_that_were_not_noted_are_found_by_their_script(terminal: Terminal, merge: str) -> None:
    """As if submit was killed before it wrote down what sbatch said, or a user called sbatch."""
    submit(terminal)
    for path in (terminal.folder / "out.h5.run/submit").glob("*.json"):
        path.unlink()
    script = f"{terminal.folder}/out.h5.run/submit/1{merge}.sh"
    path = fake_slurm(terminal.folder / "bin", squeue=listing("23_1 PENDING", script=script))
    assert "Slurm job 23: 1 pending\n" in terminal.run("status", "out.h5", PATH=path).stdout
    assert "scancel 23" in terminal.run(*SUBMIT, check=4, PATH=path).stderr
    elsewhere = listing("23_1 PENDING", script="/elsewhere/out.h5.run/submit/1.sh")
    assert submit(terminal, squeue=elsewhere).returncode == 0


@pytest.mark.parametrize("squeue", BAD_SQUEUES[:2])
def test_nothing_is_submitted_while_nobody_says_what_is_queued(
    terminal: Terminal, squeue: str
) -> None:
    """Exit code 1, with the jobs that may run, and how to go on if there is never an answer."""
    submit(terminal)
    said = submit(terminal, squeue=squeue, check=1).stderr
    assert "Slurm does not answer: jobs 17, 18 may still run. Submit again when it does" in said
    assert not (terminal.folder / "out.h5.run/submit/2.sh").exists()
    assert "remove out.h5.run/submit, then submit again" in said
    shutil.rmtree(terminal.folder / "out.h5.run/submit")
    assert submit(terminal, squeue=squeue).returncode == 0


def test_an_sbatch_that_does_not_answer_may_have_accepted(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words, with where to look; the job is found by its script if there is one."""
    (terminal.folder / "1.sh").touch()
    monkeypatch.setenv("PATH", fake_slurm(terminal.folder / "bin", sbatch="exec sleep 30"))
    monkeypatch.setattr(slurm, "SUBMITTING_S", 0.1)
    job = Job("optimise", "", [], Resources(), terminal.folder, terminal.folder)
    with pytest.raises(SubmitError, match=r"may have accepted .*1\.sh\. Look with squeue") as told:
        Slurm().submit(terminal.folder / "1.sh", job)
    assert "['sbatch'" not in str(told.value)


@pytest.mark.parametrize("part", [[], ["--part", "1/2"]])
def test_a_run_says_which_jobs_have_its_tasks(terminal: Terminal, part: list[str]) -> None:
    """It runs them all the same; what a job begins itself asks nobody."""
    asked = terminal.folder / "asked"
    squeue = f"touch '{asked}'; {listing('17_1 PENDING', '17_2 PENDING')}"
    path, run = fake_slurm(terminal.folder / "bin", squeue=squeue), ("run", "study.py", *part)
    assert "submitted" not in terminal.run(*run, "-o", "other.h5", PATH=path).stderr
    submit(terminal, squeue=squeue)
    asked.unlink(missing_ok=True)
    words = (*run, "-o", "out.h5", "--only", "seed=0..9", "--no-report")
    terminal.run(*words, check=None, PATH=path, SLURM_JOB_ID="23", SLURM_JOB_END_TIME="4e9")
    assert not asked.exists()
    said = terminal.run(*words, check=None, PATH=path).stderr
    assert "these tasks were submitted too (Slurm job 17: 2 pending), and jobs run" in said
    assert "To end them: scancel 17\n" in said


def test_an_edited_study_is_not_mixed_in_silently(terminal: Terminal) -> None:
    """Results of other code are there: each of the three things that are advised works."""
    terminal.run("run", "study.py", "-o", "out.h5", "--only", "seed=0..9")
    write_study(terminal, factor=3.0)
    said = submit(terminal, check=2).stderr
    assert "add --changed keep" in said and "add --changed redo" in said
    assert said.endswith("To go on with the code of then: add --code 1\n")
    assert terminal.run(*SUBMIT, "--dry-run", check=2).stderr == said
    assert "--code 2 " in terminal.run(*SUBMIT, "--dry-run", "--changed", "keep").stdout
    again = terminal.run(*SUBMIT, "--dry-run", "--changed", "redo")
    assert "10 kept, 40 to do, 10 of them again" in again.stderr and ": 40 tasks in" in again.stdout
    submit(terminal, "--code", 1)
    assert "--code 1 " in script(terminal)
    submit(terminal, "--changed", "keep")
    assert "--code 2 " in script(terminal, "2.sh")
    assert "10 kept, 40 to do, 10 of them again" in submit(terminal, "--changed", "redo").stderr


# What status says


@pytest.mark.parametrize("squeue", BAD_SQUEUES)
def test_status_is_not_disturbed_by_a_bad_squeue(terminal: Terminal, squeue: str) -> None:
    """Whatever squeue does, status says what the folder says, within seconds, and what may run."""
    submit(terminal)
    path, began = fake_slurm(terminal.folder / "bin", squeue=squeue), time.monotonic()
    done = terminal.run("status", "out.h5", PATH=path)
    assert time.monotonic() - began < 10
    assert "0 of 40 done" in done.stdout and "start the run again" not in done.stdout
    assert "\nSlurm does not answer: jobs 17, 18 may still run\n" in done.stdout
    assert done.stderr == ""
    assert "0 of 40 done" in terminal.run("status", "out.h5", PATH="").stdout


def test_status_says_to_submit_again(terminal: Terminal) -> None:
    """When jobs have ended and tasks are missing."""
    submit(terminal)
    path = fake_slurm(terminal.folder / "bin")
    said = terminal.run("status", "out.h5", PATH=path).stdout
    assert "\nno run is active: submit again, or start the run again\n" in said


def test_programs_can_tell_no_answer_from_no_jobs(terminal: Terminal) -> None:
    """--json of status has no jobs if none is queued, and says if nobody answers."""
    submit(terminal)
    assert status_jobs(terminal, "") is None
    assert status_jobs(terminal, "exit 1") == {
        "engine": "slurm",
        "answered": False,
        "states": {"17": {}, "18": {}},
        "reasons": {},
    }


def status_jobs(terminal: Terminal, squeue: str) -> Any:
    path = fake_slurm(terminal.folder / "bin", squeue=squeue)
    return json.loads(terminal.run("status", "out.h5", "--json", PATH=path).stdout)["jobs"]


def test_a_complete_sweep_is_complete_whoever_answers(terminal: Terminal) -> None:
    """Jobs that would find nothing to do are not told of, where there is no Slurm."""
    submit(terminal)
    terminal.run("run", "study.py", "-o", "out.h5")
    path = fake_slurm(terminal.folder / "bin", squeue="exit 1")
    said = terminal.run("status", "out.h5", PATH=path).stdout
    assert said.endswith("\ncomplete\n") and "Slurm" not in said


def test_status_asks_nobody_without_a_submission(terminal: Terminal) -> None:
    """squeue is not called for a folder that nothing was submitted for."""
    path = fake_slurm(terminal.folder / "bin", squeue=f"touch '{terminal.folder}/asked'")
    terminal.run("run", "study.py", "-o", "out.h5")
    terminal.run("status", "out.h5", PATH=path)
    assert not (terminal.folder / "asked").exists()


@pytest.mark.parametrize("note", ["", "{", "[]", '{"number": 1}', '{"engine": "abacus"}'])
def test_a_damaged_note_is_left_out(terminal: Terminal, note: str) -> None:
    """It says only which jobs to ask for: status and submit go on without it."""
    submit(terminal)
    (terminal.folder / "out.h5.run/submit/1.json").write_text(note)
    assert "0 of 40 done" in terminal.run("status", "out.h5").stdout
    assert submit(terminal).returncode == 0
    assert script(terminal, "2.sh")


def test_watching_goes_on_while_a_part_is_at_work(terminal: Terminal) -> None:
    """status --watch ends when the last part has, not before."""
    terminal.write(
        "study.py",
        """
        import os, time
        import h5sweep

        @h5sweep.sweep(seed=range(2))
        def optimise(seed):
            while not os.path.exists("go"):
                time.sleep(0.02)
            return {"aep": 1.0}
        """,
    )
    part = terminal.start("run", "study.py", "-o", "out.h5", "--part", "1/2", "-j", 1)
    until(lambda: (terminal.folder / "out.h5.run/parts").is_dir())
    until(lambda: terminal.json("status", "out.h5")["running"])
    watch = terminal.start("status", "out.h5", "--watch")
    with pytest.raises(subprocess.TimeoutExpired):
        watch.wait(1)
    (terminal.folder / "go").touch()
    part.communicate(timeout=30)
    assert part.returncode == 0
    assert "2 of 2 done" in watch.communicate(timeout=30)[0]
