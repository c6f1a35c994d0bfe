"""What `clean` moves is in the output, bit by bit; all else stays, whatever is killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep import Recorder
from h5sweep.base.plan import plan_product
from h5sweep.clean import prove as clean_proof
from h5sweep.clean import quarantine
from h5sweep.clean.clean_files import (
    move_to_quarantine,
    purge_quarantine,
    remove_merged,
    restore_quarantine,
)
from h5sweep.clean.removable_files import find_removable
from h5sweep.disk import move_files
from h5sweep.errors import DamagedError, LockedError, UsageError
from h5sweep.merge.audit_entry import entry_of_files
from h5sweep.merge.by_key import prove_rows
from h5sweep.merge.from_records.build import merge_run
from h5sweep.merge.groups import open_groups
from h5sweep.merge.merge_files import merge_files
from h5sweep.merge.policy import OnDamaged, Policy
from h5sweep.output.verify import verify_rows
from h5sweep.runfolder.audit import append_entry, audit_path, read_audit
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.lock import holding, holding_output
from h5sweep.state.extend_plan import is_up_to_date
from h5sweep.state.state import read_state
from h5sweep.worker_files.inputs import Taken
from h5sweep.worker_files.survey import Survey
from needs import needs_root
from terminal import SOMEBODY, Terminal, make_read_only, run_as_anybody
from written_records import RECORD_CODE, SOME, record, write_failure, write_records


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "out.h5")


def why_kept(folder: RunFolder, path: Path) -> str:
    report = find_removable(folder.output)
    assert path not in [item.path for item in report.removable]
    (why,) = [kept.why for kept in report.kept if kept.path == path]
    return why


# ---------------------------------------------------------------- record files


def test_merged_record_files_are_safe_to_remove(folder: RunFolder) -> None:
    """Record files whose results are all rows of the output may go, and a look changes nothing."""
    paths = [record(folder, SOME % (0, 5)), record(folder, SOME % (5, 9))]
    merge_run(folder)
    before = sorted(folder.output.parent.rglob("*"))
    report = find_removable(folder.output)
    assert sorted(item.path for item in report.removable) == sorted(paths)
    assert report.removable_bytes == sum(path.stat().st_size for path in paths)
    assert sorted(folder.output.parent.rglob("*")) == before


def test_status_and_the_next_merge_do_without_the_records(folder: RunFolder) -> None:
    """After a purge every task still counts as done, and a later merge keeps every row."""
    record(folder, SOME % (0, 9))
    merge_run(folder)
    with h5py.File(folder.output) as file:
        before = file["x"][:].tolist(), file["layout"][:].tolist()
    moved = move_to_quarantine(find_removable(folder.output))
    assert moved.quarantine is not None
    purge_quarantine(folder.output, moved.quarantine.name)
    assert folder.record_paths() == []
    plan = folder.load_plan()
    assert plan is not None
    assert read_state(folder, plan).tasks_done == 9
    assert is_up_to_date(folder, plan), "else the next run would write it anew for nothing"
    record(folder, SOME % (9, 10))
    merge_run(folder)
    with h5py.File(folder.output) as file:
        assert file["x"][:9].tolist() == before[0]
        assert file["layout"][: len(before[1])].tolist() == before[1]
    assert verify_rows(folder.output) == []


@pytest.mark.parametrize(
    "results",
    [
        "{1: {'x': 1}, 2: {'x': 0.5}}",
        "{1: {'x': 2**60 + 1}, 2: {'x': 0.5}}",
        "{1: {'x': 'text'}, 2: {'x': 0.5}, 3: {'y': ''}}",
        "{1: {'x': np.float32(0.1)}, 2: {'x': np.float64(0.1)}, 3: {'y': True}}",
        "{1: {'x': np.zeros((2, 3))}, 2: {'x': np.ones((3, 2))}, 3: {'x': 5.0}}",
        "{1: {'x': np.array(['a', ''])}, 2: {'x': np.array(['', 'b', 'c'])}}",
        "{1: {'x': np.datetime64('2026-01-01')}, 2: {'x': np.datetime64('2026-01-01T00:01')}}",
        "{1: {'x': np.array([np.nan, -0.0])}, 2: {'x': np.array([], float)}, 3: {'z': 1j}}",
        "{1: {'x': np.int8(-128)}, 2: {'y': np.uint64(2**64 - 1)}, 3: {'x': np.int8(127)}}",
    ],
)
def test_whatever_is_in_the_results_they_are_proven(folder: RunFolder, results: str) -> None:
    """Widened, split, ragged, empty or missing values are found in the output as they were."""
    path = record(folder, results)
    merge_run(folder)
    assert [item.path for item in find_removable(folder.output).removable] == [path]


def test_one_flipped_bit_in_the_output_keeps_the_records(folder: RunFolder) -> None:
    """A row that is not what was recorded, by one bit, keeps its record file where it is."""
    path = record(folder, SOME % (0, 6))
    merge_run(folder)
    with h5py.File(folder.output, "r+") as file:
        bits = file["x"][4:5].view(np.uint64) ^ np.uint64(1)
        file["x"][4:5] = bits.view(np.float64)
    note_output(folder)
    assert "1 of its 6 results" in why_kept(folder, path)
    assert "seed=4" in why_kept(folder, path)


def test_an_output_that_cannot_be_read_is_named(folder: RunFolder) -> None:
    """With a damaged output nothing is safe, and that is no bug of ours."""
    record(folder, SOME % (0, 6))
    merge_run(folder, compress=True)
    with h5py.File(folder.output) as file:
        chunk = file["x"].id.get_chunk_info(0)
    data = bytearray(folder.output.read_bytes())
    data[chunk.byte_offset + 4] ^= 0xFF
    folder.output.write_bytes(data)
    note_output(folder)
    with pytest.raises(DamagedError, match="nothing is safe to remove"):
        find_removable(folder.output)


def note_output(folder: RunFolder) -> None:
    """Let the run folder take an output that was changed by hand for its own."""
    merged, status = folder.load_merged(), folder.output.stat()
    folder.save_merged({**merged, "output": [status.st_size, status.st_mtime_ns]})


def test_an_output_that_the_folder_does_not_know_keeps_all(folder: RunFolder) -> None:
    """After a change of the output `status` would no longer count its rows: nothing goes."""
    path = record(folder, SOME % (0, 3))
    merge_run(folder)
    os.utime(folder.output)
    assert "h5sweep merge" in why_kept(folder, path)


def test_results_that_were_not_merged_stay(folder: RunFolder) -> None:
    """A record file with one result that has no row yet is kept, also the rest of it."""
    record(folder, SOME % (0, 3))
    merge_run(folder)
    newer = record(folder, SOME % (2, 4))
    assert len(find_removable(folder.output).removable) == 1
    assert "seed=3" in why_kept(folder, newer)


def test_a_result_that_a_newer_one_replaced_stays(folder: RunFolder) -> None:
    """The output has the newer result: the older one is nowhere else."""
    older = record(folder, "{1: {'x': 1.0}}")
    newer = record(folder, "{1: {'x': 2.0}}")
    merge_run(folder)
    assert "differ from the output" in why_kept(folder, older)
    assert [item.path for item in find_removable(folder.output).removable] == [newer]


def test_a_file_with_a_failure_that_counts_stays(terminal: Terminal, study: Any) -> None:
    """`missing` says the same before and after a clean, reasons included."""
    study("""
        @h5sweep.sweep(seed=range(4))
        def optimise(seed):
            if seed == 2 and not os.path.exists("mended"):
                raise ValueError("no layout fits")
            return {"x": float(seed)}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", "1", check=1)
    before = terminal.run("missing", "out.h5", check=1).stdout
    assert terminal.json("clean", "out.h5", "--yes", check=0)["moved_to"] is None
    assert terminal.run("missing", "out.h5", check=1).stdout == before
    terminal.write("mended", "")
    terminal.run("run", "study.py", "-o", "out.h5", "-j", "1")
    assert terminal.json("clean", "out.h5", "--yes", check=0)["moved_to"]["files"] >= 2
    assert "4 of 4" in terminal.run("status", "out.h5").stdout
    assert "is up to date" in terminal.run("run", "study.py", "-o", "out.h5", "-j", "1").stderr


