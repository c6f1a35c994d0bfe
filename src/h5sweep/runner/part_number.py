"""Which part of how many this process is: as it is told, or as its launcher says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..errors import UsageError
from ..runfolder.parts import PartNumber

AUTO = "auto"
# Rank, from 0, and number of ranks, as launchers tell the processes that they start.
_RANKS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Cray
    ("SLURM_PROCID", "SLURM_NTASKS"),  # srun
)


def parse_part(text: str, environment: Mapping[str, str] = os.environ) -> PartNumber:
    """`3/40`, or `auto` for the rank of an MPI launcher, of srun or of pbsdsh."""
    if text == AUTO:
        return _launched_part(environment)
    match = re.fullmatch(r"\s*([0-9]{1,6})\s*/\s*([0-9]{1,6})\s*", str(text))  # in Python, 1
    if match is None:
        raise UsageError(f"{text!r} is not a part: write 3/40 for the third of 40, or auto")
    number, of = int(match[1]), int(match[2])
    if hint := _array_hint(number, of, environment):
        raise UsageError(hint)
    return PartNumber(number, of)


def _array_hint(number: int, of: int, environment: Mapping[str, str]) -> str:
    """What is wrong if the count of a Slurm array was taken for its highest number."""
    names = ("ID", "COUNT", "MIN", "MAX")
    task, jobs, lowest, highest = (environment.get(f"SLURM_ARRAY_TASK_{name}") for name in names)
    if (task, jobs) != (str(number), str(of)) or highest in (None, jobs):
        return ""
    parts = jobs if lowest == "0" else highest
    return (
        f"{number}/{of}: SLURM_ARRAY_TASK_COUNT counts the jobs of the array, of which this is "
        f"number {number}: name the number of parts itself, such as --part "
        f"$SLURM_ARRAY_TASK_ID/{parts}, and number the array from 1"
    )


def _launched_part(environment: Mapping[str, str]) -> PartNumber:
    for rank, size in _RANKS:
        with suppress(KeyError, ValueError):
            return PartNumber(int(environment[rank]) + 1, int(environment[size]), is_rank=True)
    with suppress(KeyError, ValueError, OSError):
        size_pbs = len(Path(environment["PBS_NODEFILE"]).read_text().splitlines())
        return PartNumber(int(environment["PBS_VNODENUM"]) + 1, size_pbs, is_rank=True)
    raise UsageError(
        "--part auto: no launcher has said which part this is. Start it with mpirun, srun or "
        "pbsdsh, or write --part 3/40"
    )
