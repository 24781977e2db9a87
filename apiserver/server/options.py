"""Flags, with Go's names if its API servers have them."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from apiserver import logs
from apiserver.admission import plugins
from apiserver.apis.meta import flags
from apiserver.apis.virt.hardware import host_disks
from apiserver.apis.virt.spec import plugins as named_plugins
from apiserver.endpoints.filters import origins, withdrawing
from apiserver.endpoints.http.owner import Settings
from apiserver.endpoints.verbs.streamlimits import DEFAULTS, StreamLimits
from apiserver.server import connections, serving
from apiserver.server.connections import ConnectionOptions
from apiserver.server.storage import storing
from apiserver.server.storage.storing import StorageOptions

_DEBUG = 4
"""klog level."""
AuthorizationMode = Literal["Delegated", "AlwaysAllow"]


@dataclass(frozen=True, slots=True)
class Times:
    """Times in seconds, without a flag."""

    files: float = 5.0
    """Between checks of certificates, client authorities, encryption configuration."""
    admission: float = 10.0
    """Longest wait of a request for webhooks and policies."""
    kms: tuple[float, float] = (60.0, 10.0)
    """Between checks of a key management service, after success and failure."""
    connections: Settings = serving.SETTINGS
    watches_end: float = serving.WATCHES_END_WITHIN
    """Period over which watches end at shutdown."""
    stream_check: tuple[float, float] = withdrawing.CHECK_SECONDS
    """Shortest and longest interval."""
    stream_shared: float = withdrawing.SHARED_SECONDS
    """Age up to which streams share an answer."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one server."""

    bind_address: str
    secure_port: int
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    cert_dir: Path
    client_ca_file: Path | None
    storage: Literal["etcd", "memory"]
    etcd_servers: tuple[str, ...]
    etcd_cafile: Path | None
    etcd_certfile: Path | None
    etcd_keyfile: Path | None
    etcd_prefix: str
    keeping: StorageOptions
    kubeconfig: str | None
    authentication_kubeconfig: str | None
    authorization_kubeconfig: str | None
    authentication_token_webhook_cache_ttl: float
    authorization_webhook_cache_authorized_ttl: float
    authorization_webhook_cache_unauthorized_ttl: float
    authentication_skip_lookup: bool
    anonymous_auth: bool
    authorization_mode: AuthorizationMode
    handler_tls_directory: Path | None
    namespace: str
    cors_allowed_origins: tuple[re.Pattern[str], ...]
    handler_username: str
    require_node_claims: bool
    max_requests_inflight: int
    max_mutating_requests_inflight: int
    max_streams: int
    max_streams_per_user: int
    max_streams_per_user_and_object: int
    connections: ConnectionOptions
    request_timeout: float
    shutdown_delay_duration: float
    enable_admission_plugins: tuple[str, ...]
    disable_admission_plugins: tuple[str, ...]
    allow_vsock: bool
    allow_macvtap: bool
    host_disks: tuple[str, ...]
    network_plugins: tuple[str, ...]
    storage_plugins: tuple[str, ...]
    log_level: str
    log_format: Literal["json", "text"]
    times: Times = Times()

    @property
    def stream_limits(self) -> StreamLimits:
        """Limits of open streams."""
        return StreamLimits(self.max_streams, self.max_streams_per_user, self.max_streams_per_user_and_object)

    @property
    def asks_cluster(self) -> bool:
        """True if the flags require a kube-apiserver."""
        return (
            bool(self.kubeconfig or self.authorization_kubeconfig or self.authentication_kubeconfig)
            or not self.authentication_skip_lookup
            or self.authorization_mode == "Delegated"
        )


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Parse the command line; errors end the process with a message."""
    parser = _parser()
    given = parser.parse_args(_with_truth_values(sys.argv[1:] if arguments is None else arguments, parser))
    given.etcd_servers = tuple(each for each in given.etcd_servers.split(",") if each)
    if given.storage == "etcd" and not given.etcd_servers:
        parser.error("--storage=etcd requires --etcd-servers")
    try:
        plugins.enabled(given.enable_admission_plugins, given.disable_admission_plugins)
    except ValueError as error:
        parser.error(str(error))
    files = (given.etcd_cafile, given.etcd_certfile, given.etcd_keyfile)
    if any(files) and not all(files):
        parser.error("--etcd-cafile, --etcd-certfile and --etcd-keyfile must be set together")
    if (given.tls_cert_file is None) != (given.tls_private_key_file is None):
        parser.error("--tls-cert-file and --tls-private-key-file must be set together")
    if given.v is not None and given.v >= _DEBUG:
        given.log_level = "debug"
    given.keeping = StorageOptions.of(given)
    given.connections = ConnectionOptions.of(given)
    return Options(**{each.name: getattr(given, each.name) for each in fields(Options) if each.name in given})


def _with_truth_values(arguments: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Return the arguments with Go's ``--x=true`` and ``--x=false`` of switches as ``--x`` and ``--no-x`` (dropped if unknown)."""
    switches = {option for action in parser._actions if action.nargs == 0 for option in action.option_strings}  # noqa: SLF001 - no other way
    found = []
    for each in arguments:
        name, _, value = each.partition("=")
        if name not in switches or value.lower() not in {"true", "false"}:
            found.append(each)
        elif value.lower() == "true":
            found.append(name)
        elif (negated := f"--no-{name.removeprefix('--')}") in switches:
            found.append(negated)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="virt-api",
        description="Serve the API of virtual machines (kubevirt.io) behind kube-apiserver's aggregation layer.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for add in (_serving, _storage, _access, _admission, _logging):
        add(parser)
    return parser


