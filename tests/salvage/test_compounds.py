"""Tables of compounds, a row a task in one dataset: whatever happens, none gives a wrong one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cases import some_of
from damaged_files import RecordedFile
from h5sweep.salvage.carved_datasets import CarvedVariable
from h5sweep.salvage.salvage import salvage_files
from h5sweep.worker_files import file_view as file_view
from salvage_checks import Results, read_results, salvaged
from terminal import Terminal

TASKS = 40
KEYS = [("case", "S8"), ("seed", "i8")]
VALUES = [("x", "f8", (6, 2)), ("cost", "f8"), ("steps", "i4")]
ROW = np.dtype([*VALUES[:1], *KEYS, *VALUES[1:]])
GZIP = {"compression": "gzip"}
ALL_FILTERS = {"compression": "gzip", "shuffle": True, "fletcher32": True}


def key_of(task: int) -> tuple[str, int]:
    return f"farm{task % 3}", task // 3


def row_of(task: int, dtype: Any = ROW) -> Any:
    chance = np.random.default_rng(task)
    row = np.zeros((), dtype)
    for name in dtype.names:
        row[name] = chance.uniform(100, 200, dtype[name].shape)
    row["case"], row["seed"] = key_of(task)
    return row


def result_of(row: Any) -> dict[str, Any]:
    return {name: row[name] for name in row.dtype.names if name not in ("case", "seed")}


def truth_of(tasks: int = TASKS, dtype: Any = ROW) -> Results:
    return {key_of(task): result_of(row_of(task, dtype)) for task in range(tasks)}


def append_rows(table: Any, tasks: int) -> Iterator[None]:
    for task in range(tasks):
        table.resize(task + 1, axis=0)
        table[task] = row_of(task, table.dtype)
        yield


def append_fields(table: Any, tasks: int) -> Iterator[None]:
    """Field by field, with a flush between them."""
    for task in range(tasks):
        table.resize(task + 1, axis=0)
        row = row_of(task, table.dtype)
        for name in ("case", "seed", *(n for n in row.dtype.names if n not in ("case", "seed"))):
            table[task, name] = np.array([(row[name],)], [(name, row.dtype[name])])
            yield


def append_blocks(table: Any, tasks: int) -> Iterator[None]:
    """Room for eight rows is made at a time."""
    for task in range(tasks):
        if task % 8 == 0:
            table.resize(task + 8, axis=0)
        table[task] = row_of(task, table.dtype)
        yield


def fill_rows(table: Any, tasks: int) -> Iterator[None]:
    for task in range(tasks):
        table[task] = row_of(task, table.dtype)
        yield


def recorded(
    write: Any = append_rows,
    *,
    libver: str = "earliest",
    dtype: Any = ROW,
    rows: int = 0,
    tasks: int = TASKS,
    chunks: Any = (8,),
    **settings: Any,
) -> list[bytes]:
    """The file after every write; with `rows`, all of these are there from the beginning."""
    recorder = RecordedFile()
    about = {"chunks": chunks, **({} if rows else {"maxshape": (None,)}), **settings}
    with h5py.File(recorder, "w", libver=libver) as file:
        table = file.create_dataset("run/results", (rows,), dtype, **about)
        file.flush()
        for _ in write(table, tasks):
            file.flush()
    return recorder.states


WRITERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "latest": {"libver": "latest"},
    "gzip": GZIP,
    "gzip latest": {"libver": "latest", **GZIP},
    "all filters": {"libver": "latest", **ALL_FILTERS},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "field by field": {"write": append_fields, "tasks": 12},
    "field by field, gzip": {"write": append_fields, "tasks": 20, **GZIP},
    "room for more, gzip": {"write": append_blocks, **GZIP},
    "room for more": {"write": append_blocks, "libver": "latest"},
    "contiguous": {"write": fill_rows, "rows": 50, "chunks": None},
    "fixed": {"write": fill_rows, "rows": 50},
    "fixed latest, gzip": {"write": fill_rows, "rows": 50, "libver": "latest", **GZIP},
    "a fill value": {"fillvalue": row_of(1000)},
    "chunks of one row": {"chunks": (1,), **GZIP},
}


@pytest.mark.parametrize("style", some_of(WRITERS, 5))
def test_a_killed_writer_of_compounds_gives_nothing_wrong(style: str, tmp_path: Path) -> None:
    """After any write, what comes back is what was written, under its own key."""
    states, truth = recorded(**WRITERS[style]), truth_of()
    for content in states[::5]:
        if len(content) > 48:
            salvaged(content, tmp_path, truth, is_open=True)


@pytest.mark.parametrize("style", WRITERS)
def test_a_closed_table_of_compounds_gives_all_rows(style: str, tmp_path: Path) -> None:
    """All rows of every layout, except where one row is as good as the next."""
    about = WRITERS[style]
    tasks = about.get("tasks", TASKS)
    least = tasks - {"chunks of one row": 2}.get(style, 0)
    assert salvaged(recorded(**about)[-1], tmp_path, truth_of()) >= least


@pytest.mark.parametrize("style", some_of(WRITERS, 5))
def test_a_lost_page_of_compounds_gives_nothing_wrong(style: str, tmp_path: Path) -> None:
    """Rows that lie in a page of zeros, with any part of them, are not taken."""
    content, truth = recorded(**WRITERS[style])[-1], truth_of()
    for start in range(0, len(content), 4096):
        lost = bytes(len(content[start : start + 4096]))
        salvaged(content[:start] + lost + content[start + 4096 :], tmp_path, truth)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_page_of_small_rows_is_lost_alone(libver: str, tmp_path: Path) -> None:
    """Of rows of a few numbers, those of other pages come back, and those at its edges do not."""
    dtype, rows = np.dtype([*KEYS, ("x", "f8"), ("y", "f8"), ("z", "f8")]), 1000
    recorder = RecordedFile()
    with h5py.File(recorder, "w", libver=libver) as file:
        data = np.array([row_of(task, dtype) for task in range(rows)])
        file.create_dataset("results", data=data, maxshape=(None,), chunks=(1024,))
    content, truth = recorder.getvalue(), truth_of(rows, dtype)
    counts = []
    for start in range(0, len(content), 4096):
        lost = bytes(len(content[start : start + 4096]))
        damaged = content[:start] + lost + content[start + 4096 :]
        counts.append(salvaged(damaged, tmp_path, truth))
    assert sum(count >= rows - 4096 // dtype.itemsize - 2 for count in counts) >= len(counts) - 2


def test_rows_that_were_not_written_are_not_taken(tmp_path: Path) -> None:
    """Rows behind the last, half of a row, and room that was made, are no results."""
    for style in ("field by field", "room for more", "contiguous"):
        about = WRITERS[style]
        tasks = about.get("tasks", TASKS)
        states, truth = recorded(**{**about, "tasks": tasks}), truth_of()
        counts = [salvaged(content, tmp_path, truth) for content in states[-30:]]
        assert tasks >= max(counts) >= tasks - 1


def test_rows_without_a_chunk_are_no_second_opinion(tmp_path: Path) -> None:
    """Where no index has a chunk, the library gives fill values: no task, and no other's key."""
    dtype = np.dtype([("case", "S8"), ("seed", "i8"), ("x", "f8")])
    path = tmp_path / "worker.h5"
    with h5py.File(path, "w") as file:
        table = file.create_dataset("results", (8,), dtype, maxshape=(None,), chunks=(8,))
        for row in range(8):
            table[row] = ("", row, row + 0.5)
        table.resize(9, axis=0)
    report = salvage_files(path, to=tmp_path / "out", key="case,seed")
    assert report.recovered == 8 and not report.files[0].conflicts


