"""The audit trail, `layouts.h5.audit.jsonl` beside the output: what each merge took from where.

One merge is one line of JSON, appended durably. A line ends with a checksum of itself, so that one
that a kill or a full disk has torn, or that rotted, is told from a whole one; all other lines are
read all the same. Lines are never changed and never removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from ..base import provenance
from ..base.static_html import ShownAsText
from ..base.units import count_text, size_text
from ..disk import durable
from ..disk.find_files import PathLike
from ..disk.inside_folder import open_file, parse_json
from ..errors import DamagedError, naming

SCHEMA = "h5sweep.audit/1"
REMOVAL_SCHEMA = "h5sweep.removal/1"
EVENT_SCHEMA = "h5sweep.event/1"
TRAIL_SCHEMA = "h5sweep.trail/1"  # of what `h5sweep audit --json` prints
SUFFIX = ".audit.jsonl"
_CHECKSUM = re.compile(rb'(.*),"line_crc32":"([0-9a-f]{8})"}', re.S)


class AuditInput(NamedTuple):
    """What of one file went where; a tuple, because a merge may have many thousands."""

    path: str  # absolute
    size_bytes: int
    modified_ns: int
    xxh3: str | None  # of the whole file, 16 hexadecimal digits; None if it was not taken
    state: str
    findings: tuple[str, ...]  # their codes
    style: str
    tasks: int
    duplicates: int = 0
    datasets: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    rows: Mapping[str, Sequence[int]] = {}  # table → first row, count; again, if not in one run
    left_out: Mapping[str, str] = {}  # attributes that the output lacks → their values


class Refused(NamedTuple):
    """A file that was not merged."""

    path: str
    size_bytes: int
    modified_ns: int
    state: str
    findings: Sequence[str]
    why: str


class Conflict(NamedTuple):
    """Two different results for one task, and which was taken."""

    task: str
    taken: str  # the file and, unless `task` says that, the place in it
    left_out: Sequence[str]  # the same of every other
    by: str  # first, last or newest


@dataclass(frozen=True)
class AuditEntry:
    """One merge."""

    output: str
    output_size_bytes: int
    output_identity: Sequence[int] | None  # as held.output_identity tells it
    way: str  # columns, groups, both, sweep
    time: str
    duration_s: float
    key: str | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)  # command, folder, host, user, versions
    inputs: Sequence[AuditInput] = ()
    refused: Sequence[Refused] = ()
    conflicts: Sequence[Conflict] = ()
    notes: Sequence[str] = ()

    @classmethod
    def now(cls, output: Path, *, way: str, **fields: Any) -> AuditEntry:
        """An entry about the output as it is now, by the command that runs now."""
        status = output.stat()
        identity = [status.st_size, status.st_mtime_ns]
        return cls(
            str(output.absolute()),
            status.st_size,
            identity,
            way,
            now_text(),
            about=provenance.describe_command(),
            **fields,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "time": self.time,
            **self.about,
            "duration_s": round(self.duration_s, 6),
            "output": {
                "path": self.output,
                "bytes": self.output_size_bytes,
                "identity": self.output_identity,
            },
            "way": self.way,
            "key": self.key,
            "policy": dict(self.policy),
            "refused": [one._asdict() for one in self.refused],
            "conflicts": [one._asdict() for one in self.conflicts],
            "notes": list(self.notes),
            "inputs": [one._asdict() for one in self.inputs],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AuditEntry:
        """The entry in a parsed line; KeyError, TypeError or ValueError if it is none."""
        if value["schema"] != SCHEMA:
            raise ValueError(f"its schema is {value['schema']!r}")
        output = value["output"]
        return cls(
            output["path"],
            output["bytes"],
            output["identity"],
            about=_about(value),
            inputs=tuple(AuditInput(**one) for one in value["inputs"]),
            refused=tuple(Refused(**one) for one in value["refused"]),
            conflicts=tuple(Conflict(**one) for one in value["conflicts"]),
            notes=tuple(value["notes"]),
            **{name: value[name] for name in ("way", "time", "duration_s", "key", "policy")},
        )


class Unread(NamedTuple):
    """A line of the trail that could not be read; the others are not touched by this."""

    line: int
    why: str
    is_torn: bool = False  # as a killed merge leaves it


@dataclass(frozen=True)
class Removal:
    """That `clean` moved, put back or removed files, noted before it did."""

    time: str
    event: str
    files: tuple[str, ...]  # their paths
    about: Mapping[str, Any] = field(default_factory=dict)  # command, folder, host, user, versions

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Removal:
        files = tuple(str(one["path"]) for one in value["files"])
        return cls(value["time"], value["event"], files, _about(value))

    def as_json(self) -> dict[str, Any]:
        about = {"schema": REMOVAL_SCHEMA, "time": self.time, **self.about}
        return {**about, "event": self.event, "files": [{"path": path} for path in self.files]}


@dataclass(frozen=True)
class AuditEvent:
    """Anything else that somebody did to the output, such as asking for tasks to be run again."""

    time: str
    event: str
    about: Mapping[str, Any] = field(default_factory=dict)  # command, folder, host, user, versions

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> AuditEvent:
        return cls(value["time"], value["event"], _about(value))

    def as_json(self) -> dict[str, Any]:
        return {"schema": EVENT_SCHEMA, "time": self.time, **self.about, "event": self.event}


AuditLine = AuditEntry | Removal | AuditEvent | Unread


@dataclass(frozen=True)
class AuditTrail(ShownAsText):
    """All that the audit trail of an output says, the oldest first."""

    lines: tuple[AuditLine, ...]

    @property
    def entries(self) -> tuple[AuditEntry, ...]:
        return tuple(line for line in self.lines if isinstance(line, AuditEntry))

    @property
    def unread(self) -> tuple[Unread, ...]:
        return tuple(line for line in self.lines if isinstance(line, Unread))

    @property
    def removals(self) -> tuple[Removal, ...]:
        return tuple(line for line in self.lines if isinstance(line, Removal))

    @property
    def events(self) -> tuple[AuditEvent, ...]:
        return tuple(line for line in self.lines if isinstance(line, AuditEvent))

    def __str__(self) -> str:
        return trail_text(self).rstrip("\n")


def audit_path(output: Path) -> Path:
    """Where the audit trail of `output` lies."""
    return output.with_name(output.name + SUFFIX)


def append_entry(output: Path, entry: AuditEntry) -> None:
    """Add a merge to the audit trail of `output`, durably.

    Killed at any moment, the trail has the entry, or not, or a torn line that readers pass over.
    """
    _append(output, entry.as_json())


def append_removal(output: Path, event: str, files: Sequence[Mapping[str, Any]]) -> None:
    """Note in the trail that `clean` moved, put back or removed files, before it does."""
    about = {"schema": REMOVAL_SCHEMA, "time": now_text(), **provenance.describe_command()}
    _append(output, {**about, "event": event, "files": list(files)})


def append_event(output: Path, event: str) -> None:
    """Note anything else in the trail, in one sentence, with who did it and by which command."""
    about = {"schema": EVENT_SCHEMA, "time": now_text(), **provenance.describe_command()}
    _append(output, {**about, "event": event})


def _append(output: Path, line: Mapping[str, Any]) -> None:
    """Append a line of JSON with its own checksum."""
    text = compact_json(line)[:-1].encode()
    durable.append_line(audit_path(output), text + b',"line_crc32":"%08x"}' % crc32(text))


def compact_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def read_entries(output: Path) -> list[AuditEntry]:
    """Every merge in the audit trail of `output`, the oldest first; torn lines are passed over."""
    return list(read_audit(output).entries)


def read_audit(output: PathLike) -> AuditTrail:
    """What the audit trail of `output` says: merges, what `clean` did, events, what is unreadable.

    Empty if there is no trail.
    """
    lines: list[AuditLine] = []
    for number, line in enumerate(_lines(audit_path(Path(output))), 1):
        try:
            value = _parse(line)
            if value["schema"] == REMOVAL_SCHEMA:
                lines.append(Removal.from_json(value))
            elif value["schema"] == EVENT_SCHEMA:
                lines.append(AuditEvent.from_json(value))
            else:
                lines.append(AuditEntry.from_json(value))
        except _TornError:
            lines.append(Unread(number, _TORN, is_torn=True))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            lines.append(Unread(number, f"damaged ({error})"))
    return AuditTrail(tuple(lines))


_TORN = "torn: its merge was killed, or the disk was full"


class _TornError(Exception):
    """A line that was not written to its end."""


def _lines(path: Path) -> Iterator[bytes]:
    try:
        file = open_file(path)
    except FileNotFoundError:
        return
    except ValueError as error:
        raise DamagedError(f"{path} is not an audit trail ({error}): move it away") from error
    with naming(path), file:
        yield from (line.rstrip(b"\n") for line in file)


def _parse(line: bytes) -> dict[str, Any]:
    match = _CHECKSUM.fullmatch(line)
    if match is None:
        raise _TornError
    if crc32(match[1]) != int(match[2], 16):
        raise ValueError("its checksum is wrong")
    value: dict[str, Any] = parse_json(line)
    return value


def now_text() -> str:
    """The time as it stands in the trail: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_input(path: Path, tasks: int) -> AuditInput:
    """A record file from which so many rows came.

    There is no checksum of all of it: each record has its own, and was compared with it.
    """
    try:
        status = path.stat()
        size_and_time = status.st_size, status.st_mtime_ns
    except FileNotFoundError:  # taken away since it was merged
        size_and_time = 0, 0
    return AuditInput(str(path.absolute()), *size_and_time, None, "sound", (), "records", tasks)