def _serving(parser: argparse.ArgumentParser) -> None:
    serving = parser.add_argument_group("serving")
    serving.add_argument("--bind-address", metavar="IP", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod's, inside a network
    serving.add_argument("--secure-port", metavar="PORT", type=int, default=443, help="port to listen on, HTTPS")
    serving.add_argument(
        "--tls-cert-file",
        metavar="FILE",
        type=Path,
        help="serving certificate (PEM), reloaded when it changes; default: a self-signed one in --cert-dir",
    )
    serving.add_argument("--tls-private-key-file", metavar="FILE", type=Path, help="its key, PEM")
    serving.add_argument(
        "--cert-dir",
        metavar="DIR",
        type=Path,
        default="apiserver.local.config/certificates",
        help="directory for a generated apiserver.crt and apiserver.key, without --tls-cert-file",
    )
    _bounds(serving)
    serving.add_argument(
        "--shutdown-delay-duration",
        metavar="DURATION",
        type=flags.seconds,
        default="5s",
        help="how long to keep serving, but not ready, after a signal to stop, until load balancers react",
    )


def _bounds(serving: argparse._ArgumentGroup) -> None:
    serving.add_argument("--max-requests-inflight", metavar="N", type=int, default=400, help="concurrent reads; 0: no limit")
    serving.add_argument("--max-mutating-requests-inflight", metavar="N", type=int, default=200, help="concurrent writes; 0: no limit")
    for name, about in (
        ("max-streams", "open streams (console, vnc); 0: no limit"),
        ("max-streams-per-user", "open streams of one user; service accounts of one namespace count as one; 0: no limit"),
        ("max-streams-per-user-and-object", "open connections to one stream of one object; 0: no limit"),
    ):
        default = getattr(DEFAULTS, name.replace("-", "_"))
        serving.add_argument(f"--{name}", metavar="N", type=flags.natural, default=default, help=about)
    connections.add_flags(serving)
    serving.add_argument(
        "--request-timeout",
        metavar="DURATION",
        type=flags.seconds,
        default="1m",
        help="time limit of requests other than streams and watches",
    )


def _logging(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logging")
    logs.add_level_flag(group.add_argument)
    group.add_argument("--log-format", choices=["json", "text"], default="json", help="json for programs, text for people")
    group.add_argument("-v", "--v", metavar="LEVEL", type=int, help="as of Go's servers: 4 and above is --log-level=debug")


def _storage(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("storage")
    group.add_argument("--storage", choices=["etcd", "memory"], default="etcd", help="memory loses all data at exit: for development")
    group.add_argument("--etcd-servers", metavar="URL,…", default="", help="URLs of etcd (3.5.13 or later), comma-separated")
    group.add_argument(
        "--etcd-cafile", metavar="FILE", type=Path, help="CA of etcd's certificates; reloaded when it changes, like the next two"
    )
    group.add_argument("--etcd-certfile", metavar="FILE", type=Path, help="client certificate for etcd")
    group.add_argument("--etcd-keyfile", metavar="FILE", type=Path, help="its key")
    group.add_argument("--etcd-prefix", metavar="PREFIX", default="/registry", help="prefix of all keys")
    storing.add_flags(group)


def _access(parser: argparse.ArgumentParser) -> None:
    cluster = parser.add_argument_group("cluster, authentication and authorization")
    cluster.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig file for kube-apiserver; default: the pod's service account")
    cluster.add_argument(
        "--authentication-kubeconfig", metavar="FILE", help="kubeconfig for TokenReviews and the ConfigMap; default: --kubeconfig"
    )
    cluster.add_argument("--authorization-kubeconfig", metavar="FILE", help="kubeconfig for SubjectAccessReviews; default: --kubeconfig")
    for name, about in (
        ("authentication-token-webhook-cache-ttl", "how long a TokenReview is cached"),
        ("authorization-webhook-cache-authorized-ttl", "how long an allowed SubjectAccessReview is cached"),
        ("authorization-webhook-cache-unauthorized-ttl", "how long a denied SubjectAccessReview is cached"),
    ):
        cluster.add_argument(f"--{name}", metavar="DURATION", type=flags.seconds, default="10s", help=about)
    cluster.add_argument(
        "--authentication-skip-lookup",
        action="store_true",
        help="do not read ConfigMap kube-system/extension-apiserver-authentication, and trust no front proxy",
    )
    cluster.add_argument("--client-ca-file", metavar="FILE", type=Path, help="CA of client certificates (CN: user, O: groups)")
    cluster.add_argument(
        "--anonymous-auth",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="treat requests without credentials as system:anonymous",
    )
    cluster.add_argument(
        "--cors-allowed-origins",
        metavar="REGEX,…",
        type=_origins,
        default="",
        help="origins of web pages that may open streams, such as ^https://console\\.example\\.com$; no CORS headers are sent",
    )
    cluster.add_argument(
        "--authorization-mode",
        choices=["Delegated", "AlwaysAllow"],
        default="Delegated",
        help="Delegated asks kube-apiserver; AlwaysAllow allows every request: for development",
    )
    cluster.add_argument(
        "--handler-tls-directory",
        metavar="DIR",
        type=Path,
        help="tls.crt, tls.key and ca.crt for streams to virt-handler; required for console and vnc",
    )
    cluster.add_argument("--namespace", default=os.environ.get("POD_NAMESPACE", "kubevirt"), help="namespace of virt-handler's pods")
    cluster.add_argument(
        "--handler-username",
        metavar="NAME",
        default="",
        help=(
            "user name of virt-handler's service account, limited to writes for the node of its token; default: the account in --namespace"
        ),
    )
    cluster.add_argument(
        "--require-node-claims",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=(
            "reject writes of virt-handler with a token that names no node; without this, such a "
            "token is valid for all nodes: for development"
        ),
    )


def _admission(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("admission")
    known, on = ", ".join(plugins.ORDER), ", ".join(plugins.enabled((), ()))
    group.add_argument(
        "--enable-admission-plugins",
        metavar="NAME,…",
        type=_names,
        default="",
        help=f"plug-ins to enable in addition to {on}; available: {known}",
    )
    group.add_argument("--disable-admission-plugins", metavar="NAME,…", type=_names, default="", help="plug-ins to disable")
    group.add_argument(
        "--allow-vsock",
        action="store_true",
        help="allow machines with devices.vsock, which every process of their node can reach",
    )
    group.add_argument(
        "--allow-macvtap",
        action="store_true",
        help="allow interfaces of type macvtap; nodes then offer macvtap devices to all pods",
    )
    group.add_argument(
        "--host-disks",
        type=flags.checked(host_disks.prefixes),
        default=(),
        metavar="PATHS",
        help=(
            "directories of nodes with files that may be disks of type HostDisk, comma-separated; "
            "{namespace} stands for the machine's namespace"
        ),
    )
    group.add_argument(
        "--network-plugins",
        type=flags.checked(named_plugins.names),
        default=(),
        metavar="NAMES",
        help="network plugins on the nodes that interfaces of type plugin may name, comma-separated",
    )
    group.add_argument(
        "--storage-plugins",
        type=flags.checked(named_plugins.names),
        default=(),
        metavar="NAMES",
        help="storage plugins on the nodes that disks of type Plugin may name, comma-separated",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each)


def _origins(text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return origins.patterns(_names(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
