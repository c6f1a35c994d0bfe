"""The process that runs tasks, started by `launch`.

It imports the user's function, then works through the batches it is sent: call, append the
outcome to its own record file, next. It never holds an HDF5 file. It ends by itself when the
coordinator does: the kernel kills it the moment its parent dies, also inside C code.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .channel import Channel
from .durable import storage_error
from .errors import DamagedError, StorageError, UnsupportedValueError, system_error
from .folder import RunFolder
from .plan import Column, Key, Plan, key_json, value_json
from .records import Kind, RecordWriter, json_bytes
from .slot import Slot
from .study import Function, StudyReference, load_function, user_place, user_traceback
from .task_log import TaskLog
from .values import ResultEncoder, result_header

LONGEST_TRACEBACK = 20_000
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class WorkerOrder:
    """All that a worker is told when it starts."""

    output: str
    study: StudyReference
    connection: int
    slot: int
    parent: int

    def to_json(self) -> str:
        return json.dumps({**vars(self), "study": self.study.as_json()})

    @classmethod
    def from_json(cls, text: str) -> WorkerOrder:
        value = json.loads(text)
        return cls(**{**value, "study": StudyReference.from_json(value["study"])})


def main() -> None:
    """What a spawned worker process does from beginning to end."""
    work(take_order())


def take_order() -> WorkerOrder:
    """Read what this process was told on its command line, and end with whoever told it."""
    order = WorkerOrder.from_json(sys.argv[1])
    die_with_parent(order.parent)
    return order


def work(order: WorkerOrder, imported: Function | None = None) -> None:
    """Run batches until the channel closes; a forked worker has its function already."""
    ignore_signals()
    for descriptor in (order.connection, order.slot):
        # Programs that tasks start must not hold them open when we are gone.
        os.set_inheritable(descriptor, False)
    channel = Channel(order.connection)
    folder = RunFolder(Path(order.output))
    record_path = folder.new_record_path("worker")
    try:
        log = TaskLog(folder.log_path(record_path))
        function = imported or load_function(order.study)
        channel.send({"ready": str(record_path)})
        # The plan is read with the first batch: we may have been started before it was there.
        first_batch = channel.receive()
        if first_batch is not None:
            worker = Worker(function, folder, record_path, Slot(order.slot), log)
            worker.serve(channel, first_batch)
        log.close()
        # Nobody needs what is left: Python need not look for garbage in it on its way out.
        gc.freeze()
    except BaseException as error:  # reported to the coordinator, which ends the run
        channel.send(broken_message(error))


class Worker:
    """One process's function, record file, and place in the plan."""

    def __init__(
        self, function: Function, folder: RunFolder, record_path: Path, slot: Slot, log: TaskLog
    ) -> None:
        plan = folder.load_plan()
        if plan is None:
            raise DamagedError(f"{folder.plan_path} is gone: give the same command again")
        self._function = function
        self._plan = plan
        self._records = RecordWriter(record_path, about={"role": "worker", "plan": plan.id})
        self._slot = slot
        self._log = log
        self._pid = os.getpid()
        log.end()
        self._encode = ResultEncoder(plan.names).encode
        self._key_json = KeyEncoder(plan)

    def serve(self, channel: Channel, tasks: list[int] | None) -> None:
        """Answer each batch with its outcomes; a closed channel is the order to end.

        StorageError if an outcome cannot be recorded: then no other one could be.
        """
        while tasks is not None:
            channel.send(self._run_batch(tasks))
            tasks = channel.receive()
        self._records.close()

    def _run_batch(self, tasks: list[int]) -> dict[str, Any]:
        """Run tasks in order until the coordinator takes the rest back through the slot."""
        slot, errors, ended = self._slot, {}, 0
        self._records.append_started(tasks)
        for index, task in enumerate(tasks):
            slot.begin(index)
            if index >= slot.end:
                break
            error = self._run_task(task)
            if error is not None:
                errors[index] = error
            ended += 1
        slot.rest()
        return {"ended": ended, "errors": errors}

    def _run_task(self, task: int) -> dict[str, Any] | None:
        """Run one task and append its outcome; return the failure, if it is one."""
        key = self._plan.key(task)
        self._log.begin(key)
        begun = time.monotonic()
        try:
            schema, data = self._encode(self._function(**key))
            self._end_if_forked()
            self._records.append(
                Kind.DONE,
                task,
                result_header(schema, self._key_json(task)),
                data,
                finished_at=time.time(),
                duration_s=time.monotonic() - begun,
            )
        except StorageError:
            raise
        except BaseException as error:  # the task's own business, whatever it is
            self._end_if_forked()
            return self._fail(task, key, error, time.monotonic() - begun)
        self._log.end()
        return None

    def _end_if_forked(self) -> None:
        """A task that forks and lets the copy return must not have two workers write one file."""
        if os.getpid() != self._pid:
            os._exit(1)

    def _fail(self, task: int, key: Key, error: BaseException, duration_s: float) -> dict[str, Any]:
        kind = Kind.OVER_MEMORY if isinstance(error, MemoryError) else Kind.RAISED
        described = describe_error(error)
        self._log.end()
        self._records.append(
            kind,
            task,
            failure_header(key, described),
            finished_at=time.time(),
            duration_s=duration_s,
        )
        # The traceback stays in the record: an answer has to be small, whatever happened.
        return {
            "kind": kind,
            "error": {**described, "message": described["message"][:500], "traceback": ""},
        }


