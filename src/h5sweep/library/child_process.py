"""One child process with the HDF5 library in it: started, asked, waited for, ended.

    to the child     a line of JSON for each question
    from the child   sizes of header and data (uint32 and uint64), header (JSON), data; {} first,
                     when it is ready

A child that dies, hangs, or wants too much memory costs the question that it was asked. The next
one is for another child. `child_program` is the other end.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from ..base.new_process import python_command, signal_name

FRAME = struct.Struct("<IQ")
START_S = 60.0  # importing h5py from a slow disk
_READ_BYTES = 1 << 20
_MOST_WAIT_S = 3600.0  # at once; poll takes no more than some days
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_STDIN, _STDOUT, _STDERR = range(3)

may_fork = False  # our own commands say so; other programs may not survive a fork


@dataclass(frozen=True)
class Answer:
    """What came back: the child's own words, how it ended, or why there is no answer at all."""

    said: dict[str, Any] = field(default_factory=dict)
    data: bytes = b""
    killed_by: str = ""
    timeout_s: float | None = None
    absent: str = ""  # a child that did not start says nothing about the file

    @property
    def is_last(self) -> bool:
        """Whether the child has ended."""
        return bool(self.killed_by or self.absent) or self.timeout_s is not None


class Child:
    """A process that runs `main` of a program of ours, with these words as arguments."""

    def __init__(self, program: str, memory_bytes: int, *words: str) -> None:
        their_input, our_input = os.pipe()
        self.output, their_output = os.pipe()
        self._input = os.fdopen(our_input, "wb")
        self._pid, self._end = 0, ""
        start = _fork if may_fork and _is_alone() else _spawn
        try:
            self._pid = start(program, (str(memory_bytes), *words), their_input, their_output)
        except OSError as error:  # no more processes, or no more memory
            self._end = error.strerror or str(error)
        finally:
            os.close(their_input)
            os.close(their_output)
        self._most_bytes = memory_bytes
        self._buffer = bytearray()
        self._timeout_s = 0.0
        self.has_started = False
        self.deadline = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def is_alive(self) -> bool:
        return self._pid > 0

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> None:
        """Put a question. All answers to it must come in time, which begins when it is ready."""
        self._set_deadline(timeout_s)
        with suppress(OSError):  # if it is dead, reading will say so, and how
            self._input.write(json.dumps(question).encode() + b"\n")
            self._input.flush()

    def ask_no_more(self, timeout_s: float) -> None:
        """Let it come to its end; its last answer must come in time."""
        self._set_deadline(timeout_s)
        with suppress(OSError):
            self._input.close()

    def _set_deadline(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        start_s = 0.0 if self.has_started else START_S
        self.deadline = time.monotonic() + timeout_s + start_s

    def wait(self) -> Answer:
        """The next answer, or why there is none."""
        while (answer := self._take_answer()) is None:
            is_ready = ready_among([self], self.deadline - time.monotonic())
            if (answer := self.read() if is_ready else self.overdue()) is not None:
                break
        return answer

    def read(self) -> Answer | None:
        """An answer, if all of it has come, or how the child ended. Waits if nothing has come."""
        data = os.read(self.output, _READ_BYTES)
        if not data:
            self._reap()
            return Answer(killed_by=self._end) if self.has_started else Answer(absent=self._end)
        self._buffer += data
        return self._take_answer()

    def overdue(self) -> Answer | None:
        """The end of a child that has taken too long."""
        if time.monotonic() < self.deadline:
            return None
        self.kill()
        if not self.has_started:
            return Answer(absent=f"no sign of life within {START_S:g} s")
        return Answer(timeout_s=self._timeout_s)

    def _take_answer(self) -> Answer | None:
        """The next of what has been read, if there is a whole one."""
        if len(self._buffer) < FRAME.size:
            return None
        header_bytes, data_bytes = FRAME.unpack_from(self._buffer)
        start, end = FRAME.size + header_bytes, FRAME.size + header_bytes + data_bytes
        if end > self._most_bytes:
            self.kill()
            return Answer(killed_by="an answer that makes no sense")
        if len(self._buffer) < end:
            return None
        said = json.loads(self._buffer[FRAME.size : start])
        answer = Answer(said, bytes(self._buffer[start:end]))
        del self._buffer[:end]
        if self.has_started:
            return answer
        self.has_started = True
        self._set_deadline(self._timeout_s)
        return self._take_answer()

    def kill(self) -> None:
        """End it, if it has not ended."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        """Wait for its end, and note how it ended."""
        if self._pid:
            code = 0
            with suppress(ChildProcessError):  # the program around us may ask not to be told
                code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
            self._end = signal_name(-code) if code < 0 else f"exit code {code}"
        self._pid = 0
        with suppress(OSError):  # something may be left that nobody will read
            self._input.close()
        if self.output >= 0:
            os.close(self.output)
            self.output = -1


def ready_among(children: Iterable[Child], timeout_s: float) -> list[Child]:
    """Wait until some have something to read, or have ended; none if it takes too long."""
    poll, by_output = select.poll(), {child.output: child for child in children}
    for output in by_output:
        poll.register(output, select.POLLIN)
    timeout_s = min(max(timeout_s, 0.0), _MOST_WAIT_S)
    return [by_output[output] for output, _ in poll.poll(1e3 * timeout_s)]


def _spawn(program: str, words: tuple[str, ...], their_input: int, their_output: int) -> int:
    """Start a new interpreter."""
    actions = [
        (os.POSIX_SPAWN_DUP2, their_input, _STDIN),
        (os.POSIX_SPAWN_DUP2, their_output, _STDOUT),
        (os.POSIX_SPAWN_OPEN, _STDERR, os.devnull, os.O_RDONLY, 0),  # it says nothing there
    ]
    environment = {**os.environ, **_ONE_THREAD}
    command = python_command(program, *words)
    return os.posix_spawn(command[0], command, environment, file_actions=actions)


def _is_alone() -> bool:
    """Whether no thread runs here, but ours, that could hold a lock: the child would wait for it.

    Ours of these names wait for a time, and hold none.
    """
    ours = sum(thread.name.startswith("h5sweep-") for thread in threading.enumerate())
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1 + ours
    except OSError:
        return False


def _fork(program: str, words: tuple[str, ...], their_input: int, their_output: int) -> int:
    """Start a copy of this process, which has imported most of what the child needs."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        gc.freeze()  # what this process had open is not for the child to close
        os.dup2(their_input, _STDIN)
        os.dup2(their_output, _STDOUT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), _STDERR)
        for path in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # that of this listing is closed
                os.close(int(path.name)) if int(path.name) > _STDERR else None
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.environ.update(_ONE_THREAD)
        sys.argv[1:] = words
        import_module(program).main()
        code = 0
    finally:
        os._exit(code)
