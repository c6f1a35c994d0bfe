"""`check` says what state a file is in, why, what is inside, and what to do next."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5sweep
from cases import some_of
from check_samples import SAMPLES, change, flip, write_columns, write_groups
from h5sweep.base.key_pattern import KeyPattern
from h5sweep.base.plan import plan_product
from h5sweep.check.check import check_files
from h5sweep.check.report import report_text
from h5sweep.errors import UsageError
from h5sweep.hdf5.superblock import SIGNATURE
from h5sweep.runfolder.records import MAGIC
from h5sweep.worker_files.findings import RULES, State
from h5sweep.worker_files.first_bytes import RECORDS_MAGIC
from terminal import Terminal

STATES = {rule.code: rule.state for rule in RULES}


def codes_of(report: Any) -> set[str]:
    (file,) = report.files
    return {finding.code for finding in file.findings}


@pytest.mark.parametrize("code", SAMPLES)
def test_finds(code: str, tmp_path: Path) -> None:
    """Each finding is found in a file that has it, and puts it in the state it should."""
    sample = SAMPLES[code]
    path = tmp_path / "worker_1.h5"
    sample.make(path)
    before = path.read_bytes()
    (file,) = check_files(path, **sample.options).files
    assert code in {finding.code for finding in file.findings}
    assert file.state is STATES[code]
    assert path.read_bytes() == before


def test_files_cannot_be_read(tmp_path: Path) -> None:
    """A link that leads nowhere, and a file that nobody may read, are named and passed over."""
    (tmp_path / "gone.h5").symlink_to(tmp_path / "nowhere.h5")
    write_groups(tmp_path / "good.h5")
    report = check_files([tmp_path / "gone.h5", tmp_path / "good.h5"])
    assert [file.state for file in report.files] == [State.DAMAGED, State.SOUND]
    assert report.files[0].findings[0].code == "D113"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"CDF\x01rest", "netCDF-3"),
        (b"\x1f\x8b\x08\0rest", "gzip"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "git-lfs"),
        (bytes(5000), "zeros"),
        (bytes(257) + b"ustar".ljust(255, b"\0") + SIGNATURE + bytes(500), "tar archive"),
        (pickle.dumps([1, 2], protocol=5), "pickle"),
        (b"GRIB\0\0\0\2rest", "GRIB"),
        (SIGNATURE[1::-1] + b"FD\n\r\n\x1arest", "swapped"),
        ("farm,seed,aep\n1,2,3\nä\n".encode(), "text"),
        (b'{"a": 1}', "JSON"),
        (os.urandom(3000).replace(b"\x89", b"\0"), "not HDF5"),
    ],
)
def test_says_what_it_is_instead(content: bytes, words: str, tmp_path: Path) -> None:
    """A file that is something else is called by its name."""
    (tmp_path / "worker_1.h5").write_bytes(content)
    (file,) = check_files(tmp_path).files
    assert file.state is State.NOT_HDF5
    assert words in file.findings[0].message


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_a_file_that_was_handled_as_text_is_told_so(libver: str, tmp_path: Path) -> None:
    """However its bytes were changed: no advice to mend what cannot be mended."""
    path = tmp_path / "worker_1.h5"
    write_groups(path, libver)
    sound = path.read_bytes()
    for changed in (
        sound.replace(b"\n", b"\r\n"),
        re.sub(rb"(?<!\r)\n", b"\r\n", sound),
        sound.replace(b"\r\n", b"\n"),
        bytes(byte & 0x7F for byte in sound),
        sound.decode("latin-1").encode(),
        sound.decode("utf-8", "replace").encode(),
        sound.decode("ascii", "replace").encode("ascii", "replace"),
        b"\xff\xfe" + sound.decode("latin-1").encode("utf-16-le"),
    ):
        path.write_bytes(changed)
        assert codes_of(check_files(path)) == {"D114"}


@pytest.mark.parametrize("libver", some_of(["earliest", "latest"], 2))
def test_a_file_cut_anywhere_is_damaged(libver: str, tmp_path: Path) -> None:
    """From its first byte to its last but one; within its superblock it is called truncated."""
    path = tmp_path / "worker_1.h5"
    write_groups(path, libver, tasks=1)
    content = path.read_bytes()
    for size in [*range(1, 200), *range(200, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:size])
        assert codes_of(check_files(path, depth="quick")) & {"D105", "D109"}, size


@pytest.mark.parametrize("depth", ["quick", "structure", "deep"])
def test_healthy_files_have_no_findings(depth: str, tmp_path: Path) -> None:
    """Groups and columns, as h5py writes them, are sound at every depth."""
    write_groups(tmp_path / "groups.h5")
    write_columns(tmp_path / "columns.h5", compression="gzip")
    report = check_files(tmp_path, depth=depth)
    assert [(f.state, f.findings) for f in report.files] == [(State.SOUND, ())] * 2
    assert report.exit_code == 0


def test_counts_tasks_by_groups_and_rows(tmp_path: Path) -> None:
    """Tasks, datasets, first and last key, whichever way they are laid out."""
    write_groups(tmp_path / "a_groups.h5", tasks=12)
    write_columns(tmp_path / "b_columns.h5", rows=30)
    with h5py.File(tmp_path / "c_one.h5", "w") as file:
        file["layout"], file["aep"] = np.ones((5, 2)), 3.0
    with h5py.File(tmp_path / "d_nested.h5", "w") as file:
        file["farm1/type2/seed3/aep"] = 1.0
        file["farm1/type2/seed20/aep"] = 1.0
    found = [file.contents for file in check_files(tmp_path).files]
    assert all(contents is not None for contents in found)
    assert [(c.style.value, c.tasks, c.datasets) for c in found if c] == [
        ("groups", 12, 24),
        ("rows", 30, 3),
        ("one", 1, 2),
        ("groups", 2, 2),
    ]
    keys = [(c.first_key, c.last_key) for c in found if c]
    assert keys[0] == ("farm0_t1_s0", "farm11_t1_s11")
    assert keys[1] == ("farm_id=1, seed=1", "farm_id=30, seed=30")
    assert keys[3] == ("farm1/type2/seed3", "farm1/type2/seed20")


def test_siblings_are_judged_by_their_own_data(tmp_path: Path) -> None:
    """Files that differ in their data only share their structure, but not their keys or tails."""
    for number in range(5):
        path = tmp_path / f"worker_{number}.h5"
        with h5py.File(path, "w") as file:
            for name in ("seed", "aep"):
                values = np.arange(1, 9) * (number + 1)
                file.create_dataset(name, data=values, maxshape=(None,), chunks=(4,))
            if number == 3:
                for name in file:
                    file[name][6:] = 0
    report = check_files(tmp_path)
    assert [file.state.value for file in report.files] == ["sound"] * 3 + ["damaged", "sound"]
    assert report.files[3].findings[0].code == "D404"
    assert [f.contents.last_key for f in report.files if f.contents][4] == "aep=40, seed=40"


def test_a_sibling_with_one_other_byte_is_read_by_itself(tmp_path: Path) -> None:
    """Damage outside the data never hides behind a sound sibling."""
    for number in range(3):
        write_groups(tmp_path / f"worker_{number}.h5")
    damaged = tmp_path / "worker_1.h5"
    flip(damaged, damaged.read_bytes().index(b"SNOD"))
    states = [file.state for file in check_files(tmp_path).files]
    assert states == [State.SOUND, State.DAMAGED, State.SOUND]


def test_require_wants_columns_of_equal_length(tmp_path: Path) -> None:
    """--require names what must be there; without it, a missing column is nobody's business."""
    write_columns(tmp_path / "a.h5")
    assert codes_of(check_files(tmp_path)) == set()
    assert codes_of(check_files(tmp_path, require=("farm_id", "seed", "aep"))) == set()
    assert codes_of(check_files(tmp_path, require=("farm_id", "layout"))) == {"D402"}
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["aep"].resize((3,))
    assert "D403" in codes_of(check_files(tmp_path, require=("farm_id", "aep")))


