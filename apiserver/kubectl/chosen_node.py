"""The flag ``--node`` of ``start`` and ``migrate``: a warning about an unknown node."""

from __future__ import annotations

import sys
from contextlib import suppress

from apiserver.apis.core.resources import NODES
from apiserver.apis.virt.places import names
from apiserver.kubectl import verbs
from apiserver.kubectl.access import Access
from apiserver.kubectl.messages import Failure


async def warn(access: Access, node: str) -> None:
    """Write a warning to stderr if no Node has this host name; none if listing Nodes fails."""
    selector = f"{names.HOSTNAME_LABEL}={node}"
    with suppress(Failure):
        found = await verbs.request(access, "GET", NODES.path(), "list nodes", params={"labelSelector": selector, "limit": "1"})
        if found.get("items") == []:
            sys.stderr.write(f"Warning: no node has the label {selector}: the guest waits for one. kubectl virt nodes lists all\n")
