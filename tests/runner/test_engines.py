"""What engines do with a run, and a run with engines: those that work, and those that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import h5sweep
from engines import (
    AS_ROOT,
    FREELY,
    MPI,
    TASKS,
    DaskCluster,
    MeasuringExecutor,
    RepeatingExecutor,
    await_gate,
    dask_cluster,
    in_background,
    let_go,
    needs_dask,
    needs_loky,
    needs_mpi,
    needs_parsl,
    parts_at_work,
    require_all_right,
    running,
    times_run,
    write_study,
)
from h5sweep.errors import EngineError, LockedError, UsageError
from h5sweep.runner.far_part import NOT_SEEN
from needs import needs_root
from running import kinds, record_files, run_folder, until
from terminal import H5SWEEP, LONG_S, Terminal

RUN = ("run", "study.py", "-o", "out.h5", "--parts", "2")
ENDED_S = 20.0  # within which nothing may be left of a run that was ended


def gated_sweep(terminal: Terminal) -> h5sweep.Sweep:
    """The study of these tests, as a notebook has it: in no file that a worker could import."""
    write_study(terminal)
    space: dict[str, object] = {"__name__": "__main__"}
    exec((terminal.folder / "study.py").read_text(), space)
    found = space["f"]
    assert isinstance(found, h5sweep.Sweep)
    return found


@pytest.fixture
def here(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """This process is in the folder of the test."""
    monkeypatch.chdir(terminal.folder)
    return terminal


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """Dask with two workers of one thread each."""
    with dask_cluster(tmp_path_factory.mktemp("dask") / "cluster", 2) as made:
        yield made


def on_dask(cluster: DaskCluster) -> tuple[str, ...]:
    return (*RUN, "--engine", "dask", "--scheduler-file", str(cluster.file), "--grace", "1s")


# Any executor


def test_the_standard_library_runs_a_sweep(here: Terminal) -> None:
    """A process pool runs a function that is in no file, every task once, and all is merged."""
    sweep = gated_sweep(here)
    let_go(here)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        report = sweep.run("out.h5", executor=executor)
    assert report.is_complete
    require_all_right(here)
    assert set(times_run(here).values()) == {1}
    assert parts_at_work(here) == []
    assert not (run_folder(here.folder) / "orders").exists()


def test_results_never_pass_through_the_engine(here: Terminal) -> None:
    """Outcomes are a few hundred bytes, and calls a few thousand, whatever a sweep returns."""

    @h5sweep.sweep(a=range(8))
    def large(a: int) -> dict[str, object]:
        return {"x": np.full(1_000_000, float(a))}

    with MeasuringExecutor(2) as executor:
        report = large.run("out.h5", executor=executor)
    assert report.is_complete
    assert report.merge is not None
    assert report.merge.size_bytes > 8 * 8_000_000
    assert len(executor.sizes) == 4
    assert sum(executor.sizes) < 8 * 100_000


def test_calls_share_one_function(here: Terminal) -> None:
    """However many parts wait for a slot, its constants are in memory once."""
    sent: list[tuple[bytes, bytes]] = []

    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            sent.append((args[0], kwargs["buffers"][0]))
            return super().submit(fn, *args, **kwargs)

    @h5sweep.sweep(a=range(8), constants={"c": np.zeros(1_000_000)})
    def f(a: int, c: Any) -> dict[str, object]:
        return {"x": a + len(c)}

    with Noting(2) as executor:
        assert f.run("out.h5", executor=executor, parts=4).is_complete
    assert len({id(function) for _, function in sent}) == 1
    assert sum(len(call) for call, _ in sent) < 4 * 10_000


def test_calls_that_an_engine_repeats_run_no_task_twice(here: Terminal) -> None:
    """An engine that runs every call twice at once has every task run once."""
    sweep = gated_sweep(here)
    let_go(here)
    with RepeatingExecutor(2) as executor:
        assert sweep.run("out.h5", executor=executor).is_complete
    require_all_right(here)
    assert set(times_run(here).values()) == {1}


def test_a_call_after_the_end_of_its_run_does_nothing(here: Terminal) -> None:
    """An engine that calls again what has ended long ago finds no order, and leaves no file."""
    sweep = gated_sweep(here)
    let_go(here)
    with MeasuringExecutor(1) as executor:
        sweep.run("out.h5", executor=executor)
        files = sorted(run_folder(here.folder).rglob("*"))
        assert executor.repeat(executor.calls[0]).trouble == NOT_SEEN
    assert sorted(run_folder(here.folder).rglob("*")) == files


def test_a_pool_that_breaks_ends_the_run_and_another_goes_on(here: Terminal) -> None:
    """One killed process breaks a pool of the standard library: told, kept, continued."""
    sweep = gated_sweep(here)
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor,
        in_background(here, lambda: sweep.run("out.h5", executor=executor)) as run,
    ):
        done = await_gate(here)
        os.kill(next(iter(executor._processes)), signal.SIGKILL)
        with pytest.raises(EngineError, match=f"{len(done)} finished results are kept"):
            run.result()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert sweep.run("out.h5", executor=executor).tasks_kept >= len(done)
    require_all_right(here)
    assert {times_run(here)[task] for task in done} == {1}


def test_a_pool_that_forks_ends_when_it_breaks(terminal: Terminal) -> None:
    """Its processes have been forked from a run, and end by SIGTERM all the same."""
    write_study(terminal, FREELY)
    script = """
        import os, signal
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool
        from multiprocessing import get_context
        from study import f

        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as executor:
            assert f.run("out.h5", executor=executor).is_complete
            os.kill(next(iter(executor._processes)), signal.SIGKILL)
            while True:
                try:
                    executor.submit(int).result()
                except BrokenProcessPool:
                    break
        print("it has ended")
    """
    terminal.write("script.py", script)
    with running(terminal, [sys.executable, "script.py"]) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert output.endswith("it has ended\n"), output


def test_a_run_with_an_executor_keeps_others_out(here: Terminal) -> None:
    """While an engine runs tasks, a plain run and a part are refused; and it while a part runs."""
    sweep = gated_sweep(here)
    with (
        ThreadPoolExecutor(2) as executor,
        in_background(here, lambda: sweep.run("out.h5", executor=executor)) as run,
    ):
        await_gate(here)
        for words in ((), ("--part", "1/2")):
            said = here.run("run", "study.py", "-o", "out.h5", *words, check=4).stderr
            assert "another run" in said
            assert "mpirun" not in said
        rank = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}
        said = here.run("run", "study.py", "-o", "out.h5", check=4, **rank).stderr
        assert "if mpirun or srun has started both, add --engine mpi or --part auto" in said
    assert run.result().is_complete
    (here.folder / "go").unlink()
    part = here.start("run", "study.py", "-o", "other.h5", "-j", "1", "--part", "1/2")
    until(lambda: record_files(here.folder, "other.h5"), what="the part runs tasks")
    with ThreadPoolExecutor(2) as executor, pytest.raises(LockedError, match="part 1/2"):
        sweep.run("other.h5", executor=executor)
    part.kill()
    part.communicate()


def test_all_tasks_that_fail_alike_end_the_run(here: Terminal) -> None:
    """A mistake that meets every task is told once, from far away as from here."""

    @h5sweep.sweep(a=range(100))
    def wrong(a: int) -> dict[str, object]:
        raise ValueError("no data")

    with ThreadPoolExecutor(2) as executor, pytest.raises(h5sweep.errors.HopelessError) as caught:
        wrong.run("out.h5", executor=executor)
    assert "ValueError" in str(caught.value)
    assert parts_at_work(here) == []


def test_a_failure_is_said_once(here: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    """By the run, also one that ends at once, and by no part of it."""

    @h5sweep.sweep(a=range(8))
    def f(a: int) -> dict[str, object]:
        if a < 4:
            raise ValueError("no data")
        return {}

    with ThreadPoolExecutor(2) as executor:
        f.run("out.h5", executor=executor)
    assert capsys.readouterr().err.count("first failure: ") == 1


def test_ctrl_c_drops_what_has_not_begun(terminal: Terminal) -> None:
    """Calls that wait for a slot never begin; what runs is waited for."""
    write_study(terminal)
    script = """
        from concurrent.futures import ThreadPoolExecutor
        from h5sweep.errors import InterruptedRunError
        from study import f

        calls = []

        class Keeping(ThreadPoolExecutor):
            def submit(self, *words, **more):
                calls.append(super().submit(*words, **more))
                return calls[-1]

        with Keeping(1) as executor:
            try:
                f.run("out.h5", executor=executor, parts=6)
            except InterruptedRunError:
                print(sum(call.cancelled() for call in calls), "never began")
    """
    terminal.write("script.py", script)
    with running(terminal, [sys.executable, "script.py"]) as run:
        await_gate(terminal, 1)
        run.send_signal(signal.SIGINT)
        until(lambda: not list(run_folder(terminal.folder).glob("orders/*")))
        let_go(terminal)
        output, _ = run.communicate(timeout=LONG_S)
    assert output.endswith("5 never began\n"), output


def test_a_call_that_never_ends_keeps_no_finished_run(terminal: Terminal) -> None:
    """An engine that forgets a call: others do its tasks, and the run ends."""
    write_study(terminal, FREELY)
    script = """
        from concurrent.futures import Future, ThreadPoolExecutor
        from study import f

        class Forgetting(ThreadPoolExecutor):
            has_forgotten = False

            def submit(self, *words, **more):
                if self.has_forgotten:
                    return super().submit(*words, **more)
                self.has_forgotten = True
                return Future()

        with Forgetting(2) as executor:
            assert f.run("out.h5", executor=executor).is_complete
    """
    terminal.write("script.py", script)
    with running(terminal, [sys.executable, "script.py"]) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert run.returncode == 0, output
    require_all_right(terminal)


def test_a_script_may_make_its_executor_in_a_function(terminal: Terminal) -> None:
    """It is not told that workers do not do that, nor to have the command run it."""
    script = """
        from concurrent.futures import ThreadPoolExecutor
        import h5sweep

        @h5sweep.sweep(a=range(4))
        def f(a):
            return {"x": a}

        def main():
            with ThreadPoolExecutor(2) as executor:
                f.run("out.h5", executor=executor)

        if __name__ == "__main__":
            main()
    """
    terminal.write("script.py", script)
    with running(terminal, [sys.executable, "script.py"]) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert run.returncode == 0
    assert output == "h5sweep: 0 kept, 4 to do\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("\nit is full.\nAnd more of that.", "it is full"),
        ("Error 1:\n\tworkers are gone.\nExit code: 1", "Error 1: workers are gone"),
        ("Error:", "Error"),
    ],
)
def test_what_an_engine_says_is_told_in_a_sentence(here: Terminal, said: str, told: str) -> None:
    """Of many lines the first that says something, and one full stop behind it."""
    sweep = gated_sweep(here)

    class Refusing(ThreadPoolExecutor):
        def submit(self, *_: object, **__: object) -> Future[object]:  # type: ignore[override]  # as of engines
            raise RuntimeError(said)

    with Refusing(2) as executor, pytest.raises(EngineError) as caught:
        sweep.run("out.h5", executor=executor)
    whole = f"no more calls: RuntimeError: {told}. 0 finished results are kept"
    assert whole in str(caught.value)


@needs_loky
def test_loky_runs_a_sweep(terminal: Terminal) -> None:
    write_study(terminal, FREELY)
    script = """
        import loky
        from study import f
        if __name__ == "__main__":
            with loky.ProcessPoolExecutor(2) as executor:
                assert f.run("out.h5", executor=executor).is_complete
    """
    terminal.write("script.py", script)
    subprocess.run([sys.executable, "script.py"], cwd=terminal.folder, check=True, timeout=LONG_S)
    require_all_right(terminal)


@needs_parsl
def test_parsl_runs_a_sweep_and_what_it_loses_is_sent_again(
    terminal: Terminal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A worker of Parsl that is killed costs the task that it was in, and that is run again."""
    write_study(terminal)
    script = f"""
        from parsl.concurrent import ParslPoolExecutor
        from parsl.config import Config
        from parsl.executors import HighThroughputExecutor
        from parsl.providers import LocalProvider
        from study import f

        provider = LocalProvider(init_blocks=1, max_blocks=1)
        htex = HighThroughputExecutor(
            address="127.0.0.1", max_workers_per_node=2, encrypted=False, provider=provider
        )
        config = Config(run_dir="{tmp_path_factory.mktemp("parsl")}", executors=[htex])
        if __name__ == "__main__":
            with ParslPoolExecutor(config) as executor:
                assert f.run("out.h5", executor=executor).is_complete
    """
    terminal.write("script.py", script)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with running(terminal, [sys.executable, "script.py"], PATH=path) as run:
        await_gate(terminal)
        pid = int(parts_at_work(terminal)[0].stem.split("_")[-2])
        os.kill(pid, signal.SIGKILL)
        let_go(terminal)
        output, _ = run.communicate(timeout=LONG_S)
    assert run.returncode == 0, output
    require_all_right(terminal)
    assert sum(times_run(terminal).values()) <= TASKS + 1