def trail_text(trail: AuditTrail, *, most_files: int | None = None) -> str:
    """What was done to an output, as pages for people; of more files, the first are listed."""
    pages = []
    for line in trail.lines:
        if isinstance(line, AuditEntry):
            pages.append(audit_text(line, most_files=most_files))
        elif isinstance(line, Unread):
            pages.append(f"line {line.line} cannot be read: {line.why}\n")
        else:
            pages.append(_event_text(line, most_files))
    return "\n---\n\n".join(pages)


def trail_json(output: Path, trail: AuditTrail) -> dict[str, Any]:
    """The same for programs: each line as it stands in the trail."""
    return {
        "schema": TRAIL_SCHEMA,
        "output": str(output),
        "lines": [line.as_json() for line in trail.lines if not isinstance(line, Unread)],
        "unread": [line._asdict() for line in trail.unread],
    }


def _event_text(line: Removal | AuditEvent, most_files: int | None) -> str:
    facts, files = {"done": line.event, "at": line.time, **_who(line.about)}, []
    if isinstance(line, Removal):
        facts["done"] += f", {count_text(len(line.files), 'file')}"
        files = ["", *_some([f"  {path}" for path in line.files], most_files)]
    return "\n".join([*_fact_lines(facts), *files]) + "\n"


def audit_text(entry: AuditEntry, *, most_files: int | None = None) -> str:
    """One merge as a page for people."""
    about, tasks = entry.about, sum(one.tasks for one in entry.inputs)
    versions = ", ".join(f"{name} {it}" for name, it in about.get("versions", {}).items())
    policy = ", ".join(f"{name} {it}" for name, it in entry.policy.items() if it is not None)
    facts = {
        "output": f"{entry.output} ({size_text(entry.output_size_bytes)})",
        "merged": f"{entry.time}, in {entry.duration_s:.3g} s",
        **_who(about),
        "with": versions,
        "way": entry.way + (f", key {entry.key}" if entry.key else ""),
        "policy": policy,
    }
    lines = _fact_lines(facts)
    lines += ["", f"{count_text(len(entry.inputs), 'file')} merged, {count_text(tasks, 'task')}"]
    lines += _some([_input_text(one) for one in entry.inputs], most_files)
    if entry.refused:
        lines += ["", f"{count_text(len(entry.refused), 'file')} not merged"]
        lines += [f"  {one.path}  {one.state}: {one.why}" for one in entry.refused]
    if entry.conflicts:
        lines += ["", f"{count_text(len(entry.conflicts), 'conflict')}"]
        lines += [f"  {conflict_text(one)}" for one in entry.conflicts]
    if entry.notes:
        lines += ["", "notes", *(f"  {note}" for note in entry.notes)]
    return "\n".join(lines) + "\n"


