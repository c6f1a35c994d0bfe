"""The user's function on its way to the workers: packed by the coordinator, unpacked by each.

What workers import they import from the sources that were read when the run began, so that they
all run the same code, also those that are started hours later.
"""

from __future__ import annotations

import json
import os
import pickle
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..base.study_function import code_of
from ..code.arithmetic import arithmetic_now, set_arithmetic
from ..code.changes import change_texts
from ..code.describe_value import is_array, is_code
from ..code.payload import read_payload, write_payload
from ..code.process_values import ImportHere
from ..code.reachable import MEMBERS
from ..code.restore import (
    facts_of_worker,
    own_globals,
    restore_constants,
    restore_globals,
    study_source,
)
from ..code.snapshot_import import import_from
from ..code.version import CodeVersion, Source, describe_globals, input_checksum
from ..errors import StudyError, SweepError, UsageError
from ..state.run_command import run_imported_text
from ..state.study import Declaration, Function, StudyReference, load_sweep, user_traceback
from .settings import THREAD_VARIABLES, WORKER_VARIABLE

MOST_CHANGES = 5  # that are told


@contextmanager
def handed_over(
    declaration: Declaration, version: CodeVersion, output: Path, part: str = ""
) -> Iterator[int]:
    """The descriptor of all that a worker needs to run the function, for as long as it is needed.

    StudyError names what cannot be sent.
    """
    reference, buffers = declaration.reference(), list[Any]()
    description = {
        "name": declaration.name,
        "code": version.id,
        "reference": None if reference is None else asdict(reference),
        "globals": version.facts["globals"],
        "search_path": sys.path,
        "arguments": sys.argv,
        "sources": [source.as_json() for source in version.sources],
    }
    if reference is None:
        from ..code.by_value import dump_function

        callee, function = declaration.callee(), declaration.function
        instead = _import_command(declaration, output, part)
        sent = dump_function(callee, function, version, declaration.name, buffers.append, instead)
        content = sent.content
        description |= {"left": sent.left, "arithmetic": arithmetic_now()}
        description |= {"recursion_limit": sys.getrecursionlimit()}
    else:
        content = _dump_constants(declaration.constants, buffers)
    with _payload(description, content, buffers) as descriptor:
        yield descriptor


@contextmanager
def handed_over_again(version: CodeVersion, answers: Path) -> Iterator[int]:
    """The same for a version of earlier runs, of which there is only what was recorded.

    Each worker writes into the folder `answers` what it finds there to be now.
    """
    source = study_source(version)
    if source is None:
        raise StudyError(
            "its function was in no file (in a notebook, or at a prompt), so what it used was "
            "recorded in words only"
        )
    about = version.about
    reference = StudyReference(
        about.get("sweep"), source.path, source.module or None, version.facts["forms"]
    )
    description = {
        "name": reference.name or "",
        "reference": asdict(reference),
        "code": version.id,
        "search_path": [*sys.path, *_import_folders(version)],
        "again": {"version": version.as_json(), "answers": str(answers)},
    }
    with _payload(description, b"", []) as descriptor:
        yield descriptor


@contextmanager
def _payload(description: dict[str, Any], content: bytes, buffers: list[Any]) -> Iterator[int]:
    descriptor = write_payload(description, content, buffers)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _import_command(declaration: Declaration, output: Path, part: str) -> str:
    """What has workers import the sweep from its file; empty if an import of that has no such."""
    function, path = code_of(declaration.function), declaration.path
    if path is None or getattr(function, "__qualname__", "") != declaration.name:
        return ""
    return run_imported_text(path, declaration.name, output, part)


def sending_texts(
    declaration: Declaration,
    version: CodeVersion,
    output: Path,
    part: str = "",
    *,
    has_executor: bool = False,
) -> Iterator[str]:
    """What to say of a function that is sent as it is here.

    A script with an executor makes that when it starts, and no command could run it instead.
    """
    wanted = declaration.code_wanted
    if wanted and wanted.id != version.id and (found := change_texts(wanted, version)):
        more = f"; and {len(found) - MOST_CHANGES:,} more" if len(found) > MOST_CHANGES else ""
        yield f"not the code that --code names: {'; '.join(found[:MOST_CHANGES])}{more}"
    for path in version.edited:
        yield (
            f"{Path(path).name} was edited after it was loaded here: what was loaded is run, and "
            "its text is not kept. To run the new one, restart Python"
        )
    if version.not_in_workers and not has_executor:
        yield _settings_text(declaration, version, _import_command(declaration, output, part))


