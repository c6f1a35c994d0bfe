"""Tasks of other programs' files → records of a run folder, from which `merge` makes the output.

Groups, rows, one-task files, outputs and record files of other run folders all become results with
their keys, in one new record file. Whoever calls holds the run folder's lock.
"""

from __future__ import annotations

import json
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from xxhash import xxh3_64_intdigest

from ...base.key_names import as_type
from ...base.key_rule import KeyRow, KeyRule
from ...base.plan import Key, Plan, Value, key_text, value_json
from ...base.process_id import this_process
from ...base.progress import Progress
from ...base.units import count_text
from ...base.values import STR, ResultSchema, cast, decode_result, result_header, schema_from_header
from ...disk import durable
from ...disk.find_files import absolute
from ...errors import ConflictError, UsageError
from ...output.output_tasks import tasks_of_output
from ...output.reader import OutputReader
from ...runfolder.audit import Conflict
from ...runfolder.layout import RunFolder
from ...runfolder.records import FORMAT, NO_TASK, RecordFile, RecordKind, json_bytes, pack_record
from ...state.numbering import number_all
from ...state.state import IN_OUTPUT, FolderState
from ...worker_files.layouts import Style
from ...worker_files.survey import Input, OnConflict, Survey, Taken, xxh3_of
from .attributes import UnitedAttributes
from .number_keys import PlanKeys
from .our_files import (
    EncodedCells,
    OutputTasks,
    RecordTasks,
    first_key_names,
    read_cells,
    read_result,
)
from .tasks import Result, TasksOfFile, find_tasks
from .uniform_tasks import find_alike_tasks

ROLE = "foreign"
WRITE_BYTES = 1 << 20
ROWS_AT_ONCE = 256
_OPEN_FILES = 64

EncodedCell = tuple[str, tuple[int, ...], bytes]
_RowPlace = (
    tuple[int, int] | str
)  # which input and which of its tasks; or in words, the run folder's


@dataclass(frozen=True)
class TakenIn:
    """What was taken out of each input, and the record files that hold it now."""

    taken: tuple[Taken, ...]
    notes: tuple[str, ...]
    records: tuple[Path, ...]
    conflicts: tuple[Conflict, ...] = ()


def record_tasks(
    survey: Survey,
    inputs: Sequence[Input],
    folder: RunFolder,
    *,
    key: str | None,
    on_conflict: OnConflict = OnConflict.STOP,
    progress: Progress = lambda done, total: None,
    skip_unmatched: bool = False,
) -> TakenIn:
    """Record every task of `inputs` that the run folder does not have, in one new record file.

    That file appears whole or not at all; after a kill the same call does the rest. A task that is
    there already with equal values is not recorded again. ConflictError, and nothing is recorded,
    if two places have different values for one task, unless `on_conflict` says which to take.
    """
    folder.create()
    _remove_unfinished(folder)
    inputs = [one for one in inputs if one.path.absolute().parent != folder.records_path.absolute()]
    state = number_all(folder)
    rule = key_rule(key, state.plan, inputs)
    with (
        _FolderResults(folder, state) as known,
        ThreadPoolExecutor(1) as aside,
        ExitStack() as stack,
    ):
        recording = _Recording(survey, folder, known, rule, on_conflict, stack)
        total = sum(one.size_bytes for one in inputs)
        done, checksum = 0, None
        for one in [inputs[place] for place in on_conflict.order(inputs)]:
            with opened_tasks(survey, one, rule, skip_unmatched=skip_unmatched) as tasks:
                recording.take(one, tasks)
                content = tasks.about.content
            taken = recording.taken[-1]
            if content is None:
                taken.xxh3 = xxh3_of(one)
            else:
                if checksum is not None:
                    checksum.result()  # so that no more than two files are in memory
                checksum = aside.submit(_note_xxh3, taken, content)
            done += one.size_bytes
            progress(done, total)
        plan = recording.finish()
        conflicts = recording.conflicts()
    if plan is not state.plan:
        # Behind the records: until here they are found by their keys.
        folder.save_plan(plan)
    order = {id(one): place for place, one in enumerate(inputs)}
    in_order = sorted(recording.taken, key=lambda it: order[id(it.source)])
    notes, paths = tuple(recording.notes()), tuple(recording.paths)
    return TakenIn(tuple(in_order), notes, paths, tuple(conflicts))


