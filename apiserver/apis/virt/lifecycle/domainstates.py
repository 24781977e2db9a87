"""The states of a domain, as ``status.domain.state`` and the wire between virt-handler and virt-launcher say them."""

from __future__ import annotations

from typing import Final, Literal, get_args

DomainState = Literal["nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended"]
"""libvirt's virDomainState in lower case."""

DOMAIN_STATES: Final[tuple[DomainState, ...]] = get_args(DomainState)
