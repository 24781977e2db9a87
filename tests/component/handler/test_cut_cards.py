"""virt-handler is killed at each step of a card's change; the next one finishes the change.

A step is an effect on the pod, a request to virt-launcher, or a write of the status. It is lost, or carried out without an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.virt.hardware import interfaces as hardware
from apiserver.apis.virt.spec.described import domain_of
from handler.network.binding import Interface
from handler.pods.launcher import Connection
from tests.component.handler.test_cut_verbs import Cutter
from tests.component.handler.test_hot_plug_interfaces import DEFAULT, LAN, edit, interfaces, report
from tests.component.handler.world import FakeNode, a_world, eventually, phase_is
from tests.fakes.launcher import FakeLauncher

DMZ: Final[dict[str, Any]] = {"name": "dmz", "type": "bridge", "network": "dmz", "mac": "52:54:00:00:00:77"}
CHANGES: Final[Mapping[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]] = {
    "attach": ([DEFAULT], [DEFAULT, LAN]),
    "detach": ([DEFAULT, LAN], [DEFAULT]),
    "replace": ([DEFAULT, {**DMZ, "name": "lan"}], [DEFAULT, DMZ]),
}
"""Running and desired cards; a replacement with the same MAC address waits for the card before it."""


class CutNode(FakeNode):
    def __init__(self, cutter: Cutter) -> None:
        super().__init__()
        self._cutter = cutter

    async def prepare_network(self, vm: Mapping[str, Any], pod_uid: str, connection: Connection) -> tuple[Interface, ...]:
        further = [each["name"] for each in hardware.defaulted(domain_of(vm)) if each.get("network")]
        made = await super().prepare_network(vm, pod_uid, connection)
        return (*made, *[await super(CutNode, self).join_network(dict(vm), each, pod_uid, connection) for each in further])

    async def join_network(self, vm: dict[str, Any], card: str, pod_uid: str, connection: Connection) -> Interface:
        with self._cutter.killed():
            return await super().join_network(vm, card, pod_uid, connection)

    async def leave_network(self, vm: dict[str, Any], card: str, pod_uid: str, connection: Connection) -> None:
        with self._cutter.killed():
            await super().leave_network(vm, card, pod_uid, connection)


def names(cards: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in cards]


def of_guest(launcher: FakeLauncher) -> list[str]:
    assert launcher.status.domain is not None
    return sorted(each.name for each in launcher.status.domain.devices if each.kind == "interface")


async def played(kubelet: Path, change: str, step: int, *, is_lost: bool) -> bool:
    """Plug or unplug cards, cut at ``step``, before its effect (``is_lost``) or after it; return False without that step."""
    runs, desired = CHANGES[change]
    async with a_world(kubelet) as world:
        await world.vm()
        launcher = await world.launcher("pod-1")
        cutter = Cutter(world, launcher, is_lost)
        cutter.install()
        pod = CutNode(cutter)
        pod.cards |= {*names(runs)} - {"default"}

        def is_done() -> bool:
            return "running" not in world.status() and interfaces(world) == names(desired) and not world.status().get("changes")

        async with world.handler(fake=pod):
            await eventually(lambda: phase_is(world, "Running"))
            report(launcher, *(each for each in names(runs) if each != "default"))
            await eventually(lambda: "liveChanges" in world.status()["domain"])
            cutter.at = step
            await edit(world, runs=runs, desired=desired)
            await eventually(lambda: cutter.cut.is_set() or is_done())
        if not cutter.cut.is_set():
            return False
        async with world.handler(fake=pod):
            await eventually(is_done)
        assert of_guest(launcher) == sorted(names(desired))
        assert pod.cards == {*names(desired)} - {"default"}
        assert launcher.starts == 1
    return True


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "unanswered"])
@pytest.mark.parametrize("change", CHANGES)
async def test_next_virt_handler_finishes_a_change_of_cards(tmp_path: Path, change: str, is_lost: bool) -> None:
    step = 0
    while await played(tmp_path / str(step), change, step, is_lost=is_lost):
        step += 1
    assert step >= 3, "an effect on the pod, a request and a write"