class OutputRows:
    """The rows of an output of ours, by their keys; it is open for as long as this is used."""

    def __init__(self, output: Path) -> None:
        self._reader = OutputReader(output)
        keys = self._reader.keys()
        self._rows = {tuple(row.values()): place for place, row in enumerate(keys.rows())}
        self._names = str(self._reader.attributes["h5sweep_key"]).split()
        self._types = [type(value).__name__ for value in next(iter(self._rows), ())]

    def __enter__(self) -> OutputRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def hold(self, survey: Survey, one: Input, *, key: str | None) -> bool:
        """Whether every task of a file is a row, with every value that it has."""
        rule = KeyRule.parse(key) if key is not None else KeyRule(tuple(self._names))
        if set(rule.names) != set(self._names):
            return False
        with opened_tasks(survey, one, rule) as tasks:
            waiting: list[tuple[int, Result]] = []
            for result in tasks.results():
                row = self._row_of(rule.key(tasks.keys[result.number]))
                if row is None:
                    return False
                waiting.append((row, result))
                if len(waiting) >= ROWS_AT_ONCE and not _are_in_rows(self._reader, waiting):
                    return False
            return _are_in_rows(self._reader, waiting)

    def _row_of(self, key: Key) -> int | None:
        named = zip(self._names, self._types, strict=False)
        return self._rows.get(tuple([as_type(key[name], kind) for name, kind in named]))


def key_rule(key: str | None, plan: Plan, inputs: Sequence[Input]) -> KeyRule:
    """What the key is: as told, as the plan has it, or as files of ours among the inputs."""
    if key is not None:
        rule = KeyRule.parse(key)
        if len(plan) and set(rule.names) != set(plan.names):
            raise UsageError(
                f"--key is over {', '.join(rule.names)}, and the run folder has results under "
                f"{', '.join(plan.names)}: choose another output with -o"
            )
        return rule
    names: Iterable[str] | None = plan.names if len(plan) else None
    for one in inputs:
        if names is None and one.style is Style.RECORDS:
            names = first_key_names(one.path)
        elif names is None and one.style is Style.OUTPUT:
            with OutputReader(one.path) as reader:
                names = str(reader.attributes["h5sweep_key"]).split()
    if names is None:
        raise UsageError(
            "nothing says what the key of a task is: give --key, as a pattern such as "
            '"farm{farm_id:d}_s{seed:d}" or as names such as farm_id,seed'
        )
    return KeyRule(tuple(names))


@contextmanager
def opened_tasks(
    survey: Survey, one: Input, rule: KeyRule, *, skip_unmatched: bool = False
) -> Iterator[TasksOfFile]:
    """The tasks of any input; ChangedError if it is not what was looked at."""
    if one.style is Style.RECORDS:
        yield RecordTasks(one.path, rule)
    elif one.style is Style.OUTPUT:
        with OutputReader(one.path) as reader:
            yield OutputTasks(reader, rule)
    else:
        with ExitStack() as stack:
            tasks = None
            if one.is_alike:
                alike = stack.enter_context(survey.opened_alike(one))
                if alike is not None:
                    layout = survey.layout_of(alike.tree)
                    tasks = find_alike_tasks(
                        layout, alike, one, rule, skip_unmatched=skip_unmatched
                    )
            if tasks is None:
                layout = stack.enter_context(survey.opened(one))
                tasks = find_tasks(layout, one, rule, skip_unmatched=skip_unmatched)
            yield tasks


def _remove_unfinished(folder: RunFolder) -> None:
    """Remove what a killed merge left; nobody else can be writing such a file."""
    for path in folder.records_path.glob(f".{ROLE}_*.part"):
        path.unlink(missing_ok=True)


def _note_xxh3(taken: Taken, content: bytes) -> None:
    taken.xxh3 = xxh3_64_intdigest(content)


