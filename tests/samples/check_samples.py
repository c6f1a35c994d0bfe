"""One file for every finding: how to make it, with h5py and a few bytes written over."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from h5sweep.hdf5.checksum import lookup3

Maker = Callable[[Path], None]


@dataclass(frozen=True)
class Sample:
    """How to make a file with one finding, and how to look at it."""

    make: Maker
    options: dict[str, Any] = field(default_factory=dict)


def write_groups(path: Path, libver: Any = "earliest", tasks: int = 5) -> None:
    """A group a task."""
    with h5py.File(path, "w", libver=libver) as file:
        for number in range(tasks):
            group = file.create_group(f"farm{number}_t1_s{number}")
            group["layout"] = np.full((50, 2), number + 1.0)
            group["aep"] = number + 0.5


def write_columns(path: Path, rows: int = 20, **settings: Any) -> None:
    """Columns that grew to `rows` rows."""
    chunks = settings.pop("chunks", 4)
    with h5py.File(path, "w", libver=settings.pop("libver", "earliest")) as file:
        for name in ("farm_id", "seed", "aep"):
            file.create_dataset(
                name,
                data=np.arange(1, rows + 1, dtype="f8" if name == "aep" else "i8"),
                maxshape=(None,),
                chunks=(chunks,),
                **settings,
            )


def change(path: Path, place: int, new: bytes) -> None:
    """Write over some bytes."""
    content = bytearray(path.read_bytes())
    content[place : place + len(new)] = new
    path.write_bytes(bytes(content))


def flip(path: Path, place: int) -> None:
    """Flip all bits of one byte: certain damage."""
    change(path, place, bytes([path.read_bytes()[place] ^ 0xFF]))


def seal(path: Path) -> None:
    """Make the checksum of a version 2 or 3 superblock right again."""
    change(path, 44, lookup3(path.read_bytes()[:44]).to_bytes(4, "little"))


def set_flags(path: Path, flags: int) -> None:
    change(path, 11, bytes([flags]))
    seal(path)


def _pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\n")


def _moved_chunk(path: Path, chunk: Any) -> None:
    change(path, chunk.byte_offset, bytes(chunk.size))


def _newborn(path: Path) -> None:
    write_groups(path)
    change(path, 40, (2048).to_bytes(8, "little"))
    os.truncate(path, 96)


def _never_flushed(path: Path) -> None:
    write_groups(path)
    change(path, 96, bytes(400))


def _not_closed(flags: int) -> Maker:
    def make(path: Path) -> None:
        write_groups(path, "latest")
        set_flags(path, flags)

    return make


def _truncated(path: Path) -> None:
    write_groups(path)
    os.truncate(path, path.stat().st_size - 100)


def _stale_end(path: Path) -> None:
    write_groups(path)
    with path.open("ab") as file:
        file.write(b"SNOD\1\0, and more that the superblock knows nothing of")


def _after_groups(libver: Any, spoil: Maker) -> Maker:
    def make(path: Path) -> None:
        write_groups(path, libver)
        spoil(path)

    return make


def _flip_in(signature: bytes, beyond: int) -> Maker:
    """Spoil the last structure of a kind, which is not the root group's."""
    return lambda path: flip(path, path.read_bytes().rindex(signature) + beyond)


def _flip_root_node(path: Path) -> None:
    flip(path, path.read_bytes().index(b"SNOD"))


def _refused_datatype(path: Path) -> None:
    """A number of 32 bits that claims to be 65,000 bytes, as only the library minds."""
    with h5py.File(path, "w") as file:
        file["type"] = np.dtype("<i4")
    place = path.read_bytes().index(b"\x10\x08\0\0\x04\0\0\0\0\0\x20\0")
    change(path, place + 4, (65000).to_bytes(4, "little"))


def _columns(spoil: Callable[[Path, Any], None], **settings: Any) -> Maker:
    """Columns, and a chunk of `aep` to be spoilt."""

    def make(path: Path) -> None:
        write_columns(path, **settings)
        with h5py.File(path) as file:
            chunk = file["aep"].id.get_chunk_info(1)
        spoil(path, chunk)

    return make


def _grown_chunk(path: Path, chunk: Any) -> None:
    """The index still says how long the chunk was before it grew."""
    old = chunk.size.to_bytes(4, "little") + chunk.filter_mask.to_bytes(4, "little")
    content = path.read_bytes()
    place = next(
        at
        for at in range(len(content))
        if content[at : at + 8] == old
        and content[at + 24 : at + 32] == chunk.byte_offset.to_bytes(8, "little")
    )
    change(path, place, (chunk.size - 3).to_bytes(4, "little"))


def _chunk_beyond(path: Path) -> None:
    """Cut short, and the superblock agrees."""
    write_columns(path, chunks=1000)
    with h5py.File(path) as file:
        last = max(file[name].id.get_chunk_info(0).byte_offset for name in file)
    os.truncate(path, last + 8)
    change(path, 40, (last + 8).to_bytes(8, "little"))