# Dask


@needs_dask
def test_dask_outlives_its_workers(terminal: Terminal, cluster: DaskCluster) -> None:
    """Both workers are killed, another comes: every result is right, none finished is run again."""
    write_study(terminal)
    run = terminal.start(*on_dask(cluster))
    done = await_gate(terminal)
    for worker in list(cluster.workers):
        cluster.kill(worker)
    let_go(terminal)
    cluster.start_worker()
    output, said = run.communicate(timeout=LONG_S)
    assert run.returncode == 0, output + said
    require_all_right(terminal)
    assert {times_run(terminal)[task] for task in done} == {1}
    assert sum(times_run(terminal).values()) <= TASKS + 2


@needs_dask
def test_that_no_worker_is_left_is_said(
    here: Terminal,
    cluster: DaskCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once while nobody is at work; and the run goes on when a worker comes."""
    from distributed import Client

    monkeypatch.setattr("h5sweep.runner.run_far.UNHEARD_S", 1.0)
    sweep, said = gated_sweep(here), list[str]()

    def is_said() -> bool:
        said.append(capsys.readouterr().err)
        return "no worker is at work: waiting for workers of the engine" in "".join(said)

    with (
        Client(scheduler_file=str(cluster.file), set_as_default=False) as client,
        in_background(
            here, lambda: sweep.run("out.h5", executor=client.get_executor(), parts=2)
        ) as run,
    ):
        await_gate(here)
        for worker in list(cluster.workers):
            cluster.kill(worker)
        try:
            until(is_said, what="it is said")
        finally:
            let_go(here)
            cluster.start_worker()
        assert run.result(LONG_S).is_complete
    require_all_right(here)


@needs_dask
def test_a_scheduler_that_dies_ends_the_run_and_the_same_command_goes_on(
    terminal: Terminal, cluster: DaskCluster
) -> None:
    """Exit code 1 and a sentence within bounds, nothing left running, then all is done."""
    write_study(terminal)
    run = terminal.start(*on_dask(cluster))
    done = await_gate(terminal)
    cluster.kill(cluster.scheduler)
    _, said = run.communicate(timeout=LONG_S)
    assert run.returncode == 1
    assert "Traceback" not in said
    assert f"{len(done)} finished results are kept" in said
    assert said.endswith("See that the engine runs, then run the same command again\n")
    until(lambda: not list(run_folder(terminal.folder).glob("orders/*")), within_s=ENDED_S)
    let_go(terminal)
    cluster.start_scheduler()
    cluster.start_worker()
    terminal.run(*on_dask(cluster))
    require_all_right(terminal)
    assert {times_run(terminal)[task] for task in done} == {1}


@needs_dask
def test_ctrl_c_ends_what_runs_far_away(terminal: Terminal, cluster: DaskCluster) -> None:
    """Tasks that hang are ended within the grace, though Dask cannot stop them; exit code 130."""
    write_study(terminal)
    run = terminal.start(*on_dask(cluster))
    done = await_gate(terminal)
    begun = time.monotonic()
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=LONG_S)
    assert run.returncode == 130, said
    assert f"{len(done)} finished results are kept. Run the same command again" in said
    until(lambda: not parts_at_work(terminal), within_s=ENDED_S)
    assert time.monotonic() - begun < ENDED_S
    let_go(terminal)
    assert f"{TASKS} of {TASKS} done" in terminal.run(*on_dask(cluster)).stderr
    require_all_right(terminal)


@needs_dask
def test_parts_end_when_their_run_is_killed(terminal: Terminal, cluster: DaskCluster) -> None:
    """A run that is killed with SIGKILL leaves nothing at work, and the same command goes on."""
    write_study(terminal)
    run = terminal.start(*on_dask(cluster))
    done = await_gate(terminal)
    run.kill()
    run.communicate()
    again = terminal.start(*on_dask(cluster))
    until(lambda: 2 in times_run(terminal).values(), what="it goes on")
    let_go(terminal)
    _, said = again.communicate(timeout=LONG_S)
    assert again.returncode == 0, said
    require_all_right(terminal)
    assert {times_run(terminal)[task] for task in done} == {1}


@needs_dask
def test_limits_hold_in_the_threads_of_dask(terminal: Terminal, cluster: DaskCluster) -> None:
    """A task that hangs is ended by its time limit, one that kills its process is named."""
    study = FREELY.replace("    return", "    if a == 3: time.sleep(600)\n    return")
    study = study.replace("    return", "    if a == 5: os.kill(os.getpid(), 9)\n    return")
    write_study(terminal, study)
    said = terminal.run(*on_dask(cluster), "--timeout", "1s", "--retries", "0", check=1).stderr
    assert f"{TASKS - 2} of {TASKS} done, 2 failed" in said
    outcomes = kinds(terminal.folder)
    assert outcomes[3][0].words == "timed out"
    assert outcomes[5][0].words == "died"


@needs_dask
@needs_root
def test_a_folder_that_is_not_shared_is_told(
    terminal: Terminal, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A worker that sees no run folder: exit code 2, its host, what to do, nothing lost."""
    write_study(terminal, FREELY)
    hide = f"mount -t tmpfs none '{terminal.folder}' && exec \"$@\""
    with dask_cluster(tmp_path_factory.mktemp("dask") / "cluster", 0) as cluster:
        cluster.start_worker("unshare", "-m", "sh", "-c", hide, "sh")
        done = terminal.run(*on_dask(cluster), check=2)
    assert f"{os.uname().nodename}, where the engine runs tasks, does not see the r" in done.stderr
    assert "must lie in a folder that this machine shares" in done.stderr
    assert times_run(terminal) == {}


@needs_dask
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("h5sweep.py", "raise ModuleNotFoundError('none', name='h5sweep')", "have no h5sweep; i"),
        ("h5sweep/__init__.py", "", f"have no h5sweep {h5sweep.__version__}; i"),
    ],
)
def test_workers_without_h5sweep_are_told_and_live_on(
    terminal: Terminal,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    text: str,
    said: str,
) -> None:
    """Workers that have none, or one that knows no engines: exit code 1, and what to do."""
    write_study(terminal, FREELY)
    hiding = tmp_path_factory.mktemp("hiding")
    (hiding / name).parent.mkdir(exist_ok=True)
    (hiding / name).write_text(text)
    with dask_cluster(tmp_path_factory.mktemp("dask") / "cluster", 0) as cluster:
        worker = cluster.start_worker("env", f"PYTHONPATH={hiding}")
        done = terminal.run(*on_dask(cluster), check=1)
        assert worker.poll() is None
    assert f"its workers {said}nstall it where they run" in done.stderr


