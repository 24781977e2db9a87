"""The manifests of the KVM Forum slides work as they stand in ``examples/slides``."""

from __future__ import annotations

import pytest

from tests.cluster.kube import ROOT, Kubectl, console, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SLIDES = ROOT / "examples" / "slides"


def test_the_machine_of_the_slides_boots_from_its_claim_and_moves_as_the_slides_say(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(SLIDES / "volume.yaml"))
    kubectl("label", "node", "node1", "cpu-")  # so that the machine begins on node2 and has somewhere to go
    try:
        kubectl("apply", "-f", str(SLIDES / "virtualmachine.yaml"))
        kubectl("wait", "vm", "testvm", "--for=condition=Ready", "--timeout=120s", timeout=130)
    finally:
        kubectl("label", "node", "node1", "cpu=fast")
    assert kubectl.json("get", "vm", "testvm")["status"]["nodeName"] == "node2"
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=90)

    created = kubectl("create", "-f", str(SLIDES / "migration.yaml"), "-o", "name").strip()

    kubectl("wait", created, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s", timeout=130)
    assert kubectl.json("get", "vm", "testvm")["status"]["nodeName"] == "node1"
    with console(kubectl, "testvm") as guest:
        guest.type("\n")
        assert "42" in guest.run("echo $((6 * 7))")
    kubectl("delete", "vm", "testvm", "--timeout=60s", timeout=70)


def test_the_machine_with_a_spice_display_runs(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(SLIDES / "graphics.yaml"))

    running = eventually(
        lambda: (vm := kubectl.json("get", "vm", "testvm")).get("status", {}).get("phase") == "Running" and vm,
        timeout=90,
        what="phase Running",
    )

    assert {"type": "spice"} in running["status"]["graphics"]
    kubectl("delete", "vm", "testvm", "--timeout=90s", timeout=100)
