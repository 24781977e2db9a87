"""The ConfigMap ``kubevirt-trust``: which authorities our processes believe, and which nodes nobody believes any more.

virt-controller writes ``ca.crt``; ``revoked.<node>`` is the operator's. Its value is the reason in any words, and then nothing of that
node is believed; or it is a time (RFC 3339), and then certificates that begin before it are not, while later ones are: so a node comes
back without the keys that it lost. virt-controller signs nothing for a revoked node, virt-api and the other virt-handlers speak no more
with it.
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
    """The revoked nodes, by name: the time before which certificates do not count, or None where none does."""

    nodes: Mapping[str, datetime | None] = field(default_factory=dict)

    def refusal(self, node: str, not_before: datetime) -> str:
        """Return why a certificate of this node that begins at ``not_before`` is not believed; empty if it is."""
        if node not in self.nodes:
            return ""
        since = self.nodes[node]
        if since is None:
            return f"node {node} is revoked"
        return f"certificates of node {node} from before {times.to_rfc3339(since)} are revoked" if not_before < since else ""

    def is_revoked(self, node: str) -> bool:
        """True if nothing of this node is believed, whenever its certificate was issued."""
        return node in self.nodes and self.nodes[node] is None


def revocations(data: Mapping[str, str]) -> Revocations:
    """Return the revocations in the ConfigMap's data; what is no time revokes all."""
    return Revocations({key.removeprefix(REVOKED_PREFIX): _time(value) for key, value in data.items() if key.startswith(REVOKED_PREFIX)})


def _time(value: str) -> datetime | None:
    try:
        return times.parse(value.strip())
    except ValueError:
        return None
