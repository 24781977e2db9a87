"""The nodes that the operator revoked, from the ConfigMap ``kubevirt-trust``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from apiserver.apis.core.resources import CONFIG_MAPS
from apiserver.apis.meta.errors import Details, ServiceUnavailable
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.rights import trust
from apiserver.apis.virt.rights.trust import Revocations
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from certs import peers


def trust_config(client: Client, namespace: str) -> Informer:
    """Return an ``Informer`` of ConfigMap ``kubevirt-trust``, which the caller runs."""
    return Informer(client, CONFIG_MAPS, namespace, field_selector=f"metadata.name={trust.CONFIG_MAP}")


class RevokedNodes:
    """Current revocations. :meth:`is_revoked` raises until they are loaded, so a restart reinstates no node."""

    def __init__(self, config: Informer) -> None:
        self._config = config
        self._revocations = Revocations()
        self._callbacks: list[Callable[[], None]] = []
        config.subscribe(lambda _, new: self._changed(new))

    def is_revoked(self, node: str) -> bool:
        """True if all certificates of this node are revoked; raises ServiceUnavailable until loaded."""
        if not self._config.synced.is_set():
            details = Details(retry_after_seconds=2)
            raise ServiceUnavailable(
                (f'virt-api has not read ConfigMap {trust.CONFIG_MAP} yet, which lists revoked nodes such as possibly "{node}"; try again'),
                details,
            )
        return self._revocations.is_revoked(node)

    def of_node(self, node: str) -> NodeTrust:
        """Return the ``NodeTrust`` for connections to one node."""
        return NodeTrust(self, node)

    def refusal(self, node: str, certificate: Mapping[str, object]) -> str:
        """Return why a node's verified certificate is not trusted, or empty, also until revocations are loaded."""
        peer = peers.described(certificate)
        return self._revocations.refusal(node, peer.not_before) if peer is not None else "the peer presented no certificate"

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` after every change of revocations; return its unsubscribe function."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def _changed(self, config_map: Object | None) -> None:
        if config_map is None:
            return  # a removed ConfigMap's last content stays in force
        self._revocations = trust.revocations(config_map.get("data") or {})
        for callback in list(self._callbacks):
            callback()


class NodeTrust:
    """Tells whether one node's certificates are trusted."""

    def __init__(self, revoked: RevokedNodes, node: str) -> None:
        self._revoked = revoked
        self._node = node

    def refusal(self, certificate: Mapping[str, object]) -> str:
        """Return why the certificate is not trusted, or empty."""
        return self._revoked.refusal(self._node, certificate)

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call :meth:`RevokedNodes.subscribe`."""
        return self._revoked.subscribe(callback)
