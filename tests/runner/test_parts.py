"""Parts of one sweep at work in one folder, which they have in common and nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from crash_checks import check_output, finished_tasks
from h5sweep.base.listed_plan import plan_list
from h5sweep.errors import UsageError
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.parts import PartNumber, registered
from h5sweep.runner.choose_tasks import TaskChoice
from h5sweep.runner.part_number import parse_part
from h5sweep.runner.part_tasks import PartTasks
from h5sweep.state.state import read_state
from needs import needs_root, needs_sshfs
from part_runs import UNSEEN, WAITING, Parts, ended, sshfs_mount
from running import is_running, kinds, record_files, run_folder, until, worker_pids


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    parts = Parts(tmp_path)
    yield parts
    parts.close()


def part_files(parts: Parts) -> list[Path]:
    return sorted((run_folder(parts.folder) / "parts").glob("*.json"))


def result_counts(parts: Parts) -> set[int]:
    """How often results were recorded of tasks; {1} if each was finished once."""
    return set(finished_tasks(run_folder(parts.folder)).values())


# Shares


def test_parts_at_once_run_every_task_once(parts: Parts) -> None:
    """Parts that begin together with no plan there share the work; none merges."""
    started = [parts.start(f"{number}/4") for number in range(1, 5)]
    said = [ended(process) for process in started]
    assert Counter(parts.begun()) == dict.fromkeys(range(parts.tasks), 1)
    assert not (parts.folder / "out.h5").exists()
    assert part_files(parts) == []
    assert any("next: h5sweep merge out.h5 writes the output" in text for text in said)
    parts.check_all()


def test_share_of_a_part_is_interleaved(parts: Parts) -> None:
    """The third of four takes every fourth task first, while nobody has the others."""
    parts.run("3/4")
    own = list(range(2, parts.tasks, 4))
    assert parts.begun()[: len(own)] == own
    assert sorted(parts.begun()) == list(range(parts.tasks))


def test_part_claims_no_more_than_half_of_what_is_left(tmp_path: Path) -> None:
    """However fast tasks were so far: what then takes longer can still be taken over."""
    folder, plan = RunFolder(tmp_path / "out.h5"), plan_list([{"seed": n} for n in range(400)])
    folder.create()
    folder.save_plan(plan)
    with registered(folder, PartNumber(1, 2), "code") as name:
        tasks = PartTasks(folder, PartNumber(1, 2), name, TaskChoice.of(plan, ()))
        assert tasks.begin(read_state(folder, plan)) == 200
        found = [tasks(10_000, False) for _ in range(3)]
    assert [len(some or ()) for some in found] == [100, 50, 25]


def test_part_says_what_it_took_over(parts: Parts) -> None:
    """A part that is alone runs all tasks, and says which were not its own."""
    said = parts.run("1/4")
    assert "part 1/4: 0 kept, 6 tasks of its own to do" in said
    assert "part 1/4: ended; 24 of 24 done" in said
    assert "part 1/4: took over 18 tasks that nobody had in hand, from other parts' shares" in said


def test_same_part_twice_at_once(parts: Parts) -> None:
    """Two processes that are both part 1 of 2 share what one would do; nothing is run twice."""
    for process in [parts.start("1/2"), parts.start("1/2"), parts.start("2/2")]:
        ended(process)
    assert Counter(parts.begun()) == dict.fromkeys(range(parts.tasks), 1)


def test_another_n_half_way(parts: Parts) -> None:
    """What a killed part of 2 has left is shared by parts of 3; what it finished is kept."""
    killed = parts.start("1/2", SPIN="200")
    parts.wait_until_begun("1/2", least=4)
    killed.kill()
    killed.wait()
    until(lambda: not any(map(is_running, worker_pids(parts.folder))))
    finished = set(finished_tasks(run_folder(parts.folder)))
    for process in [parts.start(f"{number}/3") for number in (1, 2, 3)]:
        ended(process)
    assert not finished & set(parts.begun("1/3", "2/3", "3/3"))
    assert result_counts(parts) == {1}
    parts.check_all()


def test_live_part_keeps_what_it_has_in_hand(parts: Parts) -> None:
    """Others take over what it has not claimed, and end; they do not wait for it."""
    busy = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    said = parts.run("2/2")
    assert "1 other part is at work" in said
    in_hand = set(range(parts.tasks)) - set(finished_tasks(run_folder(parts.folder)))
    assert set(parts.begun("1/2")) <= in_hand
    assert 1 <= len(in_hand) <= 2  # one that runs, one that is next
    parts.let_go()
    ended(busy)
    assert Counter(parts.begun()) == dict.fromkeys(range(parts.tasks), 1)


def test_only_the_selected_tasks_are_run(parts: Parts) -> None:
    """--only means the same in a part as in a run; the others stay missing."""
    said = parts.run("1/1", "--only", "farm=3")
    assert sorted(parts.begun()) == [6, 7]
    assert "the parts, started again without --only, run them" in said


# Failures

FAILING = WAITING.replace(
    "    layout =", "    if number % 5 == 0: raise ValueError('no')\n    layout ="
)


def test_failed_task_is_tried_again_by_its_own_part_only(tmp_path: Path) -> None:
    """A failure is no reason for each of forty parts to try that task too; a new start is."""
    parts = Parts(tmp_path, study=FAILING)
    failing = [0, 5, 10, 15, 20]
    for number in ("1/3", "2/3", "3/3"):
        parts.run(number, "--retries", "0")
    first_time = Counter(task for task in parts.begun("1/3"))
    assert all(first_time[task] == 1 for task in failing)
    assert sorted(parts.begun("2/3", "3/3")) == [5, 10, 20]  # of which task 5 mod 3 is 2, and so on
    said = parts.run("1/3", "--failed", "keep", ROUND="kept")
    assert parts.begun("kept") == []
    assert "19 of 24 done, 5 failed" in said
    assert "h5sweep missing out.h5 says why tasks are missing; the parts, started again " in said
    assert "started again without --failed keep, run them" in said


def test_part_in_which_all_fails_stops_early(tmp_path: Path) -> None:
    """The first 20 failures of one cause end a part as they end a run, whosever tasks they are."""
    study = WAITING.replace("    layout =", "    raise ValueError('no')\n    layout =")
    parts = Parts(tmp_path, farms=40, study=study)
    part = parts.start("1/2", "--retries", "0")
    said = part.communicate(timeout=60)[1]
    assert part.returncode == 1
    assert "the first 20 tasks all failed in the same way" in said
    assert part_files(parts) == []
    said = parts.start("1/40", "--retries", "0", ROUND="few").communicate(timeout=60)[1]
    assert "the first 20 tasks all failed in the same way" in said
    assert len(parts.begun("few")) < parts.tasks


# Death


def test_hammered_parts_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """Parts killed at random moments, and started again with any N: each result once, and right."""
    hammer(tmp_path, farms=150, kills=12, seed=20261118)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_hammered_parts_for_long(tmp_path: Path, seed: int) -> None:
    """The same with other seeds, and more of both."""
    hammer(tmp_path, farms=400, kills=40, seed=seed)


def hammer(folder: Path, *, farms: int, kills: int, seed: int) -> None:
    source, parts = random.Random(seed), Parts(folder, farms=farms, study=UNSEEN)
    live: list[subprocess.Popen[str]] = []
    begun = 0
    try:
        for number in range(kills):
            while len(live) < 3:
                of = source.choice([1, 2, 3, 7])
                part = f"{source.randint(1, of)}/{of}"
                live.append(parts.start(part, SPIN="100", ROUND=f"r{number}.{len(parts.started)}"))
            begun += source.randint(1, max(2 * farms // kills // 2, 1))
            wait_for(parts, live, begun)
            victim = live.pop(source.randrange(len(live)))
            if source.random() < 0.3 and (pids := worker_pids(folder)):
                with suppress(ProcessLookupError):
                    os.kill(source.choice(pids), signal.SIGKILL)
            victim.kill()
        for process in live:
            process.communicate(timeout=120)
        ended(parts.start("1/1", ROUND="last"))
        parts.check_all()
        assert result_counts(parts) == {1}, "a finished task was run again"
    finally:
        parts.close()


def wait_for(parts: Parts, live: list[subprocess.Popen[str]], begun: int) -> None:
    until(lambda: len(parts.begun()) >= begun or all(p.poll() is not None for p in live))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_signal_ends_a_part_and_a_new_start_goes_on(parts: Parts, number: int) -> None:
    """It lets running tasks end within the grace; its claims are void, nothing is blamed.

    Batch systems are often told to send the latter two before the end of a job.
    """
    part = parts.start("1/2", "--grace", "0.2s", WAIT="all")
    parts.wait_until_begun("1/2")
    part.send_signal(number)
    said = ended(part, 128 + number)
    assert "stopped; 0 finished results are kept" in said
    assert part_files(parts) == []
    parts.run("1/2", ROUND="again")
    assert sorted(parts.begun("again")) == list(range(parts.tasks))
    assert all(found == [2] for found in kinds(parts.folder).values())


def test_signal_that_a_study_takes_for_itself_ends_nothing(tmp_path: Path) -> None:
    """With SIGUSR1 it may want to see where it stands."""
    own = "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1)\n"
    parts = Parts(tmp_path, study=own + WAITING)
    part = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    part.send_signal(signal.SIGUSR1)
    parts.let_go()
    assert "Current thread" in ended(part)
    assert len(parts.begun()) == parts.tasks


def test_ctrl_c_lets_the_tasks_of_a_part_finish_and_a_second_ends_it(parts: Parts) -> None:
    """As in a run: the time they have is said."""
    part = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    part.send_signal(signal.SIGINT)
    assert part.stderr is not None
    while "waiting up to 20 s for " not in (line := part.stderr.readline()):
        assert line
    assert "press Ctrl-C again to stop now" in line
    part.send_signal(signal.SIGINT)
    assert "stopped; 0 finished results are kept" in ended(part, 130)
    assert part_files(parts) == []


def test_claim_of_a_part_killed_while_claiming_is_free_after_a_while(parts: Parts) -> None:
    """A claim without a name is watched, then taken over: nothing has to be unlocked."""
    parts.run("1/1", "--only", "farm=0")
    (run_folder(parts.folder) / "claims" / "7.1").touch()
    parts.run("1/1")
    assert (run_folder(parts.folder) / "claims" / "7.2").read_text()
    parts.check_all()


def test_workers_of_a_killed_part_are_waited_for(parts: Parts) -> None:
    """A worker that outlives its part for a moment keeps its task: it may be recording it."""
    killed = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    (worker,) = worker_pids(parts.folder)
    (task,) = parts.begun("1/2")
    os.kill(worker, signal.SIGSTOP)
    # The kernel's signal at the end of the part is not waited for here: a stopped one takes it.
    killed.kill()
    killed.wait()
    parts.run("2/2")
    assert not is_running(worker)
    assert sorted(parts.begun("2/2")) == list(range(parts.tasks))
    assert task in parts.begun("2/2")


# Others in the folder


def test_run_is_refused_beside_a_part_and_a_part_beside_a_run(parts: Parts) -> None:
    """Each says who is at work, with exit code 4; neither disturbs the other."""
    part = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    run = ("run", "study.py", "-o", "out.h5", "-j", "1")
    assert f"part 1/2 (pid {part.pid} on " in parts.run_words(*run, check=4)
    for words in (["redo", "out.h5", "farm=1"], ["relabel", "out.h5", "--rename", "aep=power"]):
        said = parts.run_words(*words, check=4)
        assert "is at work on out.h5; watch it with: h5sweep status out.h5" in said
    parts.let_go()
    ended(part)
    Path(f"{parts.trace}.go").unlink()
    parts.run_words("redo", "out.h5", "farm=1")
    going = parts.start_words(*run, WAIT="2", ROUND="run")
    parts.wait_until_begun("run")
    assert "another run (pid" in parts.run("2/2", check=4)
    parts.let_go()
    ended(going)
    assert check_output(parts.folder / "out.h5") == parts.tasks


def test_merge_status_and_clean_beside_live_parts(parts: Parts) -> None:
    """What is finished can be merged while parts are at work; what they write to stays."""
    parts.run("1/1", "--only", "farm=0..5")
    part = parts.start("1/1", WAIT="23")
    parts.wait_until_begun("1/1", least=parts.tasks)
    until(lambda: len(finished_tasks(run_folder(parts.folder))) >= parts.tasks - 1)
    status = json.loads(parts.run_words("status", "out.h5", "--json"))
    assert [one["part"] for one in status["parts"]] == ["1/1"]
    assert "1 part at work: part 1/1 (pid" in parts.run_words("status", "out.h5")
    parts.run_words("merge", "out.h5")
    assert check_output(parts.folder / "out.h5") == parts.tasks - 1
    parts.run_words("clean", "out.h5", "--apply", check=None)
    assert any(
        f"_{pid}_" in path.name
        for pid in worker_pids(parts.folder)
        for path in record_files(parts.folder)
        if is_running(pid)
    )
    parts.let_go()
    ended(part)
    parts.check_all()
    assert sorted(parts.begun()) == list(range(parts.tasks))


def test_part_after_a_merge_runs_nothing(parts: Parts) -> None:
    """What is in the output is done, for parts too."""
    parts.run("1/2")
    parts.check_all()
    shutil.rmtree(run_folder(parts.folder) / "records")
    (run_folder(parts.folder) / "records").mkdir()
    assert "24 of 24 done" in parts.run("2/2", ROUND="again")
    assert parts.begun("again") == []


def test_recorder_beside_a_part(parts: Parts) -> None:
    """What another program records of tasks is done when the part looks next."""
    part = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    code = (
        "import h5sweep, numpy as np\n"
        "with h5sweep.Recorder('out.h5') as recorder:\n"
        "    recorder.write({'farm': 11, 'kind': 'b'}, **{'layout': np.full((4, 2), 23 / 7),\n"
        "                    'aep': 34.5, 'name': 'b11'})\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=parts.folder, check=True)
    parts.run("2/2")
    parts.let_go()
    ended(part)
    assert 23 not in parts.begun("2/2")
    parts.check_all()


# A dead run


def test_lock_of_a_dead_run_does_not_stop_parts(parts: Parts) -> None:
    """Parts that begin where a run was killed take over at once."""
    run = parts.start_words("run", "study.py", "-o", "out.h5", "-j", "1", WAIT="3", ROUND="run")
    parts.wait_until_begun("run", least=4)
    run.kill()
    run.wait()
    for process in [parts.start("1/2"), parts.start("2/2")]:
        ended(process)
    assert result_counts(parts) == {1}
    parts.check_all()


# Code


def test_part_of_other_code_is_refused_while_another_works(parts: Parts) -> None:
    """It says what differs, and how to run the code of that part; the first goes on."""
    part = parts.start("1/2", WAIT="all")
    parts.wait_until_begun("1/2")
    study = parts.folder / "study.py"
    study.write_text(study.read_text().replace("number * 1.5", "number * 9.5"))
    said = parts.run("2/2", check=2)
    assert "is at work with other code: study.py has changed" in said
    assert "add --code 1" in said
    parts.run("2/2", "--code", "1", ROUND="same code")
    parts.let_go()
    ended(part)
    parts.check_all()  # with 1.5 in all rows


def test_code_where_the_folder_is_not_shared(parts: Parts) -> None:
    """A part that was submitted elsewhere, for a folder that is not here, says what to look at."""
    said = parts.run("2/2", "--code", "1", check=2)
    assert "this machine shares its folder, or leave out --code 1" in said
    assert not run_folder(parts.folder).exists()


def test_changed_study_is_refused_where_results_are(parts: Parts) -> None:
    """As a run does, with the commands of a part as the next steps."""
    parts.run("1/2", "--only", "farm=0")
    study = parts.folder / "study.py"
    study.write_text(study.read_text().replace("number * 1.5", "number * 9.5"))
    said = parts.run("2/2", check=2)
    assert "h5sweep run study.py -o out.h5 --part 2/2 --changed keep" in said
    assert "code of then: add --code 1" in said


def test_the_same_code_elsewhere_is_not_advised(parts: Parts) -> None:
    """If the environment differs and no source does, --code would be refused again."""
    study = parts.folder / "study.py"
    uses_site = "number * (1.5 if os.environ['SITE'] else 0)"
    study.write_text(study.read_text().replace("number * 1.5", uses_site))
    parts.run("1/2", "--only", "farm=0", SITE="a")
    for more in ([], ["--code", "1"]):
        said = parts.run("2/2", *more, check=2, SITE="b")
        assert 'the environment variable SITE was "a" and is "b"' in said
        assert "add --code" not in said
    parts.run("2/2", SITE="a")
    parts.check_all()


def test_code_of_a_study_that_was_renamed(parts: Parts) -> None:
    """It is run by the name that it had: by another it would be refused again."""
    parts.run("1/2", "--only", "farm=0")
    (parts.folder / "study.py").rename(parts.folder / "renamed.py")
    part = ("-o", "out.h5", "--part", "2/2", "-j", "1")
    said = parts.run_words("run", "renamed.py", *part, check=2)
    assert "code of then: name study.py as the study, and add --code 1" in said
    parts.run_words("run", "study.py", *part, "--code", "1")
    parts.check_all()


def test_parts_of_two_codes_at_once(parts: Parts, tmp_path: Path) -> None:
    """Where two codes begin in the same moment, one is refused and one runs all."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "study.py").write_text(WAITING.replace("number * 1.5", "number * 9.5"))
    first = parts.start("1/2", SPIN="20")
    second = parts.start_words(
        *("run", "study.py", "-o", "../out.h5", "--part", "2/2", "-j", "1"),
        cwd=other,
        ROUND="2/2",
        SPIN="20",
    )
    said = ended(first, None), ended(second, None)
    assert sorted([first.returncode, second.returncode]) == [0, 2], said
    assert "24 of 24 done" in "".join(said)
    assert sorted(parts.begun()) == list(range(parts.tasks))


