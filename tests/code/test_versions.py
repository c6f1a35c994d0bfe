"""Every row names the code that made it: edits, helpers, globals, constants, inputs, variables."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from running import until
from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "-j", 2)


def codes(folder: Path, output: str = "out.h5") -> list[int]:
    with h5py.File(folder / output) as file:
        assert file["code"].dtype == np.uint8
        return file["code"][:].tolist()


def values(folder: Path, name: str = "x", output: str = "out.h5") -> list[Any]:
    with h5py.File(folder / output) as file:
        return file[name][:].tolist()


def version(folder: Path, number: int, output: str = "out.h5") -> dict[str, Any]:
    with h5py.File(folder / output) as file:
        return json.loads(file[f"provenance/code/{number}"][()])


STUDY = """
    import helper
    @h5sweep.sweep(seed=range({seeds}))
    def f(seed):
        return {{"x": helper.factor() * seed}}
"""


def write_helper(folder: Path, factor: int) -> None:
    (folder / "helper.py").write_text(f"def factor():\n    return {factor}\n")


def test_a_changed_helper_is_told_and_rows_are_marked(terminal: Terminal, study: Study) -> None:
    """Rows of both versions in one column, each with its number, and a diff between them."""
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=3))
    terminal.run(*RUN)
    write_helper(terminal.folder, 10)
    study(STUDY.format(seeds=5))
    said = terminal.run(*RUN).stderr
    assert "helper.py has changed; 3 results of before are kept" in said
    assert "h5sweep run study.py -o out.h5 --changed redo -j 2" in said
    assert values(terminal.folder) == [0, 1, 2, 30, 40]
    assert codes(terminal.folder) == [1, 1, 1, 2, 2]
    assert "-    return 1\n+    return 10" in version(terminal.folder, 2)["diff"]
    sources = version(terminal.folder, 1)["sources"]
    assert {source["name"] for source in sources} == {"study.py", "helper.py"}


def test_comments_layout_and_a_larger_sweep_are_no_change(terminal: Terminal, study: Study) -> None:
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=3))
    terminal.run(*RUN)
    (terminal.folder / "helper.py").write_text("def factor():  # as ever\n\n    return (1)\n")
    guard = "    if __name__ == '__main__':\n        f.run('other.h5')\n"
    study(STUDY.format(seeds=5) + guard)
    said = terminal.run(*RUN).stderr
    assert "changed" not in said
    assert codes(terminal.folder) == [1, 1, 1, 1, 1]


def test_an_earlier_version_gets_its_number_back(terminal: Terminal, study: Study) -> None:
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=1))
    terminal.run(*RUN)
    write_helper(terminal.folder, 2)
    study(STUDY.format(seeds=2))
    terminal.run(*RUN)
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=3))
    terminal.run(*RUN)
    assert codes(terminal.folder) == [1, 2, 1]


def test_a_study_edited_during_a_run_changes_nothing(terminal: Terminal, study: Study) -> None:
    """Also a worker that is started after the edit runs the code of the start."""
    body = """
        import helper
        @h5sweep.sweep(seed=range(6))
        def f(seed):
            if seed == 0:
                open("begun", "w").close()
                while not os.path.exists("edited"):
                    time.sleep(0.01)
            return {"x": VALUE, "y": helper.factor(), "pid": os.getpid()}
    """
    write_helper(terminal.folder, 1)
    study(body.replace("VALUE", "1"))
    process = terminal.start(*RUN[:-1], 1, "--tasks-per-worker", 1)
    until(lambda: (terminal.folder / "begun").exists())
    write_helper(terminal.folder, 2)
    study(body.replace("VALUE", "2"))
    (terminal.folder / "edited").touch()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert values(terminal.folder) == [1] * 6
    assert values(terminal.folder, "y") == [1] * 6
    assert len(set(values(terminal.folder, "pid"))) == 6


def test_a_broken_edit_during_a_run_stops_no_later_worker(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            if seed == 0:
                open("study.py", "w").write("this is no Python")
            return {"x": seed}
    """)
    terminal.run(*RUN[:-1], 1, "--tasks-per-worker", 1)
    assert values(terminal.folder) == [0, 1, 2, 3]


