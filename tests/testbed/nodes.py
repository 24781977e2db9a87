import hashlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable

from tests.testbed import build, cgroups, layout, pki, processes, progress

SANDBOX_IMAGE = "localhost/testbed/pause:1"
CNI_PLUGINS = "/usr/lib/cni"
CNI_CONFIGURATION = "10-bridge.conflist"
"""containerd uses the first file name in its directory."""


def _holder(node: layout.Node) -> str:
    return f"{node.name}-init"


def process_names(node: layout.Node) -> list[str]:
    return [f"{node.name}-{program}" for program in ("kubelet", "kube-proxy", "network-policies", "containerd")] + [_holder(node)]


def inside(node: layout.Node) -> list[str]:
    namespaces = ["nsenter", "--target", str(_first(node).pid), "--net", "--mount", "--pid"]
    # We record nsenter's process; the kernel ends the program with it, so no unrecorded program remains.
    return [*namespaces, "--", "setpriv", "--pdeathsig", "KILL", "--"]


def _first(node: layout.Node) -> processes.Identity:
    holder = processes.find(_holder(node))
    first = processes.children(holder) if holder else []
    if not first:
        raise progress.StepFailed(f"{node.name} does not run; `make cluster-up` starts it")
    return first[0]


def start_namespaces(node: layout.Node) -> None:
    node.directory.mkdir(parents=True, exist_ok=True)
    if processes.find(_holder(node)) is None:
        processes.end(process_names(node))
    script = _first_program()
    enter: list[str] = [
        "nsenter",
        f"--net={node.namespace}",
        "--",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--propagation",
        "slave",
    ]
    processes.ensure(_holder(node), [*enter, "--", os.path.realpath(sys.executable), "-I", os.fspath(script), os.fspath(node.directory)])
    _wait(node, "its first process", lambda: _is_prepared(node), _holder(node))


def kill(node: layout.Node) -> None:
    processes.end([_holder(node)])


def start(node: layout.Node) -> None:
    start_namespaces(node)
    start_containerd(node)
    start_kubelet(node)
    start_network_policies(node)


def _first_program() -> pathlib.Path:
    """Return a copy of the first process's program, named by its digest.

    Another command restarts the node, so it must be equal for all copies of the repository.
    """
    source = pathlib.Path(__file__).with_name("nodeinit.py").read_text()
    copy = layout.cache() / f"nodeinit-{hashlib.sha256(source.encode()).hexdigest()[:8]}.py"
    if not copy.exists():
        written = copy.with_suffix(f".{os.getpid()}")
        _write(written, source)
        written.replace(copy)
    return copy


def _is_prepared(node: layout.Node) -> bool:
    holder = processes.find(_holder(node))
    first = processes.children(holder) if holder else []
    return bool(first) and has_reported(node, first[0])


def has_reported(node: layout.Node, first: processes.Identity) -> bool:
    """Return whether ``first`` itself, no earlier first process, has reported that the node's directories are ready."""
    try:
        return (node.directory / "ready").read_text() == str(first.start_ticks)
    except OSError:
        return False


def start_containerd(node: layout.Node) -> None:
    programs = build.ensure("containerd")
    _write(node.directory / "cni" / CNI_CONFIGURATION, json.dumps(cni_configuration(node), indent=1))
    if processes.find(f"{node.name}-containerd") is None:  # the file describes the configuration of the running one
        _write(node.directory / "containerd.toml", _containerd_configuration(node))
        node.containerd_socket.unlink(missing_ok=True)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}:/usr/sbin:/sbin"}
    command = [*inside(node), f"{programs}/containerd", "--config", f"{node.directory}/containerd.toml"]
    processes.ensure(f"{node.name}-containerd", command, environment=environment)
    _wait(node, "containerd", lambda: node.containerd_socket.exists() and _answers(node), f"{node.name}-containerd")


def ctr(node: layout.Node, *arguments: str | os.PathLike[str]) -> list[str]:
    words = [build.ensure("containerd") / "ctr", "--address", node.containerd_socket, "--namespace", "k8s.io", *arguments]
    return [os.fspath(word) for word in words]


def plugins_of(node: layout.Node) -> pathlib.Path:
    return node.directory / "cni-plugins"


