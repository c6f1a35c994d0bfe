"""In a shell: completion, pipes that nobody reads to the end, and a help that says all."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from h5sweep.cli import cli
from needs import needs_fish, needs_zsh
from terminal import H5SWEEP, Terminal

DOCS = Path(__file__).parents[2] / "docs" / "watching.md"
COMMANDS = cli.list_commands(click.Context(cli))
STUDY = """
@h5sweep.sweep(farm=["a", "b"], seed=range(3))
def f(farm, seed):
    if farm == "b" and seed == 1:
        raise ValueError("no")
    return {"x": seed}
"""


# Help


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_summary_is_cut(columns: int) -> None:
    """The list of commands says of each all that its summary says, however wide the terminal is."""
    context = click.Context(cli, info_name="h5sweep", terminal_width=columns)
    shown = " ".join(cli.get_help(context).partition("Commands:\n")[2].split())
    assert "..." not in shown
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None and command.help is not None
        summary = " ".join(command.help.split("\n\n")[0].split())
        assert f"{name} {summary}" in shown


def test_summaries_are_one_line_of_80_columns() -> None:
    """One sentence each, so that the list of commands is one."""
    context = click.Context(cli, info_name="h5sweep", terminal_width=80, max_content_width=80)
    lines = cli.get_help(context).partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == COMMANDS
    assert all(line.endswith(".") for line in lines)


# Pipes

READING = {
    "status": ["out.h5"],
    "missing": ["out.h5"],
    "show": ["out.h5", "farm=a", "seed=1"],
    "report": ["out.h5"],
    "export": ["out.h5", "--csv", "out.csv", "--force"],
    "audit": ["out.h5"],
    "redo": ["out.h5", "--cancel"],
    "merge": ["out.h5", "--audit-text"],
    "relabel": ["out.h5"],
    "check": ["out.h5.run"],
    "salvage": ["out.h5"],
    "clean": ["out.h5"],
    "replay": ["out.h5", "farm=a", "seed=1"],
    "verify": ["out.h5", "--sample", "1"],
    "run": ["study.py", "-o", "out.h5"],
    "submit": ["study.py", "-o", "out.h5", "--parts", "2", "--dry-run"],
}


def test_every_command_is_tried_with_a_closed_pipe() -> None:
    """A new command gets a line above."""
    assert sorted(READING) == sorted(COMMANDS)


@pytest.fixture(scope="module")
def after_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after a run of which one task has failed."""
    terminal = Terminal(tmp_path_factory.mktemp("after_run"))
    terminal.write_study(STUDY)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1, check=1)
    return terminal.folder


@pytest.fixture
def done(after_run: Path, terminal: Terminal) -> Terminal:
    """A copy of it."""
    shutil.copytree(after_run, terminal.folder, dirs_exist_ok=True)
    return terminal


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_gets_no_traceback(done: Terminal, command: str) -> None:
    """`| head` and `2>&1 | head`: the exit code is that of the command, or of its help."""
    words = [command, *READING[command]]
    code = into_closed_pipe(done, words, "")
    for closed in ("stdout", "stdout and stderr"):
        assert into_closed_pipe(done, words, closed) == code
        assert into_closed_pipe(done, [command, "--help"], closed) in (0, 1)


@pytest.mark.parametrize("words", [["status", "out.h5"], ["missing", "out.h5"], ["run"], ["-h"]])
def test_a_fork_says_what_a_new_process_says(done: Terminal, words: list[str]) -> None:
    """Tests fork their commands; these are what users start."""
    found, expected = (
        done.run(*words, check=None, H5SWEEP_NEW_PROCESSES=new) for new in ("0", "1")
    )
    assert (found.returncode, found.stdout) == (expected.returncode, expected.stdout)
    assert found.stderr == expected.stderr


def into_closed_pipe(terminal: Terminal, words: list[str], closed: str) -> int:
    """The exit code of a command of which these streams have no reader."""
    reader, writer = os.pipe()
    os.close(reader)
    # Not what pytest or a user may have set: what Python does with a full buffer is tried.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(
        [*H5SWEEP, *words],
        cwd=terminal.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=writer if closed else subprocess.DEVNULL,
        stderr=writer if "stderr" in closed else subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert "\nTraceback" not in f"\n{ran.stderr or ''}"  # those of tasks are behind a bar
    assert "Broken" not in (ran.stderr or "")
    return ran.returncode


