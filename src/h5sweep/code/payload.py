"""What all workers of a run are handed when they start, in memory that they share.

An anonymous file of the kernel's, which is on no disk: a description in JSON, one pickle, and the
large arrays of the function and of its constants, which each worker maps instead of copying them.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pickle
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_HEAD = struct.Struct("<QQQ")  # size of the description, of the pickle, how many buffers
_SIZE = struct.Struct("<Q")
_ALIGNMENT = 64
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE


def write_payload(description: dict[str, Any], content: bytes, buffers: Sequence[Any]) -> int:
    """Lay it all out in a new anonymous file; the descriptor is for workers to inherit."""
    descriptor = os.memfd_create("h5sweep", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    text = json.dumps(description).encode()
    views = [pickle.PickleBuffer(buffer).raw() for buffer in buffers]
    sizes = b"".join(_SIZE.pack(len(view)) for view in views)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(_HEAD.pack(len(text), len(content), len(views)) + sizes + text + content)
        for view in views:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(view)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def payload_bytes(descriptor: int) -> bytes:
    """All of it, for a process that cannot inherit the descriptor."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


@contextmanager
def payload_here(content: bytes) -> Iterator[int]:
    """The same in memory of this machine, for workers to inherit."""
    descriptor = os.memfd_create("h5sweep", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield descriptor
    finally:
        os.close(descriptor)


def read_payload(descriptor: int) -> tuple[dict[str, Any], bytes, list[memoryview]]:
    """What `write_payload` wrote; the buffers are shared pages until they are written to."""
    # Kept for as long as anybody has a view of it, so it is never closed here.
    mapped = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY))
    text_bytes, content_bytes, count = _HEAD.unpack_from(mapped)
    sizes = [_SIZE.unpack_from(mapped, _HEAD.size + 8 * index)[0] for index in range(count)]
    start = _HEAD.size + 8 * count
    description = json.loads(bytes(mapped[start : start + text_bytes]))
    start += text_bytes
    content = bytes(mapped[start : start + content_bytes])
    start += content_bytes
    buffers = []
    for size in sizes:
        start += -start % _ALIGNMENT
        buffers.append(mapped[start : start + size])
        start += size
    return description, content, buffers
