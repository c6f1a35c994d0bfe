"""One version of the code: all that decides what a task computes besides its key.

Sources of the user's own modules, the values that the function can reach, constants, checksums of
input files, packages and Python, variables of the environment that the sources read, units and
axes as declared. Two runs have the same version if all of that is equal; sources may differ in
comments and layout.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.study_function import Callee, code_of, file_of
from ..errors import UsageError, naming
from .describe_value import describe_value
from .own_modules import OwnModule, find_own_modules, own_path_of
from .reachable import own_functions, own_values
from .source_facts import SourceFacts, digest_of, is_secret, read_source

FORMAT = "h5sweep.code/1"


@dataclass(frozen=True)
class Source:
    """A file, or a function that is in none, as it was."""

    name: str  # its path from the study's folder, or that of the function
    module: str  # to import it by; empty for the study itself
    path: str
    text: str
    digest: str

    def as_json(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class CodeVersion:
    """What the tasks of a run are computed by; `facts` are what tells it from other versions."""

    sources: tuple[Source, ...]
    facts: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)  # who, when, where: not compared
    settings: tuple[str, ...] = ()  # calls of packages in a script, which workers do not run

    @property
    def digest(self) -> str:
        """Of all sources, without comments and layout."""
        named = sorted(f"{source.name} {source.digest}" for source in self.sources)
        return digest_of("\n".join(named).encode())

    @property
    def id(self) -> str:
        """The same for versions that are the same, in any folder: record files name it."""
        return digest_of(json.dumps([self.digest, self.facts], sort_keys=True).encode())

    def as_json(self, before: CodeVersion | None = None) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "id": self.id,
            **self.about,
            "digest": self.digest,
            **self.facts,
            "sources": [source.as_json() for source in self.sources],
            "diff": "" if before is None else diff_text(before, self),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CodeVersion:
        """KeyError, TypeError or ValueError if it is none."""
        if value["format"] != FORMAT:
            raise ValueError(f"it is not a {FORMAT}")
        facts = {name: dict(value[name]) for name in FACTS}
        rest = value.keys() - {*FACTS, "format", "id", "digest", "sources", "diff"}
        sources = tuple(Source(**source) for source in value["sources"])
        return cls(sources, facts, {name: value[name] for name in value if name in rest})


FACTS = ("packages", "environment", "globals", "constants", "inputs", "units", "dims")


def read_version(
    function: Callee,
    *,
    name: str = "",
    known: Iterable[OwnModule] = (),
    constants: Mapping[str, object],
    inputs: Mapping[str, Path],
    units: Mapping[str, str],
    dims: Mapping[str, list[str]],
) -> CodeVersion:
    """The version of the code; `name` is what the function's module is imported by.

    `known` are modules that were read before, from which the study was imported.
    """
    modules = _own_modules(function, name, known)
    sources = _sources(function, modules)
    said = [module.facts for module in modules]
    facts = {
        "packages": find_packages(said),
        "environment": find_environment(said),
        "globals": describe_globals(function),
        "constants": {name: describe_value(value) for name, value in constants.items()},
        "inputs": {name: input_checksum(path) for name, path in inputs.items()},
        "units": dict(units),
        "dims": dict(dims),
    }
    return CodeVersion(tuple(sources), facts, settings=_settings(function, modules))


def describe_globals(function: Callee) -> dict[str, Any]:
    """The values that the function can reach, those of its own module by their bare names."""
    own_prefix = f"{_module_name(function)}."  # which depends on how the study is started
    return {
        label.removeprefix(own_prefix): _without(own_prefix, describe_value(value))
        for label, value in own_values(function).items()
    }


def diff_text(before: CodeVersion, now: CodeVersion) -> str:
    """What has changed in the sources, as `diff -u` shows it."""
    old = {source.name: source.text for source in before.sources}
    new = {source.name: source.text for source in now.sources}
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        texts = (old.get(name, "").splitlines(), new.get(name, "").splitlines())
        lines += difflib.unified_diff(*texts, f"before/{name}", f"now/{name}", lineterm="")
    return "\n".join(lines)


def sources_of(modules: Iterable[OwnModule], folder: Path) -> list[Source]:
    """Files as sources, named from the study's folder."""
    return [Source(_name(m.path, folder), m.name, m.path, m.text, m.facts.digest) for m in modules]


