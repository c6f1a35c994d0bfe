"""Writers that keep their results in other ways: whatever happens, none gives a wrong one."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cases import some_of
from damaged_files import RecordedFile
from h5sweep.salvage.salvage import salvage_files
from h5sweep.salvage.trust_labels import Candidate, Label, Way, judge_results
from h5sweep.worker_files.file_view import Proof
from salvage_checks import Results, read_results, salvaged

TASKS = 40
KEY = "case,seed"
GZIP = {"compression": "gzip"}
LZF = {"compression": "lzf", "shuffle": True}
BYTES = {"x": ((4,), "u1"), "n": ((), "u1")}
ALIKE = {"x": ((4, 2), "f8"), "z": ((4, 2), "f8")}
GZIP_START = b"\x78\x5e"
FLOATS = {"x": ((3, 2), "f8"), "y": ((), "f8"), "cost": ((), "f8")}


def key_of(task: int) -> tuple[int, int]:
    return 1 + task // 4, task % 4


def write_table(
    file: Any,
    truth: Results,
    *,
    columns: dict[str, Any] = FLOATS,
    key_type: str = "i8",
    chunk: int = 64,
    path: str = "/",
    tasks: range = range(TASKS),
    settings: dict[str, Any] = GZIP,
    grows: bool = True,
    parts: int = 1,
    fill: float = 0,
    note: Callable[[], None] = lambda: None,
) -> None:
    """A row a task, appended to columns or put into columns that have their length already."""
    group = file.require_group(path)
    about = {"case": ((), key_type), "seed": ((), key_type), **columns}
    for name, (inner, dtype) in reversed(about.items()):
        rows, most = (0, (None, *inner)) if grows else (len(tasks), None)
        side = min(chunk if name in KEY else chunk // 4, rows or chunk)
        chunks = (side, *(max(n // parts, 1) for n in inner))
        group.create_dataset(
            name, (rows, *inner), dtype, maxshape=most, chunks=chunks, fillvalue=fill, **settings
        )
    file.flush()
    for row, task in enumerate(tasks):
        chance = np.random.default_rng(task)
        values = dict(zip(("case", "seed"), key_of(task), strict=True))
        result = {
            name: np.asarray(chance.uniform(100, 200, inner)).astype(dtype)
            for name, (inner, dtype) in columns.items()
        }
        for name, value in reversed({**values, **result}.items()):
            if grows:
                group[name].resize(row + 1, axis=0)
            group[name][row] = value
        truth[key_of(task)] = result
        file.flush()
        note()


def recorded(libver: str = "earliest", **about: Any) -> tuple[list[bytes], Results]:
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w", libver=libver) as file:
        write_table(file, truth, **about)
    return recorder.states, truth


ODD_TABLES: dict[str, dict[str, Any]] = {
    "columns of as many bytes, but other rows": {"columns": BYTES, "key_type": "u1"},
    "small chunks": {"chunk": 8},
    "chunks of one row": {"chunk": 4},
    "lzf": {"settings": LZF},
    "lzf latest": {"settings": LZF, "libver": "latest"},
    "rows in several chunks": {"parts": 2, "chunk": 32},
    "fill values that are not zero": {"fill": -999},
    "rows there from the beginning": {"settings": {}, "grows": False},
    "rows there from the beginning, gzip": {"grows": False, "libver": "latest"},
}


@pytest.mark.parametrize("style", some_of(ODD_TABLES, 3))
def test_a_killed_writer_of_a_table_gives_nothing_wrong(style: str, tmp_path: Path) -> None:
    """After any write, what comes back of a table is what was written, under its own key."""
    states, truth = recorded(**ODD_TABLES[style])
    for content in states[::9]:
        if len(content) > 48:
            salvaged(content, tmp_path, truth, is_open=True)


@pytest.mark.parametrize("style", ODD_TABLES)
def test_a_table_that_was_closed_gives_every_row(style: str, tmp_path: Path) -> None:
    """Whatever its chunks are like, a sound table comes back whole."""
    states, truth = recorded(**ODD_TABLES[style])
    assert salvaged(states[-1], tmp_path, truth) == TASKS


ONE_OF_A_KIND = {"x": ((3, 2), "f8"), "y": ((), "f8")}
FLUSHED: dict[str, dict[str, Any]] = {
    "plain": {"columns": ONE_OF_A_KIND},
    "fill values that are not zero": {"columns": ONE_OF_A_KIND, "fill": -999},
    "small chunks": {"chunk": 8},
    "lzf": {"columns": ONE_OF_A_KIND, "settings": LZF},
    "lzf, not shuffled": {
        "columns": ONE_OF_A_KIND,
        "chunk": 256,
        "settings": {"compression": "lzf"},
    },
}


@pytest.mark.parametrize("style", FLUSHED)
def test_packed_rows_come_back_without_a_list_of_tasks(style: str, tmp_path: Path) -> None:
    """After any write, nearly all rows that were flushed come back, by their key alone."""
    recorder, truth, ends = RecordedFile(), Results(), list[int]()
    with h5py.File(recorder, "w") as file:
        note = lambda: ends.append(len(recorder.states) - 1)  # noqa: E731 (a name for one line)
        write_table(file, truth, **FLUSHED[style], tasks=range(20), note=note)
    flushed = right = 0
    for number in range(ends[1], len(recorder.states), 17):
        rows = bisect_right(ends, number)
        flushed += rows
        right += min(salvaged(recorder.states[number], tmp_path, truth), rows)
    assert right >= 0.85 * flushed


def test_an_end_of_lzf_at_the_beginning_of_another_is_noticed(tmp_path: Path) -> None:
    """Zeros at the end of one stream in the place of the first key of another are no key."""
    keys = {"case": [1, 1, 2], "seed": [1, 2, 1]}
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        for name, values in {"x": [5.0, 6.0, 7.0], **keys}.items():
            file.create_dataset(
                *(name, (3,), "f8" if name == "x" else "i8"),
                maxshape=(None,),
                chunks=(64,),
                compression="lzf",
            )[...] = values
        truth.update({(1, 1): {"x": 5.0}, (1, 2): {"x": 6.0}, (2, 1): {"x": 7.0}})
        case, seed = (file[name].id.get_chunk_info(0) for name in keys)
    content = bytearray(recorder.getvalue())
    assert salvaged(bytes(content), tmp_path, truth) == 3
    begin, at = case.byte_offset, seed.byte_offset
    stream = content[begin : begin + case.size]
    assert stream[-3:] == b"\x01\0\0" and content[at : at + 3] == b"\x01\x01\0"
    content[at + 3 - case.size : at + 3] = stream  # before `seed` there is unused space
    assert salvaged(bytes(content), tmp_path, truth) == 0


def test_flushes_of_several_rows_give_nothing_wrong(tmp_path: Path) -> None:
    """Where more chunks than the last were written since a flush, none is another's."""
    for libver in ("earliest", "v108"):
        recorder, truth = RecordedFile(), Results()
        with h5py.File(recorder, "w", libver=libver) as file:
            write_rarely(file, truth, forget=recorder.states.clear)
        for content in recorder.states:
            salvaged(content, tmp_path, truth, is_open=True)


