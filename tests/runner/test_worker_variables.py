"""What workers find in their environment: their number, what is dealt to them, thread limits."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import pytest

import h5sweep
from h5sweep.errors import UsageError
from h5sweep.runner.settings import parse_env, parse_envs
from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "-j", "3")

TELLING = """
LOADED = os.environ.get("DEVICE", "none")

@h5sweep.sweep(seed=range(12))
def f(seed):
    with open(f"seen_{os.environ['H5SWEEP_WORKER']}", "a") as file:
        file.write(os.environ["DEVICE"] + "\\n")
    while len([n for n in os.listdir() if n.startswith("seen_")]) < 3:
        time.sleep(0.01)
    if seed in (4, 5) and not os.path.exists(f"died_{seed}"):
        open(f"died_{seed}", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"worker": int(os.environ["H5SWEEP_WORKER"]), "limit": os.environ["NUMBA_NUM_THREADS"]}
"""


def seen(terminal: Terminal) -> dict[str, set[str]]:
    paths = terminal.folder.glob("seen_*")
    return {path.name[-1]: set(path.read_text().split()) for path in paths}


def test_values_are_dealt_round_the_workers(terminal: Terminal, study: Study) -> None:
    """Worker k has value k mod n; one that replaces a dead one has its number and its values."""
    study(TELLING)
    done = terminal.run(*RUN, "--env", "DEVICE=a,b", "--backoff", "0.01s")
    assert seen(terminal) == {"0": {"a"}, "1": {"b"}, "2": {"a"}}
    assert "is not what it was" not in done.stderr


DEALT = """
@h5sweep.sweep(seed=range(8))
def f(seed):
    return {"worker": int(os.environ["H5SWEEP_WORKER"]), "device": os.environ["DEVICE"]}
"""


@pytest.mark.parametrize(
    ("part", "launcher", "workers"),
    [
        ("2/3", {}, {2, 3}),
        ("auto", {"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, {10, 11}),
        ("auto", {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, {2, 3}),
        ("2/3", {"SLURM_LOCALID": "0"}, {2, 3}),  # as in every job that is no step of srun
    ],
)
def test_parts_count_on_behind_those_before_them(
    terminal: Terminal, study: Study, part: str, launcher: dict[str, str], workers: set[int]
) -> None:
    """The workers of a part are numbered behind those of parts before it on the node."""
    study(DEALT)
    run = ("run", "study.py", "-o", "out.h5", "-j", "2", "--env", "DEVICE=0,1,2,3")
    terminal.run(*run, "--part", part, **launcher)
    terminal.run("merge", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        found = dict(zip(file["worker"][:].tolist(), file["device"].asstr()[:], strict=True))
    assert set(found) <= workers
    assert all(device == str(worker % 4) for worker, device in found.items())


def test_parts_of_an_engine_count_on_too(tmp_path: Path) -> None:
    """Two parts with a worker each have two devices."""

    @h5sweep.sweep(seed=range(2))
    def f(seed: int) -> dict[str, object]:
        import os
        import time

        (tmp_path / os.environ["DEVICE"]).touch()
        while not all((tmp_path / device).exists() for device in "ab"):
            time.sleep(0.01)
        return {"worker": int(os.environ["H5SWEEP_WORKER"])}

    with ThreadPoolExecutor(2) as executor:
        f.run(tmp_path / "out.h5", executor=executor, env={"DEVICE": ["a", "b"]}, timeout_s=60)
    with h5py.File(tmp_path / "out.h5") as file:
        assert sorted(file["worker"][:]) == [0, 1]


def test_dealt_values_are_no_change_of_the_code(terminal: Terminal, study: Study) -> None:
    """Other values, or a variable set outside, make no other version: all rows are of one code."""
    study(TELLING)
    terminal.run(
        *RUN, "--env", "DEVICE=a,b", "--only", "seed=0..5", "--backoff", "0.01s", check=None
    )
    said = terminal.run(*RUN, "--env", "DEVICE=c,d", DEVICE="outside").stderr
    assert "change" not in said
    assert len(list((terminal.folder / "out.h5.run" / "code").iterdir())) == 1
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file["worker"]) == 12


def test_variables_of_a_place_are_no_change_of_the_code(terminal: Terminal, study: Study) -> None:
    """The number of a job differs between the parts of one sweep; another variable does not."""
    study("""
        @h5sweep.sweep(seed=range(4))
        def f(seed):
            return {"x": len(os.environ.get("SLURM_JOB_ID", "") + os.environ.get("MODEL", ""))}
    """)
    part = ("run", "study.py", "-o", "out.h5", "-j", "1", "--only", "seed=0", "--part", "1/2")
    terminal.run(*part, SLURM_JOB_ID="1", SLURM_JOB_END_TIME="99999999999")
    terminal.run(*part, SLURM_JOB_ID="2", SLURM_JOB_END_TIME="99999999999")
    assert "MODEL" in terminal.run(*part, MODEL="new", check=2).stderr


def test_thread_limits_do_not_override_the_users(terminal: Terminal, study: Study) -> None:
    """Each library gets a worker's share of cores, unless the user has set it; too many is told."""
    study(TELLING)
    done = terminal.run(*RUN, "--env", "DEVICE=a", "--backoff", "0.01s", NUMBA_NUM_THREADS="64")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert set(file["limit"].asstr()[:]) == {"64"}
    assert done.stderr.count("NUMBA_NUM_THREADS is 64: 3 workers may use 192 threads on") == 1


