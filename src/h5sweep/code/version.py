"""One version of the code: all that decides what a task computes besides its key.

Sources of the user's own modules, the values that the function can reach, constants, checksums of
input files, packages and Python, variables of the environment that the sources read, units and
axes as declared, which parameters are given as objects. Two runs have the same version if all of
that is equal; sources may differ in comments and layout.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import os
import platform
import re
import sys
import textwrap
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from ..base.relabels import MARK
from ..base.study_function import Callee, code_of, file_of
from ..errors import UsageError, naming
from .arithmetic import arithmetic_now, is_arithmetic
from .describe_value import describe_constant, describe_value
from .loaded_code import code_digest, is_as_loaded, loaded_digest
from .own_modules import OwnModule, find_own_modules, loaded_own_modules, own_path_of
from .reachable import code_names, imported_names, own_functions, own_values, put_values
from .source_facts import SourceFacts, digest_of, is_secret, read_settings, read_source

FORMAT = "h5sweep.code/1"
_EMPTY = read_source("").digest
_SET_BY_SCRIPTS = {"locale", "random"}  # modules of Python's own
_NOT_IN_WORKERS = "not in workers"
_INHERITED = {"os", "sys", "logging", "warnings", "h5sweep"}  # or nothing that results depend on


@dataclass(frozen=True)
class Source:
    """A file, or a function that is in none, as it was."""

    name: str  # its path from the study's folder, or that of the function
    module: str  # to import it by; empty for the study itself
    path: str
    text: str
    digest: str

    @property
    def is_file(self) -> bool:
        return self.path.endswith(".py") or bool(self.module)

    @property
    def is_known(self) -> bool:
        """Whether its text was kept; a compiled module has none, and a file may be empty."""
        return bool(self.text) or self.digest == _EMPTY

    def as_json(self) -> dict[str, str]:
        return dict(vars(self))


@dataclass(frozen=True)
class CodeVersion:
    """What the tasks of a run are computed by; `facts` are what tells it from other versions."""

    sources: tuple[Source, ...]
    facts: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)  # who, when, where: not compared
    edited: tuple[str, ...] = ()  # files that are not what was loaded from them, and is run

    @property
    def digest(self) -> str:
        """Of all sources, without comments and layout."""
        named = sorted(f"{source.name} {source.digest}" for source in self.sources)
        return digest_of("\n".join(named).encode())

    @property
    def not_in_workers(self) -> list[str]:
        """What the script does to packages, and its workers do not."""
        settings: Mapping[str, Any] = self.facts["settings"]
        return [name for name, value in settings.items() if value == _NOT_IN_WORKERS]

    @property
    def id(self) -> str:
        """The same for versions that are the same, in any folder: record files name it.

        Rows of before and after a relabel are told apart: the same code was given other keys, or
        its results were called otherwise.
        """
        known = [self.digest, self.facts, *filter(None, [self.about.get(MARK)])]
        return digest_of(json.dumps(known, sort_keys=True).encode())

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
        facts = {n: dict(value.get(n, {}) if n in _LATER else value[n]) for n in FACTS}
        rest = value.keys() - {*FACTS, "format", "id", "digest", "sources", "diff"}
        sources = tuple(Source(**source) for source in value["sources"])
        return cls(sources, facts, {name: value[name] for name in value if name in rest})


FACTS = (
    "packages",
    "environment",
    "globals",
    "constants",
    "inputs",
    "units",
    "dims",
    "coords",
    "forms",
    "settings",  # how it calculates; what a script does to packages, and its workers do not
)
_LATER = ("coords", "forms", "settings")  # which are noted since later


def read_version(
    function: Callee,
    *,
    path: Path | None,
    name: str = "",
    known: Iterable[OwnModule] = (),
    constants: Mapping[str, object],
    inputs: Mapping[str, Path],
    units: Mapping[str, str],
    dims: Mapping[str, list[str]],
    coords: Mapping[str, Any] | None = None,
    forms: Mapping[str, str] | None = None,
    dealt: Iterable[str] = (),
) -> CodeVersion:
    """The version of the code that begins in the file `path`, if it is in one.

    `name` is what that is imported by. `known` are modules that were read before, from which the
    study was imported.
    """
    modules = _own_modules(function, path, name, known)
    sources = _sources(function, path, modules)
    said = [m.facts for m in modules] + [read_source(s.text) for s in sources if not s.is_file]
    own_prefix = own_prefix_of(function)
    facts = {
        "packages": find_packages(said, _used_packages(function)),
        "environment": find_environment(said, dealt),
        "globals": describe_globals(function, constants.values()),
        "constants": {n: describe_constant(value, own_prefix) for n, value in constants.items()},
        "inputs": {name: input_checksum(path) for name, path in inputs.items()},
        "units": dict(units),
        "dims": dict(dims),
        "coords": dict(coords or {}),
        "forms": dict(forms or {}),
        "settings": dict.fromkeys(_settings(function, modules), _NOT_IN_WORKERS) | arithmetic_now(),
    }
    edited = () if known else tuple(m.path for m in modules if not is_as_loaded(m))
    sources = [_as_loaded(s, modules) if s.path in edited else s for s in sources]
    return CodeVersion(tuple(sources), facts, edited=edited)


def describe_globals(
    function: Callee, constants: Iterable[object] = (), only: Container[str] | None = None
) -> dict[str, Any]:
    """The values that the function can reach, those of its own module by their bare names."""
    own_prefix = own_prefix_of(function)
    found = own_values(function, constants).items()
    values = {label.removeprefix(own_prefix): value for label, value in found}
    return {
        label: describe_value(value, own_prefix)
        for label, value in values.items()
        if only is None or label in only
    }


def own_prefix_of(function: Callee) -> str:
    """What names begin with in the function's module, which is called as the study is started."""
    return f"{_module_name(function)}."


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
    """Files as sources, named as they are imported, or from the study's folder."""
    return [Source(_name(m, folder), m.name, m.path, m.text, m.facts.digest) for m in modules]


