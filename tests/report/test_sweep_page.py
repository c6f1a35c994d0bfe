"""The page of a sweep says what is there, what is not, why, and what to type."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import h5sweep
from h5sweep.base.plan import plan_product
from h5sweep.errors import UsageError
from h5sweep.report.map_layout import MOST_TASKS
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runner.status import read_status, status_parts
from h5sweep.state.missing_report import read_missing
from read_page import Element, read_page, ticks
from running import until
from terminal import Terminal
from written_records import write_failure, write_records, write_scattered

Study = Callable[[str], Path]

MIXED = """
@h5sweep.sweep(farm=["a", "b", "c"], kind=["x", "y"], seed=range(5))
def f(farm, kind, seed):
    if farm == "b" and kind == "y":
        raise ValueError("no area <left> & right")
    if farm == "c" and seed == 3:
        return {"x": [1, 2, {}]}
    return {"x": float(seed)}
"""


@pytest.fixture
def page(terminal: Terminal, study: Study) -> Element:
    """The report of a sweep of 30 tasks: 5 always fail, 2 of another cause, 5 never ran."""
    study(MIXED)
    words = ("run", "study.py", "-o", "out.h5", "--only", "farm=a,b", "-j", 2, "--backoff", "0s")
    terminal.run(*words, check=1)
    terminal.run(*words[:5], "farm=c", "--only", "kind=y", *words[6:], check=1)
    return read_page(terminal.folder / "out.h5.run" / "report.html")


def test_run_ends_with_a_report_and_names_it(terminal: Terminal, study: Study) -> None:
    """The closing lines of `run` name the page, which is there; --no-report writes none."""
    study('@h5sweep.sweep(seed=[1])\ndef f(seed): return {"x": seed}\n')
    path = terminal.folder / "out.h5.run" / "report.html"
    assert "report" not in terminal.run("run", "study.py", "-o", "out.h5", "--no-report").stderr
    assert not path.exists()
    done = terminal.run("run", "study.py", "-o", "out.h5")
    assert "report: out.h5.run/report.html\n" in done.stderr
    assert "1 of 1 done" in read_page(path).of_id("verdict").text


def test_results_that_are_not_declared_are_not_on_it(terminal: Terminal, study: Study) -> None:
    """A value was taken out of the study: the page is about the others, when they came too."""
    body = '@h5sweep.sweep(seed=range({}))\ndef f(seed): return {{"x": seed}}\n'
    study(body.format(7))
    terminal.run("run", "study.py", "-o", "out.h5")
    study(body.format(5))
    done = terminal.run("run", "study.py", "-o", "out.h5")
    assert "2 results of tasks that are not declared" in done.stderr
    assert "report: out.h5.run/report.html\n" in done.stderr
    page = read_page(terminal.folder / "out.h5.run" / "report.html")
    assert "5 of 5 done" in page.of_id("verdict").text
    assert "5 tasks in " in page.of_id("arrivals").text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_has_a_report(
    terminal: Terminal, study: Study, number: signal.Signals
) -> None:
    """Its verdict is what `status` says afterwards, and the command on it finishes the sweep."""
    study(
        "import os, time\n"
        "@h5sweep.sweep(seed=range(6))\n"
        "def f(seed):\n"
        "    while seed == 3 and not os.path.exists('go'):\n"
        "        open('waiting', 'w').close()\n"
        "        time.sleep(0.02)\n"
        "    return {'x': float(seed)}\n"
    )
    run = terminal.start("run", "study.py", "-o", "out.h5", "-j", 1, "--grace", "0s")
    until((terminal.folder / "waiting").exists)
    run.send_signal(number)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert "report: out.h5.run/report.html\n" in said
    page = read_page(terminal.folder / "out.h5.run" / "report.html")
    head, _, _ = status_parts(read_status(terminal.folder / "out.h5"))
    assert head.endswith("3 of 6 done (50.0 %)")
    assert head.partition(": ")[2] in page.of_id("verdict").text
    assert "no run is active" in page.of_id("next").text
    (terminal.folder / "go").touch()
    again, *_ = page.of_id("next").all("code")
    assert "6 of 6 done" in terminal.run(*shlex.split(again.text)[1:], check=0).stderr


def test_a_run_that_is_given_up_has_a_report(terminal: Terminal, study: Study) -> None:
    """The first tasks all fail of one cause: the page says which."""
    study('@h5sweep.sweep(seed=range(60))\ndef f(seed): raise ValueError("no boundary")\n')
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, "--backoff", "0s", check=1)
    page = read_page(terminal.folder / "out.h5.run" / "report.html")
    assert "tasks raised: ValueError at study.py" in page.of_id("verdict").text
    terminal.run("run", "study.py", "-o", "two.h5", "-j", 1, "--no-report", check=1)
    assert not (terminal.folder / "two.h5.run" / "report.html").exists()


def test_a_report_that_cannot_be_written_fails_no_run(terminal: Terminal, study: Study) -> None:
    """A folder in the place of the report: the run says so and ends as it would have."""
    study('@h5sweep.sweep(seed=[1])\ndef f(seed): return {"x": seed}\n')
    (terminal.folder / "out.h5.run" / "report.html").mkdir(parents=True)
    done = terminal.run("run", "study.py", "-o", "out.h5", check=0)
    assert "no report was written" in done.stderr
    assert "1 of 1 done" in done.stderr


def test_verdict_and_next_steps_are_those_of_status(terminal: Terminal, page: Element) -> None:
    """The same sentences as `status`, and the whole command that runs the rest."""
    head, amiss, closing = status_parts(read_status(terminal.folder / "out.h5"))
    verdict = page.of_id("verdict").text
    assert head.partition(": ")[2] in verdict
    assert all(line in verdict for line in amiss)
    commands = [element.text for element in page.of_id("next").all("code")]
    run = "h5sweep run study.py -o out.h5 -j 2 --backoff 0s"
    assert commands == [run, "h5sweep missing out.h5"]
    assert closing[-1].partition("missing out.h5")[2] in page.of_id("next").text


def test_commands_of_the_page_work(terminal: Terminal, page: Element) -> None:
    """What the page says to type can be typed."""
    for element in page.of_id("next").all("code"):
        words = element.text.removeprefix("h5sweep ").split()
        assert terminal.run(*words, check=1)


def test_each_task_has_one_tick_of_its_outcome(terminal: Terminal, page: Element) -> None:
    """As many ticks as tasks, and of each outcome as many as `missing` says."""
    missing = read_missing(terminal.folder / "out.h5").tasks
    reasons = [m.reason.value.replace(" ", "-") for m in missing]
    expected = {reason: reasons.count(reason) for reason in set(reasons)}
    assert ticks(page) == {"done": 30 - len(missing), **expected}
    assert expected == {"failed": 6, "never-started": 5}


def test_rows_of_the_map_say_where_tasks_are_missing(page: Element) -> None:
    """Also to those who see no colour: a row names its outcomes, and what is not done."""
    rows = {row.all("th")[0].text: row for row in page.of_id("task-map").all("tr")[1:]}
    assert rows["a"].all("td")[-1].text == "all done"
    assert rows["b"].all("td")[-1].text == "5 failed: kind=y, seed=0 to kind=y, seed=4"
    assert rows["b"].all("svg")[0].attributes["aria-label"] == "b: 5 done, 5 failed"
    assert {name for name, row in rows.items() if "lacking" in row.classes} == {"b", "c"}


def test_failures_are_grouped_and_say_whether_they_always_happen(page: Element) -> None:
    """One entry for each cause, the commonest first, with a traceback of the user's own frames."""
    first, second = page.of_id("failures").all("ol")[0].all("h3")
    causes = page.of_id("failures").all("li")
    assert "5 tasks raised: ValueError" in first.text
    assert "1 task raised: UnsupportedValueError" in second.text
    assert "always: all 5 tasks with farm=b, kind=y." in causes[0].text
    assert "a single task." in causes[1].text
    assert 'raise ValueError("no area <left> & right")' in causes[0].all("pre")[0].text


