"""What must hold after any crash, checked without the package's own reading code where it can be.

Shared by the tests that kill: which tasks are finished according to the bytes on disk, whether the
output is whole, and whether anything finished was run again.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from pathlib import Path

import h5py
import numpy as np

from h5sweep.output.verify import verify_rows

STUDY = """
import os
import numpy as np
import h5sweep

def log(word, number):
    line = f"{os.environ['ROUND']} {word} {number}\\n".encode()
    log_file = os.open(os.environ["TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log_file, line)
    os.close(log_file)

@h5sweep.sweep(farm=range(int(os.environ["FARMS"])), kind=["a", "b"], units={"aep": "GW h"})
def optimise(farm, kind):
    number = 2 * farm + "ab".index(kind)
    log("start", number)
    for _ in range(int(os.environ.get("SPIN", "0"))):
        np.linalg.svd(np.ones((20, 20)))
    layout = np.full((3 + farm % 2, 2), number / 7)
    return {"layout": layout, "aep": number * 1.5, "name": f"{kind}{farm}"}
"""

_FRAME = struct.Struct("<4sIQB3xIQdd4sI4xI")


def finished_tasks(run_folder: Path) -> Counter[int]:
    """How often each task is recorded as done, by the bytes of the record files alone."""
    found: Counter[int] = Counter()
    for path in sorted((run_folder / "records").glob("*.records")):
        data, position = path.read_bytes(), 0
        while position + 64 <= len(data):
            frame = _FRAME.unpack_from(data, position)
            header_start = position + 64
            data_start = header_start + frame[4] + -frame[4] % 8
            end = data_start + frame[5]
            sound = (
                frame[0] == b"\xabh5r"
                and zlib.crc32(data[position + 8 : position + 60]) == frame[10]
            )
            if not sound or end > len(data):
                break
            assert zlib.crc32(data[position + 8 : end]) == frame[1], f"damaged record in {path}"
            if frame[3] == 2:
                found[frame[2]] += 1
            position = end + -frame[5] % 8
    return found


def check_output(output: Path, least_tasks: int = 0) -> int:
    """Assert that the output is whole and every value in it is true; return its rows."""
    with h5py.File(output, "r") as file:
        tasks = file["task"][:]
        farms = file["farm"][:]
        kinds = [kind.decode() for kind in file["kind"][:]]
        aep = file["aep"][:]
        names = [name.decode() for name in file["name"][:]]
        counts = _counts(file, farms)
        layout = file["layout"][:].reshape(-1, 2)
    numbers = 2 * farms + np.array(["ab".index(kind) for kind in kinds], int)
    assert len(set(tasks.tolist())) == len(tasks), "a task is there twice"
    assert aep.tolist() == (numbers * 1.5).tolist()
    assert names == [f"{kind}{farm}" for kind, farm in zip(kinds, farms, strict=True)]
    assert counts.tolist() == (3 + farms % 2).tolist()
    assert layout[:, 0].tolist() == np.repeat(numbers / 7, counts).tolist()
    assert verify_rows(output) == []
    assert len(tasks) >= least_tasks
    return len(tasks)


def started_in(trace: Path, round_name: str) -> set[int]:
    """The tasks that were begun in one round."""
    if not trace.exists():
        return set()
    words = [line.split() for line in trace.read_text().splitlines()]
    return {int(number) for name, word, number in words if name == round_name and word == "start"}


def _counts(file: h5py.File, farms: np.ndarray) -> np.ndarray:
    """How many turbines each layout has: a column of its own, unless all have as many."""
    ragged = [name for name, item in file.items() if "sample_dimension" in item.attrs]
    assert len(ragged) == (len(set(farms % 2)) > 1), ragged
    return file[ragged[0]][:] if ragged else np.full(len(farms), file["layout"].shape[1])
