"""The process that workers are forked from, started by `launch`: it imports the study once for all.

It has one thread only. If importing the study has started others it refuses: a forked copy would
hold their locks for ever.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from .folder import RunFolder
from .records import json_bytes
from .study import Function, load_function
from .task_log import TaskLog
from .worker import WorkerOrder, broken_message, die_with_parent, ignore_signals, take_order, work


def main() -> None:
    """What a template process does from beginning to end."""
    order = take_order()
    channel = socket.socket(fileno=order.connection)
    folder = RunFolder(Path(order.output))
    try:
        log = TaskLog(folder.log_path(folder.new_record_path("template")))
        function = load_function(order.study)
    except BaseException as error:  # reported to the coordinator, which ends the run
        _send(channel, broken_message(error))
        return
    threads = len(list(Path("/proc/self/task").iterdir()))
    _send(channel, {"threads": threads})
    if threads > 1:
        return
    Template(channel, order, function).serve()
    log.close()


class Template:
    """Forks a worker for every request and reports how each ends."""

    def __init__(self, channel: socket.socket, order: WorkerOrder, function: Function) -> None:
        self._channel = channel
        self._order = order
        self._function = function
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        woken, waker = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        self._woken, self._waker = woken, waker
        self._selector.register(woken, selectors.EVENT_READ)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker.fileno())
        ignore_signals()

    def serve(self) -> None:
        """Fork and report until the coordinator closes the channel."""
        while True:
            ready = {key.fileobj for key, _ in self._selector.select()}
            if self._woken in ready:
                self._report_ends()
            if self._channel in ready:
                message, descriptors, _, _ = socket.recv_fds(self._channel, 64, 2)
                if not message:
                    return
                self._fork(descriptors)

    def _fork(self, descriptors: list[int]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(descriptors, parent)
        for descriptor in descriptors:
            os.close(descriptor)
        _send(self._channel, {"pid": pid})

    def _become_worker(self, descriptors: list[int], parent: int) -> NoReturn:
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            self._channel.close()
            die_with_parent(parent)
            _reseed()
            connection, slot = descriptors
            order = replace(self._order, connection=connection, slot=slot, parent=parent)
            work(order, self._function)
            status = 0
        finally:
            os._exit(status)

    def _report_ends(self) -> None:
        with suppress(BlockingIOError):
            self._woken.recv(4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                _send(self._channel, {"pid": pid, "status": os.waitstatus_to_exitcode(status)})


def _reseed() -> None:
    """Give a forked worker random numbers of its own; Python's `random` sees to its own."""
    import numpy as np

    np.random.seed()


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    with suppress(ConnectionError):
        channel.sendall(json_bytes(message) + b"\n")