def test_expected_tasks_are_counted_by_key_column(tmp_path: Path) -> None:
    """Keys in names and in columns are found; a pattern is of names, not of attributes."""
    with h5py.File(tmp_path / "names.h5", "w") as file:
        file["farm0_s0/aep"], file["farm0_s1/aep"] = 1.0, 1.0
    with h5py.File(tmp_path / "attributes.h5", "w") as file:
        file["task/aep"] = 1.0
        file["task"].attrs.update(farm_id=1, seed=1)
    with h5py.File(tmp_path / "columns.h5", "w") as file:
        for name, values in (("farm_id", [2, 9]), ("seed", [0, 9]), ("aep", [1.0, 1.0])):
            file.create_dataset(name, data=values, maxshape=(None,))
    plan = plan_product({"farm_id": range(3), "seed": range(2)})
    report = check_files(tmp_path, expected=plan, key="farm{farm_id:d}_s{seed:d}")
    found = report.comparison
    assert found is not None
    assert (found.tasks_done, found.unknown, found.keyless) == (3, 1, 1)
    assert found.columns["farm_id"] == ((0, 2, 2), (1, 0, 2), (2, 1, 2))
    assert "3 of 6 expected tasks are there, 3 missing" in report_text(report)
    found = check_files(tmp_path, expected=plan, key="farm_id,seed").comparison
    assert found is not None
    assert found.columns["farm_id"] == ((0, 0, 2), (1, 1, 2), (2, 1, 2))


