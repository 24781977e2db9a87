"""Offer a device of the node to the kubelet as an extended resource (device plugin API v1beta1).

Any number of pods share one device, so there are as many ids as a node can have pods. A restarted kubelet loses all registrations;
:class:`Plugin` detects that by the inode of ``kubelet.sock`` and by its own socket, and registers again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError
from grpclib.server import Server, Stream

from apiserver.apis.meta import descriptors
from handler.devices.v1beta1 import api_pb2

logger = logging.getLogger(__name__)

API_VERSION: Final = "v1beta1"
KUBELET_SOCKET: Final = "kubelet.sock"
IDS: Final = 110
"""The kubelet's default maximum of pods per node."""
POLL_SECONDS: Final = 1.0
HEALTH_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 5.0
REGISTER_SECONDS: Final = 10.0


class Offered(Protocol):
    """Devices that :class:`Plugin` offers as one extended resource."""

    @property
    def resource(self) -> str:
        """Name of the extended resource, such as ``devices.kubevirt.io/tun``."""

    @property
    def name(self) -> str:
        """Short name, part of ids and the socket's name."""

    def ids(self) -> tuple[str, ...]:
        """Return all device ids for the kubelet."""

    def paths(self, ids: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return (path on the node, path in the container) of the device nodes for these ids."""

    def problem(self) -> str:
        """Return why the device cannot be used on this node; else empty."""

    def refusal(self, ids: Iterable[str]) -> str:
        """Return why a container cannot get these ids now; else empty."""

    @property
    def has_preference(self) -> bool:
        """True if the kubelet should request preferred ids."""

    def preferred(self, available: Iterable[str], count: int) -> tuple[str, ...]:
        """Return the ``count`` best of the kubelet's available ids."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device node and its resource."""

    resource: str
    path: str
    major: int
    minor: int

    @property
    def name(self) -> str:
        """Short name."""
        return self.resource.rsplit("/", 1)[-1]

    def ids(self) -> tuple[str, ...]:
        """Return as many ids as a node can have pods."""
        return tuple(f"{self.name}{index}" for index in range(IDS))

    def paths(self, ids: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Return the device node's path, in the container as on the node; all ids share it."""
        del ids
        return ((self.path, self.path),)

    def problem(self) -> str:
        """Return why the device cannot be used; else empty."""
        return problem(self)

    def refusal(self, ids: Iterable[str]) -> str:
        """Return an empty string, because containers share the device."""
        del ids
        return ""

    @property
    def has_preference(self) -> bool:
        """False, because all ids are equal."""
        return False

    def preferred(self, available: Iterable[str], count: int) -> tuple[str, ...]:
        """Return the first ``count`` available ids, because all are equal."""
        return tuple(available)[:count]


def problem(device: Device) -> str:
    """Return why the device cannot be opened, or is another one; else empty."""
    try:
        descriptor = os.open(device.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        return f"open {device.path}: {error.strerror}"
    with descriptors.closing(descriptor):
        found = os.fstat(descriptor)
    if not stat.S_ISCHR(found.st_mode) or (os.major(found.st_rdev), os.minor(found.st_rdev)) != (device.major, device.minor):
        return f"{device.path} is not the character device {device.major}:{device.minor}"
    return ""


def advertised(device: Offered, *, offered: bool, fault: str) -> api_pb2.ListAndWatchResponse:
    """Return the list of device ids for the kubelet: empty unless offered, unhealthy if there is a fault."""
    health = "Unhealthy" if fault else "Healthy"
    ids = device.ids() if offered else ()
    return api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID=each, health=health) for each in ids])