# MPI


@needs_mpi
@pytest.mark.parametrize("way", [("--engine", "mpi"), ("--part", "auto")])
def test_tasks_may_use_mpi_themselves(terminal: Terminal, way: tuple[str, str]) -> None:
    """No worker takes itself for the rank that has started it: each is alone in its world."""
    study = """
        import h5sweep

        @h5sweep.sweep(a=range(6))
        def f(a):
            from mpi4py import MPI

            return {"ranks": MPI.COMM_WORLD.Get_size()}
    """
    terminal.write("study.py", study)
    words = ["run", "study.py", "-o", "out.h5", "-j", "2", "--timeout", "1min", *way]
    with running(terminal, [*MPI, "-n", "2", *H5SWEEP, *words], **AS_ROOT) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert run.returncode == 0, output
    terminal.run("merge", "out.h5")
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["ranks"][:].tolist() == [1] * 6


@needs_mpi
def test_mpi_outlives_tasks_that_kill_their_process(terminal: Terminal) -> None:
    """Four ranks, a task that kills its process: it is named, all others are done."""
    kill = "    if a == 7: os.kill(os.getpid(), 9)\n    return"
    write_study(terminal, FREELY.replace("    return", kill))
    words = ["run", "study.py", "-o", "out.h5", "--engine", "mpi", "--retries", "0"]
    with running(terminal, [*MPI, "-n", "4", *H5SWEEP, *words], **AS_ROOT) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert run.returncode == 1, output
    assert f"{TASKS - 1} of {TASKS} done, 1 failed" in output
    assert kinds(terminal.folder)[7][0].words == "died"
    workers = {path.name.split("_")[1] for path in record_files(terminal.folder)}
    assert len(workers) >= 3


