"""How sweeps are found again by workers: scripts, packages, notebooks, files without main guard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

import h5sweep
from h5sweep.errors import StudyError, UsageError
from h5sweep.state.study import load_study, user_place, user_traceback
from running import count, kinds
from terminal import Terminal

Study = Callable[[str], Path]


def python(terminal: Terminal, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in the terminal's folder, as users run their scripts."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=terminal.folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


UNGUARDED = """
@h5sweep.sweep(seed=range(4))
def f(seed):
    return {"x": seed * 2}

with open("read", "ab", buffering=0) as file:
    file.write(b".")
report = f.run("out.h5", workers=2, merge=False)
print("done", report.tasks_done)
"""


def test_script_without_main_guard_runs_once(terminal: Terminal, study: Study) -> None:
    """`python study.py` with run() at module level: workers are sent the function alone."""
    study(UNGUARDED)
    done = python(terminal, "study.py")
    assert done.stdout == "done 4\n", done.stderr
    assert kinds(terminal.folder).keys() == {0, 1, 2, 3}
    assert count(terminal.folder, "read") == 1


def test_script_without_main_guard_is_a_study_too(terminal: Terminal, study: Study) -> None:
    """`h5sweep run study.py` reads such a file up to its own run()."""
    study(UNGUARDED)
    done = terminal.run("run", "study.py", "-o", "other.h5", "-j", 2, "--no-merge")
    assert "4 of 4 done" in done.stderr
    assert done.stdout == ""
    assert not (terminal.folder / "out.h5.run").exists()


def test_script_with_main_guard_works(terminal: Terminal, study: Study) -> None:
    """The guard that multiprocessing needs does no harm."""
    study("""
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            return {"x": seed}
        if __name__ == "__main__":
            print(f.run("out.h5", workers=2, merge=False).is_complete)
    """)
    assert python(terminal, "study.py").stdout == "True\n"


@pytest.mark.parametrize("guard", ["if __name__ == '__main__':", "if True:"])
def test_module_of_a_package_run_with_m_works(terminal: Terminal, guard: str) -> None:
    """`python -m package.study`, with relative imports: workers import it by its name."""
    package = terminal.folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.py").write_text("factor = 3\n")
    (package / "study.py").write_text(
        "import h5sweep\nfrom .model import factor\n\n"
        "@h5sweep.sweep(seed=range(3))\n"
        "def f(seed):\n    return {'x': factor * seed}\n\n"
        f"{guard}\n    print(f.run('out.h5', workers=2, merge=False).is_complete)\n"
    )
    done = python(terminal, "-m", "package.study")
    assert done.stdout == "True\n", done.stderr


def test_study_imported_from_a_package_works(terminal: Terminal) -> None:
    """A notebook that imports a sweep from its package runs it."""
    package = terminal.folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model.py").write_text("factor = 3\n")
    (package / "study.py").write_text(
        "import h5sweep\nfrom .model import factor\n\n"
        "@h5sweep.sweep(seed=range(3))\n"
        "def f(seed):\n    return {'x': factor * seed}\n"
    )
    code = "from package.study import f; print(f.run('out.h5', workers=2, merge=False).is_complete)"
    done = python(terminal, "-c", code)
    assert done.stdout == "True\n", done.stderr


def test_notebook_like_process_runs_a_study(terminal: Terminal, study: Study) -> None:
    """A process without a file of its own runs, asks and opens through the imported sweep."""
    study('@h5sweep.sweep(seed=range(4))\ndef f(seed): return {"x": seed * 2.0}\n')
    code = (
        "import study\n"
        "report = study.f.run('out.h5', workers=2)\n"
        "print(report.tasks_done, report.is_complete, report.merge.tasks_merged)\n"
        "print(study.f.status('out.h5').done, study.f.missing('out.h5'))\n"
        "print(study.f.open('out.h5')['x'].values.tolist())\n"
        "print(study.f(3))\n"
    )
    done = python(terminal, "-c", code)
    assert done.stdout.splitlines() == [
        "4 True 4",
        "4 []",
        "[0.0, 2.0, 4.0, 6.0]",
        "{'x': 6.0}",
    ], done.stderr


def test_run_from_a_thread_works(terminal: Terminal, study: Study) -> None:
    """A thread that is not the main one can run a sweep; signals stay as they are."""
    study('@h5sweep.sweep(seed=range(3))\ndef f(seed): return {"x": seed}\n')
    code = (
        "import study, threading\n"
        "t = threading.Thread(target=lambda: print(study.f.run('out.h5', workers=2)"
        ".is_complete))\n"
        "t.start(); t.join()\n"
    )
    assert python(terminal, "-c", code).stdout == "True\n"


def test_study_that_imports_a_neighbour_works(terminal: Terminal) -> None:
    """A study may import modules that lie beside it, from wherever it is run."""
    folder = terminal.folder / "project"
    folder.mkdir()
    (folder / "helper.py").write_text("factor = 7\n")
    (folder / "study.py").write_text(
        "import h5sweep\nimport helper\n"
        "@h5sweep.sweep(seed=range(2))\ndef f(seed): return {'x': helper.factor}\n"
    )
    terminal.run("run", "project/study.py", "-o", "out.h5", "--no-merge")


def test_decorated_function_works(terminal: Terminal, study: Study) -> None:
    """A function with another decorator below the sweep is found by the sweep's name."""
    study("""
        import functools
        def twice(function):
            @functools.wraps(function)
            def wrapped(**key):
                return {name: 2 * value for name, value in function(**key).items()}
            return wrapped
        @h5sweep.sweep(seed=range(3))
        @twice
        def f(seed):
            return {"x": seed}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, "--no-merge")


def test_sweep_stays_an_ordinary_function() -> None:
    """Calling a sweep calls its function; its name and docstring are the function's."""

    @h5sweep.sweep(seed=range(3))
    def square(seed: int) -> dict[str, object]:
        """Square a seed."""
        return {"x": seed**2}

    assert square(4) == {"x": 16}
    assert square(seed=5) == {"x": 25}
    assert square.__name__ == "square"
    assert square.__doc__ == "Square a seed."


def test_sweep_without_brackets_is_refused() -> None:
    """@h5sweep.sweep without parameters says how it is meant."""
    with pytest.raises((UsageError, TypeError)):
        h5sweep.sweep(lambda seed: {})  # type: ignore[call-arg,misc,arg-type]
    with pytest.raises(UsageError, match="declared above a function"):
        h5sweep.sweep(seed=range(3))(3)  # type: ignore[arg-type]


def test_reading_a_study_is_over_after_an_error(tmp_path: Path) -> None:
    """A study that failed to import leaves nothing behind that stops the next one."""
    (tmp_path / "broken.py").write_text("raise ValueError\n")
    (tmp_path / "whole.py").write_text(
        "import h5sweep\n@h5sweep.sweep(seed=[1])\ndef f(seed): return {}\n"
    )
    with pytest.raises(StudyError):
        load_study(tmp_path / "broken.py")
    assert load_study(tmp_path / "whole.py").name == "f"


def test_traceback_shows_the_users_frames_only(tmp_path: Path) -> None:
    """Frames of h5sweep and of the import system are left out, in causes too."""
    (tmp_path / "chained.py").write_text(
        "def inner():\n    raise KeyError('deep')\n"
        "try:\n    inner()\nexcept KeyError as error:\n    raise ValueError('top') from error\n"
    )
    with pytest.raises(StudyError) as caught:
        load_study(tmp_path / "chained.py")
    cause = caught.value.__cause__
    assert cause is not None
    text = user_traceback(cause)
    assert "KeyError: 'deep'" in text
    assert "ValueError: top" in text
    assert "h5sweep/study.py" not in text
    assert "importlib" not in text
    assert user_place(cause) == "chained.py:6 in <module>"


def test_an_edit_that_changes_no_size_and_no_second_is_seen(tmp_path: Path) -> None:
    """A study is read from its source: what Python keeps beside it knows only size and time."""
    path = tmp_path / "study.py"
    code = """if True:
        import os, sys
        from pathlib import Path
        from h5sweep.state.study import load_study
        for size in (3, 5):
            path = Path(sys.argv[1])
            path.write_text(f"import h5sweep\\n@h5sweep.sweep(n=range({size}))\\ndef f(n): pass\\n")
            os.utime(path, (1e9, 1e9))
            print(len(load_study(path).plan))
            sys.modules.pop("study", None)
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["3", "5"], done.stderr
    assert os.listdir(tmp_path) == ["study.py"]


@pytest.mark.parametrize(
    ("path", "way"),
    [
        ("study.py", "python study.py"),
        ("sub/my study.py", "python 'sub/my study.py'"),
        ("pkg/inner/study.py", "python -m pkg.inner.study"),
        ("sub/pkg/study.py", "cd sub && python -m pkg.study"),
    ],
)
def test_a_study_that_does_not_import_can_be_tested_as_advised(
    terminal: Terminal, path: str, way: str
) -> None:
    """From where the command was given; one of a package by its name, for relative imports."""
    place = terminal.folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    while "pkg" in str(place := place.parent.relative_to(terminal.folder)):
        place = terminal.folder / place
        (place / "__init__.py").touch()
    terminal.write(path, "raise ValueError('wrong')")
    said = terminal.run("run", path, "-o", "out.h5", check=2).stderr
    assert said.rstrip().endswith(f"fix that, then test it with: {way}")
    done = subprocess.run(way, shell=True, cwd=terminal.folder, capture_output=True, text=True)
    assert "ValueError: wrong" in done.stderr


WAYS_TO_NAME = {
    "declared elsewhere": ("@h5sweep.sweep(seed=range(3))", "from model import f"),
    "declared here": ("", "f = h5sweep.sweep(seed=range(3))(model.f)"),
    "a partial": ("", "f = h5sweep.sweep(seed=range(3))(functools.partial(model.f, by=1))"),
    "decorated elsewhere": ("", "f = h5sweep.sweep(seed=range(3))(model.plainly(model.f))"),
}


@pytest.mark.parametrize("way", WAYS_TO_NAME)
def test_the_file_that_was_named_is_run(terminal: Terminal, study: Study, way: str) -> None:
    """What it sets in the module with the function counts, in rows, resumes and replays."""
    above, sweep = WAYS_TO_NAME[way]
    model = f"""
        K = 1
        def plainly(function):
            return lambda seed: function(seed)
        {above}
        def f(seed, by=1):
            return {{"x": K * seed * by}}
    """
    study(model, "model.py")
    study(f"import functools\nimport model\nmodel.K = 7\n{sweep}\n", "main.py")
    terminal.run("run", "main.py", "-o", "out.h5", "-j", 1)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [0, 7, 14]
    replayed = terminal.run("replay", "out.h5", "seed=2")
    assert "equal" in replayed.stdout
    study(f"import functools\nimport model\nmodel.K = 8\n{sweep}\n", "main.py")
    said = terminal.run("run", "main.py", "-o", "out.h5", "--changed", "stop", check=2).stderr
    assert "main.py has changed; K was 7 and is 8" in said
    assert "h5sweep run main.py -o out.h5 --changed keep" in said
