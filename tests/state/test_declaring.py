"""What a sweep may be declared over, from the declaration to the rows of the output."""

from __future__ import annotations

import datetime
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import pytest

import h5sweep
from h5sweep.errors import UsageError
from terminal import Terminal

Study = Callable[..., Path]


def python(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python there, as users run their scripts."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
    )


def one(seed: int) -> dict[str, object]:
    return {"x": seed}


def test_a_name_in_the_list_and_beside_it_is_refused() -> None:
    """A parameter has its values from one place."""
    with pytest.raises(UsageError, match="'seed' is in the list of tasks and a parameter beside"):
        h5sweep.sweep(tasks=[{"seed": 1}], seed=range(3))(one)


def needs_tasks(tasks): ...
def needs_dims(dims): ...
def needs_units(units): ...
def needs_constants(constants): ...
def needs_inputs(inputs): ...
def has_units(seed, units="m"): ...


@pytest.mark.parametrize("name", ["tasks", "dims", "units", "constants", "inputs"])
def test_a_parameter_with_a_name_of_ours_is_refused(name: str) -> None:
    """The message names function and parameter, and says to rename it."""
    function = globals()[f"needs_{name}"]
    parameters: list[dict[str, object]] = [{name: ["a", "b"]}, {"seed": [1]}]
    for given in parameters:
        with pytest.raises(UsageError, match=f"needs_{name} has a parameter '{name}'.*rename"):
            h5sweep.sweep(**given)(function)  # type: ignore[arg-type]


def test_values_for_a_parameter_called_units_are_refused() -> None:
    """A parameter with a default is not mistaken for units of results, nor those for it."""
    with pytest.raises(UsageError, match=r"units=\['m', 'km'\].*has_units.*'units', rename it"):
        h5sweep.sweep(seed=[1], units=["m", "km"])(has_units)  # type: ignore[arg-type]
    assert h5sweep.sweep(seed=[1], units={"x": "m"})(has_units).units == {"x": "m"}


def has_inputs(seed, inputs=1): ...


@pytest.mark.parametrize("inputs", [[1, 2], 3, ["a.csv", None]])
def test_values_for_a_parameter_called_inputs_are_refused(inputs: object) -> None:
    with pytest.raises(UsageError, match=r"inputs are files.*has_inputs.*'inputs', rename it"):
        h5sweep.sweep(seed=[1], inputs=inputs)(has_inputs)  # type: ignore[call-overload]


@pytest.mark.parametrize("given", ['"site.csv"', 'Path("site.csv")', '[Path("site.csv")]'])
def test_one_input_may_be_given_by_itself(terminal: Terminal, study: Study, given: str) -> None:
    terminal.write("site.csv", "1")
    study(f"""
        from pathlib import Path
        @h5sweep.sweep(seed=range(1), inputs={given})
        def f(seed):
            return {{"x": seed}}
    """)
    terminal.run("run", "study.py", "-o", "out.h5")
    version = json.loads((terminal.folder / "out.h5.run/code/1.json").read_text())
    assert list(version["inputs"]) == ["site.csv"]


def test_a_folder_is_no_input(terminal: Terminal, study: Study) -> None:
    (terminal.folder / "data").mkdir()
    study("""
        @h5sweep.sweep(seed=range(1), inputs=["data"])
        def f(seed):
            return {"x": seed}
    """)
    said = terminal.run("run", "study.py", "-o", "out.h5", check=2).stderr
    assert "data is a folder: name the files in it" in said


def test_a_list_may_give_a_parameter_with_a_name_of_ours() -> None:
    """In a list of tasks the name cannot be mistaken."""
    assert len(h5sweep.sweep(tasks=[{"units": "m"}, {"units": "km"}])(needs_units).plan) == 2


def test_a_lambda_is_called_so() -> None:
    assert h5sweep.sweep(seed=range(3))(lambda seed: {"x": seed}).name == "lambda"


