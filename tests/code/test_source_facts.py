"""Digests of sources: the same for what computes the same, another one for everything else."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import h5sweep
from h5sweep.code.source_facts import read_source

TASK = "def task(seed):\n    return {'aep': 1.0 * seed}\n"


@pytest.mark.parametrize(
    "other",
    [
        TASK.replace("'", '"') + "\n# nothing\n",
        TASK.replace("1.0 * seed", "(1.0 *\n        seed)"),
        "@h5sweep.sweep(seed=range(9))\n" + TASK,
        TASK + "if __name__ == '__main__':\n    print(task(2))\n",
    ],
    ids=["quotes and comments", "layout", "another range", "a main guard"],
)
def test_what_computes_the_same_has_one_digest(other: str) -> None:
    assert read_source(other).digest == read_source(TASK).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{**a, b: a}", "{b: a, **a}"),
        ("a[b:]", "a[:b]"),
        ("f(None)", "f()"),
        ("f('1')", "f(1)"),
        ("1", "1.0"),
        ("a - b - c", "a - (b - c)"),
        ("[a, [b, c]]", "[[a, b], c]"),
        ("lambda a, b=1: a", "lambda a=1, *, b: a"),
        ("(yield), a", "(yield a),"),
        ("'name'", "name"),
    ],
)
def test_what_computes_something_else_has_another(one: str, other: str) -> None:
    digests = {read_source(f"def f():\n    return {text}").digest for text in (one, other)}
    assert len(digests) == 2


def test_two_functions_have_one_digest_only_if_python_reads_them_alike() -> None:
    """Of all that this package has; Python's own dump of the tree says what is alike."""
    dumps, count = defaultdict(set), 0
    for path in Path(h5sweep.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.stmt):
                dumps[read_source(ast.unparse(node)).digest].add(ast.dump(node))
                count += 1
    assert count > 10_000
    assert [found for found in dumps.values() if len(found) > 1] == []


def test_what_the_digest_leaves_out_is_read_all_the_same() -> None:
    """A main guard may import what workers need, and a decorator may name a variable."""
    facts = read_source(
        "import h5sweep\n@h5sweep.sweep(seed=range(int(o.N)), site='SITE')\n" + TASK + "if "
        "__name__ == '__main__':\n    import tools\n"
    )
    assert {one.base for one in facts.imports} == {"h5sweep", "tools"}
    assert "SITE" in facts.texts
    assert "N" in facts.attributes
