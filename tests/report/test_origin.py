"""The page shows when results came, in which files they are, and where they are from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import h5sweep
from foreign_samples import KEY, write_groups
from h5sweep.base.plan import plan_product
from h5sweep.runfolder.layout import RunFolder
from read_page import Element, read_page
from running import record_files, until
from terminal import Terminal
from written_records import write_failure, write_records

Study = Callable[[str], Path]
PLAN = plan_product({"farm": ["a", "b"], "seed": range(10)})
SWEEP = '@h5sweep.sweep(seed=range(6))\ndef f(seed): return {"x": seed}\n'


def cells(page: Element, section: str) -> list[list[str]]:
    """The text of every cell of a section's table."""
    rows = page.of_id(section).all("tbody")[0].all("tr")
    return [[cell.text for cell in row.all() if cell.tag in ("th", "td")] for row in rows]


def test_each_worker_has_a_lane_and_each_time_a_bar(tmp_path: Path) -> None:
    """Two workers and a failure: three lanes with what each did, and bars of both outcomes."""
    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, PLAN, {task: {"x": 1} for task in range(10)})
    write_records(folder, PLAN, {task: {"x": 1} for task in range(10, 19)})
    write_failure(folder, PLAN, 19)
    arrivals = read_page(h5sweep.write_report(folder.output)).of_id("arrivals")
    lanes = [t.text for t in arrivals.all("text") if t.text.startswith("worker ")]
    assert lanes == [f"worker {os.getpid()} {os.uname().nodename}"[:20].strip()] * 3
    assert "20 tasks in " in arrivals.text
    assert arrivals.all("path", "v-done")
    assert arrivals.all("path", "v-failed")
    assert arrivals.all("svg")[0].attributes["aria-label"].endswith("3 workers")


def test_bars_have_as_many_tasks_as_there_are(tmp_path: Path) -> None:
    """One task each in its stretch of time: as many bars as tasks."""
    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, PLAN, {task: {"x": 1} for task in range(8)})
    (path,) = read_page(h5sweep.write_report(folder.output)).of_id("arrivals").all("path", "v-done")
    assert len(re.findall("M", path.attributes["d"])) == 8


def test_a_worker_that_was_killed_names_its_task(terminal: Terminal, study: Study) -> None:
    """The lane of a run that was killed says in which task it ended."""
    study(
        "@h5sweep.sweep(seed=range(3))\ndef f(seed):\n"
        '    if seed == 1: open("in", "w").close(); time.sleep(60)\n    return {"x": seed}\n'
    )
    run = terminal.start("run", "study.py", "-o", "out.h5", "-j", 1)
    until(lambda: (terminal.folder / "in").exists())
    run.kill()
    run.communicate()
    status = lambda: h5sweep.read_status(terminal.folder / "out.h5")  # noqa: E731
    until(lambda: not status().running and status().done == 1)
    page = read_page(h5sweep.write_report(terminal.folder / "out.h5"))
    assert "ended in seed=1." in page.of_id("arrivals").text
    assert "interrupted 1" in page.of_id("verdict").text


def test_a_task_that_hung_fills_the_lane_of_its_worker(terminal: Terminal, study: Study) -> None:
    """The coordinator notes that it ran out of time; the worker was in it until then."""
    study(
        "@h5sweep.sweep(seed=range(4))\ndef f(seed):\n"
        '    if seed == 3: time.sleep(60)\n    return {"x": seed}\n'
    )
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, "--timeout", "3s", check=1)
    page = read_page(terminal.folder / "out.h5.run" / "report.html")
    arrivals = page.of_id("arrivals")
    assert re.search("ended in seed=3, 3(\\.[0-9])? s after it had begun it", arrivals.text)
    (lane,) = (path.attributes["d"] for path in arrivals.all("path", "s-failed"))
    assert float(lane.split("h")[1]) > 450  # of 900: most of the time of this run


def test_files_are_safe_to_remove_as_clean_says(terminal: Terminal, study: Study) -> None:
    """Each record file with the judgement of `clean`, and the command that moves it."""
    study(SWEEP)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    page = read_page(terminal.folder / "out.h5.run" / "report.html")
    removable = h5sweep.find_removable(terminal.folder / "out.h5").removable
    (row,) = cells(page, "files")
    assert row[0] == removable[0].path.name
    assert row[2] == "sound"
    assert row[3].startswith("yes: ")
    assert "h5sweep clean out.h5 --yes" in page.of_id("files").text


