"""The child process that copies groups with the HDF5 library, which may die of a bad file.

    stdin    {"source": …, "is_open": …, "groups": […], "copies": [[from, to], …], "drop": […]}
    stdout   {} when all that was copied, or {"error": …}, or {"refused": errno} if the disk does
             not take it; before the first "ready", and after the last {} when it is written

It writes to nothing but the output, which the parent throws away if the child dies, and for a
moment beside it. It dies with its parent, and has the memory it was given and no more.
"""

from __future__ import annotations

import json
import posixpath
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ...disk.h5py_loader import WrittenFile, h5py, writing
from ...hdf5.checksum import lookup3
from ...library.limit_child import confine, sealed

_HEAD_BYTES = 12 + 4 * 8 + 4  # a superblock of version 2 or 3, at most
_VERSION_AT, _WIDTH_AT, _FLAGS_AT = 8, 9, 11  # in a superblock of version 2 or 3


def main() -> None:
    """Copy what is asked for until there is nothing more to copy, then close the output."""
    confine(int(sys.argv[1]), may_write=True)
    h5py._errors.silence_errors()
    _say("ready")
    try:
        with writing(Path(sys.argv[2])) as written:
            for line in sys.stdin:
                _say(json.dumps(_answer(written, json.loads(line))))
        _say("{}")
    except OSError as error:
        _say(json.dumps({"refused": error.errno}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _answer(written: WrittenFile, request: dict[str, Any]) -> dict[str, Any]:
    """Copy; OSError if what was copied cannot be written."""
    beside = Path(f"{sys.argv[2]}.source")
    if request["is_open"]:
        _copy_closed(request["source"], beside)
        request["source"] = beside
    try:
        _copy(written.file, request)
        answer: dict[str, Any] = {}
    except Exception as error:  # whatever the library says is the answer
        answer = {"error": str(error).strip("'\"")}
    finally:
        beside.unlink(missing_ok=True)
    written.require_written()
    return answer


def _copy(output: Any, request: dict[str, Any]) -> None:
    with h5py.File(request["source"], "r", locking=False) as source, sealed():
        if request["is_open"]:
            Path(request["source"]).unlink()
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


def _copy_closed(path: str, beside: Path) -> None:
    """Copy a file that its writer did not close, and put its flags right in the copy.

    It loses its name as soon as it is open; after a kill the next one takes its place.
    """
    shutil.copyfile(path, beside)
    with beside.open("r+b") as file:
        head = bytearray(file.read(_HEAD_BYTES))
        if head[_VERSION_AT] >= 2:
            size = 12 + 4 * head[_WIDTH_AT]
            head[_FLAGS_AT] = 0
            head[size : size + 4] = lookup3(bytes(head[:size])).to_bytes(4, "little")
            file.seek(0)
            file.write(head)


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


if __name__ == "__main__":
    main()
