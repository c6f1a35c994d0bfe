"""Identify processes: a pid alone is not enough, because pids are reused."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that can be told from every other one: host, boot, pid, and when it started.

    `namespace` says in which numbering of processes that pid is meant: containers have their own.
    """

    host: str
    boot: str
    pid: int
    start_ticks: int
    namespace: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ProcessId:
        """The process that a file names; KeyError, TypeError or ValueError if it names none."""
        texts = value["host"], value["boot"]
        numbers = value["pid"], value["start_ticks"], value["namespace"]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("it names no host")
        if not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
            raise ValueError("it names no process")
        if not 0 < numbers[0] < 1 << 31:
            raise ValueError(f"{numbers[0]} is no pid")
        return cls(*texts, *numbers)

    @property
    def is_on_this_host(self) -> bool:
        return self.host == host_name()

    @property
    def is_on_this_machine(self) -> bool:
        """Whether it ran since this boot of this machine, perhaps in a container with a name."""
        return bool(self.boot) and self.boot == boot_id()

    def is_alive(self) -> bool | None:
        """Whether this process still runs; None if nobody here can say.

        That is so for a process of another host, of another container, and of another user where
        /proc hides those.
        """
        if not self.is_on_this_host:
            return None
        if self.boot != boot_id():
            return False
        if self.namespace != _pid_namespace():
            return None
        start_ticks = _start_ticks(self.pid)
        return None if start_ticks == _HIDDEN else start_ticks == self.start_ticks

    def resident_bytes(self) -> int:
        """How much memory it uses; 0 if it has ended or cannot be seen from here."""
        return resident_bytes(self.pid) if self.is_alive() else 0

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}"


def this_process() -> ProcessId:
    """The identity of the calling process."""
    pid = os.getpid()
    return ProcessId(host_name(), boot_id(), pid, _start_ticks(pid) or 0, _pid_namespace())


def resident_bytes(pid: int) -> int:
    """How much memory a process uses; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@cache
def host_name() -> str:
    return os.uname().nodename


@cache
def boot_id() -> str:
    """A name for this boot of the machine: pids and start times start over with each."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> int:
    """A number for the numbering of processes that this one is in; 0 if nobody says."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def _start_ticks(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return _fallback_start(pid)
    # The command's name is in parentheses and may itself hold any character.
    fields = stat.rpartition(")")[2].split()
    is_zombie = fields[0] in "ZX"
    return None if is_zombie else int(fields[19])


def _fallback_start(pid: int) -> int | None:
    """Where /proc does not say: None if there is no such process, 0 if its start is unknown."""
    has_proc = Path("/proc/self").exists()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return _HIDDEN if has_proc else 0
    # Ours, and yet not in /proc: it ended between the two looks.
    return None if has_proc else 0


_HIDDEN = -1
