from __future__ import annotations

import pytest

from tests.cluster.api import in_phase
from tests.cluster.drains import ended
from tests.cluster.kube import ROOT, Kubectl, console

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SLIDES = ROOT / "examples" / "slides"


def test_machine_of_the_slides_boots_and_moves_as_shown(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(SLIDES / "volume.yaml"))
    kubectl.api.patch("node", "node1", {"metadata": {"labels": {"cpu": None}}})
    try:
        kubectl("apply", "-f", str(SLIDES / "virtualmachine.yaml"))
        status = kubectl.api.ready("vm", "testvm", timeout=120)["status"]
    finally:
        kubectl.api.patch("node", "node1", {"metadata": {"labels": {"cpu": "fast"}}})
    assert status["nodeName"] == "node2"
    with console(kubectl, "testvm") as guest:
        guest.expect("GUEST-READY", timeout=90)

    created = kubectl("create", "-f", str(SLIDES / "migration.yaml"), "-o", "name").strip().rpartition("/")[2]

    assert ended(kubectl, created)["status"]["phase"] == "Succeeded"
    assert kubectl.api.get("vm", "testvm")["status"]["nodeName"] == "node1"
    with console(kubectl, "testvm") as guest:
        guest.type("\n")
        assert "42" in guest.run("echo $((6 * 7))")
    kubectl.api.delete("vm", "testvm", timeout=60)


def test_the_machine_with_a_spice_display_runs(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(SLIDES / "graphics.yaml"))

    running = kubectl.api.until("vm", "testvm", in_phase("Running"), timeout=90, what="phase Running")

    assert {"type": "spice"} in running["status"]["graphics"]
    kubectl.api.delete("vm", "testvm", timeout=90)
