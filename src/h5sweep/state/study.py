"""The declaration of a sweep, and how to find it again in the user's file.

`h5sweep run` imports a study, and so do its workers, by the path of the file. A sweep that is run
from Python is sent to them as it is there. Neither needs a main guard.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from importlib.abc import Loader, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.declared_plan import plan_declared
from ..base.key_objects import form_in_study, maker
from ..base.plan import RESERVED_NAMES, Plan
from ..base.study_function import code_of, file_of, sweep_name
from ..base.units import near_path
from ..code.own_modules import OwnModule, find_own_modules
from ..code.snapshot_import import import_from, shown_path, source_at, spec_of
from ..code.version import CodeVersion, module_of, read_version, sources_of
from ..disk.durable import storage_error
from ..disk.find_files import PathLike
from ..errors import StorageError, StudyError, UsageError, naming

Function = Callable[..., object]


class _StudyRead(BaseException):
    """Ends the reading of a study file at its own call of `run`; no error of anybody's."""


@dataclass
class _StudyReading:
    """Whether a study file is being read right now, and what is wanted of its declarations."""

    active: bool = False
    plans_wanted: bool = True
    constants_wanted: bool = True


_reading = _StudyReading()


@dataclass(frozen=True)
class StudyReference:
    """How a worker finds the function: a file or a module, and the sweep's name in it.

    `forms` says which parameters the function is given as objects.
    """

    name: str | None  # None if it is the only one
    path: str
    module: str | None
    forms: Mapping[str, str] = field(default_factory=dict)


class Declaration:
    """A function and the parameters it is run over."""

    function: Function
    is_sweep = True
    imported_from: Path | None = None  # what `h5sweep run` was given, which workers import too
    known_modules: Sequence[OwnModule] = ()  # that file and its modules, as they were then
    code_wanted: CodeVersion | None = None  # by its number, instead of the study as it is now

    def __init__(
        self,
        function: Function,
        *,
        tasks: object = None,
        parameters: Mapping[str, Iterable[object]],
        dims: Mapping[str, Iterable[str]],
        units: Mapping[str, str],
        coords: Mapping[str, Iterable[object]] = {},
        constants: Mapping[str, object],
        inputs: PathLike | Iterable[PathLike] = (),
    ) -> None:
        self.function = function
        self.name = sweep_name(function)
        _check_labels(self.name, dims=dims, coords=coords, units=units, constants=constants)
        self.constants = dict(constants) if _reading.constants_wanted else {}
        self._inputs = _checked_inputs(self.name, inputs)
        self.dims = {name: checked_axes(name, axes) for name, axes in dims.items()}
        self.units = {name: _checked_unit(name, unit) for name, unit in units.items()}
        self.coords = _checked_coordinates(coords)
        wanted = _reading.plans_wanted
        self._plan = plan_declared(function, tasks, parameters, self.constants) if wanted else None
        is_read = self._plan is not None and isinstance(tasks, str | Path)
        # The parameters that a CSV file gives, which has no objects for their values.
        self.read_names = set(self.plan.names) - parameters.keys() if is_read else set()

    @property
    def plan(self) -> Plan:
        """The table of its tasks."""
        assert self._plan is not None  # only workers declare without a plan
        return self._plan

    def set_plan(self, plan: Plan) -> None:
        """Have other objects for the values of the same tasks."""
        self._plan = plan

    def arguments(self, key: Mapping[str, object]) -> dict[str, object]:
        """What the function is called with for a key, which has texts for dates and the like."""
        return {**_with_objects(key, self._makers), **self.constants}

    def callee(self) -> Function:
        """What is called with a key: the function, which is given objects for texts of the key."""
        makers = self._makers
        called = _given_objects(self.function, makers) if makers else self.function
        return partial(called, **self.constants) if self.constants else called

    @property
    def _makers(self) -> Makers:
        return {name: maker(form) for name, form in self.plan.forms.items()}

    @property
    def is_imported(self) -> bool:
        """Whether it is the sweep of a file, and not of a running program."""
        return self.imported_from is not None

    @property
    def path(self) -> Path | None:
        """The study, or the file with the function; None for a cell of a notebook, or a prompt."""
        return self.imported_from or file_of(self.function)

    def reference(self) -> StudyReference | None:
        """How a worker finds this sweep in a file; None if it is sent as it is here."""
        if self.imported_from is None:
            return None
        return StudyReference(self.name, str(self.imported_from), None, self.forms)

    @property
    def forms(self) -> dict[str, str]:
        """Which parameters the function is given as objects, as workers know it."""
        own = code_of(self.function).__module__
        return {name: form_in_study(form, own) for name, form in self.plan.forms.items()}

    def about(self) -> dict[str, Any]:
        """How it is found and run again, as sweep.json says it."""
        study = None if self.path is None else str(self.path)
        return {"name": self.name, "study": study, "imported": self.is_imported}

    def inputs(self) -> dict[str, Path]:
        """The files that it says it reads, by the names that it gives them."""
        folder = Path.cwd() if self.path is None else self.path.parent
        for name in self._inputs:
            if (folder / name).is_dir():
                raise UsageError(f"inputs: {folder / name} is a folder: name the files in it")
        return {name: folder / name for name in self._inputs}

    def version(self, dealt: Iterable[str] = ()) -> CodeVersion:
        """The code, constants and inputs that its tasks are computed by, as they are now.

        `dealt` are variables that workers get values of in turn: they say where a task runs.
        """
        return read_version(
            self.function,
            path=self.path,
            name=self._module_name or "",
            known=self.known_modules,
            constants=self.constants,
            inputs=self.inputs(),
            units=self.units,
            dims=self.dims,
            coords=self.coords,
            forms=self.forms,
            dealt=dealt,
        )

    @property
    def _module_name(self) -> str | None:
        """What its module is imported by; None for a file that is imported by its path."""
        if self.is_imported:
            return None
        name = getattr(code_of(self.function), "__module__", "")
        is_loaded = name in sys.modules and name != "__main__"
        return name if is_loaded else _module_in_package(name)