def write_rarely(file: Any, truth: Results, forget: Callable[[], None]) -> None:
    """Rows of small numbers in small chunks, flushed after seven of them."""
    for name, dtype in (("x", "f4"), ("seed", "i4"), ("case", "i4")):
        file.create_dataset(name, (0,), dtype, maxshape=(None,), chunks=(4,), shuffle=True, **GZIP)
    for task in range(24):
        case, seed = 1 + task // 5, task % 5
        for name, value in (("x", task + 1.0), ("seed", seed), ("case", case)):
            file[name].resize(task + 1, axis=0)
            file[name][task] = value
        truth[case, seed] = {"x": np.asarray(task + 1, "f4")}
        if task % 7 == 6:
            file.flush()
        if task == 6:
            forget()  # what the file was before the first flush


def test_a_bad_stream_costs_the_rows_of_its_chunk_alone(tmp_path: Path) -> None:
    """One gzip chunk that can't be inflated is lost; all rows of others come back."""
    states, truth = recorded(chunk=4)
    for name, lost in (("case", 4), ("x", 1), ("cost", 1)):
        for place in chunk_places(states[-1], name)[:-1:3]:
            assert salvaged(spoilt(states[-1], place), tmp_path, truth) == TASKS - lost


@pytest.mark.parametrize("chunk", [4, 16])
def test_a_bad_stream_of_a_killed_writer_gives_nothing_wrong(chunk: int, tmp_path: Path) -> None:
    """Where streams were moved, and one is damaged as well, none is taken for another chunk."""
    states, truth = recorded(chunk=chunk, tasks=range(12))
    for number, content in enumerate(states[100::23]):
        streams = list(find_all(content, GZIP_START))
        for at in streams[number % 5 :: 5]:
            salvaged(spoilt(content, at), tmp_path, truth, is_open=True)


