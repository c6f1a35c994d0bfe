"""Everything that is known about one task: `h5sweep show`. Only reads, and during a run too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..base.listed_plan import plan_list
from ..base.missing_reason import MissingReason
from ..base.plan import Key, Plan, key_text
from ..base.relabels import Relabels
from ..base.selection import Only, select_one
from ..base.units import command_text
from ..base.values import decode_result, schema_from_header
from ..code.relabelled import labels_of_now, relabels_since
from ..code.store import numbers_by_id
from ..disk.find_files import PathLike
from ..errors import UsageError, WrongFolderError
from ..output.one_row import RowReader, reading_output
from ..output.row_tasks import extended_plan, tasks_of_output
from ..output.stored_labels import StoredLabels
from ..runfolder.layout import RunFolder
from ..runfolder.records import (
    KIND,
    OUTCOMES,
    TAKEN_ROLES,
    TASK,
    RecordFile,
    RecordKind,
    Scan,
    read_data,
    record_of,
)
from ..state.expected_tasks import existing_folder
from ..state.extend_plan import read_all
from ..state.record_place import RecordPlace, read_failure
from ..state.state import IN_OUTPUT, FolderState
from ..state.study import end_reading
from ..state.task_codes import known_versions
from .task_log import read_task_log
from .task_report import DONE, Ending, TaskLines, TaskReport, TaskResult


def read_task(output: PathLike, only: Only) -> TaskReport:
    """What is known about one task: its result, how each attempt has ended, what it printed.

    `only` names it: `{"farm_id": 3, "seed": 7}`, or words such as `farm_id=3`. Right while a run is
    going on; of an output without its run folder, what that says. UsageError if there is no such
    task. Nothing is written.
    """
    end_reading()
    folder = RunFolder.of(output)
    folder.require_place()
    if not folder.output.exists():
        existing_folder(output)
    state = _read_state(folder)
    failed = _failures_in_output(folder, state.relabels)
    plan = _with_failed(state.plan, failed, folder)
    if not len(plan):
        raise UsageError(f"{folder.output} has no tasks: name the output of a run")
    task = select_one(only, plan)
    return _Task(folder, state, task, plan.key(task)).report(failed.get(key_text(plan.key(task))))


def _read_state(folder: RunFolder) -> FolderState:
    try:
        return read_all(folder)
    except WrongFolderError as error:
        raise UsageError(
            f"{folder.output} is not the output of a run: "
            f"{command_text('check', folder.output)} says what it is"
        ) from error


@dataclass(frozen=True)
class _FailedRow:
    """A task that the output says has failed."""

    key: Key
    ending: Ending


def _failures_in_output(folder: RunFolder, relabels: Relabels) -> dict[str, _FailedRow]:
    """By the texts of their keys."""
    if not folder.output.exists():
        return {}
    with reading_output(folder.output, relabels) as reader:
        keys, failures = (table.rows() for table in reader.failures())
        pairs = list(zip(keys, failures, strict=True))
    return {key_text(key): _FailedRow(key, Ending(**failure)) for key, failure in pairs}


def _with_failed(plan: Plan, failed: Mapping[str, _FailedRow], folder: RunFolder) -> Plan:
    """The plan; of an output without its run folder, that of its rows and of its failures."""
    if folder.exists() or not failed:
        return plan
    return extended_plan(plan, plan_list([row.key for row in failed.values()]), folder.output)


class _Task:
    """One task, and where what is known of it lies."""

    def __init__(self, folder: RunFolder, state: FolderState, task: int, key: Key) -> None:
        self.folder, self.state, self.task, self.key = folder, state, task, key
        self._is_known = task < len(state.plan)  # else only the output has it, as a failure
        self._versions = known_versions(folder, state)
        self._codes = numbers_by_id(self._versions)

    def report(self, failed: _FailedRow | None) -> TaskReport:
        """Put together all that there is; `failed` is what the output says of a failure."""
        endings = sorted(self._endings(), key=lambda ending: ending.finished_at)
        result, (state, detail) = self._result(), self._state()
        if failed is not None and result is None and not endings:
            endings = [failed.ending]
            state, detail = MissingReason.FAILED, failed.ending.words
        return TaskReport(
            self.folder.output,
            self.task,
            self.key,
            state,
            detail,
            result,
            tuple(endings),
            tuple(self._lines()),
            running_since=self.state.running.get(self.task, (None, None))[1],
        )

    def _state(self) -> tuple[str, str]:
        state, task = self.state, self.task
        if not self._is_known:
            return MissingReason.FAILED, ""
        if task in state.undeclared:
            return MissingReason.NEVER_STARTED, "the study no longer declares it"
        if task in state.again or not state.is_done(task):
            return state.reason(task)
        return DONE, "the study no longer declares it" if task in state.done_undeclared else ""

    def _result(self) -> TaskResult | None:
        kind = self.state.kinds[self.task] if self._is_known else 0
        if kind == RecordKind.DONE:
            return self._recorded_result()
        return self._row() if kind == IN_OUTPUT else None

    def _recorded_result(self) -> TaskResult:
        file_number = self.state.files[self.task]
        with RecordFile(self.state.paths[file_number], self.state.relabels) as file:
            offset = self.state.offsets[self.task]
            frame = file.frame(offset)
            header = file.header(offset, frame)
            schema = schema_from_header(header)
            values = decode_result(schema, read_data(file, offset, frame))
            ending = self._ending(file, file_number, offset, frame)
        units = {**self._units(ending.code), **_units_returned(header)}
        return TaskResult(values, units, ending, file.path)

    def _units(self, code: int) -> dict[str, str]:
        """Those that the code declared by which a result was recorded."""
        version = self._versions.get(code)
        if version is None:
            return dict(self.folder.load_sweep().get("units") or {})
        return labels_of_now(version, "units", relabels_since(version, self.state.relabels))

    def _row(self) -> TaskResult:
        with reading_output(self.folder.output, self.state.relabels) as reader:
            (row,) = (tasks_of_output(reader, self.state.plan) == self.task).nonzero()[0].tolist()
            about = StoredLabels(reader).all().items()
            units = {name: said["units"] for name, said in about if "units" in said}
            ending = Ending(
                RecordKind.DONE.words,
                float(reader.slab("finished_at", row, row + 1)[0]),
                float(reader.slab("duration_s", row, row + 1)[0]),
                code=int(reader.codes()[row]),
            )
            return TaskResult(RowReader(reader).read(row), units, ending, reader.path)

    def _endings(self) -> Iterator[Ending]:
        """How each attempt ended of which there is a record."""
        for number, path in enumerate(self.state.paths):
            try:
                file = RecordFile(path, self.state.relabels)
            except FileNotFoundError:
                continue
            with file:
                about = file.about() or {}
                size = self.state.plan.tasks_shared_with(about.get("plan"))
                for offset, frame in file.scan(Scan()):
                    if frame[KIND] in OUTCOMES and self._is_mine(file, offset, frame, size):
                        yield self._ending(file, number, offset, frame)

    def _is_mine(self, file: RecordFile, offset: int, frame: tuple[object, ...], size: int) -> bool:
        number = frame[TASK]
        if isinstance(number, int) and number < size:
            return number == self.task
        key = file.header(offset, frame).get("key")
        return key is not None and self.state.plan.number(key) == self.task

    def _ending(
        self, file: RecordFile, number: int, offset: int, frame: tuple[object, ...]
    ) -> Ending:
        record, owner = record_of(offset, frame), file.owner()
        is_taken = (file.about() or {}).get("role") in TAKEN_ROLES
        ending = Ending(
            record.kind.words,
            record.finished_at,
            record.duration_s,
            host=owner.host if owner and not is_taken else "",
            is_taken=is_taken,
            code=self._codes.get(self.state.codes.get(number, ""), 0),
            record_file=file.path.name,
        )
        if record.kind == RecordKind.DONE:
            return ending
        failure = read_failure(file, RecordPlace(number, offset, frame))
        return replace(
            ending,
            error=failure.error,
            message=failure.message,
            where=failure.where,
            traceback=failure.traceback,
        )

    def _lines(self) -> Iterator[TaskLines]:
        """What it printed, log by log; a log has the names that parameters had when it was made."""
        if not self.folder.logs_path.is_dir():
            return
        keys = [self.key, self.state.relabels.taken_back().key(self.key)]
        logs = [(log.stat().st_mtime_ns, log) for log in self.folder.logs_path.glob("*.log")]
        for _, log in sorted(logs):
            for key in keys[: 1 if keys[0] == keys[1] else 2]:
                if text := read_task_log(log, key):
                    yield TaskLines(log, text)


def _units_returned(header: Mapping[str, Any]) -> dict[str, str]:
    """The units that the task has returned with its values."""
    pairs = zip(header["data"], header.get("labels", ()), strict=False)
    found = {cell[0]: dict(label[1]).get("units") for cell, label in pairs if label}
    return {name: unit for name, unit in found.items() if isinstance(unit, str)}