def test_keys_alone_suggest_what_is_missing(tmp_path: Path) -> None:
    """Without a plan, every combination of the values seen is what there could be."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for farm, seed in ((0, 0), (0, 1), (2, 0)):
            file[f"farm{farm}_s{seed}/aep"] = 1.0
    report = check_files(tmp_path, key="farm{farm_id:d}_s{seed:d}")
    assert report.comparison is not None
    assert report.comparison.columns["farm_id"] == ((0, 2, 2), (2, 1, 2))
    assert "3 keys; 1 of the 4 combinations of their values are missing" in report_text(report)
    nothing = check_files(tmp_path, key="none{of:d}").comparison
    assert nothing is not None and nothing.tasks_done == 0


PLAN = plan_product({"farm_id": range(3), "seed": range(4)})
PAIRS = [(farm, seed) for farm in range(3) for seed in range(4)]


def _in_groups_below(file: Any) -> None:
    for farm, seed in PAIRS:
        file[f"farm{farm}/kind1/s{seed}/aep"] = 1.0
        file[f"farm{farm}/kind1/s{seed}/wake/deficit"] = np.ones(3)


def _in_datasets(file: Any) -> None:
    for farm, seed in PAIRS:
        file[f"farm{farm}_s{seed}"] = np.ones((5, 2))


def _in_series(file: Any) -> None:
    for farm, seed in PAIRS:
        for name in ("time", "power"):
            data = np.arange(1.0, 100.0)
            file.create_dataset(f"farm{farm}_s{seed}/{name}", data=data, maxshape=(None,))


def _in_a_table(file: Any) -> None:
    rows = np.zeros(12, [("aep", "f8"), ("farm_id", "i2"), ("seed", "i4")])
    rows["farm_id"], rows["seed"] = np.array(PAIRS).T
    file.create_dataset("tables/results", data=rows, maxshape=(None,), compression="gzip")


@pytest.mark.parametrize(
    ("write", "key"),
    [
        (_in_groups_below, "farm{farm_id:d}/kind{kind:d}/s{seed:d}"),
        (_in_datasets, "farm{farm_id:d}_s{seed:d}"),
        (_in_series, "farm{farm_id:d}_s{seed:d}"),
        (_in_a_table, None),
    ],
)
def test_tasks_are_found_however_they_are_laid_out(write: Any, key: Any, tmp_path: Path) -> None:
    """Groups in groups, datasets, series, rows of a compound: twelve tasks, each counted once."""
    with h5py.File(tmp_path / "worker_1.h5", "w") as file:
        write(file)
    report = check_files(tmp_path, expected=PLAN, key=key)
    found = report.comparison
    assert found is not None and report.totals["tasks"] == found.tasks_done == 12
    assert not found.keyless and not found.unknown and not found.duplicates


def test_a_file_whose_name_tells_its_task_is_one_task(tmp_path: Path) -> None:
    """Whatever groups and columns are in it."""
    for number, write in enumerate((_in_groups_below, _in_a_table)):
        with h5py.File(tmp_path / f"run{number}.h5", "w") as file:
            write(file)
    assert check_files(tmp_path, key="run{run:d}").totals["tasks"] == 2


def test_tasks_whose_keys_cannot_be_read_are_counted_as_such(tmp_path: Path) -> None:
    """They are not passed over, as if nothing were there; and a shape of 2**60 rows ends too."""
    write_columns(tmp_path / "worker_1.h5", rows=20)
    expected = plan_product({"farm": range(3)})
    found = check_files(tmp_path, expected=expected).comparison
    assert found is not None and (found.tasks_done, found.keyless) == (0, 20)
    with h5py.File(tmp_path / "worker_1.h5", "w") as file:
        file.create_dataset("farm", (2**60,), "i4", maxshape=(None,), chunks=(4,))
    found = check_files(tmp_path, expected=expected).comparison
    assert found is not None and (found.tasks_done, found.keyless) == (0, 1)


def test_what_is_damaged_or_unwritten_is_no_finished_task(tmp_path: Path) -> None:
    """A group with data beyond the end, and rows that were only made room for, are to be run."""
    path = tmp_path / "worker_1.h5"
    with h5py.File(path, "w", libver="latest") as file:
        for seed in range(4):
            file[f"s{seed}/aep"] = np.ones(500)
    os.truncate(path, path.stat().st_size - 8)
    found = check_files(path, key="s{seed:d}", expected=plan_product({"seed": range(4)})).comparison
    assert found is not None and found.tasks_done == 3
    with h5py.File(path, "w") as file:
        for name in ("seed", "aep"):
            column = file.create_dataset(name, (1000,), "i8", maxshape=(None,), chunks=(100,))
            column[:650] = np.arange(1, 651)
    report = check_files(path, expected=plan_product({"seed": range(1000)}))
    assert report.comparison is not None and report.comparison.tasks_done == 650
    assert report.totals["tasks"] == 650
    assert report.files[0].findings[0].message.startswith("rows 650 to 999 are fill values")
    with h5py.File(path, "w") as file:
        dtype = [("seed", "i8"), ("aep", "f8")]
        table = file.create_dataset("results", (1000,), dtype, maxshape=(None,), chunks=(100,))
        table[:650] = np.array([(seed, 1.0) for seed in range(1, 651)], dtype)
    report = check_files(path, expected=plan_product({"seed": range(1000)}))
    assert report.comparison is not None and report.comparison.tasks_done == 650
    assert report.totals["tasks"] == 650


def test_odd_entries_of_a_folder_do_not_end_a_check(tmp_path: Path) -> None:
    """Links in a circle, dangling links, pipes and a terabyte of nothing; the rest is checked."""
    (tmp_path / "circle.h5").symlink_to("circle.h5")
    (tmp_path / "dangling.h5").symlink_to("nowhere.h5")
    (tmp_path / ".#notes").symlink_to("somebody@host.1234")
    os.mkfifo(tmp_path / "pipe.h5")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "empty.h5").touch()
    (tmp_path / "sparse.h5").touch()
    os.truncate(tmp_path / "sparse.h5", 1 << 40)
    files = {Path(file.path).name: file for file in check_files(tmp_path).files}
    assert set(files) == {"circle.h5", "dangling.h5", "empty.h5", "sparse.h5"}
    assert files["sparse.h5"].state is State.NOT_HDF5
    assert files["empty.h5"].state is State.EMPTY
    for name in ("circle.h5", "dangling.h5"):
        assert {finding.code for finding in files[name].findings} == {"D113"}


def test_what_may_not_be_read_is_unreadable_and_not_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that others own, in folders or named, are findings and do not end the check."""
    for name in ("good", "mine"):
        (tmp_path / name).mkdir()
        write_groups(tmp_path / name / f"{name}.h5")
    forbid(monkeypatch, os, "open", tmp_path / "mine" / "mine.h5")
    report = check_files([tmp_path / "mine", tmp_path / "good"])
    assert [file.state for file in report.files] == [State.DAMAGED, State.SOUND]
    assert report.exit_code == 3
    forbid(monkeypatch, os, "scandir", tmp_path / "mine")
    report = check_files(tmp_path)
    assert [file.state for file in report.files] == [State.SOUND, State.DAMAGED]
    forbid(monkeypatch, os, "stat", tmp_path / "mine" / "mine.h5")
    report = check_files([tmp_path / "mine" / "mine.h5", tmp_path / "good"])
    assert [file.state for file in report.files] == [State.DAMAGED, State.SOUND]


