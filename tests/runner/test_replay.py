"""Rows are computed again with the code that made them, and compared bit by bit."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

import h5sweep
from h5sweep.errors import UsageError
from running import until
from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "-j", 2, "--retries", 0)
PLAIN = """
    K = 3
    @h5sweep.sweep(farm_id=range(3), seed=range(4))
    def f(farm_id, seed):
        return {
            "aep": farm_id * K / 7,
            "layout": np.linspace(0, seed, farm_id + 1),
            "name": f"farm {farm_id}",
            "steps": seed if farm_id else seed / 2,
            "gap": float("nan"),
            **({"sometimes": 1.5} if seed else {}),
        }
"""


def run_script(folder: Path, text: str, *words: str) -> None:
    (folder / "script.py").write_text("import sys, h5sweep\n" + textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "script.py", *words], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_row_is_equal_and_nothing_is_written(terminal: Terminal, study: Study) -> None:
    """Types widened by the merge, ragged arrays, texts, NaN and gaps are what they were."""
    study(PLAIN)
    terminal.run(*RUN)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["steps"].dtype.kind == "f"  # of rows that were recorded as integers too
    before = contents(terminal.folder)
    said = terminal.run("replay", "out.h5", "farm_id=2", "seed=0").stdout
    assert said.startswith("farm_id=2, seed=0: equal\n  aep     equal\n  layout  equal\n")
    assert "took" in said and "since then" not in said
    found = terminal.json("verify", "out.h5", "--sample", 100, check=0)
    assert found["counts"]["equal"] == found["rows"] == 12
    assert contents(terminal.folder) == before


def test_a_study_that_was_edited_is_replayed_as_it_was(terminal: Terminal, study: Study) -> None:
    """Its own modules too, and those that are gone; each row with the code that made it."""
    helper = terminal.write("helper.py", "def k():\n    return 1\n")
    body = """
        import helper
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            return {{"x": helper.k() * seed}}
    """
    study(body.format(seeds=2))
    terminal.run(*RUN)
    helper.write_text("def k():\n    return 5\n")
    study(body.format(seeds=4))
    terminal.run(*RUN)
    helper.unlink()
    study("raise SystemExit('no study any more')\n")
    assert "code 1;" in terminal.run("replay", "out.h5", "seed=1").stdout
    assert "code 2;" in terminal.run("replay", "out.h5", "seed=3").stdout
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 4


def test_an_output_alone_is_enough(terminal: Terminal, study: Study, tmp_path: Path) -> None:
    study(PLAIN)
    terminal.run(*RUN)
    other = tmp_path / "elsewhere"
    other.mkdir()
    (terminal.folder / "out.h5").rename(other / "copy.h5")
    (terminal.folder / "study.py").unlink()
    Terminal(other).run("replay", "copy.h5", "farm_id=1", "seed=3")
    Terminal(other).run("verify", "copy.h5", "--sample", 3)


def test_a_module_of_a_package_is_found_again(terminal: Terminal) -> None:
    package = terminal.folder / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("K = 2\n")
    (package / "study.py").write_text(
        "import h5sweep\nfrom . import model\n"
        "@h5sweep.sweep(seed=range(3))\n"
        "def f(seed):\n    return {'x': seed * model.K}\n"
    )
    run_script(terminal.folder, 'from pkg.study import f\nf.run("out.h5", workers=1)\n')
    (package / "model.py").write_text("K = 3\n")
    terminal.run("replay", "out.h5", "seed=2")


@pytest.mark.parametrize(
    ("change", "result", "code"),
    [("1 + 1e-12", "equal within 1e-9", 0), ("1 + 1e-6", "different", 1)],
)
def test_how_far_a_result_is_off_is_told(
    terminal: Terminal, study: Study, change: str, result: str, code: int
) -> None:
    """A last digit that differs is not taken for another result, but is not called equal."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": np.array([1.0, 2.0]) * eval(open("factor").read())}
    """)
    terminal.write("factor", "1.0")
    terminal.run(*RUN)
    terminal.write("factor", change)
    said = terminal.run("replay", "out.h5", "seed=1", check=code).stdout
    assert said.startswith(f"seed=1: {result}\n  x  {result} (largest difference ")
    found = terminal.json("verify", "out.h5", check=code)
    assert found["counts"][result] == 3


def test_a_random_task_is_different(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"same": seed, "x": int.from_bytes(os.urandom(6), "big")}
    """)
    terminal.run(*RUN)
    said = terminal.run("replay", "out.h5", "seed=1", check=1).stdout
    assert "same  equal\n" in said and "x     different" in said
    assert "nothing that was recorded has changed since then" in said
    done = terminal.run("verify", "out.h5", "--seed", 5, "--sample", 2, check=1)
    assert "2 rows of 3 run again (--seed 5 takes the same)" in done.stdout
    assert ": x different (largest difference" in done.stdout
    assert "next: h5sweep replay out.h5 seed=" in done.stderr


