"""Writing: a file is the old one or the new one, an append is whole or absent, a sync is a sync."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

from faults import failing
from h5sweep import Recorder
from h5sweep.disk.durable import (
    Appender,
    keep_aside,
    make_folder,
    making_folder,
    replace_text,
    replacing,
)
from h5sweep.errors import StorageError
from h5sweep.runfolder.records import RecordKind, RecordWriter, read_records
from needs import needs_compiler, needs_strace
from terminal import Terminal


def run_python(code: str, *arguments: object, under: list[str] | None = None) -> str:
    """Run code in a process of its own, under another program if told so."""
    command = [*(under or []), sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Replacing a file


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_a_body_that_raises_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    """What the body raised comes out, the old content stays, and no temporary file."""
    target = tmp_path / "layouts.h5"
    target.write_text("old")
    with pytest.raises(type(error)), replacing(target) as temporary:
        temporary.write_text("half of the n")
        raise error
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["layouts.h5"]


def test_a_refusal_of_the_disk_is_a_storage_error(tmp_path: Path) -> None:
    """An OSError in the body names the target and keeps its number."""
    target = tmp_path / "nowhere" / "layouts.h5"
    with pytest.raises(StorageError, match=r"cannot write .*layouts.h5: No such file") as caught:
        replace_text(target, "new")
    assert caught.value.errno == 2


def test_a_storage_error_of_the_body_stays_itself(tmp_path: Path) -> None:
    """The file that could not be written is the one named."""
    inner = tmp_path / "nowhere" / "inner"
    with pytest.raises(StorageError) as caught, replacing(tmp_path / "outer"):
        Appender(inner)
    assert "inner" in str(caught.value)
    assert "outer" not in str(caught.value)


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    """A temporary file of a killed attempt goes with the next one, and nobody else's does."""
    target = tmp_path / "plan.jsonl"
    others = [".plan.jsonl.part", ".a.plan.jsonl.0123abcd.part", "plan.jsonl.0123abcd.part"]
    for name in [*others, ".plan.jsonl.0123abcd.part"]:
        (tmp_path / name).write_text("left by a kill")
    replace_text(target, "new")
    assert target.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "plan.jsonl"])


def test_two_who_write_one_file_do_not_meet(tmp_path: Path) -> None:
    """Each has a temporary file of its own, and one that is locked is not taken for a remain."""
    target = tmp_path / "layouts.h5"
    with replacing(target) as one:
        appender = Appender(one)
        with replacing(target) as other:
            other.write_text("other")
            appender.append(b"one")
            assert one != other
        assert target.read_text() == "other"
        appender.close()
    assert target.read_text() == "one"


