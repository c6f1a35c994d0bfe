"""Ask the HDF5 library about a file, in child processes that may die of it.

A child takes one file after the other. One that dies, hangs, or wants too much memory costs that
file its answer, and is replaced. Children cannot write: the kernel refuses them any file size.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .child_process import Answer, Child, ready_among

SECONDS_PER_MB = 0.1  # added to the limit of a file whose every byte is read
SECONDS_PER_OBJECT = 0.001  # added for what our own reader has listed
SLOW_S, MANY = 0.3, 30  # a file that takes longer, or more that wait, are worth another child


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
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)  # as in `inspect`


class Library:
    """A few children, and the files that wait for them."""

    def __init__(self, processes: int = 2, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._most = max(processes, 1)
        self._waiting: deque[Request] = deque()
        self._children: list[_Inspector] = []
        self._open = 0
        self._absent = ""  # why no child can be started, if so

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children:
            child.kill()

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
            if child is None:
                if not self._may_start_another():
                    return
                child = _Inspector(self.limits)
                self._children.append(child)
            child.give(self._waiting.popleft())

    def _may_start_another(self) -> bool:
        """Not for little, which those at work have done before another is ready."""
        has_much_to_do = len(self._waiting) > MANY or all(one.is_slow for one in self._children)
        return has_much_to_do and len(self._children) < self._most

    def _patience(self) -> float:
        """How long the next limit is away, or the time for another child."""
        now = time.monotonic()
        times = [child.deadline for child in self._children if child.request is not None]
        if self._waiting and len(self._children) < self._most:
            times.append(now + SLOW_S)
        return max(min(times, default=0.0) - now, 0.0)

    def _collect(self, timeout_s: float) -> list[tuple[Request, Answer]]:
        busy = [child for child in self._children if child.request is not None]
        ready = ready_among(busy, timeout_s)
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


class _Inspector(Child):
    """A child that looks at one file after the other."""

    def __init__(self, limits: Limits) -> None:
        super().__init__("h5sweep.library.inspect_child", limits.memory_bytes)
        self._limits = limits
        self.request: Request | None = None

    @property
    def is_slow(self) -> bool:
        """Whether it has been at a file for longer than another child needs to start."""
        begun = self.deadline - self._timeout_s
        return self.has_started and time.monotonic() - begun > SLOW_S

    def give(self, request: Request) -> None:
        self.request = request
        timeout_s = self._limits.timeout_s + SECONDS_PER_OBJECT * request.objects
        if request.what != "structure":
            timeout_s += SECONDS_PER_MB * request.size_bytes / 1e6
        about = {"path": request.path, "what": request.what}
        self.ask({**about, "only": request.only} if request.only else about, timeout_s)