class _Recording:
    """The new record file, and what went into it."""

    def __init__(
        self,
        survey: Survey,
        folder: RunFolder,
        known: _FolderResults,
        rule: KeyRule,
        on_conflict: OnConflict,
        stack: ExitStack,
    ) -> None:
        self.taken: list[Taken] = []
        self.paths: list[Path] = []
        self._survey, self._folder, self._known, self._rule = survey, folder, known, rule
        self._on_conflict, self._stack = on_conflict, stack
        self._keys = PlanKeys(known.state.plan, rule.names)
        self._plan_id = os.urandom(8).hex()
        self._mark = os.urandom(4)
        self._file: IO[bytes] | None = None
        self._end = 0
        self._key_texts = _KeyTexts(rule.names)
        # Of each task met: which input it is from, which of its tasks, where its record is.
        self._seen: dict[int, int] = {}
        self._input_of, self._number_of, self._offset_of = array("l"), array("q"), array("q")
        self._already = 0
        self._conflicts: dict[KeyRow, tuple[_RowPlace, list[_RowPlace]]] = {}  # taken, left out
        self._notes: dict[str, None] = {}
        sweep = folder.load_sweep()
        attributes, units = sweep.get("attributes") or {}, sweep.get("units") or {}
        has_results = RecordKind.DONE in known.state.kinds or IN_OUTPUT in known.state.kinds
        self._attributes = UnitedAttributes(attributes, units, has_results=has_results)

    def take(self, one: Input, tasks: TasksOfFile) -> None:
        """Record the tasks of one file that nobody has recorded."""
        taken = Taken(one, tasks=len(tasks.keys))
        self.taken.append(taken)
        backwards = self._on_conflict is OnConflict.LAST
        backwards = backwards and len(set(tasks.keys)) < len(tasks.keys)
        for result in tasks.results(backwards=backwards):
            self._take_result(taken, tasks, result)
        about = tasks.about
        taken.datasets, taken.attributes = tuple(about.datasets), tuple(about.attributes)
        taken.skipped, taken.left_out = tuple(about.skipped), about.left_out
        self._notes.update(dict.fromkeys(about.notes))
        columns = {*about.datasets, *about.attributes}
        is_known = bool(columns) or not tasks.keys  # not of records
        self._attributes.take(
            about.described,
            columns | {*self._rule.names} if is_known else None,
            tasks.place,
            taken.left_out,
        )

    def _take_result(self, taken: Taken, tasks: TasksOfFile, result: Result) -> None:
        row = tasks.keys[result.number]
        task, row = self._keys.number(row, taken.source.name)
        place = self._seen.get(task)
        if place is not None:
            if self._is_equal_to_seen(place, task, result):
                taken.duplicates += 1
            else:
                seen = self._input_of[place], self._number_of[place]
                self._resolve(row, seen, (len(self.taken) - 1, result.number))
                taken.tasks -= 1
            return
        earlier = self._known.find(task)
        if earlier is None:
            self._see(task, result, self._append(task, row, result, result.finished_at))
        elif earlier.is_equal(result):
            self._already += 1
            self._see(task, result, -1)
        else:
            is_preferred = self._is_preferred(result, earlier)
            mine = len(self.taken) - 1, result.number
            pair = (mine, earlier.where) if is_preferred else (earlier.where, mine)
            self._resolve(row, *pair)
            offset = -1
            if is_preferred:
                later = max(result.finished_at, earlier.finished_at + 1e-6)
                offset = self._append(task, row, result, later)
            else:
                taken.tasks -= 1
            self._see(task, result, offset)

    def _see(self, task: int, result: Result, offset: int) -> None:
        self._seen[task] = len(self._offset_of)
        self._input_of.append(len(self.taken) - 1)
        self._number_of.append(result.number)
        self._offset_of.append(offset)

    def _is_preferred(self, result: Result, earlier: _RecordedResult) -> bool:
        if self._on_conflict is OnConflict.NEWEST:
            return result.finished_at > earlier.finished_at
        return self._on_conflict is OnConflict.LAST

    def _resolve(self, row: KeyRow, first: _RowPlace, second: _RowPlace) -> None:
        """Note a conflict, of which `first` is to be taken; ConflictError if none is to be."""
        if self._on_conflict is OnConflict.STOP:
            texts = self._place_texts([first, second])
            raise ConflictError(
                f"two different results for {key_text(self._rule.key(row))}: in {texts[first]} and "
                f"in {texts[second]}; nothing was merged. Say which to take with --on-conflict "
                "first, last or newest"
            )
        self._conflicts.setdefault(row, (first, []))[1].append(second)

    def conflicts(self) -> list[Conflict]:
        """Every task with different results, and which was taken."""
        found = self._conflicts
        places = [place for taken, others in found.values() for place in (taken, *others)]
        texts = self._place_texts(places, str(Path.cwd()))
        return [
            Conflict(
                key_text(self._rule.key(row)),
                texts[taken],
                [texts[place] for place in others],
                self._on_conflict.value,
            )
            for row, (taken, others) in found.items()
        ]

    def _place_texts(self, places: Iterable[_RowPlace], folder: str = "") -> dict[_RowPlace, str]:
        """Places for people, paths as seen from `folder`; every file is opened once."""
        found: dict[_RowPlace, str] = {}
        by_input: dict[int, list[int]] = {}
        for place in places:
            if isinstance(place, str):
                found[place] = place
            else:
                by_input.setdefault(place[0], []).append(place[1])
        for which, numbers in by_input.items():
            one = self.taken[which].source
            name = absolute(one.name, folder) if folder else one.name
            with opened_tasks(self._survey, one, self._rule, skip_unmatched=True) as tasks:
                for number in numbers:
                    found[which, number] = f"{name}, {tasks.place(number)}"
        return found

    def _is_equal_to_seen(self, place: int, task: int, result: Result) -> bool:
        offset = self._offset_of[place]
        if offset < 0:
            earlier = self._known.find(task)
            return earlier is not None and earlier.is_equal(result)
        assert self._file is not None
        self._file.flush()
        with RecordFile(Path(self._file.name)) as file:
            schema, data, _, _ = read_result(file, offset)
        return are_equal(schema, data, result.schema, result.data)

    def _append(self, task: int, row: KeyRow, result: Result, finished_at: float) -> int:
        """Write one record; return where it lies."""
        if self._file is None:
            self._begin()
        assert self._file is not None
        header = result_header(result.schema, self._key_texts(row))
        record = pack_record(
            self._mark, RecordKind.DONE, task, header, result.data, finished_at, result.duration_s
        )
        offset = self._end
        self._file.write(record)
        self._end += len(record)
        return offset

    def _begin(self) -> None:
        path = self._folder.new_record_path(ROLE)
        temporary = self._stack.enter_context(durable.replacing(path))
        self._file = self._stack.enter_context(temporary.open("wb", WRITE_BYTES))
        self.paths.append(path)
        head = self._head(self._plan_id)
        self._file.write(head)
        self._end = len(head)

    def _head(self, plan_id: str) -> bytes:
        about = {"format": FORMAT, "process": this_process().as_json(), "role": ROLE}
        header = json_bytes({**about, "plan": plan_id})
        return pack_record(self._mark, RecordKind.FILE, NO_TASK, header, b"", time.time(), 0.0)

    def finish(self) -> Plan:
        """Finish the record file, which appears as the stack closes; return the plan with it."""
        plan = self._keys.extended_plan(self._plan_id)
        if self._file is not None:
            if plan.id != self._plan_id:
                # No new task: the numbers are those of the plan that there was.
                self._file.seek(0)
                self._file.write(self._head(plan.id))
            self._file.flush()
        self._save_attributes()
        return plan

    def _save_attributes(self) -> None:
        self._attributes.finish()
        sweep = self._folder.load_sweep()
        united = {column: about for column, about in self._attributes.united.items() if about}
        if united != (sweep.get("attributes") or {}):
            self._folder.save_sweep({**sweep, "attributes": united})

    def notes(self) -> list[str]:
        found = [*self._notes, *self._attributes.notes]
        if self._already:
            found.append(f"already in the run folder: {count_text(self._already, 'task')}")
        if self._conflicts:
            tasks = count_text(len(self._conflicts), "task")
            found.append(f"{tasks} had different results: the {self._on_conflict} is kept")
        return found


