"""What a salvage recovered from each file, as data, text or JSON. Prints nothing."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..base.plan import Key, key_text
from ..base.safe_text import json_text, printable
from ..base.static_html import ShownAsText
from ..base.units import command_text, count_text
from ..worker_files.file_view import NO_KEY
from .trust_labels import ALONE, Candidate, Form, Label, Way

SCHEMA = "h5sweep.salvage/1"
WIDTH = 80
SOUND = "sound"
MOST_LINES = 6  # of one kind, for one file


class SalvagedResult(NamedTuple):
    """A result that was found; a tuple, because there may be a million."""

    key: Key
    place: str
    way: Way
    label: Label
    reason: str  # for the label
    confirmed_by: tuple[Way, ...]  # other readers that found the same
    form: Form  # name, dtype and shape of each value
    digest: bytes  # of the values: equal ones have the same

    @classmethod
    def of(cls, one: Candidate) -> SalvagedResult:
        about = one.key, one.place, one.way, one.label, one.reason
        return cls(*about, one.confirmed_by, one.form, one.digest)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its values."""
        return tuple(name for name, _, _ in self.form)


@dataclass(frozen=True)
class Loss:
    """A task, or part of a file, that could not be got back, and where it lies."""

    place: str
    key: Key | None
    why: str
    extents: tuple[tuple[int, int], ...] = ()  # offsets and sizes


@dataclass(frozen=True)
class SalvageConflict:
    """One task of which readers or places give different values: none of them was taken."""

    key: Key
    found: tuple[str, ...]


@dataclass(frozen=True)
class FileSalvage:
    """What became of one file; on disk it is as it was."""

    path: str
    what: str  # happened to it
    is_damaged: bool = True
    is_live: bool = False
    key: str = ""  # how tasks were told apart
    taken: tuple[SalvagedResult, ...] = ()
    refused: tuple[SalvagedResult, ...] = ()
    losses: tuple[Loss, ...] = ()
    conflicts: tuple[SalvageConflict, ...] = ()
    notes: tuple[str, ...] = ()
    nameless: int = 0
    records: str | None = None

    @property
    def evidence(self) -> int:
        """How many tasks were detected."""
        lost = {key_text(x.key) if x.key else x.place for x in self.losses if x.place}
        refused = {key_text(c.key) for c in self.refused}
        return len(self.taken) + len(lost - refused) + len(refused) + len(self.conflicts)

    @property
    def is_complete(self) -> bool:
        """Whether every task detected was recovered."""
        return self.is_live or not (self.refused or self.losses or self.conflicts or self.nameless)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to tell about this one file."""
        return self.is_complete and not self.notes

    @property
    def is_keyless(self) -> bool:
        """Whether its tasks lack a key and nothing else is wrong: one such file is like another."""
        others = self.taken or self.refused or self.conflicts or self.nameless or self.is_damaged
        return bool(self.losses) and not others and all(x.why == NO_KEY for x in self.losses)

    @property
    def state(self) -> str:
        """What happened to it, in a few words."""
        sound = SOUND if self.is_complete else "not all of it was taken"
        return self.what or ("damaged" if self.is_damaged else sound)

    @property
    def is_alone(self) -> bool:
        """Whether it holds a result that nothing else was there to compare with."""
        return any(result.reason == ALONE for result in (*self.taken, *self.refused))

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many results came which way, by their label."""
        found: dict[str, Counter[str]] = {}
        for result in self.taken:
            found.setdefault(result.way.value, Counter())[result.label.value] += 1
        return {way: dict(labels) for way, labels in found.items()}


@dataclass(frozen=True)
class SalvageReport(ShownAsText):
    """What `salvage` answers."""

    files: tuple[FileSalvage, ...]
    accept: Label = Label.CONSISTENT
    output: str | None = None
    expect: str | None = None  # what `missing` needs to know the rest: "", if that is declared

    @property
    def recovered(self) -> int:
        return sum(len(file.taken) for file in self.files)

    @property
    def exit_code(self) -> int:
        """0 if every task detected was recovered, else 3."""
        return 0 if all(file.is_complete for file in self.files) else 3

    def __str__(self) -> str:
        return report_text(self).rstrip("\n")

    @property
    def next(self) -> str:
        """What to do now."""
        needs_key = any(NO_KEY in loss.why for file in self.files for loss in file.losses)
        if needs_key and not self.recovered:
            return "say where keys are found: --key 'farm{farm_id:d}_s{seed:d}', or --key a,b"
        if not self.recovered:
            return "run the tasks of these files again"
        records = next((file.records for file in self.files if file.records), None)
        if records is None:
            return "add -o OUTPUT to write these results into its run folder"
        if self.output is not None:
            merge = f"{command_text('merge', self.output)} writes the output"
            if self.expect is None:
                return merge
            missing = f"{command_text('missing', self.output)} {self.expect}".rstrip()
            return f"{merge}; {missing} lists the rest"
        merge = command_text("merge", Path(records).parent, "-o", "OUTPUT")
        return f"{merge} merges them into one file"


def report_text(report: SalvageReport) -> str:
    """A salvage for people: a line for files of which all was recovered.

    80 columns, but for the commands at the end: what is pasted must not be broken.
    """
    lines = list(_quiet_lines([file for file in report.files if file.is_quiet]))
    keyless = [file for file in report.files if file.is_keyless]
    for file in report.files:
        if not file.is_quiet and (not file.is_keyless or file is keyless[0]):
            lines += _file_lines(file, report.accept)
    lines += _more_keyless(keyless[1:])
    lines += _summary_lines(report)
    wrapped = [
        textwrap.fill(printable(line, breaks=""), WIDTH, subsequent_indent="      ")
        for line in lines
    ]
    return "\n".join([*wrapped, printable(f"next: {report.next}", breaks="")]) + "\n"