def test_a_kill_costs_no_row_of_chunks_that_were_full(tmp_path: Path) -> None:
    """Which stream is which of the last chunks may be unknown; those before them are as written."""
    states, truth = recorded(chunk=8, tasks=range(12))
    for content in states[-50::4]:  # the first 8 rows were followed by others
        assert salvaged(content, tmp_path, truth, is_open=True) >= 8


def chunk_places(content: bytes, name: str) -> list[int]:
    with h5py.File(io.BytesIO(content)) as file:
        about = file[name].id
        return [about.get_chunk_info(n).byte_offset for n in range(about.get_num_chunks())]


def spoilt(content: bytes, at: int) -> bytes:
    """Invert bytes within the gzip stream that begins there."""
    return (
        content[: at + 8] + bytes(b ^ 0xFF for b in content[at + 8 : at + 12]) + content[at + 12 :]
    )


def test_chunks_of_one_row_that_are_written_again_give_nothing_wrong(tmp_path: Path) -> None:
    """Rows that are replaced by others of other sizes move their chunks: none is another's."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        write_table(file, truth, chunk=4, tasks=range(8), columns=ALIKE)
        before = len(recorder.states)
        for row in (7, 3, 6, 0):
            for name in ALIKE:
                file[name][row] = file[name][row].round(row % 3)
                file[name].id.flush()
            file.flush()
    both = {
        key: (values, {n: v.round(row % 3) for n, v in values.items()})
        for row, (key, values) in enumerate(truth.items())
    }
    for content in recorder.states[before:]:
        for key, found in results_of(content, tmp_path).items():
            for name, value in found.items():
                assert any(np.array_equal(value, values[name]) for values in both[key]), (key, name)


def results_of(content: bytes, folder: Path) -> Results:
    path = folder / "worker.h5"
    path.write_bytes(content)
    (report,) = salvage_files(path, to=folder / "out", key=KEY, use_library=False).files
    found = read_results(report.records) if report.records else Results()
    for old in (folder / "out").glob("*.records"):
        old.unlink()
    return found


def test_a_lost_index_does_not_mix_chunks(tmp_path: Path) -> None:
    """Where too many streams may be too many chunks to try them all, none is taken."""
    states, truth = recorded("latest", chunk=8)
    places = list(find_all(states[-1], b"EADB"))
    assert places
    for at in places:
        content = bytearray(states[-1])
        content[at + 40] ^= 0xFF
        salvaged(bytes(content), tmp_path, truth)


def find_all(content: bytes, what: bytes) -> Iterator[int]:
    at = content.find(what)
    while at >= 0:
        yield at
        at = content.find(what, at + 1)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_tables_whose_chunks_are_alike_give_everything(libver: str, tmp_path: Path) -> None:
    """Two tables in a file, and chunks of one column that hold the same, cost nothing."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w", libver=libver) as file:
        write_table(file, truth, path="one", tasks=range(20), chunk=8)
        write_table(file, truth, path="two", tasks=range(20, 40))
    assert salvaged(recorder.getvalue(), tmp_path, truth) == TASKS


def test_groups_whose_datasets_may_grow_are_no_tables(tmp_path: Path) -> None:
    """A group a task with gzip data that may grow gives every task, and no search among streams."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        for task in range(TASKS):
            group = file.create_group(f"t{task}")
            group.attrs.update(dict(zip(("case", "seed"), key_of(task), strict=True)))
            x = np.random.default_rng(task).normal(size=(50, 2))
            group.create_dataset("x", data=x, maxshape=(None, 2), chunks=(64, 2), **GZIP)
            truth[key_of(task)] = {"x": x}
    assert salvaged(recorder.getvalue(), tmp_path, truth) == TASKS


def test_a_file_that_ends_in_zeros_gives_what_lies_before(tmp_path: Path) -> None:
    """Zeros from the midst of a value to the end of the file are no values, of however many."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        for task in range(3):
            group = file.create_group(f"t{task}")
            group.attrs.update(dict(zip(("case", "seed"), key_of(task), strict=True)))
            group["x"] = np.random.default_rng(task).normal(size=(50, 2))
            truth[key_of(task)] = {"x": group["x"][...]}
        data = [group["x"].id.get_offset() for group in file.values()]
    content = recorder.getvalue()
    for start in data:
        cut = content[: start + 400]
        salvaged(cut + bytes(len(content) - len(cut) + 8192), tmp_path, truth)


