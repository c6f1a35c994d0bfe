"""Every command that a message names works when it is pasted, in a folder with a space in its name.

A message makes its command with `command_text`; the last tests find all of these in the sources, so
that a new one without a step here fails.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest

import h5sweep
from cases import some_of
from fake_slurm import ACCEPTS, REFUSES_MERGE, fake_slurm, listing
from foreign_samples import KEY, write_groups
from h5sweep.base.plan import plan_product
from h5sweep.runfolder.layout import RunFolder
from read_page import read_page
from running import until
from terminal import Terminal
from written_records import write_records

SOURCES = Path(h5sweep.__file__).parent
VERBS = "run|submit|status|missing|report|redo|check|merge|relabel|salvage|clean|replay|verify"
COMMAND = re.compile(rf"h5sweep ({VERBS})\b")
OUT = "my out.h5"
STUDY = """
    import h5sweep, os, time

    @h5sweep.sweep(farm_id=[3], farm_type=[1], seed=range({tasks}))
    def optimise(farm_id, farm_type, seed):
        if os.path.exists("wait"):
            open("waiting", "w").close()
            time.sleep(60)
        if seed == 7:
            raise ValueError("no seed 7")
        return {{"aep": float(seed)}}
"""


CONSTANT = """
    import h5sweep

    @h5sweep.sweep(seed=[1, 2], constants=dict(c=1))
    def optimise(seed, c):
        return {"aep": float(seed * c)}
"""


LABELLED = """
    import h5sweep

    @h5sweep.sweep(seed=[1, 2], units=dict(aep="GW h"))
    def optimise(seed):
        return {"aep": float(seed)}
"""


LOCKED = """
    import threading
    import h5sweep

    lock = threading.Lock()

    @h5sweep.sweep(seed=[1, 2])
    def optimise(seed):
        with lock:
            return {"aep": float(seed)}

    if __name__ == "__main__":
        optimise.run("my out.h5")
"""


SETTING = """
    import numpy as np
    import h5sweep

    np.setbufsize(4096)

    @h5sweep.sweep(seed=[1, 2])
    def optimise(seed):
        return {"aep": float(seed)}

    if __name__ == "__main__":
        optimise.run("my out.h5")
"""


IN_UNITS = """
    import h5sweep, os

    @h5sweep.sweep(seed=[1, 2], units=dict(aep="{}"))
    def optimise(seed):
        if seed == 2 and os.path.exists("broken"):
            raise ValueError("no")
        return dict(aep=float(seed))
