"""Engines that run calls elsewhere: any `concurrent.futures.Executor`, Dask or MPI by name.

Each is imported when it is asked for, and none is needed.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

from ..errors import EngineError, UsageError

ANSWER_S, MORE_S = 10.0, 5.0
_PARSLS_OWN = "_parsl_internal"  # the label of the executor for its own work


@dataclass(frozen=True)
class Engine:
    """An executor, and how many parts it is sent."""

    executor: Executor
    parts: int

    @classmethod
    def of(cls, executor: Executor, parts: int | None = None) -> Engine:
        """One part for each call that the executor can run at once, unless a number is said."""
        _require_usable(executor)
        if parts is not None and (not isinstance(parts, int) or parts < 1):
            raise UsageError(f"parts must be a whole number, 1 or more, not {parts!r}")
        if parts is None and (parts := _slots(executor)) == 0:
            raise EngineError(
                "the engine has no workers yet: start them, or say how many parts to send it, such "
                "as --parts 8 (parts=8)"
            )
        if not parts:
            raise UsageError(
                f"{type(executor).__name__} does not say how many calls it runs at once: say "
                "how many parts to send it, such as --parts 8 (parts=8)"
            )
        return cls(executor, parts)


def _require_usable(executor: Any) -> None:
    if not isinstance(executor, Executor):
        what = executor.__name__ if isinstance(executor, type) else type(executor).__name__
        is_what = f"the class {what}" if isinstance(executor, type) else f"of the type {what}"
        raise UsageError(
            f"executor is {is_what}: give an instance of a concurrent.futures.Executor, such as "
            "client.get_executor() of Dask"
        )
    if (client := getattr(executor, "_client", None)) is None:  # of Dask
        return
    if client.asynchronous:
        raise UsageError(
            "executor is of an asynchronous Dask client: use a synchronous Client, or "
            "await asyncio.to_thread(sweep.run, ...) with one"
        )
    if client.status in ("closing", "closed"):
        raise EngineError(f"the Dask client is {client.status}: make a new one")


def _slots(executor: Any) -> int | None:
    """How many calls an executor runs at once; None if it does not say."""
    if (client := getattr(executor, "_client", None)) is not None:  # of Dask
        return int(sum(client.nthreads().values()))
    if (kernel := getattr(executor, "_dfk", None)) is not None:  # of Parsl
        slots = [_parsl_slots(one) for one in kernel.executors.values() if one.label != _PARSLS_OWN]
        return None if None in slots else sum(filter(None, slots))
    for name in ("_max_workers", "max_workers"):
        if isinstance(count := getattr(executor, name, None), int):
            return count
    return None


def _parsl_slots(executor: Any) -> int | None:
    """Of all threads or blocks that it may have; None if it does not say."""
    if (threads := getattr(executor, "max_threads", None)) is not None:
        return int(threads)
    if (workers := getattr(executor, "workers_per_node", None)) is None:
        return None
    return int(executor.provider.max_blocks * executor.provider.nodes_per_block * workers)


@contextmanager
def connected(
    name: str | None, address: str | None = None, scheduler_file: Path | None = None
) -> Iterator[Executor | None]:
    """An executor of an engine that is there already, by its name; None if there is no name.

    None too in a process that serves the engine, when that is done: the other ranks of MPI.

    EngineError if it does not answer, UsageError if it is not installed.
    """
    if name == "mpi":
        with _mpi() as executor:
            yield executor
    elif name is None:
        yield None
    else:
        with _dask(address, scheduler_file) as client:
            yield client.get_executor()


@contextmanager
def _dask(address: str | None, scheduler_file: Path | None) -> Iterator[Any]:
    if address and scheduler_file:
        raise UsageError("--address and --scheduler-file both name a scheduler: choose one")
    if scheduler_file is not None:
        address = _written_address(scheduler_file)
    if not address:
        raise UsageError("--engine dask needs --address tcp://HOST:8786 or --scheduler-file FILE")
    distributed = _imported("distributed", "dask")
    for logger in ("distributed", "distributed.client"):
        # It shows a traceback when the scheduler ends; we say what that means.
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    make = partial(distributed.Client, address, timeout=ANSWER_S, set_as_default=False)
    try:
        client = _bounded(make)
    except Exception as error:  # whatever Dask raises at what is no scheduler
        if scheduler_file is None:
            where, what_to_do = address, f"see that one runs there, or correct {address}"
        else:
            where, what_to_do = f"{address}, which {scheduler_file} names", _start(scheduler_file)
        raise EngineError(
            f"no Dask scheduler answers at {where} ({first_line(error)}): {what_to_do}"
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=ANSWER_S)


def _written_address(scheduler_file: Path) -> str:
    """The address of a scheduler, out of the file that it writes; EngineError if it is not there.

    Dask waits for ever for a file that does not come, or has none.
    """
    if not scheduler_file.is_file():
        raise EngineError(f"there is no {scheduler_file}: {_start(scheduler_file)}")
    try:
        found = json.loads(scheduler_file.read_bytes())
    except (OSError, ValueError):
        found = None
    address = found.get("address") if isinstance(found, dict) else None
    if not address or not isinstance(address, str):
        raise EngineError(f"{scheduler_file} names no Dask scheduler: {_start(scheduler_file)}")
    return address


def _start(scheduler_file: Path) -> str:
    scheduler, worker = (
        shlex.join(["dask", what, "--scheduler-file", str(scheduler_file)])
        for what in ("scheduler", "worker")
    )
    return f"start one with: {scheduler}, and workers with: {worker}"


def _bounded(connect: Callable[[], Any]) -> Any:
    """What it returns or raises; TimeoutError if it does neither, as where a port is silent."""
    answer: Future[Any] = Future()

    def call() -> None:
        try:
            answer.set_result(connect())
        except BaseException as error:  # for the thread that waits for it
            answer.set_exception(error)

    Thread(target=call, name="h5sweep-connect", daemon=True).start()
    return answer.result(ANSWER_S + MORE_S)


@contextmanager
def _mpi() -> Iterator[Executor | None]:
    world = _imported("mpi4py.MPI", "mpi").COMM_WORLD
    if world.Get_size() == 1:
        raise UsageError(
            "--engine mpi: this is the only rank. Write mpirun -n 4 before the same command: the "
            "first rank sends tasks to the others"
        )
    with _imported("mpi4py.futures", "mpi").MPICommExecutor(world, root=0) as executor:
        yield executor


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except (ImportError, RuntimeError) as error:  # the second if there is no MPI library
        raise UsageError(
            f"--engine {extra} is not installed ({first_line(error)}): "
            f"pip install 'h5sweep[{extra}]'"
        ) from error


def first_line(error: Exception) -> str:
    """What it says first, without a full stop; its type if it says nothing.

    If that only announces what follows ("Error 1:"), the next line too.
    """
    lines = [line for line in map(str.strip, str(error).splitlines()) if line]
    count = 2 if lines and lines[0].endswith(":") else 1
    return " ".join(lines[:count]).rstrip(".:") or type(error).__name__