def start_kubelet(node: layout.Node, **settings: object) -> None:
    """Start kubelet and kube-proxy. Images must be imported first, because the kubelet cannot pull.

    ``settings`` of KubeletConfiguration apply only to a new kubelet.
    """
    programs = build.ensure("kubernetes")
    _write(node.directory / "kubelet.json", json.dumps({**_kubelet_configuration(node), **settings}, indent=1))
    processes.ensure(
        f"{node.name}-kubelet",
        [
            *inside(node),
            programs / "kubelet",
            f"--config={node.directory / 'kubelet.json'}",
            f"--kubeconfig={pki.kubeconfig_of(node.name)}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address},{node.address6}",
            "--root-dir=/var/lib/kubelet",
            "--node-labels=cpu=fast",
        ],
    )
    processes.ensure(
        f"{node.name}-kube-proxy",
        [
            *inside(node),
            programs / "kube-proxy",
            f"--kubeconfig={pki.kubeconfig_of('kube-proxy')}",
            f"--hostname-override={node.name}",
            f"--cluster-cidr={','.join(layout.POD_CIDRS)}",
            "--proxy-mode=nftables",
            "--conntrack-max-per-core=0",
            "--metrics-bind-address=127.0.0.1:10249",
        ],
    )


def restart_kubelet(node: layout.Node, **settings: object) -> None:
    processes.end([f"{node.name}-kubelet"])
    start_kubelet(node, **settings)


def root_of(node: layout.Node) -> pathlib.Path:
    return pathlib.Path(f"/proc/{_first(node).pid}/root")


def start_network_policies(node: layout.Node) -> None:
    python = [os.path.realpath(sys.executable), "-m", "tests.testbed.networkpolicies.engine"]
    command = [*inside(node), *python, node.name, digest_of_network_policies()]
    environment = {"PYTHONPATH": str(layout.REPOSITORY), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    processes.ensure(f"{node.name}-network-policies", command, environment=environment)


def digest_of_network_policies() -> str:
    content = hashlib.sha256()
    for file in sorted((layout.SOURCES / "networkpolicies").glob("*.py")):
        content.update(file.read_bytes())
    return content.hexdigest()[:8]


def _write(path: pathlib.Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _wait(node: layout.Node, what: str, is_ready: Callable[[], bool], process: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_ready():
        if time.monotonic() > deadline or processes.find(process) is None:
            log = processes.log_of(process)
            raise progress.StepFailed(f"{what} of {node.name} did not become ready; log {log}:\n{progress.last_lines(log)}")
        time.sleep(0.05)


def _answers(node: layout.Node) -> bool:
    try:
        progress.output_of(ctr(node, "version"), timeout_seconds=5)
    except progress.StepFailed:
        return False
    return True


def _containerd_configuration(node: layout.Node) -> str:
    # restrict_oom_score_adj: root may lack CAP_SYS_RESOURCE here, and then no container could start. netns_mounts_under_state_dir: the
    # state directory is in the node's own /run.
    return f"""version = 3
root = "{node.directory}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{node.containerd_socket}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{SANDBOX_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{CNI_PLUGINS}", "{plugins_of(node)}"]
  conf_dir = "{node.directory}/cni"
"""


def cni_configuration(node: layout.Node) -> dict[str, object]:
    # The list of addresses is in /run, so it ends with the pods when the node is recreated.
    ranges = [[{"subnet": each}] for each in node.pod_cidrs]
    addresses = {"type": "host-local", "dataDir": "/run/cni", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True, "ipam": addresses}
    return {
        "cniVersion": "1.0.0",
        "name": f"pods-{node.name}",
        "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }


def _kubelet_configuration(node: layout.Node) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki() / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki() / f"{node.name}.crt"),
        "tlsPrivateKeyFile": str(layout.pki() / f"{node.name}.key"),
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.name}",
        "failCgroupV1": cgroups.is_unified(),
        "failSwapOn": False,
        "clusterDNS": [layout.DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": "/dev/null",
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},  # tests end containers often, and must not wait for minutes
        "syncFrequency": "10s",  # updates volumes of a changed Secret in about 10 s instead of one or two minutes
        "volumeStatsAggPeriod": "10s",  # how often the kubelet measures volumes; it evicts the pod of a full one soon after
        "imageGCHighThresholdPercent": 100,  # never: a collected image cannot be pulled again
    }