"""


class Step(NamedTuple):
    """A message, and what comes of the command in it."""

    site: str  # the module that says it, and the words of the command that are always the same
    arrange: Callable[[Terminal], str]  # returns what was said
    after: str = ""  # what the message says behind the command, or how the line ends
    exit_code: int = 0
    expects: str = ""  # in what the command says


def run_study(terminal: Terminal, *words: str, tasks: int = 4, check: int = 0) -> str:
    terminal.write("my study.py", STUDY.format(tasks=tasks))
    return said(terminal, "run", "my study.py", "-o", OUT, "-j", "1", *words, check=check)


def said(terminal: Terminal, *words: str, check: int = 0) -> str:
    done = terminal.run(*words, check=check)
    return done.stdout + done.stderr


def worker_files(terminal: Terminal) -> Path:
    """Two sound files, a cut one and an empty one."""
    folder = terminal.folder / "my night"
    folder.mkdir()
    write_groups(folder / "worker 1.h5", range(3))
    write_groups(folder / "worker 2.h5", range(3, 6))
    cut = write_groups(folder / "worker 3.h5", range(6, 9))
    cut.write_bytes(cut.read_bytes()[:5000])
    (folder / "worker 4.h5").touch()
    return folder


def write_unclosed(path: Path) -> Path:
    """A file of three tasks whose writer was killed, of which nothing is lost."""
    write_groups(path, range(3), libver="latest")
    code = (
        f"import h5py, os\nfile = h5py.File({str(path)!r}, 'a', libver='latest')\n"
        "file['x'] = 1\ndel file['x']\nfile.flush()\nos._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    return path


def edit(path: Path) -> None:
    with h5py.File(path, "r+") as file:
        file["aep"][2] = 99.0


# Situations, and what is said in them


def stopped(terminal: Terminal) -> str:
    run_study(terminal, tasks=8, check=1)
    return said(terminal, "status", OUT)


def not_merged(terminal: Terminal) -> str:
    run_study(terminal)
    run_study(terminal, "--no-merge", tasks=6)
    return said(terminal, "status", OUT)


def report_of(terminal: Terminal, path: str = OUT) -> str:
    """What the page says that a command writes, in one line."""
    said(terminal, "report", path, "-o", "page.html")
    return read_page(terminal.folder / "page.html").text


def stopped_on_a_page(terminal: Terminal) -> str:
    stopped(terminal)
    return report_of(terminal)


def not_merged_on_a_page(terminal: Terminal) -> str:
    not_merged(terminal)
    return report_of(terminal)


def large_files_on_a_page(terminal: Terminal) -> str:
    """More than is compared with the output for a page: two arrays of 40 MB."""
    folder = RunFolder(terminal.folder / OUT)
    plan = plan_product({"seed": [1, 2]})
    write_records(folder, plan, {task: {"x": np.full(5_000_000, task)} for task in range(2)})
    said(terminal, "merge", OUT)
    return report_of(terminal)


def worker_files_on_a_page(terminal: Terminal) -> str:
    worker_files(terminal)
    return report_of(terminal, "my night")


def files_on_a_page(terminal: Terminal, *kept: int) -> str:
    """What the page says of some of the worker files."""
    folder = worker_files(terminal)
    for number in {1, 2, 3, 4}.difference(kept):
        (folder / f"worker {number}.h5").unlink()
    return report_of(terminal, "my night")


def sound_files_on_a_page(terminal: Terminal) -> str:
    return files_on_a_page(terminal, 1, 2)


def an_empty_file_on_a_page(terminal: Terminal) -> str:
    terminal.write("study.py", STUDY.format(tasks=4))
    return files_on_a_page(terminal, 1, 4)


def an_unclosed_file_on_a_page(terminal: Terminal) -> str:
    """A file whose writer was killed, beside an empty one."""
    (terminal.folder / "my night").mkdir()
    write_unclosed(terminal.folder / "my night" / "worker 1.h5")
    (terminal.folder / "my night" / "worker 2.h5").touch()
    return report_of(terminal, "my night")


def a_live_file_on_a_page(terminal: Terminal) -> str:
    """A file that a process has open, which ends when the page is written."""
    path = worker_files(terminal) / "worker 1.h5"
    for number in (3, 4):
        path.with_name(f"worker {number}.h5").unlink()
    with h5py.File(path, "a"):
        return report_of(terminal, "my night")


def report_refused(terminal: Terminal) -> str:
    """Something lies in its place, and is taken away then."""
    page = terminal.folder / f"{OUT}.run" / "report.html"
    page.mkdir(parents=True)
    text = run_study(terminal)
    page.rmdir()
    return text


def nothing_recorded(terminal: Terminal) -> str:
    terminal.write("my study.py", STUDY.format(tasks=4))
    RunFolder(terminal.folder / OUT).create()
    return said(terminal, "status", OUT)


def nothing_on_a_page(terminal: Terminal) -> str:
    nothing_recorded(terminal)
    return report_of(terminal)


def undeclared(terminal: Terminal) -> str:
    merged_by_key(terminal)
    return said(terminal, "status", OUT)


def failed(terminal: Terminal) -> str:
    return run_study(terminal, tasks=8, check=1)


def another_constant(terminal: Terminal) -> str:
    terminal.write("my study.py", CONSTANT)
    terminal.run("run", "my study.py", "-o", OUT)
    terminal.write("my study.py", CONSTANT.replace("c=1", "c=2"))
    return said(terminal, "run", "my study.py", "-o", OUT, check=2)


def edited(terminal: Terminal, before: str, now: str, check: int = 2) -> str:
    """What is said to a study that was run, and edited since."""
    terminal.write("my study.py", LABELLED)
    terminal.run("run", "my study.py", "-o", OUT)
    terminal.write("my study.py", LABELLED.replace(before, now))
    return said(terminal, "run", "my study.py", "-o", OUT, check=check)


def another_function(terminal: Terminal) -> str:
    return edited(terminal, "def optimise", "def improve")


def another_parameter(terminal: Terminal) -> str:
    return edited(terminal, "seed", "start")


def one_more_parameter(terminal: Terminal) -> str:
    more = LABELLED.replace("(seed)", "(seed, site)").replace("seed=", "site=['a b'], seed=")
    return edited(terminal, LABELLED, more)


def another_unit(terminal: Terminal) -> str:
    return edited(terminal, "GW h", "MW h")


def one_value_less(terminal: Terminal) -> str:
    edited(terminal, "[1, 2]", "[1]", check=0)
    return said(terminal, "merge", OUT)


def relabelled(terminal: Terminal) -> str:
    edited(terminal, "", "", check=0)
    return said(terminal, "relabel", OUT, "--rename", "aep=gross")


def returns_the_old_name(terminal: Terminal) -> str:
    relabelled(terminal)
    terminal.write("my study.py", LABELLED.replace("[1, 2]", "[1, 2, 3]"))
    return said(terminal, "run", "my study.py", "-o", OUT, check=2)


def has_both_names(terminal: Terminal) -> str:
    returns_the_old_name(terminal)
    return said(terminal, "run", "my study.py", "-o", OUT, "--changed", "keep")


def cannot_be_sent(terminal: Terminal) -> str:
    terminal.write("my study.py", LOCKED)
    words = [sys.executable, "my study.py"]
    done = subprocess.run(words, cwd=terminal.folder, capture_output=True, text=True)
    return done.stderr


def failed_in_python(terminal: Terminal) -> str:
    call = f"if __name__ == '__main__':\n        print(optimise.run('{OUT}', workers=1))\n"
    terminal.write("my study.py", f"{STUDY.format(tasks=8)}\n    {call}")
    words = [sys.executable, "my study.py"]
    done = subprocess.run(words, cwd=terminal.folder, capture_output=True, text=True)
    return done.stdout


def settings_left_out(terminal: Terminal) -> str:
    terminal.write("my study.py", SETTING)
    words = [sys.executable, "my study.py"]
    done = subprocess.run(words, cwd=terminal.folder, capture_output=True, text=True)
    return done.stderr


def half_labelled(terminal: Terminal) -> str:
    """The rows of before have no unit."""
    return half_redone(terminal, IN_UNITS.replace(', units=dict(aep="{}")', ""))


def half_redone(terminal: Terminal, before: str = IN_UNITS) -> str:
    terminal.write("my study.py", before.format("km"))
    terminal.run("run", "my study.py", "-o", OUT)
    terminal.write("my study.py", IN_UNITS.format("m"))
    (terminal.folder / "broken").touch()
    text = said(terminal, "run", "my study.py", "-o", OUT, "--changed", "redo", check=1)
    (terminal.folder / "broken").unlink()
    return text


def removed_half(terminal: Terminal) -> str:
    terminal.write("my study.py", IN_UNITS.format("km"))
    terminal.run("run", "my study.py", "-o", OUT)
    terminal.write("my study.py", IN_UNITS.format("m").replace("[1, 2]", "[1]"))
    return said(terminal, "run", "my study.py", "-o", OUT, "--changed", "redo", check=1)


def merged_by_key(terminal: Terminal) -> str:
    folder = worker_files(terminal)
    terminal.write("my study.py", STUDY.format(tasks=7))
    return said(terminal, "merge", folder.name, "-o", OUT, "--key", KEY, "--on-damaged", "skip")


def merged_groups(terminal: Terminal, *words: str) -> str:
    folder = worker_files(terminal)
    return said(terminal, "merge", folder.name, "-o", OUT, "--on-damaged", "skip", *words)


def kept_after_removal(terminal: Terminal) -> str:
    return merged_groups(terminal, "--remove-merged")


def groups_without_declaration(terminal: Terminal) -> str:
    merged_groups(terminal)
    terminal.write("my study.py", STUDY.format(tasks=7))
    return said(terminal, "missing", OUT, check=2)


def rows_without_declaration(terminal: Terminal) -> str:
    text = groups_without_declaration(terminal)
    terminal.run("merge", OUT, "-o", "OTHER.h5", "--key", KEY)
    return text


def folder_is_gone(terminal: Terminal) -> str:
    run_study(terminal)
    shutil.rmtree(terminal.folder / f"{OUT}.run")
    return said(terminal, "status", OUT, check=2)


def not_an_output(terminal: Terminal) -> str:
    (terminal.folder / OUT).write_text("a note")
    return said(terminal, "status", OUT, check=2)


def nothing_to_merge(terminal: Terminal) -> str:
    (terminal.folder / OUT).touch()
    words = ("merge", OUT, "-o", "other.h5", "--on-damaged", "skip")
    return said(terminal, *words, check=3)


def salvaged(terminal: Terminal) -> str:
    folder = worker_files(terminal)
    words = ("--key", KEY, "--expect", "my study.py")
    terminal.write("my study.py", STUDY.format(tasks=7))
    return said(terminal, "salvage", folder.name, "-o", OUT, *words, check=3)


def salvaged_apart(terminal: Terminal) -> str:
    folder = worker_files(terminal)
    return said(terminal, "salvage", folder.name, "--to", "got out", "--key", KEY, check=3)


def removable(terminal: Terminal) -> str:
    run_study(terminal)
    return said(terminal, "clean", OUT)


def moved(terminal: Terminal) -> str:
    run_study(terminal)
    return said(terminal, "clean", OUT, "--yes")


def in_quarantine(terminal: Terminal) -> str:
    moved(terminal)
    return said(terminal, "clean", OUT)


def refused(terminal: Terminal) -> str:
    kept_after_removal(terminal)
    return said(terminal, "clean", OUT)


def output_is_gone(terminal: Terminal) -> str:
    name = quarantine_of(moved(terminal))
    (terminal.folder / OUT).unlink()
    return said(terminal, "clean", OUT, "--purge", name, check=3)


def cannot_be_proven(terminal: Terminal) -> str:
    name = quarantine_of(moved(terminal))
    edit(terminal.folder / OUT)
    return said(terminal, "clean", OUT, "--purge", name, check=3)


def quarantine_of(text: str) -> str:
    return re.findall(r"in quarantine (\S+):", text)[0]


def output_was_edited(terminal: Terminal) -> str:
    run_study(terminal)
    edit(terminal.folder / OUT)
    return said(terminal, "clean", OUT)


def records_of_another(terminal: Terminal) -> str:
    run_study(terminal)
    terminal.run("merge", f"{OUT}.run", "-o", "other.h5")
    return said(terminal, "clean", "other.h5")


def output_cannot_be_read(terminal: Terminal) -> str:
    run_study(terminal)
    with h5py.File(terminal.folder / OUT, "r+") as file:
        del file["task"]
    note_output(terminal.folder / OUT)
    return said(terminal, "clean", OUT, check=3)


def note_output(output: Path) -> None:
    """Let the run folder take this output for the one that it has merged."""
    import json

    note = output.with_name(f"{output.name}.run") / "merged.json"
    status = output.stat()
    merged = {**json.loads(note.read_text()), "output": [status.st_size, status.st_mtime_ns]}
    note.write_text(json.dumps(merged))


def readme(terminal: Terminal) -> str:
    run_study(terminal)
    return (terminal.folder / f"{OUT}.run" / "README.txt").read_text()


def asked_for_again(terminal: Terminal) -> str:
    run_study(terminal)
    return said(terminal, "redo", OUT, "seed=1..2")


def checked(terminal: Terminal) -> str:
    worker_files(terminal)
    return said(terminal, "check", "my night", check=3)


def checked_unclosed(terminal: Terminal) -> str:
    """A file whose writer was killed, of which nothing is lost."""
    path = write_unclosed(terminal.folder / "worker 1.h5")
    return said(terminal, "check", path.name, check=3)


def restored_elsewhere(terminal: Terminal) -> str:
    folder = terminal.folder.parent / "my other night"
    folder.mkdir()
    write_groups(folder / "worker 1.h5", range(3))
    said(terminal, "merge", str(folder), "-o", OUT)
    said(terminal, "clean", OUT, "--yes")
    return said(terminal, "clean", OUT, "--restore", check=1)


def checked_behind(terminal: Terminal) -> str:
    not_merged(terminal)
    return said(terminal, "check", OUT)


def checked_edited(terminal: Terminal) -> str:
    output_was_edited(terminal)
    return said(terminal, "check", OUT, check=3)


def replayed_early(terminal: Terminal) -> str:
    run_study(terminal, "--no-merge")
    return said(terminal, "verify", OUT, check=2)


def replayed_foreign(terminal: Terminal) -> str:
    write_groups(terminal.folder / OUT, range(3))
    return said(terminal, "verify", OUT, check=2)


def shown_foreign(terminal: Terminal) -> str:
    write_groups(terminal.folder / OUT, range(3))
    return said(terminal, "show", OUT, "farm_id=1", check=2)


def verified_broken(terminal: Terminal) -> str:
    run_study(terminal)
    with h5py.File(terminal.folder / OUT, "r+") as file:
        del file["row_crc32"]
    return said(terminal, "verify", OUT, check=3)


def not_repeated(terminal: Terminal) -> str:
    run_study(terminal)
    edit(terminal.folder / OUT)
    return said(terminal, "verify", OUT, check=1)


def submit(
    terminal: Terminal, tasks: int = 4, sbatch: str = ACCEPTS, squeue: str = "", check: int = 0
) -> str:
    """What is said to who submits the study to a Slurm that does as it is told here."""
    terminal.write("my study.py", STUDY.format(tasks=tasks))
    path = fake_slurm(terminal.folder / "bin", sbatch, squeue)
    words = ("submit", "my study.py", "-o", OUT, "--parts", "2")
    return terminal.run(*words, check=check, PATH=path).stderr


def ran_in_parts(terminal: Terminal) -> str:
    return run_study(terminal, "--part", "1/1")


def submitted(terminal: Terminal) -> str:
    return submit(terminal)


def submitted_twice(terminal: Terminal) -> str:
    submit(terminal)
    return submit(terminal, squeue=listing("17_1 RUNNING"), check=4)


def submitted_when_done(terminal: Terminal) -> str:
    run_study(terminal, "--no-merge")
    return submit(terminal)


def submitted_without_merge(terminal: Terminal) -> str:
    run_study(terminal, "--no-merge")
    return submit(terminal, tasks=6, sbatch=f"{REFUSES_MERGE}; {ACCEPTS}", check=1)


STEPS = [
    Step("cli/run: merge", ran_in_parts, " writes the output", 0, "wrote my out.h5 (4 tasks"),
    Step("cli/submit: status", submitted, " says how far", 0, "0 of 4 done"),
    Step("cli/submit: merge", submitted_when_done, " writes the", 0, "wrote my out.h5 (4 tasks"),
    Step("runner/submit: status", submitted_twice, ", or end them", 0, "0 of 4 done"),
    Step("runner/submit: merge", submitted_without_merge, "", 0, "wrote my out.h5 (4 tasks"),
    Step("state/run_command: run -o", half_redone, ". Before that", 0, "2 of 2"),
    Step("state/run_command: run -o", half_labelled, ". Before that", 0, "2 of 2"),
    Step("state/declare_sweep: relabel", half_labelled, "", 0, "units of aep: m"),
    Step(
        "merge/from_records/one_label: merge --declared-only",
        removed_half,
        " leaves them out",
        0,
        "(1 task",
    ),
    Step("state/code_change: relabel --undo", returns_the_old_name, ". To have", 0, "gross is aep"),
    Step("merge/from_records/output_plan: relabel --undo", has_both_names, "", 0, "gross is aep"),
    Step("state/run_command: run -o --sweep", settings_left_out, "", 0, "2 kept, 0 to do"),
    Step("runner/replay: merge", replayed_early, " writes it", 0, "wrote my out.h5"),
    Step("output/one_row: check", verified_broken, "", 3, "damaged"),
    Step("runner/replay: check", replayed_foreign, " says what it is", 0, "3 tasks"),
    Step("runner/show_task: check", shown_foreign, " says what it is", 0, "3 tasks"),
    Step("runner/replay_report: replay", not_repeated, "", 1, "aep  different"),
    Step("state/run_command: run -o --sweep", cannot_be_sent, "", 0, "2 of 2 done"),
    Step("state/run_command: run -o", another_constant, ". To run", 0, "2 kept, 0 to do"),
    Step("state/declare_sweep: relabel --sweep", another_function, "", 0, "the sweep is improve"),
    Step("state/declare_sweep: relabel --rename", another_parameter, "", 0, "seed is start"),
    Step("state/declare_sweep: relabel", one_more_parameter, "", 0, "site=a b in all rows"),
    Step("state/declare_sweep: relabel", another_unit, "", 0, "units of aep: MW h"),
    Step(
        "merge/from_records/output_plan: merge --declared-only",
        one_value_less,
        " leaves them out",
        0,
        "(1 task",
    ),
    Step("cli/relabel: relabel --undo", relabelled, " takes it back", 0, "gross is aep"),
    Step("runner/status: missing", stopped, " lists what is missing, and why", 1, "no seed 7"),
    Step("runner/status: merge", not_merged, " writes the output", 0, "wrote my out.h5 (6 tasks"),
    Step("runner/status: run STUDY -o", nothing_recorded, " runs the tasks", 0, "4 of 4 done"),
    Step("report/verdict: run STUDY -o", nothing_on_a_page, " runs the tasks", 0, "4 of 4 done"),
    Step("runner/status: missing", undeclared, " (a study or CSV)", 1, "1 of 7 missing"),
    Step("report/verdict: missing", stopped_on_a_page, " lists what is missing", 1, "no seed 7"),
    Step("report/verdict: merge", not_merged_on_a_page, " writes the output", 0, "(6 tasks"),
    Step(
        "report/file_section: clean",
        large_files_on_a_page,
        " compares them with the output",
        0,
        "safe to remove",
    ),
    Step("report/files_page: check", worker_files_on_a_page, " says.", 3, "damaged"),
    Step("report/files_page: salvage", worker_files_on_a_page, " shows what can", 3, "6 of"),
    Step("report/files_page: merge -o", sound_files_on_a_page, " puts them", 0, "2 files"),
    Step(
        "report/files_page: merge -o --on-damaged skip",
        an_unclosed_file_on_a_page,
        " puts the others",
        0,
        "3 tasks from 1 file",
    ),
    Step(
        "report/files_page: check --expect study.py",
        an_empty_file_on_a_page,
        ", with your study",
        3,
        "3 of 4 expected tasks",
    ),
    Step("report/files_page: check", a_live_file_on_a_page, ", when their writers", 0, "2 sound"),
    Step("report/write_report: report", report_refused, " writes it", 0, "wrote my out.h5.run"),
    Step("cli/run: missing", failed, " says why", 1, "ValueError: no seed 7"),
    Step("runner/run: missing", failed_in_python, " says why", 1, "ValueError: no seed 7"),
    Step("merge/report: run STUDY -o", merged_by_key, " computes the", 0, "6 kept, 1 to do"),
    Step(
        "merge/report: clean", merged_groups, " lists the worker", 0, "2 files are safe to remove"
    ),
    Step("cli/merge: clean", kept_after_removal, " says why", 0, "2 files damaged or not merged"),
    Step(
        "state/expected_tasks: merge -o OTHER.h5 --key KEY",
        groups_without_declaration,
        " writes one row",
        0,
        "(6 tasks from 1 file; one row per task",
    ),
    Step(
        "state/expected_tasks: missing OTHER.h5 --expect TASKS",
        rows_without_declaration,
        " compares",
        1,
        "1 of 7 missing",
    ),
    Step("state/expected_tasks: run STUDY -o", folder_is_gone, " continues", 0, "4 kept, 0 to do"),
    Step("state/run_command: run -o", asked_for_again, "", 0, "4 kept, 2 to do, 2 of them again"),
    Step("state/expected_tasks: check", not_an_output, " says what", 3, "this is text"),
    Step(
        "merge/merge_files: check", nothing_to_merge, " says what", 3, "0 bytes; its process died"
    ),
    Step("salvage/report: merge", salvaged, " writes the output", 0, "(6 tasks"),
    Step("salvage/report: missing", salvaged, " lists the rest", 1, "1 of 7 missing"),
    Step(
        "salvage/report: merge -o OUTPUT",
        salvaged_apart,
        " merges them",
        0,
        "(6 tasks from 2 files",
    ),
    Step("clean/report: clean --yes", removable, " moves it", 0, "in quarantine"),
    Step("clean/report: clean --purge", in_quarantine, " deletes it", 0, "1 file deleted"),
    Step(
        "clean/report: clean --also --yes", refused, " moves it out of the way", 0, "in quarantine"
    ),
    Step("cli/clean: clean --purge", moved, "", 0, "1 file deleted"),
    Step("clean/clean_files: clean --restore", output_is_gone, "", 0, "1 file put back"),
    Step(
        "clean/clean_files: clean --restore",
        cannot_be_proven,
        " puts them back",
        0,
        "1 file put back",
    ),
    Step("clean/report: clean --restore --to", restored_elsewhere, "", 0, "1 file put back"),
    Step("clean/removable_files: merge", output_was_edited, " rebuilds it", 0, "wrote"),
    Step("clean/removable_files: clean", records_of_another, "", 0, "1 file is safe to remove"),
    Step("clean/prove: check", output_cannot_be_read, "", 3, "damaged"),
    Step("runfolder/layout: status", readme, "     show what is done", 0, "complete"),
    Step("runfolder/layout: missing", readme, "    list what is", 0, "nothing is missing"),
    Step("runfolder/layout: merge", readme, "      write", 0, "wrote"),
    Step("runfolder/layout: clean", readme, "      list", 0, "1 file is safe"),
    Step("check/report: salvage", checked, " with the same paths shows", 3, "6 of"),
    Step(
        "check/report: merge", checked_unclosed, " with the same paths", 0, "(3 tasks from 1 file"
    ),
    Step("worker_files/findings: merge", checked_behind, " rebuilds it", 0, "(6 tasks"),
    Step("worker_files/findings: merge", checked_edited, " rebuilds it", 0, "(4 tasks"),
]


@pytest.mark.parametrize(
    "step", some_of(STEPS, 3), ids=lambda step: f"{step.arrange.__name__}: {step.site}"
)
def test_the_step_that_a_message_names_works(tmp_path: Path, step: Step) -> None:
    """The command is pasted as it stands, with a name put in where it leaves one open."""
    terminal = Terminal(tmp_path / "my work")
    terminal.folder.mkdir()
    words = pasted(step.arrange(terminal), step)
    done = terminal.run(*words, check=step.exit_code)
    assert step.expects in done.stdout + done.stderr


def pasted(text: str, step: Step) -> list[str]:
    """The words of the command that is followed by what the step says, names put in."""
    verb = step.site.partition(": ")[2].split()[0]
    pattern = rf"h5sweep ({verb}\b[^\n`]*?)`?{re.escape(step.after) or '$'}"
    found = re.findall(pattern, text, re.MULTILINE)
    assert found, f"no command {verb} before {step.after!r} in:\n{text}"
    command = found[0].rpartition("h5sweep ")[2]
    assert command.startswith(verb), command
    names = {"STUDY": "my study.py", "TASKS": "my study.py", "KEY": KEY, "OUTPUT": OUT}
    words = [names.get(word, word) for word in shlex.split(command)]
    return [*words, *MORE.get(step.site, {}).get(step.arrange.__name__, ())]


# Where a message says "the same paths", or OUTPUT: what its reader knows.
MORE: dict[str, dict[str, list[str]]] = {
    "merge/merge_files: check": {"nothing_to_merge": [OUT]},
    "check/report: salvage": {"checked": ["my night", "--key", KEY]},
    "check/report: merge": {"checked_unclosed": ["worker 1.h5", "-o", OUT]},
}


@contextmanager
def going_on(terminal: Terminal) -> Iterator[None]:
    (terminal.folder / "wait").touch()
    terminal.write("my study.py", STUDY.format(tasks=4))
    run = terminal.start("run", "my study.py", "-o", OUT, "-j", "1")
    try:
        until((terminal.folder / "waiting").exists)
        yield
    finally:
        run.kill()
        run.communicate()


def test_a_run_that_holds_the_folder_can_be_looked_at(tmp_path: Path) -> None:
    """What a second run says of the first."""
    terminal = Terminal(tmp_path / "my work")
    terminal.folder.mkdir()
    with going_on(terminal):
        text = said(terminal, "run", "my study.py", "-o", OUT, check=4)
        step = Step("runfolder/lock: status", stopped)
        assert "a run is active" in said(terminal, *pasted(text, step))


def test_parts_at_work_can_be_looked_at(tmp_path: Path) -> None:
    """What another part says of them when it has ended, and a run that they keep out."""
    terminal = Terminal(tmp_path / "my work")
    terminal.folder.mkdir()
    terminal.write("my study.py", STUDY.format(tasks=4))
    (terminal.folder / "wait").touch()
    part = terminal.start("run", "my study.py", "-o", OUT, "-j", "1", "--part", "1/2")
    try:
        until((terminal.folder / "waiting").exists)
        (terminal.folder / "wait").unlink()
        for words, exit_code, site in (
            (["--part", "2/2"], 0, "cli/run"),
            ([], 4, "runfolder/parts"),
        ):
            text = run_study(terminal, *words, check=exit_code)
            after = " says how far" if site == "cli/run" else ""
            step = Step(f"{site}: status", stopped, after)
            assert "1 part at work" in said(terminal, *pasted(text, step))
    finally:
        part.kill()
        part.communicate()


# All of them


def test_every_command_in_a_message_is_taken_here() -> None:
    """Whoever adds a message with a command adds the step."""
    made = {site for path in SOURCES.rglob("*.py") for site in sites_in(path)}
    at_work = {f"{site}: status" for site in ("runfolder/lock", "runfolder/parts", "cli/run")}
    assert made == {step.site for step in STEPS} | at_work


# Sentences of one command alone, that name no path: what is in them is taken above or elsewhere.
WITHOUT_PATH = {
    "keep the file: `h5sweep salvage` recovers what is intact in it",  # check/report: salvage
    "h5sweep merge and h5sweep salvage read it as it is",  # check/report: merge
    "h5sweep check --require aep on a file without it",  # an example, not said
}


def sites_in(path: Path) -> Iterator[str]:
    """`module: verb options` for each command in what a module can say."""
    module = str(path.relative_to(SOURCES).with_suffix(""))
    tree = ast.parse(path.read_text())
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command_text":
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            yield f"{module}: {' '.join(map(str, words))}"
        elif isinstance(node, ast.Constant) and id(node) not in docs:
            text = "" if node.value in WITHOUT_PATH else str(node.value)
            yield from (f"{module}: {verb}" for verb in COMMAND.findall(text))
