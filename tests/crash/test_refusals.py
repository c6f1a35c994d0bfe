"""The disk refuses a call, each in turn: a sentence, nothing lost, and the same command completes.

What must hold is in `refusals_everywhere.py`, which refuses the calls; `refuse.c` is how.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from needs import needs_compiler
from places import SAMPLES
from refusals_everywhere import COMMANDS, KINDS

HERE = Path(__file__).parent


# Enough for some minutes; what takes a process of its own each time is tried at fewer calls.
STEPS = {"clean": 7, "columns": 9, "groups": 9, "key": 13, "merge": 20, "purge": 5, "restore": 5}
STEPS |= {"run": 13, "worker": 3}
OTHERS = [kind for kind in KINDS if kind != "EIO"]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that refuses, compiled."""
    made = tmp_path_factory.mktemp("refuse") / "refuse.so"
    compiling = ["cc", "-O2", "-fPIC", "-shared", "-o", made, HERE / "refuse.c", "-ldl"]
    subprocess.run(compiling, check=True)
    return made


@needs_compiler
@pytest.mark.parametrize("step", [200, pytest.param(None, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", COMMANDS)
def test_some_calls_refused(tmp_path: Path, shim: Path, name: str, step: int | None) -> None:
    """Whichever call fails, it is said what and why, and the same command again finishes."""
    assert refuse(shim, tmp_path, name, step or STEPS.get(name, 50), ["EIO"]) > 0


@pytest.mark.exhaustive
@needs_compiler
@pytest.mark.parametrize("name", ["merge", "columns", "clean"])
def test_refused_for_all_reasons(tmp_path: Path, shim: Path, name: str) -> None:
    """The same for a full disk, a lost right, a short write and the like."""
    assert refuse(shim, tmp_path, name, 50, OTHERS) > 0


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("name", COMMANDS)
def test_all_calls_refused(tmp_path: Path, shim: Path, name: str) -> None:
    """The same at every call, for every reason."""
    print(name, refuse(shim, tmp_path, name, 1, list(KINDS)))


def refuse(shim: Path, folder: Path, name: str, step: int, kinds: list[str]) -> int:
    """Refuse every `step`-th call; how many these were."""
    driver = [sys.executable, HERE / "refusals_everywhere.py", folder / "x", name, str(step)]
    path = os.pathsep.join([str(SAMPLES), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*driver, *kinds], env=env, capture_output=True, text=True)
    *problems, summary = done.stdout.splitlines() or [""]
    assert done.returncode == 0, done.stderr
    assert not problems, f"{len(problems)} problems; the first:\n{problems[0]}"
    return sum(json.loads(summary)["refused"].values())