def _module_in_package(name: str) -> str | None:
    """The name to import a module by that has relative imports; also under `python -m`."""
    module = sys.modules.get(name)
    if module is None or not module.__package__:
        return None
    return module.__spec__.name if name == "__main__" and module.__spec__ else name


def load_study(
    path: Path, name: str | None = None, wanted: CodeVersion | None = None
) -> Declaration:
    """Read the study file `path` and return its sweep; `name` chooses among several.

    If code is `wanted`, its sources are what file and modules say, whatever these say now.
    """
    sources = wanted.sources if wanted else ()
    modules = [module_of(source) for source in sources if source.is_file]
    if not path.is_file() and not modules:
        raise StudyError(f"there is no study file {path}: name the Python file with the sweep")
    file = path.resolve()  # now: a study may change the folder when it is imported
    module = _read(lambda: _import_frozen(path, modules), path)
    declaration = _choose(module, path, name)
    declaration.imported_from, declaration.known_modules = file, modules
    declaration.code_wanted = wanted
    return declaration


def load_sweep(
    reference: StudyReference, *, with_constants: bool = False
) -> tuple[Declaration, Function]:
    """Find a sweep in a worker, and what is called with a key; no tasks are planned again.

    Nor are its constants kept, of which a worker is handed a copy that it shares with others.
    """
    path = Path(reference.path)
    _reading.plans_wanted, _reading.constants_wanted = False, with_constants
    try:
        if reference.module:
            module = _read(lambda: _import_module(str(reference.module)), path)
        else:
            module = _read(lambda: _import_file(path), path)
    finally:
        _reading.plans_wanted = _reading.constants_wanted = True
    declaration = _choose(module, path, reference.name)
    called = declaration.function
    home = sys.modules.get(code_of(called).__module__, module)  # of which its forms leave the name
    makers = {name: maker(form, home) for name, form in reference.forms.items()}
    return declaration, _given_objects(called, makers) if makers else called