KILLED_IN_BODY = """
import os, signal, sys
from pathlib import Path
from h5sweep.disk.durable import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_in_the_body_leaves_the_old_file(tmp_path: Path) -> None:
    """SIGKILL while the new file is being written leaves the old one."""
    target = tmp_path / "layouts.h5"
    target.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED_IN_BODY, str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert target.read_text() == "old"


REPLACE = """
import sys
import threading
import time
from pathlib import Path
from h5sweep.disk.durable import replace_text
replace_text(Path(sys.argv[1]), "new" * 10_000)
"""


@needs_strace
@pytest.mark.parametrize(
    ("syscall", "when"), [("fsync", 1), ("rename", 1), ("fsync", 2)], ids=lambda value: str(value)
)
def test_killed_at_any_step_leaves_a_whole_file(tmp_path: Path, syscall: str, when: int) -> None:
    """SIGKILL at the sync, the rename, the sync of the folder: old or new, never half."""
    target = tmp_path / "layouts.h5"
    target.write_text("old")
    inject = f"inject={syscall}:signal=SIGKILL:when={when}"
    command = ["strace", "-o", "/dev/null", "-e", f"trace={syscall}", "-e", inject]
    done = subprocess.run([*command, sys.executable, "-c", REPLACE, str(target)], check=False)
    assert done.returncode != 0
    assert target.read_text() in ("old", "new" * 10_000)
    if (syscall, when) == ("fsync", 1):
        assert target.read_text() == "old"


@needs_strace
def test_the_file_is_synced_before_and_the_folder_after_the_rename(tmp_path: Path) -> None:
    """The order that makes a replacement durable: file, rename, folder."""
    target, trace = tmp_path / "layouts.h5", tmp_path / "trace"
    under = ["strace", "-y", "-o", str(trace), "-e", "trace=fsync,fdatasync,/^rename"]
    run_python(REPLACE, target, under=under)
    first, second, third = [line for line in trace.read_text().splitlines() if "(" in line]
    assert re.match(r"fsync\(\d+<.*/\.layouts\.h5\.\w{8}\.part>\) = 0", first.replace("  ", ""))
    assert re.match(r"rename.*\.layouts\.h5\.\w{8}\.part.*layouts\.h5", second)
    assert re.match(rf"fsync\(\d+<{re.escape(str(tmp_path))}>\)", third)


@needs_strace
@pytest.mark.parametrize("syscall", ["fsync", "rename"])
def test_a_failing_step_leaves_the_old_file(tmp_path: Path, syscall: str) -> None:
    """After a failed sync or rename the new file is thrown away; it is not synced again."""
    target, trace = tmp_path / "layouts.h5", tmp_path / "trace"
    target.write_text("old")
    inject = f"inject={syscall}:error=EIO:when=1"
    under = ["strace", "-o", str(trace), "-e", "trace=fsync,rename", "-e", inject]
    command = [*under, sys.executable, "-c", REPLACE, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "StorageError: cannot write" in done.stderr
    assert target.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["layouts.h5", "trace"]
    assert trace.read_text().count(f"{syscall}(") == 1


KEEP_ASIDE = (
    "import sys; from pathlib import Path; from h5sweep.disk.durable import keep_aside; "
    "print(keep_aside(Path(sys.argv[1])))"
)


def test_what_is_kept_aside_outlives_its_replacement(tmp_path: Path) -> None:
    """Each content gets a name of its own, and only one, however often it is asked for."""
    target = tmp_path / "layouts.h5"
    target.write_text("first")
    assert keep_aside(target) == keep_aside(target) == tmp_path / "layouts.old-1.h5"
    replace_text(target, "second")
    assert keep_aside(target) == tmp_path / "layouts.old-2.h5"
    replace_text(target, "third")
    assert (tmp_path / "layouts.old-1.h5").read_text() == "first"
    assert (tmp_path / "layouts.old-2.h5").read_text() == "second"


@needs_strace
def test_a_file_system_without_second_names_gets_a_copy(tmp_path: Path) -> None:
    target = tmp_path / "layouts.h5"
    target.write_text("first")
    refuse = ["strace", "-o", "/dev/null", "-e", "trace=/^link", "-e", "inject=/^link:error=EPERM"]
    subprocess.run([*refuse, sys.executable, "-c", KEEP_ASIDE, str(target)], check=True)
    aside = tmp_path / "layouts.old-1.h5"
    assert aside.read_text() == "first"
    assert not aside.samefile(target)


def test_folders_are_made_with_what_is_above_them(tmp_path: Path) -> None:
    """`make_folder` makes what is missing and leaves what is there."""
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        make_folder(tmp_path / "file" / "b")


# Appending


def test_appends_follow_each_other(tmp_path: Path) -> None:
    """The file is what was appended, in order."""
    appender = Appender(tmp_path / "a")
    for part in (b"one", b"", b"two"):
        appender.append(part)
    appender.close()
    assert (tmp_path / "a").read_bytes() == b"onetwo"


def test_a_stray_write_spoils_nothing_that_was_appended(tmp_path: Path) -> None:
    """Tasks may write to descriptors that are not their own; the next append takes that place."""
    appender = Appender(tmp_path / "a")
    appender.append(b"one")
    for descriptor in range(3, 64):
        with suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), (tmp_path / "a").stat()):
                os.write(descriptor, b"?")
    assert (tmp_path / "a").read_bytes() == b"one?"
    appender.append(b"two")
    appender.close()
    assert (tmp_path / "a").read_bytes() == b"onetwo"


APPEND_OVER_THE_LIMIT = """
import resource, signal, sys
from pathlib import Path
from h5sweep.errors import StorageError
from h5sweep.runfolder.records import RecordKind, RecordWriter
how, path = sys.argv[1], Path(sys.argv[2])
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGXFSZ, interrupt if how == "interrupted" else signal.SIG_IGN)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
writer = RecordWriter(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, most))
kept = []
for task, size in enumerate([3000, 3000, 50_000, 9000, 100, 200, 50_000]):
    end = writer._file._end
    try:
        writer.append(RecordKind.DONE, task, b"{}", b"x" * size, finished_at=0)
        kept.append(task)
    except StorageError as error:
        print(error.errno)
        assert not path.read_bytes()[end:].strip(bytes(1)), "what was half written is wiped"
    except KeyboardInterrupt:
        print("interrupted")