@needs_mpi
def test_mpi4py_starts_the_same_run_in_its_own_way(terminal: Terminal) -> None:
    """Under `python -m mpi4py.futures` the first rank runs the command, the others serve it."""
    write_study(terminal, FREELY)
    start = [*MPI, "-n", "3", sys.executable, "-m", "mpi4py.futures", "-m", "h5sweep"]
    words = ["run", "study.py", "-o", "out.h5", "--engine", "mpi"]
    with running(terminal, [*start, *words], **AS_ROOT) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert run.returncode == 0, output
    require_all_right(terminal)


# What cannot be


@needs_mpi
def test_one_rank_is_too_few(terminal: Terminal) -> None:
    write_study(terminal)
    said = terminal.run("run", "study.py", "-o", "out.h5", "--engine", "mpi", check=2).stderr
    assert "Write mpirun -n 4 before the same command" in said


@needs_dask
def test_an_address_that_does_not_answer_is_told_in_bounded_time(terminal: Terminal) -> None:
    """Nobody listens there: exit code 1 within a minute, the address, what to start."""
    write_study(terminal)
    words = (*RUN, "--engine", "dask", "--address", "tcp://127.0.0.1:9")
    said = terminal.run(*words, check=1).stderr
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in said
    assert said.endswith("see that one runs there, or correct tcp://127.0.0.1:9\n"), said
    assert not run_folder(terminal.folder).exists()


