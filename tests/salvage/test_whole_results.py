"""A salvaged result has every value that was written, or it is not accepted."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from h5sweep.salvage.report import FileSalvage, SalvageReport
from h5sweep.salvage.salvage import salvage_files
from h5sweep.salvage.trust_labels import ALONE
from salvage_checks import Results, read_results, salvage_content

PATTERN = "s{seed:d}"
Put = Callable[[Any, int], None]


def write_groups(path: Path, tasks: int, put: Put, **settings: Any) -> Path:
    """A group a task, filled by `put`."""
    with h5py.File(path, "w", **settings) as file:
        for task in range(tasks):
            put(file.create_group(f"s{task}"), task)
    return path


def put_all(group: Any, **values: float) -> None:
    for name, value in values.items():
        group[name] = value


def zero(path: Path, start: int, size: int) -> None:
    content = bytearray(path.read_bytes())
    content[start : start + size] = bytes(size)
    path.write_bytes(content)


def zero_names(path: Path, tasks: range) -> None:
    """Zeros wherever the name of one of these groups stands."""
    content = path.read_bytes()
    for task in tasks:
        content = content.replace(f"s{task}".encode(), b"\0\0")
    path.write_bytes(content)


def salvaged(path: Path, key: str = PATTERN, **options: Any) -> tuple[FileSalvage, Results]:
    report = salvage_files(path, to=path.parent / "out", key=key, **options)
    return report.files[0], read_results(report.files[0].records)


def test_a_text_that_is_lost_is_missed(tmp_path: Path) -> None:
    """A result without an attribute that cannot be read is not accepted, and that is said."""

    def put(group: Any, task: int) -> None:
        group.attrs["aep"], group.attrs["note"] = task + 0.5, f"converged after {task}"

    path = write_groups(tmp_path / "w.h5", 5, put, libver="latest")
    zero(path, path.read_bytes().find(b"GCOL"), 4096)
    saved, found = salvaged(path)
    assert not found and len(saved.refused) == 5
    assert "its note cannot be read" in saved.refused[0].reason


def test_attributes_behind_damage_are_missed(tmp_path: Path) -> None:
    """A result of which a block of attributes fails its checksum is not accepted."""

    def put(group: Any, task: int) -> None:
        for number in range(24):
            group.attrs[f"q{number:02d}"] = task + number / 100

    path = write_groups(tmp_path / "w.h5", 3, put, libver="v112")
    content = bytearray(path.read_bytes())
    content[content.find(b"FHDB") + 60] ^= 1
    path.write_bytes(content)
    saved, found = salvaged(path, use_library=False)
    assert len(found) == 2 and len(saved.refused) == 1
    assert "part of it cannot be read: wrong checksum" in saved.refused[0].reason


@pytest.mark.parametrize("zeros", [0, 96], ids=["sound", "no superblock"])
def test_two_names_that_become_one_both_survive(zeros: int, tmp_path: Path) -> None:
    """Values whose names differ only in what no identifier has keep apart, for every reader."""

    def put(group: Any, task: int) -> None:
        group["wake-loss"], group["wake_loss"] = 100.0 + task, 200.0 + task
        group.attrs["wake loss"] = 300.0 + task

    path = write_groups(tmp_path / "w.h5", 3, put)
    zero(path, 0, zeros)
    saved, found = salvaged(path)
    assert not saved.conflicts
    assert found[(1,)] == {"wake_loss": 201.0, "wake_loss_2": 101.0, "wake_loss_3": 301.0}


def test_columns_whose_names_become_one_both_survive(tmp_path: Path) -> None:
    """The same for the columns of a table."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file["seed"], file["a b"], file["a_b"] = np.arange(3), np.arange(3) + 10, np.arange(3) + 20
    _, found = salvaged(path, "seed")
    assert found[(1,)] == {"a_b": 21, "a_b_2": 11}


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_soft_link_is_a_value(libver: str, tmp_path: Path) -> None:
    """What a soft link leads to is a value of its task; one that leads nowhere is missed."""

    def put(group: Any, task: int) -> None:
        group["x"] = 1.0 + task
        group["best"] = h5py.SoftLink("x")
        group["same"] = h5py.SoftLink(f"/s{task}/best")

    path = write_groups(tmp_path / "w.h5", 3, put, libver=libver)
    saved, found = salvaged(path)
    assert found[(2,)] == {"x": 3.0, "best": 3.0, "same": 3.0} and not saved.conflicts
    with h5py.File(path, "a", libver=libver) as file:
        file.move("s1/x", "s1/y")
    saved, found = salvaged(path, accept="unverified", use_library=False)
    (odd,) = (result for result in saved.taken if result.key == {"seed": 1})
    assert "points to" in odd.reason


