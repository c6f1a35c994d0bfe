"""The only ways we write: replace a whole file, append to one, sync what others append.

*Atomic* means never half; *durable* means still there after a power cut. `replacing` is both.
`Appender` makes a write whole or absent and survives SIGKILL at once; it becomes durable with
the next sync, which `Syncer` does for many files from outside the processes that write them.

After a failed sync the kernel may drop the data and report success the next time, so nothing here
ever syncs the same file twice in the hope of a better answer: the error is final.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..base.units import size_text
from ..errors import StorageError, naming, system_error
from .inside_folder import FolderEntry, LinkError, OpenFolder, check_name
from .open_files import is_locked

SYNC_INTERVAL_S = 0.5
_MOST_ENDED = 32  # files whose writers have ended, and which wait for their last sync
_WRITE_BYTES = 1 << 20


@contextmanager
def replacing(target: Path, *, is_synced: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success make it `target`, durably.

    `is_synced` says that the body syncs the file itself, beside other work (see `syncing`).
    Killed at any moment, `target` is the old file or the new one, whole. The temporary file is
    nobody else's; one that a kill left behind is removed by the next attempt.
    """
    with _instead(target) as temporary:
        with OpenFolder(target.parent) as folder:
            remove_unfinished(folder, target.name)
        yield temporary
        if not is_synced:
            sync_file(temporary)


@contextmanager
def making_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target`; on success make it `target`, durably.

    Killed at any moment, `target` is whole or not there; a folder with a name like those of
    temporary files may be left beside it. One in which there is something is never replaced.
    """
    with _instead(target) as temporary:
        temporary.mkdir()
        yield temporary
        for place, _, names in os.walk(temporary):
            for name in names:
                sync_file(Path(place, name))
            sync_folder(Path(place))


@contextmanager
def _instead(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success rename it, else remove what is there."""
    temporary = target.with_name(private_name(target.name))
    try:
        yield temporary
        temporary.replace(target)
        # The folder too: without this the rename itself can be lost.
        sync_folder(target.parent)
    except BaseException as error:
        if temporary.is_dir():
            _remove_folder(temporary)
        else:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if (refusal := system_error(error)) is not None:
            raise storage_error(target, refusal) from error
        raise


def _remove_folder(path: Path) -> None:
    """Remove a folder into which threads of a library that failed may write for a moment yet.

    They make it anew if it is gone, and nobody outside can wait for them: so it is watched.
    """
    looks_gone = 0
    for _ in range(_MOST_LOOKS):
        shutil.rmtree(path, ignore_errors=True)
        time.sleep(_LOOK_EVERY_S)
        looks_gone = 0 if path.exists() else looks_gone + 1
        if looks_gone == _LOOKS_GONE:
            return


_LOOK_EVERY_S, _LOOKS_GONE, _MOST_LOOKS = 0.05, 5, 100


def keep_aside(path: Path) -> Path:
    """Give the content of `path` a second name, so that it outlives a replacement; return that."""
    names = (f"{path.stem}.old-{number}{path.suffix}" for number in itertools.count(1))
    asides = (path.with_name(name) for name in names)
    aside = next(aside for aside in asides if not aside.exists() or aside.samefile(path))
    if not aside.exists():
        try:
            os.link(path, aside)
        except OSError:
            # Not every file system has second names.
            with replacing(aside) as temporary:
                shutil.copyfile(path, temporary)
        sync_folder(path.parent)
    return aside


def replace_text(target: Path, text: str) -> None:
    """Write `text` as the whole content of `target`, atomically and durably."""
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_space(target: Path, needed_bytes: int) -> None:
    """Raise StorageError if a file of that size surely does not fit, before anything is written."""
    disk = os.statvfs(target.absolute().parent)
    free = disk.f_bavail * disk.f_frsize
    if needed_bytes > free:
        raise StorageError(
            f"{target} needs about {size_text(needed_bytes)}, but the disk has {size_text(free)} "
            "free: make space and run the same command again"
        )


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` there, in blocks of the size that goes fastest."""
    with naming(descriptor):
        while data:
            written = os.pwrite(descriptor, data[:_WRITE_BYTES], offset)
            data, offset = data[written:], offset + written


def sync_file(path: Path) -> None:
    """Make the content of `path` durable."""
    _sync(path, os.O_RDWR)


@contextmanager
def syncing(path: Path) -> Iterator[None]:
    """Make the content of `path` durable beside what the body does; raise its error if any."""
    from concurrent.futures import ThreadPoolExecutor  # which `status` need not load

    with ThreadPoolExecutor(1) as executor:
        acting = executor.submit(sync_file, path)
        yield
        acting.result()


def sync_folder(path: Path) -> None:
    """Make names created, renamed or removed in `path` durable."""
    _sync(path.absolute(), os.O_RDONLY | os.O_DIRECTORY)  # which says more than "." if refused


def _sync(path: Path, flags: int) -> None:
    with naming(path):
        descriptor = os.open(path, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create `path` and what is missing above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error


def append_line(path: Path, line: bytes) -> None:
    """Add one line to the end of `path`, durably; the file is made if it is not there.

    Killed at any moment, or refused by a full disk, all earlier lines are as they were and at most
    the last one is torn. The next line does not continue a torn one: it begins on a fresh line.
    """
    try:
        descriptor = open_or_make(path, os.O_APPEND)
        try:
            size_bytes = os.fstat(descriptor).st_size
            is_torn = size_bytes > 0 and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
            left = memoryview(b"\n" * is_torn + line + b"\n")
            while left:  # a short write is how a disk that fills up shows
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not size_bytes:
            sync_folder(path.parent)
    except OSError as error:
        raise storage_error(path, error) from error


def open_or_make(path: Path, flags: int = 0) -> int:
    """Open a file for reading and writing, made if it is not there; OSError for all but files."""
    flags |= os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise LinkError(path) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a file: move it away", str(path))
    except BaseException:  # a network file system may find out here that it is gone
        with suppress(OSError):
            os.close(descriptor)
        raise
    return descriptor


def is_there_already(path: Path, error: OSError) -> bool:
    """Whether a file could not be made because there is one: sshfs says that it is not permitted.

    A folder that takes no files may say so too.
    """
    return error.errno == errno.EEXIST or (error.errno == errno.EPERM and os.path.lexists(path))


def remove(entry: FolderEntry) -> None:
    """Remove a file, or a link but not what it leads to."""
    with naming(entry.path):
        os.unlink(entry.name, dir_fd=entry.folder.descriptor)


def remove_folder(entry: FolderEntry) -> None:
    """Remove an empty folder."""
    with naming(entry.path):
        os.rmdir(entry.name, dir_fd=entry.folder.descriptor)


def make_below(folder: OpenFolder, name: str) -> OpenFolder:
    """Open a folder in one that is open, made durably if it is not there."""
    with suppress(FileNotFoundError):
        return folder.below(name)
    with naming(folder.path / name):
        os.mkdir(check_name(name), dir_fd=folder.descriptor)
    with naming(folder.path):
        os.fsync(folder.descriptor)
    return folder.below(name)


def private_name(name: str) -> str:
    """A temporary name for what will be `name`, that nobody else uses or can foresee."""
    return f".{name}.{os.urandom(4).hex()}.part"


def remove_unfinished(folder: OpenFolder, name: str) -> None:
    """Remove what killed writers of `name` left."""
    for left in (FolderEntry(folder, one) for one in folder.names() if is_unfinished(one, name)):
        if not is_locked(left.path):
            with suppress(OSError):
                remove(left)


def is_unfinished(found: str, name: str | None = None) -> bool:
    """Whether a file's name is a temporary one, of `name` or of anything."""
    middle = r".+" if name is None else re.escape(name)
    return re.fullmatch(rf"\.{middle}\.[0-9a-f]{{8}}\.part", found, re.DOTALL) is not None


