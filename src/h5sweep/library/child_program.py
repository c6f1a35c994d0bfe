"""What the programs of child processes have in common: they are asked, read files, and answer.

The host is `child_process`. Standard input and output are its pipes; a child prints nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..disk.h5py_loader import Overlaid, h5py
from ..hdf5.errors import Damaged
from ..hdf5.source import OpenSource
from ..hdf5.superblock import find_superblock, mended, read_superblock
from .child_process import FRAME
from .limit_child import confine


def questions(*, may_write: bool = False) -> Iterator[dict[str, Any]]:
    """Give up what is not needed and say that the library is there; then, what is asked."""
    confine(int(sys.argv[1]), may_write=may_write)
    h5py._errors.silence_errors()
    say({})
    return _read_questions()


def _read_questions() -> Iterator[dict[str, Any]]:
    with os.fdopen(0, "rb", closefd=False) as lines:
        for line in lines:
            yield json.loads(line)


def say(said: dict[str, Any], data: bytes = b"") -> None:
    """Send one answer, or a part of one."""
    header = json.dumps(said).encode()
    left = memoryview(FRAME.pack(len(header), len(data)) + header + data)
    while left:
        left = left[os.write(1, left) :]


@contextmanager
def opened_as_closed(path: str) -> Iterator[Any]:
    """A file that was not closed, open for reading as if it had been; Damaged if that cannot be.

    The library is shown another superblock. Nothing is copied, and nothing is written.
    """
    with OpenSource(Path(path)) as source:
        start = find_superblock(source)
        if start is None:
            raise Damaged("it has no superblock")
        new = mended(source, read_superblock(source, start))
        shown = Overlaid(source.descriptor, (start, new))
        with h5py.File(path, "r", driver="fileobj", fileobj=shown) as file:
            yield file
