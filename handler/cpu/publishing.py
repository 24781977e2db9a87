"""Writes CPU labels of this node's Node: at the start, when KVM begins to work, and every ten minutes in case they were removed.

virt-handler may not read Nodes. The answer to its patch shows the labels, and a second patch removes outdated ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from apiserver.apis.core.resources import NODES
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import labels_of
from apiserver.client.rest import Client, TransportError
from handler.cpu import capabilities
from handler.cpu.capabilities import UnknownCapabilities

logger = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 600.0
"""A patch without changes costs kube-apiserver a read."""
RETRY_SECONDS: Final = 10.0
_MAX_BYTES: Final = 1 << 20


class Labels:
    """Keeps the labels of one Node about CPU models and features up to date."""

    def __init__(
        self, client: Client, node: str, path: Path, accelerated: Callable[[], bool], *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        """``path``: of libvirt's data, which may be missing; ``accelerated``: whether guests use KVM here."""
        self._client = client
        self._retry_seconds = retry_seconds
        self._node = node
        self._path = path
        self._accelerated = accelerated
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Have :meth:`run` update the labels now."""
        self._changed.set()

    async def run(self) -> None:
        """Update the labels periodically and after :meth:`changed`, until cancelled; retry while the API server is down."""
        told = ""
        while True:
            self._changed.clear()
            pause, found = AGAIN_SECONDS, ""
            try:
                await self.write(self.wanted())
            except (errors.StatusError, TransportError) as error:
                pause, found = self._retry_seconds, f"cannot label node {self._node} with its CPU models and features: {error}"
            if found and found != told:
                logger.warning(found)
            told = found
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def wanted(self) -> dict[str, str]:
        """Return this node's CPU labels; none if libvirt's data is unusable, or if guests are emulated: all nodes then offer the same."""
        if not self._accelerated():
            return {}
        try:
            with self._path.open(encoding="utf-8") as file:
                return capabilities.labels(capabilities.parse(file.read(_MAX_BYTES)))
        except FileNotFoundError:
            logger.warning(
                "KVM works now, but was missing when this pod started: to label the node with its CPU models and features, delete this pod"
            )
        except (OSError, UnicodeDecodeError, UnknownCapabilities) as error:
            logger.warning("cannot read the CPU models and features that this node offers guests: %s", error)
        return {}

    async def write(self, wanted: dict[str, str]) -> None:
        """Write these labels to the Node, and remove its other CPU labels. Raises StatusError, TransportError."""
        node = await self._client.patch(NODES, self._node, {"metadata": {"labels": wanted}})
        gone = capabilities.stale(labels_of(node), wanted)
        if gone:
            await self._client.patch(NODES, self._node, {"metadata": {"labels": dict.fromkeys(gone)}})
            logger.info("removed outdated labels of node %s: %s", self._node, ", ".join(gone))
