"""The mark of a merged file that kept its shape: it is ours to replace, and what it was made of.

The audit trail says that too, and is written after the file has its name: a kill in between leaves
a trail that is about the file before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from xxhash import xxh3_128_hexdigest

from ..disk.h5py_loader import writing
from ..hdf5.tree import Tree

MARK = "h5sweep_merged"
FORMAT = "h5sweep.merged/1"
_INPUTS = "h5sweep_inputs"
_AUDIT = "h5sweep_audit"
OWN_ATTRIBUTES = frozenset((MARK, _INPUTS, _AUDIT))  # of the root; each merged file has its own


class FileId(NamedTuple):
    """By what a file is known again, wherever it lies: what it is, and its name without folders."""

    size_bytes: int
    xxh3: int  # of the whole file
    name: str  # which may say what task is in it


def mark_as_merged(path: Path, audit_name: str, holds: Iterable[FileId]) -> None:
    """Add to the file that h5sweep merged it, what it holds, and where the audit trail is."""
    with writing(path) as written:
        attributes = written.file.attrs
        attributes[MARK] = np.bytes_(FORMAT)
        attributes[_INPUTS] = np.bytes_(digest_of(holds))
        attributes[_AUDIT] = np.bytes_(audit_name.encode())


def inputs_of(tree: Tree) -> str | None:
    """The digest of the files that a merged file holds; None if h5sweep did not merge it."""
    attributes = {} if tree.root is None else tree.root.attributes
    if MARK not in attributes or _INPUTS not in attributes:
        return None
    return attributes[_INPUTS].value.rstrip(b"\0").decode("ascii", "replace")


def digest_of(files: Iterable[FileId]) -> str:
    """The same for the same files, in whatever order and wherever they lie."""
    lines = {f"{size}\0{xxh3:016x}\0{name}\n" for size, xxh3, name in files}
    return xxh3_128_hexdigest("".join(sorted(lines)).encode("utf-8", "surrogateescape"))
