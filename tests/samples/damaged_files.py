"""Writers of many styles, and what can happen to their files; each with what is true.

A style says how results are kept and with which settings; a damage says what became of the bytes.
`states` gives as many damaged files as are asked for, from a seed.
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from salvage_checks import Results

TASKS = 16
PATTERN = "s{seed:d}"
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gzip": {"compression": "gzip"},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
}
SCALARS = {"aep": "f8", "wake": "f8", "turbines": "i4"}


class RecordedFile(io.BytesIO):
    """A file in memory that remembers what it was after each write."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[bytes] = []

    def write(self, data: Any) -> int:
        written = super().write(data)
        self.states.append(self.getvalue())
        return written


def values_of(task: int) -> dict[str, Any]:
    """What a task gives: numbers, some of them zero, and arrays, of which one ends in zeros."""
    chance = np.random.default_rng(1000 + task)
    padded = np.zeros(120)
    padded[: 20 + task] = chance.uniform(1, 9, 20 + task)
    return {
        "layout": chance.uniform(0, 5000, (40, 2)),
        "padded": padded,
        "aep": float(chance.uniform(2e5, 3e5)),
        "wake": float(chance.choice([0.0, 0.0, 1.5])),
        "turbines": int(chance.integers(0, 3)),
    }


def settings_for(value: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """A single value cannot be packed, as it has no chunks."""
    return settings if np.ndim(value) else {}


def write_flat(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """A group a task."""
    for task in range(TASKS):
        group = file.create_group(f"s{task}")
        truth[task,] = values = values_of(task)
        for name, value in values.items():
            group.create_dataset(name, data=value, **settings_for(value, settings))
        file.flush()


def write_nested(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """Groups in groups, values in groups of a task's group, soft links and texts."""
    for task in range(TASKS):
        group = file.create_group(f"farm{task % 3}/s{task}")
        values = values_of(task)
        group["aep"] = values["aep"]
        group["site"] = f"site {task}"
        group["best"] = h5py.SoftLink("aep")
        group.create_dataset("in/layout", data=values["layout"], **settings)
        group.create_dataset("marks", data=np.array([b"t%d" % task] * 12, "S16"))
        truth[task,] = {
            "aep": values["aep"],
            "best": values["aep"],
            "in_layout": values["layout"],
            "site": f"site {task}",
            "marks": np.array([f"t{task}"] * 12),
        }
        file.flush()


def write_attributes(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """Groups that have attributes alone."""
    for task in range(TASKS):
        group = file.create_group(f"s{task}")
        values = values_of(task)
        truth[task,] = {
            "aep": values["aep"],
            "wake": values["wake"],
            "note": f"converged after {task} steps",
            "turbines": values["turbines"],
            "x": values["layout"][:, 0],
        }
        group.attrs.update(truth[task,])
        file.flush()


def write_many_attributes(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """Groups with more attributes than a header takes, and a dataset."""
    for task in range(TASKS):
        group = file.create_group(f"s{task}")
        truth[task,] = {f"q{number:02d}": task + number / 100 for number in range(12)}
        group.attrs.update(truth[task,])
        group["v"] = truth[task,]["v"] = 1.5 + task
        file.flush()


def write_columns(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """A row a task, in columns that grow."""
    inner = {"seed": (), "layout": (40, 2), "padded": (120,), **dict.fromkeys(SCALARS, ())}
    for name, shape in inner.items():
        dtype = "i8" if name == "seed" else SCALARS.get(name, "f8")
        chunk = 4 if shape else 64
        file.create_dataset(
            name, (0, *shape), dtype, maxshape=(None, *shape), chunks=(chunk, *shape), **settings
        )
    file.flush()
    for task in range(TASKS):
        truth[task,] = values_of(task)
        for name, value in {"seed": task, **truth[task,]}.items():
            file[name].resize(task + 1, axis=0)
            file[name][task] = value
        file.flush()


def write_fixed(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """A row a task, in columns that have their length from the start."""
    truth.update({(task,): values_of(task) for task in range(TASKS)})
    file.create_dataset("seed", data=np.arange(TASKS), **settings)
    for name in values_of(0):
        rows = np.array([truth[task,][name] for task in range(TASKS)])
        file.create_dataset(name, data=rows.astype(SCALARS.get(name, "f8")), **settings)
    file.flush()


def write_compounds(file: Any, settings: dict[str, Any], truth: Results) -> None:
    """A row a task, in a dataset of compounds that grows."""
    row = [("seed", "i8"), ("layout", "f8", (40, 2)), ("aep", "f8"), ("wake", "f8")]
    table = file.create_dataset("results", (0,), row, maxshape=(None,), chunks=(8,), **settings)
    file.flush()
    for task in range(TASKS):
        values = values_of(task)
        truth[task,] = {name: values[name] for name in ("layout", "aep", "wake")}
        table.resize(task + 1, axis=0)
        table[task] = (task, *truth[task,].values())
        file.flush()


@dataclass(frozen=True)
class Style:
    """How results are kept."""

    write: Callable[[Any, dict[str, Any], Results], None]
    libver: str = "earliest"
    settings: dict[str, Any] = field(default_factory=dict)
    key: str = PATTERN

    def record(self) -> tuple[list[bytes], Results]:
        """The file after each write, the last state being that of the closed file."""
        file, truth = RecordedFile(), Results()
        with h5py.File(file, "w", libver=self.libver) as opened:
            self.write(opened, self.settings, truth)
        return [*file.states, file.getvalue()], truth


def make_styles() -> dict[str, Style]:
    found: dict[str, Style] = {}
    for libver in ("earliest", "v110", "latest"):
        for name, settings in SETTINGS.items():
            about = f"{libver} {name}"
            found[f"flat {about}"] = Style(write_flat, libver, settings)
            found[f"nested {about}"] = Style(write_nested, libver, settings)
            for table in (write_columns, write_fixed, write_compounds):
                kind = table.__name__.removeprefix("write_")
                found[f"{kind} {about}"] = Style(table, libver, settings, "seed")
        found[f"attributes {libver}"] = Style(write_attributes, libver)
        found[f"many attributes {libver}"] = Style(write_many_attributes, libver)
    return found


STYLES = make_styles()
States = list[bytes]


def whole(states: States, chance: random.Random) -> bytes:
    return states[-1]


def killed(states: States, chance: random.Random) -> bytes:
    return chance.choice(states)


def page(states: States, chance: random.Random) -> bytes:
    return _zeroed(states[-1], chance.randrange(0, len(states[-1]), 4096), 4096)


def sectors(states: States, chance: random.Random) -> bytes:
    start = chance.randrange(0, len(states[-1]), 512)
    return _zeroed(states[-1], start, 512 * chance.randrange(1, 17))


def hole(states: States, chance: random.Random) -> bytes:
    return _zeroed(states[-1], chance.randrange(len(states[-1])), chance.randrange(512, 8193))


def holes(states: States, chance: random.Random) -> bytes:
    """Two holes in a file that was not closed."""
    content = chance.choice(states[len(states) // 2 :])
    for _ in range(2):
        start = chance.randrange(0, len(content), 512)
        content = _zeroed(content, start, 512 * chance.randrange(1, 9))
    return content


def torn(states: States, chance: random.Random) -> bytes:
    """The last write, or the file, is cut short."""
    content = chance.choice(states)
    return content[: chance.randrange(len(content) // 2, len(content))]


def zero_end(states: States, chance: random.Random) -> bytes:
    """The file has its length, and its end was never written."""
    content = states[-1]
    start = chance.randrange(len(content) // 2, len(content)) // 512 * 512
    return _zeroed(content, start, len(content))


def superblock(states: States, chance: random.Random) -> bytes:
    content = chance.choice([states[-1], *states[len(states) // 2 :]])
    return _zeroed(content, 0, 96 if content[8] == 0 else 48)


def first_page(states: States, chance: random.Random) -> bytes:
    return _zeroed(states[-1], 0, 4096)


def mixed(states: States, chance: random.Random) -> bytes:
    """After a power cut: some blocks of the last writes are there, others not."""
    new = chance.randrange(1, len(states))
    old = max(new - chance.randrange(1, 12), 0)
    content, block = bytearray(states[new]), chance.choice([512, 4096])
    older = states[old].ljust(len(content), b"\0")
    for start in range(0, len(content), block):
        if chance.random() < 0.5:
            content[start : start + block] = older[start : start + block][: len(content) - start]
    return bytes(content)


def flipped(states: States, chance: random.Random) -> bytes:
    """One bit is another; without a checksum nobody can tell."""
    content = bytearray(states[-1])
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return bytes(content)


def _zeroed(content: bytes, start: int, size: int) -> bytes:
    size = min(size, len(content) - start)
    return content[:start] + bytes(size) + content[start + size :]


Damage = Callable[[States, random.Random], bytes]
DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        *(whole, killed, page, sectors, hole, holes, torn, zero_end),
        *(superblock, first_page, mixed, flipped),
    )
}


def damaged_states(
    style: str, count: int, seed: int, damages: dict[str, Damage] = DAMAGES
) -> Iterator[tuple[str, bytes, Results]]:
    """Files of a style, each damaged in one of the ways in turn, with what is true."""
    chance = random.Random(f"{style} {seed}")
    states, truth = STYLES[style].record()
    for number in range(count):
        name = list(damages)[number % len(damages)]
        yield name, damages[name](states, chance), truth
