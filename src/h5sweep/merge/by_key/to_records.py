"""Tasks of other programs' files → records of a run folder, from which `merge` makes the output.

Groups, rows, one-task files, outputs and record files of other run folders all become results with
their keys, in new record files. The caller holds the run folder's lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from xxhash import xxh3_64_intdigest

from ...base.key_rule import KeyRow, KeyRule
from ...base.plan import Plan, key_text
from ...base.progress_callback import Progress
from ...base.units import count_text
from ...code.relabelled import text_with_relabels
from ...code.store import adopt_texts
from ...disk.find_files import absolute
from ...errors import ConflictError
from ...runfolder.audit import Conflict
from ...runfolder.layout import RunFolder
from ...runfolder.records import RecordKind
from ...state.extend_plan import number_all
from ...state.state import IN_OUTPUT
from ...worker_files.inputs import Input, OnConflict, Taken, xxh3_of
from ...worker_files.survey import Survey
from .column_attributes import ColumnAttributes
from .equal_results import are_equal
from .folder_results import FolderResults, RecordedResult
from .new_record_file import ROLE, NewRecordFiles
from .number_keys import PlanKeys
from .open_tasks import key_rule, opened_tasks
from .tasks_of_file import KnownVersion, Result, TasksOfFile

# Which input and which of its tasks; or in words, the run folder's.
_RowPlace = tuple[int, int] | str


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
    before_it_counts: Callable[[], None] = lambda: None,
) -> TakenIn:
    """Record every task of `inputs` that the run folder does not have, in new record files.

    There is one for each version of the code that results of ours are from, and one for all others.
    Each appears whole or not at all; after a kill the same call does the rest. A task that is
    there already with equal values is not recorded again. ConflictError, and nothing is recorded,
    if two places have different values for one task, unless `on_conflict` says which to take.
    `before_it_counts` is called when all is read, and may raise as well.
    """
    folder.create()
    _remove_unfinished(folder)
    inputs = [one for one in inputs if one.path.absolute().parent != folder.records_path.absolute()]
    state = number_all(folder)
    rule = key_rule(key, state.plan, inputs)
    with (
        FolderResults(folder, state) as known,
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
        before_it_counts()
        plan = recording.finish()
        conflicts = recording.conflicts()
    if plan is not state.plan:
        # Behind the records: until here they are found by their keys.
        folder.save_plan(plan)
    order = {id(one): place for place, one in enumerate(inputs)}
    in_order = sorted(recording.taken, key=lambda it: order[id(it.source)])
    notes, paths = tuple(recording.notes()), recording.paths
    return TakenIn(tuple(in_order), notes, paths, tuple(conflicts))


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
        known: FolderResults,
        rule: KeyRule,
        on_conflict: OnConflict,
        stack: ExitStack,
    ) -> None:
        self.taken: list[Taken] = []
        self._survey, self._folder, self._known, self._rule = survey, folder, known, rule
        self._on_conflict = on_conflict
        self._keys = PlanKeys(known.state.plan, rule.names)
        self._records = NewRecordFiles(folder, rule.names, stack)
        self._versions: list[list[KnownVersion]] = []  # of each input
        # Of each task met: which input it is from, which of its tasks, the number of its record.
        self._seen: dict[int, int] = {}
        self._input_of, self._number_of, self._record_of = array("l"), array("q"), array("q")
        self._already = 0
        self._conflicts: dict[KeyRow, tuple[_RowPlace, list[_RowPlace]]] = {}  # taken, left out
        self._notes: dict[str, None] = {}
        sweep = folder.load_sweep()
        attributes, units = sweep.get("attributes") or {}, sweep.get("units") or {}
        has_results = RecordKind.DONE in known.state.kinds or IN_OUTPUT in known.state.kinds
        self._attributes = ColumnAttributes(attributes, units, has_results=has_results)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The record files, as far as there is anything in them."""
        return self._records.paths

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
        self._versions.append(about.versions)
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
            self._see(task, result, self._records.append(task, row, result, result.finished_at))
        elif earlier.is_equal(result):
            self._already += 1
            self._see(task, result, -1)
        else:
            is_preferred = self._is_preferred(result, earlier)
            mine = len(self.taken) - 1, result.number
            pair = (mine, earlier.where) if is_preferred else (earlier.where, mine)
            self._resolve(row, *pair)
            record = -1
            if is_preferred:
                later = max(result.finished_at, earlier.finished_at + 1e-6)
                record = self._records.append(task, row, result, later)
            else:
                taken.tasks -= 1
            self._see(task, result, record)

    def _see(self, task: int, result: Result, record: int) -> None:
        self._seen[task] = len(self._record_of)
        self._input_of.append(len(self.taken) - 1)
        self._number_of.append(result.number)
        self._record_of.append(record)

    def _is_preferred(self, result: Result, earlier: RecordedResult) -> bool:
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
        record = self._record_of[place]
        if record < 0:
            earlier = self._known.find(task)
            return earlier is not None and earlier.is_equal(result)
        schema, data = self._records.read(record)
        return are_equal(schema, data, result.schema, result.data)

    def finish(self) -> Plan:
        """Finish the record files, which appear as the stack closes; return the plan with them."""
        self._keep_versions()
        plan = self._keys.extended_plan(self._records.plan_id)
        self._records.finish(plan.id)
        self._save_attributes()
        return plan

    def _keep_versions(self) -> None:
        """Have the run folder know the code of what was recorded, before there are records."""
        known = self._folder.load_relabels()
        for versions in self._versions:
            used = [one for one in versions if one.id in self._records.codes]
            texts = {one.number: text_with_relabels(one.text, one.since, known) for one in used}
            adopt_texts(self._folder, texts)

    def _save_attributes(self) -> None:
        self._attributes.finish()
        sweep = self._folder.load_sweep()
        merged = {column: about for column, about in self._attributes.merged.items() if about}
        if merged != (sweep.get("attributes") or {}):
            self._folder.save_sweep({**sweep, "attributes": merged})

    def notes(self) -> list[str]:
        found = [*self._notes, *self._attributes.notes]
        if self._already:
            found.append(f"already in the run folder: {count_text(self._already, 'task')}")
        if self._conflicts:
            tasks = count_text(len(self._conflicts), "task")
            found.append(f"{tasks} had different results: the {self._on_conflict} is kept")
        return found
