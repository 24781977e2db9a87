from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta.validation import Path
from apiserver.apis.virt.v1alpha1.domain import interfaces

PLUGIN = {"name": "a", "type": "plugin", "plugin": "isolated"}


def errors(*given: dict[str, Any]) -> list[str]:
    return [str(each) for each in interfaces.validate({"devices": {"interfaces": list(given)}}, Path("domain"))]


@pytest.mark.parametrize(
    "more", [{}, {"network": "lan"}, {"options": {}}, {"options": {"a.b/c".replace("/", "-"): "$(reboot) ä"}}], ids=str
)
def test_plugin_interfaces_are_allowed_next_to_the_pods(more: dict[str, Any]) -> None:
    assert errors({"name": "default"}, {**PLUGIN, **more}, {**PLUGIN, "name": "b"}) == []


@pytest.mark.parametrize(
    ("interface", "said"),
    [
        ({"name": "a", "plugin": "isolated"}, "plugin: Forbidden: may be set only for type plugin"),
        ({"name": "a", "options": {}}, "options: Forbidden: may be set only for type plugin"),
        ({"name": "a", "type": "plugin"}, "plugin: Required value: type plugin requires the name of a plugin"),
        ({**PLUGIN, "ports": []}, "ports: Forbidden: may be set only for types masquerade and passt"),
        ({**PLUGIN, "deviceName": "a.b/c"}, "deviceName: Forbidden: may be set only for type sriov"),
        *(
            ({**PLUGIN, "plugin": given}, f'plugin: Invalid value: "{given}": must be the name of a plugin: at most 40 of a-z, 0-9 and -')
            for given in ("../sh", "/bin/sh", "A", "x" * 41)
        ),
        ({**PLUGIN, "options": {str(each): "" for each in range(33)}}, "options: Too many: 33: must have at most 32 items"),
        ({**PLUGIN, "options": {"a": "x" * 1025}}, f'options[a]: Invalid value: "{"x" * 256}'),
        ({**PLUGIN, "options": {"a": "b\nc"}}, 'options[a]: Invalid value: "b\\nc": must be one line of printable characters'),
        ({**PLUGIN, "options": {"a=b": "c"}}, 'options: Invalid value: "a=b": must begin and end with a letter or digit'),
    ],
    ids=str,
)
def test_invalid_plugin_interfaces_are_reported(interface: dict[str, Any], said: str) -> None:
    (found,) = errors(interface)
    assert found.startswith(f"domain.devices.interfaces[0].{said}")