def test_a_traceback_shows_the_lines_that_ran(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(1))
        def f(seed):
            open("study.py", "w").write("\\n" * 99)
            raise ValueError("as it was")
    """)
    terminal.run(*RUN, check=1)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert 'raise ValueError("as it was")' in file["failures/traceback"][0].decode()


@pytest.mark.parametrize("when", ["at import", "in a task"])
def test_a_changed_variable_of_the_environment_is_told(
    terminal: Terminal, study: Study, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        K = int(os.environ["K"])
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            return {{"x": seed * {factor}}}
    """
    factor = "K" if when == "at import" else "int(os.getenv('K'))"
    monkeypatch.setenv("K", "1")
    study(text.format(seeds=2, factor=factor))
    terminal.run(*RUN)
    monkeypatch.setenv("K", "50")
    study(text.format(seeds=4, factor=factor))
    said = terminal.run(*RUN).stderr
    told = {"at import": "K was 1 and is 50", "in a task": 'variable K was "1" and is "50"'}
    assert told[when] in said
    assert values(terminal.folder) == [0, 1, 100, 150]
    assert codes(terminal.folder) == [1, 1, 2, 2]


def test_a_secret_is_not_written_down(
    terminal: Terminal, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LICENCE_TOKEN", "hunter2")
    study("""
        @h5sweep.sweep(seed=range(1))
        def f(seed):
            return {"x": len(os.environ["LICENCE_TOKEN"])}
    """)
    terminal.run(*RUN)
    assert "hunter2" not in json.dumps(version(terminal.folder, 1))
    assert version(terminal.folder, 1)["environment"]["LICENCE_TOKEN"].startswith("sha256")


def test_constants_are_passed_and_recorded(terminal: Terminal, study: Study) -> None:
    study("""
        import numpy as np
        @h5sweep.sweep(seed=range(2), constants={"scale": 7, "site": np.arange(1000.0)})
        def f(seed, scale, site):
            return {"x": seed * scale + site.sum()}
    """)
    terminal.run(*RUN)
    assert values(terminal.folder) == [499500, 499507]
    with h5py.File(terminal.folder / "out.h5") as file:
        assert "scale" not in file and "site" not in file
    constants = version(terminal.folder, 1)["constants"]
    assert constants["scale"] == 7
    assert constants["site"]["type"] == "float64 (1000,)"


CONSTANT = """
    @h5sweep.sweep(seed=range({seeds}), constants={{"scale": {scale}}})
    def f(seed, scale):
        return {{"x": seed * scale}}
"""


def test_another_constant_stops_and_names_both(terminal: Terminal, study: Study) -> None:
    """Nothing is written; what the message says to do works."""
    study(CONSTANT.format(seeds=2, scale=3))
    terminal.run(*RUN)
    study(CONSTANT.format(seeds=4, scale=5))
    said = terminal.run(*RUN, check=2).stderr
    assert "the constant scale was 3 and is 5, since 2 results of out.h5 were made" in said
    assert values(terminal.folder) == [0, 3]
    assert "h5sweep run study.py -o out.h5 --changed keep -j 2" in said  # as it was typed
    terminal.run(*RUN, "--changed", "keep")
    assert values(terminal.folder) == [0, 3, 10, 15]
    assert codes(terminal.folder) == [1, 1, 2, 2]


def test_labels_that_change_alone_are_named(terminal: Terminal, study: Study) -> None:
    study(UNITS.format(unit="km", factor=1))
    terminal.run(*RUN)
    study(UNITS.format(unit="m", factor=1))
    said = terminal.run(*RUN, "--changed", "redo").stderr
    assert 'units: x was "km" and is "m"\n' in said


def test_what_is_told_is_about_the_rows_there(terminal: Terminal, study: Study) -> None:
    """A version that made no row is not what rows were made with, though the last run had it."""
    study(CONSTANT.format(seeds=2, scale=3))
    terminal.run(*RUN)
    study(CONSTANT.format(seeds=2, scale=5))
    terminal.run(*RUN, "--changed", "keep")
    study(CONSTANT.format(seeds=3, scale=7))
    said = terminal.run(*RUN, check=2).stderr
    assert "the constant scale was 3 and is 7, since 2 results of out.h5 were made" in said
    terminal.run(*RUN, "--changed", "keep")
    study(CONSTANT.format(seeds=3, scale=9))
    said = terminal.run(*RUN, check=2).stderr
    assert "scale was 7 and is 9, since 3 results (1 of code 3, 2 of code 1) of out.h5" in said
    said = terminal.run(*RUN, "--changed", "keep").stderr
    assert "9; 3 results of before (1 of code 3, 2 of code 1) are kept, and told apart" in said
    study(CONSTANT.format(seeds=4, scale=9).replace("scale}", "scale + 0}"))
    assert terminal.run(*RUN).stderr  # what was kept once is not asked for again
    assert codes(terminal.folder) == [1, 1, 3, 5]


def test_changed_stop_stops(terminal: Terminal, study: Study) -> None:
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=1))
    terminal.run(*RUN)
    write_helper(terminal.folder, 2)
    study(STUDY.format(seeds=2))
    said = terminal.run(*RUN, "--changed", "stop", check=2).stderr
    assert "helper.py has changed, since 1 result of out.h5" in said
    assert values(terminal.folder) == [0]


