"""A call of the file system that fails, each in turn, in a command that was forked when warm.

    LD_PRELOAD=refuse.so python refusals_everywhere.py FOLDER COMMAND STEP KIND...

Prints a line of JSON for each promise that did not hold, and at last how many calls were refused.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import importlib
import json
import os
import pkgutil
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

import h5sweep.cli
from crash_checks import STUDY, check_output, finished_tasks, started_in

CHANGES = "create write sync truncate allocate lock close unlink mkdir rename link"
READS = "open read stat list"
ONCE, ON, SHORT = range(3)
KINDS = {
    "EIO": (f"{CHANGES} {READS}", ONCE, errno.EIO),
    "ENOSPC": ("create write allocate mkdir sync", ON, errno.ENOSPC),
    "EROFS": (CHANGES, ON, errno.EROFS),
    "EDQUOT": ("create write allocate", ON, errno.EDQUOT),
    "EFBIG": ("write allocate truncate", ON, errno.EFBIG),
    "EACCES": ("create open unlink mkdir rename link", ONCE, errno.EACCES),
    "EMFILE": ("create open", ONCE, errno.EMFILE),
    "ENOMEM": ("create open read stat", ONCE, errno.ENOMEM),
    "ESTALE": (f"{READS} create sync rename", ONCE, errno.ESTALE),
    "EINTR": (f"{CHANGES} open read", ONCE, errno.EINTR),
    "short": ("write", SHORT, 0),
}
LONG_S = 60.0
CODES = {0, 1, 3}  # docs/exit-codes.md: done, the disk refused, a file is damaged


@dataclass(frozen=True)
class Command:
    """What is given, in a folder that was prepared for it, and how its output is checked."""

    prepare: Callable[[Path], list[str]]
    tasks_of: Callable[[Path], set[int]]  # of an output; an error if anything in it is wrong
    tasks: set[int]  # when it has completed
    where: str = ""  # a word of the command line of the process that is refused; "": the command
    below: str = ""  # where files are refused
    again_codes: frozenset[int] = frozenset((0,))
    deletes: bool = False


# Commands and their folders ----------------------------------------------------------------------

RUN = ["run", "study.py", "-o", "out.h5", "-j", "1"]
KEY = ["--key", "farm{number:d}"]


def prepare_run(folder: Path) -> list[str]:
    (folder / "study.py").write_text(STUDY)
    return RUN


def prepare_merge(folder: Path) -> list[str]:
    """A merge into an output that is there already."""
    give(folder, prepare_run(folder), FARMS="2")
    give(folder, [*RUN, "--no-merge"])
    return ["merge", "out.h5"]


def prepare_clean(folder: Path) -> list[str]:
    give(folder, prepare_run(folder))
    return ["clean", "out.h5", "--yes"]


def prepare_restore(folder: Path) -> list[str]:
    give(folder, prepare_clean(folder))
    return ["clean", "out.h5", "--restore", os.listdir(folder / "out.h5.quarantine")[0]]


def prepare_purge(folder: Path) -> list[str]:
    *words, _, name = prepare_restore(folder)
    return [*words, "--purge", name]


def prepare_columns(folder: Path) -> list[str]:
    return add_one_more(folder, write_columns, ["merge", "temp", "-o", "out.h5"])


def prepare_groups(folder: Path) -> list[str]:
    return add_one_more(folder, write_groups, ["merge", "temp", "-o", "out.h5"])


def prepare_packed_groups(folder: Path) -> list[str]:
    return add_one_more(folder, write_packed_groups, ["merge", "temp", "-o", "out.h5"])


def prepare_key(folder: Path) -> list[str]:
    return add_one_more(folder, write_groups, ["merge", "temp", "-o", "out.h5", *KEY])


def prepare_salvage(folder: Path) -> list[str]:
    (folder / "temp").mkdir()
    for worker in range(2):
        write_groups(folder / "temp" / f"worker_{worker}.h5", worker)
    with open(folder / "temp" / "worker_1.h5", "r+b") as file:
        file.write(bytes(8))
    return ["salvage", "temp", "-o", "out.h5", *KEY]


def add_one_more(folder: Path, write: Callable[[Path, int], None], words: list[str]) -> list[str]:
    """An output of two files, and a third file."""
    (folder / "temp").mkdir()
    for worker in range(3):
        if worker == 2:
            give(folder, words)
        write(folder / "temp" / f"worker_{worker}.h5", worker)
    return words


def write_columns(path: Path, worker: int) -> None:
    numbers = np.arange(2) + 2 * worker
    with h5py.File(path, "w") as file:
        file["number"], file["aep"] = numbers, numbers * 1.5
        file["name"] = [f"farm{number}" for number in numbers]
        file.create_dataset("packed", data=numbers * 2, chunks=(2,), compression="gzip")


def write_groups(path: Path, worker: int) -> None:
    with h5py.File(path, "w") as file:
        for number in (2 * worker, 2 * worker + 1):
            group = file.create_group(f"farm{number}")
            group["aep"], group["layout"] = number * 1.5, np.full((3, 2), number / 7)


def write_packed_groups(path: Path, worker: int) -> None:
    """Groups that the HDF5 library copies, in a process of its own."""
    write_groups(path, worker)
    with h5py.File(path, "a") as file:
        for number in (2 * worker, 2 * worker + 1):
            values = np.full(100, number)
            file[f"farm{number}"].create_dataset("z", data=values, chunks=(9,), compression="gzip")


def tasks_of_run(output: Path) -> set[int]:
    check_output(output)
    with h5py.File(output) as file:
        return set(file["task"][:].tolist())


def tasks_of_columns(output: Path) -> set[int]:
    with h5py.File(output) as file:
        numbers = file["number"][:]
        assert (file["aep"][:] == numbers * 1.5).all()
        if "packed" in file:
            assert (file["packed"][:] == numbers * 2).all()
        return set(numbers.tolist())


def tasks_of_groups(output: Path) -> set[int]:
    with h5py.File(output) as file:
        for name, group in file.items():
            number = int(name.removeprefix("farm"))
            assert group["aep"][()] == number * 1.5 and (group["layout"][:] == number / 7).all()
            assert "z" not in group or (group["z"][:] == number).all()
        return {int(name.removeprefix("farm")) for name in file}


SIX = set(range(6))
COMMANDS = {
    "run": Command(prepare_run, tasks_of_run, SIX),
    "worker": Command(prepare_run, tasks_of_run, SIX, where="runner.worker", below="out.h5.run"),
    "merge": Command(prepare_merge, tasks_of_run, SIX),
    "columns": Command(prepare_columns, tasks_of_columns, SIX),
    "groups": Command(prepare_groups, tasks_of_groups, SIX),
    "packed": Command(prepare_packed_groups, tasks_of_groups, SIX),
    "copier": Command(prepare_packed_groups, tasks_of_groups, SIX, where="merge.groups.copy_child"),
    "key": Command(prepare_key, tasks_of_columns, SIX),
    "salvage": Command(prepare_salvage, tasks_of_columns, set(), again_codes=frozenset((0, 3))),
    "clean": Command(prepare_clean, tasks_of_run, SIX),
    "restore": Command(prepare_restore, tasks_of_run, SIX, again_codes=frozenset((0, 2))),
    "purge": Command(prepare_purge, tasks_of_run, SIX, again_codes=frozenset((0, 2)), deletes=True),
}


# Giving a command --------------------------------------------------------------------------------


def give(folder: Path, words: list[str], **env: str) -> None:
    code, said = run_forked(folder, words, env=env)
    assert code == 0, said


def run_forked(
    folder: Path, words: list[str], order: Order | None = None, env: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run the command in a fork of this process; its exit code, and all that it said."""
    said = folder.with_suffix(".said")
    pid = os.fork()
    if pid == 0:
        _be_command(folder, words, order, said, env or {})
    deadline = time.monotonic() + LONG_S
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), said.read_text(errors="replace")
        if time.monotonic() > deadline:
            os.killpg(pid, 9)
            os.waitpid(pid, 0)
            return 98, "it hung: " + said.read_text(errors="replace")
        time.sleep(0.002)  # nobody says when a process ends


