"""Which of the user's own modules are part of the code: found, read once, and used by workers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

from terminal import Terminal

Study = Callable[[str], Path]
RUN = ("run", "study.py", "-o", "out.h5", "-j", 2)


def python(folder: Path, text: str, *words: str) -> str:
    """Run a program from standard input; return what it says."""
    done = subprocess.run(
        [sys.executable, *(words or ["-"])],
        cwd=folder,
        input=textwrap.dedent(text),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def column(folder: Path, name: str = "x") -> list[int]:
    with h5py.File(folder / "out.h5") as file:
        return file[name][:].tolist()


MODEL = """
    import os, signal, h5sweep
    SCALE = 1
    class Kind:
        loss = 1
    def helper():
        return SCALE * Kind.loss
    @h5sweep.sweep(seed=range(3))
    def f(seed):
        {body}
        return {{"x": helper()}}
"""


def test_a_sweep_of_an_imported_module_has_its_globals_behind_other_functions(
    tmp_path: Path,
) -> None:
    """What the function calls sees the module as it is here, not as an import gives it."""
    (tmp_path / "model.py").write_text(textwrap.dedent(MODEL.format(body="pass")))
    python(tmp_path, 'import model; model.SCALE, model.Kind.loss = 7, 2; model.f.run("out.h5")')
    assert column(tmp_path) == [14, 14, 14]


def test_an_imported_module_that_is_edited_during_a_run_changes_nothing(tmp_path: Path) -> None:
    """A worker that starts later imports what was read when the run began."""
    body = """
        if seed == 1 and not os.path.exists("edited"):
            open("edited", "w").close()
            text = open("model.py").read()
            open("model.py", "w").write(text.replace("return SCALE", "return 9 * SCALE"))
            os.kill(os.getpid(), signal.SIGKILL)
    """
    (tmp_path / "model.py").write_text(textwrap.dedent(MODEL.format(body=body.strip())))
    python(tmp_path, 'import model; model.f.run("out.h5", workers=1)')
    assert (tmp_path / "edited").exists() and column(tmp_path) == [1, 1, 1]


@pytest.mark.parametrize(
    ("import_line", "call"),
    [
        ("from wake import Turbine", "Turbine().power()"),
        ("from wake import turbine", "turbine.power()"),
        ("from wake import Turbine", "Turbine().size"),
    ],
)
def test_modules_behind_names_at_a_prompt_are_code(
    tmp_path: Path, import_line: str, call: str
) -> None:
    """A class or an object of a module that was imported by name: a change of it is told."""
    wake = """
        class Turbine:
            def power(self):
                return {value}
            size = property(power)
        turbine = Turbine()
    """
    prompt = f"""
        import h5sweep
        {import_line}
        @h5sweep.sweep(seed=range(SEEDS))
        def f(seed):
            return {{"x": {call}}}
        f.run("out.h5", workers=1)
    """
    (tmp_path / "wake.py").write_text(textwrap.dedent(wake.format(value=1)))
    python(tmp_path, prompt.replace("SEEDS", "2"))
    (tmp_path / "wake.py").write_text(textwrap.dedent(wake.format(value=100)))
    said = python(tmp_path, prompt.replace("SEEDS", "3"))
    assert "wake.py has changed" in said
    assert column(tmp_path) == [1, 1, 100] and column(tmp_path, "code") == [1, 1, 2]


EDITS = {
    "a default": ("k=1", "k=7"),
    "a static method": ("return 11", "return 77"),
    "a class method": ("return 12", "return 77"),
    "a property": ("return 13", "return 77"),
    "a method of a class in a class": ("return 14", "return 77"),
    "an override": ("pass  # R", "def base(self): return 77"),
    "a base": ("class R(P)", "class R(Q)"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_after_loading_never_passes_for_what_was_loaded(tmp_path: Path, edit: str) -> None:
    """A run computes as the direct call does, or stops and names what was changed."""
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        def dflt(k=1): return k
        class P:
            def base(self): return 15
        class Q:
            def base(self): return 77
        class R(P):
            pass  # R
        class A:
            class B:
                def inner(self): return 14
            @staticmethod
            def static(): return 11
            @classmethod
            def of_class(cls): return 12
            @property
            def prop(self): return 13
        """)
    )
    before, after = EDITS[edit]
    said = python(
        tmp_path,
        f"""
        import h5sweep, model
        from h5sweep.errors import StudyError
        from pathlib import Path
        @h5sweep.sweep(seed=range(1))
        def f(seed):
            a, values = model.A(), [model.dflt(), model.A.static(), model.A.of_class()]
            return {{"x": sum([*values, a.prop, a.B().inner(), model.R().base()])}}
        text = Path("model.py").read_text()
        assert {before!r} in text
        Path("model.py").write_text(text.replace({before!r}, {after!r}))
        try:
            f.run("out.h5", workers=1)
        except StudyError as error:
            print("stopped:", error)
        """,
    )
    if "stopped: f uses model." not in said:
        assert column(tmp_path) == [1 + 11 + 12 + 13 + 14 + 15]


