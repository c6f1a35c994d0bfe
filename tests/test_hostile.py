"""Folders that somebody made who means harm: nothing outside them is touched."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from conftest import Terminal
from h5sweep import quarantine
from h5sweep.audit import append_removal, audit_path
from h5sweep.clean import find_removable, move_to_quarantine, purge, restore
from h5sweep.errors import DamagedError, StorageError
from h5sweep.folder import RunFolder
from h5sweep.lock import holding_output
from h5sweep.merge import merge_run
from test_clean import SOME, record


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A merged sweep in a folder of its own; what is beside that is none of its business."""
    place = tmp_path / "work"
    place.mkdir()
    made = RunFolder(place / "out.h5")
    record(made, SOME % (0, 3))
    merge_run(made)
    return made


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file elsewhere."""
    path = tmp_path / "elsewhere" / "thesis.txt"
    path.parent.mkdir()
    path.write_text("the only copy")
    return path


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*")}


def forge(folder: RunFolder, path: Path, name: str, *, stage: str = "whole", **more: Any) -> Path:
    """Write a manifest that nobody of us wrote, about one file."""
    made = quarantine.quarantine_root(folder.output) / "2026-11-16T02-03-04"
    (made / "1").mkdir(parents=True)
    item = {"path": str(path), "size_bytes": 0, "modified_ns": 0, "xxh3": "", "why": ""}
    item |= {"reason": "asked for", "name": name, **more}
    about = {"schema": quarantine.SCHEMA, "output": str(folder.output), "stage": stage}
    (made / "manifest.json").write_text(json.dumps({**about, "files": [item]}))
    return made


def as_it_is(path: Path) -> dict[str, int]:
    status = path.stat()
    return {"size_bytes": status.st_size, "modified_ns": status.st_mtime_ns}


@pytest.mark.parametrize(
    "name", ["{victim}", "../../../elsewhere/thesis.txt", "1/../x", "1", "a/b"]
)
def test_names_in_a_manifest_stay_inside_its_folder(
    folder: RunFolder, victim: Path, name: str
) -> None:
    """A manifest that names a file elsewhere is damaged: nothing is restored, purged or moved."""
    made = forge(folder, folder.output.parent / "x", name.format(victim=victim), **as_it_is(victim))
    for act in (restore, find_removable, lambda output: purge(output, made.name)):
        with pytest.raises(DamagedError, match=r"manifest\.json is damaged"):
            act(folder.output)
    assert victim.read_text() == "the only copy"


@pytest.mark.parametrize("path", ["../site-packages/evil.pth", ".config/evil.pth"])
def test_a_restore_writes_only_where_somebody_said(folder: RunFolder, path: str) -> None:
    """A file of elsewhere stays in quarantine, until its folder is named on the command line."""
    target = Path(os.path.normpath(folder.output.parent / path))
    made = forge(folder, target, "1/evil.pth")
    (made / "1" / "evil.pth").write_text("import os")
    (restored,) = restore(folder.output)
    assert restored.outside == (target,)
    assert not target.parent.exists()
    terminal = Terminal(folder.output.parent)
    advice = terminal.run("clean", "out.h5", "--restore", check=1).stderr.splitlines()[0]
    words = advice.partition("next: h5sweep ")[2].split()
    assert words[-2:] == ["--to", str(target.parent)]
    assert "1 file put back" in terminal.run(*words).stderr
    assert target.read_text() == "import os"


def test_a_restore_follows_no_link(folder: RunFolder, victim: Path) -> None:
    """A linked folder at the old place, or in the quarantine, leads nowhere."""
    made = forge(folder, folder.output.parent / "temp" / "a.h5", "1/a.h5")
    (made / "1" / "a.h5").write_text("a")
    (folder.output.parent / "temp").symlink_to(victim.parent)
    assert len(restore(folder.output)[0].outside) == 1
    shutil.rmtree(made / "1")
    (made / "1").symlink_to(victim.parent)
    shutil.copy(victim, victim.parent / "a.h5")
    restore(folder.output)
    assert contents(victim.parent) == dict.fromkeys(["thesis.txt", "a.h5"], "the only copy")


@pytest.mark.parametrize("is_link", [False, True])
def test_an_unfinished_manifest_deletes_nothing(
    folder: RunFolder, victim: Path, is_link: bool
) -> None:
    """An original goes only if it was proven now, not because a manifest has a copy of it."""
    made = forge(folder, victim, "1/thesis.txt", stage="moving", **as_it_is(victim))
    if is_link:
        (made / "1" / "thesis.txt").symlink_to(victim)
    else:
        shutil.copy2(victim, made / "1" / "thesis.txt")
    move_to_quarantine(find_removable(folder.output))
    assert victim.read_text() == "the only copy"


def test_links_and_strange_folders_among_quarantines_are_left_alone(
    folder: RunFolder, victim: Path
) -> None:
    """Only folders that we made are tidied up, and no link is entered."""
    root = quarantine.quarantine_root(folder.output)
    (root / "mine" / "deep").mkdir(parents=True)
    for name in ("2026-11-16T02-03-04", "link"):
        (root / name).symlink_to(victim.parent)
    (victim.parent / ".precious.00000000.part").write_text("mine")
    (root / "2026-11-16T02-03-05" / "1").mkdir(parents=True)
    move_to_quarantine(find_removable(folder.output))
    assert set(contents(victim.parent)) == {"thesis.txt", ".precious.00000000.part"}
    assert (root / "mine" / "deep").is_dir()
    assert not (root / "2026-11-16T02-03-05").exists()


def test_a_linked_place_for_quarantines_is_refused(folder: RunFolder, victim: Path) -> None:
    """Nothing is moved to where a link leads."""
    quarantine.quarantine_root(folder.output).symlink_to(victim.parent)
    with pytest.raises(DamagedError, match="symbolic link"):
        find_removable(folder.output)


def test_a_linked_record_file_stays(folder: RunFolder, victim: Path) -> None:
    """A link among the record files is kept, and said to be one."""
    (path,) = folder.record_paths()
    shutil.move(path, victim.parent / path.name)
    path.symlink_to(victim.parent / path.name)
    report = find_removable(folder.output)
    assert not report.removable
    assert [kept.why for kept in report.kept] == ["it is a symbolic link, or no file"]


@pytest.mark.parametrize("what", ["lock", "audit trail"])
def test_what_we_write_to_is_no_link(folder: RunFolder, victim: Path, what: str) -> None:
    """A link in place of the lock or the audit trail is refused, and its target is as it was."""
    path = folder.lock_path if what == "lock" else audit_path(folder.output)
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    with pytest.raises(StorageError, match="symbolic link"), holding_output(folder):
        append_removal(folder.output, "removed", [])
    assert victim.read_text() == "the only copy"


def test_files_come_back_beside_an_output_that_was_moved(folder: RunFolder) -> None:
    """A folder that is moved as a whole takes its quarantine along: files go back inside it."""
    (path,) = folder.record_paths()
    move_to_quarantine(find_removable(folder.output))
    moved = RunFolder(folder.output.parent.rename(folder.output.parents[1] / "new") / "out.h5")
    restore(moved.output)
    assert [one.name for one in moved.record_paths()] == [path.name]
