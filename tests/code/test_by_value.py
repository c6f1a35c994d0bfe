"""What a direct call would compute is what a task computes, wherever the function is defined."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from terminal import Terminal

Study = Callable[[str], Path]


def python(folder: Path, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def script(folder: Path, text: str, *words: str) -> list[int]:
    """Run a script that sweeps into out.h5; return the column x."""
    path = folder / "script.py"
    path.write_text("import h5sweep\n" + textwrap.dedent(text))
    done = python(folder, "script.py", *words)
    assert done.returncode == 0, done.stderr
    with h5py.File(folder / "out.h5") as file:
        return file["x"][:].tolist()


def test_a_global_set_under_the_main_guard_counts(tmp_path: Path) -> None:
    text = """
        import sys
        SCALE = 1
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed * SCALE}
        if __name__ == "__main__":
            SCALE = int(sys.argv[1])
            f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "7") == [0, 7, 14]


@pytest.mark.parametrize("where", ["top", "function"])
def test_a_changed_global_of_a_module_counts(tmp_path: Path, where: str) -> None:
    """Whether the module is imported above the function or in it, or has the function."""
    (tmp_path / "model.py").write_text("SCALE = 1\nOTHER = object()\n")
    lines = ("import model", "pass") if where == "top" else ("pass", "import model")
    text = f"""
        {lines[0]}
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            {lines[1]}
            return {{"x": seed * model.SCALE}}
        import model as changed
        changed.SCALE = 100
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 100, 200]


def test_a_sweep_of_a_module_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import h5sweep\n"
        "SCALE, CALLS = 1, 0\n"
        "def bump():\n"
        "    global CALLS\n"
        "    CALLS += 1\n"
        "    return CALLS\n"
        "@h5sweep.sweep(seed=range(3))\n"
        "def f(seed):\n"
        "    bump()\n"
        "    return {'x': seed * SCALE, 'calls': CALLS}\n"
    )
    text = 'import model\nmodel.SCALE = 100\nmodel.f.run("out.h5", workers=1)\n'
    assert script(tmp_path, text) == [0, 100, 200]
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["calls"][:].tolist() == [1, 2, 3]  # functions of a module share its globals


def test_a_function_that_was_replaced_in_a_module_counts(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("def g(x):\n    return x\n")
    text = """
        import model
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": model.g(seed)}
        model.g = lambda x: -x
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, -1, -2]


def test_closures_partials_methods_and_classes_are_sent(tmp_path: Path) -> None:
    text = """
        import functools
        class Site:
            loss = 2
            def __init__(self, scale):
                self.scale = scale
            def aep(self, seed):
                return {"x": seed * self.scale - self.loss}
        def main():
            scale = 3
            @h5sweep.sweep(seed=range(2))
            def closure(seed):
                return {"x": seed * scale}
            closure.run("closure.h5", workers=1)
            sweep = h5sweep.sweep(seed=range(2))
            sweep(Site(5).aep).run("method.h5", workers=1)
            h5sweep.sweep(seed=range(2))(lambda seed: {"x": seed + scale}).run("lambda.h5")
            def plain(seed, by):
                return {"x": seed * by}
            sweep(functools.partial(plain, by=9)).run("partial.h5", workers=1)
        main()
        print([h5sweep.open(f"{n}.h5").x.values.tolist() for n in
               ("closure", "method", "lambda", "partial")])
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    done = python(tmp_path, "script.py")
    assert done.stdout == "[[0, 3], [-2, 3], [3, 4], [0, 9]]\n", done.stderr


CELL = textwrap.dedent("""
    import h5sweep
    A = 5
    def helper(seed):
        return seed * A
    @h5sweep.sweep(seed=range(3))
    def f(seed):
        return {"x": helper(seed)}
    A = 6
    print(f.run("out.h5", workers=1).is_complete, h5sweep.open("out.h5").x.values.tolist())
""")


@pytest.mark.parametrize("how", ["-c", "stdin", "-i"])
def test_a_prompt_will_do(tmp_path: Path, how: str) -> None:
    words = {"-c": ("-c", CELL), "stdin": ("-",), "-i": ("-i", "-q")}[how]
    typed = CELL.replace("\n@", "\n\n@").replace("\nA = 6", "\n\nA = 6")  # blank lines end blocks
    done = python(tmp_path, *words, stdin=None if how == "-c" else typed)
    assert "True [0, 6, 12]" in done.stdout, done.stderr


def test_a_notebook_cell_will_do(tmp_path: Path) -> None:
    """In a real kernel: the function, its helper and its global are in three cells."""
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")
    import nbformat

    cells = [
        "import h5sweep\nA = 5",
        "class Farm:\n    def aep(self, seed):\n        return seed * A",
        "@h5sweep.sweep(seed=range(3))\ndef f(seed):\n    return {'x': Farm().aep(seed)}",
        "A = 7",
        "f.run('out.h5', workers=1)\nprint(h5sweep.open('out.h5').x.values.tolist())",
        "@h5sweep.sweep(seed=range(4))\ndef f(seed):\n    return {'x': 2 * Farm().aep(seed)}",
        "f.run('out.h5', workers=1)\nd = h5sweep.open('out.h5')\n"
        "print(d.x.values.tolist(), d.code.values.tolist())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=60, resources=resources).execute()

    def said(number: int) -> str:
        outputs = notebook.cells[number].outputs
        return "".join(o["text"] for o in outputs if o["output_type"] == "stream")

    assert "[0, 7, 14]" in said(4)
    assert "f has changed; 3 results of before are kept" in said(6)
    assert "[0, 7, 14, 42] [1, 1, 1, 2]" in said(6)


def test_what_cannot_be_sent_is_named_at_once(tmp_path: Path) -> None:
    """Nothing is written, and what the message says to do works."""
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import threading, h5sweep
        lock = threading.Lock()
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            with lock:
                return {"x": seed}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
        """)
    )
    done = python(tmp_path, "script.py")
    assert "f uses lock (a lock), which cannot be sent to workers" in done.stderr
    assert "h5sweep run script.py" in done.stderr
    assert not (tmp_path / "out.h5.run").exists()
    Terminal(tmp_path).run("run", "script.py", "-o", "out.h5")