def test_a_constant_that_is_also_a_parameter_is_refused(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(2), constants={"seed": 1})
        def f(seed):
            return {"x": seed}
    """)
    assert "seed is a constant and a parameter" in terminal.run(*RUN, check=2).stderr


def test_a_changed_input_is_told_like_code(terminal: Terminal, study: Study) -> None:
    """Inputs are named from the study's folder, wherever the command is started."""
    text = """
        @h5sweep.sweep(seed=range({seeds}), inputs=["site.csv"])
        def f(seed):
            return {{"x": seed}}
    """
    study(text.format(seeds=1))
    assert "inputs: cannot read" in terminal.run(*RUN, check=2).stderr
    (terminal.folder / "site.csv").write_text("1,2\n")
    terminal.run(*RUN)
    (terminal.folder / "site.csv").write_text("1,3\n")
    study(text.format(seeds=2))
    assert "the input site.csv has changed" in terminal.run(*RUN).stderr
    assert codes(terminal.folder) == [1, 2]


def test_numbers_go_on_when_the_run_folder_is_gone(terminal: Terminal, study: Study) -> None:
    """The output alone says which code its rows are of; a new run folder takes that over."""
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=2))
    terminal.run(*RUN)
    shutil.rmtree(terminal.folder / "out.h5.run")
    write_helper(terminal.folder, 2)
    study(STUDY.format(seeds=3))
    said = terminal.run(*RUN).stderr
    assert "helper.py has changed" in said
    assert codes(terminal.folder) == [1, 1, 2]
    assert "return 1" in json.dumps(version(terminal.folder, 1)["sources"])


def test_records_copied_into_another_folder_keep_their_code(
    terminal: Terminal, study: Study
) -> None:
    """Two copies of a run folder number their versions by themselves; ids tell them apart."""
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=1))
    terminal.run(*RUN)
    shutil.copytree(terminal.folder / "out.h5.run", terminal.folder / "copy.h5.run")
    write_helper(terminal.folder, 7)
    study(STUDY.format(seeds=5))
    terminal.run("run", "study.py", "-o", "copy.h5", "--only", "seed=0,3,4")
    write_helper(terminal.folder, 3)
    study(STUDY.format(seeds=5))
    terminal.run(*RUN, "--only", "seed=0..2")
    assert codes(terminal.folder) == codes(terminal.folder, "copy.h5") == [1, 2, 2]
    for path in (terminal.folder / "copy.h5.run" / "records").iterdir():
        shutil.copy(path, terminal.folder / "out.h5.run" / "records")
    terminal.run("merge", "out.h5")
    assert values(terminal.folder) == [0, 3, 6, 21, 28]
    assert codes(terminal.folder) == [1, 2, 2, 0, 0]


def test_results_of_a_recorder_have_no_code(terminal: Terminal) -> None:
    import h5sweep

    with h5sweep.Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 1}, x=1.0)
    terminal.run("merge", "out.h5")
    assert codes(terminal.folder) == [0]


