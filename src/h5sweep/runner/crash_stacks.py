"""Where a task hung or crashed: what Python's faulthandler wrote to a worker's log.

The handler is C code that needs no interpreter lock, so it answers wherever the task is, unless
the task has blocked the signal. That is a real-time one: SIGUSR1 and its like are the task's own.
Having written, the process dies of the signal: were the task to go on, with a system call
interrupted, it could end too early and give a wrong result.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..state.study import is_own_frame, is_user_frame, place_of

STACK_SIGNAL = signal.SIGRTMAX - 1
MOST_READ = 1 << 17  # bytes at the end of a log
MOST_KEPT = 20_000  # characters
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.* \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def write_stacks_to(descriptor: int) -> None:
    """Have this process write its stack there when it crashes, and when STACK_SIGNAL ends it."""
    faulthandler.enable(descriptor)
    signal.signal(STACK_SIGNAL, signal.SIG_DFL)
    faulthandler.register(STACK_SIGNAL, descriptor, all_threads=True, chain=True)


def end_with_stack(pid: int) -> None:
    """Have a process write its stack and die, if it lets the signal through."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, STACK_SIGNAL)


def asked_stack(log: Path, start: int) -> dict[str, str]:
    """Where a worker was when it was ended and its log had `start` bytes: part of a failure."""
    return _describe(log, "when it was stopped", _threads(_read(log, start)))


def crash_stack(log: Path) -> dict[str, str]:
    """Where a worker was when it crashed by itself, if that left a stack: part of a failure."""
    _, is_crash, text = _read(log, 0).rpartition("Fatal Python error: ")
    threads = _threads(text) if is_crash else []
    return _describe(log, "when it crashed", sorted(threads, key=lambda thread: not thread.faulted))


def size_bytes(path: Path) -> int:
    """How long a log is; none is as good as an empty one."""
    return path.stat().st_size if path.exists() else 0


@dataclass
class Thread:
    """A thread's frames, the innermost first, as faulthandler writes them."""

    faulted: bool
    frames: list[traceback.FrameSummary] = field(default_factory=list)

    @property
    def is_task(self) -> bool:
        return any(is_own_frame(frame) for frame in self.frames)

    @property
    def shown(self) -> list[traceback.FrameSummary]:
        """Without what is below the task, the innermost last."""
        return [frame for frame in reversed(self.frames) if not is_own_frame(frame)]


def _threads(text: str) -> list[Thread]:
    """The thread that runs the task, then those that run the user's code."""
    found: list[Thread] = []
    for line in text.splitlines():
        # Other threads may be printing in between: what is no frame is theirs.
        if head := _THREAD.fullmatch(line):
            found.append(Thread(faulted=head[1] == "Current thread"))
        elif found and (frame := _FRAME.fullmatch(line)):
            summary = traceback.FrameSummary(frame[1], int(frame[2]), frame[3])
            found[-1].frames.append(summary)
    kept = [thread for thread in found if thread.is_task or any(map(is_user_frame, thread.frames))]
    return sorted(kept, key=lambda thread: not thread.is_task)


def _describe(log: Path, when: str, threads: list[Thread]) -> dict[str, str]:
    parts = []
    for number, thread in enumerate(threads):
        whose = "Stack" if number == 0 else "Another thread"
        parts += [
            f"{whose} {when} (most recent call last):\n",
            *traceback.format_list(thread.shown),
        ]
    if size_bytes(log):
        parts.append(f"log: {log}\n")
    where = place_of(threads[0].shown) if threads else ""
    return {"where": where, "traceback": "".join(parts)[:MOST_KEPT]}


def _read(log: Path, start: int) -> str:
    """What is in a log from `start` on, of which the end is enough; nothing if it is gone."""
    size = size_bytes(log)
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(min(start, size), size - MOST_READ))
        return file.read(MOST_READ).decode(errors="replace")
    return ""
