"""One run at a time in a folder, and never a lock to remove by hand."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from h5sweep.base.process_id import this_process
from h5sweep.disk import durable
from h5sweep.disk.open_files import is_locked
from h5sweep.errors import LockedError, StorageError
from h5sweep.runfolder import heartbeat, lock
from h5sweep.runfolder.layout import RunFolder
from h5sweep.runfolder.lock import holding, holding_folder, holding_output, lock_owner
from needs import needs_root
from running import until

HOLDER = """
import sys
from pathlib import Path
from h5sweep.runfolder.lock import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "out.h5.run"
    folder.mkdir()
    return tmp_path / ".out.h5.lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its stdin is closed."""
    process = hold(path)
    yield process
    process.kill()
    process.communicate()


def hold(path: Path, *under: str) -> subprocess.Popen[str]:
    """Start a process that holds the lock, and wait until it does."""
    process = subprocess.Popen(
        [*under, sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def written(path: Path, **changes: Any) -> None:
    """Write a lock file as if this process had left it, with changes."""
    path.write_text(json.dumps({**this_process().as_json(), "beats": 3, **changes}))


def test_held_lock_names_its_owner(path: Path) -> None:
    """Whoever looks at the file sees who holds the lock; afterwards nobody does."""
    with holding(path):
        assert lock_owner(path) == this_process()
    assert lock_owner(path) is None


def test_live_owner_keeps_the_lock(path: Path, holder: subprocess.Popen[str]) -> None:
    """A lock that a live process holds is refused, with its pid and the next step."""
    with (
        pytest.raises(LockedError, match=rf"pid {holder.pid} on .*h5sweep status .*out\.h5"),
        holding(path),
    ):
        pass
    assert LockedError.exit_code == 4


def test_lock_is_free_after_its_owner_let_go(path: Path, holder: subprocess.Popen[str]) -> None:
    """A lock that was released normally is taken without a word."""
    holder.communicate("")
    said: list[str] = []
    with holding(path, tell=said.append):
        assert lock_owner(path) == this_process()
    assert said == []


def test_lock_of_a_killed_owner_is_taken_over(path: Path, holder: subprocess.Popen[str]) -> None:
    """A killed owner is seen at once, said, and taken over from."""
    holder.kill()
    holder.wait()
    said: list[str] = []
    with holding(path, tell=said.append):
        assert lock_owner(path) == this_process()
    assert said == [f"the last run (pid {holder.pid} on {os.uname().nodename}) ended without "
                    "finishing; taking over"]  # fmt: skip


def test_pid_that_is_used_again_is_not_its_owner(path: Path) -> None:
    """The pid of a dead owner that another process has got by now does not hold the lock."""
    written(path, pid=os.getppid(), start_ticks=1)
    said: list[str] = []
    with holding(path, tell=said.append):
        pass
    assert "taking over" in said[0]


def test_owner_of_an_earlier_boot_is_dead(path: Path) -> None:
    """After a restart of the machine every lock of before is void."""
    written(path, pid=os.getppid(), boot="another")
    with holding(path):
        pass


def test_live_owner_is_respected_where_there_is_no_flock(
    path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system without locks the name of a live owner is enough."""

    def refuse(*_: object) -> None:
        raise OSError(38, "not here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(LockedError, match=f"pid {holder.pid}"), holding(path):
        pass


def test_silent_owner_on_another_host_is_watched_then_taken_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner on another host whose heartbeat does not change for a while is dead."""
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(lock, "WATCH_S", 0.2)
    written(path, host="node17", boot="another")
    said: list[str] = []
    with holding(path, tell=said.append):
        assert lock_owner(path) == this_process()
    assert "a run on node17 may still be active; watching it for 0.2 s" in said[0]
    assert "taking over" in said[1]


def test_beating_owner_on_another_host_keeps_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner on another host whose heartbeat changes is alive."""
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(lock, "WATCH_S", 20.0)
    written(path, host="node17", boot="another")
    refused = threading.Event()

    def beat() -> None:
        beats = 10
        while not refused.wait(0.02):
            beats += 1
            written(path, host="node17", boot="another", beats=beats)

    beater = threading.Thread(target=beat)
    beater.start()
    try:
        with pytest.raises(LockedError, match="on node17"), holding(path):
            pass
    finally:
        refused.set()
        beater.join()


def test_heart_beats(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file changes while the lock is held, so that other hosts see it is."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.02)
    with holding(path):
        first = path.read_bytes()
        descriptor = os.open(path, os.O_RDONLY)
        assert lock._changes(descriptor)
        os.close(descriptor)
        assert lock_owner(path) == this_process()
        assert path.read_bytes() != first


def test_lock_is_let_go_after_an_error(path: Path) -> None:
    """An exception inside lets go of the lock."""
    with pytest.raises(RuntimeError), holding(path):
        raise RuntimeError
    with holding(path):
        pass


def test_one_process_holds_a_lock_once(path: Path) -> None:
    """Two runs in one process, say of two threads of a notebook, exclude each other too."""
    with holding(path), pytest.raises(LockedError), holding(path):
        pass


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"[]", b"7", b"\xff\xff", b"{}", b'{"host": "a"}', bytes(512)]
)
def test_garbage_in_the_lock_file_is_nobody(path: Path, content: bytes) -> None:
    """A lock file that names nobody is free."""
    path.write_bytes(content)
    assert lock_owner(path) is None
    with holding(path):
        pass


def test_folder_that_is_gone_is_a_storage_error(tmp_path: Path) -> None:
    """A lock that cannot be written names the file."""
    with pytest.raises(StorageError, match="nowhere/lock"), holding(tmp_path / "nowhere" / "lock"):
        pass


def test_a_process_forked_meanwhile_does_not_keep_the_lock(path: Path) -> None:
    """The lock is free after its holder let go, though a copy of its process lives on."""
    with holding(path):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with holding(path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


LEAVES_A_CHILD = """
import os, signal, sys
from pathlib import Path
from h5sweep.runfolder.lock import holding
with holding(Path(sys.argv[1])):
    fork = os.fork if sys.argv[2] == "python" else __import__("ctypes").CDLL(None).fork
    if fork() == 0:
        os.write(1, f"{os.getpid()}\\n".encode())
        signal.pause()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("way", "winners"), [("python", 1), ("c", 0)])
def test_exactly_one_of_many_takes_over(path: Path, way: str, winners: int) -> None:
    """Of many who find a killed owner one wins; none while a child of it really holds the lock."""
    words = [sys.executable, "-c", LEAVES_A_CHILD, str(path), way]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        owner.wait()
    contenders = [contend(path) for _ in range(8)]
    try:
        said = [one.stdout.readline() for one in contenders if one.stdout]
        assert sorted(said) == ["held\n"] * winners + ["refused\n"] * (8 - winners)
    finally:
        os.kill(child, signal.SIGKILL)
        for one in contenders:
            one.communicate("")


def contend(path: Path) -> subprocess.Popen[str]:
    """Start a process that says whether it got the lock, and holds it if so."""
    code = HOLDER.replace("with ", "try:\n  with ").replace("\n    ", "\n      ")
    code += "except Exception:\n  print('refused', flush=True)\n"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_forked_process_that_leaves_the_block_does_not_let_go(path: Path) -> None:
    """Whatever a copy of the holder does, the lock stays held."""
    with holding(path):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            assert lock_owner(path) == this_process()
            with pytest.raises(LockedError), holding(path):
                pass
    if not child:
        os._exit(0)


@needs_root
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_holder_in_another_container_is_believed(path: Path, is_killed: bool) -> None:
    """Nobody sees its process from here, but the lock is held; once it is dead, at once not."""
    other = hold(path, "unshare", "-p", "-f", "--mount-proc", "--kill-child")
    try:
        if is_killed:
            other.kill()
            other.communicate()
            until(lambda: not is_locked(path))
            with holding(path):
                pass
        else:
            with pytest.raises(LockedError), holding(path):
                pass
    finally:
        other.kill()
        other.communicate()


@dataclass(frozen=True)
class Shared(RunFolder):
    """A run folder in which another process takes the lock as soon as it is there."""

    others: list[subprocess.Popen[str]]

    def create(self) -> None:
        super().create()
        self.others.append(hold(self.lock_path))


def test_only_who_holds_the_lock_removes_a_run_folder(tmp_path: Path) -> None:
    """A command that made the folder and came second leaves it to the other."""
    folder = Shared(tmp_path / "out.h5", [])
    with pytest.raises(LockedError), holding_folder(folder):
        pass
    (other,) = folder.others
    assert lock_owner(folder.lock_path) is not None
    assert folder.records_path.is_dir() and folder.logs_path.is_dir()
    other.kill()
    other.communicate()


def test_one_output_has_one_lock(tmp_path: Path) -> None:
    """A merge into an output without a run folder excludes a run that makes one, and its merge."""
    folder = RunFolder(tmp_path / "out.h5")
    with holding_output(folder):
        with pytest.raises(LockedError, match="another process"), holding_output(folder):
            pass
        with pytest.raises(LockedError, match="another run"), holding_folder(folder):
            pass
    with holding_folder(folder), pytest.raises(LockedError), holding_output(folder):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out.h5.run"]


def test_a_refused_command_removes_the_run_folder_that_it_made(tmp_path: Path) -> None:
    """Nothing is left of it, and the next one begins as if it had not been."""
    folder = RunFolder(tmp_path / "out.h5")
    for _ in range(2):
        with pytest.raises(StorageError), holding_folder(folder):
            raise StorageError("refused")
        assert not list(tmp_path.iterdir())


def test_file_that_was_let_go_of_is_not_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS may show a lock file for a moment after it was removed, and then the next one's."""
    with holding(path):
        let_go = path.with_name("let go")
        os.link(path, let_go)
    os.link(let_go, path)  # what is seen on another host
    looks = []

    def look_again(_: float) -> None:
        looks.append(path.stat().st_ino)
        if len(looks) == 3:
            path.unlink()

    monkeypatch.setattr(lock.time, "sleep", look_again)
    with holding(path):
        assert path.stat().st_ino != let_go.stat().st_ino
        assert lock_owner(path) == this_process()
    assert len(looks) == 3


def test_lock_whose_owner_was_killed_as_it_let_go_is_free_after_a_while(path: Path) -> None:
    """Its file says nothing any more and stays: nobody has to remove it."""
    path.write_bytes(b" " * heartbeat.BEAT_BYTES)
    begun = time.monotonic()
    with holding(path):
        assert lock_owner(path) == this_process()
    assert time.monotonic() - begun < 10


def test_lock_file_that_is_stale_is_looked_for_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed on another host; one that stays so is a refusal of the disk."""
    left = [OSError(errno.ESTALE, "Stale file handle")] * 3

    def open_stale(path: Path, *flags: int) -> int:
        if left:
            raise left.pop()
        return durable.open_or_make(path, *flags)

    monkeypatch.setattr(lock, "open_or_make", open_stale)
    with holding(path):
        assert lock_owner(path) == this_process()
    left += [OSError(errno.ESTALE, "Stale file handle")] * 1000
    with pytest.raises(StorageError, match="Stale file handle"), holding(path):
        pass
