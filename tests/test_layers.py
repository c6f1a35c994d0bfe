"""What may know what: imports point one way, and each kind of effect has its modules."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import pytest

import h5sweep

PACKAGE = Path(h5sweep.__file__).parent


class Trees(Mapping[str, ast.Module]):
    """The modules of the package, parsed when a test looks at them, not when tests are listed."""

    def __init__(self) -> None:
        self._paths = {
            ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
            for path in sorted(PACKAGE.rglob("*.py"))
        }
        self._parsed: dict[str, ast.Module] = {}

    def __getitem__(self, name: str) -> ast.Module:
        if name not in self._parsed:
            self._parsed[name] = ast.parse(self._paths[name].read_text())
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


TREES = Trees()
# A room imports from those below it, and beside it only as SIDEWAYS says.
LEVELS = (
    ("base",),
    ("disk", "hdf5"),
    ("runfolder", "worker_files", "output"),
    ("code", "batch"),
    ("state", "library"),
    ("check", "salvage", "merge", "runner", "clean"),
    ("report",),
    ("api", "cli"),
)
SIDEWAYS = {
    ("output", "runfolder"),  # rows come from records
    ("library", "state"),  # a child compares an output with its run folder
    ("merge", "salvage"),  # --on-damaged salvage
    ("runner", "merge"),  # a run ends with a merge
    ("clean", "merge"),  # what is safe to remove is proven as a merge proves its output
    ("clean", "check"),
    ("cli", "api"),
}
SUB_ROOMS = {"merge.by_key", "merge.from_records", "merge.groups", "merge.tables"}
WITHOUT_ROOM = {"__init__", "__main__", "api", "errors"}  # what people may rely on
KNOWS_HDF5 = {"disk.h5py_loader", "library.inspect_child", "library.read_datasets", "output.reader"}
KNOWS_HDF5 |= {"output.writer", "output.cf_attributes", "merge.tables.create"}
KNOWS_HDF5 |= {"merge.tables.pieces", "merge.tables.prove_rows"}
KNOWS_HDF5 |= {"merge.tables.rows", "merge.tables.types", "merge.groups.copy_child"}
KNOWS_HDF5 |= {"salvage.library_child", "merge.merged_mark", "library.child_program"}
PRINTS = {"cli.terminal"}
TAKES_ARGUMENTS = {name for name in TREES if name.startswith("cli.")}
MOST_MODULE_LINES = 500
MOST_CLASS_LINES = 200
SYNCS_AND_RENAMES = {"disk.durable", "disk.move_files"}


def own_imports(name: str, *, at_start_only: bool = False) -> set[str]:
    """The modules of h5sweep that a module imports, at its top or anywhere."""
    tree = TREES[name]
    found: set[str] = set()
    nodes = tree.body if at_start_only else list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.level or _is_ours(node.module)):
            folder = name.split(".")[: -node.level] if node.level else []
            stem = (node.module or "").removeprefix("h5sweep").strip(".")
            base = ".".join([*folder, *filter(None, [stem])])
            found |= {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {a.name.partition(".")[2] for a in node.names if _is_ours(a.name)}
    return {f for f in found if f in TREES and f != name}


def _is_ours(module: str | None) -> bool:
    return (module or "").split(".")[0] == "h5sweep"


def foreign_imports(name: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


def calls(name: str) -> set[str]:
    """Every function that a module calls, as it is written: `os.fsync`, `print`, `.replace`."""
    found = {ast.unparse(n.func) for n in ast.walk(TREES[name]) if isinstance(n, ast.Call)}
    return {call.split("\n")[0] for call in found}


def room_of(name: str) -> str:
    """The room of a module; errors are words that every room uses, as those of `base`."""
    return "base" if name == "errors" else name.split(".")[0]


def test_rooms_import_from_rooms_below() -> None:
    """No import goes up, and none goes sideways that is not declared, even within a function."""
    level = {room: number for number, rooms in enumerate(LEVELS) for room in rooms}
    for name in TREES.keys() - {"__init__", "__main__"}:
        for other in own_imports(name) - {"__init__"}:
            pair = room_of(name), room_of(other)
            is_down = level[pair[1]] < level[pair[0]] or pair[0] == pair[1]
            assert is_down or pair in SIDEWAYS, f"{name} imports {other}"


def test_declared_directions_are_taken() -> None:
    """A declared way that no import takes is taken off the list."""
    taken = {(room_of(n), room_of(o)) for n in TREES.keys() - {"__init__"} for o in own_imports(n)}
    assert taken >= SIDEWAYS


def test_no_module_stands_outside_the_rooms() -> None:
    assert {name for name in TREES if "." not in name} == WITHOUT_ROOM


def test_each_room_says_what_it_is() -> None:
    for name, tree in TREES.items():
        if name.endswith("__init__"):
            assert ast.get_docstring(tree), name


def test_imports_point_one_way() -> None:
    """Within rooms too, no module imports from one that needs it, even lazily."""
    left = {n: own_imports(n) for n in TREES if not n.endswith(("__init__", "__main__"))}
    while left:
        ready = [name for name, needs in left.items() if not needs & left.keys()]
        assert ready, f"these import each other in a circle: {sorted(left)}"
        for name in ready:
            del left[name]


def test_only_modules_about_hdf5_import_h5py() -> None:
    """One module imports h5py, without plug-ins; those about outputs have it from there."""
    assert {name for name in TREES if "h5py" in foreign_imports(name)} == {"disk.h5py_loader"}
    # api has it loaded without plug-ins before xarray loads it.
    assert {name for name in TREES if "disk.h5py_loader" in own_imports(name)} <= KNOWS_HDF5 | {
        "api"
    }


def test_workers_know_no_hdf5() -> None:
    """What a worker process imports never reaches h5py: it holds no HDF5 file open."""
    reached: set[str] = set()
    left = {"runner.worker"}
    while left:
        name = left.pop()
        reached.add(name)
        left |= own_imports(name) - reached
    assert not reached & KNOWS_HDF5


def test_check_can_neither_write_nor_load_hdf5() -> None:
    """What a check imports reaches no module that syncs and no h5py: only its children have it."""
    reached: set[str] = set()
    left = {"check.check"}
    while left:
        name = left.pop()
        reached.add(name)
        left |= own_imports(name) - reached
    assert not reached & (SYNCS_AND_RENAMES | KNOWS_HDF5)
    writes = {"os.write", "os.pwrite", "os.ftruncate", "os.unlink", "os.remove", "open"}
    for name in reached:
        found = {call for call in calls(name) if call in writes}
        found |= {call for call in calls(name) if call.endswith((".write_text", ".write_bytes"))}
        assert not found, f"{name} calls {sorted(found)}"
        assert "O_WRONLY" not in ast.dump(TREES[name]) and "O_RDWR" not in ast.dump(TREES[name])


def test_only_the_command_line_prints() -> None:
    """print, click.echo and sys.stdout are one module's, click is the command line's alone."""
    for name in TREES.keys() - PRINTS:
        assert not calls(name) & {"print", "click.echo", "click.secho", "sys.stdout.write"}, name
    for name in TREES.keys() - TAKES_ARGUMENTS:
        assert "click" not in foreign_imports(name), name


def test_only_two_modules_sync_and_rename() -> None:
    """fsync, fdatasync, rename and replace of files are called where files are written or moved."""
    assert {name for name in TREES if _syncs_and_renames(name)} == SYNCS_AND_RENAMES


def _syncs_and_renames(name: str) -> list[str]:
    wrong = {"fsync", "fdatasync", "rename", "renames", "link", "syncfs", "sync_file_range"}
    found = {call for call in calls(name) if call.rpartition(".")[2] in wrong}
    found |= calls(name) & {"os.replace", "shutil.move"}
    return [*sorted(found), *_path_replacements(TREES[name])]


def _path_replacements(tree: ast.AST) -> list[str]:
    """Calls of `x.replace(y)` with one argument: only paths have that, strings take two."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "replace"
        and len(node.args) == 1
        and not node.keywords
    ]


