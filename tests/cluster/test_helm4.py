from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import dig
from tests import booting
from tests.clients import programs
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import tiny_vm

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(660)]

WAIT_SECONDS = 120
TIMED_OUT = "context deadline exceeded"


def install(kubectl: Kubectl, directory: Path, vm: dict[str, Any], *flags: str) -> subprocess.CompletedProcess[str]:
    name = vm["metadata"]["name"]
    chart = directory / name
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
    (chart / "templates" / "vm.yaml").write_text(json.dumps(vm))
    booting.begin_with(vm)
    wait = ["--wait", "--rollback-on-failure", "--timeout", f"{WAIT_SECONDS}s"]
    return helm(kubectl, directory, "upgrade", "--install", name, str(chart), *wait, *flags)


def helm(kubectl: Kubectl, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**kubectl.environment, **{f"HELM_{each}_HOME": str(directory / each) for each in ("CACHE", "CONFIG", "DATA")}}
    command = [str(programs.helm()), *arguments, "--namespace", kubectl.namespace]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS + 60, check=False)


def releases(kubectl: Kubectl, directory: Path) -> dict[str, str]:
    listed = json.loads(helm(kubectl, directory, "list", "--output", "json").stdout)
    return {each["name"]: each["status"] for each in listed}


@pytest.mark.parametrize("strategy", ["Halted", "Manual"])
def test_helm_keeps_a_machine_that_is_off_as_its_spec_says(kubectl: Kubectl, tmp_path: Path, strategy: str) -> None:
    name = f"off-{strategy.lower()}"
    done = install(kubectl, tmp_path, tiny_vm(name, runStrategy=strategy))

    assert done.returncode == 0, done.stderr
    assert releases(kubectl, tmp_path)[name] == "deployed"
    assert dig(kubectl.api.get("vm", name), "spec", "runStrategy") == strategy
    assert helm(kubectl, tmp_path, "uninstall", name, "--wait").returncode == 0
    assert kubectl.api.find("vm", name) is None


def test_helm_waits_until_the_guest_runs_and_until_it_is_off(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    done = install(kubectl, tmp_path, tiny_vm("web"))
    assert done.returncode == 0, done.stderr
    assert dig(kubectl.api.get("vm", "web"), "status", "phase") == "Running"

    done = install(kubectl, tmp_path, tiny_vm("web", runStrategy="Halted"))
    assert done.returncode == 0, done.stderr
    assert dig(kubectl.api.get("vm", "web"), "status", "phase") == "Stopped"


def test_helm_waits_for_all_machines_of_a_set(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    spec = tiny_vm("pair")["spec"]
    labels = {"app": "pair"}
    wanted = {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}}
    kind = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachineReplicaSet"}
    done = install(kubectl, tmp_path, {**kind, "metadata": {"name": "pair"}, "spec": wanted})

    assert done.returncode == 0, done.stderr
    assert dig(kubectl.api.get("virtualmachinereplicasets", "pair"), "status", "availableReplicas") == 2
    assert helm(kubectl, tmp_path, "uninstall", "pair").returncode == 0


def test_helm_is_told_at_once_that_starts_are_given_up(kubectl: Kubectl, testguest: None, tmp_path: Path) -> None:
    vm = tiny_vm("broken", rerun={"limit": 0})
    vm["spec"]["domain"]["firmware"]["kernelBoot"]["container"]["kernelPath"] = "/boot/no-such-kernel"
    done = install(kubectl, tmp_path, vm)

    assert done.returncode != 0
    assert TIMED_OUT not in done.stderr
    assert releases(kubectl, tmp_path).get("broken") is None
