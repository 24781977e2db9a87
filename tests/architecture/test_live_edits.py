"""An edit of a running machine is live, or RestartRequired names its field, as ``kubectl explain`` and docs/api.md say."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from apiserver.apis.virt.spec import hot_plug, hot_plug_interfaces, live_changes, running
from apiserver.apis.virt.v1alpha1 import defaults, types
from apiserver.registry.virt.virtualmachines import OF_ITS_PLACE, VirtualMachineStrategy
from tests.fields import pairs, schema

STRATEGY: Final = VirtualMachineStrategy(allowed=pairs.ALLOWED)
CHANGES: Final = (*live_changes.KNOWN, hot_plug.DISK, hot_plug.MEDIUM, hot_plug_interfaces.INTERFACE)
ROWS: Final = re.findall(
    r"^\| (.+) \| (.+) \|$", Path("docs/api.md").read_text().partition("## Editing a running machine")[2], re.MULTILINE
)
FIELDS: Final = {each.path: each for each in schema.fields(schema.definitions(types.VirtualMachine))}
AT_ONCE: Final = {
    "runStrategy",
    "rerun",
    "evictionStrategy",
    "onNodeLoss",
    "terminationGracePeriodSeconds",
    "readinessProbe",
    "livenessProbe",
}
"""Fields outside the guest's hardware and place: virt-controller or virt-handler reads the newest value."""
LIVE: Final = re.compile("A running guest (takes|gets more)")
PLUGGED: Final = "A running guest gets and loses"
PLAIN: Final[dict[str, list[dict[str, Any]]]] = {"disks": [{"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "data"}}]}
"""Devices besides those of the examples."""
IDENTITY: Final = {"devices.disks[].name", "devices.interfaces[].name"}
"""Another name is another device."""


def edited(one: pairs.Domain, other: pairs.Domain) -> tuple[dict[str, Any], list[str]]:
    old, new = pairs.machine(one), pairs.machine(other)
    for each in (old, new):
        defaults.default_virtual_machine(each)
        each["metadata"]["generation"] = 1
        each["status"] = {"phase": "Running", "domain": {"liveChanges": list(CHANGES)}}
    STRATEGY.prepare_for_update(new, old)
    assert STRATEGY.validate_update(copy.deepcopy(new), old) == []
    return new, [re.sub(r"\[.*?\]", "", each.path) for each in live_changes.rest(new)]


def both_ways(key: str) -> Iterator[tuple[pairs.Domain, pairs.Domain]]:
    for one, other in pairs.of(key):
        yield one, other
        yield other, one


def describes(key: str) -> bool:
    path = f"{schema.DOMAIN}.{key}"
    return any(LIVE.search(each.description) for each in FIELDS.values() if path == each.path or path.startswith(f"{each.path}."))


@pytest.mark.parametrize("key", pairs.FIELDS)
def test_edit_is_live_as_explain_says_or_waits_by_name(key: str) -> None:
    found, live = f"{schema.DOMAIN}.{key}".replace("[]", ""), False
    for one, other in both_ways(key):
        new, waits = edited(one, other)
        assert waits or running.differences(new), "the edit counts as none"
        assert all(found.startswith(each) for each in waits), waits
        live |= not waits
    assert live == (describes(key) or key in IDENTITY)


@pytest.mark.parametrize("devices", sorted(path for path in FIELDS if re.fullmatch(r"spec\.domain\.devices\.\w+", path)))
def test_devices_that_come_and_go_are_those_of_explain(devices: str) -> None:
    name = devices.rpartition(".")[2]
    listed = pairs.EXAMPLE["devices"][name]
    found = [*listed, *PLAIN.get(name, ())] if isinstance(listed, list) else []
    changes = (edited({"devices": {name: [each]}}, {"devices": {name: []}})[1] for each in found)
    assert any(not waits for waits in changes) == (PLUGGED in FIELDS[devices].description)


def test_every_field_of_the_spec_takes_effect_at_one_time() -> None:
    named = {path.split(".")[1].partition("[")[0].rstrip("…") for path in FIELDS if path.startswith("spec.")}
    kinds = [AT_ONCE, {*OF_ITS_PLACE}, {*running.FIELDS}]
    assert sorted(named) == sorted(each for kind in kinds for each in kind)


def test_page_about_the_api_says_when_an_edit_takes_effect() -> None:
    at_once, at_start = (" ".join(fields for fields, when in ROWS if when.startswith(word)) for word in ("a", "at the next start"))
    for field in ("ioTune", "source.create.size", "state", "cpu.sockets", "memory.guest", *(AT_ONCE - {"readinessProbe", "livenessProbe"})):
        assert f"`{field}`" in at_once.replace("as soon", ""), field
    assert all(f"`{field}`" in at_start for field in running.FIELDS)
