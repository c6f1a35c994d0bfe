"""Slurm: the parts of a sweep are a job array, and the merge is a job that depends on it.

The last line of a script is `exec`: Slurm sends its signals (scancel, requeue, time limit) to the
process of the script, not to children of that, so this has to be h5sweep itself. A job that is
requeued begins again from the start, which is what `run` is made for.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ..errors import SubmitError, UsageError
from .job import Job, QueuedPart

ASKING_S = 10.0
SUBMITTING_S = 60.0
_LISTED = "%i\t%F\t%T\t%r\t%Z\t%o"
_BY_US = "h5sweep says {} itself: leave it out"
_NOT_ADDED = {
    "--array": f"{_BY_US}. Fewer parts at once: scontrol update JobId=JOB ArrayTaskThrottle=N",
    "--dependency": _BY_US,
    "--wrap": _BY_US,
    "--wait": "h5sweep does not wait for jobs: leave {} out",
}
_SHORT = {"a": "--array", "d": "--dependency", "W": "--wait"}
_FLAGS = "HIQkOsvW"  # short options without a value, which others may follow in one word


class Slurm:
    """What is asked of Slurm is asked by its own programs."""

    title = "Slurm"
    part_variable = "$SLURM_ARRAY_TASK_ID"

    def require_installed(self) -> None:
        if shutil.which("sbatch") is None:
            raise UsageError(
                "sbatch is not installed here: submit from a login node of the cluster; --dry-run "
                "prints the scripts"
            )

    def script_text(self, job: Job) -> str:
        options = [shlex.quote(option) for option in _options(job)]
        options += [_checked_options(text) for text in job.resources.more]
        if wrong := [option for option in options if "\n" in option or "\\" in option]:
            raise UsageError(
                f"Slurm takes no name with a line break or a backslash ({wrong[0]}): rename it"
            )
        about = [f"# {line}" for line in job.about.splitlines()]
        head = ["#!/bin/sh", *about, *(f"#SBATCH {option}" for option in options)]
        return "\n".join([*head, "", *job.lines, ""])

    def submit(self, script: Path, job: Job, after: str = "") -> str:
        words = ["sbatch", "--parsable", *([f"--dependency=afterany:{after}"] if after else [])]
        try:
            done = _call([*words, str(script)], SUBMITTING_S)
        except subprocess.TimeoutExpired as error:
            raise SubmitError(
                f"sbatch does not answer within {SUBMITTING_S:g} s, and may have accepted {script}",
                "Look with squeue --me, then submit again",
            ) from error
        except OSError as error:
            raise SubmitError(
                f"sbatch cannot be started ({error.strerror})", "Mend that, then submit again"
            ) from error
        number = done.stdout.strip().partition(";")[0]  # behind it may be the name of a cluster
        if done.returncode or not number:
            raise _refused(script, job, done.stderr)
        return number

    def queued(
        self, jobs: Sequence[str], scripts: Collection[Path], within_s: float
    ) -> list[QueuedPart] | None:
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            # Jobs that are noted may be another user's; those that are not are our own.
            found = _queue(["--jobs", ",".join(jobs)], within_s) if jobs else {}
            ours = {os.path.realpath(script) for script in scripts}
            for name, (part, script) in _queue(["--me"], within_s).items():
                if os.path.realpath(script) in ours:
                    found[name] = part, script
            return [part for part, _ in found.values()]
        return None

    def cancel_command(self, jobs: Sequence[str]) -> str:
        return shlex.join(["scancel", *jobs])


def _queue(words: Sequence[str], within_s: float) -> dict[str, tuple[QueuedPart, Path]]:
    """What squeue lists: each part by its name, with the script of its job."""
    done = _call(["squeue", "--noheader", "--array", *words, "--format", _LISTED], within_s)
    if "Invalid job id" in done.stderr:  # if it has forgotten the only one
        return {}
    done.check_returncode()
    found = {}
    for line in done.stdout.splitlines():
        name, job, state, reason, folder, script = line.split("\t", 5)
        why = "" if reason == "None" else reason
        found[name] = QueuedPart(job, state.lower(), why), Path(folder, script)
    return found


def in_job(environment: Mapping[str, str]) -> bool:
    """Whether this process is in a job."""
    return bool(environment.get("SLURM_JOB_ID"))


def end_of_job(environment: Mapping[str, str]) -> float | None:
    """When the job ends that this process is in, by the wall clock; None if nobody says."""
    if in_job(environment):
        with suppress(KeyError, ValueError):
            return float(environment["SLURM_JOB_END_TIME"])
    return end_said_now(environment, ASKING_S)


def end_said_now(environment: Mapping[str, str], within_s: float) -> float | None:
    """The same by squeue, which knows of a time limit that was changed since the job began."""
    if not in_job(environment):
        return None
    job = environment["SLURM_JOB_ID"]
    with suppress(KeyError):
        # The last part of an array has the number of the array, which squeue takes for all of it.
        job = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment['SLURM_ARRAY_TASK_ID']}"
    with suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
        said = _call(["squeue", "--noheader", "--jobs", job, "--format", "%e"], within_s).stdout
        return datetime.fromisoformat(said.split()[0]).timestamp()
    return None


def _options(job: Job) -> Iterator[str]:
    """The options of sbatch that a script has; those of the user come behind them."""
    yield f"--job-name={job.name}"
    log = "merge_%j.log"
    if job.parts is not None:
        log = "part_%A_%a.log"
        yield f"--array=1-{job.parts}"
        yield "--requeue"  # after preemption, or if its node fails
    yield "--nodes=1"
    yield "--ntasks=1"
    yield f"--cpus-per-task={job.resources.cpus}"
    if job.resources.time_s is not None:
        yield f"--time={_time_text(job.resources.time_s)}"
    if job.resources.memory_bytes is not None:
        yield f"--mem={_memory_text(job.resources.memory_bytes)}"
    yield f"--chdir={job.folder}"
    yield f"--output={str(job.logs).replace('%', '%%')}/{log}"
    yield "--open-mode=append"  # what it said before it was requeued stays


def _checked_options(text: str) -> str:
    """What a user adds, as one line of a script."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--sbatch {text!r} cannot be read ({error}): close its quotes") from error
    for word in words:
        if option := _not_added(word):
            raise UsageError(f"--sbatch {text!r}: {_NOT_ADDED[option].format(option)}")
    return shlex.join(words)


