from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from tests.unit.apiserver.apis.virt.v1alpha1.test_bounds import errors

ALLOWED = Allowed(storage_plugins=frozenset({"images", "p", "p" * 40}))
SOURCE: dict[str, Any] = {"plugin": "images", "options": {"image": "a.img"}}


def places(source: dict[str, Any], **fields: Any) -> list[str]:
    found = errors({"devices": {"disks": [{"type": "Plugin", "source": source, **fields}]}}, ALLOWED)
    return list(dict.fromkeys(each.split(": ")[0].removeprefix("spec.domain.devices.disks[0]") for each in found))


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,
        {"plugin": "p"},
        {"plugin": "p" * 40, "options": {}, "sizeLimit": "1Gi"},
        {"plugin": "p", "options": {"a.b-c_D": "", "k": "ü" * 512, **{f"o{each}": "x" for each in range(30)}}},
    ],
    ids=lambda source: str(source)[:60],
)
def test_valid_plugin_sources_are_accepted(source: dict[str, Any]) -> None:
    assert places(source) == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"plugin": None}, ".source.plugin"),
        ({"plugin": ""}, ".source.plugin"),
        ({"plugin": "../sh"}, ".source.plugin"),
        ({"plugin": "a.b"}, ".source.plugin"),
        ({"plugin": "p" * 41}, ".source.plugin"),
        ({"options": {"": "a"}}, ".source.options"),
        ({"options": {"a b": "a"}}, ".source.options"),
        ({"options": {"-a": "a"}}, ".source.options"),
        ({"options": {"k" * 64: "a"}}, ".source.options"),
        ({"options": {"k": "a\nb"}}, ".source.options[k]"),
        ({"options": {"k": "\0"}}, ".source.options[k]"),
        ({"options": {"k": "ü" * 513}}, ".source.options[k]"),
        ({"options": {f"o{each}": "x" for each in range(33)}}, ".source.options"),
        ({"sizeLimit": "1"}, ".source.sizeLimit"),
        ({"host": "a"}, ".source.host"),
        ({"name": "claim"}, ".source.name"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_invalid_plugin_sources_are_refused_with_their_path(wrong: dict[str, Any], field: str) -> None:
    assert places({**SOURCE, **wrong}) == [field]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"driver": {"io": "native"}}, ".driver.io"),
        ({"shareable": True}, ".shareable"),
        ({"device": "lun", "target": {"bus": "scsi"}}, ".device"),
    ],
)
def test_options_no_plugin_supports_are_refused(fields: dict[str, Any], field: str) -> None:
    assert field in places(SOURCE, **fields)


def test_plugins_answer_replaces_its_options_for_the_launcher() -> None:
    domain = {"devices": {"disks": [{"name": "data", "type": "Plugin", "source": SOURCE}, {"name": "other", "type": "NBD", "source": {}}]}}
    answered = plugin_disks.Served("nbd", 512, "e", live_migration=True)
    told = plugin_disks.with_served(domain, {"data": answered, "other": answered})
    data, other = told["devices"]["disks"]
    assert plugin_disks.served(data) == answered
    assert (other, "options" in data["source"]) == (domain["devices"]["disks"][1], False)
    assert domain["devices"]["disks"][0]["source"] == SOURCE


@pytest.mark.parametrize(
    "served",
    [
        None,
        "nbd",
        {},
        {"protocol": "qcow2"},
        {"size": 0},
        {"size": -1},
        {"size": True},
        {"size": "512"},
        {"size": (1 << 50) + 1},
        {"export": 'a","b":"'},
        {"export": None},
        {"liveMigration": "yes"},
    ],
    ids=str,
)
def test_an_answer_that_makes_no_sense_is_none(served: Any) -> None:
    whole = {"protocol": "nbd", "size": 512, "export": "", "liveMigration": False}
    given = {**whole, **served} if isinstance(served, dict) and served else served
    assert plugin_disks.served({"type": "Plugin", "source": {"plugin": "p", "served": given}}) is None
    assert plugin_disks.served({"type": "Plugin", "source": {"plugin": "p", "served": whole}}) is not None
