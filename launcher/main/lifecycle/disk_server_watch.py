"""Checks the servers of a guest's disks, and resumes the guest when they are back.

QEMU itself reconnects, but does not report an unreachable server while requests wait, and resumes no guest that it paused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Set

from launcher.domain.states import State
from launcher.hypervisor.port import NO_SPACE, Observation
from launcher.main.decisions import known, machines
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import TIMES, Times
from launcher.main.disks import disk_servers
from launcher.main.disks.disk_servers import Network
from launcher.main.lifecycle.suspension import Suspension
from launcher.main.lifecycle.watching import Watch

logger = logging.getLogger(__name__)


def may_go_on(seen: Observation | None, names: Mapping[str, str], answering: Set[str]) -> bool:
    """Return whether unavailable disk servers, not only full disks, paused the guest, and all of them answer.

    ``names`` has disks' names by libvirt's, ``answering`` those with an answering server.
    """
    if seen is None or seen.state is not State.PAUSED or not seen.disk_errors:
        return False
    if all(error == NO_SPACE for _, error in seen.disk_errors):
        return False  # the server answers but is full: free_space retries less often
    return {names.get(target) for target, _ in seen.disk_errors} <= answering


class DiskServerWatch:
    """Checks the servers of the domain's disks."""

    def __init__(self, watch: Watch, suspension: Suspension, network: Network, times: Times = TIMES) -> None:
        self._network = network
        self._times = times
        self._watch = watch
        self._record = watch.record
        self._suspension = suspension

    async def run(self) -> None:
        """Check the servers of disks repeatedly until cancelled."""
        while True:
            await asyncio.sleep(self._times.servers_look)
            await self.look()

    async def look(self) -> None:
        """Record the disks with unreachable servers; resume a guest that disk servers paused once they answer."""
        machine = self._record.known.machine
        if machine is None or self._record.known.domain is None or not self._record.known.domain.active:
            return
        endpoints, sockets = disk_servers.endpoints_of(machine.domain), disk_servers.sockets_of(machine.domain)
        if not endpoints and not sockets:
            return
        unconnected = disk_servers.disconnected(endpoints, await asyncio.to_thread(self._network.connections))
        unanswered = await disk_servers.without_answer(unconnected, self._network)
        unreachable = (*unanswered, *disk_servers.without_listener(sockets, self._network))
        self._record.take(known.servers_silent, unreachable)
        now, answering = self._record.known, (endpoints.keys() | sockets.keys()) - set(unreachable)
        if now.leaving is None and may_go_on(now.domain, machines.disk_names(machine), answering):
            try:
                await self._suspension.resume()
            except RequestRefused as refused:  # QEMU lets the next request fail, and reconnects
                logger.debug("cannot resume the guest yet, retrying", extra={"reason": str(refused)})
