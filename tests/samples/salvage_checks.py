"""What was salvaged beside what is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from check_samples import set_flags
from h5sweep.base.listed_plan import plan_list
from h5sweep.base.plan import Plan
from h5sweep.base.values import decode_result, schema_from_header
from h5sweep.runfolder.records import RecordFile, RecordKind, Scan, read_data
from h5sweep.salvage.salvage import salvage_files
from recorded_writes import key_of, result_of

Results = dict[tuple[Any, ...], dict[str, Any]]
Comparison = Callable[[dict[str, Any], dict[str, Any]], bool]


def read_results(path: str | Path | None) -> Results:
    """The results of a record file, by the values of their keys."""
    found: Results = {}
    if path is None:
        return found
    with RecordFile(Path(path)) as file:
        for offset, frame in file.scan(Scan()):
            if frame[3] == RecordKind.DONE:
                header = file.header(offset, frame)
                data = read_data(file, offset, frame)
                found[tuple(header["key"].values())] = {
                    name: array.copy()
                    for name, array in decode_result(schema_from_header(header), data).items()
                }
    return found


def are_equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def true_results(tasks: int) -> Results:
    """What the recorded writer computed."""
    names = ("layout", "aep")
    return {
        tuple(key_of(task).values()): dict(zip(names, result_of(task), strict=True))
        for task in range(tasks)
    }


def true_plan(tasks: int) -> Plan:
    return plan_list([key_of(task) for task in range(tasks)])


def salvage_content(
    content: bytes, folder: Path, truth: Results, same: Comparison = are_equal, **options: Any
) -> Counts:
    """Salvage a file of this content; count what is right and what is wrong."""
    path, to = folder / "worker.h5", folder / "out"
    path.write_bytes(content)
    for old in to.glob("*.records"):
        old.unlink()
    report = salvage_files(path, to=to, **options)
    found = read_results(report.files[0].records)
    right = {k for k, result in found.items() if k in truth and same(result, truth[k])}
    return Counts(right, len(found) - len(right), report)


class Counts:
    """What came out of one file."""

    def __init__(self, right: set[tuple[Any, ...]], wrong: int, report: Any) -> None:
        self.right = right
        self.wrong = wrong
        self.report = report


def salvaged(content: bytes, folder: Path, truth: Results, *, is_open: bool = False) -> int:
    """How many results come back, all of them right."""
    path = folder / "worker.h5"
    path.write_bytes(content)
    if is_open and content[8] == 3:
        set_flags(path, 1)
    report = salvage_files(path, to=folder / "out", key="case,seed", use_library=False)
    for old in (folder / "out").glob("*.records"):
        found = read_results(old)
        old.unlink()
        wrong = [k for k in found if k not in truth or not are_equal(found[k], truth[k])]
        assert not wrong, (wrong, report.files[0].what)
    return report.recovered
