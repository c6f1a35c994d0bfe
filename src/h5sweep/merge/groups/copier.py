"""The HDF5 library copies groups, in a child process that may die of a bad file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...errors import SweepError
from ...library.child_answers import findings_of
from ...library.child_process import Answer, Child
from ...worker_files import findings
from ...worker_files.inputs import Input
from ...worker_files.read_file import DamagedFileError

MEMORY_BYTES = 1 << 30
TIMEOUT_S = 60.0
SECONDS_PER_MB = 1.0


class Copier:
    """The child that copies; the file at which it dies is named."""

    def __init__(self, output: Path) -> None:
        self._output = output
        try:
            self._child = Child("h5sweep.merge.groups.copy_child", MEMORY_BYTES, str(output))
        except OSError as error:  # no more processes, or no more memory
            raise _not_started(error.strerror or str(error)) from error

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()

    def copy(
        self, one: Input, above: list[str], copies: list[tuple[str, str]], drop: list[str]
    ) -> None:
        """Copy groups of one input; DamagedError if the library cannot, or dies of it.

        OSError if the disk refuses the output.
        """
        request = {
            "source": str(one.path),
            "is_open": one.is_suspect,
            "groups": above,
            "copies": copies,
            "drop": drop,
        }
        self._child.ask(request, TIMEOUT_S + SECONDS_PER_MB * one.size_bytes / 1e6)
        if "error" in (said := self._said(one.path)):
            found = findings.LIBRARY_REFUSES.finding(where="copying it", why=said["error"])
            raise DamagedFileError(one.name, found)

    def close(self, last: Path) -> None:
        """Let the child close the output, and wait until it has."""
        self._child.ask_no_more(TIMEOUT_S)
        self._said(last)

    def _said(self, name: Path) -> dict[str, Any]:
        answer: Answer = self._child.wait()
        if answer.absent:
            raise _not_started(answer.absent)
        if answer.is_last:
            raise DamagedFileError(str(name), findings_of(answer)[0])
        if number := answer.said.get("refused"):
            raise OSError(number, os.strerror(number), str(self._output))
        return answer.said


def _not_started(why: str) -> SweepError:
    return SweepError(
        f"the HDF5 library could not copy groups, because its process did not start ({why}): "
        "nothing was written; merge on another machine"
    )
