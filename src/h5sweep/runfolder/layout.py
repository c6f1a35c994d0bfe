"""The layout of a run folder, `layouts.h5.run/` beside `layouts.h5`.

    README.txt      what this folder is, for whoever finds it
    plan.jsonl      every task's key, by number; only ever grows
    sweep.json      the sweep: who declared which tasks, dims, units, where its code lies
    merged.json     which tasks the output held after the last merge
    relabels.json   which names, units and axes were changed since results were there
    code/           the versions of the code that results are from, 1.json and on; in `copies`
                    sources that were edited before a worker compiled them
    redo.json       which tasks are to be run again, or were, if somebody has asked for that
    parts/          the parts of the sweep that are at work (`parts`)
    claims/         which part has claimed which tasks
    submit/         the scripts that a batch system was given, and which jobs these became
    orders/         what a run has sent to an engine (`orders`)
    records/        one record file per process that ever worked here
    logs/           what the tasks printed, one file per worker
    report.html     how the sweep stood when its last run ended, for a browser

Beside it lie `.layouts.h5.lock` (`lock`: who is at work), `layouts.h5.audit.jsonl` (`audit`: what
each merge took from where) and `layouts.h5.quarantine/` (`quarantine`: what `clean` moved aside).
Any process that sees the folder can say what is done, failed, running and missing: there is no
other state.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.number_ranges import are_ranges
from ..base.plan import Plan
from ..base.relabels import MARK, Relabels
from ..disk import durable
from ..disk.find_files import LOGS_NAME, PLAN_NAME, RECORDS_NAME, RECORDS_SUFFIX, RUN_SUFFIX
from ..disk.inside_folder import forget_missing, parse_json, read_file
from ..errors import DamagedError, UsageError, naming
from .redo_requests import Requests

_README_NAME = "README.txt"
_CODE_NAME = re.compile(r"[1-9][0-9]{0,4}\.json")

README = """\
This folder belongs to {output}, the output beside it. It was made by h5sweep.

It keeps every finished result until it is merged into the output, and after that until you remove
it. Do not edit or delete anything here during a run.

  h5sweep status {name}     show what is done, failed, running
  h5sweep missing {name}    list what is missing, and why
  h5sweep merge {name}      write the output from these results
  h5sweep clean {name}      list what is safe to remove

