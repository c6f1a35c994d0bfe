"""How far a sweep has got: read from its run folder, shown as text or JSON. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.plan import Key, Plan, Value, key_text, plain_key, plain_value
from ..base.process_id import ProcessId
from ..base.safe_text import json_text, printable
from ..base.units import command_text, count_text, cut_middle
from ..disk.find_files import PathLike
from ..runfolder.layout import RunFolder
from ..runfolder.lock import held_since, lock_owner
from ..runfolder.records import FINISHED_AT
from ..state.expected_tasks import existing_folder, read_expected_state
from ..state.state import FolderState
from ..state.state_notes import left_out_text, refusal_texts
from .time_left import Pace, RunningTask

STATUS_SCHEMA = "h5sweep.status/1"
MOST_VALUES = 12
VALUE_WIDTH = 16
BAR_WIDTH = 20
MOST_VALUES_COUNTED = 50
DURATIONS_READ = 50  # of a run, to say how long its tasks usually take


@dataclass(frozen=True)
class Running:
    """A task that a process is working on, and when it began."""

    task: int
    key: Key
    process: ProcessId
    since: float


@dataclass(frozen=True)
class LockHolder:
    """Who holds the run folder's lock, and since when, unless that process is dead.

    `alive` is None if that cannot be seen from here.
    """

    alive: bool | None = False
    process: ProcessId | None = None
    since: float | None = None

    @classmethod
    def of(cls, owner: ProcessId | None, since: float | None = None) -> LockHolder:
        if owner is None:
            return cls()
        alive = owner.is_alive()
        return cls(alive, owner, None if alive is False else since)


@dataclass(frozen=True)
class Status:
    """What `status` answers."""

    output: str
    output_exists: bool
    is_declared: bool
    run: LockHolder
    tasks: int
    done: int
    failed: int
    running: tuple[Running, ...]
    damaged_records: int
    unreadable_files: int
    beyond_plan: int
    not_merged: int  # these, and others that the output lacks
    undeclared: int  # results of tasks that should not be there
    left_out: int
    left_out_text: str
    refusal_texts: tuple[str, ...]
    pace: Pace
    columns: Mapping[str, tuple[tuple[Value, int, int], ...]]  # each value: tasks done, of all
    again: int = 0  # of those done, to be run again
    again_waiting: int = 0  # of these, neither running nor failed

    @property
    def missing(self) -> int:
        """How many tasks are known to lack a result that counts."""
        return self.tasks - self.done

    @property
    def per_hour(self) -> float | None:
        """Tasks that the run ends in an hour, since it began; None if none is going on."""
        return None if self.pace.per_s is None else 3600 * self.pace.per_s

    @property
    def waits(self) -> bool:
        """Whether there is anything to run."""
        return self.missing > self.left_out or self.again > 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is recorded, nor said what should be."""
        return not self.is_declared and not self.tasks

    @property
    def is_complete(self) -> bool:
        """Whether it was said which tasks there should be, and every result counts and stays."""
        return self.is_declared and not self.missing and not self.again

    def __str__(self) -> str:
        return status_text(self).rstrip("\n")


def read_status(output: PathLike, *, most_values: int | None = None) -> Status:
    """How far the sweep of `output` is, from its run folder alone; right during a run.

    Key columns of more than `most_values` values are not counted.
    """
    return status_in(existing_folder(output), most_values=most_values)


def status_in(
    folder: RunFolder,
    expected: Plan | None = None,
    by: str = "",
    *,
    most_values: int | None = None,
) -> Status:
    """The same of a run folder that may not be there yet; `expected` as for its state."""
    # Before the state: what is read after a run has ended is what it left.
    run = LockHolder.of(lock_owner(folder.lock_path), held_since(folder.lock_path))
    state = read_expected_state(folder, expected, by)
    is_there = folder.output.exists()
    return status_of(state, str(folder.output), is_there, most_values=most_values, run=run)