def test_two_tables_of_the_same_kind_are_not_mixed(tmp_path: Path) -> None:
    """Streams of one may be chunks of the other: then the indexes alone count."""
    recorder, truth = RecordedFile(), truth_of()
    with h5py.File(recorder, "w") as file:
        for name, tasks in (("one", range(20)), ("two", range(20, 40))):
            settings = {"maxshape": (None,), "chunks": (8,), **GZIP}
            table = file.create_dataset(name, (0,), ROW, **settings)
            for row, task in enumerate(tasks):
                table.resize(row + 1, axis=0)
                table[row] = row_of(task)
                file.flush()
    for content in recorder.states[::5]:
        if len(content) > 96:
            salvaged(content, tmp_path, truth)
    assert salvaged(recorder.states[-1], tmp_path, truth) == TASKS


def test_compounds_in_the_group_of_a_task_are_values(tmp_path: Path) -> None:
    """A group that is a task may hold compounds with fields called like the key."""
    with h5py.File(tmp_path / "worker.h5", "w") as file:
        for seed in range(4):
            group = file.create_group(f"t{seed}")
            group.attrs["seed"] = seed
            group["history"] = np.array([(9, 1.5), (8, 2.5)], [("seed", "i8"), ("x", "f8")])
    found = salvaged_results(tmp_path, key="seed")
    assert list(found) == [(seed,) for seed in range(4)]
    assert found[2,]["history_seed"].tolist() == [9, 8]


def test_fields_of_every_kind_become_values(tmp_path: Path) -> None:
    """Texts of any length, truth values, compounds in compounds: what `read` gives, by name."""
    inner = np.dtype([("a", "f4"), ("b", ">i2")])
    texts = h5py.string_dtype()
    dtype = [("seed", "u2"), ("note", texts), ("ok", "?"), ("at", inner), ("z", "c16")]
    with h5py.File(tmp_path / "worker.h5", "w", libver="latest") as file:
        table = file.create_dataset("results", (3,), dtype)
        for seed in range(3):
            row = np.zeros((), table.dtype)
            row["seed"], row["note"], row["ok"], row["z"] = (
                seed,
                f"note {seed}",
                seed % 2,
                seed + 1j,
            )
            row["at"] = (seed + 0.5, -seed - 1)
            table[seed] = row
    found = salvaged_results(tmp_path, key="seed")
    assert {key: result["note"].item() for key, result in found.items()} == {
        (seed,): f"note {seed}" for seed in range(3)
    }
    assert found[1,]["ok"].item() is True and found[2,]["z"] == 2 + 1j
    assert (found[2,]["at_a"], found[2,]["at_b"]) == (2.5, -3)


