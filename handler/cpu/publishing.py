"""Labels of this node's Node, written when the process starts, when KVM begins to work, and every ten minutes, in case they were taken off.

virt-handler may patch Nodes and not read them; the answer to its patch shows what else the Node bears, so that labels of an earlier kernel,
processor or libvirt are removed by a second one. A policy of the chart holds it to its own Node and to the prefixes of these labels.
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
"""A patch that changes nothing costs kube-apiserver a read."""
RETRY_SECONDS: Final = 10.0
_MAX_BYTES: Final = 1 << 20


class Labels:
    """Keeps the labels of one Node true."""

    def __init__(
        self, client: Client, node: str, path: Path, accelerated: Callable[[], bool], *, retry_seconds: float = RETRY_SECONDS
    ) -> None:
        """``path``: where libvirt's answer is, if there is one; ``accelerated``: whether guests run with KVM here."""
        self._client = client
        self._retry_seconds = retry_seconds
        self._node = node
        self._path = path
        self._accelerated = accelerated
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Have the labels looked at again now."""
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled; while the API server is away, try again after a while."""
        told = ""
        while True:
            self._changed.clear()
            pause, found = AGAIN_SECONDS, ""
            try:
                await self.write(self.wanted())
            except (errors.StatusError, TransportError) as error:
                pause, found = self._retry_seconds, f"label node {self._node} with what its processors can do: {error}"
            if found and found != told:
                logger.warning(found)
            told = found
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def wanted(self) -> dict[str, str]:
        """Return the labels that are true: none where guests are emulated, which is the same on every node."""
        if not self._accelerated():
            return {}
        try:
            with self._path.open(encoding="utf-8") as file:
                return capabilities.labels(capabilities.parse(file.read(_MAX_BYTES)))
        except FileNotFoundError:
            logger.warning(
                "KVM works, but was not there when this pod was started, or libvirt did not know it: "
                "the node is not labelled with what its processors can do until the pod is made anew"
            )
        except (OSError, UnicodeDecodeError, UnknownCapabilities) as error:
            logger.warning("what guests can have of this node's processors is not known: %s", error)
        return {}

    async def write(self, wanted: dict[str, str]) -> None:
        """Bring the Node's labels to what they should be.

        Raises:
            StatusError, TransportError: they could not be written.
        """
        node = await self._client.patch(NODES, self._node, {"metadata": {"labels": wanted}})
        gone = capabilities.stale(labels_of(node), wanted)
        if gone:
            await self._client.patch(NODES, self._node, {"metadata": {"labels": dict.fromkeys(gone)}})
            logger.info("removed labels of node %s that are no longer true: %s", self._node, ", ".join(gone))
