"""Costs that evaluations may have, and the cost of each step.

The limits are Kubernetes' (``k8s.io/apiserver/pkg/apis/cel``), the costs of steps are cel-go's runtime cost and Kubernetes' library costs
(``pkg/cel/library/cost.go``); ``tests/oracle_cel`` compares the totals.
"""

from __future__ import annotations

from typing import Final

from apiserver.cel.values import Message, Opaque, Optional, Value, from_key

PER_CALL_LIMIT: Final = 1_000_000
"""Of one expression."""
RUNTIME_BUDGET: Final = 10_000_000
"""Of all expressions of one policy for one binding and parameter."""
MATCH_CONDITIONS_BUDGET: Final = 2_500_000
"""Of all match conditions of one webhook or policy."""
MAX_MESSAGE_BYTES: Final = 5 * 1024
"""Of what a ``messageExpression`` may say."""

MAX_TOIL: Final = 2_000_000
"""Of one expression, beside its cost: values looked at by steps whose cost does not depend on how much lies below (``object == oldObject``
costs a tenth of the number of its fields, in cel-go too). Ours alone: it keeps an evaluation below some seconds, whatever the cost says."""
LIST: Final = 10
MAP: Final = 30
MESSAGE: Final = 40
AUTHORIZATION: Final = 350_000
_SIZED: Final = (str, bytes, list, dict)


def size(value: Value) -> int:
    """Return a value's size as the costs count it: 1 for what has none."""
    if type(value) in _SIZED:
        return len(value)
    if isinstance(value, Optional) and value.present:
        return size(value.value)
    return value.size() if isinstance(value, Opaque) and hasattr(value, "size") else 1


def traversal(length: int, factor: int = 1) -> int:
    """Return the cost of reading ``length`` characters ``factor`` times: a tenth, rounded up."""
    return -(-length * factor // 10)


def regex(text: int, pattern: int) -> int:
    """Return the cost of matching that many characters with a pattern of that length."""
    return traversal(text + 1) * -(-pattern // 4)


def nodes(value: Value) -> int:
    """Return how many values there are in a list or map, itself included."""
    kind = type(value)
    if kind is list:
        return 1 + sum(map(nodes, value))
    if kind is dict:
        return 1 + sum(map(nodes, value.values()))
    return 1


def deep(value: Value) -> int:
    """Return the cost of walking through all of a value (``sum``, ``indexOf`` and such on lists)."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) // 10
    if kind is list:
        return sum(map(deep, value))
    if kind is dict:
        return sum(deep(from_key(key)) + deep(each) for key, each in value.items())
    return sum(map(deep, value.fields.values())) if isinstance(value, Message) else 1
