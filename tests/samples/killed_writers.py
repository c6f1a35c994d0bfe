"""Writers of worker files, killed at moments they do not choose. Run as a script:

python killed_writers.py FOLDER COUNT SEED      COUNT files of each style
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

STYLES = {
    f"{layout}-{libver}-{ending}{'-gzip' if gzip else ''}": (layout, libver, ending, gzip)
    for layout in ("group", "columns")
    for libver in ("earliest", "latest")
    for ending in ("flush", "never", "reopen", "swmr")
    for gzip in (False, True)
    if not (ending == "swmr" and (layout == "group" or libver == "earliest"))
    and not (ending == "reopen" and layout == "columns")
}


def main() -> None:
    folder, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    for style, settings in STYLES.items():
        for number in range(count):
            kill_one(folder / f"{style}_{number}.h5", settings, chance)


def kill_one(path: Path, settings: Any, chance: random.Random) -> None:
    """Start a writer and kill it during one of its first tasks."""
    tasks_seen, writes_seen = os.pipe()
    pid = os.fork()
    if not pid:
        write_tasks(path, *settings, report=writes_seen)
    os.close(writes_seen)
    for _ in range(chance.choice([0, 0, 1, 2, 5, 10])):
        os.read(tasks_seen, 1)
    ends_at = time.perf_counter() + chance.random() * 0.004
    while time.perf_counter() < ends_at:
        pass  # not a sleep: the kill has to fall within a task
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(tasks_seen)


def write_tasks(path: Path, layout: str, libver: Any, ending: str, gzip: bool, report: int) -> None:
    """Append tasks until killed; a byte goes to `report` for each."""
    settings = {"compression": "gzip"} if gzip else {}
    file = h5py.File(path, "w", libver=libver)
    if layout == "columns":
        for name, shape in (("farm_id", ()), ("seed", ()), ("layout", (50, 2)), ("aep", ())):
            dtype = "f8" if name in ("layout", "aep") else "i8"
            limits, chunks = (None, *shape), (8, *shape)
            file.create_dataset(
                name, (0, *shape), dtype, maxshape=limits, chunks=chunks, **settings
            )
    if ending == "swmr":
        file.swmr_mode = True
    for task in range(10_000):
        if layout == "group":
            group = file.create_group(f"farm{task}_s{task}")
            group.create_dataset("layout", data=np.full((50, 2), task + 1.0), **settings)
            group["aep"] = task + 1.0
        else:
            for dataset in file.values():
                dataset.resize(task + 1, axis=0)
                dataset[task] = task + 1
                if ending == "swmr":
                    dataset.flush()
        if ending == "flush":
            file.flush()
        elif ending == "reopen":
            file.close()
            file = h5py.File(path, "a", libver=libver)
        os.write(report, b".")


if __name__ == "__main__":
    main()
