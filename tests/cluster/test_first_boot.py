from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from tests.cluster.api import condition_of, is_true
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, migration, with_disks
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SYSTEM = "kubevirt"
PASSWORD = "a-password-that-nobody-else-sees"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIhypotheticalhypotheticalhypothetical somebody@example"
SEED: dict[str, Any] = {"name": "seed", "type": "CloudInitNoCloud", "source": {"userDataSecretRef": {"name": "user-data"}}}
CONFIG: dict[str, Any] = {
    "name": "config",
    "type": "ConfigMap",
    "device": "disk",
    "source": {"name": "config", "volumeLabel": "settings"},
}
FIELDS: dict[str, Any] = {
    "name": "fields",
    "type": "DownwardAPI",
    "device": "disk",
    "source": {
        "items": [
            *({"path": each, "fieldRef": {"fieldPath": f"metadata.{each}"}} for each in ("name", "uid", "labels")),
            {"path": "role", "fieldRef": {"fieldPath": "metadata.annotations['example.com/role']"}},
            {"path": "memory", "resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
        ]
    },
}
ACCOUNT: dict[str, Any] = {
    "name": "account",
    "type": "ServiceAccount",
    "device": "disk",
    "source": {"name": "robot", "expirationSeconds": 3600},
}
CREDENTIALS = [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": {"noCloud": {}}}}]
E1000E = "0x10d3"
READ = "mkdir -p /tmp/{name}; mount -t iso9660 -o ro /dev/{device} /tmp/{name}; cat /tmp/{name}/{file}"


def secret(name: str, **values: str) -> dict[str, Any]:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def refusal(kubectl: Kubectl, vm: dict[str, Any], user: str) -> str:
    try:
        kubectl.api.request("POST", f"{VIRTUAL_MACHINES.path(kubectl.namespace)}?dryRun=All", body=vm, headers={"Impersonate-User": user})
    except errors.StatusError as error:
        return str(error)
    return ""


def logs_of_everybody(kubectl: Kubectl, name: str) -> str:
    system = kubectl.within(SYSTEM)
    pods = [each["metadata"]["name"] for each in system.api.list("pods")]
    found = [system("logs", pod, "--all-containers", timeout=120) for pod in pods]
    return "\n".join([*found, kubectl("logs", kubectl.api.get("vm", name)["status"]["podName"])])


def test_missing_secret_is_reported_and_its_content_kept_private(kubectl: Kubectl) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"settings.ini": "colour=blue"}}
    kubectl.api.apply(config, secret("keys", mine=f"{KEY}\n"))
    machine = with_disks(linux_vm("first-boot", accessCredentials=CREDENTIALS), SEED, CONFIG)
    machine["spec"]["domain"]["devices"]["interfaces"] = [{"name": "default", "model": "e1000e"}]
    kubectl.api.apply(machine)

    waits = kubectl.api.until("vm", "first-boot", is_true("DisksReady", "False"), timeout=60, what="DisksReady=False")
    lacking = condition_of(waits, "DisksReady")
    assert lacking["reason"] == "SecretNotFound"
    assert "spec.domain.devices.disks[0].source.userDataSecretRef: Secret user-data not found" in lacking["message"]
    assert "SecretNotFound" in kubectl("get", "vm", "first-boot")

    kubectl.api.apply(secret("user-data", userdata=f"#cloud-config\npassword: {PASSWORD}\n"))
    seen = kubectl.api.ready("vm", "first-boot", timeout=240)
    assert condition_of(seen, "DisksReady")["status"] == "True"
    assert seen["status"]["attempt"] == 1

    with console(kubectl, "first-boot") as viewer:
        viewer.expect("GUEST-READY", timeout=120)
        assert E1000E in viewer.run("cat /sys/bus/pci/devices/*/device").split()
        assert f"password: {PASSWORD}" in viewer.run(READ.format(name="seed", device="vda", file="user-data"))
        meta = viewer.run("cat /tmp/seed/meta-data")
        assert all(each in meta for each in (seen["metadata"]["uid"], '"local-hostname": "first-boot"', KEY))
        assert "colour=blue" in viewer.run(READ.format(name="config", device="vdb", file="settings.ini"))
        assert "settings" in viewer.run("dd if=/dev/vdb bs=1 skip=32808 count=32 2>/dev/null")

    assert PASSWORD not in logs_of_everybody(kubectl, "first-boot")
    assert PASSWORD not in json.dumps(seen)
    assert PASSWORD not in json.dumps(kubectl.api.list("events"))
    kubectl.api.delete("vm", "first-boot")


