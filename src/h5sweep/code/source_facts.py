"""What the source of a module says without running it: imports, variables, names, a digest."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_READERS = {"get", "getenv", "getenvb", "pop", "setdefault"}
_ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "expandvars"}
_IN_TEXT = re.compile(r"^\w+$|(?<=\$)\w+|(?<=\$\{)\w+")  # of `KK` and `$KK/data`
_SECRET = ("KEY", "TOKEN", "PASSWORD", "SECRET")


class Import(NamedTuple):
    """`from ..base import names`, or `import base`; the name ALL stands for all that is in it."""

    level: int
    base: str
    names: tuple[str, ...] = ()


ALL = "<all>"


@dataclass
class SourceFacts:
    """What one source says. `digest` is the same for sources that differ in comments and layout.

    Nor does it change with what a sweep is run over, or with what a script does as a script:
    decorators called `sweep`, main guards and calls of `run` are not what a task computes.
    """

    imports: list[Import] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)  # of the environment, read by functions
    asks_for_any: bool = False  # whether functions read variables that no text there names
    texts: set[str] = field(default_factory=set)  # that may be names of variables, in any source
    attributes: set[str] = field(default_factory=set)  # that it asks of modules or anything else
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
    reading = _Reading(facts)
    statements = tree.body
    reading.set_aside += [one for one in statements if _is_of_the_script(one, sweeps)]
    tree.body = [one for one in statements if one not in reading.set_aside]
    content = reading.of(tree)
    while reading.set_aside:
        reading.of(reading.set_aside.pop())
    if facts.attributes & _ENVIRONMENT:
        tree.body = statements
        _take_variables(facts, tree)
    facts.digest = digest_of(content.encode("utf-8", "replace"))
    return facts


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def is_secret(variable: str) -> bool:
    """Whether a variable of the environment is called like something that nobody should read."""
    return any(word in variable.upper() for word in _SECRET)


class _Reading:
    """Takes the facts of each node of a source, in one pass; sources are read at every start."""

    def __init__(self, facts: SourceFacts) -> None:
        self._facts = facts
        self.set_aside: list[ast.AST] = []  # what the digest leaves out
        self._takes: dict[type, Callable[[Any], None]] = {
            ast.Attribute: self._attribute,
            ast.Constant: self._constant,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.Call: self._call,
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
        }

    def of(self, tree: ast.AST) -> str:
        """A text that is the same for trees that are: kinds of nodes, with their fields.

        Fields that are empty are left out, because newer versions of Python have more of them.
        """
        words: list[str] = []
        left: list[Any] = [tree]
        while left:
            node = left.pop()
            if isinstance(node, ast.AST):
                kind = type(node)
                if (take := self._takes.get(kind)) is not None:
                    take(node)
                words.append(kind.__name__)
                for name in kind._fields:
                    value = getattr(node, name, None)
                    if value is not None and value != [] and name != "ctx":  # told by its place
                        words.append(name)
                        left.append(value)
            elif isinstance(node, list):
                words.append(str(len(node)))
                left += node
            else:
                words.append(repr(node))
        return " ".join(words)

    def _attribute(self, node: ast.Attribute) -> None:
        self._facts.attributes.add(node.attr)

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            self._facts.texts.update(_IN_TEXT.findall(text))

    def _import(self, node: ast.Import) -> None:
        self._facts.imports += [Import(0, alias.name) for alias in node.names]

    def _import_from(self, node: ast.ImportFrom) -> None:
        names = tuple(alias.name for alias in node.names)
        self._facts.imports.append(Import(node.level, node.module or "", names))
        self._facts.attributes.update(names)

    def _call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Call) and _is_sweep(node.func):
            self.set_aside += node.func.keywords  # `sweep(...)(f)`, as a decorator of f
            node.func.keywords = []
        elif (called := _called(node)) == "getattr":
            self._facts.attributes.update(_text(argument) for argument in node.args[1:2])
        elif called in ("import_module", "__import__"):
            self._facts.imports += [_named_import(argument) for argument in node.args[:1]]

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        sweeps = [one for one in node.decorator_list if _is_sweep(one)]
        if sweeps:
            self.set_aside += sweeps
            node.decorator_list = [one for one in node.decorator_list if one not in sweeps]


def _called(node: ast.Call) -> str:
    """The last name of what is called."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", "")))


