"""The machine's side of the cluster's network: one bridge, a network namespace and a cable for each node, routes between their pods."""

import json
import pathlib
import subprocess

from tests.testbed import layout, progress

_NAMESPACES = pathlib.Path("/var/run/netns")


def up() -> None:
    """Make bridge, namespaces, cables and routes; each may exist already."""
    layout.state().mkdir(parents=True, exist_ok=True)
    if not _is_mounted():
        _mount_is_ours().touch()  # `ip netns add` is going to mount the directory over itself
    if not _link_exists(layout.BRIDGE):
        progress.run(["ip", "link", "add", layout.BRIDGE, "type", "bridge"])
    progress.run(["ip", "address", "replace", f"{layout.CONTROL_PLANE_ADDRESS}/24", "dev", layout.BRIDGE])
    progress.run(["ip", "link", "set", layout.BRIDGE, "up"])
    for node in layout.NODES:
        _connect(node)
        # kube-apiserver runs in the root namespace and reaches aggregated servers by the addresses of their pods.
        progress.run(["ip", "route", "replace", node.pod_cidr, "via", node.address])


def _connect(node: layout.Node) -> None:
    if not _is_namespace(node.namespace):
        node.namespace.unlink(missing_ok=True)  # a name whose mount has gone, as after a reboot in a container
        progress.run(["ip", "netns", "add", node.name])
    if not _link_exists(node.link):
        progress.run(["ip", "link", "add", node.link, "type", "veth", "peer", "name", "eth0", "netns", node.name])
    progress.run(["ip", "link", "set", node.link, "master", layout.BRIDGE, "up"])
    inside = ["ip", "-n", node.name]
    progress.run([*inside, "address", "replace", f"{node.address}/24", "dev", "eth0"])
    progress.run([*inside, "link", "set", "eth0", "up"])
    progress.run([*inside, "link", "set", "lo", "up"])
    # The address of a Service needs some route before kube-proxy's rules translate it. There is no default route.
    progress.run([*inside, "route", "replace", layout.SERVICE_CIDR, "via", layout.CONTROL_PLANE_ADDRESS])
    for other in layout.NODES:
        if other != node:
            progress.run([*inside, "route", "replace", other.pod_cidr, "via", other.address])
    progress.run(["ip", "netns", "exec", node.name, "sysctl", "-qw", "net.ipv4.ip_forward=1"])


def down() -> None:
    """Remove all of it. With a namespace go its rules, routes and bridges; with a bridge go the routes over it."""
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
    """Whether the directory of namespaces is a mount; of one directory over itself only the kernel's table tells, ``is_mount`` does not."""
    mounted = {line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()}
    return str(_NAMESPACES.resolve()) in mounted


def _mount_is_ours() -> pathlib.Path:
    return layout.state() / "netns-mount-is-ours"


def leftovers() -> list[str]:
    """Return what exists of the cluster's network, in words."""
    left = [f"link {name}" for name in (layout.BRIDGE, *(node.link for node in layout.NODES)) if _link_exists(name)]
    left += [f"network namespace {node.name}" for node in layout.NODES if node.namespace.exists()]
    left += [
        f"route {node.pod_cidr}"
        for node in layout.NODES
        if json.loads(progress.output_of(["ip", "-json", "route", "show", node.pod_cidr]) or "[]")
    ]
    return left


def _link_exists(name: str) -> bool:
    return pathlib.Path("/sys/class/net", name).exists()


def _is_namespace(path: pathlib.Path) -> bool:
    """Whether the file still names a network namespace, and not only an empty file that was left."""
    return path.exists() and subprocess.run(["nsenter", f"--net={path}", "true"], check=False, capture_output=True).returncode == 0
