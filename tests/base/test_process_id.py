"""Processes: dead or alive, and never taken for another one with the same pid."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from h5sweep.base.process_id import ProcessId, this_process

IDENTIFY = (
    "import json, sys; from h5sweep.base.process_id import this_process\n"
    "print(json.dumps(this_process().as_json()), flush=True); sys.stdin.read()"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that says who it is and then waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", IDENTIFY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


def identity_of(process: subprocess.Popen[str]) -> ProcessId:
    assert process.stdout
    return ProcessId.from_json(json.loads(process.stdout.readline()))


def test_this_process_is_alive() -> None:
    """The calling process is alive and on this host."""
    assert this_process().is_alive() is True
    assert this_process().is_on_this_host
    assert this_process().pid == os.getpid()


def test_an_identity_comes_back_from_json() -> None:
    """What is written into a record file is the whole identity."""
    assert ProcessId.from_json(this_process().as_json()) == this_process()


def test_a_forked_process_is_another_one() -> None:
    """Nothing of the identity is remembered from the parent."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(this_process().pid).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(writer)
    assert int(os.read(reader, 100)) == pid
    os.close(reader)


def test_a_killed_process_is_dead(child: subprocess.Popen[str]) -> None:
    """Alive until SIGKILL, dead after it."""
    identity = identity_of(child)
    assert identity.is_alive() is True
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert identity.is_alive() is False


def test_a_zombie_is_dead(child: subprocess.Popen[str]) -> None:
    """A process that ended counts as dead before its parent has looked."""
    identity = identity_of(child)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identity.is_alive() is False


def test_a_stopped_process_is_alive(child: subprocess.Popen[str]) -> None:
    """Ctrl-Z does not end a process."""
    identity = identity_of(child)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert identity.is_alive() is True


def test_another_process_with_the_same_pid_is_not_it() -> None:
    """A pid that was used again is told by the time its process started."""
    assert replace(this_process(), start_ticks=1).is_alive() is False


def test_no_process_outlives_a_boot() -> None:
    """Whatever ran before this boot is dead, also if pid and start happen to be equal."""
    assert replace(this_process(), boot="another").is_alive() is False


def test_nobody_can_say_of_another_container() -> None:
    """A pid of another numbering of processes is neither dead nor alive, whatever has it here."""
    elsewhere = replace(this_process(), namespace=1)
    assert elsewhere.is_alive() is None
    assert elsewhere.is_on_this_machine


def test_nobody_can_say_of_another_host() -> None:
    """A process of another host is neither dead nor alive from here."""
    elsewhere = replace(this_process(), host="node17")
    assert elsewhere.is_alive() is None
    assert not elsewhere.is_on_this_host
    assert str(elsewhere) == f"pid {os.getpid()} on node17"


@pytest.mark.parametrize("name", ["a) Z 1 (b", "x y", "))", ") X 1 2 3 4"])
def test_an_odd_command_name_does_not_confuse(tmp_path: Path, name: str) -> None:
    """The name of a program may hold any character, and its process is alive all the same."""
    program = tmp_path / name
    program.symlink_to(shutil.which("cat") or "/bin/cat")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        # Its answer shows that it has its name by now.
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"\n"
        assert f"({name})" in Path(f"/proc/{process.pid}/stat").read_text()
        started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        identity = replace(this_process(), pid=process.pid, start_ticks=int(started))
        assert identity.is_alive() is True
        process.stdin.close()


LOOK_AS_NOBODY = """
import dataclasses, os
from h5sweep.base.process_id import this_process
root = this_process()
dead = dataclasses.replace(root, pid=4_000_000)
if os.fork() == 0:
    os.setgid(65534)
    os.setuid(65534)
    assert not os.path.exists(f"/proc/{root.pid}")
    os._exit(0 if (root.is_alive(), dead.is_alive()) == (None, False) else 1)
assert os.wait()[1] == 0
"""


def can_hide() -> bool:
    command = [
        "unshare",
        "-m",
        "-p",
        "-f",
        "mount",
        "-t",
        "proc",
        "-o",
        "hidepid=2",
        "proc",
        "/proc",
    ]
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_hide(), reason="hiding processes needs root")
def test_nobody_can_say_of_a_hidden_process() -> None:
    """Where /proc hides other users' processes, as on clusters, theirs are not called dead."""
    mount = 'mount -t proc -o hidepid=2 proc /proc && exec "$0" "$@"'
    command = ["unshare", "-m", "-p", "-f", "sh", "-c", mount, sys.executable, "-c", LOOK_AS_NOBODY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
