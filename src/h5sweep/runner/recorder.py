"""The writer for users with their own pool, MPI program or launcher.

Three lines in each of their processes in place of their h5py calls; `status`, `missing` and `merge`
then work on what they wrote, whatever was killed.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from ..base.encode_returned import ReturnedEncoder
from ..base.plan import Plan, Value, check_names, checked_value, key_json, key_text
from ..base.values import result_header
from ..disk.durable import SYNC_INTERVAL_S
from ..errors import StorageError, UnsupportedValueError, UsageError
from ..runfolder.fitting_keys import fitted_key, misfit_text, types_of_keys
from ..runfolder.layout import RunFolder
from ..runfolder.records import NO_TASK, RecordKind, RecordWriter

_WIDER = {"int": "float"}


class Recorder:
    """Records results under their keys, from any process of any program.

        with h5sweep.Recorder("layouts.h5") as recorder:
            recorder.write({"farm_id": 3, "seed": 7}, layout=xy, aep=aep)

    When `write` returns, the result survives SIGKILL of this process; it is durable within a second
    (a thread syncs), and at the latest when the recorder is closed. Each process writes a file of
    its own, also one that was forked from a process with an open recorder; threads may share one.
    """

    _types: dict[str, str] | None

    def __init__(self, output: str | os.PathLike[str]) -> None:
        self._folder = RunFolder.of(Path(output).absolute())
        self._folder.create()
        self._is_closed = False
        self._begin()
        with self._lock:
            self._open_file()
        _open_recorders.add(self)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Recorder], tuple[str]]:
        # Sent to another process, it is a recorder of that process.
        return Recorder, (str(self._folder.output),)

    def write(self, key: dict[str, Any], /, **result: Any) -> None:
        """Record one result; TypeError naming the value if it cannot be stored."""
        checked = _checked_key(key)
        with self._lock:
            if self._is_closed:
                raise UsageError("this recorder is closed: open a new one")
            self._check_alike(checked)
            encoded = self._encoder(result)
            if encoded.not_stored:
                raise UnsupportedValueError(encoded.not_stored)
            (self._records or self._open_file()).append(
                RecordKind.DONE,
                NO_TASK,
                result_header(encoded.schema, key_json(checked).encode(), encoded.labels),
                encoded.data,
                finished_at=time.time(),
            )
            self._is_dirty = True

    def _check_alike(self, key: dict[str, Value]) -> None:
        """Refuse a key that is not like those of the plan, or like this recorder's first one.

        Without a plan a number may be an int once and a float once: then they are all floats.
        """
        if self._types is None:
            plan = self._folder.load_plan()
            types = types_of_keys(plan or Plan(()), [key])
            self._types = types if plan else {n: _WIDER.get(t, t) for n, t in types.items()}
            self._encoder = ReturnedEncoder(self._types)
        if fitted_key(key, self._types) is None:
            raise UsageError(
                f"{key_text(key)} is not like the other keys: {misfit_text(key, self._types)}. "
                "Correct it, or record it into another output"
            )

    def close(self) -> None:
        """Make everything durable and let go of the file; StorageError if a sync has failed."""
        self._stop.set()
        with self._lock:
            self._is_closed = True
            if self._records is not None:
                self._records.close()

    def _begin(self) -> None:
        """Forget everything that belongs to one process; in a forked one it was the parent's."""
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._records: RecordWriter | None = None
        self._types = None
        self._is_dirty = False

    def _open_file(self) -> RecordWriter:
        path = self._folder.new_record_path("recorder")
        about = {"role": "recorder", **self._folder.about_records()}
        self._records = RecordWriter(path, about=about)
        threading.Thread(target=self._sync_often, args=(self._stop,), daemon=True).start()
        return self._records

    def _sync_often(self, stop: threading.Event) -> None:
        while not stop.wait(SYNC_INTERVAL_S):
            with self._lock:
                if not self._is_dirty or self._is_closed or self._records is None:
                    continue
                self._is_dirty = False
                try:
                    self._records.sync()
                except StorageError:
                    return  # the next write, or close, says so


def _forget_in_child() -> None:
    """A forked process gets files and locks of its own; its parent's may be in use."""
    for recorder in _open_recorders:
        recorder._begin()


_open_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
os.register_at_fork(after_in_child=_forget_in_child)


def _checked_key(key: dict[str, Any]) -> dict[str, Value]:
    if not key:
        raise UsageError("a result needs a key: the parameter values that it belongs to")
    check_names(key)
    return {name: checked_value(name, value) for name, value in key.items()}
