"""An HDF5 file: its bytes, its superblock, and what was met while reading it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .checksum import lookup3
from .cursor import Cursor, Widths
from .errors import Damaged, DamageKind
from .source import Source
from .superblock import Superblock, find_superblock, read_superblock

MOST_STRUCTURE_BYTES = 64 << 20  # the largest single structure that is read at once


@dataclass
class Hdf5File:
    """Reads structures at addresses, which count from the superblock on."""

    source: Source
    superblock: Superblock
    structures: dict[int, int] = field(default_factory=dict)  # address → size
    checked: set[int] = field(default_factory=set)  # those that end with their checksum
    free: list[tuple[int, int]] = field(default_factory=list)  # bytes of headers that say nothing
    faults: list[Damaged] = field(default_factory=list)  # what is wrong, but can be read past

    @property
    def widths(self) -> Widths:
        return self.superblock.widths

    @property
    def size(self) -> int:
        """How many bytes there are from address 0 on."""
        return self.source.size - self.superblock.start

    def read(self, address: int, size: int) -> bytes:
        """Exactly these bytes; Damaged if they are not all in the file."""
        if size > MOST_STRUCTURE_BYTES:
            raise Damaged(f"a structure of {size:,} bytes at {address:,}")
        return self.source.read(self.superblock.start + address, size)

    def cursor(self, address: int, size: int, signature: bytes) -> Cursor:
        """A structure that begins with `signature`, without a checksum of its own."""
        data = self.read(address, size)
        _check_signature(data, signature, address)
        return Cursor(data, self.widths, len(signature))

    def read_checked(self, address: int, size: int, what: str, signature: bytes = b"") -> bytes:
        """A structure that ends with its checksum; Damaged if that is wrong."""
        if size < 8:
            raise Damaged(f"{what} of {size} bytes at {address:,}")
        data = self.read(address, size)
        _check_signature(data, signature, address)
        if lookup3(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise Damaged(f"wrong checksum of the {what} at {address:,}", DamageKind.CHECKSUM)
        self.note_structure(address, size)
        self.checked.add(address)
        return data

    def checked_cursor(self, address: int, size: int, what: str, signature: bytes) -> Cursor:
        """The same, ready to be read behind the signature, without the checksum."""
        data = self.read_checked(address, size, what, signature)
        return Cursor(data[:-4], self.widths, len(signature))

    def note_structure(self, address: int, size: int) -> None:
        """Remember what lies where, so that two structures in one place are seen."""
        self.structures[address] = max(size, self.structures.get(address, 0))

    def pass_over(self, error: Damaged) -> None:
        """Met damage behind which there may be more: the end here, but not for `carve`."""
        raise error

    def note_fault(self, fault: Damaged) -> None:
        """Remember damage that did not keep anything from being read."""
        self.faults.append(fault)


def open_file(source: Source) -> Hdf5File:
    """Find and read the superblock; Damaged if there is none."""
    start = find_superblock(source)
    if start is None:
        raise Damaged("no HDF5 signature")
    return Hdf5File(source, read_superblock(source, start))


def _check_signature(data: bytes, signature: bytes, address: int) -> None:
    if not data.startswith(signature):
        raise Damaged(f"no {signature.decode()} at {address:,}")