def changed_input_texts(declaration: Declaration, version: CodeVersion) -> Iterator[str]:
    """That inputs are not what they were when the run began: nobody knows which rows saw which."""
    for name, path in declaration.inputs().items():
        with suppress(UsageError):
            if input_checksum(path) == version.facts["inputs"][name]:
                continue
        yield (
            f"the input {name} was changed or removed during this run, and nobody knows which rows "
            "are of which. The next run notes the new one; with --changed redo it runs them again"
        )


def _settings_text(declaration: Declaration, version: CodeVersion, instead: str) -> str:
    """That a script sets something in packages, which its workers do not."""
    settings, file = ", ".join(version.not_in_workers), Path(str(declaration.path)).name
    other = f", or at the top of {file} and let workers import that: {instead}" if instead else ""
    return (
        f"{file} does {settings} when it starts, and its workers do not. If results depend on "
        f"that, do it in {declaration.name}{other}"
    )


def _import_folders(version: CodeVersion) -> Iterator[str]:
    """Where modules lie that have names: `pkg.model` two folders below."""
    for source in version.sources:
        if source.module:
            levels = source.module.count(".") + source.path.endswith("__init__.py")
            yield from map(str, list(Path(source.path).parents)[levels : levels + 1])


@dataclass(frozen=True)
class Received:
    """The function in a worker, with its constants, and of which version of the code it is."""

    function: Function
    code: str
    differing: tuple[str, ...] = ()  # globals that are not what they were when the run began
    unexplained: tuple[str, ...] = ()  # of these, those that do not only say which process it is
    constants: Mapping[str, object] = field(default_factory=dict)


class GlobalsWatch:
    """Whether what a study reads at import, such as a file, changes while a run goes on.

    What differs in a first worker already is told apart: it may be random, or read from a file that
    was just edited. Times, process ids and what is dealt round the workers mean nothing.
    """

    def __init__(self, *, is_dealt: bool) -> None:
        self._is_dealt = is_dealt
        self._usual: dict[int, set[str]] = {}

    def texts(
        self, worker: int, differing: Iterable[str], unexplained: Iterable[str]
    ) -> Iterator[str]:
        """What to say of a worker with these differences; nothing if they are as usual.

        Each has its own usual ones, by its number: it may have been dealt other variables.
        """
        if worker not in self._usual and not self._is_dealt and (names := ", ".join(unexplained)):
            yield (
                f"{names}: workers have another value than there was when the run began, and rows "
                "do not say which. Make it a constant (constants=), or compute it in the function"
            )
        usual = self._usual.setdefault(worker, set(differing))
        if new := sorted(set(differing) - usual):
            yield (
                f"{', '.join(new)} is not what it was when the run began: what the study reads at "
                "import has changed, and later rows are of the new value. The next run notes it; "
                "with --changed redo it runs all of them again"
            )


def beyond_text(modules: list[str]) -> str:
    """What to say of modules that tasks import and that no statement of the study names."""
    if not modules:
        return ""
    are, them = ("is", "it") if len(modules) == 1 else ("are", "them")
    return (
        f"a task imported {', '.join(modules)}, which {are} not in the code that rows are marked "
        f"with: a change of {them} would not be noticed. Import {them} at the top of the study"
    )


def receive_function(descriptor: int, copies: Path) -> Received:
    """What `handed_over` has packed; files that were edited since have copies below `copies`."""
    description, content, buffers = read_payload(descriptor)
    code = description["code"]
    if "again" in description:
        return Received(_receive_again(description, copies), code)
    sys.path[:] = [p for p in description["search_path"] if p not in sys.path] + sys.path
    sys.argv[:] = description["arguments"]
    import_from((Source(**source) for source in description["sources"]), copies)
    if description["reference"] is None:
        return _receive_by_value(description, content, buffers)
    here = ImportHere((*THREAD_VARIABLES, WORKER_VARIABLE))
    declaration, function = load_sweep(StudyReference(**description["reference"]))
    constants = pickle.loads(content, buffers=buffers) if content else {}
    known = description["globals"]
    now = _differing(declaration.function, constants, known)
    unexplained = tuple(n for n in now if not here.explains(known[n], now[n]))
    called = partial(function, **constants) if constants else function
    return Received(called, code, tuple(now), unexplained, constants)


