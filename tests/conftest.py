"""What tests share: a fresh study file, and the command line as users call it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

H5SWEEP = [sys.executable, "-m", "h5sweep"]
LONG_S = 120

# What a shell starts in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Terminal:
    """Runs h5sweep in a folder of its own, as a user does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def run(
        self, *words: object, check: int | None = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and check its exit code (None: any)."""
        done = subprocess.run(
            [*H5SWEEP, *map(str, words)],
            cwd=self.folder,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=LONG_S,
            stdin=subprocess.DEVNULL,
        )
        if check is not None:
            assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *words: object, **env: str) -> subprocess.Popen[str]:
        """Start a command and go on."""
        return subprocess.Popen(
            [*H5SWEEP, *map(str, words)],
            cwd=self.folder,
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def json(self, *words: object, check: int | None = None) -> Any:
        return json.loads(self.run(*words, "--json", check=check).stdout)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A folder with nothing in it and the h5sweep command."""
    return Terminal(tmp_path)


@pytest.fixture
def study(terminal: Terminal) -> Callable[[str], Path]:
    """Write a study file; imports are put above it."""

    def write(body: str, name: str = "study.py") -> Path:
        head = "import os, signal, sys, time\nimport numpy as np\nimport h5sweep\n\n"
        path = terminal.folder / name
        path.write_text(head + textwrap.dedent(body), encoding="utf-8")
        return path

    return write


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder, on a file system of its own, in which nobody can write when it was made so."""
    folder = tmp_path / "ro"
    folder.mkdir()
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def make_read_only(folder: Path, how: str = "ro") -> None:
    """Let nobody write there, not even root; or again, with "rw"."""
    subprocess.run(["mount", "-o", f"remount,bind,{how}", folder], check=True)


# Root without the right to read and write what belongs to others.
AS_ANYBODY = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
SOMEBODY = 65534


def run_as_anybody(terminal: Terminal, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AS_ANYBODY, *H5SWEEP, *words], cwd=terminal.folder, capture_output=True, text=True
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """With H5SWEEP_REQUIRE_ALL=1 a skipped test is a failed one."""
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """The same for a module that is skipped as a whole."""
    return _refuse_skip((yield))


def _refuse_skip(report: Any) -> Any:
    """CI must not pass because an engine is missing; only the corpus is not everybody's."""
    if os.environ.get("H5SWEEP_REQUIRE_ALL") != "1" or not report.skipped:
        return report
    if hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if "H5SWEEP_CORPUS" not in reason or "H5SWEEP_CORPUS" in os.environ:
        report.outcome = "failed"
        report.longrepr = f"skipped, and with H5SWEEP_REQUIRE_ALL=1 nothing may be: {reason}"
    return report


@pytest.fixture(params=["one by one", "at once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files that are alike are read: at once if nobody has changed them for a while."""
    if request.param == "at once":
        monkeypatch.setattr("h5sweep.worker_files.read_at_once.SETTLED_NS", -(10**18))
    return str(request.param)
