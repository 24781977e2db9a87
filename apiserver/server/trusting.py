"""Follow trusted authorities in the cluster's ConfigMap and in a file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from apiserver.apis.core.resources import CONFIG_MAPS
from apiserver.apis.meta.objects import Object, name_of
from apiserver.client.informer import Informer
from apiserver.client.rest import Client
from apiserver.endpoints.filters.authentication import Authenticator, RequestHeader, Trust, from_config_map
from apiserver.endpoints.filters.certificates import authorities_of
from certs.reloading import ServerTls

logger = logging.getLogger(__name__)

NAMESPACE: Final = "kube-system"
NAME: Final = "extension-apiserver-authentication"


def config_map(client: Client) -> Informer:
    """Return the informer, to run, of the ConfigMap with kube-apiserver's authorities and front-proxy settings."""
    return Informer(client, CONFIG_MAPS, NAMESPACE, field_selector=f"metadata.name={NAME}")


class Trusting:
    """Applies changes of client and proxy authorities to handshakes, then to authentication; only logs unusable ones."""

    def __init__(self, tls: ServerTls, authenticator: Authenticator, client_ca_file: Path | None, file_seconds: float) -> None:
        """Read and apply ``client_ca_file``, which :meth:`run` checks every ``file_seconds``. Raises OSError, ValueError."""
        self._tls = tls
        self._authenticator = authenticator
        self._file = client_ca_file
        self._file_seconds = file_seconds
        self._from_file = client_ca_file.read_text() if client_ca_file else ""
        self._from_map: Mapping[str, str] = {}
        self._apply()

    def subscribe(self, informer: Informer) -> None:
        """Apply the ConfigMap and its changes, from the informer of :func:`config_map`."""
        informer.subscribe(self._changed)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        del old
        if new is None or name_of(new) != NAME:
            return  # kube-apiserver recreates it
        before, self._from_map = self._from_map, new.get("data") or {}
        try:
            self._apply()
        except (OSError, ValueError):
            self._from_map = before
            logger.exception("cannot use the ConfigMap; keeping the previous authorities", extra={"config_map": f"{NAMESPACE}/{NAME}"})

    async def run(self) -> None:
        """Apply changes of the file of client authorities until cancelled; return at once without a file."""
        while self._file is not None:
            await asyncio.sleep(self._file_seconds)
            self._look(self._file)

    def _look(self, file: Path) -> None:
        before = self._from_file
        try:
            self._from_file = file.read_text()
            if self._from_file != before:
                self._apply()
        except (OSError, ValueError):
            self._from_file = before
            logger.exception("cannot use the file of client authorities; keeping the previous ones", extra={"file": str(file)})

    def _apply(self) -> None:
        request_header = from_config_map(self._from_map) if self._from_map else RequestHeader()
        clients = "\n".join(each for each in (self._from_file, self._from_map.get("client-ca-file", "")) if each.strip())
        trust = Trust(request_header, authorities_of(clients))
        proxies = self._from_map.get("requestheader-client-ca-file", "")
        self._tls.trust("\n".join(each for each in (clients, proxies) if each.strip()))
        self._authenticator.trust = trust
        logger.info(
            "trusting other authorities",
            extra={"clients": len(trust.clients), "front_proxies": len(trust.request_header.authorities)},
        )