@needs_dask
def test_a_port_that_is_silent_is_told_in_bounded_time(terminal: Terminal) -> None:
    """Somebody listens who never answers: exit code 1 within a minute."""
    write_study(terminal)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        said = terminal.run(*RUN, "--engine", "dask", "--address", address, check=1).stderr
    assert f"no Dask scheduler answers at {address}" in said


@needs_dask
@pytest.mark.parametrize("content", ["", "{}", "[]", "\0\1", '{"address": null}'])
def test_a_file_that_names_no_scheduler_is_told(terminal: Terminal, content: str) -> None:
    """Whatever it holds: exit code 1, and how a scheduler writes it."""
    write_study(terminal)
    terminal.write("s.json", content)
    said = terminal.run(*RUN, "--engine", "dask", "--scheduler-file", "s.json", check=1).stderr
    assert "s.json names no Dask scheduler: start one with: dask scheduler --scheduler-f" in said


@needs_dask
def test_what_is_no_scheduler_is_told(terminal: Terminal, cluster: DaskCluster) -> None:
    """A worker's address, and ways of speaking that need more than an address."""
    from distributed import Client

    write_study(terminal)
    scheduler = json.loads(cluster.file.read_text())["address"]
    with Client(scheduler, set_as_default=False) as client:
        client.wait_for_workers(2)
        worker = next(iter(client.scheduler_info()["workers"]))
    for address in (worker, scheduler.replace("tcp:", "tls:"), scheduler.replace("tcp:", "ucx:")):
        said = terminal.run(*RUN, "--engine", "dask", "--address", address, check=1).stderr
        assert f"no Dask scheduler answers at {address}" in said
        assert "Traceback" not in said


