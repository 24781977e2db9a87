from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.virt.hardware import firmware
from apiserver.apis.virt.places import network
from apiserver.apis.virt.v1alpha1 import defaults, validation
from launcher.domain.document import domain_uuid

ROOT = Path(__file__).parents[3]
UID = "6f1c2d3e-0000-4000-8000-000000000001"
KEYS = [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}]


def machine(domain: dict[str, Any] | None = None, *, phase: str = "Running", result: str | None = None, **spec: Any) -> dict[str, Any]:
    attempt = {"number": 1, **({"result": result} if result else {})}
    return {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": "web",
            "namespace": "team-a",
            "uid": UID,
            "resourceVersion": "7",
            "generation": 3,
            "labels": {"app": "web"},
            "finalizers": ["kubevirt.io/virtual-machine"],
            "ownerReferences": [{"kind": "Gone"}],
            "managedFields": [{}],
        },
        "spec": {"domain": {"memory": {"guest": "64Mi"}, **(domain or {})}, **spec},
        "status": {"phase": phase, "attempt": 1, "attempts": [attempt]},
    }


def kept(*items: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    given = json.dumps({"kind": "List", "items": items})
    command = [sys.executable, "-I", "-S", str(ROOT / "examples/backup.py")]  # without packages, as from a fresh checkout
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, cwd="/")
    return json.loads(done.stdout)["items"], done.stderr


def test_uid_derived_fields_are_kept_and_server_fields_dropped() -> None:
    disks = [
        {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "#cloud-config"}},
        {"name": "own", "type": "CloudInitNoCloud", "source": {"metaDataBase64": "e30="}},
        {"name": "san", "type": "ISCSI", "source": {"targetPortal": "192.0.2.1", "iqn": "iqn.2026-01.example:a"}},
    ]
    cards = [{"name": "default"}, {"name": "lan", "network": "lan", "mac": "52:54:00:c0:ff:ee"}]
    vm = machine({"devices": {"disks": disks, "interfaces": cards}})
    policy = {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "MigrationPolicy",
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"bandwidth": "1Mi"},
    }
    (made, other), told = kept(vm, policy)

    assert sorted(made) == ["apiVersion", "kind", "metadata", "spec"]
    assert made["metadata"] == {"name": "web", "namespace": "team-a", "labels": {"app": "web"}}
    domain = made["spec"]["domain"]
    identity = domain_uuid(UID, {})
    assert domain["firmware"]["uuid"] == identity
    assert [each["mac"] for each in domain["devices"]["interfaces"]] == [network.derived_mac(UID, "default"), "52:54:00:c0:ff:ee"]
    seed, own, san = domain["devices"]["disks"]
    assert json.loads(seed["source"]["metaData"])["instance-id"] == UID
    assert own["source"] == {"metaDataBase64": "e30="}
    assert san["source"]["initiatorName"] == f"iqn.2008-11.org.linux-kvm:{identity}"
    assert "runStrategy" not in made["spec"]
    assert other == {**policy, "metadata": {"name": "p"}}
    assert told == ""


def test_implicit_interface_is_written_and_valid() -> None:
    (made,), _ = kept(machine())
    assert made["spec"]["domain"]["devices"]["interfaces"] == [{"name": "default", "mac": network.derived_mac(UID, "default")}]
    defaults.default_virtual_machine(made)
    assert validation.validate_virtual_machine(made) == []


@pytest.mark.parametrize(
    ("status", "strategy"),
    [
        ({"request": {"action": "Stop", "runStrategy": "RerunOnFailure"}}, "Halted"),
        ({"phase": "Succeeded", "attempts": [{"number": 1, "result": "Succeeded"}]}, "Halted"),
        (
            {"phase": "Failed", "attempts": [{"number": 1, "result": "Failed", "nodeName": "n", "runningTime": "2026-01-01T00:00:00Z"}]},
            None,
        ),
    ],
    ids=["stopped", "powered off", "about to start again"],
)
def test_a_machine_that_is_off_stays_off(status: dict[str, Any], strategy: str | None) -> None:
    vm = machine()
    vm["status"] |= status
    (made,), _ = kept(vm)
    assert made["spec"].get("runStrategy") == strategy


def test_firmware_state_is_kept_by_fixing_the_uuid() -> None:
    vm = machine({"firmware": {"persistentState": {"claimName": "state"}}, "devices": {"tpm": {"persistent": True}}})
    (made,), told = kept(vm)
    domain = made["spec"]["domain"]
    assert firmware.state_directory(domain, "another") == firmware.state_directory(vm["spec"]["domain"], UID)
    assert f"team-a/web: the guest sees another UUID than {domain_uuid(UID, {})}" in told

    vm["spec"]["domain"]["firmware"]["uuid"] = "0f1c2d3e-0000-4000-8000-000000000002"
    (made,), told = kept(vm)
    assert (made["spec"]["domain"]["firmware"], told) == (vm["spec"]["domain"]["firmware"], "")


def test_fields_that_cannot_be_kept_are_reported() -> None:
    seed = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userData": "a"}}
    (made,), told = kept(machine({"devices": {"disks": [seed]}}, accessCredentials=KEYS))
    assert made["spec"]["domain"]["devices"]["disks"] == [seed]
    assert "team-a/web: cloud-init has a first boot again" in told

    xml = "<domain type='kvm'><memory unit='MiB'>64</memory></domain>"
    vm = machine(domainXML=xml)
    del vm["spec"]["domain"]
    (made,), told = kept(vm)
    assert made["spec"] == {"domainXML": xml, "domain": {"firmware": {"uuid": domain_uuid(UID, {})}}}
    assert "team-a/web: its XML is as it was" in told
