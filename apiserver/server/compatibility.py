"""Accept flags of Go's API servers without effect here, with a warning.

So a deployment for ``sample-apiserver`` only needs another image. Refused are unknown flags, and those with unkept promises
(``--egress-selector-config-file`` would not redirect traffic).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

logger = logging.getLogger(__name__)

_HTTP1: Final = "HTTP/1.1 is spoken"
_ALWAYS: Final = "it is always so"
_LOGS: Final = "see --log-level and --log-format"
IGNORED: Final[Mapping[str, str]] = {
    "advertise-address": "there is no Service of ours to write",
    "authentication-tolerate-lookup-failure": "start-up waits for the ConfigMap and goes on when it is there",
    "authorization-always-allow-paths": "/healthz, /livez and /readyz are always allowed, nothing else is",
    "contention-profiling": "there is no profiler in the process",
    "debug-socket-path": "there is no profiler in the process",
    "default-watch-cache-size": "every resource has a watch cache",
    "delete-collection-workers": "deletions of a collection are one task's",
    "disable-http2-serving": _HTTP1,
    "enable-garbage-collector": _ALWAYS,
    "etcd-count-metric-poll-period": "objects are counted when the page is asked for",
    "etcd-servers-overrides": "all resources are in one etcd",
    "emulated-version": "one version is emulated",
    "external-hostname": "nothing is told to clients about it",
    "goaway-chance": _HTTP1,
    "http2-max-streams-per-connection": _HTTP1,
    "lease-reuse-duration-seconds": "no object expires",
    "livez-grace-period": "/livez does not look at what takes time",
    "log-flush-frequency": _LOGS,
    "log-json-info-buffer-size": _LOGS,
    "log-json-split-stream": _LOGS,
    "log-text-info-buffer-size": _LOGS,
    "log-text-split-stream": _LOGS,
    "logging-format": _LOGS,
    "max-resource-write-bytes": "3 MiB, as in Go",
    "min-compatibility-version": "one version is served",
    "min-request-timeout": "watches last half an hour to an hour, as by default",
    "permit-address-sharing": "one process listens",
    "permit-port-sharing": "one process listens",
    "profiling": "there is no profiler in the process; py-spy attaches from outside",
    "requestheader-allowed-names": "the ConfigMap says it",
    "requestheader-client-ca-file": "the ConfigMap says it",
    "requestheader-extra-headers-prefix": "the ConfigMap says it",
    "requestheader-group-headers": "the ConfigMap says it",
    "requestheader-uid-headers": "the ConfigMap says it",
    "requestheader-username-headers": "the ConfigMap says it",
    "runtime-config": "all versions are served",
    "shutdown-send-retry-after": _ALWAYS,
    "shutdown-watch-termination-grace-period": "watches end within two seconds, each with a bookmark",
    "skip-log-headers": _LOGS,
    "storage-backend": "etcd3",
    "storage-initialization-timeout": "readiness waits as long as it takes",
    "storage-media-type": "application/json",
    "strict-transport-security-directives": "clients are programs",
    "tls-cipher-suites": "OpenSSL's defaults: those of TLS 1.3, and of 1.2 what keeps secrets forward",
    "tls-min-version": "TLS 1.2",
    "tls-sni-cert-key": "there is one certificate",
    "vmodule": _LOGS,
    "watch-cache": _ALWAYS,
    "watch-cache-initialization-post-start-hook": _ALWAYS,
    "watch-cache-sizes": "the cache's window is the same for every resource",
}

FEATURES: Final[Mapping[str, bool]] = {
    "APIResponseCompression": True,
    "APIServerIdentity": False,
    "APIServerTracing": True,
    "AggregatedDiscoveryEndpoint": True,
    "AuthorizeWithSelectors": True,
    "BtreeWatchCache": True,
    "ConsistentListFromCache": True,
    "ConstrainedImpersonation": True,
    "ListFromCacheSnapshot": True,
    "MutatingAdmissionPolicy": True,
    "RemoteRequestHeaderUID": True,
    "ResilientWatchCacheInitialization": True,
    "SizeBasedListCostEstimate": True,
    "StreamingCollectionEncodingToJSON": True,
    "ValidatingAdmissionPolicy": True,
    "WatchBookmark": True,
    "WatchList": True,
}
"""State of Go's feature gates here. None can be changed."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags without effect, hidden from the help."""
    group = parser.add_argument_group("of Go's API servers", "Taken and not needed; given, a line of the log says why.")
    for name, why in IGNORED.items():
        group.add_argument(f"--{name}", nargs="?", const="true", default=None, metavar="VALUE", help=f"not needed: {why}")
    group.add_argument("--feature-gates", metavar="NAME=BOOL,…", default="", help="warned of where they ask for what is otherwise")
    group.add_argument("-v", "--v", metavar="LEVEL", type=int, default=None, help="4 and above: --log-level=debug")


def warnings(given: argparse.Namespace) -> Iterable[str]:
    """Yield warnings about the given flags.

    Raises:
        ValueError: ``--feature-gates`` is malformed.
    """
    for name, why in IGNORED.items():
        if getattr(given, name.replace("-", "_")) is not None:
            yield f"--{name} changes nothing: {why}"
    yield from _gates(given.feature_gates)


def _gates(text: str) -> Iterable[str]:
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = each.partition("=")
        if not equals or value.lower() not in {"true", "false", "1", "0", "t", "f"}:
            raise ValueError(f"--feature-gates: {each!r} is no NAME=true or NAME=false")
        wanted = value.lower() in {"true", "1", "t"}
        if name not in FEATURES:
            yield f"--feature-gates: unknown feature gate {name}: it changes nothing"
        elif FEATURES[name] != wanted:
            yield f"--feature-gates: {name} is {str(FEATURES[name]).lower()} and cannot be changed"


def tell(messages: Iterable[str]) -> None:
    """Log the warnings."""
    for each in messages:
        logger.warning("a flag was given that does nothing", extra={"flag": each})


def explicit(arguments: Iterable[str], parser: argparse.ArgumentParser) -> list[str]:
    """Convert Go's form of boolean flags (``--x=false``) to argparse's."""
    switches: dict[str, Any] = {
        option: action
        for action in parser._actions  # noqa: SLF001 - it has no other way
        if action.nargs == 0
        for option in action.option_strings
    }
    found = []
    for each in arguments:
        name, equals, value = each.partition("=")
        action = switches.get(name)
        if not equals or action is None or value.lower() not in {"true", "false"}:
            found.append(each)
        elif value.lower() == "true":
            found.append(name)
        elif f"--no-{name.removeprefix('--')}" in switches:
            found.append(f"--no-{name.removeprefix('--')}")
    return found
