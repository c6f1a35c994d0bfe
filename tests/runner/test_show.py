"""Everything that is known about one task, from the run folder or from the output alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import h5sweep
from foreign_samples import write_groups
from running import until
from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "--backoff", "0s")
MIXED = """
@h5sweep.sweep(farm_id=range(2), seed=range(4), units={"aep": "GW h"})
def f(farm_id, seed):
    if seed < 2:
        os.system(f"printf 'C of {farm_id} {seed}'")
    if seed != 1:
        print("Python of", farm_id, seed)
        os.system(f"echo more of {farm_id} {seed}")
    if (farm_id, seed) == (1, 2):
        raise ValueError("no layout fits")
    if (farm_id, seed) == (1, 3):
        time.sleep(1000)
    return {"aep": farm_id + seed / 2, "layout": np.zeros((2, 3)), "gap": float("nan")}
"""


@pytest.fixture
def mixed(terminal: Terminal, study: Study) -> Terminal:
    """A folder after a run of eight tasks, of which one raised and one hung twice."""
    study(MIXED)
    terminal.run(*RUN, "-j", 2, "--timeout", "1s", "--retries", 1, check=1)
    return terminal


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_task_is_shown_with_its_result_and_where_it_is_from(mixed: Terminal) -> None:
    """Values with units, how long it took, host, code, and nothing is written."""
    before = contents(mixed.folder)
    said = mixed.run("show", "out.h5", "farm_id=1", "seed=0").stdout
    assert said.startswith("farm_id=1, seed=0: done\n  aep     1.0 GW h\n  layout  2 × 3 float64\n")
    assert "of code 1; read from out.h5.run/records/worker_" in said
    assert "attempts" not in said
    assert contents(mixed.folder) == before


def test_a_task_has_its_own_lines_only(mixed: Terminal) -> None:
    """What Python and programs printed in each attempt, and nothing of its neighbours."""
    for farm_id in range(2):
        for seed in range(3):
            task = h5sweep.read_task(mixed.folder / "out.h5", {"farm_id": farm_id, "seed": seed})
            whose = f"of {farm_id} {seed}"
            expected = f"C {whose}" if seed < 2 else ""
            expected += f"Python {whose}\nmore {whose}\n" if seed != 1 else ""
            printed = "".join(lines.text for lines in task.log)
            assert printed == expected * len(task.endings)


def test_a_failure_has_its_traceback(mixed: Terminal) -> None:
    """The attempt says what went wrong, and the traceback is below it."""
    said = mixed.run("show", "out.h5", "farm_id=1", "seed=2").stdout
    assert said.startswith("farm_id=1, seed=2: failed (raised: ValueError: no layout fits)\n")
    assert "\n     raised: ValueError at study.py:14 in f: no layout fits\n" in said
    assert "  | ValueError: no layout fits\n" in said


def test_a_task_that_hung_has_its_stack(mixed: Terminal) -> None:
    """Each attempt is listed, and where the last was when it was stopped."""
    found = mixed.json("show", "out.h5", "farm_id=1", "seed=3", check=0)
    assert found["schema"] == "h5sweep.show/1"
    assert [ending["outcome"] for ending in found["attempts"]] == ["timed out"] * 2
    assert "time.sleep(1000)" in found["attempts"][-1]["traceback"]
    assert found["result"] is None


def test_json_is_strict(mixed: Terminal) -> None:
    """NaN, which is no JSON, is null."""
    text = mixed.run("show", "out.h5", "farm_id=0", "seed=0", "--json").stdout
    values = json.loads(text, parse_constant=pytest.fail)["result"]["values"]
    assert values["gap"]["value"] is None
    assert values["layout"] == {
        "dtype": "float64",
        "shape": [2, 3],
        "units": None,
        "value": [[0.0] * 3] * 2,
    }


def test_the_output_alone_says_what_it_knows(mixed: Terminal) -> None:
    """Without the run folder there are results and failures, but no hosts and no logs."""
    shutil.rmtree(mixed.folder / "out.h5.run")
    done = mixed.run("show", "out.h5", "farm_id=1", "seed=1").stdout
    assert done.startswith("farm_id=1, seed=1: done\n  aep     1.5 GW h\n")
    assert "read from out.h5\n" in done
    failed = mixed.run("show", "out.h5", "farm_id=1", "seed=2").stdout
    assert failed.startswith("farm_id=1, seed=2: failed (raised: ValueError at study.py:14 in f")
    assert "  | ValueError: no layout fits\n" in failed


def test_a_running_task_says_so(terminal: Terminal, study: Study) -> None:
    """During a run, a finished task has its result and the running one its process."""
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            print("begun", seed)
            os.close(os.open(f"begun{seed}", os.O_CREAT))
            while seed and not os.path.exists("go"):
                time.sleep(0.01)
            return {"x": seed}
    """)
    run = terminal.start(*RUN, "-j", 1)
    until(lambda: (terminal.folder / "begun1").exists())
    running = terminal.json("show", "out.h5", "seed=1", check=0)
    assert running["state"] == "running" and running["detail"].startswith("pid ")
    assert running["log"][0]["text"] == "begun 1\n"
    assert terminal.json("show", "out.h5", "seed=0", check=0)["result"]["values"]["x"]["value"] == 0
    (terminal.folder / "go").touch()
    run.communicate(timeout=30)
    assert run.returncode == 0