def _data_beyond(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(5000.0)
    os.truncate(path, path.stat().st_size - 16)
    change(path, 40, path.stat().st_size.to_bytes(8, "little"))


def _data_short(path: Path) -> None:
    """One column has room for rows that were never written to it."""
    write_columns(path)
    with h5py.File(path, "a") as file:
        for name in file:
            file[name].resize((24,))
        for name in ("farm_id", "seed"):
            file[name][20:] = 7


def _unequal(path: Path) -> None:
    write_columns(path)
    with h5py.File(path, "a") as file:
        file["farm_id"].resize((21,))
        file["farm_id"][20] = 3


def _bogus_tail(path: Path) -> None:
    write_columns(path)
    with h5py.File(path, "a") as file:
        for name in file:
            file[name].resize((22,))


def _init_only(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["init"] = 1


def _lengths_differ(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for name, rows in (("a", 10), ("b", 200), ("c", 30)):
            file.create_dataset(name, data=np.ones(rows), maxshape=(None,))


def _unknown_filter(path: Path) -> None:
    write_columns(path, compression="gzip")
    content = path.read_bytes()
    at = content.index(b"\x01\x00\x08\x00\x01\x00\x01\x00deflate")
    change(path, at, (305).to_bytes(2, "little"))


def _unknown_message(path: Path) -> None:
    """A message of a later version, marked as one that must be understood."""
    with h5py.File(path, "w") as file:
        file["a"] = 1
        file["a"].attrs["b"] = 2
    content = path.read_bytes()
    at = content.rindex(b"\x0c\0")
    while content[at + 5 : at + 8] != bytes(3) or content[at + 8] != 1:
        at = content.rindex(b"\x0c\0", 0, at)
    change(path, at, b"\x1f\0" + content[at + 2 : at + 4] + b"\x80")


def _old_flags(path: Path) -> None:
    write_groups(path, ("earliest", "v108"))
    with h5py.File(path, "w", libver="v108") as file:
        file["a"] = 1
    content = path.read_bytes()
    assert content[8] == 2
    set_flags(path, 1)


def _huge(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("sparse", shape=(2**50,), chunks=(1000,), dtype="f8")


def _links_out(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["there"] = h5py.ExternalLink("elsewhere.h5", "/")
        file["here"] = 1


def _not_read(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("v", h5py.VirtualLayout((4,), "f8"))
        file["here"] = 1


def _trailing(path: Path) -> None:
    write_groups(path)
    with path.open("ab") as file:
        file.write(b"\n" * 6 + bytes(100))


def _rewritten(change_all: Callable[[bytes], bytes]) -> Maker:
    def make(path: Path) -> None:
        write_groups(path)
        path.write_bytes(change_all(path.read_bytes()))

    return make


SAMPLES: dict[str, Sample] = {
    "D101": Sample(Path.touch),
    "D102": Sample(_pointer),
    "D103": Sample(_after_groups("earliest", lambda path: flip(path, 0))),
    "D104": Sample(_after_groups("earliest", lambda path: change(path, 0, bytes(96)))),
    "D105": Sample(_newborn),
    "D106": Sample(_never_flushed),
    "D107": Sample(_not_closed(1)),
    "D108": Sample(_not_closed(5)),
    "D109": Sample(_truncated),
    "D110": Sample(_stale_end),
    "D111": Sample(_after_groups("latest", lambda path: flip(path, 44))),
    "D112": Sample(_after_groups("earliest", lambda path: change(path, 13, b"\x07"))),
    "D114": Sample(_rewritten(lambda content: content.replace(b"\n", b"\r\n"))),
    "D115": Sample(_rewritten(lambda content: b"HTTP/1.1 200 OK\r\n\r\n" + content)),
    "D116": Sample(_rewritten(lambda content: content + content)),
    "D201": Sample(_after_groups("earliest", _flip_root_node)),
    "D202": Sample(_after_groups("latest", _flip_in(b"OHDR", 12))),
    "D203": Sample(_after_groups("earliest", _flip_in(b"HEAP", 0))),
    "D204": Sample(_refused_datatype),
    "D301": Sample(_columns(_grown_chunk, compression="gzip"), {"depth": "deep"}),
    "D302": Sample(_columns(_moved_chunk, compression="gzip"), {"depth": "deep"}),
    "D303": Sample(
        _columns(lambda path, chunk: flip(path, chunk.byte_offset), fletcher32=True),
        {"depth": "deep"},
    ),
    "D304": Sample(_chunk_beyond),
    "D305": Sample(_data_short),
    "D306": Sample(_data_beyond),
    "D401": Sample(_init_only),
    "D402": Sample(write_columns, {"require": ("farm_id", "farm_type")}),
    "D403": Sample(_unequal),
    "D404": Sample(_bogus_tail),
    "N602": Sample(_unknown_filter),
    "N603": Sample(_unknown_message),
    "N604": Sample(_old_flags),
    "N605": Sample(_huge),
    "N606": Sample(_trailing),
    "N607": Sample(_lengths_differ),
    "N608": Sample(_links_out),
    "N609": Sample(_not_read, {"depth": "deep"}),
}  # fmt: skip