# Completion


class Shell:
    """An interactive shell of which somebody presses keys, with nothing but these settings."""

    def __init__(self, words: list[str], folder: Path, home: Path) -> None:
        self._deadline = time.monotonic() + 60
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**in_new_home(home), "PS1": "$ ", "TERM": "dumb", "INPUTRC": "/dev/null"},
            start_new_session=True,
        )
        os.close(theirs)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def read_until(self, words: str) -> str:
        text = ""
        while words not in text:
            left_s = max(self._deadline - time.monotonic(), 0)
            assert select.select([self._ours], [], [], left_s)[0], f"never shown: {words}\n{text}"
            text += os.read(self._ours, 65536).decode(errors="replace")
        return text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def in_new_home(home: Path) -> dict[str, str]:
    """The environment of somebody who has just got an account, and h5sweep."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "HISTFILE": ""}


def said_line(where: str) -> str:
    """What the docs say to put into that file of a shell."""
    said = DOCS.read_text().partition(f"`{where}`")[2]
    return said.partition("```sh\n")[2].partition("```")[0]


def write_settings(home: Path, where: str, text: str) -> None:
    path = home / where.removeprefix("~/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with an output and a study."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("layouts.h5", "study.py", "two words.h5"):
        (folder / name).touch()
    return folder


@pytest.fixture(
    params=["bash", pytest.param("zsh", marks=needs_zsh)],
)
def shell(request: pytest.FixtureRequest, home: Path, work: Path) -> Iterator[Shell]:
    """With the line that the docs say to put into its settings."""
    words, where, above = {
        "bash": (["bash", "-i"], "~/.bashrc", ""),
        "zsh": (["zsh", "-i"], "~/.zshrc", "autoload -Uz compinit && compinit\n"),
    }[request.param]
    write_settings(home, where, above + said_line(where))
    found = Shell(words, work, home)
    found.press('echo is "ready"\n')
    found.read_until("is ready")
    yield found
    found.close()


COMPLETED = [
    ("h5sweep sta", "tus "),
    ("h5sweep status --wa", "tch "),
    ("h5sweep run --failed re", "try "),
    ("h5sweep status lay", "outs.h5 "),
    ("h5sweep check lay", "outs.h5 "),
    ("h5sweep merge lay", "outs.h5 "),
    ("h5sweep merge two", "\\ words.h5 "),
    ("h5sweep run stu", "dy.py "),
]


@pytest.mark.parametrize(("typed", "completed"), COMPLETED)
def test_a_shell_completes(shell: Shell, typed: str, completed: str) -> None:
    """Commands, options, their choices, and files, in a real bash and zsh."""
    shell.press(f"{typed}\t")
    shell.read_until(f"{typed}{completed}")


def test_a_shell_lists_all_commands(shell: Shell) -> None:
    """After h5sweep and a space."""
    shell.press("h5sweep \t\t")
    listed = shell.read_until(COMMANDS[-1])
    assert set(listed.split()) >= set(COMMANDS)


FISH = "~/.config/fish/completions/h5sweep.fish"


def completed_by_fish(typed: str, home: Path, work: Path) -> dict[str, str]:
    """What fish offers behind what is typed, with descriptions."""
    write_settings(home, FISH, said_line(FISH))
    done = subprocess.run(
        ["fish", "-c", f"complete -C {typed!r}"],
        cwd=work,
        env=in_new_home(home),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return dict((*line.split("\t"), "")[:2] for line in done.stdout.splitlines())


@needs_fish
@pytest.mark.parametrize(("typed", "completed"), COMPLETED)
def test_fish_completes(home: Path, work: Path, typed: str, completed: str) -> None:
    """The same in a real fish."""
    word = typed.split()[-1] + completed.replace("\\", "").rstrip()
    assert list(completed_by_fish(typed, home, work)) == [word]


@needs_fish
def test_fish_says_what_each_command_does(home: Path, work: Path) -> None:
    """All of it, also behind a comma."""
    listed = completed_by_fish("h5sweep ", home, work)
    context = click.Context(cli)
    assert listed == {
        name: command.get_short_help_str(limit=1000)
        for name in COMMANDS
        if (command := cli.get_command(context, name))
    }