def test_a_lock_that_nobody_uses_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import threading\nlock = threading.Lock()\nK = 2\n")
    text = """
        import model
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed * model.K}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 2, 4]


def test_a_changed_global_is_told_on_resume(tmp_path: Path) -> None:
    text = """
        import sys
        SCALE = int(sys.argv[1])
        @h5sweep.sweep(seed=range(int(sys.argv[2])))
        def f(seed):
            return {"x": seed * SCALE}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "2", "2") == [0, 2]
    done = python(tmp_path, "script.py", "5", "4")
    assert "SCALE was 2 and is 5; 2 results of before are kept" in done.stderr
    assert "f.run('out.h5', changed='redo')" in done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][:].tolist() == [0, 2, 10, 15]
        assert file["code"][:].tolist() == [1, 1, 2, 2]


def test_a_script_and_the_command_are_the_same_code(tmp_path: Path) -> None:
    text = """
        K = 3
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": seed * K}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 3]
    path = tmp_path / "script.py"
    path.write_text(path.read_text().replace("range(2)", "range(4)"))
    said = Terminal(tmp_path).run("run", "script.py", "-o", "out.h5").stderr
    assert "changed" not in said
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["code"][:].tolist() == [1, 1, 1, 1]


def test_a_large_constant_is_in_memory_once(tmp_path: Path) -> None:
    """Each worker maps it; what it has for itself stays far below its size."""
    text = """
        import numpy as np
        def copied_bytes():
            with open("/proc/self/smaps_rollup") as file:
                lines = dict(line.split(":") for line in file.read().splitlines()[1:])
            return int(lines["Anonymous"].split()[0]) << 10
        @h5sweep.sweep(seed=range(8), constants={"site": np.ones(25_000_000)})
        def f(seed, site):
            return {"x": int(site.sum()), "copied": copied_bytes()}
        f.run("out.h5", workers=4)
    """
    assert script(tmp_path, text) == [25_000_000] * 8
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["copied"][:].max() < 100e6  # the constant has 200 MB


@pytest.mark.parametrize("how", ["by value", "imported"])
def test_a_task_that_changes_its_constant_is_told(tmp_path: Path, how: str) -> None:
    """It may, in a worker of its own; but the tasks after it are given what it has made of it."""
    text = """
        import h5sweep
        import numpy as np
        @h5sweep.sweep(
            seed=range(4), constants={"site": np.zeros(100_000), "other": [1], "f": threading.local}
        )
        def f(seed, site, other, f):
            site += 1
            return {"x": int(site[0])}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import threading\n" + textwrap.dedent(text))
    if how == "by value":
        said = python(tmp_path, "script.py").stderr
    else:
        said = Terminal(tmp_path).run("run", "script.py", "-o", "out.h5", "-j", 1).stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][:].tolist() == [1, 2, 3, 4]
    assert said.count("tasks change site in place: the tasks after them in the same worker") == 1


def test_what_a_script_sets_in_a_package_is_told(tmp_path: Path) -> None:
    """Workers do not run the script again; what the message says to do works."""
    text = """
        import numpy as np
        np.setbufsize(4096)
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": np.getbufsize()}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    said = python(tmp_path, "script.py").stderr
    assert "script.py does np.setbufsize(...) when it starts, and its workers do not" in said
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][0] == 8192
    command = said.partition("let workers import that: h5sweep ")[2].splitlines()[0]
    assert command == "run script.py -o out.h5 --sweep f"
    said = Terminal(tmp_path).run(*command.split()).stderr
    assert "np.setbufsize(...) was not done in workers and is now" in said
    Terminal(tmp_path).run(*command.split(), "--changed", "redo")
    with h5py.File(tmp_path / "out.h5") as file:
        assert set(file["x"][:]) == {4096}


def test_what_a_module_does_when_it_is_imported_is_done_in_workers(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text('import numpy as np\nnp.seterr(all="raise")\n')
    text = """
        import numpy as np
        import settings
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": int(np.geterr()["over"] == "raise")}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [1, 1, 1]


def test_attributes_that_are_asked_for_by_a_text_are_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("SCALE = 1\n")
    text = """
        import model
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": seed * getattr(model, "SC" + "ALE")}
        model.SCALE = 100
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 100, 200]


def test_what_programs_have_at_their_top_can_be_sent(tmp_path: Path) -> None:
    """Loggers, patterns, enums, data classes, compiled and cached functions, tables."""
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        import enum, functools, logging, re
        from collections import namedtuple
        from dataclasses import dataclass
        import numba, numpy as np, pandas as pd

        log, pattern = logging.getLogger(__name__), re.compile(r"\\d+")
        Point = namedtuple("Point", "x y")
        table = pd.DataFrame({"a": [1.0, 2.0, 3.0]})

        class Kind(enum.Enum):
            A = 1

        @dataclass
        class Settings:
            scale: float = 2.0
            kind: Kind = Kind.A

        class Base:
            def one(self):
                return 1

        class Child(Base):
            def one(self):
                return super().one() + 1

        settings = Settings()

        @numba.njit
        def fast(x):
            return 2 * x

        @functools.cache
        def cached(x):
            return x + settings.scale

        def compute(seed):
            log.info("seed %s", seed)
            assert settings.kind is Kind.A and pattern.match("3")
            whole = fast(seed) + cached(seed) + Child().one() + Point(1, 2).y
            return int(whole + table.a[seed])
        """)
    )
    text = """
        import model
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": model.compute(seed)}
        model.settings.scale = 100
        print([f(seed)["x"] for seed in range(3)])
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [105, 109, 113]


def test_a_module_that_was_edited_after_it_was_loaded_runs_as_it_was(tmp_path: Path) -> None:
    """As a direct call would; its rows are not called those of the new text."""
    (tmp_path / "model.py").write_text("def g(x):\n    return x\n")
    text = """
        import model
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": model.g(seed)}
        open("model.py", "w").write("def g(x):\\n    return -x\\n")
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 1, 2]
    said = python(tmp_path, "script.py").stderr
    assert "model.py has changed; 3 results of before" in said
    with h5py.File(tmp_path / "out.h5") as file:
        sources = json.loads(file["provenance/code/1"][()])["sources"]
    assert [source["text"] for source in sources if source["name"] == "model.py"] == [""]


