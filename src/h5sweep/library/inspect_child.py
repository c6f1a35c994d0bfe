"""The child process: opens files with the HDF5 library and reports, one answer per file.

    asked    {"path": …, "what": "structure" | "deep" | "records…" | "plan" | "output-…"}, and of
             a structure {"only": {group: [name, …]}}
    says     {"errors": [[place, message], …], "chunks": […], …}

The kernel refuses it any write to a file, and more memory than it was given. It dies with its
parent. The library never runs anywhere else in a check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..disk.h5py_loader import h5py
from .child_program import questions, say
from .limit_child import sealed
from .read_datasets import read_dataset

MOST_ERRORS = 50
MOST_OBJECTS = 200_000
MOST_ATTRIBUTE_BYTES = 16 << 20


def main() -> None:
    """Answer until there are no more questions."""
    for request in questions():
        path, what = request.pop("path"), request.pop("what")
        say(_INSPECTORS[what](path, **request))


def inspect(path: str, only: Mapping[str, Sequence[str]] = {}, *, is_deep: bool) -> dict[str, Any]:
    """Open, list, and look at every object; if deep, read every byte of data and attributes.

    In a group of `only`, these names alone are looked at.
    """
    return _Inspection(path, only, is_deep=is_deep).answer()


class _Inspection:
    """One file, looked at through the library."""

    def __init__(self, path: str, only: Mapping[str, Sequence[str]], *, is_deep: bool) -> None:
        self.path = path
        self.only = only
        self.is_deep = is_deep
        self.errors: list[tuple[str, str]] = []
        self.notes: list[tuple[str, str]] = []
        self.chunks: list[dict[str, Any]] = []
        self.seen: set[Any] = set()
        self.out_of_memory = False

    def answer(self) -> dict[str, Any]:
        try:
            file = h5py.File(self.path, "r", locking=False)
        except Exception as error:  # whatever the library makes of it is the answer
            self.note("open", error)
        else:
            with file, sealed():
                self.visit("/", file)
        return {
            "errors": self.errors[:MOST_ERRORS],
            "notes": self.notes[:MOST_ERRORS],
            "chunks": self.chunks[:MOST_ERRORS],
            "objects": len(self.seen),
            "out_of_memory": self.out_of_memory,
            "memory_bytes": int(sys.argv[1]),
        }

    def visit(self, path: str, group: Any) -> None:
        """Go through a group and all below it, without recursion."""
        waiting = [(path, group)]
        while waiting and len(self.seen) < MOST_OBJECTS:
            path, found = waiting.pop()
            self.look(path, found)
            if isinstance(found, h5py.Group):
                waiting += self.children(path, found)

    def children(self, path: str, group: Any) -> list[tuple[str, Any]]:
        try:
            names = list(group)
        except Exception as error:
            self.note(f"list {path}", error)
            return []
        if path in self.only:
            names = sorted({*names} & {*self.only[path]})
        found = []
        for name in names:
            child_path = f"{path.rstrip('/')}/{name}"
            try:
                if isinstance(group.get(name, getlink=True), h5py.HardLink):
                    child = group[name]
                    address = h5py.h5o.get_info(child.id).addr
                    if address not in self.seen:
                        self.seen.add(address)
                        found.append((child_path, child))
            except Exception as error:
                self.note(child_path, error)
        return found

    def look(self, path: str, found: Any) -> None:
        self.attempt(path, lambda: self.look_at_attributes(found))
        if isinstance(found, h5py.Dataset):
            self.attempt(path, lambda: (found.shape, found.maxshape, found.id.get_type()))
            if self.is_deep:
                self.attempt(path, lambda: self.read(path, found))

    def look_at_attributes(self, found: Any) -> None:
        for name in found.attrs:
            attribute = h5py.h5a.open(found.id, name.encode())
            datatype = attribute.get_type()
            size = attribute.get_space().get_simple_extent_npoints() * datatype.get_size()
            # h5py may crash on references of healthy files, and following them proves nothing.
            is_readable = not datatype.detect_class(h5py.h5t.REFERENCE)
            if self.is_deep and is_readable and 0 < size < MOST_ATTRIBUTE_BYTES:
                found.attrs[name]

    def read(self, path: str, dataset: Any) -> None:
        for fault in read_dataset(dataset):
            if "note" in fault:
                self.notes.append((path, fault["note"]))
            else:
                self.chunks.append({"where": path, **fault})

    def attempt(self, path: str, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self.note(path, error)

    def note(self, where: str, error: Exception) -> None:
        text = str(error).strip("'\"")
        is_memory = isinstance(error, MemoryError) or "memory allocation failed" in text
        self.out_of_memory = self.out_of_memory or is_memory
        if is_memory or _is_of_library(error, text):
            self.errors.append((where, text))
        else:
            self.notes.append((where, f"h5py has no way to read it: {text}"))


def _is_of_library(error: Exception, text: str) -> bool:
    """Whether the library said it; the rest are limits of h5py, such as types NumPy has not.

    The library's reasons stand in parentheses, behind what could not be done.
    """
    if "no appropriate function for conversion path" in text:
        return False  # h5py asked for a type that the library cannot make of the stored one
    if isinstance(error, ValueError | TypeError):
        return text.startswith(("Unable to", "Can't", "Unspecified error"))
    return "(" in text


def inspect_records(path: str, *, with_keys: bool = False) -> dict[str, Any]:
    """A record file of ours: its records, and what is damaged."""
    from ..runfolder.records import NO_TASK, RecordFile, RecordKind, Scan

    found = Scan()
    tasks: dict[int, Any] = {}
    with RecordFile(Path(path)) as file:
        owner = file.owner()
        for offset, frame in file.scan(found):
            if frame[3] == RecordKind.DONE:
                number = frame[2] if frame[2] != NO_TASK else len(tasks) + (1 << 63)
                tasks[number] = file.header(offset, frame)["key"] if with_keys else None
    return {
        "tasks": len(tasks),
        "keys": list(tasks.values()) if with_keys else [],
        "damages": [[damage.offset, damage.size_bytes] for damage in found.damages],
        "torn_bytes": found.torn_bytes,
        "owner": str(owner) if owner is not None and owner.is_alive() else "",
    }


def inspect_plan(path: str) -> dict[str, Any]:
    """The plan of a run folder."""
    from ..errors import SweepError
    from ..runfolder.layout import RunFolder

    try:
        RunFolder.of(Path(path).parent).load_plan()
    except SweepError as error:
        return {"plan": f"it cannot be read: {error.__cause__ or error}"}
    return {}


def inspect_output(path: str, *, is_deep: bool, with_keys: bool = False) -> dict[str, Any]:
    """An output of ours, and against it the run folder beside it; the checksum of every row too."""
    answer = inspect(path, is_deep=is_deep)
    if answer["errors"] or answer["chunks"]:
        return answer
    wrong: Sequence[int] = ()
    if is_deep:
        from ..output.verify import verify_rows

        try:
            wrong = verify_rows(Path(path))
        except Exception as error:  # it passed for an output, so whatever this is, is damage
            return {**answer, "errors": [("rows", str(error))]}
        answer |= {"wrong_tasks": wrong[:MOST_ERRORS], "wrong_count": len(wrong)}
    keys = _keys_of_output(path, wrong) if with_keys else {}
    return {**answer, **_compare_with_folder(Path(path)), **keys}


def _keys_of_output(path: str, wrong: Sequence[int]) -> dict[str, Any]:
    """The keys of the rows in which nothing is known to be wrong."""
    from ..output.reader import OutputReader

    with OutputReader(Path(path)) as reader:
        rows = zip(reader.tasks.tolist(), reader.keys().rows(), strict=True)
        return {"keys": [key for task, key in rows if task not in wrong]}


def _compare_with_folder(path: Path) -> dict[str, Any]:
    """How many results of the run folder are not in the output."""
    from ..errors import SweepError
    from ..output.reader import OutputReader
    from ..runfolder.layout import RunFolder
    from ..state.state import read_state

    try:
        folder = RunFolder.of(path)
        plan = folder.load_plan() if folder.exists() else None
        if plan is None:
            return {}
        state = read_state(folder, plan)
        with OutputReader(path) as reader:
            in_output = set(reader.tasks.tolist())
    except SweepError as error:
        return {"plan": str(error)}
    done = {task for task in range(len(plan)) if state.is_done(task)} - state.done_undeclared
    return {"not_merged": len(done - in_output)}


_INSPECTORS: dict[str, Callable[..., dict[str, Any]]] = {
    "structure": partial(inspect, is_deep=False),
    "deep": partial(inspect, is_deep=True),
    "records": inspect_records,
    "records-keys": partial(inspect_records, with_keys=True),
    "plan": inspect_plan,
    "output-structure": partial(inspect_output, is_deep=False),
    "output-deep": partial(inspect_output, is_deep=True),
    "output-structure-keys": partial(inspect_output, is_deep=False, with_keys=True),
    "output-deep-keys": partial(inspect_output, is_deep=True, with_keys=True),
}
