"""A disk that takes no more, while the HDF5 library writes: a sentence, and nothing is lost.

The limit of a file's size stands for the disk: the kernel refuses what lies beyond it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from terminal import H5SWEEP, Terminal

STUDY = """
@h5sweep.sweep(farm=range(12), kind=["a", "b"])
def study(farm, kind):
    values = np.random.default_rng([farm, ord(kind)]).random((40, 60))
    return {"layout": values, "name": f"{farm} {kind}"}
"""


def of_records(terminal: Terminal, study: Callable[[str], Path]) -> list[str]:
    terminal.run("run", study(STUDY), "-o", "out.h5", "--no-merge")
    return ["merge", "out.h5"]


def of_packed_columns(terminal: Terminal, _: object) -> list[str]:
    (terminal.folder / "temp").mkdir()
    for worker in range(3):
        values = np.random.default_rng(worker).random((80, 40))
        with h5py.File(terminal.folder / "temp" / f"worker_{worker}.h5", "w") as file:
            file.create_dataset("layout", data=values, chunks=(20, 40), compression="gzip")
            file["name"] = [f"{worker} {row}" for row in range(80)]
    return ["merge", "temp", "-o", "out.h5"]


def of_packed_groups(terminal: Terminal, _: object) -> list[str]:
    """Groups that the library copies, in a process of its own."""
    (terminal.folder / "temp").mkdir()
    for worker in range(3):
        values = np.random.default_rng(worker).random((80, 40))
        with h5py.File(terminal.folder / "temp" / f"worker_{worker}.h5", "w") as file:
            group = file.create_group(f"farm{worker}")
            group.create_dataset("layout", data=values, chunks=(20, 40), compression="gzip")
    return ["merge", "temp", "-o", "out.h5"]


def with_limit(terminal: Terminal, blocks: int, words: list[str]) -> subprocess.CompletedProcess:
    """A command whose files may have so many blocks of 512 bytes."""
    limited = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *H5SWEEP, *words]
    return subprocess.run(limited, cwd=terminal.folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("prepare", "options"),
    [
        (of_records, []),
        (of_records, ["--compress"]),
        (of_packed_columns, []),
        (of_packed_groups, []),
    ],
)
def test_a_refused_write_of_the_library_is_a_sentence(
    terminal: Terminal,
    study: Callable[[str], Path],
    prepare: Callable[[Terminal, object], list[str]],
    options: list[str],
) -> None:
    """Wherever the disk stops taking a merge, it ends with the storage code and names the file."""
    words = prepare(terminal, study) + options
    for blocks in (8, 40, 120):
        done = with_limit(terminal, blocks, words)
        assert done.returncode == 1, f"{blocks}: {done.stderr}"
        assert "out.h5" in done.stderr and "File too large" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert not (terminal.folder / "out.h5").exists()
    terminal.run(*words)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file) >= 1


def test_writing_raises_what_the_disk_refused(tmp_path: Path) -> None:
    """The library goes on with what it believes to have written; then the refusal is raised."""
    code = """if True:
        import resource, sys
        from pathlib import Path
        import numpy as np
        from h5sweep.disk.h5py_loader import writing
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        values = np.random.default_rng(0).random((200, 50))
        try:
            with writing(Path(sys.argv[1])) as written:
                made = written.file.create_dataset(
                    "x", data=values, chunks=(10, 50), compression="gzip"
                )
                made.flush()
                print((made[:] == values).all())
        except OSError as error:
            print(error.strerror)
    """
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x.h5"], capture_output=True, text=True
    )
    assert done.stdout.split("\n")[:2] == ["True", "File too large"], done.stderr


def test_a_signal_in_the_middle_of_a_write_reaches_the_caller(tmp_path: Path) -> None:
    """What a handler raises never comes between the library and its file, and is never lost.

    As in a command, where Python itself can raise nothing (in a weak reference's callback), too.
    """
    code = """if True:
        import os, signal, sys, threading
        from pathlib import Path
        import numpy as np
        from h5sweep.cli.entry import _stop_again
        from h5sweep.disk.h5py_loader import writing
        sys.unraisablehook = _stop_again
        values = np.random.default_rng(0).random((300, 1000))
        for number in range(10):
            try:
                with writing(Path(f"{sys.argv[1]}_{number}.h5")) as written:
                    interruption = (os.getpid(), signal.SIGINT)
                    threading.Timer(0.003 * number, os.kill, interruption).start()
                    packed = {"chunks": (1, 1000), "compression": "gzip"}
                    written.file.create_dataset("x", data=values, **packed)
                    threading.Event().wait(30)
            except KeyboardInterrupt:
                print("interrupted")
    """
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "x"], capture_output=True, text=True
    )
    assert done.stdout.split() == 10 * ["interrupted"], done.stderr
