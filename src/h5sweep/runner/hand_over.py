"""The user's function on its way to the workers: packed by the coordinator, unpacked by each.

What workers import they import from the sources that were read when the run began, so that they
all run the same code, also those that are started hours later.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from ..base.units import command_text, near_path
from ..code.payload import read_payload, write_payload
from ..code.snapshot_import import import_from
from ..code.version import CodeVersion, Source
from ..errors import StudyError, SweepError
from ..state.study import Declaration, Function, StudyReference, load_function, user_traceback


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
        "search_path": sys.path,
        "sources": [source.as_json() for source in version.sources],
    }
    if reference is None:
        from ..code.by_value import dump_function

        sent = declaration.callee(), declaration.function
        content = dump_function(*sent, version, declaration.name, buffers.append)
    else:
        content = _dump_constants(declaration.constants, buffers)
    descriptor = write_payload(description, content, buffers)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def left_out_text(declaration: Declaration, version: CodeVersion) -> str:
    """That a script sets something in packages, which its workers do not; empty if it does not."""
    if declaration.is_imported or not version.settings or declaration.path is None:
        return ""
    calls = ", ".join(f"{call}(...)" for call in dict.fromkeys(version.settings))
    command = command_text("run", near_path(declaration.path))
    return (
        f"{declaration.path.name} calls {calls} when it starts, and its workers do not. If results "
        f"depend on that, call it in {declaration.name}, or let workers import the file: {command}"
    )


def receive_function(descriptor: int) -> tuple[Function, str]:
    """The function in a worker, with its constants, and the id of its code."""
    description, content, buffers = read_payload(descriptor)
    return _function_of(description, content, buffers), description["code"]


def _function_of(description: dict[str, Any], content: bytes, buffers: list[Any]) -> Function:
    sys.path[:] = [p for p in description["search_path"] if p not in sys.path] + sys.path
    import_from(Source(**source) for source in description["sources"])
    if description["reference"] is not None:
        function = load_function(StudyReference(**description["reference"]))
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