def test_part_of_another_study_is_refused(parts: Parts) -> None:
    """A folder has one sweep."""
    parts.run("1/2", "--only", "farm=0")
    study = parts.folder / "study.py"
    study.write_text(study.read_text().replace("def optimise", "def other"))
    said = parts.run("2/2", check=2)
    assert "belongs to the sweep 'optimise', not to 'other'" in said


def test_plan_that_grows_beside_a_part(parts: Parts) -> None:
    """A part that declares more tasks adds them; one at work with fewer is not disturbed."""
    part = parts.start("1/2", WAIT="0")
    parts.wait_until_begun("1/2")
    parts.run("2/2", FARMS="15", ROUND="2/2")
    parts.let_go()
    ended(part)
    parts.run_words("merge", "out.h5")
    assert check_output(parts.folder / "out.h5") == 30
    assert Counter(parts.begun()) == dict.fromkeys(range(30), 1)


def test_new_tasks_of_a_slice_in_hand_are_waited_for(tmp_path: Path) -> None:
    """A slice has several tasks from 1,025 on, and is claimed whole by who knew fewer."""
    parts = Parts(tmp_path, farms=512)
    try:
        earlier = parts.start("1/2", WAIT="0")
        parts.wait_until_begun("1/2")
        later = parts.start("2/2", FARMS="513", WAIT="0")
        assert later.stderr is not None
        until(lambda: "1 new task cannot" in later.stderr.readline(), what="the later part waits")
        parts.let_go()
        ended(earlier)
        assert "1,026 of 1,026 done" in ended(later)
        assert Counter(parts.begun()) == dict.fromkeys(range(1026), 1)
    finally:
        parts.close()


