"""Messages about files that cannot be merged, or of which something must be left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import ConflictError, UsageError
from ..hdf5.errors import Unsupported
from ..hdf5.messages import Storage
from ..hdf5.read_data import MOST_CHUNK_BYTES, chunk_bytes
from ..hdf5.tree import Dataset
from ..worker_files.inputs import Input
from .tables.types import TypeID, may_be_copied, type_of, type_text

MOST_NAMED = 3


def differing_text(name: str, path: str, first: Input, others: Sequence[Input]) -> str:
    """What to say of an attribute that can be in the output only once."""
    have = "has another value" if len(others) == 1 else "have other values"
    return (
        f"the attribute {name} of {path} differs between files: that of {first.path} is kept, "
        f"{some_names(others)} {have} (in the audit trail)"
    )


def some_names(inputs: Iterable[Input]) -> str:
    """The first few, and how many more."""
    names = [one.name for one in inputs]
    rest = len(names) - MOST_NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    return ", ".join(names[:MOST_NAMED]) + more


def require_mergeable(one: Input, path: str, dataset: Dataset) -> None:
    """Raise UsageError if a dataset cannot be a column of another file."""
    where = f"{path} in {one.path}"
    if dataset.is_external or dataset.layout.storage is Storage.VIRTUAL:
        raise UsageError(
            f"{where} has its data in other files: merge those files and leave this one out"
        )
    if not may_be_copied(dataset.type):
        raise UsageError(
            f"{where} refers to places in its own file, which mean nothing in another: give --key, "
            f"or leave it out with --skip {path.rpartition('/')[2]}"
        )
    if dataset.filters and _largest_chunk(dataset) > MOST_CHUNK_BYTES:
        raise UsageError(f"{where} has chunks of more than 64 MB: h5repack makes smaller ones")
    try:
        type_of(dataset.type)
    except Unsupported as error:
        raise UsageError(f"{where}: {error}") from error
    if not dataset.space.dims:
        raise UsageError(
            f"{where} is a single value, but a column in other files: merge these files separately"
        )


def _largest_chunk(dataset: Dataset) -> int:
    return max([chunk_bytes(dataset), *(chunk.size for chunk in dataset.chunks)])


def differing_axis(path: str, first: Input, second: Input) -> ConflictError:
    return ConflictError(
        f"{path} is an axis of other datasets and differs between {first.path} and {second.path}; "
        f"nothing was merged. Leave it out with --skip {path.rpartition('/')[2]}, or merge these "
        "files separately"
    )


def ragged(path: str, first: Input, dataset: Dataset, second: Input, other: Dataset) -> UsageError:
    return UsageError(
        f"the rows of {path} have shape {(dataset.space.dims or ())[1:]} in {first.path} and "
        f"{(other.space.dims or ())[1:]} in {second.path}: nothing was padded. With --key the "
        "output has one row per task, of any shape"
    )


def no_common_type(
    path: str, first: Input, common: TypeID, second: Input, other: TypeID
) -> UsageError:
    return UsageError(
        f"{path} is {type_text(common)} in {first.path} and {type_text(other)} in "
        f"{second.path}: no type holds both; merge these files separately"
    )


def values_lost(
    path: str, one: Input, old: TypeID, common: TypeID, first: tuple[Input, TypeID]
) -> UsageError:
    return UsageError(
        f"{path} is {type_text(old)} in {one.path}, with values that {type_text(common)} cannot "
        f"hold, and {type_text(first[1])} in {first[0].path}: merge these files separately"
    )