@needs_dask
def test_clients_that_cannot_be_used_are_told(here: Terminal, cluster: DaskCluster) -> None:
    """One that is asynchronous, and one that is closed."""
    from distributed import Client

    sweep = gated_sweep(here)
    with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
        executor = client.get_executor()
    with pytest.raises(EngineError, match="the Dask client is closed: make a new one"):
        sweep.run("out.h5", executor=executor)

    async def run() -> None:
        async with Client(
            scheduler_file=str(cluster.file), asynchronous=True, set_as_default=False
        ) as client:
            sweep.run("out.h5", executor=client.get_executor())

    with pytest.raises(UsageError, match="asynchronous Dask client: use a synchronous Client"):
        asyncio.run(run())


@needs_parsl
def test_parsl_says_how_many_calls_it_runs(terminal: Terminal) -> None:
    """Threads too; without those for its own work."""
    script = """
        from h5sweep.runner.engine import Engine
        from parsl.concurrent import ParslPoolExecutor
        from parsl.config import Config
        from parsl.executors import ThreadPoolExecutor

        config = Config(run_dir="parsl", executors=[ThreadPoolExecutor(max_threads=3)])
        with ParslPoolExecutor(config) as executor:
            print(Engine.of(executor).parts, "parts")
    """
    terminal.write("script.py", script)
    with running(terminal, [sys.executable, "script.py"]) as run:
        output, _ = run.communicate(timeout=LONG_S)
    assert output == "3 parts\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--engine", "ray"), "'ray' is not one of 'dask', 'mpi'"),
        (("--engine", "dask"), "--engine dask needs --address tcp://HOST:8786 or --scheduler-file"),
        (("--engine", "dask", "--address", ""), "needs --address tcp://HOST:8786 or --scheduler"),
        (("--engine", "dask", "--address", "a", "--scheduler-file", "b"), "choose one"),
        (("--engine", "dask", "--address", "nowhere"), "no Dask scheduler answers at nowhere"),
        (
            ("--engine", "dask", "--scheduler-file", "no.json"),
            "there is no no.json: start one with",
        ),
        (("--engine", "mpi", "--part", "1/2"), "choose one"),
        (("--parts", "3"), "--parts is for --engine"),
        (("--address", "tcp://a:1"), "are for --engine dask"),
    ],
)
@needs_dask
def test_wrong_words_are_told(terminal: Terminal, words: tuple[str, ...], text: str) -> None:
    """One sentence, and no run folder."""
    write_study(terminal)
    done = terminal.run("run", "study.py", "-o", "out.h5", *words, check=None)
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not run_folder(terminal.folder).exists()


