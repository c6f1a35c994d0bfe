"""The Python face: what a sweep and the package offer, and what they refuse."""

from __future__ import annotations

import dataclasses
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import NoneType

import h5py
import numpy as np
import pytest

import h5sweep
from h5sweep.errors import (
    InterruptedRunError,
    StorageError,
    StudyError,
    SweepError,
    UnsupportedValueError,
    UsageError,
)
from h5sweep.state.study import load_study
from places import DOCS, ROOT
from running import count
from terminal import Terminal

Study = Callable[[str], Path]

PLAIN = """
@h5sweep.sweep(seed=range(6), dims={"layout": ("turbine", "xy")}, units={"aep": "GW h"})
def f(seed):
    if seed == 2 and not os.path.exists("mended"):
        raise ValueError("not yet")
    return {"layout": np.full((3, 2), seed), "aep": seed / 2}
"""


@pytest.fixture
def sweep(study: Study, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> h5sweep.Sweep:
    """A sweep of six tasks, one of which fails until it is mended."""
    monkeypatch.chdir(terminal.folder)
    found = load_study(study(PLAIN))
    assert isinstance(found, h5sweep.Sweep)
    return found


def test_run_reports_and_resumes(sweep: h5sweep.Sweep, terminal: Terminal) -> None:
    """run() says what is done, failed and missing; called again it runs the rest."""
    first = sweep.run("out.h5", workers=2)
    assert (first.tasks_total, first.tasks_kept, first.tasks_done) == (6, 0, 5)
    assert (first.tasks_failed, first.is_complete) == (1, False)
    assert [m.key for m in sweep.missing("out.h5")] == [{"seed": 2}]
    assert sweep.status("out.h5").failed == 1
    (terminal.folder / "mended").touch()
    second = sweep.run("out.h5", workers=2)
    assert (second.tasks_kept, second.tasks_done, second.is_complete) == (5, 6, True)
    assert sweep.missing("out.h5") == []


def test_open_gives_a_dataset_with_dims_and_units(sweep: h5sweep.Sweep, terminal: Terminal) -> None:
    """h5sweep.open and sweep.open give the output with the axes and units that were declared."""
    (terminal.folder / "mended").touch()
    sweep.run("out.h5", workers=1)
    with h5sweep.open("out.h5") as dataset:
        assert dataset["layout"].dims == ("task", "turbine", "xy")
        assert dataset["aep"].attrs["units"] == "GW h"
        assert dataset["seed"].values.tolist() == [0, 1, 2, 3, 4, 5]
    with sweep.open(terminal.folder / "out.h5") as dataset:
        assert dataset.sizes["task"] == 6


def test_status_before_any_run_is_all_missing(sweep: h5sweep.Sweep) -> None:
    """Asking before the first run is no error: nothing is done, everything is missing."""
    assert sweep.status("out.h5").done == 0
    assert len(sweep.missing("out.h5")) == 6


@pytest.mark.parametrize(
    "wrong",
    [{"workers": -1}, {"tasks_per_worker": 0}],
)
def test_settings_that_cannot_work_are_refused(
    sweep: h5sweep.Sweep, terminal: Terminal, wrong: dict[str, object]
) -> None:
    """run() with settings that could run nothing raises UsageError before it makes anything."""
    with pytest.raises(UsageError):
        sweep.run("out.h5", **wrong)  # type: ignore[arg-type]
    assert not (terminal.folder / "out.h5.run").exists()


def test_tasks_may_be_a_list_a_csv_or_a_table(terminal: Terminal, study: Study) -> None:
    """A list of dicts, the path of a CSV and a DataFrame declare the same sweep."""
    terminal.write("tasks.csv", "farm,seed\n1,10\n2,20\n")
    study("""
        import pandas
        rows = [{"farm": 1, "seed": 10}, {"farm": 2, "seed": 20}]
        @h5sweep.sweep(tasks=rows)
        def f(farm, seed): return {"x": farm}
        @h5sweep.sweep(tasks="tasks.csv")
        def g(farm, seed): return {"x": farm}
        @h5sweep.sweep(tasks=pandas.DataFrame(rows))
        def h(farm, seed): return {"x": farm}
        print([list(s.plan.keys()) == rows for s in (f, g, h)])
    """)
    done = subprocess.run(
        [sys.executable, "study.py"], cwd=terminal.folder, capture_output=True, text=True
    )
    assert done.stdout == "[True, True, True]\n", done.stderr


def test_import_is_light() -> None:
    """`import h5sweep` costs neither NumPy nor h5py nor click."""
    code = "import h5sweep, sys; print({'numpy', 'h5py', 'click', 'rich'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_recorder_is_found_when_asked_for() -> None:
    """h5sweep.Recorder is there without being imported beforehand; unknown names are not."""
    from h5sweep.runner.recorder import Recorder

    assert h5sweep.Recorder is Recorder
    with pytest.raises(AttributeError, match="nothing_like_it"):
        h5sweep.nothing_like_it  # type: ignore[attr-defined]  # noqa: B018


def test_errors_are_ours_and_the_built_in_ones() -> None:
    """Each error can be caught as SweepError and as what Python calls such a thing."""
    assert issubclass(UsageError, ValueError)
    assert issubclass(UnsupportedValueError, TypeError)
    assert issubclass(StorageError, OSError)
    assert issubclass(StudyError, UsageError)
    for error in vars(h5sweep.errors).values():
        if isinstance(error, type) and issubclass(error, Exception):
            assert issubclass(error, SweepError)
    assert InterruptedRunError("stopped", 15).exit_code == 143


def test_version_is_one() -> None:
    """The version in the package and the one that is installed are the same."""
    from importlib.metadata import version

    assert version("h5sweep") == h5sweep.__version__


def test_interrupted_run_raises_and_keeps(terminal: Terminal, study: Study) -> None:
    """Ctrl-C in a script's run() raises InterruptedRunError after running tasks have finished."""
    study("""
        import threading
        @h5sweep.sweep(seed=range(50))
        def f(seed):
            open("executed", "ab", buffering=0).write(b".")
            time.sleep(0.05)
            return {"x": seed}
        if __name__ == "__main__":
            def interrupt():
                while not os.path.exists("executed"):
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            try:
                f.run("out.h5", workers=1, merge=False)
            except h5sweep.errors.InterruptedRunError as error:
                handler = signal.getsignal(signal.SIGINT)
                print(error.exit_code, handler is signal.default_int_handler)
    """)
    done = subprocess.run(
        [sys.executable, "study.py"], cwd=terminal.folder, capture_output=True, text=True
    )
    assert done.stdout == "130 True\n", done.stderr
    executed = count(terminal.folder, "executed")
    assert 0 < executed < 50
    assert terminal.json("status", "out.h5")["done"] == executed


PLAIN_TYPES = (str, int, float, bytes, Path, Enum, NoneType)


def assert_plain(value: object, where: str) -> None:
    """Whatever a report holds is a value, a tuple or mapping of such, or a frozen dataclass."""
    if isinstance(value, PLAIN_TYPES):
        return
    if dataclasses.is_dataclass(value):
        assert value.__dataclass_params__.frozen, where  # type: ignore[attr-defined]
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif isinstance(value, dict):
        parts = {str(name): one for name, one in value.items()}
    else:
        assert isinstance(value, tuple | list | frozenset), f"{where} is {type(value)}"
        parts = {str(number): one for number, one in enumerate(value)}
    for name, one in parts.items():
        assert_plain(one, f"{where}.{name}")


def test_reports_are_plain_data(sweep: h5sweep.Sweep, terminal: Terminal) -> None:
    """No report holds a file, or objects of ours that may change; each can be sent and shown."""
    (terminal.folder / "night").mkdir()
    for worker in range(2):
        with h5py.File(f"night/worker_{worker}.h5", "w") as file:
            for seed in range(3):
                file[f"s{seed}_{worker}/layout"] = np.full((1000, 2), seed + 1.0)
    os.truncate("night/worker_1.h5", 30_000)
    policy = h5sweep.Policy(h5sweep.OnDamaged.SKIP)
    merged = h5sweep.merge_files("night", "merged.h5", policy=policy)
    cleaned = h5sweep.quarantine_files("merged.h5")
    assert cleaned.moved is not None and cleaned.moved.quarantine is not None
    assert [Path(one.path).name for one in merged.taken] == ["worker_0.h5"]
    reports = [
        sweep.run("out.h5", workers=1),
        h5sweep.read_status("out.h5"),
        h5sweep.read_missing("out.h5"),
        h5sweep.check_files("night", key="s{seed:d}_{worker:d}"),
        merged,
        h5sweep.salvage_files("night", key="s{seed:d}_{worker:d}"),
        cleaned,
        h5sweep.restore_quarantine("merged.h5"),
        h5sweep.read_audit("merged.h5"),
    ]
    for report in reports:
        assert_plain(report, type(report).__name__)
        assert pickle.loads(pickle.dumps(report)) == report
        assert 0 < len(str(report)) < 2000, str(report)


TYPED = """
import h5sweep


@h5sweep.sweep(farm=[1, 2], seed=range(3))
def optimise(farm: int, seed: int) -> dict[str, float]:
    return {"aep": farm + seed / 2}

"""


@pytest.mark.parametrize(
    "is_installed",
    [False, pytest.param(True, marks=pytest.mark.exhaustive)],
    ids=["as our sources", "as a package"],
)
def test_a_sweep_keeps_the_signature_of_its_function(tmp_path: Path, is_installed: bool) -> None:
    """mypy --strict accepts right calls of a declared function and refuses wrong ones."""
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(TYPED + "found: dict[str, float] = optimise(1, seed=3)\n")
    wrong.write_text(TYPED + 'optimise("wrong", 3)\nfound: dict[str, str] = optimise(1, 3)\n')
    if is_installed:
        options, sources = ["--cache-dir", tmp_path / "cache"], ""
    else:  # as `mypy` looks at them in a checkout, which may have been just now
        options = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
        sources = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *options, right, wrong],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": sources},
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.partition(":")[0] for line in errors] == ["wrong.py"] * 2, done.stdout
    assert 'incompatible type "str"; expected "int"' in errors[0]
    assert 'expression has type "dict[str, float]"' in errors[1]


def test_every_public_name_is_documented_and_in_an_example() -> None:
    """docs/python.md names all that may be relied on, and its examples use it."""
    text = (DOCS / "python.md").read_text()
    examples = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    used = set(re.findall(r"\bh5sweep\.(\w+)", examples))
    assert used >= {*h5sweep.__all__} - {"Missing", "Sweep"}
    assert {name for name in h5sweep.__all__ if f"`{name}`" not in text} == set()
