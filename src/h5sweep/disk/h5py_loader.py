"""The one place that imports h5py, and the one way to write with it.

Without plug-ins, because a filter id in a file could otherwise make the HDF5 library load and run
a shared library. It reads the variable when it is loaded, so it must be set before the import.

A write that fails takes the HDF5 library down with it: h5py passes over the error when it lets go
of an object, and the process dies of what is left. So the library writes through a file object that
never fails (`_Steady`). What the disk refused is noted, and raised once the library has let go.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from . import durable

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"

import h5py

__all__ = ["Overlaid", "WrittenFile", "h5py", "is_elsewhere", "writing"]

_AGAIN_S = 0.01


class WrittenFile:
    """An HDF5 file that is being written: for h5py as `file`, for us as a `descriptor`."""

    def __init__(self, steady: _Steady, file: Any) -> None:
        self.descriptor, self.file, self._steady = steady.descriptor, file, steady

    def require_written(self) -> None:
        """Raise what the disk has refused so far, if anything."""
        if self._steady.refusal is not None:
            raise self._steady.refusal


@contextmanager
def writing(path: Path, **settings: Any) -> Iterator[WrittenFile]:
    """Open the HDF5 file `path` for writing; it is made if it is not there.

    At the end all of it was handed to the system, and nothing is durable. OSError if anything was
    refused: then the file is to be thrown away.
    """
    steady = _Steady(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
    mode = "r+" if os.fstat(steady.descriptor).st_size else "w"
    try:
        with (
            _signals_waiting(),
            h5py.File(path, mode, driver="fileobj", fileobj=steady, **settings) as file,
        ):
            written = WrittenFile(steady, file)
            yield written
        written.require_written()
    except Exception as error:
        if steady.refusal is None or steady.refusal is error:
            raise
        raise steady.refusal from error  # what the library says of it is a consequence
    finally:
        steady.close()


class Overlaid:
    """An open file of which some bytes are others than on disk, as h5py reads it."""

    def __init__(self, descriptor: int, *pieces: tuple[int, bytes]) -> None:
        self.descriptor = descriptor
        self._pieces = list(pieces)
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        self._position = offset + (self._find_end() if whence == os.SEEK_END else 0)

    def tell(self) -> int:
        return self._position

    def readinto(self, target: Any) -> None:
        into, start = memoryview(target), self._position
        into[:] = bytes(len(into))  # what lies behind the end
        self._read(into, start)
        for offset, data in self._pieces:
            first, last = max(offset, start), min(offset + len(data), start + len(into))
            if first < last:
                into[first - start : last - start] = data[first - offset : last - offset]

    def flush(self) -> None:
        """Nothing waits here."""

    def _find_end(self) -> int:
        return os.fstat(self.descriptor).st_size

    def _read(self, into: memoryview, start: int) -> None:
        while size := os.preadv(self.descriptor, [into], start):
            into, start = into[size:], start + size


class _Steady(Overlaid):
    """A file that takes everything: after a refusal, which it notes, it goes on in memory."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self.refusal: Exception | None = None
        self._end = 0

    def write(self, data: Any) -> None:
        if self.refusal is None:
            with self._noting():
                durable.write_all(self.descriptor, memoryview(data), self._position)
        if self.refusal is not None:
            self._pieces.append((self._position, bytes(data)))
            self._end = max(self._end, self._position + len(data))

    def truncate(self, size: int) -> None:
        with self._noting():
            os.ftruncate(self.descriptor, size)

    def close(self) -> None:
        """Let go; whoever still writes, such as an object of h5py that is dropped late, may."""
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)

    def _find_end(self) -> int:
        with self._noting():
            self._end = max(self._end, super()._find_end())
        return self._end

    def _read(self, into: memoryview, start: int) -> None:
        with self._noting():
            super()._read(into, start)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.refusal = self.refusal or error


_CALLBACKS = ("seek", "tell", "write", "readinto", "truncate", "flush")
_CALLED_BACK = {getattr(_Steady, name).__code__ for name in _CALLBACKS}


@contextmanager
def _signals_waiting() -> Iterator[None]:
    """Let signals wait until the library has returned: it must not meet what handlers raise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {n: h for n in numbers if callable(h := signal.getsignal(n))}

    def handle(number: int, frame: FrameType | None) -> None:
        if _is_called_back(frame):
            again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        else:
            handlers[signal.Signals(number)](number, frame)

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_called_back(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _CALLED_BACK:
            return True
        frame = frame.f_back
    return False


def is_elsewhere(dataset: Any) -> bool:
    """Whether the data of a dataset are in other files.

    Of such that cannot be opened, the library makes fill values without a word.
    """
    settings = dataset.id.get_create_plist()
    is_virtual: bool = settings.get_layout() == h5py.h5d.VIRTUAL
    return is_virtual or settings.get_external_count() > 0
