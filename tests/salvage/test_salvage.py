"""What is intact in a damaged file becomes records; what is not is named, and nothing is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5sweep
from check_samples import flip, set_flags
from h5sweep.errors import UsageError
from h5sweep.hdf5.source import OpenSource
from h5sweep.hdf5.superblock import read_superblock
from h5sweep.library.child_host import Limits
from h5sweep.merge.from_records.build import merge_run
from h5sweep.runfolder.layout import RunFolder
from h5sweep.salvage.library_reader import Question, SecondReader, how_to_open
from h5sweep.salvage.salvage import salvage_files
from h5sweep.salvage.trust_labels import Label, Way
from recorded_writes import KEY, PATTERN, key_of, write_tasks
from salvage_checks import read_results, true_plan, true_results
from terminal import Terminal

TASKS = 12


@pytest.fixture
def worker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Path]:
    """Write a worker file of a style, and put zeros over some of its bytes."""

    def write(style: str, *zeros: tuple[int, int], tasks: int = TASKS) -> Path:
        path = tmp_path / "worker.h5"
        write_tasks(path, style, tasks)
        content = bytearray(path.read_bytes())
        for start, size in zeros:
            content[start : start + size] = bytes(size)
        path.write_bytes(content)
        return path

    return write


def salvage(path: Path, to: Path, **options: Any) -> tuple[Any, dict[Any, Any]]:
    report = salvage_files(path, to=to, **options)
    return report.files[0], read_results(report.files[0].records)


def same(found: dict[Any, Any], tasks: int = TASKS) -> bool:
    truth = true_results(tasks)
    return found.keys() <= truth.keys() and all(
        np.array_equal(result[name], truth[key][name]) and result.keys() == truth[key].keys()
        for key, result in found.items()
        for name in truth[key]
    )


@pytest.mark.parametrize("style", ["group earliest", "columns latest", "names latest"])
def test_a_healthy_file_gives_everything(style: str, worker: Any, tmp_path: Path) -> None:
    """Both readers find every task of a healthy file, and agree."""
    key = PATTERN if style.startswith("names") else KEY
    file, found = salvage(worker(style), tmp_path / "out", key=key)
    assert len(found) == TASKS and same(found)
    assert all(result.confirmed_by == (Way.LIBRARY,) for result in file.taken)
    assert not file.is_damaged and file.is_complete


def test_the_superblock_is_not_needed(worker: Any, tmp_path: Path) -> None:
    """A file that h5py refuses, because its superblock is zeros, gives every task."""
    path = worker("group earliest", (0, 96))
    with pytest.raises(OSError, match="signature"):
        h5py.File(path)
    file, found = salvage(path, tmp_path / "out")
    assert len(found) == TASKS and same(found)
    assert "guessed from attributes" in file.key


def test_every_task_before_a_cut_is_recovered(worker: Any, tmp_path: Path) -> None:
    """A truncated file gives the tasks that lie before its end, and names the others' bytes."""
    path = worker("columns earliest", tasks=40)
    with h5py.File(path) as file:
        chunk = file["layout"].id.get_chunk_info(1)
    os.truncate(path, chunk.byte_offset + 800)
    saved, found = salvage(path, tmp_path / "out", expected=true_plan(40))
    assert len(found) == 16 + 1 and same(found, 40)
    assert saved.losses and all(loss.extents for loss in saved.losses)


def test_the_original_stays_as_it_is(worker: Any, tmp_path: Path) -> None:
    """Neither the content nor the time of a salvaged file changes, and it needs no write access."""
    path = worker("group latest")
    set_flags(path, 1)
    path.chmod(0o444)
    before = (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest())
    _, found = salvage(path, tmp_path / "out")
    assert len(found) == TASKS
    assert (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).digest()) == before


def test_the_same_command_again_changes_nothing(worker: Any, tmp_path: Path) -> None:
    """A second salvage of the same file leaves the record file as the first has written it."""
    path = worker("group earliest", (0, 96))
    file, _ = salvage(path, tmp_path / "out")
    before = Path(file.records).stat()
    again, found = salvage(path, tmp_path / "out")
    assert again.records == file.records and len(found) == TASKS
    assert os.listdir(tmp_path / "out") == [Path(file.records).name]
    assert Path(file.records).stat().st_mtime_ns == before.st_mtime_ns