class Model:
    name = function = plan = "an attribute of the user's own"

    def __init__(self) -> None:
        self.units = self.dims = "m"

    def __call__(self, seed: int, x: int = 2) -> dict[str, object]:
        return {"y": seed * x}

    def simulate(self, seed: int) -> dict[str, object]:
        return {"y": seed}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (functools.partial(one), "one"),
        (functools.partial(functools.partial(Model(), x=3), x=4), "Model"),
        (Model().simulate, "simulate"),
        (Model(), "Model"),
    ],
    ids=["partial", "partial of a partial of an object", "method", "object"],
)
def test_whatever_can_be_called_can_be_swept(
    function: Callable[..., dict[str, object]], name: str
) -> None:
    """It is called as it is, and has the name of its function or of its class."""
    made = h5sweep.sweep(seed=range(3))(function)
    assert (made.name, len(made.plan), made.units) == (name, 3, {})
    assert made(seed=2) == function(seed=2)
    assert made.path == Path(__file__).resolve()


def test_what_does_not_say_its_parameters_is_refused() -> None:
    """Some built-in callables cannot be asked what they take."""
    with pytest.raises(UsageError, match="dict does not say which parameters it takes"):
        h5sweep.sweep(seed=range(3))(dict)


CALLABLES = """
from functools import partial

class Model:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, seed):
        return {"y": seed * self.factor}
    def simulate(self, seed):
        return {"y": seed + self.factor}

def power(seed, exponent):
    return {"y": seed**exponent}

sweep = h5sweep.sweep(seed=range(4))
cubes = sweep(partial(power, exponent=3))
tens = sweep(Model(10))
sums = sweep(Model(10).simulate)
"""


@pytest.mark.parametrize(
    ("name", "values"),
    [("power", [0, 1, 8, 27]), ("Model", [0, 10, 20, 30]), ("simulate", [10, 11, 12, 13])],
)
def test_workers_find_what_can_be_called(
    terminal: Terminal, study: Study, name: str, values: list[int]
) -> None:
    """A partial, an object and a method run in workers; the run folder knows their names."""
    study(CALLABLES)
    for _ in range(2):
        terminal.run("run", "study.py", "--sweep", name, "-o", "out.h5", "-j", 1)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["y"][:].tolist() == values
    other = min({"power", "Model"} - {name})
    refused = terminal.run("run", "study.py", "--sweep", other, "-o", "out.h5", check=2)
    assert f"belongs to the sweep '{name}', not to '{other}'" in refused.stderr


def test_two_sweeps_of_one_name_are_refused(terminal: Terminal, study: Study) -> None:
    """A worker could not tell which of them it is to run."""
    study(CALLABLES + "squares = sweep(partial(power, exponent=2))\n")
    refused = terminal.run("run", "study.py", "--sweep", "power", "-o", "out.h5", check=2)
    assert "has two sweeps called 'power'" in refused.stderr
    assert not (terminal.folder / "out.h5.run").exists()


CASES = """
@h5sweep.sweep(tasks="cases.csv", seed=range(2))
def f(farm, seed):
    return {"x": farm * 10 + seed}
"""


def test_each_case_is_run_with_each_seed(terminal: Terminal, study: Study) -> None:
    """The list varies slowest; the CSV lies beside the study, wherever the command is given."""
    (terminal.folder / "project").mkdir()
    terminal.write("project/cases.csv", "farm\n7\n3\n")
    terminal.write("cases.csv", "farm\n99\n")  # not beside the study
    study(CASES, "project/study.py")
    terminal.run("run", "project/study.py", "-o", "out.h5", "-j", 1)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [70, 71, 30, 31]