def end_reading() -> None:
    """Called by everything that runs a sweep: while a study file is being read, stop there.

    A file that calls `optimise.run(...)` without a main guard is read up to that line, which is
    also all that the run itself has seen of it.
    """
    if _reading.active:
        raise _StudyRead


Makers = Mapping[str, Callable[[str], object]]  # of objects from their texts, by parameter


def _given_objects(function: Function, makers: Makers) -> Function:
    """The function, to be called with the texts of a key for its dates and other objects."""

    @wraps(function)  # whose annotations name its results
    def given_objects(**key: object) -> object:
        return function(**_with_objects(key, makers))

    return given_objects


def _with_objects(key: Mapping[str, Any], makers: Makers) -> dict[str, object]:
    return {name: makers[name](v) if name in makers else v for name, v in key.items()}


def _check_labels(sweep: str, **labels: object) -> None:
    for what, given in labels.items():
        if not isinstance(given, Mapping):
            is_passed = what == "constants"
            means = "are passed to the function" if is_passed else "says something of results"
            raise UsageError(
                f"{what}={given!r}: {what} {means}, as a dict of their names. If {sweep} has a "
                f"parameter {what!r}, rename it"
            )


def _checked_inputs(sweep: str, inputs: object) -> list[str]:
    """The names of files; one may be given by itself."""
    given: Any = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    given = list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(one, str | os.PathLike) for one in given):
        raise UsageError(
            f"inputs={inputs!r}: inputs are files that the function reads, as a list of paths. If "
            f"{sweep} has a parameter 'inputs', rename it"
        )
    return [os.fspath(path) for path in given]


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


def _checked_coordinates(coords: Mapping[str, Iterable[object]]) -> dict[str, Any]:
    if not coords:
        return {}
    from ..base.coordinates import declared_coordinates  # which needs NumPy

    return declared_coordinates(coords)


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
            f"fix that, then test it with: {_way_to_test(path)}"
        ) from error
    finally:
        _reading.active = False


def _way_to_test(path: Path) -> str:
    """How Python runs a study by itself: one of a package by its name, for relative imports."""
    path, names = path.resolve(), [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) == 1:
        return shlex.join(["python", str(near_path(path))])
    here = "" if folder == Path.cwd() else f"cd {shlex.quote(str(near_path(folder)))} && "
    return f"{here}python -m {'.'.join(names)}"


def _import_frozen(path: Path, modules: list[OwnModule]) -> ModuleType:
    """Read a study with its modules and import what was read, also if they are edited meanwhile.

    Nor is bytecode of theirs used, which may be of before an edit within the same second.
    """
    path = path.resolve()
    _search_beside(path)
    try:
        with naming(path):
            modules[:] = find_own_modules(path, known=modules)
    except OSError as error:  # which is no mistake in the study
        raise storage_error(None, error) from error
    import_from(sources_of(modules, path.parent))
    return _import_file(path)


def _search_beside(path: Path) -> None:
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    _search_beside(path)
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
    found: dict[str, Declaration] = {}
    for one in vars(module).values():
        if isinstance(one, Declaration) and found.setdefault(one.name, one) is not one:
            raise StudyError(
                f"{path} has two sweeps called {one.name!r}, and results are known by that name: "
                "write a function with a name of its own for each"
            )
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
    for frame in kept:
        frame.filename = shown_path(frame.filename)
    report.stack = traceback.StackSummary.from_list(kept)
    for linked in (report.__cause__, report.__context__):
        if linked is not None:
            _drop_own_frames(linked)


_OWN_FOLDER = str(Path(__file__).parents[1])
_PYTHON_FOLDER = str(Path(traceback.__file__).parent)
