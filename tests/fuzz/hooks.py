"""What schemathesis has to know beyond the documents: a stream is no document. Watches are fuzzed in ``test_fuzz`` instead."""

from __future__ import annotations

from typing import Any

import schemathesis

_STREAMS = frozenset({"watch", "sendInitialEvents"})


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    return {key: value for key, value in query.items() if key not in _STREAMS} if query else query