def test_what_was_recovered_once_stays(worker: Any, tmp_path: Path) -> None:
    """A file that is damaged further between two calls costs nothing that was recovered before."""
    path = worker("group earliest")
    salvage(path, tmp_path / "out")
    os.truncate(path, path.stat().st_size // 2)
    file, found = salvage(path, tmp_path / "out")
    assert 0 < len(file.taken) < TASKS
    assert len(found) == TASKS and same(found)


def test_nothing_is_written_unless_it_is_asked_for(worker: Any, tmp_path: Path) -> None:
    """Without an output or a folder, a salvage only reports."""
    path = worker("group earliest")
    before = sorted(os.listdir(tmp_path))
    report = salvage_files(path)
    assert report.recovered == TASKS and report.files[0].records is None
    assert "-o OUTPUT" in report.next
    assert sorted(os.listdir(tmp_path)) == before


def test_merge_and_missing_see_what_was_salvaged(worker: Any, tmp_path: Path) -> None:
    """Salvaged results are in the run folder like any other, and the merge makes rows of them."""
    path, output = worker("columns latest gzip"), tmp_path / "layouts.h5"
    set_flags(path, 1)
    salvage_files(path, output=output, key=KEY)
    report = merge_run(RunFolder.of(output))
    assert report.tasks_merged == TASKS
    with h5py.File(output) as file:
        rows = zip(*(file[name][...].tolist() for name in KEY.split(",")), strict=True)
        truth = true_results(TASKS)
        assert all(
            np.array_equal(layout, truth[key]["layout"])
            for key, layout in zip(rows, file["layout"][...], strict=True)
        )


def test_a_page_of_zeros_is_never_taken_for_values(worker: Any, tmp_path: Path) -> None:
    """Whichever page of a file is lost, no result with zeros in its place is accepted."""
    size = worker("group earliest", tasks=40).stat().st_size
    for start in range(0, size - 4096, 4096):
        path = worker("group earliest", (start, 4096), tasks=40)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        _, found = salvage(path, tmp_path / "out", use_library=False)
        assert same(found, 40), start


def test_a_flipped_byte_under_a_checksum_is_seen(tmp_path: Path) -> None:
    """A chunk that fails its fletcher32 is lost, and its neighbours are verified."""
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w", libver="v110") as file:
        for name, dtype in (("seed", "i8"), ("aep", "f8")):
            data = np.arange(1, 9, dtype=dtype)
            file.create_dataset(name, data=data, chunks=(2,), maxshape=(None,), fletcher32=True)
        place = file["aep"].id.get_chunk_info(1).byte_offset
    flip(path, place)
    saved, found = salvage(path, tmp_path / "out", key="seed", use_library=False)
    assert set(found) == {(1,), (2,), (5,), (6,), (7,), (8,)}
    assert {result.label for result in saved.taken} == {Label.VERIFIED}


def test_a_result_that_lacks_a_value_is_not_taken(worker: Any, tmp_path: Path) -> None:
    """A task whose writer was killed before its last value is unverified, and left out."""
    path = worker("group earliest")
    with h5py.File(path, "a") as file:
        group = file.create_group("half")
        group.attrs.update(farm_id=9, farm_type=9, seed=9)
        group["layout"] = np.ones((50, 2))
    saved, found = salvage(path, tmp_path / "out")
    assert (9, 9, 9) not in found
    assert [result.reason for result in saved.refused] == ["aep is missing; other tasks have it"]
    _, found = salvage(path, tmp_path / "all", accept="unverified")
    assert (9, 9, 9) in found


def test_a_task_that_nobody_expects_is_not_taken(worker: Any, tmp_path: Path) -> None:
    """With a list of tasks, a key that is not in it is unverified."""
    saved, found = salvage(worker("group earliest"), tmp_path / "out", expected=true_plan(5))
    assert len(found) == 5
    assert {result.reason for result in saved.refused} == {"this task is not expected"}


def test_two_values_of_one_task_are_a_conflict(tmp_path: Path) -> None:
    """Of two groups with one key and different values neither is taken, and both are shown."""
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w") as file:
        for number, seed in enumerate((1, 2, 3, 3)):
            group = file.create_group(f"g{number}")
            group.attrs["seed"] = seed
            group["aep"] = float(number)
    saved, found = salvage(path, tmp_path / "out", key="seed")
    assert set(found) == {(1,), (2,)}
    assert saved.conflicts[0].key == {"seed": 3} and len(saved.conflicts[0].found) == 2
    assert not saved.is_complete


def test_a_deleted_task_stays_deleted(worker: Any, tmp_path: Path) -> None:
    """What a program has removed from a sound file is no result, though its bytes are there."""
    path = worker("group earliest")
    with h5py.File(path, "a") as file:
        del file["farm0_t0_s0"]
    _, found = salvage(path, tmp_path / "out")
    assert len(found) == TASKS - 1 and (0, 0, 0) not in found


def test_rows_that_were_never_written_are_none(tmp_path: Path) -> None:
    """Rows that only have a key, in columns made in advance, are no results, and are counted."""
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w") as file:
        file["seed"] = np.arange(10)
        file["layout"] = np.zeros((10, 4))
        file["layout"][:6] = 1.5
    saved, found = salvage(path, tmp_path / "out", key="seed")
    assert set(found) == {(seed,) for seed in range(6)}
    assert not saved.losses
    assert [one.key["seed"] for one in saved.refused] == [6, 7, 8, 9]


def test_room_for_more_rows_is_no_loss(tmp_path: Path) -> None:
    """Rows at the end that have neither a key nor values are none; before others, one is lost."""
    path = tmp_path / "worker.h5"
    for first, lost in ((1, []), (0, ["row 0 of /"])):
        with h5py.File(path, "w") as file:
            file["seed"] = np.array([*range(first, first + 6), 0, 0, 0])
            file["steps"] = np.array([*range(first, first + 6), 0, 0, 0])
        saved, found = salvage(path, tmp_path / f"out{first}", key="seed")
        assert set(found) == {(seed,) for seed in range(1, first + 6)}
        assert ([loss.place for loss in saved.losses], saved.refused) == (lost, ())


def test_tasks_may_lie_at_any_depth(tmp_path: Path) -> None:
    """Keys are read from paths of several groups, values from groups inside a task's."""
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w") as file:
        for seed in range(3):
            group = file.create_group(f"farm3/type1/seed{seed}")
            group["aep"] = float(seed)
            group["history/cost"] = np.arange(4.0) + seed
    key = "farm{farm:d}/type{kind:d}/seed{seed:d}"
    _, found = salvage(path, tmp_path / "out", key=key)
    assert set(found) == {(3, 1, seed) for seed in range(3)}
    assert np.array_equal(found[3, 1, 2]["history_cost"], np.arange(4.0) + 2)


def test_a_file_may_be_one_task(tmp_path: Path) -> None:
    """The name of a file tells its task where each has a file of its own."""
    paths = [tmp_path / "farm3_s7.h5", tmp_path / "farm3_s8.h5"]
    for path in paths:
        with h5py.File(path, "w") as file:
            file["layout"] = np.ones((50, 2))
            file["aep"] = 2.5
        path.write_bytes(bytes(96) + path.read_bytes()[96:])
    report = salvage_files(paths, to=tmp_path / "out", key="farm{farm:d}_s{seed:d}")
    found = read_results(report.files[0].records)
    assert set(found) == {(3, 7)} and found[3, 7]["aep"] == 2.5


def test_values_of_every_type(tmp_path: Path) -> None:
    """Texts, truth values, complex numbers, compounds and enums are what h5py reads."""
    path = tmp_path / "worker.h5"
    truth: dict[str, Any] = {
        "text": "ønshore",
        "texts": np.array(["a", "längere"]),
        "fixed": np.array([b"ab", b"cde"]),
        "flag": True,
        "big": np.arange(5, dtype=">i2"),
        "wave": np.array([1 + 2j]),
        "pair": np.array([(3, 1.5)], [("n", "<i4"), ("x", ">f8")]),
    }
    with h5py.File(path, "w") as file:
        for seed in range(3):
            group = file.create_group(f"s{seed}")
            group.attrs["seed"] = seed
            for name, value in truth.items():
                group[name] = value.tolist() if name == "texts" else value
            colours = h5py.enum_dtype({"red": 0, "blue": 5}, "i1")
            group.create_dataset("colour", data=5, dtype=colours)
    file_, found = salvage(path, tmp_path / "out", key="seed")
    result = found[2,]
    assert all(r.confirmed_by == (Way.LIBRARY,) for r in file_.taken)
    assert result["text"] == "ønshore" and result["texts"].tolist() == ["a", "längere"]
    assert result["fixed"].tolist() == ["ab", "cde"] and result["flag"].dtype == bool
    assert result["big"].tolist() == [0, 1, 2, 3, 4] and result["wave"][0] == 1 + 2j
    assert result["pair_n"].tolist() == [3] and result["pair_x"].tolist() == [1.5]
    assert result["colour"] == 5


def test_a_filter_that_only_the_library_has(tmp_path: Path) -> None:
    """What our own reader does not know is taken from the library, and said to be."""
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w") as file:
        for seed in range(3):
            group = file.create_group(f"s{seed}")
            group.attrs["seed"] = seed
            data = np.arange(600) + seed
            group.create_dataset("layout", data=data, scaleoffset=0)
    saved, found = salvage(path, tmp_path / "out", key="seed")
    assert {result.way for result in saved.taken} == {Way.LIBRARY}
    assert np.array_equal(found[2,]["layout"], np.arange(600) + 2)


def test_rows_of_an_output_are_verified_by_their_checksums(tmp_path: Path) -> None:
    """An output of ours without its superblock gives its rows; one changed row is refused."""
    output = tmp_path / "layouts.h5"
    with h5sweep.Recorder(output) as recorder:
        for seed in range(8):
            recorder.write({"seed": seed}, layout=np.full((3 + seed % 2, 2), seed), name=f"n{seed}")
    merge_run(RunFolder.of(output))
    with h5py.File(output) as file:
        plan_place, place = 0, file["layout"].id.get_offset()
    flip(output, place + 3 * 2 * 8)
    content = output.read_bytes()
    copy = tmp_path / "copy.h5"
    copy.write_bytes(bytes(96) + content[96:])
    saved, found = salvage(copy, tmp_path / "out", expected=RunFolder.of(output).load_plan())
    assert plan_place == 0 and set(found) == {(seed,) for seed in range(8)} - {(1,)}
    assert {result.label for result in saved.taken} == {Label.VERIFIED}
    assert found[7,]["layout"].shape == (4, 2) and found[7,]["name"] == "n7"
    assert saved.losses[0].why == "its checksum is wrong"


def test_record_files_are_salvaged_too(tmp_path: Path) -> None:
    """Of a record file with a damaged record, the others are recovered and verified."""
    output = tmp_path / "layouts.h5"
    with h5sweep.Recorder(output) as recorder:
        for seed in range(6):
            recorder.write({"seed": seed}, aep=float(seed))
    (path,) = RunFolder.of(output).record_paths()
    flip(path, 700)
    saved, found = salvage(path, tmp_path / "out")
    assert len(found) == 5 and len(saved.losses) == 1 and saved.losses[0].extents
    assert {result.label for result in saved.taken} == {Label.VERIFIED}


def test_nameless_arrays_are_written_out_on_request(tmp_path: Path) -> None:
    """Arrays whose names are lost are counted, and exported with their place and shape."""
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w") as file:
        file["task/layout"] = np.arange(10.0).reshape(5, 2)
        heap = path.read_bytes()
    content = bytearray(heap if heap else b"")
    content = bytearray(path.read_bytes())
    place = content.find(b"SNOD")
    while place >= 0:
        content[place : place + 4] = b"DONS"
        place = content.find(b"SNOD")
    path.write_bytes(content)
    report = salvage_files(path, nameless=tmp_path / "arrays", use_library=False)
    (index,) = (tmp_path / "arrays").glob("*.json")
    (entry,) = json.loads(index.read_text())
    assert report.files[0].nameless == 1 and "5x2" in entry["file"]
    array = np.load(tmp_path / "arrays" / entry["file"])
    assert np.array_equal(array, np.arange(10.0).reshape(5, 2))


def test_a_live_file_is_not_opened(worker: Any, tmp_path: Path) -> None:
    """A file that a process has open for writing is left alone."""
    path = worker("group earliest")
    with path.open("r+b"):
        report = salvage_files(path, to=tmp_path / "out")
    assert report.files[0].is_live and not report.recovered
    assert not (tmp_path / "out").exists()


def test_both_targets_are_a_mistake(tmp_path: Path) -> None:
    """Results go to one place."""
    with pytest.raises(UsageError, match="use only one of"):
        salvage_files(tmp_path, output=tmp_path / "a.h5", to=tmp_path / "out")


@pytest.mark.parametrize(("flags", "how"), [(0, "plain"), (1, "overlaid"), (5, "swmr")])
def test_the_library_opens_files_as_they_need(
    flags: int, how: str, worker: Any, tmp_path: Path
) -> None:
    """A closed file is opened as it is, a SWMR writer's as such, any other through new bytes."""
    path = worker("columns latest")
    set_flags(path, flags)
    with OpenSource(path) as source, SecondReader(Limits()) as library:
        how_opened = how_to_open(source, read_superblock(source, 0))
        question = Question(str(path), how_opened, tuple(KEY.split(",")))
        found = [key for header, _ in library.ask(question) for key in header.get("keys", ())]
    assert question.how == how and len(found) == TASKS


def test_groups_are_asked_for_by_name(worker: Any) -> None:
    """Where a listing fails, a group can still be had by its name."""
    path = worker("names earliest")
    question = Question(str(path), names=("seed",), pattern="nothing{seed:d}")
    with SecondReader(Limits()) as library:
        asked = Question(
            str(path), pattern=PATTERN, names=tuple(KEY.split(",")), wanted=("/farm0_t0_s0",)
        )
        answers = [header for header, _ in library.ask(asked) if "schema" in header]
        found = [key for header in answers for key in header["keys"]]
        none = [header for header, _ in library.ask(question) if "schema" in header]
    assert {"farm_id": 0, "farm_type": 0, "seed": 0} in found and not none


def test_a_file_that_kills_the_library_costs_its_answer_only(worker: Any) -> None:
    """A child that dies is replaced, and the next file is read."""
    path = worker("group earliest")
    asked = Question(str(path), names=tuple(KEY.split(",")))
    with SecondReader(Limits()) as library:
        assert len(list(library.ask(asked))) == TASKS + 1
        assert library._child is not None and library._child._pid is not None
        os.kill(library._child._pid, signal.SIGKILL)
        last = list(library.ask(asked))[-1][0]
        assert last["errors"] == ["it kills the HDF5 library"]
        assert len(list(library.ask(asked))) == TASKS + 1


def test_a_file_that_hangs_the_library_costs_the_time_limit(tmp_path: Path) -> None:
    """The limit holds for the first file too, which also starts the child."""
    path = tmp_path / "hangs.h5"
    with h5py.File(path, "w") as file:
        for seed in range(4):
            group = file.create_group(f"s{seed}")
            group["v"] = 1.0 + seed
            group.attrs["note"] = "x" * 100 + str(seed)
    content = bytearray(path.read_bytes())
    heap = (content.find(b"GCOL") + 216) // 512 * 512 + 512
    content[heap : heap + 512] = bytes(512)  # the library looks for a next object for ever
    path.write_bytes(content)
    begun = time.monotonic()
    (file,) = salvage_files(path, key="s{seed:d}", timeout_s=1.0).files
    assert time.monotonic() - begun < 40.0  # starting the child took 60 s of patience before
    assert "the HDF5 library did not finish reading it within --timeout" in file.notes


def test_a_child_that_cannot_start_says_nothing_of_the_file(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own reader's results stand, and the file is not said to kill the library."""
    path = worker("group earliest")
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    (file,) = salvage_files(path, key=KEY).files
    assert len(file.taken) == TASKS and file.is_complete
    assert file.notes == ("the HDF5 library could not be started",)


def test_the_report_fits_a_terminal(worker: Any, terminal: Terminal, tmp_path: Path) -> None:
    """What the command prints has 80 columns, counts by way and label, and the next command."""
    path = worker("group earliest", (0, 96))
    done = terminal.run("salvage", path, "-o", "layouts.h5")
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert f"recovered (carved): {TASKS} consistent" in done.stdout
    assert f"{TASKS} of {TASKS} tasks recovered from 1 file" in done.stdout
    assert "next: h5sweep merge layouts.h5" in done.stdout


def test_the_next_command_can_be_pasted(worker: Any, terminal: Terminal) -> None:
    """Also where the results are in a folder with a long name of several words."""
    path = worker("group earliest", (0, 96))
    folder = "what was got out of the files that the night left"
    done = terminal.run("salvage", path, "--to", folder)
    assert f"next: h5sweep merge '{folder}' -o OUTPUT merges them into one file\n" in done.stdout
    done = terminal.run("merge", folder, "-o", "layouts.h5")
    assert f"({TASKS} tasks from 1 file" in done.stderr
    done = terminal.run("salvage", path, "-o", "my layouts.h5")
    assert "next: h5sweep merge 'my layouts.h5' writes the output\n" in done.stdout
    terminal.run("merge", "my layouts.h5")


def test_the_next_commands_list_the_rest(worker: Any, terminal: Terminal) -> None:
    """Where tasks are expected, `missing` is given what it needs, before and after the merge."""
    path = worker("group earliest", (0, 96))
    rows = [f"{k['farm_id']},{k['farm_type']},{k['seed']}" for k in map(key_of, range(TASKS + 3))]
    (terminal.folder / "my tasks.csv").write_text("\n".join([KEY, *rows, ""]))
    done = terminal.run("salvage", path, "-o", "s.h5", "--expect", "my tasks.csv")
    line = done.stdout.split("next: ")[1].removesuffix(" lists the rest\n")
    merge, missing = line.split(" writes the output; ")
    assert f"3 of {TASKS + 3} missing" in _taken(terminal, missing, check=1)
    _taken(terminal, merge)
    assert f"3 of {TASKS + 3} missing" in _taken(terminal, missing, check=1)


def _taken(terminal: Terminal, command: str, **about: Any) -> str:
    """Do what a message says, word for word."""
    program, *words = shlex.split(command)
    assert program == "h5sweep"
    done = terminal.run(*words, **about)
    return done.stdout + done.stderr


def test_files_whose_tasks_lack_a_key_are_told_of_once(terminal: Terminal) -> None:
    """The first says what there is; the others are counted."""
    for number in range(9):
        with h5py.File(terminal.folder / f"worker_{number}.h5", "w") as file:
            file[f"case_{number}/aep"] = 1.5
    said = terminal.run("salvage", ".", check=3).stdout.splitlines()
    assert "8 more sound files like it, 8 tasks: these need --key too" in said
    assert said[-2] == "0 of 9 tasks recovered from 9 files" and len(said) < 9


def test_files_of_which_all_was_recovered_take_a_line(worker: Any, terminal: Terminal) -> None:
    """One line for all sound files, and one for all that were not closed."""
    path = worker("group latest")
    folder = path.parent / "night"
    folder.mkdir()
    for number in range(6):
        shutil.copy(path, folder / f"worker_{number}.h5")
        if number > 3:
            set_flags(folder / f"worker_{number}.h5", 1)
    done = terminal.run("salvage", folder, "--key", KEY)
    first, *rest = done.stdout.splitlines()
    assert first == f"4 sound files: {4 * TASKS} tasks recovered"
    assert "worker_4.h5 and 1 more file: " in " ".join(done.stdout.split())
    assert "worker_5" not in done.stdout and len(rest) <= 8


def test_the_json_has_a_schema(worker: Any, terminal: Terminal) -> None:
    """--json gives one object with the counts, and exit code 3 while something is lost."""
    path = worker("group earliest")
    os.truncate(path, path.stat().st_size // 2)
    said = terminal.json("salvage", path, check=3)
    assert said["schema"] == "h5sweep.salvage/1"
    (file,) = said["files"]
    assert file["counts"]["carved"]["consistent"] == said["recovered"] > 0
    assert file["lost"] and not file["complete"]


def test_a_salvage_says_what_it_needs(worker: Any, terminal: Terminal) -> None:
    """Columns of which none is known to be the key are not guessed: the report asks for --key."""
    done = terminal.run("salvage", worker("columns earliest"), check=3)
    assert "--key" in done.stdout and "farm_id" in done.stdout
    terminal.run("salvage", "nowhere.h5", check=2)


def test_killed_before_its_end_it_leaves_nothing(worker: Any, tmp_path: Path) -> None:
    """A salvage that is killed before it renames its record file has left no record file."""
    path, folder = worker("group earliest"), tmp_path / "out"
    program = (
        "import os, signal, sys\n"
        "from h5sweep import salvage_files; from h5sweep.disk import durable\n"
        "sync = durable.sync_file\n"
        "durable.sync_file = lambda path: (sync(path), os.kill(os.getpid(), signal.SIGKILL))\n"
        "salvage_files(sys.argv[1], to=sys.argv[2])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path), str(folder)], timeout=60)
    assert done.returncode == -9 and not list(folder.glob("*.records"))
    _, found = salvage(path, folder)
    assert len(found) == TASKS
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]


def test_what_is_known_of_a_result_is_small(tmp_path: Path) -> None:
    """It is kept for every row until all are judged, and there may be a million."""
    peaks = []
    for rows in (1_000, 5_000):
        path = tmp_path / f"{rows}.h5"
        with h5py.File(path, "w") as file:
            file["seed"] = np.arange(rows) + 1
            file["aep"] = np.random.default_rng(rows).random(rows)
        with path.open("r+b") as raw:
            raw.write(bytes(8))
        tracemalloc.start()
        report = salvage_files(path, key="seed", use_library=False)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert report.recovered == rows
    assert (peaks[1] - peaks[0]) / 4_000 < 1_000, peaks


def test_data_of_groups_are_not_kept(tmp_path: Path) -> None:
    """Memory for a group does not grow with the size of its arrays."""
    tasks, path = 400, tmp_path / "groups.h5"
    with h5py.File(path, "w") as file:
        for task in range(tasks):
            data = np.random.default_rng(task).random((4, 1000))
            file.create_dataset(f"s{task}/field", data=data, chunks=(1, 1000))
    salvage_files(path, to=tmp_path / "first", key="s{seed:d}", use_library=False)
    tracemalloc.start()
    (file,) = salvage_files(path, to=tmp_path / "out", key="s{seed:d}", use_library=False).files
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(file.taken) == tasks
    assert peak < 18e6  # 12 MB that do not grow; 32 kB more for each if its chunks are kept


def test_a_large_file_shows_how_far_it_is(tmp_path: Path) -> None:
    """One file may take minutes: what was found in it so far is said on the way."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["seed"] = np.arange(1_000)
        file["aep"] = np.arange(1_000) / 7
    shown: list[tuple[int, int, int]] = []
    report = salvage_files(
        tmp_path / "a.h5", key="seed", progress=lambda *found: shown.append(found)
    )
    assert shown == [(0, 1, results) for results in range(0, report.recovered + 1, 100)]


def test_the_end_of_a_chunk_that_no_row_uses_may_be_gone(tmp_path: Path) -> None:
    """Three rows in a chunk for eight: a file that ends behind them has lost nothing of these."""
    values = np.random.default_rng(1).random((3, 500)) + 1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for seed in range(5):
            file.create_group(f"s{seed}")["aep"] = seed + 0.5
        for seed in range(5):
            file[f"s{seed}"].create_dataset("x", data=values, maxshape=(None, 500), chunks=(8, 500))
    whole = (tmp_path / "a.h5").read_bytes()
    for cut in (1, 17, 5_000, 16_000):
        (tmp_path / "a.h5").write_bytes(whole[:-cut])
        report = salvage_files(tmp_path / "a.h5", key="s{seed:d}", accept="unverified")
        assert (report.recovered, report.files[0].losses) == (5, ()), cut


def test_a_pattern_has_the_names_of_the_expected_tasks(worker: Any) -> None:
    """With fewer no task could be the expected one; with more, names cannot be made from keys."""
    path, expected = worker("group earliest"), true_plan(TASKS)
    with pytest.raises(UsageError, match="the key is name, but the key of the expected tasks is"):
        salvage_files(path, key="x{name}", expected=expected)
    assert salvage_files(path, key=PATTERN + "{more}", expected=expected).recovered == 0


def test_another_key_for_the_same_results_is_written(worker: Any, tmp_path: Path) -> None:
    """Somebody who has given wrong names gives others, and can merge what is there then."""
    path, to = worker("names earliest"), tmp_path / "to"
    salvage_files(path, to=to, key="farm{a:d}_t{b:d}_s{c:d}")
    report = salvage_files(path, to=to, key=PATTERN)
    written = salvage_files(str(report.files[0].records)).files[0].taken
    assert [",".join(found.key) for found in written] == TASKS * [KEY]


def test_what_lacks_only_a_key_is_not_called_lost(terminal: Terminal) -> None:
    """A sound file without --key lost nothing; the key that is asked for takes all of it."""
    with h5py.File(terminal.folder / "w0.h5", "w") as file:
        for seed in range(3):
            file[f"farm1_s{seed}/aep"] = np.arange(3.0) + seed + 1
    said = terminal.run("salvage", "w0.h5", check=3).stdout
    assert "w0.h5: not all of it was taken" in said and "not taken: 3: it has no key" in said
    assert "lost" not in said and "next: say where keys are found: --key" in said
    terminal.run("salvage", "w0.h5", "--key", "farm{farm_id:d}_s{seed:d}")
