"""The state of a folder: what the record files say is what every task is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from h5sweep.base.missing_reason import MissingReason
from h5sweep.base.plan import Plan, key_json, plan_product
from h5sweep.base.process_id import ProcessId, this_process
from h5sweep.errors import DamagedError
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.records import FAILURES, RecordKind, RecordWriter, json_bytes
from h5sweep.state.state import FolderState, read_state
from h5sweep.state.state_counts import count_columns
from h5sweep.state.tasks_in_output import output_identity

PLAN = plan_product({"farm_id": range(2), "seed": range(3)})
DEAD = replace(this_process(), start_ticks=1)
ELSEWHERE = replace(this_process(), host="node17")


class HandMade:
    """A record file made by hand: each method appends one record."""

    def __init__(
        self,
        folder: RunFolder,
        name: str = "worker_1",
        *,
        plan: Plan = PLAN,
        plan_id: str | None = None,
        owner: ProcessId = DEAD,
    ) -> None:
        self.path = folder.records_path / f"{name}.records"
        self.plan = plan
        about = {"plan": plan_id or plan.id, "process": owner.as_json()}
        self.writer = RecordWriter(self.path, about=about)

    def started(self, *tasks: int) -> HandMade:
        self.writer.append_started(list(tasks))
        return self

    def done(self, task: int, finished_at: float = 1.0) -> HandMade:
        header = b'{"data":[["aep","<f8",[]]],"key":%b}' % key_json(self.plan.key(task)).encode()
        self.writer.append(RecordKind.DONE, task, header, bytes(8), finished_at=finished_at)
        return self

    def failed(
        self,
        task: int,
        kind: RecordKind = RecordKind.RAISED,
        finished_at: float = 1.0,
        message: str = "no",
    ) -> HandMade:
        error = {"type": "ValueError", "message": message, "where": "a.py:1", "traceback": "T"}
        header = json_bytes({"key": self.plan.key(task), "error": error})
        self.writer.append(kind, task, header, finished_at=finished_at, duration_s=0.5)
        return self

    def end(self) -> int:
        return self.path.stat().st_size


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "layouts.h5")
    folder.create()
    folder.save_plan(PLAN)
    return folder


def state_of(folder: RunFolder) -> FolderState:
    plan = folder.load_plan()
    assert plan is not None
    return read_state(folder, plan)


def reasons(folder: RunFolder) -> dict[int, MissingReason]:
    return {missing.task: missing.reason for missing in state_of(folder).missing()}


def flip(path: Path, position: int) -> None:
    """Flip all bits of one byte."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def test_a_folder_without_records_has_never_started(folder: RunFolder) -> None:
    """Every task of a fresh folder is missing, with its key."""
    missing = list(state_of(folder).missing())
    assert [m.task for m in missing] == list(range(6))
    assert {m.reason for m in missing} == {MissingReason.NEVER_STARTED}
    assert [m.key for m in missing] == [PLAN.key(task) for task in range(6)]


def test_done_tasks_are_done(folder: RunFolder) -> None:
    """A result in any file makes its task done and says where it lies."""
    first = HandMade(folder, "worker_1").started(0, 1).done(0)
    place = first.end()
    first.done(1, finished_at=7.5)
    HandMade(folder, "worker_2").started(5).done(5)
    state = state_of(folder)
    assert (state.tasks_done, state.tasks_failed) == (3, 0)
    assert [task for task in range(6) if state.is_done(task)] == [0, 1, 5]
    assert list(state.missing_tasks()) == [2, 3, 4]
    assert (state.paths[state.files[1]], state.offsets[1]) == (first.path, place)
    assert state.finished_at[1] == 7.5
    assert state.interrupted == {}


@pytest.mark.parametrize("kind", sorted(FAILURES))
def test_a_failed_task_is_missing_with_how_it_ended(folder: RunFolder, kind: RecordKind) -> None:
    """Each way to fail is told, with the words of the record."""
    HandMade(folder).started(2).failed(2, kind, message="layout is empty")
    state = state_of(folder)
    assert state.tasks_failed == 1
    failure = state.all_failures[2]
    assert (failure.kind, failure.error, failure.message) == (kind, "ValueError", "layout is empty")
    assert (failure.where, failure.traceback, failure.duration_s) == ("a.py:1", "T", 0.5)
    (missing,) = [m for m in state.missing() if m.task == 2]
    assert missing.reason is MissingReason.FAILED
    assert missing.detail == f"{kind.words}: ValueError: layout is empty"


