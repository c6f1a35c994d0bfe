"""Import own modules from the sources of a version, whatever has become of the files since.

A module keeps the path of its file, so that it finds its data beside it.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

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
        text = self._text if path == self.path else data
        return super().source_to_code(text, path, _optimize=_optimize)

    def path_stats(self, path: str) -> Any:
        raise OSError("not to be compared with bytecode")


class _SnapshotFinder:
    """Finds the modules of a version before anything else does."""

    def __init__(self) -> None:
        self.by_name: dict[str, Source] = {}
        self.by_path: dict[str, Source] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self.by_name.get(fullname)
        return None if source is None else spec_of(fullname, source)


_finder = _SnapshotFinder()


def import_from(sources: Iterable[Source]) -> None:
    """From now on, import these modules, and no others, from sources as they are given here."""
    _finder.by_path.clear()
    _finder.by_name.clear()
    for source in sources:
        if source.text and source.path.endswith(".py"):
            _finder.by_path[source.path] = source
            if source.module:
                _finder.by_name[source.module] = source
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


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
