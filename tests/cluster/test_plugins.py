"""The example of a third party's plugin for networks, installed as its README says, and what a machine is told when it hangs or lies."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kube import ROOT, Console, Kubectl, console, eventually
from tests.testbed import build, layout, release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

EXAMPLE = ROOT / "examples/plugins/isolated"
GUESTS = "guests.yaml"
"""What the README applies, beside what it installs by "install.yaml"."""
ONE, OTHER = "192.168.9.1", "192.168.9.2"


def commands() -> list[str]:
    """Return the README's commands: two steps of the installation, the use, and the removal."""
    found = re.findall(r"^```sh\n(.*?)^```", (EXAMPLE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(found) == 4
    return found


@pytest.fixture(scope="module")
def environment(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What somebody has in their shell who follows the README: kubectl, helm, and a namespace of their own."""
    kubeconfig = tmp_path_factory.mktemp("kube") / "config"
    kubeconfig.write_bytes(kubectl.kubeconfig.read_bytes())
    helm = build.program("helm")
    path = f"{Path(kubectl.binary).parent}:{helm.parent}:{os.environ['PATH']}"
    given = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path, "HELM_CACHE_HOME": str(layout.cache() / "helm-cache")}
    subprocess.run(["kubectl", "config", "set-context", "--current", f"--namespace={kubectl.namespace}"], env=given, check=True)
    return given


def follow(block: str, environment: dict[str, str]) -> None:
    done = subprocess.run(["sh", "-ec", block], cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> Iterator[None]:
    """The plugin as the README installs it, and removes it."""
    manifest = (EXAMPLE / GUESTS).read_text().replace("NODE", "some")
    refused = kubectl.try_run("create", "--dry-run=server", "-f", "-", stdin=manifest)
    assert "spec.domain.devices.interfaces[1].type: Forbidden: there is no plugin for networks in this cluster" in refused.stderr
    files, names, _, removal = commands()
    try:
        follow(files, environment)
        follow(names, environment)
        yield
    finally:
        try:
            follow(removal.replace(" delete ", " delete --ignore-not-found "), environment)
        finally:
            release.install()


def take_address(guest: Console, mac: str, address: str) -> None:
    """Give the card with this MAC address an address."""
    device = guest.run(f"grep -l {mac} /sys/class/net/*/address").strip().split("/")[-2]
    guest.run(f"ip link set {device} up; ip address add {address}/24 dev {device}")


def sees(guest: Console, address: str) -> bool:
    return "1 packets received" in guest.run(f"ping -c 1 -W 2 {address}")


def mac_of(kubectl: Kubectl, name: str) -> str:
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in kubectl.json("get", "vm", name)["status"]["interfaces"]}
    assert found["default"]["ipAddress"] == kubectl.json("get", "vm", name)["status"]["podIP"]
    return str(found["private"]["mac"])


def condition(kubectl: Kubectl, name: str, kind: str) -> dict[str, str]:
    conditions = (kubectl.json("get", "vm", name).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def test_a_third_partys_network_is_installed_from_its_readme_and_joins_guests_of_a_node(
    kubectl: Kubectl, installed: None, environment: dict[str, str]
) -> None:
    kubectl("get", "vms")  # waits where virt-api's upgrade has made its discovery stale, as the README's kubectl does not
    follow(commands()[2], environment)
    for name in ("isolated-one", "isolated-other"):
        told = condition(kubectl, name, "Migratable")
        assert told["status"] == "False"
        assert "plugin isolated does not say that its guests may move to another node" in told["message"]
    with console(kubectl, "isolated-one") as one, console(kubectl, "isolated-other") as other:
        for guest, name, address in ((one, "isolated-one", ONE), (other, "isolated-other", OTHER)):
            guest.expect("GUEST-READY", timeout=180)
            take_address(guest, mac_of(kubectl, name), address)
        eventually(lambda: sees(one, OTHER), timeout=60, what="an answer on the private network")
        eventually(lambda: sees(one, "10.0.2.1"), timeout=60, what="an answer on the pod's own network, which is another one")
        other.type("while :; do echo hello-in-private | nc -l -p 8080; done &\n")
        eventually(lambda: "hello-in-private" in one.run(f"nc -w 3 {OTHER} 8080 </dev/null"), timeout=60, what="a connection")


def test_a_plugin_that_is_not_named_or_an_option_that_it_does_not_know_is_told(kubectl: Kubectl, installed: None) -> None:
    """Goes on with the machines of the test before."""
    manifest = a_third(kubectl, "isolated-wrong")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["plugin"] = "other"
    refused = kubectl.try_run("create", "-f", "-", stdin=json.dumps(manifest))
    assert 'spec.domain.devices.interfaces[1].plugin: Unsupported value: "other": supported values: "isolated"' in refused.stderr
    manifest = a_third(kubectl, "isolated-wrong")
    manifest["spec"]["runStrategy"] = "Once"
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["options"] = {"vlan": "7"}
    kubectl.apply(manifest)
    kubectl("wait", "vm", "isolated-wrong", "--for=jsonpath={.status.phase}=Failed", "--timeout=120s", timeout=130)
    told = condition(kubectl, "isolated-wrong", "Ready")
    assert told["reason"] == "NetworkNotSupported"
    assert "plugin isolated (ADD): unknown option vlan" in told["message"]


def a_third(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Return one more machine like those of the test before, on their node."""
    spec = kubectl.json("get", "vm", "isolated-one")["spec"]
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def plugin_files(kubectl: Kubectl, system: Kubectl, installed: None) -> Iterator[str]:
    """A pod in which /plugins is the directory of plugins of the guests' node."""
    node = kubectl.json("get", "vm", "isolated-one")["status"]["nodeName"]
    image = system.json("get", "daemonset", "virt-handler")["spec"]["template"]["spec"]["containers"][0]["image"]
    container = {
        "name": "files",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
        "volumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
    }
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "plugins", "hostPath": {"path": "/var/lib/kubevirt-plugins", "type": "Directory"}}],
    }
    system.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plugin-files"}, "spec": spec})
    try:
        system("wait", "pod/plugin-files", "--for=condition=Ready", "--timeout=90s", timeout=100)
        yield "plugin-files"
    finally:
        system("delete", "pod/plugin-files", "--ignore-not-found", "--wait=false")