def test_reading_a_folder_needs_neither_numpy_nor_h5py() -> None:
    """What `status` and `missing` import stays within the standard library and click."""
    reached: set[str] = set()
    left = {"cli.__init__", "runner.status", "state.state", *TAKES_ARGUMENTS}
    while left:
        name = left.pop()
        reached.add(name)
        left |= own_imports(name, at_start_only=True) - reached
    for name in reached:
        tops = {
            alias.name.split(".")[0]
            for node in TREES[name].body
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert not tops & {"numpy", "h5py", "rich", "xarray"}, name


def test_public_names_are_complete_and_sorted() -> None:
    """Every name in __all__ exists, every public name imported is in it, and it is sorted."""
    assert h5sweep.__all__ == sorted(h5sweep.__all__)
    assert len(set(h5sweep.__all__)) == len(h5sweep.__all__)
    for name in h5sweep.__all__:
        assert getattr(h5sweep, name) is not None
    imported = {
        alias.asname or alias.name
        for node in ast.walk(TREES["__init__"])
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    assert {name for name in imported if not name.startswith("_")} == set(h5sweep.__all__)


def test_no_public_name_is_hidden_by_a_module() -> None:
    """Importing h5sweep.x sets the attribute x: a public function of that name would be lost."""
    assert {name.split(".")[0] for name in TREES} & {*h5sweep.__all__} == {"errors"}


def test_modules_that_list_their_names_list_what_they_have() -> None:
    """Wherever a module has __all__, every name in it is there."""
    for name, tree in TREES.items():
        for node in tree.body:
            is_all = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
            if not is_all or name == "__init__":
                continue
            assert isinstance(node, ast.Assign)
            listed = ast.literal_eval(node.value)
            module = importlib.import_module(f"h5sweep.{name}")
            assert all(hasattr(module, entry) for entry in listed), name


def test_no_module_and_no_class_is_long() -> None:
    """A module has at most 500 lines and a class at most 200: what is longer holds two ideas."""
    for name, tree in TREES.items():
        lines = (PACKAGE / name.replace(".", "/")).with_suffix(".py").read_text().count("\n")
        assert lines <= MOST_MODULE_LINES, f"{name} has {lines} lines"
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                assert lines <= MOST_CLASS_LINES, f"{name}.{node.name} has {lines} lines"


@pytest.mark.parametrize("room", sorted({*chain(*LEVELS)} - {"api", "cli"} | SUB_ROOMS))
def test_a_room_lists_its_modules(room: str) -> None:
    """The first lines of a room name every module in it, and none that is not there."""
    folder = PACKAGE / room.replace(".", "/")
    listed = re.findall(r"^    (\w+) ", (folder / "__init__.py").read_text(), re.MULTILINE)
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    assert sorted(listed) == sorted(there)
