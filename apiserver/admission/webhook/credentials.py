"""Credentials for webhooks: users of a kubeconfig, chosen by the webhook's host (``pkg/util/webhook/authentication.go``)."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from apiserver.apis.meta.objects import Json, Object
from apiserver.client.config import SERVICE_ACCOUNT

KUBERNETES: Final = "kubernetes.default.svc"
_HTTPS: Final = 443


class CredentialsError(ValueError):
    """The kubeconfig cannot be used; the message says which part of it, and why."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One user; hashable, because connections are kept by it."""

    token: str = ""
    token_file: Path | None = None
    certificate: bytes = b""
    key: bytes = b""
    certificate_file: Path | None = None
    key_file: Path | None = None
    username: str = ""
    password: str = ""
    impersonate: str = ""
    authority_file: Path | None = None
    """Trusted besides the webhook's own authorities."""

    def __repr__(self) -> str:
        return "Credential(…)"

    def headers(self) -> dict[str, str]:
        """Return what a request carries; a token file is read anew, because tokens are rotated."""
        headers = {"Impersonate-User": self.impersonate} if self.impersonate else {}
        if token := (self.token_file.read_text().strip() if self.token_file else self.token):
            headers["Authorization"] = f"Bearer {token}"
        elif self.username:
            both = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {both}"
        return headers

    def stamp(self) -> tuple[int, ...]:
        """Return what changes when one of the certificates' files does."""
        files = (self.certificate_file, self.key_file, self.authority_file)
        return tuple(each.stat().st_mtime_ns for each in files if each is not None)

    def chain(self) -> bytes:
        """Return certificate and key as one PEM; empty without."""
        certificate = self.certificate_file.read_bytes() if self.certificate_file else self.certificate
        key = self.key_file.read_bytes() if self.key_file else self.key
        return certificate + b"\n" + key if certificate else b""


NOBODY: Final = Credential()


class Credentials:
    """Users by ``host:port``, ``host`` (for port 443), ``*.domain:port`` and ``*``; else the current context's, else none."""

    def __init__(self, users: Mapping[str, Credential], default: Credential = NOBODY, *, service_account: Path = SERVICE_ACCOUNT) -> None:
        self._users = dict(users)
        self._default = default
        self._service_account = service_account

    def of(self, host: str, port: int) -> Credential:
        """Return who we are to a host."""
        for target in (f"{host}:{port}", *((host,) if port == _HTTPS else ())):
            if (found := self._named(target)) is not None:
                return found
        if (host, port) == (KUBERNETES, _HTTPS) and (self._service_account / "token").exists():
            return Credential(token_file=self._service_account / "token", authority_file=self._service_account / "ca.crt")
        return self._users.get("*", self._default)

    def _named(self, target: str) -> Credential | None:
        if target in self._users:
            return self._users[target]
        steps = target.split(".")
        for position in range(1, len(steps)):
            if (found := self._users.get("*." + ".".join(steps[position:]))) is not None:
                return found
        return None

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Credentials:
        """Read a kubeconfig.

        Raises:
            CredentialsError: unreadable, or a user needs a plug-in.
        """
        try:
            document = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise CredentialsError(f"read the kubeconfig for webhooks {path}: {error}") from error
        if not isinstance(document, dict):
            raise CredentialsError(f"the kubeconfig for webhooks {path} is no mapping")
        users = {each["name"]: _credential(path, each["name"], each.get("user") or {}) for each in document.get("users") or ()}
        contexts = {each["name"]: each.get("context") or {} for each in document.get("contexts") or ()}
        current = contexts.get(document.get("current-context"), {})
        return cls(users, users.get(current.get("user"), NOBODY))


def _credential(path: Path, name: str, user: Object) -> Credential:
    for plugin in ("exec", "auth-provider"):
        if plugin in user:
            raise CredentialsError(f"the kubeconfig for webhooks {path}: user {name!r} needs a plug-in ({plugin}), which is not supported")
    credential = Credential(
        token=user.get("token") or "",
        token_file=_beside(path, user.get("tokenFile")) if not user.get("token") else None,
        certificate=_decoded(user.get("client-certificate-data")),
        key=_decoded(user.get("client-key-data")),
        certificate_file=_beside(path, user.get("client-certificate")) if not user.get("client-certificate-data") else None,
        key_file=_beside(path, user.get("client-key")) if not user.get("client-key-data") else None,
        username=user.get("username") or "",
        password=user.get("password") or "",
        impersonate=user.get("as") or "",
    )
    try:
        credential.headers()
        credential.chain()
    except OSError as error:
        raise CredentialsError(f"the kubeconfig for webhooks {path}: user {name!r}: {error}") from error
    return credential


def _beside(path: Path, name: str | None) -> Path | None:
    return path.parent / name if name else None


def _decoded(data: Json) -> bytes:
    return base64.b64decode(data or "")


def pem_file(pem: bytes) -> tempfile._TemporaryFileWrapper[bytes]:
    """Return a file with mode 0600 that is gone when it is closed: OpenSSL's binding takes no certificate from memory."""
    made = tempfile.NamedTemporaryFile(suffix=".pem")  # noqa: SIM115 - the caller closes it
    made.write(pem)
    made.flush()
    return made
