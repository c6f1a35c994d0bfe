"""How a part joins a sweep: the first declares it, others find it, and a run keeps all out."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from h5sweep.base.process_id import this_process
from h5sweep.disk.durable import storage_error
from h5sweep.errors import ChangedStudyError, LockedError, StorageError
from h5sweep.runfolder import heartbeat, lock, parts
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.lock import ALONE, DECLARING, RUNNING, holding, holding_folder
from h5sweep.runfolder.parts import PartNumber, registered
from h5sweep.state.join_sweep import join_sweep
from h5sweep.state.state import FolderState
from h5sweep.state.study import Declaration, load_study

STUDY = """
import h5sweep
@h5sweep.sweep(seed=range({tasks}))
def f(seed):
    return {{"x": {value}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "out.h5")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is death after a moment."""
    for module in (heartbeat, lock, parts):
        monkeypatch.setattr(module, "HEARTBEAT_S", 0.05)
    for module in (heartbeat, lock):
        monkeypatch.setattr(module, "WATCH_S", 0.3)


def declared(folder: RunFolder, tasks: int = 4, value: str = "seed") -> Declaration:
    path = folder.output.with_name("study.py")
    path.write_text(STUDY.format(tasks=tasks, value=value))
    return load_study(path)


def join(folder: RunFolder, declaration: Declaration, said: list[str] | None = None) -> FolderState:
    tell = (said if said is not None else []).append
    return join_sweep(folder, declaration, declaration.version(), "1/2", tell)


@contextmanager
def at_work(folder: RunFolder, declaration: Declaration, number: int = 1) -> Iterator[str]:
    with registered(folder, PartNumber(number, 2), declaration.version().id) as name:
        yield name


def written(folder: RunFolder) -> list[tuple[int, int]]:
    """Which files the plan and the sweep are, and when they were written."""
    found = (folder.plan_path.stat(), folder.sweep_path.stat())
    return [(stat.st_ino, stat.st_mtime_ns) for stat in found]


def left_lock(folder: RunFolder, work: str, **changes: Any) -> None:
    """A lock as a run of another host has left it."""
    about = {**this_process().as_json(), "host": "node7", "boot": "another", "work": work}
    folder.lock_path.write_text(json.dumps({**about, "beats": 3, **changes}))


def test_the_first_declares_and_the_next_writes_nothing(folder: RunFolder) -> None:
    """A part that finds plan and code as they should be needs no lock."""
    study = declared(folder)
    with at_work(folder, study):
        join(folder, study)
        before = written(folder)
        with holding(folder.lock_path):  # as a merge does: parts may begin beside it
            assert join(folder, study).tasks_total == 4
        assert written(folder) == before


def test_a_run_keeps_parts_out(folder: RunFolder) -> None:
    """Where a run holds the folder, a part is told so at once."""
    study = declared(folder)
    join(folder, study)
    with holding_folder(folder, work=RUNNING), pytest.raises(LockedError, match="another run"):
        join(folder, study)


@pytest.mark.parametrize("work", [ALONE, DECLARING])
def test_a_part_waits_for_what_is_short(folder: RunFolder, work: str) -> None:
    """A redo, a relabel or another part that declares has the folder for a moment only."""
    study = declared(folder)
    if work == ALONE:
        join(folder, study)
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with holding(folder.lock_path, work=work):
            held.set()
            let_go.wait(30)

    folder.create()
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    said: list[str] = []
    threading.Timer(0.3, let_go.set).start()  # that it has waited shows in what it finds then
    join(folder, study, said)
    assert let_go.is_set()
    assert [text for text in said if "Waiting" in text] == said[: work == ALONE]
    holder.join()


def test_a_dead_run_elsewhere_stops_no_part(folder: RunFolder) -> None:
    """Of parts that meet its lock one watches it and takes over; the others wait for that."""
    study = declared(folder)
    join(folder, study)
    left_lock(folder, RUNNING)
    failures: list[BaseException] = []

    def part() -> None:
        try:
            join(folder, study)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=part) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert not folder.lock_path.exists()


def test_of_two_codes_the_one_declared_first_goes_on(folder: RunFolder) -> None:
    """Both are known as parts before either has declared anything; only the second is refused."""
    first = declared(folder)
    second = declared(folder, value="2 * seed")
    with at_work(folder, first), at_work(folder, second, 2):
        join(folder, first)
        with pytest.raises(ChangedStudyError, match=r"is at work with other code.*--code 1"):
            join(folder, second)
        join(folder, first)


def test_a_dead_part_elsewhere_with_other_code_is_watched_and_forgotten(folder: RunFolder) -> None:
    """It cannot refuse others for ever: its silence is waited for."""
    first = declared(folder)
    join(folder, first)
    about = {**this_process().as_json(), "host": "node7", "part": "1/2", "beats": 1}
    path = folder.parts_path / "1of2_node7_4711_1f9c2e.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**about, "code": first.version().id}))
    said: list[str] = []
    second = declared(folder, value="2 * seed")
    assert join(folder, second, said).tasks_total == 4  # no result is of the other code
    assert any("part 1/2 (pid 4711 on node7) may still be at work" in text for text in said)


def test_a_part_with_more_tasks_adds_them(folder: RunFolder) -> None:
    """The plan grows; who knew the shorter one finds its tasks where they were."""
    join(folder, declared(folder, tasks=4))
    assert len(join(folder, declared(folder, tasks=16)).plan) == 16
    assert len(join(folder, declared(folder, tasks=4)).plan) == 16


def test_a_lock_that_lets_two_in_does_no_harm(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On sshfs two hosts may declare at once: who finds its file gone looks again."""
    study = declared(folder)
    save, refusals = RunFolder.save_plan, [errno.ENOENT] * 2

    def colliding(self: RunFolder, plan: Any) -> None:
        if refusals:
            raise storage_error(self.plan_path, OSError(refusals.pop(), "gone"))
        save(self, plan)

    monkeypatch.setattr(RunFolder, "save_plan", colliding)
    assert join(folder, study).tasks_total == 4
    assert not refusals
    refusals += [errno.ENOSPC]
    with pytest.raises(StorageError):
        join(folder, declared(folder, tasks=16))