def test_an_empty_file_is_a_source_like_others(terminal: Terminal, study: Study) -> None:
    """What is written into it during a run changes nothing, and nothing is said to have changed."""
    (terminal.folder / "pkg").mkdir()
    terminal.write("pkg/__init__.py", "")
    terminal.write("pkg/wake.py", "LOSS = 1\n")
    study("""
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            if not os.path.exists("edited"):
                open("edited", "w").close()
                open("pkg/__init__.py", "w").write("import pkg.wake; pkg.wake.LOSS = 9")
            from pkg.wake import LOSS
            return {"x": LOSS}
    """)
    terminal.run(*RUN, "-j", 1)
    assert column(terminal.folder) == [1, 1]
    terminal.write("pkg/__init__.py", "")
    assert "since then" not in terminal.run("replay", "out.h5", "seed=1").stdout


@pytest.mark.parametrize(
    "call",
    [
        "importlib.import_module('models.vestas')",
        "importlib.import_module('models.' + kind)",
        "importlib.import_module(f'models.{kind}')",
        "importlib.import_module('models.%s' % kind)",
        "importlib.import_module('models.{}'.format(kind))",
        "__import__('models.vestas').vestas",
        "getattr(models, 'lazy_' + kind)",
    ],
)
def test_imports_that_are_calls_are_followed(terminal: Terminal, study: Study, call: str) -> None:
    """By a name that is written, or put together from the name of a package."""
    (terminal.folder / "models").mkdir()
    terminal.write(
        "models/__init__.py",
        "import importlib\ndef __getattr__(name):\n    if not name.startswith('lazy_'):\n"
        "        raise AttributeError(name)\n"
        "    return importlib.import_module('.' + name.removeprefix('lazy_'), __name__)\n",
    )
    terminal.write("models/vestas.py", "def k():\n    return 1\n")
    body = """
        import importlib, models
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed, kind="vestas"):
            return {{"x": {call}.k()}}
    """
    study(body.format(seeds=1, call=call))
    terminal.run(*RUN)
    terminal.write("models/vestas.py", "def k():\n    return 9\n")
    study(body.format(seeds=2, call=call))
    assert "vestas.py has changed" in terminal.run(*RUN).stderr
    assert column(terminal.folder) == [1, 9] and column(terminal.folder, "code") == [1, 2]


def test_a_module_that_nobody_could_foresee_is_told(terminal: Terminal, study: Study) -> None:
    """A task imports it by a name that it computes: rows cannot be marked with it."""
    terminal.write("hidden.py", "K = 1\n")
    study("""
        import importlib
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": importlib.import_module("neddih"[::-1]).K}
    """)
    said = terminal.run(*RUN).stderr
    assert said.count("a task imported hidden, which is not in the code that rows are") == 1