TURBINES = """
class Turbine:
    registry = {}
    rating = 0.0
    def __init_subclass__(cls):
        cls.registry[cls.__name__] = cls

class V164(Turbine):
    rating = 8.0

ALL = [V164()]
SCALE = 1

class Model:
    k = 1
    def run(self, seed):
        known = V164.registry["V164"]().rating == 8.0 and isinstance(ALL[0], Turbine)
        return seed * SCALE * self.k if known else -1

model = Model()
FUNCTIONS = {"a": lambda seed: seed * SCALE}
"""


def test_classes_of_a_module_are_those_of_the_module(tmp_path: Path) -> None:
    """They register themselves once, and what an object of theirs uses is as it is here."""
    (tmp_path / "turbines.py").write_text(TURBINES)
    text = """
        import turbines
        from turbines import model, FUNCTIONS
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": model.run(seed) + FUNCTIONS["a"](seed)}
        turbines.SCALE, turbines.Model.k = 10, 2
        print([f(seed)["x"] for seed in range(3)])
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 30, 60]


def test_what_objects_and_containers_lead_to_is_noted(tmp_path: Path) -> None:
    (tmp_path / "turbines.py").write_text(TURBINES)
    text = """
        import sys, turbines
        from turbines import model
        @h5sweep.sweep(seed=range(int(sys.argv[2])), constants={"way": turbines.FUNCTIONS})
        def f(seed, way):
            return {"x": model.run(seed) + way["a"](seed)}
        turbines.SCALE = int(sys.argv[1])
        f.run("out.h5", workers=1, changed=None if sys.argv[1] == "1" else "keep")
    """
    assert script(tmp_path, text, "1", "2") == [0, 2]
    done = python(tmp_path, "script.py", "7", "3")
    assert "turbines.SCALE was 1 and is 7; 2 results of before" in done.stderr


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("from . import sub\nK = 3\n")
    (package / "sub.py").write_text("import pkg\ndef f(x):\n    return x * pkg.K\n")
    text = """
        import pkg
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": pkg.sub.f(seed)}
        pkg.K = 5
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 5, 10]


def test_every_function_is_asked_what_it_names_in_a_module(tmp_path: Path) -> None:
    """Two functions that name the same module, and different things in it."""
    (tmp_path / "model.py").write_text("K = 1\nTABLE = [1]\n")
    text = """
        import sys
        import model
        def first(seed):
            return seed * model.K
        def second(seed):
            return seed * model.TABLE[0]
        @h5sweep.sweep(seed=range(int(sys.argv[2])))
        def f(seed):
            return {"x": first(seed) + second(seed)}
        model.TABLE = [int(sys.argv[1])]
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "5", "2") == [0, 6]
    said = python(tmp_path, "script.py", "7", "3").stderr
    assert "model.TABLE was [5] and is [7]; 2 results of before" in said


MODEL = """
import functools

class A:
    class B:
        X = 1
    def power(self):
        return 1
    @staticmethod
    def fixed():
        return 1
    @property
    def own(self):
        return 1
    @classmethod
    def of_class(cls, k=1):
        return k

class Descriptor:
    v = 1
    def __get__(self, one, kind=None):
        return self.v

class Described:
    d = Descriptor()

def helper(x):
    return helper.factor * x
helper.factor = 1

def default(x, k=1, *, by=1):
    return k * by * x

def counted(function):
    calls = [0]
    @functools.wraps(function)
    def wrapper(x, k=1):
        return k * function(x) + calls[0]
    wrapper.calls = calls
    return wrapper

@counted
def decorated(x):
    return x

@functools.singledispatch
def area(one):
    return 1

@area.register
def _(one: int):
    return 1

class Base:
    pass

def count():
    return len(Base.__subclasses__())
