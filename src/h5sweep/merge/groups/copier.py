"""The HDF5 library copies groups, in a child process that may die of a bad file."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import DamagedError, SweepError
from ...worker_files import findings
from ...worker_files.inputs import Input
from ...worker_files.read_file import DamagedFileError

MEMORY_BYTES = 1 << 30
START_S = 60.0
TIMEOUT_S = 60.0
SECONDS_PER_MB = 1.0


class Copier:
    """The child that copies; the file at which it dies is named."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "h5sweep.merge.groups.copy_child",
                str(MEMORY_BYTES),
                str(output),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._answers = self._process.stdin, self._process.stdout
        self._buffer = b""

    def __enter__(self) -> Copier:
        try:
            self._read_line(START_S, "")
        except DamagedError as error:
            self._process.kill()  # if it has not ended
            raise SweepError(
                "the HDF5 library could not copy groups, because its process did not "
                f"start ({self._how_it_ended()}): nothing was written; merge on another machine"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._input, self._answers):
            with suppress(OSError):
                stream.close()

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
        with suppress(OSError):  # if it is dead, reading will say so
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()
        timeout_s = TIMEOUT_S + SECONDS_PER_MB * one.size_bytes / 1e6
        if "error" in (said := self._read_answer(timeout_s, str(one.path))):
            found = findings.LIBRARY_REFUSES.finding(where="copying it", why=said["error"])
            raise DamagedFileError(one.name, found)

    def close(self, last: Path) -> None:
        """Let the child close the output, and wait for its end."""
        with suppress(OSError):  # if it is dead, reading will say so
            self._input.close()
        self._read_answer(TIMEOUT_S, str(last))
        if self._process.wait(TIMEOUT_S):
            raise self._death(str(last))

    def _read_answer(self, timeout_s: float, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._read_line(timeout_s, name))
        if number := answer.get("refused"):
            raise OSError(number, os.strerror(number), str(self._output))
        return answer

    def _read_line(self, timeout_s: float, name: str) -> bytes:
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(deadline - time.monotonic(), 0.0)):
                    found = findings.LIBRARY_HANGS.finding(limit_s=timeout_s)
                    raise DamagedFileError(name, found)
                data = os.read(self._answers.fileno(), 1 << 16)
                if not data:
                    raise self._death(name)
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _death(self, name: str) -> DamagedFileError:
        found = findings.LIBRARY_KILLED.finding(why=self._how_it_ended())
        return DamagedFileError(name, found)

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