def test_a_module_in_a_package_is_followed(terminal: Terminal) -> None:
    """Relative imports, imports inside functions, and folders without __init__.py."""
    package = terminal.folder / "farm"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("from .wake import loss\n")
    (package / "wake.py").write_text(
        "def loss():\n    from farm.deep.table import T\n    return T\n"
    )
    (package / "deep" / "table.py").write_text("T = 5\n")
    (terminal.folder / "study.py").write_text(
        "import h5sweep\n"
        "from farm.model import loss\n"
        "@h5sweep.sweep(seed=range(1))\n"
        "def f(seed):\n"
        "    return {'x': loss()}\n"
    )
    terminal.run(*RUN)
    names = {source["name"] for source in version(terminal.folder, 1)["sources"]}
    expected = {"study.py", "farm/__init__.py", "farm/model.py", "farm/wake.py"}
    assert names == expected | {"farm/deep/table.py"}
    assert values(terminal.folder) == [5]


def test_a_module_finds_its_data_beside_it(terminal: Terminal, study: Study) -> None:
    (terminal.folder / "data.txt").write_text("42")
    (terminal.folder / "helper.py").write_text(
        "from pathlib import Path\n"
        "def factor():\n"
        "    return int(Path(__file__).with_name('data.txt').read_text())\n"
    )
    study(STUDY.format(seeds=2))
    terminal.run(*RUN)
    assert values(terminal.folder) == [0, 42]


def test_package_versions_are_noted(terminal: Terminal, study: Study) -> None:
    study("""
        import numpy as np
        @h5sweep.sweep(seed=range(1))
        def f(seed):
            return {"x": np.float64(seed)}
    """)
    terminal.run(*RUN)
    about = version(terminal.folder, 1)
    assert about["packages"]["numpy"] == np.__version__
    assert {"time", "host", "command", "digest", "units", "dims"} <= about.keys()


def test_a_damaged_version_is_named(terminal: Terminal, study: Study) -> None:
    study(STUDY.format(seeds=1))
    write_helper(terminal.folder, 1)
    terminal.run(*RUN)
    path = terminal.folder / "out.h5.run" / "code" / "1.json"
    path.write_text(path.read_text()[:50])
    said = terminal.run(*RUN, check=3).stderr
    assert "1.json is damaged" in said and "move it away" in said
    os.rename(path, terminal.folder / "away.json")
    terminal.run(*RUN)
    assert codes(terminal.folder) == [1]


# Run again what other code has made


@pytest.fixture
def two_versions(terminal: Terminal, study: Study) -> None:
    """Rows 0 to 2 are of code 1, rows 3 and 4 of code 2, which the study is at."""
    write_helper(terminal.folder, 1)
    study(STUDY.format(seeds=3))
    terminal.run(*RUN)
    write_helper(terminal.folder, 10)
    study(STUDY.format(seeds=5))
    terminal.run(*RUN)


@pytest.mark.parametrize("is_cleaned", [False, True])
@pytest.mark.usefixtures("two_versions")
def test_changed_redo_runs_rows_of_other_code_again(terminal: Terminal, is_cleaned: bool) -> None:
    """Those and no others, whether their records are still there or only the output is."""
    if is_cleaned:
        name = re.findall(r"--purge (\S+)", terminal.run("clean", "out.h5", "--yes").stderr)[0]
        terminal.run("clean", "out.h5", "--purge", name)
    said = terminal.run(*RUN, "--changed", "redo").stderr
    assert "5 kept, 3 to do, 3 of them again" in said
    assert values(terminal.folder) == [0, 10, 20, 30, 40]
    assert codes(terminal.folder) == [2] * 5
    assert "0 to do" in terminal.run(*RUN, "--changed", "redo").stderr


@pytest.mark.usefixtures("two_versions")
def test_redo_chooses_by_code(terminal: Terminal) -> None:
    said = terminal.run("redo", "out.h5", "--code", 1, "seed=1..4").stderr
    assert "2 tasks are to be run again; 2 have a result now" in said
    terminal.run(*RUN)
    assert values(terminal.folder) == [0, 10, 20, 30, 40]
    assert codes(terminal.folder) == [1, 2, 2, 2, 2]
    said = terminal.run("redo", "out.h5", "--code", 7, check=2).stderr
    assert "none of these rows is of code 7; their code is 1, 2" in said


