"""What a PromQL query names: series, and labels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    VectorSelector,
)


@dataclass(frozen=True, slots=True)
class Selector:
    """A series that a query asks for, and the labels by which it selects."""

    name: str
    labels: frozenset[str]


def selectors(expression: Expr) -> Iterator[Selector]:
    """Yield all selectors of a query."""
    for found in _all(expression):
        if isinstance(found, VectorSelector):
            labels = frozenset(str(one.name) for one in found.matchers.matchers)
            yield Selector(str(found.name), labels)


def labels_of(expression: Expr) -> set[str]:
    """Return the labels that a query groups or matches by."""
    found: set[str] = set()
    for one in _all(expression):
        modifier = getattr(one, "modifier", None)
        if isinstance(one, AggregateExpr) and modifier is not None:
            found |= set(modifier.labels)
        elif isinstance(one, BinaryExpr) and modifier is not None and modifier.matching is not None:
            found |= set(modifier.matching.labels)
    return found


def _all(expression: Expr) -> Iterator[Expr]:
    yield expression
    for part in _parts(expression):
        yield from _all(part)


def _parts(expression: Any) -> list[Any]:  # noqa: ANN401 - the parser's classes share no type that says more
    match expression:
        case BinaryExpr():
            return [expression.lhs, expression.rhs]
        case AggregateExpr():
            return [expression.expr, *([expression.param] if expression.param is not None else [])]
        case Call():
            return list(expression.args)
        case MatrixSelector():
            return [expression.vector_selector]
        case ParenExpr() | SubqueryExpr() | UnaryExpr():
            return [expression.expr]
        case VectorSelector() | NumberLiteral() | StringLiteral():
            return []
        case _:
            raise TypeError(f"{type(expression)}: not known here")
