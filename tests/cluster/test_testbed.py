from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Object
from tests.cluster.api import in_phase, is_true
from tests.cluster.kube import Kubectl
from tests.cluster.manifests import GUEST_IMAGE, shared_claim
from tests.testbed import images
from tests.testbed import kubectl as testbed_kubectl

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not testbed_kubectl.is_own_cluster(), reason="KUBECONFIG names another cluster"),
]

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 107,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def a_pod(name: str, *command: str, node: str = "", restart: str = "Never", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": images.BUSYBOX, "command": list(command), "securityContext": RESTRICTED}
    container |= {"volumeMounts": spec.pop("volume_mounts", [])}
    place = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name.rstrip("0123456789")}},
        "spec": {"restartPolicy": restart, "terminationGracePeriodSeconds": 0, "containers": [container], **place, **spec},
    }


def output_of(kubectl: Kubectl, pod: dict[str, Any], seconds: float = 60) -> str:
    name = kubectl.api.create(pod)["metadata"]["name"]
    ended = kubectl.api.until("pod", name, in_phase("Succeeded", "Failed"), timeout=seconds, what=f"pod {name} ends")
    printed = kubectl("logs", name)
    assert ended["status"]["phase"] == "Succeeded", printed
    return printed


def test_both_nodes_are_ready_and_fast(bare_kubectl: Kubectl) -> None:
    """``test_slides.py`` removes the label for a moment."""

    def are_so(nodes: list[Object]) -> bool:
        return [each["metadata"]["name"] for each in nodes] == ["node1", "node2"] and all(map(is_true("Ready"), nodes))

    bare_kubectl.api.until_list("nodes", are_so, timeout=150, what="both nodes are ready and fast", label_selector="cpu=fast")


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_a_pod_finds_services_by_name(bare_kubectl: Kubectl, node: str) -> None:
    printed = output_of(bare_kubectl, a_pod(f"lookup-{node}", "nslookup", "kubernetes.default.svc.cluster.local", node=node))

    assert "10.96.0.1" in printed


@pytest.mark.sample(4, "the test bed")
@pytest.mark.timeout(300)
def test_a_service_spreads_over_the_pods_of_both_nodes(bare_kubectl: Kubectl) -> None:
    serve = "mkdir /tmp/www && hostname >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"
    for number in (1, 2):
        bare_kubectl.api.create(a_pod(f"web{number}", "sh", "-c", serve, node=f"node{number}", restart="Always"))
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}], "ipFamilyPolicy": "RequireDualStack"}
    bare_kubectl.api.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec})
    for name in ("web1", "web2"):
        bare_kubectl.api.ready("pod", name, timeout=120)

    ipv4, ipv6 = bare_kubectl.api.get("service", "web")["spec"]["clusterIPs"]
    known = 'until [ "$(fetch http://$host/ 2>/dev/null)" = $pod ]; do sleep 0.2; done'
    ask = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo $host $(fetch http://$host/) || exit 1; done"
    hosts = ("web", ipv4, f"[{ipv6}]")
    wait = f"for host in {' '.join(hosts)}; do for pod in web1 web2; do {known}; done; done"
    printed = output_of(bare_kubectl, a_pod("ask", "sh", "-c", f"{wait}; for host in {' '.join(hosts)}; do {ask}; done"), seconds=180)

    assert set(printed.splitlines()) == {f"{host} {pod}" for host in hosts for pod in ("web1", "web2")}


def test_privileged_pod_is_refused_under_restricted_pod_security(bare_kubectl: Kubectl) -> None:
    pod = a_pod("privileged", "true")
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}

    with pytest.raises(errors.Forbidden, match="violates PodSecurity"):
        bare_kubectl.api.create(pod)


@pytest.mark.sample(4, "the test bed")
def test_the_guest_image_can_be_mounted_as_a_volume(bare_kubectl: Kubectl, testguest: None) -> None:
    volume = {"name": "guest", "image": {"reference": GUEST_IMAGE, "pullPolicy": "IfNotPresent"}}
    mounts = [{"name": "guest", "mountPath": "/guest"}]

    printed = output_of(
        bare_kubectl,
        a_pod("image-volume", "sh", "-c", "stat -c '%n %s' /guest/boot/* /guest/disk/*", volumes=[volume], volume_mounts=mounts),
    )

    sizes = {line.split()[0]: int(line.split()[1]) for line in printed.splitlines()}
    kernels = {f"/guest/boot/{name}" for name in ("vmlinuz", "initrd.gz", "vmlinux", "initrd", "tiny")}
    assert set(sizes) == {*kernels, "/guest/disk/disk.img"}
    assert 1 << 12 < sizes.pop("/guest/boot/tiny") < 1 << 15
    assert all(size > 1 << 20 for size in sizes.values())


@pytest.mark.sample(4, "the test bed")
def test_a_shared_claim_is_the_same_directory_on_both_nodes(bare_kubectl: Kubectl) -> None:
    bare_kubectl.api.create(shared_claim("both"))
    volume = {"name": "shared", "persistentVolumeClaim": {"claimName": "both"}}
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    write, read = ("sh", "-c", "echo from-node1 >/shared/word"), ("cat", "/shared/word")

    output_of(bare_kubectl, a_pod("writer", *write, node="node1", volumes=[volume], volume_mounts=mounts))
    printed = output_of(bare_kubectl, a_pod("reader", *read, node="node2", volumes=[volume], volume_mounts=mounts))

    assert printed.strip() == "from-node1"


def test_a_pod_reaches_nothing_outside_the_machine(bare_kubectl: Kubectl) -> None:
    # Documentation addresses (RFC 5737, RFC 3849) without a route.
    ask = "for host in 192.0.2.1 [2001:db8::1]; do fetch http://$host/ 2>&1 && exit 1; done; true"
    printed = output_of(bare_kubectl, a_pod("outside", "sh", "-c", ask))

    assert printed.count("unreachable") == 2, printed
