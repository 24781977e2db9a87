"""``kubectl virt version``: the versions of this plugin and of the cluster's virt-api."""

from __future__ import annotations

import json
from typing import Final

import yaml

from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.kubectl import access, verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import said

DOCUMENT: Final = f"/openapi/v3/apis/{VIRTUAL_MACHINES.group}/{VIRTUAL_MACHINES.version}"
"""It names the version, and every user may read it."""


async def server(way: Access) -> str:
    """Return the version of virt-api. Raises Failure."""
    answer = await verbs.request(way, "GET", DOCUMENT, "read the version of virt-api")
    return said(str((answer.get("info") or {}).get("version") or "unknown"))


def printed(of_server: str | None, output: str) -> str:
    """Return both versions as lines, ``json`` or ``yaml``; only the plugin's if ``of_server`` is None."""
    found = {"clientVersion": access.version(), **({} if of_server is None else {"serverVersion": of_server})}
    match output:
        case "json":
            return json.dumps(found, indent=2)
        case "yaml":
            return yaml.safe_dump(found).rstrip()
        case _:
            lines = [f"Client Version: {found['clientVersion']}"]
            return "\n".join(lines if of_server is None else [*lines, f"Server Version: {of_server}"])
