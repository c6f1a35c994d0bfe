"""Damage that shows only when data are read: check finds it, and a merge goes by its policy."""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5sweep
from check_samples import SAMPLES, change, set_flags
from check_samples import write_groups as write_sound_groups
from h5sweep.base.plan import plan_product
from h5sweep.base.units import count_text
from h5sweep.check import check
from h5sweep.check.check import check_files
from h5sweep.check.report import report_text
from h5sweep.errors import DamagedError
from h5sweep.merge.damaged_inputs import MetDamage
from h5sweep.salvage.salvage import salvage_files
from h5sweep.worker_files.findings import unmergeable_text
from h5sweep.worker_files.survey import Survey
from terminal import Terminal

KEYS = {"groups": "farm{farm_id:d}_s{seed:d}"}
PACKED: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip"},
    "gzip, shuffle, fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
}
ROWS, CHUNK = 20, 4


def write_columns(path: Path, farm: int, *, chunk: int = CHUNK, **settings: Any) -> None:
    """A worker's rows, packed."""
    settings = settings or PACKED["gzip"]
    grows: dict[str, Any] = {"maxshape": (None,), "chunks": (chunk,)}
    with h5py.File(path, "w") as file:
        file.create_dataset("farm_id", data=np.full(ROWS, farm), **grows, **settings)
        file.create_dataset("seed", data=np.arange(ROWS), **grows, **settings)
        file.create_dataset("aep", data=values_of(farm), **grows, **settings)


def write_columns_of_other_length(path: Path, farm: int) -> None:
    """Rows in chunks that do not line up: a merge has to unpack them."""
    write_columns(path, farm, chunk=64)


def write_groups(path: Path, farm: int) -> None:
    with h5py.File(path, "w") as file:
        for seed in range(ROWS):
            group = file.create_group(f"farm{farm}_s{seed}")
            values = np.full(50, values_of(farm)[seed])
            group.create_dataset("aep", data=values, compression="gzip")


def values_of(farm: int) -> Any:
    return np.random.default_rng(farm).random(ROWS)