@pytest.mark.usefixtures("two_versions")
def test_going_back_counts_rows_by_their_code(terminal: Terminal) -> None:
    """After a clean, too, rows that the study has made as it is now are not called others."""
    name = re.findall(r"--purge (\S+)", terminal.run("clean", "out.h5", "--yes").stderr)[0]
    terminal.run("clean", "out.h5", "--purge", name)
    write_helper(terminal.folder, 1)
    assert "helper.py has changed; 2 results of before" in terminal.run(*RUN).stderr


UNITS = """
    @h5sweep.sweep(seed=range(4), units={{"x": "{unit}"}})
    def f(seed):
        if seed == 3 and os.path.exists("broken"):
            raise ValueError("no")
        return {{"x": seed * {factor}.0}}
"""


def test_rows_in_other_units_are_run_again_and_never_mixed(
    terminal: Terminal, study: Study
) -> None:
    """While one is not, the output keeps the old rows under their own label."""

    def unit() -> str:
        with h5py.File(terminal.folder / "out.h5") as file:
            return file["x"].attrs["units"].decode()

    study(UNITS.format(unit="km", factor=1))
    terminal.run(*RUN)
    study(UNITS.format(unit="m", factor=1000))
    said = terminal.run(*RUN, check=2).stderr
    assert "x is 'm' in the study but 'km' in the 4 results" in said
    assert "run them all again: h5sweep run study.py -o out.h5 --changed redo -j 2. " in said
    (terminal.folder / "broken").touch()
    said = terminal.run(*RUN, "--changed", "redo", check=1).stderr
    assert "x is 'm' in the study, and 'km' in 1 row of code 1" in said
    assert (values(terminal.folder), unit()) == ([0, 1, 2, 3], "km")
    assert "'km' in 1 row of code 1" in terminal.run("merge", "out.h5", check=2).stderr
    (terminal.folder / "broken").unlink()
    terminal.run(*RUN)
    assert (values(terminal.folder), unit()) == ([0, 1000, 2000, 3000], "m")


def test_the_environment_of_a_run_is_that_of_its_start(terminal: Terminal) -> None:
    """A program that changes its own environment while it sweeps changes no later worker's."""
    text = """
        import os, threading, time
        import h5sweep

        @h5sweep.sweep(seed=range(4))
        def f(seed):
            open("begun", "w").close()
            while not os.path.exists("changed"):
                time.sleep(0.01)
            return {"x": int(os.environ["K"])}

        def change():
            while not os.path.exists("begun"):
                time.sleep(0.01)
            os.environ["K"] = "2"
            open("changed", "w").close()

        os.environ["K"] = "1"
        threading.Thread(target=change).start()
        f.run("out.h5", workers=1, tasks_per_worker=1)
    """
    path = terminal.write("script.py", text)
    subprocess.run([sys.executable, path], cwd=terminal.folder, check=True, timeout=60)
    assert values(terminal.folder) == [1, 1, 1, 1]