def forbid(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, path: Path) -> None:
    """Make a call fail for one path, as it does for users who are not root."""
    call = getattr(module, name)

    def refuse(where: Any, *words: Any, **options: Any) -> Any:
        if os.fspath(where) == os.fspath(path):
            raise PermissionError(13, "Permission denied", str(path))
        return call(where, *words, **options)

    monkeypatch.setattr(module, name, refuse)


def test_a_file_is_checked_once_however_often_it_is_named(tmp_path: Path) -> None:
    """Paths that overlap, spelled in several ways, count no task twice."""
    write_groups(tmp_path / "worker_1.h5")
    paths = [tmp_path, f"{tmp_path}/../{tmp_path.name}", f"{tmp_path}/*.h5"]
    assert check_files(paths).totals["tasks"] == 5


def test_lines_fit_a_terminal(tmp_path: Path) -> None:
    """On 80 columns, every line fits, and says which file and why."""
    folder = tmp_path / "a_folder_with_a_rather_long_name_as_they_are_on_clusters"
    folder.mkdir()
    (folder / "worker_61817.h5").touch()
    lines = report_text(check_files(folder), width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("worker_61817.h5  0 bytes" in line for line in lines)
    assert "its process died before its first write" in " ".join(" ".join(lines).split())


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """Whatever stands in the name of a file or a group, a line of the report is printable."""
    (tmp_path / "a\x1b[2J\n\u202e\x9b.h5").touch()
    path = tmp_path / "b.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["a\x1b]0;title\x07/b\n"] = 1.0
    flip(path, path.read_bytes().rindex(b"OHDR") + 12)
    report = check_files(tmp_path)
    assert "title" in report.files[1].findings[0].message
    assert all(line.isprintable() for line in report_text(report, width=80).splitlines())


