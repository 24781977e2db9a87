from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from apiserver.apis.meta.errors import Unauthorized
from apiserver.apis.meta.users import User
from apiserver.endpoints.filters.authentication import (
    Authenticator,
    RequestHeader,
    Trust,
    bearer_token,
    from_certificate,
    from_config_map,
    is_front_proxy,
    user_in_headers,
    websocket_token,
)
from apiserver.endpoints.filters.certificates import Authority, Certificate
from apiserver.endpoints.http.heads import Fields, Head
from apiserver.endpoints.http.messages import Request

OURS, THEIRS = (b"ours", b"key"), (b"theirs", b"key")
WEBSOCKET = (("Connection", "Upgrade"), ("Upgrade", "websocket"))


class Carrier:
    peer, tls, certificate = "192.0.2.1:4711", None, None


def fields(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def request(*pairs: tuple[str, str]) -> Request:
    carrier: Any = Carrier()
    return Request(Head("GET", "/x", Fields([("Host", "h"), *pairs]), old=False), carrier)


def offering(*protocols: str) -> tuple[tuple[str, str], ...]:
    return (*WEBSOCKET, *(("Sec-WebSocket-Protocol", each) for each in protocols))


def hidden(token: str | bytes) -> str:
    data = token.encode() if isinstance(token, str) else token
    return f"base64url.bearer.authorization.k8s.io.{base64.urlsafe_b64encode(data).decode().rstrip('=')}"


def certificate(name: str = "alice", *, issuer: Authority = OURS, uids: tuple[str, ...] = ()) -> Certificate:
    return Certificate(issuer, 0.0, 1.0, name, ("dev", "ops"), uids, "00ff")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), None),
        ((("X-Remote-User", ""),), None),
        ((("X-Remote-Group", "team"), ("X-Remote-Extra-Scopes", "a")), None),
        ((("x-remote-user", "bob"),), User("bob")),
        ((("X-Remote-User", "bob"), ("X-Remote-User", "eve")), User("bob")),
        ((("X-Remote-User", ""), ("X-Remote-User", "eve")), None),
        ((("X-Remote-User", ""), ("X-User", "bob")), User("bob")),
        ((("X-User", "eve"), ("X-Remote-User", "bob")), User("bob")),
        ((("X-Remote-User", "bob"), ("X-Remote-Uid", "1"), ("X-Remote-Uid", "2")), User("bob", (), "1")),
        ((("X-Remote-User", "bob"), ("X-Group", "c"), ("X-Remote-Group", "b"), ("X-Remote-Group", "a")), User("bob", ("b", "a", "c"))),
        ((("X-Remote-User", "bob"), ("X-Remote-Group", ""), ("X-Remote-Group", "a")), User("bob", ("a",))),
    ],
)
def test_a_front_proxy_names_a_user_as_in_go(given: tuple[tuple[str, str], ...], found: User | None) -> None:
    trust = RequestHeader(username_headers=("X-Remote-User", "X-User"), group_headers=("X-Remote-Group", "X-Group"))
    assert user_in_headers(trust, fields(*given)) == found


@pytest.mark.parametrize(
    ("prefixes", "given", "extra"),
    [
        ((), (("X-Remote-Extra-Scopes", "a"),), {}),
        (("X-Remote-Extra-",), (("x-remote-extra-scopes", "a"), ("X-REMOTE-EXTRA-SCOPES", "b")), {"scopes": ("a", "b")}),
        (("X-Remote-Extra-",), (("Not-X-Remote-Extra-Scopes", "a"), ("X-Remote-Uid", "u")), {}),
        (("X-Remote-Extra-", "X-More-"), (("X-More-B", "b"), ("X-Remote-Extra-A", "a")), {"a": ("a",), "b": ("b",)}),
        (("X-Remote-Extra-",), (("X-Remote-Extra-Example.com%2fNode", "n"),), {"example.com/node": ("n",)}),
        (("X-Remote-Extra-",), (("X-Remote-Extra-%e2%84%aaubernetes.io%2fnode", "n"),), {"\u212aubernetes.io/node": ("n",)}),
        (("X-Remote-Extra-",), (("X-Remote-Extra-%C3%89", "e"),), {"É": ("e",)}),
    ],
)
def test_extra_keys_are_lowercased_before_percent_decoding(
    prefixes: tuple[str, ...], given: tuple[tuple[str, str], ...], extra: dict[str, tuple[str, ...]]
) -> None:
    """The Kelvin sign must not become the k of a key that names the user's node."""
    user = user_in_headers(RequestHeader(extra_prefixes=prefixes), fields(("X-Remote-User", "bob"), *given))
    assert user is not None
    assert user.extra == extra


