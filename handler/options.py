"""The flags of virt-handler."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apiserver import logs
from apiserver.apis.meta import flags, quantity
from apiserver.apis.virt.hardware import host_disks
from apiserver.apis.virt.places import names, streams
from apiserver.apis.virt.spec import plugins
from handler.devices.acceleration import Choice
from handler.plugins import records
from handler.pods import places
from handler.storage import node_disk
from handler.streams.limits import DEFAULTS, Limits


@dataclass(frozen=True, slots=True)
class Options:
    """virt-handler's flags."""

    node_name: str
    namespace: str
    node_lease_namespace: str
    pod_ip: str
    kubeconfig: str | None
    certificates: Path
    capabilities: Path
    kubelet: Path
    acceleration: Choice
    allow_vsock: bool
    allow_macvtap: bool
    plugin_directory: Path
    host_disks: tuple[str, ...]
    host_disks_max_created: int
    managed_save_directory: Path | None
    managed_save_keep_free_percent: int
    network_plugins: tuple[str, ...]
    storage_plugins: tuple[str, ...]
    plugin_records: Path
    streams_port: int
    relay_port: int
    health_port: int
    metrics_port: int
    stream_limits: Limits
    log_level: str


def parse(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> Options:
    """Parse a command line; exits with status 2 and a message if invalid."""
    parser = _parser(environ)
    given = parser.parse_args(arguments)
    if not given.node_name:
        parser.error("--node-name is required: the name of this node (set NODE_NAME from spec.nodeName)")
    if not given.pod_ip:
        parser.error("--pod-ip is required: the address of this pod (set POD_IP from status.podIP)")
    return Options(
        node_name=given.node_name,
        namespace=given.namespace,
        node_lease_namespace=given.node_lease_namespace,
        pod_ip=given.pod_ip,
        kubeconfig=given.kubeconfig,
        certificates=given.cert_dir,
        capabilities=given.capabilities_directory,
        kubelet=given.kubelet_directory,
        acceleration=given.acceleration,
        allow_vsock=given.allow_vsock,
        allow_macvtap=given.allow_macvtap,
        plugin_directory=given.plugin_directory,
        host_disks=given.host_disks,
        host_disks_max_created=given.host_disks_max_created,
        managed_save_directory=given.managed_save_directory,
        managed_save_keep_free_percent=given.managed_save_keep_free_percent,
        network_plugins=given.network_plugins,
        storage_plugins=given.storage_plugins,
        plugin_records=given.plugin_records,
        streams_port=given.streams_port,
        relay_port=given.relay_port,
        health_port=given.health_port,
        metrics_port=given.metrics_port,
        stream_limits=Limits(given.max_streams, given.max_streams_per_machine, given.max_streams_per_machine_and_user),
        log_level=given.log_level,
    )


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="virt-handler",
        description="Agent of one node: drives the guests in the launcher pods there, offers devices to the kubelet, serves consoles.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _cluster(parser.add_argument, environ)
    for each in (_devices, _plugins, _host_disks, _managed_save, _ports):
        each(parser.add_argument)
    logs.add_level_flag(parser.add_argument)
    return parser


def _cluster(add: Callable[..., argparse.Action], environ: Mapping[str, str]) -> None:
    add("--node-name", default=environ.get("NODE_NAME", ""), help="name of this node's Node object (environment: NODE_NAME)")
    namespace = environ.get("POD_NAMESPACE", "kubevirt")
    add(
        "--namespace",
        default=namespace,
        help="namespace of the installation, with the ConfigMap of trusted authorities (environment: POD_NAMESPACE)",
    )
    leases = names.node_lease_namespace(namespace)
    add("--node-lease-namespace", default=leases, help="namespace of the Lease that this process renews")
    add("--pod-ip", default=environ.get("POD_IP", ""), help="address that other nodes use to reach the relay (environment: POD_IP)")
    add("--kubeconfig", default=None, help="kubeconfig file for kube-apiserver; default: the pod's service account")
    add(
        "--cert-dir",
        type=Path,
        default=Path("/run/kubevirt-handler/tls"),
        help="directory for key, certificate and trusted authorities, in a subdirectory per node; a tmpfs that outlives the pod",
    )


def _devices(add: Callable[..., argparse.Action]) -> None:
    add(
        "--capabilities-directory",
        type=Path,
        default=Path("/run/kubevirt-handler/capabilities"),
        help="what libvirt knows of QEMU, for guests, and of this node's processors, for the Node's labels, below the node's name",
    )
    add("--kubelet-directory", type=Path, default=places.KUBELET_DIRECTORY, help="the kubelet's directory, with pods and device-plugins")
    add(
        "--acceleration",
        choices=("auto", "kvm", "emulation"),
        default="auto",
        help="whether guests use KVM: auto runs a trial guest and offers KVM only if that works",
    )
    add("--allow-vsock", action="store_true", help="offer /dev/vhost-vsock; every process of the node can then reach its guests")
    add(
        "--allow-macvtap",
        action="store_true",
        help="offer macvtap devices to all pods; each pod can open macvtaps of the node with its numbers",
    )


def _plugins(add: Callable[..., argparse.Action]) -> None:
    add(
        "--plugin-directory",
        type=Path,
        default=Path("/usr/local/lib/kubevirt/plugins"),
        help="directory with the node's plugins (executables)",
    )
    for kind, devices in (("network", "interfaces"), ("storage", "disks")):
        about = f"plugins that machines may use for {devices}, comma-separated"
        add(f"--{kind}-plugins", type=flags.checked(plugins.names), default=(), metavar="NAMES", help=about)
    add(
        "--plugin-records",
        type=Path,
        default=records.DIRECTORY,
        help="directory for records of plugin calls to undo, in a subdirectory per node; a tmpfs that outlives the pod",
    )


def _host_disks(add: Callable[..., argparse.Action]) -> None:
    add(
        "--host-disks",
        type=flags.checked(host_disks.prefixes),
        default=(),
        metavar="PATHS",
        help="directories with files of this node that may be disks, comma-separated; {namespace} stands for the machine's namespace",
    )
    add(
        "--host-disks-max-created",
        type=flags.checked(lambda text: quantity.parse(text).bytes),
        default=100 << 30,
        metavar="QUANTITY",
        help="maximum total size of the files in such a directory for machines to create another one (100Gi)",
    )


def _managed_save(add: Callable[..., argparse.Action]) -> None:
    add(
        "--managed-save-directory",
        type=Path,
        default=None,
        help="directory for suspended guests' memory (spec.managedSave.nodeDisk), in a subdirectory per node; default: not allowed",
    )
    add(
        "--managed-save-keep-free-percent",
        type=flags.natural,
        default=node_disk.KEEP_FREE_PERCENT,
        help="share of that file system that must remain free after a save",
    )


def _ports(add: Callable[..., argparse.Action]) -> None:
    add("--streams-port", type=int, default=streams.HANDLER_PORT, help="port for consoles and displays (mTLS, virt-api only)")
    add("--relay-port", type=int, default=streams.RELAY_PORT, help="port for live migrations (mTLS, virt-handler of the source node only)")
    add("--health-port", type=int, default=8080, help="port for /livez and /readyz (plain HTTP)")
    add("--metrics-port", type=int, default=8443, help="port for /metrics (HTTPS, for users with get on that path)")
    for name, about in (
        ("max-streams", "consoles and displays open at once on this node; 0: no limit"),
        ("max-streams-per-machine", "open consoles of one machine, and as many displays; 0: no limit"),
        ("max-streams-per-machine-and-user", "open consoles and displays of one user; 0: no limit"),
    ):
        add(f"--{name}", type=flags.natural, default=getattr(DEFAULTS, name.replace("-", "_")), help=about)
