"""How a worker process comes to be: spawned anew, or forked from a template that has imported.

Spawning costs an interpreter and the study's imports for each worker. A template pays them once,
which is worth it where workers are replaced often or imports are slow. It has one thread only;
where the study's imports start threads, workers are spawned instead.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .channel import Channel, is_readable
from .errors import StudyError
from .folder import RunFolder
from .slot import Slot
from .worker import WorkerOrder

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class WorkerProcess(Protocol):
    """A running worker process, however it was started."""

    pid: int

    def exit_code(self) -> int | None:
        """Wait for its end; negative for a signal, None if nobody can know."""


class Launcher(Protocol):
    """Starts worker processes."""

    def launch(self, connection: int, slot: int) -> WorkerProcess: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class LaunchOrder:
    """What every worker of a run has in common."""

    output: str
    study: Any
    threads: int

    def worker_order(self, connection: int, slot: int) -> WorkerOrder:
        return WorkerOrder(self.output, self.study, connection, slot, os.getpid())

    @property
    def folder(self) -> RunFolder:
        return RunFolder(Path(self.output))

    def environment(self) -> dict[str, str]:
        """The parent's, with each library's threads limited to this worker's share of cores."""
        limits = dict.fromkeys(THREAD_VARIABLES, str(self.threads))
        return {**limits, **os.environ}


@dataclass
class Spawner:
    """Starts each worker as a new interpreter."""

    order: LaunchOrder

    def launch(self, connection: int, slot: int) -> WorkerProcess:
        process = _start("worker", self.order, connection, slot)
        return _Spawned(process.pid, process)

    def close(self) -> None:
        """Nothing is shared by the workers."""


@dataclass
class _Spawned:
    pid: int
    process: subprocess.Popen[bytes]

    def exit_code(self) -> int | None:
        return self.process.wait()


@dataclass
class Forker:
    """Starts each worker as a fork of a template process, which it restarts if it dies."""

    order: LaunchOrder
    _template: _TemplateProcess | None = None

    def start(self) -> int:
        """Start the template, which imports the study; return its pid."""
        self._template = _TemplateProcess.start(self.order)
        return self._template.process.pid

    def wait_for_import(self, wait_s: float | None = None) -> bool:
        """Wait for the template and say whether it can fork; None: for as long as it takes.

        StudyError if the study does not import, TooManyThreadsError if it must not be forked.
        """
        return self._template is not None and self._template.wait_for_import(wait_s)

    def launch(self, connection: int, slot: int) -> WorkerProcess:
        if self._template is not None and (process := self._template.fork(connection, slot)):
            return process
        self.start()
        self.wait_for_import()
        return self.launch(connection, slot)

    def close(self) -> None:
        if self._template is not None:
            self._template.close()


@dataclass
class _TemplateProcess:
    """The template process, as its coordinator sees it; what runs in it is `template`."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    logs_path: Path
    has_imported: bool = False
    exit_codes: dict[int, int] = field(default_factory=dict)
    _unread: bytes = b""

    @classmethod
    def start(cls, order: LaunchOrder) -> _TemplateProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            process = _start("template", order, theirs.fileno(), theirs.fileno())
        return cls(process, ours, order.folder.logs_path)

    def wait_for_import(self, wait_s: float | None) -> bool:
        if not self.has_imported and is_readable(self.channel.fileno(), wait_s):
            self._take_hello(self._hear())
        return self.has_imported

    def _take_hello(self, hello: dict[str, Any] | None) -> None:
        if hello is not None and hello.get("threads") == 1:
            self.has_imported = True
            return
        self.close()
        if hello is None:
            how = describe_exit(self.process.returncode)
            raise StudyError(
                f"the process that workers are forked from {how} while it imported the study: "
                f"look into {self.logs_path}"
            )
        if "broken" in hello:
            raise StudyError(hello["broken"]["message"])
        raise TooManyThreadsError(hello["threads"])

    def fork(self, connection: int, slot: int) -> WorkerProcess | None:
        """Have a worker forked; None if the template has died."""
        with suppress(ConnectionError):
            socket.send_fds(self.channel, [b"fork"], [connection, slot])
        while (message := self._hear()) is not None:
            if "status" not in message:
                return _Forked(message["pid"], self)
            self.exit_codes[message["pid"]] = message["status"]
        self.close()
        return None

    def exit_code(self, pid: int) -> int | None:
        while pid not in self.exit_codes:
            message = self._hear()
            if message is None:
                return None
            self.exit_codes[message["pid"]] = message["status"]
        return self.exit_codes.pop(pid)

    def close(self) -> None:
        """End it: by itself if it is ready, else at once, for the study may keep it for ever."""
        self.channel.close()
        if not self.has_imported and self.process.poll() is None:
            kill_group(self.process.pid)
        self.process.wait()

    def _hear(self) -> dict[str, Any] | None:
        """The template's next line; None if it ended."""
        while b"\n" not in self._unread:
            try:
                received = self.channel.recv(65536)
            except OSError:  # also: closed, because a launch found it dead before
                received = b""
            if not received:
                return None
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


@dataclass
class _Forked:
    pid: int
    template: _TemplateProcess

    def exit_code(self) -> int | None:
        return self.template.exit_code(self.pid)


class TooManyThreadsError(Exception):
    """Importing the study starts threads, so it must not be forked."""


def start_worker(launcher: Launcher) -> tuple[WorkerProcess, Channel, Slot]:
    """Start a worker and return it with our end of its channel and its slot."""
    ours, theirs = socket.socketpair()
    with theirs, Slot.create() as (slot, descriptor):
        process = launcher.launch(theirs.fileno(), descriptor)
    return process, Channel(ours.detach()), slot


def kill_group(pid: int) -> None:
    """End a worker and whatever its task started, at once."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def describe_exit(exit_code: int | None) -> str:
    """How a process ended, as part of a sentence."""
    if exit_code is None:
        return "ended"
    return f"died of {signal_name(-exit_code)}" if exit_code < 0 else f"ended with {exit_code}"


def signal_name(number: int) -> str:
    """`SIGSEGV`; real-time signals have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _start(module: str, order: LaunchOrder, connection: int, slot: int) -> subprocess.Popen[bytes]:
    """Start a new interpreter that runs `main` of a module of ours: `worker` or `template`."""
    # Not -m: it would put this folder first, and a signal.py of the user's before Python's own. The
    # package is found where we found it, also if that is through our sys.path alone.
    find_package = "import sys; sys.path.append(sys.argv.pop(1))"
    package_parent = str(Path(__file__).parent.parent)
    code = f"{find_package}; from h5sweep.{module} import main; main()"
    order_text = order.worker_order(connection, slot).to_json()
    # A session of its own: Ctrl-C in the terminal reaches the coordinator alone.
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, package_parent, order_text],
        pass_fds={connection, slot},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=order.environment(),
    )


__all__ = [
    "Forker",
    "LaunchOrder",
    "Launcher",
    "Spawner",
    "TooManyThreadsError",
    "WorkerProcess",
    "describe_exit",
    "kill_group",
    "signal_name",
    "start_worker",
]