def test_each_file_is_one_line_whatever_its_name(terminal: Terminal) -> None:
    """A name with a line break in it does not look like a second file."""
    with h5py.File(terminal.folder / "a\n  b.h5", "w") as file:
        file["seed"], file["aep"] = np.arange(3), np.arange(3.0)
    terminal.run("merge", "a\n  b.h5", "-o", "out.h5")
    shown = terminal.run("clean", "out.h5").stdout.splitlines()
    assert shown[0].startswith("1 file is safe") and "a\\n  b.h5" in shown[1]


def test_files_of_live_processes_stay(folder: RunFolder) -> None:
    """As long as the process that wrote a record file is there, it may write more."""
    write_records(folder, plan_product({"seed": range(2)}), {0: {"x": 1.0}, 1: {"x": 2.0}})
    merge_run(folder)
    (path,) = folder.record_paths()
    assert f"pid {os.getpid()}" in why_kept(folder, path)
    with Recorder(folder.output):
        reasons = [kept.why for kept in find_removable(folder.output).kept]
    assert f"pid {os.getpid()} is writing it" in reasons


@needs_root
def test_a_file_of_a_recorder_outside_the_container_stays(folder: RunFolder) -> None:
    """Its process cannot be seen from inside, but it holds its file; once dead, the file may go."""
    code = RECORD_CODE + "    print(flush=True)\n    sys.stdin.read()\n"
    words = [sys.executable, "-c", code, str(folder.output), SOME % (0, 3)]
    inside = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-m", "h5sweep", "clean"]
    inside.append(str(folder.output))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        merge_run(folder)
        said = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
        assert "a process holds it, and may still write to it" in said
        process.kill()
    said = subprocess.run(inside, capture_output=True, text=True, check=True).stdout
    assert "1 file is safe to remove" in said