def _named_import(name: ast.expr) -> Import:
    """What `import_module(name)` may import: of `"models." + kind`, all that is in models."""
    first = name
    while not isinstance(first, ast.Constant) and (inner := _first_part(first)) is not None:
        first = inner
    text = _text(first)
    base = text.lstrip(".")
    level = len(text) - len(base)
    if first is name:
        return Import(level, base)
    return Import(level, base.rpartition(".")[0], (ALL,))


def _first_part(text: ast.expr) -> ast.expr | None:
    """What a text that is put together begins with: `"a" + b`, `"a%s" % b`, `f"a{b}"`, format."""
    if isinstance(text, ast.BinOp):
        return text.left
    if isinstance(text, ast.JoinedStr):
        return text.values[0] if text.values else None
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute):
        return text.func.value
    return None


def _take_variables(facts: SourceFacts, tree: ast.Module) -> None:
    """Those that functions read; what is read at import shows in the values of globals."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    names = {
        getattr(target, "id", ""): _text(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
    }
    asking = _EnvironmentNames.of(tree)
    for function in (node for node in ast.walk(tree) if isinstance(node, functions)):
        nodes = list(ast.walk(function))
        for asked in filter(None, map(asking.variable, nodes)):
            facts.variables.add(names.get(getattr(asked, "id", ""), _text(asked)))
        facts.asks_for_any |= asking.is_used_otherwise(nodes)
    facts.asks_for_any |= "" in facts.variables
    facts.variables.discard("")


class _EnvironmentNames(NamedTuple):
    """What a source calls `os.environ`, `os.getenv` and methods of these."""

    environments: set[str]
    readers: set[str]

    @classmethod
    def of(cls, tree: ast.Module) -> _EnvironmentNames:
        """These and their other names: `from os import environ as e`, `env = os.environ`."""
        found = cls({"environ", "environb"}, {"getenv", "getenvb"})
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "os":
                for alias in node.names:
                    found._add(ast.Name(alias.name), alias.asname or alias.name)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    found._add(node.value, getattr(target, "id", ""))
        return found

    def _add(self, value: ast.expr, name: str) -> None:
        if self._is_environment(value):
            self.environments.add(name)
        elif self._asks(value):
            self.readers.add(name)

    def variable(self, node: ast.AST) -> ast.expr | None:
        """What stands for the name of a variable, where the environment is asked for one."""
        if isinstance(node, ast.Call) and self._asks(node.func) and node.args:
            return node.args[0]
        if isinstance(node, ast.Subscript) and self._is_environment(node.value):
            return node.slice if isinstance(node.ctx, ast.Load) else None
        if isinstance(node, ast.Compare) and any(map(self._is_environment, node.comparators)):
            return node.left
        return None

    def is_used_otherwise(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether the environment is used as a whole, or handed on: `dict(os.environ)`."""
        usual: set[ast.AST] = set()
        for node in nodes:
            if isinstance(node, ast.Subscript | ast.Assign):
                usual.add(node.value)
            elif isinstance(node, ast.Compare):
                usual.update(node.comparators)
            elif isinstance(node, ast.Call) and self.variable(node):
                usual.add(node.func)
        usual |= {one.value for one in usual if isinstance(one, ast.Attribute)}
        return any(self._is_read(node) for node in nodes if node not in usual)

    def _is_read(self, node: ast.AST) -> bool:
        """Whether it stands for the environment, what reads it, or what reads all of it."""
        if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
            return False
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        return name == "expandvars" or self._is_environment(node) or self._asks(node)

    def _asks(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Name):
            return function.id in self.readers
        if not isinstance(function, ast.Attribute) or function.attr not in _READERS:
            return False
        return function.attr in self.readers or self._is_environment(function.value)

    def _is_environment(self, node: ast.expr) -> bool:
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        return name in self.environments


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _swept(function: ast.FunctionDef) -> bool:
    return any(map(_is_sweep, function.decorator_list))