def test_thread_limits_are_set(terminal: Terminal, study: Study) -> None:
    """Without a word of the user, workers do not have more threads than there are cores."""
    study(TELLING)
    cores = len(os.sched_getaffinity(0))
    done = terminal.run(*RUN, "--env", "DEVICE=a", "--backoff", "0.01s")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert set(file["limit"].asstr()[:]) == {str(max(1, cores // 3))}
    assert "threads" not in done.stderr


@pytest.mark.parametrize("text", ["DEVICE", "=1", "1=2", "A B=1", "H5SWEEP_WORKER=7"])
def test_bad_variable_is_one_sentence(terminal: Terminal, study: Study, text: str) -> None:
    """It says what is wrong with it, with exit code 2."""
    study(TELLING)
    assert "--env" in terminal.run(*RUN, "--env", text, check=2).stderr


def test_variable_that_is_said_twice_is_refused() -> None:
    """Half of its values would be dealt to nobody."""
    with pytest.raises(UsageError, match="--env GPU is said twice: write all of its values in one"):
        parse_envs(["GPU=0,1", "A=1", "GPU=2,3"])


def test_values_with_commas() -> None:
    """A semicolon divides values that have commas: two devices for each worker."""
    assert parse_env("GPU=0,1;2,3") == ("GPU", ("0,1", "2,3"))
    assert parse_env("GPU=0,1") == ("GPU", ("0", "1"))


def test_env_in_python(tmp_path: Path) -> None:
    """`env` takes a list of values for each variable, not a text."""

    @h5sweep.sweep(seed=range(3))
    def f(seed: int) -> dict[str, object]:
        import os

        return {"device": os.environ["DEVICE"]}

    assert f.run(tmp_path / "out.h5", workers=1, env={"DEVICE": [7, 8]}).is_complete
    with h5py.File(tmp_path / "out.h5") as file:
        assert set(file["device"].asstr()[:]) == {"7"}
    with pytest.raises(UsageError, match="list of its values"):
        f.run(tmp_path / "out.h5", env={"DEVICE": "0,1"})


OF_IMPORT = {
    "random.random()": True,
    "np.random.random(3)": True,
    "{'a': [1, random.random()]}": True,
    "time.time()": False,
    "{'begun': time.monotonic_ns(), 'process': os.getpid()}": False,
    "tempfile.mkdtemp()": False,
    "int(os.environ.get('OMP_NUM_THREADS', 0))": False,
    "os.environ.get('OMP_NUM_THREADS')": False,
    "sys.argv": False,
    "object()": False,
}


def test_what_is_another_value_in_each_process_is_told(terminal: Terminal, study: Study) -> None:
    """Rows would say one that no worker had; what only says which process it is means nothing."""
    names = {f"GLOBAL{number}": text for number, text in enumerate(OF_IMPORT)}
    globals_text = "\n".join(f"{name} = {text}" for name, text in names.items())
    study(
        f"import random, tempfile\n{globals_text}\n"
        "@h5sweep.sweep(seed=range(2))\n"
        f"def f(seed):\n    return {{'x': len([{', '.join(names)}])}}\n"
    )
    said = terminal.run("run", "study.py", "-o", "out.h5", "-j", 1).stderr
    told = ", ".join(name for name, text in names.items() if OF_IMPORT[text])
    assert f"h5sweep: {told}: workers have another value than there was when" in said
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(file["x"]) == 2


def test_an_import_has_the_arguments_of_the_run(terminal: Terminal, study: Study) -> None:
    study("""
        ARGUMENTS = sys.argv[1:]
        @h5sweep.sweep(seed=range(1))
        def f(seed):
            return {"x": " ".join(ARGUMENTS)}
    """)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"].asstr()[0] == "run study.py -o out.h5 -j 1"
    assert terminal.run("replay", "out.h5", "seed=0").stdout.startswith("seed=0: equal")


def test_sets_of_texts_have_one_order(terminal: Terminal, study: Study) -> None:
    """In all workers, and in a replay; what the user has set stays."""
    study("""
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            names = " ".join({f"name {n}" for n in range(9)})
            return {"x": names, "s": os.environ["PYTHONHASHSEED"]}
    """)
    terminal.run(*RUN, "--tasks-per-worker", "1")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert len(set(file["x"].asstr()[:])) == 1
    terminal.run("replay", "out.h5", "seed=1")
    terminal.run("run", "study.py", "-o", "other.h5", "-j", "1", PYTHONHASHSEED="7")
    with h5py.File(terminal.folder / "other.h5") as file:
        assert set(file["s"].asstr()[:]) == {"7"}
