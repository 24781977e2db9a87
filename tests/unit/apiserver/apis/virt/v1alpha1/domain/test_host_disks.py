from __future__ import annotations

import re
from typing import Any

import pytest

from apiserver.apis.virt.hardware import host_disks
from apiserver.apis.virt.v1alpha1.allowed import Allowed
from tests.unit.apiserver.apis.virt.v1alpha1 import test_bounds


def errors(*disks: dict[str, Any]) -> list[str]:
    found = test_bounds.errors({"devices": {"disks": [{"type": "HostDisk", **each} for each in disks]}}, Allowed(host_disks=("/var/vms",)))
    return [each.removeprefix("spec.domain.devices.disks") for each in found]


@pytest.mark.parametrize(
    "path",
    [
        "var/vms/a",
        "/var/vms/",
        "/var/vms/../a",
        "/var/vms/./a",
        "/var//vms/a",
        "/var/vms/a/..",
        "/var/vms/\n",
        "/var/vms/é",
        "/" + "a" * 1024,
        "/var/vms/" + "a" * 256,
        "/",
    ],
)
def test_a_path_has_one_spelling_and_leads_nowhere_else(path: str) -> None:
    (found,) = errors({"source": {"path": path}})
    assert found.startswith("[0].source.path: Invalid value: ")
    assert not host_disks.is_below(path, ("/var/vms", "/var", ""), "ns")


def test_host_disk_fields_are_accepted_and_others_named() -> None:
    assert errors({"source": {"path": "/var/vms/a", "create": {"size": "1Gi"}}}, {"source": {"path": "/var/vms/b"}, "readOnly": True}) == []
    assert errors({"source": {"path": "/var/vms/.hidden/a..b"}}) == []
    longest = "/var/vms" + f"/{'a' * 255}" * 3 + "/" + "b" * 247
    assert len(longest) == host_disks.MAX_PATH
    assert errors({"source": {"path": longest}}) == []
    assert "may not be longer than 1024 characters" in errors({"source": {"path": longest + "b"}})[0]
    assert errors({"source": {}}) == ["[0].source.path: Required value: the path of a file of the node"]
    (found,) = errors({"source": {"path": "/var/vms/a", "name": "claim"}})
    assert found == "[0].source.name: Forbidden: may not be set for a disk of type HostDisk"
    (found,) = errors({"source": {"path": "/var/vms/a", "create": {"size": "1Gi"}}, "readOnly": True})
    assert found.startswith("[0].source.create: Forbidden")
    (found,) = errors({"source": {"path": "/var/vms/a"}}, {"source": {"path": "/var/vms/a"}})
    assert found == '[1].source.path: Duplicate value: "/var/vms/a"'
    (found,) = errors({"source": {"path": "/var/vms/a"}, "shareable": True})
    assert found.startswith("[0].shareable: Forbidden")


def test_prefixes_are_directories_of_two_segments_at_least() -> None:
    assert host_disks.prefixes("/var/vms/,/srv/{namespace}") == ("/var/vms", "/srv/{namespace}")
    assert host_disks.prefixes("") == ()
    assert host_disks.prefixes("/var/lib/vms") == ("/var/lib/vms",)
    for wrong, told in {"/": "/", "/var": "/var", "var/vms": "var/vms", "/var/../etc": "/var/../etc", "/var/vms,/": "/"}.items():
        with pytest.raises(ValueError, match=f"^{re.escape(told)}: must"):
            host_disks.prefixes(wrong)
    assert host_disks.is_below("/srv/acc/a", ("/srv/{namespace}",), "acc")
    assert not host_disks.is_below("/srv/other/a", ("/srv/{namespace}",), "acc")
    assert not host_disks.is_below("/srv/accx/a", ("/srv/{namespace}",), "acc")
    assert not host_disks.is_below("/srv/acc", ("/srv/{namespace}",), "acc")
