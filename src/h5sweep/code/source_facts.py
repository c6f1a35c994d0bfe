"""What the source of a module says without running it: imports, variables, names, a digest."""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

_READERS = {"get", "getenv", "pop", "setdefault"}
_SECRET = ("KEY", "TOKEN", "PASSWORD", "SECRET")


class Import(NamedTuple):
    """`from ..base import names`, or `import base`."""

    level: int
    base: str
    names: tuple[str, ...] = ()


@dataclass
class SourceFacts:
    """What one source says. `digest` is the same for sources that differ in comments and layout.

    Nor does it change with what a sweep is run over, or with what a script does as a script:
    decorators called `sweep`, main guards and calls of `run` are not what a task computes.
    """

    imports: list[Import] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)  # of the environment, read by functions
    attributes: set[str] = field(default_factory=set)  # that it asks of modules or anything else
    settings: list[tuple[str, str]] = field(default_factory=list)  # packages, calls of theirs
    digest: str = ""


def read_source(text: str) -> SourceFacts:
    """The facts of a source; of one that does not parse, a digest of its text."""
    facts = SourceFacts()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        facts.digest = digest_of(text.encode("utf-8", "replace"))
        return facts
    sweeps = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _swept(node)}
    for node in ast.walk(tree):
        _take(facts, node)
    if facts.attributes & {"environ", "getenv"}:
        _take_variables(facts, tree)
    facts.settings = _settings(tree, sweeps)
    tree.body = [one for one in tree.body if not _is_of_the_script(one, sweeps)]
    facts.digest = digest_of(ast.dump(tree).encode("utf-8", "replace"))
    return facts


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def is_secret(variable: str) -> bool:
    """Whether a variable of the environment is called like something that nobody should read."""
    return any(word in variable.upper() for word in _SECRET)


def _take(facts: SourceFacts, node: ast.AST) -> None:
    if isinstance(node, ast.Attribute):
        facts.attributes.add(node.attr)
    elif isinstance(node, ast.Import):
        facts.imports += [Import(0, alias.name) for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names)
        facts.imports.append(Import(node.level, node.module or "", names))
        facts.attributes.update(names)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr":
        facts.attributes.update(_text(argument) for argument in node.args[1:2])
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        node.decorator_list = [d for d in node.decorator_list if not _is_sweep(d)]


def _take_variables(facts: SourceFacts, tree: ast.Module) -> None:
    """Those that functions read; what is read at import shows in the values of globals."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    names = {
        getattr(target, "id", ""): _text(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    }
    for function in (node for node in ast.walk(tree) if isinstance(node, functions)):
        for asked in filter(None, map(_asked_variable, ast.walk(function))):
            facts.variables.add(names.get(getattr(asked, "id", ""), _text(asked)))
    facts.variables.discard("")


def _asked_variable(node: ast.AST) -> ast.expr | None:
    """What stands for the name of a variable, where the environment is asked for one."""
    if isinstance(node, ast.Call) and _asks_environment(node.func) and node.args:
        return node.args[0]
    if isinstance(node, ast.Subscript) and _is_environment(node.value):
        return node.slice if isinstance(node.ctx, ast.Load) else None
    if isinstance(node, ast.Compare) and any(map(_is_environment, node.comparators)):
        return node.left
    return None


def _asks_environment(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "getenv"
    if not isinstance(function, ast.Attribute) or function.attr not in _READERS:
        return False
    return function.attr == "getenv" or _is_environment(function.value)


def _is_environment(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name == "environ"


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _swept(function: ast.FunctionDef) -> bool:
    return any(map(_is_sweep, function.decorator_list))


def _is_sweep(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) == "sweep"


def _settings(tree: ast.Module, sweeps: set[str]) -> list[tuple[str, str]]:
    """What calls a function of a package, alone at the top, as `jax.config.update(...)` does."""
    packages: dict[str, str] = {}
    found = []
    for statement in tree.body:
        if _is_of_the_script(statement, sweeps):
            break
        if isinstance(statement, ast.Import | ast.ImportFrom):
            source = getattr(statement, "module", None)
            for one in statement.names:
                name = one.asname or one.name.partition(".")[0]
                packages[name] = (source or one.name).partition(".")[0]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            call = ast.unparse(statement.value.func)
            if package := packages.get(call.partition(".")[0]):
                found.append((package, f"{call}(...)"))
        elif isinstance(statement, ast.Assign):
            for target in map(ast.unparse, statement.targets):
                root, dot, _ = target.partition(".")
                if dot and root in packages:
                    found.append((packages[root], f"{target} = ..."))
    return found


def _is_of_the_script(statement: ast.stmt, sweeps: set[str]) -> bool:
    """Whether it is a main guard, or runs a sweep of the file, as `report = optimise.run(...)`."""
    if isinstance(statement, ast.If):
        return any(getattr(n, "id", "") == "__name__" for n in ast.walk(statement.test))
    called = getattr(getattr(statement, "value", None), "func", None)
    if not isinstance(called, ast.Attribute) or called.attr != "run":
        return False
    return getattr(called.value, "id", "") in sweeps