def test_tasks_that_another_was_told_to_leave_alone_are_named(tmp_path: Path) -> None:
    """Who has claimed a slice for some of its tasks keeps the others of it from everybody."""
    parts = Parts(tmp_path, farms=513)
    try:
        choosy = parts.start("1/1", "--only", "farm=0", WAIT="0")
        parts.wait_until_begun("1/1")
        said = parts.run("2/2")
        assert "has claimed tasks, and was told to run others" in said
        parts.let_go()
        ended(choosy)
        assert "1,026 of 1,026 done" in parts.run("2/2")
        assert Counter(parts.begun()) == dict.fromkeys(range(1026), 1)
    finally:
        parts.close()


# Who says which part it is


def test_pbsdsh_says_which_part_it_is(parts: Parts) -> None:
    """PBS tells each process its number, from 0, and a file with a line for each of them."""
    nodes = parts.folder / "nodes"
    nodes.write_text("n1\nn1\nn2\n")
    pbs = {"PBS_NODEFILE": str(nodes)}
    started = [
        parts.start("auto", PBS_VNODENUM=str(rank), ROUND=f"rank {rank}", **pbs)
        for rank in range(3)
    ]
    for rank, part in enumerate(started):
        assert f"part {rank + 1}/3: ended" in ended(part)
    assert result_counts(parts) == {1}
    parts.check_all()


