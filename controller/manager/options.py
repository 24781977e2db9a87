"""The flags of virt-controller."""

from __future__ import annotations

import argparse
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apiserver.apis.meta import flags
from certs.reloading import Files
from certs.renewal import Policy
from controller.reconcilers.settings import Settings


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

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


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Return the options; ``--help`` and mistakes end the process, as argparse does."""
    parser = argparse.ArgumentParser(
        prog="virt-controller",
        description="Keeps a pod for every VirtualMachine that should be on and for every Migration; issues and renews certificates.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for add in (_installation, _launchers, _work, _metrics, _certificates):
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
        settings=Settings(
            launcher_image=given.launcher_image,
            launcher_pull_policy=given.launcher_pull_policy,
            image_pull_secrets=tuple(given.image_pull_secret),
            acceleration=given.acceleration,
        ),
        certificates=certificates,
    )


def _installation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", help="reach the cluster as this file says; without it, as the pod's service account")
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", ""),
        help="namespace of the installation: the lease and the certificates live there (POD_NAMESPACE; else the configuration's)",
    )
    parser.add_argument(
        "--node-lease-namespace", default="", help="where virt-handlers show that they live; by default --namespace, and -node-lease"
    )
    parser.add_argument(
        "--label-namespace",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="label the installation's namespace, where it has no level of Pod Security, so that virt-handler is admitted",
    )


def _launchers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--launcher-image", required=True, help="image of launcher pods, such as registry.example/virt-launcher:v1")
    parser.add_argument("--launcher-pull-policy", default="IfNotPresent", choices=("Always", "IfNotPresent", "Never"))
    parser.add_argument(
        "--image-pull-secret", action="append", default=[], metavar="NAME", help="pull secret of launcher pods; may be given more than once"
    )
    parser.add_argument(
        "--acceleration",
        default="auto",
        choices=("auto", "kvm", "emulation"),
        help="auto: pods ask for the kvm device when some node offers it; kvm: always, and wait for such a node; emulation: never",
    )


def _work(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="act only while holding the lease, so that several replicas can stand by; without it, run exactly one",
    )
    parser.add_argument("--workers", type=flags.positive, default=8, help="objects of one kind that are worked on at the same time")
    parser.add_argument("--health-port", type=int, default=8080, help="port of /livez and /readyz (plain HTTP); 0 takes a free one")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))


def _metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port", type=int, default=8443, help="port of /metrics (HTTPS, for who may get that path); 0 takes a free one"
    )
    parser.add_argument(
        "--tls-cert-file", type=Path, default=Path("/etc/virt-controller/tls/tls.crt"), help="its certificate, once it is there"
    )
    parser.add_argument("--tls-private-key-file", type=Path, default=Path("/etc/virt-controller/tls/tls.key"), help="the key of that")


def _certificates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--certificate-lifetime", type=flags.duration, default="8760h", help="of what authorities sign; renewed when a third of it is left"
    )
    parser.add_argument("--authority-lifetime", type=flags.duration, default="87600h", help="of authorities; at least three times as long")
    parser.add_argument(
        "--node-certificate-lifetime",
        type=flags.duration,
        default="24h",
        help="of the certificates of virt-handlers, which they ask for; renewed after about two thirds of it",
    )
    parser.add_argument(
        "--authority-spread", type=flags.duration, default="10m", help="how long everybody gets to hear of a new authority before it signs"
    )