def test_a_recursion_does_not_fill_the_page(tmp_path: Path) -> None:
    """The innermost frames of the user are shown, and how many there are besides."""
    folder, plan = RunFolder(tmp_path / "out.h5"), plan_product({"seed": range(3)})
    write_records(folder, plan, {0: {"x": 1.0}})
    frames = [f'  File "study.py", line {n}, in f\n    f(x)' for n in range(900)]
    write_failure(folder, plan, 1, message="too deep", traceback="\n".join(frames))
    page = read_page(h5sweep.write_report(folder.output))
    shown = page.of_id("failures").all("pre")[0].text
    assert shown.startswith('File "study.py", line 899, in f f(x) File "study.py", line 898')
    assert shown.count("File") == 6
    assert shown.endswith("… and 894 more frames of your files")


def test_keys_and_messages_are_never_markup(tmp_path: Path) -> None:
    """A key, a message, a traceback and a study's name full of HTML are shown as they are."""
    evil = '<script>alert("1")</script>\'"><img src=x onerror=alert(1)>'
    plan = plan_product({"farm": [evil, "b"], "seed": range(3)})
    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, plan, {0: {"x": 1.0}})
    folder.save_sweep({"name": evil, "command": evil})
    write_failure(folder, plan, 1, type=evil, message=evil, where=evil, traceback=evil)
    page = read_page(h5sweep.write_report(folder.output))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not [e for e in page.all() for name in e.attributes if name.startswith("on")]
    assert evil in page.of_id("failures").text
    assert evil in page.all("h1")[0].text
    assert evil in page.of_id("task-map").all("tr")[1].all("th")[0].text


