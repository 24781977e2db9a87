"""The example plugins, installed as their READMEs say, and plugins that hang, lie or disappear."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.objects import condition as condition_of
from tests.cluster import examples
from tests.cluster.api import in_phase
from tests.cluster.examples import Plugin, follow
from tests.cluster.kube import ROOT, Console, Kubectl, console, eventually, until_in
from tests.cluster.manifests import linux_vm, with_disks
from tests.damage import never_again
from tests.testbed import layout, nodes, release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ISOLATED = Plugin.of(ROOT / "examples/plugins/isolated")
IMAGES = Plugin.of(ROOT / "examples/plugins/images")
FILES = "/var/lib/kubevirt-files/{namespace}"
HOST_DISKS = f"--set-json 'hostDisks={json.dumps({'paths': [FILES], 'maxCreated': '8Mi'})}'"
NO_HOST_DISKS = f"--set-json 'hostDisks={json.dumps({'paths': [], 'maxCreated': '100Gi'})}'"
ONE, OTHER = "192.168.9.1", "192.168.9.2"


@pytest.fixture(scope="module")
def environment(kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return examples.shell(kubectl, tmp_path_factory.mktemp("kube"))


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl, testguest: None, environment: dict[str, str]) -> Iterator[None]:
    _are_refused(kubectl)
    assert ISOLATED.helm_is_that_of(IMAGES)
    try:
        for each in (ISOLATED, IMAGES):
            follow(each.files, each.directory, environment)
        follow(ISOLATED.named_with(IMAGES.named, HOST_DISKS), ISOLATED.directory, environment)
        kubectl("get", "vms")
        yield
    finally:
        try:
            _remove(environment)
        except BaseException:
            release.install()
            raise


def _remove(environment: dict[str, str]) -> None:
    plugins = (ISOLATED, IMAGES)
    for each in plugins:
        follow(each.deletions()[0], each.directory, environment)
    follow(ISOLATED.unnamed_with(IMAGES.unnamed, NO_HOST_DISKS), ISOLATED.directory, environment)
    for each in plugins:
        follow(each.deletions()[1], each.directory, environment)


def _are_refused(kubectl: Kubectl) -> None:
    files = refused(kubectl, on_node1("host-file", a_file("/etc/shadow")))
    assert "[0].type: Forbidden: disks of type HostDisk are not allowed in this cluster" in files
    network = _of_readme(kubectl, ISOLATED, "guests.yaml")
    assert "spec.domain.devices.interfaces[1].type: Forbidden: network plugins are not allowed in this cluster" in network
    storage = _of_readme(kubectl, IMAGES, "guest.yaml")
    assert "spec.domain.devices.disks[0].type: Forbidden: storage plugins are not allowed in this cluster" in storage


def _of_readme(kubectl: Kubectl, plugin: Plugin, name: str) -> str:
    manifest = (plugin.directory / name).read_text().replace("NODE", "some")
    return str(kubectl.try_run("create", "--dry-run=server", "-f", "-", stdin=manifest).stderr)


def refused(kubectl: Kubectl, manifest: dict[str, Any]) -> str:
    return str(kubectl.try_run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest)).stderr)


def condition(kubectl: Kubectl, name: str, kind: str) -> dict[str, Any]:
    return dict(condition_of(dig(kubectl.api.get("vm", name), "status", "conditions"), kind) or {})


def told(kubectl: Kubectl, name: str, kind: str, *reasons: str, status: str = "", timeout: float = 120) -> dict[str, Any]:
    def found(vm: Object) -> dict[str, Any]:
        return dict(condition_of(dig(vm, "status", "conditions"), kind) or {})

    def is_so(vm: Object) -> bool:
        each = found(vm)
        return bool(each) and (not reasons or each["reason"] in reasons) and (not status or each["status"] == status)

    what = f"{kind} of {name} is {status} {' or '.join(reasons)}"
    return found(kubectl.api.until("vm", name, is_so, timeout=timeout, what=what))


def take_address(guest: Console, mac: str, address: str) -> None:
    device = guest.run(f"grep -l {mac} /sys/class/net/*/address").strip().split("/")[-2]
    guest.run(f"ip link set {device} up; ip address add {address}/24 dev {device}")


def sees(guest: Console, address: str) -> bool:
    return "1 packets received" in guest.run(f"ping -c 1 -W 2 {address}")


def mac_of(kubectl: Kubectl, name: str) -> str:
    status = kubectl.api.get("vm", name)["status"]
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in status["interfaces"]}
    assert found["default"]["ipAddress"] == status["podIP"]
    return str(found["private"]["mac"])


@pytest.fixture(scope="module")
def joined(kubectl: Kubectl, installed: None, environment: dict[str, str]) -> str:
    follow(ISOLATED.use, ISOLATED.directory, environment)
    for name, address in (("isolated-one", ONE), ("isolated-other", OTHER)):
        with console(kubectl, name) as guest:
            guest.expect("GUEST-READY", timeout=180)
            take_address(guest, mac_of(kubectl, name), address)
    return str(kubectl.api.get("vm", "isolated-one")["status"]["nodeName"])


def test_network_plugin_of_its_readme_joins_guests_of_a_node(kubectl: Kubectl, joined: str) -> None:
    for name in ("isolated-one", "isolated-other"):
        found = condition(kubectl, name, "Migratable")
        assert found["status"] == "False"
        assert "plugin isolated does not support live migration" in found["message"]
    with console(kubectl, "isolated-one") as one, console(kubectl, "isolated-other") as other:
        one.type("\n")
        eventually(lambda: sees(one, OTHER), timeout=60, what="an answer on the private network")
        eventually(lambda: sees(one, "10.0.2.1"), timeout=60, what="an answer on the pod's own network, which is another one")
        other.type("while :; do echo hello-in-private | nc -l -p 8080; done &\n")
        eventually(lambda: "hello-in-private" in one.run(f"nc -w 3 {OTHER} 8080 </dev/null"), timeout=60, what="a connection")


def test_unknown_plugin_or_option_is_reported(kubectl: Kubectl, joined: str) -> None:
    manifest = a_third(kubectl, "isolated-wrong")
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["plugin"] = "other"
    unsupported = 'spec.domain.devices.interfaces[1].plugin: Unsupported value: "other": supported values: "isolated"'
    assert unsupported in refused(kubectl, manifest)
    manifest = a_third(kubectl, "isolated-wrong")
    manifest["spec"]["runStrategy"] = "Once"
    manifest["spec"]["domain"]["devices"]["interfaces"][1]["options"] = {"vlan": "7"}
    kubectl.api.create(manifest)
    kubectl.api.until("vm", "isolated-wrong", in_phase("Failed"), timeout=120, what="the end of isolated-wrong")
    found = condition(kubectl, "isolated-wrong", "Ready")
    assert found["reason"] == "NetworkNotSupported"
    assert "plugin isolated (ADD): unknown option vlan" in found["message"]


def a_third(kubectl: Kubectl, name: str) -> dict[str, Any]:
    spec = kubectl.api.get("vm", "isolated-one")["spec"]
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def plugin_files(system: Kubectl, joined: str) -> Iterator[str]:
    image = system.api.get("daemonset", "virt-handler")["spec"]["template"]["spec"]["containers"][0]["image"]
    container = {
        "name": "files",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
        "volumeMounts": [{"name": "plugins", "mountPath": "/plugins"}],
    }
    spec = {
        "nodeName": joined,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": "plugins", "hostPath": {"path": "/var/lib/kubevirt-plugins", "type": "Directory"}}],
    }
    system.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plugin-files"}, "spec": spec})
    try:
        system.api.ready("pod", "plugin-files", timeout=90)
        yield "plugin-files"
    finally:
        system.api.delete("pod", "plugin-files")


def a_plugin(add: str) -> str:
    description = '{"version": "1.0.0", "supportedVersions": ["1.0.0"], "kinds": ["network"]}'
    return f"#!/bin/sh\nif [ $KUBEVIRT_COMMAND = VERSION ]; then echo '{description}'; exit; fi\n{add}\n"


HANGS = a_plugin("setsid sleep 1000000 & sleep 1000000")
LIES = a_plugin("""echo '{"version": "1.0.0", "tap": "tap0", "mac": "02:00:00:00:00:07"}'""")


def test_faulty_plugin_is_reported_and_heals_harming_no_other(kubectl: Kubectl, system: Kubectl, plugin_files: str) -> None:
    system.api.delete("daemonset", "isolated-plugin", propagation="Foreground", timeout=90)  # it would restore the file

    def at_node(script: str) -> None:
        system("exec", plugin_files, "--", "sh", "-ec", script)

    def message(reason: str) -> str:
        return str(told(kubectl, "isolated-late", "NetworkReady", reason)["message"])

    def put(script: str) -> None:
        at_node(f"cd /plugins; cat >.new <<'END'\n{script}END\nchmod 755 .new; mv .new isolated")

    def others_go_on() -> None:
        with console(kubectl, "isolated-one") as one:
            one.type("\n")
            eventually(lambda: sees(one, OTHER), timeout=60, what="an answer of another machine")

    at_node("cp -p /plugins/isolated /plugins/.saved")
    put(HANGS)
    kubectl.api.create(a_third(kubectl, "isolated-late"))
    assert "plugin isolated (ADD) did not answer within 20 s" in message("PluginTimedOut")
    others_go_on()
    put(LIES)
    assert "plugin isolated (ADD) returned a wrong result: tap is tap0, must be tap" in message("PluginFailed")
    others_go_on()
    at_node("rm /plugins/isolated")
    assert message("PluginNotFound")
    at_node("mv /plugins/.saved /plugins/isolated")
    kubectl.api.ready("vm", "isolated-late", timeout=150)
    assert condition(kubectl, "isolated-late", "NetworkReady")["status"] == "True"


def a_file(path: str, **source: Any) -> dict[str, Any]:
    return {"name": path.rpartition("/")[2].partition(".")[0], "type": "HostDisk", "source": {"path": path, **source}}


def on_node1(name: str, *files: dict[str, Any]) -> dict[str, Any]:
    return with_disks(linux_vm(name, nodeSelector={"kubernetes.io/hostname": layout.NODES[0].name}), *files)


def on_node(node: layout.Node, *command: str) -> str:
    return subprocess.run([*nodes.inside(node), *command], check=True, capture_output=True, text=True, timeout=60).stdout


def daemon(kubectl: Kubectl, system: Kubectl) -> str:
    node = kubectl.api.get("vm", "with-images")["status"]["nodeName"]
    running = f"spec.nodeName={node},status.phase=Running"
    return str(system.api.list("pods", label_selector="app=images-plugin", field_selector=running)[0]["metadata"]["name"])


def checksum(kubectl: Kubectl, system: Kubectl) -> str:
    return system("exec", daemon(kubectl, system), "-c", "serve", "--", "sha256sum", "/images/data.img").split()[0]


def a_second(kubectl: Kubectl, name: str, **source: Any) -> dict[str, Any]:
    spec = kubectl.api.get("vm", "with-images")["spec"]
    spec["domain"]["devices"]["disks"][0]["source"] |= source
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def served(kubectl: Kubectl, installed: None, environment: dict[str, str]) -> None:
    follow(IMAGES.use, IMAGES.directory, environment)
    with console(kubectl, "with-images") as guest:
        guest.expect("GUEST-READY", timeout=180)


def test_disk_plugin_of_its_readme_gives_a_guest_its_disk(kubectl: Kubectl, system: Kubectl, served: None) -> None:
    found = condition(kubectl, "with-images", "Migratable")
    assert (found["status"], found["message"]) == ("False", "the disk 'data' is set up only on its node, by plugin 'images'")
    with console(kubectl, "with-images") as guest:
        guest.type("\n")
        with never_again("wrong bytes"):
            assert checksum(kubectl, system) in guest.run("sha256sum /dev/vda")
        guest.run("echo written-by-guest | dd of=/dev/vda conv=fsync")
        with never_again("wrong bytes"):
            assert checksum(kubectl, system) in guest.run("sha256sum /dev/vda")


def move(system: Kubectl, nodes: dict[str, str]) -> None:
    patch = [{"op": "replace", "path": "/spec/template/spec/nodeSelector", "value": {"kubernetes.io/os": "linux", **nodes}}]
    system.api.patch("daemonset", "images-plugin", patch)


def test_used_image_and_unknown_plugin_are_reported(kubectl: Kubectl, served: None) -> None:
    manifest = a_second(kubectl, "images-wrong", plugin="other")
    supported = 'spec.domain.devices.disks[0].source.plugin: Unsupported value: "other": supported values: "images"'
    assert supported in refused(kubectl, manifest)
    kubectl.api.create(a_second(kubectl, "images-second"))
    found = told(kubectl, "images-second", "DisksReady", status="False")
    in_use = "disk 'data': plugin images (ADD): image data.img is in use by another disk"
    assert (found["reason"], in_use in found["message"]) == ("PluginFailed", True), found
    kubectl.api.delete("vm", "images-second")


def test_missing_daemon_is_reported_and_the_guest_resumes(kubectl: Kubectl, system: Kubectl, served: None) -> None:
    with console(kubectl, "with-images") as guest:
        move(system, {"away": "yes"})

        guest.type("\nsync; echo written-meanwhile | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")

        def is_away(vm: Object) -> bool:
            found = condition_of(dig(vm, "status", "conditions"), "DisksReady") or {}
            return found.get("status") == "False" and "plugin images" in found["message"] and "'data'" in found["message"]

        away = kubectl.api.until("vm", "with-images", is_away, timeout=180, what="a daemon that is away")
        reason = (condition_of(away["status"]["conditions"], "DisksReady") or {})["reason"]
        assert reason in ("PluginFailed", "DiskServerSilent")
        move(system, {})
        guest.expect("COPIED 0", timeout=300)
        told(kubectl, "with-images", "DisksReady", status="True")
        with never_again("wrong bytes"):
            assert checksum(kubectl, system) in guest.run("sha256sum /dev/vda")


def test_disk_is_no_longer_served_when_its_machine_is_off(kubectl: Kubectl, system: Kubectl, served: None) -> None:
    pod = daemon(kubectl, system)
    assert ".json" in system("exec", pod, "-c", "serve", "--", "ls", "/images/.served")
    system("rollout", "restart", "daemonset/virt-handler")
    kubectl.api.verb("with-images", "stop")
    not_served = "found=$(ls /images/.served) && case $found in *.json*) false;; esac"
    until_in(system, pod, not_served, timeout=240, what="the plugin's DEL", container="serve")


def test_a_guest_reads_and_writes_a_file_of_its_node(kubectl: Kubectl, installed: None) -> None:
    node = layout.NODES[0]
    directory = FILES.replace("{namespace}", kubectl.namespace)
    elsewhere = on_node1("host-file", a_file("/var/lib/kubevirt-files/other/data.img"))
    assert f"must be below an allowed directory: {directory} " in refused(kubectl, elsewhere)
    try:
        on_node(node, "mkdir", "-p", directory)
        on_node(node, "sh", "-c", f"printf of-the-node | dd of={directory}/data.img bs=4M conv=sync; chown 107:107 {directory}/data.img")
        new = a_file(f"{directory}/new.img", create={"size": "4Mi"})
        kubectl.api.create(on_node1("host-disk", a_file(f"{directory}/data.img"), new))
        kubectl.api.ready("vm", "host-disk", timeout=180)
        with console(kubectl, "host-disk") as guest:
            guest.expect("GUEST-READY", timeout=180)
            with never_again("wrong bytes"):
                assert "of-the-node" in guest.run("head -c 11 /dev/vda")
            guest.run("echo of-the-guest | dd of=/dev/vda conv=fsync; echo too | dd of=/dev/vdb conv=fsync")
        with never_again("a lost write"):
            assert on_node(node, "head", "-c", "12", f"{directory}/data.img") == "of-the-guest"
            assert on_node(node, "head", "-c", "3", f"{directory}/new.img") == "too"
        found = condition(kubectl, "host-disk", "Migratable")
        assert (found["status"], found["message"]) == ("False", "the disk 'data' is a file of its node")

        kubectl.api.create(on_node1("host-too-large", a_file(f"{directory}/large.img", create={"size": "1Mi"})))
        found = told(kubectl, "host-too-large", "DisksReady", status="False")
        assert found["reason"] == "DiskNotUsable"
        assert "the files of its directory have 8388608 bytes, and the limit is 8388608" in found["message"]
        kubectl.api.create(on_node1("host-second", a_file(f"{directory}/data.img")))
        found = told(kubectl, "host-second", "DisksReady", status="False")
        assert found["reason"] == "DiskInUse"
        assert f"file in use: {directory}/data.img of node {node.name} by virtual machine host-disk; " in found["message"]
    finally:
        for name in ("host-disk", "host-too-large", "host-second"):
            if kubectl.api.find("vm", name):
                kubectl.api.delete("vm", name, timeout=180)
        on_node(node, "rm", "-rf", "/var/lib/kubevirt-files")
