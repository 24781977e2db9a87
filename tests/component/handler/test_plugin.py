from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from handler.devices import macvtap, plugin
from handler.devices.macvtap import Macvtaps
from handler.devices.plugin import Device, Offered, Plugin
from handler.devices.v1beta1 import api_pb2

VSOCK = Device("devices.kubevirt.io/vhost-vsock", "/dev/vhost-vsock", 10, 241)
TUN = Device("devices.kubevirt.io/tun", "/dev/net/tun", 10, 200)


class Kubelet:
    """A fake kubelet: registers plugins, connects to them, and forgets all on a restart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registered: list[api_pb2.RegisterRequest] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        for left in self.directory.iterdir():
            left.unlink()
        server = grpc.aio.server()
        register = grpc.unary_unary_rpc_method_handler(
            self._register, request_deserializer=api_pb2.RegisterRequest.FromString, response_serializer=api_pb2.Empty.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register}),))
        server.add_insecure_port(f"unix://{self.directory}/kubelet.sock")
        await server.start()
        try:
            yield
        finally:
            await server.stop(grace=None)
            (self.directory / "kubelet.sock").unlink(missing_ok=True)

    async def _register(self, request: api_pb2.RegisterRequest, context: object) -> api_pb2.Empty:
        self.registered.append(request)
        return api_pb2.Empty()

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        async with grpc.aio.insecure_channel(f"unix://{self.directory}/{self.registered[-1].endpoint}") as channel:
            yield channel


def watch(channel: grpc.aio.Channel) -> Any:
    call = channel.unary_stream(
        "/v1beta1.DevicePlugin/ListAndWatch",
        request_serializer=api_pb2.Empty.SerializeToString,
        response_deserializer=api_pb2.ListAndWatchResponse.FromString,
    )
    return call(api_pb2.Empty())


@asynccontextmanager
async def offering(offer: Plugin, tmp_path: Path) -> AsyncIterator[None]:
    """Run a device plugin during the block, then wait until gRPC has closed its connections."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(offer.run())
        yield
        task.cancel()
    async with asyncio.timeout(20):  # gRPC closes a connection some time after the last call
        while f"/{tmp_path.name}/kubevirt-" in Path("/proc/net/unix").read_text():
            await asyncio.sleep(0.02)


async def registrations(kubelet: Kubelet, count: int) -> None:
    async with asyncio.timeout(20):
        while len(kubelet.registered) < count:
            await asyncio.sleep(0.02)


def quick(device: Offered, directory: Path, *, offered: bool, check: Callable[[Offered], str] | None = None) -> Plugin:
    return Plugin(device, directory, offered=offered, check=check, poll_seconds=0.05, health_seconds=0.05)


async def test_kubelet_learns_the_device_and_its_path(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path)
    async with kubelet.running(), offering(quick(TUN, tmp_path, offered=True, check=lambda _: ""), tmp_path):
        await registrations(kubelet, 1)
        assert kubelet.registered[0].resource_name == TUN.resource
        assert kubelet.registered[0].version == "v1beta1"
        async with kubelet.channel() as channel:
            devices = (await watch(channel).read()).devices
            allocate = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                request_serializer=api_pb2.AllocateRequest.SerializeToString,
                response_deserializer=api_pb2.AllocateResponse.FromString,
            )
            request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=[devices[0].ID])])
            answer = await allocate(request)

    assert len({device.ID for device in devices}) == plugin.IDS
    assert {device.health for device in devices} == {"Healthy"}
    (spec,) = answer.container_responses[0].devices
    assert (spec.host_path, spec.container_path, spec.permissions) == ("/dev/net/tun", "/dev/net/tun", "rw")


async def test_each_macvtap_is_a_device_of_its_own(tmp_path: Path) -> None:
    kubelet, nodes = Kubelet(tmp_path), tmp_path / "nodes"
    async with kubelet.running(), offering(quick(Macvtaps(nodes), tmp_path, offered=True, check=lambda _: ""), tmp_path):
        await registrations(kubelet, 1)
        assert kubelet.registered[0].resource_name == "devices.kubevirt.io/macvtap"
        async with kubelet.channel() as channel:
            ids = [each.ID for each in (await watch(channel).read()).devices]
            allocate = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                request_serializer=api_pb2.AllocateRequest.SerializeToString,
                response_deserializer=api_pb2.AllocateResponse.FromString,
            )
            requests = [api_pb2.ContainerAllocateRequest(devices_ids=given) for given in (ids[3:5], ids[7:8])]
            answer = await allocate(api_pb2.AllocateRequest(container_requests=requests))
    found = [[(each.host_path, each.container_path, each.permissions) for each in one.devices] for one in answer.container_responses]
    assert found == [[(str(nodes / str(each)), macvtap.path_of(each), "rw") for each in minors] for minors in ((4, 5), (8,))]


