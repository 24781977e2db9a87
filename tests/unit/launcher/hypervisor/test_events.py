from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from launcher.hypervisor.connection import LibvirtHypervisor
from launcher.hypervisor.port import Observation

NAME = "test"
CRASHED = SimpleNamespace(
    name=lambda: NAME,
    state=lambda: [libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED],
    UUIDString=lambda: "0",
    XMLDesc=lambda: "<domain type='kvm'><devices><disk><target dev='vda'/><alias name='ua-a'/></disk></devices></domain>",
)


async def seen_after(event: int, *details: object) -> Observation:
    hypervisor, told = LibvirtHypervisor("test:///none"), asyncio.Event()
    hypervisor.subscribe(told.set)
    registered: dict[int, tuple[Any, object]] = {}
    connection: Any = SimpleNamespace(
        domainEventRegisterAny=lambda _, number, function, opaque: registered.update({number: (function, opaque)}),
        listAllDomains=lambda: [CRASHED],
    )
    hypervisor._connection = connection
    hypervisor._register(connection, asyncio.get_running_loop())
    function, opaque = registered[event]
    function(connection, CRASHED, *details, opaque)
    async with asyncio.timeout(10):
        await told.wait()
        found = await hypervisor.observe(NAME)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("action", "reason"),
    [(libvirt.VIR_DOMAIN_EVENT_WATCHDOG_POWEROFF, "watchdog"), (libvirt.VIR_DOMAIN_EVENT_WATCHDOG_RESET, "crashed")],
)
async def test_domain_that_a_watchdog_powered_off_says_so(action: int, reason: str) -> None:
    found = await seen_after(libvirt.VIR_DOMAIN_EVENT_ID_WATCHDOG, action)
    assert (found.reason, found.watchdogs > 0) == (reason, True)


@pytest.mark.parametrize(
    ("action", "ignored"), [(libvirt.VIR_DOMAIN_EVENT_IO_ERROR_NONE, True), (libvirt.VIR_DOMAIN_EVENT_IO_ERROR_REPORT, False)]
)
async def test_disk_error_tells_whether_the_guest_saw_it(action: int, *, ignored: bool) -> None:
    (fault,) = (await seen_after(libvirt.VIR_DOMAIN_EVENT_ID_IO_ERROR_REASON, "/disk", "ua-a", action, "")).disk_faults
    assert (fault.disk, fault.ignored) == ("vda", ignored)
