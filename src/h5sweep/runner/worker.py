"""The process that runs tasks, started by `worker_handle`.

It imports the user's function, then works through the batches it is sent: call, append the
outcome to its own record file, next. It never holds an HDF5 file. It ends by itself when the
coordinator does: the kernel kills it the moment its parent dies, also inside C code.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..base.encode_returned import EncodedResult, ReturnedEncoder
from ..base.plan import Key, Plan, PlanColumn, key_json, value_json
from ..base.returned import result_names
from ..base.values import result_header
from ..code.snapshot_import import modules_beyond, show_lines_in_tracebacks
from ..disk.durable import storage_error
from ..errors import DamagedError, StorageError, SweepError, UnsupportedValueError, system_error
from ..library.limit_child import die_with_parent
from ..runfolder.layout import RunFolder
from ..runfolder.records import RecordKind, RecordWriter, json_bytes
from ..state.study import user_place, user_traceback
from .channel import Channel
from .constants_watch import ConstantsWatch
from .hand_over import Received, receive_function
from .task_log import TaskLog
from .worker_position import WorkerPosition

LONGEST_TRACEBACK = 20_000


@dataclass(frozen=True)
class WorkerOrder:
    """All that a worker is told when it starts."""

    output: str
    connection: int
    slot: int
    function: int  # the descriptor of what `hand_over` has packed
    parent: int
    part: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> WorkerOrder:
        return cls(**json.loads(text))


def main() -> None:
    """What a worker process does from beginning to end: batches, until the channel closes."""
    order = WorkerOrder.from_json(sys.argv[1])
    die_with_parent()
    if os.getppid() != order.parent:
        os._exit(1)  # it ended before we asked
    ignore_signals()
    for descriptor in (order.connection, order.slot):
        # Programs that tasks start must not hold them open when we are gone.
        os.set_inheritable(descriptor, False)
    channel = Channel(order.connection)
    folder = RunFolder(Path(order.output))
    record_path = folder.new_record_path("worker")
    try:
        log = TaskLog(folder.log_path(record_path))
        received = receive_function(order.function, folder.copies_path)
        os.close(order.function)
    except BaseException as error:  # reported to the coordinator, which ends the run
        channel.send(broken_message(error))
        return
    try:
        _serve(channel, order, received, record_path, log)
    except SweepError as error:  # of the disk or the plan: no other worker could go on
        channel.send(broken_message(error))
    except BaseException:  # what a task has left behind: another worker goes on without that
        _end_with_traceback()


def _serve(
    channel: Channel,
    order: WorkerOrder,
    received: Received,
    record_path: Path,
    log: TaskLog,
) -> None:
    found = {"differing": received.differing, "unexplained": received.unexplained}
    channel.send({"ready": str(record_path), **found})
    # The plan is read with the first batch: we may have been started before it was there.
    first_batch = channel.receive()
    if first_batch is not None:
        folder = RunFolder(Path(order.output))
        slot = WorkerPosition.open(order.slot)
        try:
            worker = Worker(received, folder, record_path, slot, log, order.part)
        except OSError as error:
            if (refused := system_error(error)) is None:
                raise
            raise storage_error(None, refused) from error
        worker.serve(channel, first_batch)
    log.close()
    # Nobody needs what is left: Python need not look for garbage in it on its way out.
    gc.freeze()


def _end_with_traceback() -> NoReturn:
    """Leave a traceback in the log and end, also if a task's threads would go on."""
    try:
        traceback.print_exc()
    finally:
        os._exit(1)