def test_without_a_launcher_no_part_is_guessed(parts: Parts) -> None:
    for launcher in ({}, {"PBS_VNODENUM": "0", "PBS_NODEFILE": str(parts.folder / "none")}):
        said = parts.run("auto", check=2, **launcher)
        assert "no launcher has said which part this is" in said and "--part 3/40" in said
    assert not run_folder(parts.folder).exists()


# Bad input and bad disks


@pytest.mark.parametrize(
    "part",
    ["0/4", "5/4", "4", "1/0", "a/b", "-1/4", "1.5/4", "", "1/" + "9" * 5000, "\u0663/\u0664"],
)
def test_bad_part_is_one_sentence(parts: Parts, part: str) -> None:
    """It says what a part looks like; nothing is made."""
    said = parts.run(part, check=2)
    assert "3/40" in said or "numbered from 1 to N" in said
    assert not run_folder(parts.folder).exists()


def test_number_instead_of_a_part() -> None:
    """In Python it says the same of what is no text."""
    with pytest.raises(UsageError, match="1 is not a part: write 3/40"):
        parse_part(1)


def test_count_of_a_slurm_array_is_not_n(parts: Parts) -> None:
    """With --array=3,7 the count is 2: the message says what is wrong with it."""
    slurm = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MAX": "7"}
    assert "--part $SLURM_ARRAY_TASK_ID/7" in parts.run("7/2", check=2, **slurm)