class Appender:
    """A new file to which one process appends; nobody else ever writes to it.

    It is locked as long as it may grow, where the file system has locks: `has_lock`.
    Each `append` is one write. After a kill the file holds whole appends and at most one torn one
    at its end. A refused append (disk full) is taken back, so that later ones stay readable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            self.has_lock = _has_taken_lock(self._descriptor)
            sync_folder(path.parent)
        except OSError as error:
            raise storage_error(path, error) from error
        self._end = 0
        self._is_whole = True
        self._is_closed = False
        self._failure: StorageError | None = None

    def append(self, data: bytes) -> None:
        """Add `data` to the end of the file: it survives SIGKILL from here on."""
        if self._failure is not None:
            raise self._failure
        if not self._is_whole:
            # A signal handler raised in the middle of the last append.
            self._take_back()
        self._is_whole = False
        try:
            written = os.pwrite(self._descriptor, data, self._end)
            # A short write is how a disk that fills up, a signal, or a write of over 2 GiB shows.
            while written < len(data):
                rest = memoryview(data)[written:]
                written += os.pwrite(self._descriptor, rest, self._end + written)
        except OSError as error:
            self._take_back()
            raise storage_error(self.path, error) from error
        self._end += len(data)
        # What others write to this descriptor goes behind what is there.
        os.lseek(self._descriptor, self._end, os.SEEK_SET)
        self._is_whole = True

    def _take_back(self) -> None:
        """Fill what a refused append left with zeros, which the next append overwrites.

        Not a truncation: a reader would find the file shorter than it was.
        """
        with suppress(OSError):
            left = os.fstat(self._descriptor).st_size - self._end
            for start in range(0, left, len(_ZEROS)):
                zeros = _ZEROS[: min(len(_ZEROS), left - start)]
                os.pwrite(self._descriptor, zeros, self._end + start)

    def sync(self) -> None:
        """Make every append so far durable; once this has failed, all that follows says so."""
        if self._failure is None and not self._is_closed:
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._failure = _final_error(self.path, error)
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Make everything durable and let go of the file; a second time, say the same again."""
        try:
            self.sync()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the file as it is, without a sync."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError):
            # Closing is not enough: a process that was forked meanwhile has the file open too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        try:
            os.close(self._descriptor)
        except OSError as error:
            # A network file system may say only now that what it was given did not arrive.
            self._failure = self._failure or _final_error(self.path, error)
            raise self._failure from error