class Plugin:
    """Serves one device to the kubelet while :meth:`run` runs.

    Without ``offered`` (KVM without acceleration) the resource is registered without devices, so the node shows 0 instead of an
    earlier run's number.
    """

    def __init__(
        self,
        device: Offered,
        directory: Path,
        *,
        offered: bool,
        check: Callable[[Offered], str] | None = None,
        poll_seconds: float = POLL_SECONDS,
        health_seconds: float = HEALTH_SECONDS,
    ) -> None:
        self.device = device
        self._poll_seconds = poll_seconds
        self._health_seconds = health_seconds
        self.registrations = 0
        self._directory = directory
        self._endpoint = f"kubevirt-{device.name}.sock"
        self._offered = offered
        self._check = check or (lambda each: each.problem())
        self._fault = self._check(device) if offered else ""
        self._changed = asyncio.Event()
        """Replaced by a new event when set; tasks wait for the one they saw."""

    def offer(self) -> None:
        """Offer the device to the kubelet from now on."""
        if not self._offered:
            self._offered, self._fault = True, self._check(self.device)
            self._tell()

    async def offer_when_found(self) -> None:
        """Offer the device as soon as it is usable: its module may be loaded at any time."""
        while self._check(self.device):  # noqa: ASYNC110 - files have no event
            await asyncio.sleep(self._health_seconds)
        self.offer()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Register, and register again after each restart of the kubelet, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_health())
            while True:
                try:
                    await self._serve_once()
                except (OSError, GRPCError, ProtocolError, StreamTerminatedError, TimeoutError) as error:
                    logger.warning(
                        "cannot register %s with the kubelet, retrying in %.0f s: %s", self.device.resource, RETRY_SECONDS, _words(error)
                    )
                    await asyncio.sleep(RETRY_SECONDS)

    async def _serve_once(self) -> None:
        kubelet = self._inode(KUBELET_SOCKET)
        if kubelet is None:
            await asyncio.sleep(self._poll_seconds)
            return
        path = self._directory / self._endpoint
        path.unlink(missing_ok=True)
        server = Server([self])
        await server.start(path=str(path))
        try:
            own = self._inode(self._endpoint)
            await self._register()
            self.registrations += 1
            logger.info("registered %s with the kubelet", self.device.resource)
            while self._inode(KUBELET_SOCKET) == kubelet and self._inode(self._endpoint) == own:  # noqa: ASYNC110 - files have no event
                await asyncio.sleep(self._poll_seconds)
            logger.info("the kubelet restarted, registering %s again", self.device.resource)
        finally:
            server.close()  # ends all calls, without waiting for the kubelet

    def _inode(self, name: str) -> tuple[int, int] | None:
        try:
            found = (self._directory / name).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    async def _register(self) -> None:
        request = api_pb2.RegisterRequest(
            version=API_VERSION, endpoint=self._endpoint, resource_name=self.device.resource, options=self._said()
        )
        async with Channel(path=str(self._directory / KUBELET_SOCKET)) as channel, asyncio.timeout(REGISTER_SECONDS):
            register = UnaryUnaryMethod(channel, "/v1beta1.Registration/Register", api_pb2.RegisterRequest, api_pb2.Empty)
            await register(request)

    async def _watch_health(self) -> None:
        while True:
            await asyncio.sleep(self._health_seconds)
            fault = self._check(self.device) if self._offered else ""
            if fault != self._fault:
                logger.warning("%s is %s", self.device.resource, fault or "healthy again")
                self._fault = fault
                self._tell()

    def __mapping__(self) -> dict[str, Handler]:
        """Return grpclib's handlers by the calls' paths."""
        unary, streaming = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        service = "/v1beta1.DevicePlugin"
        return {
            f"{service}/GetDevicePluginOptions": Handler(self._options, unary, api_pb2.Empty, api_pb2.DevicePluginOptions),
            f"{service}/GetPreferredAllocation": Handler(
                self._prefer, unary, api_pb2.PreferredAllocationRequest, api_pb2.PreferredAllocationResponse
            ),
            f"{service}/Allocate": Handler(self._allocate, unary, api_pb2.AllocateRequest, api_pb2.AllocateResponse),
            f"{service}/ListAndWatch": Handler(self._list_and_watch, streaming, api_pb2.Empty, api_pb2.ListAndWatchResponse),
        }

    async def _options(self, stream: Stream[api_pb2.Empty, api_pb2.DevicePluginOptions]) -> None:
        await stream.recv_message()
        await stream.send_message(self._said())

    def _said(self) -> api_pb2.DevicePluginOptions:
        return api_pb2.DevicePluginOptions(get_preferred_allocation_available=self.device.has_preference)

    async def _list_and_watch(self, stream: Stream[api_pb2.Empty, api_pb2.ListAndWatchResponse]) -> None:
        await stream.recv_message()
        while True:
            changed = self._changed
            await stream.send_message(advertised(self.device, offered=self._offered, fault=self._fault))
            await changed.wait()

    async def _prefer(self, stream: Stream[api_pb2.PreferredAllocationRequest, api_pb2.PreferredAllocationResponse]) -> None:
        request = await stream.recv_message()
        answers = [self._preferred(each) for each in request.container_requests] if request else []
        await stream.send_message(api_pb2.PreferredAllocationResponse(container_responses=answers))

    def _preferred(self, asked: api_pb2.ContainerPreferredAllocationRequest) -> api_pb2.ContainerPreferredAllocationResponse:
        fixed = tuple(asked.must_include_deviceIDs)
        others = (each for each in asked.available_deviceIDs if each not in fixed)
        chosen = self.device.preferred(others, max(asked.allocation_size - len(fixed), 0))
        return api_pb2.ContainerPreferredAllocationResponse(deviceIDs=[*fixed, *chosen])

    async def _allocate(self, stream: Stream[api_pb2.AllocateRequest, api_pb2.AllocateResponse]) -> None:
        request = await stream.recv_message()
        asked = [each.devices_ids for each in request.container_requests] if request else []
        if refusal := next(filter(None, map(self.device.refusal, asked)), ""):
            logger.warning("refused to allocate %s to a container: %s", self.device.resource, refusal)
            await stream.send_trailing_metadata(status=Status.FAILED_PRECONDITION, status_message=refusal)
            return
        answers = [self._answer(each) for each in asked]
        await stream.send_message(api_pb2.AllocateResponse(container_responses=answers))

    def _answer(self, ids: Iterable[str]) -> api_pb2.ContainerAllocateResponse:
        found = self.device.paths(ids)
        specs = [api_pb2.DeviceSpec(host_path=on_node, container_path=inside, permissions="rw") for on_node, inside in found]
        return api_pb2.ContainerAllocateResponse(devices=specs)


def _words(error: BaseException) -> str:
    return (error.message or error.status.name) if isinstance(error, GRPCError) else str(error) or type(error).__name__
