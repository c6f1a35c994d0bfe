"""How far a sweep has got: read from its run folder, shown as text or JSON. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.plan import GroupCount, Key, Plan, Value, key_text, plain_key, plain_value
from ..base.process_id import ProcessId
from ..base.safe_text import json_text, printable
from ..base.selection import require_parameters
from ..base.static_html import bar_html, folded_html, lines_html, table_html, text_html
from ..base.units import command_text, count_text, duration_text
from ..batch.submissions import QueuedJobs, queued_jobs, read_submissions
from ..disk.find_files import PathLike
from ..runfolder.layout import RunFolder
from ..runfolder.lock import held_since, lock_owner
from ..runfolder.parts import Part, read_parts
from ..state.expected_tasks import existing_folder, read_expected_state
from ..state.state import FolderState
from ..state.state_counts import count_columns, count_groups, count_salvaged
from ..state.state_notes import damage_text, left_out_text, not_stored_text, refusal_texts
from .failures import FailureCause, failure_causes
from .key_table import table_lines
from .time_left import Pace, RunningTask, pace_since

STATUS_SCHEMA = "h5sweep.status/1"
MOST_VALUES = 12
MOST_VALUES_COUNTED = 50
MOST_PARTS = 1  # that are named, so that a line has 80 columns
QUEUE_KNOWN_FOR_S = 10.0  # so often a batch system is asked by who watches a sweep
COLORS = {"done": "#2e7d32", "salvaged": "#00838f", "failed": "#c62828", "running": "#f9a825"}
REST_COLOR = "#bbb"
MOST_CAUSES = 3  # of failures, that are named


@dataclass(frozen=True)
class Running:
    """A task that a process is working on, and when it began."""

    task: int
    key: Key
    process: ProcessId
    since: float
    memory_bytes: int = 0  # that its process uses; 0 if that cannot be seen from here

    def seen(self) -> RunningTask:
        """How long it has run by now, in words for its key and process."""
        running_s = max(time.time() - self.since, 0.0)
        return RunningTask(key_text(self.key), running_s, str(self.process), self.memory_bytes)


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
    damage_text: str  # what these have cost
    unreadable_files: int
    beyond_plan: int
    not_merged: int  # these, and others that the output lacks
    undeclared: int  # results of tasks that should not be there
    left_out: int
    left_out_text: str
    refusal_texts: tuple[str, ...]
    pace: Pace
    columns: Mapping[str, tuple[tuple[Value, int, int], ...]]  # each value: tasks done, of all
    parts: tuple[Part, ...] = ()  # that are at work, as far as anybody here can say
    jobs: QueuedJobs | None = None  # that were submitted and are not over, or may not be
    was_submitted: bool = False  # to a batch system, whatever became of it
    failed_running: int = 0  # of those that failed, running once more
    again: int = 0  # of those done, to be run again
    again_waiting: int = 0  # of these, neither running nor failed
    salvaged: int = 0  # of those done, found in damaged files
    causes: tuple[FailureCause, ...] = ()  # of failures, the commonest first
    by: tuple[str, ...] = ()  # the key columns whose combinations were to be counted
    groups: tuple[GroupCount, ...] = ()  # each combination: tasks done, of all
    not_stored_text: str = ""  # which results lack values

    @property
    def is_active(self) -> bool | None:
        """Whether a run or a part is at work, or queued; None if nobody here can say."""
        alive = [self.run.alive, *(part.is_alive for part in self.parts), self.is_queued]
        return True if True in alive else None if None in alive else False

    @property
    def is_queued(self) -> bool | None:
        """Whether jobs are; None if nobody answers, and there is something for them to do."""
        if self.jobs is None or self.jobs.is_answered:
            return self.jobs is not None
        return None if self.waits else False

    @property
    def missing(self) -> int:
        """How many tasks are known to lack a result that counts."""
        return self.tasks - self.done

    @property
    def per_hour(self) -> float | None:
        """Tasks that the run ends in an hour, since it began; None if none is going on."""
        return None if self.pace.per_s is None else 3600 * self.pace.per_s

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks are done, failed and so on; those that are none are left out.

        A task that has failed or is running again may have an older result.
        """
        failed = self.failed - self.failed_running
        left = self.missing + self.again - failed - len(self.running)
        rest = "not finished" if self.is_active is False else "waiting"
        counts = {
            "done": self.done,
            "salvaged": self.salvaged,
            "failed": failed,
            "running": len(self.running),
            rest: left - self.again_waiting - self.left_out,
            "done, but to be run again": self.again_waiting,
        }
        return {what: count for what, count in counts.items() if count > 0}

    @property
    def tables(self) -> dict[str, tuple[GroupCount, ...]]:
        """What to show of the key: the combinations that were asked for, or each column."""
        if self.by:
            return {", ".join(self.by): self.groups}
        columns = {name: counts for name, counts in self.columns.items() if len(counts) > 1}
        return {name: tuple(((v,), n, of) for v, n, of in c) for name, c in columns.items()}

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

    def _repr_html_(self) -> str:
        return status_html(self)