"""

CHANGED = {
    "a method": ("model.A().power()", "model.A.power = lambda self: 7"),
    "a static method": ("model.A.fixed()", "model.A.fixed = staticmethod(lambda: 7)"),
    "a property": ("model.A().own", "model.A.own = property(lambda self: 7)"),
    "a class in a class": ("model.A.B.X", "model.A.B.X = 7"),
    "a default of a class method": (
        "model.A.of_class()",
        "vars(model.A)['of_class'].__func__.__defaults__ = (7,)",
    ),
    "a descriptor": ("model.Described.d", "vars(model.Described)['d'].v = 7"),
    "an attribute of a function": ("model.helper(1)", "model.helper.factor = 7"),
    "a default": ("model.default(1, by=1)", "model.default.__defaults__ = (7,)"),
    "a default by name": ("model.default(1, k=1)", "model.default.__kwdefaults__['by'] = 7"),
    "a closure": ("model.decorated(0)", "model.decorated.calls[0] = 7"),
    "a function for a type": ("model.area('s')", "model.area.register(str, lambda one: 7)"),
    "a subclass": ("model.count() + 6", "class Sub(model.Base): pass"),
    "a global by its text": ("globals().get('S' + 'C', 1)", "SC = 7"),
    "a global by getattr": ("getattr(sys.modules[__name__], 'SC', 1)", "SC = 7"),
    "arguments": ("7 if '--fast' in sys.argv else 1", "pass"),
}


def test_what_a_script_has_changed_is_as_it_is(tmp_path: Path) -> None:
    """Each of these gives 7 in a direct call, and in a worker."""
    (tmp_path / "model.py").write_text(MODEL)
    asked = ", ".join(f"v{n}={how}" for n, (how, _) in enumerate(CHANGED.values()))
    lines = [
        "import sys, h5sweep, model",
        "@h5sweep.sweep(seed=range(1))",
        f"def f(seed):\n    return dict({asked})",
        *(done for _, done in CHANGED.values()),
        "assert set(f(seed=0).values()) == {7}, f(seed=0)",
        'f.run("out.h5", workers=1)',
    ]
    (tmp_path / "script.py").write_text("\n".join(lines))
    done = python(tmp_path, "script.py", "--fast")
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        found = {what: int(file[f"v{n}"][0]) for n, what in enumerate(CHANGED)}
    assert found == dict.fromkeys(CHANGED, 7)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("model.default.__code__ = (lambda x, k, *, by: 7).__code__", "model.default"),
        ("model.SHARED.step.__func__.__code__ = (lambda self: 7).__code__", "model.Model"),
    ],
)
def test_what_was_changed_and_cannot_be_sent_stops_the_run(
    tmp_path: Path, change: str, name: str
) -> None:
    model = "class Model:\n    def step(self):\n        return 1\nSHARED = Model()\n"
    (tmp_path / "model.py").write_text(MODEL + model)
    text = f"""
        import model
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {{"x": model.default(seed) + model.SHARED.step()}}
        {change}
        f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    done = python(tmp_path, "script.py")
    assert f"f uses {name}, which was changed since it was imported" in done.stderr
    assert not (tmp_path / "out.h5").exists()


def test_what_cannot_be_sent_and_was_not_changed_stops_nothing(tmp_path: Path) -> None:
    """Locks in defaults, closures and classes of modules are what an import gives."""
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        import functools, threading
        def locked(function):
            lock, memo = threading.Lock(), {}
            def wrapper(self, x):
                with lock:
                    return memo.setdefault(x, function(self, x))
            return wrapper
        class Model:
            lock = threading.Lock()
            @locked
            def double(self, x):
                return 2 * x
        def plain(x, lock=threading.Lock()):
            with lock, Model.lock:
                return Model().double(x)
        """)
    )
    text = """
        import model
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": model.plain(seed)}
        f(seed=1)
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 2, 4]


def test_changed_arguments_are_told_on_resume(tmp_path: Path) -> None:
    text = """
        import sys
        @h5sweep.sweep(seed=range(len(sys.argv)))
        def f(seed):
            return {"x": len(sys.argv)}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "--fast") == [2, 2]
    said = python(tmp_path, "script.py", "--fast", "--far").stderr
    assert 'sys.argv was ["--fast"] and is ["--fast", "--far"]; 2 results of before' in said
    Terminal(tmp_path).run("replay", "out.h5", "seed=2")


@pytest.mark.parametrize("mode", ["r", "w", "rb"])
def test_an_open_file_is_named_at_once(tmp_path: Path, mode: str) -> None:
    (tmp_path / "table.txt").write_text("1")
    text = f"""
        table = open("table.txt", "{mode}")
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {{"x": len(table.name)}}
        f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    said = python(tmp_path, "script.py").stderr
    assert "f uses table (a " in said and "which cannot be sent to workers" in said
    assert not (tmp_path / "out.h5.run").exists()


@pytest.mark.parametrize("where", ["guard", "main", "exit", "print", "context"])
def test_what_a_script_sets_before_it_runs_is_told(tmp_path: Path, where: str) -> None:
    lines = {
        "guard": ("np.setbufsize(4096)", 'f.run("out.h5", workers=1)'),
        "main": ("main()",),
        "exit": ("sys.exit(main())",),
        "print": ("np.setbufsize(4096)", 'print(f.run("out.h5", workers=1).tasks_done)'),
        "context": ("with np.printoptions(precision=3):", '    f.run("out.h5", workers=1)'),
    }[where]
    text = [
        "import numpy as np, h5sweep, sys",
        "@h5sweep.sweep(seed=range(2))",
        "def f(seed):\n    return {'x': seed}",
        'def main():\n    np.setbufsize(4096)\n    f.run("out.h5", workers=1)',
        'if __name__ == "__main__":',
        *(f"    {line}" for line in lines),
        '    np.savetxt("after.txt", [1])',
    ]
    (tmp_path / "script.py").write_text("\n".join(text))
    said = python(tmp_path, "script.py").stderr
    what = "np.printoptions" if where == "context" else "np.setbufsize"
    assert f"script.py does {what}(...) when it starts, and its workers do not" in said


