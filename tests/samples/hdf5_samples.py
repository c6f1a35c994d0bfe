"""Healthy HDF5 files of every kind that matters, made here by h5py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

LIBVERS: tuple[Any, ...] = ("earliest", "v108", "v110", "v112", "latest")
UNLIMITED = None

# For each kind of chunk index, what makes the library choose it (from v110 on).
INDEXES: dict[str, dict[str, Any]] = {
    "single": {"shape": (8, 6), "chunks": (8, 6)},
    "fixed array": {"shape": (40, 30), "chunks": (7, 9)},
    "fixed array in pages": {"shape": (3000,), "chunks": (1,)},
    "extensible array": {"shape": (40, 30), "chunks": (7, 9), "maxshape": (UNLIMITED, 30)},
    "extensible array, second axis": {
        "shape": (30, 40),
        "chunks": (9, 7),
        "maxshape": (30, UNLIMITED),
    },
    "extensible array in super blocks": {
        "shape": (9000,),
        "chunks": (1,),
        "maxshape": (UNLIMITED,),
    },
    "tree": {"shape": (40, 30), "chunks": (7, 9), "maxshape": (UNLIMITED, UNLIMITED)},
    "deep tree": {"shape": (90, 60), "chunks": (1, 2), "maxshape": (UNLIMITED, UNLIMITED)},
}
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip"},
    "gzip and shuffle": {"compression": "gzip", "shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all three": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "scale-offset": {"scaleoffset": 0},
}


def write_chunked(path: Path, libver: Any, index: str, filters: str, *, user_block: int = 0) -> Any:
    """A file with one chunked dataset `data`; returns its values."""
    settings = {**INDEXES[index], **FILTERS[filters]}
    shape = settings.pop("shape")
    values = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    with h5py.File(path, "w", libver=libver, userblock_size=user_block) as file:
        file.create_dataset("data", data=values, **settings)
    return values


def write_mixed(path: Path, libver: Any, *, user_block: int = 0, groups: int = 3) -> None:
    """Groups, attributes, texts, compounds, named types, links: a little of everything."""
    with h5py.File(path, "w", libver=libver, userblock_size=user_block) as file:
        file.attrs["title"] = "a little of everything"
        file.attrs["numbers"] = np.arange(5)
        for number in range(groups):
            group = file.create_group(f"farm{number}_t1_s{number * 7}")
            group.attrs.update(farm_id=number, farm_type="offshore", seed=number * 7)
            group["layout"] = np.full((5, 2), number, "f8")
            group["aep"] = float(number)
        file["compound"] = np.zeros(3, [("a", "<i4"), ("b", ">f8", (2,)), ("c", "S5")])
        file["texts"] = ["one", "two and more"]
        file["fixed"] = np.array([b"ab", b"cde"])
        file["nothing"] = h5py.Empty("f4")
        file["type"] = np.dtype("i8")
        file["soft"] = h5py.SoftLink("/texts")
        file["out"] = h5py.ExternalLink("elsewhere.h5", "/there")
        file["reference"] = file["fixed"].ref
        file["flags"] = np.array([True, False])
        file["complex"] = np.array([1 + 2j])
        file.create_dataset("empty", shape=(0,), maxshape=(None,), dtype="f8")
        big = file.create_group("many")
        for number in range(40):
            big.attrs[f"attribute_{number:02}"] = number
            big[f"value_{number:02}"] = number
