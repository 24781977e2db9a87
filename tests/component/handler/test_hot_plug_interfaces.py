from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from apiserver.apis.virt.spec import hot_plug_interfaces
from handler.network.namespaces import CommandFailed
from handler.network.setup import NotInPod
from launcher.protocol import messages
from tests.component.handler.world import VMS, World, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

PATH = "spec.domain.devices.interfaces[lan]"
DEFAULT: dict[str, Any] = {"name": "default"}
LAN: dict[str, Any] = {"name": "lan", "type": "bridge", "network": "lan"}


def report(launcher: FakeLauncher, *cards: str) -> None:
    assert launcher.status.domain is not None
    devices = tuple(messages.DeviceStatus("interface", each, f"tap-{each}") for each in ("default", *cards))
    launcher.change(domain=replace(launcher.status.domain, devices=devices, changes=(hot_plug_interfaces.INTERFACE,)))


def requests(launcher: FakeLauncher) -> list[str]:
    return [type(each).__name__ for each in launcher.received if isinstance(each, messages.AttachInterface | messages.DetachInterface)]


async def edit(world: World, *, runs: list[dict[str, Any]], desired: list[dict[str, Any]]) -> None:
    def change(vm: dict[str, Any]) -> None:
        domain = vm["spec"]["domain"]
        vm["spec"]["domain"] = {**domain, "devices": {**domain["devices"], "interfaces": desired}}
        vm["status"]["running"] = {"generation": 1, "domain": {**domain, "devices": {**domain["devices"], "interfaces": runs}}}

    await world.api.edit(VMS, "default", "testvm", change)


def entry(world: World) -> dict[str, str]:
    return next((dict(each) for each in world.status().get("changes") or ()), {})


def interfaces(world: World) -> list[str]:
    return [each["name"] for each in world.status().get("interfaces") or ()]


async def test_card_is_set_up_attached_and_recorded_once(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        await edit(world, runs=[DEFAULT], desired=[DEFAULT, LAN])
        await eventually(lambda: interfaces(world) == ["default", "lan"])
        assert handler.node.cards == {"lan"}
        assert "running" not in world.status()
        await eventually(lambda: "InterfaceAttached" in world.events())
    async with world.handler() as again:
        await eventually(lambda: again.node.wired == 1)
    assert requests(launcher) == ["AttachInterface"]


async def test_card_that_was_attached_before_a_kill_is_recorded(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher, "lan")
        await edit(world, runs=[DEFAULT], desired=[DEFAULT, LAN])
        await eventually(lambda: "running" not in world.status())
        assert handler.node.cards == {"lan"}


async def test_card_without_a_network_in_the_pod_waits(world: World) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        for error, state in ((NotInPod("the pod has no network default/lan"), "Pending"), (CommandFailed("no ip"), "Failed")):
            handler.node.no_card = error
            await edit(world, runs=[DEFAULT], desired=[DEFAULT, LAN])
            await eventually(lambda: entry(world).get("state") == state)  # noqa: B023  # awaited in this turn
            assert (entry(world)["path"], entry(world)["message"]) == (PATH, str(error))
        assert requests(launcher) == []
        handler.node.no_card = None
        await eventually(lambda: "running" not in world.status())
        await eventually(lambda: entry(world) == {})


@pytest.mark.parametrize("there", [("lan",), ()])
async def test_removed_card_is_released_then_taken_from_the_pod(world: World, there: tuple[str, ...]) -> None:
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        handler.node.cards.add("lan")
        report(launcher, *there)
        launcher.keeps_disks = True
        await edit(world, runs=[DEFAULT, LAN], desired=[DEFAULT])
        await eventually(lambda: entry(world).get("state") == "Failed")
        assert entry(world)["message"] == "the guest has not given back interface 'lan' yet"
        assert handler.node.cards == {"lan"}
        launcher.keeps_disks = False
        await eventually(lambda: "running" not in world.status())
        assert handler.node.cards == set()
        await eventually(lambda: "InterfaceDetached" in world.events())


async def test_card_that_the_guest_lost_is_attached_again(world: World) -> None:
    """A user restores a card while the guest gives it back."""
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        assert launcher.status.domain is not None
        launcher.change(domain=replace(launcher.status.domain, devices=()))
        await eventually(lambda: requests(launcher) == ["AttachInterface"])
        assert handler.node.cards == {"default"}


def most_changes(world: World, began: float) -> float:
    return world.limits.network_tries_burst + 1 + (time.monotonic() - began) / world.limits.network_seconds


async def test_card_that_vanishes_again_and_again_is_set_up_rarely(world: World) -> None:
    """A guest can eject its card at will, and each attachment runs programs of the host."""
    world.link_limits = replace(world.link_limits, changes_per_second=1000.0)
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        began = time.monotonic()
        for _ in range(60):
            report(launcher)
            assert launcher.status.domain is not None
            launcher.change(domain=replace(launcher.status.domain, devices=()))
            await asyncio.sleep(0.02)
        assert world.limits.network_tries_burst <= handler.node.joined <= most_changes(world, began)
        await eventually(lambda: entry(world).get("state") == "Pending")
        assert "the next change waits" in entry(world)["message"]


async def test_card_that_comes_and_goes_often_waits(world: World) -> None:
    world.limits = replace(world.limits, network_tries_burst=2, network_seconds=0.5, write_seconds=0.01)
    await world.vm()
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        await eventually(lambda: phase_is(world, "Running"))
        report(launcher)
        began = time.monotonic()
        for runs, desired in [([DEFAULT], [DEFAULT, LAN]), ([DEFAULT, LAN], [DEFAULT])] * 2:
            await edit(world, runs=runs, desired=desired)
            await eventually(lambda: "running" not in world.status())
        assert (handler.node.joined, handler.node.left) == (2, 2)
        assert time.monotonic() - began >= 2 * 0.5 - 0.1