def test_shapes_and_names_that_differ_are_told(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            is_first = not os.path.exists("again")
            return {"x": np.ones(2 if is_first else 3), ("old" if is_first else "new"): 1}
    """)
    terminal.run(*RUN)
    terminal.write("again", "")
    said = terminal.run("replay", "out.h5", "seed=1", check=1).stdout
    assert "x    different (the shape was [2] then, [3] now)" in said
    assert "old  different (is not returned now)" in said
    assert "new  different (was not returned then)" in said


INPUT = """
    @h5sweep.sweep(seed=range(2), inputs=["wind.csv"])
    def f(seed):
        return {"x": float(open("wind.csv").read()) * float(os.environ.get("SCALE", "1"))}
"""


def test_an_input_that_changed_is_named(terminal: Terminal, study: Study) -> None:
    """So is a variable of the environment."""
    study(INPUT)
    terminal.write("wind.csv", "8.5")
    terminal.run(*RUN, SCALE="2")
    terminal.write("wind.csv", "9.5")
    said = terminal.run("replay", "out.h5", "seed=1", check=1, SCALE="3").stdout
    assert "the environment variable SCALE was " in said
    assert "the input wind.csv has changed" in said
    (found,) = terminal.json("verify", "out.h5", "--sample", 1, check=1)["replays"]
    assert "the input wind.csv has changed" in found["changes"]
    (terminal.folder / "wind.csv").unlink()
    said = terminal.run("replay", "out.h5", "seed=1", check=1, SCALE="2").stdout
    assert "failed: FileNotFoundError" in said and "the input wind.csv is gone" in said


def test_another_host_is_named(terminal: Terminal, study: Study) -> None:
    study(PLAIN)
    terminal.run(*RUN)
    with h5py.File(terminal.folder / "out.h5", "r+") as file:
        about = json.loads(file["provenance/code/1"][()])
        del file["provenance/code/1"]
        file["provenance/code/1"] = json.dumps({**about, "host": "far-away"})
    said = terminal.run("replay", "out.h5", "farm_id=1", "seed=1").stdout
    assert "since then: the host was far-away and is " in said


def test_a_package_of_another_version_is_named(terminal: Terminal, study: Study) -> None:
    folder = terminal.folder / "site-packages"
    folder.mkdir()
    package = folder / "turbine.py"
    package.write_text('__version__ = "1.0"\nPOWER = 5\n')
    study("""
        import turbine
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": turbine.POWER * seed}
    """)
    path = str(folder)
    terminal.run(*RUN, PYTHONPATH=path)
    terminal.run("replay", "out.h5", "seed=1", PYTHONPATH=path)
    package.write_text('__version__ = "1.1"\nPOWER = 6  # of another size, for the bytecode\n')
    said = terminal.run("replay", "out.h5", "seed=1", check=1, PYTHONPATH=path).stdout
    assert 'since then: turbine was "1.0" and is "1.1"' in said
    said = terminal.run("verify", "out.h5", "--seed", 1, check=1, PYTHONPATH=path).stdout
    assert (
        'seed=1: x different (largest difference 0.17); since then: turbine was "1.0" and is "1.1"'
        in said
    )
    package.unlink()
    done = terminal.run("replay", "out.h5", "seed=1", check=2, PYTHONPATH=path)
    assert "seed=1 cannot be replayed" in done.stderr
    assert "No module named 'turbine'" in done.stderr
    found = terminal.json("verify", "out.h5", check=1)
    assert found["counts"]["cannot be replayed"] == 2


FAILING = """
    @h5sweep.sweep(seed=range(4))
    def f(seed):
        print("begun", seed)
        if seed == 1 and not os.path.exists("fixed"):
            raise ValueError(f"no seed {seed}")
        if seed == 2 or os.path.exists("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if os.path.exists("hang"):
            signal.pause()
        return {"x": seed}
"""


def test_a_failed_task_shows_its_traceback(terminal: Terminal, study: Study) -> None:
    study(FAILING)
    terminal.run(*RUN, check=1)
    said = terminal.run("replay", "out.h5", "seed=1", check=1).stdout
    assert said.startswith("seed=1: failed: ValueError at study.py:")
    assert 'raise ValueError(f"no seed {seed}")\nValueError: no seed 1\n' in said
    assert "what it printed:\n--- seed=1\nbegun 1\n" in said
    terminal.write("fixed", "")
    done = terminal.run("replay", "out.h5", "seed=1")
    assert done.stdout.startswith("seed=1: ended well\n")
    assert "no result to compare with" in done.stderr


def test_a_crash_is_reported(terminal: Terminal, study: Study) -> None:
    """Of a task that crashed then, and of one that crashes only now."""
    study(FAILING)
    terminal.run(*RUN, check=1)
    said = terminal.run("replay", "out.h5", "seed=2", check=1).stdout
    assert said.startswith("seed=2: failed: SIGSEGV at study.py:")
    assert "h5sweep-replay-" not in said
    terminal.write("crash", "")
    found = terminal.json("replay", "out.h5", "seed=3", check=1)
    assert found["result"] == "failed" and "SIGSEGV" in found["reason"]
    assert terminal.json("verify", "out.h5", check=1)["counts"]["failed"] == 2


def test_a_crash_is_replayed_with_its_own_code(terminal: Terminal, study: Study) -> None:
    """No worker lived to record it, and other code was run since: its own is replayed."""
    body = """
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            if seed == 1:
                {end}
            return {{"x": seed}}
    """
    study(body.format(seeds=2, end="os.kill(os.getpid(), signal.SIGKILL)"))
    terminal.run(*RUN, check=1)
    study(body.format(seeds=3, end="seed = 5"))
    terminal.run(*RUN, "--failed", "keep", check=1)
    assert "failed: SIGKILL" in terminal.run("replay", "out.h5", "seed=1", check=1).stdout


def test_a_task_that_hangs_is_ended(terminal: Terminal, study: Study) -> None:
    study(FAILING)
    terminal.run(*RUN, check=1)
    terminal.write("hang", "")
    said = terminal.run("replay", "out.h5", "seed=3", "--timeout", "1s", check=1).stdout
    assert "seed=3: failed: time limit" in said and "the limit is 1 s" in said


SCRIPT = """
    SCALE = 1
    CONFIG = {"loss": [0, 1]}
    @h5sweep.sweep(seed=range(3))
    def f(seed):
        return {"x": seed * SCALE - CONFIG["loss"][1]}
    if __name__ == "__main__":
        SCALE = int(sys.argv[1])
        CONFIG["loss"][1] = 4
        f.run("out.h5", workers=1)
"""


def test_globals_of_a_script_are_what_they_were(terminal: Terminal) -> None:
    """Those that were set while it ran as a script are known from the record alone."""
    run_script(terminal.folder, SCRIPT, "7")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [-4, 3, 10]
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            """
            import numpy as np
            TABLE = np.zeros(3)
            @h5sweep.sweep(seed=range(3))
            def f(seed):
                return {"x": TABLE[seed]}
            if __name__ == "__main__":
                TABLE = np.ones(3)
                f.run("out.h5", workers=1)
            """,
            "TABLE was float64 (3,), sha256 ",
        ),
        (
            """
            import numpy as np
            @h5sweep.sweep(seed=range(3), constants={"table": np.full(3, float(len(sys.argv)))})
            def f(seed, table):
                return {"x": table[seed]}
            if __name__ == "__main__":
                f.constants["table"] = np.ones(3) / 3
                f.run("out.h5", workers=1)
            """,
            "the constant table was float64 (3,), sha256 ",
        ),
        (
            """
            def main():
                by = 3
                @h5sweep.sweep(seed=range(3))
                def f(seed):
                    return {"x": seed * by}
                f.run("out.h5", workers=1)
            if __name__ == "__main__":
                main()
            """,
            "script.py has no sweep 'f'",
        ),
    ],
)
def test_what_was_recorded_in_words_only_is_named(
    terminal: Terminal, text: str, reason: str
) -> None:
    run_script(terminal.folder, text)
    done = terminal.run("replay", "out.h5", "seed=1", check=2)
    assert "seed=1 cannot be replayed: " in done.stderr and reason in done.stderr
    found = terminal.json("verify", "out.h5", check=1)
    assert found["counts"]["cannot be replayed"] == 3


OBJECTS = """
    import datetime, enum
    class Kind(enum.Enum):
        FIXED = 1
        FLOATING = 2
    @h5sweep.sweep(day=[datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)], kind=list(Kind))
    def f(day, kind):
        return {"x": day.day * kind.value}
    if __name__ == "__main__":
        f.run("out.h5", workers=1)
"""


@pytest.mark.parametrize("how", ["command", "script"])
def test_keys_that_are_objects_are_given_as_objects(
    terminal: Terminal, study: Study, how: str
) -> None:
    if how == "command":
        study(OBJECTS)
        terminal.run(*RUN)
    else:
        run_script(terminal.folder, OBJECTS)
    terminal.run("replay", "out.h5", "day=2026-01-02", "kind=FLOATING")
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 4


def test_objects_of_a_script_are_made_again_by_its_sources(terminal: Terminal) -> None:
    text = """
        class Site:
            def __init__(self, scale):
                self.scale = scale
        site = Site(5)
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed * site.scale}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
    """
    run_script(terminal.folder, text)
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 3


def test_a_large_constant_comes_from_the_sources(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(seed=range(3), constants={"site": np.arange(10_000.0), "by": (2, 3)})
        def f(seed, site, by):
            return {"x": site[seed] * by[1]}
    """)
    terminal.run(*RUN)
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 3


