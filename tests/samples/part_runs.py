"""Parts of a sweep as processes: started, on other "hosts", with hearts that beat fast."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crash_checks import STUDY, check_output, started_in
from running import PATIENCE_S, until

# Silence of two seconds is death, not of twenty: set before any module takes these over.
_QUICK = """
import sys
from h5sweep.runfolder import heartbeat
heartbeat.HEARTBEAT_S, heartbeat.WATCH_S = 0.2, 2.0
from h5sweep.runner import part_tasks
part_tasks.LOOK_EVERY_S = 0.3
from h5sweep.cli import main
sys.argv[0] = "h5sweep"
main()
"""
QUICK_H5SWEEP = [sys.executable, "-c", _QUICK]
FARMS = 12  # two tasks each

# Variables that a study is seen to read belong to its code; parts of one sweep have one code.
_READING = "def told(name, default=''):\n    return vars(os)['environ'].get(name, default)\n\n"
UNSEEN = (
    STUDY.replace("os.environ.get(", "told(")
    .replace("os.environ['ROUND']", "told('ROUND')")
    .replace('os.environ["TRACE"]', 'told("TRACE")')
    .replace('os.environ["FARMS"]', 'told("FARMS")')
    .replace("def log", f"{_READING}def log")
)
# A task waits, if it is told so, until there is a file `go`.
WAITING = UNSEEN.replace(
    "    for _ in range",
    """    import time
    while told("WAIT") in ("all", str(number)) and not os.path.exists(told("TRACE") + ".go"):
        time.sleep(0.01)
    for _ in range""",
)


class Parts:
    """Starts parts of one study in one folder, and knows which tasks each began."""

    def __init__(
        self,
        folder: Path,
        farms: int = FARMS,
        study: str = WAITING,
        program: Sequence[str] = QUICK_H5SWEEP,
    ) -> None:
        self.folder = folder
        self._program = program
        self.tasks = 2 * farms
        self.trace = folder / "trace"
        self._farms = farms
        self.started: list[subprocess.Popen[str]] = []
        (folder / "study.py").write_text(study)

    def start(
        self,
        part: str,
        *words: str,
        host: str = "",
        boot: Path | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> subprocess.Popen[str]:
        """Start a part; its round is its name, unless another is given."""
        run = ["run", "study.py", "-o", "out.h5", "--part", part, "-j", "1", "--backoff", "0.05s"]
        env = {"ROUND": part, **env}
        return self.start_words(*run, *words, host=host, boot=boot, cwd=cwd, **env)

    def start_words(
        self,
        *words: str,
        host: str = "",
        boot: Path | None = None,
        cwd: Path | None = None,
        **env: str,
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*on_host(host, boot), *self._program, *words],
            cwd=cwd or self.folder,
            env={**os.environ, **self.environment(), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, part: str, *words: str, check: int | None = 0, **env: Any) -> str:
        """Run a part to its end; return what it said."""
        return ended(self.start(part, *words, **env), check)

    def run_words(self, *words: str, check: int | None = 0, **env: Any) -> str:
        return ended(self.start_words(*words, **{"ROUND": words[0], **env}), check)

    def environment(self) -> dict[str, str]:
        return {"ROUND": "other", "TRACE": str(self.trace), "FARMS": str(self._farms)}

    def begun(self, *rounds: str) -> list[int]:
        """The tasks that were begun, each time that one was."""
        if not self.trace.exists():
            return []
        lines = (line.split() for line in self.trace.read_text().splitlines())
        return [int(number) for name, word, number in lines if not rounds or name in rounds]

    def wait_until_begun(self, *rounds: str, least: int = 1) -> None:
        """Wait until some tasks of a round have begun."""
        until(lambda: len(self.begun(*rounds)) >= least, what=f"{rounds}: {least} tasks begun")

    def let_go(self) -> None:
        """Have tasks that wait end."""
        Path(f"{self.trace}.go").touch()

    def check_all(self) -> None:
        """Merge; every result is there and right."""
        self.run_words("merge", "out.h5")
        assert check_output(self.folder / "out.h5") == self.tasks

    def started_in(self, round_name: str) -> set[int]:
        return started_in(self.trace, round_name)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str], check: int | None = 0) -> str:
    """Wait for the end of a command; return what it said."""
    out, err = process.communicate(timeout=2 * PATIENCE_S)
    assert check is None or process.returncode == check, f"exit {process.returncode}\n{out}{err}"
    assert "Traceback" not in err, err
    return out + err


def on_host(name: str, boot: Path | None = None) -> list[str]:
    """Words before a command that let it be on a host of that name, and of that boot; for root."""
    if not name:
        return []
    mount = f"mount --bind '{boot}' /proc/sys/kernel/random/boot_id; " if boot else ""
    return ["unshare", "--uts", "--mount", "sh", "-c", f'hostname {name}; {mount}exec "$@"', "sh"]


@contextmanager
def sshfs_mount(server: Path, place: Path, *options: str) -> Iterator[int]:
    """Mount a folder over SFTP, without a network; yield the pid of the server's side."""
    place.mkdir()
    serve, pid_file = place.with_name(f"{place.name}.serve"), place.with_name(f"{place.name}.pid")
    serve.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec /usr/lib/openssh/sftp-server\n")
    serve.chmod(0o755)
    words = ["sshfs", "-o", f"ssh_command={serve}", *options, f"server:{server}", str(place)]
    subprocess.run(words, check=True, timeout=30)
    try:
        yield int(pid_file.read_text())
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
