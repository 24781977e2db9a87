from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization

from certs.files import write_file
from certs.issuing import Pair, Profile, issue, new_authority

HOST: Final = "127.0.0.1"
ADMIN: Final = "admin"
USER: Final = "bench"
READER: Final = "reader"
"""A user with the read rights that a test grants."""
STRANGER: Final = "stranger"
USERS: Final = "bench-users"
"""A group with the same rights as :data:`USER`, for the front proxy."""
FRONT_PROXY: Final = "front-proxy"
_LIFETIME: Final = timedelta(days=2)
_PROFILES: Final = {
    "server": Profile(
        "server",
        ("localhost", "ours.default.svc", "reference.default.svc", "reference400.default.svc"),
        (HOST,),
        server=True,
    ),
    ADMIN: Profile(ADMIN, client=True, organizations=("system:masters",)),
    USER: Profile(USER, client=True),
    READER: Profile(READER, client=True, organizations=("readers", "team")),
    STRANGER: Profile(STRANGER, client=True),
    "service-account": Profile("service-account", client=True),
}


@dataclass(frozen=True, slots=True)
class Certificates:
    directory: Path

    @property
    def authority(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def front_proxy_authority(self) -> Path:
        return self.directory / "front-proxy-ca.crt"

    @property
    def service_account_public_key(self) -> Path:
        return self.directory / "service-account.pub"

    def certificate(self, name: str) -> Path:
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def kubeconfig(self, user: str, url: str, name: str) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority": str(self.authority)}}],
            "users": [{"name": user, "user": {"client-certificate": str(self.certificate(user)), "client-key": str(self.key(user))}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
            "current-context": name,
        }
        path = self.directory / f"{name}.kubeconfig"
        write_file(path, json.dumps(content, indent=1).encode())
        return path


def make(directory: Path) -> Certificates:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = datetime.now(UTC)
    made = Certificates(directory)
    authority, front = new_authority("reference", _LIFETIME, now), new_authority("reference-front-proxy", _LIFETIME, now)
    write_file(made.authority, authority.certificate)
    write_file(made.front_proxy_authority, front.certificate)
    pairs = {name: issue(authority, profile, _LIFETIME, now) for name, profile in _PROFILES.items()}
    pairs[FRONT_PROXY] = issue(front, Profile(FRONT_PROXY, client=True), _LIFETIME, now)
    for name, pair in pairs.items():
        _write(made, name, pair)
    signing = serialization.load_pem_private_key(pairs["service-account"].key, password=None).public_key()
    public = signing.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_file(made.service_account_public_key, public)
    return made


def _write(made: Certificates, name: str, pair: Pair) -> None:
    write_file(made.certificate(name), pair.certificate)
    write_file(made.key(name), pair.key)
