"""How results are called: by the first record of each file, and by the columns of the output."""

from __future__ import annotations

from ..runfolder.layout import RunFolder
from ..runfolder.records import RecordFile, RecordKind
from .state import IN_OUTPUT, FolderState


def result_names(folder: RunFolder, state: FolderState) -> set[str]:
    """The names that results there have today."""
    found: set[str] = set()
    firsts: dict[int, int] = {}
    for task, kind in enumerate(state.kinds):
        if kind == RecordKind.DONE:
            firsts.setdefault(state.files[task], state.offsets[task])
    for number, offset in firsts.items():
        with RecordFile(state.paths[number], state.relabels) as file:
            header = file.header(offset, file.frame(offset))
        found |= {name for name, *_ in header["data"]}
    if IN_OUTPUT in state.kinds:
        from ..output.reader import OutputReader

        with OutputReader(folder.output, state.relabels) as reader:
            found |= {column.source_name for column in reader.columns()}
    return found