def test_a_csv_that_is_not_beside_the_study_is_looked_for_here(
    terminal: Terminal, study: Study
) -> None:
    """Then in the working directory; if it is nowhere, both places are named."""
    (terminal.folder / "project").mkdir()
    path = study(CASES, "project/study.py")
    refused = terminal.run("run", "project/study.py", "-o", "out.h5", check=2)
    assert "cannot read the tasks from cases.csv" in refused.stderr
    assert f"neither beside {path} nor in the working directory {terminal.folder}" in refused.stderr
    terminal.write("cases.csv", "farm\n99\n")
    terminal.run("run", "project/study.py", "-o", "out.h5", "-j", 1)
    with h5py.File(terminal.folder / "out.h5") as file:
        assert file["x"][:].tolist() == [990, 991]


def test_a_csv_of_a_notebook_is_looked_for_here(terminal: Terminal) -> None:
    """A function without a file has the working directory alone."""
    terminal.write("cases.csv", "farm\n7\n")
    code = f"import h5sweep\n{CASES}\nprint(len(f.plan))\n"
    assert python(terminal.folder, "-", stdin=code).stdout == "2\n"


OBJECTS = """
import datetime
from enum import Enum
from pathlib import Path

from sites import Site

class Kind(Enum):
    ON = 1
    OFF = 2

@h5sweep.sweep(
    day=[datetime.date(2024, 1, 31), datetime.date(2024, 2, 1)],
    hour=np.array(["2024-01-31T12"], "datetime64[h]"),
    path=[Path("a/b.yml")],
    kind=Kind,
    site=[Site.NORTH],
    pair=[(1, "a"), (2, "b")],
)
def f(day, hour, path, kind, site, pair):
    assert type(day) is datetime.date and isinstance(path, Path), (day, path)
    assert hour.dtype == "datetime64[h]" and hour == np.datetime64("2024-01-31T12"), hour
    assert kind in list(Kind) and site is Site.NORTH, (kind, site)
    return {"x": day.day + kind.value + len(path.parts) + pair[0], "y": pair[1]}

if __name__ == "__main__":
    f.run("out.h5", workers=1)
"""


def write_objects_study(terminal: Terminal, study: Study) -> None:
    terminal.write(
        "sites.py", "from enum import Enum\nSite = Enum('Site', 'NORTH', module='sites')\n"
    )
    study(OBJECTS)