def test_a_task_to_be_run_again_has_its_old_result(mixed: Terminal) -> None:
    """What redo asks for is said, and the result that is kept until then is shown."""
    mixed.run("redo", "out.h5", "farm_id=0", "seed=1")
    said = mixed.run("show", "out.h5", "farm_id=0", "seed=1").stdout
    assert said.startswith(
        "farm_id=0, seed=1: to be run again (its result is kept until then)\n  aep     0.5 GW h\n"
    )


def test_results_of_a_recorder_are_shown_before_a_merge(tmp_path: Path) -> None:
    """Nobody has planned these tasks, and no plan is written for them."""
    with h5sweep.Recorder(tmp_path / "own.h5") as recorder:
        recorder.write({"seed": 7}, aep=12.5)
    task = h5sweep.read_task(tmp_path / "own.h5", {"seed": 7})
    assert task.result is not None and task.result.values["aep"] == 12.5
    assert not (tmp_path / "own.h5.run" / "plan.jsonl").exists()


def test_no_time_is_told_that_nobody_has_taken(terminal: Terminal) -> None:
    """A Recorder has no durations, and files of other programs have neither these nor hosts."""
    with h5sweep.Recorder(terminal.folder / "own.h5") as recorder:
        recorder.write({"seed": 7}, aep=12.5)
    said = terminal.run("show", "own.h5", "seed=7").stdout
    assert "\nended 20" in said and "took" not in said
    write_groups(terminal.folder / "a.h5", range(3))
    pattern = "farm{farm:d}_t{type:d}_s{seed:d}"
    terminal.run("merge", "a.h5", "-o", "out.h5", "--key", pattern)
    said = terminal.run("show", "out.h5", "seed=1").stdout
    assert "\nfrom a file that was written 20" in said
    assert "took" not in said and " on " not in said


def test_a_short_task_is_told_in_words(terminal: Terminal, study: Study) -> None:
    """Not in powers of ten."""
    study("@h5sweep.sweep(seed=[1])\ndef f(seed):\n    return {'x': seed}\n")
    terminal.run(*RUN, "-j", 1)
    said = terminal.run("show", "out.h5", "seed=1").stdout
    assert "\ntook under 1 ms, ended 20" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("seed=1",), "2 tasks have these values: name all of one, such as farm_id=0 seed=1"),
        (("seed=9", "farm_id=0"), "seed has no value 9: it has 0, 1, 2, 3"),
        (("nope=1",), "there is no parameter 'nope': choose by farm_id, seed"),
    ],
)
def test_what_is_no_single_task_is_refused(
    mixed: Terminal, words: tuple[str, ...], said: str
) -> None:
    """The message says what to type."""
    assert said in mixed.run("show", "out.h5", *words, check=2).stderr
