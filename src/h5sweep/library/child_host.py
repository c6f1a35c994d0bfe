"""Ask the HDF5 library about a file, in child processes that may die of it.

A child takes one file after the other. One that dies, hangs, or wants too much memory costs that
file its answer, and is replaced. Children cannot write: the kernel refuses them any file size.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

SECONDS_PER_MB = 0.1  # added to the limit of a file whose every byte is read
SECONDS_PER_OBJECT = 0.001  # added for what our own reader has listed
START_S = 60.0  # importing h5py from a slow disk


@dataclass(frozen=True)
class Limits:
    """What one file may cost before its child is ended."""

    timeout_s: float = 20.0
    memory_bytes: int = 1 << 30


@dataclass(frozen=True)
class Request:
    """One file for the library; `tag` is the caller's."""

    tag: Any
    path: str
    what: str  # which of the child's inspections
    size_bytes: int = 0
    objects: int = 0
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # as in `inspect_structure`


@dataclass(frozen=True)
class Answer:
    """What came back: the child's own words, how it ended, or why there is no answer at all."""

    said: dict[str, Any] = field(default_factory=dict)
    killed_by: str = ""
    timeout_s: float | None = None
    absent: str = ""  # a child that did not start says nothing about the file


class Library:
    """A few children, and the files that wait for them."""

    def __init__(self, processes: int = 2, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._most = max(processes, 1)
        self._waiting: deque[Request] = deque()
        self._children: list[_Child] = []
        self._open = 0
        self._absent = ""  # why no child can be started, if so

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.end()

    @property
    def open_requests(self) -> int:
        return self._open

    def ask(self, request: Request) -> None:
        """Put a file in line; the answer comes out of `answers`."""
        self._waiting.append(request)
        self._open += 1
        self._hand_out()

    def answers(self, *, wait: bool) -> list[tuple[Request, Answer]]:
        """What has been answered; waits for at least one answer if told, and any is due."""
        found: list[tuple[Request, Answer]] = []
        while self.open_requests:
            self._hand_out()
            if self._absent:
                found += self._give_up()
                break
            found += self._collect(self._patience() if wait and not found else 0.0)
            if found or not wait:
                break
        return found

    def _give_up(self) -> list[tuple[Request, Answer]]:
        """Answer for all that wait: starting one child after the other would take for ever."""
        waiting, self._waiting = list(self._waiting), deque()
        self._open -= len(waiting)
        return [(request, Answer(absent=self._absent)) for request in waiting]

    def _hand_out(self) -> None:
        while self._waiting and not self._absent:
            child = next((child for child in self._children if child.request is None), None)
            if child is None and len(self._children) < self._most:
                child = self._start_child()
            if child is None:
                return
            child.give(self._waiting.popleft())

    def _start_child(self) -> _Child | None:
        try:
            self._children.append(_Child(self.limits))
        except OSError as error:  # no more processes, or no more memory
            self._absent = error.strerror or str(error)
            return None
        return self._children[-1]

    def _patience(self) -> float:
        """How long the next limit is away."""
        deadlines = [child.deadline for child in self._children if child.request is not None]
        return max(min(deadlines, default=0.0) - time.monotonic(), 0.0)

    def _collect(self, timeout_s: float) -> list[tuple[Request, Answer]]:
        busy = [child for child in self._children if child.request is not None]
        with selectors.DefaultSelector() as selector:
            for child in busy:
                selector.register(child.output, selectors.EVENT_READ, child)
            ready = {key.data for key, _ in selector.select(timeout_s)}
        found = []
        for child in busy:
            answer = child.read() if child in ready else child.overdue()
            if answer is not None and child.request is not None:
                found.append((child.request, answer))
                self._open -= 1
                child.request = None
                self._absent = self._absent or answer.absent
                if not child.is_alive:
                    self._children.remove(child)
        return found


class _Child:
    """One process with the HDF5 library in it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process = subprocess.Popen(
            [sys.executable, "-m", "h5sweep.library.inspect_child", str(limits.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin
        self.output = self._process.stdout
        self._buffer = b""
        self._has_started = False
        self._timeout_s = 0.0
        self.request: Request | None = None
        self.deadline = 0.0
        self.is_alive = True

    def give(self, request: Request) -> None:
        self.request = request
        self._timeout_s = self._limits.timeout_s + SECONDS_PER_OBJECT * request.objects
        if request.what != "structure":
            self._timeout_s += SECONDS_PER_MB * request.size_bytes / 1e6
        start_s = 0.0 if self._has_started else START_S
        self.deadline = time.monotonic() + self._timeout_s + start_s
        about = {"path": request.path, "what": request.what}
        line = json.dumps({**about, "only": request.only} if request.only else about) + "\n"
        with suppress(OSError):  # if it is dead, reading will say so, and how
            self._input.write(line.encode())
            self._input.flush()

    def read(self) -> Answer | None:
        """An answer, if a whole one has come, or the way in which the child ended."""
        data = os.read(self.output.fileno(), 1 << 16)
        if not data:
            how = self._end()
            return Answer(killed_by=how) if self._has_started else Answer(absent=how)
        self._buffer += data
        while b"\n" in self._buffer:
            line, _, self._buffer = self._buffer.partition(b"\n")
            if line == b"ready":
                self._has_started = True
                self.deadline = time.monotonic() + self._timeout_s
                continue
            return Answer(json.loads(line))
        return None

    def overdue(self) -> Answer | None:
        if time.monotonic() < self.deadline:
            return None
        self.end()
        if not self._has_started:
            return Answer(absent=f"no sign of life within {START_S:g} s")
        return Answer(timeout_s=self._timeout_s)

    def end(self) -> None:
        self._process.kill()
        self._end()

    def _end(self) -> str:
        self.is_alive = False
        code = self._process.wait()
        for stream in (self._input, self.output):
            with suppress(OSError):  # something may be left that nobody will read
                stream.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
