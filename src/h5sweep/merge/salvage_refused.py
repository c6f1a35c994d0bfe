"""Salvage what is intact in refused files into record files, which are merged like others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..base.plan import Plan
from ..base.units import count_text
from ..disk.find_files import absolute
from ..runfolder.audit import Conflict
from ..runfolder.layout import RunFolder
from ..worker_files.findings import State
from ..worker_files.inputs import Input, Taken, xxh3_of
from ..worker_files.layouts import Style
from ..worker_files.skipped_names import Names

OURS = (Style.RECORDS, Style.OUTPUT)
_APART = ".salvage-"
COMPARED_BYTES = 4 << 20
MOST_COMPARED = 2


def salvage_into(
    refused: Sequence[Input],
    good: Sequence[Input],
    apart: Path,
    *,
    key: str | None,
    expected: Plan | None,
    skip: Names,
) -> tuple[dict[str, Input], list[str]]:
    """Record files of what is intact in refused files, and which file each came from; and notes.

    They are inputs like others, so that a result which contradicts another is noticed.
    """
    from ..salvage.salvage import salvage_files  # which few merges need

    by_name = {one.name: one for one in refused if one.state is not State.LIVE}
    report = salvage_files(
        [*_to_compare_with(good), *by_name],
        to=apart,
        key=key,
        expected=expected,
        skip=skip,
    )
    found, notes = {}, []
    for file in (file for file in report.files if file.path in by_name):
        one, tasks = by_name[file.path], count_text(file.evidence, "task")
        why = one.reasons[0].message
        if file.evidence:
            notes.append(f"{file.path}: {len(file.taken):,} of {tasks} salvaged; {why}")
        if file.records is not None:
            found[file.records] = one
    return found, notes


@contextmanager
def folder_apart(folder: RunFolder) -> Iterator[Path]:
    """A folder for what is salvaged; those that a kill left go first. The lock is held."""
    from tempfile import TemporaryDirectory

    for left in folder.path.glob(f"{_APART}*"):
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=folder.path, prefix=_APART) as apart:
        yield Path(apart)


def _to_compare_with(good: Sequence[Input]) -> list[str]:
    """A few small files that are sound: they show what is in a task of the others."""
    files = [one for one in good if one.style not in OURS and one.size_bytes <= COMPARED_BYTES]
    return [one.name for one in sorted(files, key=lambda one: one.size_bytes)[-MOST_COMPARED:]]


def of_original(one: Taken, salvaged: Mapping[Input, Input]) -> Taken:
    """What was taken, named after the damaged file that it was salvaged from."""
    original = salvaged.get(one.source)
    return one if original is None else replace(one, source=original, xxh3=xxh3_of(original))


def with_originals(one: Conflict, salvaged: Mapping[Input, Input]) -> Conflict:
    """A conflict with the damaged files in place of the record files that were made of them."""
    here, places = str(Path.cwd()), [one.taken, *one.left_out]
    for made, original in salvaged.items():
        name = absolute(made.name, here)
        places = [place.replace(name, absolute(original.name, here)) for place in places]
    return one._replace(taken=places[0], left_out=places[1:])
