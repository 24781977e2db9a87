"""A VM in libvirt's XML, and an engine on top of the API as in the oVirt plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from apiserver.apis.meta import errors
from tests.cluster.api import in_phase
from tests.cluster.kube import ROOT, Kubectl, console, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

EXAMPLE = ROOT / "examples" / "domain-xml.yaml"


def path_of(kubectl: Kubectl, name: str, read: str = "domainxml") -> str:
    return f"/apis/kubevirt.io/v1alpha1/namespaces/{kubectl.namespace}/virtualmachines/{name}/{read}"


def given_xml(kubectl: Kubectl, name: str) -> str:
    found = kubectl.api.request("GET", path_of(kubectl, name))
    assert (found["kind"], found["metadata"]["name"]) == ("VirtualMachineDomainXML", name)
    return str(found["xml"])


def test_xml_example_runs_and_libvirt_gets_its_bytes(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLE))
    vm = kubectl.api.ready("vm", "from-xml", timeout=150)
    with console(kubectl, "from-xml") as guest:
        guest.expect("GUEST-READY", timeout=120)
        assert "Example Engine" in guest.run("cat /sys/class/dmi/id/sys_vendor")

    wanted, given = (text.splitlines() for text in (vm["spec"]["domainXML"], given_xml(kubectl, "from-xml")))
    changed = {old.strip(): new.strip() for old, new in zip(wanted, given, strict=True) if old != new}
    uuid = next(new for old, new in changed.items() if old == "<uuid>@uuid@</uuid>")
    assert changed == {
        "<domain type='@type@'>": f"<domain type='{vm['status']['domain']['type']}'>",
        "<name>whatever-the-engine-calls-it</name>": f"<name>{kubectl.namespace}_from-xml</name>",
        "<uuid>@uuid@</uuid>": uuid,
        "<entry name='uuid'>@uuid@</entry>": uuid.replace("<uuid>", "<entry name='uuid'>").replace("</uuid>", "</entry>"),
        "<kernel>@kernel@</kernel>": "<kernel>/var/lib/kubevirt/kernel-boot/boot/vmlinuz</kernel>",
        "<initrd>@initrd@</initrd>": "<initrd>/var/lib/kubevirt/kernel-boot/boot/initrd.gz</initrd>",
        "<mac address='@mac:default@'/>": f"<mac address='{vm['status']['interfaces'][0]['mac']}'/>",
        "<target dev='@network:default@' managed='no'/>": "<target dev='tap0' managed='no'/>",
        "<source mode='bind' path='@serial@'/>": "<source mode='bind' path='/run/kubevirt/serial.sock'/>",
        "<source mode='bind' path='@agent@'/>": "<source mode='bind' path='/run/kubevirt/agent.sock'/>",
        "<listen type='socket' socket='@vnc@'/>": "<listen type='socket' socket='/run/kubevirt/vnc.sock'/>",
    }
    assert "128Mi" in kubectl("get", "vm", "from-xml", "-o", "wide")
    kubectl("exec", vm["status"]["podName"], "--", "test", "-s", "/usr/share/libvirt/schemas/domain.rng")
    kubectl.api.delete("vm", "from-xml", timeout=90)


def test_typed_machine_shows_its_xml_only_while_on(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(ROOT / "examples" / "tiny.yaml"))
    kubectl.api.ready("vm", "tiny", timeout=150)
    with console(kubectl, "tiny") as guest:
        guest.expect("GUEST-READY", timeout=120)
    assert given_xml(kubectl, "tiny").startswith("<domain type=")
    kubectl.api.patch("vm", "tiny", {"spec": {"runStrategy": "Halted"}})
    kubectl.api.until("vm", "tiny", in_phase("Stopped"), timeout=90, what="phase Stopped")
    with pytest.raises(errors.StatusError, match="cannot read domainxml"):
        kubectl.api.request("GET", path_of(kubectl, "tiny"))


def test_dangerous_xml_is_refused_with_its_path(kubectl: Kubectl) -> None:
    vm = yaml.safe_load(EXAMPLE.read_text())
    vm["spec"]["domainXML"] = vm["spec"]["domainXML"].replace("</devices>", "<hostdev mode='subsystem' type='pci'/></devices>")
    with pytest.raises(errors.Invalid, match=r"spec.domainXML: Forbidden: /domain/devices/hostdev: is not allowed"):
        kubectl.api.create(vm)


RESTART = (
    "kill $(cat /run/qemu-ga.pid); sleep 2; "
    "qemu-ga -d -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -f /run/qemu-ga.pid -l /var/log/qemu-ga.log"
)
"""The guest agent reads the list of applications at its start."""
INSTALL = f"printf '{{}}\\t{{}}\\n' >>/packages; {RESTART}"
"""busybox's package list is dpkg-query's output."""


class Engine:
    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def run(self, name: str, xml: str, domain: dict[str, Any], host: str) -> None:
        spec = {"runStrategy": "Once", "nodeSelector": {"kubernetes.io/hostname": host}, "domain": domain, "domainXML": xml}
        machine = {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}
        self._kubectl.api.create(machine)

    def reports(self, name: str, *, timeout: float) -> Iterator[dict[str, Any]]:
        last: dict[str, Any] = {}

        def changed() -> dict[str, Any] | None:
            nonlocal last
            status = self._kubectl.api.get("vm", name).get("status") or {}
            agent = (status.get("guest") or {}).get("agent") or {}
            shown = {
                "status": status.get("phase") or "Pending",
                "host": status.get("nodeName") or "",
                "displays": tuple(each["type"] for each in status.get("graphics") or ()),
                "applications": self._applications(name) if agent.get("connected") else (),
                "address": next((each.get("ipAddress") or "" for each in status.get("interfaces") or ()), ""),
            }
            if shown == last:
                return None
            last = shown
            return shown

        while True:
            yield eventually(changed, timeout=timeout, what=f"a change of {name}", interval=1)

    def wait_for(self, name: str, *, timeout: float, **wanted: object) -> dict[str, Any]:
        return next(each for each in self.reports(name, timeout=timeout) if {**each, **wanted} == each)

    def _applications(self, name: str) -> tuple[str, ...]:
        try:
            told = self._kubectl.api.request("GET", path_of(self._kubectl, name, "guestinfo"))
        except errors.StatusError:  # the agent may still be connecting
            return ()
        return tuple(sorted(f"{each['name']} {each['version']}" for each in told.get("applications") or ()))


@pytest.mark.timeout(800)
def test_engine_runs_a_machine_on_a_host_and_receives_reports(kubectl: Kubectl) -> None:
    example = yaml.safe_load(EXAMPLE.read_text())["spec"]
    engine = Engine(kubectl)
    engine.run("engines", example["domainXML"], example["domain"], "node2")

    seen = []
    for report in engine.reports("engines", timeout=150):
        seen.append(report)
        if report["status"] == "Running" and report["address"]:
            break
        assert report["status"] not in ("Failed", "Stopped")
    assert seen[-1]["host"] == "node2"
    assert seen[-1]["displays"] == ("vnc",)
    vm = kubectl.api.get("vm", "engines")
    pod = kubectl.api.get("pod", vm["status"]["podName"])
    assert "nodeName" not in vm["spec"]
    assert (vm["status"]["nodeName"], pod["spec"]["nodeSelector"]) == (pod["spec"]["nodeName"], {"kubernetes.io/hostname": "node2"})
    assert "node2" in kubectl("get", "vm", "engines", "-o", "wide")
    order = list(dict.fromkeys(each["status"] for each in seen))
    assert order == sorted(order, key=["Pending", "Scheduling", "Scheduled", "Running"].index)
    with console(kubectl, "engines") as guest:
        guest.expect("GUEST-READY", timeout=120)
        guest.run(f"printf '#!/bin/sh\\ncat /packages\\n' >/bin/dpkg-query; chmod +x /bin/dpkg-query; {INSTALL.format('web', '1.0')}")
        assert engine.wait_for("engines", timeout=120, applications=("web 1.0",))["host"] == "node2"
        guest.run(INSTALL.format("database", "2.1-3"))
        engine.wait_for("engines", timeout=120, applications=("database 2.1-3", "web 1.0"))
        guest.run(f"grep -v web /packages >/left; mv /left /packages; {RESTART}")
        engine.wait_for("engines", timeout=120, applications=("database 2.1-3",))
        guest.type("poweroff -f\n")
    for report in engine.reports("engines", timeout=90):
        if report["status"] == "Succeeded":
            break
    kubectl.api.delete("vm", "engines", timeout=90)
