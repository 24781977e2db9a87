"""Disks that the administrator has to allow: those of a third party's plugin, installed as its README says, and files of the nodes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kube import ROOT, Kubectl, console, eventually
from tests.cluster.manifests import linux_vm, with_disks
from tests.damage import never_again
from tests.testbed import build, layout, nodes, release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

EXAMPLE = ROOT / "examples/plugins/images"
FILES = "/var/lib/kubevirt-files/{namespace}"
"""A directory of each node below which files may be disks."""
GUEST = "guest.yaml"
"""What the README applies, beside what it installs by "install.yaml"."""


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
    """The plugin as the README installs it, and removes it; files of nodes are allowed by the same upgrade, since each takes a minute."""
    assert "[0].type: Forbidden: files of nodes are no disks in this cluster" in refused(
        kubectl, on_node1("host-file", a_file("/etc/shadow"))
    )
    manifest = (EXAMPLE / GUEST).read_text().replace("NODE", "some")
    told = kubectl.try_run("create", "--dry-run=server", "-f", "-", stdin=manifest).stderr
    assert "spec.domain.devices.disks[0].type: Forbidden: there is no plugin for storage in this cluster" in told
    files, names, _, removal = commands()
    try:
        follow(files, environment)
        allowed = f"--set-json 'hostDisks={json.dumps({'paths': [FILES], 'maxCreated': '8Mi'})}'"
        follow(names.rstrip().replace(" --wait", f" {allowed} --wait"), environment)
        yield
    finally:
        try:
            follow(removal.replace(" delete ", " delete --ignore-not-found "), environment)
        finally:
            release.install()


def a_file(path: str, **source: Any) -> dict[str, Any]:
    """Return a disk that is a file of its node."""
    return {"name": path.rpartition("/")[2].partition(".")[0], "type": "HostDisk", "source": {"path": path, **source}}


def on_node1(name: str, *files: dict[str, Any]) -> dict[str, Any]:
    return with_disks(linux_vm(name, nodeSelector={"kubernetes.io/hostname": layout.NODES[0].name}), *files)


def refused(kubectl: Kubectl, manifest: dict[str, Any]) -> str:
    return str(kubectl.try_run("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest)).stderr)


def on_node(node: layout.Node, *command: str) -> str:
    return subprocess.run([*nodes.inside(node), *command], check=True, capture_output=True, text=True, timeout=60).stdout


def condition(kubectl: Kubectl, name: str, kind: str) -> dict[str, str]:
    conditions = (kubectl.json("get", "vm", name).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def daemon(kubectl: Kubectl, system: Kubectl) -> str:
    """Return the daemon's pod on the node of the guest."""
    node = kubectl.json("get", "vm", "with-images")["status"]["nodeName"]
    selected = system.json("get", "pods", "-l", "app=images-plugin", f"--field-selector=spec.nodeName={node},status.phase=Running")
    return str(selected["items"][0]["metadata"]["name"])


def checksum(kubectl: Kubectl, system: Kubectl) -> str:
    """Return that of the image, as the node has it."""
    return system("exec", daemon(kubectl, system), "-c", "serve", "--", "sha256sum", "/images/data.img").split()[0]


