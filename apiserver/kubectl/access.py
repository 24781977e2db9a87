"""Access to a cluster by kubectl's kubeconfig, for HTTP and websocket clients.

kubernetes_asyncio runs credential plugins (exec, OIDC, GCP).
"""

from __future__ import annotations

import os
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from apiserver.kubectl import kubeconfig
from apiserver.kubectl.messages import Failure, describe
from certs import contexts

DISTRIBUTION: Final = "kubevirt-python"
SOURCES: Final = Path(__file__).parents[2]
"""In a checkout."""

DEFAULT_KUBECONFIG: Final = "~/.kube/config"
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Selection:
    """Flags that override the kubeconfig unless empty."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""
    server: str = ""
    token: str = field(default="", repr=False)
    impersonate_user: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials for one cluster."""

    server: str
    """``https://host:port``, optionally with a path, without a trailing slash."""
    namespace: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tls: ssl.SSLContext | None = None
    """None for plain HTTP."""
    server_hostname: str | None = None
    proxy: str | None = None
    """None uses the environment's."""


def paths(selection: Selection, environ: Mapping[str, str]) -> str:
    """Return the kubeconfig files to merge, in the format of ``KUBECONFIG``."""
    return selection.kubeconfig or environ.get("KUBECONFIG", "") or DEFAULT_KUBECONFIG


async def load(selection: Selection, environ: Mapping[str, str] = os.environ) -> Access:
    """Return the Access to a cluster, by flags, environment and kubeconfig. Raises Failure."""
    named = paths(selection, environ)
    if selection.kubeconfig and not _exists(selection.kubeconfig):
        raise Failure(f"error: the kubeconfig {selection.kubeconfig} does not exist or is a directory")
    try:
        with kubeconfig.reading() as library:
            configuration, namespace = await _kubernetes_asyncio(library, named, selection, environ)
            secured = bool(configuration.ssl_ca_cert or configuration.cert_file)
            server = address(selection.server or configuration.host, secured=secured)
            tls = _tls(configuration) if server.startswith("https:") else None
    except Failure:
        raise
    except Exception as error:  # the library's errors for bad files vary: assertion, key, type
        raise Failure(f"error: cannot use the kubeconfig {named}: {describe(error)}") from error
    return Access(
        server=server,
        namespace=selection.namespace or namespace or "default",
        headers=(("User-Agent", f"kubectl-virt/{version()}"), *_headers(configuration, selection)),
        tls=tls,
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
    )


def address(server: str, *, secured: bool) -> str:
    """Return a server's URL without trailing slash, or raise Failure.

    Without a scheme, HTTPS if ``secured`` (an authority or a certificate is configured), else HTTP (client-go's
    ``DefaultServerURL``).
    """
    text = server if "://" in server else f"{'https' if secured else 'http'}://{server}"
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
        valid = valid and not any(each.isspace() for each in text)
    except ValueError:
        valid = False
    if not valid:
        raise Failure(f"error: the server {server!r} is not an http or https URL")
    return text.rstrip("/")


async def _kubernetes_asyncio(library: kubeconfig.Reader, named: str, selection: Selection, environ: Mapping[str, str]) -> tuple[Any, str]:
    base: Any = library.kube_config.KubeConfigLoader

    class Loader(base):  # type: ignore[misc]  # the library ships no types
        """kubernetes_asyncio's loader, with ``--cluster`` and ``--user``, which override the context or, together, replace it."""

        def set_active_context(self, context_name: str | None = None) -> None:
            if not (selection.cluster and selection.user):
                super().set_active_context(context_name)
            for kind, wanted in (("cluster", selection.cluster), ("user", selection.user)):
                if wanted:
                    named: Any = self._config[f"{kind}s"]
                    setattr(self, f"_{kind}", named.get_with_name(wanted)[kind])

    configuration = library.Configuration()
    merged = library.kube_config.KubeConfigMerger(named).config
    if merged is None:
        if environ.get("KUBERNETES_SERVICE_HOST") and not environ.get("KUBECONFIG"):
            library.incluster_config.load_incluster_config(client_configuration=configuration)
            own = SERVICE_ACCOUNT / "namespace"
            return configuration, own.read_text().strip() if own.is_file() else ""
        if selection.server:
            return configuration, ""
        raise Failure(f"error: kubeconfig {named} not found: set --kubeconfig or KUBECONFIG")
    loader = Loader(config_dict=merged, active_context=selection.context or None, config_base_path=None)
    await loader.load_and_set(configuration)
    context = loader.current_context or {}
    return configuration, str((context.get("context") or {}).get("namespace") or "")


def version(sources: Path = SOURCES) -> str:
    """Return the plugin's version, installed or from sources; else ``unknown``."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        pass  # from sources
    try:
        project = tomllib.loads((sources / "pyproject.toml").read_text())["project"]
    except (OSError, ValueError, KeyError):
        return "unknown"
    return str(project["version"]) if project.get("name") == DISTRIBUTION else "unknown"


def _exists(path: str) -> bool:
    found = Path(path).expanduser()
    return found.exists() and not found.is_dir()  # such as a shell's pipe


def _tls(configuration: Any) -> ssl.SSLContext:  # noqa: ANN401  kubernetes_asyncio ships no types
    context = contexts.trusting(file=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _headers(configuration: Any, selection: Selection) -> tuple[tuple[str, str], ...]:  # noqa: ANN401  as above
    authorization = f"Bearer {selection.token}" if selection.token else configuration.api_key.get("BearerToken") or ""
    headers = [("Authorization", authorization)] if authorization else []
    if selection.impersonate_user:
        headers.append(("Impersonate-User", selection.impersonate_user))
    if selection.impersonate_uid:
        headers.append(("Impersonate-Uid", selection.impersonate_uid))
    headers += [("Impersonate-Group", group) for group in selection.impersonate_groups]
    for name, value in headers:
        if not value.isprintable() or not value.strip():  # undecodable bytes become unprintable surrogates
            raise Failure(f"error: the value for {name} is invalid: it is empty or contains control characters")
    return tuple(headers)