def module_of(source: Source) -> OwnModule:
    """The file that a source was, as it was."""
    return OwnModule(source.module, source.path, b"", source.text)


def _own_modules(
    function: Callee, path: Path | None, name: str, known: Iterable[OwnModule]
) -> list[OwnModule]:
    """The study's file and what it imports; for a cell, what the names in it lead to."""
    if path is not None:
        imported = find_own_modules(path, name, known)
        return [*imported, *_loaded_elsewise(function, imported, is_study=bool(known))]
    found: dict[str, OwnModule] = {}
    values = list(getattr(code_of(function), "__globals__", {}).values())
    names = {_home_of(value) for value in values}
    names |= {n for one in own_functions(function) for n in imported_names(one.__code__)}
    for module_name in sorted(names - {"", "__main__"}):
        start = own_path_of(module_name)
        if start is not None:
            others = find_own_modules(start, module_name, found.values())
            found |= {one.path: one for one in others}
    return list(found.values())


def _home_of(value: object) -> str:
    """The module that a value is, or that it or its class is defined in."""
    if inspect.ismodule(value):
        return value.__name__
    home = getattr(value, "__module__", None) or type(value).__module__
    return home if isinstance(home, str) else ""


def _sources(function: Callee, path: Path | None, modules: list[OwnModule]) -> list[Source]:
    folder = path.parent if path is not None else Path.cwd()
    found = sources_of(modules, folder)
    return found if path is not None else [*found, *_cell_sources(function)]


def _cell_sources(function: Callee) -> list[Source]:
    """The source of a function that is in no file, and of those beside it that it can reach."""
    found: list[Source] = []
    for one in own_functions(function):
        if file_of(one) is None and not _is_generated(one):
            text, name = "", one.__qualname__
            with suppress(OSError, TypeError):
                text = textwrap.dedent(inspect.getsource(one))
            digest = read_source(text).digest if text else code_digest(one.__code__)
            name += "'" * sum(source.name.rstrip("'") == name for source in found)
            found.append(Source(name, "", one.__code__.co_filename, text, digest))
    return found


def _is_generated(function: FunctionType) -> bool:
    """Whether it is a method that a dataclass makes, which no cell has; its class is compared."""
    return function.__code__.co_filename == "<string>" and function.__name__.startswith("__")


def _loaded_elsewise(
    function: Callee, imported: list[OwnModule], *, is_study: bool
) -> list[OwnModule]:
    """Own modules that no import statement names, such as those of importlib.

    All of a process that was started for the study, else those with functions that are reached.
    """
    paths = {module.path for module in imported}
    reached = {one.__code__.co_filename for one in own_functions(function)}
    found: dict[str, OwnModule] = {}
    for name, module in loaded_own_modules().items():
        if module.__file__ not in paths and (is_study or module.__file__ in reached):
            known = [*imported, *found.values()]
            others = find_own_modules(Path(str(module.__file__)), name, known)
            found |= {one.path: one for one in others if one.path not in paths}
    return list(found.values())