def test_nothing_is_fetched(page: Element) -> None:
    """No address anywhere, and a policy that would stop one."""
    for element in page.all():
        assert not {"src", "srcset", "data"} & element.attributes.keys(), element.tag
        assert element.attributes.get("href", "#").startswith("#")
    (policy,) = [m for m in page.all("meta") if "http-equiv" in m.attributes]
    assert policy.attributes["content"].startswith("default-src 'none'")
    assert "url(" not in page.all("style")[0].text
    assert "@import" not in page.all("style")[0].text


def test_a_reader_without_eyes_finds_the_way(page: Element) -> None:
    """Landmarks, one heading for each section, links that lead there, a label for each picture."""
    assert [len(page.all(tag)) for tag in ("header", "nav", "main", "footer", "h1")] == [1] * 5
    assert page.all("html")[0].attributes["lang"] == "en"
    for section in page.all("section"):
        assert section.all("h2")[0].attributes["id"] == section.attributes["aria-labelledby"]
    for link in page.all("a"):
        assert page.of_id(link.attributes["href"][1:])
    for svg in page.all("svg"):
        assert svg.attributes["role"] == "img"
        assert svg.attributes["aria-label"]
    for table in page.all("table"):
        assert table.all("caption")
        assert all(th.attributes["scope"] in ("row", "col") for th in table.all("th"))


def test_large_sweeps_are_drawn_in_stretches(tmp_path: Path) -> None:
    """Above MOST_TASKS no task has a tick of its own, and a single failure is still drawn."""
    plan = plan_product({"farm": range(30), "seed": range(1000)})
    assert len(plan) > MOST_TASKS
    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, plan, {task: {"x": 1.0} for task in range(1000)})
    write_failure(folder, plan, 2_500)
    page = read_page(h5sweep.write_report(folder.output))
    paths = page.of_id("task-map").all("path")
    assert {css for path in paths for css in path.classes} >= {"v-failed", "v-done"}
    rows = {row.all("th")[0].text: row for row in page.of_id("task-map").all("tr")[1:]}
    assert rows["0"].all("td")[-1].text == "all done"
    assert rows["2"].all("td")[-1].text == "1 failed, 999 never started"
    assert (tmp_path / "out.h5.run" / "report.html").stat().st_size < 2_000_000


def test_large_sweeps_that_fail_everywhere_have_a_page_to_mail(tmp_path: Path) -> None:
    """As many bars and lanes as there can be, and something else in each of them."""
    plan = plan_product({"farm": range(60), "seed": range(720)})
    folder = RunFolder(tmp_path / "out.h5")
    write_scattered(folder, plan, workers=40)
    path = h5sweep.write_report(folder.output)
    page = read_page(path)
    assert len(page.of_id("task-map").all("tr")) == 61
    assert "40 workers" in page.of_id("arrivals").all("svg")[0].attributes["aria-label"]
    assert path.stat().st_size < 1_000_000


def test_tasks_without_a_grid_lie_in_their_order(tmp_path: Path) -> None:
    """A list of tasks that fills no grid has one tick each, too."""
    from h5sweep.base.listed_plan import plan_list

    plan = plan_list([{"a": n, "b": n * n} for n in range(450)])
    folder = RunFolder(tmp_path / "out.h5")
    write_records(folder, plan, {task: {"x": 1.0} for task in range(300)})
    page = read_page(h5sweep.write_report(folder.output))
    assert ticks(page) == {"done": 300, "never-started": 150}
    (row,) = [r for r in page.of_id("task-map").all("tr") if "201 to 400" in r.text]
    assert row.all("td")[-1].text == "100 never started: a=300, b=90000 to a=399, b=159201"


