"""Preparation of a pod of this node for its guest: devices and network."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from apiserver.apis.virt.described import domain_of
from apiserver.apis.virt.hardware import disks, host_devices, interfaces, memory, vsock
from handler.devices import ownership, passthrough
from handler.network import setup
from handler.network.binding import Interface
from handler.pods import hanging
from handler.pods.launcher import Connection
from launcher.protocol import messages

AT_ONCE: Final = 8
"""Networks that are set up side by side: each runs half a dozen programs, and after a restart all pods of the node come at once."""


def device_nodes(vm: Mapping[str, Any]) -> Iterator[ownership.Node]:
    """Yield the device nodes that the pod of ``vm`` may have for its guest."""
    domain = domain_of(vm)
    if interfaces.emulated(domain):
        yield ownership.TUN
    yield ownership.KVM
    if vsock.defaulted(domain):
        yield ownership.VHOST_VSOCK
    for disk in disks.defaulted(domain):
        if disks.claim_of(disk) is not None:
            yield ownership.disk(disk["name"], read_only=disk["readOnly"] or disks.is_overlaid(disk))


class Node:
    """This node."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._calls = hanging.Calls[messages.Accelerator]()

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        """Give the pod's device nodes to its user, and return what its guest can run with; harmless when it is done again.

        Whether that is KVM is decided by the device that the kubelet put into the pod, and not by what this node offers by now.

        Raises:
            NotTheDevice: something else lies where a device belongs.
            StorageHangs: a disk of the pod does not answer, or has not so far.
            OSError: refused.
        """
        nodes = list(device_nodes(vm))
        domain = domain_of(vm)
        passes = bool(host_devices.passed_through(domain))
        lock = functools.partial(passthrough.allow_locking, connection.process.pid, memory.guest_bytes(domain)) if passes else None

        def begin() -> Callable[[], messages.Accelerator]:
            root = os.dup(connection.process.root)  # the connection may be gone before the call is over
            return functools.partial(_give, root, nodes, lock)

        return await self._calls.run(pod_uid, begin)

    async def prepare_network(self, vm: Mapping[str, Any], connection: Connection) -> tuple[Interface, ...]:
        """Set up the pod's network; harmless when it is done again.

        Raises:
            Unsupported: the network cannot be as the VM asks.
            CommandFailed: a program failed; try again.
        """
        async with self._turns:
            return await setup.prepare(vm, connection.process)


def _give(root: int, nodes: Sequence[ownership.Node], lock: Callable[[], None] | None) -> messages.Accelerator:
    """Give the nodes; ``lock`` lets the guest's memory be locked, for devices of this node, and is None without any."""
    try:
        if lock is not None:
            nodes = [*nodes, *passthrough.groups(root)]
            lock()
        given = {node for node in nodes if ownership.give(root, node)}
    finally:
        os.close(root)
    return "kvm" if ownership.KVM in given else "qemu"
