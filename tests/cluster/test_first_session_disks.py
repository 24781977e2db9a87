from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cluster.guests import counting_vm, counts_on, ticks
from tests.cluster.kube import Kubectl, console
from tests.cluster.manifests import linux_vm, shared_claim, with_disks
from tests.cluster.readme import block, environment_of, run

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture
def environment(kubectl: Kubectl, tmp_path: Path) -> dict[str, str]:
    return environment_of(kubectl, tmp_path)


@pytest.mark.sample(2, "disks of the first session")
def test_guest_of_the_first_session_gets_a_disk_and_loses_it(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> None:
    first = {"name": "first", "type": "EmptyDisk", "source": {"size": "8Mi"}}
    kubectl.api.apply(shared_claim("logs"), with_disks(linux_vm("testvm"), first))
    kubectl.api.ready("vm", "testvm", timeout=240)
    add, look, get, remove = (line for line in block("--create 64Mi").splitlines() if "logs" in line.lower())
    seen = re.search(r'"(.+)" prints (\S+)', look)
    assert seen
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=120)
        run(add, environment)
        guest.run(f"until grep -qs {seen[2]} /sys/block/vd*/serial; do sleep 1; done")
        assert seen[2] in guest.run(seen[1])
        kubectl.api.events("DiskAttached", of="testvm", timeout=30)
        assert json.loads(run(get, environment)).items() >= {"kind": "disk", "name": "logs", "target": "vdb"}.items()
        run(remove, environment)
        guest.run("while test -e /sys/block/vdb; do sleep 1; done")
    kubectl.api.events("DiskDetached", of="testvm", timeout=30)
    kubectl.api.delete("vm", "testvm")
    kubectl.api.gone("vm", "testvm", timeout=120)


@pytest.mark.sample(2, "disks of the first session")
def test_guest_of_the_first_session_resumes_where_it_was(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> None:
    kubectl.api.apply(shared_claim("memory"), counting_vm("testvm"))
    kubectl.api.ready("vm", "testvm", timeout=120)
    restart, suspend = (line for line in block("virt suspend").splitlines() if "managedSave" in line or "suspend" in line)
    assert "virt resume" in suspend
    run(restart, environment)
    counted, pod = ticks(kubectl, "testvm")[-1], kubectl.api.get("vm", "testvm")["status"]["podName"]
    run(suspend, environment)
    assert kubectl.api.get("vm", "testvm")["status"]["podName"] != pod
    counts_on(kubectl, "testvm", counted)
    kubectl.api.delete("vm", "testvm")
    kubectl.api.gone("vm", "testvm", timeout=120)