def _is_sweep(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(called, "attr", getattr(called, "id", "")) == "sweep"


def read_settings(text: str) -> list[tuple[str, str]]:
    """What calls a function of a package for its effect, as `jax.config.update(...)` does.

    What was imported, and the call; nothing in a source that does not parse.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    packages: dict[str, str] = {}
    found, done = [], list[ast.stmt]()
    nodes = list(ast.walk(tree))
    _runs(
        tree.body, done, {n.name: n for n in nodes if isinstance(n, ast.FunctionDef)}, _made(nodes)
    )
    for statement in done:
        if getattr(statement, "level", 0):
            continue  # of its own package
        if isinstance(statement, ast.Import | ast.ImportFrom):
            source = getattr(statement, "module", None)
            for one in statement.names:
                name = one.asname or one.name.partition(".")[0]
                packages[name] = f"{source}.{one.name}" if source else one.name
        for what, target in _effects(statement):
            root = _root_of(target)
            if root in packages and (not isinstance(target, ast.Name) or "(" in what):
                found.append((packages[root], what.format(ast.unparse(target))))
    return found


def _root_of(node: ast.expr) -> str:
    """The name that `rcParams["figure.dpi"]` or `getcontext().prec` begins with."""
    inner: Any = node
    while isinstance(inner, ast.Attribute | ast.Subscript | ast.Call):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return str(getattr(inner, "id", ""))


def _effects(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """What a statement calls, alone or as a context, or assigns to."""
    calls = [item.context_expr for item in getattr(statement, "items", ())]
    if isinstance(statement, ast.Expr):
        calls.append(statement.value)
    for call in calls:
        if isinstance(call, ast.Call):
            yield "{}(...)", call.func
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        targets = [statement.target]
    for target in targets:
        yield "{} = ...", target
    for target in statement.targets if isinstance(statement, ast.Delete) else ():
        yield "del {}", target


def _made(nodes: Iterable[ast.AST]) -> set[str]:
    """What sweeps are called that are made without a decorator: `f = sweep(...)(g)`."""
    return {
        getattr(target, "id", "")
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if _is_sweep(node.value.func)
    }


def _runs(
    body: list[ast.stmt],
    done: list[ast.stmt],
    functions: dict[str, ast.FunctionDef],
    made: set[str],
) -> bool:
    """Whether statements run a sweep, also by calling `main()`; what is done before is noted."""
    sweeps = {name for name, one in functions.items() if _swept(one)} | made
    for statement in body:
        if not isinstance(statement, ast.If) and _is_of_the_script(statement, sweeps):
            return True
        done.append(statement)
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        others, parts = dict(functions), [getattr(statement, name, []) for name in _PARTS]
        for called in _called_in(statement) if not any(parts) else ():
            if getattr(called, "attr", "") == "run" and getattr(called.value, "id", "") in sweeps:
                done.pop()
                return True
            if inside := others.pop(getattr(called, "id", ""), None):
                parts.append(inside.body)
        if any(_runs(part, done, others, made) for part in parts):
            return True
    return False


_PARTS = ("body", "orelse", "finalbody")


def _called_in(statement: ast.stmt) -> Iterator[Any]:
    """What a simple statement calls, as `sys.exit(main())` does; not what a lambda will call."""
    nodes = list(ast.walk(statement))
    if not any(isinstance(node, ast.Lambda) for node in nodes):
        yield from (node.func for node in nodes if isinstance(node, ast.Call))


def _is_of_the_script(statement: ast.stmt, sweeps: set[str]) -> bool:
    """Whether it is a main guard, or runs a sweep of the file, as `report = optimise.run(...)`."""
    if isinstance(statement, ast.If):
        return any(getattr(n, "id", "") == "__name__" for n in ast.walk(statement.test))
    called = getattr(getattr(statement, "value", None), "func", None)
    if not isinstance(called, ast.Attribute) or called.attr != "run":
        return False
    return getattr(called.value, "id", "") in sweeps
