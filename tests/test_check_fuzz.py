"""Whatever happens to the bytes of a file, a check ends, in bounds, with a verdict."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from check_samples import write_columns, write_groups
from h5sweep.check.check import check_files
from hdf5_samples import write_mixed

TIMEOUT_S = 5.0
BATCH = 250


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


def fuzz(folder: Path, count: int, seed: int) -> Counter[str]:
    """Check `count` mutations in batches; what matters is that it ends, and what it says."""
    chance = random.Random(seed)
    healthy = seeds(folder / "seeds")
    found: Counter[str] = Counter()
    for first in range(0, count, BATCH):
        batch = folder / "batch"
        batch.mkdir()
        for number in range(first, min(first + BATCH, count)):
            content = bytearray(chance.choice(healthy))
            chance.choice(DAMAGES)(content, chance)
            (batch / f"{number}.h5").write_bytes(content)
        begun = time.monotonic()
        report = check_files(batch, depth="deep", timeout_s=TIMEOUT_S)
        hung = sum(f.code == "D206" for file in report.files for f in file.findings)
        assert time.monotonic() - begun < 60 + 2 * TIMEOUT_S * (hung + 1)
        assert len(report.files) + report.others == len(list(batch.iterdir()))
        found.update(finding.code for file in report.files for finding in file.findings)
        found.update(file.state.value for file in report.files)
        own = [f for file in report.files for f in file.findings if "our own reader" in f.message]
        assert not own, own
        for path in batch.iterdir():
            path.unlink()
        batch.rmdir()
    return found


def peak_mb() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) // 1024


def run_apart(folder: Path, count: int, seed: int) -> str:
    """In a process of its own, whose memory is then known, and whose crash would be seen."""
    program = (
        "import sys; from pathlib import Path; from test_check_fuzz import fuzz, peak_mb;"
        "before = peak_mb(); found = fuzz(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]));"
        "print(dict(found)); print('grown by', peak_mb() - before)"
    )
    words = [sys.executable, "-c", program, str(folder), str(count), str(seed)]
    here = Path(__file__).parent
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=20 * 3600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("count", "seed"),
    [(300, 1), pytest.param(20_000, 2, marks=pytest.mark.slow)],
    ids=["short", "long"],
)
def test_mutations_never_crash_hang_or_exhaust(count: int, seed: int, tmp_path: Path) -> None:
    """No crash of the tool, no wait beyond the limit, and memory that does not grow."""
    said = run_apart(tmp_path, count, seed)
    print(said)
    grown = re.search(r"grown by (\d+)", said)
    assert grown is not None and int(grown[1]) < 150
    assert "'damaged'" in said and "'sound'" in said
