"""Start a worker process: a new interpreter, in its own session."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.new_process import python_command
from ..runfolder.layout import RunFolder
from .channel import Channel
from .worker import WorkerOrder
from .worker_position import WorkerPosition

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


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


def start_worker(order: LaunchOrder) -> tuple[subprocess.Popen[bytes], Channel, WorkerPosition]:
    """Start a worker and return it with our end of its channel and its slot."""
    ours, theirs = Channel.make_pair()
    with ours, theirs, WorkerPosition.create() as (slot, descriptor):
        process = _start(order, theirs.fileno(), descriptor)
        return process, Channel(ours.detach()), slot


def kill_group(pid: int) -> None:
    """End a worker and whatever its task started, at once."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _start(order: LaunchOrder, connection: int, slot: int) -> subprocess.Popen[bytes]:
    """Start a new interpreter that runs `main` of `worker`."""
    order_text = order.worker_order(connection, slot).to_json()
    # A session of its own: Ctrl-C in the terminal reaches the coordinator alone.
    return subprocess.Popen(
        python_command("h5sweep.runner.worker", order_text),
        pass_fds={connection, slot},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=order.environment(),
    )