def _not_added(word: str) -> str:
    """Which option a user may not add this is, also if it is written short; empty if none."""
    if match := re.match(f"-[{_FLAGS}]*?([{''.join(_SHORT)}])", word):
        return _SHORT[match[1]]
    long = word.partition("=")[0]
    return next((one for one in _NOT_ADDED if long[:2] == "--" and one.startswith(long)), "")


def _time_text(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minute:02}:{second:02}"


def _memory_text(size_bytes: int) -> str:
    """In whole GiB if it can be; never less than was asked for."""
    gigabytes, rest = divmod(size_bytes, 2**30)
    return f"{gigabytes}G" if not rest else f"{-(-size_bytes // 2**20)}M"


def _refused(script: Path, job: Job, said: str) -> SubmitError:
    words = " ".join(said.split()).rstrip(".") or "it gives no reason"
    if not _answers():
        return SubmitError(
            f"Slurm does not answer: {words}",
            "Submit where squeue --me does, or when it does again",
        )
    refusal = f"Slurm refuses {script}: {words}"
    most = _most_parts() if "array" in words else None
    if job.parts is not None and most is not None and job.parts > most:
        next_step = f"This cluster allows at most {most:,} parts: submit with --parts {most}"
        return SubmitError(refusal, next_step)
    return SubmitError(refusal, "Change the options, or add to them with --sbatch: submit again")


def _answers() -> bool:
    """Whether anything of Slurm does: sbatch has one exit code for all that is wrong."""
    with suppress(OSError, subprocess.SubprocessError):
        return _call(["squeue", "--noheader", "--me"], ASKING_S).returncode == 0
    return False


def _most_parts() -> int | None:
    """The highest number that a job of an array may have here."""
    with suppress(OSError, subprocess.SubprocessError):
        said = _call(["scontrol", "show", "config"], ASKING_S).stdout
        if match := re.search(r"^MaxArraySize\s*=\s*(\d+)", said, re.MULTILINE):
            return int(match[1]) - 1
    return None


def _call(words: Sequence[str], within_s: float) -> subprocess.CompletedProcess[str]:
    """What a program of Slurm says, whatever its user has set for his own eyes and jobs."""
    ignored = ("SQUEUE_", "SBATCH_ARRAY_INX", "SBATCH_WAIT")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ignored)}
    return subprocess.run(
        words,
        env={**kept, "SLURM_TIME_FORMAT": "standard"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=within_s,
        text=True,
        errors="replace",
    )