def test_a_table_of_pytables_gives_its_rows(tmp_path: Path) -> None:
    """With and without compression, flushed and closed, its first bytes lost."""
    tables = pytest.importorskip("tables")
    for complevel in (0, 5):
        path = tmp_path / "worker.h5"
        filters = tables.Filters(complevel=complevel, complib="zlib", shuffle=True)
        with tables.open_file(path, "w", filters=filters) as file:
            table = file.create_table("/runs", "results", ROW, createparents=True)
            table.append(np.array([row_of(task) for task in range(TASKS)]))
        content = path.read_bytes()
        assert salvaged(content, tmp_path, truth_of()) == TASKS
        assert salvaged(bytes(96) + content[96:], tmp_path, truth_of()) == TASKS


def test_without_a_key_the_report_names_the_fields(tmp_path: Path) -> None:
    """So that one sees what --key may be."""
    path = tmp_path / "worker.h5"
    path.write_bytes(recorded()[-1])
    (file,) = salvage_files(path, use_library=False).files
    assert not file.taken and "seed" in " ".join(file.notes)


def salvaged_results(folder: Path, key: str) -> Results:
    """What comes out of a file, which both readers must see alike."""
    path, to = folder / "worker.h5", folder / "out"
    report = salvage_files(path, to=to, key=key)
    assert not report.files[0].conflicts
    assert all(candidate.confirmed_by for candidate in report.files[0].taken)
    return read_results(report.files[0].records)


def test_many_rows_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A healthy table is not read row by row, and gives what it would give so."""
    rows, reads = np.zeros(3000, [("farm", "i4"), ("seed", "i8"), ("x", "f8", (2,))]), []
    rows["seed"], rows["x"] = np.arange(3000), 1.5
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=rows, chunks=(500,), compression="gzip", maxshape=(None,))
    read = CarvedVariable.read
    monkeypatch.setattr(CarvedVariable, "read", lambda *it: reads.append(it) or read(*it))
    many = _answer(path, "farm,seed")
    assert len(reads) < 20
    monkeypatch.setattr(file_view, "ROWS_AT_ONCE", 1)
    assert _answer(path, "farm,seed") == many and len(many[0]) == 3000
    assert len(reads) >= 3000


@pytest.mark.parametrize("filters", [{}, {"chunks": (64,)}, {"chunks": (64,), **GZIP}])
@pytest.mark.parametrize("damage", ["none", "page", "cut", "flipped"])
def test_rows_read_at_once_are_as_read_alone(
    filters: Any, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, values, labels, reasons and losses are the same, whatever happened to the file."""
    chance = np.random.default_rng(7)
    rows = np.zeros(700, [("farm", "S4"), ("seed", "i8"), ("x", "f8", (3,)), ("ok", "?")])
    rows["farm"], rows["seed"] = b"f1", np.arange(700) % 650
    rows["x"][50:], rows["ok"] = chance.random((650, 3)), chance.random(700) < 0.5
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("t", data=rows, **filters)
    content = bytearray(path.read_bytes())
    if damage == "page":
        content[8192:12288] = bytes(len(content[8192:12288]))
    elif damage == "cut":
        del content[-3000:]
    elif damage == "flipped":
        content[-1000] ^= 0xFF
    path.write_bytes(content)
    many = _answer(path, "farm,seed")
    monkeypatch.setattr(file_view, "ROWS_AT_ONCE", 1)
    assert _answer(path, "farm,seed") == many and any(many)


def _answer(path: Path, key: str) -> tuple[Any, ...]:
    (file,) = salvage_files(path, key=key, use_library=False).files
    found = [
        [(c.key, c.place, c.way, c.label, c.reason, c.digest) for c in some]
        for some in (file.taken, file.refused)
    ]
    return (*found, file.losses, file.conflicts)


def test_a_file_of_very_many_rows_is_named_early(terminal: Terminal) -> None:
    """What is small on disk may take long: the file, its rows and a way out are told at once."""
    rows = np.zeros(100_001, [("seed", "i8"), ("x", "f8")])
    with h5py.File(terminal.folder / "big.h5", "w") as file:
        file.create_dataset("t", data=rows, chunks=(10_000,), compression="gzip")
    done = terminal.run("salvage", "big.h5", "--key", "seed")
    assert "big.h5: reading 100,001 rows, each as one task" in done.stderr
    assert "stop with Ctrl-C and leave it out" in done.stderr