assert kept == [0, 1, 4, 5], kept
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
writer.append(RecordKind.DONE, 7, b"{}", b"x" * 500, finished_at=0)
writer.close()
"""


@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_an_append_that_failed_is_taken_back(tmp_path: Path, how: str) -> None:
    """Refused half-way, or left by a signal handler, an append spoils none before or after it."""
    path = tmp_path / "worker.records"
    said = run_python(APPEND_OVER_THE_LIMIT, how, path).split()
    assert said == (["27"] * 3 if how == "refused" else ["interrupted"] * 3)
    records, found = read_records(path)
    assert [record.task for record in records[1:]] == [0, 1, 4, 5, 7]
    assert found.damages == []


FILL_THE_DISK = """
import sys
import threading
import time
from pathlib import Path
from h5sweep.errors import StorageError
from h5sweep.runfolder.records import RecordKind, RecordWriter, read_records
folder = Path(sys.argv[1])
ballast = folder / "ballast"
ballast.write_bytes(b"x" * 32_768)
writer = RecordWriter(folder / "worker.records")
kept = []
def append(task, size):
    try:
        writer.append(RecordKind.DONE, task, b"{}", b"x" * size, finished_at=0)
        kept.append(task)
    except StorageError as error:
        assert error.errno == 28, error
for task in range(20):
    append(task, 5000)
assert 0 < len(kept) < 20, kept
ballast.unlink()
append(20, 20_000)
assert kept[-1] == 20
writer.close()
records, found = read_records(writer.path)
assert [record.task for record in records[1:]] == kept
assert (found.damages, found.torn_bytes) == ([], 0)
"""


def can_mount() -> bool:
    """Whether this process may mount, in a mount namespace that ends with it."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mounting a small file system needs root")
def test_a_full_disk_costs_only_what_it_refused(tmp_path: Path) -> None:
    """No space left: what was appended stays, and once there is space the same file goes on."""
    mount = 'mount -t tmpfs -o size=64k none "$0" && exec "$@" "$0"'
    command = ["unshare", "-m", "sh", "-c", mount, str(tmp_path)]
    done = subprocess.run(
        [*command, sys.executable, "-c", FILL_THE_DISK], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_strace
def test_each_append_is_one_write(tmp_path: Path) -> None:
    """A record of any size goes to the kernel in one call."""
    path, trace = tmp_path / "a", tmp_path / "trace"
    code = (
        "import sys; from pathlib import Path; from h5sweep.disk.durable import Appender\n"
        "appender = Appender(Path(sys.argv[1]))\n"
        "for size in (10, 1000, 10_000_000): appender.append(b'x' * size)\n"
        "appender.close()"
    )
    under = ["strace", "-y", "-o", str(trace), "-e", "trace=write,pwrite64,fdatasync"]
    run_python(code, path, under=under)
    calls = [line for line in trace.read_text().splitlines() if f"<{path}>" in line]
    assert [line.partition("(")[0] for line in calls] == ["pwrite64"] * 3 + ["fdatasync"]


# Syncing what others append


SYNC = """
import os, sys, threading
from pathlib import Path
from h5sweep.disk.durable import Syncer
paths = [Path(sys.argv[1]) / name for name in ("a", "b", "idle")]
reported, errors = threading.Event(), []
def on_error(error):
    errors.append(error)
    if len(errors) == 2:
        reported.set()
def append(path):
    with path.open("ab") as file:
        file.write(b"x")
for path in paths:
    path.touch()
syncer = Syncer(on_error)
for path in paths + paths:
    syncer.add(path)
for path in paths[:2]:
    append(path)
if sys.argv[2] == "failing":
    # No close before this: it is the thread that has to meet the error.
    assert reported.wait(30)
    for path in paths[:2]:
        append(path)
        syncer.add(path)
syncer.close()
print(*[(error.errno, str(error)) for error in errors], sep="\\n")
"""


@needs_strace
def test_the_syncer_syncs_what_others_appended(tmp_path: Path) -> None:
    """Every file that grew is synced, and one that did not is left alone."""
    trace = tmp_path / "trace"
    under = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fdatasync"]
    assert run_python(SYNC, tmp_path, "sound", under=under).strip() == ""
    synced = re.findall(r"fdatasync\(\d+<(.*)>\)? .*", trace.read_text())
    assert {Path(path).name for path in synced} == {"a", "b"}


@needs_strace
def test_a_failing_sync_is_reported_once_and_never_tried_again(tmp_path: Path) -> None:
    """Each error names its file, which is not synced again, grown or added anew as it may be."""
    trace = tmp_path / "trace"
    inject = "inject=fdatasync:error=EIO"
    under = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fdatasync", "-e", inject]
    first, second = run_python(SYNC, tmp_path, "failing", under=under).splitlines()
    assert first == str((5, f"cannot write {tmp_path / 'a'}: Input/output error"))
    assert second == str((5, f"cannot write {tmp_path / 'b'}: Input/output error"))
    assert trace.read_text().count("fdatasync(") == 2


SYNC_MANY = """
import resource, sys
from pathlib import Path
from h5sweep.disk.durable import Syncer
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
errors = []
syncer = Syncer(errors.append)
for number in range(300):
    path = Path(sys.argv[1]) / str(number)
    path.write_bytes(b"x")
    syncer.add(path)
    syncer.remove(path)
syncer.close()
assert not errors
"""


def test_the_syncer_holds_few_files_of_writers_that_have_ended(tmp_path: Path) -> None:
    """Workers may end faster than their files are synced, and there are few open files."""
    run_python(SYNC_MANY, tmp_path)


def test_a_failing_sync_of_an_appender_is_a_storage_error(tmp_path: Path) -> None:
    """`close` says that what was appended may not be durable."""
    writer = RecordWriter(tmp_path / "a")
    writer.append(RecordKind.DONE, 0, b"{}", finished_at=0)
    os.close(writer._file._descriptor)
    with pytest.raises(StorageError, match="Bad file descriptor"):
        writer.sync()


# A disk that fails while a merge writes


@needs_compiler
@pytest.mark.parametrize("call", ["fsync", "close"])
def test_a_merge_whose_sync_fails_leaves_no_output(terminal: Terminal, call: str) -> None:
    """An error of the sync beside the verification, or of a close, is said."""
    with Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"seed": 0}, x=np.ones(1000))
    environment = failing(terminal.folder, call, "/.out.h5.*.part")
    done = terminal.run("merge", "out.h5", check=1, **environment)
    assert "out.h5: Input/output error" in done.stderr
    assert not (terminal.folder / "out.h5").exists()
    assert not list(terminal.folder.glob(".*.part"))


