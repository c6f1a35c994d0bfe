"""How a merged file whose shape was kept says that it is ours to replace, and what it was made of.

The audit trail says that too, and is written after the file has its name: a kill in between leaves
a trail that is about the file before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from xxhash import xxh3_128_hexdigest

from .h5 import h5py
from .hdf5.tree import Tree

MARK = "h5sweep_merged"
FORMAT = "h5sweep.merged/1"
_INPUTS = "h5sweep_inputs"
_AUDIT = "h5sweep_audit"
OWN_ATTRIBUTES = frozenset((MARK, _INPUTS, _AUDIT))  # of the root; each merged file has its own

Version = tuple[str, int, int]  # absolute path, size, time of last change in ns


def mark_as_merged(path: Path, audit_name: str, inputs: Iterable[Version]) -> None:
    """Add to the file that h5sweep merged it, from which inputs, and where the audit trail is."""
    with h5py.File(path, "a", locking=False) as file:
        file.attrs[MARK] = np.bytes_(FORMAT)
        file.attrs[_INPUTS] = np.bytes_(digest_of(inputs))
        file.attrs[_AUDIT] = np.bytes_(audit_name.encode())
        file.flush()


def inputs_of(tree: Tree) -> str | None:
    """The digest of the inputs of a merged file; None if h5sweep did not merge it."""
    attributes = {} if tree.root is None else tree.root.attributes
    if MARK not in attributes or _INPUTS not in attributes:
        return None
    return attributes[_INPUTS].value.rstrip(b"\0").decode("ascii", "replace")


def digest_of(inputs: Iterable[Version]) -> str:
    """The same for the same inputs, in whatever order."""
    lines = [f"{path}\0{size}\0{time}\n" for path, size, time in inputs]
    return xxh3_128_hexdigest("".join(sorted(lines)).encode("utf-8", "surrogateescape"))
