"""Files of random layouts: groups, columns, compounds, single values, and what stands beside them.

Nothing is said of what is in them; every command is asked, and must give the same answer.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np

PATTERN = "farm{farm_id:d}_s{seed:d}"
NESTED = "farm{farm_id:d}/s{seed:d}"
NAMES = "farm_id,seed"
PARTS = (
    *(("groups",), ("groups",), ("table",), ("table",), ("compound",), ("one",), ("named",)),
    *(("groups", "table"), ("groups", "compound"), ("compound", "table")),
)
VALUES = ("aep", "one_aep", "layout", "growing", "arrays", "whole", "inner", "attribute", "pair")
EXTRAS = ("meta", "version", "config", "attribute", "init", "", "", "")
PAIR = np.dtype([("a", "i4"), ("b", "f8")])
ROW = np.dtype([("farm_id", "i4"), ("seed", "i4"), ("aep", "f8")])


def write_random(folder: Path, seed: int) -> str:
    """Write one file; return the key by which its tasks are known, if they are."""
    random = Random(seed)
    path = folder / random.choice(("worker_1.h5", "worker_1.h5", "farm3_s7.h5"))
    key = random.choice((PATTERN, NESTED, NAMES, NAMES))
    with h5py.File(path, "w") as file:
        values = random.sample(VALUES, random.randint(1, 3))
        for part in random.choice(PARTS):
            _WRITERS[part](random, file, key, values)
        for extra in random.sample(EXTRAS, 2):
            _put_beside(file, extra)
    return key


def _put_values(group: Any, number: int, values: list[str]) -> None:
    """What one task returned, in some of the ways in which people keep it."""
    layout = np.arange(8.0).reshape(4, 2) + number
    if "attribute" in values:
        group.attrs["note"] = number * 1.5
    if "aep" in values:
        group["aep"] = float(number)
    elif "one_aep" in values:
        group["aep"] = np.array([float(number)])
    if "layout" in values:
        group["layout"] = layout
    elif "growing" in values:
        group.create_dataset("layout", data=layout, maxshape=(None, 2))
    if "arrays" in values:
        group["x"], group["y"] = np.arange(3.0) + number, np.arange(3.0) - number
    if "whole" in values:
        group["ids"], group["weights"] = np.arange(3) + number, np.arange(3.0) - number
    if "inner" in values:
        group["in/b"] = np.arange(2.0) + number
    if "pair" in values:
        group["pair"] = np.array([(number, 2.0)], PAIR)


def _put_key(group: Any, number: int, how: str) -> None:
    for name, value in (("farm_id", 3), ("seed", number)):
        if how == "attributes":
            group.attrs[name] = value
        elif how == "single":
            group[name] = value
        elif how == "one row":
            group[name] = np.array([value])


def _write_groups(random: Random, file: Any, key: str, values: list[str]) -> None:
    above, how = (
        random.choice(("", "", "runs/")),
        random.choice(("attributes", "single", "one row")),
    )
    name = {PATTERN: "farm3_s{}", NESTED: "farm3/s{}", NAMES: "run{}"}[key]
    for number in range(random.choice((1, 2, 3, 10))):
        group = file.create_group(above + name.format(number))
        _put_values(group, number, values)
        _put_key(group, number, how if key == NAMES else "")
    if random.random() < 0.2:
        file.create_group(f"{above}begun")
    if random.random() < 0.2:  # its worker was killed before it had a result
        file.create_group(above + name.format(99)).attrs["begun"] = 1


def _write_table(random: Random, file: Any, key: str, values: list[str]) -> None:
    group = file.require_group(random.choice(("/", "/", "results")))
    rows, may_grow = random.choice((1, 2, 5)), random.random() < 0.6
    columns = {"farm_id": np.full(rows, 4), "seed": np.arange(rows) + 100, "aep": np.arange(rows)}
    if random.random() < 0.5:
        columns["layout"] = np.arange(rows * 8.0).reshape(rows, 4, 2)
    for name, column in columns.items():
        limits = (None, *column.shape[1:]) if may_grow else None
        group.create_dataset(name, data=column, maxshape=limits)
    if random.random() < 0.25:
        group["once"] = np.arange(3.0)


def _write_compound(random: Random, file: Any, key: str, values: list[str]) -> None:
    rows, may_grow = random.choice((1, 2, 5)), random.random() < 0.5
    data = np.array([(5, number, number * 2.0) for number in range(rows)], ROW)
    file.require_group("compounds").create_dataset(
        "table", data=data, maxshape=(None,) if may_grow else None
    )


def _write_one(random: Random, file: Any, key: str, values: list[str]) -> None:
    _put_values(file, 7, values)
    _put_key(file, 7, random.choice(("attributes", "single", "one row", "")))


def _write_named(random: Random, file: Any, key: str, values: list[str]) -> None:
    for number in range(random.choice((1, 2, 3, 10))):
        file[f"farm3/s{number}" if key == NESTED else f"farm3_s{number}"] = np.arange(3.0) + number


_WRITERS = {
    "groups": _write_groups,
    "table": _write_table,
    "compound": _write_compound,
    "one": _write_one,
    "named": _write_named,
}


def _put_beside(file: Any, what: str) -> None:
    if what == "meta":
        file["meta"] = np.arange(3)
    elif what == "version":
        file["version"] = 1
    elif what == "config":
        file["config/x"] = np.arange(2.0)
    elif what == "attribute":
        file.attrs["made"] = "now"
    elif what == "init":
        file["init"] = 0