def test_an_array_numbered_from_0_is_told(parts: Parts) -> None:
    """Its highest number is one less than there are parts; each of its jobs says so."""
    slurm = {
        "SLURM_ARRAY_TASK_COUNT": "4",
        "SLURM_ARRAY_TASK_MIN": "0",
        "SLURM_ARRAY_TASK_MAX": "3",
    }
    for number in ("0", "3"):
        said = parts.run(f"{number}/4", check=2, SLURM_ARRAY_TASK_ID=number, **slurm)
        assert "--part $SLURM_ARRAY_TASK_ID/4, and number the array from 1" in said


def test_a_part_takes_no_option_that_it_would_ignore(parts: Parts) -> None:
    for option in (["--compress"], ["--try", "1"]):
        assert "leave out --compress and --try" in parts.run("1/2", *option, check=2)


def test_folder_removed_under_a_part_is_told(parts: Parts) -> None:
    """It stops with a sentence that names what is gone, and leaves no process behind."""
    part = parts.start("1/2", WAIT="0")
    parts.wait_until_begun("1/2")
    shutil.rmtree(run_folder(parts.folder))
    parts.let_go()
    said = ended(part, 1)
    assert "out.h5.run" in said


# The time that is left


def test_part_begins_nothing_that_would_not_be_done(parts: Parts) -> None:
    """With --until, tasks that would take longer than is left are left to others."""
    said = parts.run("1/1", "--until", "5.1s")
    assert "the time is up: no other task would be done in what is left" in said
    assert parts.begun() == []
    said = parts.run("1/1", "--until", "10s", WAIT="all")
    assert "the time is up: waiting up to" in said
    assert len(parts.begun()) == 1
    assert "0 of 24 done" in said
    assert kinds(parts.folder) == {}  # no task has failed of it
    parts.let_go()
    assert "24 of 24 done" in parts.run("1/1")