def test_damaged_record_files_stay(folder: RunFolder) -> None:
    """A record file with damage is kept, though the rows of all its sound records are there."""
    path = record(folder, SOME % (0, 4))
    merge_run(folder)
    data = bytearray(path.read_bytes())
    data[-9] ^= 0xFF
    path.write_bytes(data)
    assert "damaged" in why_kept(folder, path)


def test_a_file_of_a_failure_of_another_process_stays(folder: RunFolder) -> None:
    """What says why a task is missing is bookkeeping that nothing else has."""
    plan = plan_product({"seed": range(2)})
    write_records(folder, plan, {0: {"x": 1.0}})
    write_failure(folder, plan, 1)
    merge_run(folder)
    with h5py.File(folder.output) as file:
        assert file["task"][:].tolist() == [0]
    assert find_removable(folder.output).removable == ()


# ---------------------------------------------------------------- worker files


@pytest.fixture
def joined(tmp_path: Path) -> Path:
    """An output with the groups of three worker files, as a merge leaves it; a fourth was empty."""
    workers = tmp_path / "temp"
    workers.mkdir()
    output = tmp_path / "out.h5"
    for number in range(3):
        with h5py.File(workers / f"worker_{number}.h5", "w") as source:
            source[f"farm{number}/layout"] = np.full((4, 2), number / 7)
            source[f"farm{number}/aep"] = number * 1.5
    (workers / "worker_61817.h5").touch()
    merge_files(workers, output, policy=Policy(OnDamaged.SKIP))
    return output


@pytest.mark.parametrize("key", [None, "seed"])
def test_files_of_columns_go_if_every_row_is_in_the_output(tmp_path: Path, key: str | None) -> None:
    """Kept as columns or made rows of tasks: safe while all is equal, and kept when it is not."""
    workers, output = tmp_path / "temp", tmp_path / "out.h5"
    workers.mkdir()
    for number in range(2):
        with h5py.File(workers / f"worker_{number}.h5", "w") as source:
            source["seed"] = np.arange(3) + 3 * number
            source["aep"] = np.arange(3.0) + number
    merge_files(workers, output, key=key)
    paths = [workers / "worker_0.h5", workers / "worker_1.h5"]
    found = [item.path for item in find_removable(output).removable]
    assert [path for path in found if path in paths] == paths
    with h5py.File(output, "a") as target:
        target["aep"][4] += 1.0
    report = find_removable(output)
    assert [item.path for item in report.removable if item.path in paths] == paths[:1]
    assert paths[1] in [kept.path for kept in report.kept]


@pytest.mark.parametrize("key", [None, "s{seed:d}"])
def test_the_output_is_read_once_for_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """However many files are compared with it, its groups or keys are listed once."""
    workers, output, opened = tmp_path / "temp", tmp_path / "out.h5", []
    workers.mkdir()
    for number in range(4):
        with h5py.File(workers / f"worker_{number}.h5", "w") as source:
            source[f"s{number}/aep"] = number / 7
    merge_files(workers, output, key=key)
    open_output, open_rows = open_groups.opened_output, prove_rows.OutputRows
    monkeypatch.setattr(
        open_groups, "opened_output", lambda p, rest: opened.append(p) or open_output(p, rest)
    )
    monkeypatch.setattr(prove_rows, "OutputRows", lambda p: opened.append(p) or open_rows(p))
    found = [item.path.parent for item in find_removable(output).removable]
    assert (found.count(workers), opened) == (4, [output])


def worker(output: Path, number: int) -> Path:
    return output.parent / "temp" / f"worker_{number}.h5"


def test_merged_worker_files_are_safe_to_remove(joined: Path) -> None:
    """Worker files whose groups are all in the output may go; one that was empty is apart."""
    report = find_removable(joined)
    assert [item.path for item in report.removable] == [worker(joined, n) for n in range(3)]
    assert [item.path.name for item in report.refused] == ["worker_61817.h5"]
    assert report.kept == ()