def test_one_next_step_is_right_for_all_files_under_it() -> None:
    """Files of one finding are shown together, so what is next holds no facts of one of them."""
    assert not [rule.code for rule in RULES if "{" in rule.next]


def test_the_night_of_one_empty_file(tmp_path: Path) -> None:
    """Nothing is damaged, so nothing is to be kept: the question is which tasks are missing."""
    folder = tmp_path / "layouts.h5_temp"
    folder.mkdir()
    write_groups(folder / "worker_61816.h5")
    (folder / "worker_61817.h5").touch()
    lines = report_text(check_files(folder)).splitlines()
    assert lines[0] == "empty  1 file: empty (D101)"
    assert "0 bytes; its process died before its first write" in " ".join(lines[1:3])
    assert lines[-1] == "next: --expect study.py, or a CSV of keys, shows which tasks are missing"


def test_key_patterns(tmp_path: Path) -> None:
    """Numbers and words, in a part of a path or in all of it."""
    pattern = KeyPattern.parse("farm{farm_id:d}/{kind}/s{seed:d}_{x:f}")
    assert pattern.key_of("/run/farm3/off-shore/s-4_1.5") == {
        "farm_id": 3,
        "kind": "off-shore",
        "seed": -4,
        "x": 1.5,
    }
    assert pattern.key_of("/farm3/s4_1.5") is None
    for wrong in ("farm", "{a:d}{a:d}", "{a:x}", "{1a:d}"):
        with pytest.raises(UsageError, match="key pattern"):
            KeyPattern.parse(wrong)