class _KeyTexts:
    """Keys as they stand in records; the text of a value is made once."""

    def __init__(self, names: Sequence[str]) -> None:
        self._form = "{" + ", ".join(f'"{name}": %s' for name in names) + "}"
        self._texts: dict[tuple[type, Value], str] = {}

    def __call__(self, row: KeyRow) -> bytes:
        texts = tuple([str(v) if type(v) is int else self._text(v) for v in row])
        return (self._form % texts).encode()

    def _text(self, value: Value) -> str:
        known = (type(value), value)
        text = self._texts.get(known)
        if text is None:
            if len(self._texts) > 100_000:
                self._texts.clear()
            text = self._texts[known] = value_json(value)
        return text


@dataclass(frozen=True)
class _RecordedResult:
    """A result that the run folder has already."""

    where: str
    finished_at: float
    schema: bytes = b""
    data: bytes = b""
    cells: EncodedCells | None = None  # in place of both, if only the output has it

    def is_equal(self, result: Result) -> bool:
        if self.cells is not None:
            return _are_in_cells(result, self.cells)
        return are_equal(self.schema, self.data, result.schema, result.data)


class _FolderResults:
    """The results that a run folder has, in its records or only in its output."""

    def __init__(self, folder: RunFolder, state: FolderState) -> None:
        self.state = state
        self._folder = folder
        self._file = lru_cache(_OPEN_FILES)(self._open)
        self._output: OutputReader | None = None
        self._rows: dict[int, int] = {}
        if IN_OUTPUT in state.kinds:
            self._output = OutputReader(folder.output)
            tasks = tasks_of_output(self._output, state.plan).tolist()
            self._rows = {task: row for row, task in enumerate(tasks)}

    def __enter__(self) -> _FolderResults:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.cache_clear()
        if self._output is not None:
            self._output.close()

    def _open(self, number: int) -> RecordFile:
        return RecordFile(self.state.paths[number])

    def find(self, task: int) -> _RecordedResult | None:
        """What there is of a task."""
        state = self.state
        kind = state.kinds[task] if task < len(state.kinds) else 0
        if kind == RecordKind.DONE:
            file = self._file(state.files[task])
            schema, data, finished_at, _ = read_result(file, state.offsets[task])
            where = f"the run folder, {file.path.name}"
            return _RecordedResult(where, finished_at, schema, data)
        if kind == IN_OUTPUT and self._output is not None:
            row = self._rows[task]
            (cells,) = read_cells(self._output, np.array([row]))
            finished_at = float(self._output.slab("finished_at", row, row + 1)[0])
            return _RecordedResult(str(self._folder.output), finished_at, cells=cells)
        return None