@needs_compiler
def test_an_error_at_the_close_after_a_sync_is_raised(tmp_path: Path) -> None:
    """A network file system may refuse at the very end what it seemed to have taken."""
    code = (
        "import sys; from pathlib import Path; from h5sweep.disk.durable import sync_file\n"
        "try:\n    sync_file(Path(sys.argv[1]))\n"
        "except OSError as error:\n    sys.exit(error.errno)\n"
    )
    (tmp_path / "synced").write_text("x")
    words = [sys.executable, "-c", code, str(tmp_path / "synced")]
    environment = failing(tmp_path, "close", "/synced")
    assert subprocess.run(words, env=environment, check=False).returncode == 5


@needs_compiler
def test_short_writes_are_completed(terminal: Terminal) -> None:
    """A merge and an append to which the system takes half of each write store all of it."""
    code = (
        "import sys, h5sweep, numpy as np\n"
        "with h5sweep.Recorder(sys.argv[1]) as recorder:\n"
        "    recorder.write({'seed': 0}, x=np.arange(500_000))\n"
    )
    environment = failing(terminal.folder, "pwrite", "out.h5", short=1)
    words = [sys.executable, "-c", code, str(terminal.folder / "out.h5")]
    subprocess.run(words, env=environment, check=True)
    terminal.run("merge", "out.h5", **environment)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert (file["x"][0] == np.arange(500_000)).all()


def test_a_folder_goes_though_threads_still_write_into_it(tmp_path: Path) -> None:
    """A library that failed has not told its threads, and these make the folder anew."""

    def write_on() -> None:
        for number in range(5):
            time.sleep(0.04)
            (temporary / "a").mkdir(parents=True, exist_ok=True)
            (temporary / "a" / str(number)).touch()

    thread = threading.Thread(target=write_on)
    with pytest.raises(ValueError), making_folder(tmp_path / "x") as temporary:
        thread.start()
        raise ValueError
    thread.join()
    assert list(tmp_path.iterdir()) == []
