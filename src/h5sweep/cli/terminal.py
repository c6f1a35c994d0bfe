"""Data to standard output, messages to standard error, even if either is closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

import click

from ..base.safe_text import json_text, printable
from ..errors import StorageError
from ..runner.progress import showing_progress as showing_progress  # for all commands


def print_texts(texts: Iterable[str]) -> bool:
    """Write to standard output; False if whoever read it has seen enough (`| head`).

    The texts are safe (`safe_text`): nothing here looks at what is in them.
    """
    try:
        for text in texts:
            sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        give_up(sys.stdout)
        return False
    except OSError as error:
        give_up(sys.stdout)
        raise StorageError(refused_text(error)) from error
    return True


def print_text(text: str) -> bool:
    """Write what is for people to standard output, whatever names are in it."""
    return print_texts([printable(text)])


def print_json(value: dict[str, Any]) -> None:
    print_texts([json_text(value, indent=1)])


def tell(text: str) -> None:
    try:
        click.echo(printable(text), err=True)
    except OSError:
        # Nobody is listening any more (`2>&1 | head`): what is done is done all the same.
        give_up(sys.stderr)


def terminal_size() -> os.terminal_size | None:
    """How much can be seen at once; None where nobody looks on a terminal."""
    import shutil

    return shutil.get_terminal_size() if sys.stdout.isatty() else None


def open_closed_streams() -> None:
    """Open /dev/null as what the shell has closed (`2>&-`).

    Otherwise the next file that we open, such as a record file, would be standard output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number is free
        if getattr(sys, name) is None:
            stream = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115 (it stays)
            setattr(sys, name, stream)


def give_up(stream: TextIO) -> None:
    """Let what is left in the buffer of a stream go nowhere, also when Python ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def refused_text(error: OSError) -> str:
    where = error.filename or "standard output"
    return f"cannot write to {where}: {error.strerror}; fix that and run the same command again"
