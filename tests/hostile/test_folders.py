"""Folders that somebody made who means harm: nothing outside them is touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import pytest

from cases import some_of
from h5sweep.base.process_id import this_process
from h5sweep.base.relabels import Relabel, Relabels
from h5sweep.clean import quarantine
from h5sweep.clean.clean_files import move_to_quarantine, purge_quarantine, restore_quarantine
from h5sweep.clean.removable_files import find_removable
from h5sweep.cli import entry
from h5sweep.errors import DamagedError, StorageError
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.audit import append_removal, audit_path
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.lock import holding_output
from h5sweep.runfolder.records import FORMAT, NO_TASK, RecordKind, pack_record
from terminal import Terminal
from written_records import SOME, record


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
    for act in (
        restore_quarantine,
        find_removable,
        lambda output: purge_quarantine(output, made.name),
    ):
        with pytest.raises(DamagedError, match=r"manifest\.json is damaged"):
            act(folder.output)
    assert victim.read_text() == "the only copy"


@pytest.mark.parametrize("path", ["../site-packages/evil.pth", ".config/evil.pth"])
def test_a_restore_writes_only_where_somebody_said(folder: RunFolder, path: str) -> None:
    """A file of elsewhere stays in quarantine, until its folder is named on the command line."""
    target = Path(os.path.normpath(folder.output.parent / path))
    made = forge(folder, target, "1/evil.pth")
    (made / "1" / "evil.pth").write_text("import os")
    restored = restore_quarantine(folder.output)
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
    assert len(restore_quarantine(folder.output).outside) == 1
    shutil.rmtree(made / "1")
    (made / "1").symlink_to(victim.parent)
    shutil.copy(victim, victim.parent / "a.h5")
    restore_quarantine(folder.output)
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
    assert [kept.why for kept in report.kept] == ["it is a symbolic link, or not a file"]


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
    restore_quarantine(moved.output)
    assert [one.name for one in moved.record_paths()] == [path.name]


# ---------------------------------------------------------------- every command


COMMANDS = [
    "status out.h5",
    "status out.h5 --json",
    "missing out.h5 --expect tasks.csv",
    "redo out.h5 seed=0",
    "redo out.h5 --cancel",
    "merge out.h5",
    "clean out.h5",
    "clean out.h5 --yes",
    "clean out.h5 --restore",
    "clean out.h5 --purge 2026-11-16T02-03-04",
]
WITH_CHILDREN = [  # which take their time
    "merge worker.h5 -o out.h5 --key seed",
    "merge out.h5.run worker.h5 -o new.h5",
    "check .",
    "check out.h5.run --deep",
    "salvage . -o new.h5 --key seed",
    "run study.py -o out.h5 -j 1",
]
STUDY = """
import h5sweep
@h5sweep.sweep(seed=range(5))
def work(seed):
    return {"x": seed / 3}
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a study, its output, two results more, and a worker file."""
    place = tmp_path_factory.mktemp("sweep")
    (place / "study.py").write_text(STUDY)
    (place / "tasks.csv").write_text("seed\n0\n4\n")
    folder = RunFolder(place / "out.h5")
    record(folder, "{seed: {'x': seed / 3} for seed in range(2)}")
    merge_run(folder)
    record(folder, "{seed: {'x': seed / 3} for seed in range(2, 4)}")
    with h5py.File(place / "worker.h5", "w") as file:
        file["seed"], file["x"] = [3, 4], [1.0, 4 / 3]
    made = forge(folder, place / "a.h5", "1/a.h5", size_bytes=1)
    (made / "1" / "a.h5").write_text("a")
    return place


def run_here(folder: Path, line: str) -> tuple[int, str]:
    """Run a command in a fork of this process, which is quick; its code, and what it said."""
    with (folder / "said").open("w+") as said:
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                signal.alarm(20)  # kills
                os.chdir(folder)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
                sys.argv = ["h5sweep", *line.split()]
                try:
                    entry.main()
                except SystemExit as ended:
                    sys.stderr.flush()
                    os._exit(int(ended.code or 0))
            os._exit(99)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return code, said.read()


def replaced(path: str, content: bytes) -> Callable[[Path], None]:
    """Something else in a file."""

    def act(folder: Path) -> None:
        folder.joinpath(path).write_bytes(content)

    return act


def instead(path: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something in place of a file or folder."""

    def act(folder: Path) -> None:
        place = folder / path
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        make(place)

    return act


