"""The flags of virt-controller."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from apiserver import logs
from apiserver.apis.meta import flags, quantity
from apiserver.apis.virt.lifecycle import evictions, migration_policies
from apiserver.apis.virt.lifecycle.migration_policies import Defaults
from certs.reloading import Files
from certs.renewal import Policy
from controller.evictions.eviction_plan import Limits
from controller.reconcilers.settings import FenceAgent, MigrationLimits, Settings, TaintEffect, UpdateStrategy, WorkloadUpdate

MAX_CALL_SECONDS: Final = 100.0
"""Less than a pass may take (``RECONCILE_SECONDS``)."""


@dataclass(frozen=True, slots=True)
class Options:
    """virt-controller's options, from its command line."""

    kubeconfig: str | None
    namespace: str
    node_lease_namespace: str
    leader_elect: bool
    identity: str
    health_port: int
    metrics_port: int
    files: Files
    label_namespace: bool
    workers: int
    log_level: str
    settings: Settings
    certificates: Policy
    webhook_port: int
    evictions: Limits
    migrations: MigrationLimits
    fence_agent: FenceAgent | None = None
    seals: bool = False
    virtual_nodes: bool = False
    taint: TaintEffect | None = None
    """Of non-operational nodes; None: they get neither taint nor condition."""


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the flags, by default the process's; ``--help`` and errors end the process, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="virt-controller",
        description="Keeps a pod for every VirtualMachine that should be on and for every Migration; issues and renews certificates.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for add in (
        _installation,
        _launchers,
        _work,
        _metrics,
        _certificates,
        _evictions,
        _migration_limits,
        _migrations,
        _updates,
        _fencing,
        _guardians,
        _taints,
    ):
        add(parser)
    given = parser.parse_args(arguments)
    try:
        certificates = Policy(
            leaf=given.certificate_lifetime,
            authority=given.authority_lifetime,
            spread=given.authority_spread,
            node=given.node_certificate_lifetime,
        )
    except ValueError as error:
        parser.error(str(error))
    return Options(
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        node_lease_namespace=given.node_lease_namespace,
        leader_elect=given.leader_elect,
        identity=f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}",
        health_port=given.health_port,
        metrics_port=given.metrics_port,
        files=Files(given.tls_cert_file, given.tls_private_key_file),
        label_namespace=given.label_namespace,
        workers=given.workers,
        log_level=given.log_level,
        settings=_settings(given),
        certificates=certificates,
        webhook_port=given.webhook_port,
        evictions=Limits(
            strategy=given.eviction_strategy,
            migrations_per_node=given.migrations_per_node,
            migrations_per_cluster=given.migrations_per_cluster,
        ),
        migrations=MigrationLimits(
            per_node=given.migrations_per_node,
            per_cluster=given.migrations_per_cluster,
            scheduling_seconds=given.migration_scheduling_seconds,
            kept=given.migrations_kept,
        ),
        fence_agent=_fence_agent(given),
        seals=given.seal_guardians,
        virtual_nodes=given.virtual_nodes,
        taint=given.taint_non_operational_nodes,
    )


def _fence_agent(given: argparse.Namespace) -> FenceAgent | None:
    if given.fence_agent is None:
        return None
    return FenceAgent(given.fence_agent, given.fence_delay, given.fence_timeout)


def _settings(given: argparse.Namespace) -> Settings:
    return Settings(
        launcher_image=given.launcher_image,
        launcher_pull_policy=given.launcher_pull_policy,
        image_pull_secrets=tuple(given.image_pull_secret),
        acceleration=given.acceleration,
        migrations=Defaults(
            bandwidth=given.migration_bandwidth,
            allow_auto_converge=given.migration_auto_converge,
            allow_pause=given.migration_pause,
            completion_timeout_per_gib=given.migration_timeout_per_gib,
        ),
        rewritten_images=tuple(given.rewritten_launcher_image),
        workload_update=WorkloadUpdate(
            strategy=given.workload_update_strategy,
            batch_size=given.workload_update_batch_size,
            batch_seconds=given.workload_update_batch_interval.total_seconds(),
        ),
        eviction_strategy=given.eviction_strategy,
    )


