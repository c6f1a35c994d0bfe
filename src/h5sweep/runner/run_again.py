"""Run tasks again with an earlier version of the code, in a pool whose folder is thrown away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..base import provenance
from ..base.listed_plan import plan_list
from ..base.plan import Key
from ..base.values import Array, decode_result, schema_from_header
from ..code.changes import change_texts
from ..code.restore import version_now
from ..code.version import CodeVersion
from ..disk.inside_folder import parse_json
from ..errors import StudyError
from ..runfolder.layout import RunFolder
from ..runfolder.records import DURATION_S, RecordFile, read_data
from ..state.state import FolderState, read_state
from .events import Ended, Event, Failed
from .hand_over import handed_over_again
from .pool import Pool
from .settings import PoolSettings, Retries
from .worker_handle import LaunchOrder


@dataclass(frozen=True)
class Attempt:
    """How a task ended that was run again: with values, or with an error."""

    values: dict[str, Array] = field(default_factory=dict)
    duration_s: float | None = None
    error: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Attempts:
    """One for each key; what is not as it was for this version; what all tasks printed."""

    attempts: list[Attempt]
    changes: tuple[str, ...]
    printed: str


def run_again(
    version: CodeVersion,
    keys: Sequence[Key],
    *,
    workers: int,
    timeout_s: float | None,
    on_end: Callable[[int], None],
) -> Attempts:
    """Run tasks with a version; `on_end` is told of so many that have ended.

    StudyError if the version cannot be had again. Nothing stays on disk.
    """
    settings = PoolSettings(workers, timeout_s=timeout_s, retries=Retries(0, 0, 0, 0))
    with TemporaryDirectory(prefix="h5sweep-replay-") as place:
        folder, answers = RunFolder(Path(place) / "again.h5"), Path(place) / "answers"
        answers.mkdir()
        folder.create()
        folder.save_plan(plan_list(list(keys)))
        died: dict[int, Failed] = {}
        # One thread each, as in a run with a worker on every core: sums depend on it.
        with (
            handed_over_again(version, answers) as function,
            Pool(LaunchOrder(folder, function, 1, dict(os.environ)), settings) as pool,
        ):
            for event in _naming_what_was_printed(pool.run(range(len(keys))), folder):
                if isinstance(event, Ended):
                    on_end(event.tasks_done)
                elif isinstance(event, Failed):
                    on_end(1)
                    died |= {} if event.recorded else {event.task: event}
        changes = tuple(_changes(version, answers))
        return Attempts(list(_attempts(folder, len(keys), died)), changes, _printed(folder))


def _naming_what_was_printed(events: Iterator[Event], folder: RunFolder) -> Iterator[Event]:
    """Have a study that ends its worker say what it printed: the log will be gone."""
    try:
        yield from events
    except StudyError as error:
        advice = f": read the logs in {folder.logs_path}"
        if advice not in str(error):
            raise
        said = str(error).replace(advice, "; it printed:")
        raise StudyError(f"{said}\n{_printed(folder)}".rstrip()) from error


def _attempts(folder: RunFolder, count: int, died: dict[int, Failed]) -> Iterator[Attempt]:
    plan = folder.load_plan()
    assert plan is not None  # we have written it
    state = read_state(folder, plan)
    for task in range(count):
        if state.is_done(task):
            yield _read_result(state, task)
        elif task in died:
            error, seconds = died[task].error, died[task].duration_s
            lines = error["traceback"].splitlines(keepends=True)
            stack = "".join(line for line in lines if not line.startswith("log: "))  # it is gone
            yield Attempt({}, seconds, _error_text(error), stack)
        else:
            failure = state.all_failures[task]
            about = {"type": failure.error, "message": failure.message, "where": failure.where}
            yield Attempt({}, failure.duration_s, _error_text(about), failure.traceback)


def _read_result(state: FolderState, task: int) -> Attempt:
    offset = state.offsets[task]
    with RecordFile(state.paths[state.files[task]]) as file:
        frame = file.frame(offset)
        schema = schema_from_header(file.header(offset, frame))
        values = decode_result(schema, read_data(file, offset, frame))
        return Attempt(values, frame[DURATION_S])


def _error_text(error: dict[str, Any]) -> str:
    where = f" at {error['where']}" if error["where"] else ""
    return f"{error['type']}{where}: {error['message']}"


def _changes(version: CodeVersion, answers: Path) -> Iterator[str]:
    """What is not as it was when the version was recorded, as far as a worker could say."""
    for path in sorted(answers.iterdir()):
        try:
            found = parse_json(path.read_bytes())
        except ValueError:  # its worker was ended while it wrote
            continue
        yield from change_texts(version, version_now(version, found))
        break
    yield from _changes_of_machine(version)


def _changes_of_machine(version: CodeVersion) -> Iterator[str]:
    """What differs beside the code: our own packages, and the host."""
    now = provenance.describe_command()
    named = version.facts["packages"]
    for name, was in (version.about.get("versions") or {}).items():
        is_now = now["versions"].get(name)
        if name not in named and is_now is not None and is_now != was:
            yield f"{name} was {was} and is {is_now}"
    host = version.about.get("host")
    if host and host != now["host"]:
        yield f"the host was {host} and is {now['host']}"


def _printed(folder: RunFolder) -> str:
    paths = sorted(folder.logs_path.iterdir())
    return "".join(path.read_text(errors="replace") for path in paths)
