"""What a run shows: on a terminal nothing stale stays, and what matters fits the width."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import pytest

from h5sweep.base.units import cut_middle
from h5sweep.runner import progress
from h5sweep.runner.progress import MOST_SAID, PlainDisplay
from h5sweep.runner.time_left import Durations, Moment, RunningTask

WIDTH = 80
TOKENS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\s\S])")


def seen_on_terminal(text: str) -> list[str]:
    """The lines on a terminal of WIDTH columns after it was sent `text`."""
    lines, row, column = [""], 0, 0
    for argument, command, character in TOKENS.findall(text):
        if command == "A":
            row = max(row - int(argument or 1), 0)
        elif command == "K":
            lines[row] = "" if argument == "2" else lines[row][:column]
        elif character == "\r":
            column = 0
        elif character:
            if character == "\n" or column == WIDTH:
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            if character != "\n":
                line = lines[row].ljust(column)
                lines[row] = line[:column] + character + line[column + 1 :]
                column += 1
    return [line.rstrip() for line in lines if line.strip()]


def shown(tmp_path: Path, code: str) -> tuple[str, list[str]]:
    """What lines of code with a TerminalDisplay `d` sent, and what is to be seen in the end."""
    head = (
        "import os, sys\nfrom h5sweep.runner import progress, time_left\n"
        "progress.REDRAW_EVERY_S = 0\nd = progress.TerminalDisplay()\n"
        "def typed(): os.write(2, b'^C')\n"
        "def update(done, running):\n"
        "    took, now = time_left.Durations, lambda: [LONG] * running\n"
        "    d.update(time_left.Moment(done, 0, 0, took, now))\n"
        "LONG = time_left.RunningTask('name=' + 'long' * 30 + ', seed=3', 12, 'pid 4711')\n"
    )
    (tmp_path / "shows.py").write_text(head + textwrap.dedent(code))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "shows.py")],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    sent = b""
    while more := _read(ours):
        sent += more
    os.close(ours)
    assert process.wait(30) == 0, sent.decode()
    return sent.decode(), seen_on_terminal(sent.decode())


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side has closed
        return b""


def test_messages_leave_no_stale_bar(tmp_path: Path) -> None:
    """A message stands above the live view, of which nothing stays behind."""
    _, seen = shown(
        tmp_path,
        """
        d.say("4 to do")
        d.begin(tasks_total=4, tasks_done=0)
        d.say("before the first task")
        for done in range(3):
            update(done, running=3 - done)
            d.say(f"said {done} " + "x" * 100 * done)
        d.end()
        d.say("the end")
        """,
    )
    assert seen[:4] == ["4 to do", "before the first task", "said 0", "said 1 " + "x" * 73]
    assert seen[-1] == "the end"
    assert not [line for line in seen if "━" in line or "pid" in line or "done" in line]


def test_ctrl_c_leaves_no_stale_bar(tmp_path: Path) -> None:
    """What the terminal echoes does not move the live view, however full its lines are."""
    _, seen = shown(
        tmp_path,
        """
        d.begin(tasks_total=4, tasks_done=0)
        typed()
        update(1, running=1)
        typed(); typed()
        d.say("letting it finish")
        typed()
        update(2, running=1)
        d.end()
        """,
    )
    assert seen == ["letting it finish"]


def test_view_after_a_message_is_whole(tmp_path: Path) -> None:
    """Behind a message the live view is there again: bar, counts, tasks with time and pid."""
    _, seen = shown(
        tmp_path,
        """
        d.begin(tasks_total=4, tasks_done=0)
        update(1, running=1)
        d.say("a message")
        sys.stderr.flush()
        os._exit(0)
        """,
    )
    assert seen[0] == "a message"
    assert "━" in seen[1]
    assert seen[2].startswith("1 of 4 done")
    assert re.fullmatch(r"name=long.*….*long, seed=3  12 s  pid 4711", seen[3])
    assert max(map(len, seen)) < WIDTH


def test_nothing_is_rounded_up_to_all(tmp_path: Path) -> None:
    """100 % is for a run that has ended."""
    sent, _ = shown(tmp_path, "d.begin(tasks_total=500, tasks_done=499)\nupdate(0, running=1)")
    assert "99 %" in sent
    assert "100" not in sent


def test_merging_shows_a_share(tmp_path: Path) -> None:
    """A merge counts from 0 to 100 %, whatever it counts inside."""
    sent, seen = shown(tmp_path, "for n in range(0, 121, 30): d.merging(n, 120)\nd.end()")
    shares = dict.fromkeys(re.findall(r"merging: (\d+) %", sent))
    assert list(shares) == ["0", "25", "50", "75", "100"]
    assert " of " not in sent
    assert seen == []


@pytest.mark.parametrize(
    ("key", "width", "fitted"),
    [
        ("seed=3", 40, "seed=3  12 s  pid 4711"),
        ("name=abcdefgh, seed=3", 27, "name=…eed=3  12 s  pid 4711"),
        ("a  b=abcdefgh", 22, "a  …gh  12 s  pid 4711"),
        ("seed=3", 10, "seed=3  12 s  pid 4711"),
    ],
)
def test_time_and_pid_of_a_task_are_kept(key: str, width: int, fitted: str) -> None:
    """If a line is too long, its key is cut."""
    assert RunningTask(key, 12, "pid 4711").line(width) == fitted


@pytest.mark.parametrize("width", [1, 2, 3, 10, 25, 26, 27])
def test_cut_text_has_its_width(width: int) -> None:
    """Never longer than asked, and as it was if it fits."""
    text = "abcdefghijklmnopqrstuvwxyz"
    cut = cut_middle(text, width)
    assert len(cut) == min(width, len(text))
    assert cut == text if width >= len(text) else "…" in cut


def test_messages_are_one_line_of_bearable_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of any length and form is cut; its end, with the next step, stays."""
    stream = io.StringIO()
    display = PlainDisplay(stream)
    display.say("first failure:\n" + "x" * 9999 + "\nrun it again")
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    display.merging(60, 120)
    first, second = stream.getvalue().splitlines()
    assert len(first) == MOST_SAID + len("h5sweep: ")
    assert first.startswith("h5sweep: first failure: xxx")
    assert first.endswith("xxx run it again")
    assert second.endswith(" merging: 50 %")


def test_no_time_is_left_for_tasks_that_are_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C a run ends with what is running: the rate says nothing of that."""
    stream = io.StringIO()
    display = PlainDisplay(stream)
    display.begin(tasks_total=100, tasks_done=0)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    took = Durations((2.0,) * 9)
    display.update(Moment(9, 0, 1.0, took=lambda: took, running=list, is_ending=True))
    assert "9 of 100 done" in stream.getvalue()
    assert "left" not in stream.getvalue()


def test_a_hung_task_is_named_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log says which task has run far longer than others, and what that means for the end."""
    stream = io.StringIO()
    display = PlainDisplay(stream)
    display.begin(tasks_total=100, tasks_done=50)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    hung = RunningTask("farm_id=3, seed=7", 480, "pid 4711")
    took = Durations((2.0,) * 49)
    display.update(Moment(49, 0, quiet_s=400, took=lambda: took, running=lambda: [hung]))
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"h5sweep: \d\d:\d\d:\d\d 99 of 100 done, [\d,]+/s, the last task is running, "
        "8 min left or more",
        first,
    )
    assert second.endswith(" 1 task running for 8 min (median 2 s): farm_id=3, seed=7")
