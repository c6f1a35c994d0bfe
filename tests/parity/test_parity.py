"""Every command gives one answer about one folder: the table of layouts × ways of asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import h5sweep
from h5sweep import FilesReport
from h5sweep.base.listed_plan import plan_list
from h5sweep.clean.removable_files import find_removable
from h5sweep.errors import DamagedError, SweepError, UsageError
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runner.status import status_of
from h5sweep.state.expected_tasks import read_expected_state, require_declared
from h5sweep.worker_files.findings import State
from layouts import LAYOUTS, Layout, Truth
from readers import NEXT_STEP, is_same, lacks, objects_of, rows_of
from salvage_checks import read_results
from terminal import Terminal

SKIP = h5sweep.Policy(h5sweep.OnDamaged.SKIP)
SALVAGE = h5sweep.Policy(h5sweep.OnDamaged.SALVAGE)


@dataclass
class Asked:
    """A folder of one layout, and what is said of it; each question is put once."""

    layout: Layout
    folder: Path

    @property
    def night(self) -> Path:
        return self.folder / "night"

    @cached_property
    def truth(self) -> Truth:
        self.night.mkdir()
        return self.layout.write(self.night)

    @cached_property
    def kept(self) -> FilesReport | SweepError:
        """A merge that keeps the shape."""
        return self._merge("kept.h5", policy=SKIP if self.truth.damaged else None)

    @cached_property
    def swept(self) -> FilesReport | SweepError:
        """A merge with the key; what is damaged is salvaged."""
        policy = SALVAGE if self.truth.damaged else None
        return self._merge("swept.h5", key=self.layout.key, policy=policy)

    def _merge(self, name: str, **options: Any) -> FilesReport | SweepError:
        try:
            return h5sweep.merge_files(self.night, self.folder / name, **options)
        except SweepError as error:
            return error

    def is_refused(self, answer: FilesReport | SweepError, words: str) -> bool:
        """Whether a merge was refused, as it should be; the refusal names a next step."""
        if self.truth.conflict:
            words = "--on-conflict"
        if not words:
            if isinstance(answer, SweepError):
                raise answer
            return False
        assert isinstance(answer, SweepError)
        assert answer.exit_code in (2, 3)
        assert re.search(words, str(answer)), str(answer)
        assert NEXT_STEP.search(str(answer)), str(answer)
        return True

    @property
    def is_kept_refused(self) -> bool:
        return self.is_refused(self.kept, self.truth.refused)

    @property
    def is_swept_refused(self) -> bool:
        return self.is_refused(self.swept, self.truth.refused_key)


def rows(question: str) -> Callable[[Any], Any]:
    """A test for each row of the table; what fails today must fail, so that nobody forgets it."""
    table = []
    for layout in LAYOUTS:
        why = layout.fails.get(question)
        marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
        table.append(pytest.param(layout, id=layout.name, marks=marks))
    return pytest.mark.parametrize("layout", table)


ASKED: dict[tuple[str, str], Asked] = {}


def put_once(layout: Layout, how: str, folders: pytest.TempPathFactory) -> Asked:
    if (layout.name, how) not in ASKED:
        ASKED[layout.name, how] = Asked(layout, folders.mktemp(layout.name))
    found = ASKED[layout.name, how]
    assert found.truth
    return found


@pytest.fixture
def asked(
    layout: Layout, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Asked:
    how = request.getfixturevalue("way") if "way" in request.fixturenames else "one by one"
    return put_once(layout, how, tmp_path_factory)


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> h5sweep.CheckReport:
    """All folders at once, which is quicker by as many starts of a process."""
    every = [put_once(layout, "one by one", tmp_path_factory) for layout in LAYOUTS]
    return h5sweep.check_files([asked.night for asked in every], processes=1)


def names(found: Iterable[Any]) -> set[str]:
    return {Path(one.path).name for one in found}


def assert_rows(found: dict[Any, Any], truth: Truth) -> None:
    """The same tasks, with the same values under the same names."""
    assert sorted(found) == sorted(truth.tasks)
    for key, expected in truth.tasks.items():
        row = {name: found[key][name] for name in expected} if truth.is_open else found[key]
        assert_values(row, expected)


def assert_values(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert is_same(found[name], value), (name, found[name], value)


def results(asked: Asked) -> FilesReport:
    assert isinstance(asked.swept, FilesReport)
    return asked.swept


def lacking(asked: Asked, path: Path) -> list[str]:
    """What of a file is not in the merged one, but what is no result anyway."""
    assert isinstance(asked.kept, FilesReport)
    missing = lacks(asked.kept.output, path)
    return [name for name in missing if not re.fullmatch(asked.truth.nothing, name.split("@")[0])]


@rows("check")
def test_check_says_what_merge_takes(asked: Asked, checked: h5sweep.CheckReport) -> None:
    """The files that a merge takes are those of which a check says so, with as many tasks."""
    truth = asked.truth
    files = tuple(f for f in checked.files if Path(f.path).parent == asked.night)
    report = replace(checked, files=files)
    sound = {Path(f.path).name: f.tasks for f in report.files if f.is_mergeable}
    there = {path.name for path in asked.night.iterdir()} - {*truth.damaged}
    assert set(sound) == there or (asked.is_kept_refused and set(sound) < there)
    assert report.exit_code == (0 if all(f.state is State.SOUND for f in report.files) else 3)
    if not asked.is_kept_refused:
        assert isinstance(asked.kept, FilesReport)
        taken = {Path(one.path).name: one.tasks for one in asked.kept.taken}
        assert {name: tasks for name, tasks in taken.items() if tasks} == {
            name: tasks for name, tasks in sound.items() if tasks
        }
        assert asked.kept.tasks == sum(taken.values()) - asked.kept.duplicates


@rows("check_key")
def test_check_counts_the_tasks_that_there_are(asked: Asked) -> None:
    """With the key, a check knows every task."""
    truth = asked.truth
    report = h5sweep.check_files(asked.night, key=asked.layout.key, processes=1)
    there = len(truth.tasks) + truth.unread
    assert report.totals["tasks"] == there + truth.twice + truth.conflict
    assert report.comparison is not None
    assert report.comparison.tasks_done == there


@rows("merge")
def test_merge_keeps_everything(asked: Asked, way: str) -> None:
    """After a merge that keeps the shape, all that is in the files is in the output."""
    if asked.is_kept_refused:
        return
    assert isinstance(asked.kept, FilesReport)
    assert names(asked.kept.refused) == {*asked.truth.damaged}
    for path in sorted(asked.night.iterdir()):
        if path.name not in asked.truth.damaged:
            assert not lacking(asked, path), path.name
    skipped = [name for one in asked.kept.taken for name in one.skipped]
    assert all(re.fullmatch(asked.truth.nothing, name) for name in skipped)


@rows("stop")
def test_a_damaged_file_stops_a_merge(asked: Asked) -> None:
    """Unless somebody has said what to do about it, a merge writes nothing and says what to do."""
    for options in ({}, {"key": asked.layout.key}) if asked.truth.damaged else ():
        with pytest.raises(DamagedError) as caught:
            h5sweep.merge_files(asked.night, asked.folder / "stopped.h5", **options)
        assert all(name in str(caught.value) for name in asked.truth.damaged)
        assert "--on-damaged skip" in str(caught.value)
        assert not (asked.folder / "stopped.h5").exists()


@rows("merge_key")
def test_merge_with_a_key_gives_the_rows(asked: Asked, way: str) -> None:
    """With the key every task is a row, with all its values and the attributes of columns."""
    if asked.is_swept_refused:
        return
    truth, report = asked.truth, results(asked)
    assert (report.tasks, report.duplicates) == (len(truth.tasks), truth.twice)
    assert_rows(rows_of(report.output), truth)
    columns = objects_of(report.output)
    for name, attributes in truth.attributes.items():
        assert_values({n: columns[f"/{name}"][1].get(n) for n in attributes}, attributes)


@rows("salvage")
def test_salvage_gives_what_merge_gives(asked: Asked) -> None:
    """Salvage of any folder gives the tasks and values that a merge with the key gives."""
    truth, to = asked.truth, asked.folder / "salvaged"
    report = h5sweep.salvage_files(asked.night, to=to, key=asked.layout.key)
    found = {k: v for file in report.files for k, v in read_results(file.records).items()}
    if truth.conflict:
        assert {*found} <= {*truth.tasks}
        return
    assert_rows(found, truth)
    assert report.recovered == len(truth.tasks) + truth.twice
    assert report.exit_code == (3 if truth.lost else 0)
    if not asked.is_swept_refused:
        merged = h5sweep.merge_files(to, asked.folder / "again.h5")
        expected = rows_of(results(asked).output)
        for key, row in rows_of(merged.output).items():
            assert_values(row, expected[key])


@rows("clean")
def test_clean_removes_what_the_merged_file_holds(asked: Asked) -> None:
    """After a merge that keeps the shape, what goes is in the output, and all that is, may go."""
    if asked.is_kept_refused:
        return
    assert isinstance(asked.kept, FilesReport)
    report = find_removable(asked.kept.output)
    assert not [name for item in report.removable for name in lacking(asked, item.path)]
    assert names(report.removable) == {Path(one.path).name for one in asked.kept.taken}


@rows("clean_key")
def test_clean_removes_what_the_rows_hold(asked: Asked) -> None:
    """After a merge with the key, files that are damaged or hold what is in no row stay."""
    if asked.is_swept_refused:
        return
    output = results(asked).output
    going = names(find_removable(output).removable) - names(_records(output))
    taken = {Path(one.path).name for one in results(asked).taken}
    assert going == taken - {*asked.truth.damaged, *asked.truth.beside}


def _records(output: Path) -> list[Any]:
    return [type("Record", (), {"path": path}) for path in RunFolder(output).record_paths()]


@rows("status")
def test_status_and_missing_count_the_same_tasks(asked: Asked) -> None:
    """After a merge with the key, as many tasks are done as were merged; others are missing."""
    if asked.is_swept_refused:
        return
    folder = RunFolder(results(asked).output)
    status = status_of(read_expected_state(folder), str(folder.output), True)
    assert not status.is_complete  # nobody has said which tasks there should be
    assert status.done == results(asked).tasks == len(asked.truth.tasks)
    another = {"farm_id": 77, "seed": 1}
    keys = [dict(zip(another, key, strict=True)) for key in asked.truth.tasks]
    state = read_expected_state(folder, plan_list([*keys, another]))
    assert [task.key for task in state.missing()] == [another]


@rows("missing")
def test_nobody_has_said_which_tasks_there_should_be(asked: Asked) -> None:
    """After a merge with the key, what is missing isn't known: `missing` asks for it."""
    if asked.is_swept_refused:
        return
    folder = RunFolder(results(asked).output)
    with pytest.raises(UsageError, match="--expect"):
        require_declared(read_expected_state(folder), folder)


SHOWN = ("groups_flat", "columns", "a_file_of_no_bytes", "a_task_with_two_values")


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one.name in SHOWN], ids=SHOWN)
def test_commands_say_the_same(layout: Layout, terminal: Terminal) -> None:
    """Exit codes and counts of the commands agree with each other."""
    truth = Asked(layout, terminal.folder).truth
    check = terminal.json("check", "night", check=3 if truth.damaged else 0)
    merge = ("merge", "night", "-o", "out.h5", "--key", layout.key)
    if truth.conflict or truth.damaged:
        refused = terminal.run(*merge, check=3)
        assert NEXT_STEP.search(refused.stderr)
        assert not (terminal.folder / "out.h5").exists()
    if truth.conflict:
        return
    policy = ["--on-damaged", "skip"] if truth.damaged else []
    merged = terminal.json(*merge, *policy, check=0)
    assert merged["tasks"] == check["totals"]["tasks"] == len(truth.tasks)
    assert terminal.json("status", "out.h5", check=0)["done"] == len(truth.tasks)
    salvage = terminal.json("salvage", "night", "--key", layout.key, check=0)
    assert salvage["recovered"] == len(truth.tasks)