def test_a_guest_takes_its_disk_along_when_it_moves(kubectl: Kubectl) -> None:
    kubectl.api.apply(secret("user-data", userdata="#cloud-config\nfqdn: moved.example\n"))
    kubectl.api.apply(with_disks(linux_vm("moved-seed"), SEED))
    before = kubectl.api.ready("vm", "moved-seed", timeout=120)["status"]["nodeName"]
    with console(kubectl, "moved-seed") as viewer:
        viewer.expect("GUEST-READY", timeout=120)
        first = viewer.run("md5sum < /dev/vda")

    made = kubectl.api.create(migration("moved-seed"))["metadata"]["name"]
    kubectl.api.until("vmmig", made, is_true("Succeeded"), timeout=300, what=f"vmmig {made} is Succeeded")
    kubectl.api.until("vm", "moved-seed", lambda found: found["status"]["nodeName"] != before, timeout=90, what="another node")
    with console(kubectl, "moved-seed") as viewer:
        viewer.run("echo 3 > /proc/sys/vm/drop_caches")
        second = viewer.run("md5sum < /dev/vda")
    with never_again("wrong bytes"):
        assert first.split()[-2:] == second.split()[-2:]
    kubectl.api.delete("vm", "moved-seed")


def test_guest_knows_its_fields_and_service_account(make_namespace: Callable[[str], Kubectl]) -> None:
    kubectl = make_namespace("tokens")
    vm = with_disks(linux_vm("robot"), FIELDS, ACCOUNT)
    vm["metadata"] |= {"labels": {"app": "db"}, "annotations": {"example.com/role": "replica"}}
    kubectl.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    with pytest.raises(errors.Forbidden, match=r"kubevirt\.io/service-account-disks=allowed"):
        kubectl.api.create(vm)
    kubectl.api.patch("namespace", kubectl.namespace, {"metadata": {"labels": {"kubevirt.io/service-account-disks": "allowed"}}})
    group, machines = "rbac.authorization.k8s.io", {"name": "machines"}
    rules = [{"apiGroups": [VIRTUAL_MACHINES.group], "resources": [VIRTUAL_MACHINES.plural], "verbs": ["*"]}]
    user = {"apiGroup": group, "kind": "User", "name": "makes-machines"}
    bound = {"roleRef": {"apiGroup": group, "kind": "Role", **machines}, "subjects": [user]}
    kubectl.api.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": machines, "rules": rules})
    kubectl.api.create({"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": machines, **bound})
    eventually(lambda: "requires the right to create pods" in refusal(kubectl, vm, "makes-machines"), timeout=60, what="the refusal")

    kubectl.api.create(vm)
    seen = kubectl.api.ready("vm", "robot", timeout=240)
    migratable = condition_of(seen, "Migratable")
    assert (migratable["status"], "the token on the disk 'account'" in migratable["message"]) == ("False", True)
    with console(kubectl, "robot") as viewer:
        viewer.expect("GUEST-READY", timeout=120)
        assert 'app="db"' in viewer.run(READ.format(name="fields", device="vda", file="labels"))
        for file, value in {"name": "robot", "uid": seen["metadata"]["uid"], "role": "replica"}.items():
            assert f"{file}={value}." in viewer.run(f"echo {file}=$(cat /tmp/fields/{file}).")
        assert re.search(r"^memory=[1-9][0-9]{2}\.", viewer.run("echo memory=$(cat /tmp/fields/memory)."), re.MULTILINE)
        token = re.search(r"eyJ[\w-]+\.[\w-]+\.[\w-]+", viewer.run(READ.format(name="account", device="vdb", file="token")))
        assert token is not None
        assert "BEGIN CERTIFICATE" in viewer.run("cat /tmp/account/ca.crt")
        assert f"in {kubectl.namespace}." in viewer.run("echo in $(cat /tmp/account/namespace).")

    review = kubectl.api.create({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token[0]}})
    assert review["status"]["user"]["username"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    objects = [kubectl.api.list(each) for each in ("vm", "pods", "events")]
    assert token[0] not in logs_of_everybody(kubectl, "robot") + json.dumps(objects)
    kubectl.api.delete("vm", "robot")


def test_the_agent_sets_the_keys_of_a_secret_and_follows_it(kubectl: Kubectl) -> None:
    by_agent = {"source": {"secret": {"secretName": "agent-keys"}}, "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}
    kubectl.api.apply(secret("agent-keys", one=f"{KEY}-1\n"))
    kubectl.api.apply(linux_vm("keys-by-agent", accessCredentials=[{"sshPublicKey": by_agent}]))
    kubectl.api.until(
        "vm",
        "keys-by-agent",
        is_true("AccessCredentialsSynchronized"),
        timeout=180,
        what="vm keys-by-agent is AccessCredentialsSynchronized",
    )
    with console(kubectl, "keys-by-agent") as viewer:
        viewer.expect("GUEST-READY", timeout=120)
        assert f"{KEY}-1" in viewer.run("cat /.ssh/authorized_keys")
        kubectl.api.replace(secret("agent-keys", two=f"{KEY}-2\n"))
        kept = eventually(
            lambda: f"{KEY}-2" in (found := viewer.run("cat /.ssh/authorized_keys")) and found, timeout=200, interval=5, what="the new key"
        )
        assert f"{KEY}-1" not in kept
    kubectl.api.delete("vm", "keys-by-agent")
