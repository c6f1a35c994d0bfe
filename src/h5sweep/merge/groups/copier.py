"""The HDF5 library copies groups, in a child process that may die of a bad file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...errors import SweepError
from ...library.child_answers import findings_of
from ...library.child_process import Child
from ...worker_files import findings
from ...worker_files.inputs import Input
from ...worker_files.read_file import DamagedFileError

MEMORY_BYTES = 1 << 30
TIMEOUT_S = 60.0
SECONDS_PER_MB = 1.0


class Copier(Child):
    """The child that copies; the file at which it dies is named."""

    def __init__(self, output: Path) -> None:
        super().__init__("h5sweep.merge.groups.copy_child", MEMORY_BYTES, str(output))
        self._output = output

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
        self.ask(request, TIMEOUT_S + SECONDS_PER_MB * one.size_bytes / 1e6)
        if "error" in (said := self._said(one.path)):
            found = findings.LIBRARY_REFUSES.finding(where="copying it", why=said["error"])
            raise DamagedFileError(one.name, found)

    def close(self, last: Path) -> None:
        """Let the child close the output, and wait until it has."""
        self.ask_no_more(TIMEOUT_S)
        self._said(last)

    def _said(self, name: Path) -> dict[str, Any]:
        answer = self.wait()
        if answer.absent:
            raise SweepError(
                "the HDF5 library could not copy groups, because its process did not start "
                f"({answer.absent}): nothing was written; merge on another machine"
            )
        if answer.is_last:
            raise DamagedFileError(str(name), findings_of(answer)[0])
        if number := answer.said.get("refused"):
            raise OSError(number, os.strerror(number), str(self._output))
        return answer.said
