"""The states of a domain in ``status.domain.state`` and between virt-handler and virt-launcher."""

from __future__ import annotations

from typing import Final, Literal, get_args

DomainState = Literal["nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended"]
"""libvirt's virDomainState in lower case."""

DOMAIN_STATES: Final[tuple[DomainState, ...]] = get_args(DomainState)