def test_the_task_of_a_live_process_is_running(folder: RunFolder) -> None:
    """The process is in the first task of its batch that has no outcome."""
    HandMade(folder, owner=this_process()).started(0, 1, 2).done(0).failed(1)
    state = state_of(folder)
    assert list(state.running) == [2]
    assert state.running[2][0] == this_process()
    assert reasons(folder)[2] is MissingReason.RUNNING


@pytest.mark.parametrize(
    ("silent_s", "reason"), [(1, MissingReason.RUNNING), (600, MissingReason.INTERRUPTED)]
)
def test_a_task_of_another_host_runs_as_long_as_its_run_beats(
    folder: RunFolder, silent_s: int, reason: MissingReason
) -> None:
    """Of a process of another host only the heartbeat of its run can be seen."""
    HandMade(folder, owner=ELSEWHERE).started(4)
    folder.lock_path.touch()
    os.utime(folder.lock_path, (time.time() - silent_s,) * 2)
    assert reasons(folder)[4] is reason


def test_the_task_of_a_dead_process_was_interrupted(folder: RunFolder) -> None:
    """The task that its process died in is named; those behind it were never started."""
    HandMade(folder, owner=DEAD).started(0, 1, 2).done(0)
    assert reasons(folder) == {
        1: MissingReason.INTERRUPTED,
        **dict.fromkeys((2, 3, 4, 5), MissingReason.NEVER_STARTED),
    }


def test_a_finished_batch_leaves_nothing_running(folder: RunFolder) -> None:
    """A live process between two batches is in no task."""
    HandMade(folder, owner=this_process()).started(0, 1).done(0).done(1)
    assert state_of(folder).running == {}


def test_only_the_last_batch_counts(folder: RunFolder) -> None:
    """What was taken back from an earlier batch is not running."""
    HandMade(folder, owner=this_process()).started(0, 1, 2).done(0).started(4, 5).done(4)
    assert list(state_of(folder).running) == [5]


def test_a_task_that_is_begun_again_is_running(folder: RunFolder) -> None:
    """An outcome before the last start says nothing about the attempt that is going on."""
    HandMade(folder, owner=this_process()).started(0, 1).failed(0).started(0, 1)
    assert list(state_of(folder).running) == [0]


def test_a_second_attempt_in_the_same_process_does_not_shift_the_batch(folder: RunFolder) -> None:
    """Two outcomes of one task count for that task alone."""
    HandMade(folder, owner=this_process()).started(0, 1, 2).failed(0).done(0)
    assert list(state_of(folder).running) == [1]


def test_a_retry_that_succeeds_makes_up_for_a_failure(folder: RunFolder) -> None:
    """A task is done if any attempt has a result, in whatever order the files are read."""
    HandMade(folder, "worker_1").started(0).failed(0).started(1).done(1)
    HandMade(folder, "worker_2").started(0).done(0).started(1).failed(1)
    state = state_of(folder)
    assert (state.tasks_done, state.tasks_failed) == (2, 0)
    assert state.failures == {}


def test_what_another_process_finished_is_neither_running_nor_interrupted(
    folder: RunFolder,
) -> None:
    """A task that died in one process and was finished by another is done, and only that."""
    HandMade(folder, "worker_1", owner=DEAD).started(0)
    HandMade(folder, "worker_2", owner=ELSEWHERE).started(1)
    HandMade(folder, "worker_3").started(0, 1).done(0).done(1)
    state = state_of(folder)
    assert (state.running, state.interrupted, state.tasks_done) == ({}, {}, 2)


def test_the_newest_failure_is_told(folder: RunFolder) -> None:
    """Of several failures the last in time counts, whatever the order of the files."""
    HandMade(folder, "worker_1").failed(0, RecordKind.TIMED_OUT, finished_at=9.0)
    HandMade(folder, "worker_2").failed(0, RecordKind.DIED, finished_at=5.0)
    assert state_of(folder).all_failures[0].kind is RecordKind.TIMED_OUT
    assert state_of(folder).kinds[0] == RecordKind.TIMED_OUT


def test_of_several_outcomes_in_one_file_the_last_wins(folder: RunFolder) -> None:
    """What was written later counts, also if the clock was set back in between."""
    file = HandMade(folder, "worker_1").done(3, finished_at=9.0).done(3, finished_at=5.0)
    file.failed(2, RecordKind.TIMED_OUT, finished_at=9.0)
    file.failed(2, RecordKind.DIED, finished_at=5.0)
    state = read_state(folder, folder.load_plan() or Plan(()))
    assert state.finished_at[3] == 5.0
    assert state.all_failures[2].kind is RecordKind.DIED