CONSTANTS = """
    import dataclasses, enum, sys, h5sweep
    import numpy as np
    class Kind(enum.Enum):
        A = 2
    @dataclasses.dataclass
    class Site:
        loss: float = 0.5
    def double(x):
        return 2 * x
    GIVEN = {
        "kind": Kind.A,
        "site": Site(),
        "double": double,
        "short": lambda x: x + 1,
        "bits": np.random.PCG64(5),
        "kinds": set(Kind),
    }
    @h5sweep.sweep(seed=range(3), constants=GIVEN)
    def f(seed, kind, site, double, short, bits, kinds):
        return {"x": double(short(seed)) * site.loss * kind.value + bits.state["state"]["inc"] % 7}
    if __name__ == "__main__":
        f.run("out.h5", workers=1)
"""


@pytest.mark.parametrize("how", ["command", "script"])
def test_constants_of_any_kind_come_from_the_sources(
    terminal: Terminal, study: Study, how: str
) -> None:
    text = CONSTANTS
    if how == "command":
        study(text.replace('"short": lambda x: x + 1', '"short": abs'))
        terminal.run(*RUN)
    else:
        run_script(terminal.folder, text)
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 3


def test_values_that_a_script_has_changed_are_what_they_were(terminal: Terminal) -> None:
    """Of every kind that is recorded as it is; also of classes and functions of modules."""
    terminal.write(
        "model.py",
        "class A:\n    class B:\n        X = 1\n"
        "def helper(x, k=1, *, by=1):\n    return x * k * by * helper.factor\n"
        "helper.factor = 1\n",
    )
    text = """
        import enum, model
        import numpy as np
        Kind = enum.Enum("Kind", "A B", module=__name__)
        PAIR, GAP, KIND, TABLE, NUMBER, NAMES = (1, 2), 0.0, Kind.A, {}, np.float32(1), {1}
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            changed = PAIR[1] + TABLE[(1, 2)] + NUMBER + len(NAMES) + (KIND is Kind.B)
            return {"x": changed + model.helper(seed) + model.A.B.X, "gap": GAP}
        if __name__ == "__main__":
            PAIR, GAP, KIND, TABLE = (1, 9), float("nan"), Kind.B, {(1, 2): 5, "b": None}
            NUMBER, NAMES = np.float32(0.1), frozenset("abc")
            model.helper.__defaults__, model.helper.factor, model.A.B.X = (3,), 7, 11
            model.helper.__kwdefaults__["by"] = 2
            f.run("out.h5", workers=1)
    """
    run_script(terminal.folder, text)
    found = terminal.json("verify", "out.h5", check=0)
    assert found["counts"]["equal"] == 3, found


