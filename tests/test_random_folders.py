"""Random folders of sound files: what a merge takes is in its output, whatever the values."""

from __future__ import annotations

from pathlib import Path

import pytest

from h5sweep import merge_files
from h5sweep.audit import read_entries
from random_folders import content_of, write_folder

SEEDS = [*range(6), 1000, 1005, 1008, 1017, 1041, 1106]  # the last: tasks with groups inside


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_in_sound_files_is_in_the_output(tmp_path: Path, seed: int) -> None:
    """Every value and attribute is there bit by bit, at its place or in the group of its file.

    Of columns that were joined only the names are compared here; attributes that differ between
    files are in the audit trail.
    """
    folder = write_folder(tmp_path / "in", seed)
    report = merge_files(folder, tmp_path / "out.h5")
    found = content_of(tmp_path / "out.h5")
    inputs = read_entries(tmp_path / "out.h5")[-1].inputs
    left_out = {place for one in inputs for place in one.left_out}
    for path in sorted(folder.iterdir()):
        for place, value in content_of(path).items():
            inside = f"/{path.stem}{place.removeprefix('/') if place[1] == '@' else place}"
            if found.get(place) == value or found.get(inside) == value:
                continue
            is_joined = report.way in ("columns", "both")
            assert (is_joined and place in found) or place in left_out, (path.name, place)
