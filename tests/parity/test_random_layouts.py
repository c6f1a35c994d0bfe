"""Whatever a file looks like, check, merge and salvage find the same tasks in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import h5sweep
from cases import some_of
from h5sweep.clean.removable_files import find_removable
from h5sweep.errors import SweepError
from random_layouts import write_random
from readers import NEXT_STEP, is_same, lacks, rows_of
from salvage_checks import read_results

SEEDS = [
    *some_of(range(100), every=5),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 300)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_command_finds_the_same_tasks(seed: int, tmp_path: Path) -> None:
    """A check counts, a merge takes and a salvage finds the same tasks, with the same values."""
    night = tmp_path / "night"
    night.mkdir()
    key = write_random(night, seed)
    assert_counts_agree(night)
    counted = h5sweep.check_files(night, key=key, processes=1).totals["tasks"]
    salvaged = salvaged_tasks(night, key, use_library=seed % 2 == 0)
    try:
        report = h5sweep.merge_files(night, tmp_path / "swept.h5", key=key)
    except SweepError as error:  # what is in no task stops it
        assert NEXT_STEP.search(str(error))
        assert len(salvaged) == (0 if "no task here has the key" in str(error) else counted)
        return
    merged = rows_of(report.output)
    assert report.tasks == counted == len(salvaged)
    assert merged.keys() == salvaged.keys()
    for task, values in salvaged.items():
        assert all(is_same(value, merged[task][name]) for name, value in values.items())


def assert_counts_agree(night: Path) -> None:
    """Without a key, a check counts what a merge keeps; what `clean` would remove is all there."""
    checked = h5sweep.check_files(night, processes=1)
    if not checked.totals["tasks"]:
        return
    kept = h5sweep.merge_files(night, night.parent / "kept.h5")
    assert kept.tasks == checked.totals["tasks"]
    for item in find_removable(kept.output).removable:
        assert [name for name in lacks(kept.output, item.path) if name != "/init"] == []


def salvaged_tasks(night: Path, key: str, *, use_library: bool) -> dict[Any, dict[str, Any]]:
    """What is found, however far it is trusted."""
    report = h5sweep.salvage_files(
        night, to=night.parent / "to", key=key, accept="unverified", use_library=use_library
    )
    return {k: v for file in report.files for k, v in read_results(file.records).items()}
