from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apiserver.apis.virt.places import names
from apiserver.apis.virt.rights import trust
from apiserver.client.rest import Client
from apiserver.registry.virt.revoking import RevokedNodes, trust_config
from certs import files, issuing
from certs.issuing import Profile
from certs.reloading import Files
from controller.reconcilers.certificates.node_certificate_plan import profile_of
from handler.identity.store import Store
from handler.identity.trust import Trust
from tests.fakes import rbac
from tests.fakes.kubeapi import FakeAPI

CONFIG_MAPS = "/api/v1/configmaps"
NAMESPACE = "kubevirt"


class Authority:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._issued = 0
        self._now = datetime.now(UTC)
        self._pair = issuing.new_authority("kubevirt-ca", timedelta(days=1), self._now)
        self.certificate = self._pair.certificate

    def node(self, node: str, **changes: object) -> Files:
        return self._publish(node, replace(profile_of(node), **changes))  # type: ignore[arg-type]  # of whatever field

    def virt_api(self) -> Files:
        return self._publish("virt-api", Profile("virt-api", ("virt-api", "localhost"), ("127.0.0.1",), server=True, client=True))

    def board(self, address: str) -> Files:
        return self._publish("board", Profile("board", ("board",), (address,), server=True))

    def shared(self) -> Files:
        return self._publish("shared", Profile(names.HANDLER, (names.HANDLER,), server=True, client=True))

    def _publish(self, name: str, profile: Profile) -> Files:
        leaf = issuing.issue(self._pair, profile, timedelta(days=1), self._now)
        self._issued += 1
        directory = self._root / f"{name}-{self._issued}"
        files.publish(directory, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": self.certificate})
        return Files.in_directory(directory)


class Operator:
    def __init__(self, api: FakeAPI) -> None:
        self._api = api

    async def revoke(self, node: str, value: str = "its key was stolen") -> None:
        await self._api.edit(CONFIG_MAPS, NAMESPACE, trust.CONFIG_MAP, lambda found: found["data"].update({f"revoked.{node}": value}))

    async def pardon(self, node: str) -> None:
        await self._api.edit(CONFIG_MAPS, NAMESPACE, trust.CONFIG_MAP, lambda found: found["data"].pop(f"revoked.{node}"))


async def publish_trust(api: FakeAPI, authorities: bytes) -> None:
    metadata = {"name": trust.CONFIG_MAP, "namespace": NAMESPACE}
    await api.put(CONFIG_MAPS, {"metadata": metadata, "data": {trust.AUTHORITIES: authorities.decode()}})


@asynccontextmanager
async def trusting(root: Path, authority: Authority) -> AsyncIterator[tuple[Trust, Operator]]:
    api = FakeAPI()
    await publish_trust(api, authority.certificate)
    async with api.serving() as config, Client(config, user_agent="test") as client:
        made = Trust(client, NAMESPACE, Store(root / "identity"))
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(made.run())
            yield made, Operator(api)
            following.cancel()


@asynccontextmanager
async def revoking(authority: Authority) -> AsyncIterator[tuple[RevokedNodes, Operator]]:
    api = FakeAPI()
    api.authorize = rbac.authorizer("virt-api")
    await publish_trust(api, authority.certificate)
    async with api.serving() as config, Client(config, user_agent="test") as client, asyncio.TaskGroup() as tasks:
        informer = trust_config(client, NAMESPACE)
        revoked = RevokedNodes(informer)
        following = tasks.create_task(informer.run())
        await informer.synced.wait()
        yield revoked, Operator(api)
        following.cancel()
    assert api.forbidden == []