def test_the_magic_of_record_files_is_theirs() -> None:
    """`triage` recognises them without importing what could write them."""
    assert RECORDS_MAGIC == MAGIC


def test_json_has_the_promised_form(terminal: Terminal) -> None:
    """The schema, a state and findings for each file, and totals."""
    write_groups(terminal.folder / "good.h5")
    (terminal.folder / "worker_61817.h5").touch()
    found = terminal.json("check", ".", check=3)
    assert found["schema"] == "h5sweep.check/1"
    assert [(f["path"], f["state"], f["tasks"]) for f in found["files"]] == [
        ("./good.h5", "sound", 5),
        ("./worker_61817.h5", "empty", None),
    ]
    (finding,) = found["files"][1]["findings"]
    assert finding.keys() == {"code", "name", "message", "next"}
    assert finding["code"] == "D101"
    assert found["totals"]["files"] == 2 and found["totals"]["empty"] == 1


def test_csv_has_a_line_a_file(terminal: Terminal) -> None:
    """With its state, its tasks and its worst finding."""
    write_groups(terminal.folder / "good.h5")
    (terminal.folder / "bad.h5").touch()
    rows = list(csv.DictReader(io.StringIO(terminal.run("check", ".", "--csv", check=3).stdout)))
    assert [(row["state"], row["tasks"], row["code"]) for row in rows] == [
        ("empty", "", "D101"),
        ("sound", "5", ""),
    ]


def test_many_files_are_grouped_the_worst_first(terminal: Terminal) -> None:
    """41 empty files are one paragraph, and the closing lines have totals and what is next."""
    for number in range(41):
        (terminal.folder / f"worker_{number}.h5").touch()
    SAMPLES["D107"].make(terminal.folder / "z.h5")
    write_groups(terminal.folder / "good.h5")
    lines = terminal.run("check", ".", check=3).stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == [
        "damaged  1 file: not-closed (D107), 5 tasks; can be merged as it is",
        "empty  41 files: empty (D101)",
        "sound  1 file, 5 tasks",
        "43 files: 1 sound, 41 empty, 1 damaged; 10 tasks. Nothing was changed.",
        "41 of 43 files cannot be merged as they are",
        "next: h5sweep merge with the same paths and -o OUTPUT --on-damaged skip",
    ]
    terminal.run("merge", ".", "-o", "../out.h5", "--on-damaged", "skip")
    assert "  … and 34 more: --all shows them" in lines
    assert len(terminal.run("check", ".", "--all", check=3).stdout.splitlines()) > 45


@pytest.mark.parametrize(
    "words",
    [
        ("check", "nothing_here.h5"),
        ("check", "nothing_*.h5"),
        ("check", "good.h5", "--quick", "--deep"),
        ("check", "good.h5", "--json", "--csv"),
        ("check", "good.h5", "--key", "no field"),
        ("check",),
    ],
)
def test_mistakes_are_usage_errors(words: tuple[str, ...], terminal: Terminal) -> None:
    """Exit code 2, and a line that says what to write instead."""
    write_groups(terminal.folder / "good.h5")
    done = terminal.run(*words, check=2)
    assert done.stderr and "Traceback" not in done.stderr