# Two hosts


@needs_root
def test_silent_part_of_another_host_is_taken_over(parts: Parts) -> None:
    """A part that was killed on another host is watched, then its tasks are run here."""
    killed = parts.start("1/2", host="node7", WAIT="all")
    parts.wait_until_begun("1/2")
    killed.kill()
    killed.wait()
    parts.run("2/2", host="node8")
    assert sorted(parts.begun("2/2")) == list(range(parts.tasks))
    assert part_files(parts) == []
    parts.check_all()


@needs_root
def test_live_part_of_another_host_keeps_what_it_has(parts: Parts) -> None:
    """Its heart beats, so its tasks are its own: nobody waits for it, nobody takes them."""
    busy = parts.start("1/2", host="node7", WAIT="all")
    parts.wait_until_begun("1/2")
    said = parts.run("2/2", host="node8")
    assert "1 other part is at work" in said
    assert "1 part at work, 1 on other hosts: part 1/2 (pid" in parts.run_words("status", "out.h5")
    parts.let_go()
    ended(busy)
    assert Counter(parts.begun()) == dict.fromkeys(range(parts.tasks), 1)
    parts.check_all()


@needs_root
def test_part_that_was_thought_dead_goes_on(parts: Parts) -> None:
    """A part that stood still is taken over; when it goes on, all is there once in the output."""
    slow = parts.start("1/2", host="node7", WAIT="all")
    parts.wait_until_begun("1/2")
    slow.send_signal(signal.SIGSTOP)
    parts.run("2/2", host="node8")
    assert sorted(parts.begun("2/2")) == list(range(parts.tasks))
    parts.let_go()
    slow.send_signal(signal.SIGCONT)
    ended(slow)
    parts.check_all()


