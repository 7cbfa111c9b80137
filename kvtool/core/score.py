"""How good a snapshot is to delete: a number, from an expression over what is known of the snapshot.

The expression is Python's arithmetic and comparisons over a few names and functions, evaluated by simpleeval,
which runs no code. What it cannot mean is told at start, with the place, and not at the first snapshot.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kvtool.errors import UsageError

DEFAULT = "unique_bytes / max(size, 1) * idle / 3600 / (1 + uses)"
"""What deletion frees beside what it would cost to compute again, which grows with the size; times the hours
since it was last used, and less for what has been used often."""

_LENGTH_MAX = 1000


@dataclass(frozen=True, slots=True)
class Facts:
    """What an expression may speak of: bytes, counts, and seconds since creation and since the last use."""

    size: int = 0
    unique_bytes: int = 0
    shared_bytes: int = 0
    uses: int = 0
    age: float = 0.0
    idle: float = 0.0
    tokens: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


_SAMPLE = Facts(300 << 20, 200 << 20, 100 << 20, 3, 7200.0, 3600.0, 30_000)
_NAMES = tuple(Facts.__slots__)


class _Labels(dict[str, str]):
    """Labels, where one that is not set is empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _number(text: object) -> float:
    """The number that a label holds, 0 for any other text."""
    try:
        return float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return 0.0


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "log": math.log,
    "max": max,
    "min": min,
    "number": _number,
    "sqrt": math.sqrt,
}


def _of_numbers(action: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """An operator for numbers alone, as floats: nothing that text or large integers would blow up."""

    def act(one: Any, other: Any) -> Any:
        if isinstance(one, str | dict) or isinstance(other, str | dict):
            raise TypeError("a text is no number: number(...) makes one of it")
        return action(float(one), float(other))

    return act


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: _of_numbers(operator.add),
    ast.Sub: _of_numbers(operator.sub),
    ast.Mult: _of_numbers(operator.mul),
    ast.Div: _of_numbers(operator.truediv),
    ast.FloorDiv: _of_numbers(operator.floordiv),
    ast.Mod: _of_numbers(operator.mod),
    ast.Pow: _of_numbers(operator.pow),
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_STRUCTURE = (ast.Expression, ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare)
_ALLOWED = (*_STRUCTURE, ast.IfExp, ast.Call, ast.Subscript, ast.Load, ast.And, ast.Or, *_OPERATORS)


class Score:
    """A checked expression. Raises UsageError that names the place of what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._line = " ".join(text.split())
        if len(self._line) > _LENGTH_MAX:
            raise UsageError(f"the expression is longer than {_LENGTH_MAX} characters")
        self._tree = self._parse()
        self._called: set[ast.AST] = set()  # names in their place as functions
        for node in ast.walk(self._tree):
            self._check(node)
        self._try_out()

    @cached_property
    def needs_tokens(self) -> bool:
        """Whether it speaks of tokens, which have to be read from the snapshot itself."""
        return any(isinstance(node, ast.Name) and node.id == "tokens" for node in ast.walk(self._tree))

    def of(self, facts: Facts) -> float:
        """The score of one snapshot; 0 where the expression has none (a division by zero, say)."""
        try:
            value = float(self._evaluate(self._tree.body, facts))
        except (ArithmeticError, TypeError, ValueError, RecursionError):
            return 0.0
        return round(value, 3) if math.isfinite(value) else 0.0

    def _parse(self) -> ast.Expression:
        try:
            return ast.parse(self._line, mode="eval")
        except SyntaxError as error:
            # 0 stands for the end.
            raise self._error((error.offset or len(self._line) + 1) - 1, error.msg) from None
        except ValueError as error:  # null bytes, before Python 3.11.4
            raise self._error(0, str(error)) from None
        except (MemoryError, RecursionError):
            raise self._error(0, "too deep") from None

    def _check(self, node: ast.AST) -> None:
        """Refuses what the expression may not contain, wherever in it."""
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTIONS:
                text = f"{ast.unparse(node.func)} is no function here; there are {', '.join(_FUNCTIONS)}"
                raise self._at(node, text)
            if node.keywords:
                raise self._at(node, "functions take no arguments by name")
            self._called.add(node.func)
        elif isinstance(node, ast.Name) and node.id not in _NAMES and node not in self._called:
            raise self._at(node, f"{node.id} is not known; there are {', '.join(_NAMES)}")
        elif not isinstance(node, _ALLOWED):
            raise self._at(node, f"{type(node).__name__} is not possible here")

    def _try_out(self) -> None:
        """Evaluates it for a snapshot as they are: what fails then would fail for every one."""
        try:
            value = self._evaluate(self._tree.body, _SAMPLE)
        except RecursionError:
            raise self._error(0, "too deep") from None
        except Exception as error:
            node, reason = self._culprit(self._tree.body) or (self._tree.body, error)
            raise self._at(node, str(reason.args[-1] if reason.args else reason)) from None
        if not isinstance(value, int | float):
            shown = f"'{value}'" if isinstance(value, str) else repr(value)
            raise self._at(self._tree.body, f"its value is no number but {shown}")

    def _culprit(self, node: ast.expr) -> tuple[ast.expr, Exception] | None:
        """The innermost part that has no value, and why."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and child not in self._called:
                found = self._culprit(child)
                if found is not None:
                    return found
        try:
            self._evaluate(node, _SAMPLE)
        except Exception as error:
            return node, error
        return None

    def _evaluate(self, node: ast.expr, facts: Facts) -> Any:
        from simpleeval import SimpleEval

        names = {name: getattr(facts, name) for name in _NAMES} | {"labels": _Labels(facts.labels)}
        # One for each: it keeps the names, and several threads may ask for a score at once.
        evaluator = SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=names)
        return evaluator.eval(self._line, previously_parsed=node)

    def _at(self, node: ast.AST, text: str) -> UsageError:
        offset = getattr(node, "col_offset", 0)  # in bytes of UTF-8
        return self._error(len(self._line.encode()[:offset].decode(errors="ignore")), text)

    def _error(self, offset: int, text: str) -> UsageError:
        rest = self._line[offset : offset + 20]
        place = f"at character {offset + 1} ('{rest}')" if rest else "at its end"
        return UsageError(f"'{self._line}' is wrong {place}: {text}")