def _quiet_lines(files: Sequence[FileSalvage]) -> Iterator[str]:
    """A line for all sound files, and one for those to which the same happened."""
    alike: dict[str, list[FileSalvage]] = {}
    for file in files:
        alike.setdefault(file.state, []).append(file)
    for state, some in alike.items():
        tasks = count_text(sum(len(file.taken) for file in some), "task")
        more = f" and {count_text(len(some) - 1, 'more file')}" if len(some) > 1 else ""
        name = count_text(len(some), "sound file") if state == SOUND else f"{some[0].path}{more}"
        what = "" if state == SOUND else f": {state}"
        yield f"{name}{what}" + ("" if some[0].is_live else f": {tasks} recovered")


def _more_keyless(files: Sequence[FileSalvage]) -> Iterator[str]:
    if files:
        more, tasks = count_text(len(files), "more sound file"), sum(f.evidence for f in files)
        yield f"{more} like it, {count_text(tasks, 'task')}: these need --key too"


def _file_lines(file: FileSalvage, accept: Label) -> Iterator[str]:
    yield f"{file.path}: {file.state}"
    tasks = count_text(file.evidence, "task")
    yield f"  recovered: {len(file.taken):,} of {tasks} detected"
    yield from _grouped("not taken", ((c.reason, key_text(c.key)) for c in file.refused))
    if file.refused and accept is not Label.UNVERIFIED:
        yield "    (--accept unverified takes these too)"
    keyless = [loss for loss in file.losses if loss.why == NO_KEY]  # there, but which is which?
    lost = [loss for loss in file.losses if loss.why != NO_KEY]
    yield from _grouped("not taken", ((loss.why, _where(loss)) for loss in keyless))
    yield from _grouped("lost", ((loss.why, _where(loss)) for loss in lost))
    for conflict in file.conflicts[:MOST_LINES]:
        more = f" and {len(conflict.found) - 3:,} more" if len(conflict.found) > 3 else ""
        yield f"  conflict: {key_text(conflict.key)}: {' | '.join(conflict.found[:3])}{more}"
    if len(file.conflicts) > MOST_LINES:
        yield f"  … and {len(file.conflicts) - MOST_LINES:,} more conflicts"
    if file.nameless:
        arrays = count_text(file.nameless, "array")
        yield f"  {arrays} without a name: --nameless DIR writes them out"
    for note in file.notes:
        yield f"  note: {note}"


def _summary_lines(report: SalvageReport) -> Iterator[str]:
    """How all results came, how they are told apart, and where they were written."""
    labels: dict[str, Counter[str]] = {}
    for file in report.files:
        for way, counts in file.counts.items():
            labels.setdefault(way, Counter()).update(counts)
    for way, found in labels.items():
        total = ", ".join(f"{count:,} {label}" for label, count in found.items())
        yield f"recovered ({way}): {total}"
    keys = {file.key: None for file in report.files if file.key and (file.taken or file.refused)}
    yield from (f"key: {key}" for key in keys)
    folders = {str(Path(file.records).parent): None for file in report.files if file.records}
    yield from (f"written to: {folder}" for folder in folders)
    evidence = sum(file.evidence for file in report.files)
    many = count_text(len(report.files), "file")
    yield f"{report.recovered:,} of {count_text(evidence, 'task')} recovered from {many}"


def _where(loss: Loss) -> str:
    place = key_text(loss.key) if loss.key else loss.place or "somewhere"
    if not loss.extents:
        return place
    first, last = min(at for at, _ in loss.extents), max(at + n for at, n in loss.extents)
    return f"{place} (bytes {first:,} to {last:,})"


def _grouped(what: str, found: Iterator[tuple[str, str]]) -> Iterator[str]:
    """One line a reason, with the first of those it holds for."""
    reasons: dict[str, list[str]] = {}
    for why, where in found:
        reasons.setdefault(why, []).append(where)
    for number, (why, places) in enumerate(reasons.items()):
        if number == MOST_LINES:
            yield f"  … and {len(reasons) - MOST_LINES:,} more reasons: --json shows all"
            return
        more = f" and {len(places) - 1:,} more" if len(places) > 1 else ""
        yield f"  {what}: {len(places):,}: {why}: {places[0]}{more}"


def report_json(report: SalvageReport) -> str:
    """One object with everything, for programs."""
    files = [_file_json(file) for file in report.files]
    whole = {
        "schema": SCHEMA,
        "accept": report.accept.value,
        "output": report.output,
        "recovered": report.recovered,
        "next": report.next,
        "files": files,
    }
    return json_text(whole, indent=1, allow_nan=False)


def _file_json(file: FileSalvage) -> dict[str, Any]:
    return {
        "path": file.path,
        "what": file.what,
        "damaged": file.is_damaged,
        "live": file.is_live,
        "key": file.key,
        "evidence": file.evidence,
        "complete": file.is_complete,
        "counts": file.counts,
        "taken": [_result_json(result) for result in file.taken],
        "not_taken": [_result_json(result) for result in file.refused],
        "lost": [
            {"place": x.place, "key": x.key, "why": x.why, "bytes": [list(e) for e in x.extents]}
            for x in file.losses
        ],
        "conflicts": [{"key": c.key, "found": list(c.found)} for c in file.conflicts],
        "nameless": file.nameless,
        "notes": list(file.notes),
        "records": file.records,
    }


def _result_json(result: SalvagedResult) -> dict[str, Any]:
    return {
        "key": result.key,
        "place": result.place,
        "way": result.way.value,
        "label": result.label.value,
        "reason": result.reason,
        "also": [way.value for way in result.confirmed_by],
        "values": [list(value) for value in result.form],
    }
