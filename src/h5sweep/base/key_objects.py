"""Keys that are objects: dates, paths, members of enums, tuples.

Each has one text, which is all that plans, records and outputs hold. The form of a parameter, such
as `date`, says how the object that the function is given is made again of that text. Forms go from
a run to its workers. One that is read from a file never has code loaded (`maker_here`), so that no
file can name code; only a replay reads them with the code that it runs.
"""

from __future__ import annotations

import datetime
import importlib
import json
import operator
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, EnumType
from pathlib import Path
from types import ModuleType
from typing import Any

_ENUM = "enum "  # followed by module:class
_NUMPY_FORM = re.compile(r"datetime64\[[0-9a-zA-Z]+\]")


def form_of(value: object) -> str | None:
    """How the object is made again of its text; None of a plain value, or what no key can hold."""
    kind = type(value)
    if isinstance(value, Enum):
        is_plain = isinstance(value, int | float | str)
        return None if is_plain else f"{_ENUM}{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, datetime.datetime):
        return "timestamp" if hasattr(value, "to_datetime64") else "datetime"
    if isinstance(value, datetime.date):
        return "date"
    if isinstance(value, Path):
        return "path"
    if kind is tuple:
        return "tuple"
    if kind.__module__ == "numpy" and kind.__name__ == "datetime64":
        return str(value.dtype.name)  # type: ignore[attr-defined]  # NumPy is not imported here
    return None


def object_text(value: Any) -> str:
    """The one text of an object that has a form; ValueError if it has none, saying why."""
    if isinstance(value, datetime.datetime) and value.tzinfo not in (None, datetime.UTC):
        raise ValueError("it is in a time zone: give it in UTC, value.astimezone(datetime.UTC)")
    if isinstance(value, Enum):
        text = str(value.name)
    elif isinstance(value, Path):
        text = value.as_posix()
    elif isinstance(value, tuple):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    _check_comes_back(value, text)
    return text


def _check_comes_back(value: object, text: str) -> None:
    """Raise ValueError unless the function would be given an equal object of the same class."""
    try:
        again = maker(str(form_of(value)))(text)
    except (AttributeError, ImportError, KeyError, ValueError):
        again = None
    if type(again) is type(value) and again == value:
        return
    if isinstance(value, Enum):
        raise ValueError(
            f"workers find it neither as {type(value).__qualname__} in the module "
            f"{type(value).__module__} nor by a name: define the class at the top of a file, and "
            "give single members"
        )
    raise ValueError("it cannot be made again of its text: give a text or a number for it")


def maker(form: str, study: ModuleType | None = None) -> Callable[[str], object]:
    """What makes objects of their texts. A form without a module means a class of the study."""
    if form.startswith(_ENUM):
        module, _, name = form.removeprefix(_ENUM).partition(":")
        kind = operator.attrgetter(name)(importlib.import_module(module) if module else study)
        return lambda text: kind[text]
    if form.startswith("datetime64"):
        import numpy as np

        return lambda text: np.array(text, form)[()]
    if form == "timestamp":
        pandas: Any = importlib.import_module("pandas")
        return lambda text: pandas.Timestamp(text)
    return _MAKERS[form]


def form_in_study(form: str, module: str) -> str:
    """The form as workers know it, for whom the study's module may have another name."""
    return form.replace(f"{_ENUM}{module}:", f"{_ENUM}:")


def form_here(form: str, module: str) -> str:
    """The form again, where the study is that module."""
    return form.replace(f"{_ENUM}:", f"{_ENUM}{module}:")


def form_text(form: str | None) -> str:
    """What the function is given, for people."""
    return "text" if form is None else form.removeprefix(_ENUM).strip(":").replace(":", ".")


def maker_here(form: str) -> Callable[[str], object] | None:
    """What makes objects for a form out of a file, which can name no code: the class of an enum
    must be loaded already. None if there is no such class, or no such form.
    """
    if form.startswith(_ENUM):
        module, _, name = form.removeprefix(_ENUM).partition(":")
        kind: Any = sys.modules.get(module)
        for part in name.split("."):
            kind = getattr(kind, part, None)
        return kind.__getitem__ if isinstance(kind, EnumType) else None
    if form in _MAKERS or form == "timestamp" or _NUMPY_FORM.fullmatch(form):
        with suppress(ImportError):
            return maker(form)
    return None


_MAKERS: dict[str, Callable[[str], object]] = {
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "path": Path,
    "tuple": lambda text: tuple(json.loads(text)),
}
