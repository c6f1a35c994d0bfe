"""SIGKILL at every system call by which `clean` changes the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from h5sweep.clean import quarantine
from h5sweep.merge.audit_entry import entry_of_files
from h5sweep.merge.from_records.build import merge_run
from h5sweep.output.verify import verify_rows
from h5sweep.runfolder.audit import append_entry
from h5sweep.runfolder.layout import RunFolder
from h5sweep.worker_files.survey import Survey
from kill_points import Choice, CrashPoint, check_count, points_in, some_or_all, try_all
from needs import needs_strace
from terminal import H5SWEEP, run_command
from written_records import SOME, record

# Not openat: what it changes is seen before the next write, and a look through /proc, for files
# that are being written, makes their number another one each time.
CALLS = "write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,mkdir"


@needs_strace
@pytest.mark.parametrize("action", ["yes", "restore", "purge"])
@some_or_all
def test_killed_before_any_call(action: str, tmp_path: Path, chosen: Choice) -> None:
    """SIGKILL before any call that changes the disk: nothing is lost, the same command finishes."""
    template, work = tmp_path / "template", tmp_path / "work"
    words = _prepare(work, action)
    shutil.copytree(work, template)
    points = _points(words, work)
    assert len(points) > 8
    attempt = partial(_try_point, template=template, action=action, words=words)
    try_all(chosen(points), tmp_path, attempt)
    check_count(f"clean {action}", len(points))


def _try_point(
    point: CrashPoint, work: Path, template: Path, action: str, words: list[str]
) -> None:
    shutil.copytree(template, work)
    before, refused = _results(work), _refused(work)
    done = _strace(words, work, "/dev/null", *point.killing())
    assert done.returncode in (-9, 137), done.stderr
    assert _refused(work) == refused
    if action != "purge":
        assert _results(work) == before
    _check_listed(work)
    again = run_command(words, work, dict(os.environ))
    _check_finished(action, work, again)
    if action != "purge":
        assert _results(work) == before
    assert verify_rows(work / "out.h5") == []


def _prepare(work: Path, action: str) -> list[str]:
    """An output of two record files, an empty and a damaged worker file; the command to kill."""
    work.mkdir()
    folder = RunFolder(work / "out.h5")
    record(folder, SOME % (0, 3))
    record(folder, SOME % (3, 6))
    merge_run(folder)
    (work / "worker_1.h5").touch()
    (work / "worker_2.h5").write_bytes(b"\x89HDF\r\n\x1a\n garbage")
    refused = [Survey().look_at(work / f"worker_{n}.h5") for n in (1, 2)]
    append_entry(
        folder.output, entry_of_files(folder.output, [], refused, way="groups", duration_s=0)
    )
    command = ["clean", "out.h5"]
    yes = [*command, "--yes", "--also", "worker_1.h5", "--also", "worker_2.h5"]
    if action == "yes":
        return yes
    run_command(yes, work, dict(os.environ)).check_returncode()
    (made,) = quarantine.read_quarantines(folder.output)
    return [*command, "--restore"] if action == "restore" else [*command, "--purge", made.name]


def _places(work: Path, pattern: str) -> list[Path]:
    return [*work.glob(pattern), *(work / "out.h5.quarantine").glob(f"*/*/{Path(pattern).name}")]


def _results(work: Path) -> dict[str, bytes]:
    """The record files and their bytes, wherever they are."""
    found = _places(work, "out.h5.run/records/*.records")
    assert len({path.name for path in found}) == len(found), "a file is at two places"
    return {path.name: path.read_bytes() for path in found}


def _refused(work: Path) -> dict[str, bytes]:
    """The same for the damaged worker file, which no command may delete."""
    return {path.name: path.read_bytes() for path in _places(work, "worker_2.h5")}


def _check_listed(work: Path) -> None:
    """Every file in a quarantine is in its manifest."""
    for path in (work / "out.h5.quarantine").glob("*/*/*"):
        manifest = json.loads((path.parents[1] / "manifest.json").read_text())
        assert f"{path.parent.name}/{path.name}" in [one["name"] for one in manifest["files"]]


def _check_finished(action: str, work: Path, again: subprocess.CompletedProcess[str]) -> None:
    there = sorted(path.name for path in _places(work, "out.h5.run/records/*.records"))
    at_place = sorted(path.name for path in (work / "out.h5.run" / "records").iterdir())
    if action == "yes":
        assert again.returncode == 0, again.stderr
        assert not (work / "worker_1.h5").exists()
        assert at_place == []
        (made,) = quarantine.read_quarantines(work / "out.h5")
        assert made.stage is quarantine.QuarantineStage.WHOLE
    elif action == "restore":
        assert again.returncode == 0, again.stderr
        assert at_place == there
        assert len(there) == 2
    else:
        # 2: all was deleted before the kill, and there is no quarantine of that name any more.
        assert again.returncode in (0, 2), again.stderr
        assert there == []


def _strace(words: list[str], work: Path, log: str, *more: str) -> subprocess.CompletedProcess[str]:
    strace = ["strace", "-f", "-y", "-o", log, "-e", f"trace={CALLS}", *more]
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*strace, *H5SWEEP, *words], cwd=work, env=env, capture_output=True, text=True
    )


def _points(words: list[str], work: Path) -> list[CrashPoint]:
    """Every call that changes something in the folder, in a command that nobody kills."""
    log = work.with_name("log")
    done = _strace(words, work, str(log))
    assert done.returncode == 0, done.stderr
    return points_in(log, "out.h5", "worker_")