def test_globs_folders_and_other_files(terminal: Terminal) -> None:
    """A glob means its files, a folder all below it; what is no HDF5 by name is only counted."""
    deep = terminal.folder / "a" / "b"
    deep.mkdir(parents=True)
    write_groups(deep / "worker_1.h5")
    write_groups(terminal.folder / "worker_2.h5")
    (deep / "README.txt").write_text("hello")
    assert terminal.json("check", "**/worker_*.h5", check=0)["totals"]["files"] == 2
    found = terminal.json("check", "a", "worker_2.h5", "a/b/worker_1.h5", check=0)
    assert found["totals"]["files"] == 2 and found["totals"]["others"] == 1
    assert terminal.json("check", "a/b/README.txt", check=3)["files"][0]["state"] == "not-hdf5"


def test_a_report_shows_itself_in_a_notebook(tmp_path: Path) -> None:
    """Static HTML in which nothing of a file's name is taken for HTML."""
    (tmp_path / "<b>.h5").touch()
    shown = h5sweep.check_files(tmp_path)._repr_html_()
    assert "&lt;b&gt;.h5" in shown and "<b>.h5" not in shown and "D101" in shown


STUDY = """
    @h5sweep.sweep(farm_id=range(4), seed=range(3))
    def optimise(farm_id, seed):
        return {"aep": farm_id + seed / 10, "layout": np.full((3, 2), float(seed))}
"""


