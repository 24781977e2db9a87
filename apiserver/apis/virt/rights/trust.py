"""The ConfigMap ``kubevirt-trust``: the trusted authorities and the revoked nodes.

virt-controller writes ``ca.crt``; the operator writes ``revoked.<node>``. If that is a time (RFC 3339), only certificates that begin
earlier are invalid, so a node can return with new keys. Any other value is a reason and revokes all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from apiserver.apis.meta import times

CONFIG_MAP: Final = "kubevirt-trust"
AUTHORITIES: Final = "ca.crt"
REVOKED_PREFIX: Final = "revoked."


@dataclass(frozen=True, slots=True)
class Revocations:
    """Revoked nodes, each with the time before which its certificates are invalid, or None for all."""

    nodes: Mapping[str, datetime | None] = field(default_factory=dict)

    def refusal(self, node: str, not_before: datetime) -> str:
        """Return why a node's certificate that begins at ``not_before`` is refused, or ""."""
        if node not in self.nodes:
            return ""
        since = self.nodes[node]
        if since is None:
            return f"node {node} is revoked"
        return f"certificates of node {node} from before {times.to_rfc3339(since)} are revoked" if not_before < since else ""

    def is_revoked(self, node: str) -> bool:
        """Return whether all certificates of the node are invalid."""
        return node in self.nodes and self.nodes[node] is None


def revocations(data: Mapping[str, str]) -> Revocations:
    """Return the revocations in ``kubevirt-trust``'s data; a value that is not a time revokes all certificates."""
    return Revocations(
        {key.removeprefix(REVOKED_PREFIX): times.parsed(value.strip()) for key, value in data.items() if key.startswith(REVOKED_PREFIX)}
    )
