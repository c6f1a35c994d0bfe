"""Which tasks have no result, and why: read, and shown as text, JSON or CSV. Prints nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base.listed_plan import task_cell
from ..base.missing_reason import REPORT_COLUMNS
from ..base.plan import Plan, key_text, plain_key
from ..base.safe_text import csv_lines, json_text, printable
from ..base.static_html import MOST_ROWS, lines_html, table_html
from ..base.units import count_text
from ..disk.find_files import PathLike
from .expected_tasks import existing_folder, read_expected_state, require_declared
from .state import FolderState, Missing
from .state_notes import lacking_values, left_out_text, read_note, refusal_texts

SCHEMA = "h5sweep.missing/1"
MOST_NOTES = 20  # on single results


@dataclass(frozen=True)
class MissingReport:
    """What `missing` answers; `notes` are sentences for the user."""

    output: Path
    tasks: tuple[Missing, ...]
    tasks_total: int  # how many there should be
    names: tuple[str, ...]  # of the parameters
    left_out: int  # results that no merge takes; a note says why
    notes: tuple[str, ...]
    again: int = 0  # of `tasks`, those that have a result and are to be run again

    @property
    def exit_code(self) -> int:
        """0 if every task has a result that counts, and none is to be run again, else 1."""
        return 1 if self.tasks or self.left_out else 0

    def __str__(self) -> str:
        return "".join(missing_lines(self.tasks)) + closing_text(self)

    def _repr_html_(self) -> str:
        table = missing_html(self.tasks) if self.tasks else ""
        return lines_html([closing_text(self), *self.notes]) + table


class MissingTasks(list[Missing]):
    """A list of them, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return lines_html([f"{len(self):,} missing"]) + (missing_html(self) if self else "")


def read_missing(output: PathLike, *, expected: Plan | None = None) -> MissingReport:
    """Every task of `output` to run, and why; from its run folder, also during a run.

    Those of `expected` are missing, or those that the last run declared. UsageError if neither
    says which tasks there should be.
    """
    folder = existing_folder(output)
    state = read_expected_state(folder, expected)
    require_declared(state, folder)
    notes = [*refusal_texts(state), *([left_out_text(state)] if state.left_out else [])]
    notes += _notes_on_values(state)
    return MissingReport(
        folder.output,
        tuple(state.missing()),
        state.tasks_total if expected is None else len(expected),
        state.plan.names,
        len(state.left_out),
        tuple(notes),
        len(state.again_done),
    )


def _notes_on_values(state: FolderState) -> Iterator[str]:
    """Which finished tasks lack a value that could not be stored."""
    tasks = lacking_values(state)
    for task in tasks[:MOST_NOTES]:
        yield f"{key_text(state.plan.key(task))} is done, but not stored: {read_note(state, task)}"
    if (left := len(tasks) - MOST_NOTES) > 0:
        yield f"… and {count_text(left, 'other result')}: the column not_stored names all"


def missing_html(missing: Sequence[Missing]) -> str:
    """`missing` in a notebook: a row per task."""
    rows = [(*task.key.values(), task.reason, task.detail) for task in missing[:MOST_ROWS]]
    return table_html([*missing[0].key, *REPORT_COLUMNS], rows, len(missing))


def missing_lines(missing: Iterable[Missing]) -> Iterator[str]:
    """`missing` for people: one line per task."""
    for task in missing:
        detail = f": {' '.join(task.detail.split())}" if task.detail else ""
        yield printable(f"{key_text(task.key)}  {task.reason}{detail}", breaks="") + "\n"


def closing_text(report: MissingReport) -> str:
    """How many are missing."""
    missing, again = len(report.tasks) - report.again, report.again
    parts = [f"{missing:,} of {report.tasks_total:,} missing"] if missing else []
    parts += [f"{count_text(again, 'finished task')} to be run again"] if again else []
    return ", ".join(parts) or "nothing is missing"


def missing_json(report: MissingReport) -> str:
    """`missing` for programs."""
    tasks = [
        {"task": m.task, "key": plain_key(m.key), "reason": m.reason.value, "detail": m.detail}
        for m in report.tasks
    ]
    return json_text({"schema": SCHEMA, "output": str(report.output), "missing": tasks})


def missing_csv(report: MissingReport) -> Iterator[str]:
    """`missing` for spreadsheets, and as a list of tasks: the key columns, reason, detail."""
    head = [*report.names, *REPORT_COLUMNS]
    rows = ([*task.key.values(), task.reason.value, task.detail] for task in report.tasks)
    return csv_lines([head, *rows], cell=task_cell)