def test_names_of_attributes_are_no_globals(tmp_path: Path) -> None:
    """A script and the command are the same code, whatever they call the module."""
    text = """
        from pathlib import Path
        scale = 1
        class Site:
            scale = 2
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            assert Path(__file__).exists()
            return {"x": seed * Site().scale * len(type(seed).__name__)}
        if __name__ == "__main__":
            scale = 5
            f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 6]
    path = tmp_path / "script.py"
    path.write_text(path.read_text().replace("range(2)", "range(4)"))
    assert "changed" not in Terminal(tmp_path).run("run", "script.py", "-o", "out.h5").stderr
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(path, other / "script.py")
    words = ("run", other / "script.py", "-o", "out.h5", "--changed", "stop")
    assert "0 to do" in Terminal(tmp_path).run(*words).stderr


def test_classes_of_a_script_are_known_to_their_base_class(tmp_path: Path) -> None:
    """The very ones that functions use, with cached properties and all."""
    text = """
        import functools
        class Turbine:
            registry = {}
            def __init_subclass__(cls):
                cls.registry[cls.__name__] = cls
        class V164(Turbine):
            @functools.cached_property
            def rating(self):
                return 8
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            assert isinstance(V164(), Turbine.registry["V164"])
            return {"x": Turbine.registry["V164"]().rating}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [8, 8]


@pytest.mark.parametrize(
    "text",
    [
        "class H:\n    class Err(Exception): pass\ndef go():\n    try: raise H.Err\n"
        "    except H.Err: return 1",
        "class H:\n    class Inner:\n        k = 1\ndef go(): return H.Inner().k",
        "def make():\n    class C: k = 1\n    return C\nC = make()\ndef go(): return C().k",
        "import numba\n@numba.vectorize(['f8(f8)'])\ndef v(x): return x + 1\n"
        "def go(): return v(0.0)",
    ],
    ids=["exception in a class", "class in a class", "class of a function", "compiled"],
)
def test_what_a_pickle_names_otherwise_is_no_change(tmp_path: Path, text: str) -> None:
    """Classes in classes or functions, and what packages compile, lose a name on their way."""
    lines = [
        text,
        "@h5sweep.sweep(seed=range(2))",
        "def f(seed):\n    return {'x': int(go()) + seed}",
        "f.run('out.h5', workers=1)",
    ]
    assert script(tmp_path, "\n".join(lines)) == [1, 2]


def test_a_call_before_a_run_is_no_change(tmp_path: Path) -> None:
    """A module that only the function imports is there afterwards; it was code before."""
    (tmp_path / "late.py").write_text("K = 2\ndef g(x):\n    return x * K\n")
    text = """
        import sys
        @h5sweep.sweep(seed=range(int(sys.argv[1])))
        def f(seed):
            import late
            return {"x": late.g(seed)}
        if sys.argv[2] == "first":
            f(seed=1)
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "2", "first") == [0, 2]
    assert script(tmp_path, text, "3", "not") == [0, 2, 4]
    assert script(tmp_path, text, "4", "first") == [0, 2, 4, 6]
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["code"][:].tolist() == [1, 1, 1, 1]
    (tmp_path / "late.py").write_text("K = 3\ndef g(x):\n    return x * K\n")
    assert script(tmp_path, text, "5", "first") == [0, 2, 4, 6, 12]
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["code"][:].tolist() == [1, 1, 1, 1, 2]


def test_a_module_that_a_function_of_a_prompt_imports_is_code(tmp_path: Path) -> None:
    text = """
        import h5sweep
        @h5sweep.sweep(seed=range(SEEDS))
        def f(seed):
            import late
            return {"x": late.K}
        f.run("out.h5", workers=1)
    """
    (tmp_path / "late.py").write_text("K = 2\n")
    python(tmp_path, "-", stdin=textwrap.dedent(text).replace("SEEDS", "1"))
    (tmp_path / "late.py").write_text("K = 3\n")
    said = python(tmp_path, "-", stdin=textwrap.dedent(text).replace("SEEDS", "2")).stderr
    assert "late.py has changed; 1 result of before is kept" in said
    assert "which is not in the code" not in said


def test_the_values_of_a_sweep_that_is_called_for_are_no_code(tmp_path: Path) -> None:
    """`sweep(...)(f)` declares as a decorator does."""
    text = """
        def g(seed):
            return {"x": seed}
        f = h5sweep.sweep(seed=range(SEEDS))(g)
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text.replace("SEEDS", "1")) == [0]
    assert script(tmp_path, text.replace("SEEDS", "3")) == [0, 1, 2]
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["code"][:].tolist() == [1, 1, 1]


def test_a_function_is_the_same_under_an_option_of_python(tmp_path: Path) -> None:
    """`python -O` leaves out assert statements, in workers as in the program that starts them."""
    (tmp_path / "m.py").write_text("def g(s):\n    assert s < 0\n    return s\n")
    (tmp_path / "script.py").write_text(
        "import h5sweep, m\n@h5sweep.sweep(seed=range(2))\ndef f(seed):\n"
        "    return {'x': m.g(seed)}\nf.run('out.h5', workers=1)\n"
    )
    command = [sys.executable, "-O", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][:].tolist() == [0, 1]


CHOSEN = {
    "by a module": "importlib.import_module('models.' + kind).run()",
    "by a name that is put together": "getattr(wake, 'TABLE' + str(1))['k']",
    "by vars": "vars(wake)['TABLE' + str(1)]['k']",
    "by __getattr__": "wake.anything",
    "by a default": "wake.default()",
}