def test_what_holds_no_value_costs_nothing(tmp_path: Path) -> None:
    """Empty datasets and attributes, and dimensions of netCDF, cost no task its values."""

    def put(group: Any, task: int) -> None:
        group.attrs["TITLE"] = h5py.Empty("S1")
        group["none"] = h5py.Empty("f8")
        about = "This is a netCDF dimension but not a netCDF variable.         3"
        group.create_dataset("x", (3,), ">f4").make_scale(about)
        group["v"] = np.arange(3.0) + task
        group["v"].dims[0].attach_scale(group["x"])

    _, found = salvaged(write_groups(tmp_path / "w.h5", 3, put))
    assert found.keys() == {(0,), (1,), (2,)}
    assert all(result.keys() == {"v"} for result in found.values())


def test_a_dataset_that_all_tasks_share_is_a_value_of_each(tmp_path: Path) -> None:
    """One grid, linked into every group by one name, is no sign of an old link."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file["common"] = np.arange(5.0)
        for task in range(3):
            file[f"s{task}/v"] = 1.0 + task
            file[f"s{task}/grid"] = file["common"]
    _, found = salvaged(path)
    assert all(np.array_equal(found[task,]["grid"], np.arange(5.0)) for task in range(3))


def test_the_last_task_may_lack_its_last_value(tmp_path: Path) -> None:
    """Of two tasks the second has no aep yet: it is not accepted."""

    def put(group: Any, task: int) -> None:
        group["layout"] = np.arange(4.0) + task
        if not task:
            group["aep"] = 7.5

    saved, found = salvaged(write_groups(tmp_path / "w.h5", 2, put))
    assert set(found) == {(0,)}
    assert [result.reason for result in saved.refused] == ["aep may not have been written yet"]


def test_a_value_that_only_some_tasks_have_costs_the_last_at_most(tmp_path: Path) -> None:
    """Tasks without a value that few others have are whole, as far as anybody can tell."""

    def put(group: Any, task: int) -> None:
        group["aep"] = 1.0 + task
        if task in (1, 3):
            group["note"] = 2.0

    _, found = salvaged(write_groups(tmp_path / "w.h5", 8, put))
    assert set(found) == {(task,) for task in range(7)}


def write_one_task_files(folder: Path, lacking: int | None = None) -> None:
    for task in range(3):
        with h5py.File(folder / f"s{task}.h5", "w") as file:
            file["a"] = 1.0 + task
            file.attrs["site"] = f"site {task}"
            if task != lacking:
                file["in/b"] = 2.0 + task


def report_of(folder: Path) -> tuple[SalvageReport, Results]:
    report = salvage_files(sorted(folder.glob("*.h5")), to=folder / "out", key=PATTERN)
    found: Results = {}
    for file in report.files:
        found |= read_results(file.records)
    return report, found


def test_a_file_of_one_task_gives_all_its_groups(tmp_path: Path) -> None:
    """A file of one task has the values of the root group and of every group below."""
    write_one_task_files(tmp_path)
    report, found = report_of(tmp_path)
    assert found[(1,)] == {"a": 2.0, "in_b": 3.0, "site": "site 1"}
    assert len(found) == 3 and report.exit_code == 0


def test_a_file_of_one_task_is_compared_with_the_others(tmp_path: Path) -> None:
    """Of files of one task each, one that lacks a value is not accepted, be it the first."""
    write_one_task_files(tmp_path, lacking=0)
    report, found = report_of(tmp_path)
    assert set(found) == {(1,), (2,)} and report.exit_code == 3
    assert report.files[0].refused[0].reason == "in_b may not have been written yet"


def test_a_result_alone_is_shown_and_not_taken(tmp_path: Path) -> None:
    """A task that nothing says the values of may lack some, unless its file was closed."""
    for libver in ("earliest", "v110"):
        path = write_groups(
            tmp_path / "w.h5", 1, lambda group, n: put_all(group, x=1.0), libver=libver
        )
        saved, found = salvaged(path)
        assert len(found) == (libver == "v110")
        assert [result.reason for result in saved.refused] == [ALONE] * (libver == "earliest")


def test_groups_without_names_are_counted(tmp_path: Path) -> None:
    """Groups that lost their names are so many losses, whether they have datasets or attributes."""

    def put(group: Any, task: int) -> None:
        group.attrs["aep"] = task + 0.5
        if task % 2:
            group["v"] = 1.0 + task

    path = write_groups(tmp_path / "w.h5", 7, put, libver="latest")
    zero_names(path, range(3))
    saved, found = salvaged(path)
    assert saved.evidence == 7 and len(found) + len(saved.losses) + len(saved.refused) == 7
    assert not saved.is_complete


def test_a_name_that_leads_nowhere_is_a_loss(tmp_path: Path) -> None:
    """A task of which only the name is left is counted by its key."""
    path = write_groups(tmp_path / "w.h5", 6, lambda group, n: put_all(group, v=1.0 + n))
    with h5py.File(path) as file:
        place = h5py.h5o.get_info(file["s3"].id).addr
    zero(path, place, 16)
    saved, found = salvaged(path, use_library=False)
    assert len(found) == 5
    assert [loss.key for loss in saved.losses] == [{"seed": 3}]


def test_a_table_that_lacks_part_of_its_directory_is_doubted(tmp_path: Path) -> None:
    """Where columns may be missing, no row is accepted."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        for number in range(12):
            file[f"c{number:02d}"] = np.arange(8.0) + number
        file["seed"] = np.arange(8)
    content = path.read_bytes()
    zero(path, content.find(b"SNOD"), 328)
    saved, found = salvaged(path, "seed", use_library=False)
    assert not found and not saved.is_complete