@pytest.mark.parametrize("newest", ["worker_1", "worker_2", "worker_3"])
def test_of_several_results_the_newest_wins(folder: RunFolder, newest: str) -> None:
    """Whatever the order of the files, the result finished last is the one."""
    for name in ("worker_1", "worker_2", "worker_3"):
        HandMade(folder, name).done(3, finished_at=9.0 if name == newest else 5.0)
    state = state_of(folder)
    assert state.paths[state.files[3]].stem == newest
    assert state.finished_at[3] == 9.0
    assert (state.duplicates, state.tasks_done) == (2, 1)


# Damage


def test_a_torn_tail_is_an_interrupted_task(folder: RunFolder) -> None:
    """The task whose record was being written when its process died has to be run again."""
    file = HandMade(folder).started(0, 1).done(0).done(1)
    os.truncate(file.path, file.end() - 20)
    state = state_of(folder)
    assert list(state.interrupted) == [1]
    assert state.damages == []


def frame(start: int, end: int) -> int:
    return start + 10


def content(start: int, end: int) -> int:
    return end - 4


@pytest.mark.parametrize("where", [frame, content])
def test_a_task_whose_record_is_damaged_is_lost(
    folder: RunFolder, where: Callable[[int, int], int]
) -> None:
    """A damaged result in the middle costs its task and no other, and says in which file."""
    file = HandMade(folder).started(0, 1, 2).done(0)
    start = file.end()
    file.done(1)
    flip_at = where(start, file.end())
    file.done(2).started(3).done(3)
    flip(file.path, flip_at)
    state = state_of(folder)
    assert list(state.lost) == [1]
    assert [m.detail for m in state.missing() if m.reason is MissingReason.LOST] == [
        "worker_1.records"
    ]
    assert [d.offset for d in state.damages] == [start]
    assert state.tasks_done == 3
    assert state.interrupted == {}


@pytest.mark.parametrize("where", [frame, content])
def test_damage_inside_the_last_batch_does_not_shift_it(
    folder: RunFolder, where: Callable[[int, int], int]
) -> None:
    """With an outcome of the last batch damaged, the process is still where it is."""
    file = HandMade(folder, owner=this_process()).started(0, 1, 2, 3)
    start = file.end()
    file.done(0)
    flip_at = where(start, file.end())
    file.done(1)
    flip(file.path, flip_at)
    state = state_of(folder)
    assert list(state.running) == [2]
    assert list(state.lost) == [0]


def test_a_lost_task_that_was_run_again_is_done(folder: RunFolder) -> None:
    """Damage stays told, the task is done."""
    file = HandMade(folder, "worker_1").done(0)
    flip(file.path, file.end() - 4)
    HandMade(folder, "worker_2").done(0)
    state = state_of(folder)
    assert (state.lost, state.tasks_done, len(state.damages)) == ({}, 1, 1)


def test_without_its_first_record_a_file_is_read_by_keys(folder: RunFolder) -> None:
    """Results and failures carry their keys, so none is lost with the first record."""
    file = HandMade(folder).started(0, 1).done(0).failed(1)
    flip(file.path, 20)
    state = state_of(folder)
    assert (state.tasks_done, state.tasks_failed) == (1, 1)
    assert state.unreadable == [file.path]


def test_garbage_among_the_record_files_is_named(folder: RunFolder) -> None:
    """A file of something else is unreadable; the others count."""
    HandMade(folder, "worker_2").done(0)
    garbage = folder.records_path / "worker_1.records"
    garbage.write_bytes(b"No space left on device" * 100)
    (folder.records_path / "worker_0.records").touch()
    (folder.records_path / "notes.txt").write_text("not ours")
    state = state_of(folder)
    assert state.unreadable == [garbage]
    assert state.tasks_done == 1


# Other plans


def test_records_of_another_plan_are_resolved_by_key(folder: RunFolder) -> None:
    """A number means nothing without its plan: the key does."""
    other = plan_product({"seed": [2, 0, 9], "farm_id": [1, 7]})
    file = HandMade(folder, plan=other).started(0, 1).done(0).failed(2).done(4).done(1)
    state = state_of(folder)
    assert [task for task in range(6) if state.is_done(task)] == [PLAN.number(other.key(0))] == [5]
    assert list(state.failures) == [PLAN.number(other.key(2))] == [3]
    assert [key for key, _ in state.beyond_plan] == [other.key(4), other.key(1)]
    assert state.paths[state.beyond_plan[0][1].file] == file.path
    assert (state.running, state.interrupted) == ({}, {})


