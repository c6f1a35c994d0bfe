"""Tasks from files that h5sweep wrote: outputs, and record files of other run folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...base.attribute_json import Attributes, united_with_units
from ...base.key_rule import KeyRow, KeyRule
from ...base.plan import Plan, key_text
from ...base.relabels import Relabels
from ...base.values import STR, Array, least_bytes, schema_bytes, schema_from_header
from ...code.relabelled import relabels_since
from ...code.store import parse_version, version_texts
from ...errors import DamagedError, SweepError
from ...output.reader import OutputReader, OutputSource
from ...output.stored_labels import StoredLabels
from ...output.verify import damaged_rows
from ...runfolder.layout import RunFolder
from ...runfolder.records import RecordFile, RecordKind, Scan, record_of
from ...worker_files import findings
from ...worker_files.read_file import DamagedFileError
from .column_attributes import Described
from .number_keys import require_same_names
from .tasks_of_file import About, KnownVersion, Result

ROWS_AT_ONCE = 4096

EncodedCells = dict[
    str, tuple[str, tuple[int, ...], bytes]
]  # name → dtype, shape and bytes of a value


class OutputTasks:
    """The rows of an output of ours; DamagedError if the checksum of one does not hold."""

    def __init__(self, reader: OutputReader, rule: KeyRule) -> None:
        self._reader, self.about = reader, About()
        keys = reader.keys()
        require_same_names(rule.names, keys.columns, reader.path)
        self.keys: list[KeyRow] = [rule.row(key) for key in keys.rows()]
        if len(damaged := damaged_rows(reader)):
            first = key_text(rule.key(self.keys[int(damaged[0])]))
            found = findings.OUTPUT_ROWS.finding(count=len(damaged), task=first)
            raise DamagedFileError(str(reader.path), found)
        self.about.datasets = dict.fromkeys(c.source_name for c in reader.columns())
        self.about.skipped = reader.strangers()
        labels = StoredLabels(reader)
        describe(self.about, labels.all())
        said = labels.returned()
        self._labels = {n: [a, [*said.get(n, {}).items()]] for n, a in labels.axes().items()}
        self.about.versions = list(_versions(reader.code_texts(), Relabels()))
        ids = {version.number: version.id for version in self.about.versions}
        self._codes = [ids.get(number, "") for number in reader.codes().tolist()]
        if len(reader.whole("failures/task")):
            self.about.note("only results are merged, not failures")

    def place(self, number: int) -> str:
        return f"row {number}"

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        finished_at, duration_s = (
            self._reader.whole("finished_at"),
            self._reader.whole("duration_s"),
        )
        for first in range(0, len(self.keys), ROWS_AT_ONCE):
            rows = np.arange(first, min(first + ROWS_AT_ONCE, len(self.keys)))
            for row, cells in zip(rows.tolist(), read_cells(self._reader, rows), strict=True):
                schema = schema_bytes((name, *cell[:2]) for name, cell in cells.items())
                data = b"".join(data for _, _, data in cells.values())
                times = float(finished_at[row]), float(duration_s[row])
                labels = [self._labels[name] if any(self._labels[name]) else [] for name in cells]
                said = _json_bytes(labels) if any(labels) else b""
                yield Result(row, schema, data, *times, self._codes[row], said)


def _versions(texts: Mapping[int, str], relabels: Relabels) -> Iterator[KnownVersion]:
    for number, text in texts.items():
        with suppress(DamagedError):  # then its rows are kept, and their code is not known
            version = parse_version(text)
            yield KnownVersion(number, version.id, text, relabels_since(version, relabels))


def describe(about: About, attributes: Attributes) -> None:
    """Note what is said of parameters and results."""
    about.described.tasks.update(attributes)
    for column, values in attributes.items():
        for name, value in values.items():
            about.described.add(Described(column, f"/{column}", name), value, [0])


def read_cells(reader: OutputReader, rows: Array) -> list[EncodedCells]:
    """The values in these rows of an output, each as it was recorded."""
    found: list[EncodedCells] = [{} for _ in rows]
    for part in OutputSource(reader).parts(np.arange(len(rows)), rows):
        values, ends = part.load(), np.cumsum(part.counts).tolist()
        start = 0
        for row, axes, end in zip(part.rows.tolist(), part.axes.tolist(), ends, strict=True):
            chosen = values[start:end]
            data = _text_bytes(chosen) if part.dtype == STR else chosen.tobytes()
            found[row][part.name] = part.dtype, tuple(axes), data
            start = end
    return found


def _json_bytes(labels: list[Any]) -> bytes:
    return json.dumps(labels, separators=(",", ":")).encode()


def _text_bytes(texts: Array) -> bytes:
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


class RecordTasks:
    """The results of a record file; of several for one key the last, as in a merge."""

    def __init__(self, path: Path, rule: KeyRule) -> None:
        self._path, self.about = path, About()
        plan, self._relabels = _plan_beside(path), _relabels_beside(path)
        describe(self.about, _attributes_beside(path))
        last: dict[KeyRow, int] = {}
        found = Scan()
        self.about.versions = list(_versions(_version_texts_beside(path), self._relabels))
        with RecordFile(path, self._relabels) as file:
            self._code = str((file.about() or {}).get("code", ""))
            replaced = _replaced_in(file, plan)
            for offset, frame in file.scan(found):
                if frame[3] != RecordKind.DONE:
                    continue
                key = _parsed(file.header(offset, frame)["key"], plan)
                require_same_names(rule.names, key, path)
                if not replaced or plan is None or plan.number(key) not in replaced:
                    last[rule.row(key)] = offset
        self.keys, self._offsets = list(last), list(last.values())
        for damage in found.damages:
            self.about.note(
                f"{path}: {damage.size_bytes:,} bytes at {damage.offset:,} are damaged: the result "
                "there is lost, and its task must be run again"
            )

    def place(self, number: int) -> str:
        return f"the record at {self._offsets[number]:,}"

    def results(self, *, backwards: bool = False) -> Iterator[Result]:
        with RecordFile(self._path, self._relabels) as file:
            for number, offset in enumerate(self._offsets):
                labels = file.header(offset, file.frame(offset)).get("labels")
                said = _json_bytes(labels) if labels else b""
                yield Result(number, *read_result(file, offset), self._code, said)


def read_result(file: RecordFile, offset: int) -> tuple[bytes, bytes, float, float]:
    """Schema, data, time and duration of the result whose record lies at `offset`."""
    frame = file.frame(offset)
    record = record_of(offset, frame)
    header = file.header(offset, frame)
    try:
        is_whole = least_bytes(schema_from_header(header)) <= record.data_bytes
    except (ValueError, TypeError):
        is_whole = False
    if not is_whole:
        raise DamagedError(
            f"{file.path} holds a record, at byte {offset:,}, whose data do not match its "
            "header: move the file away"
        )
    schema = schema_bytes(tuple(cell) for cell in header["data"])
    data = file.read(record.data_offset, record.data_bytes)
    return schema, data, record.finished_at, record.duration_s


def first_key_names(path: Path) -> tuple[str, ...] | None:
    """The names in the key of the first result of a record file; None if it has none."""
    with RecordFile(path, _relabels_beside(path)) as file:
        for offset, frame in file.scan(Scan()):
            if frame[3] == RecordKind.DONE:
                return tuple(file.header(offset, frame)["key"])
    return None


def _plan_beside(path: Path) -> Plan | None:
    """The plan of the run folder that a record file lies in: it knows the types of its keys."""
    try:
        return RunFolder.of(path.absolute().parent.parent).load_plan()
    except (SweepError, OSError):
        return None


def _replaced_in(file: RecordFile, plan: Plan | None) -> set[int]:
    """The tasks that were run again since this file was begun: another one has their results."""
    if plan is None:
        return set()
    try:
        requests = RunFolder.of(file.path.absolute().parent.parent).load_redo()
    except (SweepError, OSError):
        return set()
    number = (file.about() or {}).get("redo", 0)
    return requests.outdated(plan, number, closed_only=True)


def _relabels_beside(path: Path) -> Relabels:
    """The names that were changed in that run folder."""
    try:
        return RunFolder.of(path.absolute().parent.parent).load_relabels()
    except (SweepError, OSError):
        return Relabels()


def _version_texts_beside(path: Path) -> dict[int, str]:
    """What that run folder knows of the versions of the code."""
    try:
        return version_texts(RunFolder.of(path.absolute().parent.parent))
    except (SweepError, OSError):
        return {}


def _attributes_beside(path: Path) -> Attributes:
    """What that run folder knows of its parameters and results."""
    try:
        sweep = RunFolder.of(path.absolute().parent.parent).load_sweep()
    except (SweepError, OSError):
        return {}
    return united_with_units(sweep.get("attributes") or {}, sweep.get("units") or {})


def _parsed(key: dict[str, Any], plan: Plan | None) -> dict[str, Any]:
    if plan is None or set(plan.names) != key.keys():
        return key
    return {column.name: column.parsed(key[column.name]) for column in plan.columns}
