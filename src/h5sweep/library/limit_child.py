"""What a child process with the HDF5 library gives up before it opens a file.

The kernel refuses it what it does not need, so a file that misleads the library does no harm.
"""

from __future__ import annotations

import codecs
import ctypes
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CODECS = ("ascii", "latin-1", "utf-8")
_PR_SET_PDEATHSIG = 1
_USUAL_BYTES = 2 << 30  # that a process with the library has mapped, where nothing tells


def confine(memory_bytes: int, *, may_write: bool) -> None:
    """Give up what is not needed: dumping core, memory without end and, in a reader, writing.

    What the system refuses is left as it is: where we run says nothing about the files we read.
    """
    die_with_parent()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails instead
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    if not may_write:
        _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, _bytes_in_use() + memory_bytes)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, whatever it is doing then."""
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def sealed() -> Iterator[None]:
    """Let nothing be opened meanwhile: a file may name others as the place of its data.

    What is open already is read as before. As with `confine`, the system may refuse it.
    """
    for name in _CODECS:  # Python would open their modules when h5py first asks for them
        codecs.lookup(name)
    before = None
    with suppress(OSError, ValueError):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        with suppress(OSError, ValueError):
            if before is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _limit(what: int, most: int) -> None:
    """Allow no more of something; less than that if less was allowed before."""
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _bytes_in_use() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_BYTES
    return pages * resource.getpagesize()
