from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import condition_of, is_true
from tests.cluster.kube import Kubectl, console, eventually
from tests.cluster.manifests import blank_disk, linux_vm, shared_claim
from tests.cluster.test_first_boot import PASSWORD, logs_of_everybody, secret
from tests.damage import never_again

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FILESYSTEMS: list[dict[str, Any]] = [
    {"name": "data", "type": "PersistentVolumeClaim", "source": {"name": "together"}},
    {"name": "settings", "type": "ConfigMap", "source": {"name": "fs-settings"}},
    {"name": "passwords", "type": "Secret", "source": {"name": "fs-passwords"}},
]
KILL = """
import contextlib, os, pathlib
for each in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    with contextlib.suppress(OSError):
        if b"--shared-dir=/var/lib/kubevirt/filesystems/data" in each.read_bytes().split(b"\\0"):
            os.kill(int(each.parent.name), 9)
"""


def config(colour: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fs-settings"}, "data": {"colour": colour}}


def is_false(kubectl: Kubectl, kind: str) -> dict[str, Any]:
    return condition_of(kubectl.api.until("vm", "sharing", is_true(kind, "False"), timeout=90, what=f"{kind}=False"), kind)


def test_a_guest_sees_a_claim_a_config_map_and_a_secret_as_files(kubectl: Kubectl) -> None:
    kubectl.api.apply(shared_claim("together"), blank_disk("together"), config("blue"))
    machine = linux_vm("sharing")
    machine["spec"]["domain"]["devices"]["filesystems"] = FILESYSTEMS
    kubectl.api.apply(machine)
    lacking = is_false(kubectl, "DisksReady")
    assert lacking["reason"] == "SecretNotFound"
    assert "spec.domain.devices.filesystems[2].source.name: Secret fs-passwords not found" in lacking["message"]

    kubectl.api.apply(secret("fs-passwords", root=PASSWORD))
    kubectl.api.ready("vm", "sharing", timeout=240)
    kubectl.api.until("vm", "sharing", is_true("FilesystemsReady"), timeout=90, what="vm sharing is FilesystemsReady")
    assert "file system 'data'" in condition_of(kubectl.api.get("vm", "sharing"), "Migratable")["message"]
    with console(kubectl, "sharing") as viewer:
        viewer.expect("GUEST-READY", timeout=120)
        for name in ("data", "settings", "passwords"):
            viewer.run(f"mkdir /{name}; mount -t virtiofs {name} /{name}")
        assert viewer.run("cat /settings/colour").strip().endswith("blue")
        assert PASSWORD in viewer.run("cat /passwords/root")
        assert "Read-only file system" in viewer.run("(echo x > /passwords/root) 2>&1")
        eventually(lambda: "16777216" in viewer.run("stat -c %s /data/disk.img"), timeout=60, what="what the Job writes to the claim")
        assert "uid=0" in viewer.run("echo of the guest > /data/file; stat -c uid=%u /data/file")
        kubectl.api.replace(config("green"))
        eventually(lambda: "green" in viewer.run("cat /settings/colour"), timeout=200, interval=5, what="the change")

        pod = kubectl.api.get("vm", "sharing")["status"]["podName"]
        with never_again("a lost write"):
            assert "of the guest" in kubectl("exec", pod, "--", "cat", "/var/lib/kubevirt/filesystems/data/file")
        kubectl("exec", pod, "--", "python3", "-c", KILL)
        lost = is_false(kubectl, "FilesystemsReady")
        assert lost["reason"] == "FilesystemLost"
        assert "file system data:" in lost["message"]
        assert "green" in viewer.run("cat /settings/colour")
    assert PASSWORD not in logs_of_everybody(kubectl, "sharing")
    kubectl.api.delete("vm", "sharing")