def _installation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", help="kubeconfig file to connect to the cluster; default: the pod's service account")
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", ""),
        help="namespace of the installation, with the lease and the certificates (default: POD_NAMESPACE, then the kubeconfig's)",
    )
    parser.add_argument(
        "--node-lease-namespace",
        default="",
        help=("namespace with the Leases of virt-handlers; default: --namespace with the suffix -node-lease"),
    )
    parser.add_argument(
        "--label-namespace",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="if the installation's namespace has no Pod Security level, label it privileged, so that virt-handler is admitted",
    )


def _launchers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launcher-image", required=True, help="image of launcher pods, such as registry.example/virt-launcher:v1")
    parser.add_argument("--launcher-pull-policy", default="IfNotPresent", choices=("Always", "IfNotPresent", "Never"))
    parser.add_argument("--image-pull-secret", action="append", default=[], metavar="NAME", help="pull secret of launcher pods; repeatable")
    parser.add_argument(
        "--acceleration",
        default="auto",
        choices=("auto", "kvm", "emulation"),
        help="auto: pods request the kvm device if a node offers it; kvm: always, pods wait for such a node; emulation: never",
    )


def _work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="act only while holding the lease, for several replicas; without leader election, run exactly one",
    )
    parser.add_argument("--workers", type=flags.positive, default=8, help="objects of one kind that are reconciled at the same time")
    parser.add_argument("--health-port", type=int, default=8080, help="port of /livez and /readyz (plain HTTP); 0: any free port")
    logs.add_level_flag(parser.add_argument)


def _metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port", type=int, default=8443, help="port of /metrics (HTTPS, for users with get on that path); 0: any free port"
    )
    parser.add_argument(
        "--tls-cert-file",
        type=Path,
        default=Path("/etc/virt-controller/tls/tls.crt"),
        help="certificate file of /metrics; may appear later",
    )
    parser.add_argument(
        "--tls-private-key-file", type=Path, default=Path("/etc/virt-controller/tls/tls.key"), help="key file of that certificate"
    )


def _evictions(parser: argparse.ArgumentParser) -> None:
    limits = Limits()
    parser.add_argument(
        "--webhook-port", type=int, default=9443, help="port of the admission webhook of evictions (HTTPS); 0: any free port"
    )
    parser.add_argument(
        "--eviction-strategy",
        default=limits.strategy,
        choices=get_args(evictions.Strategy),
        help="default of spec.evictionStrategy: what an eviction, as from kubectl drain, does to the guest",
    )


def _migration_limits(parser: argparse.ArgumentParser) -> None:
    limits = MigrationLimits()
    parser.add_argument(
        "--migrations-per-node",
        type=flags.positive,
        default=limits.per_node,
        help="migrations that leave one node at a time; others wait. Evictions use at most this many, and half of it on a node that is "
        "not being drained",
    )
    parser.add_argument(
        "--migrations-per-cluster",
        type=flags.positive,
        default=limits.per_cluster,
        help="the same limit for the whole cluster",
    )
    parser.add_argument(
        "--migration-scheduling-seconds",
        type=flags.natural,
        default=limits.scheduling_seconds,
        help="until a migration fails because no node fits its target pod, unless an eviction created it; 0: never",
    )
    parser.add_argument(
        "--migrations-kept",
        type=flags.positive,
        default=limits.kept,
        help="finished Migrations kept per machine, newest first; all that evictions created are kept for an hour",
    )


