"""The Python interface: `@h5sweep.sweep(...)` and the methods of a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, ParamSpec, TypeVar

from .disk.find_files import PathLike
from .errors import UsageError
from .runfolder.layout import RunFolder
from .state.study import Declaration, end_reading

if TYPE_CHECKING:
    import xarray

    from .runner.run import RunReport
    from .runner.status import Status
    from .state.state import Missing

Arguments = ParamSpec("Arguments")
Result_co = TypeVar("Result_co", bound=Mapping[str, object], covariant=True)


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
        merge: bool = True,
        compress: bool = False,
        changed: str | None = None,
        only: Mapping[str, object] | None = None,
        failed: Literal["retry", "keep"] = "retry",
        keep_going: bool = False,
    ) -> RunReport:
        """Run what is missing and merge all results into `output`; the same call again resumes.

        Workers run the function as it is here, with the globals that it uses as they are now; it
        may be in a notebook, and needs no main guard.

        `changed` ("stop", "keep", "redo") is what to do with results of other code.
        `only={"farm_id": 3, "seed": range(10)}` runs no others, `failed="keep"` none that have
        failed before. If the first 20 tasks all fail of one cause, HopelessError is raised, unless
        `keep_going` is true.
        """
        end_reading()
        from .runner.progress import choose_display
        from .runner.run import run_sweep
        from .runner.settings import PoolSettings, Retries
        from .state.code_change import OnChange

        settings = PoolSettings(
            workers=default_workers() if workers is None else workers,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            retries=Retries() if retries is None else Retries(retries, retries, retries, retries),
            tasks_per_worker=tasks_per_worker,
        )
        return run_sweep(
            self,
            Path(output),
            settings,
            choose_display(),
            merge=merge,
            compress=compress,
            changed=None if changed is None else OnChange.parse(changed),
            only=only or {},
            failed=failed,
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

        folder = RunFolder.of(output)
        return list(read_expected_state(folder, self.plan, f"the sweep {self.name}").missing())

    def open(self, output: PathLike) -> xarray.Dataset:
        """The output as an xarray Dataset."""
        end_reading()
        return open_output(output)


def sweep(
    *,
    tasks: object = None,
    dims: Mapping[str, Iterable[str]] | None = None,
    units: Mapping[str, str] | None = None,
    constants: Mapping[str, object] | None = None,
    inputs: Iterable[str | os.PathLike[str]] = (),
    **parameters: Iterable[object],
) -> Callable[[Callable[Arguments, Result_co]], Sweep[Arguments, Result_co]]:
    """Declare that a function is to be run over all combinations of parameter values.

        @h5sweep.sweep(farm_id=range(10), farm_type=["onshore", "floating"], seed=range(100))
        def optimise(farm_id, farm_type, seed):
            return {"layout": xy, "aep": aep}

    Or over a list: `tasks=[{"farm_id": 3, "seed": 7}, ...]`, the path of a CSV, a DataFrame; with
    parameters beside it, each task of the list is run with each combination of these. `dims` names
    the axes of results, `units` their units. `constants` are passed to the function too, the same
    for every task; `inputs` are files whose checksums are noted, named from the study's folder. The
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
            units={} if units is None else units,
            constants={} if constants is None else constants,
            inputs=[os.fspath(path) for path in inputs],
        )
        # Not its attributes: those of an object that can be called might have names of ours.
        update_wrapper(made, function, updated=())
        return made

    return declare


def open_output(path: PathLike) -> xarray.Dataset:
    """Open an output as an `xarray.Dataset`; ImportError says how to install xarray."""
    end_reading()

    try:
        import h5netcdf  # noqa: F401  # xarray's own message would not say how to install it
        import xarray
    except ImportError as error:
        raise ImportError("h5sweep.open needs xarray: pip install 'h5sweep[xarray]'") from error
    return xarray.open_dataset(path, engine="h5netcdf")


def default_workers() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0))
