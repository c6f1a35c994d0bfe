"""Which version of the code has made the result of each task."""

from __future__ import annotations

from array import array

from ..code.store import load_versions, numbers_by_id, parse_version
from ..code.version import CodeVersion
from ..runfolder.layout import RunFolder
from ..runfolder.records import RecordKind
from .state import IN_OUTPUT, FolderState


def known_versions(folder: RunFolder, state: FolderState) -> dict[int, CodeVersion]:
    """Those of the folder, and those of an output that it has not taken over yet."""
    known = load_versions(folder)
    for number, version in ((n, parse_version(t)) for n, t in state.held.code_texts.items()):
        if version.id not in numbers_by_id(known):
            known[number if number not in known else max(known) + 1] = version
    return known


def task_codes(folder: RunFolder, state: FolderState) -> array[int]:
    """The number of each task's version; 0 if it has no result, or one of which it is not known."""
    numbers = numbers_by_id(known_versions(folder, state))
    of_file = {file: numbers.get(code, 0) for file, code in state.codes.items()}
    found = array("H", bytes(2 * len(state.plan)))
    for task, kind in enumerate(state.kinds):
        if kind == RecordKind.DONE:
            found[task] = of_file.get(state.files[task], 0)
    if IN_OUTPUT in state.kinds:
        from ..output.row_tasks import codes_of_rows

        tasks, codes, texts = codes_of_rows(folder.output, state.plan, state.relabels)
        of_code = {n: numbers.get(parse_version(text).id, 0) for n, text in texts.items()}
        for task, code in zip(tasks, codes, strict=True):
            if state.kinds[task] == IN_OUTPUT:
                found[task] = of_code.get(code, 0)
    return found
