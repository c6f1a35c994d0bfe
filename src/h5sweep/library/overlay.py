"""A file that was not closed, as the HDF5 library takes it: with another superblock.

The library reads it through a file object that shows it other first bytes. Nothing is copied, and
nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..disk.h5py_loader import Overlaid, h5py
from ..hdf5.errors import Damaged
from ..hdf5.source import OpenSource
from ..hdf5.superblock import find_superblock, mended, read_superblock


@contextmanager
def opened_as_closed(path: str) -> Iterator[Any]:
    """The file, open for reading, as if its writer had closed it; Damaged if none can be."""
    with OpenSource(Path(path)) as source:
        start = find_superblock(source)
        if start is None:
            raise Damaged("it has no superblock")
        new = mended(source, read_superblock(source, start))
        shown = Overlaid(source.descriptor, (start, new))
        with h5py.File(path, "r", driver="fileobj", fileobj=shown) as file:
            yield file
