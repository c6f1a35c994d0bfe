"""What a direct call would compute is what a task computes, wherever the function is defined."""

from __future__ import annotations

import json
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


def test_a_task_may_change_its_constant_for_itself(tmp_path: Path) -> None:
    text = """
        import numpy as np
        @h5sweep.sweep(seed=range(4), constants={"site": np.zeros(100_000)})
        def f(seed, site):
            site += 1
            return {"x": int(site[0])}
        f.run("out.h5", workers=1)
    """
    assert script(tmp_path, text) == [1, 2, 3, 4]


def test_what_a_script_sets_in_a_package_is_told(tmp_path: Path) -> None:
    """Workers do not run the script again; what the message says to do works."""
    text = """
        import numpy as np
        np.seterr(all="raise")
        @h5sweep.sweep(seed=range(3))
        def f(seed):
            return {"x": 1, "mode": np.geterr()["over"]}
        if __name__ == "__main__":
            f.run("out.h5", workers=1)
    """
    (tmp_path / "script.py").write_text("import h5sweep\n" + textwrap.dedent(text))
    said = python(tmp_path, "script.py").stderr
    assert "script.py does np.seterr(...) when it starts, and its workers do not" in said
    Terminal(tmp_path).run("run", "script.py", "-o", "other.h5")
    with h5py.File(tmp_path / "out.h5") as file, h5py.File(tmp_path / "other.h5") as other:
        assert file["mode"][0] == b"warn"
        assert other["mode"][0] == b"raise"


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