def test_fletcher_does_not_vouch_for_zeros(tmp_path: Path) -> None:
    """The checksum of a chunk of zeros is zero: where a page was lost, it proves nothing."""
    true = np.random.default_rng(1).uniform(1, 9, (6, 50, 10))

    def put(group: Any, task: int) -> None:
        group.create_dataset("layout", data=true[task], chunks=(50, 10), fletcher32=True)

    aligned = {"alignment_threshold": 1024, "alignment_interval": 4096}
    path = write_groups(tmp_path / "w.h5", 6, put, libver="v110", **aligned)
    with h5py.File(path) as file:
        place = file["s3/layout"].id.get_chunk_info(0).byte_offset
    zero(path, place, 4096)
    _, found = salvaged(path)
    assert (3,) not in found and len(found) >= 4


@pytest.mark.parametrize("kind", ["groups", "columns"])
def test_a_lost_sector_gives_no_values(kind: str, tmp_path: Path) -> None:
    """Zeros as long as a sector, whichever, are not taken for values without a checksum."""
    true = np.random.default_rng(2).uniform(1, 9, (24, 12))
    path = tmp_path / "w.h5"
    with h5py.File(path, "w", libver="v108", meta_block_size=64) as file:
        if kind == "columns":
            file["seed"], file["v"] = np.arange(24), true
        else:
            for task in range(24):
                file[f"s{task}/v"] = true[task]
    content = path.read_bytes()
    key = "seed" if kind == "columns" else PATTERN
    places = sorted({content.find(one.tobytes()) // 512 for one in true})
    for sector in places:
        path.write_bytes(content)
        zero(path, sector * 512, 512)
        (tmp_path / "out").mkdir(exist_ok=True)
        for old in (tmp_path / "out").iterdir():
            old.unlink()
        _, found = salvaged(path, key, use_library=False)
        assert all(np.array_equal(result["v"], true[task]) for (task,), result in found.items())


@pytest.mark.parametrize("values", [600, 610, 620])
def test_the_last_sector_may_be_shorter_and_lost(values: int, tmp_path: Path) -> None:
    """Zeros to the end of the file, from where its last sector begins, are not taken for values."""
    for number in (0, 1):
        with h5py.File(tmp_path / f"s{number}.h5", "w", libver="v110") as file:
            file["cost"] = 2.5
            file["v"] = np.random.default_rng(number).uniform(1, 9, values)
    path = tmp_path / "s1.h5"
    content = path.read_bytes()
    last = len(content) // 512 * 512
    assert 16 < len(content) - last < 500 and content[last - 1]
    path.write_bytes(content[:last] + bytes(len(content) - last))
    report = salvage_files(tmp_path, key=PATTERN, use_library=False)
    assert [file.path for file in report.files if file.taken] == [str(tmp_path / "s0.h5")]


def test_a_column_lost_between_unused_rows_is_doubted(tmp_path: Path) -> None:
    """Zeros in all rows of one file, with room for rows around them, that others do not have."""
    for number in (0, 1):
        with h5py.File(tmp_path / f"w{number}.h5", "w", libver="v110") as file:
            for name, values in (
                ("seed", np.arange(20) + 20 * number + 1),
                ("cost", np.random.default_rng(number).uniform(1, 9, (20, 1))),
                ("steps", np.arange(20) + 7),
            ):
                inner = values.shape[1:]
                settings = {"maxshape": (None, *inner), "chunks": (64, *inner)}
                file.create_dataset(name, data=values, **settings)
            place = file["cost"].id.get_chunk_info(0).byte_offset
    zero(tmp_path / "w1.h5", place, 160)
    report = salvage_files(tmp_path, key="seed", use_library=False)
    assert [len(file.taken) for file in report.files] == [20, 0]


def test_a_column_with_half_a_header_is_missed(tmp_path: Path) -> None:
    """Rows are not taken without a column of which the header is there in part only."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file["seed"], file["aep"], file["note"] = np.arange(9), np.arange(9) + 0.5, np.full(9, 7)
        place = h5py.h5o.get_info(file["aep"].id).addr
    zero(path, place + 88, 168)  # behind its type
    said, found = salvaged(path, "seed", use_library=False)
    assert not found and "aep" in str(said)


def wrong_without_sector(content: bytes, start: int, folder: Path, truth: Results, key: str) -> int:
    """How many results are wrong if a sector of a file is zeros."""
    lost = content[:start] + bytes(512) + content[start + 512 :]
    return salvage_content(lost, folder, truth, key=key, use_library=False).wrong


def test_a_lost_sector_ends_no_text_of_an_array(tmp_path: Path) -> None:
    """Texts that are empty because their sector was lost are not taken for more empty ones."""
    texts = np.array([b"" if at % 3 else b"x%d" % at for at in range(480)], "S5").reshape(40, 12)
    rows = {(task,): {"aep": task - 0.5, "note": row} for task, row in enumerate(texts, start=1)}
    memory = io.BytesIO()  # where h5py lays no metadata together: much unused space lies between
    with h5py.File(memory, "w", libver="latest") as file:
        for (task,), values in rows.items():
            put_all(file.create_group(f"s{task}"), **values)
    truth = {key: {**values, "note": values["note"].astype(str)} for key, values in rows.items()}
    content = memory.getvalue()
    starts = range(512, len(content), 512)
    assert not any(wrong_without_sector(content, at, tmp_path, truth, PATTERN) for at in starts)


def test_a_lost_sector_ends_no_text_before_unused_space(tmp_path: Path) -> None:
    """The room for more rows does not hide that the sector of the last ones was lost."""
    path, texts = tmp_path / "w.h5", [f"x{row}" for row in range(71)]
    columns = {"seed": np.arange(71), "note": np.array(texts, "S5"), "v": np.full(71, 1.5)}
    settings = {"alignment_threshold": 1, "alignment_interval": 512}
    with h5py.File(path, "w", libver="latest", **settings) as file:
        for name, rows in columns.items():
            file.create_dataset(name, data=rows, maxshape=(None,), chunks=(64,))
        place = file["note"].id.get_chunk_info(1).byte_offset
    truth = {(row,): {"note": text, "v": 1.5} for row, text in enumerate(texts)}
    assert not wrong_without_sector(path.read_bytes(), place, tmp_path, truth, "seed")


def test_texts_of_fixed_length_may_end_at_a_page(tmp_path: Path) -> None:
    """The zeros behind a text are part of it, wherever the file has its pages."""

    def put(group: Any, task: int) -> None:
        group.create_dataset("t", data=np.array([b"ab%d" % task] * 40, "S40"))

    _, found = salvaged(write_groups(tmp_path / "w.h5", 24, put, libver="latest"))
    assert len(found) == 24


def test_chunks_that_were_never_written_are_fill_values(tmp_path: Path) -> None:
    """In a file that was closed, a dataset of which parts were never written is whole."""

    def put(group: Any, task: int) -> None:
        values = group.create_dataset("v", (10, 10), "f8", chunks=(5, 5), fillvalue=-1.0)
        values[:5, :5] = task + 1

    _, found = salvaged(write_groups(tmp_path / "w.h5", 6, put, libver="v110"))
    assert len(found) == 6 and found[2,]["v"][7, 7] == -1 and found[2,]["v"][0, 0] == 3


def test_a_text_that_zeros_cut_off_is_missed(tmp_path: Path) -> None:
    """A text of any length with zeros in it is no shorter text."""

    def put(group: Any, task: int) -> None:
        group["v"], group["note"] = 1.0 + task, f"converged after {task} steps"

    path = write_groups(tmp_path / "w.h5", 4, put)
    zero(path, path.read_bytes().find(b"after 2 steps"), 13)
    _, found = salvaged(path, use_library=False)
    assert set(found) == {(0,), (1,), (3,)}


def test_what_is_in_no_task_is_named_and_can_be_left_out(tmp_path: Path) -> None:
    """Rows of another table are no lost tasks; the note says how to leave them out."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        for name in ("seed", "aep", "log/step"):
            rows = np.arange(1.0, 8.0) if name == "log/step" else np.arange(1, 4)
            file.create_dataset(name, data=rows, maxshape=(None,))
    (said,) = salvage_files(path, key="seed").files
    assert (len(said.taken), said.losses) == (3, ())
    (note,) = said.notes
    assert note.startswith("/log/step is in no task")
    skip = note.partition("--skip ")[2].partition(",")[0]
    (quiet,) = salvage_files(path, key="seed", skip=frozenset({skip})).files
    assert quiet.is_quiet and len(quiet.taken) == 3


def test_a_first_key_of_zero_behind_unused_space_is_taken(tmp_path: Path) -> None:
    """Zeros of unused space that begin with a sector are no lost one if data follow in the last."""
    path = tmp_path / "w.h5"
    with h5py.File(path, "w") as file:
        file["seed"], file["aep"] = [0, 1], [0.5, 0.75]
    _, found = salvaged(path, key="seed")
    assert {key: float(values["aep"]) for key, values in found.items()} == {(0,): 0.5, (1,): 0.75}


def test_a_zero_in_the_only_result_of_a_file_may_be_lost(tmp_path: Path) -> None:
    """What one result alone has is no usage: zeros among those of unused space are doubted."""
    for number in range(3):
        with h5py.File(tmp_path / f"w{number}.h5", "w", libver="latest") as file:
            made = {"data": [[3.0, 2.5 + number]], "chunks": (1, 2), "fletcher32": True}
            value = file.create_dataset(f"s{number}/aep", **made)
            file.flush()
            file[f"s{number}"].attrs["title"] = ""
            file[f"s{number}/note"] = 7
            file.flush()
            at = value.id.get_chunk_info(0).byte_offset
    zero(tmp_path / "w0.h5", at // 512 * 512, 512)
    report = salvage_files(tmp_path, key="s{seed:d}", use_library=False)
    assert [len(file.taken) for file in report.files] == [0, 1, 1]