def read_status(
    output: PathLike, *, most_values: int | None = None, by: Sequence[str] = ()
) -> Status:
    """How far the sweep of `output` is, from its run folder alone; right during a run.

    Key columns of more than `most_values` values are not counted. `groups` counts each combination
    of the values of the key columns `by`.
    """
    return status_in(existing_folder(output), most_values=most_values, count_by=by)


def status_in(
    folder: RunFolder,
    expected: Plan | None = None,
    by: str = "",
    *,
    most_values: int | None = None,
    count_by: Sequence[str] = (),
) -> Status:
    """The same of a run folder that may not be there yet; `expected` as for its state."""
    return state_and_status(folder, expected, by, most_values=most_values, count_by=count_by)[1]


def state_and_status(
    folder: RunFolder,
    expected: Plan | None = None,
    by: str = "",
    *,
    most_values: int | None = None,
    count_by: Sequence[str] = (),
) -> tuple[FolderState, Status]:
    """The status, and the state of each task that it sums up."""
    # Before the state: what is read after a run has ended is what it left.
    jobs = queued_jobs(folder, known_for_s=QUEUE_KNOWN_FOR_S)
    run = LockHolder.of(lock_owner(folder.lock_path), held_since(folder.lock_path))
    parts = [part for part in read_parts(folder) if part.is_alive is not False]
    state = read_expected_state(folder, expected, by)
    is_there = folder.output.exists()
    name = str(folder.output)
    found = status_of(
        state, name, is_there, most_values=most_values, run=run, parts=parts, by=count_by
    )
    was_submitted = bool(read_submissions(folder))
    return state, replace(found, jobs=jobs, was_submitted=was_submitted)


def status_of(
    state: FolderState,
    output: str,
    output_exists: bool,
    *,
    most_values: int | None = None,
    run: LockHolder | None = None,
    parts: Sequence[Part] = (),
    by: Sequence[str] = (),
) -> Status:
    """Sum a state up; key columns of more than `most_values` values are left out."""
    beyond_plan = _count_keys(key for key, _ in state.beyond_plan)
    left_out = _count_keys(key for key, _ in state.left_out)
    again = state.again_done
    if by:
        require_parameters(state.plan, by)
    running = tuple(
        Running(task, state.plan.key(task), process, since, process.resident_bytes())
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
        damage_text=damage_text(state),
        unreadable_files=len(state.unreadable),
        beyond_plan=beyond_plan,
        not_merged=state.results_not_merged + beyond_plan,
        undeclared=len(state.done_undeclared),
        left_out=left_out,
        left_out_text=left_out_text(state) if left_out else "",
        refusal_texts=tuple(refusal_texts(state)),
        pace=pace_since(state, _begun(run, parts), map(Running.seen, running)),
        columns={n: tuple(counts) for n, counts in count_columns(state, most_values).items()},
        parts=tuple(parts),
        failed_running=sum(task in state.failures for task in state.running),
        again=len(again),
        again_waiting=sum(t not in state.running and t not in state.failures for t in again),
        salvaged=count_salvaged(state),
        causes=tuple(failure_causes(state)),
        by=tuple(by),
        groups=tuple(count_groups(state, by)) if by else (),
        not_stored_text=not_stored_text(state),
    )