def _migrations(parser: argparse.ArgumentParser) -> None:
    defaults = Defaults()
    parser.add_argument(
        "--migration-bandwidth",
        type=flags.checked(_bandwidth),
        default=defaults.bandwidth,
        help="maximum bytes per second of a migration, such as 100Mi; 0: no limit. A MigrationPolicy overrides this and the following "
        "flags",
    )
    parser.add_argument(
        "--migration-timeout-per-gib",
        type=flags.positive,
        default=defaults.completion_timeout_per_gib,
        help="seconds that a migration may take per GiB of memory",
    )
    parser.add_argument(
        "--migration-auto-converge",
        action=argparse.BooleanOptionalAction,
        default=defaults.allow_auto_converge,
        help="let QEMU throttle a guest that writes memory faster than the migration sends it",
    )
    parser.add_argument(
        "--migration-pause",
        action=argparse.BooleanOptionalAction,
        default=defaults.allow_pause,
        help="pause the guest when that time is over, instead of failing the migration",
    )


def _updates(parser: argparse.ArgumentParser) -> None:
    update = WorkloadUpdate()
    parser.add_argument(
        "--workload-update-strategy",
        default=update.strategy,
        choices=get_args(UpdateStrategy),
        help="how guests in pods with another image than --launcher-image are updated. LiveMigrate: migrate those that can; Evict: also "
        "restart the others, if spec.evictionStrategy allows it; None: update no guest",
    )
    parser.add_argument(
        "--workload-update-batch-size",
        type=flags.positive,
        default=update.batch_size,
        help="guests updated at the same time, and at most started per interval",
    )
    parser.add_argument(
        "--workload-update-batch-interval", type=flags.duration, default=f"{update.batch_seconds:.0f}s", help="that interval"
    )
    parser.add_argument(
        "--rewritten-launcher-image",
        action="append",
        default=[],
        metavar="IMAGE",
        help="image that a webhook of the cluster substitutes for --launcher-image; repeatable",
    )


def _fencing(parser: argparse.ArgumentParser) -> None:
    given = FenceAgent(Path())
    parser.add_argument(
        "--fence-agent",
        type=Path,
        metavar="FILE",
        help="executable that switches an unreachable node off, so that its machines restart elsewhere; default: only a person fences",
    )
    parser.add_argument(
        "--fence-delay",
        type=flags.seconds,
        default=f"{given.delay_seconds:.0f}s",
        help="how long the kubelet and virt-handler of a node must be unreachable, besides their own limits, before it is switched off",
    )
    parser.add_argument(
        "--fence-timeout", type=_call_limit, default=f"{given.timeout_seconds:.0f}s", help="limit for a call of --fence-agent, at most 100s"
    )


def _guardians(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seal-guardians",
        action="store_true",
        help="restart machines of a lost node elsewhere once its guardian must have ended their guests",
    )
    parser.add_argument(
        "--virtual-nodes", action="store_true", help="do this also on a virtual machine: once it was paused, guests may run twice"
    )


def _taints(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--taint-non-operational-nodes",
        choices=get_args(TaintEffect),
        help="effect of the taint, besides a condition, of nodes where guests do not start; default: neither",
    )


def _call_limit(text: str) -> float:
    if (found := flags.seconds(text)) > MAX_CALL_SECONDS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_CALL_SECONDS:.0f}s")
    return found


def _bandwidth(text: str) -> str:
    amount = quantity.parse(text)
    if amount.nanos and not migration_policies.MIN_BANDWIDTH <= amount <= migration_policies.MAX_BANDWIDTH:
        raise ValueError(f"must be 0, or from {migration_policies.MIN_BANDWIDTH} to {migration_policies.MAX_BANDWIDTH}")
    return text


def _certificates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--certificate-lifetime",
        type=flags.duration,
        default="8760h",
        help="lifetime of signed certificates; renewed when a third of it is left",
    )
    parser.add_argument(
        "--authority-lifetime", type=flags.duration, default="87600h", help="lifetime of authorities; at least three times as long"
    )
    parser.add_argument(
        "--node-certificate-lifetime",
        type=flags.duration,
        default="24h",
        help="lifetime of virt-handlers' certificates; renewed after about two thirds of it",
    )
    parser.add_argument("--authority-spread", type=flags.duration, default="10m", help="time to distribute a new authority before it signs")
