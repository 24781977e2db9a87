from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from handler.network import setup
from handler.plugins.calling import Plugins
from handler.plugins.deleting import Deleter
from handler.plugins.faults import Failed
from handler.plugins.records import Records
from tests.host.handler import pods
from tests.host.handler.pods import Pod, run
from tests.host.handler.test_network_plugins import MAC, a_vm

pytestmark = pytest.mark.host

POD = "6f1c1f0e-0000-4000-8000-000000000001"
VM = a_vm({"name": "private", "type": "plugin", "plugin": "lan", "mac": MAC})
(WANTED,) = setup.wanted(VM)
SCRIPT = f"""#!/bin/sh
[ $KUBEVIRT_COMMAND != VERSION ] || {{ echo '{{"version": "1.0.0", "supportedVersions": ["1.0.0"], "kinds": ["network"]}}'; exit; }}
cd LOG
echo $KUBEVIRT_COMMAND $KUBEVIRT_NETNS >>asked
cat >$KUBEVIRT_COMMAND.json
while [ -e $KUBEVIRT_COMMAND.waits ]; do sleep 0.1; done
[ ! -e $KUBEVIRT_COMMAND.fails ] || {{ echo '{{"code": 100, "msg": "no luck"}}'; exit 1; }}
[ $KUBEVIRT_COMMAND = ADD ] || exit 0
set -e
ip="nsenter --net=$KUBEVIRT_NETNS ip"
$ip link show {WANTED.tap} >/dev/null 2>&1 || $ip tuntap add dev {WANTED.tap} mode tap user 107
$ip link set {WANTED.tap} up
echo '{{"version": "1.0.0", "tap": "{WANTED.tap}", "mac": "{MAC}", "addresses": ["10.9.0.7"]}}'
"""


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for each in ("log", "plugins"):
            (directory / each).mkdir(parents=True)
        plugin = directory / "plugins" / "lan"
        plugin.write_text(SCRIPT.replace("LOG", str(directory / "log")))
        plugin.chmod(0o755)
        self.there = True
        self.looked: list[str] = []
        self.records = Records(directory / "records")
        self.plugins = Plugins(directory / "plugins", {"network": frozenset({"lan"})})

    def networks(self) -> setup.Networks:
        return setup.Networks(Plugins(self.directory / "plugins", {"network": frozenset({"lan"})}), self.records)

    def deleter(self) -> Deleter:
        return Deleter(self.records, self.plugins.call, self.is_there, lambda _record, _fault: None)

    def is_there(self, uid: str) -> bool:
        self.looked.append(uid)
        return self.there

    @property
    def asked(self) -> list[str]:
        path = self.directory / "log" / "asked"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def told(self, command: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.directory / "log" / f"{command}.json").read_text())
        return found

    def fails(self, command: str) -> Path:
        path = self.directory / "log" / f"{command}.fails"
        path.touch()
        return path


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def pod() -> Iterator[Pod]:
    with pods.a_pod() as made:
        yield made


async def test_restarted_handler_checks_and_recreates_interfaces(world: World, pod: Pod) -> None:
    made = await world.networks().prepare(VM, POD, pod.launcher)
    assert made[0].addresses == ("10.9.0.7",)
    assert await world.networks().prepare(VM, POD, pod.launcher) == made
    assert world.asked == ["ADD", "CHECK"]
    previous = {"version": "1.0.0", "tap": WANTED.tap, "mac": MAC, "addresses": ["10.9.0.7"]}
    assert world.told("CHECK") == {**world.told("ADD"), "prevResult": previous}
    failing = world.fails("CHECK")
    assert await world.networks().prepare(VM, POD, pod.launcher) == made
    assert world.asked[2:] == ["CHECK", "ADD"]
    failing.unlink()
    run("ip", "-n", pod.name, "link", "delete", WANTED.tap)
    assert await world.networks().prepare(VM, POD, pod.launcher) == made
    assert world.asked[4:] == ["CHECK", "ADD"]
    other = a_vm({"name": "private", "type": "plugin", "plugin": "lan", "mac": MAC, "options": {"a": "b"}})
    await world.networks().prepare(other, POD, pod.launcher)
    assert world.asked[6:] == ["ADD"]


async def test_interface_is_deleted_only_after_its_pod_is_gone(world: World, pod: Pod) -> None:
    await world.networks().prepare(VM, POD, pod.launcher)
    await world.deleter().look()
    assert world.asked == ["ADD"]
    world.there = False
    failing = world.fails("DEL")
    await world.deleter().look()
    assert len(list(world.records.all())) == 1
    failing.unlink()
    await world.deleter().look()
    assert world.asked == ["ADD", "DEL", "DEL"]
    assert (world.directory / "log" / "asked").read_text().splitlines()[-1] == "DEL"
    assert world.told("DEL")["prevResult"]
    assert not list(world.records.all())


async def test_a_pod_that_goes_while_its_plugin_adds_leaves_nothing(world: World, pod: Pod) -> None:
    waits = world.directory / "log" / "ADD.waits"
    waits.touch()
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        prepared = group.create_task(world.networks().prepare(VM, POD, pod.launcher))
        while world.asked != ["ADD"]:
            await asyncio.sleep(0.05)
        world.there = False
        look = group.create_task(world.deleter().look())
        while not world.looked:
            await asyncio.sleep(0.05)
        for _ in range(10):
            await world.plugins.describe("network", "lan")
            await asyncio.to_thread(world.looked.count, POD)
        waits.unlink()
        await prepared
        await look
    assert world.asked == ["ADD", "DEL"]
    assert world.told("DEL")["prevResult"]
    assert not list(world.records.all())


async def test_failed_interface_is_deleted_too(world: World, pod: Pod) -> None:
    world.fails("ADD")
    with pytest.raises(Failed, match="no luck"):
        await world.networks().prepare(VM, POD, pod.launcher)
    world.there = False
    await world.deleter().look()
    assert world.asked == ["ADD", "DEL"]
    assert "prevResult" not in world.told("DEL")
    assert not list(world.records.all())
