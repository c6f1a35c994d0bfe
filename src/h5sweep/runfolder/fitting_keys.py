"""Keys that are in records but not in the plan: which of them can become tasks.

All keys of an output are over the same parameters, each of one type. One process that forgot a
parameter must not keep the results of all others from being merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..base.listed_plan import plan_list
from ..base.plan import Key, Plan, Value


def types_of_keys(plan: Plan, keys: Sequence[Key]) -> dict[str, str]:
    """The type of each parameter: as the plan has it or, without one, as most of the keys do."""
    return plan.types if plan.columns else _commonest_types(keys)


def fitted_key(key: Mapping[str, Value], types: Mapping[str, str]) -> Key | None:
    """The key with its values in these types; None if it has others, or other parameters."""
    if key.keys() != types.keys():
        return None
    fitted = {name: _typed(key[name], type_name) for name, type_name in types.items()}
    return None if None in fitted.values() else fitted  # type: ignore[return-value]  # checked here


def plan_of_keys(keys: Sequence[Key], types: Mapping[str, str]) -> Plan | None:
    """A plan of those keys that fit, each once; None if none does."""
    fitting = {tuple(fitted.values()): fitted for k in keys if (fitted := fitted_key(k, types))}
    return plan_list(list(fitting.values())) if fitting else None


def misfit_text(key: Mapping[str, Value], types: Mapping[str, str]) -> str:
    """What is wrong with a key that does not fit: `seed='x' is a text, not an integer`."""
    if key.keys() != types.keys():
        return f"its key has {', '.join(key)}, not {', '.join(types)}"
    name = next(name for name, wanted in types.items() if _typed(key[name], wanted) is None)
    words = {"bool": "a truth value", "int": "an integer", "float": "a number", "str": "a text"}
    return f"{name}={key[name]!r} is {words[type(key[name]).__name__]}, not {words[types[name]]}"


def _commonest_types(keys: Sequence[Key]) -> dict[str, str]:
    """The parameters that most keys have, and of each the type that most of its values have."""
    if not keys:
        return {}
    names = Counter(tuple(key) for key in keys).most_common(1)[0][0]
    alike = [key for key in keys if set(key) == set(names)]
    types = {}
    for name in names:
        counts = Counter(type(key[name]).__name__ for key in alike)
        numbers = counts["int"] + counts["float"]
        has_floats = counts["float"] > 0 and numbers >= counts["str"]
        types[name] = "float" if has_floats else counts.most_common(1)[0][0]
    return types


def _typed(value: Value, type_name: str) -> Value | None:
    """A value from JSON, where infinity is a text, in this type; None if it is of another."""
    if type(value).__name__ == type_name:
        return value
    if type_name == "float" and (type(value) is int or value in ("inf", "-inf")):
        return float(value)
    if type_name == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return None
