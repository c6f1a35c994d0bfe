"""Proof by repetition: rows are computed again with the code that made them, and compared.

The code is that of the row's version, from the sources that were recorded with it, not from the
files as they are now. Nothing is written, neither into the output nor beside it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path

from ..base.compare import Agreement, compare_again
from ..base.plan import Key, Plan, key_text
from ..base.progress_callback import Progress
from ..base.relabels import Relabels
from ..base.selection import Only, select_one
from ..base.units import command_text
from ..base.values import Array
from ..code.relabelled import relabels_since
from ..code.store import load_versions, numbers_by_id, parse_version
from ..code.version import CodeVersion
from ..disk.find_files import PathLike
from ..errors import DamagedError, StudyError, UsageError, WrongFolderError
from ..output.one_row import RowReader, is_gap, reading_output
from ..output.reader import OutputReader
from ..output.row_tasks import tasks_of_output
from ..runfolder.layout import RunFolder
from ..state.expected_tasks import existing_folder, read_expected_state
from ..state.state import FolderState
from ..state.study import end_reading
from .replay_report import ColumnAgreement, Replay, ReplayResult, Verification
from .run_again import Attempt, run_again

DEFAULT_SAMPLE = 20
_EDITED = "the row itself has changed: its checksum is wrong"


@dataclass(frozen=True)
class _Job:
    """A task to run again, with what is known of it from then."""

    key: Key
    code: int
    version: CodeVersion | None  # None if nobody knows it
    row: dict[str, Array] | None  # None if there is no result
    duration_s: float | None
    is_as_written: bool = True  # its row
    relabels: Relabels = field(default_factory=Relabels)  # since its code was noted

    @property
    def key_then(self) -> Key:
        return self.relabels.taken_back().key(self.key)

    def values_now(self, values: dict[str, Array]) -> dict[str, Array]:
        """What the function has returned, by the names that columns have now."""
        return dict(zip(self.relabels.cell_names(list(values)), values.values(), strict=True))


def replay_task(output: PathLike, only: Only, *, timeout_s: float | None = None) -> Replay:
    """Run one task of an output again, with the code that made its row, and compare them.

    `only` names it: `{"farm_id": 3, "seed": 7}`, or words such as `farm_id=3`. Of a task that
    failed there is nothing to compare with. UsageError if there is no such task, or if it cannot
    be replayed. Nothing is written.
    """
    end_reading()
    folder = RunFolder.of(output)
    if not folder.output.exists():
        existing_folder(output)
    with _not_ours(folder.output):
        state = read_expected_state(folder)
    task = _one_task(state.plan, only, folder)
    job = _job_of_row(folder, state, task) or _job_of_failure(folder, state, task)
    (replay,) = _replay_all([job], workers=1, timeout_s=timeout_s, progress=None)
    if replay.result is ReplayResult.IMPOSSIBLE:
        raise UsageError(f"{key_text(replay.key)} cannot be replayed: {replay.reason}")
    return replay


def verify_output(
    output: PathLike,
    *,
    sample: int = DEFAULT_SAMPLE,
    seed: int | None = None,
    workers: int = 1,
    timeout_s: float | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Run a random sample of the rows of an output again, each with the code that made it.

    The same `seed` takes the same rows. Nothing is written.
    """
    end_reading()
    if sample < 1:
        raise UsageError(f"sample is {sample}: give 1 row or more")
    path = RunFolder.of(output).output
    if not path.exists():
        raise _not_merged(existing_folder(output), f"{path} is not there")
    seed = random.randrange(1 << 32) if seed is None else seed
    with _reading(path) as rows:
        chosen = random.Random(seed).sample(range(len(rows)), min(sample, len(rows)))
        jobs = [rows.job(row) for row in sorted(chosen)]
        total = len(rows)
    replays = _replay_all(jobs, workers=workers, timeout_s=timeout_s, progress=progress)
    return Verification(path, total, seed, tuple(replays))


class _Rows:
    """The rows of an output as jobs."""

    def __init__(self, reader: OutputReader, relabels: Relabels) -> None:
        self.reader = reader
        self._keys, self._codes = reader.keys(), reader.codes()
        self._durations_s = reader.whole("duration_s")
        self._versions = dict(_sound_versions(reader.code_texts(), relabels))
        self._rows = RowReader(reader)

    def __len__(self) -> int:
        return len(self._codes)

    def job(self, row: int) -> _Job:
        key = {name: self._keys[name][row : row + 1].tolist()[0] for name in self._keys.columns}
        code = int(self._codes[row])
        seconds = float(self._durations_s[row])
        values, is_as_written = self._rows.read(row), self._rows.is_as_written(row)
        version, since = self._versions.get(code, (None, Relabels()))
        return _Job(key, code, version, values, seconds, is_as_written, since)


def _sound_versions(
    texts: Mapping[int, str], relabels: Relabels
) -> Iterator[tuple[int, tuple[CodeVersion, Relabels]]]:
    """Each version of an output, and what was relabelled since."""
    for number, text in texts.items():
        with suppress(DamagedError):  # which is told of a row that needs it
            version = parse_version(text)
            yield number, (version, relabels_since(version, relabels))


@contextmanager
def _reading(path: Path) -> Iterator[_Rows]:
    relabels = RunFolder(path).load_relabels()
    with _not_ours(path), reading_output(path, relabels) as reader:
        yield _Rows(reader, relabels)