@pytest.mark.parametrize(
    ("name", "issuer", "allowed", "is_one"),
    [
        ("front-proxy", OURS, ("front-proxy",), True),
        ("front-proxy", OURS, ("other", "front-proxy"), True),
        ("front-proxy", OURS, (), True),
        ("eve", OURS, ("front-proxy",), False),
        ("front-proxy", THEIRS, ("front-proxy",), False),
        ("front-proxy", THEIRS, (), False),
    ],
)
def test_only_allowed_names_of_the_authorities_are_front_proxies(
    name: str, issuer: Authority, allowed: tuple[str, ...], *, is_one: bool
) -> None:
    assert is_front_proxy(RequestHeader(frozenset({OURS}), allowed), certificate(name, issuer=issuer)) == is_one


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (certificate(), User("alice", ("dev", "ops"), "", {"authentication.kubernetes.io/credential-id": ("X509SHA256=00ff",)})),
        (
            certificate(uids=("u",)),
            User("alice", ("dev", "ops"), "u", {"authentication.kubernetes.io/credential-id": ("X509SHA256=00ff",)}),
        ),
        (certificate(""), None),
        (certificate(issuer=THEIRS), None),
        (certificate(issuer=THEIRS, uids=("a", "b")), None),
        (certificate(uids=("",)), Unauthorized),
        (certificate(uids=("a", "b")), Unauthorized),
        (certificate(uids=("a", "b", "c")), Unauthorized),
    ],
)
def test_a_certificate_of_an_authority_of_clients_names_one_user(shown: Certificate, found: User | type[Unauthorized] | None) -> None:
    if isinstance(found, User | None):
        assert from_certificate(frozenset({OURS}), shown) == found
    else:
        with pytest.raises(found):
            from_certificate(frozenset({OURS}), shown)


@pytest.mark.parametrize(
    ("field", "token"),
    [
        ("Bearer alice", "alice"),
        ("bEARER alice", "alice"),
        ("  Bearer   alice  ", "alice"),
        ("Bearer", ""),
        ("Basic alice", None),
        ("Bearers alice", None),
        ("", None),
    ],
)
def test_a_bearer_token_is_what_follows_the_word(field: str, token: str | None) -> None:
    assert bearer_token(fields(("authorization", field))) == token


def test_without_the_field_there_is_no_bearer_token() -> None:
    assert bearer_token(fields()) is None


@pytest.mark.parametrize("token", ["a", "ab", "abc", "abcd", "??>", "???", "naïve 漢字"])
@pytest.mark.parametrize(
    "given",
    [
        lambda token: offering("v4.channel.k8s.io", hidden(token)),
        lambda token: offering(hidden(token), "v4.channel.k8s.io"),
        lambda token: offering(f"{hidden(token)}, v4.channel.k8s.io,v5.channel.k8s.io"),
    ],
    ids=["behind another", "before another", "in one line with two"],
)
def test_browser_token_is_read_from_websocket_protocols(given: Any, token: str) -> None:
    assert websocket_token(request(*given(token))) == token


@pytest.mark.parametrize(
    "given",
    [
        (),
        WEBSOCKET,
        offering("v4.channel.k8s.io"),
        (("Sec-WebSocket-Protocol", f"v4.channel.k8s.io, {hidden('alice')}"),),
        (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("Sec-WebSocket-Protocol", f"v4.channel.k8s.io, {hidden('alice')}")),
    ],
    ids=["nothing", "no protocols", "no token", "no upgrade", "SPDY"],
)
def test_only_websockets_offer_tokens(given: tuple[tuple[str, str], ...]) -> None:
    assert websocket_token(request(*given)) is None


