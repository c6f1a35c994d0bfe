"""Read a file with our own reader and say what is wrong: where `check` and a merge begin.

Structure comes first. Data are read when that is asked for, or when a merge copies them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from operator import lt

from ..errors import DamagedError, naming
from ..hdf5.chunks import Chunk
from ..hdf5.errors import Damaged, DamageKind, Unsupported
from ..hdf5.file import Hdf5File
from ..hdf5.messages import DEFLATE, FLETCHER32, SHUFFLE
from ..hdf5.read_data import LZF, chunk_bytes, fate_of_chunk, prove_chunk
from ..hdf5.source import FileSource, Source
from ..hdf5.tree import Dataset, Fault, Tree, read_whole_tree
from . import findings
from .findings import Finding

SMALL_BYTES = 64 << 10  # a file that is read whole
OWN_FILTERS = {DEFLATE, SHUFFLE, FLETCHER32}  # those that are undone here, and fast
MOST_FOR_ONE_PLACE = 3
_BEHIND_BYTES = 1 << 16  # that a chunk may have grown by
_CHUNK_RULES = {
    "stale": findings.CHUNK_STALE,
    "moved": findings.CHUNK_MOVED,
    "filter": findings.CHUNK_FILTER,
}


class DamagedFileError(DamagedError):
    """Damage that shows only when data are read; it says in which file, and what."""

    def __init__(self, name: str, finding: Finding) -> None:
        super().__init__(f"{name}: {finding.message}")
        self.name, self.finding = name, finding


def source_of(descriptor: int, size: int) -> Source:
    if size > SMALL_BYTES:
        return FileSource(descriptor, size)
    with naming(descriptor):
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
        why = f"only the first {len(tree.objects):,} objects were examined and counted"
        found.append(findings.FEATURE.finding(where="/", why=why))
    for fault in tree.faults:
        if isinstance(fault.error, Unsupported):
            found.append(findings.FEATURE.finding(where=fault.path, why=fault.error))
        elif fault.path == "/" and fault.is_listing:
            found.append(findings.ROOT.finding(why=fault.error))
        elif isinstance(fault.error, Damaged) and fault.error.kind is DamageKind.CHECKSUM:
            found.append(findings.METADATA_CHECKSUM.finding(where=fault.path, why=fault.error))
        else:
            found.append(findings.METADATA.finding(where=fault.path, why=fault.error))
    return found


def damaged_file(name: str, what: object) -> DamagedFileError:
    """The error for something in a file that cannot be read, whatever that is."""
    rule = findings.METADATA.finding(where="", why="")
    return DamagedFileError(name, replace(rule, message=str(what)))


def unread_file(name: str, why: object) -> DamagedFileError:
    """The error for something in a file that we have no way to read; it need not be damaged."""
    rule = findings.FEATURE.finding(where="", why="")
    return DamagedFileError(name, replace(rule, message=str(why)))


def can_be_proven(dataset: Dataset, *, slowly: bool = False) -> bool:
    """Whether our own reader knows all filters of a dataset, and is fast unless told `slowly`."""
    known = {*OWN_FILTERS, LZF} if slowly else OWN_FILTERS
    return all(step.number in known for step in dataset.filters)


def data_findings(tree: Tree, *, slowly: bool = False) -> Iterator[Finding]:
    """Which chunks cannot be unpacked, a few of each dataset, where we know their filters."""
    for path, dataset in tree.datasets:
        bad = bad_chunks(tree, path, dataset, slowly=slowly)
        yield from (finding for _, finding in islice(bad, MOST_FOR_ONE_PLACE))


def bad_chunks(
    tree: Tree, path: str, dataset: Dataset, *, slowly: bool = False
) -> Iterator[tuple[Chunk, Finding]]:
    """The chunks of a dataset that cannot be unpacked, and what to say of each."""
    if dataset.filters and can_be_proven(dataset, slowly=slowly):
        for chunk in dataset.chunks:
            if (found := _prove(tree.file, path, dataset, chunk)) is not None:
                yield chunk, found


def is_of_chunk(finding: Finding) -> bool:
    """Whether a finding is about a chunk that cannot be unpacked."""
    return finding.code in {rule.code for rule in _CHUNK_RULES.values()}


def _prove(file: Hdf5File, path: str, dataset: Dataset, chunk: Chunk) -> Finding | None:
    is_beyond = chunk.address + chunk.size > file.size  # which its structure says already
    if is_beyond or not all(map(lt, chunk.start, dataset.space.dims or ())):
        return None
    try:
        prove_chunk(dataset, _read_at(file, chunk, chunk.size), chunk.mask)
    except Damaged as error:
        return _chunk_finding(file, path, dataset, chunk, error)
    return None


def _chunk_finding(
    file: Hdf5File, path: str, dataset: Dataset, chunk: Chunk, error: object
) -> Finding:
    """What to say of a chunk that cannot be read."""
    size = chunk_bytes(dataset)
    data = _read_at(file, chunk, min(size + _BEHIND_BYTES, file.size - chunk.address))
    numbers = [step.number for step in dataset.filters]
    rule = _CHUNK_RULES[fate_of_chunk(data, numbers, chunk.mask, (chunk.size, size))]
    address = file.superblock.start + chunk.address
    return rule.finding(where=path, address=address, size=chunk.size, why=error)


def _read_at(file: Hdf5File, chunk: Chunk, size: int) -> bytes:
    return file.source.read(file.superblock.start + chunk.address, size)
