from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import interfaces
from handler.network import setup
from handler.network.namespaces import CommandFailed
from handler.plugins.answers import Description
from handler.plugins.calling import Plugins
from handler.plugins.faults import Failed, Fault, TimedOut
from handler.plugins.protocol import Command, Kind
from handler.plugins.records import Record, Records

THEIRS = {"name": "lan", "type": interfaces.PLUGIN, "plugin": "san", "mac": "52:54:00:aa:bb:cc"}


class Failing(Plugins):
    def __init__(self, fault: Fault) -> None:
        super().__init__(Path(), {})
        self._fault = fault

    async def describe(self, kind: Kind, name: str) -> Description:
        raise self._fault


async def add(interface: dict[str, Any], fault: Fault) -> None:
    vm = {"metadata": {"name": "testvm", "namespace": "ns", "uid": "3f0e"}, "spec": {"domain": {"devices": {"interfaces": [interface]}}}}
    (wanted,) = setup.wanted(vm)
    networks = setup.Networks(Failing(fault))
    networks._ours = Failing(fault)
    await networks._add({"pod": {"uid": "u"}}, wanted, 0, "")


@pytest.mark.parametrize("fault", [Failed("it failed"), TimedOut("timed out")])
async def test_failure_of_an_own_binding_is_no_plugin_failure(fault: Fault) -> None:
    with pytest.raises(CommandFailed, match=str(fault)):
        await add({"name": "default"}, fault)
    with pytest.raises(type(fault), match=str(fault)):
        await add(THEIRS, fault)


class Recording(Plugins):
    def __init__(self) -> None:
        super().__init__(Path(), {})
        self.calls: list[Command] = []

    async def call(
        self, kind: Kind, name: str, command: Command, document: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        self.calls.append(command)
        return {}


async def test_a_del_waits_for_the_add_of_its_card(tmp_path: Path) -> None:
    records, theirs = Records(tmp_path), Recording()
    record = Record("network", str(uuid.UUID(int=1)), "lan", "san", {})
    networks = setup.Networks(theirs, records)
    async with asyncio.TaskGroup() as group, records.lock(record.key):
        group.create_task(networks._delete(records, record.key, "/proc/1/fd/3"))
        await asyncio.sleep(0)
        records.write(record)
        assert theirs.calls == []
    assert theirs.calls == ["DEL"]
    assert records.of(record.key) is None