def are_equal(schema: bytes, data: bytes, other_schema: bytes, other_data: bytes) -> bool:
    """Whether two results have the same names and values, in whatever order and width."""
    if schema == other_schema:
        return data == other_data
    mine, theirs = cells_of(schema, data), cells_of(other_schema, other_data)
    return mine.keys() == theirs.keys() and all(
        _is_equal_cell(mine[name], theirs[name]) for name in mine
    )


def cells_of(schema: bytes, data: bytes) -> EncodedCells:
    """The values of a record, each with its dtype and shape."""
    parsed = _parsed_schema(schema)
    arrays = decode_result(parsed, data)
    found: EncodedCells = {}
    for cell in parsed:
        values = arrays[cell.name]
        if cell.dtype == STR:
            texts = [text.encode() for text in values.reshape(-1)]
            raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
        else:
            raw = values.tobytes()
        found[cell.name] = cell.dtype, cell.shape, raw
    return found


@lru_cache(64)
def _parsed_schema(schema: bytes) -> ResultSchema:
    return schema_from_header({"data": json.loads(schema)})


def _is_equal_cell(mine: EncodedCell, theirs: EncodedCell) -> bool:
    if mine[:2] == theirs[:2]:
        return mine[2] == theirs[2]
    if mine[1] != theirs[1] or STR in (mine[0], theirs[0]):
        return False
    return _survives(mine, theirs) and _survives(theirs, mine)


def _survives(one: EncodedCell, other: EncodedCell) -> bool:
    """Whether a value is `other` when it is turned into its dtype."""
    values = np.frombuffer(one[2], one[0])
    with np.errstate(all="ignore"), suppress(TypeError, ValueError, OverflowError):
        return bool(cast(values, other[0]).tobytes() == other[2])
    return False


def _are_in_rows(reader: OutputReader, waiting: list[tuple[int, Result]]) -> bool:
    """Whether these results are in these rows; the list is empty afterwards."""
    rows = np.array([row for row, _ in waiting], np.int64)
    if not len(rows):
        return True
    order = np.argsort(rows, kind="stable")
    cells = read_cells(reader, rows[order])
    are_there = all(
        _are_in_cells(waiting[place][1], found)
        for place, found in zip(order.tolist(), cells, strict=True)
    )
    waiting.clear()
    return are_there


def _are_in_cells(result: Result, cells: EncodedCells) -> bool:
    mine = cells_of(result.schema, result.data)
    return all(n in cells and _is_equal_as_stored(mine[n], cells[n]) for n in mine)


def _is_equal_as_stored(mine: EncodedCell, stored: EncodedCell) -> bool:
    """An output may hold a value in a wider dtype: it must come back from there as it was."""
    if mine[1] != stored[1]:
        return False
    if STR in (mine[0], stored[0]):
        return mine[0] == stored[0] and mine[2] == stored[2]
    return mine[2] == stored[2] if mine[0] == stored[0] else _survives(stored, mine)


__all__ = ["OutputRows", "TakenIn", "record_tasks"]