def _has_taken_lock(descriptor: int) -> bool:
    """Lock a new file; False where the file system has no locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


class Syncer:
    """Keeps files that other processes append to durable, from a thread of its own.

    Whatever was appended is durable at most SYNC_INTERVAL_S and one sync later, also while the
    process that wrote it is busy in C code that holds the interpreter's lock, or is dead.
    """

    def __init__(self, on_error: Callable[[StorageError], None]) -> None:
        self._on_error = on_error
        self._files: dict[Path, _Watched] = {}
        self._failed: set[Path] = set()
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="h5sweep-sync", daemon=True)
        self._thread.start()

    def add(self, path: Path) -> None:
        """Watch `path` from now on; one whose sync has failed is not taken again."""
        with self._lock:
            if path not in self._files and path not in self._failed:
                self._files[path] = _Watched(os.open(path, os.O_RDONLY))

    def remove(self, path: Path) -> None:
        """Let go of `path`, whose writer has ended, with the next sync."""
        with self._lock:
            if path in self._files:
                self._files[path].is_last_time = True
            ended = sum(file.is_last_time for file in self._files.values())
        if ended >= _MOST_ENDED:
            # Workers end faster than a slow disk syncs, and open files are few.
            self._sync_all()

    def close(self) -> None:
        """Sync all files a last time and let go of them."""
        for path in list(self._files):
            self.remove(path)
        self._stop.set()
        self._thread.join()
        self._sync_all()

    def _run(self) -> None:
        while not self._stop.wait(SYNC_INTERVAL_S):
            self._sync_all()

    def _sync_all(self) -> None:
        with self._syncing:
            self._sync_each()

    def _sync_each(self) -> None:
        with self._lock:
            files = [(path, file, file.is_last_time) for path, file in self._files.items()]
        for path, file, is_last_time in files:
            is_last_time |= not self._is_done(path, file.sync)
            if is_last_time:
                # Only here, where files are synced: elsewhere it could be closed in mid-sync.
                with self._lock:
                    del self._files[path]
                self._is_done(path, partial(os.close, file.descriptor))

    def _is_done(self, path: Path, act: Callable[[], None]) -> bool:
        """Whether the system did it; if not, that is said, and the file is not taken again."""
        try:
            act()
        except OSError as error:
            self._failed.add(path)
            self._on_error(storage_error(path, error))
            return False
        return True


@dataclass
class _Watched:
    """A file that somebody else appends to."""

    descriptor: int
    synced_bytes: int = 0
    is_last_time: bool = False

    def sync(self) -> None:
        size_bytes = os.fstat(self.descriptor).st_size
        if size_bytes != self.synced_bytes:
            os.fdatasync(self.descriptor)
            self.synced_bytes = size_bytes


def storage_error(target: Path | None, error: OSError) -> StorageError:
    """Word a refusal of the operating system, with its number kept in `errno`.

    What was being written is `target`, unless the error names another file.
    """
    named = None if error.filename is None else Path(os.fsdecode(error.filename))
    if target is not None and (
        named is None
        or named in (target, target.parent)
        or named.name == target.name
        or is_unfinished(named.name, target.name)
    ):
        what = f"cannot write {target}"
    elif named is not None:
        what = f"cannot read or write {named}"
    else:
        what = "a file cannot be read or written"
    refusal = StorageError(f"{what}: {error.strerror or error}")
    refusal.errno = error.errno
    return refusal


def _final_error(path: Path, error: OSError) -> StorageError:
    """Word a failed sync, after which nobody knows what of the file is on the disk."""
    refusal = storage_error(path, error)
    final = StorageError(
        f"{refusal}. What was written there since its last sync may be lost: check the disk, and "
        "write it again to a new file"
    )
    final.errno = error.errno
    return final


_ZEROS = bytes(1 << 20)