def spoil(path: Path, *, chunk: int = 2, dataset: str = "aep", new: bytes = b"\xff" * 4) -> None:
    """Write over the middle of a chunk, as a disk error does."""
    with h5py.File(path) as file:
        found = file[dataset].id.get_chunk_info(chunk)
    change(path, found.byte_offset + found.size // 2, new)


def spoil_column(path: Path, farm: int) -> None:
    spoil(path)


def spoil_whole_column(path: Path, farm: int) -> None:
    spoil(path, chunk=0)


def spoil_group(path: Path, farm: int) -> None:
    spoil(path, chunk=0, dataset=f"farm{farm}_s3/aep")


Maker = Callable[[Path, int], None]
# How files are made and damaged, and how many tasks are intact: at least, and at most.
LAYOUTS: dict[str, tuple[Maker, Maker, int, int]] = {
    "columns": (write_columns, spoil_column, 2 * CHUNK, ROWS - CHUNK),
    "columns of other length": (write_columns_of_other_length, spoil_whole_column, 0, 0),
    "groups": (write_groups, spoil_group, ROWS - 1, ROWS - 1),
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, terminal: Terminal) -> str:
    """Four files of one layout in `night`; the second and the fourth have a bad chunk."""
    name: str = request.param
    make, damage, _, _ = LAYOUTS[name]
    night = terminal.folder / "night"
    night.mkdir()
    for farm in range(1, 5):
        make(night / f"worker_{farm}.h5", farm)
        if farm % 2 == 0:
            damage(night / f"worker_{farm}.h5", farm)
    return name


def key_of(layout: str) -> list[str]:
    return ["--key", KEYS.get(layout, "farm_id,seed")]


def read(path: Path) -> dict[tuple[int, int], float]:
    """Every task of an output with its value, read by h5py; all of it can be read."""
    found = {}
    with h5py.File(path) as file:
        if "aep" in file:
            values = np.asarray(file["aep"]).reshape(len(file["aep"]), -1)[:, 0].tolist()
            keys = zip(file["farm_id"][()].tolist(), file["seed"][()].tolist(), strict=True)
            return dict(zip(keys, values, strict=True))
        for name, group in file.items():
            farm, seed = re.findall(r"\d+", name)
            found[int(farm), int(seed)] = float(group["aep"][-1])
    return found


def expected(*farms: int) -> dict[tuple[int, int], float]:
    return {(farm, seed): values_of(farm)[seed] for farm in farms for seed in range(ROWS)}


@pytest.mark.parametrize("has_key", [False, True])
def test_a_merge_that_meets_damage_names_all_of_it_and_stops(
    layout: str, has_key: bool, terminal: Terminal
) -> None:
    """Exit 3, both bad files with place and reason, nothing written; the next step works."""
    words = ["merge", "night", "-o", "out.h5", *(key_of(layout) if has_key else [])]
    done = terminal.run(*words, check=3)
    assert "2 of 4 files cannot be merged as they are; nothing was written" in done.stderr
    for farm in (2, 4):
        assert re.search(rf"damaged  night/worker_{farm}.h5  D303 /.*aep: a chunk at", done.stderr)
    assert not (terminal.folder / "out.h5").exists()
    steps = re.findall(r"--on-damaged \w+", done.stderr)
    assert steps == ["--on-damaged skip", "--on-damaged salvage"]
    terminal.run(*words, *shlex.split(steps[0]))
    assert read(terminal.folder / "out.h5") == expected(1, 3)


@pytest.mark.parametrize("has_key", [False, True])
def test_damage_that_is_met_is_left_out_if_told_to(
    layout: str, has_key: bool, terminal: Terminal
) -> None:
    """The output has every task of the sound files, and nothing of the others."""
    words = ["merge", "night", "-o", "out.h5", "--on-damaged", "skip"]
    done = terminal.run(*words, *(key_of(layout) if has_key else []))
    assert done.stderr.count("left out: damaged  night/worker_") == 2
    assert read(terminal.folder / "out.h5") == expected(1, 3)


def test_what_is_intact_in_a_file_with_a_bad_chunk_is_merged(
    layout: str, terminal: Terminal
) -> None:
    """With salvage, every task of the sound files and intact ones of the others; all is told."""
    words = ["merge", "night", "-o", "out.h5", "--on-damaged", "salvage", *key_of(layout)]
    done = terminal.run(*words)
    salvaged = re.findall(rf"worker_(\d).h5: (\d+) of {ROWS} tasks salvaged; /.*aep", done.stderr)
    assert [farm for farm, _ in salvaged] == ["2", "4"]
    found = read(terminal.folder / "out.h5")
    assert expected(1, 3).items() <= found.items() <= expected(1, 2, 3, 4).items()
    assert len(found) == 2 * ROWS + sum(int(count) for _, count in salvaged)
    least, most = LAYOUTS[layout][2:]
    assert all(least <= int(count) <= most for _, count in salvaged)


def test_more_damage_than_allowed_stops_a_merge_that_meets_it(
    layout: str, terminal: Terminal
) -> None:
    """--max-damaged counts what shows only while data are copied."""
    words = ["merge", "night", "-o", "out.h5", "--on-damaged", "skip", "--max-damaged"]
    done = terminal.run(*words, "1", check=3)
    assert "this is more than --max-damaged 1" in done.stderr
    terminal.run(*words, "2")


@pytest.mark.parametrize("packed", PACKED)
def test_no_merge_writes_what_cannot_be_read(packed: str, terminal: Terminal) -> None:
    """Chunks are copied as they are, and each was unpacked or checked before."""
    for farm in (1, 2):
        write_columns(terminal.folder / f"worker_{farm}.h5", farm, chunk=10, **PACKED[packed])
    terminal.run("merge", "worker_1.h5", "worker_2.h5", "-o", "sound.h5")
    assert read(terminal.folder / "sound.h5") == expected(1, 2)
    spoil(terminal.folder / "worker_2.h5", chunk=1, dataset="farm_id", new=b"\xff\xff\xff")
    done = terminal.run("merge", "worker_1.h5", "worker_2.h5", "-o", "out.h5", check=3)
    assert "worker_2.h5  D303 /farm_id: a chunk at" in done.stderr
    assert not (terminal.folder / "out.h5").exists()


@pytest.mark.parametrize("has_key", [False, True])
def test_lzf_in_a_file_that_was_not_closed_is_read(has_key: bool, terminal: Terminal) -> None:
    """The library does not open it; our own reader knows the filter, with a key and without."""
    for farm in (1, 2):
        path = terminal.folder / f"worker_{farm}.h5"
        with h5py.File(path, "w", libver="latest") as file:
            grows: dict[str, Any] = {"maxshape": (None,), "chunks": (CHUNK,)}
            for name, data in (("farm_id", np.full(ROWS, farm)), ("seed", np.arange(ROWS))):
                file.create_dataset(name, data=data, **grows, compression="lzf")
            file.create_dataset("aep", data=values_of(farm), **grows, compression="lzf")
        set_flags(path, 1)
    key = key_of("columns") if has_key else []
    done = terminal.run("merge", "worker_1.h5", "worker_2.h5", "-o", "out.h5", *key)
    assert "2 files were not closed by their writers, but can be read" in done.stderr
    assert read(terminal.folder / "out.h5") == expected(1, 2)


def test_check_reads_data(layout: str, terminal: Terminal) -> None:
    """A bad chunk is found without --deep, and check and merge say the same count and words."""
    done = terminal.run("check", "night", check=3)
    assert "damaged  2 files: chunk-damaged (D303)" in done.stdout
    assert "2 of 4 files cannot be merged as they are" in done.stdout.splitlines()
    stopped = terminal.run("merge", "night", "-o", "out.h5", check=3)
    assert "2 of 4 files cannot be merged as they are; nothing was written" in stopped.stderr
    assert "next: h5sweep salvage with the same paths" in done.stdout
    terminal.run("salvage", "night", *key_of(layout), check=3)


def test_salvage_names_a_bad_chunk(layout: str, terminal: Terminal) -> None:
    """The line of the file says what is wrong, as check does, and why rows are lost."""
    done = terminal.run("salvage", "night", *key_of(layout), check=3)
    lines = " ".join(done.stdout.split())
    for farm in (2, 4):
        assert re.search(rf"worker_{farm}.h5: /[\w/]*aep: a chunk at [\d,]+ cannot be read", lines)
    assert not re.search(r"worker_[24].h5: nothing is wrong", lines)


def test_salvage_names_a_bad_chunk_of_which_all_rows_were_found(tmp_path: Path) -> None:
    """A file is not called sound because the streams told what its index did not."""
    path = tmp_path / "worker_1.h5"
    with h5py.File(path, "w") as file:
        settings: dict[str, Any] = {"maxshape": (None,), "chunks": (ROWS,), "compression": "gzip"}
        file.create_dataset("seed", data=np.arange(1, ROWS + 1), **settings)
        file.create_dataset("aep", data=values_of(1), **settings)
        size = file["seed"].id.get_chunk_info(0).size
    entry = struct.pack("<IIQQ", size, 0, 0, 0)
    content = path.read_bytes()
    assert content.count(entry) == 1
    path.write_bytes(content.replace(entry, struct.pack("<IIQQ", size - 1, 0, 0, 0)))
    plan = plan_product({"seed": range(1, ROWS + 1)})
    (salvaged,) = salvage_files(path, key="seed", expected=plan).files
    assert len(salvaged.taken) == ROWS
    assert re.match(r"/seed: the chunk of \d+ bytes at [\d,]+ continues beyond", salvaged.state)


def test_check_reads_data_of_files_that_the_library_does_not_open(terminal: Terminal) -> None:
    """One that was not closed has its chunks unpacked too, and damage in it comes first."""
    path = terminal.folder / "worker_1.h5"
    with h5py.File(path, "w", libver="latest") as file:
        settings: dict[str, Any] = {"maxshape": (None,), "chunks": (CHUNK,), "compression": "gzip"}
        file.create_dataset("seed", data=np.arange(ROWS), **settings)
        file.create_dataset("aep", data=values_of(1), **settings)
    set_flags(path, 1)
    (file_,) = terminal.json("check", ".", check=3)["files"]
    assert ([f["code"] for f in file_["findings"]], file_["mergeable"]) == (["D107"], True)
    spoil_unclosed(path)
    (file_,) = terminal.json("check", ".", check=3)["files"]
    assert ([f["code"] for f in file_["findings"]], file_["mergeable"]) == (["D303", "D107"], False)


def spoil_unclosed(path: Path) -> None:
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    set_flags(copy, 0)
    spoil(copy)
    path.write_bytes(copy.read_bytes())
    copy.unlink()
    set_flags(path, 1)


def test_data_beyond_the_budget_are_said_not_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not read is counted, and --deep reads it."""
    for farm in (1, 2, 3):
        write_columns(tmp_path / f"worker_{farm}.h5", farm)
    spoil(tmp_path / "worker_3.h5")
    size = (tmp_path / "worker_1.h5").stat().st_size
    monkeypatch.setattr(check, "MOST_READ_BYTES", 2 * size)
    report = check_files(tmp_path)
    assert [file.is_read for file in report.files] == [True, True, False]
    assert report.exit_code == 0
    assert "the data of 1 file (" in report_text(report)
    assert "were not read: --deep reads them" in report_text(report)
    assert check_files(tmp_path, depth="deep").exit_code == 3


def test_check_and_merge_agree_on_files_that_were_not_closed(terminal: Terminal) -> None:
    """They are one line in each, however many there are, and count as files that can be merged."""
    night = terminal.folder / "night"
    night.mkdir()
    for number in range(12):
        write_sound_groups(night / f"worker_{number}.h5", libver="latest")
        set_flags(night / f"worker_{number}.h5", 1)
    (night / "worker_12.h5").touch()
    lines = terminal.run("check", "night", check=3).stdout.splitlines()
    assert "damaged  12 files: not-closed (D107), 60 tasks; can be merged as they are" in lines
    assert "1 of 13 files cannot be merged as they are" in lines
    assert lines[-1] == "next: h5sweep merge with the same paths and -o OUTPUT --on-damaged skip"
    assert sum("worker_" in line for line in lines) == 1
    assert all(len(line) <= 80 for line in lines)
    done = terminal.run("merge", "night", "-o", "out.h5", check=3)
    assert "1 of 13 files cannot be merged as they are" in done.stderr
    done = terminal.run(
        *("merge", "night", "-o", "out.h5", "--on-damaged", "skip", "--on-conflict", "first")
    )
    assert "note: 12 files were not closed by their writers, but can be read" in done.stderr
    named = terminal.json("merge", "night", "-o", "o.h5", "--on-damaged", "skip")["files"]
    assert [one["findings"] for one in named] == [["D107"]] * 12


@pytest.mark.parametrize("has_key", [False, True])
@pytest.mark.parametrize("many", [1, 3])
def test_what_the_library_refuses_is_damaged_for_check_and_merge(
    many: int, has_key: bool, terminal: Terminal
) -> None:
    """A datatype that our own reader takes: check names it, and merge goes by its policy."""
    night = terminal.folder / "night"
    night.mkdir()
    write_sound_groups(night / "worker_0.h5", tasks=12)
    for number in range(many):
        SAMPLES["D204"].make(night / f"x{number}.h5")
    key = ["--key", "farm{farm_id:d}_t{farm_type:d}_s{seed:d}"] if has_key else []
    done = terminal.run("check", "night", check=3)
    assert f"damaged  {count_text(many, 'file')}: library-refuses (D204)" in done.stdout
    words = ["merge", "night", "-o", "out.h5", *key]
    stopped = terminal.run(*words, check=3)
    assert stopped.stderr.count("D204") == many
    assert unmergeable_text(many, many + 1) in stopped.stderr
    assert unmergeable_text(many, many + 1) in done.stdout
    done = terminal.run(*words, "--on-damaged", "skip")
    assert done.stderr.count("left out: damaged") == many


# Asking the HDF5 library --------------------------------------------------------------------------


@pytest.mark.parametrize("are_alike", [True, False])
def test_a_merge_gives_the_library_time_for_many_groups(tmp_path: Path, are_alike: bool) -> None:
    """Of groups that are alike it looks at one; for others it may take longer, as in a check."""
    count = 300
    with h5py.File(tmp_path / "w0.h5", "w") as file:
        for seed in range(count):
            file[f"s{seed}/aep" if are_alike else f"s{seed}/aep{seed}"] = np.ones(3 + seed)
    survey = Survey()
    inputs = survey.look_at_all([tmp_path])
    with MetDamage() as damage:
        damage.judge(survey, inputs)
        ((request, answer),) = damage._library.answers(wait=True)
    assert request.objects >= 2 * count
    assert answer.said["errors"] == []
    assert answer.said["objects"] == (2 if are_alike else 2 * count)


def write_packed(path: Path) -> bytes:
    """Eight chunks of gzip, in the index of the old kind."""
    with h5py.File(path, "w") as file:
        settings = {"maxshape": (None,), "chunks": (1,), "compression": "gzip"}
        file.create_dataset("aep", data=np.arange(8) + 0.5, **settings)
        file.create_dataset("seed", data=np.arange(8), **settings)
    return path.read_bytes()


@pytest.mark.parametrize("what", ["place of a chunk", "gzip level"])
def test_a_changed_byte_about_chunks_is_damage(what: str, tmp_path: Path) -> None:
    """A chunk that is said to lie elsewhere would leave zeros in its place, without a word."""
    (tmp_path / "in").mkdir()
    content = bytearray(write_packed(tmp_path / "in" / "w0.h5"))
    if what == "gzip level":
        place = content.index(b"deflate\0") + 8
        assert content[place] == 4
        content[place] = 0x24
    else:
        node = content.index(b"TREE\1")
        content[content.index((3).to_bytes(8, "little"), node) + 1] = 2
    (tmp_path / "in" / "w0.h5").write_bytes(content)
    with pytest.raises(DamagedError, match=r"w0\.h5"):
        h5sweep.merge_files(tmp_path / "in", tmp_path / "out.h5")
    assert not (tmp_path / "out.h5").exists()