@contextmanager
def _not_ours(path: Path) -> Iterator[None]:
    """Say of a file that is not an output what to do."""
    try:
        yield
    except WrongFolderError as error:
        raise UsageError(
            f"{path} is not the output of a run, so it has no rows to run again: "
            f"{command_text('check', path)} says what it is"
        ) from error


def _not_merged(folder: RunFolder, what: str) -> UsageError:
    return UsageError(f"{what} yet: {command_text('merge', folder.output)} writes it")


def _one_task(plan: Plan, only: Only, folder: RunFolder) -> int:
    """The task that is meant; UsageError if it is none, or one of several."""
    if not len(plan):
        raise UsageError(f"{folder.output} has no tasks: name the output of a run")
    return select_one(only, plan)


def _job_of_row(folder: RunFolder, state: FolderState, task: int) -> _Job | None:
    """The task with its row; None if it has none."""
    if not folder.output.exists():
        return None
    with _reading(folder.output) as rows:
        found = (tasks_of_output(rows.reader, state.plan) == task).nonzero()[0]
        return rows.job(int(found[0])) if len(found) else None


def _job_of_failure(folder: RunFolder, state: FolderState, task: int) -> _Job:
    """The task with the code that it failed with; UsageError if it did not."""
    name = key_text(state.plan.key(task))
    if task not in state.failures:
        if state.is_done(task):
            raise _not_merged(folder, f"the result of {name} is not in {folder.output}")
        raise UsageError(f"{name} has neither a result nor a failure: run it first")
    versions = load_versions(folder)
    identity = state.codes.get(state.failures[task].file, "")
    number = numbers_by_id(versions).get(identity, 0)
    seconds = state.all_failures[task].duration_s
    version = versions.get(number)
    since = Relabels() if version is None else relabels_since(version, state.relabels)
    return _Job(state.plan.key(task), number, version, None, seconds, relabels=since)


def _replay_all(
    jobs: list[_Job], *, workers: int, timeout_s: float | None, progress: Progress | None
) -> list[Replay]:
    """Run jobs version by version; the replays are in the order of the jobs."""
    found: dict[int, Replay] = {}
    ended = count(0)

    def on_end(tasks: int) -> None:
        for _ in range(tasks):
            if progress is not None:
                progress(next(ended) + 1, len(jobs))

    by_code = sorted(range(len(jobs)), key=lambda place: jobs[place].code)
    for _, places in groupby(by_code, key=lambda place: jobs[place].code):
        group = list(places)
        of_version = [jobs[place] for place in group]
        try:
            version = _known_version(of_version[0])
            again = run_again(
                version,
                [job.key_then for job in of_version],
                workers=min(workers, len(group)),
                timeout_s=timeout_s,
                on_end=on_end,
            )
        except StudyError as error:
            found |= {place: _impossible(jobs[place], str(error)) for place in group}
            continue
        for place, attempt in zip(group, again.attempts, strict=True):
            printed = again.printed if len(jobs) == 1 else ""
            found[place] = _compare(jobs[place], attempt, again.changes, printed)
    return [found[place] for place in range(len(jobs))]


def _known_version(job: _Job) -> CodeVersion:
    """StudyError if nobody knows the code."""
    if job.version is not None:
        return job.version
    if job.code:
        raise StudyError(
            f"the output does not describe its code {job.code}, or that is damaged: take a copy "
            "of the output from before that"
        )
    raise StudyError(
        "its code is not known (the column code is 0), as of results of a Recorder, of other "
        "programs, and of what was salvaged: choose a task that a run has done"
    )


def _impossible(job: _Job, reason: str) -> Replay:
    return Replay(
        job.key, job.code, ReplayResult.IMPOSSIBLE, duration_then_s=job.duration_s, reason=reason
    )


def _compare(job: _Job, attempt: Attempt, changes: tuple[str, ...], printed: str) -> Replay:
    columns: tuple[ColumnAgreement, ...] = ()
    if attempt.error:
        result = ReplayResult.FAILED
    elif job.row is None:
        result = ReplayResult.ENDED
    else:
        columns = tuple(_compare_columns(job.row, job.values_now(attempt.values)))
        result = _worst(columns)
    return Replay(
        job.key,
        job.code,
        result,
        columns,
        job.duration_s,
        attempt.duration_s,
        changes if job.is_as_written else (_EDITED, *changes),
        attempt.error,
        attempt.traceback,
        printed,
    )


def _compare_columns(row: dict[str, Array], now: dict[str, Array]) -> Iterator[ColumnAgreement]:
    different = Agreement.DIFFERENT
    for name, then in row.items():
        if name not in now:
            if not is_gap(then):
                yield ColumnAgreement(name, different, detail="is not returned now")
        elif then.shape != now[name].shape:
            shapes = f"{list(then.shape)} then, {list(now[name].shape)} now"
            yield ColumnAgreement(name, different, detail=f"the shape was {shapes}")
        else:
            yield ColumnAgreement(name, *compare_again(then, now[name]))
    for name in now.keys() - row.keys():
        yield ColumnAgreement(name, different, detail="was not returned then")


def _worst(columns: tuple[ColumnAgreement, ...]) -> ReplayResult:
    found = {column.agreement for column in columns}
    worst = next((one for one in reversed(Agreement) if one in found), Agreement.EQUAL)
    return ReplayResult(worst)
