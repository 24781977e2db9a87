"""What schemathesis has to know beyond the documents: a stream is no document. Watches are fuzzed in ``test_fuzz`` instead.

``map_query`` holds for what is generated, ``map_case`` for the cases of the coverage phase, which pass the first by: a query of theirs like
``watch=null&watch=false`` asks for a watch, as the first value is not ``false``.
"""

from __future__ import annotations

from typing import Any

import schemathesis

_STREAMS = frozenset({"watch", "sendInitialEvents"})


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    return {key: value for key, value in query.items() if key not in _STREAMS} if query else query


@schemathesis.hook
def map_case(context: Any, case: schemathesis.Case[Any]) -> schemathesis.Case[Any]:
    for key in _STREAMS & case.query.keys():
        del case.query[key]
    return case