def _who(about: Mapping[str, Any]) -> dict[str, str]:
    return {
        "by": f"{about.get('user') or 'unknown user'} on {about.get('host', 'unknown host')}",
        "command": about.get("command", ""),
        "in": about.get("folder", ""),
    }


def _fact_lines(facts: Mapping[str, str]) -> list[str]:
    return [f"{name:8} {it}" for name, it in facts.items() if it]


def _some(lines: list[str], most: int | None) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"  … {len(lines) - most:,} more"]


def _input_text(one: AuditInput) -> str:
    facts = [count_text(one.tasks, "task"), size_text(one.size_bytes)]
    facts += [f"xxh3 {one.xxh3}"] if one.xxh3 else []
    facts += [f"{one.duplicates:,} of them duplicates"] if one.duplicates else []
    facts += [
        f"{table} rows {first:,} to {first + count - 1:,}"
        for table, runs in one.rows.items()
        for first, count in zip(runs[::2], runs[1::2], strict=True)
        if count
    ]
    facts += [f"without {', '.join(one.skipped)}"] if one.skipped else []
    facts += [f"{name} was {value}" for name, value in one.left_out.items()]
    facts += [" ".join(one.findings)] if one.findings else []
    return f"  {one.path}  {'; '.join(facts)}"


def conflict_text(one: Conflict) -> str:
    """`farm_id=3, seed=42: a.h5, /s42 taken (first), not b.h5, /s42`."""
    return f"{one.task}: {one.taken} taken ({one.by}), not {', '.join(one.left_out)}"


def _about(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in _ABOUT if name in value}


_ABOUT = ("command", "folder", "host", "user", "versions")