@pytest.mark.parametrize("way", CHOSEN)
def test_what_no_function_names_is_as_it_is(tmp_path: Path, way: str) -> None:
    """A task that chooses a module, or a name in it, finds what the script has changed there."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models/__init__.py").touch()
    (tmp_path / "models/jensen.py").write_text(
        "import threading\nLOCK = threading.Lock()\nCOEFF = {'k': 1}\nNOTHING = object()\n"
        "def inner(value=NOTHING):\n    return COEFF['k'] if value is NOTHING else None\n"
        "def run():\n    return inner()\ndef locked():\n    return LOCK\n"
    )
    (tmp_path / "wake.py").write_text(
        "TABLE1 = {'k': 1}\nSTATE = {'k': 1}\nNOTHING = object()\n"
        "def default(value=NOTHING):\n    return STATE['k'] if value is NOTHING else 0\n"
        "def __getattr__(name):\n"
        "    if name != 'anything':\n        raise AttributeError(name)\n    return STATE['k']\n"
    )
    text = f"""
        import importlib, wake, models.jensen
        @h5sweep.sweep(seed=range(3))
        def f(seed, kind="jensen"):
            return {{"x": {CHOSEN[way]} * seed}}
        models.jensen.COEFF["k"] = wake.TABLE1["k"] = wake.STATE["k"] = 5
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 5, 10]


def test_a_mock_is_refused(tmp_path: Path) -> None:
    """It would call itself without end in a worker."""
    (tmp_path / "m.py").write_text("def g(s):\n    return s\n")
    (tmp_path / "script.py").write_text(
        "from unittest import mock\nimport h5sweep, m\n@h5sweep.sweep(seed=range(2))\n"
        "def f(seed):\n    return {'x': m.g(seed)}\n"
        "with mock.patch('m.g', return_value=5):\n    f.run('out.h5', workers=1)\n"
    )
    done = python(tmp_path, "script.py")
    assert "f uses m.g (a MagicMock), which cannot be sent to workers (it is a mock)" in done.stderr


def test_members_of_an_enum_of_a_script_have_their_attributes(tmp_path: Path) -> None:
    """Which `__init__` or `__new__` has given them, or the script later."""
    text = """
        import enum
        class Planet(enum.Enum):
            EARTH = (1.0, 2)
            def __init__(self, mass, radius):
                self.mass, self.radius = mass, radius
        class Kind(enum.Enum):
            A = (1, 10)
            def __new__(cls, value, weight):
                made = object.__new__(cls)
                made._value_, made.weight = value, weight
                return made
        class Plain(enum.Flag):
            A = 1
        Plain.A.late = 100
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": Planet.EARTH.radius + Kind.A.weight + Plain.A.late + seed}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [112, 113]


def test_what_a_script_sets_in_its_own_modules_is_no_setting(tmp_path: Path) -> None:
    """In a folder without __init__.py too; nor is what it does after a sweep that it has made."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "wake.py").write_text("K = 1\ndef k(): return K\n")
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
        import h5sweep
        import numpy as np
        import model.wake as wake
        from model import wake as other
        wake.K = 5
        other.k()
        def g(seed):
            return {"x": wake.k() + seed}
        f = h5sweep.sweep(seed=range(2))(g)
        f.run("out.h5", workers=1)
        np.savetxt("after.txt", [1])
        """)
    )
    done = python(tmp_path, "script.py")
    assert "when it starts" not in done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][:].tolist() == [5, 6]


def test_what_a_module_of_a_package_sets_in_others_is_no_setting(tmp_path: Path) -> None:
    """Which it imports by where they lie: `from .model import wake`."""
    (tmp_path / "farm").mkdir()
    (tmp_path / "farm" / "__init__.py").touch()
    (tmp_path / "farm" / "wake.py").write_text("K = 1\n")
    (tmp_path / "farm" / "study.py").write_text(
        textwrap.dedent("""
        import h5sweep
        from . import wake
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": wake.K + seed}
        if __name__ == "__main__":
            wake.K = 5
            f.run("out.h5", workers=1)
        """)
    )
    done = python(tmp_path, "-m", "farm.study")
    assert "when it starts" not in done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["x"][:].tolist() == [5, 6]


def test_the_methods_that_a_dataclass_makes_are_not_told(tmp_path: Path) -> None:
    """But the class is, by its name."""
    text = """
import dataclasses, h5sweep
@dataclasses.dataclass
class Site:
    depth: float = 1.0
SITE = Site()
@h5sweep.sweep(seed=range(2))
def f(seed):
    return {"x": SITE.depth}
f.run("out.h5", workers=1)
"""
    python(tmp_path, "-c", text)
    said = python(tmp_path, "-c", text.replace("SITE.depth", "1.0")).stderr
    assert "Site is gone; " in said
    assert 'SITE is gone; it was {"Site": {"depth": 1.0}}; ' in said
    assert "__eq__" not in said and "__create_fn__" not in said


@pytest.mark.parametrize("how", ["metaclass", "pickle"])
def test_a_value_that_workers_do_not_have_is_told(tmp_path: Path, how: str) -> None:
    """What is added to when a class is made, and what a class says itself of how it is sent."""
    text = {
        "metaclass": """
        class Meta(type):
            names = []
            def __init__(cls, name, bases, members):
                Meta.names.append(name)
        class A(metaclass=Meta):
            pass
        def count():
            return len(Meta.names) + isinstance(A(), A)
        """,
        "pickle": """
        class Table(dict):
            def __reduce__(self):
                return Table, ()
        TABLE = Table(a=1)
        def count():
            return len(TABLE)
        """,
    }[how]
    name = {"metaclass": "Meta.names", "pickle": "TABLE"}[how]
    run = """
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": count()}
        f.run("out.h5", workers=1)
        """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text + run))
    said = python(tmp_path, "script.py").stderr
    assert f"{name}: workers have another value than there was when the run began" in said


def test_a_task_may_pickle_what_a_script_defines(tmp_path: Path) -> None:
    """Or have a pool of its own, which looks for its functions in the script."""
    text = """
        import multiprocessing, pickle
        class Site:
            def __init__(self, depth):
                self.depth = depth
        def square(x):
            return x * x
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            site = pickle.loads(pickle.dumps(Site(10)))
            with multiprocessing.get_context("fork").Pool(1) as pool:
                return {"x": sum(pool.map(square, [seed, 2])) + site.depth}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [14, 15]


