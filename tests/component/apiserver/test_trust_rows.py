from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from apiserver.client.config import Config
from apiserver.server import options, running
from apiserver.server.options import Times
from apiserver.server.running import Kinds
from certs.files import write_file
from certs.issuing import Profile, new_authority
from storage.memory import MemoryStorage
from tests.component.apiserver.conftest import HOUR, Api, Pki, flags
from tests.component.apiserver.test_delegation import (
    CONFIG_MAPS,
    NAMESPACES,
    REVIEWS,
    TOKENS,
    Cluster,
    cluster,
    trusted,
    write_kubeconfig,
)
from tests.component.apiserver.widgets import WIDGETS, WidgetStrategy, widget
from tests.fakes.kubeapi import FakeAPI

__all__ = ["cluster"]


async def serial(api: Api, pki: Pki) -> str:
    host, _, port = api.url.removeprefix("https://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=pki.client())
    found: Any = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.transport.abort()
    return str(found)


async def test_agg_04_new_certificates_and_authorities_need_no_restart(pki: Pki, tmp_path: Path) -> None:
    for name in ("server.crt", "server.key", "ca.crt"):
        shutil.copy(pki.directory / name, tmp_path / name)
    given = flags(
        pki,
        f"--tls-cert-file={tmp_path / 'server.crt'}",
        f"--tls-private-key-file={tmp_path / 'server.key'}",
        f"--client-ca-file={tmp_path / 'ca.crt'}",
        "--no-anonymous-auth",
    )
    quick = dataclasses.replace(given, times=Times(files=0.02))

    async def ask(api: Api, authority: Any) -> int:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client("developer", authority)))
        async with session:
            try:
                async with session.get(f"{api.url}/apis") as answer:
                    return answer.status
            except aiohttp.ClientError:
                return 0

    async with (
        running.running(quick, lambda _: Kinds((WidgetStrategy(),)), MemoryStorage()) as (host, port),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=pki.client("developer"))) as session,
        asyncio.timeout(20),
    ):
        api = Api(f"https://{host}:{port}", session, WidgetStrategy(), MemoryStorage())
        while (await api.get("/readyz")).code != 200:
            pass
        before = await serial(api, pki)
        renewed = Pki(tmp_path, pki.authority)
        renewed.issued("server", Profile("server", dns_names=("localhost",), ip_addresses=("127.0.0.1",), server=True))
        while await serial(api, pki) == before:
            await asyncio.sleep(0.02)

        another = new_authority("another", HOUR, datetime.now(UTC))
        assert (await ask(api, None), await ask(api, another)) == (200, 0)
        write_file(tmp_path / "ca.crt", another.certificate)
        while await ask(api, another) != 200:
            await asyncio.sleep(0.02)
        assert await ask(api, None) == 0
        assert (await api.get("/readyz")).code == 401, "a connection stays open, but what it shows is judged anew"