def test_own_outputs_and_run_folders(terminal: Terminal, study: Any) -> None:
    """Row checksums, records and plan of ours are checked, each against the other."""
    terminal.run("run", study(STUDY), "-o", "layouts.h5", "--workers", 1)
    found = terminal.json("check", ".", "--deep", check=0)
    assert {f["state"] for f in found["files"]} == {"sound"}
    assert {f["tasks"] for f in found["files"]} >= {12}

    output = terminal.folder / "layouts.h5"
    whole = output.read_bytes()
    with h5py.File(output) as file:
        place = file["aep"].id.get_offset()
    flip(output, place)
    assert _codes(terminal, "layouts.h5", "--deep") == {"D502"}
    output.write_bytes(whole)

    plan = terminal.folder / "layouts.h5.run" / "plan.jsonl"
    text = plan.read_bytes()
    plan.write_bytes(text[: len(text) // 2])
    assert "D503" in _codes(terminal, "layouts.h5.run")
    plan.write_bytes(text)

    # The run's own file and the worker's: the larger one holds the results.
    records = max((plan.parent / "records").iterdir(), key=lambda path: path.stat().st_size)
    content = records.read_bytes()
    change(records, len(content) // 2, bytes([content[len(content) // 2] ^ 0xFF]))
    assert "D501" in _codes(terminal, "layouts.h5.run")
    records.write_bytes(content[:-20])
    assert "N610" in _codes(terminal, "layouts.h5.run")


def test_results_that_are_not_merged_are_mentioned(terminal: Terminal, study: Any) -> None:
    """An output that lacks results of its run folder is sound, and says what to do."""
    small = STUDY.replace("range(4)", "range(2)")
    terminal.run("run", study(small), "-o", "layouts.h5", "--workers", 1)
    terminal.run("run", study(STUDY), "-o", "layouts.h5", "--workers", 1, "--no-merge")
    assert _codes(terminal, "layouts.h5") == {"D504"}


def _codes(terminal: Terminal, *words: str) -> set[str]:
    found = terminal.json("check", *words)
    return {finding["code"] for file in found["files"] for finding in file["findings"]}


def test_expect_reads_a_study(terminal: Terminal, study: Any) -> None:
    """--expect study.py compares with its plan."""
    path = study(STUDY)
    with h5py.File(terminal.folder / "worker_1.h5", "w") as file:
        file["farm1_s2/aep"] = 1.0
    words = ("check", "worker_1.h5", "--expect", path, "--key", "farm{farm_id:d}_s{seed:d}")
    found = json.loads(terminal.run(*words, "--json").stdout)["expected"]
    assert (found["tasks"], found["done"], found["missing"]) == (12, 1, 11)
    assert {"value": 1, "done": 1, "tasks": 3} in found["columns"]["farm_id"]


def test_expect_counts_what_a_run_folder_holds(terminal: Terminal, study: Any) -> None:
    """Keys are in the records too, and their output need not be there."""
    path = study(STUDY)
    with h5sweep.Recorder(terminal.folder / "layouts.h5") as recorder:
        for seed in range(3):
            recorder.write({"farm_id": 1, "seed": seed}, aep=1.0)
    words = ("check", "layouts.h5.run", "--expect", path)
    found = json.loads(terminal.run(*words, "--json").stdout)["expected"]
    assert (found["tasks"], found["done"], found["missing"]) == (12, 3, 9)


@pytest.mark.parametrize("paths", [("out.h5",), ("out.h5.run",), (".",), ("out.h5", "out.h5.run")])
def test_an_output_and_its_records_hold_each_task_once(
    terminal: Terminal, paths: tuple[str, ...]
) -> None:
    """Wherever it is asked, a sweep that is complete has its tasks, and none of them twice."""
    code = (
        "import h5sweep\n\n\n@h5sweep.sweep(seed=range(4))\ndef f(seed):\n    return {'aep': 1.0}\n"
    )
    terminal.write("study.py", code)
    terminal.run("run", "study.py", "-o", "out.h5")
    done = terminal.run("check", *paths, "--expect", "study.py", "--json")
    said = json.loads(done.stdout)
    assert said["totals"]["tasks"] == 4
    found = said["expected"]
    assert (found["done"], found["missing"], found["without_key"]) == (4, 0, 0)
    assert found["duplicates"] == 0


def test_an_edited_output_gets_one_advice_that_works(terminal: Terminal) -> None:
    """What check says of an output whose row was changed is to merge it again, and nothing else."""
    code = (
        "import h5sweep\n\n\n@h5sweep.sweep(seed=range(4))\ndef f(seed):\n    return {'aep': 1.0}\n"
    )
    terminal.write("study.py", code)
    terminal.run("run", "study.py", "-o", "out.h5")
    with h5py.File(terminal.folder / "out.h5", "r+") as file:
        file["aep"][2] = 99.0
    said = terminal.run("check", "out.h5", check=3).stdout
    assert [line for line in said.splitlines() if "next:" in line] == [
        "  = next: h5sweep merge OUTPUT rebuilds it from its run folder; run computes"
    ]
    terminal.run("merge", "out.h5")
    terminal.run("check", "out.h5")


def test_tasks_of_a_bad_chunk_do_not_count(tmp_path: Path) -> None:
    """A row, or a group, of which a chunk can't be unpacked is not done, with a key and without."""
    with h5py.File(tmp_path / "rows.h5", "w") as file, h5py.File(tmp_path / "t.h5", "w") as groups:
        settings = {"chunks": (4,), "compression": "gzip"}
        for name in ("seed", "aep"):
            file.create_dataset(name, data=np.arange(1, 11), maxshape=(None,), **settings)
        for seed in range(3):
            groups.create_dataset(f"s{seed}/aep", data=np.arange(4) + seed, **settings)
        places = [file["aep"].id.get_chunk_info(1), groups["s1/aep"].id.get_chunk_info(0)]
    for name, place in zip(("rows.h5", "t.h5"), places, strict=True):
        content = bytearray((tmp_path / name).read_bytes())
        content[place.byte_offset + place.size - 1] ^= 0xFF
        (tmp_path / name).write_bytes(content)
    assert [f.tasks for f in check_files(tmp_path).files] == [6, 2]
    report = check_files(tmp_path / "rows.h5", key="seed")
    assert report.totals["tasks"] == 6
    assert report.comparison is not None and report.comparison.tasks_done == 6
    assert check_files(tmp_path / "t.h5", key="s{seed:d}").totals["tasks"] == 2
