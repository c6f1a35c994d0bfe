"""Fixtures that all tests share, and the rule that nothing may be skipped where all is there."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from h5sweep.code import own_modules
from terminal import READY, Terminal

# A study that a test loads finds all modules of the tests loaded: nobody need parse them each time.
own_modules.read_source = cache(own_modules.read_source)

# What a shell starts in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """A folder with nothing in it and the h5sweep command."""
    return Terminal(tmp_path)


def pytest_collection_finish() -> None:
    """What tests import has set variables of its own by now."""
    READY.note_environment()


def pytest_sessionfinish() -> None:
    READY.close()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """With `-n auto` three for two cores: tests wait a third of their time, for other processes."""
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2


@pytest.fixture
def study(terminal: Terminal) -> Callable[[str], Path]:
    """Write a study file; imports are put above it."""
    return terminal.write_study


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder, on a file system of its own, in which nobody can write when it was made so."""
    folder = tmp_path / "ro"
    folder.mkdir()
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """With H5SWEEP_REQUIRE_ALL=1 a skipped test is a failed one."""
    return _refuse_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """The same for a module that is skipped as a whole."""
    return _refuse_skip((yield))


def _refuse_skip(report: Any) -> Any:
    """CI must not pass because an engine is missing; a corpus or a kernel is not everybody's."""
    if os.environ.get("H5SWEEP_REQUIRE_ALL") != "1" or not report.skipped:
        return report
    if hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    may_lack = "H5SWEEP_CORPUS" in reason and "H5SWEEP_CORPUS" not in os.environ
    if not may_lack and "not a thing of this kernel" not in reason:
        report.outcome = "failed"
        report.longrepr = f"skipped, and with H5SWEEP_REQUIRE_ALL=1 nothing may be: {reason}"
    return report


@pytest.fixture(params=["one by one", "at once"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files that are alike are read: at once if nobody has changed them for a while."""
    if request.param == "at once":
        monkeypatch.setattr("h5sweep.worker_files.read_at_once.SETTLED_NS", -(10**18))
    return str(request.param)
