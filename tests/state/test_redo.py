"""Which result counts, and what is run, once tasks were asked to be run again."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import pytest

from h5sweep import cancel_redo, find_removable, merge_files, read_audit, redo_tasks
from h5sweep.base.missing_reason import MissingReason
from h5sweep.base.plan import key_json, plan_product
from h5sweep.base.process_id import this_process
from h5sweep.errors import DamagedError, LockedError, UsageError
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.lock import holding_folder
from h5sweep.runfolder.records import RecordKind, RecordWriter, json_bytes
from h5sweep.runfolder.uniform_records import scan_stretches
from h5sweep.runner.recorder import Recorder
from h5sweep.state.extend_plan import is_up_to_date
from h5sweep.state.state import FolderState, read_state

PLAN = plan_product({"farm_id": range(2), "seed": range(3)})
DEAD = replace(this_process(), start_ticks=1)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "layouts.h5")
    folder.create()
    folder.save_plan(PLAN)
    return folder


def record(
    folder: RunFolder, aep: float, *tasks: int, at: float = 1.0, redo: int | None = None
) -> Path:
    """A process that finishes these tasks now, or one that began when that many were asked for."""
    about = folder.load_redo().about() if redo is None else {"redo": redo}
    path = folder.new_record_path("worker")
    writer = RecordWriter(path, about={"plan": PLAN.id, "process": DEAD.as_json(), **about})
    for task in tasks:
        key = key_json(PLAN.key(task)).encode()
        header, data = b'{"data":[["aep","<f8",[]]],"key":%b}' % key, struct.pack("<d", aep)
        writer.append(RecordKind.DONE, task, header, data, finished_at=at)
    writer.close()
    return path


def fail(folder: RunFolder, *tasks: int) -> None:
    error = {"type": "ValueError", "message": "no", "where": "a.py:1", "traceback": "T"}
    about = {"plan": PLAN.id, "process": DEAD.as_json(), **folder.load_redo().about()}
    writer = RecordWriter(folder.new_record_path("worker"), about=about)
    for task in tasks:
        header = json_bytes({"key": PLAN.key(task), "error": error})
        writer.append(RecordKind.RAISED, task, header, finished_at=2.0)
    writer.close()


def state_of(folder: RunFolder) -> FolderState:
    """The state, which both ways through record files must agree about."""
    state = read_state(folder, PLAN)
    fast = read_state(folder, PLAN, scan=scan_stretches)
    assert (state.kinds, state.again, state.redone) == (fast.kinds, fast.again, fast.redone)
    assert (state.files, state.offsets) == (fast.files, fast.offsets)
    return state


def rows(folder: RunFolder) -> dict[int, float]:
    with h5py.File(folder.output) as file:
        return dict(zip(file["task"][:].tolist(), file["aep"][:].tolist(), strict=True))


def merged(folder: RunFolder) -> dict[int, float]:
    merge_run(folder)
    return rows(folder)


ALL = range(6)
ONES = dict.fromkeys(ALL, 1.0)


@pytest.mark.parametrize("is_merged", [True, False])
def test_a_task_asked_for_is_run_again_and_counts_as_done(
    folder: RunFolder, is_merged: bool
) -> None:
    """Its result is kept, in the output or in a record file."""
    record(folder, 1.0, *ALL)
    if is_merged:
        merge_run(folder)
    report = redo_tasks(folder.output, {"farm_id": 1, "seed": [0, 2]})
    assert (report.tasks, report.with_result) == (2, 2)
    state = state_of(folder)
    assert list(state.missing_tasks()) == [3, 5]
    assert (state.tasks_done, state.tasks_failed) == (6, 0)
    assert {m.reason for m in state.missing()} == {MissingReason.AGAIN}
    assert merged(folder) == ONES
    assert list(state_of(folder).missing_tasks()) == [3, 5]


def test_a_new_result_counts_whatever_the_clock_says(folder: RunFolder) -> None:
    """It may have been recorded on a host whose clock is behind."""
    record(folder, 1.0, *ALL, at=1000.0)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 3, 4, at=5.0)
    state = state_of(folder)
    assert (list(state.missing_tasks()), state.results_not_merged) == ([5], 2)
    assert merged(folder) == {**ONES, 3: 2.0, 4: 2.0}
    state = state_of(folder)
    assert (list(state.missing_tasks()), state.results_not_merged) == ([5], 0)
    assert merged(folder) == {**ONES, 3: 2.0, 4: 2.0}


def test_what_began_before_the_request_is_old(folder: RunFolder) -> None:
    """A process that had imported the code before it was fixed may end long after."""
    record(folder, 1.0, *ALL)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 7.0, 3, at=99.0, redo=0)
    assert 3 in state_of(folder).missing_tasks()
    record(folder, 2.0, 3, at=5.0)
    assert 3 not in state_of(folder).missing_tasks()
    assert merged(folder)[3] == 2.0


def test_tasks_that_nobody_asked_for_go_by_the_clock(folder: RunFolder) -> None:
    """As ever: of two results the later counts."""
    record(folder, 1.0, *ALL, at=9.0)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 0, at=5.0)
    record(folder, 3.0, 1, at=11.0)
    assert merged(folder) == {**ONES, 1: 3.0}


def test_a_failure_is_told_and_the_old_result_stays(folder: RunFolder) -> None:
    """The task is failed and done at once, and run again by the next run."""
    record(folder, 1.0, *ALL)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    fail(folder, 3)
    state = state_of(folder)
    assert (state.tasks_done, state.tasks_failed) == (6, 1)
    assert next(state.missing()).reason is MissingReason.FAILED
    assert merged(folder) == ONES
    with h5py.File(folder.output) as file:
        assert len(file["failures/task"]) == 0  # that has tasks without a result
    record(folder, 2.0, 3)
    assert state_of(folder).tasks_failed == 0
    assert merged(folder)[3] == 2.0


def test_failures_of_before_do_not_count_any_more(folder: RunFolder) -> None:
    """`redo --failed`: they are to be run again, even by a run that leaves failed tasks alone."""
    record(folder, 1.0, 0, 1, 2, 3)
    fail(folder, 4)
    assert redo_tasks(folder.output, failed=True).tasks == 1
    state = state_of(folder)
    assert {m.task: m.reason for m in state.missing()} == {
        4: MissingReason.AGAIN,
        5: MissingReason.NEVER_STARTED,
    }
    assert state.tasks_failed == 0


def test_it_can_be_asked_for_twice(folder: RunFolder) -> None:
    """A result of the first time is old the second time."""
    record(folder, 1.0, *ALL)
    for aep in (2.0, 3.0):
        redo_tasks(folder.output, {"farm_id": 1})
        assert list(state_of(folder).missing_tasks()) == [3, 4, 5]
        record(folder, aep, 3, 4, 5)
        assert merged(folder) == {**ONES, 3: aep, 4: aep, 5: aep}
    assert [entry.event for entry in read_audit(folder.output).events] == [
        "asked for 3 tasks to be run again"
    ] * 2


def test_new_results_stay_without_their_records(folder: RunFolder) -> None:
    """The old record must not come back when the new one was cleaned away."""
    record(folder, 1.0, *ALL, at=1000.0)
    redo_tasks(folder.output, {"farm_id": 1})
    new = record(folder, 2.0, 3, 4, 5)
    merge_run(folder)
    new.unlink()
    assert list(state_of(folder).missing_tasks()) == []
    assert merged(folder) == {**ONES, 3: 2.0, 4: 2.0, 5: 2.0}


def test_without_the_new_result_and_its_row_the_task_is_run_again(folder: RunFolder) -> None:
    """And until then the old record is what there is."""
    record(folder, 1.0, *ALL)
    redo_tasks(folder.output, {"farm_id": 1})
    new = record(folder, 2.0, 3, 4, 5)
    merge_run(folder)
    new.unlink()
    folder.output.unlink()
    state = state_of(folder)
    assert (list(state.missing_tasks()), state.tasks_done) == ([3, 4, 5], 6)
    assert merged(folder) == ONES


def test_a_merge_that_was_killed_before_it_closed_the_request_loses_nothing(
    folder: RunFolder,
) -> None:
    """The output is new, the request still open: the next merge closes it."""
    record(folder, 1.0, *ALL)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 3, 4, 5)
    requests, note = folder.load_redo(), folder.load_merged()
    merge_run(folder)
    folder.save_redo(requests)
    folder.save_merged(note)
    assert list(state_of(folder).missing_tasks()) == []
    assert merged(folder)[5] == 2.0
    assert not [request for request in folder.load_redo().all if request.is_open]


def test_what_was_not_run_can_be_withdrawn(folder: RunFolder) -> None:
    """What was run stays, and what was redone before stays as it is."""
    record(folder, 1.0, *ALL, at=1000.0)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 3)
    merge_run(folder)
    redo_tasks(folder.output, {"seed": 0})
    report = cancel_redo(folder.output)
    assert (report.tasks, report.with_result, report.is_cancelled) == (4, 4, True)
    assert list(state_of(folder).missing_tasks()) == []
    assert merged(folder) == {**ONES, 3: 2.0}
    assert cancel_redo(folder.output).tasks == 0


def test_what_is_withdrawn_lets_a_result_of_before_count_again(folder: RunFolder) -> None:
    """It had been left out of the output, so the next run has to merge."""
    record(folder, 1.0, *ALL)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 3, at=5.0)
    redo_tasks(folder.output, {"farm_id": 1})
    assert merged(folder) == ONES
    assert is_up_to_date(folder, PLAN)
    cancel_redo(folder.output)
    assert not is_up_to_date(folder, PLAN)
    assert merged(folder) == {**ONES, 3: 2.0}


def test_a_number_is_never_given_twice(folder: RunFolder) -> None:
    """A result that began after a request that was withdrawn is old for the next one."""
    record(folder, 1.0, *ALL)
    redo_tasks(folder.output, {"farm_id": 1})
    cancel_redo(folder.output)
    record(folder, 2.0, 3)
    redo_tasks(folder.output, {"farm_id": 1})
    assert list(state_of(folder).missing_tasks()) == [3, 4, 5]
    folder.redo_path.unlink()
    redo_tasks(folder.output, {"farm_id": 1})
    assert list(state_of(folder).missing_tasks()) == [3, 4, 5]


def test_a_recorder_answers_a_request_that_it_knew(folder: RunFolder) -> None:
    """Its results carry keys, not numbers."""
    record(folder, 1.0, *ALL)
    with Recorder(folder.output) as before:
        redo_tasks(folder.output, {"farm_id": 1})
        before.write(PLAN.key(3), aep=7.0)
    with Recorder(folder.output) as after:
        after.write(PLAN.key(4), aep=2.0)
    assert list(state_of(folder).missing_tasks()) == [3, 5]
    # Of old results the latest counts, until there is a new one.
    assert merged(folder) == {**ONES, 3: 7.0, 4: 2.0}


def test_a_larger_plan_keeps_what_was_asked_for(folder: RunFolder) -> None:
    """Numbers stay; the request names the plan that gave them."""
    record(folder, 1.0, *ALL)
    redo_tasks(folder.output, {"farm_id": 1})
    larger = PLAN.extended(plan_product({"farm_id": range(3), "seed": range(3)}))[0]
    folder.save_plan(larger)
    assert list(read_state(folder, larger).missing_tasks()) == list(range(3, 9))
    stranger = plan_product({"farm_id": range(2), "seed": range(3)})
    assert not read_state(folder, stranger).again


def test_tasks_in_a_list_are_found_by_their_keys(folder: RunFolder) -> None:
    record(folder, 1.0, *ALL)
    assert redo_tasks(folder.output, tasks=[PLAN.key(5), PLAN.key(0)]).tasks == 2
    assert list(state_of(folder).missing_tasks()) == [0, 5]


def test_a_listed_value_that_differs_by_rounding_is_the_one_that_is_there(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "out.h5")
    folder.create()
    folder.save_plan(plan_product({"x": [0.3, 0.4]}))
    assert redo_tasks(folder.output, tasks=[{"x": 0.1 + 0.2}]).tasks == 1


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({}, "say which tasks are to be run again"),
        ({"only": {"farm_id": 2}}, "farm_id has no value 2: it has 0, 1"),
        ({"failed": True}, "no task has failed: name tasks by their values, farm_id=0, 1; s"),
        ({"tasks": [{"farm_id": 5, "seed": 0}]}, "there is no task farm_id=5, seed=0; there are"),
        ({"tasks": [{"farm_id": 1}]}, "has no column seed: it must have farm_id, seed"),
        ({"tasks": [{**PLAN.key(0), "hub": 1}]}, "has a column hub, which is no parameter"),
    ],
)
def test_nothing_to_run_is_a_mistake(
    folder: RunFolder, chosen: dict[str, object], says: str
) -> None:
    """The message names what there is, and nothing is changed."""
    record(folder, 1.0, *ALL)
    with pytest.raises(UsageError) as caught:
        redo_tasks(folder.output, **chosen)  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert not folder.redo_path.exists()


def test_a_folder_without_tasks_has_none_to_run_again(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "layouts.h5")
    folder.create()
    with pytest.raises(UsageError, match="there are no tasks in"):
        redo_tasks(folder.output, {"farm_id": 1})
    assert cancel_redo(folder.output).tasks == 0


def test_a_run_that_is_going_on_is_not_disturbed(folder: RunFolder) -> None:
    """Its workers would not know of the request."""
    record(folder, 1.0, *ALL)
    words = [sys.executable, "-m", "h5sweep", "redo", str(folder.output), "farm_id=1"]
    with holding_folder(folder):
        done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == LockedError.exit_code
    assert "is working on layouts.h5; watch it with: h5sweep status" in done.stderr
    assert not folder.redo_path.exists()


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"last": "1", "requests": []}', '{"last": 1, "requests": [{}]}']
)
def test_a_damaged_request_file_is_named(folder: RunFolder, content: str) -> None:
    folder.redo_path.write_text(content)
    with pytest.raises(DamagedError, match=r"redo\.json is damaged .*move it away, and name"):
        read_state(folder, PLAN)


# What may be removed


def removable(folder: RunFolder) -> dict[str, bool]:
    report = find_removable(folder.output)
    found = {item.path.name: True for item in report.removable}
    return found | {kept.path.name: False for kept in report.kept}


def test_an_old_record_goes_once_the_output_has_the_new_result(folder: RunFolder) -> None:
    """Before that the new record stays, because the output does not have it."""
    old = record(folder, 1.0, *ALL)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    assert removable(folder) == {old.name: True}
    new = record(folder, 2.0, 3, 4, 5)
    assert removable(folder) == {old.name: True, new.name: False}
    merge_run(folder)
    assert removable(folder) == {old.name: True, new.name: True}


def test_an_old_record_that_was_never_merged_stays_until_there_is_a_new_one(
    folder: RunFolder,
) -> None:
    """It is the only copy of that result."""
    record(folder, 1.0, *ALL)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    other = record(folder, 7.0, 3, redo=0)
    assert removable(folder)[other.name] is False
    record(folder, 2.0, 3)
    merge_run(folder)
    assert removable(folder)[other.name] is True


def test_an_old_record_stays_if_the_output_lacks_its_task(folder: RunFolder) -> None:
    """What was asked for and merged is no reason to let go of anything else in a file."""
    old = record(folder, 1.0, 0, 3)
    merge_run(folder)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 3)
    merge_run(folder)
    other = record(folder, 5.0, 1, 3, redo=0)
    assert removable(folder)[old.name] is True
    assert removable(folder)[other.name] is False


def test_a_run_folder_with_old_and_new_records_is_merged_into_another_output(
    folder: RunFolder,
) -> None:
    """The old ones are no conflict once the new ones were merged."""
    record(folder, 1.0, *ALL)
    redo_tasks(folder.output, {"farm_id": 1})
    record(folder, 2.0, 3, 4, 5)
    merge_run(folder)
    other = folder.output.with_name("other.h5")
    merge_files(folder.path, other)
    assert sorted(rows(RunFolder(other)).values()) == [1.0] * 3 + [2.0] * 3