def status_of(
    state: FolderState,
    output: str,
    output_exists: bool,
    *,
    most_values: int | None = None,
    run: LockHolder | None = None,
) -> Status:
    """Sum a state up; key columns of more than `most_values` values are left out."""
    beyond_plan = _count_keys(key for key, _ in state.beyond_plan)
    left_out = _count_keys(key for key, _ in state.left_out)
    again = state.again_done
    running = tuple(
        Running(task, state.plan.key(task), process, since)
        for task, (process, since) in sorted(state.running.items())
    )
    return Status(
        output=output,
        output_exists=output_exists,
        is_declared=state.is_declared,
        run=run or LockHolder(),
        tasks=state.tasks_total + beyond_plan + left_out,
        done=state.tasks_done + beyond_plan,
        failed=state.tasks_failed,
        running=running,
        damaged_records=len(state.damages),
        unreadable_files=len(state.unreadable),
        beyond_plan=beyond_plan,
        not_merged=state.results_not_merged + beyond_plan,
        undeclared=len(state.done_undeclared),
        left_out=left_out,
        left_out_text=left_out_text(state) if left_out else "",
        refusal_texts=tuple(refusal_texts(state)),
        pace=_pace_of(state, running, run.since if run else None),
        columns={n: tuple(counts) for n, counts in state.counts_by_column(most_values).items()},
        again=len(again),
        again_waiting=sum(t not in state.running and t not in state.failures for t in again),
    )


