"""What is finished by now, as an output in another file. Runs go on meanwhile, and notice nothing.

Nobody is locked out, nothing in the run folder changes, and the output stays as it is: this is a
merge that only reads. It is written and read back as any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO, FileIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ...base.plan import Plan
from ...base.progress_callback import Progress
from ...disk import durable
from ...disk.find_files import PathLike
from ...errors import DamagedError, UsageError, WrongFolderError
from ...output.reader import SNAPSHOT, OutputReader
from ...output.row_tasks import tasks_of_output
from ...runfolder.layout import RunFolder
from ...runfolder.records import RecordKind
from ...state.extend_plan import is_declared_only, is_up_to_date, read_all
from ...state.state import FolderState
from ...state.tasks_in_output import output_identity
from .build import Merge, twice
from .output_plan import MergeReport


def save_snapshot(
    folder: RunFolder,
    target: Path,
    *,
    compress: bool = False,
    progress: Progress | None = None,
    declared_only: bool | None = None,
) -> MergeReport:
    """Write what is finished by now to `target`, verified and durable, without a lock.

    Killed at any moment, `target` is there whole or as it was. UsageError if it is anything but an
    earlier snapshot, because it would be replaced.
    """
    place = RunFolder.of(target)
    _require_replaceable(place)
    target = place.output
    with durable.replacing(target) as temporary:
        report = twice(partial(_write, folder, temporary, compress, progress, declared_only))
    return replace(report, output=target)


@contextmanager
def finished_output(path: PathLike) -> Iterator[Path]:
    """An output with all that is finished by now: itself, or a snapshot that is gone afterwards."""
    folder = RunFolder.of(path)
    if not folder.exists() or not is_behind(folder):
        yield folder.output
        return
    with TemporaryDirectory(prefix="h5sweep-") as place:
        snapshot = Path(place) / folder.output.name
        twice(partial(_write, folder, snapshot, False, None, None))
        yield snapshot


class NamelessFile(FileIO):
    """A file that may lose its name; closed, without a warning, when nothing refers to it."""

    def __reduce__(self) -> tuple[type[BytesIO], tuple[bytes]]:
        """A dataset of it goes to another process with all that is in it."""
        size = os.fstat(self.fileno()).st_size
        return BytesIO, (os.pread(self.fileno(), size, 0),)

    def __del__(self) -> None:
        self.close()


def is_behind(folder: RunFolder) -> bool:
    """Whether records have results that the output lacks, or newer ones, or it is not there."""
    before = output_identity(folder.output)
    if before is None:
        return True
    if is_up_to_date(folder, folder.load_plan() or Plan(())):
        return False
    state = read_all(folder)
    with OutputReader(folder.output, state.relabels) as reader:
        if reader.relabels:
            return True  # killed before it had the names of today
        kept = tasks_of_output(reader, state.plan)
        kept_at = np.full(len(state.plan), np.nan)
        kept_at[kept] = reader.whole("finished_at")
    is_wanted = np.frombuffer(state.kinds, np.uint8) == RecordKind.DONE
    if is_declared_only(folder):
        is_wanted[list(state.done_undeclared)] = False
    recorded_at = np.frombuffer(state.finished_at, np.float64)
    return bool((recorded_at != kept_at)[is_wanted].any())


def _write(
    folder: RunFolder,
    path: Path,
    compress: bool,
    progress: Progress | None,
    declared_only: bool | None,
) -> MergeReport:
    only = is_declared_only(folder) if declared_only is None else declared_only
    state, old = _read_together(folder)
    try:
        if not len(state.plan):
            raise UsageError(f"there is nothing to merge in {folder.path}: run the sweep first")
        merge = Merge(
            folder,
            state,
            old,
            compress=compress,
            progress=progress,
            declared_only=only,
            snapshot=path,
        )
        merge.require_space()
        merge.write(path)
        merge.verify(path)
        return merge.report()
    finally:
        if old is not None:
            old.close()


def _read_together(folder: RunFolder) -> tuple[FolderState, OutputReader | None]:
    """The state, and the output that it is about: a run that ends meanwhile replaces that."""
    while True:
        before = output_identity(folder.output)
        state = read_all(folder)
        old = OutputReader(folder.output, state.relabels) if before is not None else None
        if output_identity(folder.output) == before:
            return state, old
        if old is not None:
            old.close()


def _require_replaceable(place: RunFolder) -> None:
    place.require_place()
    target = place.output
    if not target.exists():
        if place.exists():
            raise UsageError(f"{target} is for the run to write: give the snapshot another name")
        return
    try:
        with OutputReader(target) as reader:
            is_snapshot = SNAPSHOT in reader.attributes
    except (WrongFolderError, DamagedError):
        is_snapshot = False
    if not is_snapshot or place.exists():
        raise UsageError(f"{target} exists and is not a snapshot: name a file that is not there")