plan.jsonl    each task's key, by number            records/   results, one file per process
sweep.json    what was run, by whom, with what      logs/      what the tasks printed
merged.json   which tasks the output holds          code/      the code that made the results
redo.json     which tasks are to be run again
relabels.json which names and units were changed since
parts/, claims/, orders/  which parts are at work, on which tasks, and for which run
submit/       the scripts of jobs that were submitted to a batch system
report.html   how the sweep stood when its last run ended: open it in a browser
"""


@dataclass(frozen=True)
class Declared:
    """That somebody has said which tasks there should be: all of a plan but those in `without`."""

    by: str  # the sweep, or what --expect named
    plan: str
    without: list[list[int]]  # [first, last] pairs of task numbers

    def as_json(self) -> dict[str, Any]:
        return {"by": self.by, "plan": self.plan, "without": self.without}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Declared:
        if not isinstance(value["by"], str) or not are_ranges(value["without"]):
            raise ValueError("it declares no tasks")
        return cls(value["by"], value["plan"], value["without"])


@dataclass(frozen=True)
class _RunPaths:
    """Every path of a run folder comes from here."""

    output: Path

    @property
    def path(self) -> Path:
        return self.output.with_name(self.output.name + RUN_SUFFIX)

    @property
    def plan_path(self) -> Path:
        return self.path / PLAN_NAME

    @property
    def sweep_path(self) -> Path:
        return self.path / "sweep.json"

    @property
    def lock_path(self) -> Path:
        """Beside the output, because it is for those too that need no run folder."""
        return self.output.with_name(f".{self.output.name}.lock")

    @property
    def merged_path(self) -> Path:
        return self.path / "merged.json"

    @property
    def redo_path(self) -> Path:
        return self.path / "redo.json"

    @property
    def relabels_path(self) -> Path:
        return self.path / "relabels.json"

    @property
    def records_path(self) -> Path:
        return self.path / RECORDS_NAME

    @property
    def logs_path(self) -> Path:
        return self.path / LOGS_NAME

    @property
    def code_path(self) -> Path:
        return self.path / "code"

    @property
    def copies_path(self) -> Path:
        """Where sources are put that were edited before they were compiled, by their versions."""
        return self.code_path / "copies"

    @property
    def parts_path(self) -> Path:
        return self.path / "parts"

    @property
    def claims_path(self) -> Path:
        return self.path / "claims"

    @property
    def submit_path(self) -> Path:
        return self.path / "submit"

    @property
    def orders_path(self) -> Path:
        return self.path / "orders"

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    @property
    def readme_path(self) -> Path:
        return self.path / _README_NAME

    def new_record_path(self, role: str) -> Path:
        """A name no record file has had, for `role`: worker, run, recorder."""
        return self.records_path / f"{role}_{os.getpid()}_{os.urandom(4).hex()}{RECORDS_SUFFIX}"

    def log_path(self, record_path: Path) -> Path:
        """The log of the worker that writes the record file `record_path`."""
        return self.logs_path / f"{record_path.stem}.log"

    def log_pattern(self, role: str, pid: int) -> Path:
        """Where the log of a process lies that has not said which record file is its own."""
        return self.logs_path / f"{role}_{pid}_*.log"

    def record_paths(self) -> list[Path]:
        """Every record file, in a fixed order; a folder or pipe of such a name is none."""
        # A listing, not a test for each name: network file systems cache "no such file".
        if not self.records_path.is_dir():
            return []
        with naming(self.records_path), os.scandir(self.records_path) as entries:
            names = [e.name for e in entries if e.name.endswith(RECORDS_SUFFIX) and e.is_file()]
        return [self.records_path / name for name in sorted(names)]

    def code_paths(self) -> dict[int, Path]:
        """Where each version of the code is described, by its number."""
        if not self.code_path.is_dir():
            return {}
        paths = [path for path in self.code_path.iterdir() if _CODE_NAME.fullmatch(path.name)]
        return dict(sorted((int(path.stem), path) for path in paths))


class RunFolder(_RunPaths):
    """The run folder of one output, and what its files say."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The run folder meant by `path`: an output, whether it exists or not, or the folder."""
        path = Path(path)
        forget_missing(path.parent)  # commands decide by what is there
        if path.name.endswith(RUN_SUFFIX) and path.is_dir():
            return cls(path.with_name(path.name.removesuffix(RUN_SUFFIX)))
        if path.is_symlink():
            # The output is replaced by rename: that must not cut a link to another disk.
            path = resolved(path)
        if path.is_dir():
            raise UsageError(f"{path} is a folder: name an output, such as {path / 'layouts.h5'}")
        _require_file(path)
        folder = cls(path)
        forget_missing(folder.path)
        return folder

    def exists(self) -> bool:
        return self.path.is_dir()

    def remove_unused(self) -> None:
        """Remove the folder if no process has recorded anything in it; the lock must be held."""
        with suppress(OSError):  # such as that a recorder has, just now
            for path in (self.parts_path, self.claims_path, self.orders_path):
                if path.exists():
                    path.rmdir()
            self.logs_path.rmdir()
            self.records_path.rmdir()
            for path in self.code_paths().values():
                path.unlink()
            with suppress(FileNotFoundError):
                self.code_path.rmdir()
            notes = (self.plan_path, self.sweep_path, self.merged_path, self.redo_path)
            for path in (*notes, self.relabels_path, self.readme_path):
                path.unlink(missing_ok=True)
            self.path.rmdir()

    def create(self) -> None:
        """Make the folder and what belongs in it, durably; harmless if it is there."""
        self.require_place()
        for path in (self.path, self.records_path, self.logs_path):
            durable.make_folder(path)
        # Many processes may come here at once, and this file is for people only: the first writes.
        # A refused one may be removing it all.
        text = README.format(output=self.output.name, name=shlex.quote(self.output.name))
        try:
            with naming(self.readme_path), self.readme_path.open("x") as readme:
                readme.write(text)
        except FileNotFoundError:
            pass
        except OSError as error:
            if not durable.is_there_already(self.readme_path, error):
                raise

    def require_place(self) -> None:
        """Raise UsageError if the output cannot be there: its name may be misspelt."""
        if self.output.suffix == ".py":
            raise UsageError(f"{self.output} is a study: name an output, such as layouts.h5")
        _require_file(self.output)
        place = self.output.parent
        if not place.is_dir():
            raise UsageError(
                f"there is no folder {place} for {self.output.name}: correct the name, "
                f"or make it first: mkdir -p {shlex.quote(str(place))}"
            )

    def load_plan(self) -> Plan | None:
        """The plan, or None if none was made yet."""
        try:
            content = read_file(self.plan_path)
            if content is None:
                return None
            plan, head = Plan.from_json(content.decode()), parse_json(content.partition(b"\n")[0])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DamagedError(
                f"{self.plan_path} is damaged ({error}); the records are not affected. "
                "Move the plan away and run the same command again: the records hold the keys too"
            ) from error
        # Behind the plan, so that none is missed that the plan knows.
        return self.load_relabels().unknown_to(head).plan(plan)

    def save_plan(self, plan: Plan) -> None:
        """Replace the plan, durably. The caller holds the lock and only ever appends tasks."""
        durable.replace_text(self.plan_path, plan.to_json(self.load_relabels().about()))

    def load_sweep(self) -> dict[str, Any]:
        """What is known about the sweep; empty before its first run."""
        about = _load_json(self.sweep_path)
        for name in ("declared", "dims", "coords", "units", "attributes"):
            if not isinstance(about.get(name) or {}, dict):
                raise DamagedError(f"{self.sweep_path} is damaged (its {name}): move it away")
        known = {MARK: about.pop(MARK, None)}
        return self.load_relabels().unknown_to(known).sweep_facts(about)

    def load_declared(self) -> Declared | None:
        """Which tasks there should be; None if no run has said so."""
        about = self.load_sweep().get("declared")
        try:
            return None if about is None else Declared.from_json(about)
        except (ValueError, KeyError, TypeError) as error:
            why = f"{self.sweep_path} is damaged (what it declares: {error}): move it away"
            raise DamagedError(why) from error

    def save_sweep(self, about: dict[str, Any]) -> None:
        about = {**about, **self.load_relabels().about()}
        durable.replace_text(self.sweep_path, json.dumps(about, indent=1) + "\n")

    def load_relabels(self) -> Relabels:
        """Which names, units and axes were changed; none if nobody has."""
        return _load_relabels(self.relabels_path)

    def load_merged(self) -> dict[str, Any]:
        """What the last merge noted about the output it wrote; empty if there was none.

        Empty as well if the note is damaged: the output and the records say all that it says.
        """
        try:
            merged = _load_json(self.merged_path)
        except DamagedError:
            return {}
        return merged if _is_note(merged) else {}

    def save_merged(self, about: dict[str, Any]) -> None:
        durable.replace_text(self.merged_path, json.dumps(about) + "\n")

    def about_records(self) -> dict[str, Any]:
        """What a new record file says of its results: which requests and relabels they know."""
        return {**self.load_redo().about(), **self.load_relabels().about()}

    def load_redo(self) -> Requests:
        """Which tasks were asked to be run again; none if nobody has asked."""
        again = "move it away, and name the tasks that are to be run again once more"
        try:
            return Requests.from_json(_load_json(self.redo_path, again))
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedError(f"{self.redo_path} is damaged ({error}): {again}") from error

    def save_redo(self, requests: Requests) -> None:
        """Replace the requests, durably. The caller holds the lock."""
        durable.replace_text(self.redo_path, json.dumps(requests.as_json()) + "\n")


