"""Import own modules from the sources of a version, whatever has become of the files since.

A module keeps the path of its file, so that it finds its data beside it. If a file is another one
by then, modules are compiled as copies, which belong to the version: numba and joblib keep results
for the file that a function says it is from, and would give them to the new one.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from .own_modules import OwnModule, loaded_own_modules
from .source_facts import digest_of
from .version import Source


class SnapshotLoader(SourceFileLoader):
    """Loads a module from a text; bytecode that lies beside the file may be of another."""

    def __init__(self, fullname: str, path: str, text: str) -> None:
        super().__init__(fullname, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        return self._text.encode() if path == self.path else super().get_data(path)

    def source_to_code(  # type: ignore[override]  # which is static there
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> Any:
        # A text, because the bytes may say that they are in another encoding.
        is_own = path == self.path
        text, place = (self._text, _finder.place_of(path, self._text)) if is_own else (data, path)
        return super().source_to_code(text, place, _optimize=_optimize)

    def path_stats(self, path: str) -> Any:
        raise OSError("not to be compared with bytecode")


class _SnapshotFinder:
    """Finds the modules of a version before anything else does."""

    def __init__(self) -> None:
        self.by_name: dict[str, Source] = {}
        self.by_path: dict[str, Source] = {}
        self.paths: set[str] = set()  # also of what has no text, such as a compiled module
        self.shown: dict[str, str] = {}  # the files that copies are of
        self._copies: Path | None = None
        self._temporary: TemporaryDirectory[str] | None = None
        self._is_on_disk = True

    def begin(self, sources: Iterable[Source], copies: Path | None) -> None:
        for known in (self.by_name, self.by_path, self.paths, self.shown):
            known.clear()
        for source in sources:
            self.paths.add(source.path)
            if source.is_known and source.path.endswith(".py"):
                self.by_path[source.path] = source
                if source.module:
                    self.by_name[source.module] = source
        self._copies = copies
        # One that was edited may have given others what they are compiled with.
        self._is_on_disk = all(_holds(path, one.text) for path, one in self.by_path.items())

    def place_of(self, path: str, text: str) -> str:
        """What a source is compiled as: its file, or a copy if the version is not on the disk."""
        if self._is_on_disk and _holds(path, text):
            return path
        copy = self._folder() / digest_of(path.encode())[:8] / Path(path).name
        # Whole or half, it is of this version alone: what is half is written again.
        if not _holds(str(copy), text):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
        self.shown[str(copy)] = path
        return str(copy)

    def _folder(self) -> Path:
        if self._copies is None:
            self._temporary = TemporaryDirectory(prefix="h5sweep-code-")  # until Python ends
            self._copies = Path(self._temporary.name)
        texts = (f"{path}\n{one.text}" for path, one in sorted(self.by_path.items()))
        return self._copies / digest_of("\n".join(texts).encode())

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self.by_name.get(fullname)
        return None if source is None else spec_of(fullname, source)


_finder = _SnapshotFinder()


def import_from(sources: Iterable[Source], copies: Path | None = None) -> None:
    """From now on, import these modules, and no others, from sources as they are given here.

    Copies of those that the disk has otherwise lie below `copies`, or in a temporary folder.
    """
    _finder.begin(sources, copies)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _holds(path: str, text: str) -> bool:
    """Whether a file says this now."""
    try:
        return OwnModule("", path, Path(path).read_bytes()).text == text
    except OSError:
        return False


def shown_path(path: str) -> str:
    """The file that a function is from, for people, if it was compiled as a copy of that."""
    return _finder.shown.get(path, path)


def modules_beyond() -> set[str]:
    """Own modules that were imported here and are not among the sources."""
    loaded = loaded_own_modules().items()
    return {name for name, module in loaded if module.__file__ not in _finder.paths}


def source_at(path: Path) -> Source | None:
    """The source that stands for the file at `path`."""
    return _finder.by_path.get(str(path))


def spec_of(name: str, source: Source) -> ModuleSpec | None:
    is_package = Path(source.path).name == "__init__.py"
    return spec_from_file_location(
        name,
        source.path,
        loader=SnapshotLoader(name, source.path, source.text),
        submodule_search_locations=[str(Path(source.path).parent)] if is_package else None,
    )


def show_lines_in_tracebacks() -> None:
    """Have tracebacks show the lines that were run, also if the files have other ones now."""
    for path, source in _finder.by_path.items():
        lines = source.text.splitlines(keepends=True)
        linecache.cache[path] = (len(source.text), None, lines, path)