def test_a_function_without_a_file_cannot_be_replayed(terminal: Terminal) -> None:
    text = (
        "import h5sweep\n"
        "@h5sweep.sweep(seed=range(2))\n"
        "def f(seed):\n    return {'x': seed}\n"
        "f.run('out.h5', workers=1)\n"
    )
    subprocess.run([sys.executable, "-c", text], cwd=terminal.folder, check=True)
    said = terminal.run("replay", "out.h5", "seed=1", check=2).stderr
    assert "seed=1 cannot be replayed: its function was in no file" in said


def test_a_row_of_unknown_code_cannot_be_replayed(tmp_path: Path) -> None:
    output = tmp_path / "out.h5"
    with h5sweep.Recorder(output) as recorder:
        recorder.write({"seed": 1}, x=2.0)
    Terminal(tmp_path).run("merge", "out.h5")
    with pytest.raises(UsageError, match="seed=1 cannot be replayed: its code is not known"):
        h5sweep.replay_task(output, {"seed": 1})
    assert not h5sweep.verify_output(output).is_equal


def test_a_row_that_was_edited_is_told(terminal: Terminal, study: Study) -> None:
    study(PLAIN)
    terminal.run(*RUN)
    with h5py.File(terminal.folder / "out.h5", "r+") as file:
        file["aep"][0] = 99.0
    said = terminal.run("replay", "out.h5", "farm_id=0", "seed=0", check=1).stdout
    assert "since then: the row itself has changed: its checksum is wrong" in said
    with h5py.File(terminal.folder / "out.h5", "r+") as file:
        del file["provenance/code/1"]
        file["provenance/code/1"] = "{}"
    said = terminal.run("replay", "out.h5", "farm_id=1", "seed=0", check=2).stderr
    assert "does not describe its code 1, or that is damaged" in said
    with h5py.File(terminal.folder / "out.h5", "r+") as file:
        del file["duration_s"]
    assert "cannot be read as an output" in terminal.run("verify", "out.h5", check=3).stderr


