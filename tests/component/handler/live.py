from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path, PurePath
from typing import Any, TypeVar

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.hardware.plugin_disks import Served
from apiserver.apis.virt.lifecycle.domainstates import DomainState
from apiserver.apis.virt.places import names, network
from apiserver.apis.virt.spec import attachments, hot_plug_interfaces
from apiserver.client.rest import Client
from handler import node as nodes
from handler.agent import DEFAULT_LIMITS, Agent, Limits
from handler.devices import macvtap, ownership
from handler.devices.detection import Detection
from handler.network import bindings, departed, removed, results, setup
from handler.network.binding import Interface, Link, Observed, Wanted
from handler.options import Options
from handler.plugins.requests import common
from handler.pods.launcher import Connection
from handler.pods.process import Launcher
from handler.storage import requests
from handler.storage.node_disk import Image
from handler.streams.limits import DEFAULTS
from launcher.protocol import messages
from tests.component.handler.world import EVENTS, VMS, eventually
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI
from tests.fakes.launcher import FakeLauncher
from tests.own_time import promptly
from tests.unit.handler.reconcilers.builders import a_vm

NODE = "n"
L = TypeVar("L", bound=FakeLauncher)


class PureNode:
    """A node for virt-handler that reads a VM as the real one does, but changes no pod."""

    async def give_devices(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> messages.Accelerator:
        assert all(each.path.startswith("/") for each in nodes.device_nodes(vm))
        return "qemu"

    async def mount_claim(self, pod_uid: str, connection: Connection, attachment_uid: str, disk: Mapping[str, Any]) -> None:
        pass

    async def unmount_claim(self, pod_uid: str, connection: Connection, disk: Mapping[str, Any]) -> None:
        pass

    async def give_claim(self, attachment_uid: str) -> None:
        pass

    async def end_attachment(self, attachment_uid: str) -> None:
        pass

    async def mount_memory_image(self, pod_uid: str, connection: Connection, image: Image, new_bytes: int = 0) -> None:
        pass

    def capabilities(self, accelerator: messages.Accelerator) -> str:
        return f"<{accelerator}/>"

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        further = (Link(attachments.link(each.interface), each.mac, 1500, ()) for each in attachments.of(vm))
        observed = Observed((Link(network.UPLINK, "02:00:00:00:00:05", 1500, ("10.244.0.5/24",)), *further))
        macvtaps = [ownership.Node(macvtap.path_of(minor), "char", (246, minor)) for minor in range(1, macvtap.NUMBERS + 1)]
        return tuple(self._joined(vm, pod_uid, each, observed) for each in setup.with_devices(setup.wanted(vm), macvtaps, {}))

    async def join_network(self, vm: dict[str, Any], card: str, pod_uid: str, connection: Connection) -> Interface:
        (found,) = await self.prepare_network(hot_plug_interfaces.alone(vm, card), pod_uid, connection)
        return found

    async def leave_network(self, vm: dict[str, Any], card: str, pod_uid: str, connection: Connection) -> None:
        (wanted,) = setup.wanted(hot_plug_interfaces.alone(vm, card))
        removed.script(wanted)

    def _joined(self, vm: Mapping[str, Any], pod_uid: str, wanted: Wanted, observed: Observed) -> Interface:
        told = setup.over_the_wire({**common(vm, pod_uid), "interface": results.document_of(wanted)})
        assert results.wanted(told["interface"]) == wanted
        if wanted.type == interfaces.PLUGIN:
            return results.of_theirs(wanted, {"tap": wanted.tap, "mac": wanted.mac}, live_migration=False)
        return bindings.plan(wanted, observed).interface

    async def forward(self, connection: Connection, addresses: Sequence[str]) -> None:
        bridge = Link(network.BRIDGE, network.BRIDGE_MAC, 1500, (f"{network.GATEWAY}/{network.PREFIX}",))
        departed.rules(Observed((Link(network.UPLINK, "02:00:00:00:00:05", 1500, ("10.244.0.5/24",)), bridge)), addresses)


class PureDisks:
    async def add(self, vm: Mapping[str, Any], pod_uid: str) -> Mapping[str, Served]:
        told = [requests.document(vm, pod_uid, each, PurePath("/")) for each in requests.disks_of(vm)]
        return {each["disk"]["name"]: Served("nbd", 512, live_migration=True) for each in told}

    async def check(self, vm: Mapping[str, Any], pod_uid: str, silent: Collection[str]) -> None:
        await self.add(vm, pod_uid)

    def is_wrong(self, pod_uid: str) -> bool:
        return False

    def forget(self, is_alive: Callable[[str], bool]) -> None:
        pass


class Live:
    def __init__(self, api: FakeAPI, kubelet: Path, stack: AsyncExitStack) -> None:
        self.api = api
        self.kubelet = kubelet
        self.launchers: dict[str, FakeLauncher] = {}
        self.aliases: dict[str, str] = {}
        self._stack = stack
        self._state: DomainState = "running"

    async def launcher(self, pod_uid: str) -> FakeLauncher:
        return await self.start(FakeLauncher(pod_uid))

    async def start(self, launcher: L) -> L:
        self.launchers[launcher.pod_uid] = launcher
        await self._stack.enter_async_context(launcher.serving(self.kubelet))
        return launcher

    def alias(self, pod_uid: str, of: str) -> None:
        """Add a pod directory that links to another pod's launcher."""
        self.aliases[pod_uid] = of
        (self.kubelet / "pods" / pod_uid).symlink_to(of)

    def identify(self, pid: int, pod_uid: str) -> Launcher:
        real = self.aliases.get(pod_uid, pod_uid)
        return self.launchers[real].identify(pid, real)

    async def machine(self, name: str, pod_uid: str) -> None:
        vm = a_vm(podUID=pod_uid)
        vm["metadata"] = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", "generation": 1}
        await self.api.put(VMS, vm)

    def vm(self, name: str = "testvm") -> Any:
        return self.api.get(VMS, "default", name)

    async def healthy_machine_follows(self, seconds: float) -> None:
        """Change the healthy guest's state; fail unless the API shows it within ``seconds``."""
        launcher = self.launchers["pod-1"]
        assert launcher.status.domain is not None
        self._state = "paused" if self._state == "running" else "running"
        launcher.change(domain=messages.DomainStatus("default_testvm", "u", "qemu", self._state, "ioerror"))
        await promptly(lambda: self.vm()["status"]["domain"]["state"] == self._state, seconds)

    def document_of(self, name: str) -> str:
        found: list[Object] = [
            each for each in self.api.all(EVENTS) if each["involvedObject"]["name"] == name and each["type"] == "Warning"
        ]
        return "\n".join(f"{each['reason']}: {each['message']}" for each in found)

    def writes(self, name: str) -> int:
        return len([1 for method, path, _ in self.api.writes if method == "PUT" and path.endswith(f"/virtualmachines/{name}/status")])


def options(kubelet: Path) -> Options:
    return Options(
        node_name=NODE,
        namespace="kubevirt",
        node_lease_namespace=names.node_lease_namespace("kubevirt"),
        pod_ip="127.0.0.1",
        kubeconfig=None,
        certificates=kubelet / "certificates",
        capabilities=kubelet / "capabilities",
        kubelet=kubelet,
        acceleration="emulation",
        allow_vsock=False,
        allow_macvtap=False,
        plugin_directory=Path("/nonexistent"),
        host_disks=(),
        host_disks_max_created=0,
        managed_save_directory=None,
        managed_save_keep_free_percent=15,
        network_plugins=(),
        storage_plugins=(),
        plugin_records=kubelet / "records",
        streams_port=0,
        relay_port=0,
        health_port=0,
        metrics_port=0,
        stream_limits=DEFAULTS,
        log_level="info",
    )


@asynccontextmanager
async def live(kubelet: Path, *, admit: Callable[[Live], None] | None = None, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Live]:
    """Yield a node with a healthy guest; finally check that virt-handler runs and made no forbidden request."""
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-handler")
    (kubelet / "device-plugins").mkdir()
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(api.serving())
        client = await stack.enter_async_context(Client(config, user_agent="test"))
        world = Live(api, kubelet, stack)
        if admit is not None:
            admit(world)
        await world.launcher("pod-1")
        vm = a_vm()
        del vm["metadata"]["resourceVersion"]
        await api.put(VMS, vm)
        detection, node, disks = Detection("emulation"), PureNode(), PureDisks()
        agent = Agent(options(kubelet), client, detection, node=node, disks=disks, identify=world.identify, limits=limits)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(agent.run())
            await eventually(lambda: world.vm()["status"]["phase"] == "Running")
            yield world
            assert not running.done()
            running.cancel()
    assert api.forbidden == []
