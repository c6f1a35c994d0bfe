"""What workers import is compiled as a file that says just that, whatever keeps results for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from running import until
from terminal import Terminal

KERNEL = "import numba\n\n\n@numba.njit(cache=True)\ndef g(s):\n    return 2.0 * s\n"
STUDY = """
import os
import h5sweep
import kern
@h5sweep.sweep(seed=range(3))
def f(seed):
    {body}
    return {{"x": float(kern.g(seed))}}
"""
RUN = ("run", "study.py", "-o", "out.h5", "-j", 1)


def in_plain_python(folder: Path) -> str:
    """What the kernel that is there now gives for 3."""
    command = [sys.executable, "-c", "import kern; print(kern.g(3), len(kern.g.stats.cache_hits))"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def forget(folder: Path) -> None:
    """Remove what numba has kept beside the kernel."""
    for path in (folder / "__pycache__").glob("kern.*"):
        path.unlink()


def test_a_replay_of_before_an_edit_leaves_the_cache_of_now_alone(terminal: Terminal) -> None:
    """What numba compiles then is not taken for the code that the file has now."""
    pytest.importorskip("numba")
    kern = terminal.write("kern.py", KERNEL)
    terminal.write("study.py", STUDY.format(body="pass"))
    terminal.run(*RUN)
    kern.write_text(KERNEL.replace("2.0", "9.0"))
    forget(terminal.folder)
    said = terminal.run("replay", "out.h5", "seed=2").stdout
    assert said.startswith("seed=2: equal\n")
    assert not list((terminal.folder / "__pycache__").glob("kern.g*"))
    assert in_plain_python(terminal.folder) == "27.0 0"


def test_a_worker_of_after_an_edit_leaves_the_cache_of_now_alone(terminal: Terminal) -> None:
    pytest.importorskip("numba")
    kern = terminal.write("kern.py", KERNEL)
    body = "open('begun', 'w').close() or [0 for _ in iter(lambda: os.path.exists('edited'), True)]"
    terminal.write("study.py", STUDY.format(body=body))
    run = terminal.start(*RUN, "--tasks-per-worker", 1)
    until((terminal.folder / "begun").exists)
    kern.write_text(KERNEL.replace("2.0", "9.0"))
    forget(terminal.folder)
    (terminal.folder / "edited").touch()
    _, said = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert in_plain_python(terminal.folder) == "27.0 0"
    copies = list((terminal.folder / "out.h5.run/code/copies").rglob("kern.py"))
    assert [path.read_text() for path in copies] == [KERNEL]


def test_while_nothing_is_edited_the_cache_of_the_file_serves(terminal: Terminal) -> None:
    pytest.importorskip("numba")
    terminal.write("kern.py", KERNEL)
    assert in_plain_python(terminal.folder) == "6.0 0"
    terminal.write("study.py", STUDY.format(body="assert not kern.g.stats.cache_misses"))
    terminal.run(*RUN)
    assert not (terminal.folder / "out.h5.run/code/copies").exists()


def test_a_module_beside_an_edited_one_is_a_copy_too(terminal: Terminal) -> None:
    """What it was compiled with may be of the one that was edited; people are told of the file."""
    const = terminal.write("const.py", "SCALE = 2.0\n")
    kern = terminal.write("kern.py", "import const\ndef g(s): return const.SCALE / s\n")
    print_it = "print(kern.__file__, kern.g.__code__.co_filename)"
    study = terminal.write("study.py", STUDY.format(body=print_it))
    terminal.run(*RUN, check=1)
    const.write_text("SCALE = 9.0\n")
    said = terminal.run("replay", "out.h5", "seed=0", check=None).stdout
    assert said.startswith("seed=0: failed: ZeroDivisionError at kern.py:2 in g: ")
    for path, line in ((study, "line 8, in f"), (kern, "line 2, in g")):
        assert f'  File "{path}", {line}\n' in said
    printed = next(line for line in said.splitlines() if line.startswith(f"{kern} "))
    copy = Path(printed.split()[1])
    assert copy.name == "kern.py" and copy != kern and not copy.exists()


def test_a_run_of_earlier_code_has_the_same_code(terminal: Terminal) -> None:
    """Also in the process that starts it, which imports the study for its parameters."""
    kern = terminal.write("kern.py", "def g(s): return 2 * s\n")
    terminal.write("study.py", STUDY.format(body="pass"))
    terminal.run(*RUN, "--only", "seed=0")
    kern.write_text("def g(s): return 9 * s\n")
    assert "changed" not in terminal.run(*RUN, "--code", 1).stderr
    assert [p.name for p in (terminal.folder / "out.h5.run/code").glob("*.json")] == ["1.json"]
