"""The child process that copies groups with the HDF5 library, which may die of a bad file.

    asked    {"source": …, "is_open": …, "groups": […], "copies": [[from, to], …], "drop": […]}
    says     {} when all that was copied, or {"error": …}, or {"refused": errno} if the disk does
             not take it; after the last {} when it is written

It writes to nothing but the output, which the parent throws away if the child dies. It dies with
its parent, and has the memory it was given and no more.
"""

from __future__ import annotations

import posixpath
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ...disk.h5py_loader import WrittenFile, h5py, writing
from ...library.child_program import opened_as_closed, questions, say
from ...library.limit_child import sealed


def main() -> None:
    """Copy what is asked for until there is nothing more to copy, then close the output."""
    requests = questions(may_write=True)
    try:
        with writing(Path(sys.argv[2])) as written:
            for request in requests:
                say(_answer(written, request))
        say({})
    except OSError as error:
        say({"refused": error.errno})


def _answer(written: WrittenFile, request: dict[str, Any]) -> dict[str, Any]:
    """Copy; OSError if what was copied cannot be written."""
    try:
        _copy(written.file, request)
        answer: dict[str, Any] = {}
    except Exception as error:  # whatever the library says is the answer
        answer = {"error": str(error).strip("'\"")}
    written.require_written()
    return answer


def _copy(output: Any, request: dict[str, Any]) -> None:
    path = request["source"]
    is_open = request["is_open"]
    opened = opened_as_closed(path) if is_open else h5py.File(path, "r", locking=False)
    with opened as source, sealed():
        for path in request["groups"]:
            _copy_attributes(source[path], output.require_group(path))
        creating = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        creating.set_create_intermediate_group(True)
        for start, end in request["copies"]:
            h5py.h5o.copy(source.id, start.encode(), output.id, end.encode(), lcpl=creating)
            inside = f"{start.rstrip('/')}/"
            for path in request["drop"]:
                if path.startswith(inside):
                    del output[posixpath.join(end, path[len(inside) :])]


def _copy_attributes(source: Any, target: Any) -> None:
    """Add the attributes that the target does not have."""
    for name in source.attrs:
        if name in target.attrs:
            continue
        old = h5py.h5a.open(source.id, name.encode())
        space = old.get_space()
        new = h5py.h5a.create(target.id, name.encode(), old.get_type(), space)
        if space.get_simple_extent_type() != h5py.h5s.NULL:
            _copy_value(old, new)


def _copy_value(old: Any, new: Any) -> None:
    kind = old.get_type()
    if isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str():
        # As it lies there: a text without room for the zero at its end, as PyTables writes it,
        # would lose its last letter on the way through NumPy.
        values = np.empty(old.shape, f"V{kind.get_size()}")
        old.read(values, mtype=kind)
        new.write(values, mtype=kind)
    else:
        values = np.empty(old.shape, old.dtype)
        old.read(values)
        new.write(values)