def _name(module: OwnModule, folder: Path) -> str:
    """Its path from the study's folder, or else from where packages are looked for."""
    path = Path(module.path)
    if path.is_relative_to(folder) or not module.name:
        return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    return module.name.replace(".", "/") + ("/__init__.py" if module.is_package else path.suffix)


def _module_name(function: Callee) -> str:
    return str(getattr(code_of(function), "__module__", ""))


def _as_loaded(source: Source, modules: list[OwnModule]) -> Source:
    """A source whose text is not known any more: what was loaded was another one."""
    module = next(module for module in modules if module.path == source.path)
    return replace(source, text="", digest=loaded_digest(module))


def _settings(function: Callee, modules: list[OwnModule]) -> tuple[str, ...]:
    """What the script with the function calls of installed packages when it starts."""
    if _module_name(function) != "__main__" or file_of(function) is None:
        return ()
    sent = {name for values in put_values(function).values() for name in values}
    return tuple(
        what
        for name, what in read_settings(modules[0].text)
        if _stays_here(name.partition(".")[0], what, sent) and not _is_own(name)
    )


def _stays_here(package: str, what: str, sent: Container[str]) -> bool:
    """Whether workers have nothing of what a script calls in a package, or assigns to it."""
    if is_arithmetic(package, what):
        return False
    if package == "warnings":  # those that are shown change no result
        return "filter" in what and any(one[0] == "error" for one in warnings.filters)
    target = what.removesuffix(" = ...")
    if target != what or what.startswith("del "):
        return package not in _INHERITED and target.rpartition(".")[2] not in sent
    return package not in sys.stdlib_module_names - _SET_BY_SCRIPTS | {"h5sweep"}


def _is_own(name: str) -> bool:
    """Whether a name is of a module of the user's; its package may be a folder without a file."""
    words = name.split(".")
    return any(own_path_of(".".join(words[: n + 1])) for n in range(len(words)))


def _used_packages(function: Callee) -> set[str]:
    """Where the globals are from that functions of a cell, or of a prompt, name."""
    found = set()
    for one in own_functions(function) if file_of(function) is None else ():
        values = [one.__globals__.get(name) for name in code_names(one.__code__)]
        names = [
            v.__name__ if inspect.ismodule(v) else getattr(v, "__module__", "") for v in values
        ]
        found |= {str(name).partition(".")[0] for name in names if name}
    return found - {"__main__", "builtins"}


def find_packages(said: Iterable[SourceFacts], used: Iterable[str] = ()) -> dict[str, str]:
    """The versions of Python and of installed packages that sources import, or use."""
    imported = {one.base.partition(".")[0] for facts in said for one in facts.imports} | {*used}
    found = {"python": platform.python_version()}
    for name in sorted(imported - sys.stdlib_module_names - {"h5sweep"}):
        module = sys.modules.get(name)
        if not name or own_path_of(name) is not None:
            continue
        # Not by asking the module: what it makes on demand may come with a warning.
        known = vars(module).get("__version__") if module else None
        if version := known or _distribution_version(name):
            found[name] = str(version)
    return found


def _distribution_version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def find_environment(said: Sequence[SourceFacts], dealt: Iterable[str] = ()) -> dict[str, str]:
    """The variables that sources read, as they are; of what looks secret a checksum.

    If some are read by a name that is put together or passed, all that a text anywhere names.
    Not those that say where a task runs, which differ between the parts of one sweep, nor what is
    dealt round its workers.
    """
    read = set().union(*(facts.variables for facts in said))
    if any(facts.asks_for_any for facts in said):
        read = read.union(*(facts.texts for facts in said))
    read -= set(dealt)
    names = sorted(name for name in read if not _OF_A_PLACE.fullmatch(name))
    found = {name: os.environ[name] for name in names if name in os.environ}
    return {
        name: f"sha256 {digest_of(value.encode())}" if is_secret(name) else value
        for name, value in found.items()
    }


_OF_A_PLACE = re.compile(
    r"(SLURM|SLURMD|PBS|LSB|SGE|FLUX|OMPI|PMI|PMIX|PALS|MPI)_\w+"
    r"|H5SWEEP_WORKER|(CUDA|ROCR|HIP)_VISIBLE_DEVICES|TMPDIR|HOSTNAME"
)


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
