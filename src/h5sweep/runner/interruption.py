"""What signals ask of a run: to let running tasks finish, or to stop at once."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from ..base.units import count_text, duration_text
from .progress import Display

DEFAULT_GRACE_S = 20.0
TIME_IS_UP = "the time is up"
SIGNALS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What batch systems are told to send before a job ends: sbatch --signal=B:USR1@120.
_SENT_BEFORE_THE_END: tuple[int, ...] = (signal.SIGUSR1, signal.SIGUSR2)


class Stoppable(Protocol):
    """What runs tasks: a pool here, or calls of an engine."""

    unit: str  # what is waited for
    at_once: str  # what a second Ctrl-C does

    def is_busy(self) -> bool:
        """Whether something was given out that has not ended, though it may not have begun."""

    def drain(self) -> None:
        """Let running tasks finish and begin no others. Safe in a signal handler."""

    def stop(self) -> None:
        """End, whatever runs. Safe in a signal handler."""

    def current(self) -> Sized:
        """What is running now."""


class Interruption:
    """What signals have asked of a run: once, finish what runs within the grace; twice, stop.

    Failures may ask for the first too, and a job that has no time left.
    """

    def __init__(self, pool: Stoppable, display: Display, grace_s: float) -> None:
        self._pool = pool
        self._display = display
        self._grace_s = grace_s
        self._pid = os.getpid()
        self._deadline: float | None = None
        self._said = False
        self.reason = ""
        self.signal: int | None = None
        self.count = 0

    def handle(self, number: int, _: FrameType | None) -> None:
        """Note the signal; everything that is not safe here is left to `check`."""
        if os.getpid() != self._pid:  # a process that somebody has forked: it is to end
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.signal = number
        self.count += 1
        self.begin()
        if self.count > 1 and number == signal.SIGINT:
            self._pool.stop()

    @property
    def has_begun(self) -> bool:
        """Whether no other task is begun any more."""
        return self._deadline is not None

    def begin(self, reason: str = "", within_s: float | None = None) -> None:
        """Let running tasks finish within the grace, or as long as is said, and begin no others."""
        self._pool.drain()
        self.reason = self.reason or reason
        if within_s is not None:
            self._grace_s = within_s
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace_s

    def check(self) -> None:
        """Say once what happens now; stop if nothing is left to end, or after too long."""
        if self._deadline is None:
            return
        running, grace = len(self._pool.current()), duration_text(self._grace_s)
        tasks = count_text(running, self._pool.unit)
        if not self._pool.is_busy():
            if self.reason == TIME_IS_UP and not self._said:
                self._display.say(f"{TIME_IS_UP}: no other task would be done in what is left")
            self._said = True
            self._pool.stop()
        elif running and not self._said:
            self._said = True
            self._display.say(self._announcement(tasks, grace))
        elif time.monotonic() > self._deadline:
            self._deadline = math.inf
            self._display.say(f"stopping {tasks} after {grace}")
            self._pool.stop()

    def _announcement(self, tasks: str, grace: str) -> str:
        if self.signal == signal.SIGINT:
            again = f"{self._display.again} to {self._pool.at_once}"
            return f"waiting up to {grace} for {tasks}; {again}"
        if self.signal is None:
            return f"{self.reason}: waiting up to {grace} for {tasks}"
        return f"told to stop: waiting up to {grace} for {tasks}"


@contextmanager
def stopping(pool: Stoppable, display: Display, grace_s: float) -> Iterator[Interruption]:
    """Take the signals that end a run, while it runs."""
    interruption = Interruption(pool, display, grace_s)
    more = [number for number in _SENT_BEFORE_THE_END if _would_end_us(number)]
    with _handling(_taken_signals() + more, interruption.handle):
        yield interruption


def _taken_signals() -> list[int]:
    """A signal that is ignored from the start (nohup) stays ignored."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _would_end_us(number: int) -> bool:
    """Whether nobody takes a signal; a study may for itself, and with faulthandler unseen by us."""
    status = Path("/proc/self/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    is_caught = int(caught.split()[1], 16) >> (number - 1) & 1
    return signal.getsignal(number) is signal.SIG_DFL and not is_caught


class TrialInterruption:
    """The same for a task in this process: once, let it finish within the grace; twice, stop.

    Code that holds Python's lock is let finish: nothing here can end it.
    """

    def __init__(self, tell: Callable[[str], None], grace_s: float) -> None:
        self._tell = tell
        self._grace_s = grace_s
        self._timer: threading.Timer | None = None
        self.signal: int | None = None

    def handle(self, number: int, _: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt  # which tasks do not take for an error of theirs
        self.signal = number
        grace = duration_text(self._grace_s)
        self._tell(f"waiting up to {grace} for the running task; press Ctrl-C again to stop now")
        self._timer = threading.Timer(self._grace_s, os.kill, (os.getpid(), number))
        self._timer.daemon = True
        self._timer.start()

    @contextmanager
    def letting_finish(self) -> Iterator[None]:
        """Take signals so while a task runs."""
        try:
            with _handling(_taken_signals(), self.handle):
                yield
        except KeyboardInterrupt:
            if self.signal is None:
                raise  # the task's own
        finally:
            if self._timer is not None:
                self._timer.cancel()


@contextmanager
def knowing_how_children_end() -> Iterator[None]:
    """Undo what a parent may have set: with SIGCHLD ignored nobody learns how a worker ended."""
    is_ignored = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    with _handling([signal.SIGCHLD] if is_ignored else [], signal.SIG_DFL):
        yield


@contextmanager
def _handling(numbers: list[int], handler: Any) -> Iterator[None]:
    """Take signals in this way for the while, if this is the thread that may say so."""
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in numbers:
                before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
