"""Small healthy files, and what can happen to their bytes."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from check_samples import write_columns, write_groups
from hdf5_samples import write_mixed
from places import SAMPLES, TESTS


def seeds(folder: Path) -> list[bytes]:
    """Small healthy files of every version and layout."""
    folder.mkdir()
    for libver in ("earliest", "v110", "latest"):
        write_groups(folder / f"groups_{libver}.h5", libver, tasks=3)
        write_columns(folder / f"columns_{libver}.h5", libver=libver, compression="gzip")
        write_columns(folder / f"plain_{libver}.h5", libver=libver, fletcher32=True)
        write_mixed(folder / f"mixed_{libver}.h5", libver)
        with h5py.File(folder / f"tree_{libver}.h5", "w", libver=libver) as file:
            file.create_dataset("a", data=np.ones((9, 9)), chunks=(2, 2), maxshape=(None, None))
    return [path.read_bytes() for path in sorted(folder.iterdir())]


def flip_bits(content: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 1, 2, 8, 32])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def zero_page(content: bytearray, chance: random.Random) -> None:
    size = chance.choice([16, 64, 512, 4096])
    start = chance.randrange(len(content)) // size * size
    content[start : start + size] = bytes(len(content[start : start + size]))


def truncate(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def splice_field(content: bytearray, chance: random.Random) -> None:
    """A field of 1 to 8 bytes becomes extreme, or one from elsewhere in the file."""
    size = chance.choice([1, 2, 4, 8])
    place = chance.randrange(max(len(content) - size, 1))
    values = [
        0,
        1,
        2 ** (8 * size) - 1,
        2 ** (8 * size - 1),
        len(content),
        chance.getrandbits(8 * size),
    ]
    new = chance.choice(values).to_bytes(8, "little")[:size]
    if chance.random() < 0.4:
        other = chance.randrange(len(content))
        new = bytes(content[other : other + size])
    content[place : place + size] = new


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bits,
    zero_page,
    truncate,
    splice_field,
)


def run_apart(module: str, folder: Path, count: int, seed: int) -> str:
    """What `fuzz` of a test module finds, and by how many MB its process grew.

    In a process of its own, whose memory is then known, and whose crash would be seen.
    """
    program = (
        f"import sys; from pathlib import Path; from {module} import fuzz;"
        "from mutations import peak_mb;"
        "before = peak_mb(); found = fuzz(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]));"
        "print('found', found); print('grown by', peak_mb() - before)"
    )
    words = [sys.executable, "-c", program, str(folder), str(count), str(seed)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [SAMPLES, TESTS / "fuzz"]))}
    # What it says on the way goes where the test's own words go.
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, text=True, timeout=20 * 3600)
    assert done.returncode == 0
    return done.stdout


def peak_mb() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) // 1024