@pytest.mark.parametrize("settings", some_of([{"shuffle": True}, {}], 2), ids=["shuffled", "plain"])
def test_a_lost_page_within_a_chunk_gives_nothing_wrong(settings: Any, tmp_path: Path) -> None:
    """Hundreds of single numbers that are zero, of values or of keys, are no values: a page is."""
    rows, truth = 1100, Results()
    values = {
        name: np.random.default_rng(place).uniform(1, 2, rows) for place, name in enumerate("xyz")
    }
    keys = {"case": np.full(rows, 7), "seed": np.arange(1, rows + 1)}
    recorder = RecordedFile()
    with h5py.File(recorder, "w", libver="latest") as file:
        for name, column in {**keys, **values}.items():
            file.create_dataset(name, data=column, maxshape=(None,), chunks=(2048,), **settings)
    for row in range(rows):
        key = int(keys["case"][row]), int(keys["seed"][row])
        truth[key] = {name: column[row] for name, column in values.items()}
    content = recorder.getvalue()
    assert settings or salvaged(content, tmp_path, truth) == rows
    for start in range(0, len(content), 4096):
        lost = content[:start] + bytes(len(content[start : start + 4096])) + content[start + 4096 :]
        salvaged(lost, tmp_path, truth)


@pytest.mark.exhaustive
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_column_of_nothing_but_zeros_costs_no_row(libver: str, tmp_path: Path) -> None:
    """A status that is 0 in all rows is so in those whose page has nothing else, too."""
    rows, truth = 1450, Results()
    columns = {"x": np.random.default_rng(1).uniform(1, 2, rows), "status": np.zeros(rows, "i1")}
    keys = {"case": np.full(rows, 7), "seed": np.arange(1, rows + 1)}
    recorder = RecordedFile()
    with h5py.File(recorder, "w", libver=libver) as file:
        for name, column in {**keys, **columns}.items():
            file.create_dataset(name, data=column[:1000], maxshape=(None,), chunks=(1024,))
        for name, column in {**keys, **columns}.items():
            file[name].resize((rows,))
            file[name][1000:] = column[1000:]
            file.flush()
        content = recorder.getvalue()  # it was never closed
    for row in range(rows):
        truth[7, row + 1] = {name: column[row] for name, column in columns.items()}
    assert salvaged(content, tmp_path, truth) == rows
    for start in range(0, len(content), 4096):
        lost = content[:start] + bytes(len(content[start : start + 4096])) + content[start + 4096 :]
        salvaged(lost, tmp_path, truth)


SORTED = {
    "farms": (np.repeat([0, 1], 1100), 4096),
    "farms, small chunks": (np.repeat([0, 1], 1100), 800),
    "kinds of each farm": (np.tile(np.repeat([0, 1], 1030), 2), 4096),
    "never": (np.repeat([2, 1], 1100), 4096),
}


@pytest.mark.parametrize("kind", some_of(SORTED, 3))
def test_zeros_for_hundreds_of_rows_are_values(kind: str, tmp_path: Path) -> None:
    """A parameter may be zero for long, in pages of zeros; a page that was lost gives none."""
    column, chunk = SORTED[kind]
    content, truth = _table({"case": column}, chunk)
    assert salvaged(content, tmp_path, truth) >= 0.95 * len(column)
    for start in range(8192, min(len(content), 8192 + len(column) * 8), 2 * 4096):
        salvaged(content[:start] + bytes(4096) + content[start + 4096 :], tmp_path, truth)


@pytest.mark.exhaustive
def test_rare_values_are_not_taken_for_zeros_where_a_page_is_lost(tmp_path: Path) -> None:
    """Zeros around a page say nothing of a column that is not zero now and then."""
    flag = (np.arange(2200) % 97 == 50).astype("i8")
    content, truth = _table({"flag": flag}, 4096)
    for start in range(8192, len(content) - 4096, 2 * 4096):
        salvaged(content[:start] + bytes(4096) + content[start + 4096 :], tmp_path, truth)


