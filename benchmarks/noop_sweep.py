"""The same task as a sweep; the benchmarks set how many there are."""

from __future__ import annotations

import os

import noop

import h5sweep

TASKS = int(os.environ.get("H5SWEEP_BENCH_TASKS", "20000"))


@h5sweep.sweep(number=range(TASKS))
def nothing(number: int) -> dict[str, object]:
    return noop.task(number)
