"""The cluster's network: a bridge, a namespace and a veth pair per node, and routes between pods."""

import json
import pathlib
import subprocess
from collections.abc import Sequence

from tests.testbed import layout, progress

_NAMESPACES = pathlib.Path("/var/run/netns")


def up() -> None:
    layout.state().mkdir(parents=True, exist_ok=True)
    if not _is_mounted():
        _mount_is_ours().touch()  # `ip netns add` will mount the directory over itself
    if not _link_exists(layout.BRIDGE):
        progress.run(["ip", "link", "add", layout.BRIDGE, "type", "bridge"])
    _enable_ipv6()
    _address(["ip"], layout.BRIDGE, layout.CONTROL_PLANE_ADDRESS, layout.CONTROL_PLANE_ADDRESS6)
    for node in layout.NODES:
        _connect(node)
        # kube-apiserver is in the root namespace and reaches aggregated servers by their pods' addresses.
        _route(["ip"], node.pod_cidrs, node.address, node.address6)


def _enable_ipv6() -> None:
    """Enable IPv6 on the bridge: containers often disable it. StepFailed if the kernel lacks it."""
    setting = pathlib.Path("/proc/sys/net/ipv6/conf", layout.BRIDGE, "disable_ipv6")
    if not setting.exists():
        raise progress.StepFailed("the test cluster needs a kernel with IPv6: its pods have addresses of both families")
    if setting.read_text().strip() != "0":
        setting.write_text("0")


def _address(ip: Sequence[str], link: str, ipv4: str, ipv6: str) -> None:
    """Set up a link with these addresses, which are unique: IPv6 needs no duplicate address detection."""
    progress.run([*ip, "address", "replace", f"{ipv4}/24", "dev", link])
    progress.run([*ip, "address", "replace", f"{ipv6}/64", "dev", link, "nodad"])
    progress.run([*ip, "link", "set", link, "up"])


def _route(ip: Sequence[str], networks: Sequence[str], ipv4: str, ipv6: str) -> None:
    for each, gateway in zip(networks, (ipv4, ipv6), strict=True):
        progress.run([*ip, "route", "replace", each, "via", gateway])


def _connect(node: layout.Node) -> None:
    if not _is_namespace(node.namespace):
        node.namespace.unlink(missing_ok=True)  # a name without its mount, as after a reboot in a container
        progress.run(["ip", "netns", "add", node.name])
    if not _link_exists(node.link):
        progress.run(["ip", "link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.name])
    progress.run(["ip", "link", "set", node.link, "master", layout.BRIDGE, "up"])
    inside = ["ip", "-n", node.name]
    _address(inside, "eth0", node.address, node.address6)
    progress.run([*inside, "link", "set", "lo", "up"])
    # A Service's address needs some route before kube-proxy's rules translate it.
    _route(inside, layout.SERVICE_CIDRS, layout.CONTROL_PLANE_ADDRESS, layout.CONTROL_PLANE_ADDRESS6)
    for other in layout.NODES:
        if other != node:
            _route(inside, other.pod_cidrs, other.address, other.address6)
    # Addresses are unique, and duplicate address detection would delay pods; a bridge that reflects packets would even make it fail.
    settings = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.default.accept_dad=0")
    progress.run(["ip", "netns", "exec", node.name, "sysctl", "-qw", *settings])


def down() -> None:
    for node in layout.NODES:
        if _link_exists(node.link):
            progress.run(["ip", "link", "delete", node.link])
        if node.namespace.exists():
            progress.run(["ip", "netns", "delete", node.name])
    if _link_exists(layout.BRIDGE):
        progress.run(["ip", "link", "delete", layout.BRIDGE])
    if _mount_is_ours().exists() and _is_mounted() and not any(_NAMESPACES.iterdir()):
        progress.run(["umount", str(_NAMESPACES)])


def _is_mounted() -> bool:
    """Return whether the directory of namespaces is a mount; ``is_mount`` misses mounts over themselves."""
    mounted = {line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}
    return str(_NAMESPACES.resolve()) in mounted


def _mount_is_ours() -> pathlib.Path:
    return layout.state() / "netns-mount-is-ours"


def leftovers() -> list[str]:
    left = [f"link {name}" for name in (layout.BRIDGE, *(node.link for node in layout.NODES)) if _link_exists(name)]
    left += [f"network namespace {node.name}" for node in layout.NODES if node.namespace.exists()]
    left += [
        f"route {each}"
        for node in layout.NODES
        for each, family in zip(node.pod_cidrs, ("-4", "-6"), strict=True)
        if json.loads(progress.output_of(["ip", family, "-json", "route", "show", each]) or "[]")
    ]
    return left


def _link_exists(name: str) -> bool:
    return pathlib.Path("/sys/class/net", name).exists()


def _is_namespace(path: pathlib.Path) -> bool:
    return path.exists() and subprocess.run(["nsenter", f"--net={path}", "true"], check=False, capture_output=True).returncode == 0
