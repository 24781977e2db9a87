"""Gives up requests to our API that may wait for a replica of virt-api on a lost node.

kube-apiserver forwards requests to such a replica until its node is ``NotReady``, and waits a minute for the answer. Machines of
the node would wait as long for their restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.places import names, node_states
from apiserver.client.informer import Informer

PAUSES: Final = (3.0, 7.0)
"""After ``NotReady``, for Kubernetes to stop forwarding to the replica; again, if that takes longer."""
SILENT_SECONDS: Final = 2.0


class LostRequests:
    """Fails silent requests soon after a kubelet becomes unreachable; their callers repeat them."""

    def __init__(self, give_up: Callable[[str, float], None], nodes: Informer, pauses: Sequence[float] = PAUSES) -> None:
        """``give_up`` fails requests with this prefix of the path that are silent for so many seconds."""
        self._give_up = give_up
        self._pauses = pauses
        self._lost = asyncio.Event()
        nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        """Wait for lost nodes until cancelled."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            for pause in self._pauses:
                await asyncio.sleep(pause)
                self._give_up(f"/apis/{names.GROUP}/", SILENT_SECONDS)

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        was_there = old is None or not node_states.kubelet_is_unreachable(old)
        if new is not None and was_there and node_states.kubelet_is_unreachable(new):
            self._lost.set()