def test_files_of_other_programs_are_judged_too(terminal: Terminal) -> None:
    """What was merged with --key is listed with its verdict, and a file that was refused."""
    folder = terminal.folder / "temp"
    folder.mkdir()
    write_groups(folder / "a.h5", range(3))
    write_groups(folder / "cut.h5", range(3, 6))
    (folder / "cut.h5").write_bytes((folder / "cut.h5").read_bytes()[:5000])
    terminal.run("merge", "temp", "-o", "out.h5", "--key", KEY, "--on-damaged", "skip")
    rows = cells(read_page(h5sweep.write_report(terminal.folder / "out.h5")), "files")
    found = {name: (state, verdict) for name, _, state, verdict in rows}
    assert found["a.h5"][0] == "sound"
    assert found["a.h5"][1].startswith("yes: ")
    assert found["cut.h5"][0].startswith("damaged, D1")
    assert found["cut.h5"][1].startswith("no: ")
    assert rows[0][0] == "cut.h5"
    said = terminal.run("report", "out.h5", "-o", "page.html")
    assert "When results came" not in (terminal.folder / "page.html").read_text(), said


def test_damaged_files_come_first(terminal: Terminal, study: Study) -> None:
    """A damaged record file is named with what is wrong, and is not safe to remove."""
    study(SWEEP)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, "--no-merge")
    (path,) = record_files(terminal.folder)
    damaged = bytearray(path.read_bytes())
    damaged[-20] ^= 0xFF
    path.write_bytes(damaged)
    page = read_page(h5sweep.write_report(terminal.folder / "out.h5"))
    (row,) = cells(page, "files")
    assert "bytes at" in row[2]
    assert len(row) == 3  # no column for a verdict that there cannot be yet
    assert "None is safe to remove: there is no output yet." in page.of_id("files").text
    assert "lost with a damaged record 1" in page.of_id("verdict").text


def test_salvaged_results_are_told_from_others(tmp_path: Path) -> None:
    """What a salvage has recorded is done, and has a word and a colour of its own."""
    from h5sweep.base.values import ResultEncoder, result_header
    from h5sweep.runfolder.records import RecordKind, RecordWriter

    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, PLAN, {0: {"x": 1}})
    writer = RecordWriter(folder.new_record_path("salvage"), about={"role": "salvage"})
    schema, data = ResultEncoder(PLAN.names).encode({"x": 2})
    header = result_header(schema, b'{"farm": "a", "seed": 1}')
    writer.append(RecordKind.DONE, 2**64 - 1, header, data, finished_at=1.7e9, duration_s=1.0)
    writer.close()
    page = read_page(h5sweep.write_report(folder.output))
    assert "salvaged 1" in page.of_id("verdict").text
    assert page.of_id("task-map").all("path", "s-salvaged")


def test_versions_of_the_code_are_counted(terminal: Terminal, study: Study) -> None:
    """Results of two versions are told apart, by number and count."""
    study(SWEEP)
    terminal.run("run", "study.py", "-o", "out.h5")
    study(SWEEP.replace("range(6)", "range(8)").replace('"x": seed', '"x": seed + 1'))
    terminal.run("run", "study.py", "-o", "out.h5", "--changed", "keep")
    page = read_page(terminal.folder / "out.h5.run" / "report.html")
    assert [row[:2] for row in cells(page, "code")] == [["1", "6"], ["2", "2"]]
    assert "2 versions of the code made these results" in page.of_id("code").text


def test_provenance_names_command_and_host(terminal: Terminal, study: Study) -> None:
    """The command, folder, host and versions that the run noted."""
    study(SWEEP)
    terminal.run("run", "study.py", "-o", "out.h5")
    text = read_page(terminal.folder / "out.h5.run" / "report.html").of_id("origin").text
    assert "run study.py -o out.h5" in text
    assert str(terminal.folder) in text
    assert f"h5sweep {h5sweep.__version__}" in text
