"""This virt-handler's trust: authorities and revocations from the watched ConfigMap ``kubevirt-trust``."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable

from apiserver.apis.core.resources import CONFIG_MAPS
from apiserver.apis.meta import objects
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.apis.virt.rights.trust import Revocations
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from certs import contexts, peers
from certs.peers import Peer
from handler.identity.store import AUTHORITIES, REVOKED, Store

logger = logging.getLogger(__name__)

NodeOf = Callable[[asyncio.BaseTransport | None], str]
"""Returns the node of the virt-handler at the other end of a connection; raises :class:`Untrusted`."""


class Untrusted(Exception):
    """The other side of a connection is not a trusted virt-handler; the message says why."""


def node_of(peer: Peer | None, revocations: Revocations) -> str:
    """Return the node in a virt-handler's verified certificate. Raises Untrusted if missing, another program's, or revoked."""
    if peer is None:
        raise Untrusted("the peer presented no certificate")
    node = names.node_of_server_name(peer.dns_name) if peer.common_name == names.HANDLER else ""
    if not node:
        raise Untrusted(f"the peer has the certificate of {peer.common_name!r}, names {[value for _, value in peer.alternative_names]}")
    if refusal := revocations.refusal(node, peer.not_before):
        raise Untrusted(refusal)
    return node


class Trust:
    """The current authorities and revocations, which :meth:`run` watches."""

    def __init__(self, client: Client, namespace: str, store: Store) -> None:
        self._store = store
        self._callbacks: list[Callable[[], None]] = []
        self.revocations = trust.revocations(store.revoked())
        selector = f"metadata.name={trust.CONFIG_MAP}"
        self._informer = Informer(client, CONFIG_MAPS, namespace, field_selector=selector, trim=objects.without_managed_fields)
        self._informer.subscribe(lambda _, new: self._changed(new))

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called after each creation or update of the ConfigMap, also one without a change."""
        self._callbacks.append(callback)

    def node_of(self, transport: asyncio.BaseTransport | None) -> str:
        """Return the node of the virt-handler at the other end of a connection. Raises Untrusted."""
        return node_of(peers.presented(transport), self.revocations)

    async def run(self) -> None:
        """Watch ConfigMap ``kubevirt-trust`` until cancelled."""
        await self._informer.run()

    def _changed(self, config_map: Object | None) -> None:
        if config_map is None:
            return  # keep the last content if the ConfigMap is deleted
        data = config_map.get("data") or {}
        revoked = {key: str(value) for key, value in sorted(data.items()) if key.startswith(trust.REVOKED_PREFIX)}
        new = {REVOKED: json.dumps(revoked).encode()}
        authorities = str(data.get(trust.AUTHORITIES) or "")
        if _are_authorities(authorities):
            new[AUTHORITIES] = authorities.encode()
        else:
            logger.warning("cannot parse the authorities of ConfigMap %s, keeping the previous ones", trust.CONFIG_MAP)
        revocations = trust.revocations(revoked)
        if revocations != self.revocations:
            logger.warning("revoked nodes: %s", ", ".join(sorted(revocations.nodes)) or "none")
        self.revocations = revocations
        try:
            self._store.put(new)
        except OSError as error:
            logger.error("cannot store the trusted authorities: %s", error)  # noqa: TRY400 - expected, the message says it
        for callback in self._callbacks:
            callback()


def _are_authorities(pem: str) -> bool:
    try:
        contexts.client().load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        return False
    return True