def test_a_function_of_single_dispatch_is_sent(tmp_path: Path) -> None:
    """With what was registered for each type, also if that calls the function again."""
    text = """
        import functools
        @functools.singledispatch
        def aep(site):
            return 0
        @aep.register
        def _(site: int):
            return SCALE * site
        @aep.register
        def _(sites: list):
            return sum(aep(site) for site in sites)
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": aep([seed, 1]) + aep("none")}
        SCALE = 5
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [5, 10]


def test_a_script_that_reads_its_arguments_at_its_top(tmp_path: Path) -> None:
    """It is not run again in workers. The command imports it, and says what that meets."""
    text = """
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--scale", type=int, required=True)
        options = parser.parse_args()
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": options.scale * seed}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "--scale", "7") == [0, 7, 14]
    done = Terminal(tmp_path).run("run", "script.py", "-o", "other.h5", check=2)
    assert "script.py does not import" in done.stderr
    assert "the following arguments are required: --scale" in done.stderr
    assert not (tmp_path / "other.h5.run").exists()


PUT = {  # where the script puts what it changes, what it puts there, and how the function uses it
    "a number": ("math", "math.pi = 3", "int(math.pi)"),
    "its own function": ("math", "math.floor = lambda x: 3", "math.floor(7.5)"),
    "a function of another package": ("math", "math.floor = np.ceil", "int(math.floor(2.5))"),
    "a submodule": ("numpy.linalg", "np.linalg.LIMIT = 3", "np.linalg.LIMIT"),
    "a builtin": ("builtins", "builtins.clamp = lambda x: 3", "clamp(9)"),
    "a text": ("tempfile", "tempfile.tempdir = 'abc'", "len(tempfile.tempdir)"),
    "an import of its own": ("math", "math.pi = 3", "__import__('math') and int(math.pi)"),
}


@pytest.mark.parametrize("what", PUT)
def test_what_a_script_puts_into_a_package_is_there_in_workers(tmp_path: Path, what: str) -> None:
    """As in a direct call; nor does the run say that it is not. A row names it."""
    module, line, used = PUT[what]
    text = f"""
        import builtins, math, tempfile
        import numpy as np
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {{"x": {used}}}
        {line}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
            assert f(seed=1) == {{"x": 3}}
    """
    assert script(tmp_path, text) == [3, 3]
    version = json.loads((tmp_path / "out.h5.run" / "code" / "1.json").read_text())
    assert any(name.startswith(f"{module}.") for name in version["globals"])
    again = python(tmp_path, "script.py")
    assert "when it starts" not in again.stderr
    unset = (tmp_path / "script.py").read_text().replace(f"\n{line}", "")
    (tmp_path / "script.py").write_text(unset.replace("range(2)", "range(3)"))
    assert f"{module}." in python(tmp_path, "script.py").stderr


def test_what_a_script_sets_in_pythons_own_and_no_function_uses_is_told(tmp_path: Path) -> None:
    text = """
        import json
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": 1}
        json.encoder.FLOAT_REPR = "3"
        f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    said = python(tmp_path, "script.py").stderr
    assert "script.py does json.encoder.FLOAT_REPR = ... when it starts" in said


def test_a_module_made_by_hand_is_what_it_was_made(tmp_path: Path) -> None:
    """Though its name, and its file, are those of one that workers could import."""
    (tmp_path / "model.py").write_text("SCALE = 1\ndef f(x): return SCALE * x\n")
    text = """
        import types, model
        made = types.ModuleType("model")
        made.__file__ = model.__file__
        exec("SCALE = 100\\ndef f(x): return SCALE * x", vars(made))
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": made.f(seed) + made.SCALE + model.SCALE}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [101, 201, 301]


def test_a_module_made_by_hand_is_one_with_its_functions(tmp_path: Path) -> None:
    """A task that changes it meets that in its functions; its values are part of the code."""
    text = """
        import sys, types
        made = types.ModuleType("made")
        made.SCALE, made.OFFSET = 7, int(sys.argv[1])
        exec("def f(x): return SCALE * x + OFFSET", vars(made))
        f_of_made = made.f
        @h5sweep.sweep(seed=range(int(sys.argv[2])))
        def f(seed):
            made.SCALE = 10 + seed
            return {"x": made.f(1) + f_of_made(1)}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text, "1", "2") == [22, 24]
    said = python(tmp_path, "script.py", "2", "3").stderr
    assert "made.OFFSET was 1 and is 2" in said


@pytest.mark.parametrize("where", ["at its top", "in the function"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_module_made_by_hand_is_imported_by_its_name(
    tmp_path: Path, where: str, is_there: bool
) -> None:
    """Whether or not there is a file that workers would import instead."""
    if is_there:
        (tmp_path / "model.py").write_text("TABLE = [1]\nclass Site: height = 1\n")
    line = "import model"
    text = f"""
        import sys, types
        model = types.ModuleType("model")
        exec("TABLE = [3]\\nclass Site:\\n    height = 4", vars(model))
        sys.modules["model"] = model
        del model
        {line if where == "at its top" else ""}
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            {line if where == "in the function" else ""}
            return {{"x": model.TABLE[0] + model.Site().height}}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [7, 7]


HOW = {  # what the script does, and what the function uses of it
    "errors": ('np.seterr(over="raise")', 'np.geterr()["over"] == "raise"'),
    "errors, and keeps the old": (
        'old = np.seterr(over="raise")',
        'np.geterr()["over"] == "raise"',
    ),
    "errors, in another module": ("setup.up()", 'np.geterr()["over"] == "raise"'),
    "digits": ("decimal.getcontext().prec = 50", "len(str(1 / decimal.Decimal(7))) > 40"),
    "digits, by another name": ("context.prec = 50", "len(str(1 / decimal.Decimal(7))) > 40"),
    "traps": ("context.traps[decimal.Inexact] = True", "context_now().traps[decimal.Inexact]"),
}