def a_second(kubectl: Kubectl, name: str, **source: Any) -> dict[str, Any]:
    """Return one more machine like that of the README, on its node."""
    spec = kubectl.json("get", "vm", "with-images")["spec"]
    spec["domain"]["devices"]["disks"][0]["source"] |= source
    return {"apiVersion": "kubevirt.io/v1alpha1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}


def test_a_plugin_is_installed_from_its_readme_and_its_disk_is_seen_by_a_guest(
    kubectl: Kubectl, system: Kubectl, installed: None, environment: dict[str, str]
) -> None:
    kubectl("get", "vms")  # waits where virt-api's upgrade has made its discovery stale, as the README's kubectl does not
    follow(commands()[2], environment)
    told = condition(kubectl, "with-images", "Migratable")
    assert (told["status"], told["message"]) == ("False", "the disk 'data' is set up on its node alone, by plugin 'images'")
    with console(kubectl, "with-images") as guest:
        guest.expect("GUEST-READY", timeout=180)
        with never_again("wrong bytes"):
            assert checksum(kubectl, system) in guest.run("sha256sum /dev/vda")
        guest.run("echo written-by-guest | dd of=/dev/vda conv=fsync")
        with never_again("wrong bytes"):
            assert checksum(kubectl, system) in guest.run("sha256sum /dev/vda")


def move(system: Kubectl, nodes: dict[str, str]) -> None:
    """Have the daemon run on all nodes, or on those with further labels, of which there are none."""
    patch = [{"op": "replace", "path": "/spec/template/spec/nodeSelector", "value": {"kubernetes.io/os": "linux", **nodes}}]
    system("patch", "daemonset", "images-plugin", "--type=json", "-p", json.dumps(patch))


def test_an_image_that_is_in_use_and_a_plugin_that_is_not_named_are_told(kubectl: Kubectl, installed: None) -> None:
    """Goes on with the machine of the test before."""
    manifest = a_second(kubectl, "images-wrong", plugin="other")
    supported = 'spec.domain.devices.disks[0].source.plugin: Unsupported value: "other": supported values: "images"'
    assert supported in refused(kubectl, manifest)
    kubectl.apply(a_second(kubectl, "images-second"))
    kubectl("wait", "vm/images-second", "--for=condition=DisksReady=False", "--timeout=120s", timeout=130)
    told = condition(kubectl, "images-second", "DisksReady")
    assert (told["reason"], "disk 'data': plugin images (ADD): image data.img is in use by another disk" in told["message"]) == (
        "PluginFailed",
        True,
    ), told
    kubectl("delete", "vm/images-second", "--wait=false")


def test_a_daemon_that_goes_away_is_told_and_the_guest_goes_on_once_it_is_back(kubectl: Kubectl, system: Kubectl, installed: None) -> None:
    """Goes on with the machine of the tests before."""
    with console(kubectl, "with-images") as guest:
        move(system, {"away": "yes"})

        def is_told() -> bool:
            told = condition(kubectl, "with-images", "DisksReady")
            return told.get("status") == "False" and "plugin images" in told["message"] and "'data'" in told["message"]

        guest.type("\nsync; echo written-meanwhile | dd of=/dev/vda conv=fsync; echo CO''PIED $?\n")
        eventually(is_told, timeout=180, what="a daemon that is away")
        assert condition(kubectl, "with-images", "DisksReady")["reason"] in ("PluginFailed", "DiskServerSilent")
        move(system, {})
        guest.expect("COPIED 0", timeout=300)
        eventually(lambda: condition(kubectl, "with-images", "DisksReady").get("status") == "True", timeout=120, what="the end of it")
        with never_again("wrong bytes"):
            assert checksum(kubectl, system) in guest.run("sha256sum /dev/vda")


def test_what_was_served_is_served_no_more_when_its_machine_is_off(kubectl: Kubectl, system: Kubectl, installed: None) -> None:
    """Goes on with the machine of the tests before."""
    pod = daemon(kubectl, system)
    assert ".json" in system("exec", pod, "-c", "serve", "--", "ls", "/images/.served")
    system("rollout", "restart", "daemonset/virt-handler")  # who asks for the end is another process than who asked for the beginning
    kubectl("virt", "stop", "with-images")
    eventually(
        lambda: ".json" not in system("exec", pod, "-c", "serve", "--", "ls", "/images/.served"), timeout=240, what="the plugin's DEL"
    )


def test_a_guest_reads_and_writes_a_file_of_its_node(kubectl: Kubectl, installed: None) -> None:
    node = layout.NODES[0]
    directory = FILES.replace("{namespace}", kubectl.namespace)
    elsewhere = on_node1("host-file", a_file("/var/lib/kubevirt-files/other/data.img"))
    assert f"must be below a directory that is allowed: {directory} " in refused(kubectl, elsewhere)
    try:
        on_node(node, "mkdir", "-p", directory)
        on_node(node, "sh", "-c", f"printf of-the-node | dd of={directory}/data.img bs=4M conv=sync; chown 107:107 {directory}/data.img")
        new = a_file(f"{directory}/new.img", create={"size": "4Mi"})
        kubectl.apply(on_node1("host-disk", a_file(f"{directory}/data.img"), new))
        kubectl("wait", "vm/host-disk", "--for=condition=Ready", "--timeout=180s", timeout=190)
        with console(kubectl, "host-disk") as guest:
            guest.expect("GUEST-READY", timeout=180)
            assert "of-the-node" in guest.run("head -c 11 /dev/vda")
            guest.run("echo of-the-guest | dd of=/dev/vda conv=fsync; echo too | dd of=/dev/vdb conv=fsync")
        assert on_node(node, "head", "-c", "12", f"{directory}/data.img") == "of-the-guest"
        assert on_node(node, "head", "-c", "3", f"{directory}/new.img") == "too"
        told = condition(kubectl, "host-disk", "Migratable")
        assert (told["status"], told["message"]) == ("False", "the disk 'data' is a file of its node")

        kubectl.apply(on_node1("host-too-large", a_file(f"{directory}/large.img", create={"size": "1Mi"})))
        kubectl("wait", "vm/host-too-large", "--for=condition=DisksReady=False", "--timeout=120s", timeout=130)
        told = condition(kubectl, "host-too-large", "DisksReady")
        assert told["reason"] == "DiskNotUsable"
        assert "its directory has files of 8388608 bytes, and may have 8388608" in told["message"]
        kubectl.apply(on_node1("host-second", a_file(f"{directory}/data.img")))
        kubectl("wait", "vm/host-second", "--for=condition=DisksReady=False", "--timeout=120s", timeout=130)
        told = condition(kubectl, "host-second", "DisksReady")
        assert told["reason"] == "DiskInUse"
        assert f"file in use: {directory}/data.img of node {node.name} by virtual machine host-disk; " in told["message"]
    finally:
        kubectl("delete", "vm", "host-disk", "host-too-large", "host-second", "--ignore-not-found", "--wait", timeout=180)
        on_node(node, "rm", "-rf", "/var/lib/kubevirt-files")
