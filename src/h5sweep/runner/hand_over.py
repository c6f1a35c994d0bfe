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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..base.units import command_text, near_path
from ..code.payload import read_payload, write_payload
from ..code.restore import facts_of_worker, restore_constants, restore_globals, study_source
from ..code.snapshot_import import import_from
from ..code.version import CodeVersion, Source, describe_globals, input_checksum
from ..errors import StudyError, SweepError, UsageError
from ..state.study import Declaration, Function, StudyReference, load_sweep, user_traceback


@contextmanager
def handed_over(declaration: Declaration, version: CodeVersion) -> Iterator[int]:
    """The descriptor of all that a worker needs to run the function, for as long as it is needed.

    StudyError names what cannot be sent.
    """
    reference, buffers = declaration.reference(), list[Any]()
    description = {
        "name": declaration.name,
        "code": version.id,
        "reference": None if reference is None else asdict(reference),
        "globals": {} if reference is None else version.facts["globals"],
        "search_path": sys.path,
        "sources": [source.as_json() for source in version.sources],
    }
    if reference is None:
        from ..code.by_value import dump_function

        sent = declaration.callee(), declaration.function
        content = dump_function(*sent, version, declaration.name, buffers.append)
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
        about.get("sweep"), source.path, source.module or None, about.get("forms") or {}
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


def sending_texts(declaration: Declaration, version: CodeVersion) -> Iterator[str]:
    """What to say of a function that is sent as it is here."""
    for path in version.edited:
        yield (
            f"{Path(path).name} was edited after it was loaded here: what was loaded is run, and "
            "its text is not kept. To run the new one, restart Python"
        )
    if text := _settings_text(declaration, version):
        yield text


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


def _settings_text(declaration: Declaration, version: CodeVersion) -> str:
    """That a script sets something in packages, which its workers do not; empty if it does not."""
    if declaration.is_imported or not version.settings or declaration.path is None:
        return ""
    settings = ", ".join(dict.fromkeys(version.settings))
    command = command_text("run", near_path(declaration.path))
    return (
        f"{declaration.path.name} does {settings} when it starts, and its workers do not. If "
        f"results depend on that, do it in {declaration.name}, or let workers import the file: "
        f"{command}"
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
    differing: tuple[str, ...]  # globals that are not what they were when the run began


class GlobalsWatch:
    """Whether what a study reads at import, such as a file, changes while a run goes on.

    What differs in the first worker already, such as a time or a process id, means nothing.
    """

    def __init__(self) -> None:
        self._usual: set[str] | None = None

    def text(self, differing: Iterable[str]) -> str:
        """What to say of a worker with these differences; empty if they are as usual."""
        if self._usual is None:
            self._usual = set(differing)
        if not (new := sorted(set(differing) - self._usual)):
            return ""
        return (
            f"{', '.join(new)} is not what it was when the run began: what the study reads at "
            "import has changed, and later rows are of the new value. The next run notes it; with "
            "--changed redo it runs all of them again"
        )


def receive_function(descriptor: int) -> Received:
    """What `handed_over` has packed."""
    description, content, buffers = read_payload(descriptor)
    function = _function_of(description, content, buffers)
    differing: tuple[str, ...] = ()
    if known := description.get("globals"):
        now = describe_globals(function)
        differing = tuple(name for name, value in known.items() if now.get(name, value) != value)
    return Received(function, description["code"], differing)


def _function_of(description: dict[str, Any], content: bytes, buffers: list[Any]) -> Function:
    if "again" in description:
        return _receive_again(description)
    sys.path[:] = [p for p in description["search_path"] if p not in sys.path] + sys.path
    import_from(Source(**source) for source in description["sources"])
    if description["reference"] is not None:
        function = load_sweep(StudyReference(**description["reference"]))[1]
        constants = pickle.loads(content, buffers=buffers) if content else {}
        return partial(function, **constants) if constants else function
    from ..code import by_value

    try:
        sent: Function = by_value.load_function(content, buffers)
    except SweepError:
        raise
    except Exception as error:  # whatever an import in the user's code may raise
        raise StudyError(
            f"{description['name']} cannot be loaded in a worker:\n\n{user_traceback(error)}"
        ) from error
    return sent


def _receive_again(description: dict[str, Any]) -> Function:
    """The function of an earlier version; StudyError if it cannot be what it was."""
    again = description["again"]
    version = CodeVersion.from_json(again["version"])
    _restore_process(version, description["search_path"])
    import_from(version.sources)
    declaration, callee = load_sweep(StudyReference(**description["reference"]))
    lost_globals = restore_globals(declaration.function, version.facts["globals"])
    constants, lost = restore_constants(declaration.constants, version.facts["constants"])
    if not version.about.get("imported", True):
        lost += lost_globals  # an import gives globals as it did then, or that is what differs
    if lost:
        raise StudyError("; ".join(lost))
    found = facts_of_worker(version, declaration.function)
    (Path(again["answers"]) / f"{os.getpid()}.json").write_text(json.dumps(found))
    return partial(callee, **constants) if constants else callee


def _restore_process(version: CodeVersion, search_path: list[str]) -> None:
    """Be in the folder of the run, with the arguments of its script."""
    sys.path[:] = [p for p in search_path if p not in sys.path] + sys.path
    about = version.about
    with suppress(OSError):
        os.chdir(about.get("folder") or os.curdir)
    if not about.get("imported", True):
        sys.argv[:] = shlex.split(about.get("command", "")) or sys.argv


def _dump_constants(constants: dict[str, object], buffers: list[Any]) -> bytes:
    if not constants:
        return b""
    try:
        return pickle.dumps(constants, protocol=5, buffer_callback=buffers.append)
    except Exception as error:  # whatever an object's own __reduce__ may raise
        names = ", ".join(constants)
        raise StudyError(
            f"constants: {names} cannot be sent to workers ({error}): give numbers, texts, arrays"
        ) from error
