"""The command that is advised is one that may be typed as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from h5sweep.state.run_command import run_again_text

LIMITS = [
    *("--timeout 2s", "--memory=400MB --retries 0", "-j4", "-j 4", "--env 'A=1,2' --grace 5s"),
    "--sweep f --timeout 2s",
]


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_of_the_last_run_are_advised_again(limits: str) -> None:
    """Without them a task that hung once would hang for ever; what chose tasks is left out.

    A study of several sweeps is refused if nobody says which.
    """
    command = f"/bin/h5sweep run study.py --only a=1 {limits} -o out.h5 --changed keep"
    sweep = {"name": "f", "study": "study.py", "command": command}
    said = run_again_text(sweep, Path("out.h5"), "redo")
    plain = limits.replace("'", "")
    assert said == f"h5sweep run study.py -o out.h5 --changed redo {plain}"


@pytest.mark.parametrize("command", ["", "study.py --timeout 2s", "h5sweep redo x", "h5sweep 'a"])
def test_other_commands_say_nothing_of_limits(command: str) -> None:
    """A script's own options are not ours."""
    sweep = {"name": "f", "study": "study.py", "command": command}
    assert run_again_text(sweep, Path("out.h5")) == "h5sweep run study.py -o out.h5"


def test_a_sweep_that_was_chosen_is_advised_again() -> None:
    """By the name that it has now: it may have been relabelled."""
    sweep = {"name": "g", "study": "study.py", "command": "h5sweep run study.py --sweep=f"}
    assert run_again_text(sweep, Path("o.h5")) == "h5sweep run study.py -o o.h5 --sweep g"


def test_a_lambda_is_not_advised_by_its_name() -> None:
    """Python has no variable of that name."""
    sweep = {"name": "lambda", "study": "study.py", "imported": False}
    assert run_again_text(sweep, Path("o.h5"), "redo") == "run('o.h5', changed='redo') of the sweep"