def _pace_of(state: FolderState, running: Iterable[Running], begun: float | None) -> Pace:
    """How fast the run goes that began at `begun`."""
    now = time.time()
    begun = now if begun is None else begun
    done = [task for task, at in enumerate(state.finished_at) if at >= begun]
    failures_at = (place.frame[FINISHED_AT] for place in state.failures.values())
    failed_at = [at for at in failures_at if at >= begun]
    sample_s = state.durations_s(done[:: len(done) // DURATIONS_READ + 1])
    return Pace(
        ended=len(done) + len(failed_at),
        elapsed_s=now - begun,
        left=state.tasks_total - state.tasks_done + len(state.again_done) - len(failed_at),
        quiet_s=now - max([begun, *failed_at, *(state.finished_at[task] for task in done)]),
        usual_s=sum(sample_s) / len(sample_s) if sample_s else None,
        running=tuple(
            RunningTask(key_text(r.key), max(now - r.since, 0.0), str(r.process)) for r in running
        ),
    )


def _count_keys(keys: Iterable[Key]) -> int:
    """How many tasks these are: one that was recorded twice is one."""
    return len({frozenset((n, type(v), v) for n, v in key.items()) for key in keys})


def status_text(status: Status) -> str:
    """`status` for people."""
    return "".join(f"{printable(line, breaks='')}\n" for line in _status_lines(status))


def status_screen(status: Status, columns: int, lines: int) -> str:
    """The same on a terminal, with only as many values and running tasks as it has room for."""
    found = _fitting_lines(status, columns, lines - 1)  # one is for the cursor
    if len(found) >= lines:
        found = [*found[: max(lines - 2, 0)], found[-1]]
    return "".join(f"{cut_middle(printable(line, breaks=''), columns)}\n" for line in found)


def _fitting_lines(status: Status, width: int, most_lines: int) -> list[str]:
    """The most that fits: first fewer values of each key column, then fewer of these."""
    names = list(status.columns)
    for kept in range(len(names), -1, -1):
        shown = replace(status, columns={name: status.columns[name] for name in names[:kept]})
        for most in range(MOST_VALUES, 1 if kept else -1, -1):
            found = list(_status_lines(shown, most, width))
            if len(found) <= most_lines:
                return found
    return found


def _status_lines(
    status: Status, most: int = MOST_VALUES, width: int | None = None
) -> Iterator[str]:
    yield _head_line(status)
    yield from (f"  {line}" for line in _summary_lines(status, width and width - 2))
    yield from _column_lines(status, most, width)
    for task in status.pace.longest_first[:most]:
        yield f"  running  {task.line(width and width - 11)}"
    yield from _closing_lines(status)


def _summary_lines(status: Status, width: int | None) -> Iterator[str]:
    left = status.missing + status.again - status.failed - len(status.running)
    waiting = left - status.again_waiting - status.left_out
    rest = "not finished" if status.run.alive is False else "waiting"
    counts = {"failed": status.failed, "running": len(status.running), rest: waiting}
    counts["done, but to be run again"] = status.again_waiting
    if parts := [f"{count:,} {what}" for what, count in counts.items() if count > 0]:
        yield ", ".join(parts)
    if words := status.pace.words():
        yield ", ".join(words)
    yield from status.pace.long_line(width)
    if status.damaged_records and status.missing:
        them = "its task" if status.damaged_records == 1 else "their tasks"
        yield f"{count_text(status.damaged_records, 'damaged record')}: `run` runs {them} again"
    yield from status.refusal_texts
    if status.unreadable_files:
        files = count_text(status.unreadable_files, "record file")
        yield f"{files} with an unreadable beginning"
    if status.beyond_plan or (status.not_merged and status.output_exists and not status.run.alive):
        yield f"{count_text(status.not_merged, 'result')} not merged yet"
    if status.left_out:
        yield status.left_out_text


def _head_line(status: Status) -> str:
    if status.is_empty:
        return f"{status.output}: nothing is recorded yet"
    if not status.is_declared:
        return f"{status.output}: {status.done:,} done; no run has declared how many there are"
    share = 100 * status.done / max(status.tasks, 1)
    done = f"{status.done:,} of {status.tasks:,} done ({share:.1f} %)"
    return f"{status.output}: {done}{undeclared_text(status.undeclared)}"


def undeclared_text(results: int) -> str:
    """What to say behind a count, if there are results of tasks that are not counted."""
    return f"; {count_text(results, 'result')} of tasks that are not declared" if results else ""


def _column_lines(status: Status, most: int, width: int | None) -> Iterator[str]:
    for name, counts in status.columns.items():
        if len(counts) < 2:
            continue
        yield f"  {name}"
        by_share = sorted(range(len(counts)), key=lambda place: _share(counts[place]))
        for place in sorted(by_share[:most]):
            if status.is_declared:
                yield _value_line(*counts[place], width)
            else:
                yield _count_line(*counts[place][:2], width)
        if rest := [_share(counts[place]) for place in by_share[most:]]:
            words = f", {_share_words(rest)}" if status.is_declared else ""
            yield f"    {'…':>{VALUE_WIDTH}}  {len(rest):,} more{words}"


def _value_line(value: Value, done: int, total: int, width: int | None) -> str:
    """One value of a key column; to fit a width, first the bar is shortened."""
    counts = f"{_count_line(value, done, width)} of {total:<9,} "
    room = BAR_WIDTH if width is None else min(BAR_WIDTH, max(width - len(counts), 0))
    return counts + _bar(done, total, room)


def _count_line(value: Value, done: int, width: int | None) -> str:
    """The same where nobody has said how many there should be."""
    text = str(value) if width is None else cut_middle(str(value), VALUE_WIDTH)
    return f"    {text:>{VALUE_WIDTH}}  {done:>9,}"


def _share(count: tuple[object, int, int]) -> float:
    _, done, total = count
    return done / max(total, 1)


def _share_words(ascending: list[float]) -> str:
    """How far those values are that are not shown because others are less far."""
    if ascending[0] == 1:
        return "all done"
    return "with an equal or larger share done" if ascending[-1] else "with nothing done"


def _bar(done: int, total: int, width: int) -> str:
    filled = width * done // max(total, 1)
    return "█" * filled + "·" * (width - filled)


def _closing_lines(status: Status) -> Iterator[str]:
    """Whether a run is going on, and what to do next."""
    run = status.run
    if run.alive:
        yield f"a run is active ({run.process})"
    elif run.alive is None:
        yield f"a run may be active ({run.process}); this cannot be seen from here"
    elif status.is_declared and status.waits:
        yield "no run is active: start the run again"
    missing = command_text("missing", status.output)
    if status.waits:
        yield f"next: {missing} lists what is missing, and why"
    elif run.alive is not False or status.is_empty:
        return
    elif status.not_merged or not status.output_exists:
        yield f"next: {command_text('merge', status.output)} writes the output"
    elif status.is_complete:
        yield "complete"
    elif not status.is_declared:
        yield f"next: {missing} --expect TASKS (a study or CSV) lists what is missing"


def status_json(status: Status) -> str:
    """`status` for programs."""
    value = {
        "schema": STATUS_SCHEMA,
        "output": status.output,
        "output_exists": status.output_exists,
        "declared": status.is_declared,
        "tasks": status.tasks,
        "done": status.done,
        "failed": status.failed,
        "run": {"alive": status.run.alive, **_plain_process(status.run.process)},
        "running": [
            {"task": r.task, "key": plain_key(r.key), "since": r.since} | _plain_process(r.process)
            for r in status.running
        ],
        "missing": status.missing if status.is_declared else None,
        "again": status.again,
        "damaged_records": status.damaged_records,
        "unreadable_files": status.unreadable_files,
        "results_beyond_plan": status.beyond_plan,
        "results_not_merged": status.not_merged,
        "results_left_out": status.left_out,
        "results_undeclared": status.undeclared,
        "per_hour": status.per_hour,
        "columns": {
            name: [
                {"value": plain_value(v), "done": done, "tasks": total} for v, done, total in counts
            ]
            for name, counts in status.columns.items()
        },
    }
    return json_text(value)


def _plain_process(process: ProcessId | None) -> dict[str, Any]:
    return {name: getattr(process, name, None) for name in ("pid", "host")}
