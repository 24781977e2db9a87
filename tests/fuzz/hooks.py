"""Hooks for schemathesis that leave out streams.

``map_query`` applies to generated queries, ``map_case`` to the coverage phase, with ``watch=null&watch=false``, which requests a watch.
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
