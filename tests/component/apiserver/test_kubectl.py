"""The real virt-api in development mode, with the real kubectl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import build

ROOT = Path(__file__).parents[3]
Kubectl = Callable[..., str]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    program = build.program("kubernetes", "kubectl")
    directory = tmp_path_factory.mktemp("dev")
    plugins = ("--network-plugins=isolated", "--storage-plugins=images")
    command = [sys.executable, "-m", "apiserver.server.dev", f"--directory={directory}", "--port=0", *plugins]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    environment = os.environ | {"KUBECONFIG": str(directory / "kubeconfig"), "HOME": str(directory)}

    def run(*arguments: str, fails: bool = False, stdin: str | None = None, **more: str) -> str:
        done = subprocess.run(
            [program, *arguments], env=environment | more, input=stdin, capture_output=True, text=True, timeout=30, check=False
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    try:
        deadline = time.monotonic() + 50
        while "serving" not in (directory / "log").read_text():
            assert process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield run
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(50) == 0
    assert "Traceback" not in (directory / "log").read_text()


def loaded(text: str) -> Any:
    return json.loads(text)


def test_a_first_session(kubectl: Kubectl) -> None:
    tiny = str(ROOT / "examples" / "tiny.yaml")
    assert "virtualmachines" in kubectl("api-resources", "--api-group=kubevirt.io")
    assert "unchanged" not in kubectl("apply", "-f", tiny)
    assert "unchanged" in kubectl("apply", "-f", tiny)
    assert "RUN-STRATEGY" in kubectl("get", "vms", "-o", "wide")
    kubectl("label", "vm", "tiny", "a=b")
    assert "tiny" in kubectl("get", "vms", "-l", "a=b")
    kubectl("edit", "vm", "tiny", KUBE_EDITOR="sed -i s/RerunOnFailure/Halted/")
    obj = loaded(kubectl("get", "vm", "tiny", "-o", "json"))
    assert (obj["spec"]["runStrategy"], obj["metadata"]["generation"], obj["metadata"]["labels"]) == ("Halted", 2, {"a": "b"})
    kubectl("patch", "vm", "tiny", "-p", '{"spec":{"runStrategy":"Always"}}')
    ready = {"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = json.dumps({"status": {"conditions": [ready], "observedGeneration": 3}})
    kubectl("patch", "vm", "tiny", "--subresource=status", "--type=merge", "-p", status)
    kubectl("wait", "vm/tiny", "--for=condition=Ready", "--timeout=10s")
    assert "Run Strategy" in kubectl("describe", "vm", "tiny")
    assert "memory" in kubectl("explain", "virtualmachine.spec.domain", "--recursive")
    kubectl("delete", "vm", "tiny", "--wait=false")
    kubectl("patch", "vm", "tiny", "--type=json", "-p", '[{"op":"remove","path":"/metadata/finalizers"}]')
    kubectl("wait", "vm/tiny", "--for=delete", "--timeout=10s")
    assert "NotFound" in kubectl("get", "vm", "tiny", fails=True)


TERSE = {
    "apiVersion": "kubevirt.io/v1alpha1",
    "kind": "VirtualMachine",
    "metadata": {"name": "terse", "labels": {"a": "b"}},
    "spec": {
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "domain": {
            "memory": {"guest": "1024Mi"},
            "devices": {
                "disks": [
                    {"type": "Image", "source": {"reference": "registry.example.com/disk"}},
                    {"type": "Image", "device": "cdrom", "source": {"reference": "registry.example.com/disk"}},
                ],
                "interfaces": [{"name": "net"}],
                "consoles": [],
            },
        },
    },
}
"""Every list, with short elements, and a quantity that is not in its shortest form."""
MACHINES = [
    (path.stem, manifest)
    for path in sorted((ROOT / "examples").rglob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text())
    if manifest["kind"] == "VirtualMachine"
]


def test_applying_manifests_again_changes_nothing(kubectl: Kubectl) -> None:
    manifests = [
        {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}} for namespace, manifest in [*MACHINES, ("terse", TERSE)]
    ]
    text = yaml.safe_dump_all(manifests)

    def apply() -> list[str]:
        return kubectl("apply", "-f", "-", stdin=text).splitlines()

    assert [line for line in apply() if not line.endswith("created")] == []
    for each in manifests:
        if "status" in each:
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            kubectl("patch", "vm", name, "-n", namespace, "--subresource=status", "-p", json.dumps({"status": each["status"]}))
    before = loaded(kubectl("get", "vms", "--all-namespaces", "-o", "json"))
    assert len(before["items"]) >= len(manifests) > 10
    assert [line for line in apply() if not line.endswith("unchanged")] == []
    assert kubectl("diff", "-f", "-", stdin=text) == ""
    assert loaded(kubectl("get", "vms", "--all-namespaces", "-o", "json")) == before


def test_a_wrong_manifest_is_told_everything_at_once(kubectl: Kubectl) -> None:
    manifest = {
        "apiVersion": "kubevirt.io/v1alpha1",
        "kind": "VirtualMachine",
        "metadata": {"name": "wrong"},
        "spec": {"runStrategy": "Sometimes", "domain": {"cpu": {"cores": 0}, "memory": {"guest": "128Mi"}, "bus": 1}},
    }
    said = kubectl("create", "-f", "-", "--validate=strict", stdin=json.dumps(manifest), fails=True)
    for each in ("spec.runStrategy", "spec.domain.cpu.cores", "spec.domain.bus"):
        assert each in said


def test_each_machine_has_one_unfinished_migration(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(ROOT / "examples" / "slides" / "virtualmachine.yaml"))
    migration = str(ROOT / "examples" / "slides" / "migration.yaml")
    kubectl("create", "-f", migration)
    said = kubectl("create", "-f", migration, fails=True)
    [holder] = kubectl("get", "migrations", "-o", "name").split()
    name = holder.rpartition("/")[2]
    assert f'a migration of virtual machine "testvm" is already in progress: "{name}", begun 20' in said
    assert 'migrations.kubevirt.io "my-migration": ' in said
    assert name in kubectl("get", f"migrations/{name}")
    kubectl("delete", "vmmig", "--all", "--wait=false")


def test_ssa_12_and_meta_05_server_side_apply_takes_over(kubectl: Kubectl) -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "tiny.yaml").read_text())
    manifest["metadata"]["name"] = "ssa"
    manifest["spec"]["runStrategy"] = "Manual"
    first = yaml.safe_dump(manifest)
    kubectl("apply", "-f", "-", stdin=first)
    manifest["spec"]["runStrategy"] = "Halted"
    second = yaml.safe_dump(manifest)
    assert "Halted" in kubectl("diff", "--server-side", "-f", "-", stdin=second, fails=True)
    assert "serverside-applied" in kubectl("apply", "--server-side", "-f", "-", stdin=second)
    obj = loaded(kubectl("get", "vm", "ssa", "-o", "json", "--show-managed-fields"))
    entries = {(each["manager"], each["operation"]): each["fieldsV1"] for each in obj["metadata"]["managedFields"]}
    assert "f:runStrategy" in entries["kubectl", "Apply"]["f:spec"]
    assert ("kubectl-client-side-apply", "Update") not in entries
    assert "managedFields" not in kubectl("get", "vm", "ssa", "-o", "yaml")

    before = obj["metadata"]["resourceVersion"]
    kubectl("apply", "--server-side", "-f", "-", stdin=second)
    assert loaded(kubectl("get", "vm", "ssa", "-o", "json"))["metadata"]["resourceVersion"] == before
    assert kubectl("diff", "--server-side", "-f", "-", stdin=second) == ""

    manifest["spec"]["runStrategy"] = "Always"
    third = yaml.safe_dump(manifest)
    refused = kubectl("apply", "--server-side", "--field-manager=other", "-f", "-", stdin=third, fails=True)
    assert 'conflict with "kubectl"' in refused
    assert ".spec.runStrategy" in refused
    kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-", stdin=third)
    assert loaded(kubectl("get", "vm", "ssa", "-o", "json"))["spec"]["runStrategy"] == "Always"
    manifest["spec"]["nonsense"] = 1
    assert "spec.nonsense: field not declared in schema" in kubectl(
        "apply", "--server-side", "--validate=false", "-f", "-", stdin=yaml.safe_dump(manifest), fails=True
    )
