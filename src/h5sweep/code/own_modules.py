"""The modules of a study that are the user's own, found by its import statements.

Own is what is neither Python's, nor installed (an editable install is the user's own), nor ours.
Imports inside functions count too: a worker may meet them hours later.
"""

from __future__ import annotations

import os
import pkgutil
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType

from ..errors import StudyError
from .source_facts import ALL, Import, SourceFacts, digest_of, read_source

_SCRIPTS = ("__main__", "__mp_main__")  # the second is what some packages call the first
_MADE_BY_COMPILED = ("_cython_", "cython_runtime", "swig_runtime_data")
_OWN_PACKAGE = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True)
class OwnModule:
    """One of the user's files."""

    name: str  # to import it by; empty for a study that is imported by its path
    path: str
    content: bytes
    known_text: str | None = None  # its source, where that is all that was kept

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")

    @property
    def text(self) -> str:
        """Its source, whatever its encoding; empty if it is compiled."""
        if self.known_text is not None:
            return self.known_text
        if not self.path.endswith(".py"):
            return ""
        try:
            return decode_source(self.content)
        except (SyntaxError, UnicodeDecodeError):  # Python says so when it is imported
            return self.content.decode("utf-8", "replace")

    @cached_property
    def facts(self) -> SourceFacts:
        if self.path.endswith(".py"):
            return read_source(self.text)
        return SourceFacts(digest=digest_of(self.content))


def find_own_modules(
    start: Path, name: str = "", known: Iterable[OwnModule] = ()
) -> list[OwnModule]:
    """The file `start`, and all own modules that it imports, directly or not.

    Files that are `known` are not read again. StudyError for a module that has no file.
    """
    by_path = {module.path: module for module in known}

    def read(name: str, path: Path) -> OwnModule:
        path = path.absolute()
        if str(path) in by_path:
            return by_path[str(path)]
        try:
            return OwnModule(name, str(path), path.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StudyError(
                f"{name or path.stem} was imported from {path}, which is no file now, so its "
                "source cannot be kept with the results: put it there (out of an archive, or back "
                "if it was moved), and start again"
            ) from error

    found: dict[str, OwnModule] = {}
    left = [read(name, start)]
    while left:
        module = left.pop()
        if module.path in found:
            continue
        found[module.path] = module
        for wanted in _imported_names(module):
            path = own_path_of(wanted)
            if path is not None and str(path) not in found:
                left.append(read(wanted, path))
    return list(found.values())


def loaded_own_modules() -> dict[str, ModuleType]:
    """All own modules of this process that have a file, and a name to import them by."""
    loaded = [pair for pair in list(sys.modules.items()) if isinstance(pair[1], ModuleType)]
    own = {name: m for name, m in loaded if name not in _SCRIPTS and is_own_module(m)}
    # Some packages make modules of which the file is a made-up one.
    return {name: m for name, m in own.items() if Path(str(m.__file__)).is_file()}


def is_own_module(module: ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and is_own_path(path)


def is_made_by_hand(module: ModuleType) -> bool:
    """Whether no import gives it: `types.ModuleType("model")`, or a file that a script has loaded.

    Modules of other classes are proxies of packages; what compiled packages have in common lies in
    modules that these make.
    """
    name, path = str(getattr(module, "__name__", "")), getattr(module, "__file__", None)
    if type(module) is not ModuleType or name in _SCRIPTS:
        return False
    if isinstance(path, str) and not is_own_path(path):
        return False
    is_pythons = name in sys.stdlib_module_names
    if sys.modules.get(name) is not module:  # `_io` says that it is `io`
        return not (is_pythons and any(one is module for one in list(sys.modules.values())))
    if is_pythons or name.startswith(_MADE_BY_COMPILED):
        return False
    root = sys.modules.get(name.partition(".")[0])
    is_found = getattr(root, "__spec__", None) or getattr(root, "__file__", None)
    return type(root) is ModuleType and not is_found


def is_own_path(path: str) -> bool:
    """Whether a file or folder is the user's own."""
    path = os.path.abspath(path) + os.sep  # noqa: PTH100  # asked for every module of a process
    is_installed = any(f"{os.sep}{name}-packages{os.sep}" in path for name in ("site", "dist"))
    return not is_installed and not path.startswith(_installed_folders())


def own_path_of(name: str) -> Path | None:
    """Where the own module of this name lies; None if it is not the user's own, or is not there."""
    module = sys.modules.get(name)
    if module is not None and getattr(module, "__file__", None):
        return Path(str(module.__file__)) if is_own_module(module) else None
    try:
        spec = PathFinder.find_spec(name, _folders_with(name))
    except KeyError:  # a folder without __init__.py, in a package that is not loaded
        return None
    if spec is None and "." not in name:
        spec = _spec_of_installer(name)
    if spec is None or not spec.has_location or not is_own_path(str(spec.origin)):
        return None
    return Path(str(spec.origin))


def _spec_of_installer(name: str) -> ModuleSpec | None:
    """Where a module lies that an editable install finds in a way of its own."""
    for finder in sys.meta_path:
        is_usual = getattr(finder, "__module__", "").startswith(("_frozen_importlib", "h5sweep."))
        if not is_usual and finder is not PathFinder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, None)
            if spec is not None:
                return spec
    return None


def _folders_with(name: str) -> list[str]:
    """Where a module that is not loaded would be looked for, as far as that is the user's own."""
    parent = name.rpartition(".")[0]
    if not parent:
        return [folder for folder in sys.path if is_own_path(folder or os.curdir)]
    loaded = sys.modules.get(parent)
    if loaded is not None:
        return list(getattr(loaded, "__path__", ()))
    path = own_path_of(parent)
    if path is not None:
        return [str(path.parent)] if path.name == "__init__.py" else []
    tail = parent.rpartition(".")[2]  # perhaps a folder without __init__.py
    return [str(Path(folder) / tail) for folder in _folders_with(parent)]


def _imported_names(module: OwnModule) -> Iterator[str]:
    """The full names of all that a module imports; of `from a import b` both a and a.b."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for one in module.facts.imports:
        base = _base_of(one, package)
        words = base.split(".") if base else []
        yield from (".".join(words[: count + 1]) for count in range(len(words)))
        names = _names_in(base) if one.names == (ALL,) else one.names
        yield from (f"{base}.{name}" for name in names if base)


def _names_in(package: str) -> list[str]:
    """What can be imported from a package of the user's own."""
    folders = _folders_with(f"{package}.x") if package else []
    return [module.name for module in pkgutil.iter_modules(folders) if is_own_path(folders[0])]


def _base_of(one: Import, package: str) -> str:
    if not one.level:
        return one.base
    words = package.split(".")
    above = words[: len(words) - one.level + 1]
    return ".".join(filter(None, [*above, one.base]))


@cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages()}
    return (*(folder + os.sep for folder in found), _OWN_PACKAGE)
