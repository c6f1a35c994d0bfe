"""What the programs of child processes have in common: they are asked, and they answer.

The host is `child_process`. Standard input and output are its pipes; a child prints nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from ..disk.h5py_loader import h5py
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