def _begun(run: LockHolder | None, parts: Sequence[Part]) -> float | None:
    """When the run that goes on began, or the first of its parts."""
    since = run.since if run else None
    return min((part.since for part in parts), default=since)


def _count_keys(keys: Iterable[Key]) -> int:
    """How many tasks these are: one that was recorded twice is one."""
    return len({frozenset((n, type(v), v) for n, v in key.items()) for key in keys})


def status_text(status: Status) -> str:
    """`status` for people."""
    return "".join(f"{printable(line, breaks='')}\n" for line in _status_lines(status))


def status_parts(status: Status) -> tuple[str, list[str], list[str]]:
    """What `status` says besides counts: how far it is, what is amiss, what to do next."""
    amiss = [*pace_lines(status), *note_lines(status), *cause_lines(status, MOST_CAUSES)]
    return head_line(status), amiss, list(closing_lines(status))


def _status_lines(status: Status) -> Iterator[str]:
    head, amiss, closing = status_parts(status)
    yield head
    if parts := [f"{count:,} {what}" for what, count in status.counts.items() if what != "done"]:
        yield f"  {', '.join(parts)}"
    yield from (f"  {line}" for line in amiss)
    for title, counts in status.tables.items():
        most = len(counts) if status.by else MOST_VALUES
        yield from table_lines(title, counts, most, is_declared=status.is_declared)
    for task in status.pace.longest_first[:MOST_VALUES]:
        yield f"  running  {task.line()}"
    yield from closing


def pace_lines(status: Status, width: int | None = None) -> Iterator[str]:
    """How fast the run is, when it ends, and what has run far too long."""
    if words := status.pace.words():
        yield ", ".join(words)
    yield from status.pace.long_line(width)


def cause_lines(status: Status, most: int) -> Iterator[str]:
    """Why tasks failed, a line for each cause."""
    left = len(status.causes) - most
    yield from map(str, status.causes[: most if left <= 0 else most - 1])
    if left > 0:
        yield f"… and {count_text(left + 1, 'other cause')} of failures"
    looked_at = sum(cause.tasks for cause in status.causes)
    if most and looked_at < status.failed:
        yield f"(these are the causes of {looked_at:,} of {status.failed:,} failures)"


def note_lines(status: Status) -> Iterator[str]:
    """What is damaged, not merged yet, or left out."""
    if status.damage_text:
        yield status.damage_text
    yield from status.refusal_texts
    if status.unreadable_files:
        files = count_text(status.unreadable_files, "record file")
        yield f"{files} with an unreadable beginning"
    if status.beyond_plan or (status.not_merged and status.output_exists and not status.is_active):
        yield f"{count_text(status.not_merged, 'result')} not merged yet"
    if status.not_stored_text:
        yield status.not_stored_text
    if status.left_out:
        yield status.left_out_text


def head_line(status: Status) -> str:
    """How much of what is done."""
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


def closing_lines(status: Status) -> Iterator[str]:
    """Whether a run is going on, and what to do next."""
    run, is_active = status.run, status.is_active
    if status.parts:
        yield from _part_lines(status.parts)
    elif run.alive:
        yield f"a run is active ({run.process})"
    elif run.alive is None:
        yield f"a run may be active ({run.process}); this cannot be seen from here"
    if status.is_queued is not False:
        yield str(status.jobs)
    if is_active is False and status.is_declared and status.waits:
        submit = "submit again, or " if status.was_submitted else ""
        yield f"no run is active: {submit}start the run again"
    missing = command_text("missing", status.output)
    if status.is_empty and is_active is False:
        begin = command_text("run", "STUDY", "-o", status.output)
        yield f"next: {begin} runs the tasks of STUDY, a Python file"
    elif status.waits:
        yield f"next: {missing} lists what is missing, and why"
    elif is_active is not False:
        return
    elif status.not_merged or not status.output_exists:
        yield f"next: {command_text('merge', status.output)} writes the output"
    elif status.is_complete:
        yield "complete"
    elif not status.is_declared:
        yield f"next: {missing} --expect TASKS (a study or CSV) lists what is missing"


