"""Address of an API server, and credentials for it."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apiserver.apis.meta.objects import Json
from certs import contexts

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigError(Exception):
    """Unusable configuration; names file or field, and reason."""


@dataclass(frozen=True)
class Config:
    """Address and credentials of an API server. Files override data."""

    server: str
    """``https://host:port``, without a path at its end."""
    ca_file: str | None = None
    ca_data: bytes | None = None
    client_cert_file: str | None = None
    client_key_file: str | None = None
    client_cert_data: bytes | None = None
    client_key_data: bytes | None = None
    token: str | None = None
    token_file: str | None = None
    """Read repeatedly: projected tokens live for an hour."""
    tls_server_name: str | None = None
    insecure: bool = False
    namespace: str = "default"

    def __repr__(self) -> str:
        return f"Config(server={self.server!r})"  # the rest is secret

    @classmethod
    def in_cluster(cls, directory: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Config:
        """Return the pod's service-account configuration; raises ConfigError elsewhere."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
        token_file, ca_file, namespace_file = (directory / each for each in ("token", "ca.crt", "namespace"))
        if not host or not token_file.exists():
            raise ConfigError("no service account token found: run in a pod, or set a kubeconfig")
        namespace = namespace_file.read_text().strip() if namespace_file.exists() else "default"
        bracketed = f"[{host}]" if ":" in host else host
        return cls(server=f"https://{bracketed}:{port}", ca_file=str(ca_file), token_file=str(token_file), namespace=namespace)

    @classmethod
    def from_kubeconfig(cls, path: str | Path, context: str | None = None) -> Config:
        """Return the configuration in a kubeconfig's context (default: the current one).

        Raises ConfigError, also if it needs a credential plugin.
        """
        path = Path(path)
        try:
            document = _load_yaml(path.read_text())
        except OSError as error:
            raise ConfigError(f"read kubeconfig {path}: {error.strerror}") from error
        if not isinstance(document, dict):
            raise ConfigError(f"kubeconfig {path} is not a mapping")
        wanted = context or document.get("current-context") or ""
        chosen = _named(document, "contexts", "context", wanted, path)
        cluster = _named(document, "clusters", "cluster", chosen.get("cluster", ""), path)
        user = _named(document, "users", "user", chosen["user"], path) if chosen.get("user") else {}
        if "exec" in user or "auth-provider" in user:
            raise ConfigError(
                f"kubeconfig {path}: user {chosen['user']!r} needs a credential plugin, which is not supported; use a token or certificate"
            )
        if not cluster.get("server"):
            raise ConfigError(f"kubeconfig {path}: cluster {chosen.get('cluster')!r} has no server")
        return cls(
            server=cluster["server"].rstrip("/"),
            ca_file=_beside(path, cluster.get("certificate-authority")),
            ca_data=_decoded(path, cluster, "certificate-authority-data"),
            client_cert_file=_beside(path, user.get("client-certificate")),
            client_key_file=_beside(path, user.get("client-key")),
            client_cert_data=_decoded(path, user, "client-certificate-data"),
            client_key_data=_decoded(path, user, "client-key-data"),
            token=user.get("token"),
            token_file=_beside(path, user.get("tokenFile")),
            tls_server_name=cluster.get("tls-server-name"),
            insecure=bool(cluster.get("insecure-skip-tls-verify")),
            namespace=chosen.get("namespace") or "default",
        )

    @classmethod
    def load(cls, kubeconfig: str | None) -> Config:
        """Return the current context of the file ``kubeconfig`` or, if that is empty, the pod's configuration; raises ConfigError."""
        return cls.from_kubeconfig(kubeconfig) if kubeconfig else cls.in_cluster()

    def watched_files(self) -> tuple[str, ...]:
        """Return the files whose changes require a new :meth:`ssl_context`."""
        return tuple(each for each in (self.ca_file, self.client_cert_file, self.client_key_file) if each)

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context that trusts only the CA (default: the system's) and presents the client certificate.

        If ``insecure``, it trusts any server. Raises ConfigError.
        """
        try:
            context = contexts.trusting(file=self.ca_file, pem=None if self.ca_file else _text(self.ca_data))
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._load_client_certificate(context)
        except (ssl.SSLError, ValueError, OSError) as error:
            raise ConfigError(f"certificates for {self.server}: {error}") from error
        return context

    def _load_client_certificate(self, context: ssl.SSLContext) -> None:
        if self.client_cert_file:
            context.load_cert_chain(self.client_cert_file, self.client_key_file)
        elif self.client_cert_data:
            # OpenSSL's binding needs a file: temporary, with mode 0600.
            with tempfile.NamedTemporaryFile(suffix=".pem") as both:
                both.write(self.client_cert_data + b"\n" + (self.client_key_data or b""))
                both.flush()
                context.load_cert_chain(both.name)


def _load_yaml(text: str) -> Json:
    import yaml  # late: it takes 2 MB, and pods have no kubeconfig

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig is not valid YAML: {error}") from error


def _named(document: dict[str, Any], plural: str, singular: str, name: str, path: Path) -> dict[str, Any]:
    for each in document.get(plural) or ():
        if each.get("name") == name:
            return each.get(singular) or {}
    raise ConfigError(f"kubeconfig {path} has no {singular} named {name!r}")


def _beside(path: Path, name: str | None) -> str | None:
    return str(path.parent / name) if name else None


def _decoded(path: Path, section: dict[str, Any], field: str) -> bytes | None:
    if not section.get(field):
        return None
    try:
        return base64.b64decode(section[field], validate=True)
    except (binascii.Error, TypeError) as error:
        raise ConfigError(f"kubeconfig {path}: {field} is not valid base64") from error


def _text(data: bytes | None) -> str | None:
    return data.decode(errors="replace") if data else None