def test_a_study_that_ends_its_process_says_what_it_printed(
    terminal: Terminal, study: Study
) -> None:
    study("""
        if os.path.exists("again"):
            print("no licence", flush=True)
            os._exit(3)
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": seed}
    """)
    terminal.run(*RUN)
    terminal.write("again", "")
    said = terminal.run("replay", "out.h5", "seed=1", check=2).stderr
    assert "seed=1 cannot be replayed" in said and "exit code 3" in said
    assert "no licence" in said and "h5sweep-replay-" not in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(terminal: Terminal, study: Study, number: int) -> None:
    """Neither a worker nor a temporary folder."""
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            if os.path.exists("hang"):
                open("pid", "w").write(f"{os.getpid()} ")
                signal.pause()
            return {"x": seed}
    """)
    terminal.run(*RUN)
    terminal.write("hang", "")
    place = terminal.folder / "tmp"
    place.mkdir()
    process = terminal.start("verify", "out.h5", "--sample", 1, TMPDIR=str(place))
    pid_file = terminal.folder / "pid"
    until(lambda: pid_file.exists() and pid_file.read_text().endswith(" "))
    assert len(list(place.iterdir())) == 1
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert not list(place.iterdir())
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("farm_id=9", "seed=1"), "farm_id has no value 9: it has 0, 1, 2"),
        (("farm=1",), "there is no parameter 'farm': choose by farm_id, seed"),
        (("farm_id=1",), "4 tasks have these values: name all of one, such as farm_id=1 seed=0"),
        (("seven",), "'seven' selects no tasks"),
    ],
)
def test_a_key_that_is_not_there_is_a_usage_error(
    terminal: Terminal, study: Study, words: tuple[str, ...], said: str
) -> None:
    study(PLAIN)
    terminal.run(*RUN)
    assert said in terminal.run("replay", "out.h5", *words, check=2).stderr


def test_near_keys_are_named(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(tasks=[{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 3, "b": 5}])
        def f(a, b):
            return {"x": a * b}
    """)
    terminal.run(*RUN)
    said = terminal.run("replay", "out.h5", "a=1", "b=5", check=2).stderr
    assert "no task has all of these values: near are a=1, b=2 or a=3, b=5 or" in said