def test_a_module_of_an_editable_install_is_own(terminal: Terminal, study: Study) -> None:
    """Found by a finder that its installer has put into Python, also inside a function."""
    (terminal.folder / "elsewhere").mkdir()
    terminal.write("elsewhere/mylib.py", "def k():\n    return 1\n")
    (terminal.folder / "site").mkdir()
    terminal.write(
        "site/sitecustomize.py",
        """
        import sys
        from importlib.util import spec_from_file_location
        class Finder:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "mylib":
                    return spec_from_file_location(name, PLACE)
        sys.meta_path.append(Finder)
        """.replace("PLACE", repr(str(terminal.folder / "elsewhere/mylib.py"))),
    )
    body = """
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            from mylib import k
            return {{"x": k()}}
    """
    settings = {"PYTHONPATH": str(terminal.folder / "site")}
    study(body.format(seeds=1))
    terminal.run(*RUN, **settings)
    terminal.write("elsewhere/mylib.py", "def k():\n    return 9\n")
    study(body.format(seeds=2))
    assert "mylib.py has changed" in terminal.run(*RUN, **settings).stderr
    assert column(terminal.folder) == [1, 9] and column(terminal.folder, "code") == [1, 2]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("e = os.environ", "e.get('SCALE')"),
        ("from os import environ as settings", "settings['SCALE']"),
        ("from os import getenv as ask", "ask('SCALE')"),
        ("ask = os.environ.get", "ask('SCALE')"),
    ],
)
def test_the_environment_under_another_name_is_code(
    terminal: Terminal, study: Study, line: str, read: str
) -> None:
    body = """
        import os
        {line}
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            return {{"x": int({read})}}
    """
    study(body.format(line=line, seeds=1, read=read))
    terminal.run(*RUN, SCALE="1")
    study(body.format(line=line, seeds=2, read=read))
    assert 'SCALE was "1" and is "7"' in terminal.run(*RUN, SCALE="7").stderr
    assert column(terminal.folder) == [1, 7] and column(terminal.folder, "code") == [1, 2]


def test_another_name_of_the_script_is_no_module(terminal: Terminal, study: Study) -> None:
    """Packages that start processes, as Dask does, put it among the modules."""
    body = """
        if os.path.exists("as_dask"):
            sys.modules["__mp_main__"] = sys.modules["__main__"]
        @h5sweep.sweep(seed=range({seeds}))
        def f(seed):
            return {{"x": seed}}
    """
    study(body.format(seeds=1))
    terminal.write("as_dask", "")
    terminal.run(*RUN)
    (terminal.folder / "as_dask").unlink()
    study(body.format(seeds=2))
    assert "gone" not in terminal.run(*RUN).stderr
    assert column(terminal.folder, "code") == [1, 1]


ENUM_CHANGES = {
    "a value on disk": "Path('model.py').write_text(text.replace('= 1', '= 100'))",
    "an attribute of a member": "model.Kind.A.weight = 7",
    "nothing": "",
}