async def test_aun_11_each_kubeconfig_is_used_for_what_it_is_for(pki: Pki, tmp_path: Path) -> None:
    core, authentication, authorization = FakeAPI(), FakeAPI(), FakeAPI()
    made = Cluster(core, pki, new_authority("front-proxy", HOUR, datetime.now(UTC)))
    for kube in (core, authentication, authorization):
        kube.admit = made.admit
    await authentication.put(CONFIG_MAPS, trusted(made.proxies, pki.authority, ["front-proxy-client"]))
    await core.put(NAMESPACES, {"metadata": {"name": "acc"}, "status": {"phase": "Active"}})
    async with core.serving() as one, authentication.serving() as two, authorization.serving() as three:

        def kubeconfig(name: str, config: Config) -> Path:
            return write_kubeconfig(tmp_path / name, config)

        given = [
            "--bind-address=127.0.0.1", "--secure-port=0", "--storage=memory", "--shutdown-delay-duration=0s",
            f"--tls-cert-file={pki.directory / 'server.crt'}", f"--tls-private-key-file={pki.directory / 'server.key'}",
            f"--kubeconfig={kubeconfig('core', one)}", f"--authentication-kubeconfig={kubeconfig('authentication', two)}",
            f"--authorization-kubeconfig={kubeconfig('authorization', three)}",
        ]  # fmt: skip
        async with running.running(options.parse(given), lambda _: Kinds((WidgetStrategy(),)), MemoryStorage()) as (host, port):
            made.url = f"https://{host}:{port}"
            async with asyncio.timeout(10):
                while (await made.ask(None, path="/readyz"))[0] != 200:
                    await asyncio.sleep(0.02)
            assert (await made.ask(None, headers={"Authorization": "Bearer good"}))[0] == 200
            proxied = {"X-Remote-User": "alice"}
            code, _ = await made.ask(
                "front-proxy-client", made.proxies, "POST", WIDGETS.path("acc"), headers=proxied, json=widget()
            )  # fmt: skip
            assert code == 201

    def asked(kube: FakeAPI) -> set[str]:
        return {path for _, path, _ in kube.requests}

    assert asked(authentication) == {"/api/v1/namespaces/kube-system/configmaps", TOKENS}
    assert asked(authorization) == {REVIEWS}
    assert not asked(core) & (asked(authentication) | asked(authorization))
    assert NAMESPACES in asked(core)


async def test_oas_12_and_aun_08_known_users_may_read_documents(cluster: Cluster) -> None:
    """The aggregator has no groups, but the roles are for ``system:authenticated``."""
    cluster.allowed_users.add("system:aggregator")
    for path in ("/openapi/v3", "/openapi/v2"):
        code, _ = await cluster.ask("front-proxy-client", cluster.proxies, path=path, headers={"X-Remote-User": "system:aggregator"})
        review = cluster.reviews[-1]
        assert (code, review["groups"]) == (200, ["system:authenticated"])
        assert review["nonResourceAttributes"] == {"path": path, "verb": "get"}


async def test_aun_04_a_certificate_names_user_groups_and_itself(cluster: Cluster) -> None:
    cluster.allowed_users.add("zoe")
    certificate, key = cluster.pki.issued("zoe", Profile("zoe", organizations=("builders", "testers"), client=True))
    context = cluster.pki.client()
    context.load_cert_chain(certificate, key)
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    session = aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=context))
    async with session, session.get(WIDGETS.path("acc")) as answer:
        assert answer.status == 200
    review = cluster.reviews[-1]
    assert (review["user"], set(review["groups"])) == ("zoe", {"builders", "testers", "system:authenticated"})
    assert review["extra"] == {"authentication.kubernetes.io/credential-id": [f"X509SHA256={hashlib.sha256(der).hexdigest()}"]}


async def test_aun_04_server_certificate_is_no_user(cluster: Cluster) -> None:
    certificate, key = cluster.pki.issued("serving", Profile("alice", dns_names=("alice",), server=True))
    context = cluster.pki.client()
    context.load_cert_chain(certificate, key)
    session = aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=context))
    async with session:
        try:
            async with session.get(WIDGETS.path("acc")) as answer:
                assert answer.status == 401
        except aiohttp.ClientError:
            pass
    assert not any(each["user"] == "alice" for each in cluster.reviews)


async def test_aun_05_token_review_is_cached_and_500_if_unavailable(cluster: Cluster) -> None:
    def reviewed() -> int:
        return sum(path == TOKENS for _, path, _ in cluster.kube.requests)

    for _ in range(5):
        assert (await cluster.ask(None, headers={"Authorization": "Bearer good"}))[0] == 200
        assert (await cluster.ask(None, headers={"Authorization": "Bearer bad"}))[0] == 401
    assert reviewed() == 2
    cluster.kube.authorize = lambda _, path, __: path != TOKENS
    assert (await cluster.ask(None, headers={"Authorization": "Bearer good"}))[0] == 200
    code, status = await cluster.ask(None, headers={"Authorization": "Bearer another"})
    assert (code, status["reason"]) == (500, "InternalError")
    assert "another" not in status["message"]