@dataclass(frozen=True)
class Order:
    """Which call is refused, and how; 0 for none, but all are listed in `log`."""

    calls: str
    nth: int
    how: int
    number: int
    log: Path
    where: str
    below: str

    def arm(self, folder: Path) -> None:
        below = folder / self.below if self.below else folder
        plan = (str(below), self.calls, self.nth, self.how, self.number, str(self.log))
        if self.where:
            # Where another thread runs, children are new processes, which the shim is loaded into.
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            os.environ["REFUSE_IN"] = self.where
            os.environ["REFUSE"] = "|".join(map(str, plan))
            os.environ["LD_PRELOAD"] = os.environ["REFUSE_SHIM"]
        else:
            as_bytes = [word.encode() if isinstance(word, str) else word for word in plan]
            ctypes.CDLL(None).refuse_arm(*as_bytes)


def _be_command(
    folder: Path, words: list[str], order: Order | None, said: Path, env: dict[str, str]
) -> None:
    code = 99
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ.update({"FARMS": "3", "TRACE": str(folder.with_suffix(".trace")), **env})
        sys.argv = ["h5sweep", *words]
        if order is not None:
            order.arm(folder)
        h5sweep.cli.main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 97
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


# What must hold ----------------------------------------------------------------------------------


class Trial:
    """One command, of which every `step`-th call is refused."""

    def __init__(self, base: Path, name: str, step: int) -> None:
        self.command, self.name, self.step = COMMANDS[name], name, step
        self.folder, self.template = base / "try", base / "template"
        self.log = base / "calls.log"
        self.folder.mkdir(parents=True)
        self.words = self.command.prepare(self.folder)
        shutil.copytree(self.folder, self.template)
        self.inputs = self._files()

    def run(self, kind: str) -> int:
        """Refuse calls one after the other; return how many."""
        calls, how, number = KINDS[kind]
        self.log.unlink(missing_ok=True)
        self._reset()
        self._give(Order(calls, 0, how, number, self.log, self.command.where, self.command.below))
        listed = self.log.read_text().splitlines() if self.log.exists() else []
        count = 0
        for nth in range(1, len(listed) + 1, self.step):
            self._reset()
            order = Order(calls, nth, how, number, self.log, self.command.where, self.command.below)
            code, said = self._give(order, ROUND="fault")
            for problem in self._problems(code, said, number):
                about = {"command": self.name, "kind": kind, "nth": nth, "problem": problem}
                print(json.dumps({**about, "call": listed[nth - 1], "said": said}), flush=True)
            count += 1
        return count

    def _reset(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.template, self.folder)
        self.folder.with_suffix(".trace").unlink(missing_ok=True)

    def _give(self, order: Order | None, **env: str) -> tuple[int, str]:
        return run_forked(self.folder, self.words, order, {"ROUND": "first", **env})

    def _problems(self, code: int, said: str, number: int) -> Iterator[str]:
        if code not in CODES:
            yield f"exit code {code}"
        if "Traceback" in said or "Exception ignored" in said or "bug in h5sweep" in said:
            yield "traceback"
        if code and number and not self._is_explained(said, number):
            yield "neither file nor reason is named"
        lost = self.inputs - self._files()
        if lost and not self.command.deletes:
            yield f"{lost.total()} files are gone or changed"
        yield from self._output_problems(code)
        done = set(finished_tasks(self.folder / "out.h5.run"))
        yield from self._problems_again()
        trace = self.folder.with_suffix(".trace")
        if self.name in ("run", "worker") and (twice := started_in(trace, "again") & done):
            yield f"run again though finished: {twice}"

    def _is_explained(self, said: str, number: int) -> bool:
        # A child that does not start at all cannot say which of its files was refused.
        is_named = any(word in said for word in ("out.h5", "temp", "study.py", str(self.folder)))
        reasons = (os.strerror(number), "is not writable")
        is_told = is_named and any(reason in said for reason in reasons)
        return is_told or "its process did not start" in said

    def _output_problems(self, code: int) -> Iterator[str]:
        output, was_there = self.folder / "out.h5", (self.template / "out.h5").exists()
        if not output.exists():
            if was_there or (code == 0 and self.command.tasks):
                yield "the output is gone"
            return
        try:
            found = self.command.tasks_of(output)
        except Exception as error:
            yield f"the output is damaged: {error!r}"
            return
        if code == 0 and found != self.command.tasks:
            yield f"said to be done, with {sorted(found)}"

    def _problems_again(self) -> Iterator[str]:
        code, said = self._give(None, ROUND="again")
        output = self.folder / "out.h5"
        if code not in self.command.again_codes:
            yield f"the same command again: exit code {code}: {said[-400:]}"
        elif self.command.tasks and self.command.tasks_of(output) != self.command.tasks:
            yield "the same command again does not complete it"
        elif self.name == "salvage":
            give(self.folder, ["merge", "out.h5"])
            if tasks_of_columns(output) != set(range(4)):
                yield "not all was salvaged"

    def _files(self) -> Counter[str]:
        """The content of all files with results, wherever they are."""
        patterns = ("temp/*.h5", "out.h5.run/records/*.records", "out.h5.quarantine/*/*/*")
        found = [path for pattern in patterns for path in self.folder.glob(pattern)]
        return Counter(hashlib.sha1(path.read_bytes()).hexdigest() for path in found)


def main() -> None:
    base, name, step, *kinds = sys.argv[1:]
    os.environ["REFUSE_SHIM"] = os.environ.pop("LD_PRELOAD")  # what we start runs without
    os.environ["ROUND"] = "first"
    for module in pkgutil.walk_packages(h5sweep.__path__, "h5sweep."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    trial = Trial(Path(base), name, int(step))
    print(json.dumps({"command": name, "refused": {kind: trial.run(kind) for kind in kinds}}))


if __name__ == "__main__":
    main()
