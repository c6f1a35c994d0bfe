"""A Python that has imported h5sweep and becomes a command each time it is asked, by a fork.

A command that starts anew imports NumPy, h5py and a hundred modules of ours first, which is most of
its time. What a fork has of its parent is what a new process has after these imports.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

MODULES = "h5sweep.cli.entry", "h5sweep.runner.run", "h5sweep.report.sweep_page"
READ_AT_START = (
    "PYTHON",
    "LANG",
    "LC_",
    "LD_",
    "TZ",
    "OMP_",
    "OPENBLAS_",
    "NUMBA_",
    "HDF5_",
    "NPY_",
)
LONGEST = 1 << 20


class ReadyPython:
    """One such process, which is one command at a time."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # as a command has it: Python buffers files differently
                stderr=subprocess.STDOUT,
            )

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """What becomes of `python -m h5sweep` with these words, in a folder."""
        readers, writers = zip(os.pipe(), os.pipe(), strict=True)
        order = json.dumps([str(folder), dict(environment), *words])
        socket.send_fds(self._orders, [order.encode()], writers)
        for writer in writers:
            os.close(writer)
        pid = int(self._orders.recv(100))
        try:
            said = _read_all(readers, timeout_s)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(words, timeout_s) from None
        finally:
            exit_code = int(self._orders.recv(100))
        return subprocess.CompletedProcess(words, exit_code, *map(_text, said))

    def close(self) -> None:
        self._orders.close()
        self._process.communicate()


class ReadyPythons:
    """As many as are needed at once, and two at least, which take turns.

    They hash strings differently, so that a command never finds sets in the order in which the one
    before it had them, as it is with new processes.
    """

    def __init__(self) -> None:
        self._started_with: dict[str, str] | None = None
        self._idle: deque[ReadyPython] = deque()
        self._begun = 0

    def note_environment(self) -> None:
        """From now on commands can be run that have the environment of this process now."""
        self._started_with = _read_at_start(os.environ)

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Whether they were started with all of this that is not read later."""
        is_asked_for_new = environment.get("H5SWEEP_NEW_PROCESSES") == "1"
        return not is_asked_for_new and _read_at_start(environment) == self._started_with

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        if self._begun < 2 or not self._idle:
            self._begun += 1
            self._idle.appendleft(ReadyPython())
        python = self._idle.popleft()
        try:
            return python.run(words, folder, environment, timeout_s)
        finally:
            self._idle.append(python)

    def close(self) -> None:
        for python in self._idle:
            python.close()
        self._idle.clear()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python and the libraries that we import look at when they start."""
    return {
        name: text
        for name, text in environment.items()
        if name.startswith(READ_AT_START) and name != "PYTHONDONTWRITEBYTECODE"
    }


def _read_all(readers: Sequence[int], timeout_s: float) -> list[bytes]:
    """All that comes out of some pipes, which are closed then."""
    said = dict.fromkeys(readers, b"")
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        try:
            while selector.get_map():
                ready = selector.select(max(0, deadline - time.monotonic()))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    said[key.fd] += (text := os.read(key.fd, 1 << 16))
                    if not text:
                        selector.unregister(key.fd)
        finally:
            for reader in readers:
                os.close(reader)
    return list(said.values())


def _text(said: bytes) -> str:
    """As `subprocess.run` returns it."""
    return said.decode().replace("\r\n", "\n").replace("\r", "\n")


def main() -> None:
    """Import all; then take orders until nobody is left who gives them."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in MODULES:
        import_module(name)
    gc.freeze()
    while True:
        order, streams, _, _ = socket.recv_fds(orders, LONGEST, 2)
        if not order:
            return
        pid = os.fork()
        if pid == 0:
            orders.close()
            _become_command(*json.loads(order), streams=streams)
        for stream in streams:
            os.close(stream)
        orders.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        orders.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become_command(
    folder: str, environment: dict[str, str], *words: str, streams: Sequence[int]
) -> None:
    """Be what `python -m h5sweep` is; this ends by SystemExit."""
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    os.chdir(folder)
    sys.path[0] = os.getcwd()
    sys.argv[1:] = words
    runpy.run_module("h5sweep", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