def _differing(
    function: Function, constants: Mapping[str, object], known: Mapping[str, Any]
) -> dict[str, Any]:
    """Globals that are not what they are known to be, as they are; of others nothing."""
    now = describe_globals(function, constants.values(), only=known.keys())
    found = {name: value for name, value in known.items() if now.get(name, value) != value}
    # What a package has compiled from a function may come out of a pickle without its name.
    names = (name for name, value in found.items() if not is_code(value) or is_code(now[name]))
    return {name: now[name] for name in names}


def _receive_by_value(description: dict[str, Any], content: bytes, buffers: list[Any]) -> Received:
    """The function as it was sent, and which values are not as they were there.

    So they may be if their class says itself how they are sent, or if one is added to when a class
    is made. StudyError if a function or a class is another one, or if what is not sent, such as a
    member of an enum, is not what an import gives.
    """
    from ..code.by_value import load_function

    name = description["name"]
    sys.setrecursionlimit(description["recursion_limit"])
    try:
        callee, function = load_function(content, buffers)
    except SweepError:
        raise
    except Exception as error:  # whatever an import in the user's code may raise
        text = user_traceback(error)
        raise StudyError(f"{name} cannot be loaded in a worker:\n\n{text}") from error
    set_arithmetic(description["arithmetic"])
    is_left = tuple(description["left"])
    known = {n: v for n, v in description["globals"].items() if not is_array(v)}  # sent as they are
    constants = callee.keywords if isinstance(callee, partial) else {}
    found = _differing(function, constants, known).items()
    now = {n: value for n, value in found if not _is_of_one_package(known[n], value)}
    differing = [
        n for n in now if is_code(known[n]) or n.endswith(MEMBERS) or (n.startswith(is_left))
    ]
    if differing:
        raise StudyError(
            f"{name} uses {', '.join(differing)}, which was changed since it was imported, "
            "here or in its file, and cannot be sent to workers as it is: change it inside "
            f"{name}, or restart Python if its file was edited"
        )
    return Received(callee, description["code"], tuple(now), tuple(now), constants)


def _is_of_one_package(was: Any, now: Any) -> bool:
    """Whether two functions or classes are what an installed package has by one name.

    In a notebook `tqdm.auto` has another class than elsewhere.
    """
    if not (is_code(was) and is_code(now)) or "code" in was or "code" in now:
        return False
    package, other = (str(one["value"]).partition(".")[0] for one in (was, now))
    return package == other


def _receive_again(description: dict[str, Any], copies: Path) -> Function:
    """The function of an earlier version; StudyError if it cannot be what it was."""
    again = description["again"]
    version = CodeVersion.from_json(again["version"])
    _restore_process(version, description["search_path"])
    import_from(version.sources, copies)
    reference = StudyReference(**description["reference"])
    declaration, callee = load_sweep(reference, with_constants=True)
    set_arithmetic(version.facts["settings"])
    given = declaration.function, declaration.constants
    lost_globals = restore_globals(*given, own_globals(version))
    constants, lost = restore_constants(*given, version.facts["constants"])
    if not version.about.get("imported", True):
        lost += lost_globals  # an import gives globals as it did then, or that is what differs
    if lost:
        raise StudyError("; ".join(lost))
    found = facts_of_worker(version, declaration.function, constants)
    (Path(again["answers"]) / f"{os.getpid()}.json").write_text(json.dumps(found))
    return partial(callee, **constants) if constants else callee


def _restore_process(version: CodeVersion, search_path: list[str]) -> None:
    """Be in the folder of the run, with its arguments."""
    sys.path[:] = [p for p in search_path if p not in sys.path] + sys.path
    about = version.about
    with suppress(OSError):
        os.chdir(about.get("folder") or os.curdir)
    sys.argv[:] = shlex.split(about.get("command", "")) or sys.argv


def _dump_constants(constants: dict[str, object], buffers: list[Any]) -> bytes:
    if not constants:
        return b""
    try:
        return pickle.dumps(constants, protocol=5, buffer_callback=buffers.append)
    except Exception as error:  # whatever an object's own __reduce__ may raise
        names = ", ".join(filter(lambda name: _is_refused(constants[name]), constants))
        raise StudyError(
            f"constants: {names} cannot be sent to workers ({error}): give numbers, texts, arrays"
        ) from error


def _is_refused(constant: object) -> bool:
    try:
        pickle.dumps(constant, protocol=5, buffer_callback=lambda _: None)
    except Exception:  # the same as above
        return True
    return False