class KeyEncoder:
    """Keys as JSON; each value is encoded when it is first needed, and only then."""

    def __init__(self, plan: Plan) -> None:
        self._columns = [(_ValueTexts(column), column.codes) for column in plan.columns]

    def __call__(self, task: int) -> bytes:
        parts = [texts[codes[task]] for texts, codes in self._columns]
        return b"{" + b",".join(parts) + b"}"


class _ValueTexts(dict[int, bytes]):
    """The values of one parameter as `"name": value`, by their place among its values."""

    def __init__(self, column: Column) -> None:
        super().__init__()
        self._name = json.dumps(column.name)
        self._values = column.values

    def __missing__(self, code: int) -> bytes:
        text = self[code] = f"{self._name}: {value_json(self._values[code])}".encode()
        return text


def describe_error(error: BaseException) -> dict[str, str]:
    """An exception as it stands in a record: no object, only words."""
    is_ours = isinstance(error, UnsupportedValueError)
    return {
        "type": type(error).__name__,
        "message": _message(error)[:2000],
        "where": user_place(error),
        "traceback": "" if is_ours else _traceback(error)[-LONGEST_TRACEBACK:],
    }


def _traceback(error: BaseException) -> str:
    try:
        return user_traceback(error)
    except Exception:  # a chain of thousands of errors is too deep for the standard library
        return "(its traceback cannot be shown)"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # whatever the user's own __str__ may raise
        return "(its message cannot be shown)"


def failure_header(key: Mapping[str, Any], error: Mapping[str, Any]) -> bytes:
    """The header of a record about a task that did not end well."""
    return b'{"error":' + json_bytes(dict(error)) + b',"key":' + key_json(key).encode() + b"}"


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, whatever it is doing then."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It ended before we asked.
        os._exit(1)


def ignore_signals() -> None:
    """Leave Ctrl-C and the batch system's SIGTERM to the coordinator, which lets tasks finish.

    A handler, not SIG_IGN: programs that tasks start must not inherit deafness.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)


def broken_message(error: BaseException) -> dict[str, Any]:
    """What the coordinator is told by a process that cannot go on."""
    if (refused := system_error(error)) is not None:
        error = storage_error(None, refused)
    described = {
        "type": type(error).__name__,
        "message": str(error),
        "errno": getattr(error, "errno", None),
    }
    return {"broken": described}
