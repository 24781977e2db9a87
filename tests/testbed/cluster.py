"""The cluster's life: ``up`` from any state, ``down`` to nothing, ``status``."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent import futures

from tests.testbed import (
    addons,
    build,
    cgroups,
    controlplane,
    images,
    kubectl,
    layout,
    network,
    nodes,
    pki,
    processes,
    progress,
    project_images,
)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock for changing the cluster, and ignore ``KUBECONFIG`` meanwhile.

    The lock file is outside the state directory, which ``down`` removes.
    """
    layout.cache().mkdir(parents=True, exist_ok=True)
    with (layout.cache() / ".cluster.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.say("  … waiting for another cluster-up or cluster-down to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        with kubectl.own_cluster():
            yield


def up() -> None:
    _refuse_impossible_state_directory()
    for tool in build.PROGRAMS:
        if tool not in build.ON_REQUEST:
            build.ensure(tool)
    with _alone():
        _remove_faulty()
        first = images.ensure(images.of_the_cluster())
        with progress.step("Certificates, network, cgroups"):
            pki.ensure()
            network.up()
            cgroups.up()
            keep_addresses()
        with futures.ThreadPoolExecutor(1) as pool:
            plane = pool.submit(_control_plane)
            with progress.step("Container runtimes of the nodes"):
                for node in layout.NODES:
                    nodes.start_namespaces(node)
                    nodes.start_containerd(node)
            images.import_into_nodes(first)
            plane.result()
        with progress.step("Kubelets"):
            for node in layout.NODES:
                nodes.start_kubelet(node)
                nodes.start_network_policies(node)
            addons.apply_network_policies()
            addons.apply_storage()
            addons.apply_dns()
            _wait_until_nodes_are_ready()
        with progress.step("Cluster DNS"):
            addons.wait_for_dns()


def _addresses() -> str:
    known = {node.name: [node.address, node.address6, *node.pod_cidrs] for node in layout.NODES}
    return json.dumps(known | {"pods": layout.POD_CIDRS, "services": layout.SERVICE_CIDRS}, indent=1)


def _addresses_path() -> pathlib.Path:
    return layout.state() / "addresses.json"


def keep_addresses() -> None:
    _addresses_path().write_text(_addresses())


def fault() -> str:
    """Return why ``up`` must replace the cluster that is here; empty: it can stay, or none is here.

    A cluster that ended with all its processes is in an unknown state: tests may have drained a node, and its etcd does not sync.
    """
    path = _addresses_path()
    if not (layout.state() / "etcd").exists():
        return ""
    if not path.exists() or path.read_text() != _addresses():
        return "has other addresses"
    return "" if any(processes.find(name) for name in processes.names()) else "does not run"


def _remove_faulty() -> None:
    if found := fault():
        progress.say(f"  … the cluster that is here {found}: a new one replaces it")
        _remove()


def load_images(names: Sequence[str] = project_images.NAMES) -> None:
    with _alone():
        images.import_into_nodes(images.ensure([project_images.image_of(name) for name in names]))


def load_busybox() -> None:
    with _alone():
        images.import_into_nodes(images.ensure([images.busybox()]))


def _control_plane() -> None:
    with progress.step("Control plane"):
        controlplane.up()


def _refuse_impossible_state_directory() -> None:
    if os.geteuid() != 0:
        raise progress.StepFailed("the test cluster needs root: it makes namespaces, mounts and cgroups")
    for private in ("/run", "/var/lib", "/var/log", "/var/run", "/proc"):
        for path in (layout.state(), layout.cache(), layout.SOURCES):
            if path.resolve().is_relative_to(private):
                raise progress.StepFailed(
                    f"{path} is below {private}, which each node has its own; set KUBEVIRT_STATE or KUBEVIRT_CACHE to another place"
                )


def _wait_until_nodes_are_ready(seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while len(not_ready := [node.name for node in layout.NODES if not is_ready(node)]) > 0:
        if time.monotonic() > deadline:
            logs = ", ".join(str(processes.log_of(f"{name}-kubelet")) for name in not_ready)
            raise progress.StepFailed(f"{', '.join(not_ready)} did not become Ready; read {logs}")
        for node in layout.NODES:
            if processes.find(f"{node.name}-kubelet") is None:
                log = processes.log_of(f"{node.name}-kubelet")
                raise progress.StepFailed(f"the kubelet of {node.name} ended; log {log}:\n{progress.last_lines(log)}")
        time.sleep(0.3)


def is_ready(node: layout.Node) -> bool:
    with contextlib.suppress(progress.StepFailed):
        conditions = kubectl.get("node", node.name).get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return False


def down() -> None:
    with _alone():
        if layout.state().exists() or leftovers():
            _remove()
        else:
            progress.say("  ✓ no cluster is here")


def _remove() -> None:
    with progress.step("Remove the cluster"):
        holders = [name for node in layout.NODES for name in reversed(nodes.process_names(node))]
        processes.end([name for name in holders if not name.endswith("-init")] + list(controlplane.NAMES), grace_seconds=2)
        processes.end([name for name in holders if name.endswith("-init")], grace_seconds=5)
        processes.end(processes.names(), grace_seconds=1)
        for identity in _strays():
            identity.send(signal.SIGKILL)
        cgroups.down()
        _detach_loop_devices()
        _unmount_builds()
        network.down()
        shutil.rmtree(layout.state())
        if left := leftovers():
            raise progress.StepFailed(f"these are left: {'; '.join(left)}")


def _strays() -> list[processes.Identity]:
    spaces = {os.stat(node.namespace).st_ino for node in layout.NODES if node.namespace.exists()}  # noqa: PTH116  of the mounted namespace
    found = {identity for node in layout.NODES for identity in cgroups.members(node)}
    for identity in processes.everyone():
        with contextlib.suppress(OSError):
            if pathlib.Path(f"/proc/{identity.pid}/ns/net").stat().st_ino in spaces:
                found.add(identity)
    return sorted(found, key=lambda identity: identity.pid)


def _detach_loop_devices() -> None:
    for line in progress.output_of(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"]).splitlines():
        device, _, backing = line.strip().partition(" ")
        if backing.strip().startswith(f"{layout.state()}/"):
            progress.run(["losetup", "--detach", device])


def _mounts_below(directory: pathlib.Path) -> list[str]:
    mounts = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((path for path in mounts if pathlib.Path(path).is_relative_to(directory)), key=len, reverse=True)


def _unmount_builds() -> None:
    """Unmount what a killed image build left in the cache; mounts of a running build are busy and stay."""
    for path in _mounts_below(layout.cache()):
        with contextlib.suppress(progress.StepFailed):
            progress.run(["umount", path])


def leftovers() -> list[str]:
    left = [f"mount {path}" for path in _mounts_below(layout.state())]
    left += [f"process {identity.pid}" for identity in _strays()]
    return left + network.leftovers() + cgroups.leftovers()


def status() -> bool:
    expected = [*controlplane.NAMES, *(name for node in layout.NODES for name in nodes.process_names(node))]
    complete = True
    for name in expected:
        identity = processes.find(name)
        complete = complete and identity is not None
        progress.say(f"  {name:<28}{f'pid {identity.pid}' if identity else 'does not run'}")
    for node in layout.NODES:
        with kubectl.own_cluster():
            ready = complete and is_ready(node)
        complete = complete and ready
        progress.say(f"  {node.name:<28}{'Ready' if ready else 'not Ready'}")
    progress.say(f"  kubeconfig                  {layout.kubeconfig()}")
    progress.say(f"  kubectl                     {build.directory_of('kubernetes') / 'kubectl'}")
    return complete
