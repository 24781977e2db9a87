"""Argo CD's way to run a health check in Lua: the object is the variable ``obj``, the result a table."""

from __future__ import annotations

from typing import Any

import lupa


def health(check: str, obj: dict[str, Any]) -> str:
    """Return the status that a check gives an object, such as ``Progressing``."""
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    return str(lua.execute(check)["status"])
