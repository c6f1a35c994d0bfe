"""Files that differ in the values of their attributes are read as if each were alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import pytest

import h5sweep
from cases import some_of
from h5sweep.clean.removable_files import find_removable
from h5sweep.runfolder.audit import read_entries
from h5sweep.worker_files import same_structure
from h5sweep.worker_files.survey import Survey
from own_values import DESCRIBE, Describe, write_described

pytestmark = pytest.mark.usefixtures("way")
LIBVERS = ["earliest", "latest"]


def write_night(folder: Path, describe: Describe, libver: str, files: int = 20) -> Path:
    night = folder / "night"
    night.mkdir()
    for number in range(files):
        write_described(night / f"w{number:02}.h5", number, describe, libver)
    return night


def told(night: Path, **options: Any) -> dict[str, Any]:
    """All that a merge of a folder makes and says, and what of the folder may be removed then."""
    folder = night.parent / "merged"
    output = folder / "out.h5"
    folder.mkdir()
    report = h5sweep.merge_files(night, output, **options)
    (entry,) = read_entries(output)
    removable = find_removable(output)
    found = {
        "output": _content(output, ["seed", "aep"] if report.way == "sweep" else []),
        "taken": report.taken,
        "notes": report.notes,
        "inputs": entry.inputs,
        "entry notes": entry.notes,
        "removable": [(item.path, item.why) for item in removable.removable],
        "kept": [one for one in removable.kept if one.path.parent == night],
    }
    shutil.rmtree(folder)
    return found


def _content(output: Path, names: Sequence[str]) -> str:
    """The objects of these names, or all, with their values and attributes."""
    found: dict[str, Any] = {}
    with h5py.File(output) as file:
        file.visit(lambda name: found.update({name: file[name]}))
        found = {name: found[name] for name in names} or {**found, "/": file}
        return "\n".join(
            f"{name}: {one[()] if isinstance(one, h5py.Dataset) else ''} {dict(one.attrs)}"
            for name, one in found.items()
        )


@pytest.mark.parametrize("key", [None, "seed"])
@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("describe", some_of(DESCRIBE.values(), 2), ids=DESCRIBE)
def test_a_merge_says_the_same_whether_siblings_are_known_or_not(
    describe: Describe,
    libver: str,
    key: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Output, notes, audit trail and what may be removed are those of files read one by one."""
    night = write_night(tmp_path, describe, libver)
    assert len({one.family for one in Survey().look_at_all([night])}) == 1
    quickly = told(night, key=key)
    monkeypatch.setattr(same_structure, "MOST_FOR_ONE_SIZE", 0)
    assert {one.family for one in Survey().look_at_all([night])} == {None}
    slowly = told(night, key=key)
    for what, found in slowly.items():
        assert quickly[what] == found, what
    assert quickly["removable"]


def test_every_value_that_differs_is_in_the_audit_trail(tmp_path: Path) -> None:
    """Of each file but the first, both; and one note for each attribute tells of all files."""
    found = told(write_night(tmp_path, DESCRIBE["a stamp"], "earliest"))
    first, *others = [one.left_out for one in found["inputs"]]
    assert first == {}
    for number, left_out in enumerate(others, 1):
        stamp = f"2026-11-{number + 1:02}T08:15:{number:02}"
        assert left_out == {"/@created": stamp, "/@duration_s": str(3.2 * number)}
    assert [note.split(" differs")[0] for note in found["notes"]] == [
        "the attribute created of /",
        "the attribute duration_s of /",
    ]
    assert all("w01.h5" in note and "16 more" in note for note in found["notes"])


def test_values_of_files_that_are_too_large_to_keep_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not in memory is opened, and says the same."""
    night = write_night(tmp_path, DESCRIBE["texts of any length"], "latest")
    kept = told(night)
    monkeypatch.setattr("h5sweep.worker_files.survey.MOST_KEPT_BYTES", 0)
    assert not any(one.is_kept for one in Survey().look_at_all([night]))
    assert told(night) == kept
    monkeypatch.setattr("h5sweep.worker_files.survey.SMALL_BYTES", 0)
    monkeypatch.setattr("h5sweep.worker_files.read_file.SMALL_BYTES", 0)
    assert len({one.family for one in Survey().look_at_all([night])}) == 1
    assert told(night) == kept
