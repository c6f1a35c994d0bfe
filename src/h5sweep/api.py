"""The Python interface: `@h5sweep.sweep(...)` and the methods of a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, ParamSpec, TypeVar

from .base.plan import PlanColumn
from .base.static_html import lines_html, table_html
from .base.units import count_text
from .disk.find_files import PathLike
from .errors import UsageError
from .runfolder.layout import RunFolder
from .state.study import Declaration, end_reading

if TYPE_CHECKING:
    from concurrent.futures import Executor

    import xarray

    from .runner.run import RunReport
    from .runner.run_part import PartReport
    from .runner.settings import PoolSettings
    from .runner.status import Status
    from .state.state import Missing

MOST_VALUES = 12  # of a parameter, that a notebook shows
Arguments = ParamSpec("Arguments")
Result_co = TypeVar("Result_co", covariant=True)


class Sweep(Declaration, Generic[Arguments, Result_co]):
    """A function and the parameters it is run over. Calling it calls the function."""

    function: Callable[Arguments, Result_co]

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result_co:
        return self.function(*args, **kwargs)

    def run(
        self,
        output: PathLike,
        *,
        workers: int | None = None,
        timeout_s: float | None = None,
        memory_bytes: int | None = None,
        retries: int | None = None,
        tasks_per_worker: int | None = None,
        env: Mapping[str, Sequence[object]] | None = None,
        merge: bool = True,
        compress: bool = False,
        changed: str | None = None,
        only: Mapping[str, object] | None = None,
        failed: Literal["retry", "keep"] = "retry",
        keep_going: bool = False,
        executor: Executor | None = None,
        parts: int | None = None,
        report: bool = True,
    ) -> RunReport:
        """Run what is missing and merge all results into `output`; the same call again resumes.

        Workers run the function as it is here, with the globals that it uses as they are now; it
        may be in a notebook, and needs no main guard.

        `changed` ("stop", "keep", "redo") is what to do with results of other code.
        `only={"farm_id": 3, "seed": range(10)}` runs no others, `failed="keep"` none that have
        failed before. If the first 20 tasks all fail of one cause, HopelessError is raised, unless
        `keep_going` is true.

        With an `executor` (of Dask, MPI, Parsl, or any `concurrent.futures.Executor`) tasks run
        where it runs calls, in `parts` calls, by default as many as it can run at once; each has
        `workers` worker processes, by default one. The folder of `output` must be shared with them.

        At the end an HTML page is written into the run folder, unless `report` is false.
        """
        end_reading()
        from .runner.progress import showing_progress

        if executor is None and parts is not None:
            raise UsageError("parts is for an executor: give executor=, or use run_part")
        with showing_progress() as display:
            # Imported now, because that takes a while in which something is to be seen.
            from .report.write_report import reporting_stop, write_after_run
            from .runner.engine import Engine
            from .runner.run import run_sweep
            from .state.code_change import OnChange

            engine = None if executor is None else Engine.of(executor, parts)
            workers = 1 if engine and workers is None else workers
            with reporting_stop(Path(output), display.say) if report else nullcontext():
                ended = run_sweep(
                    self,
                    Path(output),
                    _settings(workers, timeout_s, memory_bytes, retries, tasks_per_worker, env),
                    display,
                    merge=merge,
                    compress=compress,
                    changed=None if changed is None else OnChange.parse(changed),
                    only=only or {},
                    failed=failed,
                    keep_going=keep_going,
                    engine=engine,
                )
        if report:
            write_after_run(ended.output)
        return ended

    def run_part(
        self,
        output: PathLike,
        part: str,
        *,
        workers: int | None = None,
        timeout_s: float | None = None,
        memory_bytes: int | None = None,
        retries: int | None = None,
        env: Mapping[str, Sequence[object]] | None = None,
        changed: str | None = None,
        keep_going: bool = False,
    ) -> PartReport:
        """Run a part of what is missing, such as "3/40"; other processes run the other parts.

        All that they need to share is the folder of `output`. Nothing is merged: `h5sweep merge`
        does that. `part="auto"` is the rank under mpirun or srun.
        """
        end_reading()
        from .runner.progress import showing_progress

        with showing_progress() as display:
            from .runner.part_number import parse_part
            from .runner.run_part import run_part
            from .state.code_change import OnChange

            return run_part(
                self,
                Path(output),
                _settings(workers, timeout_s, memory_bytes, retries, env=env),
                display,
                part=parse_part(part),
                changed=None if changed is None else OnChange.parse(changed),
                keep_going=keep_going,
            )

    def status(self, output: PathLike) -> Status:
        """What is done, failed and running, from the folder alone; right during a run."""
        end_reading()
        from .runner.status import status_in

        return status_in(RunFolder.of(output), self.plan, f"the sweep {self.name}")

    def missing(self, output: PathLike) -> list[Missing]:
        """Every task without a result, with its key and the reason."""
        end_reading()
        from .state.expected_tasks import read_expected_state
        from .state.missing_report import MissingTasks

        state = read_expected_state(RunFolder.of(output), self.plan, f"the sweep {self.name}")
        return MissingTasks(state.missing())

    def open(self, output: PathLike) -> xarray.Dataset:
        """The output as an xarray Dataset."""
        end_reading()
        return open_output(output)

    def _repr_html_(self) -> str:
        """In a notebook: its parameters, and how many tasks they make."""
        rows = [(column.name, column.type, _values_text(column)) for column in self.plan.columns]
        about = [f"the sweep {self.name}", count_text(len(self.plan), "task")]
        return lines_html(about) + table_html(("parameter", "type", "values"), rows)


def _values_text(column: PlanColumn) -> str:
    """`0, 1, 2, … and 97 more`"""
    shown = ", ".join(map(str, column.values[:MOST_VALUES]))
    left = len(column.values) - MOST_VALUES
    return f"{shown}, … and {left:,} more" if left > 0 else shown


def sweep(
    *,
    tasks: object = None,
    dims: Mapping[str, Iterable[str]] | None = None,
    coords: Mapping[str, Iterable[object]] | None = None,
    units: Mapping[str, str] | None = None,
    constants: Mapping[str, object] | None = None,
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
    **parameters: Iterable[object],
) -> Callable[[Callable[Arguments, Result_co]], Sweep[Arguments, Result_co]]:
    """Declare that a function is to be run over all combinations of parameter values.

        @h5sweep.sweep(farm_id=range(10), farm_type=["onshore", "floating"], seed=range(100))
        def optimise(farm_id, farm_type, seed):
            return {"layout": xy, "aep": aep}

    Or over a list: `tasks=[{"farm_id": 3, "seed": 7}, ...]`, the path of a CSV, a DataFrame; with
    parameters beside it, each task of the list is run with each combination of these. `dims` names
    the axes of results, `coords` has the coordinates of axes, `units` the units of results.
    `constants` are passed to the function too, the same for every task; `inputs` are files whose
    checksums are noted, named from the study's folder. The
    function stays an ordinary function.
    """

    def declare(function: Callable[Arguments, Result_co]) -> Sweep[Arguments, Result_co]:
        if not callable(function):
            raise UsageError("a sweep is declared above a function: @h5sweep.sweep(seed=range(10))")
        made: Sweep[Arguments, Result_co] = Sweep(
            function,
            tasks=tasks,
            parameters=parameters,
            dims={} if dims is None else dims,
            coords={} if coords is None else coords,
            units={} if units is None else units,
            constants={} if constants is None else constants,
            inputs=inputs,
        )
        # Not its attributes: those of an object that can be called might have names of ours.
        update_wrapper(made, function, updated=())
        return made

    return declare


def open_output(path: PathLike) -> xarray.Dataset:
    """Open an output as an `xarray.Dataset`; ImportError says how to install xarray.

    If the run folder has results that the output lacks, as during a run, these are there too: then
    it is a snapshot of this moment, for which no run waits, and which leaves no file behind. The
    dataset has the methods `h5sweep.to_grid()` and `h5sweep.to_dataframe()`.
    """
    end_reading()

    try:
        import h5netcdf  # noqa: F401  # xarray's own message would not say how to install it
        import xarray  # noqa: F401
    except ImportError as error:
        raise ImportError("h5sweep.open needs xarray: pip install 'h5sweep[xarray]'") from error
    from .merge.from_records.snapshot import NamelessFile, finished_output
    from .output.grid import open_output_file, register_accessor, without_copies_of_axes

    register_accessor()
    with finished_output(path) as found:
        is_temporary = found != RunFolder.of(path).output
        opened = NamelessFile(found) if is_temporary else found
        return without_copies_of_axes(open_output_file(opened))


def _settings(
    workers: int | None,
    timeout_s: float | None,
    memory_bytes: int | None,
    retries: int | None,
    tasks_per_worker: int | None = None,
    env: Mapping[str, Sequence[object]] | None = None,
) -> PoolSettings:
    from .runner.settings import PoolSettings, Retries, dealt_values

    return PoolSettings(
        workers=default_workers() if workers is None else workers,
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        retries=Retries() if retries is None else Retries(retries, retries, retries, retries),
        tasks_per_worker=tasks_per_worker,
        env={name: dealt_values(name, values) for name, values in (env or {}).items()},
    )


def default_workers() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0))