class Worker:
    """One process's function, record file, and place in the plan."""

    def __init__(
        self,
        received: Received,
        folder: RunFolder,
        record_path: Path,
        slot: WorkerPosition,
        log: TaskLog,
        part: str = "",
    ) -> None:
        plan = folder.load_plan()
        if plan is None:
            raise DamagedError(f"{folder.plan_path} is gone: run the same command again")
        self._function = received.function
        self._plan = plan
        about = {"role": "worker", "plan": plan.id, "code": received.code}
        about |= folder.about_records() | ({"part": part} if part else {})
        self._records = RecordWriter(record_path, about=about)
        self._slot = slot
        self._log = log
        self._pid = os.getpid()
        self._has_study_alarm = signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0)
        log.end()
        self._modules_known, self._modules_loaded = modules_beyond(), len(sys.modules)
        self._constants = ConstantsWatch(received.constants)
        self._encode = ReturnedEncoder(plan.names, result_names(received.function))
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
        found = {"beyond": self._modules_beyond(), "changed": self._constants.changed()}
        return {"ended": ended, "errors": errors, **found}

    def _modules_beyond(self) -> list[str]:
        """Own modules that tasks have imported and that are no part of the code that rows name."""
        if len(sys.modules) == self._modules_loaded:
            return []
        self._modules_loaded = len(sys.modules)
        return sorted(modules_beyond() - self._modules_known)

    def _run_task(self, task: int) -> dict[str, Any] | None:
        """Run one task and append its outcome; return the failure, if it is one."""
        key = self._plan.key(task)
        self._log.begin(key)
        begun = time.monotonic()
        try:
            result = self._encode(self._call(key))
            self._end_if_forked()
            self._record(task, result, time.monotonic() - begun)
        except StorageError:
            raise
        except BaseException as error:  # the task's own business, whatever it is
            self._stop_alarm()  # again: its handler may have raised before it was stopped
            self._end_if_forked()
            return self._fail(task, key, error, time.monotonic() - begun)
        self._log.end()
        return None

    def _record(self, task: int, result: EncodedResult, duration_s: float) -> None:
        finished_at = time.time()
        if result.not_stored:  # before the result: it says nothing without
            note = json_bytes({"not_stored": result.not_stored})[:-1]
            note += b',"key":' + self._key_json(task) + b"}"
            self._records.append(RecordKind.NOTE, task, note, finished_at=finished_at)
        self._records.append(
            RecordKind.DONE,
            task,
            result_header(result.schema, self._key_json(task), result.labels),
            result.data,
            finished_at=finished_at,
            duration_s=duration_s,
        )

    def _call(self, key: Key) -> object:
        try:
            return self._function(**key)
        finally:
            self._stop_alarm()

    def _stop_alarm(self) -> None:
        """Stop an alarm that a task has set, and not the study: it must not meet the next task."""
        if not self._has_study_alarm:
            signal.alarm(0)

    def _end_if_forked(self) -> None:
        """A task that forks and lets the copy return must not have two workers write one file."""
        if os.getpid() != self._pid:
            os._exit(1)

    def _fail(self, task: int, key: Key, error: BaseException, duration_s: float) -> dict[str, Any]:
        kind = RecordKind.OVER_MEMORY if isinstance(error, MemoryError) else RecordKind.RAISED
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

    def __init__(self, column: PlanColumn) -> None:
        super().__init__()
        self._name = json.dumps(column.name)
        self._values = column.values

    def __missing__(self, code: int) -> bytes:
        text = self[code] = f"{self._name}: {value_json(self._values[code])}".encode()
        return text


def describe_error(error: BaseException) -> dict[str, str]:
    """An exception as it stands in a record: no object, only words."""
    show_lines_in_tracebacks()
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


def ignore_signals() -> None:
    """Leave Ctrl-C and the batch system's SIGTERM to the coordinator, which lets tasks finish.

    A handler, not SIG_IGN: programs that tasks start must not inherit deafness.
    """
    for number in _DEFAULTS:
        signal.signal(number, _ignore)
    os.register_at_fork(
        before=_hold_signals, after_in_parent=_let_signals_in, after_in_child=_end_ignoring
    )


def _ignore(*_: object) -> None:
    pass


_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
_masks = threading.local()


def _hold_signals() -> None:
    """Keep a signal that a forked process is sent at once until it may end of it."""
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULTS)


def _let_signals_in() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _end_ignoring() -> None:
    """A process that a task forks takes signals as any other: a pool ends its workers so."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is _ignore:
            signal.signal(number, default)
    _let_signals_in()


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