def change_size(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def change_byte(path: Path) -> None:
    """Change one byte and keep size and time: only the checksum shows it."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[-3] ^= 0xFF
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (change_size, "changed since it was merged"),
        (change_byte, "its checksum is different"),
        (replace_by_link, "symbolic link"),
    ],
)
def test_a_file_that_changed_since_the_merge_stays(
    joined: Path, change: Callable[[Path], None], why: str
) -> None:
    """Size, checksum and kind of a file must be what they were."""
    change(worker(joined, 1))
    report = find_removable(joined)
    assert len(report.removable) == 2
    assert why in report.kept[0].why


def test_a_file_that_was_only_touched_has_not_changed(joined: Path) -> None:
    """A file is known by what is in it, and not by its time."""
    os.utime(worker(joined, 1))
    report = find_removable(joined)
    assert (len(report.removable), report.kept) == (3, ())


def test_a_file_whose_results_are_not_in_the_output_stays(joined: Path) -> None:
    """One value that is another in the output keeps the file that has it."""
    with h5py.File(joined, "r+") as file:
        file["farm1/aep"][()] = 9.0
    report = find_removable(joined)
    assert [kept.path for kept in report.kept] == [worker(joined, 1)]
    assert "does not hold everything in it" in report.kept[0].why


def test_a_file_that_somebody_writes_stays(joined: Path) -> None:
    """A file that is open for writing is not touched."""
    with worker(joined, 2).open("r+b"):
        report = find_removable(joined)
    assert "is writing it" in report.kept[0].why


def test_datasets_that_were_left_out_keep_their_file(joined: Path) -> None:
    """What a merge skipped is nowhere else, unless the audit trail has its value."""
    for number, skipped in ((0, "/init"), (1, "/init"), (2, "/config")):
        one = Survey().look_at(worker(joined, number))
        left_out = {} if number else {"/init": "1"}
        taken = Taken(one, tasks=1, skipped=(skipped,), left_out=left_out)
        append_entry(joined, entry_of_files(joined, [taken], way="groups", duration_s=0.1))
    report = find_removable(joined)
    assert [kept.path for kept in report.kept] == [worker(joined, 1), worker(joined, 2)]
    assert "/init was not merged" in report.kept[0].why
    assert "/config was not merged" in report.kept[1].why


def test_files_that_were_moved_with_their_output_are_found(joined: Path) -> None:
    """The trail has absolute paths; a project folder may be renamed all the same."""
    elsewhere = joined.parent.with_name("elsewhere")
    joined.parent.rename(elsewhere)
    report = find_removable(elsewhere / "out.h5")
    assert [item.path for item in report.removable] == [
        elsewhere / "temp" / f"worker_{number}.h5" for number in range(3)
    ]
    assert report.gone == 0


def test_the_files_of_a_copied_output_are_those_beside_it(joined: Path) -> None:
    """A copy of a folder is cleaned by itself: the original's files are not touched by that."""
    copied = Path(shutil.copytree(joined.parent, joined.parent.with_name("copied")))
    report = find_removable(copied / "out.h5")
    assert {item.path.parent for item in report.removable} == {copied / "temp"}
    move_to_quarantine(report)
    assert find_removable(copied / "out.h5").removable == ()
    merge_files(copied / "out.h5", copied / "out.h5")
    assert find_removable(copied / "out.h5").kept == (), "the output itself is not one of them"


def test_a_file_that_could_not_be_read_was_not_merged(joined: Path) -> None:
    """What a merge left out is not said to have changed, and can be merged once it is readable."""
    secret = worker(joined, 7)
    secret.symlink_to("nowhere")
    merge_files(joined.parent / "temp", joined, policy=Policy(OnDamaged.SKIP))
    secret.unlink()
    with h5py.File(secret, "w") as file:
        file["farm7/aep"] = 7.0
    (kept,) = find_removable(joined).kept
    assert kept.path == secret
    assert "was not merged" in kept.why and "merge again" in kept.why
    merge_files(joined.parent / "temp", joined, policy=Policy(OnDamaged.SKIP))
    assert secret in [item.path for item in find_removable(joined).removable]


def test_a_file_with_a_bad_chunk_is_not_said_to_be_readable(terminal: Terminal) -> None:
    """check, merge and clean name the same damage, though only the data of the file have it."""
    for number in range(2):
        with h5py.File(terminal.folder / f"w{number}.h5", "w") as file:
            for seed in range(4):
                values = np.arange(50.0) * (seed + 1)
                file.create_dataset(f"farm{number}_s{seed}/aep", data=values, compression="gzip")
    with h5py.File(terminal.folder / "w1.h5") as file:
        chunk = file["farm1_s2/aep"].id.get_chunk_info(0)
    with open(terminal.folder / "w1.h5", "r+b") as raw:
        raw.seek(chunk.byte_offset + chunk.size - 1)
        last = raw.read(1)
        raw.seek(-1, os.SEEK_CUR)
        raw.write(bytes([last[0] ^ 255]))
    bad = "a chunk that cannot be inflated (incorrect data check)"
    checked = terminal.run("check", "w0.h5", "w1.h5", "--json", check=3)
    assert bad in json.loads(checked.stdout)["files"][1]["findings"][0]["message"]
    merged = terminal.run("merge", "w0.h5", "w1.h5", "-o", "out.h5", "--on-damaged", "skip")
    assert bad in merged.stderr
    report = find_removable(terminal.folder / "out.h5")
    assert report.kept == (), "it cannot be merged again"
    (refused,) = report.refused
    assert bad in refused.why
    text = terminal.run("clean", "out.h5")
    assert (
        "1 file is safe to remove" in text.stdout and "--yes moves it to quarantine" in text.stderr
    )
    words = ("merge", "w0.h5", "w1.h5", "-o", "rows.h5", "--on-damaged", "salvage")
    terminal.run(*words, "--key", "farm{farm_id:d}_s{seed:d}")
    (refused,) = find_removable(terminal.folder / "rows.h5").refused
    assert refused.why.startswith("3 tasks merged from it by salvage; damaged: D303 ")
    assert refused.why.endswith(bad)
    terminal.run("clean", "out.h5", "--also", "w1.h5", "--yes")
    assert not (terminal.folder / "w1.h5").exists()


def test_a_file_that_was_salvaged_is_not_called_not_merged(terminal: Terminal) -> None:
    """Clean says how many tasks of a damaged file are in the output, and moves it only by name."""
    for number in range(2):
        with h5py.File(terminal.folder / f"w{number}.h5", "w") as file:
            for seed in range(4):
                file[f"farm{number}_s{seed}/aep"] = np.full(500, seed + 0.5)
    damaged = terminal.folder / "w1.h5"
    os.truncate(damaged, damaged.stat().st_size - 100)
    words = ("merge", "w0.h5", "w1.h5", "-o", "out.h5", "--on-damaged", "salvage")
    terminal.run(*words, "--key", "farm{farm_id:d}_s{seed:d}")
    done = terminal.run("clean", "out.h5")
    (line,) = [line for line in done.stdout.splitlines() if "w1.h5" in line]
    assert "tasks merged from it by salvage" in line
    assert "not merged" not in line and "changed" not in line
    terminal.run("clean", "out.h5", "--also", "w1.h5", "--yes")
    assert not damaged.exists()


def test_without_trail_or_output_nothing_is_safe(tmp_path: Path, joined: Path) -> None:
    """An output that nobody knows the making of, or none, is a mistake of the caller."""
    with pytest.raises(UsageError, match=r"there is no .*nothing is safe"):
        find_removable(tmp_path / "other.h5")
    audit_path(joined).unlink()
    with pytest.raises(UsageError, match="neither an audit trail nor a run folder"):
        find_removable(joined)


# ---------------------------------------------------------------- quarantine


def contents(folder: Path) -> dict[str, bytes]:
    """Every worker file and its bytes, whether at its place or in quarantine."""
    places = [*folder.glob("temp/*.h5"), *folder.glob("out.h5.quarantine/*/*/*.h5")]
    return {path.name: path.read_bytes() for path in places}


def test_moved_files_are_listed_and_come_back(joined: Path) -> None:
    """The manifest says where each file was; a restore puts it there with its bytes and time."""
    before, times = contents(joined.parent), os.stat(worker(joined, 0)).st_mtime_ns
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d", made.name)
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["schema"] == "h5sweep.quarantine/1"
    assert [Path(one["path"]) for one in manifest["files"]] == [worker(joined, n) for n in range(3)]
    for one in manifest["files"]:
        assert clean_proof.file_xxh3(made.path / one["name"]) == one["xxh3"]
        assert "read back from the output" in one["why"]
    assert not worker(joined, 0).exists()
    assert contents(joined.parent) == before
    assert find_removable(joined).gone == 0, "what is in quarantine is not gone"
    restored = restore_quarantine(joined)
    assert set(restored.put_back) == {worker(joined, n) for n in range(3)}
    assert os.stat(worker(joined, 0)).st_mtime_ns == times
    assert contents(joined.parent) == before
    assert not made.path.exists()
    assert len(find_removable(joined).removable) == 3


def test_a_restore_never_replaces_another_file(joined: Path) -> None:
    """A different file at the old place stays, and so does the one in quarantine."""
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    worker(joined, 1).write_bytes(b"something new")
    restored = restore_quarantine(joined, made.name)
    assert restored.in_the_way == (worker(joined, 1),)
    assert worker(joined, 1).read_bytes() == b"something new"
    (left,) = quarantine.read_quarantines(joined)
    assert [item.path for item in left.items_inside()] == [worker(joined, 1)]


def test_files_of_one_name_from_two_folders(joined: Path) -> None:
    """Two files that are called the same do not meet in quarantine."""
    twin = joined.parent / "other" / "worker_0.h5"
    twin.parent.mkdir()
    shutil.copy2(worker(joined, 0), twin)
    taken = [Taken(Survey().look_at(twin), tasks=1, duplicates=1)]
    append_entry(joined, entry_of_files(joined, taken, way="groups", duration_s=0.1))
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    assert sorted(item.name for item in made.items_inside()) == [
        "1/worker_0.h5",
        "1/worker_1.h5",
        "1/worker_2.h5",
        "2/worker_0.h5",
    ]
    restore_quarantine(joined)
    assert twin.read_bytes() == worker(joined, 0).read_bytes()


def test_a_purge_proves_again_and_says_what_came_free(joined: Path) -> None:
    """Only files that the output still has are deleted, and the trail has a line about it."""
    size = sum(worker(joined, n).stat().st_size for n in range(3))
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    purged = purge_quarantine(joined, made.name)
    assert (purged.files, purged.freed_bytes, purged.left) == (3, size, ())
    assert not made.path.exists()
    events = [json.loads(line).get("event") for line in audit_path(joined).read_text().splitlines()]
    assert events == [None, "moved to quarantine", f"purged from {made.name}"]
    assert read_audit(joined).unread == ()
    assert find_removable(joined).gone == 3


def lose_output(output: Path, inside: Path) -> None:
    output.unlink()


def change_output(output: Path, inside: Path) -> None:
    with h5py.File(output, "r+") as file:
        del file["farm2/aep"]


def change_inside(output: Path, inside: Path) -> None:
    change_byte(inside)


@pytest.mark.parametrize("change", [lose_output, change_output, change_inside])
def test_a_purge_refuses_what_it_cannot_prove(
    joined: Path, change: Callable[[Path, Path], None]
) -> None:
    """With the output gone or changed, or a file changed, nothing at all is deleted."""
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    change(joined, made.place_of(made.items[2]))
    with pytest.raises(DamagedError, match=r"--restore"):
        purge_quarantine(joined, made.name)
    assert len(made.items_inside()) == 3


def test_a_name_that_is_none_is_refused(joined: Path) -> None:
    """Nothing is purged or restored by a name that no quarantine has."""
    move_to_quarantine(find_removable(joined))
    with pytest.raises(UsageError, match="has no quarantine 'all'"):
        purge_quarantine(joined, "all")
    with pytest.raises(UsageError, match="has no quarantine"):
        restore_quarantine(joined, "../temp")
    restore_quarantine(joined)
    assert not restore_quarantine(joined).put_back, "there is nothing left, and that is no error"


def test_damaged_files_move_by_name_and_are_never_purged(joined: Path) -> None:
    """A file that was not merged goes to quarantine only when named, and stays there."""
    damaged = joined.parent / "temp" / "worker_9.h5"
    damaged.write_bytes(worker(joined, 0).read_bytes()[:-500])
    refused = [Survey().look_at(damaged)]
    append_entry(joined, entry_of_files(joined, [], refused, way="groups", duration_s=0.1))
    report = find_removable(joined)
    assert damaged not in [item.path for item in report.removable]
    with pytest.raises(UsageError, match="not among the files"):
        move_to_quarantine(report, also=["worker_0.h5"])
    made = move_to_quarantine(report, also=["worker_9.h5", "worker_61817.h5"]).quarantine
    assert made is not None
    assert len(made.items_inside()) == 5
    purged = purge_quarantine(joined, made.name)
    assert purged.files == 4, "the empty one and the three that were merged"
    assert [item.path for item in purged.left] == [damaged]
    restore_quarantine(joined)
    assert damaged.exists()


def test_a_file_that_changes_after_the_proof_stays(joined: Path) -> None:
    """Between looking and moving somebody appended: that file is not moved."""
    report = find_removable(joined)
    change_size(worker(joined, 1))
    moved = move_to_quarantine(report)
    assert moved.changed == (worker(joined, 1),)
    assert worker(joined, 1).exists()
    assert moved.quarantine is not None
    assert [item.path for item in moved.quarantine.items] == [worker(joined, 0), worker(joined, 2)]


def test_a_damaged_manifest_is_named(joined: Path) -> None:
    """Without its manifest nobody knows where the files belong: they are left alone."""
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    (made.path / "manifest.json").write_text("{")
    with pytest.raises(DamagedError, match=r"manifest.json is damaged"):
        restore_quarantine(joined)
    assert len(made.items_inside()) == 3


def test_quarantine_is_neither_checked_nor_merged_again(joined: Path) -> None:
    """Whoever looks through the folder does not meet what was put aside, unless it is named."""
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    found = {one.path for one in Survey().look_at_all([joined.parent])}
    assert not [path for path in found if made.path in path.parents]
    assert len(Survey().look_at_all([made.path])) == 3


def test_merged_files_are_removed_at_once(joined: Path) -> None:
    """`remove_merged` deletes what is proven, keeps the rest, and the trail lists it."""
    change_size(worker(joined, 1))
    (joined.parent / "temp" / "notes.txt").write_text("mine")
    removed, report = remove_merged(joined)
    assert removed.files == 2
    assert sorted(p.name for p in (joined.parent / "temp").iterdir()) == [
        "notes.txt",
        "worker_1.h5",
        "worker_61817.h5",
    ]
    assert [kept.path for kept in report.kept] == [worker(joined, 1)]
    last = json.loads(audit_path(joined).read_text().splitlines()[-1])
    assert (last["event"], len(last["files"])) == ("removed", 2)
    assert not quarantine.quarantine_root(joined).exists()


def test_record_files_are_not_removed_with_worker_files(folder: RunFolder) -> None:
    """`remove_merged` leaves the run folder as it is."""
    path = record(folder, SOME % (0, 3))
    merge_run(folder)
    assert remove_merged(folder.output)[0].files == 0
    assert path.exists()


def test_a_lock_keeps_others_away_and_leaves_nothing(joined: Path, folder: RunFolder) -> None:
    """Two cleans of one output exclude each other, and so do a clean and a run."""
    with (
        holding_output(RunFolder.of(joined)),
        pytest.raises(LockedError, match=r"out\.h5"),
        holding_output(RunFolder.of(joined)),
    ):
        pass
    assert not quarantine.quarantine_root(joined).exists()
    folder.create()
    with (
        holding(folder.lock_path),
        pytest.raises(LockedError),
        holding_output(RunFolder.of(joined)),
    ):
        pass


# ---------------------------------------------------------------- moving


@pytest.fixture
def other_disk(tmp_path: Path) -> Any:
    """A folder on another file system than tmp_path."""
    path = Path(f"/dev/shm/h5sweep-test-{os.getpid()}")
    if not path.parent.is_dir() or path.parent.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    path.mkdir()
    yield path
    shutil.rmtree(path)


def test_a_file_moves_to_another_disk_and_back(tmp_path: Path, other_disk: Path) -> None:
    """Bytes and time arrive; the original is gone only then."""
    source, target = tmp_path / "a", other_disk / "b"
    source.write_bytes(bytes(range(256)) * 10_000)
    before, time_ns = source.read_bytes(), source.stat().st_mtime_ns
    move_files.move_file(source, target)
    assert not source.exists()
    assert (target.read_bytes(), target.stat().st_mtime_ns) == (before, time_ns)
    assert sorted(other_disk.iterdir()) == [target]
    source.write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        move_files.move_file(target, source)
    assert source.read_bytes() == b"mine"
    assert target.read_bytes() == before


def test_a_quarantine_takes_files_of_another_disk(joined: Path, other_disk: Path) -> None:
    """Worker files on scratch and an output at home: moved, and put back."""
    path = other_disk / "worker_0.h5"
    shutil.copy2(worker(joined, 0), path)
    before = path.read_bytes()
    taken = [Taken(Survey().look_at(path), tasks=1)]
    append_entry(joined, entry_of_files(joined, taken, way="groups", duration_s=0.1))
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    assert not path.exists()
    assert made.place_of(made.items[-1]).read_bytes() == before
    assert restore_quarantine(joined).outside == (path,), "nobody has named that folder"
    assert not path.exists()
    restore_quarantine(joined, to=[other_disk])
    assert path.read_bytes() == before


def test_a_kill_between_copy_and_removal_is_mended(joined: Path, other_disk: Path) -> None:
    """On another disk a file may be at both places: the next clean removes the original."""
    path = other_disk / "worker_0.h5"
    shutil.copy2(worker(joined, 0), path)
    taken = [Taken(Survey().look_at(path), tasks=1)]
    append_entry(joined, entry_of_files(joined, taken, way="groups", duration_s=0.1))
    before = path.read_bytes()
    made = move_to_quarantine(find_removable(joined)).quarantine
    assert made is not None
    replace(made, stage=quarantine.QuarantineStage.MOVING).save()
    shutil.copy2(made.place_of(made.items[-1]), path)
    again = move_to_quarantine(find_removable(joined)).quarantine
    assert again is not None
    assert (again.name, len(again.items_inside())) == (made.name, 4)
    assert not path.exists()
    assert again.place_of(again.items[3]).read_bytes() == before


def test_a_move_never_replaces(tmp_path: Path) -> None:
    """On one disk too: the file that is there stays."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        move_files.move_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "b"


# ---------------------------------------------------------------- command line


def test_the_command_shows_moves_restores_and_purges(terminal: Terminal) -> None:
    """A dry run names the next command; each of them does what it says."""
    folder = RunFolder(terminal.folder / "out.h5")
    path = record(folder, SOME % (0, 4))
    merge_run(folder)
    shown = terminal.run("clean", "out.h5")
    assert "1 file is safe to remove" in shown.stdout
    assert "h5sweep clean out.h5 --yes" in shown.stderr
    assert path.exists()
    moved = terminal.run("clean", "out.h5", "--yes")
    name = re.search(r"--purge (\S+)", moved.stderr)
    assert name is not None
    assert not path.exists()
    assert "1 file put back" in terminal.run("clean", "out.h5", "--restore").stderr
    assert path.exists()
    moved_to = terminal.json("clean", "out.h5", "--yes", check=0)["moved_to"]
    terminal.run("clean", "out.h5", "--purge", "2000-01-01T00-00-00", check=2)
    purged = terminal.json("clean", "out.h5", "--purge", moved_to["name"], check=0)
    assert (purged["files"], purged["freed_bytes"]) == (1, moved_to["bytes"])
    assert not (terminal.folder / "out.h5.quarantine" / moved_to["name"]).exists()
    assert "nothing is safe to remove" in terminal.run("clean", "out.h5").stdout


def merged_in_two_folders(terminal: Terminal, other: Path) -> dict[Path, bytes]:
    """Worker files in `other` and beside it, and an output of both; what each holds."""
    paths = [other / "worker_0.h5", terminal.folder / "mine/worker_1.h5"]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        with h5py.File(path, "w") as file:
            file[f"farm{number}/aep"] = number * 1.5
    terminal.run("merge", *paths, "-o", "out.h5")
    return {path: path.read_bytes() for path in paths}


def assert_each_is_once(terminal: Terminal, files: dict[Path, bytes], moved: list[Path]) -> None:
    """Nothing is lost, nothing is there twice."""
    for path, content in files.items():
        copies = list(terminal.folder.glob(f"out.h5.quarantine/*/*/{path.name}"))
        (place,) = [one for one in (path, *copies) if one.exists()]
        assert (place != path, place.read_bytes()) == (path in moved, content)


@needs_root
def test_a_read_only_disk_keeps_its_files_and_is_named(terminal: Terminal, read_only: Path) -> None:
    """The files of other folders move; with leave to write the same command does the rest."""
    files = merged_in_two_folders(terminal, read_only)
    theirs, mine = files
    make_read_only(read_only)
    done = terminal.run("clean", "out.h5", "--yes", check=1)
    assert "ro is not writable: 1 file left there; next: make it writable" in done.stderr
    assert_each_is_once(terminal, files, [mine])
    assert terminal.json("clean", "out.h5", "--yes", check=1)["held"] == [str(theirs)]
    make_read_only(read_only, "rw")
    terminal.run("clean", "out.h5", "--yes")
    assert_each_is_once(terminal, files, [mine, theirs])
    make_read_only(read_only)
    done = terminal.run("clean", "out.h5", "--restore", check=1)
    assert "ro is not writable: 1 file left in quarantine" in done.stderr
    assert_each_is_once(terminal, files, [theirs])
    make_read_only(read_only, "rw")
    terminal.run("clean", "out.h5", "--restore")
    assert_each_is_once(terminal, files, [])


@needs_root
def test_a_folder_of_somebody_else_keeps_its_files_and_is_named(terminal: Terminal) -> None:
    """Without the right to write there, on one disk with the output."""
    theirs = terminal.folder / "theirs"
    files = merged_in_two_folders(terminal, theirs)
    os.chown(theirs, SOMEBODY, SOMEBODY)
    theirs.chmod(0o755)
    done = run_as_anybody(terminal, "clean", "out.h5", "--yes")
    assert done.returncode == 1
    assert "theirs is not writable: 1 file left there" in done.stderr
    assert_each_is_once(terminal, files, [terminal.folder / "mine/worker_1.h5"])


@needs_root
def test_merged_files_of_a_read_only_disk_stay_and_are_named(
    terminal: Terminal, read_only: Path
) -> None:
    """`--remove-merged` removes the others; the merge itself is done."""
    files = merged_in_two_folders(terminal, read_only)
    make_read_only(read_only)
    done = terminal.run("merge", *files, "-o", "out.h5", "--remove-merged", check=1)
    assert "removed 1 file" in done.stderr
    assert "ro is not writable: 1 file left there" in done.stderr
    assert [path.exists() for path in files] == [True, False]


@needs_root
def test_a_copy_whose_original_cannot_go_is_not_left_behind(
    tmp_path: Path, read_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that shows only when the copy is there."""
    source = read_only / "a"
    source.write_text("a")
    make_read_only(read_only)
    monkeypatch.setattr(move_files, "may_remove", lambda path: True)
    with pytest.raises(OSError, match="Read-only file system"):
        move_files.move_file(source, tmp_path / "b")
    assert source.read_text() == "a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ro"]


def test_the_command_refuses_contradictions(terminal: Terminal) -> None:
    """Options that exclude each other, and an output that is not there, are exit code 2."""
    terminal.run("clean", "out.h5", check=2)
    terminal.run("clean", "out.h5", "--yes", "--purge", "x", check=2)
    terminal.run("clean", "out.h5", "--restore", "2000-01-01T00-00-00", check=2)
    assert list(terminal.folder.iterdir()) == []