def rows_of(path: Path, *names: str) -> list[tuple[object, ...]]:
    """The rows of some columns of an output, texts as str."""
    with h5py.File(path) as file:
        columns = [
            file[name].asstr() if file[name].dtype == object else file[name] for name in names
        ]
        return list(zip(*(column[:].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("how", ["command", "script"])
def test_a_function_gets_the_objects_that_were_declared(
    terminal: Terminal, study: Study, how: str
) -> None:
    """Workers call it with dates, paths, members and tuples; the output has their texts."""
    write_objects_study(terminal, study)
    if how == "script":
        done = python(terminal.folder, "study.py")
        assert done.returncode == 0, done.stderr
    else:
        terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    rows = rows_of(
        terminal.folder / "out.h5", "day", "hour", "path", "kind", "site", "pair", "x", "y"
    )
    assert len(rows) == 8
    assert rows[0] == ("2024-01-31", "2024-01-31T12", "a/b.yml", "ON", "NORTH", '[1, "a"]', 35, "a")
    assert rows[7] == ("2024-02-01", "2024-01-31T12", "a/b.yml", "OFF", "NORTH", '[2, "b"]', 7, "b")


def test_a_sweep_over_objects_resumes(terminal: Terminal, study: Study) -> None:
    """The same command finds every task done, and one more day adds its tasks alone."""
    write_objects_study(terminal, study)
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    again = terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    assert "8 kept, 0 to do" in again.stderr
    study(
        OBJECTS.replace(
            "datetime.date(2024, 2, 1)]", "datetime.date(2024, 2, 1), datetime.date(2024, 2, 2)]"
        )
    )
    more = terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    assert "the sweep has grown by 4 tasks" in more.stderr
    assert "8 kept, 4 to do" in more.stderr
    assert terminal.run("status", "out.h5", "--exit-code").stdout.endswith("complete\n")


def test_a_trial_gets_the_objects_that_were_declared(terminal: Terminal, study: Study) -> None:
    """`--try` calls the function as workers do."""
    write_objects_study(terminal, study)
    assert "8 ok" in terminal.run("run", "study.py", "-o", "out.h5", "--try", 8).stderr


def test_missing_tasks_have_texts_that_can_be_fed_back(terminal: Terminal, study: Study) -> None:
    """`missing` names objects by their texts; `arguments` makes the objects of a key."""
    write_objects_study(terminal, study)
    code = (
        "from study import f; key = f.missing('out.h5')[0].key; print(key['day'], key['kind'])\n"
        "print(f(**f.arguments(key))['x'])"
    )
    assert python(terminal.folder, "-c", code).stdout == "2024-01-31 ON\n35\n"


def test_a_recorder_takes_the_objects_that_a_sweep_takes(terminal: Terminal, study: Study) -> None:
    """A result recorded under a date is that of the task with this date."""
    study("""
        import datetime
        @h5sweep.sweep(day=[datetime.date(2024, 1, 31), datetime.date(2024, 2, 1)])
        def f(day): return {"x": day.day}
    """)
    with h5sweep.Recorder(terminal.folder / "out.h5") as recorder:
        recorder.write({"day": datetime.date(2024, 1, 31)}, x=31)
    assert "1 kept, 1 to do" in terminal.run("run", "study.py", "-o", "out.h5", "-j", 1).stderr
    assert rows_of(terminal.folder / "out.h5", "day", "x") == [
        ("2024-01-31", 31),
        ("2024-02-01", 1),
    ]


NEAR = """
@h5sweep.sweep(x={values}, seed=range(2))
def f(x, seed):
    return {{"y": x}}
"""


def test_a_value_that_differs_by_rounding_is_the_same_task(
    terminal: Terminal, study: Study
) -> None:
    """0.1 + 0.2 finds the results of 0.3; it is said once, and new tasks get the 0.3."""
    study(NEAR.format(values="[0.3]"))
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    study(NEAR.format(values="[0.1 + 0.2]").replace("range(2)", "range(3)"))
    status = python(terminal.folder, "-c", "from study import f; print(f.status('out.h5').missing)")
    assert status.stdout == "1\n"
    again = terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    assert "2 kept, 1 to do" in again.stderr
    assert again.stderr.count("x=0.30000000000000004 differs from 0.3, which earlier runs had") == 1
    assert rows_of(terminal.folder / "out.h5", "x", "y") == [(0.3, 0.3)] * 3


def test_values_that_differ_by_rounding_are_pointed_out(terminal: Terminal, study: Study) -> None:
    """Both are run: a sweep may mean it."""
    study(NEAR.format(values="[0.3, 0.1 + 0.2]"))
    done = terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    assert "x has the values 0.3 and 0.30000000000000004, which differ by rounding" in done.stderr
    assert len(rows_of(terminal.folder / "out.h5", "x")) == 4


def test_a_default_that_is_written_out_later_is_the_same_task(
    terminal: Terminal, study: Study
) -> None:
    """A task that left it out has its result already."""
    body = """
        @h5sweep.sweep(tasks=[{{"seed": 1{first}}}, {{"seed": 2, "x": 5}}])
        def f(seed, x=3): return {{"y": seed * x}}
    """
    study(body.format(first=""))
    terminal.run("run", "study.py", "-o", "out.h5", "-j", 1)
    study(body.format(first=', "x": 3'))
    assert "2 kept, 0 to do" in terminal.run("run", "study.py", "-o", "out.h5", "-j", 1).stderr
    assert rows_of(terminal.folder / "out.h5", "seed", "x", "y") == [(1, 3, 3), (2, 5, 10)]