def with_record(
    kind: RecordKind, header: bytes, *, first: bytes | None = None
) -> Callable[[Path], None]:
    """A record file whose checksums hold, with headers that no program of ours writes."""

    def act(folder: Path) -> None:
        about = {"format": FORMAT, "process": this_process().as_json(), "role": "worker"}
        about["plan"] = RunFolder(folder / "out.h5").load_plan().id
        head = first if first is not None else json.dumps(about).encode()
        records = [pack_record(b"mark", RecordKind.FILE, NO_TASK, head, b"", 0.0, 0.0)]
        records += [pack_record(b"mark", kind, 3, header, bytes(8), time.time(), 0.0)]
        (folder / "out.h5.run/records/worker_1_0.records").write_bytes(b"".join(records))

    return act


def wrong_owner(**changes: object) -> bytes:
    process = {**this_process().as_json(), **changes}
    return json.dumps({**process, "since": 1.0, "beats": 1}).encode()


DEEP = b"[" * 200_000
NOTES = ["plan.jsonl", "sweep.json", "merged.json", "redo.json", "relabels.json"]
TRAIL, MANIFEST = "out.h5.audit.jsonl", "out.h5.quarantine/2026-11-16T02-03-04/manifest.json"
WRONG_OWNERS = [wrong_owner(pid=10**30), wrong_owner(pid="1"), wrong_owner(pid=-1), DEEP, b"[1]"]
WRONG_OWNERS += [wrong_owner(host=1), wrong_owner(start_ticks=None), b'{"since": 1e999}', b"\xff"]
WRONG_RELABELS = json.dumps(
    Relabels((Relabel("a", "", rename={"seed": "../x"}, dims={"aep": (None, [3])}),)).as_json()
).encode()
SPACED = b'{ "data" : [ [ "x" , "<f8" , [ ] ] ] , "key" : { "seed" : 3 } }'
WRONG_REQUEST = b'{"number": 1, "plan": [3], "tasks": [[0, 99999999999999]], "is_open": 7}'
HOSTILE: dict[str, Callable[[Path], None]] = {
    **{f"pipe {n}": instead(f"out.h5.run/{n}", os.mkfifo) for n in NOTES},
    **{f"pipe {n}": instead(n, os.mkfifo) for n in (TRAIL, MANIFEST, ".out.h5.lock")},
    "pipe record": instead("out.h5.run/records/a.records", os.mkfifo),
    "pipe output": instead("out.h5", os.mkfifo),
    **{f"loop {n}": instead(f"out.h5.run/{n}", lambda p: p.symlink_to(p)) for n in NOTES},
    **{f"loop {n}": instead(n, lambda p: p.symlink_to(p)) for n in (TRAIL, MANIFEST, "out.h5.run")},
    "loop records": instead("out.h5.run/records", lambda p: p.symlink_to(p)),
    "loop record": instead("out.h5.run/records/a.records", lambda p: p.symlink_to(p)),
    "loop output": instead("out.h5", lambda p: p.symlink_to(p)),
    **{f"folder {n}": instead(f"out.h5.run/{n}", Path.mkdir) for n in NOTES},
    **{f"folder {n}": instead(n, Path.mkdir) for n in (TRAIL, MANIFEST, ".out.h5.lock")},
    **{f"file {n}": instead(n, Path.touch) for n in ("out.h5.run", "out.h5.quarantine")},
    "file records": instead("out.h5.run/records", Path.touch),
    **{f"deep {n}": replaced(f"out.h5.run/{n}", DEEP) for n in NOTES},
    **{f"deep {n}": replaced(n, DEEP) for n in (TRAIL, MANIFEST)},
    **{f"list {n}": replaced(f"out.h5.run/{n}", b"[1]\n") for n in NOTES},
    **{f"bytes {n}": replaced(f"out.h5.run/{n}", b"\xff\xfe\0") for n in NOTES},
    "list manifest": replaced(MANIFEST, b'{"schema": "h5sweep.quarantine/1", "files": [3]}'),
    "wrong sweep": replaced("out.h5.run/sweep.json", b'{"declared": 3, "dims": 1, "units": [2]}'),
    "wrong relabels": replaced("out.h5.run/relabels.json", WRONG_RELABELS),
    "wrong merged": replaced(
        "out.h5.run/merged.json", b'{"plan": "x", "output": 3, "tasks": [[0, 99999999999999]]}'
    ),
    **{
        f"wrong redo {n}": replaced("out.h5.run/redo.json", b'{"last": 1, "requests": [%b]}' % one)
        for n, one in enumerate([b"3", b"{}", b"[]", WRONG_REQUEST, WRONG_REQUEST + b"," + b"{}"])
    },
    **{f"lock {n}": replaced(".out.h5.lock", text) for n, text in enumerate(WRONG_OWNERS)},
    "spaces in a header": with_record(RecordKind.DONE, SPACED),
    **{
        f"first {n}": with_record(RecordKind.DONE, SPACED, first=text)
        for n, text in enumerate([b"", b"[]", b"{}", DEEP, b'{"process": 3}', b'{"plan": []}'])
    },
    **{
        f"done {n}": with_record(RecordKind.DONE, text)
        for n, text in enumerate([b"", b"[]", b"{}", DEEP, b'{"key": 3, "data": 4}', b"\xff"])
    },
    "done wrong shape": with_record(
        RecordKind.DONE, b'{"data": [["x", "<f8", [99999999999]]], "key": {"seed": 3}}'
    ),
    "done wrong type": with_record(
        RecordKind.DONE, b'{"data": [["x", "|O", []]], "key": {"seed": 3}}'
    ),
    "done deep key": with_record(RecordKind.DONE, b'{"data": [], "key": {"seed": [[]]}}'),
    "raised": with_record(RecordKind.RAISED, b'{"error": 3}'),
    "started": with_record(RecordKind.STARTED, b'{"tasks": [[], "a", -1, 1e300]}'),
    "started nothing": with_record(RecordKind.STARTED, b"{}"),
    "no utf-8": lambda folder: shutil.copy(folder / "worker.h5", os.fsencode(folder) + b"/\xff.h5"),
}


