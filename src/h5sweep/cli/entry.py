"""The command line as a whole: its commands and its exit codes."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from importlib import import_module

import click

from ..errors import InterruptedRunError, StorageError, SweepError, system_error
from .terminal import give_up, open_closed_streams, refused_text, tell

INTERNAL_ERROR = 70
STOPPED = (
    "stopped; every finished result is kept and no file is half-written: run the same command again"
)


class Commands(click.Group):
    """The commands in the order in which they are used; each is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [
            "run",
            "submit",
            "status",
            "missing",
            "show",
            "report",
            "redo",
            "merge",
            "export",
            "relabel",
            "audit",
            "check",
            "salvage",
            "clean",
            "replay",
            "verify",
        ]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f".{cmd_name}", __package__)
        command: click.Command = getattr(module, f"{cmd_name}_command")
        # All of the first sentence, which click would cut: in lists it goes on in the next line.
        command.short_help = command.get_short_help_str(limit=1000)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="h5sweep")
def cli() -> None:
    """Run thousands of tasks in parallel, keep every finished result, get one HDF5 file.

    \b
    h5sweep run study.py -o layouts.h5     run what is missing, then merge
    h5sweep submit study.py --parts 40     the same on a cluster, with Slurm
    h5sweep status layouts.h5              show progress, from any terminal
    h5sweep report layouts.h5              write a page to look at and to mail
    h5sweep check layouts.h5_temp          find damage in the files of any program
    h5sweep salvage layouts.h5_temp        recover results from damaged files
    h5sweep clean layouts.h5               list the files that are safe to remove
    h5sweep verify layouts.h5              run some rows again and compare
    """


def main() -> None:
    """Run the command line and exit with the code that DESIGN and `errors` promise."""
    open_closed_streams()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else somebody said to ignore it: nohup
            signal.signal(number, _stop)
    sys.unraisablehook = _stop_again
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if os.environ.get("_H5SWEEP_COMPLETE") == "fish_source":
        _keep_descriptions_whole()
    code = _run_command()
    try:
        sys.stdout.flush()
    except OSError as error:
        give_up(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            tell(f"h5sweep: {refused_text(error)}")
            code = code or 1
    gc.freeze()  # or Python would go through all modules again, to find what it may free
    sys.exit(code)


def _stop(number: int, _: object) -> None:
    """End as after Ctrl-C, so that no half-written file stays; a run has its own way."""
    raise InterruptedRunError(STOPPED, number)


def _stop_again(lost: sys.UnraisableHookArgs) -> None:
    """Send a signal again whose exception came while Python could raise none, and was lost."""
    if isinstance(lost.exc_value, KeyboardInterrupt | InterruptedRunError):
        import threading

        number = getattr(lost.exc_value, "signal_number", signal.SIGINT)
        again = threading.Timer(0.01, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(lost)


def _keep_descriptions_whole() -> None:
    """Let fish show what a command does: click's script ends descriptions at their first comma."""
    from click.shell_completion import FishComplete

    template = FishComplete.source_template
    FishComplete.source_template = template.replace('split ","', 'split --max 1 ","')


def _run_command() -> int:
    try:
        return cli(standalone_mode=False, prog_name="h5sweep") or 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        tell(message.getvalue().rstrip("\n"))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        tell(f"h5sweep: {STOPPED}")
        return 130
    except SweepError as error:
        tell(f"h5sweep: {_with_next_step(error)}")
        return error.exit_code
    except Exception as error:
        refused = system_error(error)
        if refused is None:
            return _say_bug()
        if refused.filename is None and _is_raised_by_click(error):
            tell(f"h5sweep: {refused_text(refused)}")
            return 1
        from ..disk.durable import storage_error

        refusal = storage_error(None, refused)
        tell(f"h5sweep: {_with_next_step(refusal)}")
        return refusal.exit_code


def _is_raised_by_click(error: Exception) -> bool:
    """Whether it was writing a help text, which goes to standard output."""
    from traceback import walk_tb

    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return str(names[-1]).startswith("click.")


def _with_next_step(error: SweepError) -> str:
    next_step = error.next_step if isinstance(error, StorageError) else ""
    return f"{error}. {next_step}" if next_step else str(error)


def _say_bug() -> int:
    from traceback import format_exc

    tell(format_exc() + "h5sweep: this is a bug in h5sweep; every finished result is kept.")
    return INTERNAL_ERROR
