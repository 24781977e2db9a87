from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from apiserver.apis.meta.errors import Unauthorized
from apiserver.apis.meta.users import User
from apiserver.endpoints.filters.authentication import Authenticator, NoCredential, RequestHeader, Trust
from apiserver.endpoints.filters.certificates import authorities_of
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request
from tests.unit.apiserver.endpoints.filters.test_certificates import HOUR, NOW, Handshake, Signed, common, pem, signed

SECOND = timedelta(seconds=1)
BEGIN, END = NOW - HOUR, NOW + HOUR
NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The end of a certificate that does not expire (RFC 5280, section 4.1.2.5)."""


class Clock:
    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at


class Carrier:
    peer = "192.0.2.1:4711"

    def __init__(self, tls: ssl.SSLObject | None = None, certificate: bytes | None = None) -> None:
        self.tls, self.certificate = tls, certificate


class World:
    def __init__(self, directory: Path) -> None:
        self.root, self.proxies = signed(common("root"), None, ca=True), signed(common("proxies"), None, ca=True)
        self.handshake = Handshake(directory, self.root, self.proxies)
        self.clock = Clock()
        self.trust = Trust(
            RequestHeader(authorities_of(pem(self.proxies)), ("front-proxy",), group_headers=("X-Remote-Group",)),
            authorities_of(pem(self.root)),
        )
        self.reviewed: list[str] = []

    def authenticator(self, *, review: bool = True, **more: Any) -> Authenticator:
        return Authenticator(trust=self.trust, now=self.clock.now, review=self.review if review else None, **more)

    async def review(self, token: str) -> User | None:
        self.reviewed.append(token)
        return User(token) if token != "wrong" else None

    def connect(self, name: str, by: Signed | None = None, *, end: datetime = END) -> Carrier:
        leaf = signed(common(name), by or self.root, end=end)
        return Carrier(self.handshake.connect(leaf), leaf[0].public_bytes(Encoding.DER))


def request(carrier: Carrier | None = None, *headers: tuple[str, str]) -> Request:
    given: Any = carrier or Carrier()
    return Request(Head("GET", "/x", Fields([("Host", "h"), *headers]), old=False), given)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(("at", "is_good"), [(BEGIN - SECOND, False), (BEGIN, True), (NOW, True), (END, True), (END + SECOND, False)])
async def test_certificate_is_valid_from_first_to_last_second(world: World, at: datetime, *, is_good: bool) -> None:
    authenticate, carrier = world.authenticator(), world.connect("alice")
    world.clock.at = at
    if is_good:
        assert (await authenticate(request(carrier))).name == "alice"
    else:
        with pytest.raises(Unauthorized):
            await authenticate(request(carrier))


@pytest.mark.parametrize("proxy", [False, True], ids=["client", "front proxy"])
async def test_certificate_expires_on_an_open_connection(world: World, *, proxy: bool) -> None:
    authenticate = world.authenticator()
    carrier = world.connect("front-proxy", world.proxies) if proxy else world.connect("alice")
    asking = request(carrier, ("X-Remote-User", "alice"))
    assert (await authenticate(asking)).name == "alice"

    world.clock.at = END + SECOND

    for again in (asking, request(carrier, ("X-Remote-User", "alice"))):
        with pytest.raises(Unauthorized):
            await authenticate(again)


async def test_an_expired_certificate_is_not_made_up_for_by_a_token(world: World) -> None:
    authenticate, carrier = world.authenticator(), world.connect("alice")
    world.clock.at = END + SECOND
    with pytest.raises(Unauthorized):
        await authenticate(request(carrier, ("Authorization", "Bearer bob")))
    assert world.reviewed == []


async def test_changed_trust_reauthenticates_known_connections(world: World) -> None:
    authenticate, carrier = world.authenticator(), world.connect("alice")
    asking = request(carrier)
    await authenticate(asking)
    authenticate.trust = Trust(world.trust.request_header)
    with pytest.raises(Unauthorized):
        await authenticate(asking)


async def test_only_a_front_proxy_speaks_for_others(world: World) -> None:
    said = (("X-Remote-User", "bob"), ("X-Remote-Group", "team"), ("X-Remote-Extra-Scopes", "a"), ("X-Remote-Uid", "u"))
    authenticate = world.authenticator()
    spoken_for = await authenticate(request(world.connect("front-proxy", world.proxies), *said))
    assert (spoken_for.name, spoken_for.uid, spoken_for.extra) == ("bob", "u", {"scopes": ("a",)})
    assert set(spoken_for.groups) == {"team", "system:authenticated"}
    assert (await authenticate(request(world.connect("front-proxy"), *said))).name == "front-proxy"
    with pytest.raises(Unauthorized):
        await authenticate(request(world.connect("another", world.proxies), *said))
    with pytest.raises(Unauthorized):
        await authenticate(request(world.connect("front-proxy", world.proxies)))


async def test_front_proxy_with_the_clients_authority_may_be_a_client(world: World) -> None:
    authorities = authorities_of(pem(world.root))
    world.trust = Trust(RequestHeader(authorities, ("front-proxy",)), authorities)
    authenticate, carrier = world.authenticator(), world.connect("front-proxy")
    assert (await authenticate(request(carrier, ("X-Remote-User", "bob")))).name == "bob"
    assert (await authenticate(request(carrier))).name == "front-proxy"
    assert (await authenticate(request(world.connect("alice"), ("X-Remote-User", "bob")))).name == "alice"


async def test_certificate_without_user_does_not_block_a_token(world: World) -> None:
    authenticate = world.authenticator()
    for carrier in (world.connect("another", world.proxies), world.connect("front-proxy", world.proxies)):
        assert (await authenticate(request(carrier, ("Authorization", "Bearer bob")))).name == "bob"
        with pytest.raises(Unauthorized):
            await authenticate(request(carrier, ("Authorization", "Bearer wrong")))


class Watched(Carrier):
    def __init__(self, carrier: Carrier, name: str, read: list[str]) -> None:
        self.certificate = carrier.certificate
        self._handshake, self._name, self._noted = carrier.tls, name, read

    @property
    def tls(self) -> ssl.SSLObject | None:  # type: ignore[override]  # it is read only
        if self._noted[-1:] != [self._name]:
            self._noted.append(self._name)
        return self._handshake


@pytest.mark.parametrize(("limit", "expected"), [(0, "ababcac"), (2, "abca")])
async def test_a_certificate_is_read_once_while_few_are_remembered(world: World, limit: int, expected: str) -> None:
    read: list[str] = []
    authenticate = world.authenticator(max_certificates=limit)
    a, b, c = (Watched(world.connect(each), each, read) for each in "abc")
    for carrier in (a, b, a, b, c, c, a, c):
        await authenticate(request(carrier))
    assert "".join(read) == expected


async def test_cached_identity_is_not_shared_between_connections(world: World) -> None:
    authenticate = world.authenticator()
    fields = Fields([("Host", "h")])
    carriers: list[Any] = [world.connect("alice"), world.connect("bob")]
    alice, bob = (Request(Head("GET", "/x", fields, old=False), each) for each in carriers)
    assert [(await authenticate(each)).name for each in (alice, bob, alice)] == ["alice", "bob", "alice"]


async def test_certificate_without_handshake_is_not_trusted(world: World) -> None:
    with pytest.raises(Unauthorized):
        await world.authenticator()(request(Carrier(None, b"der")))


async def test_tokens_are_reviewed_and_anonymous_can_be_disabled(world: World) -> None:
    bearer = ("Authorization", "Bearer alice")
    assert (await world.authenticator()(request(None, bearer))).name == "alice"
    with pytest.raises(Unauthorized):
        await world.authenticator()(request(None, ("Authorization", "Bearer wrong")))
    with pytest.raises(Unauthorized):
        await world.authenticator(review=False)(request(None, bearer))
    for nothing in ([], [("Authorization", "Bearer")], [("Authorization", "Basic alice")]):
        assert (await world.authenticator()(request(None, *nothing))).name == "system:anonymous"
    with pytest.raises(NoCredential):
        await world.authenticator(anonymous=False)(request())
    assert world.reviewed == ["alice", "wrong"]


async def test_the_life_that_is_left_is_counted(world: World) -> None:
    seen: list[float] = []

    class Cell:
        def observe(self, value: float) -> None:
            seen.append(value)

    authenticate = world.authenticator(expiry=Cell())
    proxy = world.connect("front-proxy", world.proxies)
    await authenticate(request(proxy, ("X-Remote-User", "bob")))
    await authenticate(request(proxy, ("Authorization", "Bearer bob")))
    assert seen == []
    await authenticate(request(world.connect("alice")))
    await authenticate(request(world.connect("bob", end=NEVER)))
    assert seen == [HOUR.total_seconds(), (NEVER - NOW).total_seconds()]