async def test_used_macvtap_number_is_not_preferred_and_refused(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    kubelet, nodes = Kubelet(tmp_path / "kubelet"), tmp_path / "nodes"
    for each in (numbers, kubelet.directory):
        each.mkdir()
    (tmp_path / "devices").write_text("246 macvtap\n")
    (numbers / "246:1").symlink_to("../../devices/virtual/net/mvt0/macvtap/tap9")
    offered = Macvtaps(nodes, numbers=numbers, drivers=tmp_path / "devices")
    async with kubelet.running(), offering(quick(offered, kubelet.directory, offered=True, check=lambda _: ""), kubelet.directory):
        await registrations(kubelet, 1)
        assert kubelet.registered[0].options.get_preferred_allocation_available
        async with kubelet.channel() as channel:
            options = channel.unary_unary(
                "/v1beta1.DevicePlugin/GetDevicePluginOptions",
                request_serializer=api_pb2.Empty.SerializeToString,
                response_deserializer=api_pb2.DevicePluginOptions.FromString,
            )
            assert (await options(api_pb2.Empty())).get_preferred_allocation_available
            prefer = channel.unary_unary(
                "/v1beta1.DevicePlugin/GetPreferredAllocation",
                request_serializer=api_pb2.PreferredAllocationRequest.SerializeToString,
                response_deserializer=api_pb2.PreferredAllocationResponse.FromString,
            )
            asked = api_pb2.ContainerPreferredAllocationRequest(
                available_deviceIDs=["macvtap1", "macvtap9", "macvtap4", "macvtap3"], must_include_deviceIDs=["macvtap9"], allocation_size=3
            )
            (chosen,) = (await prefer(api_pb2.PreferredAllocationRequest(container_requests=[asked]))).container_responses
            allocate = channel.unary_unary(
                "/v1beta1.DevicePlugin/Allocate",
                request_serializer=api_pb2.AllocateRequest.SerializeToString,
                response_deserializer=api_pb2.AllocateResponse.FromString,
            )
            requests = [api_pb2.ContainerAllocateRequest(devices_ids=given) for given in (["macvtap2"], ["macvtap1"])]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await allocate(api_pb2.AllocateRequest(container_requests=requests))
            told = refused.value.code(), refused.value.details()
            del refused
    assert list(chosen.deviceIDs) == ["macvtap9", "macvtap3", "macvtap4"]
    assert told == (grpc.StatusCode.FAILED_PRECONDITION, "another macvtap of the node already has the number 246:1")


async def test_a_restarted_kubelet_is_registered_with_again(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path)
    async with offering(quick(TUN, tmp_path, offered=True, check=lambda _: ""), tmp_path):
        async with kubelet.running():
            await registrations(kubelet, 1)
        await asyncio.sleep(0.1)
        async with kubelet.running():
            await registrations(kubelet, 2)
            async with kubelet.channel() as channel:
                assert len((await watch(channel).read()).devices) == plugin.IDS


async def test_broken_device_is_unhealthy_until_it_recovers(tmp_path: Path) -> None:
    faults = {"now": ""}
    kubelet = Kubelet(tmp_path)
    async with kubelet.running(), offering(quick(TUN, tmp_path, offered=True, check=lambda _: faults["now"]), tmp_path):
        await registrations(kubelet, 1)
        async with kubelet.channel() as channel, asyncio.timeout(10):
            stream = watch(channel)
            seen = []
            for fault in ("", "open /dev/net/tun: No such device", ""):
                faults["now"] = fault
                seen.append((await stream.read()).devices[0].health)
            del stream

    assert seen == ["Healthy", "Unhealthy", "Healthy"]


async def test_a_device_that_must_not_be_used_is_registered_with_none(tmp_path: Path) -> None:
    kubelet = Kubelet(tmp_path)
    async with kubelet.running(), offering(quick(TUN, tmp_path, offered=False), tmp_path):
        await registrations(kubelet, 1)
        async with kubelet.channel() as channel:
            assert list((await watch(channel).read()).devices) == []


async def test_a_device_that_can_be_used_later_is_offered_then(tmp_path: Path) -> None:
    """Otherwise an early, negative check for KVM would need a restart of virt-handler."""
    faults = {"now": "open /dev/net/tun: No such file or directory"}
    kubelet, tun = Kubelet(tmp_path), quick(TUN, tmp_path, offered=False, check=lambda _: faults["now"])
    async with kubelet.running(), offering(tun, tmp_path):
        await registrations(kubelet, 1)
        async with kubelet.channel() as channel, asyncio.timeout(10):
            stream = watch(channel)
            assert list((await stream.read()).devices) == []
            faults["now"] = ""
            tun.offer()
            tun.offer()
            assert {each.health for each in (await stream.read()).devices} == {"Healthy"}
            faults["now"] = "open /dev/net/tun: No such device"
            assert {each.health for each in (await stream.read()).devices} == {"Unhealthy"}
            del stream
    assert len(kubelet.registered) == 1


async def test_device_is_offered_once_its_module_is_loaded(tmp_path: Path) -> None:
    faults = {"now": "open /dev/vhost-vsock: No such file or directory"}
    kubelet, vsock = Kubelet(tmp_path), quick(VSOCK, tmp_path, offered=False, check=lambda _: faults["now"])
    async with kubelet.running(), offering(vsock, tmp_path), asyncio.TaskGroup() as tasks:
        tasks.create_task(vsock.offer_when_found())
        await registrations(kubelet, 1)
        async with kubelet.channel() as channel, asyncio.timeout(10):
            stream = watch(channel)
            assert list((await stream.read()).devices) == []
            faults["now"] = ""
            assert {each.health for each in (await stream.read()).devices} == {"Healthy"}
            del stream


def test_a_plain_file_is_no_device(tmp_path: Path) -> None:
    path = tmp_path / "tun"
    path.write_text("")

    assert "is not the character device 10:200" in plugin.problem(Device("devices.kubevirt.io/tun", str(path), 10, 200))
    assert "No such file" in plugin.problem(Device("devices.kubevirt.io/tun", str(tmp_path / "absent"), 10, 200))
