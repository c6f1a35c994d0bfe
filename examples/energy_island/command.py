"""`python study.py`: run the sweep with settings from the command line, then show the best."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from shlex import quote
from shutil import which

import models
from h5sweep.errors import SweepError
from results import best_by_farm, read_results, table_of


def main() -> None:
    arguments = parse_arguments()
    # In the environment before the study is read, which asks for them; workers inherit them.
    if arguments.full:
        os.environ["ENERGY_ISLAND"] = "full"
    if arguments.model:
        os.environ[models.SETTING] = arguments.model
    try:
        import study

        report = study.optimise.run(arguments.output, workers=arguments.workers)
    except (SweepError, ValueError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(getattr(error, "exit_code", 2)) from None
    print(f"{report.tasks_done:,} of {report.tasks_total:,} layouts done\n")
    if report.tasks_done:
        print("The best layout of each farm:\n")
        print(table_of(best_by_farm(read_results(arguments.output))))
    print(next_steps(arguments.output, complete=report.is_complete, full=arguments.full))
    raise SystemExit(0 if report.is_complete else 1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Optimise wind-farm layouts of the Danish Energy Island. "
        "Run the same command again after whatever stopped it: it runs what is missing."
    )
    parser.add_argument("--full", action="store_true", help="all 3,000 layouts instead of 30")
    parser.add_argument(
        "--model", choices=models.NAMES, help="default: numba if it is installed, else numpy"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("layouts.h5"))
    parser.add_argument("-j", "--workers", type=int, help="default: all cores")
    return parser.parse_args()


def next_steps(output: Path, *, complete: bool, full: bool) -> str:
    """What can be typed now."""
    file, script, python = quote(str(output)), quote(sys.argv[0]), python_here()
    h5sweep = "h5sweep" if which("h5sweep") else f"{python} -m h5sweep"
    steps = [(f"{h5sweep} status {file}", "how far it is, by farm, type and seed")]
    if not complete:
        steps.append((f"{h5sweep} missing {file}", "what has no layout yet, and why"))
    steps.append((f"{h5sweep} merge {file} --compress", "the same rows, compressed"))
    if not full:
        steps.append((f"{python} {script} --full -o {file}", "all 3,000; these are kept"))
    opened = f"""{python} -c "import h5sweep; print(h5sweep.open('{output}'))\""""
    steps.append((opened, "what is in it, with xarray (pip install xarray h5netcdf)"))
    return "\nNext:\n" + "\n".join(f"  {what}\n      {command}" for command, what in steps)


def python_here() -> str:
    """How to call this Python from here; an environment need not be active."""
    if which("python") == sys.executable:
        return "python"
    executable = Path(sys.executable)
    here = Path.cwd()
    return quote(str(executable.relative_to(here) if here in executable.parents else executable))