def a_plugin(add: str) -> str:
    """Return a script that says what it is, and does this when it is asked for an interface."""
    description = '{"version": "1.0.0", "supportedVersions": ["1.0.0"], "kinds": ["network"]}'
    return f"#!/bin/sh\nif [ $KUBEVIRT_COMMAND = VERSION ]; then echo '{description}'; exit; fi\n{add}\n"


HANGS = a_plugin("setsid sleep 1000000 & sleep 1000000")
LIES = a_plugin("""echo '{"version": "1.0.0", "tap": "tap0", "mac": "02:00:00:00:00:07"}'""")
"""It says that the pod's own network is what it was asked for."""


def test_a_plugin_that_hangs_lies_or_is_missing_is_told_and_heals_and_the_others_go_on(
    kubectl: Kubectl, system: Kubectl, plugin_files: str
) -> None:
    """Goes on with the machines of the tests before."""
    system("delete", "daemonset/isolated-plugin", "--cascade=foreground")  # it would put the file back

    def at_node(script: str) -> None:
        system("exec", plugin_files, "--", "sh", "-ec", script)

    def told(reason: str) -> bool:
        return condition(kubectl, "isolated-late", "NetworkReady").get("reason") == reason

    def put(script: str) -> None:
        at_node(f"cd /plugins; cat >.new <<'END'\n{script}END\nchmod 755 .new; mv .new isolated")

    def others_go_on() -> None:
        with console(kubectl, "isolated-one") as one:
            one.type("\n")
            eventually(lambda: sees(one, OTHER), timeout=60, what="an answer of another machine")

    at_node("cp -p /plugins/isolated /plugins/.saved")
    put(HANGS)
    kubectl.apply(a_third(kubectl, "isolated-late"))
    eventually(lambda: told("PluginTimedOut"), timeout=120, what="a plugin that hangs")
    assert "plugin isolated (ADD) did not answer within 20 s" in condition(kubectl, "isolated-late", "NetworkReady")["message"]
    others_go_on()
    put(LIES)
    eventually(lambda: told("PluginFailed"), timeout=120, what="a plugin that lies")
    message = condition(kubectl, "isolated-late", "NetworkReady")["message"]
    assert "plugin isolated (ADD) lies or errs: tap is tap0, and has to be tap" in message
    others_go_on()
    at_node("rm /plugins/isolated")
    eventually(lambda: told("PluginNotFound"), timeout=120, what="a plugin that is missing")
    at_node("mv /plugins/.saved /plugins/isolated")
    kubectl("wait", "vm", "isolated-late", "--for=condition=Ready", "--timeout=150s", timeout=160)
    assert condition(kubectl, "isolated-late", "NetworkReady")["status"] == "True"