@pytest.mark.parametrize("what", some_of(HOSTILE, 4))
def test_whatever_is_in_the_folder_no_command_breaks(
    sweep: Path, tmp_path: Path, what: str
) -> None:
    """Each command ends with a code that means something, in time, and without a traceback."""
    assert try_commands(COMMANDS, sweep, tmp_path, what) == ""


@pytest.mark.slow
@pytest.mark.parametrize("what", HOSTILE)
def test_whatever_is_in_the_folder_no_longer_command_breaks(
    sweep: Path, tmp_path: Path, what: str
) -> None:
    """The same of those that start processes."""
    assert try_commands(WITH_CHILDREN, sweep, tmp_path, what) == ""


def try_commands(commands: list[str], sweep: Path, place: Path, what: str) -> str:
    """Give each command in a folder of its own; what went wrong."""
    wrong = []
    for number, line in enumerate(commands):
        folder = place / str(number)
        shutil.copytree(sweep, folder)
        HOSTILE[what](folder)
        code, said = run_here(folder, line)
        if code not in range(5) or "Traceback" in said:
            wrong.append(f"{line}: {code}\n{said}")
    return "\n".join(wrong)


def test_a_header_with_spaces_is_read(sweep: Path, tmp_path: Path) -> None:
    """JSON of other writers has spaces where ours has none: it is the same result."""
    folder = tmp_path / "work"
    shutil.copytree(sweep, folder)
    shutil.rmtree(folder / "out.h5.quarantine")
    HOSTILE["spaces in a header"](folder)
    assert run_here(folder, "merge out.h5")[0] == 0
    with h5py.File(folder / "out.h5") as file:
        assert file["seed"][:].tolist() == [0, 1, 2, 3]
