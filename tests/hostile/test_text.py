"""Whatever keys, values, names and messages hold, nothing of it steers a terminal, and JSON and CSV
give it back whole."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from h5sweep.base.listed_plan import plan_list
from h5sweep.base.safe_text import csv_cell, csv_lines, json_text, printable, read_cell
from terminal import H5SWEEP, LONG_S, Terminal

HOSTILE = "\x1b]0;OWNED\x07\x1b[31mRED\r\nFAKE LINE\u202e\u009b2J\x7f\u2066"
MARKS = ("\x1b]0;", "\x1b[31mRED", "\x07", "\u202e", "\u009b", "\x7f", "\u2066")
NAME = HOSTILE.replace("\n", "")  # of files; groups may have any
STUDY = f"""
import h5sweep
HOSTILE = {HOSTILE!r}

@h5sweep.sweep(number=range(4), kind=["a" + HOSTILE, "b"])
def work(number, kind):
    if number == 1:
        raise ValueError("message " + HOSTILE)
    if number == 2:
        raise type("Error" + HOSTILE, (Exception,), {{}})("x")
    return {{"aep": number * 1.5, "text": HOSTILE}}
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hostile text wherever a command may have it from."""
    folder = tmp_path_factory.mktemp("hostile")
    terminal = Terminal(folder)
    terminal.write("study.py", STUDY)
    terminal.run("run", "study.py", "-o", "out.h5", "--retries", "0", check=1)
    terminal.write("broken.py", f"raise RuntimeError({HOSTILE!r})\n")
    (folder / f"bad{NAME}.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"x" * 500)
    for name in ("groups.h5", f"groups{NAME}.h5"):
        with h5py.File(folder / name, "w") as file:
            group = file.create_group(f"farm1{HOSTILE}")
            group["aep" + HOSTILE] = 1.5
            group.attrs["unit" + HOSTILE] = file.attrs[HOSTILE] = HOSTILE
    with h5py.File(folder / "rows.h5", "w") as file:
        file["kind"] = [HOSTILE, HOSTILE]
        file["aep"] = [1.0, 2.0]
    _write_trail(folder)
    return folder


def _write_trail(folder: Path) -> None:
    """An output with an audit trail that somebody else has written."""
    shutil.copy(folder / "out.h5", folder / "trail.h5")
    entry = json.loads((folder / "out.h5.audit.jsonl").read_text().splitlines()[-1])
    del entry["line_crc32"]
    about = {"path": str(folder / f"x{HOSTILE}"), "size_bytes": 1, "modified_ns": 1, "xxh3": "0"}
    about |= {"state": HOSTILE, "findings": [HOSTILE], "style": HOSTILE, "tasks": 1}
    entry["inputs"].append(about)
    entry |= {"notes": [HOSTILE], "user": HOSTILE, "command": HOSTILE}
    text = json.dumps(entry, separators=(",", ":"))[:-1].encode()
    line = text + b',"line_crc32":"%08x"}\n' % zlib.crc32(text)
    (folder / "trail.h5.audit.jsonl").write_bytes(line + b'{"torn\x1b]0;OWNED\x07\n')


COMMANDS = [
    ["run", "study.py", "-o", "out.h5", "--retries", "0"],
    ["run", "study.py", "--try", "4"],
    ["run", "broken.py"],
    ["run", f"no{NAME}.py"],
    ["run", "study.py", "--name", HOSTILE],
    ["status", "out.h5"],
    ["status", "out.h5", "--json"],
    ["status", f"no{HOSTILE}.h5"],
    ["missing", "out.h5"],
    ["missing", "out.h5", "--csv"],
    ["missing", "out.h5", "--json"],
    ["merge", "out.h5"],
    ["merge", "out.h5", "--json"],
    ["merge", "groups.h5", f"groups{NAME}.h5", "-o", "merged.h5"],
    ["merge", "groups.h5", f"bad{NAME}.h5", "-o", "merged.h5", "--on-damaged", "skip"],
    ["merge", "groups.h5", f"bad{NAME}.h5", "-o", "m2.h5", "--on-damaged", "skip", "--json"],
    ["merge", "groups.h5", "-o", "keyed.h5", "--key", "farm{n:d}" + NAME],
    ["merge", "rows.h5", "-o", "keyed.h5", "--key", "kind"],
    ["merge", "trail.h5", "--audit-text"],
    ["check", "."],
    ["check", ".", "--deep", "--all"],
    ["check", ".", "--csv"],
    ["check", ".", "--json"],
    ["salvage", "groups.h5", f"bad{NAME}.h5", "-o", "saved.h5"],
    ["salvage", "groups.h5", "rows.h5", "-o", "saved.h5", "--key", "kind"],
    ["salvage", "groups.h5", f"bad{NAME}.h5", "-o", "saved.h5", "--json"],
    ["clean", "out.h5"],
    ["clean", "trail.h5"],
    ["clean", "trail.h5", "--json"],
    ["clean", "out.h5", "--purge", HOSTILE],
    [HOSTILE],
    ["status", "out.h5", HOSTILE],
    ["status", "--no" + HOSTILE],
    ["run", "study.py", "--timeout", HOSTILE],
]


NAMES = ("run", "status", "missing", "merge", "check", "salvage", "clean")


def _on_pipe(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [*H5SWEEP, *words], cwd=folder, capture_output=True, timeout=LONG_S, check=False
    )
    assert done.returncode != 70, done.stderr
    return (done.stdout + done.stderr).decode()


def _on_terminal(words: list[str], folder: Path) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*H5SWEEP, *words],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ):
        os.close(theirs)
        said = b""
        while data := _read(ours):
            said += data
    os.close(ours)
    return said.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # what a terminal says at its end
        return b""


SHOWN = [(words, _on_pipe) for words in COMMANDS]
SHOWN += [({words[0]: words for words in COMMANDS[::-1]}[name], _on_terminal) for name in NAMES]


@pytest.mark.parametrize(
    ("words", "look"),
    [
        pytest.param(
            *shown,
            id=f"{shown[1].__name__}-{ascii(' '.join(shown[0]))[1:60]}",
            marks=pytest.mark.exhaustive if number % 4 else (),
        )
        for number, shown in enumerate(SHOWN)
    ],
)
def test_no_command_prints_what_steers_a_terminal(
    words: list[str], look: Callable[[list[str], Path], str], places: Path
) -> None:
    """Hostile text from any place is shown in escapes, by every command."""
    said = look(words, places)
    assert said
    assert not [mark for mark in MARKS if mark in said], said
    if look is _on_pipe:
        assert all(letter.isprintable() or letter in "\n\t" for letter in said)


def test_a_task_log_tags_with_safe_keys(places: Path) -> None:
    """The lines that say which task has printed are ours, and safe."""
    terminal = Terminal(places)
    terminal.write(
        "talk.py", STUDY.replace("    if number == 1:", "    print(1)\n    if number == 9:")
    )
    terminal.run("run", "talk.py", "-o", "talk.h5", "--retries", "0", check=1)
    logs = [path.read_text() for path in (places / "talk.h5.run" / "logs").iterdir()]
    tags = [line for text in logs for line in text.split("\n") if line.startswith("--- ")]
    assert tags
    assert all(tag.isprintable() for tag in tags)


def test_json_and_csv_give_back_every_character(places: Path) -> None:
    """A program that reads the missing tasks has their keys as they are; so has `--expect`."""
    terminal = Terminal(places)
    listed = terminal.json("missing", "out.h5", check=1)["missing"]
    kinds = ["a" + HOSTILE, "b"] * 2
    assert [task["key"]["kind"] for task in listed] == kinds
    assert HOSTILE in listed[0]["detail"]
    assert len(terminal.run("missing", "out.h5", check=1).stdout.splitlines()) == len(listed)
    said = terminal.run("missing", "out.h5", "--csv", check=1).stdout
    (_, *rows) = csv.reader(io.StringIO(said, newline=""))
    assert [read_cell(row[1]) for row in rows] == kinds
    assert [json.loads(row[1]) for row in rows if row[1].startswith('"')] == kinds[::2]
    todo = "".join(csv_lines([["number", "kind"], *(row[:2] for row in map(_cells, rows))]))
    (places / "todo.csv").write_text(todo)
    again = terminal.json("missing", "out.h5", "--expect", "todo.csv", check=1)["missing"]
    assert [task["key"] for task in again] == [task["key"] for task in listed]


def _cells(row: list[str]) -> list[str]:
    return list(map(read_cell, row))


@pytest.mark.parametrize(
    "text", ["", "plain", "ü π", "a\nb", HOSTILE, '"quoted"', '"', '"\\u001b"', "\udcff", "\\x1b"]
)
def test_a_cell_is_read_as_it_was_written(text: str, tmp_path: Path) -> None:
    """Every text survives CSV, also one that looks like an escape; so does it JSON."""
    line = next(csv_lines([[text, "x"]]))
    assert all(letter.isprintable() or letter in "\n\t" for letter in line)
    ((cell, _),) = csv.reader(io.StringIO(line, newline=""))
    assert read_cell(cell) == text
    assert json.loads(json_text([text])) == [text]
    assert json_text([text]).strip().isprintable()


@pytest.mark.parametrize("cell", ['"of', '"5"', '"said"', '"\\u0041"'])
def test_a_cell_of_another_program_is_left_as_it_is(cell: str, tmp_path: Path) -> None:
    """Quotes in a CSV that we have not written are part of the text."""
    assert read_cell(cell) == cell
    path = tmp_path / "tasks.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["name"], [cell]])
    assert plan_list(path).key(0) == {"name": cell}


def test_what_is_safe_stays_as_it_is() -> None:
    """Letters of any language, and texts that only look strange, are not touched."""
    for text in ("Østerild, 3 × 15 MW", "σ=0.1", "a\\b", "日本"):
        assert printable(text) == csv_cell(text) == text
