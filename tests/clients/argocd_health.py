"""Runs a health check in Lua like Argo CD."""

from __future__ import annotations

from typing import Any

import lupa


def health(check: str, obj: dict[str, Any]) -> str:
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    return str(lua.execute(check)["status"])