def test_what_has_no_rows_says_so(terminal: Terminal, study: Study) -> None:
    study(PLAIN)
    assert "there is no run folder" in terminal.run("replay", "no.h5", "seed=1", check=2).stderr
    assert "there is no run folder" in terminal.run("verify", "no.h5", check=2).stderr
    terminal.run(*RUN, "--no-merge")
    said = terminal.run("replay", "out.h5", "farm_id=1", "seed=1", check=2).stderr
    assert "is not in out.h5 yet: h5sweep merge out.h5 writes it" in said
    said = terminal.run("verify", "out.h5", check=2).stderr
    assert "out.h5 is not there yet: h5sweep merge out.h5 writes it" in said
    with h5py.File(terminal.folder / "other.h5", "w") as file:
        file["x"] = [1, 2]
    for words in (("replay", "other.h5", "seed=1"), ("verify", "other.h5")):
        said = terminal.run(*words, check=2).stderr
        assert "other.h5 is not the output of a run" in said
        assert "h5sweep check other.h5" in said


def test_rows_that_were_relabelled_are_replayed(terminal: Terminal, study: Study) -> None:
    """By the names that the function knows, of its parameters and of its results."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed * 1.5}
    """)
    terminal.run(*RUN)
    words = ("--rename", "seed=start", "--rename", "x=energy", "--add", "height=110")
    terminal.run("relabel", "out.h5", *words)
    said = terminal.run("replay", "out.h5", "start=2", "height=110").stdout
    assert "start=2, height=110: equal" in said or "height=110, start=2: equal" in said
    assert "energy  equal" in said
    assert terminal.json("verify", "out.h5", check=0)["counts"]["equal"] == 3


def test_the_words_for_one_task_can_be_pasted(terminal: Terminal, study: Study) -> None:
    study("""
        @h5sweep.sweep(pos=[(1, 2), (3, 4)], seed=range(2))
        def f(pos, seed):
            return {"x": pos[0] + seed}
    """)
    terminal.run(*RUN)
    said = terminal.run("replay", "out.h5", "seed=1", check=2).stderr
    words = shlex.split(said.partition("such as ")[2])
    assert words == ["pos=[1, 2]", "seed=1"]
    terminal.run("replay", "out.h5", *words)


def test_no_replay_is_advised_where_none_can_be(terminal: Terminal) -> None:
    with h5sweep.Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 1}, x=1.0)
    terminal.run("merge", "out.h5")
    done = terminal.run("verify", "out.h5", check=1)
    assert "the column code is 0" in done.stdout
    assert "next:" not in done.stderr


@pytest.mark.parametrize("how", ["outputs", "run folders", "key"])
def test_rows_of_two_outputs_keep_their_code(terminal: Terminal, study: Study, how: str) -> None:
    """Also if one was relabelled, and if both have their first code under the same number."""
    body = """
        K = {k}
        @h5sweep.sweep({name}=range({first}, {first} + 2))
        def f({name}):
            return {{"x": K * {name}}}
    """
    for place, values in (("a", {"k": 2, "first": 0}), ("b", {"k": 5, "first": 2})):
        study(body.format(name="seed", **values))
        terminal.run("run", "study.py", "-o", f"{place}.h5", "-j", 1)
    study(body.format(name="number", k=7, first=4))
    terminal.run("run", "study.py", "-o", "c.h5", "-j", 1)
    terminal.run("relabel", "c.h5", "--rename", "number=seed")
    files = [f"{name}.h5.run" if how == "run folders" else f"{name}.h5" for name in "abc"]
    key = ["--key", "seed"] if how == "key" else []
    terminal.run("merge", *files, "-o", "all.h5", *key)
    with h5py.File(terminal.folder / "all.h5") as file:
        assert file["code"][:].tolist() == [1, 1, 2, 2, 3, 3]
        assert file["x"][:].tolist() == [0, 2, 10, 15, 28, 35]
    assert terminal.json("verify", "all.h5", check=0)["counts"]["equal"] == 6