def test_damage_in_a_file_of_another_plan_names_no_task_of_this_one(folder: RunFolder) -> None:
    """The number in a damaged record of another plan is not a number of this plan."""
    other = plan_product({"seed": [2], "farm_id": [1]})
    file = HandMade(folder, plan=other).done(0)
    flip(file.path, file.end() - 4)
    state = state_of(folder)
    assert state.lost == {}
    assert len(state.damages) == 1


def test_a_number_beyond_the_plan_is_ignored(folder: RunFolder) -> None:
    """A process that has read a larger plan than we have does not upset us."""
    larger, _ = PLAN.extended(plan_product({"farm_id": range(3), "seed": range(3)}))
    HandMade(folder, plan=larger, owner=this_process()).started(0, 8).done(0).done(8).started(7)
    state = state_of(folder)
    assert (state.tasks_done, state.running) == (1, {})


# Counts


def test_counts_by_column(folder: RunFolder) -> None:
    """For every value of every parameter: finished and all."""
    HandMade(folder).done(0).done(4).done(5).failed(1)
    assert count_columns(state_of(folder)) == {
        "farm_id": [(0, 1, 3), (1, 2, 3)],
        "seed": [(0, 1, 2), (1, 1, 2), (2, 1, 2)],
    }


# The output


def save_merged(folder: RunFolder, tasks: list[list[int]], **changes: object) -> None:
    folder.output.write_bytes(b"the output")
    about = {"plan": PLAN.id, "output": output_identity(folder.output), "tasks": tasks}
    folder.save_merged({**about, **changes})


def test_what_the_output_holds_is_done(folder: RunFolder) -> None:
    """A merged task stays done when its record file is gone."""
    save_merged(folder, [[0, 1], [4, 4]])
    HandMade(folder).done(1).done(2).failed(4)
    state = state_of(folder)
    assert [task for task in range(6) if state.is_done(task)] == [0, 1, 2, 4]
    assert (state.tasks_done, state.tasks_failed, state.failures) == (4, 0, {})
    assert count_columns(state)["farm_id"] == [(0, 3, 3), (1, 1, 3)]


def test_what_an_output_held_that_is_gone_is_not_done(folder: RunFolder) -> None:
    """The note about an output counts only while that output is there."""
    save_merged(folder, [[0, 5]])
    assert state_of(folder).tasks_done == 6
    folder.output.unlink()
    assert state_of(folder).tasks_done == 0


@pytest.mark.parametrize("content", [b"another output", b""])
def test_what_is_in_another_file_cannot_be_known(folder: RunFolder, content: bytes) -> None:
    """A file in place of the output that is none is named; once it is away, records count."""
    HandMade(folder).done(1)
    save_merged(folder, [[0, 5]])
    folder.output.write_bytes(content)
    with pytest.raises(DamagedError, match="Move it away and run the same command again"):
        state_of(folder)
    folder.output.rename(folder.output.with_name("away"))
    assert state_of(folder).tasks_done == 1


def touch_output(folder: RunFolder) -> None:
    os.utime(folder.output, ns=(0, 0))


def copy_all(folder: RunFolder) -> None:
    """As `cp -r` does, which gives every file a new time."""
    for path in (folder.output, *folder.path.iterdir()):
        if path.is_file():
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)


def lose_the_note(folder: RunFolder) -> None:
    folder.merged_path.unlink()


def take_another_plan(folder: RunFolder) -> None:
    folder.save_plan(Plan(PLAN.columns))


def change_nothing(folder: RunFolder) -> None:
    pass


def change_two_values(folder: RunFolder) -> None:
    with h5py.File(folder.output, "r+") as file:
        file["aep"][:2] = 99.0


def change_two_keys(folder: RunFolder) -> None:
    with h5py.File(folder.output, "r+") as file:
        file["seed"][:2] = [7, 8]


def change_two_numbers(folder: RunFolder) -> None:
    with h5py.File(folder.output, "r+") as file:
        file["task"][:2] = [1, 0]


