from __future__ import annotations

import contextlib
import json
import ssl
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from apiserver.kubectl import access
from apiserver.kubectl.access import Selection
from apiserver.kubectl.messages import Failure
from certs.issuing import Pair, Profile, issue, new_authority

HOUR = timedelta(hours=1)
AGENT = ("User-Agent", f"kubectl-virt/{metadata.version('kubevirt-python')}")
NOW = datetime.now(UTC)


class Trust(NamedTuple):
    """Files of an authority and a client certificate, and a server named ``here`` that requires it."""

    authority: str
    certificate: str
    key: str
    server: ssl.SSLContext


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    directory = tmp_path_factory.mktemp("trust")
    authority = new_authority("a", HOUR, NOW)

    def files(name: str, pair: Pair) -> tuple[str, str]:
        paths = directory / f"{name}.crt", directory / f"{name}.key"
        for path, content in zip(paths, (pair.certificate, pair.key), strict=True):
            path.write_bytes(content)
        return str(paths[0]), str(paths[1])

    trusted, _ = files("ca", authority)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files("server", issue(authority, Profile("here", dns_names=("here",), server=True), HOUR, NOW)))
    server.load_verify_locations(trusted)
    server.verify_mode = ssl.CERT_REQUIRED
    return Trust(trusted, *files("client", issue(authority, Profile("jane", client=True), HOUR, NOW)), server)


def a_kubeconfig(path: Path, *, cluster: dict[str, Any], user: dict[str, Any], **context: str) -> str:
    config = {
        "current-context": "now",
        "contexts": [{"name": "now", "context": {"cluster": "one", "user": "me", **context}}],
        "clusters": [{"name": "one", "cluster": {"server": "https://one.example", **cluster}}],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(json.dumps(config))
    return str(path)


def meet(client: ssl.SSLContext | None, server: ssl.SSLContext) -> str:
    assert client is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = client.wrap_bio(to_client, to_server, server_hostname="here"), server.wrap_bio(to_server, to_client, server_side=True)
    for each in (ours, theirs, ours):
        with contextlib.suppress(ssl.SSLWantReadError):
            each.do_handshake()
    theirs.do_handshake()
    found: Any = theirs.getpeercert()
    return str(dict(pair for each in found["subject"] for pair in each)["commonName"])


async def test_server_is_verified_and_receives_the_users_certificate(trust: Trust, tmp_path: Path) -> None:
    user = {"client-certificate": trust.certificate, "client-key": trust.key}
    path = a_kubeconfig(tmp_path / "config", cluster={"certificate-authority": trust.authority}, user=user)
    found = await access.load(Selection(kubeconfig=path), {})
    assert meet(found.tls, trust.server) == "jane"
    assert found.tls is not None
    assert not found.tls.verify_flags & ssl.VERIFY_X509_STRICT

    other = a_kubeconfig(tmp_path / "other", cluster={}, user=user)
    with pytest.raises(ssl.SSLCertVerificationError):
        meet((await access.load(Selection(kubeconfig=other), {})).tls, trust.server)

    unverified = a_kubeconfig(tmp_path / "unverified", cluster={"insecure-skip-tls-verify": True}, user=user)
    assert meet((await access.load(Selection(kubeconfig=unverified), {})).tls, trust.server) == "jane"


async def test_server_without_scheme_uses_tls_given_an_authority(trust: Trust, tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path / "config", cluster={"certificate-authority": trust.authority}, user={"token": "mine"})
    found = await access.load(Selection(kubeconfig=path, server="two.example:6443"), {})
    assert (found.server, found.tls is not None) == ("https://two.example:6443", True)


async def test_proxy_and_tls_server_name_come_from_the_cluster(tmp_path: Path) -> None:
    cluster = {"proxy-url": "http://proxy.example:3128", "tls-server-name": "here"}
    found = await access.load(Selection(kubeconfig=a_kubeconfig(tmp_path / "config", cluster=cluster, user={})), {})
    assert (found.proxy, found.server_hostname) == ("http://proxy.example:3128", "here")


async def test_flags_override_environment_and_kubeconfig(tmp_path: Path) -> None:
    meant = a_kubeconfig(tmp_path / "meant", cluster={}, user={"token": "mine"}, namespace="guests")
    other = a_kubeconfig(tmp_path / "other", cluster={"server": "https://other.example"}, user={"token": "others"})
    given = Selection(kubeconfig=meant, namespace="mine", token="given", impersonate_user="jane", impersonate_uid="7")
    found = await access.load(given, {"KUBECONFIG": other})
    assert (found.server, found.namespace) == ("https://one.example", "mine")
    assert found.headers == (AGENT, ("Authorization", "Bearer given"), ("Impersonate-User", "jane"), ("Impersonate-Uid", "7"))


async def test_a_cluster_and_a_user_are_enough_without_a_context(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path / "config", cluster={}, user={"token": "mine"})
    config = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps({**config, "current-context": "", "contexts": []}))
    found = await access.load(Selection(kubeconfig=path, cluster="one", user="me"), {})
    assert (found.server, found.namespace, found.headers) == ("https://one.example", "default", (AGENT, ("Authorization", "Bearer mine")))


async def test_missing_kubeconfig_does_not_fall_back_to_the_pod() -> None:
    with pytest.raises(Failure, match="kubeconfig /nonexistent not found"):
        await access.load(Selection(), {"KUBECONFIG": "/nonexistent", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_where_it_is_not_installed_its_sources_tell_its_release(tmp_path: Path) -> None:
    project = tomllib.loads((access.SOURCES / "pyproject.toml").read_text())["project"]
    paths = sys.path[:]
    sys.path.clear()
    try:
        assert access.version() == project["version"]
        assert access.version(tmp_path) == "unknown"
        (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\nversion = "9"\n')
        assert access.version(tmp_path) == "unknown"
    finally:
        sys.path[:] = paths
