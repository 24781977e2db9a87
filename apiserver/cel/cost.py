"""Cost limits of evaluations, and the costs of steps.

Limits are Kubernetes' (``k8s.io/apiserver/pkg/apis/cel``), costs cel-go's at run time and Kubernetes' library costs
(``pkg/cel/library/cost.go``); ``tests/reference_cel`` compares the totals.
"""

from __future__ import annotations

from typing import Final

from apiserver.cel.values import Message, Opaque, Optional, Value, from_key

PER_CALL_LIMIT: Final = 1_000_000
RUNTIME_BUDGET: Final = 10_000_000
"""Of a policy, per binding and parameter."""
MATCH_CONDITIONS_BUDGET: Final = 2_500_000
"""Of a webhook or policy."""
MAX_MESSAGE_BYTES: Final = 5 * 1024
"""Longest result of a ``messageExpression``."""

MAX_TOIL: Final = 2_000_000
"""Per expression: values visited by steps that cost less than their work, as ``object == oldObject`` does in cel-go."""
LIST: Final = 10
MAP: Final = 30
MESSAGE: Final = 40
AUTHORIZATION: Final = 350_000
_SIZED: Final = (str, bytes, list, dict)


def size(value: Value) -> int:
    """Return a value's length (a present optional's: its value's), the base of costs; 1 if it has none."""
    if type(value) in _SIZED:
        return len(value)
    if isinstance(value, Optional) and value.present:
        return size(value.value)
    return value.size() if isinstance(value, Opaque) and hasattr(value, "size") else 1


def traversal(length: int, factor: int = 1) -> int:
    """Return the cost of reading ``length`` characters ``factor`` times: a tenth, rounded up."""
    return -(-length * factor // 10)


def regex(text: int, pattern: int) -> int:
    """Return the cost of matching a text with a pattern of these lengths."""
    return traversal(text + 1) * -(-pattern // 4)


def nodes(value: Value) -> int:
    """Return the number of values in a list or map, itself included, at any depth."""
    kind = type(value)
    if kind is list:
        return 1 + sum(map(nodes, value))
    if kind is dict:
        return 1 + sum(map(nodes, value.values()))
    return 1


def deep(value: Value) -> int:
    """Return the cost of traversing a whole value (``sum``, ``indexOf``)."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) // 10
    if kind is list:
        return sum(map(deep, value))
    if kind is dict:
        return sum(deep(from_key(key)) + deep(each) for key, each in value.items())
    return sum(map(deep, value.fields.values())) if isinstance(value, Message) else 1
