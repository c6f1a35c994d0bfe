"""Files of one program that differ in the values of their attributes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from h5sweep.hdf5.checksum import lookup3
from h5sweep.hdf5.file import Hdf5File, open_file
from h5sweep.hdf5.source import Source
from h5sweep.hdf5.tree import read_whole_tree

Describe = Callable[[Any, int], None]


def _stamp(file: Any, number: int) -> None:
    file.attrs["created"] = f"2026-11-{number % 28 + 1:02}T08:15:{number:02}"
    file.attrs["duration_s"] = 3.2 * number


def _texts_of_any_length(file: Any, number: int) -> None:
    file.attrs["host"] = "n" * (number + 1)
    file.attrs["tags"] = ["a" * (number + 1), "same", "", "z" * (7 - number % 7)]
    file["aep"].attrs["units"] = "GWh" if number % 3 else "MW h"


def _fixed_values(file: Any, number: int) -> None:
    file.attrs["worker"] = np.bytes_(f"w{number:03}")
    file["aep"].attrs["limits"] = np.array([[0, number], [2, 3]], ">i2")
    file["seed"].attrs["is_odd"] = bool(number % 2)
    file.create_group("setup/solver").attrs["tolerance"] = 10.0**-number


def _decoding(file: Any, number: int) -> None:
    file["aep"].attrs["scale_factor"] = 1.0 if number < 9 else 0.5
    file["aep"].attrs["add_offset"] = 2.0
    file.attrs["step"] = number


def _equal_values(file: Any, number: int) -> None:
    file.attrs["title"] = "Ekofisk"
    file["aep"].attrs["units"] = np.bytes_("GWh")


def _sequences(file: Any, number: int) -> None:
    kind = h5py.vlen_dtype("i4")
    value = np.empty(2, object)
    value[:] = [np.arange(number + 1, dtype="i4"), np.arange(2, dtype="i4")]
    file.attrs.create("steps", value, dtype=kind)


DESCRIBE: dict[str, Describe] = {
    "a stamp": _stamp,
    "texts of any length": _texts_of_any_length,
    "fixed values": _fixed_values,
    "scale factors": _decoding,
    "equal values": _equal_values,
    "sequences": _sequences,
}


def write_described(path: Path, number: int, describe: Describe, libver: Any = "earliest") -> Path:
    """A table of two rows, described."""
    with h5py.File(path, "w", libver=libver) as file:
        limits, chunks = (None,), (2,)
        for name, values in {
            "seed": [2 * number, 2 * number + 1],
            "aep": [1.5 * number, 2.5],
        }.items():
            file.create_dataset(name, data=values, maxshape=limits, chunks=chunks, track_times=True)
        describe(file, number)
    set_times(path, 1_700_000_000 + number)
    return path


def set_times(path: Path, seconds: int) -> None:
    """Let all objects have been made at that time; checksums are right again."""
    file = _read(path.read_bytes())
    content = bytearray(file.source.content)
    for at, size in file.free:
        if size in (4, 16):
            content[at : at + size] = seconds.to_bytes(4, "little") * (size // 4)
    for start in file.checked:
        end = start + file.structures[start]
        content[end - 4 : end] = lookup3(bytes(content[start : end - 4])).to_bytes(4, "little")
    path.write_bytes(content)


def checked_headers(path: Path) -> list[tuple[int, int]]:
    """Where in a file of the latest format its object headers lie."""
    file = _read(path.read_bytes())
    found = [(start, start + file.structures[start]) for start in sorted(file.checked)]
    content = file.source.content
    return [(a, b) for a, b in found if content[a : a + 4] in (b"OHDR", b"OCHK")]


def _read(content: bytes) -> Hdf5File:
    file = open_file(Source(content))
    tree = read_whole_tree(file)
    assert not tree.faults
    return file
