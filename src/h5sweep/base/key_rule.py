"""How a task's key is found in files of other programs: by --key or by a plan."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import UsageError
from .key_pattern import KeyPattern, number_in
from .plan import Key, Plan, Value, check_names, checked_value

KeyRow = tuple[Value, ...]  # the values of a key, in the order of the rule's names
_MOST = 2**63
_MOST_KNOWN = 100_000


@dataclass(frozen=True)
class KeyRule:
    """The names of a key: of attributes, single values or columns, or the fields of a pattern.

    With a pattern, keys stand in the names of groups or files. Without names, nobody has said it.
    """

    names: tuple[str, ...] = ()
    pattern: KeyPattern | None = None
    expected: Plan | None = None
    is_guess: bool = False
    _known: dict[Hashable, Value] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @classmethod
    def parse(cls, text: str | None, expected: Plan | None = None) -> KeyRule:
        """`farm{farm_id:d}_s{seed:d}` is a pattern, `farm_id,seed` are names; else the plan's."""
        if text is None:
            return cls(() if expected is None else expected.names, None, expected)
        pattern = KeyPattern.parse(text) if "{" in text or "}" in text else None
        names = pattern.names if pattern else tuple(n.strip() for n in text.split(",") if n.strip())
        if not names:
            raise UsageError("--key names nothing: write it like farm_id,farm_type,seed")
        check_names(names)
        # A name may tell more than the key, so a pattern may have more fields than the plan.
        planned = set(names) if expected is None else set(expected.names)
        is_over_all = planned <= set(names) if pattern else planned == set(names)
        if expected is not None and not is_over_all:
            mine, theirs = ", ".join(names), ", ".join(expected.names)
            raise UsageError(
                f"the key is {mine}, but the key of the expected tasks is {theirs}: correct --key"
            )
        return cls(names, pattern, expected)

    @property
    def text(self) -> str:
        """The rule as a report says it."""
        if self.pattern is not None:
            return f"names like {self.pattern.text}"
        return ", ".join(self.names) + (" (guessed from attributes)" if self.is_guess else "")

    def checked(self, key: Mapping[str, object] | None) -> Key | None:
        """A key as it may stand in a record, with the types of the plan; None if it cannot be."""
        try:
            plain = {name: checked_value(name, value) for name, value in (key or {}).items()}
        except UsageError:
            return None
        if self.expected is None or not plain:
            return plain or None
        number = number_in(self.expected, plain)
        return plain if number is None else self.expected.key(number)

    def is_expected(self, key: Key) -> bool:
        return self.expected is None or self.expected.number(key) is not None

    def row(self, key: Mapping[str, object]) -> KeyRow:
        """The values in the order of the names; UsageError for one that no key may have."""
        return self.checked_row([key[name] for name in self.names])

    def checked_row(self, values: Iterable[object]) -> KeyRow:
        """The same for values that are in that order already."""
        return next(self.checked_rows([value] for value in values))

    def checked_rows(self, columns: Iterable[Iterable[object]]) -> Iterator[KeyRow]:
        """The same for many keys: a column of values for each name."""
        checked = [
            [v if type(v) is int and -_MOST <= v < _MOST else self._value(name, v) for v in column]
            for name, column in zip(self.names, columns, strict=True)
        ]
        return zip(*checked, strict=True)

    def _value(self, name: str, value: object) -> Value:
        if not isinstance(value, Hashable):
            return checked_value(name, value)
        known = (name, type(value), value)
        found = self._known.get(known)
        if found is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            found = self._known[known] = checked_value(name, value)
        return found

    def key(self, row: KeyRow) -> Key:
        return dict(zip(self.names, row, strict=True))
