"""Which files are being written: asked of the kernel, and of no server that may not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from h5sweep.disk.open_files import files_being_written, identity_of
from needs import needs_root, needs_sshfs
from part_runs import sshfs_mount

LOOK = "from h5sweep.disk.open_files import files_being_written; files_being_written()"


def test_a_file_that_is_being_written_is_found(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as file:
        assert files_being_written()[identity_of(os.fstat(file.fileno()))] == f"pid {os.getpid()}"


@needs_root
@needs_sshfs
def test_a_server_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    """A file on it is known as before, although nothing on its mount can be looked at."""
    (tmp_path / "server").mkdir()
    options = ("-o", "attr_timeout=0,entry_timeout=0,dir_cache=no")  # ask the server each time
    with sshfs_mount(tmp_path / "server", tmp_path / "mount", *options) as pid:
        file = os.open(tmp_path / "mount" / "a", os.O_WRONLY | os.O_CREAT)
        identity = identity_of(os.fstat(file))
        os.kill(pid, signal.SIGSTOP)
        try:
            subprocess.run([sys.executable, "-c", LOOK], check=True, timeout=30)
            assert files_being_written()[identity] == f"pid {os.getpid()}"
        finally:
            os.kill(pid, signal.SIGCONT)
            os.close(file)