@pytest.mark.parametrize(("name", "module"), [("dask", "distributed"), ("mpi", "mpi4py")])
def test_an_engine_that_is_not_installed_names_its_extra(
    terminal: Terminal, name: str, module: str
) -> None:
    """Without the packages of an engine: exit code 2, and what to install."""
    write_study(terminal)
    absent = terminal.folder / "absent"
    absent.mkdir()
    (absent / f"{module}.py").write_text(f"raise ImportError('No module named {module}')")
    words = (*RUN, "--engine", name, *(("--address", "tcp://a:1") if name == "dask" else ()))
    said = terminal.run(*words, check=2, PYTHONPATH=str(absent)).stderr
    assert said.endswith(f"pip install 'h5sweep[{name}]'\n")


def test_what_is_no_executor_is_refused(here: Terminal) -> None:
    """Neither another object or a class, nor parts without an executor, nor an unknown number."""
    sweep = gated_sweep(here)
    with pytest.raises(UsageError, match="executor is of the type object: give an instance"):
        sweep.run("out.h5", executor=object())  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(UsageError, match="executor is the class ThreadPoolExecutor: give an insta"):
        sweep.run("out.h5", executor=ThreadPoolExecutor)  # type: ignore[arg-type]  # as above
    for parts in (0, 2.5, "8"):
        with pytest.raises(UsageError, match="parts must be a whole number, 1 or more"):
            sweep.run("out.h5", executor=ThreadPoolExecutor(1), parts=parts)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="parts is for an executor"):
        sweep.run("out.h5", parts=3)

    class Silent(ThreadPoolExecutor):
        _max_workers = None  # type: ignore[assignment]  # as of an engine that does not say

        def __init__(self) -> None:
            pass

    with pytest.raises(UsageError, match="say how many parts to send it, such as --parts 8"):
        sweep.run("out.h5", executor=Silent())
    assert not run_folder(here.folder).exists()