@pytest.mark.parametrize("how", HOW)
def test_workers_calculate_as_the_script_does(tmp_path: Path, how: str) -> None:
    """So does a replay; rows of the command are the same code if it calculates so too."""
    (tmp_path / "setup.py").write_text('import numpy\ndef up(): numpy.seterr(over="raise")\n')
    line, used = HOW[how]
    text = f"""
        import decimal, numpy as np, setup
        context_now = decimal.getcontext
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {{"x": int({used})}}
        if __name__ == "__main__":
            context = decimal.getcontext()
            {line}
            f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [1, 1]
    assert "when it starts" not in python(tmp_path, "script.py").stderr
    terminal = Terminal(tmp_path)
    assert "equal" in terminal.run("replay", "out.h5", "seed=1").stdout
    again = ("run", "script.py", "-o", "out.h5", "--changed", "stop")
    assert "as usual" in terminal.run(*again, check=2).stderr
    grown = (tmp_path / "script.py").read_text().replace("range(2)", "range(3)")
    at_top = grown.replace('if __name__ == "__main__":', "if True:").replace("f.run(", "dict(a=")
    (tmp_path / "script.py").write_text(at_top)
    assert "getcontext" not in (said := terminal.run(*again[:4]).stderr) and "geterr" not in said


def test_warnings_that_a_script_makes_errors_are_told(tmp_path: Path) -> None:
    text = """
        import warnings
        warnings.filterwarnings("{}")
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {{"x": 1}}
        f.run("out.h5", workers=1)
    """
    for action, is_told in (("error", True), ("ignore", False)):
        (tmp_path / "script.py").write_text(
            "import h5sweep\n" + textwrap.dedent(text.format(action))
        )
        said = python(tmp_path, "script.py").stderr
        assert ("script.py does warnings.filterwarnings(...) when it starts" in said) == is_told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('rc["a.b"] = 2', "rc['a.b'] = ..."),
        ('rc["a.b"] += 1', "rc['a.b'] = ..."),
        ("settings().a = 2", "settings().a = ..."),
        ("del math.degrees", "del math.degrees"),
    ],
)
def test_what_a_script_assigns_in_packages_is_told(tmp_path: Path, line: str, told: str) -> None:
    installed(tmp_path, "pack", "rc = {'a.b': 1}\nclass S: pass\ndef settings(s=S()): return s\n")
    text = f"""
        import sys, math
        sys.path.append("site-packages")
        from pack import rc, settings
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {{"x": 1}}
        {line}
        f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    assert f"script.py does {told} when it starts" in python(tmp_path, "script.py").stderr


def installed(folder: Path, package: str, text: str, **modules: str) -> None:
    """Put a package where installed ones lie."""
    place = folder / "site-packages" / package
    place.mkdir(parents=True)
    (place / "__init__.py").write_text(textwrap.dedent(text))
    for name, content in modules.items():
        (place / f"{name}.py").write_text(textwrap.dedent(content))


def test_what_a_package_loads_late_is_no_other_code(tmp_path: Path) -> None:
    """As SciPy loads its parts when they are named: a call by hand before a run has loaded them."""
    init = """
        import importlib
        def __getattr__(name):
            if name != "units":
                raise AttributeError(name)
            return importlib.import_module("pack.units")
        def __dir__():
            return ["units"]
    """
    installed(tmp_path, "pack", init, units="KNOT = 2\n")
    text = """
        import sys
        sys.path.append("site-packages")
        import pack
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": seed * pack.units.KNOT}
        if __name__ == "__main__":
            len(sys.argv) > 1 and f(seed=1)
            f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [0, 2]
    path = tmp_path / "script.py"
    path.write_text(path.read_text().replace("range(2)", "range(3)"))
    assert "is new" not in python(tmp_path, "script.py", "called").stderr
    assert "is gone" not in Terminal(tmp_path).run("run", "script.py", "-o", "out.h5").stderr


def test_a_class_that_a_package_has_in_a_notebook_only(tmp_path: Path) -> None:
    """As `tqdm.auto` has: workers take what the package has there, without a word."""
    init = """
        import __main__
        class Base:
            steps = 3
        if hasattr(__main__, "IN_NOTEBOOK"):
            class Bar(Base):
                pass
        else:
            Bar = Base
    """
    installed(tmp_path, "pack", init)
    text = """
        import sys
        sys.path.append("site-packages")
        IN_NOTEBOOK = True
        from pack import Bar
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": Bar().steps}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [3, 3]
    (tmp_path / "out.h5").unlink()
    assert "another value" not in python(tmp_path, "script.py").stderr


def test_workers_may_call_as_deep_as_the_script(tmp_path: Path) -> None:
    text = """
        import sys
        sys.setrecursionlimit(20_000)
        def depth(n):
            return 1 + depth(n - 1) if n else 0
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": depth(3_000)}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [3000, 3000]


def test_no_package_has_modules_made_by_hand() -> None:
    """What Cython's functions are is in a module that no import gives either."""
    code = (
        "import sys, h5py, numpy, pandas, xarray\n"
        "from types import ModuleType\n"
        "from h5sweep.code.own_modules import is_made_by_hand\n"
        "loaded = [m for m in sys.modules.values() if isinstance(m, ModuleType)]\n"
        "print([m.__name__ for m in loaded if is_made_by_hand(m)])\n"
    )
    assert python(Path.cwd(), "-c", code).stdout == "[]\n"
