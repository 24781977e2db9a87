"""Print ``guestinfo`` as table, JSON or YAML, with the guest's control characters escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from apiserver.apis.meta import quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import guestinfo
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access

_TABLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "users": (("USER", "userName"), ("DOMAIN", "domain"), ("SINCE", "loginTime")),
    "filesystems": (("MOUNT POINT", "mountPoint"), ("TYPE", "type"), ("SIZE", "totalBytes"), ("USED", "usedBytes"), ("NAME", "name")),
    "interfaces": (("DEVICE", "device"), ("NAME", "name"), ("MAC", "mac"), ("ADDRESSES", "ipAddresses")),
    "applications": (("APPLICATION", "name"), ("VERSION", "version")),
}
_BYTES: Final = frozenset({"totalBytes", "usedBytes"})


async def show(access: Access, name: str, output: str) -> str:
    """Return a guest's information as ``table``, ``wide`` (with applications), ``json`` or ``yaml``. Raises Failure."""
    doing = f"read the guest's information of virtual machine {access.namespace}/{name}"
    answer = await verbs.request(access, "GET", VIRTUAL_MACHINES.path(access.namespace, name, guestinfo.NAME), doing)
    return printed(answer, output)


def printed(answer: Object, output: str) -> str:
    """Format an answer for ``--output``; JSON and YAML escape control characters."""
    match output:
        case "json":
            return json.dumps(answer, indent=2)
        case "yaml":
            return yaml.safe_dump(answer, default_flow_style=False).rstrip()
        case _:
            return table(guestinfo.bounded(answer), wide=output == "wide")


def table(info: Object, *, wide: bool = False) -> str:
    """Return information from ``guestinfo.bounded`` as text; ``wide`` lists applications, which are else only counted."""
    agent, system, zone = (info.get(key) or {} for key in ("agent", "os", "timezone"))
    lines = aligned(
        [
            ("Guest agent:", agent.get("version")),
            ("Operating system:", system.get("prettyName") or system.get("name")),
            ("Kernel:", system.get("kernelRelease")),
            ("Host name:", info.get("hostname")),
            ("Time zone:", zone.get("name")),
            ("Applications:", str(len(info.get("applications") or ())) if info.get("applications") else None),
        ]
    )
    for field, columns in _TABLES.items():
        if (rows := info.get(field)) and (wide or field != "applications"):
            lines += ["", *aligned([[title for title, _ in columns], *([_shown(row, key) for _, key in columns] for row in rows)])]
    cut = frozenset(info.get("truncated") or ())
    lines += [f"There are more {each} than shown." for each in sorted(cut)]
    lines += [f"Not told: {each.get('field')}: {each.get('reason')}" for each in info.get("unavailable") or ()]
    return "\n".join(lines)


def aligned(rows: Sequence[Sequence[str | None]]) -> list[str]:
    """Return rows of equal length as lines with aligned columns; empty cells are ``<none>``."""
    shown = [[cell or "<none>" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]


def _shown(row: Mapping[str, Any], key: str) -> str | None:
    value = row.get(key)
    if isinstance(value, list):
        return ",".join(value)
    if key in _BYTES and isinstance(value, int):
        return quantity.shown(value)
    return value if value is None else str(value)