def test_results_of_a_recorder_are_shown(tmp_path: Path) -> None:
    """Without a plan, what was recorded is the map."""
    code = (
        "import h5sweep\n"
        "with h5sweep.Recorder('out.h5') as recorder:\n"
        "    for seed in range(4): recorder.write({'seed': seed}, x=1.0)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    page = read_page(h5sweep.write_report(tmp_path / "out.h5"))
    assert ticks(page) == {"done": 4}


def test_an_empty_run_folder_has_a_report(tmp_path: Path) -> None:
    """Nothing recorded yet is said, and is no error."""
    RunFolder(tmp_path / "out.h5").create()
    page = read_page(h5sweep.write_report(tmp_path / "out.h5"))
    assert "nothing is recorded yet" in page.of_id("verdict").text


def test_files_of_other_programs_have_a_report(terminal: Terminal) -> None:
    """What `check` says of each file and of all, and what comes next."""
    (terminal.folder / "temp").mkdir()
    (terminal.folder / "temp" / "a.h5").write_bytes(b"\0" * 100)
    terminal.run("report", "temp", check=0)
    page = read_page(terminal.folder / "report.html")
    assert "temp/a.h5" in page.of_id("files").text
    says = terminal.run("check", "temp", check=3).stdout.splitlines()
    assert says[-2] in page.of_id("verdict").text
    assert "h5sweep check temp --expect study.py" in page.of_id("next").text


def test_a_folder_without_files_has_a_report(terminal: Terminal) -> None:
    """That there is nothing to look at is all that it says."""
    (terminal.folder / "temp").mkdir()
    (terminal.folder / "temp" / "notes.txt").write_text("as they were")
    terminal.run("report", "temp", check=0)
    (main,) = read_page(terminal.folder / "report.html").all("main")
    assert main.text == "Verdict no HDF5 file; 1 other file. Nothing was changed."


@pytest.mark.parametrize("command", ["salvage", "merge"])
def test_files_of_other_programs_have_commands_to_type(terminal: Terminal, command: str) -> None:
    """Whole ones: who reads the page has not typed the paths."""
    folder = terminal.folder / "my night"
    folder.mkdir()
    code = (
        "import h5py, os, numpy\nfile = h5py.File('my night/a.h5', 'w', libver='latest')\n"
        "file['x'] = numpy.arange(10000.0)\nfile.flush()\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=terminal.folder, check=True)
    if command == "salvage":
        os.truncate(folder / "a.h5", 50_000)
    terminal.run("report", "my night", check=0)
    (typed,) = read_page(terminal.folder / "report.html").of_id("next").all("code")
    words = shlex.split(typed.text.replace("OUTPUT", "out.h5"))
    assert words[:3] == ["h5sweep", command, "my night"]
    terminal.run(*words[1:], check=0 if command == "merge" else 3)  # 3: no key was given


@pytest.mark.parametrize("name", ["out.h5", "notes.txt"])
def test_only_reports_are_replaced(tmp_path: Path, name: str) -> None:
    """Whatever -o names by mistake stays as it is."""
    RunFolder(tmp_path / "out.h5").create()
    (tmp_path / name).write_bytes(b"something else")
    with pytest.raises(UsageError, match="is not a report"):
        h5sweep.write_report(tmp_path / "out.h5.run", tmp_path / name)
    assert (tmp_path / name).read_bytes() == b"something else"


def test_report_as_json(terminal: Terminal) -> None:
    """--json names what was written."""
    RunFolder(terminal.folder / "out.h5").create()
    said = terminal.json("report", "out.h5", "-o", "here.html", check=0)
    size = (terminal.folder / "here.html").stat().st_size
    assert said == {"schema": "h5sweep.report/1", "report": "here.html", "bytes": size}


def test_what_is_not_there_is_a_usage_error(terminal: Terminal) -> None:
    """No report about nothing."""
    said = terminal.run("report", "none.h5", check=2).stderr
    assert "there is no run folder none.h5.run" in said
    assert not re.findall(r"\.html", "".join(p.name for p in terminal.folder.iterdir()))