@pytest.mark.parametrize("change", ENUM_CHANGES)
def test_a_changed_enum_never_passes_for_what_it_was(tmp_path: Path, change: str) -> None:
    """Its members are imported by workers: if they are others there, the run stops."""
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        import enum, functools
        class Kind(enum.Enum):
            A = 1
            def __init__(self, number): self.double = 2 * number
            @functools.cached_property
            def triple(self): return 3 * self.value
        Kind.A.weight = 1
        """)
    )
    said = python(
        tmp_path,
        f"""
        import h5sweep, model
        from h5sweep.errors import StudyError
        from pathlib import Path
        @h5sweep.sweep(seed=range(1))
        def f(seed):
            return {{"x": model.Kind.A.value + model.Kind.A.weight + model.Kind.A.triple}}
        f(0)
        text = Path("model.py").read_text()
        {ENUM_CHANGES[change]}
        try:
            f.run("out.h5", workers=1)
        except StudyError as error:
            print("stopped:", error)
        """,
    )
    if change == "nothing":
        assert column(tmp_path) == [5]
    else:
        assert "stopped: f uses model.Kind.__members__, which was changed" in said


ASKING_FOR_ANY = {
    "a name that is passed": ("def ask(n): return os.environ[n]", "ask('KK')"),
    "a default": ("def ask(n='KK'): return os.getenv(n)", "ask()"),
    "a class attribute": ("class C: N = 'KK'", "os.environ[C.N]"),
    "a name of another module": ("import names", "os.environ.get(names.KK)"),
    "the whole": ("", "dict(os.environ)['KK']"),
    "a method of the whole": ("", "os.environ.copy()['KK']"),
    "bytes": ("", "os.environb[b'KK']"),
    "inside a text": ("", "os.path.expandvars('${KK}')"),
    "a reader that is passed": ("", "next(map(os.getenv, ['KK']))"),
}


@pytest.mark.parametrize("way", ASKING_FOR_ANY)
def test_variables_by_names_that_no_call_says_are_code(
    terminal: Terminal, study: Study, way: str
) -> None:
    above, asked = ASKING_FOR_ANY[way]
    terminal.write("names.py", "KK = 'KK'\n")
    study(f"{above}\n@h5sweep.sweep(seed=range(2))\ndef f(seed): return {{'x': int({asked})}}\n")
    run = ("run", "study.py", "-o", "out.h5", "-j", 1, "--changed", "stop")
    terminal.run(*run, KK="1")
    assert "the environment variable KK was" in terminal.run(*run, KK="2", check=2).stderr
    assert "0 to do" in terminal.run(*run, KK="1", OTHER="2").stderr


def test_text_is_no_variable_where_all_names_are_known(terminal: Terminal, study: Study) -> None:
    """A text that is called like one is none, if every variable is asked for by its name."""
    study(
        "@h5sweep.sweep(seed=range(2))\n"
        "def f(seed):\n"
        "    env = os.environ\n"
        "    return {'x': int(env['KK']), 'y': 'OTHER'}\n"
    )
    run = ("run", "study.py", "-o", "out.h5", "-j", 1, "--changed", "stop")
    terminal.run(*run, KK="1", OTHER="1")
    assert "0 to do" in terminal.run(*run, KK="1", OTHER="2").stderr


NO_FILE = {
    "in an archive": "sys.path.insert(0, 'archive.zip')\n",
    "moved since": "",
    "made up": "sys.modules['m'] = types.ModuleType('m')\nsys.modules['m'].__file__ = '/m.py'\n",
}


@pytest.mark.parametrize("where", NO_FILE)
def test_a_module_that_has_no_file_is_one_sentence(tmp_path: Path, where: str) -> None:
    """Its source cannot be kept, so that nobody could say later what made the rows."""
    text = "def g(s):\n    return s\n"
    if where == "in an archive":
        with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
            archive.writestr("m.py", text)
    else:
        (tmp_path / "m.py").write_text(text)
    (tmp_path / "script.py").write_text(
        f"import os, sys, types, h5sweep\n{NO_FILE[where]}import m\n"
        "@h5sweep.sweep(seed=range(2))\ndef f(seed):\n    return {'x': m.g(seed)}\n"
        "os.path.exists('m.py') and os.rename('m.py', 'n.py')\n"
        "try:\n    f.run('out.h5', workers=1)\n"
        "except h5sweep.errors.StudyError as error:\n    print(error)\n"
    )
    said = python(tmp_path, "", "script.py")
    assert re.match(r"m was imported from \S*/m.py, which is no file now, so its source", said)


def test_modules_that_packages_make_up_are_nobodys(terminal: Terminal, study: Study) -> None:
    """Such as torch.ops, which says that it is from a file `_ops.py` of nowhere."""
    study("""
        import types
        sys.modules["os.made"] = types.ModuleType("os.made")
        sys.modules["os.made"].__file__ = "_made.py"
        @h5sweep.sweep(seed=range(2))
        def f(seed):
            return {"x": seed}
    """)
    assert "made" not in terminal.run(*RUN).stderr
    assert column(terminal.folder) == [0, 1]


def test_a_module_that_its_importer_rewrites_is_not_called_edited(tmp_path: Path) -> None:
    """pytest does so with assert statements: what it has loaded is run, and the text is kept."""
    (tmp_path / "test_s.py").write_text(
        "import h5sweep\n@h5sweep.sweep(seed=range(2))\ndef f(seed):\n"
        "    assert seed < 5\n    return {'x': seed}\n"
        "def test_f():\n    assert f.run('out.h5', workers=1).is_complete\n"
    )
    said = python(tmp_path, "", "-m", "pytest", "-s", "-p", "no:cacheprovider", "test_s.py")
    assert "1 passed" in said and "edited" not in said
    with h5py.File(tmp_path / "out.h5") as file:
        assert "assert seed < 5" in json.loads(file["provenance/code/1"][()])["sources"][0]["text"]