def _load_relabels(path: Path) -> Relabels:
    again = "put it back from a backup; the audit trail says what was changed"
    try:
        return Relabels.from_json(_load_json(path, again))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path} is damaged ({error}): {again}") from error


def save_relabels(folder: RunFolder, relabels: Relabels) -> None:
    """Replace them, durably: from here on all that is there has the new labels."""
    durable.replace_text(folder.relabels_path, json.dumps(relabels.as_json(), indent=1) + "\n")


def resolved(path: Path) -> Path:
    """Where a path leads; UsageError if that is nowhere."""
    try:
        return path.resolve()
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{path} is a circular link: move it away") from error


def _require_file(path: Path) -> None:
    """Raise UsageError for what would never answer, such as a pipe; a folder is told elsewhere."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UsageError(f"{path} is not a regular file: name an output, such as layouts.h5")


_ANEW = "move it away and start the run again, which writes a new one"


def _load_json(path: Path, next_step: str = _ANEW) -> dict[str, Any]:
    try:
        content = read_file(path)
        loaded = {} if content is None else parse_json(content)
    except ValueError as error:
        raise DamagedError(f"{path} is damaged ({error}): {next_step}") from error
    if not isinstance(loaded, dict):
        raise DamagedError(f"{path} is damaged (it is not a JSON object): {next_step}")
    return loaded


def _is_note(merged: dict[str, Any]) -> bool:
    """Whether this is what `save_merged` was given."""
    has_plan = isinstance(merged.get("plan"), str) and "output" in merged
    return has_plan and are_ranges(merged.get("tasks"))