def drop_two_rows(folder: RunFolder) -> None:
    with h5py.File(folder.output, "r+") as file:
        for name in ("task", "farm_id", "seed", "aep", "duration_s", "finished_at", "row_crc32"):
            values, about = file[name][2:], dict(file[name].attrs)
            del file[name]
            file[name] = values
            if "h5sweep_dtype" in about:
                file[name].attrs["h5sweep_dtype"] = about["h5sweep_dtype"]


@pytest.mark.parametrize(
    ("change", "done"),
    [
        (change_nothing, 6),
        (touch_output, 6),
        (copy_all, 6),
        (lose_the_note, 6),
        (take_another_plan, 6),
        (change_two_values, 4),
        (change_two_keys, 4),
        (change_two_numbers, 4),
        (drop_two_rows, 4),
    ],
)
def test_done_is_what_the_output_holds_now(
    folder: RunFolder, change: Callable[[RunFolder], None], done: int
) -> None:
    """Without records, a task is done if the output has a row of it whose checksum holds."""
    records = HandMade(folder)
    for task in range(6):
        records.done(task)
    merge_run(folder)
    records.path.unlink()
    change(folder)
    assert state_of(folder).tasks_done == done


def test_a_note_beyond_the_plan_adds_no_task(folder: RunFolder) -> None:
    """The state has as many tasks as the plan, whatever the note says."""
    save_merged(folder, [[4, 10], [12, 13]])
    state = state_of(folder)
    assert (len(state.kinds), state.tasks_done) == (6, 2)


# The files beside


@pytest.mark.parametrize("text", ["", "[]", "{", "\udcff"], ids=repr)
def test_damaged_notes_are_told(folder: RunFolder, text: str) -> None:
    """A plan or note that is not what it should be is damage, and the message names it."""
    for path in (folder.plan_path, folder.sweep_path):
        path.write_bytes(text.encode(errors="surrogateescape"))
    for load in (folder.load_plan, folder.load_sweep):
        with pytest.raises(DamagedError, match=r"(plan|sweep)\.json"):
            load()


def test_folders_in_place_of_notes_are_told(folder: RunFolder) -> None:
    """A folder where the plan or the sweep's note should be is damage, and no bug."""
    folder.plan_path.unlink()
    for path in (folder.plan_path, folder.sweep_path):
        path.mkdir()
    for load in (folder.load_plan, folder.load_sweep):
        with pytest.raises(DamagedError, match=r"(plan|sweep)\.json"):
            load()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "\udcff", "{}", '{"plan": "a", "output": [1, 2], "tasks": [[1]]}', None],
    ids=repr,
)
def test_a_damaged_note_about_the_output_is_none(folder: RunFolder, text: str | None) -> None:
    """merged.json only spares work: damaged, or a folder, it is as if it were not there."""
    if text is None:
        folder.merged_path.mkdir()
    else:
        folder.merged_path.write_bytes(text.encode(errors="surrogateescape"))
    assert folder.load_merged() == {}
    assert state_of(folder).tasks_done == 0


def test_only_files_are_record_files(folder: RunFolder) -> None:
    """A folder, a dangling link or a pipe that is named as a record file is passed over."""
    path = HandMade(folder).done(0).path
    (folder.records_path / "a.records").mkdir()
    (folder.records_path / "b.records").symlink_to("nowhere")
    os.mkfifo(folder.records_path / "c.records")
    assert folder.record_paths() == [path]
    assert state_of(folder).tasks_done == 1


def test_every_damaged_byte_of_a_plan_is_told_as_damage(folder: RunFolder) -> None:
    """No damaged plan file gives anything but the same tasks or the error about damage."""
    sound = folder.plan_path.read_bytes()
    for position in range(len(sound)):
        folder.plan_path.write_bytes(sound)
        flip(folder.plan_path, position)
        try:
            plan = folder.load_plan()
        except DamagedError:
            continue
        assert plan == PLAN, position


def test_reading_a_folder_needs_neither_numpy_nor_h5py(folder: RunFolder) -> None:
    """`status` starts at once because it imports little."""
    HandMade(folder, owner=DEAD).started(0, 1).failed(0)
    code = (
        "import sys; from h5sweep.runfolder.layout import RunFolder\n"
        "from h5sweep.state.state import read_state\n"
        "folder = RunFolder.of(sys.argv[1])\n"
        "state = read_state(folder, folder.load_plan())\n"
        "from h5sweep.state.state_counts import count_columns\n"
        "assert len(list(state.missing())) == 6 and count_columns(state)\n"
        "assert not {'numpy', 'h5py', 'pandas'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, str(folder.output)]
    assert subprocess.run(command, check=False).returncode == 0