# A network file system


@needs_sshfs
def test_parts_on_two_mounts_of_a_network_file_system(tmp_path: Path) -> None:
    """Two hosts that share a folder over sshfs, as it comes: every task is run once."""
    server = tmp_path / "server"
    server.mkdir()
    parts = Parts(server, farms=40)
    with (
        sshfs_mount(server, tmp_path / "a"),
        sshfs_mount(server, tmp_path / "b"),
    ):
        started = [
            parts.start(f"{number}/4", host=f"node{number}", cwd=tmp_path / "ab"[number % 2])
            for number in (1, 2, 3, 4)
        ]
        for process in started:
            ended(process)
        assert Counter(parts.begun()) == dict.fromkeys(range(parts.tasks), 1)
    parts.check_all()


@needs_sshfs
@pytest.mark.parametrize("way", ["a run", "a part"])
def test_run_beside_a_live_one_on_another_mount_is_refused(tmp_path: Path, way: str) -> None:
    """What one host writes is seen on the other, although both file systems keep what they saw."""
    server = tmp_path / "server"
    server.mkdir()
    # With hearts as they are: if they beat fast, even a file that is kept open shows a change.
    parts = Parts(server, program=[sys.executable, "-m", "h5sweep"])
    run = ["run", "study.py", "-o", "out.h5", "-j", "1"]
    (boot := tmp_path / "boot").write_text("00000000-0000-4000-8000-000000000000\n")
    with sshfs_mount(server, tmp_path / "a"), sshfs_mount(server, tmp_path / "b"):
        there = {"cwd": tmp_path / "b", "host": "node2", "boot": boot}
        # Listed before anybody is there, so that this is what is remembered.
        run_folder(server).mkdir()
        for name in ("parts", "records"):
            (run_folder(server) / name).mkdir()
            assert os.listdir(run_folder(tmp_path / "b") / name) == []
        words = [*run, "--part", "1/2"] if way == "a part" else run
        first = parts.start_words(*words, cwd=tmp_path / "a", host="node1", WAIT="all", ROUND="1")
        parts.wait_until_begun("1")
        said = ended(parts.start_words(*run, ROUND="2", **there), 4)
        assert "is at work on" in said or "is working on" in said
        parts.let_go()
        ended(first)
    assert parts.begun("2") == []


@needs_sshfs
def test_partition_between_two_hosts(tmp_path: Path) -> None:
    """A host that is cut off is taken over; when it is back, all is still right."""
    server = tmp_path / "server"
    server.mkdir()
    parts = Parts(server, farms=400)
    try:
        with sshfs_mount(server, tmp_path / "a") as pid, sshfs_mount(server, tmp_path / "b"):
            cut_off = parts.start("1/2", host="node1", cwd=tmp_path / "a", SPIN="300")
            parts.wait_until_begun("1/2", least=5)
            os.kill(pid, signal.SIGSTOP)
            in_hand = claimed_by(parts, "1of2")
            parts.run_words(
                *("run", "study.py", "-o", "out.h5", "--part", "2/2", "-j", "1"),
                cwd=tmp_path / "b",
                host="node2",
                ROUND="2/2",
            )
            os.kill(pid, signal.SIGCONT)
            ended(cut_off, None)
            assert cut_off.returncode in (0, 1)
        twice = {t for t, times in finished_tasks(run_folder(server)).items() if times > 1}
        assert twice <= in_hand, "more than what was in hand"
        parts.check_all()
    finally:
        parts.close()


def claimed_by(parts: Parts, name: str) -> set[int]:
    """The tasks that a part has claimed; each is a slice of its own here."""
    claims = (run_folder(parts.folder) / "claims").iterdir()
    return {int(path.stem) for path in claims if path.read_text().startswith(f"{name}_")}