def _own_modules(function: Callee, name: str, known: Iterable[OwnModule]) -> list[OwnModule]:
    """The file of the function and what it imports; for a cell, what the names in it lead to."""
    path = file_of(function)
    if path is not None:
        return find_own_modules(path, name, known)
    found: dict[str, OwnModule] = {}
    for module in list(getattr(code_of(function), "__globals__", {}).values()):
        module_name = getattr(module, "__name__", "") if inspect.ismodule(module) else ""
        start = own_path_of(module_name) if module_name else None
        if start is not None:
            found |= {one.path: one for one in find_own_modules(start, module_name)}
    return list(found.values())


def _sources(function: Callee, modules: list[OwnModule]) -> list[Source]:
    path = file_of(function)
    folder = path.parent if path is not None else Path.cwd()
    found = sources_of(modules, folder)
    return found if path is not None else [*found, *_cell_sources(function)]


def _cell_sources(function: Callee) -> list[Source]:
    """The source of a function that is in no file, and of those beside it that it can reach."""
    found = []
    for one in own_functions(function):
        if file_of(one) is None:
            text = ""
            with suppress(OSError, TypeError):
                text = inspect.getsource(one)
            digest = read_source(inspect.cleandoc(text)).digest if text else _code_digest(one)
            found.append(Source(one.__qualname__, "", one.__code__.co_filename, text, digest))
    return found


def _code_digest(function: Any) -> str:
    """Of a function without a source: what Python runs, and with which constants."""
    code = function.__code__
    parts = [code.co_code, repr((code.co_names, code.co_varnames)).encode()]
    for constant in code.co_consts:
        is_code = inspect.iscode(constant)
        parts.append(constant.co_code if is_code else repr(constant).encode())
    return digest_of(b"\n".join(parts))


def _name(path: str, folder: Path) -> str:
    return str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path


def _module_name(function: Callee) -> str:
    return str(getattr(code_of(function), "__module__", ""))


def _without(prefix: str, described: Any) -> Any:
    """The same, with functions and types of the own module by their bare names."""
    if isinstance(described, list):
        return [_without(prefix, item) for item in described]
    if not isinstance(described, dict):
        return described
    found = {name: _without(prefix, value) for name, value in described.items()}
    named = "value" if found.get("type") == "function" else "type"
    if isinstance(found.get(named), str):
        found[named] = found[named].removeprefix(prefix)
    return found


def _settings(function: Callee, modules: list[OwnModule]) -> tuple[str, ...]:
    """What the script with the function calls of installed packages when it starts."""
    if _module_name(function) != "__main__" or file_of(function) is None:
        return ()
    called = modules[0].facts.settings
    inside = sys.stdlib_module_names | {"h5sweep"}
    return tuple(call for name, call in called if name not in inside and not own_path_of(name))


def find_packages(said: Iterable[SourceFacts]) -> dict[str, str]:
    """The versions of Python and of installed packages that sources import."""
    imported = {one.base.partition(".")[0] for facts in said for one in facts.imports}
    found = {"python": platform.python_version()}
    for name in sorted(imported - sys.stdlib_module_names - {"h5sweep"}):
        module = sys.modules.get(name)
        if module is None or own_path_of(name) is not None:
            continue
        if version := getattr(module, "__version__", None) or _distribution_version(name):
            found[name] = str(version)
    return found


def _distribution_version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def find_environment(said: Iterable[SourceFacts]) -> dict[str, str]:
    """The variables that sources read, as they are; of what looks secret a checksum."""
    names = sorted(set().union(*(facts.variables for facts in said)))
    found = {name: os.environ[name] for name in names if name in os.environ}
    return {
        name: f"sha256 {digest_of(value.encode())}" if is_secret(name) else value
        for name, value in found.items()
    }


def input_checksum(path: Path) -> str:
    """The checksum of an input file; UsageError if it cannot be read."""
    try:
        with naming(path), path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(
            f"inputs: cannot read {path} ({error.strerror}): correct the path, which is taken "
            "from the study's folder"
        ) from error
