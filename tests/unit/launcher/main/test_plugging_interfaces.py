from __future__ import annotations

import dataclasses
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from launcher.hypervisor.port import HypervisorError, OperationTimeout
from launcher.main.decisions.refusal import RequestRefused
from launcher.protocol import leases, messages
from tests.unit.launcher.main.world import MACHINE, World

DEFAULT = messages.Interface("default", "02:00:00:00:00:09", "tap0")
LAN = messages.Interface("lan", "02:00:00:00:00:10", "tap1", lease=leases.Lease("192.168.7.9/24", "169.254.75.1"))
GUEST = dataclasses.replace(MACHINE, domain={**MACHINE.domain, "devices": {"interfaces": [{"name": "default"}]}}, interfaces=(DEFAULT,))
SYNC = messages.Sync(GUEST)


def attach(interface: messages.Interface = LAN, **more: Any) -> messages.AttachInterface:
    return messages.AttachInterface({"name": "lan", "type": "bridge", "network": "lan", "model": "virtio", **more}, interface)


def calls(world: World) -> list[str]:
    return [each for each in world.hypervisor.calls if each.startswith(("attach", "detach"))]


async def refused(world: World, request: messages.Action) -> RequestRefused:
    with pytest.raises(RequestRefused) as found:
        await world.domain.handle(request)
    return found.value


def cards(world: World) -> list[str]:
    assert world.status.domain is not None
    return [each.name for each in world.status.domain.devices if each.kind == "interface"]


async def test_card_is_attached_once_and_detached(world: World) -> None:
    await world.domain.handle(SYNC)
    for _ in range(2):
        await world.domain.handle(attach())
    assert "lan" in cards(world)
    assert world.status.not_migratable == "interface 'lan' has an address from its pod's IPAM, and the target pod gets another one"
    (xml,) = world.hypervisor.attached
    card = fromstring(xml)
    assert (card.find("mac").attrib, card.find("target").attrib) == (  # type: ignore[union-attr]  # they are there
        {"address": "02:00:00:00:00:10"},
        {"dev": "tap1", "managed": "no"},
    )
    assert [each.name for each in world.served[-1].interfaces] == ["default", "lan"]
    for _ in range(2):
        await world.domain.handle(messages.DetachInterface("lan"))
    assert "lan" not in cards(world)
    assert world.status.not_migratable == ""
    assert [each.name for each in world.served[-1].interfaces] == ["default"]
    assert calls(world) == ["attach 02:00:00:00:00:10"] * 2 + ["detach 02:00:00:00:00:10"]


async def test_link_that_is_down_and_the_model_are_the_cards_own(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(attach(dataclasses.replace(LAN, model="e1000e"), model="e1000e", state="down"))
    card = fromstring(world.hypervisor.attached[0])
    assert [card.find(each).attrib for each in ("model", "link")] == [{"type": "e1000e"}, {"state": "down"}]  # type: ignore[union-attr]  # there


async def test_guest_that_keeps_the_card_is_told(world: World) -> None:
    await world.domain.handle(SYNC)
    await world.domain.handle(attach())
    world.hypervisor.keeps_disks = True
    found = await refused(world, messages.DetachInterface("lan"))
    assert (found.reason, str(found)) == ("NotReady", "the guest has not given back interface 'lan' yet; virt-handler asks again")
    assert "lan" in cards(world)


@pytest.mark.parametrize(
    ("request_", "doing"), [(attach(), "attach a network card"), (messages.DetachInterface("default"), "detach a network card")]
)
async def test_without_a_guest_nothing_is_done(world: World, request_: messages.Action, doing: str) -> None:
    found = await refused(world, request_)
    assert found.reason == "Conflict"
    assert doing in str(found)


async def test_failures_leave_the_machine_as_it_was(world: World) -> None:
    await world.domain.handle(SYNC)
    for failure, reason in ((HypervisorError("no PCI slot"), "Failed"), (OperationTimeout("no answer"), "Timeout")):
        world.hypervisor.fail_next = failure
        assert (await refused(world, attach())).reason == reason
    assert (await refused(world, attach(dataclasses.replace(LAN, mac="nonsense")))).reason == "Failed"
    world.serving_fails = OSError(19, "no bridge")
    assert (await refused(world, attach())).reason == "Failed"
    await world.domain.handle(messages.DetachInterface("lan"))
    assert [each for each in calls(world) if each.startswith("detach")] == []