@pytest.mark.parametrize(
    "protocols",
    [
        (hidden("alice"),),
        (hidden("alice"), hidden("bob")),
        (hidden("alice"), "v4.channel.k8s.io", hidden("alice")),
        (hidden("a"), hidden("b"), hidden("c"), "v4.channel.k8s.io"),
        ("v4.channel.k8s.io", f"{hidden('bob')}!!!!"),
        ("v4.channel.k8s.io", f"{hidden('')}A"),
        ("v4.channel.k8s.io", hidden(b"\xff")),
    ],
    ids=["alone", "two alone", "two", "three", "no base64", "half a byte", "no text"],
)
def test_malformed_websocket_token_is_unauthorized_not_anonymous(protocols: tuple[str, ...]) -> None:
    asking = request(*offering(*protocols))
    with pytest.raises(Unauthorized):
        websocket_token(asking)


class Reviewing:
    def __init__(self) -> None:
        self.reviewed: list[str] = []
        never: Any = None
        self.authenticate = Authenticator(trust=Trust(), now=never, review=self.review)

    async def review(self, token: str) -> User | None:
        self.reviewed.append(token)
        return User(token) if token != "wrong" else None


async def test_a_token_is_the_header_s_or_else_the_websocket_s() -> None:
    reviewing = Reviewing()
    bearer, websocket = ("Authorization", "Bearer alice"), offering("v4.channel.k8s.io", hidden("bob"))
    for given, name in (((bearer, *websocket), "alice"), (websocket, "bob"), ((("Authorization", "Bearer"), *websocket), "bob")):
        assert (await reviewing.authenticate(request(*given))).name == name
    assert reviewing.reviewed == ["alice", "bob", "bob"]


async def test_empty_token_is_unauthorized_without_a_review() -> None:
    reviewing = Reviewing()
    for protocols in (("v4.channel.k8s.io", hidden("")), ("v4.channel.k8s.io", hidden("wrong"))):
        with pytest.raises(Unauthorized):
            await reviewing.authenticate(request(*offering(*protocols)))
    assert reviewing.reviewed == ["wrong"]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({}, RequestHeader(frozenset(), (), (), ("X-Remote-Uid",), (), ())),
        (
            {f"requestheader-{each}": "" for each in ("allowed-names", "username-headers", "uid-headers", "group-headers")},
            RequestHeader(frozenset(), (), (), ("X-Remote-Uid",), (), ()),
        ),
        (
            {
                "requestheader-allowed-names": '["front-proxy", "other"]',
                "requestheader-username-headers": '["X-Name"]',
                "requestheader-uid-headers": "[]",
                "requestheader-group-headers": '["X-Team"]',
                "requestheader-extra-headers-prefix": '["X-More-"]',
            },
            RequestHeader(frozenset(), ("front-proxy", "other"), ("X-Name",), (), ("X-Team",), ("X-More-",)),
        ),
    ],
    ids=["nothing", "empty", "everything"],
)
def test_the_config_map_says_whom_to_believe_and_in_which_fields(data: dict[str, str], found: RequestHeader) -> None:
    """Some clusters' ConfigMaps predate the field for uids."""
    assert from_config_map(data) == found


@pytest.mark.parametrize("value", ["[", "{}", '"front-proxy"', "1", "null", "[1]", '["front-proxy", null]'])
def test_unreadable_config_map_is_refused_not_read_as_empty(value: str) -> None:
    with pytest.raises(ValueError, match=r"requestheader-allowed-names is not a JSON list of strings|Expecting value"):
        from_config_map({"requestheader-allowed-names": value})
    for key in ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix"):
        with pytest.raises(ValueError, match=r".+"):
            from_config_map({f"requestheader-{key}": json.dumps({"X-Remote": 1})})
