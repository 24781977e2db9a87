"""The domain's states in ``status.domain.state`` and virt-launcher's protocol."""

from __future__ import annotations

from typing import Final, Literal, get_args

DomainState = Literal["nostate", "running", "blocked", "paused", "shutdown", "shutoff", "crashed", "pmsuspended"]
"""libvirt's ``virDomainState``."""

DOMAIN_STATES: Final[tuple[DomainState, ...]] = get_args(DomainState)
