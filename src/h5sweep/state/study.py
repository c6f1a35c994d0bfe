"""The declaration of a sweep, and how to find it again in the user's file.

`h5sweep run` imports a study, and so do its workers, by the path of the file. A sweep that is run
from Python is sent to them as it is there. Neither needs a main guard.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.abc import Loader, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from ..base.listed_plan import plan_list
from ..base.plan import RESERVED_NAMES, Plan, check_signature, plan_product
from ..code.snapshot_import import source_at, spec_of
from ..code.version import CodeVersion, file_of, read_version
from ..disk.durable import storage_error
from ..errors import StorageError, StudyError, UsageError, naming

Function = Callable[..., Mapping[str, object]]


class _StudyRead(BaseException):
    """Ends the reading of a study file at its own call of `run`; no error of anybody's."""


@dataclass
class _StudyReading:
    """Whether a study file is being read right now, and whether its tasks are wanted."""

    active: bool = False
    plans_wanted: bool = True


_reading = _StudyReading()


@dataclass(frozen=True)
class StudyReference:
    """How a worker finds the function: a file or a module, and the sweep's name in it."""

    name: str
    path: str
    module: str | None


class Declaration:
    """A function and the parameters it is run over."""

    function: Function
    is_sweep = True
    is_imported = False  # by `h5sweep run`, so that workers import it too

    def __init__(
        self,
        function: Function,
        *,
        tasks: object = None,
        parameters: Mapping[str, Iterable[object]],
        dims: Mapping[str, Iterable[str]],
        units: Mapping[str, str],
        constants: Mapping[str, object] | None = None,
        inputs: Iterable[str | Path] = (),
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.constants = dict(constants or {})
        self._inputs = [str(path) for path in inputs]
        self.dims = {name: checked_axes(name, axes) for name, axes in dims.items()}
        self.units = {name: _checked_unit(name, unit) for name, unit in units.items()}
        self._plan = None
        if _reading.plans_wanted:
            self._plan = _plan(function, tasks, parameters, self.constants)

    @property
    def plan(self) -> Plan:
        """The table of its tasks."""
        assert self._plan is not None  # only workers declare without a plan
        return self._plan

    @property
    def path(self) -> Path | None:
        """The file with the function; None for a cell of a notebook, or a prompt."""
        return file_of(self.function)

    def reference(self) -> StudyReference | None:
        """How a worker finds this sweep in a file; None if it is sent as it is here."""
        if not self.is_imported or self.path is None:
            return None
        return StudyReference(self.name, str(self.path.resolve()), self._module_name)

    def version(self) -> CodeVersion:
        """The code, constants and inputs that its tasks are computed by, as they are now."""
        folder = Path.cwd() if self.path is None else self.path.parent
        return read_version(
            self.function,
            name=self._module_name or "",
            constants=self.constants,
            inputs={name: folder / name for name in self._inputs},
            units=self.units,
            dims=self.dims,
        )

    @property
    def _module_name(self) -> str | None:
        return _module_in_package(getattr(self.function, "__module__", ""))


def _module_in_package(name: str) -> str | None:
    """The name to import a module by that has relative imports; also under `python -m`."""
    module = sys.modules.get(name)
    if module is None or not module.__package__:
        return None
    return module.__spec__.name if name == "__main__" and module.__spec__ else name


def load_study(path: Path, name: str | None = None) -> Declaration:
    """Read the study file `path` and return its sweep; `name` chooses among several."""
    if not path.is_file():
        raise StudyError(f"there is no study file {path}: name the Python file with the sweep")
    module = _read(lambda: _import_file(path), path)
    declaration = _choose(module, path, name)
    declaration.is_imported = True
    return declaration


def load_function(reference: StudyReference) -> Function:
    """Find the function of a sweep in a worker; its tasks are not planned again."""
    path = Path(reference.path)
    _reading.plans_wanted = False
    try:
        if reference.module:
            module = _read(lambda: _import_module(str(reference.module)), path)
        else:
            module = _read(lambda: _import_file(path), path)
    finally:
        _reading.plans_wanted = True
    return _choose(module, path, reference.name).function


def end_reading() -> None:
    """Called by everything that runs a sweep: while a study file is being read, stop there.

    A file that calls `optimise.run(...)` without a main guard is read up to that line, which is
    also all that the run itself has seen of it.
    """
    if _reading.active:
        raise _StudyRead


def _plan(
    function: Function,
    tasks: object,
    parameters: Mapping[str, Iterable[object]],
    constants: Mapping[str, object],
) -> Plan:
    if both := constants.keys() & parameters.keys():
        raise UsageError(f"{min(both)} is a constant and a parameter: leave one of them out")
    if tasks is None:
        check_signature(function, [*parameters, *constants])
        return plan_product(parameters)
    if parameters:
        raise UsageError(f"give either tasks or parameters ({', '.join(parameters)}), not both")
    plan = plan_list(tasks)
    check_signature(function, [*plan.names, *constants])
    return plan


def checked_axes(name: str, axes: Iterable[str]) -> list[str]:
    found = [axes] if isinstance(axes, str) else list(axes)
    for axis in found:
        if not isinstance(axis, str) or not axis.isidentifier() or axis in RESERVED_NAMES:
            raise UsageError(
                f"dims: {axis!r} cannot be the name of an axis of {name}: use a Python identifier"
            )
    if len(set(found)) < len(found):
        raise UsageError(f"dims: two axes of {name} have the same name: {', '.join(found)}")
    return found


def _checked_unit(name: str, unit: str) -> str:
    if not isinstance(unit, str):
        raise UsageError(f"units: the unit of {name} is {unit!r}: give a string, such as 'm'")
    return unit


def _read(load: Callable[[], ModuleType], path: Path) -> ModuleType:
    """Run the import of a study; word its errors with the user's own frames."""
    _reading.active = True
    try:
        return load()
    except (StorageError, UsageError):
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code may raise
        raise StudyError(
            f"{path} does not import:\n\n{user_traceback(error)}\n"
            f"fix that, then test it with: python {path.name}"
        ) from error
    finally:
        _reading.active = False


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"_study_{path.stem}"
    source = source_at(path)
    spec = spec_of(name, source) if source else importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise StudyError(f"{path} is not a Python file: a study's name ends in .py")
    return _execute(spec, spec.loader, name)


def _import_module(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise StudyError(f"there is no module {name}: run the study from the folder it was run in")
    return _execute(spec, spec.loader, name)


def _execute(spec: ModuleSpec, loader: Loader, name: str) -> ModuleType:
    """Run a module as far as its own call of `run`, if it has one."""
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        if isinstance(loader, SourceLoader):
            # Bytecode that was kept may be of the study before an edit within the same second.
            path = loader.get_filename(name)
            exec(loader.source_to_code(_content(loader, path), path), vars(module))
        else:
            loader.exec_module(module)
    except _StudyRead:
        pass
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _content(loader: SourceLoader, path: str) -> bytes:
    try:
        with naming(Path(path)):
            return loader.get_data(path)
    except OSError as error:  # which is no mistake in the study
        raise storage_error(None, error) from error


def _choose(module: ModuleType, path: Path, name: str | None) -> Declaration:
    found = {d.name: d for d in vars(module).values() if isinstance(d, Declaration)}
    if name is not None and name not in found:
        raise StudyError(f"{path} has no sweep {name!r}; it has: {', '.join(found) or 'none'}")
    if name is not None:
        return found[name]
    if not found:
        raise StudyError(
            f"{path} has no sweep: put @h5sweep.sweep(seed=range(10)) above the function to run"
        )
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise StudyError(f"{path} has several sweeps ({names}): choose with --sweep {min(found)}")
    return found.popitem()[1]


def user_traceback(error: BaseException) -> str:
    """The traceback of an error without the frames of h5sweep and of the import system."""
    report = traceback.TracebackException.from_exception(error, capture_locals=False)
    _drop_own_frames(report)
    return "".join(report.format())


def user_place(error: BaseException) -> str:
    """The innermost line of the user's own code in the traceback: `study.py:12 in optimise`."""
    return place_of(traceback.extract_tb(error.__traceback__))


def place_of(frames: list[traceback.FrameSummary]) -> str:
    """The innermost of the user's own frames, which is the last, or else of any but ours."""
    others = [frame for frame in frames if not is_own_frame(frame)]
    theirs = [frame for frame in others if is_user_frame(frame)] or others
    if not theirs:
        return ""
    return f"{Path(theirs[-1].filename).name}:{theirs[-1].lineno} in {theirs[-1].name}"


def is_user_frame(frame: traceback.FrameSummary) -> bool:
    """Whether it is neither ours, nor Python's, nor of a package that was installed."""
    is_installed = "site-packages" in frame.filename or frame.filename.startswith(_PYTHON_FOLDER)
    return not is_installed and not is_own_frame(frame)


def is_own_frame(frame: traceback.FrameSummary) -> bool:
    """Whether it belongs to h5sweep, or is what h5sweep was started or imports by."""
    return frame.filename.startswith((_OWN_FOLDER, "<frozen importlib", "<string>"))


def _drop_own_frames(report: traceback.TracebackException) -> None:
    kept = [frame for frame in report.stack if not is_own_frame(frame)]
    report.stack = traceback.StackSummary.from_list(kept)
    for linked in (report.__cause__, report.__context__):
        if linked is not None:
            _drop_own_frames(linked)


_OWN_FOLDER = str(Path(__file__).parents[1])
_PYTHON_FOLDER = str(Path(traceback.__file__).parent)
