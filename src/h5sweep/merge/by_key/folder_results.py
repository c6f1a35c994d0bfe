"""The results that a run folder already has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...output.reader import OutputReader
from ...output.row_tasks import tasks_of_output
from ...runfolder.layout import RunFolder
from ...runfolder.records import RecordFile, RecordKind
from ...state.state import IN_OUTPUT, FolderState
from .equal_results import are_equal, are_in_cells
from .own_files import (
    EncodedCells,
    read_cells,
    read_result,
)
from .tasks_of_file import Result

_OPEN_FILES = 64


@dataclass(frozen=True)
class RecordedResult:
    """A result that the run folder has already."""

    where: str
    finished_at: float
    schema: bytes = b""
    data: bytes = b""
    cells: EncodedCells | None = None  # in place of both, if only the output has it

    def is_equal(self, result: Result) -> bool:
        if self.cells is not None:
            return are_in_cells(result, self.cells)
        return are_equal(self.schema, self.data, result.schema, result.data)


class FolderResults:
    """The results that a run folder has, in its records or only in its output."""

    def __init__(self, folder: RunFolder, state: FolderState) -> None:
        self.state = state
        self._folder = folder
        self._file = lru_cache(_OPEN_FILES)(self._open)
        self._output: OutputReader | None = None
        self._rows: dict[int, int] = {}
        if IN_OUTPUT in state.kinds:
            self._output = OutputReader(folder.output, state.relabels)
            tasks = tasks_of_output(self._output, state.plan).tolist()
            self._rows = {task: row for row, task in enumerate(tasks)}

    def __enter__(self) -> FolderResults:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.cache_clear()
        if self._output is not None:
            self._output.close()

    def _open(self, number: int) -> RecordFile:
        return RecordFile(self.state.paths[number], self.state.relabels)

    def find(self, task: int) -> RecordedResult | None:
        """What there is of a task."""
        state = self.state
        kind = state.kinds[task] if task < len(state.kinds) else 0
        if kind == RecordKind.DONE:
            file = self._file(state.files[task])
            schema, data, finished_at, _ = read_result(file, state.offsets[task])
            where = f"the run folder, {file.path.name}"
            return RecordedResult(where, finished_at, schema, data)
        if kind == IN_OUTPUT and self._output is not None:
            row = self._rows[task]
            (cells,) = read_cells(self._output, np.array([row]))
            finished_at = float(self._output.slab("finished_at", row, row + 1)[0])
            return RecordedResult(str(self._folder.output), finished_at, cells=cells)
        return None
