"""Locate virt-handler on a virtual machine's node."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import names, streams
from apiserver.registry.generic.strategy import Destination
from apiserver.registry.virt.revoking import RevokedNodes

LocateHandler = Callable[[str], Awaitable[tuple[str, int]]]
"""Returns a virt-handler's host and port; raises ServiceUnavailable."""


class Handlers:
    """The virt-handlers of all nodes."""

    def __init__(self, locate: LocateHandler, tls: Callable[[], ssl.SSLContext], revoked: RevokedNodes) -> None:
        """``tls`` returns the current context with our client certificate."""
        self._locate = locate
        self._tls = tls
        self._revoked = revoked

    async def destination(self, vm: Object, what: str) -> Destination:
        """Return the ``Destination`` of ``what``, a stream or read, at virt-handler of the machine's node, which must be known.

        Raises ServiceUnavailable, also if the node is revoked.
        """
        node = str(vm["status"]["nodeName"])
        try:
            server_name = names.handler_server_name(node)
        except ValueError as error:
            raise errors.ServiceUnavailable(str(error)) from error
        if self._revoked.is_revoked(node):
            raise errors.ServiceUnavailable(f'node "{node}" is revoked, so virt-api does not trust its virt-handler')
        host, port = await self._locate(node)
        metadata = vm["metadata"]
        path = streams.handler_path(metadata["namespace"], metadata["name"], metadata["uid"], what)
        shown = f"[{host}]" if ":" in host else host
        url, called = f"https://{shown}:{port}{path}", f"virt-handler of node {node}"
        return Destination(url, server_name, self._tls(), self._revoked.of_node(node), called)