def _table(columns: dict[str, Any], chunk: int) -> tuple[bytes, Results]:
    """Rows told apart by `case` and `seed`; each column is a result, or part of the key."""
    rows = len(next(iter(columns.values())))
    every = {"case": np.full(rows, 7), **columns, "seed": np.arange(1, rows + 1)}
    every["x"] = np.random.default_rng(1).uniform(1, 2, rows)
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w", libver="latest") as file:
        for name, values in every.items():
            file.create_dataset(name, data=values, maxshape=(None,), chunks=(chunk,))
    for row in range(rows):
        key = int(every["case"][row]), int(every["seed"][row])
        truth[key] = {name: every[name][row] for name in every if name not in ("case", "seed")}
    return recorder.getvalue(), truth


def test_a_table_of_endless_rows_comes_to_an_end(tmp_path: Path) -> None:
    """Columns that claim more rows than there can be give those that are there."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        for name in (*KEY.split(","), "x"):
            file.create_dataset(name, (1 << 40,), "i8", chunks=(16,), **GZIP)
            file[name][:16] = np.arange(1, 17)
        truth.update({(n, n): {"x": np.asarray(n)} for n in range(1, 17)})
    assert salvaged(recorder.getvalue(), tmp_path, truth) == 16


def test_a_chunk_far_behind_all_others_is_not_believed(tmp_path: Path) -> None:
    """A damaged index may place one anywhere: rows up to there are not looked for."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        for name in (*KEY.split(","), "x"):
            file.create_dataset(name, (1 << 40,), "i8", chunks=(16,), **GZIP)
            file[name][:16] = np.arange(1, 17)
            file[name][-1] = 5
        truth.update({(n, n): {"x": np.asarray(n)} for n in range(1, 17)})
    assert salvaged(recorder.getvalue(), tmp_path, truth) == 16


def test_zeros_in_a_table_of_endless_rows_come_to_an_end(tmp_path: Path) -> None:
    """Whether zeros are values is asked of the rows that there can be."""
    recorder, truth, rows = RecordedFile(), Results(), 2200
    x = np.repeat([0, 1], rows // 2)
    with h5py.File(recorder, "w") as file:
        for name in (*KEY.split(","), "x"):
            file.create_dataset(name, (1 << 40,), "i8", chunks=(rows,))
            file[name][:rows] = x if name == "x" else np.arange(1, rows + 1)
        truth.update({(n + 1, n + 1): {"x": np.asarray(x[n])} for n in range(rows)})
    assert salvaged(recorder.getvalue(), tmp_path, truth) >= rows / 2


def candidate(number: int, shape: tuple[int, ...], proof: Proof) -> Candidate:
    form = (("x", "<f8", shape),)
    return Candidate({"seed": number}, f"/t{number}", Way.CARVED, form, proof)


def test_a_checksum_does_not_vouch_for_a_link() -> None:
    """A result of another kind than all others is not verified: its link may be an old one."""
    results = [candidate(number, (), Proof.CHECKSUM) for number in range(5)]
    odd = candidate(5, (24, 2), Proof.CHECKSUM)
    judge_results([*results, odd])
    assert odd.label is Label.UNVERIFIED
    assert all(result.label is Label.VERIFIED for result in results)


def test_a_dataset_of_two_names_is_doubted(tmp_path: Path) -> None:
    """Two tasks that have one dataset by different names: one of their links is an old one."""
    recorder, truth = RecordedFile(), Results()
    with h5py.File(recorder, "w") as file:
        for task in range(4):
            group = file.create_group(f"t{task}")
            group.attrs.update(dict(zip(("case", "seed"), key_of(task), strict=True)))
            group["x"], group["y"] = float(task), 10.0 + task
            truth[key_of(task)] = {"x": np.asarray(float(task)), "y": np.asarray(10.0 + task)}
        del file["t3/y"]
        file["t3/y"] = file["t2/x"]
    assert salvaged(recorder.getvalue(), tmp_path, truth) == 2


def test_a_chunk_of_another_size_than_all_is_lost(tmp_path: Path) -> None:
    """An index that gives a chunk at the end of a cut file too few bytes costs its rows alone."""
    states, truth = recorded(settings={}, chunk=32)
    content = bytearray(states[-1])
    sizes = list(find_all(bytes(content), (32 * 8).to_bytes(4, "little") + bytes(12)))
    for at in sizes:
        content[at : at + 4] = (1).to_bytes(4, "little")
    assert sizes
    for cut in range(2048, len(content), 512):
        salvaged(bytes(content[:cut]), tmp_path, truth)