def _part_lines(parts: Sequence[Part]) -> Iterator[str]:
    seen = [part for part in parts if part.is_alive]
    there = count_text(len(parts), "part")
    unseen = f", {len(parts) - len(seen):,} on other hosts" if len(seen) < len(parts) else ""
    named = ", ".join(map(str, parts[:MOST_PARTS])) + (", …" if len(parts) > MOST_PARTS else "")
    yield f"{there} at work{unseen}: {named}"


def status_html(status: Status) -> str:
    """`status` in a notebook: static HTML."""
    counts = {**status.counts, "done": status.done - status.salvaged}
    shares = [(what, number, COLORS.get(what, REST_COLOR)) for what, number in counts.items()]
    words = ", ".join(f"{number:,} {what}" for what, number in counts.items() if what != "done")
    lines = [head_line(status), words, *pace_lines(status), *note_lines(status)]
    found = lines_html(filter(None, lines)) + (bar_html(shares) if status.is_declared else "")
    if status.causes:
        rows = [(str(cause), key_text(cause.example)) for cause in status.causes]
        found += table_html(("failed", "for example"), rows)
    if running := status.pace.longest_first:
        times = [(task.key, duration_text(task.running_s), task.process) for task in running]
        title = count_text(len(running), "running task")
        found += folded_html(title, table_html(("task", "for", "in"), times))
    for title, groups in status.tables.items():
        values = [(", ".join(map(str, v)), f"{n:,} of {total:,}") for v, n, total in groups]
        found += folded_html(title, table_html((title, "done"), values))
    return found + text_html("\n".join(closing_lines(status)))


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
        "salvaged": status.salvaged,
        "run": {"alive": status.run.alive, **_plain_process(status.run.process)},
        "parts": [
            {"part": part.number, "alive": part.is_alive, "since": part.since}
            | _plain_process(part.process)
            for part in status.parts
        ],
        "jobs": _plain_jobs(status.jobs),
        "running": [
            {"task": r.task, "key": plain_key(r.key), "since": r.since, "bytes": r.memory_bytes}
            | _plain_process(r.process)
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
        "not_stored": status.not_stored_text,
        "per_hour": status.per_hour,
        "left_s": status.pace.left_s,
        "median_s": status.pace.took.median_s,
        "causes": [
            {
                "tasks": cause.tasks,
                "how": cause.failure.kind.words,
                "error": cause.failure.error,
                "where": cause.failure.where,
                "message": cause.failure.message,
                "example": plain_key(cause.example),
            }
            for cause in status.causes
        ],
        "groups": [
            {"key": dict(zip(status.by, map(plain_value, values), strict=True))}
            | {"done": done, "tasks": total}
            for values, done, total in status.groups
        ],
        "columns": {
            name: [
                {"value": plain_value(v), "done": done, "tasks": total} for v, done, total in counts
            ]
            for name, counts in status.columns.items()
        },
    }
    return json_text(value)


def _plain_jobs(jobs: QueuedJobs | None) -> dict[str, Any] | None:
    if jobs is None:
        return None
    about = {"engine": jobs.engine, "answered": jobs.is_answered}
    return about | {"states": jobs.states, "reasons": jobs.reasons}


def _plain_process(process: ProcessId | None) -> dict[str, Any]:
    return {name: getattr(process, name, None) for name in ("pid", "host")}