def test_an_edit_within_a_second_is_seen(terminal: Terminal, study: Study) -> None:
    """Bytecode beside a module may be of before an edit that left its size and second alone."""
    study(STUDY.format(seeds=1))
    env = {"PYTHONDONTWRITEBYTECODE": ""}
    write_helper(terminal.folder, 1)
    path = terminal.folder / "helper.py"
    status = path.stat()
    code = "import helper; print(helper.factor())"
    words = [sys.executable, "-c", code]
    subprocess.run(words, cwd=terminal.folder, env={**os.environ, **env}, check=True)
    write_helper(terminal.folder, 2)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    done = subprocess.run(words, cwd=terminal.folder, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"  # Python itself is mistaken
    study(STUDY.format(seeds=3))
    terminal.run(*RUN, **env)
    assert values(terminal.folder) == [0, 2, 4]


def test_a_source_in_another_encoding_works(terminal: Terminal, study: Study) -> None:
    text = "# -*- coding: latin-1 -*-\nNAME = '\xd8sterild'\ndef factor():\n    return len(NAME)\n"
    (terminal.folder / "helper.py").write_bytes(text.encode("latin-1"))
    study(STUDY.format(seeds=2))
    terminal.run(*RUN)
    assert values(terminal.folder) == [0, 8]
    assert version(terminal.folder, 1)["globals"]["helper.NAME"] == "\xd8sterild"


@pytest.mark.parametrize(
    "imported",
    ["importlib.import_module('helper')", "__import__('helper')"],
)
def test_modules_without_an_import_statement_are_followed(
    terminal: Terminal, study: Study, imported: str
) -> None:
    text = """
        import importlib
        helper = {imported}
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            return {{"x": helper.factor() * seed}}
    """
    write_helper(terminal.folder, 1)
    study(text.format(seeds=2, imported=imported))
    terminal.run(*RUN)
    write_helper(terminal.folder, 2)
    study(text.format(seeds=3, imported=imported))
    assert "helper.py has changed" in terminal.run(*RUN).stderr
    assert codes(terminal.folder) == [1, 1, 2]


def test_another_function_of_the_same_name_is_told(terminal: Terminal, study: Study) -> None:
    study("""
        if os.environ.get("FAST"):
            def step(x):
                return x * 2
        else:
            def step(x):
                return x * 3
        @h5sweep.sweep(seed=range(4 if os.environ.get("FAST") else 2))
        def f(seed):
            return {"x": step(seed)}
    """)
    terminal.run(*RUN)
    said = terminal.run(*RUN, FAST="1").stderr
    assert "step is another function of the same name; 2 results of before" in said
    assert (values(terminal.folder), codes(terminal.folder)) == ([0, 3, 4, 6], [1, 1, 2, 2])


def test_an_input_that_changes_during_a_run_is_told(terminal: Terminal, study: Study) -> None:
    (terminal.folder / "site.csv").write_text("1")
    study("""
        @h5sweep.sweep(seed=range(2), inputs=["site.csv"])
        def f(seed):
            open("site.csv", "w").write("2")
            return {"x": seed}
    """)
    assert "the input site.csv was changed or removed during this run" in terminal.run(*RUN).stderr


def test_a_study_that_moves_with_its_modules_is_the_same(
    terminal: Terminal, tmp_path: Path
) -> None:
    """Also if its modules are not in its folder."""
    import h5sweep

    def run_in(folder: Path, seeds: int) -> str:
        (folder / "lib").mkdir(parents=True)
        write_helper(folder / "lib", 3)
        (folder / "study.py").write_text(
            "import h5sweep, helper\n"
            f"@h5sweep.sweep(seed=range({seeds}))\n"
            "def f(seed):\n    return {'x': seed * helper.factor()}\n"
        )
        words = ("run", folder / "study.py", "-o", tmp_path / "out.h5")
        return terminal.run(*words, PYTHONPATH=str(folder / "lib")).stderr

    run_in(tmp_path / "one", 2)
    assert "changed" not in run_in(tmp_path / "two", 3)
    assert codes(tmp_path) == [1, 1, 1]
    assert h5sweep.read_status(tmp_path / "out.h5").is_complete


@pytest.mark.parametrize("what", ["a file", "nothing"])
def test_what_is_read_at_import_and_changes_during_a_run_is_told(
    terminal: Terminal, study: Study, what: str
) -> None:
    """A process id, which differs from worker to worker, is not."""
    (terminal.folder / "table.txt").write_text("1")
    study(f"""
        TABLE, PROCESS = int(open("table.txt").read()), os.getpid()
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            assert PROCESS
            open("table.txt", "w").write("{9 if what == "a file" else 1}")
            return {{"x": TABLE}}
    """)
    said = terminal.run(*RUN[:-1], 1, "--tasks-per-worker", 1).stderr
    assert ("TABLE is not what it was when the run began" in said) == (what == "a file")
    assert values(terminal.folder) == ([1, 9, 9, 9] if what == "a file" else [1, 1, 1, 1])
    said = terminal.run("run", "study.py", "-o", "out.h5", "--changed", "stop", check=None).stderr
    assert ("TABLE was 1 and is 9" in said) == (what == "a file")


CHANGING = {
    "an attribute of a dict": "D(a=1)",
    "an attribute of a function": "lambda: None",
    "a slot of a base class": "Slots()",
    "the order of a dict": "dict(a=1, b=2) if V == 1 else dict(b=2, a=1)",
    "a comparison": "functools.cmp_to_key(lambda a, b: V)",
    "a vectorized function": "np.vectorize(lambda x: x + V)",
    "a partial method": "Partial()",
    "the value of an enum": "Kind.A",
    "a method that was chosen": "Chosen()",
}


@pytest.mark.parametrize("what", CHANGING)
def test_a_value_that_changed_is_told(terminal: Terminal, study: Study, what: str) -> None:
    """Of whatever kind, if nothing else has changed but a variable that is read at import."""
    study(f"""
        import enum, functools
        V = int(os.environ["V"])
        class D(dict):
            pass
        class Base:
            __slots__ = ("k",)
        class Slots(Base):
            __slots__ = ()
        class Partial:
            def by(self, k):
                return k
            step = functools.partialmethod(by, V)
        class Kind(enum.Enum):
            A = V
        class Chosen:
            step = (lambda self: 1) if V == 1 else (lambda self: 2)
        value = {CHANGING[what]}
        if isinstance(value, (D, Slots)) or "function" in {what!r}:
            value.k = V
        @h5sweep.sweep(seed=range(int(os.environ["V"])))
        def f(seed):
            return {{"x": 1 if value is None else 2}}
    """)
    terminal.run(*RUN, V="1")
    said = terminal.run(*RUN, V="2").stderr
    assert "1 result of before" in said
    assert codes(terminal.folder) == [1, 2]


def test_members_of_a_set_in_a_constant_are_no_change(terminal: Terminal, study: Study) -> None:
    """Whatever order their hashes put them in, which differs from process to process."""
    study("""
        import enum
        Kind = enum.Enum("Kind", "A B C D E", module=__name__)
        CFG = {"all": set(Kind), "main": Kind.B}
        @h5sweep.sweep(seed=range(int(os.environ["SEEDS"])), constants={"cfg": dict(CFG)})
        def f(seed, cfg):
            return {"x": len(CFG["all"])}
    """)
    for seeds in "1234":
        terminal.run(*RUN, "--changed", "stop", SEEDS=seeds, PYTHONHASHSEED=seeds)
    assert codes(terminal.folder) == [1, 1, 1, 1]


def test_a_constant_of_a_study_is_in_memory_once(terminal: Terminal, study: Study) -> None:
    """What a worker makes while it imports the study, it lets go of."""
    study("""
        def copied_bytes():
            with open("/proc/self/smaps_rollup") as file:
                lines = dict(line.split(":") for line in file.read().splitlines()[1:])
            return int(lines["Anonymous"].split()[0]) << 10
        @h5sweep.sweep(seed=range(4), constants={"site": np.ones(12_500_000)})
        def f(seed, site):
            return {"x": int(site.sum()), "copied": copied_bytes()}
    """)
    terminal.run(*RUN)
    assert values(terminal.folder) == [12_500_000] * 4
    assert max(values(terminal.folder, "copied")) < 60e6  # the constant has 100 MB


def test_a_clean_checkout_is_not_called_dirty(terminal: Terminal, study: Study) -> None:
    """The output and its run folder are not what a row is computed with."""

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=terminal.folder, check=True, timeout=60)

    def is_dirty() -> bool:
        with h5py.File(terminal.folder / "out.h5") as file:
            number = int(file["code"][:].max())
        return bool(version(terminal.folder, number)["git_dirty"])

    text = """
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": seed * FACTOR}
    """
    study(text.replace("FACTOR", "1"))
    git("init", "-q", ".")
    git("add", "study.py")
    git("commit", "-qm", "study")
    terminal.run(*RUN)
    assert not is_dirty()
    study(text.replace("FACTOR", "2"))
    git("commit", "-qam", "another factor")
    terminal.run(*RUN, "--changed", "redo")
    assert codes(terminal.folder) == [2, 2] and not is_dirty()
    study(text.replace("FACTOR", "3"))
    terminal.run(*RUN, "--changed", "redo")
    assert is_dirty()
    study(text.replace("FACTOR", "4"))
    git("commit", "-qam", "one more")
    (terminal.folder / "helper.py").touch()
    terminal.run(*RUN, "--changed", "redo")
    assert is_dirty()  # a file that nobody has committed
