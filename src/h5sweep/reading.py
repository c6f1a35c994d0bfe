"""A file read by our own reader, and what is wrong by it: what `check` and a merge begin with."""

from __future__ import annotations

import os

from . import findings
from .findings import Finding
from .hdf5.errors import Damaged, Kind, Unsupported
from .hdf5.file import Hdf5File
from .hdf5.source import FileSource, Source
from .hdf5.tree import Fault, Tree, read_whole_tree

SMALL_BYTES = 64 << 10  # a file that is read whole


def source_of(descriptor: int, size: int) -> Source:
    if size > SMALL_BYTES:
        return FileSource(descriptor, size)
    return Source(os.pread(descriptor, size, 0) if size else b"")


def own_tree(file: Hdf5File) -> Tree:
    """Our own reading. A bug in it costs one file its details, and never the check."""
    try:
        return read_whole_tree(file)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        return Tree(file, faults=[Fault("/", Unsupported(f"our own reader failed: {error!r}"))])


def structure_findings(tree: Tree) -> list[Finding]:
    """What is wrong by our own reading."""
    found = []
    extra = tree.file.source.size - tree.file.superblock.end
    if extra > 0 and tree.reach > tree.file.superblock.end:
        found.append(findings.STALE_END.finding(extra=extra, end=tree.file.superblock.end))
    if tree.is_cut:
        why = f"only the first {len(tree.objects):,} objects were looked at and counted"
        found.append(findings.FEATURE.finding(where="/", why=why))
    for fault in tree.faults:
        if isinstance(fault.error, Unsupported):
            found.append(findings.FEATURE.finding(where=fault.path, why=fault.error))
        elif fault.path == "/" and fault.is_listing:
            found.append(findings.ROOT.finding(why=fault.error))
        elif isinstance(fault.error, Damaged) and fault.error.kind is Kind.CHECKSUM:
            found.append(findings.METADATA_CHECKSUM.finding(where=fault.path, why=fault.error))
        else:
            found.append(findings.METADATA.finding(where=fault.path, why=fault.error))
    return found
